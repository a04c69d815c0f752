//! Sizes of pymalloc's blocks: which addresses lie in its arenas, and what its pools say.
//!
//! Arenas come through a wrapper of the interpreter's arena allocator, so all of them are known. A pool's header says which of the size
//! classes its blocks have; it does not change while one of them is live. Pools are 4 KiB in arenas of 256 KiB up to 3.9, then 16 KiB in
//! arenas of 1 MiB. From 3.11 on the interpreter takes other memory there, too, in smaller pieces.

use crate::sys;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

/// `PyObjectArenaAllocator`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Arenas {
    ctx: *mut c_void,
    alloc: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, *mut c_void, usize),
}

type Exchange = unsafe extern "C" fn(*mut Arenas);

static mut INNER: Option<Arenas> = None;
/// Sizes of the interpreter's blocks can be told: it has pymalloc or malloc behind its allocators.
static KNOWN: AtomicBool = AtomicBool::new(false);
/// Steps between size classes, as a shift; bits of a pool's size.
static CLASS_SHIFT: AtomicU32 = AtomicU32::new(4);
static POOL_SHIFT: AtomicU32 = AtomicU32::new(14);

/// The smallest arena.
const ARENA: usize = 256 << 10;

/// Pages in arenas, a bit each: a piece of memory for each GiB of addresses.
struct Gib([AtomicU64; 4096]);
const GIBS: usize = 1 << 17;
static GIB: AtomicPtr<AtomicPtr<Gib>> = AtomicPtr::new(core::ptr::null_mut());

/// Index in a pool's header of the word that has the size class: after a word of counts, three pointers, and the arena's number.
const CLASS_AT: usize = 36;

/// Whether sizes can be told.
#[inline(always)]
pub fn are_known() -> bool {
    KNOWN.load(Relaxed)
}

/// Wraps the arena allocator. One thread; the interpreter has not begun.
///
/// # Safety
/// `get` and `set` are the interpreter's functions of these names.
pub unsafe fn settle(version: &[u8], get: Option<*const c_void>, set: Option<*const c_void>) {
    // Blocks of free-threaded builds are mimalloc's, which cannot be asked.
    let (Some(get), Some(set)) = (get, set) else { return };
    if version.windows(14).any(|w| w == b"free-threading") {
        return;
    }
    // Versions: `3.7.16 (…`.
    let small = version.get(3).is_none_or(|c| *c == b'.') && version.get(2).is_none_or(|c| *c <= b'9');
    POOL_SHIFT.store(if small { 12 } else { 14 }, Relaxed);
    let micro = version.get(4).map_or(9, |c| c.wrapping_sub(b'0'));
    let narrow = version.starts_with(b"3.7.") && micro < 4 && version.get(5).is_none_or(|c| !c.is_ascii_digit());
    CLASS_SHIFT.store(if narrow { 3 } else { 4 }, Relaxed);
    let p = sys::map_anon(GIBS * size_of::<AtomicPtr<Gib>>());
    if p.is_null() {
        return;
    }
    GIB.store(p.cast(), Release);
    // SAFETY: the caller's functions, which exchange structures.
    unsafe {
        let (get, set) = (core::mem::transmute::<*const c_void, Exchange>(get), core::mem::transmute::<*const c_void, Exchange>(set));
        let mut ours = Arenas { ctx: core::ptr::null_mut(), alloc, free };
        let mut theirs = ours;
        get(&raw mut theirs);
        ours.ctx = theirs.ctx;
        INNER = Some(theirs);
        set(&raw mut ours);
    }
    KNOWN.store(true, Relaxed);
}

/// Size of the live block at `p`, if it lies in an arena.
///
/// # Safety
/// `p` is a live block of the interpreter's.
#[inline(always)]
pub unsafe fn block_size(p: u64) -> Option<usize> {
    // SAFETY: a table of that many entries, once there; a page in an arena has its pool's header before it in the same arena.
    unsafe {
        if !are_known() {
            return None;
        }
        let gib = (*GIB.load(Relaxed).add((p >> 30) as usize % GIBS)).load(Acquire);
        let page = (p >> 12) as usize % (1 << 18);
        if gib.is_null() || (*gib).0.get_unchecked(page / 64).load(Relaxed) >> (page % 64) & 1 == 0 {
            return None;
        }
        let pool = p >> POOL_SHIFT.load(Relaxed) << POOL_SHIFT.load(Relaxed);
        let class = ((pool + CLASS_AT as u64) as *const u32).read();
        Some((class as usize + 1) << CLASS_SHIFT.load(Relaxed))
    }
}

unsafe extern "C" fn alloc(ctx: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: passed on as called; the wrapper is set after what it wraps is known.
    unsafe {
        let Some(inner) = &*(&raw const INNER) else { return core::ptr::null_mut() };
        let p = (inner.alloc)(ctx, size);
        if !p.is_null() && size >= ARENA {
            mark(p as u64, size, true);
        }
        p
    }
}

unsafe extern "C" fn free(ctx: *mut c_void, p: *mut c_void, size: usize) {
    // SAFETY: as above.
    unsafe {
        let Some(inner) = &*(&raw const INNER) else { return };
        if size >= ARENA {
            mark(p as u64, size, false);
        }
        (inner.free)(ctx, p, size);
    }
}

/// Notes pages of an arena that begins or ends.
fn mark(from: u64, size: usize, live: bool) {
    for page in from >> 12..(from + size as u64) >> 12 {
        // SAFETY: a table of that many entries; pieces stay.
        unsafe {
            let place = &*GIB.load(Relaxed).add((page >> 18) as usize % GIBS);
            let mut gib = place.load(Acquire);
            if gib.is_null() {
                let fresh: *mut Gib = sys::map_anon(size_of::<Gib>()).cast();
                if fresh.is_null() {
                    continue;
                }
                // Another interpreter's thread may be at it, too.
                gib = match place.compare_exchange(core::ptr::null_mut(), fresh, AcqRel, Acquire) {
                    Ok(_) => fresh,
                    Err(theirs) => theirs,
                };
            }
            let Some(word) = (*gib).0.get((page % (1 << 18)) as usize / 64) else { continue };
            let bit = 1 << (page % 64);
            if live {
                word.fetch_or(bit, Relaxed)
            } else {
                word.fetch_and(!bit, Relaxed)
            };
        }
    }
}
