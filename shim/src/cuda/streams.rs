//! Streams: made, destroyed, waited for; and what is counted and sampled of each while it lives.

use super::call::{Call, ticket};
use super::contexts::{self, CONTEXTS, Place};
use super::{cupti, graphs, libcuda::own, reaper, state};
use crate::lane::{Hot, push};
use crate::sys;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use memshim_format::gpu::{self, kind, stream};
use memshim_format::record::{ARG_WORD, op, start};

/// A stream that has run kernels.
pub struct Slot {
    /// 0 free for good, 1 was used once; else made of what names the stream.
    key: AtomicU64,
    pub handle: AtomicU64,
    pub context: AtomicU32,
    device: AtomicU32,
    number: AtomicU32,
    /// The thread whose own default stream it is.
    tid: AtomicU32,
    /// Launches since the last row.
    pub kernels: AtomicU64,
    /// Times it was looked at, and found busy, since the last row.
    pub looks: AtomicU64,
    pub busy: AtomicU64,
    /// Time that it was busy, as far as looks tell, and when it was looked at last or was woken.
    busy_ns: AtomicU64,
    seen_at: AtomicU64,
    /// Since when each look has found it busy (0: the last found it idle), and how many those are.
    spell_from: AtomicU64,
    spell_looks: AtomicU64,
    /// It can have work: a kernel was launched since it was last found idle.
    pub awake: AtomicU32,
    /// It had work when CUPTI came, which does not tell of that.
    early: AtomicU32,
    /// It was woken when CUPTI was there, which tells of that work.
    is_told: AtomicU32,
}

const SLOTS: usize = 1024;

/// All of them, by open addressing.
pub static STREAMS: [Slot; SLOTS] = [const {
    Slot {
        key: AtomicU64::new(0),
        handle: AtomicU64::new(0),
        context: AtomicU32::new(0),
        device: AtomicU32::new(0),
        number: AtomicU32::new(0),
        tid: AtomicU32::new(0),
        kernels: AtomicU64::new(0),
        looks: AtomicU64::new(0),
        busy: AtomicU64::new(0),
        busy_ns: AtomicU64::new(0),
        seen_at: AtomicU64::new(0),
        spell_from: AtomicU64::new(0),
        spell_looks: AtomicU64::new(0),
        awake: AtomicU32::new(0),
        early: AtomicU32::new(0),
        is_told: AtomicU32::new(0),
    }
}; SLOTS];
const GONE: u64 = 1;

impl Slot {
    /// It may have work from now on.
    fn wake(&self) {
        if self.awake.load(Relaxed) == 0 {
            self.seen_at.store(sys::now(), Relaxed);
            self.is_told.store(cupti::is_on() as u32, Relaxed);
            self.awake.store(1, SeqCst);
        }
    }

    /// The sampler has looked, at `now`: a spell of work begins with the launch that woke the stream, and ends somewhere between the last
    /// look that finds it busy and the one that finds it idle, in the middle for want of better. Asked under [`reaper`]'s flag.
    pub fn looked(&self, hot: *mut Hot, busy: bool, now: u64) {
        // CUPTI is gone, and has told until now.
        if self.is_told.swap(0, Relaxed) != 0 {
            if !busy {
                return;
            }
            self.seen_at.store(now, Relaxed);
        }
        self.looks.fetch_add(1, Relaxed);
        let seen = self.seen_at.load(Relaxed);
        if !busy {
            self.early.store(0, Relaxed);
            self.untold(hot, seen, now);
            return self.spell_ends(hot, now);
        }
        let since = now.saturating_sub(seen).min(STALE_NS);
        self.untold(hot, seen, now);
        let mut from = self.spell_from.load(Relaxed);
        if from != 0 && (now - since > seen || now > from + SPELL_NS) {
            self.spell_goes_on(hot, seen);
            from = 0;
        }
        if from == 0 {
            self.spell_from.store(now - since, Relaxed);
        }
        self.spell_looks.fetch_add(1, Relaxed);
        self.busy.fetch_add(1, Relaxed);
        self.busy_ns.fetch_add(since, Relaxed);
        self.seen_at.store(now, Relaxed);
        self.awake.store(1, Relaxed);
    }

