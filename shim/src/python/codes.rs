//! Code objects by address, as numbers: one table for the process, in private memory, without locks.
//!
//! A slot holds an address and, in one word, the number with 39 bits of a print of the code object. An address that is used again by
//! another code object shows another print, so it gets a number and a definition of its own. Two threads that meet a new code object at
//! once may both define it, under two numbers: the reader takes them for one another. Nothing waits.

use super::interpreter::Interpreter;
use super::layout::NONE;
use super::strings::{chars, tail};
use super::thread::{plausible, read};
use crate::sys;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use memshim_format::pylines;

/// The table's parts, in slots. An address has its places in each, and lies in the first that has one free: so few code objects take few
/// pages. Of what has none in the last nothing is said (number 0).
const PARTS: [usize; 4] = [1 << 9, 1 << 12, 1 << 15, 1 << 18];
/// Places of an address in a part: a cache line, and more in the last.
const PLACES: [usize; 4] = [4, 4, 4, 32];
const SLOTS: usize = PARTS[0] + PARTS[1] + PARTS[2] + PARTS[3];
const NUMBER_BITS: u32 = 24;

struct Slot {
    code: AtomicU64,
    /// Print in the upper bits, then whether it is [`passing`], number in the lower ones; 0 while it is being defined.
    known: AtomicU64,
}

static TABLE: AtomicPtr<Slot> = AtomicPtr::new(core::ptr::null_mut());
/// Parts that have memory.
static BEGUN: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicU32 = AtomicU32::new(1);

/// What a number stands for.
pub struct Definition<'a> {
    pub number: u32,
    /// `co_filename`, UTF-8 except for bytes of file names that are no text. Cut after [`FILE`] bytes.
    pub file: &'a [u8],
    /// `co_qualname`, before 3.11 `co_name`. Cut after [`NAME`] bytes.
    pub name: &'a [u8],
    pub first_line: u32,
    /// 0x030b for 3.11.
    pub version: u16,
}

pub const FILE: usize = 4096;
pub const NAME: usize = 1024;

/// Room for the strings of a definition.
pub struct Text {
    file: [u8; FILE],
    name: [u8; NAME],
}

/// A forked child's trace knows no numbers yet.
pub fn forget() {
    let table = TABLE.swap(core::ptr::null_mut(), Relaxed);
    if !table.is_null() {
        // SAFETY: the child's only thread is here.
        unsafe { sys::unmap(table.cast(), SLOTS * size_of::<Slot>()) };
    }
    NEXT.store(1, Relaxed);
    BEGUN.store(0, Relaxed);
}

/// Private memory taken, in bytes.
pub fn private() -> usize {
    PARTS.iter().take(BEGUN.load(Relaxed)).sum::<usize>() * size_of::<Slot>()
}

/// The places of an address, in order.
///
/// # Safety
/// `table` has its slots.
unsafe fn places(table: *const Slot, code: u64) -> impl Iterator<Item = &'static Slot> {
    let from = place_of(code);
    let mut begin = 0;
    PARTS.iter().zip(PLACES).enumerate().flat_map(move |(part, (&slots, places))| {
        let at = begin;
        begin += slots;
        if BEGUN.load(Relaxed) <= part {
            BEGUN.fetch_max(part + 1, Relaxed);
            // SAFETY: parts are whole pages of the table.
            unsafe { sys::populate(table.add(at).cast(), slots * size_of::<Slot>()) };
        }
        let first = from & (slots - 1) & !(PLACES[0] - 1);
        // SAFETY: inside the part; the table is never unmapped while threads look into it.
        (0..places).map(move |i| unsafe { &*table.add(at + ((first + i) & (slots - 1))) })
    })
}

fn table() -> *mut Slot {
    let there = TABLE.load(Acquire);
    if !there.is_null() {
        return there;
    }
    let new = sys::map_anon(SLOTS * size_of::<Slot>()).cast::<Slot>();
    match TABLE.compare_exchange(core::ptr::null_mut(), new, AcqRel, Acquire) {
        Ok(_) => new,
        Err(there) => {
            if !new.is_null() {
                // SAFETY: nobody else has seen it.
                unsafe { sys::unmap(new.cast(), SLOTS * size_of::<Slot>()) };
            }
            there
        }
    }
}

/// The number of a code object that is alive, and whether it is of a kind that comes and goes. A new one is defined before its number is
/// given. 0: no more numbers.
///
/// # Safety
/// `code` is a code object of this interpreter, kept alive by a frame of this thread.
pub unsafe fn number(i: &Interpreter, code: u64, text: &mut Text, define: &mut impl FnMut(&Definition) -> bool) -> (u32, bool) {
    // SAFETY: the caller's code object; the table's slots.
    unsafe {
        let print = print_of(i, code);
        let table = table();
        if table.is_null() {
            return (0, false);
        }
        for slot in places(table, code) {
            let mut there = slot.code.load(Acquire);
            if there == 0 {
                match slot.code.compare_exchange(0, code, AcqRel, Acquire) {
                    Ok(_) => there = code,
                    Err(other) => there = other,
                }
            }
            if there == code {
                let known = slot.known.load(Acquire);
                if known >> (NUMBER_BITS + 1) == print {
                    return ((known & ((1 << NUMBER_BITS) - 1)) as u32, known >> NUMBER_BITS & 1 != 0);
                }
                let n = new(i, code, text, define);
                let passing = i.version < 0x030c && passing(i, code);
                if n != 0 {
                    let new = (print << 1 | passing as u64) << NUMBER_BITS | n as u64;
                    let _ = slot.known.compare_exchange(known, new, AcqRel, Relaxed);
                }
                return (n, passing);
            }
        }
        (0, false)
    }
}

