//! How long the device took: a pair of events of our own around each copy and graph launch, on the stream of the call.
//!
//! Events are made by context and used again. A pair is never recorded into a stream that captures, nor where the driver does not say whether
//! it does. The reaper asks for pairs that have passed, and leaves a TIME row with the length and with the start on the host's clock: by
//! an *anchor*, an event on an idle stream of ours that was recorded at a known instant, anew every few seconds, since the driver gives
//! distances between events as numbers of 24 bits. Before a context ends its pairs are waited for (a second at most), then dropped.

use super::call::ticket;
use super::contexts::{self, CONTEXTS, MOST as CONTEXTS_MOST, Place};
use super::cupti::expect::{self, Owner};
use super::libcuda::own;
use super::pairs::{self, clock_of, first, give, pair, put_back, take};
use super::{cupti, graphs, lock, reaper, streams};
use crate::config::{CONFIG, GPU_EVENTS, GPU_OFF};
use crate::lane::{Hot, push};
use crate::sys;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use memshim_format::gpu::{self, copy, kind, state};
use memshim_format::record::{ARG_WORD, op, start};

/// Pairs in flight.
static PENDING: AtomicU32 = AtomicU32::new(0);
/// Copies that got no pair since the last row. (A pair that gives no time is a copy marked as timed whose TIME row is missing.)
static UNTIMED: AtomicU64 = AtomicU64::new(0);
/// The context that the reaper is in, + 1.
pub static REAPING: AtomicU32 = AtomicU32::new(0);

const NON_BLOCKING: u32 = 1;
const NOT_READY: i32 = 600;
/// An anchor is made anew when it is so old.
const ANCHOR_NS: u64 = 4_000_000_000;

fn mode() -> u32 {
    // SAFETY: settings are read-only.
    unsafe { CONFIG.gpu }
}

/// Whether the device is to be asked for times: by events, or by CUPTI, which takes events where it does not tell.
pub fn is_by_device() -> bool {
    mode() == GPU_EVENTS || cupti::is_wanted()
}

/// Whether the wall time of copies is wanted.
pub fn wants_wall() -> bool {
    mode() != GPU_OFF
}

/// Whether the driver is to be asked if a stream captures. Without events only where a capture is known to be open.
pub fn wants_captures() -> bool {
    is_by_device() || graphs::is_capturing()
}

/// Pairs in flight.
pub fn pending() -> u32 {
    PENDING.load(Acquire)
}

/// How the device's time of a call that is about to be made will be known.
pub struct Watch {
    hot: *mut Hot,
    place: Place,
    stream: u64,
    pair: Option<u32>,
    /// CUPTI tells, of the row with this ticket: it must be known before the call.
    heard: Option<u64>,
    /// CUPTI tells, of the stream alone.
    followed: bool,
}

/// What CUPTI's records of a call belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// It has none of such a call, or none is wanted.
    Nothing,
    /// To the row: they are its time.
    Row,
    /// To the stream: the call has several rows.
    Stream,
}

/// What came of a call that is watched.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It failed, or there was nothing to do.
    Nothing,
    /// A piece of work that CUPTI has no record of.
    Unrecorded,
    One,
    /// Several, in as many rows: of each the time is not known.
    Several,
}

impl Watch {
    /// `timed`: it is to be known at all.
    pub fn begin(hot: *mut Hot, place: Place, stream: u64, timed: bool, told: Told) -> Watch {
        let told = if cupti::is_on() { told } else { Told::Nothing };
        let heard = if told == Told::Row { Some(ticket()).filter(|tk| expect::begin(hot, Owner::Ticket(*tk))) } else { None };
        let launch = || Owner::Launch { stream: streams::named(hot, stream), context: place.context };
        let followed = told == Told::Stream && expect::begin(hot, launch());
        let pair = if timed && heard.is_none() { begin(hot, place, stream) } else { None };
        Watch { hot, place, stream, pair, heard, followed }
    }

