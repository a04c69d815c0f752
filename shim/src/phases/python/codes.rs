//! The code objects that are phases, by address: a table without locks in private memory, of those that rules are for and no others.
//!
//! A code object may go, and another come to its address: what is kept of its fields tells them apart. It is not kept alive: a program that
//! makes the same function anew for ever would grow.

use super::rules::{NONE, Phase};
use crate::sys;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

const SLOTS: usize = 1 << 14;
const PROBES: usize = 16;

struct Slot {
    code: AtomicU64,
    print: AtomicU64,
    phase: AtomicU32,
    rules: AtomicU64,
}

/// A code object found no place.
static FULL: AtomicBool = AtomicBool::new(false);
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

/// The phase that a code object is.
#[inline]
pub fn phase_of(code: u64, print: impl FnOnce() -> u64) -> Phase {
    let table = TABLE.load(Acquire);
    if table.is_null() {
        return NONE;
    }
    for slot in slots(table, code) {
        let there = slot.code.load(Acquire);
        if there == code {
            let same = slot.print.load(Relaxed) == print();
            return if same { Phase { number: slot.phase.load(Relaxed), rules: slot.rules.load(Relaxed) } } else { NONE };
        }
        if there == 0 {
            break;
        }
    }
    NONE
}

/// Whether there was a phase too many.
pub fn is_full() -> bool {
    FULL.load(Relaxed)
}

/// The table; null where there is no memory for it.
fn table() -> *mut Slot {
    let there = TABLE.load(Acquire);
    if !there.is_null() {
        return there;
    }
    let len = SLOTS * size_of::<Slot>();
    let new = sys::map_anon(len).cast::<Slot>();
    if new.is_null() {
        return new;
    }
    TABLE.compare_exchange(core::ptr::null_mut(), new, AcqRel, Acquire).map_or_else(
        |there| {
            // SAFETY: nobody else has seen it.
            unsafe { sys::unmap(new.cast(), len) };
            there
        },
        |_| new,
    )
}

/// Says which phase a code object is; false: there is no room. The interpreter's lock is held, or two threads say the same.
pub fn set(code: u64, print: u64, phase: Phase) -> bool {
    if phase.number == 0 {
        forget(code);
        return true;
    }
    let table = table();
    // Its own place, else one that is free or whose code object is none any more.
    let own = |slot: &&Slot| slot.code.load(Acquire) == code;
    let free = |slot: &&Slot| {
        let there = slot.code.load(Acquire);
        (there == 0 || slot.phase.load(Acquire) == 0) && slot.code.compare_exchange(there, code, AcqRel, Acquire).is_ok()
    };
    let slot = if table.is_null() { None } else { slots(table, code).find(own).or_else(|| slots(table, code).find(free)) };
    let Some(slot) = slot else {
        FULL.store(true, Relaxed);
        return false;
    };
    slot.rules.store(phase.rules, Relaxed);
    slot.print.store(print, Relaxed);
    slot.phase.store(phase.number, Release);
    true
}

/// A code object is none any more, or another one is at its address.
pub fn forget(code: u64) {
    let table = TABLE.load(Acquire);
    if !table.is_null() {
        slots(table, code).filter(|slot| slot.code.load(Acquire) == code).for_each(|slot| slot.phase.store(0, Release));
    }
}
