//! Memsets in all their forms, and prefetches.

use crate::Answer;
use crate::arguments::In;
use crate::call::{Call, driver_functions};
use crate::clock::{D2H_PINNED, H2D_PINNED, SET};
use crate::code::INVALID_CONTEXT;
use crate::copies::Host::{self, GoesOn, Waits};
use crate::layouts::{Location, ON_DEVICE};
use crate::streams::Default::{self, Legacy, Own};
use crate::tap::What;

fn set(call: &Call, p: impl Into<u64>, bytes: u64, value: impl Into<u32>, s: u64, default: Default, host: Host) -> Answer {
    call.start(|driver| {
        let stream = driver.stream(s, default);
        if driver.operate(stream, host, What::Set, bytes, SET)? {
            // By its lowest byte, which is enough here.
            // SAFETY: memory of the program's, as it says.
            unsafe { std::ptr::write_bytes(p.into() as *mut u8, value.into() as u8, bytes as usize) }
        }
        Ok(())
    })
}

/// They take the pinned rates.
fn prefetch(call: &Call, bytes: u64, to_device: bool, s: u64, default: Default) -> Answer {
    prefetch_all(call, 1, |_| (bytes, to_device), s, default)
}

/// Ranges by their sizes, and whether each goes to a device.
fn prefetch_all(call: &Call, count: usize, range: impl Fn(usize) -> (u64, bool), s: u64, default: Default) -> Answer {
    call.make(|driver| {
        let stream = Some(driver.stream_or(s, default, INVALID_CONTEXT)?);
        let ranges = || (0..count).map(&range);
        let bytes = ranges().map(|(bytes, _)| bytes).sum();
        let to_device = ranges().all(|(_, to_device)| to_device);
        driver.by_pages = true;
        let done = driver.operate(stream, GoesOn, What::Copy, bytes, if to_device { H2D_PINNED } else { D2H_PINNED });
        driver.by_pages = false;
        done.map(|_| ())
    })
}

/// The whole takes the time of one, at the rate of the way back if any of them goes that way.
fn prefetch_several(
    call: &Call,
    n: In<u64>,
    count: usize,
    to: In<Location>,
    first: In<usize>,
    places: usize,
    s: u64,
    default: Default,
) -> Answer {
    let place = move |i: usize| (0..places).rev().find(|at| first.at(*at) <= i).map_or(0, |at| to.at(at).kind);
    prefetch_all(call, count, move |i| (n.at(i), place(i) == ON_DEVICE), s, default)
}

