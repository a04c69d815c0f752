//! Copies and memsets in every form: how many bytes, which way, of what memory on the host's side, on which stream, how long the call took,
//! and (by [`timing`]) how long the device.

use super::call::{Call, Flavour, ticket};
use super::contexts::{self, Place};
use super::copies::{Copy, Groups, Side, between, end, in_context, on_device, side};
use super::graphs::{self, Capture};
use super::memory::{int_of, word_of};
use super::shape::Way;
use super::timing::{self, Outcome, Told};
use super::{cupy, state};
use crate::sys;
use memshim_format::gpu::{copy, direction, graph, kind, memory};

/// Makes the call and leaves its rows: of the copy that it is known to be, else one for each that `read` finds in what the program gave. That is read when
/// the driver has read it: where it refuses, it may not have looked at it. Only where there is one copy is its time on the device known.
///
/// # Safety
/// The call is the program's, and has not been made.
unsafe fn perform(c: &Call, here: Place, stream: u64, flags: u64, known: Option<Copy>, read: impl FnOnce() -> Groups) -> i32 {
    let captured = if timing::wants_captures() { graphs::capture_of(stream) } else { Capture::No };
    // Nor has CUPTI a record of what is moved by pages.
    let has_records = |k: &Copy| flags & copy::PREFETCH == 0 && k.has_records();
    let told = match captured {
        _ if flags & copy::PREFETCH != 0 || known.is_some_and(|k| !has_records(&k)) => Told::Nothing,
        Capture::No => Told::Row,
        _ => Told::Stream,
    };
    let watch = timing::Watch::begin(c.hot, here, stream, captured == Capture::No, told);
    let t = sys::now();
    let c = &c.begun(t);
    // SAFETY: as called.
    let r = unsafe { c.make() };
    let end = if timing::wants_wall() { sys::now() } else { t };
    let found;
    let copies = match &known {
        Some(k) => core::slice::from_ref(k),
        None if r == 0 => {
            found = read();
            found.all()
        }
        None => &[],
    };
    let outcome = match copies {
        _ if r != 0 => Outcome::Nothing,
        [] => Outcome::Nothing,
        [k] if has_records(k) => Outcome::One,
        [_] => Outcome::Unrecorded,
        _ => Outcome::Several,
    };
    let (mut tk, by) = watch.end(outcome);
    let (captured, id) = if let Capture::Yes(id) = captured { (copy::CAPTURED, id) } else { (0, 0) };
    // Its ticket makes a row also where nothing was copied.
    for (i, k) in if copies.is_empty() { &[Copy::NOTHING] } else { copies }.iter().enumerate() {
        let (wall, by) = if i == 0 { (end - t, by) } else { (0, 0) };
        if i > 0 {
            tk = ticket();
        }
        let what = k.direction | k.memory << 4 | flags | captured | by | (k.peer & 0xff) << 16;
        // The stream is the context's, whose device may be another.
        let head = c.head(r, Place { device: k.device, ..here }, what);
        c.row5(kind::COPY, tk, head, [k.bytes, wall, stream, id, k.count]);
    }
    if captured == 0 {
        state::look(c.hot, here, end);
        cupy::called(end, false);
    }
    r
}

/// The same of a copy that is known beforehand.
///
/// # Safety
/// As of [`perform`].
unsafe fn perform_known(c: &Call, here: Place, stream: u64, flags: u64, k: Copy) -> i32 {
    // SAFETY: as called.
    unsafe { perform(c, here, stream, flags, Some(k), Groups::new) }
}

/// The stream of a call whose argument it is (0: it has none, and waits).
fn stream_and_flags(c: &Call, argument: u8) -> (u64, u64) {
    if argument == 0 { (c.default_stream(), 0) } else { (c.stream(argument as usize), copy::ASYNC) }
}

