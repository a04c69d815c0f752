//! Copies and memsets in every form: how many bytes, which way, of what memory on the host's side, on which stream, how long the call took,
//! and (by [`timing`]) how long the device.

use super::call::{Call, Flavour, ticket};
use super::contexts::{self, Place};
use super::graphs::{self, Capture};
use super::libcuda::own;
use super::memory::{int_of, word_of};
use super::shape::Way;
use super::timing::{self, Told};
use super::{cupy, ranges, state};
use crate::sys;
use memshim_format::gpu::{NO_DEVICE, class, copy, direction, graph, kind, memory};

/// One end of a copy.
#[derive(Clone, Copy)]
struct Side {
    /// PAGEABLE, PINNED, MANAGED or DEVICE.
    memory: u64,
    device: u64,
}

impl Side {
    const fn device(device: u64) -> Side {
        Side { memory: memory::DEVICE, device }
    }

    fn is_host(self) -> bool {
        matches!(self.memory, memory::PAGEABLE | memory::PINNED)
    }
}

/// A copy as a whole.
#[derive(Clone, Copy)]
struct Copy {
    direction: u64,
    memory: u64,
    /// Device at the other end where there are two, + 1.
    peer: u64,
    bytes: u64,
    count: u64,
    flags: u64,
}

const MEMORY_TYPE: i32 = 2;
const IS_MANAGED: i32 = 8;
const ORDINAL: i32 = 9;

/// What an address is of: by what is known, else by asking the driver, which refuses ordinary host memory.
fn side(c: &Call, address: u64) -> Side {
    // SAFETY: this thread's hot.
    if let Some(known) = unsafe { ranges::find(c.hot, address) } {
        return match known.class {
            class::PINNED | class::REGISTERED => Side { memory: memory::PINNED, device: NO_DEVICE },
            class::MANAGED => Side { memory: memory::MANAGED, device: known.device },
            _ => Side::device(known.device),
        };
    }
    let ask = |what: i32| {
        let mut v = 0u64;
        sys::keep_errno(|| match own().pointer_attribute {
            // SAFETY: each of these attributes is at most eight bytes.
            Some(f) if unsafe { f((&raw mut v).cast(), what, address) } == 0 => Some(v & 0xffff_ffff),
            _ => None,
        })
    };
    match ask(MEMORY_TYPE) {
        Some(1) => Side { memory: memory::PINNED, device: NO_DEVICE },
        Some(2) => {
            let device = ask(ORDINAL).unwrap_or(NO_DEVICE) & 0xff;
            let managed = ask(IS_MANAGED).is_some_and(|v| v & 0xff != 0);
            Side { memory: if managed { memory::MANAGED } else { memory::DEVICE }, device }
        }
        _ => Side { memory: memory::PAGEABLE, device: NO_DEVICE },
    }
}

/// The device that a copy is of: an end's, where the current context's has no part in it.
fn on_device(place: Place, ends: [Side; 2]) -> Place {
    let known = || ends.iter().map(|s| s.device).filter(|d| *d != NO_DEVICE);
    let device = if known().any(|d| d == place.device) { place.device } else { known().next().unwrap_or(place.device) };
    Place { device, ..place }
}

/// A copy between two ends.
fn between(to: Side, from: Side, bytes: u64, place: Place) -> Copy {
    let (direction, memory) = match (from.is_host(), to.is_host()) {
        (true, true) => (direction::H2H, from.memory.min(to.memory)),
        (true, false) => (direction::H2D, from.memory),
        (false, true) => (direction::D2H, to.memory),
        (false, false) => {
            let two = from.device != to.device && from.device != NO_DEVICE && to.device != NO_DEVICE;
            let managed = from.memory == memory::MANAGED || to.memory == memory::MANAGED;
            (if two { direction::P2P } else { direction::D2D }, if managed { memory::MANAGED } else { memory::DEVICE })
        }
    };
    let other = if to.device == place.device { from.device } else { to.device };
    let peer = if direction == direction::P2P { other + 1 } else { 0 };
    Copy { direction, memory, peer, bytes, count: 1, flags: 0 }
}

