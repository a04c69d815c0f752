//! Streams: what each does, one after the other.

use crate::Answer;
use crate::arguments::Out;
use crate::call::{Call, Driver, answered, driver_functions};
use crate::captures;
use crate::code::{CAPTURE_UNSUPPORTED, INVALID_HANDLE, NOT_READY};
use crate::contexts::current;
use crate::list::Listed;
use std::cell::Cell;

pub struct Stream {
    /// When its last operation ends.
    pub ready: i64,
    pub context: u64,
    /// Waits for the context's own stream, which waits for it.
    pub blocking: bool,
    pub live: bool,
    /// Made by the program: neither a context's own nor a thread's.
    pub listed: bool,
    /// Number of the capture that it is part of, 0 for none.
    pub capture: u64,
    pub number: i32,
    /// Whether anything that takes time was ever asked of it.
    pub has_worked: bool,
}

impl Listed for Stream {
    const KIND: u64 = 0x5c02;
}

impl Stream {
    pub fn new(context: u64, blocking: bool) -> Stream {
        Stream { ready: 0, context, blocking, live: true, listed: true, capture: 0, number: 0, has_worked: false }
    }
}

thread_local! {
    /// The thread's own default stream, 0 while it has not been meant.
    static OWN: Cell<u64> = const { Cell::new(0) };
}

/// Whose default stream a call means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Default {
    Legacy,
    Own,
}

impl Driver {
    /// The stream that an argument means.
    pub fn stream(&mut self, stream: u64, default: Default) -> Option<u64> {
        match stream {
            2 => Some(self.own_stream()),
            0 if default == Default::Own => Some(self.own_stream()),
            0 | 1 => self.contexts.get(current()).map(|c| c.legacy),
            _ => self.streams.get(stream).filter(|s| s.live).map(|_| stream),
        }
    }

    fn own_stream(&mut self) -> u64 {
        if OWN.get() == 0 {
            self.stream_numbers += 1;
            OWN.set(self.streams.add(Stream { number: self.stream_numbers, listed: false, ..Stream::new(0, true) }));
        }
        self.streams[OWN.get()].context = current();
        OWN.get()
    }

    /// An operation of a stream: when it ends. The context's own stream and the blocking ones wait for each other.
    pub fn schedule(&mut self, stream: u64, took: i64) -> i64 {
        let of = &self.streams[stream];
        let mut begins = of.ready.max(self.now);
        let legacy = self.contexts.get(of.context).map(|c| c.legacy);
        if legacy == Some(stream) {
            let others = self.streams.iter().filter(|o| o.listed && o.live && o.blocking && o.context == of.context);
            begins = others.map(|o| o.ready).fold(begins, i64::max);
        } else if let (true, Some(legacy)) = (of.blocking, legacy) {
            begins = begins.max(self.streams[legacy].ready);
        }
        let of = &mut self.streams[stream];
        of.ready = begins + took;
        of.has_worked |= took > 0;
        begins + took
    }
}

fn create(call: &Call, s: Out<u64>, flags: u32) -> Answer {
    call.make(|driver| {
        let (context, _) = driver.current()?;
        driver.stream_numbers += 1;
        s.set(driver.streams.add(Stream { number: driver.stream_numbers, ..Stream::new(context, flags & 1 == 0) }));
        Ok(())
    })
}

fn wait_for(call: &Call, s: u64, default: Default) -> Answer {
    call.make(|driver| {
        let s = driver.stream(s, default).ok_or(INVALID_HANDLE)?;
        let of = &driver.streams[s];
        let (capture, ready) = (of.capture, of.ready);
        if capture != 0 {
            driver.break_capture(capture);
            return Err(CAPTURE_UNSUPPORTED);
        }
        driver.now = driver.now.max(ready);
        driver.release_pools();
        Ok(())
    })
}

driver_functions! { call;
    cuStreamCreate(s: Out<u64>, flags: u32) => create(&call, s, flags);
    cuStreamCreateWithPriority(s: Out<u64>, flags: u32, priority: i32) => create(&call, s, flags);
    cuGreenCtxStreamCreate(s: Out<u64>, green: u64, flags: u32, priority: i32) => create(&call, s, flags);
    cuStreamDestroy_v2(s: u64) => call.make(|driver| {
        let of = driver.streams.get_mut(s).filter(|of| of.live).ok_or(INVALID_HANDLE)?;
        of.live = false;
        let capture = of.capture;
        driver.close_capture(capture);
        Ok(())
    });
    cuStreamDestroy(s: u64) => answered(cuStreamDestroy_v2(s));
    cuStreamSynchronize(s: u64) => wait_for(&call, s, Default::Legacy);
    cuStreamSynchronize_ptsz(s: u64) => wait_for(&call, s, Default::Own);
    cuCtxSynchronize() => call.make(|driver| {
        let (context, _) = driver.current()?;
        let of_context = driver.streams.iter().filter(|s| s.listed && s.live && s.context == context).map(|s| s.ready);
        let waits = of_context.fold(driver.now.max(driver.streams[driver.contexts[context].legacy].ready), i64::max);
        driver.now = waits.max(driver.streams.get(OWN.get()).map_or(0, |s| s.ready));
        driver.release_pools();
        Ok(())
    });
    cuCtxSynchronize_v2(c: u64) => answered(cuCtxSynchronize());
    cuStreamGetCtx(s: u64, c: Out<u64>) => call.make(|driver| {
        let s = driver.stream_or(s, Default::Legacy, INVALID_HANDLE)?;
        c.set(driver.streams[s].context);
        Ok(())
    });
    cuStreamQuery(s: u64) => call.make(|driver| {
        driver.take_time();
        let s = driver.stream(s, Default::Legacy).ok_or(INVALID_HANDLE)?;
        let capture = driver.streams[s].capture;
        if driver.capture(capture).is_some() || driver.is_unsafe_now() {
            driver.break_capture(capture);
            return Err(CAPTURE_UNSUPPORTED);
        }
        if driver.streams[s].ready > driver.now { Err(NOT_READY) } else { Ok(()) }
    });
    cuThreadExchangeStreamCaptureMode(mode: Out<i32>) => {
        mode.set(captures::exchange_mode(mode.get()));
        Ok(())
    };
}

impl Driver {
    /// What a question takes where it is told to take time: alone.
    pub fn take_time(&self) {
        if self.slow_us != 0 {
            // SAFETY: a rest.
            unsafe { libc::usleep(self.slow_us) };
        }
    }

    /// The stream that an argument means, or why there is none.
    pub fn stream_or(&mut self, s: u64, default: Default, otherwise: i32) -> Result<u64, i32> {
        self.stream(s, default).ok_or(otherwise)
    }
}
