//! 3.11's loop jumps from instruction to instruction through a table of addresses, one for each opcode ("computed goto"). Opcodes that the
//! compiler does not use can be given a meaning there, for as long as the process lives: that is how code objects that are phases, and no
//! others, come by us ([`super::inlined`]).
//!
//! Neither table has a name in the symbols of a stripped interpreter. Each is known by what only it can be: 256 addresses inside the loop
//! of which the last opcodes' are one, and the bytes that say which opcode each is made from. Where one is not found, or its page cannot be
//! written, nothing is changed.

use super::cpython::Cpython;
use crate::python::OURS;
use crate::sys::{PAGE, sys};
use crate::unwind::modules;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

pub const RETURN_GENERATOR: u8 = 75;
pub const RETURN_VALUE: u8 = 83;
pub const RERAISE: u8 = 119;
pub const LOAD_FAST: u8 = 124;
pub const MAKE_CELL: u8 = 135;
pub const COPY_FREE_VARS: u8 = 149;
pub const RESUME_QUICK: u8 = 150;
pub const RESUME: u8 = 151;
pub const DO_TRACING: u8 = 255;
const COMPILED: [u8; 7] = [RETURN_GENERATOR, RETURN_VALUE, RERAISE, LOAD_FAST, MAKE_CELL, COPY_FREE_VARS, RESUME];
/// The first that the compiler does not use; all up to [`DO_TRACING`] are such.
const UNUSED: u8 = 183;

/// Ours: the first instruction of a function that is a phase, by what the compiler had put there.
pub const CALLED: [(u8, u8); 4] = [(FIRST, RESUME), (FIRST + 1, COPY_FREE_VARS), (FIRST + 2, MAKE_CELL), (FIRST + 3, RETURN_GENERATOR)];
const FIRST: u8 = *OURS.start();
/// Ours: in the place of a function's second instruction for as long as it takes to leave its frame.
pub const LEFT: u8 = FIRST + 4;

/// How far from the loop's beginning its instructions may lie.
const NEAR: u64 = 4 << 20;

/// Where the table is, and whether its page is written without more ado; what stood in it.
static TABLE: AtomicU64 = AtomicU64::new(0);
static WRITABLE: AtomicBool = AtomicBool::new(false);
static FLAGS: AtomicU32 = AtomicU32::new(0);
static BEFORE: [AtomicU64; 256] = [const { AtomicU64::new(0) }; 256];

/// What the interpreter does for an opcode.
pub fn original(opcode: u8) -> u64 {
    BEFORE[opcode as usize].load(Relaxed)
}

/// The opcode that the compiler had put there.
pub fn behind(opcode: u8) -> u8 {
    CALLED.iter().find(|(ours, _)| *ours == opcode).map_or(opcode, |(_, its)| *its)
}

/// A run of bytes of the interpreter's, and whether they can be written as they are.
#[derive(Clone, Copy)]
struct Part {
    from: u64,
    to: u64,
    flags: u32,
    writable: bool,
}

/// The interpreter's parts, those first in which constants lie: what is not read is not brought into memory.
#[derive(Default)]
struct Parts {
    all: [Option<Part>; 16],
    guarded: [u64; 2],
}

impl Parts {
    fn of(p: &Cpython) -> Parts {
        let (bias, dynamic) = p.walked.object.place();
        let (mut parts, mut count) = (Parts::default(), 0);
        let Some(object) = modules::of_place(bias, dynamic) else { return parts };
        modules::each_header(object, |h| {
            let [from, to] = h.span(bias);
            match h.kind {
                libc::PT_LOAD if h.flags & libc::PF_R != 0 => {
                    if let Some(place) = parts.all.get_mut(count) {
                        // What the file has of it.
                        let to = from.wrapping_add(h.file_size);
                        *place = Some(Part { from, to, flags: h.flags, writable: h.flags & libc::PF_W != 0 });
                        count += 1;
                    }
                }
                // The loader guards whole pages.
                libc::PT_GNU_RELRO => parts.guarded = [from, to & !(PAGE - 1)],
                _ => {}
            }
        });
        parts
    }

    /// Constants without addresses, or those with code, as old linkers put them.
    fn constant(&self, flags: u32) -> impl Iterator<Item = Part> {
        self.all.iter().rev().flatten().copied().filter(move |p| p.flags == flags)
    }

    /// What the loader made read-only after it had put addresses in, which begins what can be written; and what it left.
    fn data(&self) -> impl Iterator<Item = Part> {
        let [low, high] = self.guarded;
        self.all.iter().flatten().copied().filter(|p| p.flags & libc::PF_W != 0).flat_map(move |part| {
            let cut = if low <= part.from { high.max(part.from).min(part.to) } else { part.from };
            [Part { to: cut, writable: false, ..part }, Part { from: cut, ..part }]
        })
    }
}

