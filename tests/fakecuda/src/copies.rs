//! Copies in all their forms. Each becomes one operation of a stream, or a node of the graph that the stream captures.

use crate::Answer;
use crate::arguments::{In, number};
use crate::call::{Call, Driver};
use crate::clock::{D2D, D2H_PAGEABLE, D2H_PINNED, H2D_PAGEABLE, H2D_PINNED, H2H, P2P, took};
use crate::code::{CAPTURE_UNSUPPORTED, INVALID_CONTEXT, NOT_INITIALIZED};
use crate::layouts::{ARRAY, End3, HOST, Operation, Plane, Volume};
use crate::memory::Kind;
use crate::streams::Default;
use crate::tap::{Run, What};

/// Whether the host waits for what it asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Host {
    Waits,
    GoesOn,
}
use Host::{GoesOn, Waits};

/// An end of a copy.
#[derive(Clone, Copy)]
enum End {
    At(u64),
    /// Device memory that holds nothing here.
    Array,
}

/// An argument that is an address: of the host a pointer, of the device a number of 64 bits or, in the oldest functions, of 32.
trait Address: Copy {
    fn end(self) -> End;
}
impl Address for u64 {
    fn end(self) -> End {
        End::At(self)
    }
}
impl Address for u32 {
    fn end(self) -> End {
        End::At(self as u64)
    }
}

/// An argument that is an array's.
#[derive(Clone, Copy)]
struct OfArray;
impl Address for OfArray {
    fn end(self) -> End {
        End::Array
    }
}

/// The bytes from one place to the other, which may overlap.
fn move_bytes(to: u64, from: u64, len: u64) {
    // SAFETY: memory of the program's, as it says.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len as usize) }
}

impl Driver {
    fn rate_between(&self, to: End, from: End) -> i32 {
        let block = |end: End| match end {
            End::At(p) => self.block(p),
            End::Array => None,
        };
        let (t, f) = (block(to), block(from));
        let of_host = |end: End| matches!(end, End::At(_)) && block(end).is_none_or(|b| matches!(b.kind, Kind::Pinned | Kind::Registered));
        match (of_host(to), of_host(from)) {
            (true, true) => H2H,
            (false, true) if f.is_some() => H2D_PINNED,
            (false, true) => H2D_PAGEABLE,
            (true, false) if t.is_some() => D2H_PINNED,
            (true, false) => D2H_PAGEABLE,
            (false, false) if t.zip(f).is_some_and(|(t, f)| t.device != f.device) => P2P,
            (false, false) => D2D,
        }
    }

    /// An operation that moves bytes: into the graph or onto the clock. Whether the bytes are to be moved now.
    pub fn operate(&mut self, stream: Option<u64>, host: Host, what: What, bytes: u64, rate: i32) -> Result<bool, i32> {
        let stream = stream.ok_or(INVALID_CONTEXT)?;
        let id = self.streams[stream].capture;
        if let Some(graph) = self.capture(id).map(|c| c.graph) {
            if host == Waits {
                self.break_capture(id);
                return Err(CAPTURE_UNSUPPORTED);
            }
            self.add_captured(graph, what, bytes)?;
            return Ok(false);
        }
        if host == Waits && self.is_unsafe_now() {
            return Err(CAPTURE_UNSUPPORTED);
        }
        let took = took(bytes, rate);
        let ends = self.schedule(stream, took);
        self.ran(stream, ends - took, ends, Run { what, bytes, rate, kernel: 0, node: 0 });
        if host == Waits {
            self.now = self.now.max(ends);
        }
        Ok(id == 0)
    }

    fn copy(&mut self, to: End, from: End, len: u64, stream: Option<u64>, host: Host) -> Answer {
        if !self.initialised {
            return Err(NOT_INITIALIZED);
        }
        let moves = self.operate(stream, host, What::Copy, len, self.rate_between(to, from))?;
        if let (true, End::At(to), End::At(from)) = (moves, to, from) {
            move_bytes(to, from, len);
        }
        Ok(())
    }
}

