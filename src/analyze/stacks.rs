//! Stacks with names: the frames of all images, native and Python merged, each frame once.

use std::collections::{BTreeMap, HashMap};

use super::report::{Frame, Missing};
use super::runtime;
use crate::model::image::ImageEnd;
use crate::model::modules::ModuleFile;
use crate::model::stacks::{BEYOND, NO_MODULE, NativeFrame, PythonFrame, Stacks};
use crate::symbols::{self, ModuleNames, Search, Wanted};

/// Frames by number.
#[derive(Debug, Default)]
pub struct FrameTable {
    pub all: Vec<Frame>,
    known: HashMap<Frame, u32>,
}

impl FrameTable {
    pub fn intern(&mut self, frame: Frame) -> u32 {
        let next = self.all.len() as u32;
        *self.known.entry(frame).or_insert_with_key(|frame| {
            self.all.push(frame.clone());
            next
        })
    }

    pub fn get(&self, number: u32) -> &Frame {
        &self.all[number as usize]
    }
}

/// A stack: numbers of its frames, innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stack {
    pub frames: Vec<u32>,
    pub truncated: bool,
}

/// Names of all modules of all images.
#[derive(Debug, Default)]
pub struct Names(HashMap<ModuleFile, ModuleNames>);

impl Names {
    /// Looks up every address that is in a stack of one of the images.
    pub fn of<'a>(images: impl Iterator<Item = &'a ImageEnd>, search: &Search) -> Names {
        let mut wanted: HashMap<&ModuleFile, Vec<u64>> = HashMap::new();
        for image in images {
            for frame in image.stacks.native.frames() {
                if let Some(file) = image.stacks.modules.files.get(frame.module as usize) {
                    wanted.entry(file).or_default().push(instruction(frame));
                }
            }
        }
        let wanted: Vec<Wanted> = wanted
            .into_iter()
            .map(|(module, mut addresses)| {
                addresses.sort_unstable();
                addresses.dedup();
                Wanted { module, addresses }
            })
            .collect();
        let names = symbols::names(&wanted, search);
        Names(wanted.iter().map(|w| w.module.clone()).zip(names).collect())
    }

    /// Why names of a file that an image uses are missing.
    pub fn problems(&self, stacks: &Stacks) -> Vec<Missing> {
        let mut all = BTreeMap::new();
        for file in &stacks.modules.files {
            if let Some(ModuleNames { problem: Some(why), .. }) = self.0.get(file) {
                all.insert(&file.path, why);
            }
        }
        let called = |path: &str| if path.is_empty() { "the program".to_owned() } else { path.to_owned() };
        all.into_iter().map(|(path, why)| Missing { what: format!("names of {}", called(path)), count: 1, why: why.clone() }).collect()
    }
}

/// Where to look a frame up: a return address may be the first of what follows the call.
fn instruction(frame: &NativeFrame) -> u64 {
    frame.addr.wrapping_sub(!frame.exact as u64)
}

/// Stacks of one image.
pub struct Resolver<'a> {
    stacks: &'a Stacks,
    names: &'a Names,
    /// Frames of each native frame, outermost first, and whether it is the interpreter's loop.
    native: HashMap<NativeFrame, (Vec<u32>, bool)>,
    python: HashMap<PythonFrame, u32>,
    /// Whether the interpreter's own frames between and outside of Python's are shown.
    machinery: bool,
    /// By frame number.
    roles: Vec<Role>,
}

impl<'a> Resolver<'a> {
    pub fn new(stacks: &'a Stacks, names: &'a Names, machinery: bool) -> Self {
        Resolver { stacks, names, native: HashMap::new(), python: HashMap::new(), machinery, roles: Vec::new() }
    }

    /// The stack of a site.
    pub fn stack(&mut self, site: u32, table: &mut FrameTable) -> Stack {
        let (native, python) = self.stacks.nodes_of(site);
        let native = self.stacks.native.stack(native);
        let python = self.stacks.python.stack(python);
        let beyond = |f: &PythonFrame| f.code == 0 && f.at <= 1 && !f.entry;
        let truncated = native.first().is_some_and(|f| f.module == BEYOND) || python.first().is_some_and(beyond);
        let own: Vec<(Vec<u32>, bool)> = native.iter().filter(|f| f.module != BEYOND).map(|f| self.native(f, table)).collect();
        let stands_in = |f: &PythonFrame| f.code == 0 && f.at == 3;
        let number = |f: &PythonFrame| (if stands_in(f) { STAND_IN } else { self.python(f, table) }, f.entry);
        let python: Vec<(u32, bool)> = python.iter().filter(|f| !beyond(f)).map(number).collect();
        let mut frames = merge(&own, &python);
        frames.retain(|f| *f != STAND_IN);
        frames.reverse();
        if !self.machinery && !python.is_empty() {
            self.hide(&mut frames, table);
        }
        Stack { frames, truncated }
    }

    /// Takes out how the interpreter calls itself and others: its frames outside of the innermost frame that is Python or a library of the program's.
    /// What it does for that one stays.
    fn hide(&mut self, frames: &mut Vec<u32>, table: &FrameTable) {
        let known = self.roles.len();
        self.roles.extend(table.all[known..].iter().map(Role::of));
        let below = frames.iter().position(|f| self.roles[*f as usize] == Role::Program).unwrap_or(0);
        let mut at = 0..;
        frames.retain(|f| at.next().is_some_and(|i: usize| i <= below) || self.roles[*f as usize] != Role::Interpreter);
    }

