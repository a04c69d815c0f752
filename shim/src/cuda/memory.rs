//! Device and page-locked memory: allocations, frees, mappings of physical memory, and contexts, with which all that is in them ends.
//!
//! A free takes its ticket before the real call and an allocation after, as everywhere; its row is left when the result is known.

use super::call::{Call, ticket};
use super::contexts;
use super::libcuda::own;
use super::shape::Form;
use super::{cupti, cupy, graphs, ranges, state, streams, timing};
use crate::sys;
use memshim_format::gpu::{NO_DEVICE, class, kind, map};

/// What an allocation amounts to.
struct Got {
    class: u64,
    address: u64,
    bytes: u64,
    /// Pool or stream.
    from: u64,
}

/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn alloc(c: &Call, form: Form) -> i32 {
    let here = c.place();
    let mut place = here;
    let capture = match form {
        Form::Async => graphs::capture_under_way(c.stream(2)),
        Form::FromPool => graphs::capture_under_way(c.stream(3)),
        _ => None,
    };
    // SAFETY: as called.
    let r = unsafe { c.make() };
    if let Some(capture) = capture.filter(|_| r == 0) {
        let got = got(c, form, r);
        graphs::captured_alloc(c, capture, got.address, got.bytes);
        return r;
    }
    let tk = ticket();
    let mut got = got(c, form, r);
    match form {
        Form::Handle if r == 0 => place.device = device_of_properties(c.word(2)).unwrap_or(here.device),
        Form::FromPool if r == 0 => match state::device_of_pool(got.from) {
            Some(device) => place.device = device,
            None if is_of_host(got.address) => (got.class, place.device) = (class::PINNED, NO_DEVICE),
            None => place.device = device_of(got.address).unwrap_or(here.device),
        },
        // The stream can be another device's.
        Form::Async if r == 0 && contexts::are_on_several_devices() => place.device = device_of(got.address).unwrap_or(here.device),
        _ => {}
    }
    c.row3(kind::ALLOC, tk, c.head(r, place, got.class), [got.address, got.bytes, got.from]);
    let is_address = !matches!(got.class, class::HANDLE | class::IMPORTED_HANDLE | class::ARRAY | class::MIPMAP | class::EXTERNAL);
    let seen = if form == Form::ExternalBuffer && r == 0 { word_of(c.word(2), 8) } else { got.bytes };
    if r == 0 && is_address && got.address != 0 && seen != 0 {
        // SAFETY: this thread's hot.
        unsafe { ranges::add(c.hot, got.address, seen, got.class, place.device, place.context) };
    }
    if got.class == class::POOL && r == 0 {
        state::pools_are_used(c.hot, place, if form == Form::FromPool { got.from } else { 0 });
    }
    state::look(c.hot, here, c.t);
    cupy::called(c.t, true);
    r
}

/// What the program gave by pointers the driver may not have read where it refuses: then neither is it here, and the size is 0.
fn got(c: &Call, form: Form, r: i32) -> Got {
    let got = |class, bytes| Got { class, address: c.out(0, r), bytes, from: 0 };
    let given = |bytes: &dyn Fn() -> u64| if r == 0 { bytes() } else { 0 };
    match form {
        Form::Linear => got(class::DEVICE, c.size(1)),
        Form::Pitch => got(class::DEVICE, c.out(1, r).max(c.size(2)) * c.size(3)),
        Form::Managed => got(class::MANAGED, c.size(1)),
        Form::Async => Got { from: c.stream(2), ..got(class::POOL, c.size(1)) },
        Form::FromPool => Got { from: c.word(2) as u64, ..got(class::POOL, c.size(1)) },
        // The address is the host's own: whole, also in the first ABI.
        Form::Host => Got { address: pointer(c.word(0), r), ..got(class::PINNED, c.size(1)) },
        Form::Register => Got { address: c.word(0) as u64, ..got(class::REGISTERED, c.size(1)) },
        Form::Array2 => Got { address: pointer(c.word(0), r), ..got(class::ARRAY, given(&|| bytes_of_array(c.word(1), 2, c))) },
        Form::Array3 => Got { address: pointer(c.word(0), r), ..got(class::ARRAY, given(&|| bytes_of_array(c.word(1), 3, c))) },
        Form::Mipmap => got(class::MIPMAP, given(&|| bytes_of_mipmap(c))),
        Form::Handle => got(class::HANDLE, c.size(1)),
        Form::ImportHandle => got(class::IMPORTED_HANDLE, 0),
        Form::Ipc => got(class::IPC, size_of(c.out(0, r))),
        Form::External => got(class::EXTERNAL, given(&|| word_of(c.word(1), 24))),
        // Views of what counts as imported, and a name for memory of several devices: none of their own.
        Form::ExternalBuffer => got(class::DEVICE, 0),
        Form::ExternalMipmap => got(class::MIPMAP, 0),
        Form::PoolPointer => got(class::IPC, size_of(c.out(0, r))),
        Form::Multicast => got(class::HANDLE, 0),
    }
}

