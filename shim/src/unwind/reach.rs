//! Which memory a walk may read: nothing is touched that could be unmapped.
//!
//! - *The thread's own stack.* Its upper end is known (`anchor`): the control block that the C library puts there, for the first thread
//!   what the kernel put above its stack. A stack is not unmapped while its thread runs, so what was seen to be readable once, between
//!   the lowest place known and the anchor, stays so.
//! - *Other stacks* (alternate signal stacks, coroutines) may end at any time between two walks; while a walk is on one its thread runs
//!   there. They are proven page by page, anew in each walk.
//!
//! To prove a page is to have the kernel read it: `rt_sigprocmask` with a `how` that does not exist reads the set first and then refuses.
//! No memory is written, no descriptor needed, and no sandbox forbids it.

use crate::sys::{self, PAGE, sys};

/// The most of a stack that is looked at page by page, and of the first thread's that is taken for granted: the kernel keeps 128 MiB
/// below it free of other mappings.
const FARTHEST: u64 = 64 << 20;
/// Where addresses of programs end.
const TOP: u64 = 1 << 47;

/// Whether a word can be read. Nothing on the first page can: the kernel takes address 0 for no set at all, and does not look.
pub fn readable(at: u64) -> bool {
    // SAFETY: the call reads a set and fails, as no such `how` exists.
    (PAGE..TOP).contains(&at) && unsafe { sys!(libc::SYS_rt_sigprocmask, -1i64, at & !7, 0, 8) } != -libc::EFAULT as i64
}

/// All zero: nothing is known.
pub struct Reach {
    /// Where the own stack ends, and the lowest place of it that is known.
    anchor: u64,
    lowest: u64,
    /// The page below it is not readable.
    floor: u64,
    /// The page on which the walk began: of the own stack nothing below it is touched.
    inmost: u64,
    /// What may be read now: from here.
    low: u64,
    /// How many words, at any byte, begin in what may be read now.
    len: u64,
    /// This walk has been on another stack.
    pub strayed: bool,
}

impl Reach {
    /// A walk begins at `sp` on the thread whose own stack ends at `anchor`; whether that is the thread of the walk before.
    #[inline(always)]
    pub fn begin(&mut self, sp: u64, anchor: u64) -> bool {
        let same = anchor == self.anchor;
        if !same {
            self.change(anchor);
        }
        self.strayed = false;
        self.inmost = sp & !(PAGE - 1);
        if self.lowest <= self.inmost && sp < anchor {
            (self.low, self.len) = (self.inmost, anchor - self.inmost - 7);
        } else {
            self.begin_elsewhere(sp);
        }
        same
    }

    #[cold]
    #[inline(never)]
    fn begin_elsewhere(&mut self, sp: u64) {
        self.allow(self.inmost.max(self.lowest), self.anchor);
        if !self.has(sp) {
            self.prove(sp);
        }
    }

    #[cold]
    #[inline(never)]
    fn change(&mut self, anchor: u64) {
        let lowest = if anchor == first_anchor() { anchor.saturating_sub(FARTHEST) } else { anchor & !(PAGE - 1) };
        *self = Reach { anchor, lowest, floor: 0, inmost: 0, low: 0, len: 0, strayed: false };
    }

    /// Whether the word at `at` may be read, as far as is known.
    #[inline(always)]
    pub fn has(&self, at: u64) -> bool {
        at.wrapping_sub(self.low) < self.len
    }

    #[inline(always)]
    fn allow(&mut self, low: u64, high: u64) {
        (self.low, self.len) = (low, high.saturating_sub(low).saturating_sub(7));
    }

    /// Reads a word of the program's memory.
    #[inline(always)]
    pub fn load(&mut self, at: u64) -> Option<u64> {
        if !(self.has(at) || self.prove(at)) {
            return None;
        }
        // SAFETY: readable, as was just seen, to its last byte.
        Some(unsafe { (at as *const u64).read_unaligned() })
    }

    /// Makes the word at `at` one that may be read, if it can be.
    #[cold]
    #[inline(never)]
    pub fn prove(&mut self, at: u64) -> bool {
        if self.lowest <= at && at < self.anchor || self.grow(at) {
            // After a walk on another stack it is not known how far down this one is in use.
            let live = if self.strayed { readable(at) } else { at >= self.inmost };
            if live {
                self.allow(if self.strayed { at } else { self.inmost.max(self.lowest) }, self.anchor);
            }
            return live;
        }
        // A word may lie in two pages.
        if !readable(at) || !readable(at.saturating_add(7)) {
            return false;
        }
        let (page, end) = (at & !(PAGE - 1), ((at + 7) | (PAGE - 1)) + 1);
        let high = self.low + self.len + 7;
        if !self.strayed || end < self.low || page > high {
            self.allow(page, end);
        } else {
            self.allow(page.min(self.low), end.max(high));
        }
        self.strayed = true;
        true
    }

    /// Whether `at` is on the own stack, which is found to reach down to it.
    fn grow(&mut self, at: u64) -> bool {
        // The first thread's grows when it is touched: nobody may do that but the program.
        if at >= self.lowest || at < self.floor || self.anchor.wrapping_sub(at) > FARTHEST || self.anchor == first_anchor() {
            return false;
        }
        while self.lowest > at {
            let below = self.lowest - PAGE;
            if !readable(below) {
                self.floor = self.lowest;
                return false;
            }
            self.lowest = below;
        }
        true
    }
}

/// The anchor of the calling thread.
#[inline(always)]
pub fn anchor() -> u64 {
    let block = sys::thread_block();
    // SAFETY: written once, before.
    let (first, top) = unsafe { (FIRST.block, FIRST.top) };
    if block == first { top } else { block }
}

/// Where the first thread's stack ends, if this is it.
pub fn top_of_first() -> Option<u64> {
    // SAFETY: written once, before.
    let (first, top) = unsafe { (FIRST.block, FIRST.top) };
    (sys::thread_block() == first).then_some(top)
}

/// The first thread: its control block, and the upper end of its stack.
struct First {
    block: u64,
    top: u64,
}
static mut FIRST: First = First { block: 0, top: 0 };

fn first_anchor() -> u64 {
    // SAFETY: written once, before.
    unsafe { FIRST.top }
}

/// Notes the first thread, which calls this: the one whose id is the process's. In a forked child that is the thread that forked.
pub fn settle() {
    let find = crate::elf::weak_symbol!("getauxval");
    if find.is_null() {
        return;
    }
    let block = sys::thread_block();
    // SAFETY: the C library's function, which reads a vector that never changes; one thread.
    unsafe {
        let find: unsafe extern "C" fn(u64) -> u64 = core::mem::transmute(find);
        // Sixteen random bytes, among the strings above the first frame.
        let top = find(libc::AT_RANDOM) & !7;
        let here = &raw const block as u64;
        // A child that was forked by another thread runs on that thread's stack.
        if here < top && top - here < FARTHEST {
            *(&raw mut FIRST) = First { block, top };
        }
    }
}
