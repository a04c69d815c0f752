//! A frame as it was when it was seen, and the comparison of remembered frames with those of the chain: the loop that most walks consist
//! of.

use super::interpreter::Interpreter;
use super::layout::{Layout, NONE};
use super::thread::{plausible, read};

/// A frame as it was.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Frame {
    pub at: u64,
    pub code: u64,
    pub instr: u64,
    pub stamp: u32,
    /// Of the code object; [`SHIM`] for frames that have none.
    pub number: u32,
    pub node: u32,
    /// What stands in the frame besides, as far as it is compared: 3.11's `is_entry` and `owner`.
    pub kind: u16,
    /// Its part of `at`: entered from C. Bit 1: by two runs of the loop (see [`TWICE`]).
    pub entry: u16,
}

/// An address that no frame has; 0 ends a chain.
pub const NOWHERE: u64 = 1;

/// Kinds of interpreters: frames are objects and their instruction is an index (to 3.10); frames know whether they were entered from C
/// (3.11); shim frames tell that (from 3.12); references to code objects have tags (from 3.14).
pub const OBJECTS: u8 = 0;
/// See [`OBJECTS`].
pub const ENTRIES: u8 = 1;
/// See [`OBJECTS`].
pub const FRAMES: u8 = 2;
/// See [`OBJECTS`].
pub const TAGGED: u8 = 3;

pub const SHIM: u32 = u32::MAX;
/// The code object must be looked up.
pub const UNNUMBERED: u32 = u32::MAX - 1;

/// 3.11: opcodes of ours, the first instruction of functions that are phases (see `phases::python::opcodes`).
pub const OURS: core::ops::RangeInclusive<u8> = 240..=244;
/// Stands in two bytes of such a function's frame that the interpreter does not use, where the function was entered from C: its own run of the
/// loop is then inside of another one, which ran nothing else.
pub const TWICE: u16 = 0xa5c3;
/// Where they are: behind what tells whether C entered the frame.
pub const TWICE_AT: u16 = 2;

/// Without the tag bits that 3.14 has in references.
#[inline(always)]
pub fn masked(code: u64) -> *const u8 {
    (code & !7) as *const u8
}

/// Follows the chain from `f` along the remembered frames from `r` outwards, as long as they are the same: where that ends.
#[inline(always)]
pub unsafe fn same<const KIND: u8>(l: &Layout, mut r: *mut Frame, mut f: u64) -> (*mut Frame, u64) {
    let (previous, code, instr, stamp, kind) = (l.previous as usize, l.code as usize, l.instr as usize, l.stamp as usize, l.entry as usize);
    // SAFETY: a frame whose address is that of a remembered one is on the chain, and has a code object that is alive. Before the first
    // comes one that is like none.
    unsafe {
        while (*r).at == f {
            let p = f as *const u8;
            let c = p.add(code).cast::<u64>().read();
            if c != (*r).code {
                break;
            }
            let object = if KIND == TAGGED { masked(c) } else { c as *const u8 };
            let at = if KIND == OBJECTS { p.add(instr).cast::<u32>().read() as u64 } else { p.add(instr).cast::<u64>().read() };
            if at != (*r).instr || object.add(stamp).cast::<u32>().read() != (*r).stamp {
                break;
            }
            if KIND == ENTRIES && p.add(kind).cast::<u16>().read() != (*r).kind {
                break;
            }
            f = p.add(previous).cast::<u64>().read();
            r = r.sub(1);
        }
    }
    (r, f)
}

/// [`same`], with all registers for itself.
#[inline(never)]
pub unsafe fn apart<const KIND: u8>(l: &Layout, r: *mut Frame, f: u64) -> (*mut Frame, u64) {
    // SAFETY: the caller's promises are those of `same`.
    unsafe { same::<KIND>(l, r, f) }
}

/// The instruction that a frame is at, in units of two bytes from the code's first; before the first it is the first.
pub unsafe fn index(i: &Interpreter, r: &Frame) -> u32 {
    let l = &i.layout;
    if l.start == NONE {
        // A byte offset up to 3.9.
        let last = (r.instr as u32 as i32).max(0) as u32;
        return if i.version < 0x030a { last / 2 } else { last };
    }
    let mut start = masked(r.code) as u64 + l.start as u64;
    if l.tlbc != NONE {
        // SAFETY: a live frame and its code object: an array of a length and so many pointers.
        unsafe {
            let of_threads = read(masked(r.code), l.tlbc);
            let n = (r.at as *const u8).add(l.tlbc_index as usize).cast::<u32>().read() as u64;
            if n > 0 && plausible(of_threads) && n < (of_threads as *const u64).read() {
                start = (of_threads as *const u64).add(1 + n as usize).read();
            }
        }
    }
    match r.instr.wrapping_sub(start) as i64 {
        n @ 0..0x4000_0000 => (n / 2) as u32,
        _ => 0,
    }
}
