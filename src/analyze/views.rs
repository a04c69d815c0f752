//! All call sites of a run seen one way: by site, function, line or module, or as the tree of calls; by one measure.

mod tree;

use crate::model::units::{Bytes, whole};
use std::collections::{BTreeMap, HashMap, HashSet};

use super::report::{Frame, TreeNode, View, ViewRow};
use super::sites::Sums;
use super::stacks::{FrameTable, Stack};

/// What rows are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    #[default]
    Site,
    Function,
    /// Lines of Python code, or of any where the program has none.
    Line,
    Module,
    /// Threads, by what they allocated.
    Thread,
    /// The tree of calls, from the outermost frame on.
    Tree,
}

/// What they are sorted by, and what shares are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// Bytes live at the peak (or at the instant asked for).
    #[default]
    Peak,
    /// Bytes live at the end, known leaks apart.
    Leaked,
    /// Allocations that were freed before the thread's next.
    Temporary,
    /// Bytes in all.
    Total,
}

impl Measure {
    pub fn name(self) -> &'static str {
        match self {
            Measure::Peak => "peak",
            Measure::Leaked => "leaked",
            Measure::Temporary => "temporary",
            Measure::Total => "total",
        }
    }

    /// Of a row: bytes, or allocations of [`Measure::Temporary`].
    pub fn of(self, s: &Sums) -> f64 {
        match self {
            Measure::Peak => s.live_at as f64,
            Measure::Leaked if s.suppressed.is_some() => 0.0,
            Measure::Leaked => s.leaked as f64,
            Measure::Temporary => s.temporary().0,
            Measure::Total => s.total,
        }
    }

    /// Variance of that where it is an estimate.
    pub fn variance(self, s: &Sums) -> f64 {
        match self {
            Measure::Peak => s.live_at_variance,
            Measure::Leaked if s.suppressed.is_some() => 0.0,
            Measure::Leaked => s.leaked_variance,
            Measure::Temporary => s.temporary().1,
            Measure::Total => s.total_variance,
        }
    }

    /// Whether it is known of a row.
    pub fn is_known(self, s: &Sums) -> bool {
        self != Measure::Temporary || s.ages.is_some()
    }

    /// What is counted.
    pub fn unit(self) -> &'static str {
        if self == Measure::Temporary { "allocations" } else { "bytes" }
    }
}

/// Which rows are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    pub by: By,
    pub measure: Measure,
    pub top: usize,
}

/// Whether a stack has a frame that a filter describes: a part of a function's, file's or module's name; `!` in front: has none.
pub fn passes(filter: &str, stack: &Stack, table: &FrameTable) -> bool {
    let (wanted, part) = filter.strip_prefix('!').map_or((true, filter), |part| (false, part));
    let has = |f: &Frame| [&f.function, &f.file, &f.module].into_iter().flatten().any(|text| text.contains(part));
    stack.frames.iter().any(|f| has(table.get(*f))) == wanted
}

/// What a thread is called, and the most that it held.
pub type ThreadOf<'a> = &'a dyn Fn(u32) -> (String, Option<Bytes>);

/// The view.
pub fn view(rows: &[(Stack, Sums)], table: &FrameTable, request: &Request, thread: ThreadOf) -> View {
    let measure = request.measure;
    let all: f64 = rows.iter().map(|(_, s)| measure.of(s)).sum();
    let variance: f64 = rows.iter().map(|(_, s)| measure.variance(s)).sum();
    let mut view = View {
        measure: measure.name(),
        unit: measure.unit(),
        total: rows.iter().all(|(_, s)| measure.is_known(s)).then(|| whole(all)),
        stderr: variance.max(0.0).sqrt(),
        top: request.top,
        ..View::default()
    };
    match request.by {
        _ if view.total.is_none() => {}
        By::Site => {}
        By::Tree => view.tree = tree::tree(rows, table, request, all),
        by => {
            let mut found = if by == By::Thread { threads(rows, measure, thread) } else { grouped(rows, table, by, measure) };
            found.sort_by(|a, b| (b.inclusive, b.exclusive).cmp(&(a.inclusive, a.exclusive)).then_with(|| a.label().cmp(&b.label())));
            view.rows_total = found.len() as u64;
            found.truncate(request.top);
            view.rows = found;
        }
    }
    view
}

/// What a frame is counted under; `None`: not in this view.
fn key(frame: &Frame, by: By, python: bool) -> Option<Frame> {
    let of = match by {
        By::Function => Frame { line: None, inlined: false, addr: None, ..frame.clone() },
        By::Line if frame.python != python || frame.file.is_none() => return None,
        By::Line => Frame { inlined: false, ..frame.clone() },
        _ => Frame { module: frame.module.clone().or_else(|| frame.file.clone()), python: frame.python, ..Frame::default() },
    };
    Some(of)
}

