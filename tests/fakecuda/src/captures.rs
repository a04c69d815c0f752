//! Captures: what streams do becomes a graph, and what is not allowed meanwhile.

use crate::Answer;
use crate::arguments::Out;
use crate::call::{Call, Driver, driver_functions};
use crate::code::{CAPTURE_IMPLICIT, CAPTURE_INVALIDATED, CAPTURE_UNMATCHED, CAPTURE_UNSUPPORTED, INVALID_HANDLE};
use crate::contexts::current;
use crate::streams::Default;
use std::cell::Cell;

pub struct Capture {
    id: u64,
    /// Forbids unsafe calls to every thread, to its own, or to none.
    mode: i32,
    open: bool,
    broken: bool,
    pub graph: u64,
    origin: u64,
}

const GLOBAL: i32 = 0;
const RELAXED: i32 = 2;

thread_local! {
    static MODE: Cell<i32> = const { Cell::new(GLOBAL) };
}

pub fn exchange_mode(mode: i32) -> i32 {
    MODE.replace(mode)
}

impl Driver {
    /// The open capture of a number.
    pub fn capture(&self, id: u64) -> Option<&Capture> {
        self.captures.iter().find(|c| c.open && c.id == id)
    }

    fn capture_mut(&mut self, id: u64) -> Option<&mut Capture> {
        self.captures.iter_mut().find(|c| c.open && c.id == id)
    }

    pub fn break_capture(&mut self, id: u64) {
        if let Some(c) = self.capture_mut(id) {
            c.broken = true;
        }
    }

    pub fn close_capture(&mut self, id: u64) {
        if let Some(c) = self.capture_mut(id) {
            c.open = false;
        }
    }

    /// A call that a capture in another thread's or this thread's hands does not allow.
    pub fn is_unsafe_now(&mut self) -> bool {
        let forbids = self.captures.iter_mut().find(|c| c.open && c.mode == GLOBAL && MODE.get() != RELAXED);
        forbids.map(|c| c.broken = true).is_some()
    }

    fn begin(&mut self, s: Option<u64>, mode: i32, into: Option<u64>) -> Answer {
        let legacy = self.contexts.get(current()).map(|c| c.legacy);
        let origin = s.filter(|s| Some(*s) != legacy).ok_or(CAPTURE_UNSUPPORTED)?;
        let graph = match into {
            Some(graph) => graph,
            None => self.new_graph(),
        };
        self.capture_count += 1;
        let begun = Capture { id: self.capture_count, mode, open: true, broken: false, graph, origin };
        match self.captures.iter_mut().find(|c| !c.open) {
            Some(place) => *place = begun,
            None => self.captures.push(begun),
        }
        self.streams[origin].capture = self.capture_count;
        Ok(())
    }

    fn end(&mut self, s: Option<u64>) -> Result<u64, i32> {
        let s = s.ok_or(INVALID_HANDLE)?;
        let c = self.capture(self.streams[s].capture).filter(|c| c.origin == s).ok_or(CAPTURE_UNMATCHED)?;
        let (id, graph, broken) = (c.id, c.graph, c.broken);
        self.streams.iter_mut().filter(|o| o.listed && o.capture == id).for_each(|o| o.capture = 0);
        self.streams[s].capture = 0;
        self.close_capture(id);
        if broken { Err(CAPTURE_INVALIDATED) } else { Ok(graph) }
    }

    fn is_capturing(&mut self, s: u64, status: Out<i32>, id: Option<Out<u64>>) -> Answer {
        status.set(0);
        let of_legacy = s < 2;
        let s = self.stream_or(s, Default::Legacy, INVALID_HANDLE)?;
        let implicit = |c: &Capture| {
            let origin = &self.streams[c.origin];
            c.open && origin.blocking && origin.context == self.streams[s].context && c.origin != s
        };
        if of_legacy && self.captures.iter().any(implicit) {
            return Err(CAPTURE_IMPLICIT);
        }
        let c = self.capture(self.streams[s].capture).map(|c| (c.id, c.broken));
        if c.is_none() {
            self.streams[s].capture = 0;
        }
        status.set(c.map_or(0, |(_, broken)| 1 + broken as i32));
        if let Some(out) = id {
            out.set(c.map_or(0, |(id, _)| id));
        }
        Ok(())
    }
}

fn begin(call: &Call, s: u64, default: Default, mode: i32, into: Option<u64>) -> Answer {
    call.make(|driver| {
        let s = driver.stream(s, default);
        driver.begin(s, mode, into)
    })
}

fn begin_again(call: &Call, s: u64, default: Default, mode: i32, graph: u64) -> Answer {
    call.make(|driver| {
        let s = driver.stream(s, default);
        driver.begin(s, mode, Some(graph))?;
        driver.graph(graph)?.clear();
        Ok(())
    })
}

fn end(call: &Call, s: u64, default: Default, g: Out<u64>) -> Answer {
    call.make(|driver| {
        g.set(0);
        let s = driver.stream(s, default);
        g.set(driver.end(s)?);
        Ok(())
    })
}

fn end_without(call: &Call, s: u64, default: Default) -> Answer {
    call.make(|driver| {
        let s = driver.stream(s, default);
        driver.end(s).map(|_| ())
    })
}

driver_functions! { call;
    cuStreamBeginCapture(s: u64) => begin(&call, s, Default::Legacy, GLOBAL, None);
    cuStreamBeginCapture_ptsz(s: u64) => begin(&call, s, Default::Own, GLOBAL, None);
    cuStreamBeginCapture_v2(s: u64, mode: i32) => begin(&call, s, Default::Legacy, mode, None);
    cuStreamBeginCapture_v2_ptsz(s: u64, mode: i32) => begin(&call, s, Default::Own, mode, None);
    cuStreamBeginCaptureToGraph(s: u64, g: u64, dependencies: usize, data: usize, n: usize, mode: i32) => begin(&call, s, Default::Legacy, mode, Some(g));
    cuStreamBeginCaptureToGraph_ptsz(s: u64, g: u64, dependencies: usize, data: usize, n: usize, mode: i32) => begin(&call, s, Default::Own, mode, Some(g));
    cuStreamBeginRecaptureToGraph(s: u64, mode: i32, g: u64, told: usize, data: usize) => begin_again(&call, s, Default::Legacy, mode, g);
    cuStreamBeginRecaptureToGraph_ptsz(s: u64, mode: i32, g: u64, told: usize, data: usize) => begin_again(&call, s, Default::Own, mode, g);
    cuStreamBeginCaptureToCig(s: u64, params: usize) => begin(&call, s, Default::Legacy, RELAXED, None);
    cuStreamBeginCaptureToCig_ptsz(s: u64, params: usize) => begin(&call, s, Default::Own, RELAXED, None);
    // Past every hook.
    fake_begin_capture(s: u64, mode: i32) => call.make(|driver| driver.begin(Some(s), mode, None));
    cuStreamEndCapture(s: u64, g: Out<u64>) => end(&call, s, Default::Legacy, g);
    cuStreamEndCapture_ptsz(s: u64, g: Out<u64>) => end(&call, s, Default::Own, g);
    cuStreamEndCaptureToCig(s: u64) => end_without(&call, s, Default::Legacy);
    cuStreamEndCaptureToCig_ptsz(s: u64) => end_without(&call, s, Default::Own);
    cuStreamIsCapturing(s: u64, status: Out<i32>) => call.make(|driver| driver.is_capturing(s, status, None));
    cuStreamGetCaptureInfo(s: u64, status: Out<i32>, id: Out<u64>) => call.make(|driver| driver.is_capturing(s, status, Some(id)));
}
