//! What the driver says of a device's memory as a whole: free and total bytes, at the interval of the other samples, and what pools keep.
//! Asked on the program's threads, inside their own calls, where a context is current anyway; never while a graph is being captured.

use super::call::{Call, ticket};
use super::contexts::{self, Place};
use super::libcuda::own;
use super::{frameworks, graphs};
use crate::config::CONFIG;
use crate::lane::{Hot, push};
use crate::sys;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use memshim_format::gpu::{self, kind, state};
use memshim_format::record::{ARG_WORD, op, start};

static LAST_LOOK: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Pools that are watched: their handles, what was said of them last.
struct Pool {
    handle: AtomicU64,
    device: AtomicU32,
    high: AtomicU64,
    now: AtomicU64,
}

const POOLS: usize = 64;
static WATCHED: [Pool; POOLS] =
    [const { Pool { handle: AtomicU64::new(0), device: AtomicU32::new(0), high: AtomicU64::new(0), now: AtomicU64::new(0) } }; POOLS];

/// Blocks have gone back to pools, which may give the memory back to the device when the host next waits.
static FREED: AtomicU32 = AtomicU32::new(0);

const RESERVED_NOW: i32 = 5;
const RESERVED_HIGH: i32 = 6;
const USED_HIGH: i32 = 8;

fn row(hot: *mut Hot, place: Place, flags: u64, w: [u64; 3]) {
    let [a, b, c] = w.map(|w| w & ARG_WORD);
    let head = gpu::head(0, place.device, place.context, flags);
    // SAFETY: this thread's hot.
    unsafe { push(hot, [start(op::GPU + kind::STATE, gpu::NO_CALL, ticket()), sys::now(), head, a, b, c]) };
}

/// Free and total bytes of the current context's device, where the last look is an interval ago at `t`. `place`: the current one, of which the driver speaks.
pub fn look(hot: *mut Hot, place: Place, t: u64) {
    let Some(last) = LAST_LOOK.get(place.device as usize) else { return };
    let before = last.load(Relaxed);
    // SAFETY: settings are read-only.
    let interval = unsafe { CONFIG.interval_ns };
    if t < before + interval || graphs::is_capturing() || last.compare_exchange(before, t, Relaxed, Relaxed).is_err() {
        return;
    }
    frameworks::name_pools(hot);
    let (mut free, mut total) = (0usize, 0usize);
    let asked = sys::keep_errno(|| match own().memory_info {
        // SAFETY: writes two numbers.
        Some(f) => unsafe { f(&raw mut free, &raw mut total) },
        None => 1,
    });
    if asked == 0 {
        row(hot, place, state::VRAM, [free as u64, total as u64, 0]);
    }
}

/// The program asked by itself.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn asked(c: &Call) -> i32 {
    let place = c.place();
    // SAFETY: as called.
    let r = unsafe { c.make() };
    if r == 0 && c.word(0) != 0 && c.word(1) != 0 {
        row(c.hot, place, state::VRAM, [c.out(0, r), c.out(1, r), 0]);
        if let Some(last) = LAST_LOOK.get(place.device as usize) {
            last.store(c.t, Relaxed);
        }
    }
    r
}

/// Device of a pool that is watched.
pub fn device_of_pool(handle: u64) -> Option<u64> {
    let pool = WATCHED.iter().find(|p| p.handle.load(Relaxed) == handle && handle != 0)?;
    Some(pool.device.load(Relaxed) as u64).filter(|d| *d != gpu::NO_DEVICE)
}

/// A block came from a pool: of this handle, or (0) the device's current one.
pub fn pools_are_used(hot: *mut Hot, place: Place, pool: u64) {
    if graphs::is_capturing() {
        return;
    }
    let mut handle = pool as usize;
    if handle == 0 {
        sys::keep_errno(|| {
            if let Some(f) = own().device_pool {
                // SAFETY: writes a handle.
                unsafe { f(&raw mut handle, place.device as i32) };
            }
        });
    }
    if handle != 0 {
        poll(hot, place, handle as u64, false);
    }
}

