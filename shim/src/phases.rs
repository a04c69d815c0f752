//! Phases as the process itself tells of them: edges (a begin, an end, a mark) go through the calling thread's ring, so that each has its
//! exact place among the thread's heap events. Who tells: [`nvtx`], rules for functions, the program by [`api`], and what it does as a [`process`].
//!
//! An edge costs about a microsecond: the clock, what the program has taken, the live bytes of all lanes. Three more are for what it has read and
//! written, as long as that takes less than 1 % of the time; the layers of memory as the kernel sees them come with it as long as those do (see
//! [`Look`]). Not for: what a phase needed, which is the reader's matter.

mod api;
mod names;
mod nvtx;
pub mod process;
pub mod python;
mod rules;
pub mod symbol;

pub use memshim_format::phase::Source;
pub use names::name;

use crate::config::{CONFIG, COUNT, FAST};
use crate::hooks::heap::ready;
use crate::lane::{Hot, LANES, push};
use crate::{drain, lines, share, snapshot, spool, sys, writer};
use core::sync::atomic::{AtomicU64, Ordering::*};
use memshim_format::cost::Cost;
use memshim_format::phase::{edge, what};
use memshim_format::record::{ARG_WORD, op, start};

/// A phase of the calling thread begins.
pub fn begin(source: Source, name: u32) {
    let hot = ready();
    // SAFETY: hot is null or this thread's.
    unsafe {
        if !hot.is_null() && !is_left_out(hot) {
            tell(hot, what::BEGIN, source, name, 0);
        }
    }
}

/// The calling thread's innermost open phase of this source ends.
pub fn end(source: Source) {
    end_in(source, 0, what::END);
}

/// The same, where it is a function's that has yet to let go of what is in its variables.
pub fn end_early(source: Source) {
    end_in(source, 0, what::RETURN);
}

/// The same of those in one domain; a domain is the number of its name.
fn end_in(source: Source, domain: u32, what: u64) {
    let hot = ready();
    // SAFETY: as above.
    unsafe {
        if hot.is_null() {
            return;
        }
        if (*hot).left_out > 0 {
            (*hot).left_out -= 1;
        } else {
            tell(hot, what, source, domain, 0);
        }
    }
}

/// A phase begins that any thread may end. Its number, where its program has none for it; 0: it is left out.
fn begin_range(source: Source, name: u32, number: Option<u64>) -> u64 {
    static RANGES: AtomicU64 = AtomicU64::new(0);
    let hot = ready();
    if hot.is_null() || is_too_much() {
        return number.unwrap_or(0);
    }
    let range = number.unwrap_or_else(|| RANGES.fetch_add(1, Relaxed) + 1);
    // SAFETY: hot is this thread's.
    unsafe { tell(hot, what::BEGIN, source, name, range) };
    range
}

/// It ends.
fn end_range(source: Source, range: u64) {
    let hot = ready();
    if !hot.is_null() && range != 0 {
        // SAFETY: hot is this thread's.
        unsafe { tell(hot, what::END, source, 0, range) };
    }
}

/// Something happens now.
pub fn mark(source: Source, name: u32) {
    let hot = ready();
    if !hot.is_null() && !is_too_much() {
        // SAFETY: hot is this thread's.
        unsafe { tell(hot, what::MARK, source, name, 0) };
    }
}

/// Edges told of.
static TOLD: AtomicU64 = AtomicU64::new(0);
/// Phases and marks left out.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);
/// Edges after recording was lowered to totals.
static UNTOLD: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds that looks took, at bytes read and written and at counts and layers, and what such a look usually takes.
static SPENT: [(AtomicU64, Cost); 2] = [const { (AtomicU64::new(0), Cost::new()) }; 2];

/// So many at once, and so many a second, in fast mode: the size of its trace is bounded by time.
const AT_ONCE: u64 = 100_000;
const A_SECOND: u64 = 2_000;

/// Phases and marks that were too many.
pub fn left_out() -> u64 {
    LEFT_OUT.load(Relaxed)
}

/// Begins, ends and marks that came when only totals were kept.
pub fn untold() -> u64 {
    UNTOLD.load(Relaxed)
}

/// A forked child begins anew.
pub fn forget() {
    symbol::after_fork();
    UNTOLD.store(0, Relaxed);
    TOLD.store(0, Relaxed);
    LEFT_OUT.store(0, Relaxed);
    SPENT.iter().for_each(|(spent, _)| spent.store(0, Relaxed));
    process::forget();
}