    /// The call was made. The ticket of its row, and the flag of what will tell its time.
    pub fn end(self, outcome: Outcome) -> (u64, u64) {
        let has_records = matches!(outcome, Outcome::One | Outcome::Several);
        if let Some(tk) = self.heard {
            let heard = expect::end(self.hot, has_records);
            UNTIMED.fetch_add((has_records && !heard) as u64, Relaxed);
            let several = if outcome == Outcome::Several { copy::SEVERAL } else { 0 };
            return (tk, if heard { copy::WATCHED | several } else { 0 });
        }
        if self.followed {
            expect::end(self.hot, outcome != Outcome::Nothing);
        }
        let (tk, timed) = (ticket(), matches!(outcome, Outcome::One | Outcome::Unrecorded));
        (tk, if end(self.hot, self.place, self.pair, self.stream, tk, timed) { copy::TIMED } else { 0 })
    }
}

/// Takes a pair and records its first event. `None`: this call is not timed.
fn begin(hot: *mut Hot, place: Place, stream: u64) -> Option<u32> {
    if !is_by_device() || place.slot >= CONTEXTS_MOST || reaper::is_ending() {
        return None;
    }
    let record = own().event_record?;
    sys::keep_errno(|| {
        // SAFETY: under the lock; a pair taken is this thread's; the stream is the program's own argument.
        unsafe {
            let taken = lock::with(hot, || Some((take(place.slot)?, clock_of(place.slot).is_some_and(|c| c.anchor != 0))));
            let Some((i, anchored)) = taken.flatten() else {
                UNTIMED.fetch_add(1, Relaxed);
                return None;
            };
            if prepare(hot, place, i, anchored) && record(pair(i).begins, stream as usize) == 0 {
                return Some(i);
            }
            UNTIMED.fetch_add(1, Relaxed);
            lock::with(hot, || give(place.slot, i));
            None
        }
    })
}

/// Makes what is missing: the events of a pair, the context's anchor.
unsafe fn prepare(hot: *mut Hot, place: Place, i: u32, anchored: bool) -> bool {
    // SAFETY: the pair is this thread's; the driver's functions.
    unsafe {
        let p = pair(i);
        let Some(create) = own().event_create else { return false };
        if anchored && p.begins != 0 && p.ends != 0 {
            return true;
        }
        relaxed(|| {
            if p.begins == 0 && create(&raw mut p.begins, 0) != 0 || p.ends == 0 && create(&raw mut p.ends, 0) != 0 {
                return false;
            }
            anchored || anchor(hot, place.slot)
        })
    }
}

/// Runs `f` so that what it makes spoils no capture that is open: with this thread's capture mode exchanged for the while.
fn relaxed(f: impl FnOnce() -> bool) -> bool {
    if !graphs::is_capturing() {
        return f();
    }
    let Some(exchange) = own().exchange_capture_mode else { return false };
    let mut mode = RELAXED;
    // SAFETY: exchanges one number, and gives it back after.
    unsafe {
        if exchange(&raw mut mode) != 0 {
            return false;
        }
        let r = f();
        exchange(&raw mut mode);
        r
    }
}

/// Capture mode in which a thread's calls do not count as unsafe.
pub const RELAXED: i32 = 2;

/// Records an anchor on our own stream of the current context.
unsafe fn anchor(hot: *mut Hot, slot: usize) -> bool {
    // SAFETY: under the lock where the clock is touched; the driver's functions.
    unsafe {
        let (Some(create), Some(record), Some(make_stream)) = (own().event_create, own().event_record, own().stream_create) else {
            return false;
        };
        let mut stream = lock::with(hot, || clock_of(slot).map_or(0, |c| c.stream)).unwrap_or(0);
        let mut event = 0;
        if stream == 0 && make_stream(&raw mut stream, NON_BLOCKING) != 0 || create(&raw mut event, 0) != 0 {
            return false;
        }
        let before = sys::now();
        if record(event, stream) != 0 {
            return false;
        }
        let at = before + (sys::now() - before) / 2;
        let old = lock::with(hot, || {
            let c = clock_of(slot)?;
            let old = c.anchor;
            (c.stream, c.anchor, c.anchor_at) = (stream, event, at);
            Some(old)
        });
        if let (Some(Some(old)), Some(destroy)) = (old, own().event_destroy)
            && old != 0
        {
            destroy(old);
        }
        true
    }
}