/// Puts what `new` says into the table: opcodes, and where they lead. False: nothing was changed.
///
/// # Safety
/// The interpreter is 3.11; called once, before it runs Python.
pub unsafe fn settle(p: &Cpython, new: impl Fn(u8) -> Option<u64>) -> bool {
    let (parts, code) = (Parts::of(p), p.default_eval as u64);
    let (plain, with_code) = (libc::PF_R, libc::PF_R | libc::PF_X);
    // SAFETY: segments of a loaded object that may be read.
    let origins = parts.constant(plain).chain(parts.constant(with_code)).find_map(|part| unsafe { seek::<256>(part, |at| is_origins(at)) });
    let places = parts.data().chain(parts.constant(plain)).chain(parts.constant(with_code));
    // SAFETY: as above.
    let table = places.filter(|_| origins.is_some()).find_map(|part| unsafe { seek::<2048>(part, |at| is_table(at.cast(), code)) });
    let (Some((table, of_table)), Some((origins, of_origins))) = (table, origins) else { return false };
    for (opcode, kept) in BEFORE.iter().enumerate() {
        // SAFETY: the table has 256 words.
        kept.store(unsafe { (table as *const u64).add(opcode).read() }, Relaxed);
    }
    // SAFETY: one byte and one word of the tables that were found. The program runs no Python yet.
    unsafe {
        if !CALLED.iter().all(|(ours, its)| write(origins + *ours as u64, *its, of_origins)) {
            return false;
        }
        let all = (0..=u8::MAX).all(|opcode| new(opcode).is_none_or(|to| write(table + 8 * opcode as u64, to, of_table)));
        if !all {
            (0..=u8::MAX).filter(|o| new(*o).is_some()).for_each(|o| _ = write(table + 8 * o as u64, original(o), of_table));
        }
        WRITABLE.store(of_table.writable, Relaxed);
        FLAGS.store(of_table.flags, Relaxed);
        TABLE.store(table, Release);
        all
    }
}

/// Has an opcode lead where it led before. False: the page cannot be written.
///
/// # Safety
/// [`settle`] was true.
pub unsafe fn restore(opcode: u8) -> bool {
    let at = TABLE.load(Acquire) + 8 * opcode as u64;
    let part = Part { from: at, to: at + 8, flags: FLAGS.load(Relaxed), writable: WRITABLE.load(Relaxed) };
    // SAFETY: a word of the table.
    unsafe { write(at, original(opcode), part) }
}

/// Looks for an array of `SIZE` bytes in a part. Such ones lie at multiples of 16.
unsafe fn seek<const SIZE: u64>(part: Part, is: impl Fn(*const u8) -> bool) -> Option<(u64, Part)> {
    let mut at = part.from.next_multiple_of(16);
    while at + SIZE <= part.to {
        if is(at as *const u8) {
            return Some((at, part));
        }
        at += 16;
    }
    None
}

/// Whether the bytes say which opcode each one is made from: those of the compiler are made from themselves, unused ones from none.
unsafe fn is_origins(at: *const u8) -> bool {
    // SAFETY: the caller's 256 bytes.
    let of = |opcode: u8| unsafe { at.add(opcode as usize).read() };
    of(1) == 1
        && of(2) == 2
        && COMPILED.into_iter().all(|o| of(o) == o)
        && of(RESUME_QUICK) == RESUME
        && (UNUSED..=u8::MAX).all(|o| of(o) == 0)
        && (0..UNUSED).all(|o| of(of(o)) == of(o))
}

/// Whether the words are addresses of instructions in the loop, of which unused opcodes have one that says so.
unsafe fn is_table(at: *const u64, code: u64) -> bool {
    // SAFETY: the caller's 256 words.
    let of = |opcode: u8| unsafe { at.add(opcode as usize).read() };
    let unknown = of(UNUSED);
    let leads = |to: u64| to.abs_diff(code) < NEAR;
    leads(unknown)
        && (UNUSED..DO_TRACING).all(|o| of(o) == unknown)
        && (0..=u8::MAX).all(|o| leads(of(o)))
        && COMPILED.into_iter().chain([DO_TRACING]).all(|o| of(o) != unknown)
}

/// Writes one value into a part, whose page gets its protection back.
unsafe fn write<T>(at: u64, value: T, part: Part) -> bool {
    let page = at & !(PAGE - 1);
    // SAFETY: the page stays readable, and code on it can be run.
    let protect = |how: i32| part.writable || unsafe { sys!(libc::SYS_mprotect, page, PAGE, how) } == 0;
    let was = libc::PROT_READ | if part.flags & libc::PF_X != 0 { libc::PROT_EXEC } else { 0 };
    // SAFETY: the caller's place, which lies on one page: it can be read and run all the while.
    unsafe {
        if !protect(was | libc::PROT_WRITE) {
            return false;
        }
        (at as *mut T).write_volatile(value);
        protect(was);
    }
    true
}
