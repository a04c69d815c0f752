//! The calls that lead to allocations, from the outermost frame on; cut to what matters, and what is cut is in it as a sum.

use super::{FrameTable, Measure, Request, Stack, Sums, TreeNode, whole};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Nodes with less than this share are summed up.
const LEAST_SHARE: f64 = 0.01;
/// Deeper the tree is cut: its nodes nest on our stack too.
const DEPTH_MAX: usize = 512;

/// The largest first, the smallest together; with no more leaves than are asked for.
pub fn tree(rows: &[(Stack, Sums)], table: &FrameTable, request: &Request, all: f64) -> Vec<TreeNode> {
    let mut nodes = level(&paths(rows, request.measure), 0, table, all);
    let kept = Numbered::of(&nodes).with_most(request.top);
    keep(&mut nodes, &kept, &mut 0);
    nodes
}

/// A stack, its outermost frame first, and what it amounts to.
struct Path {
    frames: Vec<u32>,
    value: f64,
    variance: f64,
}

fn paths(rows: &[(Stack, Sums)], measure: Measure) -> Vec<Path> {
    let some = rows.iter().filter(|(_, s)| measure.of(s) > 0.0);
    let path = |(stack, s): &(Stack, Sums)| Path {
        frames: stack.frames.iter().rev().copied().collect(),
        value: measure.of(s),
        variance: measure.variance(s),
    };
    let mut paths: Vec<Path> = some.map(path).collect();
    paths.sort_by(|a, b| a.frames.cmp(&b.frames));
    paths
}

/// Nodes at a depth, of paths that agree up to there and are sorted.
fn level(paths: &[Path], depth: usize, table: &FrameTable, all: f64) -> Vec<TreeNode> {
    let mut nodes = Vec::new();
    let mut rest = (0.0, 0.0);
    for group in paths.chunk_by(|a, b| a.frames.get(depth) == b.frames.get(depth)) {
        let Some(&frame) = group[0].frames.get(depth) else { continue };
        let value: f64 = group.iter().map(|p| p.value).sum();
        let variance: f64 = group.iter().map(|p| p.variance).sum();
        if value < all * LEAST_SHARE {
            rest = (rest.0 + value, rest.1 + variance);
            continue;
        }
        let own: f64 = group.iter().filter(|p| p.frames.len() == depth + 1).map(|p| p.value).sum();
        let calls = if depth < DEPTH_MAX { level(group, depth + 1, table, all) } else { Vec::new() };
        let frame = Some(table.get(frame).clone());
        nodes.push(TreeNode { frame, inclusive: whole(value), exclusive: whole(own), stderr: variance.max(0.0).sqrt(), calls });
    }
    nodes.sort_by_key(|n| Reverse(n.inclusive));
    if whole(rest.0) > 0 {
        let stderr = f64::max(rest.1, 0.0).sqrt();
        nodes.push(TreeNode { inclusive: whole(rest.0), exclusive: whole(rest.0), stderr, ..TreeNode::default() });
    }
    nodes
}

/// The calls of a tree by their numbers, outer ones before what they call.
#[derive(Default)]
struct Numbered {
    inclusive: Vec<u64>,
    calls: Vec<Vec<usize>>,
    outermost: Vec<usize>,
}

impl Numbered {
    fn of(nodes: &[TreeNode]) -> Self {
        let mut all = Numbered::default();
        all.outermost = all.add(nodes);
        all
    }

    fn add(&mut self, nodes: &[TreeNode]) -> Vec<usize> {
        let mut numbers = Vec::new();
        for node in nodes.iter().filter(|n| n.frame.is_some()) {
            let number = self.inclusive.len();
            numbers.push(number);
            self.inclusive.push(node.inclusive);
            self.calls.push(Vec::new());
            self.calls[number] = self.add(&node.calls);
        }
        numbers
    }

    /// Which calls stay where the tree is to have so many ends: of all that a call that stays leads to the one with most, and of the others those
    /// with most, wherever they are.
    fn with_most(&self, ends: usize) -> Vec<bool> {
        let mut kept = vec![false; self.inclusive.len()];
        let mut leads_on = kept.clone();
        let entry = |caller: Option<usize>| move |number: &usize| (self.inclusive[*number], Reverse(*number), caller);
        let mut next: BinaryHeap<(u64, Reverse<usize>, Option<usize>)> = self.outermost.iter().map(entry(None)).collect();
        let mut count = 0;
        while let Some((_, Reverse(number), caller)) = next.pop() {
            let goes_on = caller.is_some_and(|caller| !std::mem::replace(&mut leads_on[caller], true));
            if !goes_on && count == ends {
                continue;
            }
            count += usize::from(!goes_on);
            kept[number] = true;
            next.extend(self.calls[number].iter().map(entry(Some(number))));
        }
        kept
    }
}

