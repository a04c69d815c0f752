//! The threads of an image: who used which lane, what it allocated and how far its own balance rose.
//!
//! A program may start a million threads, so ended ones are kept only while they are among the largest.

use super::batch::Handover;
use crate::trace::line::Thread;

/// Ended threads kept before the smallest half is summed up in [`ThreadBook::others`].
const KEPT: usize = 4096;

/// One thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadUse {
    pub tid: u32,
    pub name: String,
    pub allocs: u64,
    pub bytes: u64,
    /// Most that it allocated more than it freed.
    pub peak: i64,
}

#[derive(Clone, Debug, Default)]
struct LaneUse {
    current: Option<ThreadUse>,
    /// Threads that have said they begin, soonest first.
    next: Vec<ThreadUse>,
    /// Level of the lane and its totals when the current thread began.
    base: i64,
    allocs: u64,
    bytes: u64,
    /// Totals of the lane now.
    now: (u64, u64),
    /// Its level, fast mode.
    level: i64,
    /// Most that its level was before any thread was named.
    unnamed_peak: i64,
    /// Thread and time of the last start: a spool can say it again.
    started: Option<(u32, u64)>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct ThreadBook {
    lanes: Vec<LaneUse>,
    ended: Vec<ThreadUse>,
    pub total: u64,
    /// Threads no longer kept by themselves.
    pub others: u64,
}

impl ThreadBook {
    fn lane(&mut self, lane: u32) -> &mut LaneUse {
        let at = (lane as usize).min(1 << 14);
        if self.lanes.len() <= at {
            self.lanes.resize_with(at + 1, LaneUse::default);
        }
        &mut self.lanes[at]
    }

    /// Whether this start was said before.
    pub fn knows(&mut self, line: &Thread) -> bool {
        self.lane(line.lane).started.replace((line.tid, line.t)) == Some((line.tid, line.t))
    }

    /// A thread begins, when the lane comes to its first allocation (`later`) or at once.
    pub fn start(&mut self, line: &Thread, later: bool) {
        self.total += 1;
        let thread = ThreadUse { tid: line.tid, name: line.name.0.clone(), ..ThreadUse::default() };
        let lane = self.lane(line.lane);
        match (&lane.current, later) {
            (Some(_), true) => lane.next.push(thread),
            (Some(_), false) => self.begin(line.lane, thread, None),
            // What the lane did before its first thread was named is that thread's: lines come in no strict order.
            (None, _) => lane.current = Some(ThreadUse { peak: lane.unnamed_peak, ..thread }),
        }
    }

    /// Whether a thread uses the lane.
    pub fn uses(&mut self, lane: u32) -> bool {
        self.lane(lane).current.is_some()
    }

    /// A thread says its name.
    pub fn name(&mut self, line: &Thread) {
        if line.name.0.is_empty() {
            return;
        }
        let lane = self.lane(line.lane);
        for t in lane.current.iter_mut().chain(&mut lane.next).filter(|t| t.tid == line.tid) {
            t.name.clone_from(&line.name.0);
        }
        if let Some(t) = self.ended.iter_mut().rev().find(|t| t.tid == line.tid) {
            t.name.clone_from(&line.name.0);
        }
    }

    /// The next thread of a lane; `at`: the lane's level and totals then, where they are known.
    fn begin(&mut self, lane: u32, thread: ThreadUse, at: Option<(i64, u64, u64)>) {
        let l = self.lane(lane);
        let old = l.current.replace(thread);
        let (base, allocs, bytes) = at.unwrap_or((l.base, l.now.0, l.now.1));
        let done = old.map(|mut t| {
            t.allocs = allocs.saturating_sub(l.allocs);
            t.bytes = bytes.saturating_sub(l.bytes);
            t
        });
        (l.base, l.allocs, l.bytes) = (base, allocs, bytes);
        if let Some(t) = done {
            self.end(t);
        }
    }

    fn end(&mut self, thread: ThreadUse) {
        self.ended.push(thread);
        if self.ended.len() > KEPT {
            self.ended.sort_by_key(|t| std::cmp::Reverse(t.bytes));
            self.others += (self.ended.len() - KEPT / 2) as u64;
            self.ended.truncate(KEPT / 2);
        }
    }

    /// A batch of a lane is played: `level` before it, its `changes`, where threads took over, and the lane's totals after it.
    pub fn played(&mut self, lane: u32, level: i64, changes: &[i64], handed: &[Handover], totals: (u64, u64)) {
        let mut level = level;
        let mut from = 0;
        for h in handed {
            self.rise(lane, &mut level, &changes[from..h.step.max(from)]);
            from = h.step.max(from);
            let l = self.lane(lane);
            if !l.next.is_empty() {
                let next = l.next.remove(0);
                self.begin(lane, next, Some((level, h.allocs, h.bytes)));
            }
        }
        self.rise(lane, &mut level, &changes[from..]);
        self.lane(lane).now = totals;
    }

    fn rise(&mut self, lane: u32, level: &mut i64, changes: &[i64]) {
        let mut top = i64::MIN;
        for d in changes {
            *level = level.wrapping_add(*d);
            top = top.max(*level);
        }
        let l = self.lane(lane);
        let base = l.base;
        let peak = l.current.as_mut().map_or(&mut l.unnamed_peak, |t| &mut t.peak);
        *peak = (*peak).max(top.saturating_sub(base));
    }

    /// Fast mode: a lane's exact counts so far, and its level and highest level since the row before.
    pub fn counted(&mut self, lane: u32, allocs: u64, bytes: u64, live: i64, hi: i64) {
        // Nobody says where in the interval a thread began: what was counted in it goes to the newest.
        for next in std::mem::take(&mut self.lane(lane).next) {
            let l = self.lane(lane);
            let at = (l.level, l.now.0, l.now.1);
            self.begin(lane, next, Some(at));
        }
        let l = self.lane(lane);
        (l.now, l.level) = ((allocs, bytes), live);
        let base = l.base;
        let peak = l.current.as_mut().map_or(&mut l.unnamed_peak, |t| &mut t.peak);
        *peak = (*peak).max(hi.max(live).saturating_sub(base));
    }

    /// All threads that are known by themselves, by bytes allocated.
    pub fn finish(mut self) -> (Vec<ThreadUse>, u64) {
        for mut l in std::mem::take(&mut self.lanes) {
            if let Some(mut t) = l.current.take() {
                t.allocs = l.now.0.saturating_sub(l.allocs);
                t.bytes = l.now.1.saturating_sub(l.bytes);
                self.ended.push(t);
            }
            self.ended.append(&mut l.next);
        }
        self.ended.sort_by_key(|t| (std::cmp::Reverse(t.bytes), t.tid));
        (self.ended, self.total)
    }
}