/// A copy of bytes in a row.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn linear(c: &Call, way: Way, to: u8, from: u8, bytes: u8, stream: u8) -> i32 {
    let place = c.place();
    let bytes = c.size(bytes as usize);
    let here = Side::device(place.device);
    // Host addresses are whole, also in the first ABI.
    let host = |i: u8| side(c, c.word(i as usize) as u64);
    // A managed address stands for either side.
    let as_host = |s: Side| if s.memory == memory::DEVICE { Side { memory: memory::PAGEABLE, ..s } } else { s };
    let with_host = |direction: u64, host_end: u8, device_end: u8| {
        let device = match device_end {
            0..9 if contexts::are_on_several_devices() => on_device(place, [side(c, c.size(device_end as usize)); 2]),
            _ => place.device,
        };
        Copy { direction, memory: as_host(host(host_end)).memory, device, peer: 0, bytes, count: 1 }
    };
    let k = match way {
        Way::HtoD => with_host(direction::H2D, from, to),
        Way::DtoH => with_host(direction::D2H, to, from),
        Way::DtoD => {
            let end = |i: u8| if i < 9 { side(c, c.size(i as usize)) } else { here };
            let (to, from) = (end(to), end(from));
            let device = |s: Side| if s.is_host() { here } else { s };
            between(device(to), device(from), bytes, place)
        }
        Way::Peer => {
            let end = |i: u8| in_context(c, place, c.word(i as usize) as u64, c.word(i as usize + 1) as u64);
            between(end(to), end(from), bytes, place)
        }
        Way::Any => between(host(to), host(from), bytes, place),
    };
    let (stream, flags) = stream_and_flags(c, stream);
    // SAFETY: as called.
    unsafe { perform_known(c, place, stream, flags, k) }
}

/// A copy in two dimensions.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn plane(c: &Call, stream: u8) -> i32 {
    let (place, at) = (c.place(), c.word(0));
    let (stream, flags) = stream_and_flags(c, stream.min(1));
    let read = || {
        let (to, from, bytes) = if c.entry.flavour == Flavour::Narrow {
            let from = end(c, place, int_of(at, 8), word_of(at, 16), int_of(at, 24), 0);
            let to = end(c, place, int_of(at, 52), word_of(at, 56), int_of(at, 64), 0);
            (to, from, int_of(at, 84) * int_of(at, 88))
        } else {
            let w = |i: usize| word_of(at, i * 8);
            (end(c, place, w(9), w(10), w(11), 0), end(c, place, w(2), w(3), w(4), 0), w(14).wrapping_mul(w(15)))
        };
        Groups::of(between(to, from, bytes, place))
    };
    // SAFETY: as called.
    unsafe { perform(c, place, stream, flags, None, read) }
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

/// A copy in three dimensions.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn volume(c: &Call, stream: u8) -> i32 {
    let (place, at) = (c.place(), c.word(0));
    let (stream, flags) = stream_and_flags(c, stream.min(1));
    let read = || {
        let (to, from, bytes) = if c.entry.flavour == Flavour::Narrow {
            let from = end(c, place, int_of(at, 16), word_of(at, 24), int_of(at, 32), 0);
            let to = end(c, place, int_of(at, 80), word_of(at, 88), int_of(at, 96), 0);
            (to, from, int_of(at, 128).wrapping_mul(int_of(at, 132)).wrapping_mul(int_of(at, 136)))
        } else {
            let w = |i: usize| word_of(at, i * 8);
            (end(c, place, w(15), w(16), w(17), w(19)), end(c, place, w(4), w(5), w(6), w(8)), bytes_of_volume(at))
        };
        Groups::of(between(to, from, bytes, place))
    };
    // SAFETY: as called.
    unsafe { perform(c, place, stream, flags, None, read) }
}

