//! Contexts and devices, as they are met: which device a context is on, and the number it has in the trace. Found by asking the driver for the
//! thread's current context at each call: programs get contexts in ways that pass no hook.

use super::call::{Call, ticket};
use super::libcuda::own;
use super::{cupti, green, lock, state, timing};
use crate::config::{CONFIG, GPU_CUPTI, GPU_EVENTS, GPU_WALL};
use crate::lane::{Hot, push};
use crate::text::Text;
use crate::{proc, sys};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use memshim_format::gpu::{self, NO_DEVICE, context, kind};
use memshim_format::record::{op, start};

/// Contexts at once at most; calls in further ones are recorded without a device.
pub const MOST: usize = 64;

/// A context: its handle (0: the place is free), its device, its number in the trace.
pub struct Context {
    pub handle: AtomicU64,
    pub device: AtomicU32,
    pub number: AtomicU32,
    /// Made by `cuCtxCreate`, or a green one; else the device's primary one.
    pub made: AtomicU32,
    /// Uses that it has beside its maker's.
    attached: AtomicU32,
}

/// All that are known.
pub static CONTEXTS: [Context; MOST] = [const {
    Context {
        handle: AtomicU64::new(0),
        device: AtomicU32::new(0),
        number: AtomicU32::new(0),
        made: AtomicU32::new(0),
        attached: AtomicU32::new(0),
    }
}; MOST];

/// Whether devices are told apart: a call can be about another one than the current context's.
pub fn are_on_several_devices() -> bool {
    let named = NAMED.load(Relaxed);
    named & named.wrapping_sub(1) != 0
}

static NUMBERS: AtomicU32 = AtomicU32::new(0);
/// Bit by device: its name is in the trace.
static NAMED: AtomicU64 = AtomicU64::new(0);

/// Who holds a device's primary context, as far as that is known: the program's calls by our hooks, and somebody past them (the runtime gets it
/// by a table of the driver's).
struct Holders {
    seen: AtomicU32,
    unseen: AtomicU32,
}

static HOLDERS: [Holders; MOST] = [const { Holders { seen: AtomicU32::new(0), unseen: AtomicU32::new(0) } }; MOST];

/// Where a call happens. Context 0: none.
#[derive(Clone, Copy)]
pub struct Place {
    pub device: u64,
    pub context: u64,
    /// Index in [`CONTEXTS`], [`MOST`] where there is none.
    pub slot: usize,
}

/// Nowhere known.
pub const NOWHERE: Place = Place { device: NO_DEVICE, context: 0, slot: MOST };

/// The handle of the thread's current context, 0 where there is none.
pub fn handle() -> u64 {
    let mut h = 0usize;
    // SAFETY: asks the driver.
    match own().context {
        // SAFETY: writes one handle.
        Some(f) if unsafe { f(&raw mut h) } == 0 => h as u64,
        _ => 0,
    }
}

/// The thread's current context.
pub fn current(hot: *mut Hot) -> Place {
    let h = handle();
    if h == 0 {
        return NOWHERE;
    }
    match known(h) {
        Some(p) => p,
        None => meet(hot, h),
    }
}

/// A context that has been met, by its handle.
pub fn known(h: u64) -> Option<Place> {
    let at = CONTEXTS.iter().position(|c| c.handle.load(Acquire) == h)?;
    CONTEXTS.get(at).map(|c| place(c, at))
}

pub fn place(c: &Context, slot: usize) -> Place {
    Place { device: c.device.load(Relaxed) as u64, context: c.number.load(Relaxed) as u64, slot }
}

/// A context seen for the first time; it is the thread's current one.
#[cold]
#[inline(never)]
fn meet(hot: *mut Hot, h: u64) -> Place {
    let mut device = NO_DEVICE as i32;
    sys::keep_errno(|| {
        if let Some(f) = own().device_of_context {
            // SAFETY: writes one number.
            unsafe { f(&raw mut device) };
        }
    });
    // SAFETY: this thread's hot; under the lock.
    let added = unsafe {
        lock::with(hot, || {
            if let Some(p) = known(h) {
                return (p, false);
            }
            let Some(at) = CONTEXTS.iter().position(|c| c.handle.load(Relaxed) == 0) else { return (NOWHERE, false) };
            let Some(c) = CONTEXTS.get(at) else { return (NOWHERE, false) };
            c.device.store(device as u32 & 0xff, Relaxed);
            c.number.store((NUMBERS.fetch_add(1, Relaxed) + 1) & 0xfff, Relaxed);
            c.made.store(green::is_of_one(h) as u32, Relaxed);
            c.attached.store(0, Relaxed);
            c.handle.store(h, Release);
            (place(c, at), true)
        })
    };
    let Some((place, new)) = added else { return NOWHERE };
    if new {
        if place.context == 1 {
            super::reaper::end_before_driver();
        }
        row(hot, place, context::SEEN, h, ticket());
        if green::is_of_one(h) {
            green::met(place);
        }
        name_device(hot, device);
        sys::keep_errno(|| state::look(hot, place, sys::now()));
        if cupti::is_wanted() {
            super::reaper::wake(hot);
        }
    }
    place
}