fn grouped(rows: &[(Stack, Sums)], table: &FrameTable, by: By, measure: Measure) -> Vec<ViewRow> {
    let python = table.all.iter().any(|f| f.python);
    let mut index: HashMap<Frame, usize> = HashMap::new();
    let keys: Vec<Option<usize>> = table
        .all
        .iter()
        .map(|f| {
            let key = key(f, by, python)?;
            let next = index.len();
            Some(*index.entry(key).or_insert(next))
        })
        .collect();
    let mut sums = vec![(0.0, 0.0, 0.0, 0.0, 0.0); index.len()];
    let mut seen = HashSet::new();
    for (stack, s) in rows {
        let value = measure.of(s);
        let mut innermost = true;
        seen.clear();
        for at in stack.frames.iter().filter_map(|f| keys[*f as usize]) {
            if std::mem::take(&mut innermost) {
                sums[at].0 += value;
                sums[at].2 += s.allocs;
            }
            // Of recursion once.
            if seen.insert(at) {
                sums[at].1 += value;
                sums[at].3 += s.allocs;
                sums[at].4 += measure.variance(s);
            }
        }
    }
    let row = |(frame, at): (Frame, usize)| ViewRow {
        frame,
        exclusive: whole(sums[at].0),
        inclusive: whole(sums[at].1),
        allocs: whole(sums[at].2),
        inclusive_allocs: whole(sums[at].3),
        stderr: f64::max(sums[at].4, 0.0).sqrt(),
        peak_bytes: None,
    };
    index.into_iter().map(row).filter(|r| r.inclusive > 0).collect()
}

/// Of each thread what its own allocations come to.
fn threads(rows: &[(Stack, Sums)], measure: Measure, thread: ThreadOf) -> Vec<ViewRow> {
    let mut by_thread: BTreeMap<u32, (f64, f64, f64)> = BTreeMap::new();
    for (_, s) in rows {
        let of = by_thread.entry(s.thread.unwrap_or(0)).or_default();
        (of.0, of.1, of.2) = (of.0 + measure.of(s), of.1 + s.allocs, of.2 + measure.variance(s));
    }
    let row = |(tid, (value, allocs, variance)): (u32, (f64, f64, f64))| {
        let (name, peak_bytes) = thread(tid);
        ViewRow {
            frame: Frame { function: Some(name), ..Frame::default() },
            exclusive: whole(value),
            inclusive: whole(value),
            allocs: whole(allocs),
            inclusive_allocs: whole(allocs),
            stderr: variance.max(0.0).sqrt(),
            peak_bytes,
        }
    };
    by_thread.into_iter().map(row).filter(|r| r.inclusive > 0).collect()
}

/// How a frame is called: `run.py:42 solve`, `fill (box.cc:7)`, `malloc [libx.so]`, `libx.so+0x1234`.
pub fn label(frame: &Frame) -> String {
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let place = frame.file.as_deref().map(|f| match frame.line {
        Some(line) => format!("{}:{line}", base(f)),
        None => base(f),
    });
    match (&frame.function, place, &frame.module) {
        (Some(function), Some(place), _) if frame.python => format!("{place} {function}"),
        (Some(function), Some(place), _) => format!("{function} ({place})"),
        (Some(function), None, Some(module)) => format!("{function} [{}]", short(&base(module))),
        (Some(function), None, None) => function.clone(),
        (None, _, module) => match (frame.addr, module) {
            (Some(addr), Some(module)) => format!("{}+{addr:#x}", base(module)),
            (Some(addr), None) => format!("{addr:#x}"),
            (None, Some(module)) => base(module),
            (None, None) => "?".into(),
        },
    }
}

/// `_multiarray_umath` of `_multiarray_umath.cpython-311-x86_64-linux-gnu.so`.
fn short(module: &str) -> &str {
    module.find(".cpython-").or_else(|| module.find(".abi3.")).map_or(module, |at| &module[..at])
}