/// Linear copies, by lists of their destinations, sources and sizes.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn batch(c: &Call) -> i32 {
    let place = c.place();
    let [to, from, sizes, count] = [c.word(0), c.word(1), c.word(2), c.word(3)];
    // The first ABI has the place for a failure's index in front of the stream.
    let stream = c.stream(if c.entry.version >= 13000 { 7 } else { 8 });
    let read = || {
        let mut groups = Groups::new();
        for i in 0..count {
            let (to, from) = (side(c, word_of(to, i * 8)), side(c, word_of(from, i * 8)));
            groups.add(between(to, from, word_of(sizes, i * 8), place));
        }
        groups
    };
    // SAFETY: as called.
    unsafe { perform(c, place, stream, copy::ASYNC, None, read) }
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
    let read = || {
        let mut groups = Groups::new();
        for i in 0..if at == 0 { 0 } else { count } {
            let o = at + i * OPERATION;
            let end = |at: usize| if int_of(at, 0) == 1 { side(c, word_of(at, 8)) } else { Side::device(place.device) };
            let extent = |i: usize| word_of(o, 2 * END + i * 8);
            let bytes = extent(0).wrapping_mul(extent(1).max(1)).wrapping_mul(extent(2).max(1));
            groups.add(between(end(o + END), end(o), bytes, place));
        }
        groups
    };
    // SAFETY: as called.
    unsafe { perform(c, place, stream, copy::ASYNC, None, read) }
}

/// Managed memory that is moved to a place (a kind, where 1 is a device, and its number), or there already.
fn moved(c: &Call, here: Place, address: u64, bytes: u64, (kind, number): (u64, u64)) -> Copy {
    const ON_DEVICE: u64 = 1;
    let (direction, device) = match kind {
        ON_DEVICE => (direction::H2D, number & 0xff),
        _ if contexts::are_on_several_devices() => (direction::D2H, on_device(here, [side(c, address); 2])),
        _ => (direction::D2H, here.device),
    };
    Copy { direction, memory: memory::MANAGED, device, peer: 0, bytes, count: 1 }
}

/// Managed memory is asked to be somewhere before it is used.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn prefetch(c: &Call) -> i32 {
    // The first ABI has a device's number (−1: the host), the second a location by value.
    let (to, stream) =
        if c.entry.version < 12020 { (((c.int(2) as i32 >= 0) as u64, c.int(2)), 3) } else { ((c.int(2), c.word(2) as u64 >> 32), 4) };
    let (place, stream) = (c.place(), c.stream(stream));
    let k = moved(c, place, c.size(0), c.size(1), to);
    // SAFETY: as called.
    unsafe { perform_known(c, place, stream, copy::ASYNC | copy::PREFETCH, k) }
}

/// The same of several ranges: addresses, sizes, how many; places, the first range of each, how many.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn prefetch_batch(c: &Call) -> i32 {
    let place = c.place();
    let [addresses, sizes, count, places, firsts, number] = [0, 1, 2, 3, 4, 5].map(|i| c.word(i));
    let read = || {
        let mut groups = Groups::new();
        let mut at = 0;
        for i in 0..count {
            while at + 1 < number && word_of(firsts, (at + 1) * 8) <= i as u64 {
                at += 1;
            }
            let to = (int_of(places, at * 8), int_of(places, at * 8 + 4));
            groups.add(moved(c, place, word_of(addresses, i * 8), word_of(sizes, i * 8), to));
        }
        groups
    };
    // SAFETY: as called.
    unsafe { perform(c, place, c.stream(7), copy::ASYNC | copy::PREFETCH, None, read) }
}

/// Bytes of a device that are set.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn set(c: &Call, bytes: u64, stream: u8) -> i32 {
    let (place, to) = (c.place(), side(c, c.size(0)));
    let device = on_device(place, [to; 2]);
    let k = Copy { direction: direction::MEMSET, memory: to.memory, device, peer: 0, bytes, count: 1 };
    let (stream, flags) = stream_and_flags(c, stream);
    // SAFETY: as called.
    unsafe { perform_known(c, place, stream, flags, k) }
}
