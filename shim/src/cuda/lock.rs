//! The one lock of this folder's tables: held for a few instructions, never across a call of the driver.

use crate::lane::Hot;
use crate::sys;
use core::sync::atomic::{AtomicU32, Ordering::*};

/// Owner's lane + 1, 0 when free.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Its owner is gone with it: nothing is looked up or timed any more.
static BROKEN: AtomicU32 = AtomicU32::new(0);

/// A forked child finds it as its parent's other threads left it.
pub fn forget() {
    OWNER.store(0, Relaxed);
    BROKEN.store(0, Relaxed);
}

/// Runs `f` alone. `None` without having run it where this thread has the lock already (a signal handler that calls the driver, against
/// its rules) or where its owner is gone (a second has passed).
///
/// # Safety
/// `hot` is this thread's.
pub unsafe fn with<T>(hot: *mut Hot, f: impl FnOnce() -> T) -> Option<T> {
    // SAFETY: the caller's hot.
    let me = unsafe { (*hot).index } + 1;
    let mut until = 0;
    while OWNER.compare_exchange_weak(0, me, Acquire, Relaxed).is_err() {
        if OWNER.load(Relaxed) == me || BROKEN.load(Relaxed) != 0 {
            return None;
        }
        let now = sys::now();
        if until == 0 {
            until = now + 1_000_000_000;
        }
        if now > until {
            BROKEN.store(1, Relaxed);
            return None;
        }
        sys::yield_now();
    }
    let r = f();
    OWNER.store(0, Release);
    Some(r)
}
