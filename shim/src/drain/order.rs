//! Whose turn it is: of all lanes the one goes on whose ring block was begun first, a block at a time. Threads run at very different speeds,
//! and the nearer the records come to the order in which they were made, the less has to be set aside.
//!
//! A lane that cannot go on is *empty*, or *parked*: its next record waits for what another ring tells of one address. Parked lanes are
//! woken when that address is spoken of. When nobody else can go on, everything that had to happen before the waiting record is visible, in
//! whichever ring; a lane that was seen empty after the record was found has shown all of it. Nor does a lane wait once all that is ready has been
//! read to a later time than its record can be of: what it waits for was read already, out of turn, and to wait would put all else out of turn too.

use super::TICK;
use super::ring::is_idle;
use crate::lane::LANES;
use crate::{spool, sys};
use core::sync::atomic::Ordering::*;
use memshim_format::spool::*;

/// What a lane can do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    Empty,
    Parked,
}

/// The turns of one drain.
struct Turns {
    states: [State; LANES_MAX],
    /// Turn in which a lane was halted.
    since: [u64; LANES_MAX],
    /// When the block at a lane's head was begun; 0 not looked up.
    heads: [u64; LANES_MAX],
    /// The same of lanes that are ready, of others [`NOT_READY`]: the least is looked for once a block.
    ready: [u64; LANES_MAX],
    /// Address >> 3 that a parked lane waits for.
    wants: [u64; LANES_MAX],
    /// When the record it waits at was written at the latest: its block was followed by another then.
    until: [u64; LANES_MAX],
    /// The least of these, or less.
    due: u64,
    /// Parked lanes, and how many of them by the low bits of a hash of what they want.
    parked: u32,
    wanted: [u16; WANTED],
    turn: u64,
    /// Turn in which something was last set aside.
    aside: u64,
    /// No lane that is empty was last looked at before.
    looked: u64,
}

const WANTED: usize = 1024;
const NOT_READY: u64 = u64::MAX;
/// Head of a lane that has no block.
const NO_BLOCK: u64 = NOT_READY - 1;
const NEVER: u64 = u64::MAX;
/// How far what is read may be ahead of the last look at a lane that was empty, for each lane: a look at all of them takes some of it.
const GLANCE_NS: u64 = 2_000;
/// How far the others may be ahead of a parked lane for which another parked one may have what it waits for.
const PATIENCE_NS: u64 = 5_000_000;

static mut TURNS: Turns = Turns {
    states: [State::Ready; LANES_MAX],
    since: [0; LANES_MAX],
    heads: [0; LANES_MAX],
    ready: [0; LANES_MAX],
    wants: [0; LANES_MAX],
    until: [0; LANES_MAX],
    due: NEVER,
    parked: 0,
    wanted: [0; WANTED],
    turn: 0,
    aside: 0,
    looked: 0,
};

/// Whose turn it is.
pub(super) enum Next {
    /// This lane's.
    Lane(u32),
    /// This one's, and its first record has waited for all there is.
    Forced(u32),
    /// Nobody's: all rings have been read to their ends.
    Nobody,
}

