//! Kernel launches: counted by stream, not recorded one by one. How long they keep a stream busy is sampled by the reaper.

use super::call::{Call, ticket};
use super::graphs::{self, Capture};
use super::{memory, reaper, streams};
use core::sync::atomic::Ordering::*;
use memshim_format::gpu::{kind, stream};

/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn launch(c: &Call, handle: u64) -> i32 {
    // SAFETY: as called.
    let r = unsafe { c.make() };
    if r != 0 {
        c.row3(kind::STREAM, ticket(), c.head(r, c.place(), stream::LAUNCH), [handle, 0, 0]);
        return r;
    }
    if graphs::is_capturing() && matches!(graphs::capture_of(handle), Capture::Yes(_)) {
        return r;
    }
    if let Some(s) = streams::slot(c.hot, handle, c.place()) {
        s.kernels.fetch_add(1, Relaxed);
        reaper::wake(c.hot);
    }
    r
}

/// The stream that a launch configuration names: behind seven numbers of 32 bits.
pub fn stream_of_configuration(c: &Call) -> u64 {
    match memory::word_of(c.word(0), 32) {
        0 => c.default_stream(),
        s => s,
    }
}
