//! The tree of calls, outermost first.

use super::Page;
use super::sites::{amount, plus_minus, share, spaced, what};
use crate::analyze::report::{Run, TreeNode, View};
use crate::analyze::views::label;
use crate::output::table::cut;

/// Less of the whole has no line of its own, but is said at the end.
const SHARE_SHOWN: f64 = 0.01;
/// Further to the right than so many characters branches do not go.
const DEEPEST: usize = 36;
/// Room for what a call is called, where there is hardly any.
const NAME_LEAST: usize = 12;
/// Columns of an amount and its share, and of its standard error.
const FIGURES: usize = 19;
const ABOUT: usize = 13;

/// The page of `--tree`.
pub fn calls(page: &mut Page, run: &Run, view: &View) {
    let all = view.total.unwrap_or_default();
    let about = spaced(plus_minus(view.stderr, |n| amount(view, n)));
    page.say("CALLS", format!("{} of {}{about}, outermost first", what(view, run), amount(view, all)));
    let mut tree = Tree { view, least: all as f64 * SHARE_SHOWN, room: page.room(), hidden: 0, lines: Vec::new() };
    let several = tree.shown(&view.tree).len() > 1;
    tree.branches(&view.tree, "", several);
    page.block("", tree.lines);
    if tree.hidden > 0 {
        page.say("", format!("{} in calls of less than 1 % each are not shown", amount(view, tree.hidden)));
    }
}

struct Tree<'a> {
    view: &'a View,
    least: f64,
    room: usize,
    hidden: u64,
    lines: Vec<String>,
}