/// Makes the call and leaves its rows: one for each of `copies`. Only where there is one of them is its time on the device known.
///
/// # Safety
/// The call is the program's, and has not been made.
unsafe fn perform(c: &Call, place: Place, stream: u64, flags: u64, copies: &[Copy]) -> i32 {
    let captured = if timing::wants_captures() { graphs::capture_of(stream) } else { Capture::No };
    let one = captured == Capture::No && copies.len() == 1;
    // What moves nothing on a device, or is moved by pages, CUPTI has no record of.
    let has_records = |k: &Copy| k.bytes > 0 && k.direction != direction::H2H && k.flags & copy::PREFETCH == 0;
    let told = match captured {
        Capture::No if one && copies.iter().all(has_records) => Told::Row,
        Capture::No if copies.iter().any(has_records) => Told::Stream,
        _ => Told::Nothing,
    };
    let watch = timing::Watch::begin(c.hot, place, stream, one, told);
    let t = sys::now();
    let c = &c.begun(t);
    // SAFETY: as called.
    let r = unsafe { c.make() };
    let end = if timing::wants_wall() { sys::now() } else { t };
    let wall = end - t;
    let (mut tk, by) = watch.end(r == 0);
    let (captured, id) = if let Capture::Yes(id) = captured { (copy::CAPTURED, id) } else { (0, 0) };
    for (i, k) in copies.iter().enumerate() {
        if i > 0 {
            tk = ticket();
        }
        let what = k.direction | k.memory << 4 | k.flags | flags | captured | by | (k.peer & 0xff) << 16;
        let wall = if i == 0 { wall } else { 0 };
        c.row5(kind::COPY, tk, c.head(r, place, what), [k.bytes, wall, stream, id, k.count]);
    }
    if captured == 0 {
        state::look(c.hot, place, end);
        cupy::called(end, false);
    }
    r
}

/// The stream of a call whose argument it is (0: it has none, and waits).
fn stream_and_flags(c: &Call, argument: u8) -> (u64, u64) {
    if argument == 0 { (c.default_stream(), 0) } else { (c.stream(argument as usize), copy::ASYNC) }
}

/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn linear(c: &Call, way: Way, to: u8, from: u8, bytes: u8, stream: u8) -> i32 {
    let mut place = c.place();
    let bytes = c.size(bytes as usize);
    let here = Side::device(place.device);
    // Host addresses are whole, also in the first ABI.
    let host = |i: u8| side(c, c.word(i as usize) as u64);
    // A managed address stands for either side.
    let as_host = |s: Side| if s.memory == memory::DEVICE { Side { memory: memory::PAGEABLE, ..s } } else { s };
    let with_host = |place: &mut Place, direction: u64, host_end: u8, device_end: u8| {
        if contexts::are_on_several_devices() && device_end < 9 {
            *place = on_device(*place, [side(c, c.size(device_end as usize)); 2]);
        }
        Copy { direction, memory: as_host(host(host_end)).memory, peer: 0, bytes, count: 1, flags: 0 }
    };
    let k = match way {
        Way::HtoD => with_host(&mut place, direction::H2D, from, to),
        Way::DtoH => with_host(&mut place, direction::D2H, to, from),
        Way::DtoD => {
            let end = |i: u8| if i < 9 { side(c, c.size(i as usize)) } else { here };
            let (to, from) = (end(to), end(from));
            let device = |s: Side| if s.is_host() { here } else { s };
            place = on_device(place, [device(to), device(from)]);
            between(device(to), device(from), bytes, place)
        }
        Way::Peer => {
            let device = |i: usize| Side::device(contexts::device_of(c.word(i) as u64).unwrap_or(place.device));
            between(device(to as usize + 1), device(from as usize + 1), bytes, place)
        }
        Way::Any => {
            let (to, from) = (host(to), host(from));
            place = on_device(place, [to, from]);
            between(to, from, bytes, place)
        }
    };
    let (stream, flags) = stream_and_flags(c, stream);
    // SAFETY: as called.
    unsafe { perform(c, place, stream, flags, &[k]) }
}

/// An end of a 2D or 3D copy: kind of memory, host address, device address, context of a peer copy.
fn end(c: &Call, place: Place, kind: u64, host: u64, device: u64, context: u64) -> Side {
    match kind & 0xffff_ffff {
        1 => side(c, host),
        4 => side(c, device),
        2 if context == 0 && contexts::are_on_several_devices() => Side::device(side(c, device).device),
        _ => Side::device(contexts::device_of(context).unwrap_or(place.device)),
    }
}

