//! The objects that are loaded, with what is to be known of each to find functions in it and pointers to functions. Read under the loader's lock.

use super::{rules, thunk};
use crate::elf::{self, Dynamic, Function};
use crate::sys::{PAGE, sys};
use crate::unwind::modules::{self, Listed, around};
use core::ffi::CStr;

/// Objects that are known at once; further ones are left alone.
const MOST: usize = 4096;

/// What is left to do with an object's pointers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// All.
    New,
    /// The loader has not done with it yet.
    Early,
    /// Some calls are still to be bound by the loader, and it was not clear to what.
    Unbound,
    Done,
}

/// One object.
#[derive(Clone, Copy)]
pub struct Loaded {
    pub bias: u64,
    dynamic: u64,
    name: u64,
    program: bool,
    /// All of it, and its code, from the first to the last segment.
    whole: [u64; 2],
    code: [u64; 2],
    /// What the loader makes read-only when it has done with it, in whole pages.
    pub sealed: [u64; 2],
    /// Rules for it, by bits.
    pub rules: u64,
    /// This library.
    pub own: bool,
    /// The C library's loader: what it defines and calls is left alone.
    pub loader: bool,
    pub state: State,
}

/// All of them. All zero is none.
pub struct Objects {
    count: usize,
    /// The list and the one before it, in turn; and which is the list.
    lists: [[Loaded; MOST]; 2],
    now: usize,
    /// The loader's counters when the list was read.
    at: [u64; 2],
}

/// The program's file name.
static mut PROGRAM: [u8; 256] = [0; 256];
static mut PROGRAM_LEN: usize = 0;

/// Finds the program's name. One thread, at the start.
pub fn settle() {
    let mut path = [0u8; 4096];
    // SAFETY: the path has room; one thread.
    unsafe {
        let n = sys!(libc::SYS_readlinkat, libc::AT_FDCWD, c"/proc/self/exe".as_ptr(), path.as_mut_ptr(), path.len());
        let file = file_of(path.get(..n.max(0) as usize).unwrap_or(b""));
        let to = &mut *(&raw mut PROGRAM);
        to.iter_mut().zip(file).for_each(|(to, c)| *to = *c);
        PROGRAM_LEN = file.len().min(to.len());
    }
}

fn file_of(path: &[u8]) -> &[u8] {
    path.rsplit(|c| *c == b'/').next().unwrap_or(path)
}

impl Loaded {
    /// None where it has no header to be read.
    fn read(o: Listed) -> Option<Loaded> {
        let mut l = Loaded {
            bias: o.bias,
            dynamic: o.dynamic,
            name: o.name,
            program: o.program,
            whole: [u64::MAX, 0],
            code: [u64::MAX, 0],
            sealed: [0, 0],
            rules: 0,
            own: false,
            loader: false,
            state: State::New,
        };
        modules::each_header(o, |h| {
            let [start, end] = h.span(o.bias);
            match h.kind {
                libc::PT_LOAD => {
                    l.whole = around(l.whole, [start, end]);
                    if h.flags & libc::PF_X != 0 {
                        l.code = around(l.code, [start, end]);
                    }
                }
                libc::PT_GNU_RELRO => l.sealed = [start & !(PAGE - 1), end & !(PAGE - 1)],
                _ => {}
            }
        })?;
        l.own = l.holds(thunk::begin_of_all());
        let file = l.file();
        l.loader = file.starts_with(b"ld")
            && l.tables().is_some_and(|d| {
                // SAFETY: loaded, as the loader's lock is held.
                unsafe { d.default(b"_rtld_global") }.is_some()
            });
        l.rules = rules::of_object(file);
        Some(l)
    }

    fn is_same(&self, o: &Listed) -> bool {
        (self.bias, self.dynamic, self.name) == (o.bias, o.dynamic, o.name)
    }

    /// The name of its file.
    pub fn file(&self) -> &'static [u8] {
        // SAFETY: the loader's string, under its lock; settled at the start.
        unsafe {
            if self.program {
                let name: &'static [u8; 256] = &*(&raw const PROGRAM);
                return name.get(..PROGRAM_LEN).unwrap_or(b"");
            }
            if self.name == 0 { b"" } else { file_of(CStr::from_ptr(self.name as *const _).to_bytes()) }
        }
    }

    /// Its symbols and relocations.
    pub fn tables(&self) -> Option<Dynamic> {
        let object = elf::Object::new(self.bias, self.dynamic as *const [u64; 2]);
        // SAFETY: loaded, as the loader's lock is held.
        unsafe { Dynamic::of(&object) }
    }

    /// Whether an address is in it.
    pub fn holds(&self, at: u64) -> bool {
        let [from, to] = self.whole;
        (from..to).contains(&at)
    }

    /// Whether a place may be a function's.
    pub fn has_code(&self, at: u64) -> bool {
        let [from, to] = self.code;
        (from..to).contains(&at)
    }

    /// The function `name` that it defines, at `at` or anywhere.
    pub fn function(&self, name: &[u8], at: Option<u64>) -> Option<Function> {
        // SAFETY: loaded, as the loader's lock is held.
        unsafe { self.tables()?.function(name, at) }.filter(|f| self.has_code(f.at))
    }
}

impl Objects {
    /// Private memory that both lists fill, in bytes.
    pub fn private(&self) -> usize {
        2 * (self.count * size_of::<Loaded>() + PAGE as usize)
    }

    /// Those that are loaded, in the loader's order.
    pub fn all(&self) -> &[Loaded] {
        self.lists.get(self.now).and_then(|list| list.get(..self.count)).unwrap_or(&[])
    }

    /// One of them.
    pub fn get(&self, i: usize) -> Option<&Loaded> {
        self.all().get(i)
    }

    /// Notes what is left to do with one.
    pub fn set_state(&mut self, i: usize, state: State) {
        if let Some(o) = self.lists.get_mut(self.now).and_then(|list| list.get_mut(i)) {
            o.state = state;
        }
    }

    /// The one that an address is in.
    pub fn holder(&self, at: u64) -> Option<&Loaded> {
        self.all().iter().find(|o| o.holds(at))
    }

    /// Reads the list anew where it has changed. What was unloaded may have come again, at the same place: then all is to be done anew but for
    /// the objects that the program began with, which stay.
    pub fn refresh(&mut self) {
        let at @ [added, held] = modules::counters();
        if self.count > 0 && modules::are_counted() && at == self.at {
            return;
        }
        let [a, h] = self.at;
        let [first, second] = &mut self.lists;
        let (known, all) = if self.now == 0 { (first, second) } else { (second, first) };
        let known = known.get(..self.count).unwrap_or(&[]);
        let stay = !modules::are_counted() || added.wrapping_sub(held) == a.wrapping_sub(h);
        let (mut n, mut at_old) = (0, 0);
        modules::each_listed(|o| {
            // Both lists are in the same order.
            let old = known.get(at_old..).unwrap_or(&[]).iter().position(|l| l.is_same(&o)).filter(|_| stay || o.stays);
            let now = match old {
                Some(i) => {
                    at_old += i + 1;
                    known.get(at_old - 1).copied()
                }
                None => Loaded::read(o),
            };
            if let (Some(place), Some(now)) = (all.get_mut(n), now) {
                let unbound = now.state == State::Unbound;
                *place = Loaded { state: if unbound { State::New } else { now.state }, ..now };
                n += 1;
            }
        });
        self.now = 1 - self.now.min(1);
        self.count = n;
        self.at = at;
    }
}
