//! PyTorch: `TORCH_LOGS=recompiles`, `dynamo`, `inductor`, each line behind glog's prefix (here cut) and the number of a compilation: frame, times that
//! it was compiled, and behind `_` times that this one was begun anew (a graph break). Seen of 2.15; numbers are missing in old versions.
//!
//! ```text
//! [0/1] [__recompiles] Recompiling function forward in /w/model.py:12
//! [0/1] [__recompiles]     triggered by the following guard failure(s):
//! [0/1] [__recompiles]     - 0/0: tensor 'x' size mismatch at index 0. expected 3, actual 5      … one for each version there is
//! [0/1] Step 1: torchdynamo start tracing forward /w/model.py:12
//! [0/1_1] Step 1: torchdynamo start tracing forward /w/model.py:12
//! [0/1_1] Step 3: torchinductor compiling FORWARDS graph 0            … torchinductor done compiling FORWARDS graph 0
//! [0/1_1] Step 2: done compiler function inductor
//! ```

use super::Notice;

/// Compilations begun and not ended; older ones are forgotten.
const BEGUN_MAX: usize = 1000;

/// What is begun.
#[derive(Default)]
pub struct Torch {
    functions: Vec<Begun>,
    graphs: Vec<Begun>,
}

/// A compilation whose end has not been said.
struct Begun {
    /// Thread and number.
    of: String,
    notice: Notice,
}

impl Torch {
    pub fn read(&mut self, line: &str, t: u64) -> Option<Notice> {
        if let Some((before, said)) = line.split_once("[__recompiles]") {
            return self.recompiles(&number(before), said.trim(), t);
        }
        if let Some((before, rest)) = line.split_once("torchdynamo start tracing ") {
            return self.traces(number(before), place(rest.trim()), t);
        }
        if let Some((before, rest)) = line.split_once("torchinductor ") {
            let of = number(before);
            if let Some(graph) = rest.strip_prefix("compiling ") {
                let notice = Notice { t, by: "inductor", function: graph.trim().to_owned(), ..Notice::default() };
                return begin(&mut self.graphs, of, notice);
            }
            let graph = rest.strip_prefix("done compiling ")?.trim();
            return end(&mut self.graphs, t, |g| g.of == of && g.notice.function == graph);
        }
        let (before, _) = line.split_once("done compiler function ")?;
        let of = number(before);
        end(&mut self.functions, t, |f| f.of == of)
    }

    fn recompiles(&mut self, of: &str, said: &str, t: u64) -> Option<Notice> {
        if let Some(rest) = said.strip_prefix("Recompiling function ") {
            let before = self.before(of);
            let notice = Notice { t, by: "torch", function: place(rest), why: Some(String::new()), ..Notice::default() };
            return begin(&mut self.functions, of.to_owned(), notice).or(before);
        }
        // Of each version that did not fit, the newest first; behind its number. Lines of the program's come after it.
        let reason = said.trim_start_matches("- ");
        let reason = reason.split_once(": ").filter(|(n, _)| n.bytes().all(|c| c.is_ascii_digit() || c == b'/')).map_or(reason, |r| r.1);
        let reason = reason.split_once("  #").map_or(reason, |r| r.0).trim();
        let why = self.functions.iter_mut().rfind(|f| f.of == of).and_then(|f| f.notice.why.as_mut());
        if let Some(why) = why.filter(|w| w.is_empty())
            && !said.starts_with("triggered by")
        {
            reason.clone_into(why);
        }
        None
    }

    fn traces(&mut self, of: String, function: String, t: u64) -> Option<Notice> {
        // Begun anew, or what a line before said why it is compiled again.
        if self.functions.iter().any(|f| f.of == of && f.notice.function == function) {
            return None;
        }
        let before = self.before(&of);
        begin(&mut self.functions, of, Notice { t, by: "torch", function, ..Notice::default() }).or(before)
    }

    /// What the thread compiled before: of a function without a graph, or where `dynamo` is not logged, no end is said.
    fn before(&mut self, of: &str) -> Option<Notice> {
        let thread = of.split(' ').next();
        let at = self.functions.iter().rposition(|f| f.of.split(' ').next() == thread)?;
        Some(self.functions.remove(at).notice)
    }

    pub fn end(&mut self) -> Vec<Notice> {
        self.functions.drain(..).chain(self.graphs.drain(..)).map(|b| b.notice).collect()
    }
}

/// The oldest gives way where there are too many.
fn begin(all: &mut Vec<Begun>, of: String, notice: Notice) -> Option<Notice> {
    let oldest = (all.len() >= BEGUN_MAX).then(|| all.remove(0).notice);
    all.push(Begun { of, notice });
    oldest
}

fn end(all: &mut Vec<Begun>, t: u64, is: impl Fn(&Begun) -> bool) -> Option<Notice> {
    let Begun { notice, .. } = all.remove(all.iter().rposition(is)?);
    Some(Notice { ns: Some(t.saturating_sub(notice.t)), ..notice })
}

