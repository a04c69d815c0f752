//! Which frame of a stack is the program's own: not an interpreter's, an allocator's or a runtime library's.

use std::collections::HashMap;

use super::report::{Frame, Owner};
use super::runtime::is_runtime;
use super::sites::Sums;
use super::stacks::{FrameTable, Stack};
use crate::model::units::{Bytes, whole};

/// Python code that is not the program's own, by parts of its path.
const PYTHON_LIBRARIES: [&str; 5] = ["/site-packages/", "/dist-packages/", "/lib/python", "/lib64/python", "<frozen"];

/// What must be known of all stacks to tell whose code a frame is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// The program's own files execute code that is in no file.
    executes: bool,
}

/// What Python calls code that is in no file, where a program can have written it.
const NO_FILE: [&str; 3] = ["<string>", "<stdin>", "<input>"];
/// Code that notebooks and doctests give in pieces.
const PIECES: [&str; 4] = ["<ipython-input", "<doctest", "<console", "<cell"];

impl Own {
    pub fn of_all<'a>(stacks: impl Iterator<Item = &'a Stack>, table: &FrameTable) -> Own {
        let by_program = |stack: &Stack| {
            let mut python = stack.frames.iter().map(|f| table.get(*f)).filter(|f| f.python).peekable();
            while let Some(frame) = python.next() {
                if is_executed(frame) && python.peek().is_some_and(|by| is_of_a_file(by)) {
                    return true;
                }
            }
            false
        };
        let mut stacks = stacks;
        Own { executes: stacks.any(by_program) }
    }

    /// Whether a Python frame is the program's own. What packages execute to make functions (`namedtuple`, `dataclass`) is theirs: it is told by
    /// their names, or by the program executing nothing. `whole`: the program itself is in no file (`python -c`).
    fn has(self, frame: &Frame, whole: bool) -> bool {
        let file = frame.file.as_deref().unwrap_or_default();
        let function = frame.function.as_deref().unwrap_or_default();
        let made = function.rsplit('.').next().is_some_and(|f| f.starts_with("__") && f.ends_with("__"));
        match () {
            () if NO_FILE.contains(&file) => whole || self.executes && !made,
            () if file.starts_with('<') => PIECES.iter().any(|p| file.starts_with(p)),
            () => !is_python_library(file),
        }
    }
}

/// The body of code that is in no file.
fn is_executed(frame: &Frame) -> bool {
    NO_FILE.contains(&frame.file.as_deref().unwrap_or_default()) && frame.function.as_deref() == Some("<module>")
}

fn is_of_a_file(frame: &Frame) -> bool {
    frame.file.as_deref().is_some_and(|f| !f.starts_with('<') && !is_python_library(f))
}

/// Index of the innermost frame that is the program's own; of those that are not, the innermost that says most. `frames`: innermost first.
pub fn of(frames: &[Frame], own: Own) -> Option<usize> {
    let whole = frames.iter().rfind(|f| f.python).is_some_and(is_executed);
    let python = |mine: bool| frames.iter().position(|f| f.python && f.file.is_some() && (!mine || own.has(f, whole)));
    let native =
        |sourced: bool| frames.iter().position(|f| !f.python && f.function.is_some() && (!sourced || f.file.is_some()) && !is_runtime(f));
    python(true).or_else(|| python(false)).or_else(|| native(true)).or_else(|| native(false)).or((!frames.is_empty()).then_some(0))
}

/// The call sites by their owners: most live first.
pub fn sums(rows: &[(Stack, Sums)], table: &FrameTable, own: Own) -> Vec<Owner> {
    #[derive(Default)]
    struct Of {
        live: i64,
        variance: f64,
        total: f64,
        total_variance: f64,
        allocs: f64,
        temporary: f64,
        /// Sites of which that is not known.
        ageless: u64,
        leaked: i64,
        leaked_variance: f64,
        /// Of the largest site: what is live, and what the owner called.
        largest: Option<(i64, Option<Frame>)>,
    }
    let mut by_owner: HashMap<Option<Frame>, Of> = HashMap::new();
    for (stack, s) in rows {
        let frames: Vec<Frame> = stack.frames.iter().map(|f| table.get(*f).clone()).collect();
        let at = of(&frames, own);
        let owner = at.map(|at| Frame { inlined: false, ..frames[at].clone() });
        let sum = by_owner.entry(owner).or_default();
        sum.live = sum.live.saturating_add(s.live_at);
        sum.variance += s.live_at_variance;
        sum.total += s.total;
        sum.allocs += s.allocs;
        sum.temporary += s.temporary().0;
        sum.ageless += s.ages.is_none() as u64;
        sum.total_variance += s.total_variance;
        if s.suppressed.is_none() {
            sum.leaked = sum.leaked.saturating_add(s.leaked);
            sum.leaked_variance += s.leaked_variance;
        }
        if sum.largest.as_ref().is_none_or(|(live, _)| s.live_at > *live) {
            sum.largest = Some((s.live_at, at.and_then(|at| called(&frames[..at]))));
        }
    }
    let owner = |(frame, s): (Option<Frame>, Of)| {
        let frame = frame.unwrap_or_default();
        let through = s.largest.and_then(|(_, through)| through).filter(|f| *f != frame);
        Owner {
            frame,
            live_at_peak_bytes: Bytes::of_balance(s.live),
            stderr_bytes: s.variance.max(0.0).sqrt(),
            total_bytes: Bytes(whole(s.total)),
            allocs: whole(s.allocs),
            temporary_allocs: (s.ageless == 0).then(|| whole(s.temporary)),
            total_stderr_bytes: s.total_variance.max(0.0).sqrt(),
            leaked_bytes: Bytes::of_balance(s.leaked),
            leaked_stderr_bytes: s.leaked_variance.max(0.0).sqrt(),
            through,
        }
    };
    let mut all: Vec<Owner> = by_owner.into_iter().map(owner).collect();
    all.sort_by(|a, b| {
        let key = |o: &Owner| std::cmp::Reverse((o.live_at_peak_bytes, o.total_bytes, o.allocs));
        key(a)
            .cmp(&key(b))
            .then_with(|| (&a.frame.function, a.frame.line, a.frame.addr).cmp(&(&b.frame.function, b.frame.line, b.frame.addr)))
    });
    all
}

