//! PyTorch: `TORCH_LOGS=recompiles`, `dynamo`, `inductor`, each line behind glog's prefix.
//!
//! ```text
//! [0/1] [__recompiles] Recompiling function forward in /w/model.py:12
//! [0/1] [__recompiles]     triggered by the following guard failure(s):
//! [0/1] [__recompiles]     - 0/0: tensor 'x' size mismatch at index 0. expected 3, actual 5
//! [0/0] Step 1: torchdynamo start tracing forward /w/model.py:12
//! [0/0] Step 3: torchinductor compiling FORWARDS graph 0            … torchinductor done compiling FORWARDS graph 0
//! ```

use super::Notice;

/// Compilations begun and not ended; older ones are forgotten.
const GRAPHS_MAX: usize = 1000;

/// What is begun.
#[derive(Default)]
pub struct Torch {
    recompiling: Option<Notice>,
    graphs: Vec<Notice>,
}

impl Torch {
    pub fn read(&mut self, line: &str, t: u64) -> Option<Notice> {
        if let Some((_, said)) = line.split_once("[__recompiles]") {
            return self.recompiles(said.trim(), t);
        }
        let before = self.recompiling.take();
        let function = |rest: &str| rest.trim().to_owned();
        if let Some((_, rest)) = line.split_once("torchdynamo start tracing ") {
            // Which recompilation it is of was said by the line before, if that is printed too.
            let notice = Notice { t, by: "torch", function: place(rest.trim()), ..Notice::default() };
            return before.or(Some(notice));
        }
        if let Some((_, rest)) = line.split_once("torchinductor compiling ") {
            if self.graphs.len() >= GRAPHS_MAX {
                self.graphs.remove(0);
            }
            self.graphs.push(Notice { t, by: "inductor", function: function(rest), ..Notice::default() });
        } else if let Some((_, rest)) = line.split_once("torchinductor done compiling ") {
            let at = self.graphs.iter().rposition(|g| g.function == function(rest));
            let done = at.map(|at| self.graphs.remove(at)).map(|g| Notice { ns: Some(t.saturating_sub(g.t)), ..g });
            self.recompiling = before;
            return done;
        }
        before
    }

    fn recompiles(&mut self, said: &str, t: u64) -> Option<Notice> {
        if let Some(rest) = said.strip_prefix("Recompiling function ") {
            let notice = Notice { t, by: "torch", function: place(rest), why: Some(String::new()), ..Notice::default() };
            return self.recompiling.replace(notice);
        }
        let reason = said.trim_start_matches("- ");
        // Behind the numbers of the compilation that did not fit.
        let reason = reason.split_once(": ").filter(|(n, _)| n.bytes().all(|c| c.is_ascii_digit() || c == b'/')).map_or(reason, |r| r.1);
        if let Some(why) = self.recompiling.as_mut().and_then(|n| n.why.as_mut()).filter(|w| w.len() < 1000)
            && !reason.is_empty()
            && !said.starts_with("triggered by")
        {
            *why += if why.is_empty() { "" } else { "; " };
            *why += reason;
        }
        None
    }

    pub fn end(&mut self) -> Vec<Notice> {
        self.recompiling.take().into_iter().chain(std::mem::take(&mut self.graphs)).collect()
    }
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

    #[test]
    fn a_recompilation_has_the_guard_that_failed() {
        let mut torch = Torch::default();
        let prefix = "V0612 10:11:12.123000 12345 torch/_dynamo/guards.py:2887] [0/1] [__recompiles] ";
        for line in [
            "Recompiling function forward in /w/model.py:12",
            "    triggered by the following guard failure(s):",
            "    - 0/0: tensor 'x' size mismatch at index 0. expected 3, actual 5",
        ] {
            assert_eq!(torch.read(&format!("{prefix}{line}"), 7), None);
        }
        let notice = torch.read("anything else", 8).unwrap();
        assert_eq!((notice.t, &*notice.function), (7, "forward (model.py:12)"));
        assert_eq!(notice.why.as_deref(), Some("tensor 'x' size mismatch at index 0. expected 3, actual 5"));
        assert_eq!(torch.end(), []);
    }

    #[test]
    fn a_graph_takes_as_long_as_between_its_two_lines() {
        let mut torch = Torch::default();
        assert_eq!(torch.read("I [0/0] Step 3: torchinductor compiling FORWARDS graph 0", 5), None);
        let done = torch.read("I [0/0] Step 3: torchinductor done compiling FORWARDS graph 0", 30).unwrap();
        assert_eq!((done.t, done.by, &*done.function, done.ns), (5, "inductor", "FORWARDS graph 0", Some(25)));
        let first = torch.read("I Step 1: torchdynamo start tracing f /w/a.py:3", 40).unwrap();
        assert_eq!((first.by, &*first.function), ("torch", "f (a.py:3)"));
    }
}
