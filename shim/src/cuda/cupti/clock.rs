//! CUPTI's clock against ours. CUPTI's is the wall clock (on most systems), which runs as `CLOCK_MONOTONIC` does until somebody sets it: so the
//! distance is taken once, and anew where it is found changed.

use super::library::{Refused, own};
use crate::sys;
use core::sync::atomic::{AtomicI64, Ordering::*};

/// Ours less CUPTI's, ns.
static OFFSET: AtomicI64 = AtomicI64::new(0);

/// A change below this is none: what lies in the time between questions.
const NOTHING_NS: u64 = 10_000;
const TRIES: usize = 5;

/// The distance and the time that it took to ask: the best of a few tries.
fn measure() -> Result<(i64, u64), Refused> {
    let Some(ask) = own().timestamp else { return Err(Refused::Symbol("cuptiGetTimestamp")) };
    let (mut best, mut distance) = (u64::MAX, 0i64);
    for _ in 0..TRIES {
        let mut theirs = 0u64;
        let before = sys::now();
        // SAFETY: writes one number.
        let r = unsafe { ask(&raw mut theirs) };
        let took = sys::now() - before;
        if r != 0 {
            return Err(Refused::Call("cuptiGetTimestamp", r));
        }
        if took < best {
            best = took;
            distance = ((before + took / 2) as i64).wrapping_sub(theirs as i64);
        }
    }
    Ok((distance, best))
}

/// Takes the distance.
pub fn settle() -> Result<(), Refused> {
    OFFSET.store(measure()?.0, Relaxed);
    Ok(())
}

/// Takes it anew where it has changed.
pub fn check() {
    if let Ok((distance, took)) = measure()
        && distance.abs_diff(OFFSET.load(Relaxed)) > NOTHING_NS + took
    {
        OFFSET.store(distance, Relaxed);
    }
}

/// An instant of CUPTI's on our clock.
pub fn ours(theirs: u64) -> u64 {
    (theirs as i64).wrapping_add(OFFSET.load(Relaxed)).max(0) as u64
}
