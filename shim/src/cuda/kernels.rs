//! Kernel launches: counted by stream, not recorded one by one. How long they keep a stream busy is sampled by the reaper, or told by CUPTI.

use super::call::{Call, ticket};
use super::cupti::expect::{self, Owner};
use super::graphs::{self, Capture};
use super::{cupti, cupy, memory, reaper, state, streams};
use crate::sys;
use core::sync::atomic::Ordering::*;
use memshim_format::gpu::{kind, stream};

/// Where a launch has its stream.
#[derive(Clone, Copy)]
pub enum Stream {
    /// It is this one.
    Is(u64),
    /// In the launch configuration, which the first argument points to: behind seven numbers of 32 bits.
    InConfiguration,
}

const IN_CONFIGURATION: usize = 32;

impl Stream {
    /// Before the call, which may be refused without a look at the configuration: 0 where that cannot be read.
    fn before(self, c: &Call) -> u64 {
        match self {
            Stream::Is(handle) => handle,
            Stream::InConfiguration => {
                let mut handle = 0u64;
                let at = (c.word(0) as u64).wrapping_add(IN_CONFIGURATION as u64);
                // SAFETY: a variable of this size.
                let read = unsafe { sys::copy_own(at, (&raw mut handle).cast(), size_of::<u64>()) };
                const NOWHERE: i64 = -(libc::EFAULT as i64);
                match read {
                    NOWHERE => 0,
                    n if n == size_of::<u64>() as i64 => Stream::or_default(c, handle),
                    // The kernel was not let.
                    _ => self.after(c),
                }
            }
        }
    }

    /// When it was made, and the driver has read the configuration.
    fn after(self, c: &Call) -> u64 {
        match self {
            Stream::Is(handle) => handle,
            Stream::InConfiguration => Stream::or_default(c, memory::word_of(c.word(0), IN_CONFIGURATION)),
        }
    }

    fn or_default(c: &Call, handle: u64) -> u64 {
        if handle == 0 { c.default_stream() } else { handle }
    }
}

/// A kernel is launched.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn launch(c: &Call, stream: Stream) -> i32 {
    let place = if cupti::is_on() { Some(c.place()) } else { None };
    let launch = |context| Owner::Launch { stream: streams::named(c.hot, stream.before(c)), context };
    let heard = place.is_some_and(|p| expect::begin(c.hot, launch(p.context)));
    // SAFETY: as called.
    let r = unsafe { c.make() };
    if r != 0 {
        if heard {
            expect::end(c.hot, false);
        }
        return failed(c, if let Stream::Is(handle) = stream { handle } else { 0 }, r);
    }
    let handle = stream.after(c);
    let captured = graphs::is_capturing() && matches!(graphs::capture_of(handle), Capture::Yes(_));
    if heard {
        expect::end(c.hot, !captured);
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

/// Leaves the row of a launch that failed; its code. Stream 0: not known.
fn failed(c: &Call, handle: u64, r: i32) -> i32 {
    c.row3(kind::STREAM, ticket(), c.head(r, c.place(), stream::LAUNCH), [handle, 0, 0]);
    r
}

/// Of one launch on each device: a function, seven numbers of 32 bits, a stream, parameters.
const ON_DEVICE: usize = 56;
const ITS_STREAM: usize = 40;

/// A launch on several devices, by a list, which the driver has read where it does not refuse. CUPTI gives its kernels one number, so that their streams are
/// looked at instead.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn launch_on_devices(c: &Call) -> i32 {
    let place = c.place();
    let stream_of = |i: usize| memory::word_of(c.word(0), i * ON_DEVICE + ITS_STREAM);
    // SAFETY: as called.
    let r = unsafe { c.make() };
    if r != 0 {
        return failed(c, 0, r);
    }
    cupy::called(c.t, false);
    state::look(c.hot, place, c.t);
    for slot in (0..c.int(1) as usize).filter_map(|i| streams::slot(c.hot, stream_of(i), place)) {
        slot.kernels.fetch_add(1, Relaxed);
    }
    reaper::wake(c.hot);
    r
}