fn row(hot: *mut Hot, place: Place, what: u64, handle: u64, ticket: u64) {
    // SAFETY: this thread's hot.
    unsafe {
        push(
            hot,
            [start(op::GPU + kind::CONTEXT, gpu::NO_CALL, ticket), sys::now(), gpu::head(0, place.device, place.context, what), handle],
        );
    }
}

fn name_device(hot: *mut Hot, device: i32) {
    if !(0..64).contains(&device) || NAMED.fetch_or(1 << device, Relaxed) >> device & 1 == 1 {
        return;
    }
    // SAFETY: settings are read-only.
    let how: &[u8] = match unsafe { CONFIG.gpu } {
        // CUPTI says when it is there.
        GPU_EVENTS | GPU_CUPTI => b"events",
        GPU_WALL => b"wall",
        _ => b"off",
    };
    name(hot, gpu::name::TIMING, 0, how);
    super::frameworks::name_pools(hot);
    let mut text = [0u8; 64];
    let asked = sys::keep_errno(|| match own().device_name {
        // SAFETY: writes a zero-terminated name of at most 63 bytes.
        Some(f) => unsafe { f(text.as_mut_ptr().cast(), 63, device) },
        None => 1,
    });
    if asked == 0 {
        name(hot, gpu::name::DEVICE, device as u64, &text);
    }
    name_uuid(hot, device);
    name_link(hot, device);
}

/// Says which card it is: each process numbers those that it may see from 0 on.
fn name_uuid(hot: *mut Hot, device: i32) {
    /// Where the digits of a UUID are parted, in bytes.
    const PARTED: [usize; 4] = [4, 6, 8, 10];
    let mut uuid = [0u8; 16];
    let asked = sys::keep_errno(|| match own().device_uuid {
        // SAFETY: writes 16 bytes.
        Some(f) => unsafe { f(&raw mut uuid, device) },
        None => 1,
    });
    if asked != 0 || uuid == [0; 16] {
        return;
    }
    let mut text = [0u8; 48];
    let mut t = Text::over(&mut text);
    t.str("GPU-");
    for (i, byte) in uuid.into_iter().enumerate() {
        t.str(if PARTED.contains(&i) { "-" } else { "" }).hex8(byte);
    }
    name(hot, gpu::name::UUID, device as u64, &text);
}

/// Says where on the bus the device is, and what its link can do, where the kernel shows that.
fn name_link(hot: *mut Hot, device: i32) {
    let mut bus = [0u8; 32];
    let asked = sys::keep_errno(|| match own().device_bus {
        // SAFETY: writes a zero-terminated text of at most 31 bytes.
        Some(f) => unsafe { f(bus.as_mut_ptr().cast(), 31, device) },
        None => 1,
    });
    let len = bus.iter().position(|c| *c == 0).unwrap_or(0);
    if asked != 0 || len == 0 {
        return;
    }
    name(hot, gpu::name::BUS, device as u64, &bus);
    bus.make_ascii_lowercase();
    let bus = bus.get(..len).unwrap_or(b"");
    let read = |file: &str, into: &mut [u8]| {
        let mut path = [0u8; 128];
        Text::over(&mut path).str("/sys/bus/pci/devices/").bytes(bus).str("/").str(file).str("\0");
        // SAFETY: the path is zero-terminated.
        unsafe { proc::read_file(path.as_ptr(), into) }
    };
    let (mut speed, mut width) = ([0u8; 32], [0u8; 8]);
    let (n, m) = (read("max_link_speed", &mut speed), read("current_link_width", &mut width));
    if n == 0 || m == 0 {
        return;
    }
    let mut text = [0u8; 64];
    let mut t = Text::over(&mut text);
    t.bytes(speed.get(..n).unwrap_or(b"").trim_ascii()).str(" x").bytes(width.get(..m).unwrap_or(b"").trim_ascii());
    name(hot, gpu::name::LINK, device as u64, &text);
}

/// Leaves a NAME row: the text up to its first zero, cut where it is too long.
pub fn name(hot: *mut Hot, what: u64, number: u64, text: &[u8]) {
    let mut w = [0u64; 7];
    let n = text.iter().position(|c| *c == 0).unwrap_or(text.len());
    for (i, c) in text.iter().take(n.min(49)).enumerate() {
        if let Some(word) = w.get_mut(i / 7) {
            *word |= (*c as u64) << (8 * (i % 7));
        }
    }
    let [a, b, c, d, e, f, g] = w;
    // SAFETY: this thread's hot.
    unsafe { push(hot, [start(op::GPU + kind::NAME, what, number), a, b, c, d, e, f, g]) };
}

/// After `cuCtxCreate`: the new context is current, and not the primary one.
pub fn made(call: &Call) {
    let p = call.place();
    if let Some(c) = CONTEXTS.get(p.slot) {
        c.made.store(1, Relaxed);
    }
}