/// The outermost of the frames below an owner that is not of the interpreter.
fn called(below: &[Frame]) -> Option<Frame> {
    let shown = |f: &&Frame| !is_interpreter(f) && f.function.is_some();
    below.iter().rev().find(shown).map(|f| Frame { inlined: false, ..f.clone() })
}

/// A native frame of the interpreter's.
pub fn is_interpreter(f: &Frame) -> bool {
    let module = f.module.as_deref().and_then(|m| m.rsplit('/').next()).unwrap_or_default();
    !f.python && (module.starts_with("python") || module.starts_with("libpython"))
}

fn is_python_library(path: &str) -> bool {
    PYTHON_LIBRARIES.iter().any(|part| path.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(function: &str, module: &str, file: Option<&str>) -> Frame {
        Frame { function: Some(function.into()), module: Some(module.into()), file: file.map(Into::into), ..Frame::default() }
    }

    fn python(function: &str, file: &str) -> Frame {
        Frame { function: Some(function.into()), file: Some(file.into()), python: true, ..Frame::default() }
    }

    fn owner(frames: &[Frame]) -> Option<usize> {
        of(frames, Own::default())
    }

    #[test]
    fn the_owner_is_the_program_and_not_what_it_uses() {
        let numpy = native("array_empty", "/usr/lib/python3/dist-packages/numpy/core.so", None);
        let inner = python("dot", "/usr/lib/python3/dist-packages/numpy/linalg.py");
        let own = python("solve", "/home/u/run.py");
        assert_eq!(owner(&[numpy.clone(), inner.clone(), own]), Some(2));
        assert_eq!(owner(&[numpy.clone(), inner]), Some(1));
        assert_eq!(owner(&[numpy]), Some(0));
        let vector = native("std::vector<int>::reserve(unsigned long)", "/home/u/a.out", Some("stl_vector.h"));
        let new = native("operator new(unsigned long)", "/lib/libstdc++.so.6", None);
        let fill = native("fill()", "/home/u/a.out", Some("a.cc"));
        assert_eq!(owner(&[new, vector, fill]), Some(2));
        assert_eq!(owner(&[]), None);
        let call = native("PyObject_Vectorcall", "/usr/bin/python3.11", Some("call.c"));
        let below = [native("default_calloc", "/np.so", None), native("array_zeros", "/np.so", None), call];
        assert_eq!(called(&below).unwrap().function.as_deref(), Some("array_zeros"));
        assert_eq!(owner(&[native("strdup", "/lib/x86_64-linux-gnu/libc.so.6", None)]), Some(0), "better than nothing");
    }

    #[test]
    fn wrappers_of_malloc_own_nothing() {
        let wrapper = native("xmalloc", "/home/u/a.out", Some("util.c"));
        let parse = native("parse", "/home/u/a.out", Some("parse.c"));
        assert_eq!(owner(&[wrapper.clone(), parse]), Some(1));
        assert_eq!(owner(&[wrapper]), Some(0), "better than nothing");
        let new = native("std::vector<int> load<char>(int)", "/home/u/a.out", Some("load.cc"));
        let inner = native("_M_allocate", "/home/u/a.out", Some("/usr/include/c++/12/bits/stl_vector.h"));
        assert_eq!(owner(&[inner, new]), Some(1), "a function of the program's that gives a standard type");
    }

    /// Frames innermost first, whether the program executes code, and the owner.
    #[test]
    fn code_without_a_file_is_whose_it_can_be() {
        let own = python("main", "/home/u/run.py");
        let made = python("Point.__new__", "<string>");
        let run = python("kernel", "<string>");
        let body = python("<module>", "<string>");
        let package = python("wrapper", "/usr/lib/python3/dist-packages/pyscf/lib.py");
        assert_eq!(owner(&[made.clone(), own.clone()]), Some(1), "a namedtuple of the program's");
        assert_eq!(owner(&[run.clone(), package.clone(), own.clone()]), Some(2));
        assert_eq!(owner(&[python("f", "<frozen importlib>"), own.clone()]), Some(1));
        assert_eq!(owner(&[run.clone(), body.clone()]), Some(0), "python -c");
        assert_eq!(owner(&[python("f", "<ipython-input-3-77>"), package.clone()]), Some(0));
        let executes = Own { executes: true };
        assert_eq!(of(&[run, own.clone()], executes), Some(0));
        assert_eq!(of(&[made, own.clone()], executes), Some(1));
        let mut table = FrameTable::default();
        let mut stack = |frames: &[&Frame]| Stack { frames: frames.iter().map(|f| table.intern((*f).clone())).collect(), truncated: false };
        let stacks = [stack(&[&body, &package, &own]), stack(&[&body, &own])];
        assert_eq!(Own::of_all(stacks[..1].iter(), &table), Own::default());
        assert_eq!(Own::of_all(stacks.iter(), &table), executes);
    }
}