driver_functions! { call;
    cuMemsetD8(p: u32, v: u8, n: u32) => set(&call, p, n as u64, v, 0, Legacy, Waits);
    cuMemsetD8_v2(p: u64, v: u8, n: u64) => set(&call, p, n, v, 0, Legacy, Waits);
    cuMemsetD8_v2_ptds(p: u64, v: u8, n: u64) => set(&call, p, n, v, 0, Own, Waits);
    cuMemsetD8Async(p: u64, v: u8, n: u64, s: u64) => set(&call, p, n, v, s, Legacy, GoesOn);
    cuMemsetD8Async_ptsz(p: u64, v: u8, n: u64, s: u64) => set(&call, p, n, v, s, Own, GoesOn);
    cuMemsetD2D8(p: u32, pitch: u32, v: u8, w: u32, h: u32) => set(&call, p, w as u64 * h as u64, v, 0, Legacy, Waits);
    cuMemsetD2D8_v2(p: u64, pitch: u64, v: u8, w: u64, h: u64) => set(&call, p, w * h, v, 0, Legacy, Waits);
    cuMemsetD2D8_v2_ptds(p: u64, pitch: u64, v: u8, w: u64, h: u64) => set(&call, p, w * h, v, 0, Own, Waits);
    cuMemsetD2D8Async(p: u64, pitch: u64, v: u8, w: u64, h: u64, s: u64) => set(&call, p, w * h, v, s, Legacy, GoesOn);
    cuMemsetD2D8Async_ptsz(p: u64, pitch: u64, v: u8, w: u64, h: u64, s: u64) => set(&call, p, w * h, v, s, Own, GoesOn);
    cuMemsetD16(p: u32, v: u16, n: u32) => set(&call, p, n as u64 * 2, v, 0, Legacy, Waits);
    cuMemsetD16_v2(p: u64, v: u16, n: u64) => set(&call, p, n * 2, v, 0, Legacy, Waits);
    cuMemsetD16_v2_ptds(p: u64, v: u16, n: u64) => set(&call, p, n * 2, v, 0, Own, Waits);
    cuMemsetD16Async(p: u64, v: u16, n: u64, s: u64) => set(&call, p, n * 2, v, s, Legacy, GoesOn);
    cuMemsetD16Async_ptsz(p: u64, v: u16, n: u64, s: u64) => set(&call, p, n * 2, v, s, Own, GoesOn);
    cuMemsetD2D16(p: u32, pitch: u32, v: u16, w: u32, h: u32) => set(&call, p, w as u64 * h as u64 * 2, v, 0, Legacy, Waits);
    cuMemsetD2D16_v2(p: u64, pitch: u64, v: u16, w: u64, h: u64) => set(&call, p, w * h * 2, v, 0, Legacy, Waits);
    cuMemsetD2D16_v2_ptds(p: u64, pitch: u64, v: u16, w: u64, h: u64) => set(&call, p, w * h * 2, v, 0, Own, Waits);
    cuMemsetD2D16Async(p: u64, pitch: u64, v: u16, w: u64, h: u64, s: u64) => set(&call, p, w * h * 2, v, s, Legacy, GoesOn);
    cuMemsetD2D16Async_ptsz(p: u64, pitch: u64, v: u16, w: u64, h: u64, s: u64) => set(&call, p, w * h * 2, v, s, Own, GoesOn);
    cuMemsetD32(p: u32, v: u32, n: u32) => set(&call, p, n as u64 * 4, v, 0, Legacy, Waits);
    cuMemsetD32_v2(p: u64, v: u32, n: u64) => set(&call, p, n * 4, v, 0, Legacy, Waits);
    cuMemsetD32_v2_ptds(p: u64, v: u32, n: u64) => set(&call, p, n * 4, v, 0, Own, Waits);
    cuMemsetD32Async(p: u64, v: u32, n: u64, s: u64) => set(&call, p, n * 4, v, s, Legacy, GoesOn);
    cuMemsetD32Async_ptsz(p: u64, v: u32, n: u64, s: u64) => set(&call, p, n * 4, v, s, Own, GoesOn);
    cuMemsetD2D32(p: u32, pitch: u32, v: u32, w: u32, h: u32) => set(&call, p, w as u64 * h as u64 * 4, v, 0, Legacy, Waits);
    cuMemsetD2D32_v2(p: u64, pitch: u64, v: u32, w: u64, h: u64) => set(&call, p, w * h * 4, v, 0, Legacy, Waits);
    cuMemsetD2D32_v2_ptds(p: u64, pitch: u64, v: u32, w: u64, h: u64) => set(&call, p, w * h * 4, v, 0, Own, Waits);
    cuMemsetD2D32Async(p: u64, pitch: u64, v: u32, w: u64, h: u64, s: u64) => set(&call, p, w * h * 4, v, s, Legacy, GoesOn);
    cuMemsetD2D32Async_ptsz(p: u64, pitch: u64, v: u32, w: u64, h: u64, s: u64) => set(&call, p, w * h * 4, v, s, Own, GoesOn);
    cuMemPrefetchAsync(p: u64, n: u64, device: i32, s: u64) => prefetch(&call, n, device >= 0, s, Legacy);
    cuMemPrefetchAsync_ptsz(p: u64, n: u64, device: i32, s: u64) => prefetch(&call, n, device >= 0, s, Own);
    cuMemPrefetchAsync_v2(p: u64, n: u64, to: Location, flags: u32, s: u64) => prefetch(&call, n, to.kind == ON_DEVICE, s, Legacy);
    cuMemPrefetchAsync_v2_ptsz(p: u64, n: u64, to: Location, flags: u32, s: u64) => prefetch(&call, n, to.kind == ON_DEVICE, s, Own);
    cuMemDiscardAndPrefetchBatchAsync(p: usize, n: In<u64>, count: usize, to: In<Location>, first: In<usize>, places: usize, flags: u64, s: u64) => prefetch_several(&call, n, count, to, first, places, s, Legacy);
    cuMemDiscardAndPrefetchBatchAsync_ptsz(p: usize, n: In<u64>, count: usize, to: In<Location>, first: In<usize>, places: usize, flags: u64, s: u64) => prefetch_several(&call, n, count, to, first, places, s, Own);
    cuMemPrefetchBatchAsync(p: usize, n: In<u64>, count: usize, to: In<Location>, first: In<usize>, places: usize, flags: u64, s: u64) => prefetch_several(&call, n, count, to, first, places, s, Legacy);
    cuMemPrefetchBatchAsync_ptsz(p: usize, n: In<u64>, count: usize, to: In<Location>, first: In<usize>, places: usize, flags: u64, s: u64) => prefetch_several(&call, n, count, to, first, places, s, Own);
}
