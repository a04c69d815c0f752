//! A CUDA driver of our own, for tests only: memory in the host's RAM, streams on a clock that only waiting moves. `link` makes `libcuda.so.1` of it, of
//! any version, and with it `libcupti.so.13`.
//!
//! Every operation of a stream begins when the one before it has ended and takes its latency and its bytes by the bandwidth of its kind, so what
//! a program asked for has one length in nanoseconds, whatever the machine does meanwhile. The clock moves when the host waits (a
//! synchronous copy, a synchronisation, `fake_sleep`, `fake_follow`), never by itself and never by a question. Result codes are the driver's. What a program
//! gets for a stream, an event, a graph … is a number that tells which of the driver's lists it is in and where: none is ever given out twice.
//!
//! Functions are called by programs in C: arguments that no test looks at are named as in the API and left alone. A function that calls another one calls it by
//! its exported name, so a library in front of the driver sees that, unless the driver is linked to itself. The driver's moods come from the environment:
//!
//! - `FAKE_STARVED`: threads but the first get no processor for ten seconds
//! - `FAKE_BUS`: where device 0 is on the bus; without it no device is anywhere
//! - `FAKE_UUID`: the UUID of device 0 in 32 hexadecimal digits; with anything else it has none
//! - `FAKE_LAGS`: events of streams that have had no work are done so many questions later
//! - `FAKE_SPLITS`: copies to the device of more bytes are made in halves
#![allow(clippy::too_many_arguments)] // as the API has them

mod arguments;
mod arrays;
mod call;
mod captures;
mod clock;
mod contexts;
mod copies;
mod cupti;
mod device;
mod events;
mod graphs;
mod kernels;
mod layouts;
mod list;
mod lookup;
mod memory;
mod physical;
mod pools;
mod sets;
mod shared;
mod streams;
mod tap;

/// What the API answers, other than 0.
mod code {
    pub const INVALID_VALUE: i32 = 1;
    pub const OUT_OF_MEMORY: i32 = 2;
    pub const NOT_INITIALIZED: i32 = 3;
    pub const INVALID_DEVICE: i32 = 101;
    pub const INVALID_CONTEXT: i32 = 201;
    pub const INVALID_HANDLE: i32 = 400;
    pub const NOT_FOUND: i32 = 500;
    pub const NOT_READY: i32 = 600;
    pub const NOT_REGISTERED: i32 = 713;
    pub const CAPTURE_UNSUPPORTED: i32 = 900;
    pub const CAPTURE_INVALIDATED: i32 = 901;
    pub const CAPTURE_UNMATCHED: i32 = 903;
    pub const CAPTURE_IMPLICIT: i32 = 906;
    pub const CAPTURED_EVENT: i32 = 907;
}

/// What a function of the API does: nothing to say, or a code.
type Answer = Result<(), i32>;

const DEVICES: usize = 3;