fn since_start() -> u64 {
    sys::now().saturating_sub(snapshot::started())
}

fn is_too_much() -> bool {
    // SAFETY: settings are read-only.
    let fast = unsafe { CONFIG.mode } == FAST;
    let told = TOLD.load(Relaxed);
    let too_much = fast && told > AT_ONCE && told - AT_ONCE > since_start() / 1_000_000 * A_SECOND / 1000;
    if too_much {
        LEFT_OUT.fetch_add(1, Relaxed);
    }
    too_much
}

/// Whether a phase that begins is left out, with all that begin inside it.
unsafe fn is_left_out(hot: *mut Hot) -> bool {
    // SAFETY: the caller's hot.
    unsafe {
        let out = (*hot).left_out > 0 || is_too_much();
        (*hot).left_out += out as u32;
        out
    }
}

/// Looks as long as such looks have cost less than 1 % of the time so far, 20 ms given.
fn while_cheap<T>((spent, cost): &(AtomicU64, Cost), look: impl FnOnce() -> T) -> Option<T> {
    if spent.load(Relaxed) >= 20_000_000 + since_start() / 100 {
        return None;
    }
    let begun = sys::now();
    let found = look();
    spent.fetch_add(cost.of(sys::now() - begun), Relaxed);
    Some(found)
}

/// What is looked at where an edge is told of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Look {
    /// What it has taken, read and written.
    Usage,
    /// In fast mode the exact counts too: so a lane's highest live bytes are known from edge to edge.
    Counts,
    /// The layers of memory as well.
    Layers,
}

unsafe fn tell(hot: *mut Hot, edge_is: u64, source: Source, name: u32, range: u64) {
    let look = if edge_is == what::MARK { Look::Usage } else { Look::Layers };
    // SAFETY: the caller's hot.
    unsafe { tell_looking(hot, edge_is, source, name, range, look) };
}

unsafe fn tell_looking(hot: *mut Hot, edge_is: u64, source: Source, name: u32, range: u64, look: Look) {
    // SAFETY: the caller's hot.
    unsafe {
        if (*hot).mode == COUNT {
            UNTOLD.fetch_add(1, Relaxed);
            return;
        }
        TOLD.fetch_add(1, Relaxed);
        sys::keep_errno(|| {
            names::tell(hot, name);
            let t = sys::now();
            let usage = share::of_program(writer::tid());
            let moved = while_cheap(&SPENT[0], moved).flatten();
            let [read, written] = moved.unwrap_or_default();
            let start = start(op::PHASE, edge(edge_is, source, moved.is_some()), name as u64);
            push(hot, [start, t, range & ARG_WORD, live(), usage[0], usage[1], usage[2], read & ARG_WORD, written & ARG_WORD]);
            while_cheap(&SPENT[1], || look_further(look, t));
        });
    }
}

/// Live usable bytes of the process: a forked child that frees what it inherited has fewer than none.
fn live() -> u64 {
    let lanes = LANES.load(Acquire);
    // SAFETY: lanes below LANES exist.
    let sum: i64 = (0..lanes).filter(|i| !spool::is_python(*i)).map(|i| unsafe { (*spool::lane(i)).live.load(Relaxed) }).sum();
    memshim_format::v93::zigzag(sum) & ARG_WORD
}

/// Bytes that the program has read and written.
fn moved() -> Option<[u64; 2]> {
    let signals = sys::block_signals();
    let moved = snapshot::moved();
    sys::restore_signals(signals);
    moved
}

/// Whoever drains is waited for some hundred microseconds: at the start the writer says what is loaded.
fn look_further(look: Look, t: u64) {
    const TRIES: u32 = 200;
    const YIELDS: u32 = 400;
    // SAFETY: settings are read-only.
    let counts = unsafe { CONFIG.mode } == FAST && look >= Look::Counts;
    if !counts && look < Look::Layers {
        return;
    }
    let signals = sys::block_signals();
    let me = sys::gettid();
    share::work(|| {
        if (0..TRIES + YIELDS).any(|turn| {
            if turn < TRIES {
                core::hint::spin_loop()
            } else {
                sys::yield_now()
            }
            drain::try_lock(me)
        }) {
            if counts {
                lines::calls(t, true);
            } else {
                lines::python_calls(t);
            }
            if look == Look::Layers {
                snapshot::edge(t);
            }
            drain::unlock();
        }
    });
    sys::restore_signals(signals);
}
