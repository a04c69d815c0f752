//! Python's own blocks (`MEMSHIM_PYTHON_ALLOC`): a heap beside that of malloc, from lanes of its own. The same blocks of memory may be in
//! both: a large object is a block of malloc, too, and pymalloc's arenas are maps.

use super::batch::Totals;
use super::counts::Counts;
use super::heap::{Heap, HeapEnd, Settings};
use super::kinds::KindTable;
use super::sites::Instant;
use super::stacks::Stacks;
use super::threads::{ThreadBook, ThreadUse};
use crate::trace::line::{Calls, Ev, Header, Kinds, Thread};

/// See the module.
pub struct PythonHeap {
    heap: Heap,
    counts: Counts,
    threads: ThreadBook,
    full: bool,
}

/// It, at the end.
pub struct PythonEnd {
    pub heap: HeapEnd,
    pub kinds: KindTable,
    pub totals: Totals,
    pub counts: Counts,
    pub threads: Vec<ThreadUse>,
    /// Every block was an event, to the end.
    pub full: bool,
    pub inherited: i64,
    /// The allocator does not say how large a block is (free-threaded builds): there are no usable sizes, and none of what was inherited.
    pub sizeless: bool,
}

impl PythonHeap {
    /// Begins with the image's header.
    pub fn new(header: &Header, sites: Option<Instant>, by_thread: bool) -> Self {
        let held = header.inherited.clone().unwrap_or_default();
        let inherited = held.python_live.clamp(-(1 << 48), 1 << 48);
        let full = header.mode == "full";
        let Header { tick_ns, sample, ages, .. } = *header;
        let settings = Settings { tick_ns, inherited, selected: &[], fast: !full, ages, sample, sites, by_thread };
        PythonHeap { heap: Heap::new(&settings), counts: Counts::new(inherited, held.python_blocks), threads: ThreadBook::default(), full }
    }

    pub fn define(&mut self, kinds: &Kinds) {
        self.heap.define(kinds);
    }

    /// Reads events; false where nothing of them can be used.
    pub fn read(&mut self, ev: &Ev, stacks: &mut Stacks) -> bool {
        let mut nobody = ThreadBook::default();
        self.heap.read(ev, stacks, if self.full { &mut self.threads } else { &mut nobody })
    }

    /// Reads exact counts. Usable bytes live then, and at most since the line before; `None` where rows of lanes are missing.
    pub fn counted(&mut self, calls: &Calls) -> Option<[i64; 2]> {
        let seen = self.counts.read(calls);
        if !self.full {
            for &(lane, allocs, bytes, _, live, hi) in &calls.lanes {
                self.threads.counted(lane, allocs, bytes, live, hi);
            }
        }
        let level = |of: i64| of.saturating_add(self.counts.inherited());
        (!calls.lanes.is_empty() || seen.live == calls.live).then(|| [level(seen.live), level(seen.most)])
    }

    /// A thread begins to use a lane.
    pub fn begins(&mut self, thread: &Thread) {
        if !self.threads.knows(thread) {
            let uses = self.threads.uses(thread.lane);
            let handed = uses && self.heap.hand_over(thread.lane, thread.seq, thread.tid);
            if !handed {
                self.heap.used_by(thread.lane, thread.tid);
            }
            self.threads.start(thread, uses && (!self.full || handed));
        }
    }

    /// From `t` on not every block is an event, or none is.
    pub fn lower(&mut self, t: u64, big: u64) {
        self.full = false;
        self.heap.lower(t, big);
    }

    /// The lines are all read.
    pub fn finish(mut self, sites: usize) -> PythonEnd {
        let inherited = self.counts.inherited();
        let counts = &self.counts;
        let sizeless = counts.upper == 0 && counts.lanes_live() == 0 && inherited == 0 && counts.most_blocks.max(counts.blocks) > 0;
        let mut nobody = ThreadBook::default();
        let (heap, kinds, totals) = self.heap.finish(sites, if self.full { &mut self.threads } else { &mut nobody });
        let (threads, _) = self.threads.finish();
        PythonEnd { heap, kinds, totals, counts: self.counts, threads, full: self.full, inherited, sizeless }
    }
}
