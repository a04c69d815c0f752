//! The code objects that are phases, by address: a table without locks in private memory, of those that rules are for and no others.
//!
//! A code object may go, and another come to its address: what is kept of its fields tells them apart. It is not kept alive: a program that
//! makes the same function anew for ever would grow.

use crate::sys;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

const SLOTS: usize = 1 << 14;
const PROBES: usize = 16;

struct Slot {
    code: AtomicU64,
    print: AtomicU64,
    phase: AtomicU32,
}

static TABLE: AtomicPtr<Slot> = AtomicPtr::new(core::ptr::null_mut());

/// Where an address is looked for first.
#[inline(always)]
fn place_of(code: u64) -> usize {
    (code >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 50
}

#[inline(always)]
fn slots(table: *mut Slot, code: u64) -> impl Iterator<Item = &'static Slot> {
    let from = place_of(code);
    // SAFETY: the table's slots; it is never given back.
    (0..PROBES).map(move |n| unsafe { &*table.add((from + n) & (SLOTS - 1)) })
}

/// Whether a code object may be one. Nearly always its first place is free.
#[inline(always)]
pub fn may_be(code: u64) -> bool {
    let table = TABLE.load(Relaxed);
    // SAFETY: the table's slots; it is never given back.
    !table.is_null() && unsafe { (*table.add(place_of(code))).code.load(Relaxed) } != 0
}

/// The phase that a code object is, 0 none: most are none, and their place is free.
#[inline(always)]
pub fn phase_of(code: u64, print: impl FnOnce() -> u64) -> u32 {
    let table = TABLE.load(Acquire);
    if table.is_null() {
        return 0;
    }
    for slot in slots(table, code) {
        let there = slot.code.load(Acquire);
        if there == code {
            return if slot.print.load(Relaxed) == print() { slot.phase.load(Relaxed) } else { 0 };
        }
        if there == 0 {
            break;
        }
    }
    0
}

/// Says which phase a code object is, 0 that it is none; false: no room. Its own lock of the interpreter is held, or two threads say the same.
pub fn set(code: u64, print: u64, phase: u32) -> bool {
    let mut table = TABLE.load(Acquire);
    if table.is_null() {
        if phase == 0 {
            return true;
        }
        let len = SLOTS * size_of::<Slot>();
        let new = sys::map_anon(len).cast::<Slot>();
        if new.is_null() {
            return false;
        }
        match TABLE.compare_exchange(core::ptr::null_mut(), new, AcqRel, Acquire) {
            Ok(_) => table = new,
            Err(there) => {
                // SAFETY: nobody else has seen it.
                unsafe { sys::unmap(new.cast(), len) };
                table = there;
            }
        }
    }
    for slot in slots(table, code) {
        let there = slot.code.load(Acquire);
        if there == 0 && phase == 0 {
            return true;
        }
        let ours = there == code
            || there == 0 && slot.code.compare_exchange(0, code, AcqRel, Acquire).map_or_else(|other| other == code, |_| true);
        if ours {
            slot.phase.store(phase, Relaxed);
            slot.print.store(print, Release);
            return true;
        }
    }
    phase == 0
}
