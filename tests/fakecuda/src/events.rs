//! Events: when a stream got there.

use crate::Answer;
use crate::arguments::{Out, number};
use crate::call::{Call, Driver, answered, driver_functions};
use crate::code::{CAPTURE_UNSUPPORTED, CAPTURED_EVENT, INVALID_HANDLE, NOT_READY};
use crate::list::Listed;
use crate::streams::Default;

pub struct Event {
    at: i64,
    context: u64,
    /// Recorded into this capture: it has no time.
    capture: u64,
    live: bool,
    /// How many questions there will have been when it is done.
    questions: u64,
}

impl Listed for Event {
    const KIND: u64 = 0x5c03;
}

fn record(call: &Call, e: u64, s: u64, default: Default) -> Answer {
    call.make(|driver| {
        let s = driver.stream_or(s, default, INVALID_HANDLE)?;
        let context = driver.streams[s].context;
        let event = driver.events.get_mut(e).filter(|e| e.live && e.context == context).ok_or(INVALID_HANDLE)?;
        event.capture = driver.streams[s].capture;
        if event.capture == 0 {
            let lag = number(c"FAKE_LAGS").filter(|_| !driver.streams[s].has_worked);
            let (at, questions) = (driver.schedule(s, 0), lag.map_or(0, |lag| driver.questions + lag));
            let event = &mut driver.events[e];
            (event.at, event.questions) = (at, questions);
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

impl Driver {
    fn is_done(&self, event: &Event) -> bool {
        event.at <= self.now && event.questions <= self.questions
    }
}

driver_functions! { call;
    cuEventCreate(e: Out<u64>, flags: u32) => call.make(|driver| {
        let (context, _) = driver.current()?;
        e.set(driver.events.add(Event { at: 0, context, capture: 0, live: true, questions: 0 }));
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
        let (capture, is_done) = (event.capture, driver.is_done(event));
        driver.questions += 1;
        if driver.is_unsafe_now() {
            return Err(CAPTURE_UNSUPPORTED);
        }
        if capture != 0 {
            return Err(CAPTURED_EVENT);
        }
        if is_done { Ok(()) } else { Err(NOT_READY) }
    });
    cuEventSynchronize(e: u64) => call.make(|driver| {
        driver.now = driver.now.max(driver.events.get(e).ok_or(INVALID_HANDLE)?.at);
        Ok(())
    });
    cuEventElapsedTime_v2(ms: Out<f32>, a: u64, b: u64) => call.make(|driver| {
        let live = |e: u64| driver.events.get(e).filter(|e| e.live).ok_or(INVALID_HANDLE);
        let (a, b) = (live(a)?, live(b)?);
        let are_done = driver.is_done(a) && driver.is_done(b);
        if a.capture != 0 || b.capture != 0 {
            return Err(CAPTURED_EVENT);
        }
        let took = b.at - a.at;
        driver.questions += 1;
        if !are_done {
            return Err(NOT_READY);
        }
        ms.set((took as f64 / 1e6) as f32);
        Ok(())
    });
    cuEventElapsedTime(ms: Out<f32>, a: u64, b: u64) => answered(cuEventElapsedTime_v2(ms, a, b));
    cuStreamWaitEvent(s: u64, e: u64, flags: u32) => wait(&call, s, e, Default::Legacy);
    cuStreamWaitEvent_ptsz(s: u64, e: u64, flags: u32) => wait(&call, s, e, Default::Own);
}