fn place(addr3: u64) -> usize {
    (addr3.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize % WANTED
}

/// A drain begins at `now`: every lane may have something.
pub(super) fn begin(now: u64) {
    // SAFETY: the lock is held.
    let t = unsafe { &mut *(&raw mut TURNS) };
    let lanes = LANES.load(Acquire) as usize;
    t.states.iter_mut().take(lanes).for_each(|s| *s = State::Ready);
    t.heads.iter_mut().take(lanes).for_each(|h| *h = 0);
    t.ready.iter_mut().take(lanes).for_each(|h| *h = 0);
    t.looked = now;
    if t.parked > 0 {
        t.wanted = [0; WANTED];
        t.parked = 0;
        t.due = NEVER;
    }
}

/// A forked child begins anew: its parent may have been in the midst of a drain.
pub(super) fn reset() {
    // SAFETY: one thread.
    let t = unsafe { &mut *(&raw mut TURNS) };
    t.states = [State::Ready; LANES_MAX];
    (t.heads, t.ready) = ([0; LANES_MAX], [0; LANES_MAX]);
    (t.wanted, t.parked, t.due) = ([0; WANTED], 0, NEVER);
}

/// Something was set aside: only lanes seen empty from now on have shown what belongs to it.
pub(super) fn note_aside() {
    // SAFETY: the lock is held.
    unsafe { TURNS.aside = TURNS.turn };
}

/// Whose turn is next. `aside`: something is set aside.
pub(super) fn next(aside: bool) -> Next {
    // SAFETY: the lock is held.
    let t = unsafe { &mut *(&raw mut TURNS) };
    let lanes = LANES.load(Acquire);
    t.turn += 1;
    while let Some(i) = t.earliest_ready(lanes) {
        // A lane that was empty then may have something by now that is earlier.
        if t.ready[i as usize % LANES_MAX] > t.looked + GLANCE_NS * lanes as u64 && t.look_again(lanes, |_, _| true) {
            continue;
        }
        match t.overdue(t.ready[i as usize % LANES_MAX], lanes) {
            None => return Next::Lane(i),
            Some(p) if !t.look_again(lanes, |t, i| super::seen_empty(i as u32) <= t.until[p % LANES_MAX]) => {
                t.unpark(p);
                return Next::Forced(p as u32);
            }
            Some(_) => {}
        }
    }
    let (forced, since) = match t.earliest_parked(lanes) {
        Some(i) => (Some(i), t.since[i as usize % LANES_MAX]),
        None if aside => (None, t.aside),
        None => return Next::Nobody,
    };
    // Those that were seen empty before: they may have shown nothing of it yet.
    t.look_again(lanes, |t, i| t.since[i] <= since);
    match (t.earliest_ready(lanes), forced) {
        (Some(i), _) => Next::Lane(i),
        (None, Some(i)) => {
            t.unpark(i as usize % LANES_MAX);
            Next::Forced(i)
        }
        (None, None) => Next::Nobody,
    }
}

/// The lane has been read to the end of its ring.
pub(super) fn empty(i: u32) {
    // SAFETY: the lock is held.
    unsafe { &mut *(&raw mut TURNS) }.halt(i as usize);
}

/// The lane has been read a piece further.
pub(super) fn advanced(i: u32) {
    // SAFETY: the lock is held.
    let t = unsafe { &mut *(&raw mut TURNS) };
    let i = i as usize % LANES_MAX;
    (t.heads[i], t.ready[i]) = (0, 0);
}

/// The lane waits for what another ring tells of an address.
pub(super) fn park(i: u32, addr3: u64) {
    // SAFETY: the lock is held.
    let t = unsafe { &mut *(&raw mut TURNS) };
    let i = i as usize % LANES_MAX;
    t.states[i] = State::Parked;
    t.since[i] = t.turn;
    t.wants[i] = addr3;
    (t.heads[i], t.ready[i]) = (0, NOT_READY);
    t.parked += 1;
    t.wanted[place(addr3)] += 1;
    t.until[i] = ended(i as u32);
    t.due = t.due.min(t.until[i]);
}

/// An address is spoken of: lanes that wait for it can go on.
#[inline(always)]
pub(super) fn wake(addr3: u64) {
    // SAFETY: the lock is held.
    unsafe {
        if TURNS.parked > 0 && TURNS.wanted[place(addr3)] > 0 {
            wake_those(addr3);
        }
    }
}

#[cold]
#[inline(never)]
fn wake_those(addr3: u64) {
    // SAFETY: the lock is held.
    let t = unsafe { &mut *(&raw mut TURNS) };
    for i in 0..LANES.load(Acquire) as usize % (LANES_MAX + 1) {
        if t.states[i % LANES_MAX] == State::Parked && t.wants[i % LANES_MAX] == addr3 {
            t.unpark(i % LANES_MAX);
        }
    }
}

impl Turns {
    fn unpark(&mut self, i: usize) {
        let i = i % LANES_MAX;
        self.go_on(i);
        self.parked -= 1;
        self.wanted[place(self.wants[i])] -= 1;
    }

    /// Of the parked lanes the earliest that need not wait where all that is ready is of `now` or later.
    fn overdue(&mut self, now: u64, lanes: u32) -> Option<usize> {
        if now <= self.due {
            return None;
        }
        let (mut best, mut least, mut others) = (None, NOT_READY, NOT_READY);
        self.due = NEVER;
        for i in 0..lanes as usize % (LANES_MAX + 1) {
            let i = i % LANES_MAX;
            if self.states[i] != State::Parked {
                continue;
            }
            self.due = self.due.min(self.until[i]);
            let mut head = self.head(i);
            if self.until[i] < now && head < least {
                core::mem::swap(&mut head, &mut least);
                best = Some(i);
            }
            others = others.min(head);
        }
        // What it waits for may stand in a lane that waits too; but that is not to hold up everything.
        best.filter(|p| others >= self.until[*p] || now - self.until[*p] > PATIENCE_NS)
    }

    /// Lanes that have been read to their ends, of those that are `meant`, go on where there is more by now, which a glance tells. Whether
    /// any does.
    fn look_again(&mut self, lanes: u32, meant: impl Fn(&Self, usize) -> bool) -> bool {
        let (mut any, mut all) = (false, true);
        let now = sys::now();
        for i in 0..lanes as usize % (LANES_MAX + 1) {
            let i = i % LANES_MAX;
            if self.states[i] != State::Empty {
                continue;
            }
            if !meant(self, i) {
                all = false;
                continue;
            }
            // SAFETY: i is below LANES; the lock is held.
            if unsafe { is_idle(i as u32) } {
                self.since[i] = self.turn;
                super::set_seen_empty(i as u32, now);
            } else {
                self.go_on(i);
                any = true;
            }
        }
        if all {
            self.looked = now;
        }
        any
    }

    fn go_on(&mut self, i: usize) {
        let i = i % LANES_MAX;
        self.states[i] = State::Ready;
        self.ready[i] = self.heads[i];
    }

    fn head(&mut self, i: usize) -> u64 {
        let head = &mut self.heads[i % LANES_MAX];
        if *head == 0 {
            *head = begun(i as u32);
        }
        *head
    }

    /// Of the lanes that are ready, the one whose block at the head was begun first.
    fn earliest_ready(&mut self, lanes: u32) -> Option<u32> {
        if lanes == 1 {
            return if self.states[0] == State::Ready { Some(0) } else { None };
        }
        loop {
            let ready = self.ready.iter().take(lanes as usize);
            let least = ready.clone().fold(NOT_READY, |least, head| least.min(*head));
            if least == NOT_READY {
                return None;
            }
            let i = ready.clone().position(|head| *head == least)?;
            if least > 0 {
                return Some(i as u32);
            }
            self.ready[i % LANES_MAX] = self.head(i);
            if self.heads[i % LANES_MAX] == NO_BLOCK {
                self.begin_empty(i);
            }
        }
    }

    /// A lane that came while this drain goes on, and may have got its first block by now.
    #[cold]
    #[inline(never)]
    fn begin_empty(&mut self, i: usize) {
        let now = sys::now();
        self.heads[i % LANES_MAX] = begun(i as u32);
        if self.heads[i % LANES_MAX] == NO_BLOCK {
            super::set_seen_empty(i as u32, now);
            self.halt(i);
        } else {
            self.go_on(i);
        }
    }

    /// The lane has nothing to read now.
    fn halt(&mut self, i: usize) {
        let i = i % LANES_MAX;
        self.states[i] = State::Empty;
        self.since[i] = self.turn;
        (self.heads[i], self.ready[i]) = (0, NOT_READY);
    }

    /// The same of those that are parked.
    fn earliest_parked(&mut self, lanes: u32) -> Option<u32> {
        let (mut best, mut least) = (None, NOT_READY);
        for i in 0..lanes as usize % (LANES_MAX + 1) {
            if self.states[i % LANES_MAX] == State::Parked && self.head(i) < least {
                (best, least) = (Some(i as u32), self.head(i));
            }
        }
        best
    }
}

/// Since when what stands at a lane's head can have been written: its block was begun, and the lane was seen empty, before. A thread that
/// did not run for a while goes on in the middle of a block.
fn begun(i: u32) -> u64 {
    // SAFETY: i is below LANES; the lock is held.
    unsafe {
        let lane = spool::lane(i);
        let c = spool::committed(lane);
        let block = if c.block == 0 { (*lane).first.load(Acquire) } else { c.block };
        if block == 0 {
            return NO_BLOCK;
        }
        // The program can have damaged the block.
        (*spool::block(block - 1)).t_ns.load(Relaxed).max(super::seen_empty(i)).clamp(1, NO_BLOCK - 1)
    }
}

/// What happened before, in whichever lane, is in batches by `now`: what a lane still has is of later, and so is what it gets. The lock is held.
pub fn read_before(now: u64) -> u64 {
    let of = |i: u32| {
        let (begun, empty) = (begun(i), super::seen_empty(i));
        // SAFETY: i is below LANES; the lock is held.
        let stamp = unsafe { spool::committed(spool::lane(i)).stamp_ns };
        if begun == NO_BLOCK { empty } else { begun.max(stamp) }
    };
    // Stamps are whole ticks.
    (0..LANES.load(Acquire)).map(of).fold(now, u64::min).saturating_sub(TICK)
}

/// When the block at a lane's head was full; [`NEVER`] where it is the last.
fn ended(i: u32) -> u64 {
    // SAFETY: i is below LANES; the lock is held.
    unsafe {
        let block = spool::committed(spool::lane(i)).block;
        let next = if block == 0 { 0 } else { (*spool::block(block - 1)).next.load(Acquire) };
        if next == 0 { NEVER } else { (*spool::block(next - 1)).t_ns.load(Relaxed) }
    }
}