/// Records the second event. Whether the pair is on its way.
fn end(hot: *mut Hot, place: Place, pair_of_call: Option<u32>, stream: u64, ticket: u64, timed: bool) -> bool {
    let Some(i) = pair_of_call else { return false };
    let Some(record) = own().event_record else { return false };
    let recorded = sys::keep_errno(|| {
        // SAFETY: the pair is this thread's.
        timed && unsafe { record(pair(i).ends, stream as usize) } == 0
    });
    // SAFETY: under the lock.
    unsafe {
        lock::with(hot, || {
            if !recorded {
                give(place.slot, i);
                return;
            }
            let p = pair(i);
            (p.ticket, p.next) = (ticket, 0);
            if let Some(c) = clock_of(place.slot) {
                if c.tail == 0 {
                    c.head = i + 1;
                } else {
                    pair(c.tail - 1).next = i + 1;
                }
                c.tail = i + 1;
                PENDING.fetch_add(1, Release);
            }
        });
    }
    if recorded {
        reaper::wake(hot);
    } else if timed {
        UNTIMED.fetch_add(1, Relaxed);
    }
    recorded
}

/// Pairs that one look passes over because their streams are not so far yet.
const PATIENCE: usize = 64;

/// Takes over the pairs of a context that have passed, if their distance from the anchor is known. The context is current, or need not be.
pub fn reap(hot: *mut Hot, slot: usize) {
    let Some(context) = CONTEXTS.get(slot) else { return };
    let place = contexts::place(context, slot);
    let (Some(query), Some(elapsed)) = (own().event_query, own().event_elapsed) else { return };
    let mut waiting = [0u32; PATIENCE];
    let mut passed_over = 0;
    // SAFETY: lists under the lock; a pair out of its list is this thread's; the driver's functions on events of ours.
    unsafe {
        let (anchor, anchor_at) = lock::with(hot, || clock_of(slot).map_or((0, 0), |c| (c.anchor, c.anchor_at))).unwrap_or((0, 0));
        // Recorded a moment ago, and no distance from it is known yet.
        if anchor != 0 && query(anchor) == NOT_READY {
            return;
        }
        while let Some(i) = lock::with(hot, || first(slot)).flatten() {
            let p = pair(i);
            let r = query(p.ends);
            if r == NOT_READY {
                if let Some(w) = waiting.get_mut(passed_over) {
                    *w = i;
                    passed_over += 1;
                }
                if passed_over == PATIENCE {
                    break;
                }
                continue;
            }
            let (mut took, mut since) = (0f32, 0f32);
            if r == 0 && elapsed(&raw mut took, p.begins, p.ends) == 0 && elapsed(&raw mut since, anchor, p.begins) == 0 {
                let began = anchor_at as i64 + nanoseconds(since);
                let head = gpu::head(0, place.device, place.context, 0);
                push(
                    hot,
                    [
                        start(op::GPU + kind::TIME, gpu::NO_CALL, p.ticket),
                        began as u64 & ARG_WORD,
                        head,
                        nanoseconds(took) as u64 & ARG_WORD,
                    ],
                );
            }
            lock::with(hot, || give(slot, i));
            PENDING.fetch_sub(1, Release);
        }
        if passed_over > 0 {
            lock::with(hot, || put_back(slot, waiting.get(..passed_over).unwrap_or(&[])));
        }
    }
}

fn nanoseconds(ms: f32) -> i64 {
    let ns = ms as f64 * 1e6;
    (ns + if ns < 0.0 { -0.5 } else { 0.5 }) as i64
}

/// Makes the anchor anew where it is old. The context is current.
pub fn refresh_anchor(hot: *mut Hot, slot: usize) {
    // SAFETY: under the lock.
    let at = unsafe { lock::with(hot, || clock_of(slot).map_or(u64::MAX, |c| if c.anchor == 0 { u64::MAX } else { c.anchor_at })) };
    if at.is_some_and(|at| at != u64::MAX && sys::now() > at + ANCHOR_NS) {
        // SAFETY: as above.
        unsafe { anchor(hot, slot) };
    }
}

