//! Kernel launches: counted by stream, not recorded one by one. How long they keep a stream busy is sampled by the reaper, or told by CUPTI.

use super::call::{Call, ticket};
use super::cupti::expect::{self, Owner};
use super::graphs::{self, Capture};
use super::{cupti, cupy, memory, reaper, state, streams};
use core::sync::atomic::Ordering::*;
use memshim_format::gpu::{kind, stream};

/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn launch(c: &Call, handle: u64) -> i32 {
    let place = if cupti::is_on() { Some(c.place()) } else { None };
    let heard = place.is_some_and(|p| expect::begin(c.hot, Owner::Launch { stream: streams::named(c.hot, handle), context: p.context }));
    // SAFETY: as called.
    let r = unsafe { c.make() };
    let captured = r == 0 && graphs::is_capturing() && matches!(graphs::capture_of(handle), Capture::Yes(_));
    if heard {
        expect::end(c.hot, r == 0 && !captured);
    }
    if r != 0 {
        return failed(c, handle, r);
    }
    if captured {
        return r;
    }
    cupy::called(c.t, false);
    let place = place.unwrap_or_else(|| c.place());
    state::look(c.hot, place, c.t);
    if let Some(s) = streams::slot(c.hot, handle, place) {
        s.kernels.fetch_add(1, Relaxed);
        if !heard {
            reaper::wake(c.hot);
        }
    }
    r
}

/// Leaves the row of a launch that failed; its code.
fn failed(c: &Call, handle: u64, r: i32) -> i32 {
    c.row3(kind::STREAM, ticket(), c.head(r, c.place(), stream::LAUNCH), [handle, 0, 0]);
    r
}

/// Of one launch on each device: a function, seven numbers of 32 bits, a stream, parameters.
const ON_DEVICE: usize = 56;
const ITS_STREAM: usize = 40;

/// A launch on several devices, by a list. CUPTI gives its kernels one number, so that their streams are looked at instead.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn launch_on_devices(c: &Call) -> i32 {
    let place = c.place();
    let stream_of = |i: usize| memory::word_of(c.word(0), i * ON_DEVICE + ITS_STREAM);
    // SAFETY: as called.
    let r = unsafe { c.make() };
    if r != 0 {
        return failed(c, stream_of(0), r);
    }
    cupy::called(c.t, false);
    state::look(c.hot, place, c.t);
    for slot in (0..c.int(1) as usize).filter_map(|i| streams::slot(c.hot, stream_of(i), place)) {
        slot.kernels.fetch_add(1, Relaxed);
    }
    reaper::wake(c.hot);
    r
}

/// The stream that a launch configuration names: behind seven numbers of 32 bits.
pub fn stream_of_configuration(c: &Call) -> u64 {
    match memory::word_of(c.word(0), 32) {
        0 => c.default_stream(),
        s => s,
    }
}
