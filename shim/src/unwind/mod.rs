//! Native stacks of the calling thread, from inside the hook: no lock, no allocation, no frame pointers needed, and nothing of the
//! program's touched but read.
//!
//! [`Native`] is a thread's walker. It steps outwards by rules ([`rule`]) that are made from the unwind tables which every object brings for its
//! exceptions ([`eh_frame`], [`row`]), and kept by place in the code ([`cache`]). It remembers the stack of the event before
//! ([`memory`]): as soon as a frame is met that is as it was, and the words that lead outwards from there are too, the rest is
//! the same, nodes included. Which code lies where is known without the loader's lock ([`modules`]).
//!
//! What a walk reads: words of stacks that are known to be readable ([`reach`]), and unwind tables of objects that are loaded. Where
//! there is no rule (code made at run time, objects without tables), or where a rule leads to no plausible frame, the stack is short, and
//! says so.
//!
//! Not for: names (the reader finds them), stacks of other threads, Python's frames.
//!
//! # For callers
//! ```text
//! unwind::settle();                                     // once, in the first thread, before others exist
//! unwind::after_fork();                                 // in a forked child, before its first event
//! let native: &mut Native = zeroed memory of the lane;  // all zero is ready; size_of::<Native>(), 8-aligned; never on a stack
//! let generation = modules::generation();               // when it differs from the last: forget all (parent, frame) → node pairs
//! let leaf = native.update(generation, &mut |parent, frame| node_of(parent, frame));
//! modules::tell(|id, module| …, |id| …);                // the writer, each interval and before nodes are written
//! modules::untell();                                    // the writer begins another trace (a forked child)
//! ```
//! `frame` is `pc << 1 | exact`; exact pcs were interrupted, others are return addresses. Outermost `frame` 0: cut at [`memory::LIMIT`], the
//! inner part is told; 2: there was no way on. Frames of this library have no node. `update` returns 0 where it comes again on top of itself (a
//! signal's handler that allocates): `node` is not called then. A thread's next owner need not clear anything.

pub mod cache;
pub mod cursor;
pub mod eh_frame;
pub mod expression;
pub mod memory;
pub mod modules;
pub mod reach;
pub mod registers;
pub mod row;
pub mod rule;
mod walk;

use cache::Cache;
use core::mem::MaybeUninit;
use core::sync::atomic::{Ordering::*, compiler_fence};
use memory::{FEWEST, Fresh, KEPT, LIMIT, Memory, Stop};
use reach::Reach;
use row::Scratch;
use walk::End;

/// Finds what is needed of the loader and of the first thread, which calls this while no other exists.
pub fn settle() {
    reach::settle();
    modules::settle();
}

/// A forked child has one thread.
pub fn after_fork() {
    modules::after_fork();
}

/// `frame` of an outermost node: the stack was cut, or there was no way on.
pub const CUT: u64 = 0;
pub const SHORT: u64 = 2;

/// What that word is, mixed with its place.
const UNDER_WAY: u64 = 0x6d65_6d73_6869_6d21;

/// A thread's walker. All zero is ready.
pub struct Native {
    cache: Cache,
    memory: Memory,
    reach: Reach,
    /// Where the walk begins: rip, rsp, rbp, rbx, r12 to r15.
    start: [u64; 8],
    /// Generation of modules that cache and memory are of, plus one.
    generation: u64,
    /// Where the word is that the update under way has left in its frame; 0: none is.
    under_way: u64,
    /// How the last walk ended, where it did, and the word that made it.
    ended: (End, Stop),
    /// A place was not found, but may be in some object.
    uncertain: bool,
    /// What the last step of another kind than the plain ones led to.
    found: Fresh,
    /// Frames that are new.
    fresh: [MaybeUninit<Fresh>; LIMIT],
    scratch: MaybeUninit<Scratch>,
}

