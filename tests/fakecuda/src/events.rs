//! Events: when a stream got there.

use crate::Answer;
use crate::arguments::Out;
use crate::call::{Call, answered, driver_functions};
use crate::code::{CAPTURE_UNSUPPORTED, CAPTURED_EVENT, INVALID_HANDLE, NOT_READY};
use crate::list::Listed;
use crate::streams::Default;

pub struct Event {
    at: i64,
    /// Recorded into this capture: it has no time.
    capture: u64,
    live: bool,
}

impl Listed for Event {
    const KIND: u64 = 0x5c03;
}

fn record(call: &Call, e: u64, s: u64, default: Default) -> Answer {
    call.make(|driver| {
        let s = driver.stream_or(s, default, INVALID_HANDLE)?;
        let event = driver.events.get_mut(e).filter(|e| e.live).ok_or(INVALID_HANDLE)?;
        event.capture = driver.streams[s].capture;
        if event.capture == 0 {
            let at = driver.schedule(s, 0);
            driver.events[e].at = at;
        }
        Ok(())
    })
}

fn wait(call: &Call, s: u64, e: u64, default: Default) -> Answer {
    call.make(|driver| {
        let s = driver.stream_or(s, default, INVALID_HANDLE)?;
        let event = driver.events.get(e).ok_or(INVALID_HANDLE)?;
        let stream = &mut driver.streams[s];
        if event.capture != 0 {
            stream.capture = event.capture;
        } else {
            stream.ready = stream.ready.max(event.at);
        }
        Ok(())
    })
}

driver_functions! { call;
    cuEventCreate(e: Out<u64>, flags: u32) => call.make(|driver| {
        driver.current()?;
        e.set(driver.events.add(Event { at: 0, capture: 0, live: true }));
        Ok(())
    });
    cuEventDestroy_v2(e: u64) => call.make(|driver| {
        driver.events.get_mut(e).filter(|e| e.live).ok_or(INVALID_HANDLE)?.live = false;
        Ok(())
    });
    cuEventDestroy(e: u64) => answered(cuEventDestroy_v2(e));
    cuEventRecord(e: u64, s: u64) => record(&call, e, s, Default::Legacy);
    cuEventRecord_ptsz(e: u64, s: u64) => record(&call, e, s, Default::Own);
    cuEventQuery(e: u64) => call.make(|driver| {
        driver.take_time();
        let event = driver.events.get(e).filter(|e| e.live).ok_or(INVALID_HANDLE)?;
        let (capture, at) = (event.capture, event.at);
        if driver.is_unsafe_now() {
            return Err(CAPTURE_UNSUPPORTED);
        }
        if capture != 0 {
            return Err(CAPTURED_EVENT);
        }
        if at > driver.now { Err(NOT_READY) } else { Ok(()) }
    });
    cuEventSynchronize(e: u64) => call.make(|driver| {
        driver.now = driver.now.max(driver.events.get(e).ok_or(INVALID_HANDLE)?.at);
        Ok(())
    });
    cuEventElapsedTime_v2(ms: Out<f32>, a: u64, b: u64) => call.make(|driver| {
        let live = |e: u64| driver.events.get(e).filter(|e| e.live).ok_or(INVALID_HANDLE);
        let (a, b) = (live(a)?, live(b)?);
        if a.capture != 0 || b.capture != 0 {
            return Err(CAPTURED_EVENT);
        }
        if a.at.max(b.at) > driver.now {
            return Err(NOT_READY);
        }
        ms.set(((b.at - a.at) as f64 / 1e6) as f32);
        Ok(())
    });
    cuEventElapsedTime(ms: Out<f32>, a: u64, b: u64) => answered(cuEventElapsedTime_v2(ms, a, b));
    cuStreamWaitEvent(s: u64, e: u64, flags: u32) => wait(&call, s, e, Default::Legacy);
    cuStreamWaitEvent_ptsz(s: u64, e: u64, flags: u32) => wait(&call, s, e, Default::Own);
}