/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn plane(c: &Call, stream: u8) -> i32 {
    let (place, at) = (c.place(), c.word(0));
    let (to, from, bytes) = if c.entry.flavour == Flavour::Narrow {
        let from = end(c, place, int_of(at, 8), word_of(at, 16), int_of(at, 24), 0);
        let to = end(c, place, int_of(at, 52), word_of(at, 56), int_of(at, 64), 0);
        (to, from, int_of(at, 84) * int_of(at, 88))
    } else {
        let w = |i: usize| word_of(at, i * 8);
        (end(c, place, w(9), w(10), w(11), 0), end(c, place, w(2), w(3), w(4), 0), w(14).wrapping_mul(w(15)))
    };
    let (stream, flags) = stream_and_flags(c, stream.min(1));
    let place = on_device(place, [to, from]);
    // SAFETY: as called.
    unsafe { perform(c, place, stream, flags, &[between(to, from, bytes, place)]) }
}

/// Bytes of a copy in three dimensions.
pub fn bytes_of_volume(at: usize) -> u64 {
    let w = |i: usize| word_of(at, i * 8);
    w(22).wrapping_mul(w(23)).wrapping_mul(w(24))
}

/// A memset node: (address, pitch, value, element's bytes, width, height).
pub fn node_of_set(at: usize) -> Option<(u64, u64, u64)> {
    let bytes = int_of(at, 20).wrapping_mul(word_of(at, 24)).wrapping_mul(word_of(at, 32).max(1));
    Some((graph::ADD_SET, bytes, direction::MEMSET))
}

/// A copy node, whose parameters are a copy in three dimensions.
pub fn node_of_copy(c: &Call, at: usize) -> Option<(u64, u64, u64)> {
    let place = c.place();
    let w = |i: usize| word_of(at, i * 8);
    let (to, from) = (end(c, place, w(15), w(16), w(17), w(19)), end(c, place, w(4), w(5), w(6), w(8)));
    let k = between(to, from, bytes_of_volume(at), place);
    Some((graph::ADD_COPY, k.bytes, k.direction))
}

/// A node of any kind: kind, three reserved words, then the kind's parameters.
pub fn node(c: &Call, at: usize) -> Option<(u64, u64, u64)> {
    const COPY: u64 = 1;
    const SET: u64 = 2;
    const CHILD: u64 = 4;
    /// From here on: conditionals, whose bodies are filled later, and what no driver had yet.
    const CONDITIONAL: u64 = 13;
    if at == 0 {
        return None;
    }
    match int_of(at, 0) {
        // Behind flags and a context.
        COPY => node_of_copy(c, at + 32),
        SET => node_of_set(at + 16),
        CHILD => Some((graph::ADD_CHILD, word_of(at, 16), 0)),
        CONDITIONAL.. => Some((graph::ADD_UNKNOWN, 0, 0)),
        _ => None,
    }
}

/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn volume(c: &Call, stream: u8) -> i32 {
    let (place, at) = (c.place(), c.word(0));
    let (to, from, bytes) = if c.entry.flavour == Flavour::Narrow {
        let from = end(c, place, int_of(at, 16), word_of(at, 24), int_of(at, 32), 0);
        let to = end(c, place, int_of(at, 80), word_of(at, 88), int_of(at, 96), 0);
        (to, from, int_of(at, 128) * int_of(at, 132) * int_of(at, 136))
    } else {
        let w = |i: usize| word_of(at, i * 8);
        (end(c, place, w(15), w(16), w(17), w(19)), end(c, place, w(4), w(5), w(6), w(8)), bytes_of_volume(at))
    };
    let (stream, flags) = stream_and_flags(c, stream.min(1));
    let place = on_device(place, [to, from]);
    // SAFETY: as called.
    unsafe { perform(c, place, stream, flags, &[between(to, from, bytes, place)]) }
}

/// Copies of one call put together by direction and memory.
struct Groups {
    of: [Copy; 8],
    len: usize,
}

impl Groups {
    fn new() -> Groups {
        Groups { of: [Copy { direction: 0, memory: 0, peer: 0, bytes: 0, count: 0, flags: 0 }; 8], len: 0 }
    }