/// Whether a context has pairs in flight, and is not about to end.
pub fn has_pending(hot: *mut Hot, slot: usize) -> bool {
    // SAFETY: under the lock.
    unsafe { lock::with(hot, || clock_of(slot).is_some_and(|c| c.head != 0 && !c.dying)) }.unwrap_or(false)
}

/// Whether a context is about to end.
pub fn is_dying(hot: *mut Hot, slot: usize) -> bool {
    // SAFETY: under the lock.
    unsafe { lock::with(hot, || clock_of(slot).is_some_and(|c| c.dying)) }.unwrap_or(true)
}

/// How long the end of a context waits for timed work.
pub const PATIENCE_NS: u64 = 1_000_000_000;

/// A context is about to end, or may be: nothing more is timed in it, the reaper is out of it, and what is in flight is waited for, so long at most.
pub fn drain_context(hot: *mut Hot, place: Place, patience: u64) {
    sys::keep_errno(|| {
        // SAFETY: under the lock; the driver's function.
        unsafe {
            lock::with(hot, || {
                if let Some(c) = clock_of(place.slot) {
                    c.dying = true;
                }
            });
            let began = sys::now();
            let until = began + patience;
            while REAPING.load(SeqCst) == place.slot as u32 + 1 && sys::now() < began + PATIENCE_NS {
                sys::yield_now();
            }
            if patience == 0 {
                return;
            }
            let before = contexts::handle();
            let wanted = CONTEXTS.get(place.slot).map_or(0, |c| c.handle.load(Relaxed));
            let switch = own().set_context.filter(|_| before != wanted);
            if let Some(set) = switch {
                set(wanted as usize);
            }
            while lock::with(hot, || clock_of(place.slot).is_some_and(|c| c.head != 0)) == Some(true) {
                refresh_anchor(hot, place.slot);
                reap(hot, place.slot);
                if sys::now() > until {
                    break;
                }
                sys::pause(50_000);
            }
            if let Some(set) = switch {
                set(before as usize);
            }
        }
    });
}

/// The driver is about to go: what the reaper did not get to, which may have had no processor, this thread asks after, where the work is done.
pub fn take_over(hot: *mut Hot) {
    if hot.is_null() {
        return;
    }
    relaxed(|| {
        let pending = CONTEXTS.iter().enumerate().filter(|(slot, _)| has_pending(hot, *slot));
        pending.for_each(|(slot, context)| drain_context(hot, contexts::place(context, slot), LAST_NS));
        true
    });
}

/// How long that waits for work that is not done.
const LAST_NS: u64 = 1_000_000;

/// It did not end after all.
pub fn context_goes_on(slot: usize) {
    // SAFETY: a flag that the drain of this call has set.
    unsafe {
        if let Some(c) = clock_of(slot) {
            c.dying = false;
        }
    }
}

/// It has ended, with its events: pairs still in flight stay without a time.
pub fn context_ended(hot: *mut Hot, slot: usize) {
    // SAFETY: the context is gone; under the lock.
    let left = unsafe { lock::with(hot, || pairs::drop_all(slot)) };
    PENDING.fetch_sub(left.unwrap_or(0), Release);
}

/// Leaves a row of what could not be timed since the last, if anything.
pub fn tell_untimed(hot: *mut Hot) {
    let n = UNTIMED.swap(0, Relaxed);
    if n > 0 {
        let head = gpu::head(0, gpu::NO_DEVICE, 0, state::UNTIMED);
        // SAFETY: this thread's hot.
        unsafe { push(hot, [start(op::GPU + kind::STATE, gpu::NO_CALL, ticket()), sys::now(), head, n, 0, 0]) };
    }
}

/// A forked child has none of it.
pub fn forget() {
    pairs::forget();
    PENDING.store(0, Relaxed);
    UNTIMED.store(0, Relaxed);
    REAPING.store(0, Relaxed);
}