fn pointer(at: usize, r: i32) -> u64 {
    // SAFETY: a call that succeeded has written a pointer there.
    if r == 0 && at != 0 { unsafe { (at as *const u64).read_unaligned() } } else { 0 }
}

/// Eight bytes of a structure of the program's.
pub fn word_of(at: usize, offset: usize) -> u64 {
    // SAFETY: a structure that the program gave to the driver, whose type has these bytes.
    if at == 0 { 0 } else { unsafe { ((at + offset) as *const u64).read_unaligned() } }
}

/// Four bytes.
pub fn int_of(at: usize, offset: usize) -> u64 {
    // SAFETY: as for word_of.
    if at == 0 { 0 } else { unsafe { ((at + offset) as *const u32).read_unaligned() as u64 } }
}

/// Device of a physical allocation or a pool by its properties, two kinds and then the location: [`NO_DEVICE`] on the host, `None` where that says
/// neither (a part of a device, managed memory of no preferred place).
pub fn device_of_properties(at: usize) -> Option<u64> {
    match int_of(at, 8) {
        1 => Some(int_of(at, 12) & 0xff),
        // The host, a node of it, the thread's node.
        2..=4 => Some(NO_DEVICE),
        _ => None,
    }
}

/// Whether memory at an address is the host's, by the driver.
fn is_of_host(address: u64) -> bool {
    const MEMORY_TYPE: i32 = 2;
    let mut kind = 0u64;
    sys::keep_errno(|| match own().pointer_attribute {
        // SAFETY: writes a number of four bytes.
        Some(f) => unsafe { f((&raw mut kind).cast(), MEMORY_TYPE, address) == 0 && kind == 1 },
        None => false,
    })
}

/// Device of an address, by the driver.
fn device_of(address: u64) -> Option<u64> {
    const ORDINAL: i32 = 9;
    let mut device = 0u64;
    sys::keep_errno(|| match own().pointer_attribute {
        // SAFETY: writes a number of four bytes.
        Some(f) if unsafe { f((&raw mut device).cast(), ORDINAL, address) } == 0 => Some(device & 0xff),
        _ => None,
    })
}

/// Bytes of the allocation that an address is in, by the driver; 0 where it does not say.
fn size_of(address: u64) -> u64 {
    let (mut base, mut bytes) = (0u64, 0usize);
    let asked = sys::keep_errno(|| match own().address_range {
        // SAFETY: writes two numbers.
        Some(f) if address != 0 => unsafe { f(&raw mut base, &raw mut bytes, address) },
        _ => 1,
    });
    if asked == 0 { bytes as u64 } else { 0 }
}

/// Device of a physical allocation by its handle: also one that was imported. [`NO_DEVICE`] where it lies on the host.
fn device_of_handle(handle: u64) -> Option<u64> {
    // 32 bytes so far.
    let mut properties = [0u64; 16];
    let asked = sys::keep_errno(|| match own().handle_properties {
        // SAFETY: writes the properties, for which there is more room than they take.
        Some(f) => unsafe { f(properties.as_mut_ptr().cast(), handle) },
        None => 1,
    });
    if asked == 0 { device_of_properties(properties.as_ptr() as usize) } else { None }
}

/// Bytes of an element of an array by its format, 0 where that is not known.
fn bytes_of_format(format: u64) -> u64 {
    match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => 0,
    }
}

/// width × height × depth × channels × element, without the driver's padding; what has no memory of its own (sparse, mapped later) is 0.
fn extent(at: usize, dimensions: usize, c: &Call) -> [u64; 5] {
    let narrow = c.entry.flavour == super::call::Flavour::Narrow;
    let step = if narrow { 4 } else { 8 };
    let size = |i: usize| if narrow { int_of(at, i * 4) } else { word_of(at, i * 8) };
    let after = dimensions * step;
    let depth = if dimensions == 3 { size(2) } else { 1 };
    let flags = if dimensions == 3 { int_of(at, after + 8) } else { 0 };
    let element = bytes_of_format(int_of(at, after)) * int_of(at, after + 4);
    [size(0), size(1), depth, element, flags]
}

const SPARSE_OR_DEFERRED: u64 = 0x40 | 0x80;

fn bytes_of_array(at: usize, dimensions: usize, c: &Call) -> u64 {
    let [w, h, d, element, flags] = extent(at, dimensions, c);
    if flags & SPARSE_OR_DEFERRED != 0 { 0 } else { w * h.max(1) * d.max(1) * element }
}

fn bytes_of_mipmap(c: &Call) -> u64 {
    let [mut w, mut h, mut d, element, flags] = extent(c.word(1), 3, c);
    let layered = flags & 1 != 0;
    let mut sum = 0u64;
    for _ in 0..c.int(2).min(32) {
        sum += w * h.max(1) * d.max(1) * element;
        w = (w / 2).max(1);
        h /= 2;
        d = if layered { d } else { d / 2 };
    }
    if flags & SPARSE_OR_DEFERRED != 0 { 0 } else { sum }
}