/// Takes calls that do not stay to the small ones; `number` is that of the next.
fn keep(nodes: &mut Vec<TreeNode>, kept: &[bool], number: &mut usize) {
    let mut small = nodes.pop_if(|last| last.frame.is_none()).unwrap_or_default();
    nodes.retain_mut(|node| {
        let stays = kept[*number];
        *number += 1;
        keep(&mut node.calls, kept, number);
        if !stays {
            small.inclusive += node.inclusive;
            small.exclusive += node.inclusive;
            small.stderr = small.stderr.hypot(node.stderr);
        }
        stays
    });
    if small.inclusive > 0 {
        nodes.push(small);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{nobody, row, table};
    use super::super::{By, view};
    use super::*;

    fn tree_of(rows: &[(Stack, Sums)], table: &FrameTable, top: usize) -> Vec<TreeNode> {
        view(rows, table, &Request { by: By::Tree, measure: Measure::Peak, top }, &nobody).tree
    }

    #[test]
    fn the_tree_sums_up_what_is_small() {
        let (t, f) = table();
        let rows = [row(&[f[3], f[2], f[0]], 9000), row(&[f[2], f[0]], 950), row(&[f[3], f[0]], 30), row(&[f[1]], 20)];
        let tree = tree_of(&rows, &t, 10);
        let main = &tree[0];
        assert_eq!((main.inclusive, main.exclusive, main.calls.len()), (9980, 0, 2));
        assert_eq!((main.calls[0].inclusive, main.calls[0].exclusive, main.calls[0].calls[0].inclusive), (9950, 950, 9000));
        assert_eq!((main.calls[1].frame.as_ref(), main.calls[1].inclusive), (None, 30));
        assert_eq!((tree[1].frame.as_ref(), tree[1].inclusive), (None, 20));
    }

    #[test]
    fn of_many_branches_those_with_most_are_kept_and_the_others_are_in_the_sums() {
        let (t, f) = table();
        // Two roots; main's first line ends in three places, its second in one.
        let rows = [row(&[f[3], f[2], f[0]], 500), row(&[f[2], f[3], f[0]], 300), row(&[f[0], f[0]], 100), row(&[f[2], f[1]], 400)];
        let shape = |rows: &[(Stack, Sums)], top: usize| {
            fn of(n: &TreeNode) -> String {
                let name = n.frame.as_ref().map_or("…".to_owned(), |f| format!("{}:{}", f.function.as_deref().unwrap(), f.line.unwrap()));
                let calls: Vec<String> = n.calls.iter().map(of).collect();
                format!("{name} {}{}", n.inclusive, if calls.is_empty() { String::new() } else { format!(" [{}]", calls.join(", ")) })
            }
            tree_of(rows, &t, top).iter().map(of).collect::<Vec<_>>().join("; ")
        };
        let all = "main:1 900 [work:5 500 [get:9 500], get:9 300 [work:5 300], main:1 100]; main:2 400 [work:5 400]";
        assert_eq!((shape(&rows, 9), shape(&rows, 4)), (all.to_owned(), all.to_owned()));
        assert_eq!(shape(&rows, 3), "main:1 900 [work:5 500 [get:9 500], get:9 300 [work:5 300], … 100]; main:2 400 [work:5 400]");
        assert_eq!(shape(&rows, 2), "main:1 900 [work:5 500 [get:9 500], … 400]; main:2 400 [work:5 400]");
        assert_eq!(shape(&rows, 1), "main:1 900 [work:5 500 [get:9 500], … 400]; … 400");
        // A branch of many small ends is more than one with a larger end.
        let rows = [row(&[f[3], f[2], f[0]], 60), row(&[f[0], f[2], f[0]], 50), row(&[f[3], f[1]], 80)];
        assert_eq!(shape(&rows, 1), "main:1 110 [work:5 110 [get:9 60, … 50]]; … 80");
    }
}
