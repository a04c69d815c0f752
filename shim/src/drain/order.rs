//! Whose turn it is: of all lanes the one goes on whose ring block was begun first, a block at a time. Threads run at very different speeds,
//! and the nearer the records come to the order in which they were made, the less has to be set aside.
//!
//! A lane that cannot go on is *empty*, or *parked*: its next record waits for what another ring tells of one address. Parked lanes are
//! woken when that address is spoken of. When nobody else can go on, everything that had to happen before the waiting record is visible, in
//! whichever ring; a lane that was seen empty after the record was found has shown all of it.

use crate::lane::LANES;
use crate::spool;
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
    /// Address >> 3 that a parked lane waits for.
    wants: [u64; LANES_MAX],
    /// Parked lanes, and how many of them by the low bits of a hash of what they want.
    parked: u32,
    wanted: [u16; WANTED],
    turn: u64,
    /// Turn in which something was last set aside.
    aside: u64,
}

const WANTED: usize = 1024;

static mut TURNS: Turns = Turns {
    states: [State::Ready; LANES_MAX],
    since: [0; LANES_MAX],
    heads: [0; LANES_MAX],
    wants: [0; LANES_MAX],
    parked: 0,
    wanted: [0; WANTED],
    turn: 0,
    aside: 0,
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

/// A drain begins: every lane may have something.
pub(super) fn begin() {
    // SAFETY: the lock is held.
    let t = unsafe { &mut *(&raw mut TURNS) };
    let lanes = LANES.load(Acquire) as usize;
    t.states.iter_mut().take(lanes).for_each(|s| *s = State::Ready);
    t.heads.iter_mut().take(lanes).for_each(|h| *h = 0);
    if t.parked > 0 {
        t.wanted = [0; WANTED];
        t.parked = 0;
    }
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
    if let Some(i) = t.earliest(State::Ready, lanes) {
        return Next::Lane(i);
    }
    let (forced, since) = match t.earliest(State::Parked, lanes) {
        Some(i) => (Some(i), t.since[i as usize % LANES_MAX]),
        None if aside => (None, t.aside),
        None => return Next::Nobody,
    };
    // Those that were seen empty before: they may have shown nothing of it yet.
    for i in 0..lanes as usize % (LANES_MAX + 1) {
        if t.states[i % LANES_MAX] == State::Empty && t.since[i % LANES_MAX] <= since {
            t.states[i % LANES_MAX] = State::Ready;
        }
    }
    match (t.earliest(State::Ready, lanes), forced) {
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
    let t = unsafe { &mut *(&raw mut TURNS) };
    let i = i as usize % LANES_MAX;
    t.states[i] = State::Empty;
    t.since[i] = t.turn;
    t.heads[i] = 0;
}

/// The lane has been read a piece further.
pub(super) fn advanced(i: u32) {
    // SAFETY: the lock is held.
    unsafe { TURNS.heads[i as usize % LANES_MAX] = 0 };
}

/// The lane waits for what another ring tells of an address.
pub(super) fn park(i: u32, addr3: u64) {
    // SAFETY: the lock is held.
    let t = unsafe { &mut *(&raw mut TURNS) };
    let i = i as usize % LANES_MAX;
    t.states[i] = State::Parked;
    t.since[i] = t.turn;
    t.wants[i] = addr3;
    t.heads[i] = 0;
    t.parked += 1;
    t.wanted[place(addr3)] += 1;
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
        self.states[i] = State::Ready;
        self.parked -= 1;
        self.wanted[place(self.wants[i])] -= 1;
    }

    /// Of the lanes in a state, the one whose block at the head was begun first.
    fn earliest(&mut self, state: State, lanes: u32) -> Option<u32> {
        let mut best = None;
        let mut least = u64::MAX;
        for i in 0..lanes as usize % (LANES_MAX + 1) {
            if self.states[i % LANES_MAX] != state {
                continue;
            }
            if lanes == 1 {
                return Some(0);
            }
            let head = &mut self.heads[i % LANES_MAX];
            if *head == 0 {
                *head = begun(i as u32);
            }
            if *head < least {
                least = *head;
                best = Some(i as u32);
            }
        }
        best
    }
}

/// When the block at a lane's head was begun.
fn begun(i: u32) -> u64 {
    // SAFETY: i is below LANES; the lock is held.
    unsafe {
        let lane = spool::lane(i);
        let c = spool::committed(lane);
        let block = if c.block == 0 { (*lane).first.load(Acquire) } else { c.block };
        if block == 0 { u64::MAX - 1 } else { (*spool::block(block - 1)).t_ns.load(Relaxed) }
    }
}
