//! Green contexts: parts of a device, each with a context of its own beside the device's primary one, whose memory and address space it shares. So a
//! green context ends without what was allocated in it: that goes with the primary one.

use super::call::{Call, ticket};
use super::contexts::{self, MOST, Place};
use super::{cupti, streams, timing};
use crate::lane::Hot;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// A green context, and its context. Green 0: the place is free.
struct Green {
    green: AtomicU64,
    context: AtomicU64,
}

/// As many as there can be contexts; of further ones it is not known which context they are.
static GREENS: [Green; MOST] = [const { Green { green: AtomicU64::new(0), context: AtomicU64::new(0) } }; MOST];

/// Numbers of such contexts, also of those that are gone, with their devices: number << 8 | device, 0 where there is none.
static NUMBERS: [AtomicU32; 4 * MOST] = [const { AtomicU32::new(0) }; 4 * MOST];

fn of(green: u64) -> Option<&'static Green> {
    GREENS.iter().find(|g| green != 0 && g.green.load(Acquire) == green)
}

/// Whether a context is a green one's.
pub fn is_of_one(context: u64) -> bool {
    GREENS.iter().any(|g| g.green.load(Acquire) != 0 && g.context.load(Relaxed) == context)
}

/// Such a context is met.
pub fn met(place: Place) {
    let word = (place.context << 8 | place.device) as u32;
    let _ = NUMBERS.iter().any(|n| n.compare_exchange(0, word, Relaxed, Relaxed).is_ok());
}

/// The primary context of a device has ended, with the memory of its green ones.
pub fn primary_ended(hot: *mut Hot, device: u64) {
    for n in &NUMBERS {
        let word = n.load(Relaxed);
        if word != 0 && (word & 0xff) as u64 == device && n.compare_exchange(word, 0, Relaxed, Relaxed).is_ok() {
            contexts::memory_ended(hot, Place { device, context: (word >> 8) as u64, slot: MOST }, 0, ticket());
        }
    }
}

/// `cuCtxFromGreenCtx`: from here on it is known that this context is a green one's, and which.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn context_given(c: &Call) -> i32 {
    // SAFETY: as called.
    let r = unsafe { c.make() };
    let (green, context) = (c.word(1) as u64, c.out(0, r));
    if context != 0 && of(green).is_none() {
        let free = |g: &&Green| g.green.compare_exchange(0, green, AcqRel, Relaxed).is_ok();
        if let Some(g) = GREENS.iter().find(free) {
            g.context.store(context, Release);
        }
    }
    r
}

/// It lets go of the primary context too, which ends where nobody else holds it.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn ends(c: &Call) -> i32 {
    let green = of(c.word(0) as u64);
    let place = green.and_then(|g| contexts::ending(Some(g.context.load(Acquire)), 0));
    let alone = place.filter(|p| contexts::holders(p.device) == 0);
    let primary = alone.and_then(|p| contexts::ending(None, p.device));
    cupti::drain();
    for ends in place.iter().chain(&primary) {
        timing::drain_context(c.hot, *ends, timing::PATIENCE_NS);
    }
    if let Some(place) = place {
        streams::context_ends(c.hot, place);
    }
    let tk = place.map(|_| ticket());
    // SAFETY: as called.
    let r = unsafe { c.make() };
    if let (0, Some(green)) = (r, green) {
        green.context.store(0, Relaxed);
        green.green.store(0, Release);
    }
    if let (Some(place), Some(tk)) = (place, tk) {
        contexts::goes_on(c.hot, place, tk);
        if r == 0 {
            contexts::left(c.hot, place);
        } else {
            timing::context_goes_on(place.slot);
        }
    }
    if let Some(primary) = primary {
        if r == 0 && contexts::primary_is_gone(primary.device) {
            streams::context_ends(c.hot, primary);
            contexts::ended(c.hot, primary, ticket());
        } else {
            timing::context_goes_on(primary.slot);
        }
    }
    r
}

/// A forked child has none.
pub fn forget() {
    GREENS.iter().for_each(|g| g.green.store(0, Relaxed));
    NUMBERS.iter().for_each(|n| n.store(0, Relaxed));
}