impl ViewRow {
    /// See [`label`]; of a module its path.
    pub fn label(&self) -> String {
        match (&self.frame.function, &self.frame.module) {
            (None, Some(module)) => module.clone(),
            _ => label(&self.frame),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sites::Ages;
    use super::*;

    pub(super) fn table() -> (FrameTable, Vec<u32>) {
        let mut t = FrameTable::default();
        let f = |name: &str, line: u32, module: &str| Frame {
            function: Some(name.into()),
            file: Some(format!("/src/{module}.c")),
            line: Some(line),
            module: Some(module.into()),
            ..Frame::default()
        };
        let all = [f("main", 1, "app"), f("main", 2, "app"), f("work", 5, "app"), f("get", 9, "lib")].map(|f| t.intern(f));
        (t, all.to_vec())
    }

    pub(super) fn nobody(_: u32) -> (String, Option<Bytes>) {
        (String::new(), None)
    }

    pub(super) fn row(frames: &[u32], live: i64) -> (Stack, Sums) {
        (Stack { frames: frames.to_vec(), truncated: false }, Sums { live_at: live, allocs: 1.0, ..Sums::default() })
    }

    #[test]
    fn functions_have_what_they_allocate_and_what_is_allocated_below_them() {
        let (t, f) = table();
        // Innermost first; work calls itself.
        let rows = [row(&[f[3], f[2], f[2], f[0]], 100), row(&[f[2], f[1]], 30), row(&[f[1]], 7)];
        let v = view(&rows, &t, &Request { by: By::Function, measure: Measure::Peak, top: 10 }, &nobody);
        let got: Vec<_> = v.rows.iter().map(|r| (r.frame.function.as_deref().unwrap(), r.inclusive, r.exclusive)).collect();
        assert_eq!(got, [("main", 137, 7), ("work", 130, 30), ("get", 100, 100)]);
        assert_eq!(v.total, Some(137));
        let v = view(&rows, &t, &Request { by: By::Module, measure: Measure::Peak, top: 1 }, &nobody);
        assert_eq!((v.rows[0].label(), v.rows[0].inclusive, v.rows[0].exclusive, v.rows_total), ("app".into(), 137, 37, 2));
        let v = view(&rows, &t, &Request { by: By::Line, measure: Measure::Peak, top: 9 }, &nobody);
        let got: Vec<_> = v.rows.iter().map(|r| (r.frame.line.unwrap(), r.inclusive)).collect();
        assert_eq!(got, [(5, 130), (9, 100), (1, 100), (2, 37)]);
    }

    #[test]
    fn what_nobody_knows_is_not_nothing() {
        let (t, f) = table();
        let known = |stack: &[u32], n| {
            let (stack, s) = row(stack, 1);
            (stack, Sums { ages: Some(Ages { lifetimes: [n, 0.0, 0.0, 0.0, 0.0], ..Ages::default() }), ..s })
        };
        let rows = [known(&[f[0]], 7.0), known(&[f[2]], 3.0)];
        let asked = |by| Request { by, measure: Measure::Temporary, top: 9 };
        let v = view(&rows, &t, &asked(By::Function), &nobody);
        assert_eq!((v.total, v.rows.len()), (Some(10), 2));
        let rows = [known(&[f[0]], 7.0), row(&[f[2]], 1)];
        for by in [By::Function, By::Tree, By::Thread] {
            let v = view(&rows, &t, &asked(by), &nobody);
            assert_eq!((v.total, v.rows.len(), v.tree.len()), (None, 0, 0));
        }
    }

    #[test]
    fn filters_keep_or_drop() {
        let (t, f) = table();
        let (stack, _) = row(&[f[3], f[0]], 1);
        assert!(passes("get", &stack, &t) && passes("lib.c", &stack, &t) && !passes("work", &stack, &t));
        assert!(!passes("!get", &stack, &t) && passes("!work", &stack, &t));
    }

    #[test]
    fn frames_have_labels() {
        let of = |function: Option<&str>, file: Option<&str>, module: Option<&str>, python, addr| {
            let text = |t: Option<&str>| t.map(str::to_owned);
            label(&Frame {
                function: text(function),
                file: text(file),
                line: file.map(|_| 7),
                module: text(module),
                python,
                addr,
                inlined: false,
            })
        };
        assert_eq!(of(Some("f"), Some("/a/b.py"), None, true, None), "b.py:7 f");
        assert_eq!(of(Some("f"), Some("/a/b.c"), Some("/m"), false, None), "f (b.c:7)");
        assert_eq!(of(Some("f"), None, Some("/a/m.so"), false, None), "f [m.so]");
        assert_eq!(of(Some("f"), None, Some("/a/m.cpython-311-x86_64-linux-gnu.so"), false, None), "f [m]");
        assert_eq!(of(None, None, Some("/a/m.so"), false, Some(16)), "m.so+0x10");
        assert_eq!(of(None, None, None, false, Some(16)), "0x10");
    }
}
