//! Records that are neither a plain allocation nor a plain free: the halves of a realloc, and what becomes a line of its own.

use super::*;

/// As [`super::take`].
#[inline(never)]
pub(super) unsafe fn take_other(i: u32, lane: *mut Lane, c: &mut Commit, w: u64, words: *const u64, force: bool) -> bool {
    // SAFETY: the record is whole; the lock is held.
    unsafe {
        let low = place_of(lane, w);
        match record::op_of(w) {
            op::REALLOC_FREE => {
                let usable = freed_usable(w, words);
                let pend = match find_freed(low, usable) {
                    Some(slot) => {
                        let e = TABLE.get(slot);
                        kill(low, slot, e);
                        let (what, seq) = if e.lane() == i { (1, e.seq(c.seq)) } else { (2, foreign_seq(e)) };
                        Pending { what, lane: e.lane(), seq, usable }
                    }
                    None if !force && LANES.load(Relaxed) > 1 => return false,
                    None if CONFIG.mode == FAST => {
                        owe(low, usable);
                        Pending::default()
                    }
                    None => Pending { what: 3, lane: 0, seq: low, usable },
                };
                // One was begun and left by a handler that jumped out: it ended its block, as far as one can tell.
                finish_pending(lane, c);
                c.pend = pend;
            }
            op::UNFREE => {
                let p = c.pend;
                c.pend = Pending::default();
                if p.what == 0 {
                    DEBTS.take(low, |_| true);
                }
                if p.what == 1 || p.what == 2 {
                    let e = Entry::new(if p.what == 1 { i } else { p.lane }, p.seq, p.usable);
                    put_back(low, e);
                    order::wake(low);
                }
            }
            op::REALLOC_DONE => finish_pending(lane, c),
            op::THREAD_START | op::THREAD_END => {
                super::super::at(lane, c, *words.add(1));
                lines::thread(i, c.seq, w, words);
            }
            op::CHILD | op::STARTED | op::ENDED => {
                super::super::at(lane, c, *words.add(1));
                lines::child(w, words);
            }
            op::NODE..=op::TEXT => stacks::take(i, lane, c, w, words),
            op::STAMP | op::STAMPED => super::super::timed(lane, c, w),
            op::COUNT => c.count = record::allocs_of_count(record::low_of(w), c.count),
            op::PHASE => {
                super::super::at(lane, c, *words.add(1));
                lines::phase(i, c.events, c.seq, w, words);
            }
            op::PHASE_NAME => lines::phase(i, c.events, c.seq, w, words),
            _ => {
                let mut stack = 0;
                if record::has_stack(w) {
                    // Its line comes before those of the batch: so must the nodes that it speaks of.
                    lines::nodes(i, lane, c, 0);
                    lines::nodes(i, lane, c, 1);
                    stack = c.stacks.now;
                }
                lines::map(i, stack, w, words);
            }
        }
    }
    true
}

unsafe fn finish_pending(lane: *mut Lane, c: &mut Commit) {
    if c.pend.what != 0 {
        c.events += 1;
        // SAFETY: the lock is held.
        unsafe { end_pending(lane, c, true) };
    }
}
