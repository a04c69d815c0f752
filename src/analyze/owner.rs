//! Which frame of a stack is the program's own: not an interpreter's, an allocator's or a runtime library's.

use std::collections::HashMap;

use super::report::{Frame, Owner};
use super::sites::Sums;
use super::stacks::{FrameTable, Stack};
use crate::model::units::{Bytes, whole};

/// Libraries that allocate for others.
const RUNTIMES: [&str; 14] = [
    "libc.",
    "libc-",
    "ld-linux",
    "ld-musl",
    "libstdc++.",
    "libc++.",
    "libgcc_s.",
    "libm.",
    "libpthread",
    "libdl.",
    "libmemshim",
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
];
/// Functions of C++ and Rust that allocate for their callers, by the beginnings of their names.
const WRAPPERS: [&str; 12] = [
    "operator new",
    "std::",
    "void std::",
    "__gnu_cxx::",
    "core::",
    "alloc::",
    "<alloc::",
    "<core::",
    "<std::",
    "__rust_",
    "__rustc",
    "malloc",
];
/// Python code that is not the program's own, by parts of its path.
const PYTHON_LIBRARIES: [&str; 5] = ["/site-packages/", "/dist-packages/", "/lib/python", "/lib64/python", "<frozen"];

/// Index of the innermost frame that is the program's own; of those that are not, the innermost that says most. `frames`: innermost first.
pub fn of(frames: &[Frame]) -> Option<usize> {
    let python = |own: bool| {
        frames.iter().position(|f| f.python && f.file.is_some() && (!own || !is_python_library(f.file.as_deref().unwrap_or_default())))
    };
    let native =
        |sourced: bool| frames.iter().position(|f| !f.python && f.function.is_some() && (!sourced || f.file.is_some()) && !is_runtime(f));
    python(true).or_else(|| python(false)).or_else(|| native(true)).or_else(|| native(false)).or((!frames.is_empty()).then_some(0))
}

/// The call sites by their owners: most live first.
pub fn sums(rows: &[(Stack, Sums)], table: &FrameTable) -> Vec<Owner> {
    #[derive(Default)]
    struct Of {
        live: i64,
        variance: f64,
        total: f64,
        allocs: f64,
        temporary: f64,
        leaked: i64,
        /// Of the largest site: what is live, and what the owner called.
        largest: Option<(i64, Option<Frame>)>,
    }
    let mut by_owner: HashMap<Option<Frame>, Of> = HashMap::new();
    for (stack, s) in rows {
        let frames: Vec<Frame> = stack.frames.iter().map(|f| table.get(*f).clone()).collect();
        let at = of(&frames);
        let owner = at.map(|at| Frame { inlined: false, ..frames[at].clone() });
        let sum = by_owner.entry(owner).or_default();
        sum.live = sum.live.saturating_add(s.live_at);
        sum.variance += s.live_at_variance;
        sum.total += s.total;
        sum.allocs += s.allocs;
        sum.temporary += s.lifetimes[0];
        sum.leaked = sum.leaked.saturating_add(if s.suppressed.is_none() { s.leaked } else { 0 });
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
            temporary_allocs: whole(s.temporary),
            leaked_bytes: Bytes::of_balance(s.leaked),
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

/// Of a library or a function that allocates for others.
pub fn is_runtime(frame: &Frame) -> bool {
    let module = frame.module.as_deref().and_then(|m| m.rsplit('/').next()).unwrap_or_default();
    let function = frame.function.as_deref().unwrap_or_default();
    RUNTIMES.iter().any(|r| module.starts_with(r)) || WRAPPERS.iter().any(|w| function.starts_with(w))
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

    #[test]
    fn the_owner_is_the_program_and_not_what_it_uses() {
        let numpy = native("array_empty", "/usr/lib/python3/dist-packages/numpy/core.so", None);
        let inner = python("dot", "/usr/lib/python3/dist-packages/numpy/linalg.py");
        let own = python("solve", "/home/u/run.py");
        assert_eq!(of(&[numpy.clone(), inner.clone(), own]), Some(2));
        assert_eq!(of(&[numpy.clone(), inner]), Some(1));
        assert_eq!(of(&[numpy]), Some(0));
        let vector = native("std::vector<int>::reserve(unsigned long)", "/home/u/a.out", Some("stl_vector.h"));
        let new = native("operator new(unsigned long)", "/lib/libstdc++.so.6", None);
        let fill = native("fill()", "/home/u/a.out", Some("a.cc"));
        assert_eq!(of(&[new, vector, fill]), Some(2));
        assert_eq!(of(&[]), None);
        let call = native("PyObject_Vectorcall", "/usr/bin/python3.11", Some("call.c"));
        let below = [native("default_calloc", "/np.so", None), native("array_zeros", "/np.so", None), call];
        assert_eq!(called(&below).unwrap().function.as_deref(), Some("array_zeros"));
        assert_eq!(of(&[native("strdup", "/lib/x86_64-linux-gnu/libc.so.6", None)]), Some(0), "better than nothing");
    }
}