    fn add(&mut self, k: Copy) {
        let same = |g: &&mut Copy| (g.direction, g.memory, g.peer) == (k.direction, k.memory, k.peer);
        let len = self.len;
        let full = len == self.of.len();
        // Of more kinds than there are places the rest is counted with the last.
        if let Some(g) = self.of.iter_mut().take(len).find(same) {
            g.bytes += k.bytes;
            g.count += 1;
        } else if full {
            if let Some(g) = self.of.last_mut() {
                g.bytes += k.bytes;
                g.count += 1;
            }
        } else if let Some(g) = self.of.get_mut(len) {
            *g = k;
            self.len += 1;
        }
    }

    fn all(&self) -> &[Copy] {
        self.of.get(..self.len).unwrap_or(&[])
    }
}

/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn batch(c: &Call) -> i32 {
    let place = c.place();
    let [to, from, sizes, count] = [c.word(0), c.word(1), c.word(2), c.word(3)];
    // The first ABI has the place for a failure's index in front of the stream.
    let stream = c.stream(if c.entry.version >= 13000 { 7 } else { 8 });
    let mut groups = Groups::new();
    if to != 0 && from != 0 && sizes != 0 {
        for i in 0..count {
            let (to, from) = (side(c, word_of(to, i * 8)), side(c, word_of(from, i * 8)));
            groups.add(between(to, from, word_of(sizes, i * 8), place));
        }
    }
    // SAFETY: as called.
    unsafe { perform(c, place, stream, copy::ASYNC, groups.all()) }
}

/// Size of an operation of a batch in three dimensions, and of an end in it.
const OPERATION: usize = 112;
const END: usize = 40;

/// `count` copies in three dimensions: two ends (kind, then an address or an array), then the extent.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn volumes(c: &Call, at: usize, count: usize, stream: u64) -> i32 {
    let place = c.place();
    let mut groups = Groups::new();
    for i in 0..if at == 0 { 0 } else { count } {
        let o = at + i * OPERATION;
        let end = |at: usize| if int_of(at, 0) == 1 { side(c, word_of(at, 8)) } else { Side::device(place.device) };
        let extent = |i: usize| word_of(o, 2 * END + i * 8);
        let bytes = extent(0).wrapping_mul(extent(1).max(1)).wrapping_mul(extent(2).max(1));
        groups.add(between(end(o + END), end(o), bytes, place));
    }
    // SAFETY: as called.
    unsafe { perform(c, place, stream, copy::ASYNC, groups.all()) }
}

fn moved(to_device: bool, bytes: u64, count: u64) -> Copy {
    let direction = if to_device { direction::H2D } else { direction::D2H };
    Copy { direction, memory: memory::MANAGED, peer: 0, bytes, count, flags: copy::PREFETCH }
}

/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn prefetch(c: &Call) -> i32 {
    // The first ABI has a device's number (−1: the host), the second a location by value.
    let (to_device, stream) = if c.entry.version < 12020 { (c.int(2) as i32 >= 0, 3) } else { (c.int(2) == 1, 4) };
    let (place, stream) = (c.place(), c.stream(stream));
    // SAFETY: as called.
    unsafe { perform(c, place, stream, copy::ASYNC, &[moved(to_device, c.size(1), 1)]) }
}

/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn prefetch_batch(c: &Call) -> i32 {
    let place = c.place();
    let [sizes, count, locations] = [c.word(1), c.word(2), c.word(3)];
    let bytes = (0..if sizes == 0 { 0 } else { count }).fold(0u64, |sum, i| sum.wrapping_add(word_of(sizes, i * 8)));
    // SAFETY: as called.
    unsafe { perform(c, place, c.stream(7), copy::ASYNC, &[moved(int_of(locations, 0) == 1, bytes, count as u64)]) }
}

/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn set(c: &Call, bytes: u64, stream: u8) -> i32 {
    let to = side(c, c.size(0));
    let place = on_device(c.place(), [to; 2]);
    let k = Copy { direction: direction::MEMSET, memory: to.memory, peer: 0, bytes, count: 1, flags: 0 };
    let (stream, flags) = stream_and_flags(c, stream);
    // SAFETY: as called.
    unsafe { perform(c, place, stream, flags, &[k]) }
}