impl<'a> Tree<'a> {
    fn shown(&self, nodes: &'a [TreeNode]) -> Vec<&'a TreeNode> {
        nodes.iter().filter(|n| n.frame.is_some() || n.inclusive as f64 >= self.least).collect()
    }

    /// What the same call leads to. Where it does nothing else than one other call (`fork` is not), that stands under it.
    fn branches(&mut self, nodes: &'a [TreeNode], before: &str, fork: bool) {
        let shown = self.shown(nodes);
        self.hide(inclusive(nodes).saturating_sub(inclusive(shown.iter().copied())));
        let last = shown.len().saturating_sub(1);
        for (i, first) in shown.into_iter().enumerate() {
            let (sign, below) = if !fork || before.chars().count() >= self.deepest() {
                ("", "")
            } else if i < last {
                ("├─ ", "│  ")
            } else {
                ("└─ ", "   ")
            };
            let (node, more) = self.end_of_import(first);
            let calls = self.shown(&node.calls).len();
            let own = node.exclusive > 0 && node.exclusive as f64 >= self.least && calls > 0;
            self.line(first, &format!("{before}{sign}"), own.then_some(node.exclusive), more);
            self.branches(&node.calls, &format!("{before}{below}"), own || calls > 1);
        }
    }

    fn hide(&mut self, more: u64) {
        self.hidden = self.hidden.saturating_add(more);
    }

    /// The last of the calls of Python's import system that only lead on to each other, and how many there are behind the first.
    fn end_of_import(&mut self, first: &'a TreeNode) -> (&'a TreeNode, usize) {
        let is_import = |n: &TreeNode| n.frame.as_ref().and_then(|f| f.file.as_deref()).is_some_and(|f| f.starts_with("<frozen importlib"));
        let (mut node, mut more) = (first, 0);
        while is_import(node) && (node.exclusive as f64) < self.least {
            let shown = self.shown(&node.calls);
            let [next] = shown[..] else { break };
            if !is_import(next) {
                break;
            }
            self.hide(inclusive(&node.calls).saturating_sub(next.inclusive));
            (node, more) = (next, more + 1);
        }
        (node, more)
    }

    fn is_estimated(&self) -> bool {
        self.view.stderr > 0.5
    }

    fn deepest(&self) -> usize {
        let figures = if self.is_estimated() { FIGURES + ABOUT } else { FIGURES };
        DEEPEST.min(self.room.saturating_sub(figures + NAME_LEAST + 3))
    }

    fn line(&mut self, node: &TreeNode, branch: &str, own: Option<u64>, more: usize) {
        let view = self.view;
        // A column of its own where anything is an estimate.
        let about = if self.is_estimated() { format!(" {:<12}", plus_minus(node.stderr, |n| amount(view, n))) } else { String::new() };
        let figures = format!("{:>10}{about} {:>6}  {branch}", amount(view, node.inclusive), share(node.inclusive, view));
        let more = if more > 0 { format!(" … {more} more") } else { String::new() };
        let behind = own.map_or(more, |own| format!(" ({} itself)", amount(view, own)));
        let room = self.room.saturating_sub(figures.chars().count());
        // On a narrow screen a call's name comes first.
        let behind = if room < NAME_LEAST + behind.chars().count() { String::new() } else { behind };
        let who = node.frame.as_ref().map_or("smaller ones".into(), label);
        let name = cut(&who, room - behind.chars().count());
        self.lines.push(format!("{figures}{name}{behind}"));
    }
}

/// Of all of them; a damaged trace can have any.
fn inclusive<'a>(nodes: impl IntoIterator<Item = &'a TreeNode>) -> u64 {
    nodes.into_iter().fold(0, |sum, n| sum.saturating_add(n.inclusive))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::report::Frame;

    fn call(function: &str, file: &str, inclusive: u64, exclusive: u64, calls: Vec<TreeNode>) -> TreeNode {
        let frame = Frame { function: Some(function.into()), file: Some(file.into()), line: Some(7), python: true, ..Frame::default() };
        TreeNode { frame: Some(frame), inclusive, exclusive, calls, ..TreeNode::default() }
    }

    fn small(inclusive: u64) -> TreeNode {
        TreeNode { inclusive, exclusive: inclusive, ..TreeNode::default() }
    }

    fn drawn(tree: Vec<TreeNode>, total: u64, room: usize) -> (Vec<String>, u64) {
        drawn_with(tree, total, room, 0.0)
    }

    fn drawn_with(tree: Vec<TreeNode>, total: u64, room: usize, stderr: f64) -> (Vec<String>, u64) {
        let view = View { unit: "allocations", total: Some(total), stderr, tree, ..View::default() };
        let mut drawn = Tree { view: &view, least: total as f64 * SHARE_SHOWN, room, hidden: 0, lines: Vec::new() };
        let several = drawn.shown(&view.tree).len() > 1;
        drawn.branches(&view.tree, "", several);
        (drawn.lines.iter().map(|l| l.trim_start().to_owned()).collect(), drawn.hidden)
    }

    #[test]
    fn what_forks_has_branches_what_leads_on_stands_below_and_the_rest_is_counted() {
        let leaf = |name: &str, n| call(name, "a.py", n, n, vec![]);
        let both = call("both", "a.py", 700, 200, vec![leaf("left", 300), leaf("right", 195), small(5)]);
        let tree = vec![call("main", "a.py", 700, 0, vec![both]), call("other", "a.py", 200, 0, vec![leaf("end", 200)]), small(100)];
        let wanted = [
            "700   70 %  ├─ a.py:7 main",
            "700   70 %  │  a.py:7 both (200 itself)",
            "300   30 %  │  ├─ a.py:7 left",
            "195   20 %  │  └─ a.py:7 right",
            "200   20 %  ├─ a.py:7 other",
            "200   20 %  │  a.py:7 end",
            "100   10 %  └─ smaller ones",
        ];
        let (lines, hidden) = drawn(tree, 1000, 90);
        assert_eq!((lines.iter().map(String::as_str).collect::<Vec<_>>(), hidden), (wanted.to_vec(), 5));
    }

    #[test]
    fn how_python_imports_is_one_line() {
        let import = |calls| call("_find_and_load", "<frozen importlib._bootstrap>", 1000, 0, calls);
        let (lines, hidden) = drawn(vec![import(vec![import(vec![import(vec![call("<module>", "b.py", 998, 998, vec![])])])])], 1000, 90);
        assert_eq!(lines, ["1 000  100 %  <frozen importlib._bootstrap>:7 _find_and_load … 2 more", "998  100 %  b.py:7 <module>"]);
        assert_eq!(hidden, 0);
    }

    #[test]
    fn however_deep_no_line_is_wider_than_the_screen_and_no_number_is_cut() {
        let call = |inclusive: u64, calls| TreeNode {
            stderr: 30.0,
            ..call("a_function_of_a_long_name", "a_file_of_a_long_name.py", inclusive, 400, calls)
        };
        let tree = (2..=41).fold(vec![call(400, vec![])], |inner, n| vec![call(400 * n, inner)]);
        for (room, stderr) in [(50, 0.0), (90, 0.0), (50, 30.0), (90, 30.0)] {
            let (lines, _) = drawn_with(tree.clone(), tree[0].inclusive, room, stderr);
            // Behind the share the branches, whole, and the name.
            let name = |l: &str| l.split_once(" %  ").map(|(_, rest)| rest.trim_start_matches(['│', '├', '└', '─', ' ']).to_owned());
            let whole = |l: &String| {
                l.chars().count() <= room && name(l).is_some_and(|n| n.starts_with("a_fil") && n.chars().count() >= NAME_LEAST)
            };
            assert!(lines.len() == 41 && lines.iter().all(whole), "{lines:#?}");
            assert!(stderr == 0.0 || lines.iter().all(|l| l.contains(" ± 30")), "{lines:#?}");
        }
    }
}
