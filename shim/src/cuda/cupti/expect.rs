//! Which record of CUPTI's is about which call: CUPTI gives each call of the driver a *correlation* number, which its records carry. A hook
//! leaves a word for its lane, makes the call, and from inside it CUPTI calls [`called`] with the number; a table keeps the two together until the
//! records come. Lock-free; an entry that is 65,536 numbers old makes room.
//!
//! The word: a ticket, of a row that is left after the call; or (LAUNCH) a kernel's stream, which has no row of its own.

use crate::lane::{self, Hot};
use crate::sys;
use core::ffi::c_void;
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use memshim_format::spool::LANES_MAX;

/// Domain of callbacks: calls of the driver.
pub const DRIVER_CALLS: u32 = 1;
const ENTER: u32 = 0;
/// Where the number stands in what a callback gets (`CUpti_CallbackData`, the same in every version that is read).
const CORRELATION: usize = 64;

/// A record of the call has come, or will not.
const SEEN: u64 = 1 << 63;
const LAUNCH: u64 = 1 << 62;
/// Of a lane's word: CUPTI has called; the number follows.
const CALLED: u64 = 1 << 61;
const CONTEXT_SHIFT: u32 = 48;

/// What a call is: where its records belong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// The row with this ticket.
    Ticket(u64),
    /// A kernel of this stream (as [`crate::cuda::streams::named`] has it), and the context's number.
    Launch { stream: u64, context: u64 },
}

impl Owner {
    fn word(self) -> u64 {
        match self {
            Owner::Ticket(t) => t,
            // Handles are addresses, of 47 bits.
            Owner::Launch { stream, context } => LAUNCH | (context & 0xfff) << CONTEXT_SHIFT | stream & ((1 << CONTEXT_SHIFT) - 1),
        }
    }

    fn of(word: u64) -> Owner {
        if word & LAUNCH == 0 {
            return Owner::Ticket(word & !SEEN);
        }
        Owner::Launch { stream: word & ((1 << CONTEXT_SHIFT) - 1), context: word >> CONTEXT_SHIFT & 0xfff }
    }
}

struct Entry {
    correlation: AtomicU32,
    word: AtomicU64,
}

const ENTRIES: usize = 1 << 16;
/// So many calls without a record, and our thread is woken before its time.
const NUDGE: i64 = ENTRIES as i64 / 8;
static TABLE: AtomicUsize = AtomicUsize::new(0);
static LANES: [AtomicU64; LANES_MAX] = [const { AtomicU64::new(0) }; LANES_MAX];
/// Calls of which no record has come.
static PENDING: AtomicI64 = AtomicI64::new(0);

/// Makes the table.
pub fn map() -> bool {
    if TABLE.load(Relaxed) == 0 {
        TABLE.store(sys::map_anon(ENTRIES * size_of::<Entry>()) as usize, Release);
    }
    TABLE.load(Relaxed) != 0
}

/// Private memory taken, in bytes.
pub fn private() -> usize {
    if TABLE.load(Relaxed) == 0 { 0 } else { ENTRIES * size_of::<Entry>() }
}

/// Calls of which no record has come.
pub fn pending() -> i64 {
    PENDING.load(Relaxed)
}

fn entry(correlation: u32) -> Option<&'static Entry> {
    let table = TABLE.load(Acquire) as *const Entry;
    // SAFETY: the table has an entry for every number's low bits, and is never unmapped.
    if table.is_null() { None } else { unsafe { Some(&*table.add(correlation as usize % ENTRIES)) } }
}

/// The call that this thread is about to make is this one. Whether CUPTI is there to hear it.
pub fn begin(hot: *mut Hot, owner: Owner) -> bool {
    // SAFETY: this thread's hot.
    let lane = LANES.get(unsafe { (*hot).index } as usize).filter(|_| super::is_on());
    lane.is_some_and(|lane| {
        lane.store(owner.word(), Relaxed);
        true
    })
}

/// It was made. Whether its records will come: CUPTI has seen it, and it was `good`.
pub fn end(hot: *mut Hot, good: bool) -> bool {
    // SAFETY: this thread's hot.
    let word = LANES.get(unsafe { (*hot).index } as usize).map_or(0, |lane| lane.swap(0, Relaxed));
    if word & CALLED == 0 {
        return false;
    }
    if !good && let Some(e) = entry(word as u32) {
        see(e, word as u32);
    }
    good
}

/// CUPTI's callback: on the thread of the call, in it.
///
/// # Safety
/// Called by CUPTI.
pub unsafe extern "C" fn called(_: *mut c_void, domain: u32, _: u32, data: *const u8) {
    let hot = lane::current();
    if domain != DRIVER_CALLS || data.is_null() || hot.is_null() {
        return;
    }
    // SAFETY: this thread's hot; CUPTI's structure begins with the site and has the number at its place.
    unsafe {
        let Some(lane) = LANES.get((*hot).index as usize) else { return };
        let word = lane.load(Relaxed);
        if word == 0 || word & CALLED != 0 || data.cast::<u32>().read() != ENTER {
            return;
        }
        let correlation = data.add(CORRELATION).cast::<u32>().read();
        if let Some(e) = entry(correlation) {
            keep(e, correlation, word);
            lane.store(CALLED | correlation as u64, Relaxed);
        }
    }
}

fn keep(e: &Entry, correlation: u32, word: u64) {
    if e.correlation.swap(0, AcqRel) != 0 && e.word.load(Relaxed) & SEEN == 0 {
        PENDING.fetch_sub(1, Relaxed);
    }
    e.word.store(word, Relaxed);
    e.correlation.store(correlation, Release);
    if PENDING.fetch_add(1, Relaxed) % NUDGE == NUDGE - 1 {
        super::nudge();
    }
}

/// Marks an entry: its word, where it is of this number.
fn see(e: &Entry, correlation: u32) -> Option<u64> {
    if e.correlation.load(Acquire) != correlation {
        return None;
    }
    let word = e.word.fetch_or(SEEN, AcqRel);
    if e.correlation.load(Acquire) != correlation {
        return None;
    }
    if word & SEEN == 0 {
        PENDING.fetch_sub(1, Relaxed);
    }
    Some(word)
}

/// A record of this number has come: whose it is.
pub fn owner(correlation: u32) -> Option<Owner> {
    see(entry(correlation)?, correlation).map(Owner::of)
}

/// A forked child makes no calls.
pub fn forget() {
    PENDING.store(0, Relaxed);
}