/// Thread and number of a compilation in what stands before a message: `… 4711 torch/_dynamo/guards.py:9] [0/1_1] ` is `4711 0/1`.
fn number(before: &str) -> String {
    let mut words = before.split(' ').filter(|w| !w.is_empty());
    let is_place = |w: &str| w.ends_with(']') && w.contains(".py:");
    let mut thread = "";
    for word in words.by_ref() {
        if is_place(word) {
            break;
        }
        thread = word;
    }
    let of = words.next().and_then(|w| w.strip_prefix('[')?.strip_suffix(']')).unwrap_or("");
    format!("{thread} {}", of.split('_').next().unwrap_or(of))
}

/// `forward in /w/model.py:12` and `forward /w/model.py:12` as `forward (model.py:12)`.
fn place(text: &str) -> String {
    let name = text.split(' ').next().unwrap_or("");
    let file = text.rsplit(' ').next().unwrap_or("").rsplit('/').next().unwrap_or("");
    if file.is_empty() || file == name { name.to_owned() } else { format!("{name} ({file})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines as 2.15 writes them, a unit of time apart; what they complete, and what is open at the end.
    fn read(lines: &[&str]) -> (Vec<Notice>, Vec<Notice>) {
        let mut torch = Torch::default();
        let prefix = "I1128 22:43:18.331000 27567 torch/_dynamo/guards.py:6374] ";
        let found = (1..).zip(lines).filter_map(|(t, l)| torch.read(&format!("{prefix}{l}"), t)).collect();
        (found, torch.end())
    }

    #[test]
    fn a_recompilation_has_the_guard_that_failed_and_its_time() {
        let (done, open) = read(&[
            "[0/3] [__recompiles] Recompiling function forward in /w/model.py:12",
            "[0/3] [__recompiles]     triggered by the following guard failure(s):",
            "[0/3] [__recompiles]     - 0/2: n == 2                              # return x * n  # w/model.py:13 in forward",
            "[0/3] [__recompiles]     - User stack trace:",
            "[0/3] [__recompiles]     -   File \"/w/model.py\", line 13, in forward",
            "[0/3] [__recompiles]     - 0/1: n == 1                              # return x * n  # w/model.py:13 in forward",
            "[0/3] Step 1: torchdynamo start tracing forward /w/model.py:12",
            "[0/3] Step 2: done compiler function inductor",
        ]);
        let [notice] = &done[..] else { panic!("{done:?}") };
        assert_eq!((notice.t, &*notice.function, notice.ns), (1, "forward (model.py:12)", Some(7)));
        assert_eq!((notice.why.as_deref(), open), (Some("n == 2"), vec![]));
    }

    #[test]
    fn without_the_log_of_dynamo_it_ends_with_the_next_or_with_the_program() {
        let (done, open) = read(&[
            "[0/1] [__recompiles] Recompiling function f in /w/a.py:3",
            "[0/1] [__recompiles]     - 0/0: tensor 'x' rank mismatch. expected 1, actual 2",
            "[0/2] [__recompiles] Recompiling function f in /w/a.py:3",
        ]);
        assert_eq!((done.len(), open.len(), done[0].ns), (1, 1, None));
        assert_eq!(done[0].why.as_deref(), Some("tensor 'x' rank mismatch. expected 1, actual 2"));
    }

    #[test]
    fn a_graph_break_begins_the_same_one_anew() {
        let (done, open) = read(&[
            "[0/0] Step 1: torchdynamo start tracing broken /w/a.py:3",
            "[0/0_1] Step 1: torchdynamo start tracing broken /w/a.py:3",
            "[0/0_1] Step 2: done compiler function eager",
            "[1/0] Step 1: torchdynamo start tracing torch_dynamo_resume_in_broken_at_6 /w/a.py:6",
            "[2/0] Step 1: torchdynamo start tracing no_graph /w/a.py:9",
        ]);
        let names: Vec<_> = done.iter().chain(&open).map(|n| (&*n.function, n.ns)).collect();
        assert_eq!(
            names,
            [("broken (a.py:3)", Some(2)), ("torch_dynamo_resume_in_broken_at_6 (a.py:6)", None), ("no_graph (a.py:9)", None)]
        );
    }

    #[test]
    fn a_graph_takes_as_long_as_between_its_two_lines() {
        let (done, open) = read(&[
            "[0/0] Step 3: torchinductor compiling FORWARDS graph 0",
            "",
            "[0/0] Step 3: torchinductor done compiling FORWARDS graph 0",
        ]);
        let graph = &done[0];
        assert_eq!((graph.t, graph.by, &*graph.function, graph.ns, open.len()), (1, "inductor", "FORWARDS graph 0", Some(2), 0));
    }

    #[test]
    fn threads_and_ranks_have_numbers_of_their_own() {
        assert_eq!(number("[rank0]:I1128 22:43:18.331000 27567 torch/_dynamo/x.py:1] [0/1_2] Step 1: "), "27567 0/1");
        assert_eq!(number("V0612 10:11:12.123000 12345 torch/_dynamo/guards.py:2887] "), "12345 ");
        assert_eq!(number("I [0/0] "), "[0/0] ");
    }
}