/// Where an address is looked for first.
fn place_of(code: u64) -> usize {
    ((code >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize
}

#[cold]
#[inline(never)]
unsafe fn new(i: &Interpreter, code: u64, text: &mut Text, define: &mut impl FnMut(&Definition) -> bool) -> u32 {
    // The counter never comes round: it stops far below where it would.
    let n = NEXT.fetch_update(Relaxed, Relaxed, |n| (n < 1 << NUMBER_BITS).then_some(n + 1)).unwrap_or(0);
    if n == 0 {
        return 0;
    }
    let l = &i.layout;
    let p = code as *const u8;
    // SAFETY: fields of the caller's code object.
    unsafe {
        let file = chars(l, read(p, l.filename)).map_or(0, |c| c.write(&mut text.file));
        let mut name = if l.qualname == NONE { None } else { chars(l, read(p, l.qualname)) };
        if name.is_none() {
            name = chars(l, read(p, l.name));
        }
        let name = name.map_or(0, |c| c.write(&mut text.name));
        let told = define(&Definition {
            number: n,
            file: text.file.get(..file).unwrap_or(&[]),
            name: text.name.get(..name).unwrap_or(&[]),
            first_line: first_line(i, code),
            version: i.version,
        });
        // What was not told is defined anew at the next use.
        if told { n } else { 0 }
    }
}

/// `co_firstlineno`.
unsafe fn first_line(i: &Interpreter, code: u64) -> u32 {
    // SAFETY: a field of the caller's code object.
    unsafe { (code as *const u8).add(i.layout.firstlineno as usize).cast::<i32>().read().max(0) as u32 }
}

/// The line of an instruction, as a node says it ([`pylines::said`]).
///
/// # Safety
/// `code` is a code object of this interpreter, kept alive by a frame of this thread.
pub unsafe fn line_said(i: &Interpreter, code: u64, index: u32) -> u32 {
    let l = &i.layout;
    // SAFETY: fields of the caller's code object; `co_linetable`, before 3.10 `co_lnotab`, is a bytes object that lives as long and never changes.
    unsafe {
        let lines = read(code as *const u8, l.lines);
        if !plausible(lines) {
            return 0;
        }
        let size = read(lines as *const u8, l.bytes_size);
        let data = (lines as *const u8).add(l.bytes_data as usize);
        let table = core::slice::from_raw_parts(data, if size < LINES_MAX { size as usize } else { 0 });
        let first = first_line(i, code);
        pylines::said(first, pylines::line(i.version, table, first, index))
    }
}

/// Whether code is of the kinds that are made, run and thrown away: bodies of modules, and all that stands in no file (`<string>`) but in
/// the interpreter.
unsafe fn passing(i: &Interpreter, code: u64) -> bool {
    let l = &i.layout;
    // SAFETY: fields of the caller's code object.
    unsafe {
        let begins = |field: u16, with: &[u8]| chars(l, read(code as *const u8, field)).is_some_and(|c| c.begins(with));
        begins(l.name, b"<module") || begins(l.filename, b"<") && !begins(l.filename, b"<frozen ")
    }
}

/// Bytes of a line table that is believed.
const LINES_MAX: u64 = 1 << 28;

/// 39 bits of what tells code objects apart, never 0: the stamp, the first line, line table, name and file by length and
/// end.
unsafe fn print_of(i: &Interpreter, code: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let l = &i.layout;
    let p = code as *const u8;
    // SAFETY: fields of the caller's code object.
    unsafe {
        let stamp = p.add(l.stamp as usize).cast::<u32>().read() as u64;
        let line = p.add(l.firstlineno as usize).cast::<u32>().read() as u64;
        let lines = read(p, l.lines);
        let mut h = (line << 32 | stamp).wrapping_mul(ODD);
        if plausible(lines) {
            let (at, size) = (lines as *const u8, read(lines as *const u8, l.bytes_size));
            let end = tail(at.add(l.bytes_data as usize), if size < LINES_MAX { size as usize } else { 0 });
            h = (h ^ h >> 29 ^ end ^ size).wrapping_mul(ODD);
        }
        for field in [l.name, l.filename] {
            if let Some(c) = chars(l, read(p, field)) {
                h = (h ^ h >> 29 ^ c.tail() ^ c.len as u64).wrapping_mul(ODD);
            }
        }
        (h >> 25).max(1)
    }
}