    fn native(&mut self, frame: &NativeFrame, table: &mut FrameTable) -> (Vec<u32>, bool) {
        if let Some(known) = self.native.get(frame) {
            return known.clone();
        }
        let file = self.stacks.modules.files.get(frame.module as usize);
        let module = file.map(|f| f.path.clone());
        let names = file.and_then(|f| self.names.0.get(f)).and_then(|n| n.at.get(&instruction(frame)));
        let found = match names {
            Some(all) => {
                let of = |n: &symbols::Named| Frame {
                    function: Some(n.function.clone()),
                    file: n.file.clone(),
                    line: n.line,
                    module: module.clone(),
                    inlined: n.inlined,
                    ..Frame::default()
                };
                let numbers = all.iter().map(|n| table.intern(of(n))).collect();
                (numbers, all.first().is_some_and(|n| is_eval_loop(&n.function)))
            }
            None => {
                debug_assert!(frame.module != NO_MODULE || module.is_none());
                let addr = Some(instruction(frame));
                (vec![table.intern(Frame { module, addr, ..Frame::default() })], false)
            }
        };
        self.native.insert(*frame, found.clone());
        found
    }

    fn python(&mut self, frame: &PythonFrame, table: &mut FrameTable) -> u32 {
        if let Some(known) = self.python.get(frame) {
            return *known;
        }
        let code = self.stacks.codes.get(&frame.code);
        let number = table.intern(match code {
            Some(code) => Frame {
                function: Some(code.name.clone()),
                file: Some(code.file.clone()),
                line: code.line(frame.at),
                python: true,
                ..Frame::default()
            },
            None => Frame { python: true, ..Frame::default() },
        });
        self.python.insert(*frame, number);
        number
    }
}

/// Whose a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Python code, or a library that Python code calls.
    Program,
    /// Native frames of the interpreter, and of the C library that started it.
    Interpreter,
    Runtime,
}

impl Role {
    fn of(frame: &Frame) -> Role {
        let module = frame.module.as_deref().and_then(|m| m.rsplit('/').next()).unwrap_or_default();
        let starts = frame.function.as_deref().is_some_and(|f| f.starts_with("__libc_start_") || f == "_start");
        match () {
            () if frame.python => Role::Program,
            () if starts || module.starts_with("python") || module.starts_with("libpython") => Role::Interpreter,
            () if runtime::is_runtime(frame) => Role::Runtime,
            () => Role::Program,
        }
    }
}

/// In the place of Python frames of a run of the loop that has none of the program's, until it is known which loop that is.
const STAND_IN: u32 = u32::MAX;

/// CPython's evaluation loop, or a part that a compiler split off it.
fn is_eval_loop(function: &str) -> bool {
    function.starts_with("_PyEval_EvalFrameDefault") || function.starts_with("_TAIL_CALL_")
}

/// Puts the Python frames of each call into the interpreter in the place of its evaluation loop. Both outermost first; so is what it gives.
///
/// Matched from the inside: where one of the two stacks is cut, it is its outer part that is missing.
fn merge(native: &[(Vec<u32>, bool)], python: &[(u32, bool)]) -> Vec<u32> {
    // The Python frames of each entry into the interpreter.
    let mut groups: Vec<&[(u32, bool)]> = Vec::new();
    let mut from = 0;
    for at in 1..=python.len() {
        if at == python.len() || python[at].1 {
            groups.push(&python[from..at]);
            from = at;
        }
    }
    let loops = native.iter().filter(|(_, eval)| *eval).count();
    let mut unmatched = loops.saturating_sub(groups.len());
    let mut extra = groups.len().saturating_sub(loops);
    let mut groups = groups.into_iter();
    let mut all = Vec::new();
    let numbers = |group: &[(u32, bool)]| group.iter().map(|(number, _)| *number).collect::<Vec<_>>();
    // Where no loop is known, the interpreter's symbols are missing: its frames stand outside of what they called.
    while extra > 0 {
        all.extend(groups.next().map(numbers).unwrap_or_default());
        extra -= 1;
    }
    for (frames, eval) in native {
        match eval {
            true if unmatched > 0 => {
                unmatched -= 1;
                all.extend(frames);
            }
            true => all.extend(groups.next().map(numbers).unwrap_or_default()),
            false => all.extend(frames),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(rows: &[(u32, bool)]) -> Vec<(Vec<u32>, bool)> {
        rows.iter().map(|&(n, eval)| (vec![n], eval)).collect()
    }

    #[test]
    fn python_frames_stand_in_the_place_of_the_loop_that_runs_them() {
        // main, loop, C function, loop, malloc's caller; f → g (one entry), h (another).
        let n = native(&[(1, false), (2, true), (3, false), (4, true), (5, false)]);
        assert_eq!(merge(&n, &[(10, true), (11, false), (12, true)]), [1, 10, 11, 3, 12, 5]);
    }

    #[test]
    fn what_is_cut_is_the_outer_part() {
        let n = native(&[(3, false), (4, true), (5, false)]);
        assert_eq!(merge(&n, &[(10, true), (11, false), (12, true)]), [10, 11, 3, 12, 5], "the native stack is cut");
        let n = native(&[(1, false), (2, true), (3, false), (4, true), (5, false)]);
        assert_eq!(merge(&n, &[(11, false), (12, false)]), [1, 2, 3, 11, 12, 5], "the Python stack is cut");
        assert_eq!(merge(&native(&[(1, false)]), &[]), [1]);
        assert_eq!(merge(&[], &[(1, true)]), [1]);
    }

    #[test]
    fn the_loop_has_many_names() {
        for name in ["_PyEval_EvalFrameDefault", "_PyEval_EvalFrameDefault.cold", "_PyEval_EvalFrameDefault.llvm.77", "_TAIL_CALL_CALL"] {
            assert!(is_eval_loop(name), "{name}");
        }
        assert!(!is_eval_loop("_PyEval_Vector"));
    }
}