/// `cuCtxAttach`: one use more of the current context, which then ends with the last of them alone.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn attached(c: &Call) -> i32 {
    let place = c.place();
    // SAFETY: as called.
    let r = unsafe { c.make() };
    if let Some(of) = CONTEXTS.get(place.slot).filter(|_| r == 0) {
        of.attached.fetch_add(1, Relaxed);
    }
    r
}

/// Whether a context goes on when one use of it ends.
pub fn is_attached(place: Place) -> bool {
    CONTEXTS.get(place.slot).is_some_and(|c| c.attached.load(Relaxed) > 0)
}

/// One of its further uses has ended.
pub fn detached(place: Place) {
    if let Some(c) = CONTEXTS.get(place.slot) {
        let _ = c.attached.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1));
    }
}

/// Contexts that a call is about to end: the one of this handle, or the primary one of a device.
pub fn ending(handle: Option<u64>, device: u64) -> Option<Place> {
    let at = CONTEXTS.iter().position(|c| {
        let h = c.handle.load(Acquire);
        match handle {
            Some(wanted) => h == wanted && h != 0,
            None => h != 0 && c.made.load(Relaxed) == 0 && c.device.load(Relaxed) as u64 == device,
        }
    })?;
    CONTEXTS.get(at).map(|c| place(c, at))
}

/// The driver on the primary context of a device: whether it is there. `None`: it does not say.
fn primary_is_active(device: u64) -> Option<bool> {
    let (mut flags, mut active) = (0u32, 0i32);
    let r = sys::keep_errno(|| match own().primary_state {
        // SAFETY: writes two numbers.
        Some(f) => unsafe { f(device as i32, &raw mut flags, &raw mut active) },
        None => 1,
    });
    (r == 0).then_some(active != 0)
}

/// Whether the primary context of a device is gone.
pub fn primary_is_gone(device: u64) -> bool {
    primary_is_active(device) == Some(false)
}

/// A primary context is taken. One that is there though no hook saw anybody take it has a holder that is not seen.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn primary_retained(c: &Call) -> i32 {
    let device = c.int(1);
    let holders = HOLDERS.get(device as usize);
    if let Some(h) = holders.filter(|h| h.seen.load(Relaxed) == 0) {
        h.unseen.store((primary_is_active(device) == Some(true)) as u32, Relaxed);
    }
    // SAFETY: as called.
    let r = unsafe { c.make() };
    if let Some(h) = holders.filter(|_| r == 0) {
        h.seen.fetch_add(1, Relaxed);
    }
    r
}

/// How many hold the primary context of a device at least, while nobody has let it go past us.
pub fn holders(device: u64) -> u32 {
    HOLDERS.get(device as usize).map_or(0, |h| h.seen.load(Relaxed) + h.unseen.load(Relaxed))
}

/// One of those that were seen holds it no more.
pub fn primary_let_go(device: u64) {
    if let Some(h) = HOLDERS.get(device as usize) {
        let _ = h.seen.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1));
    }
}

fn forget_holders(device: u64) {
    if let Some(h) = HOLDERS.get(device as usize) {
        h.seen.store(0, Relaxed);
        h.unseen.store(0, Relaxed);
    }
}

/// The context has ended, with all that was in it.
pub fn ended(hot: *mut Hot, place: Place, ticket: u64) {
    if let Some(c) = CONTEXTS.get(place.slot) {
        memory_ended(hot, place, c.handle.load(Relaxed), ticket);
        left(hot, place);
        if c.made.load(Relaxed) == 0 {
            forget_holders(place.device);
            green::primary_ended(hot, place.device);
        }
    }
}

/// All memory of a context has ended.
pub fn memory_ended(hot: *mut Hot, place: Place, handle: u64, ticket: u64) {
    row(hot, place, context::END, handle, ticket);
    // SAFETY: this thread's hot.
    unsafe { super::ranges::remove_context(hot, place.context) };
}

/// Nobody can be in a context any more.
pub fn left(hot: *mut Hot, place: Place) {
    if let Some(c) = CONTEXTS.get(place.slot) {
        c.handle.store(0, Release);
        timing::context_ended(hot, place.slot);
        super::graphs::context_ended(place.slot);
    }
}

/// A forked child has none.
pub fn forget() {
    for c in &CONTEXTS {
        c.handle.store(0, Relaxed);
    }
    (0..MOST as u64).for_each(forget_holders);
    NAMED.store(0, Relaxed);
}

/// A call that could have ended the context did not: its ticket makes a row all the same.
pub fn goes_on(hot: *mut Hot, place: Place, ticket: u64) {
    row(hot, place, context::SEEN, CONTEXTS.get(place.slot).map_or(0, |c| c.handle.load(Relaxed)), ticket);
}

/// Device of a context by its handle, where it is known.
pub fn device_of(handle: u64) -> Option<u64> {
    if handle == 0 { None } else { known(handle).map(|p| p.device) }
}