    /// CUPTI is there, and tells of what is launched from now on. What was done by now nobody has seen.
    pub fn looked_before_cupti(&self, hot: *mut Hot, busy: bool, now: u64) {
        if busy {
            self.early.store(1, Relaxed);
            return self.looked(hot, busy, now);
        }
        let woken = self.seen_at.load(Relaxed);
        self.leave_spell(hot, woken, now, 0, self.kernels.load(Relaxed));
    }

    /// Whether looks tell what nobody else does, and it can have work.
    fn is_looked_at(&self) -> bool {
        self.awake.load(SeqCst) == 1 && (!cupti::is_on() || self.early.load(Relaxed) == 1)
    }

    /// Nobody has looked for so long that it is not known what ran: while a graph was captured.
    fn untold(&self, hot: *mut Hot, seen: u64, now: u64) {
        if now.saturating_sub(seen) > STALE_NS {
            self.leave_spell(hot, seen, now, 0, 1);
        }
    }

    /// Nobody looks any more. `goes_on`: it has work still.
    fn end(&self, hot: *mut Hot, goes_on: bool) {
        let now = sys::now();
        if self.is_looked_at() {
            self.untold(hot, self.seen_at.load(Relaxed), now);
        }
        if goes_on {
            self.leave_spell(hot, now, now, 0, 1);
        }
        self.spell_ends(hot, now);
    }

    /// Found idle at `now`, or gone.
    fn spell_ends(&self, hot: *mut Hot, now: u64) {
        let seen = self.seen_at.load(Relaxed);
        let gap = now.saturating_sub(seen).min(STALE_NS);
        if self.spell_row(hot, seen + gap / 2, gap) {
            self.busy_ns.fetch_add(gap / 2, Relaxed);
        }
    }

    /// What is known of it until a look at `seen` is told; the rest comes.
    fn spell_goes_on(&self, hot: *mut Hot, seen: u64) {
        self.spell_row(hot, seen, 0);
    }

    /// Leaves the row of a spell up to `to`. Who takes its begin leaves it: a thread that ends the stream, or the sampler.
    fn spell_row(&self, hot: *mut Hot, to: u64, gap: u64) -> bool {
        let (from, looks) = (self.spell_from.swap(0, AcqRel), self.spell_looks.swap(0, Relaxed));
        if from == 0 {
            return false;
        }
        self.leave_spell(hot, from, to, looks, gap);
        true
    }

    fn leave_spell(&self, hot: *mut Hot, from: u64, to: u64, looks: u64, gap: u64) {
        let handle = self.handle.load(Relaxed) & ARG_WORD;
        let first = start(op::GPU + kind::SPELL, gpu::NO_CALL, ticket());
        // SAFETY: the caller's hot.
        unsafe { push(hot, [first, from, self.head(), handle, to.saturating_sub(from) & ARG_WORD, looks, gap]) };
    }

    /// The head of its rows.
    fn head(&self) -> u64 {
        gpu::head(0, self.device.load(Relaxed) as u64, self.number.load(Relaxed) as u64, self.tid.load(Relaxed) as u64)
    }
}

/// What lies further back is not told by a look.
const STALE_NS: u64 = 100_000_000;
/// A spell that goes on is told of so often.
const SPELL_NS: u64 = 100_000_000;

/// This thread's id.
fn tid(hot: *mut Hot) -> u32 {
    // SAFETY: this thread's hot, and its lane.
    unsafe { (*(*hot).lane).tid.load(Relaxed) }
}