fn copy(call: &Call, to: impl Address, from: impl Address, len: impl Into<u64>, s: u64, default: Default, host: Host) -> Answer {
    call.start(|driver| {
        let stream = driver.stream(s, default);
        driver.copy(to.end(), from.end(), len.into(), stream, host)
    })
}

/// Half of a copy of more than FAKE_SPLITS bytes, which is made as two, each by the exported name of what was called.
fn half_of(len: u64) -> Option<u64> {
    number(c"FAKE_SPLITS").filter(|most| len > *most).map(|_| len / 2)
}

fn peer(call: &Call, to: (u64, u64), from: (u64, u64), len: u64, s: u64, default: Default, host: Host) -> Answer {
    call.start(|driver| {
        let stream = driver.stream(s, default);
        let device = |context: u64| driver.contexts.get(context).map(|c| c.device).ok_or(INVALID_CONTEXT);
        let rate = if device(to.1)? == device(from.1)? { D2D } else { P2P };
        if driver.operate(stream, host, What::Copy, len, rate)? {
            move_bytes(to.0, from.0, len);
        }
        Ok(())
    })
}

fn end<P: Address>(kind: i32, host: u64, device: P) -> End {
    match kind {
        ARRAY => End::Array,
        HOST => End::At(host),
        _ => device.end(),
    }
}

fn plane<N: Copy + Into<u64>, P: Address>(call: &Call, p: In<Plane<N, P>>, s: u64, default: Default, host: Host) -> Answer {
    call.start(|driver| {
        let p = p.get();
        let stream = driver.stream(s, default);
        let (to, from) = (end(p.to_kind, p.to_host, p.to_device), end(p.from_kind, p.from_host, p.from_device));
        let (w, rows): (u64, u64) = (p.w.into(), p.h.into());
        let moves = driver.operate(stream, host, What::Copy, w * rows, driver.rate_between(to, from))?;
        // The oldest functions move nothing here.
        if let (true, 8, End::At(to), End::At(from)) = (moves, size_of::<N>(), to, from) {
            (0..rows).for_each(|y| move_bytes(to + y * p.to_pitch.into(), from + y * p.from_pitch.into(), w));
        }
        Ok(())
    })
}

fn volume<N: Copy + Into<u64>, P: Address>(call: &Call, p: In<Volume<N, P>>, s: u64, default: Default, host: Host) -> Answer {
    call.start(|driver| {
        let p = p.get();
        let stream = driver.stream(s, default);
        let of = |e: &End3<N, P>| end(e.kind, e.host, e.device);
        // Contexts stand in the newer functions' structure alone.
        let device = |context: u64| driver.contexts.get(context).filter(|_| size_of::<N>() == 8).map(|c| c.device);
        let rate = match (device(p.from.context), device(p.to.context)) {
            (Some(from), Some(to)) if from == to => D2D,
            (Some(_), Some(_)) => P2P,
            _ => driver.rate_between(of(&p.to), of(&p.from)),
        };
        driver.operate(stream, host, What::Copy, p.w.into() * p.h.into() * p.d.into(), rate).map(|_| ())
    })
}

fn several(call: &Call, to: In<u64>, from: In<u64>, n: In<u64>, count: usize, s: u64, default: Default) -> Answer {
    call.start(|driver| {
        let stream = Some(driver.stream_or(s, default, INVALID_CONTEXT)?);
        (0..count).try_for_each(|i| driver.copy(End::At(to.at(i)), End::At(from.at(i)), n.at(i), stream, GoesOn))
    })
}

fn volumes(call: &Call, o: In<Operation>, count: usize, s: u64, default: Default) -> Answer {
    call.start(|driver| {
        let stream = Some(driver.stream_or(s, default, INVALID_CONTEXT)?);
        (0..count).try_for_each(|i| {
            let o = o.at(i);
            let [to, from] = [o.to, o.from].map(|e| if e.is_array() { End::Array } else { End::At(e.at) });
            driver.operate(stream, GoesOn, What::Copy, o.w * o.h * o.d, driver.rate_between(to, from)).map(|_| ())
        })
    })
}

mod linear;
mod shaped;
pub use linear::FUNCTIONS as LINEAR;
pub use shaped::FUNCTIONS as SHAPED;