/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn free(c: &Call, class: u64) -> i32 {
    let place = c.place();
    let address = c.size(0);
    let address = if matches!(class, class::PINNED | class::REGISTERED | class::ARRAY) { c.word(0) as u64 } else { address };
    let is_address = !matches!(class, class::HANDLE | class::ARRAY | class::MIPMAP | class::EXTERNAL);
    let capture = if class == class::POOL { graphs::capture_under_way(c.stream(1)) } else { None };
    if let Some(capture) = capture {
        // SAFETY: as called.
        let r = unsafe { c.make() };
        if r == 0 {
            graphs::captured_free(c, capture, address);
        } else {
            c.row2(kind::FREE, ticket(), c.head(r, place, class), [address, c.stream(1)]);
        }
        return r;
    }
    let tk = ticket();
    // SAFETY: this thread's hot; as called.
    unsafe {
        let was = if is_address { ranges::remove(c.hot, address) } else { None };
        let r = c.make();
        // A pool's block can go by an ordinary free too.
        if class == class::POOL || was == Some(class::POOL) {
            state::pool_got_back();
        }
        let stream = if class == class::POOL { c.stream(1) } else { 0 };
        c.row2(kind::FREE, tk, c.head(r, place, class), [address, stream]);
        r
    }
}

/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn map(c: &Call) -> i32 {
    let mut place = c.place();
    // SAFETY: as called; this thread's hot.
    unsafe {
        let r = c.make();
        let (address, bytes, handle) = (c.size(0), c.size(1), c.word(3) as u64);
        if r == 0 {
            let told = device_of_handle(handle);
            let class = if told == Some(NO_DEVICE) { class::PINNED } else { class::DEVICE };
            place.device = told.unwrap_or(place.device);
            ranges::add(c.hot, address, bytes, class, place.device, place.context);
        }
        c.row3(kind::MAP, ticket(), c.head(r, place, map::MAP), [handle, address, bytes]);
        r
    }
}

/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn unmap(c: &Call) -> i32 {
    let place = c.place();
    let tk = ticket();
    let (address, bytes) = (c.size(0), c.size(1));
    // SAFETY: as called; this thread's hot.
    unsafe {
        ranges::remove_within(c.hot, address, bytes);
        let r = c.make();
        c.row3(kind::MAP, tk, c.head(r, place, map::UNMAP), [0, address, bytes]);
        r
    }
}

/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn retain(c: &Call) -> i32 {
    let place = c.place();
    // SAFETY: as called.
    let r = unsafe { c.make() };
    c.row3(kind::MAP, ticket(), c.head(r, place, map::RETAIN), [c.out(0, r), c.word(1) as u64, 0]);
    r
}

/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn context_created(c: &Call) -> i32 {
    // SAFETY: as called.
    let r = unsafe { c.make() };
    if r == 0 {
        contexts::made(c);
    }
    r
}

/// One use of a context ends, and the last one ends it.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn context_detached(c: &Call) -> i32 {
    let handle = c.word(0) as u64;
    let Some(place) = contexts::ending(Some(handle), 0).filter(|p| contexts::is_attached(*p)) else {
        // SAFETY: as called.
        return unsafe { context_ends(c, Some(handle)) };
    };
    // SAFETY: as called.
    let r = unsafe { c.make() };
    if r == 0 {
        contexts::detached(place);
    }
    r
}

/// A device's primary context is let go. Where others hold it still it goes on, and nothing is waited for but that nobody of ours is in it.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn primary_released(c: &Call) -> i32 {
    let device = c.int(0);
    let held = contexts::holders(device) > 1;
    let Some(place) = contexts::ending(None, device).filter(|_| held) else {
        // SAFETY: as called.
        let r = unsafe { context_ends(c, None) };
        if r == 0 {
            contexts::primary_let_go(device);
        }
        return r;
    };
    timing::drain_context(c.hot, place, 0);
    let tk = ticket();
    // SAFETY: as called.
    let r = unsafe { c.make() };
    if r == 0 {
        contexts::primary_let_go(device);
    }
    if r == 0 && contexts::primary_is_gone(device) {
        streams::context_ends(c.hot, place);
        contexts::ended(c.hot, place, tk);
    } else {
        timing::context_goes_on(place.slot);
        contexts::goes_on(c.hot, place, tk);
    }
    r
}

/// A context is destroyed (by its handle), or a device's primary one is reset or let go for good. The work in it that is being timed is waited for
/// first, and the events that time it go before it does.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn context_ends(c: &Call, handle: Option<u64>) -> i32 {
    let device = c.int(0);
    let Some(place) = contexts::ending(handle, device) else {
        // SAFETY: as called.
        return unsafe { c.make() };
    };
    cupti::drain();
    timing::drain_context(c.hot, place, timing::PATIENCE_NS);
    streams::context_ends(c.hot, place);
    let tk = ticket();
    // SAFETY: as called.
    let r = unsafe { c.make() };
    if r == 0 && (handle.is_some() || contexts::primary_is_gone(device)) {
        contexts::ended(c.hot, place, tk);
    } else {
        timing::context_goes_on(place.slot);
        contexts::goes_on(c.hot, place, tk);
    }
    r
}