/// What a pool has reserved at most; said where it has risen, or `always`.
fn poll(hot: *mut Hot, place: Place, handle: u64, always: bool) {
    let at = WATCHED.iter().position(|p| p.handle.load(Relaxed) == handle).or_else(|| {
        let free = |p: &Pool| p.handle.compare_exchange(0, handle, AcqRel, Relaxed).is_ok();
        WATCHED.iter().position(free)
    });
    let Some((at, pool)) = at.and_then(|at| Some((at, WATCHED.get(at)?))) else { return };
    pool.device.store(place.device as u32, Relaxed);
    let high = ask(handle, RESERVED_HIGH);
    if pool.high.swap(high, Relaxed) != high || always {
        let reserved = ask(handle, RESERVED_NOW);
        pool.now.store(reserved, Relaxed);
        row(hot, place, state::POOL | (at as u64) << 8, [ask(handle, USED_HIGH), high, reserved]);
    }
}

/// What the driver says of a pool; 0 where it does not.
fn ask(handle: u64, what: i32) -> u64 {
    let mut v = 0u64;
    sys::keep_errno(|| match own().pool_attribute {
        // SAFETY: writes one number.
        Some(f) if unsafe { f(handle as usize, what, &raw mut v) } == 0 => v,
        _ => 0,
    })
}

/// A block goes back to its pool.
pub fn pool_got_back() {
    FREED.store(1, Relaxed);
}

/// The host has waited: pools may have less than was said of them last.
pub fn pools_can_shrink(hot: *mut Hot) {
    if FREED.load(Relaxed) == 0 || graphs::is_capturing() || FREED.swap(0, Relaxed) == 0 {
        return;
    }
    for pool in &WATCHED {
        let handle = pool.handle.load(Relaxed);
        if handle != 0 && ask(handle, RESERVED_NOW) != pool.now.load(Relaxed) {
            poll(hot, Place { device: pool.device.load(Relaxed) as u64, ..contexts::NOWHERE }, handle, true);
        }
    }
}

/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn pool_created(c: &Call) -> i32 {
    let mut place = c.place();
    // SAFETY: as called.
    let r = unsafe { c.make() };
    if r == 0 {
        place.device = super::memory::device_of_properties(c.word(1)).unwrap_or(place.device);
    }
    // What the host has in pools is known by its blocks.
    if r == 0 && place.device != gpu::NO_DEVICE {
        poll(c.hot, place, c.out(0, r), false);
    }
    r
}

/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn pool_ends(c: &Call) -> i32 {
    let handle = c.word(0) as u64;
    let place = c.place();
    if let Some((at, p)) = WATCHED.iter().enumerate().find(|(_, p)| p.handle.load(Relaxed) == handle && handle != 0) {
        let place = Place { device: p.device.load(Relaxed) as u64, ..place };
        poll(c.hot, place, handle, false);
        row(c.hot, place, state::POOL | (at as u64) << 8, [0, 0, 0]);
        p.high.store(0, Relaxed);
        p.now.store(0, Relaxed);
        p.handle.store(0, Release);
    }
    // SAFETY: as called.
    unsafe { c.make() }
}

/// A pool is trimmed, or its high-water mark reset: what it said before is noted first.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn pool_changes(c: &Call) -> i32 {
    let handle = c.word(0) as u64;
    let known = WATCHED.iter().find(|p| p.handle.load(Relaxed) == handle && handle != 0);
    let place = Place { device: known.map_or(gpu::NO_DEVICE, |p| p.device.load(Relaxed) as u64), ..contexts::NOWHERE };
    if known.is_some() {
        poll(c.hot, place, handle, true);
    }
    // SAFETY: as called.
    let r = unsafe { c.make() };
    if known.is_some() {
        poll(c.hot, place, handle, true);
    }
    r
}

/// A forked child has none.
pub fn forget() {
    for p in &WATCHED {
        p.handle.store(0, Relaxed);
        p.high.store(0, Relaxed);
        p.now.store(0, Relaxed);
    }
    FREED.store(0, Relaxed);
    for l in &LAST_LOOK {
        l.store(0, Relaxed);
    }
}