/// Notes the registers here and now.
macro_rules! note_registers {
    ($to:expr) => {
        // SAFETY: writes eight words; changes no register but its own.
        unsafe {
            core::arch::asm!(
                "lea {t}, [rip]",
                "mov [{p}], {t}",
                "mov [{p} + 8], rsp",
                "mov [{p} + 16], rbp",
                "mov [{p} + 24], rbx",
                "mov [{p} + 32], r12",
                "mov [{p} + 40], r13",
                "mov [{p} + 48], r14",
                "mov [{p} + 56], r15",
                p = in(reg) $to,
                t = out(reg) _,
                options(nostack, preserves_flags)
            )
        }
    };
}

impl Native {
    /// The node of the calling thread's stack; asks `node` for those of new frames, from the outermost on.
    #[inline(never)]
    pub fn update(&mut self, generation: u64, node: &mut impl FnMut(u32, u64) -> u32) -> u32 {
        let mut word = 0u64;
        let here = &raw mut word;
        let same_thread = self.reach.begin(here as u64, reach::anchor());
        if self.under_way != 0 {
            if same_thread && self.is_under_way(here as u64) {
                return 0;
            }
            // It was left at any point, by a jump out of a handler or with its thread.
            self.generation = 0;
        }
        // SAFETY: a variable of this function's.
        unsafe { here.write_volatile(UNDER_WAY ^ here as u64) };
        self.under_way = here as u64;
        compiler_fence(SeqCst);
        if self.generation != generation.wrapping_add(1) {
            self.cache.clear();
            self.memory.forget();
            self.generation = generation.wrapping_add(1);
        }
        note_registers!(self.start.as_mut_ptr());
        let leaf = self.renew(node);
        compiler_fence(SeqCst);
        self.under_way = 0;
        leaf
    }

    /// Whether this comes on top of an update that goes on: then the word it left in its frame is still there. A frame that was left by a
    /// jump lies inside of this one's, or has been written over.
    #[cold]
    #[inline(never)]
    fn is_under_way(&mut self, here: u64) -> bool {
        let at = self.under_way;
        let left = at <= here && self.reach.has(here) && !self.reach.strayed;
        !left && self.reach.load(at) == Some(UNDER_WAY ^ at)
    }

    #[inline(always)]
    fn renew(&mut self, node: &mut impl FnMut(u32, u64) -> u32) -> u32 {
        let (mut fresh, mut outer);
        loop {
            (fresh, outer) = self.walk();
            if !self.memory.cut || outer == LIMIT || LIMIT - outer + fresh >= FEWEST {
                break;
            }
            // Of a cut stack too little is left: what is outwards of the cut is looked at again.
            self.memory.forget();
        }
        if fresh > outer || fresh > LIMIT {
            (fresh, outer) = self.cut(fresh.min(LIMIT), outer);
        }
        let mut stop = (0, 0);
        let parent = if outer < LIMIT {
            self.memory.get(outer).node
        } else {
            let (end, at) = self.ended;
            stop = at;
            self.memory.cut = end == End::Cut;
            match end {
                End::Complete => 0,
                End::Short => node(0, SHORT),
                End::Cut => node(0, CUT),
            }
        };
        let own = modules::own();
        // SAFETY: the walk has written so many of them; with those outwards they are not more than the limit.
        let leaf = unsafe {
            let fresh = core::slice::from_raw_parts(self.fresh.as_ptr().cast(), fresh);
            self.memory.renew(outer, fresh, parent, stop, |parent, at| if own.holds(at >> 1) { parent } else { node(parent, at) })
        };
        if self.reach.strayed || self.uncertain {
            // What is on other stacks may be unmapped by the next time, and what was not found may be found then.
            self.memory.forget();
            self.uncertain = false;
        }
        leaf
    }

    /// Makes the innermost frames fresh ones, and leaves the others out.
    #[cold]
    #[inline(never)]
    fn cut(&mut self, fresh: usize, outer: usize) -> (usize, usize) {
        let mut n = fresh.min(KEPT);
        for i in outer..LIMIT {
            let Some(place) = self.fresh.get_mut(n).filter(|_| n < KEPT) else { break };
            *place = MaybeUninit::new(self.memory.get(i).is);
            n += 1;
        }
        self.ended = (End::Cut, (0, 0));
        (n, LIMIT)
    }
}