/// A stream's name among all: a thread's own default stream is another one in each thread.
pub fn named(hot: *mut Hot, handle: u64) -> u64 {
    if handle == 2 { (tid(hot) as u64) << gpu::work::THREAD | 2 } else { handle }
}

/// The context of a stream: the current one (`here`) of those that every context has; of others the driver's word, where there are several contexts.
fn context_of(stream: u64, here: Place) -> Place {
    /// The context's own stream, and the thread's.
    const DEFAULTS: u64 = 2;
    if stream <= DEFAULTS || !is_one_of_several(here) {
        return here;
    }
    let mut context = 0usize;
    let asked = sys::keep_errno(|| match own().stream_context {
        // SAFETY: the program's stream; writes one handle.
        Some(f) => unsafe { f(stream as usize, &raw mut context) },
        None => 1,
    });
    Some(context as u64).filter(|_| asked == 0 && context != 0).and_then(contexts::known).unwrap_or(here)
}

/// Whether there are other contexts.
fn is_one_of_several(place: Place) -> bool {
    CONTEXTS.iter().enumerate().any(|(at, c)| at != place.slot && c.handle.load(Relaxed) != 0)
}

/// A stream that the program made is one whichever context is current; the default ones are each context's own.
fn key(hot: *mut Hot, handle: u64, place: Place) -> u64 {
    let k = if handle > 2 { handle } else { named(hot, handle) ^ (place.context << 48) };
    k.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 2
}

/// The slot of a stream, made if need be; `None` when there are too many. `here`: the current context.
pub fn slot(hot: *mut Hot, handle: u64, here: Place) -> Option<&'static Slot> {
    let k = key(hot, handle, here);
    let home = (k >> 40) as usize;
    let places = || (home..home + 64).filter_map(|i| STREAMS.get(i % SLOTS));
    for s in places() {
        let seen = s.key.load(Acquire);
        if seen == k {
            s.wake();
            return Some(s);
        }
        if seen == 0 {
            break;
        }
    }
    // Those of streams that are gone are used again. Two threads that come here at once with one stream leave it two: both are counted and forgotten.
    for s in places() {
        let seen = s.key.load(Acquire);
        if seen <= GONE && s.key.compare_exchange(seen, k, AcqRel, Relaxed).is_ok() {
            let place = context_of(handle, here);
            s.handle.store(handle, Relaxed);
            s.device.store(place.device as u32, Relaxed);
            s.number.store(place.context as u32, Relaxed);
            s.tid.store(tid(hot), Relaxed);
            s.context.store(place.slot as u32 + 1, Release);
            s.wake();
            return Some(s);
        }
    }
    None
}

/// Streams for the sampler: those of a context that can have work.
pub fn awake_in(context: usize) -> impl Iterator<Item = &'static Slot> {
    awake_from(context, 0).map(|(_, s)| s)
}

/// The same with their places, from one on and round.
pub fn awake_from(context: usize, first: usize) -> impl Iterator<Item = (usize, &'static Slot)> {
    let places = (first..first + SLOTS).map(|i| i % SLOTS).filter_map(|i| Some((i, STREAMS.get(i)?)));
    places.filter(move |(_, s)| s.key.load(Acquire) > GONE && s.context.load(Acquire) == context as u32 + 1 && s.is_looked_at())
}

/// Whether any stream can have work.
pub fn any_awake() -> bool {
    STREAMS.iter().any(|s| s.key.load(Acquire) > GONE && s.is_looked_at())
}

/// Leaves a row of what was counted since the last, if anything.
fn tell(hot: *mut Hot, s: &Slot) {
    let [looks, busy, kernels, busy_ns] = [&s.looks, &s.busy, &s.kernels, &s.busy_ns].map(|n| n.swap(0, Relaxed));
    if looks + kernels == 0 {
        return;
    }
    let handle = s.handle.load(Relaxed) & ARG_WORD;
    // SAFETY: this thread's hot.
    unsafe {
        push(hot, [start(op::GPU + kind::BUSY, gpu::NO_CALL, ticket()), sys::now(), s.head(), handle, looks, busy, kernels, busy_ns])
    };
}

/// Leaves rows of all.
pub fn tell_all(hot: *mut Hot) {
    for s in STREAMS.iter().filter(|s| s.key.load(Acquire) > GONE) {
        tell(hot, s);
    }
}

/// The process ends: the same, and spells end.
pub fn end_all(hot: *mut Hot) {
    for s in STREAMS.iter().filter(|s| s.key.load(Acquire) > GONE) {
        s.end(hot, false);
        tell(hot, s);
    }
}

/// Whether a stream that is about to be destroyed has work still, which goes on without it.
fn has_work(s: &Slot) -> bool {
    let handle = s.handle.load(Relaxed);
    if !s.is_looked_at() || graphs::is_capturing() || graphs::capture_of(handle) != graphs::Capture::No {
        return false;
    }
    // SAFETY: the caller's stream, which captures nothing.
    sys::keep_errno(|| own().stream_query.is_some_and(|f| unsafe { f(handle as usize) } == reaper::NOT_READY))
}

fn forget_slot(hot: *mut Hot, s: &Slot, goes_on: bool) {
    s.context.store(0, SeqCst);
    reaper::wait_for_sampler();
    s.end(hot, goes_on);
    tell(hot, s);
    for flag in [&s.awake, &s.early, &s.is_told] {
        flag.store(0, Relaxed);
    }
    s.key.store(GONE, Release);
}

/// A stream is made.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn create(c: &Call) -> i32 {
    let here = c.place();
    // SAFETY: as called.
    let r = unsafe { c.make() };
    let (made, wall) = (c.out(0, r), sys::now() - c.t);
    // That of a green context is made in any.
    let place = context_of(made, here);
    c.row3(kind::STREAM, ticket(), c.head(r, place, stream::CREATE), [made, 0, wall]);
    r
}

/// A stream goes, perhaps at work.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn destroy(c: &Call) -> i32 {
    let place = c.place();
    let handle = c.word(0) as u64;
    graphs::stream_ends(handle, place.slot);
    let k = key(c.hot, handle, place);
    for s in STREAMS.iter().filter(|s| handle > 2 && s.key.load(Acquire) == k) {
        forget_slot(c.hot, s, has_work(s));
    }
    let tk = ticket();
    // SAFETY: as called.
    let r = unsafe { c.make() };
    c.row3(kind::STREAM, tk, c.head(r, place, stream::DESTROY), [handle, 0, sys::now() - c.t]);
    r
}

/// The host waits for a stream, or (0) for a context or an event.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn wait(c: &Call, handle: u64) -> i32 {
    let place = c.place();
    // SAFETY: as called.
    let r = unsafe { c.make() };
    let end = sys::now();
    c.row3(kind::STREAM, ticket(), c.head(r, place, stream::WAIT), [handle, 0, end - c.t]);
    state::pools_can_shrink(c.hot);
    state::look(c.hot, place, end);
    r
}

/// All streams of a context go with it.
pub fn context_ends(hot: *mut Hot, place: Place) {
    if CONTEXTS.get(place.slot).is_none() {
        return;
    }
    for s in STREAMS.iter().filter(|s| s.key.load(Acquire) > GONE && s.context.load(Relaxed) == place.slot as u32 + 1) {
        forget_slot(hot, s, false);
    }
}

/// A forked child has none.
pub fn forget() {
    for s in &STREAMS {
        s.key.store(0, Relaxed);
        s.context.store(0, Relaxed);
        for n in [&s.kernels, &s.looks, &s.busy, &s.busy_ns, &s.spell_from, &s.spell_looks] {
            n.store(0, Relaxed);
        }
        s.early.store(0, Relaxed);
        s.is_told.store(0, Relaxed);
    }
}
