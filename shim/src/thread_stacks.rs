//! Stacks of threads. glibc maps them inside itself, where no hook sees it; but a thread's handle lies at the upper end of its stack, and
//! the attributes say how large that is. So a stack becomes a mapping of its own kind when its thread is made, and ends when the thread
//! does: told by the thread itself, where it has a lane, else seen by the writer, since the kernel clears the thread's id in its control
//! block. (glibc keeps some such mappings for later threads; they are no stacks meanwhile.)
//!
//! Not for: stacks that the program provides, which are maps or blocks already; the first thread's, which the kernel grows and
//! `/proc/self/status` tells; other C libraries.

use crate::callers;
use crate::hooks::maps::ticket;
use crate::lane::{Hot, push};
use crate::real;
use crate::sys::{self, PAGE, sys};
use crate::unwind::reach;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use memshim_format::record::{op, start};

/// Kind of a map row, and what it is made with.
const KIND: u64 = 8;
const FLAGS: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK) as u64;

/// Stacks that are known at once; of further ones nothing is recorded.
const PLACES: usize = 8192;

/// One stack. Its handle stays after its end, with its length: where glibc uses a stack again for a thread that wants less, it is as large.
struct Place {
    /// `pthread_t` of its thread, 0 never used.
    handle: AtomicU64,
    /// Bytes with the guard.
    len: AtomicU64,
    /// Turn of [`reap`] in which it began, plus one; 0 it has ended.
    since: AtomicU32,
}

static PLACES_KNOWN: [Place; PLACES] =
    [const { Place { handle: AtomicU64::new(0), len: AtomicU64::new(0), since: AtomicU32::new(0) } }; PLACES];
/// How many of them have a stack that lives.
static LIVING: AtomicU32 = AtomicU32::new(0);
static TURN: AtomicU32 = AtomicU32::new(1);

type InitAttributes = unsafe extern "C" fn(*mut c_void) -> c_int;
type GetSize = unsafe extern "C" fn(*const c_void, *mut usize) -> c_int;
type GetStack = unsafe extern "C" fn(*const c_void, *mut *mut c_void, *mut usize) -> c_int;

/// glibc's own functions, which only read and write the attributes.
struct Attributes {
    init: InitAttributes,
    guard: GetSize,
    size: GetSize,
    stack: GetStack,
    /// Where a thread's id stands in its control block.
    tid_at: u64,
}
static mut ATTRIBUTES: Option<Attributes> = None;

/// Finds what is needed; without it no stack is recorded. One thread.
pub fn settle() {
    let find = |name: &[u8]| Some(real::default(name)).filter(|p| !p.is_null());
    // SAFETY: the functions have these types in glibc; one thread.
    unsafe {
        ATTRIBUTES = None;
        let all = (
            find(b"gnu_get_libc_version"),
            find(b"pthread_attr_init"),
            find(b"pthread_attr_getguardsize"),
            find(b"pthread_attr_getstacksize"),
            find(b"pthread_attr_getstack"),
        );
        if let (Some(_), Some(init), Some(guard), Some(size), Some(stack)) = all
            && let Some(tid_at) = find_tid()
        {
            ATTRIBUTES = Some(Attributes {
                init: core::mem::transmute::<*const c_void, InitAttributes>(init),
                guard: core::mem::transmute::<*const c_void, GetSize>(guard),
                size: core::mem::transmute::<*const c_void, GetSize>(size),
                stack: core::mem::transmute::<*const c_void, GetStack>(stack),
                tid_at,
            });
        }
    }
}

/// Where this thread's id stands in its control block, if it stands there once.
fn find_tid() -> Option<u64> {
    let (base, tid) = (sys::thread_block() as *const u32, sys::gettid());
    // SAFETY: the block is longer than that in every glibc.
    let mut hits = (32..256).filter(|i| unsafe { base.add(*i).read_volatile() } == tid);
    let first = hits.next()?;
    if hits.next().is_none() { Some(first as u64 * 4) } else { None }
}

/// A forked child has the stack it runs on and no other thread's.
pub fn forget() {
    if LIVING.swap(0, Relaxed) > 0 {
        for place in &PLACES_KNOWN {
            if place.handle.load(Relaxed) != 0 {
                place.since.store(0, Relaxed);
            }
        }
    }
}

/// Where a handle may stand: places after one another, from one that its address says.
fn places(handle: u64) -> impl Iterator<Item = &'static Place> {
    let from = ((handle >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 51) as usize;
    (0..PROBES).filter_map(move |i| PLACES_KNOWN.get((from + i) % PLACES))
}
const PROBES: usize = 64;

/// The place of a handle, or a new one. Two threads never ask for the same handle at once: it is of a thread that is being made.
fn place_of(handle: u64) -> Option<&'static Place> {
    for place in places(handle) {
        let there = place.handle.load(Acquire);
        if there == handle || there == 0 && place.handle.compare_exchange(0, handle, AcqRel, Relaxed).is_ok() {
            return Some(place);
        }
    }
    // All were used: one whose stack has ended.
    places(handle).find(|place| {
        let old = place.handle.load(Relaxed);
        let taken = place.since.load(Acquire) == 0 && place.handle.compare_exchange(old, handle, AcqRel, Relaxed).is_ok();
        if taken {
            place.len.store(0, Relaxed);
        }
        taken
    })
}

fn known(handle: u64) -> Option<&'static Place> {
    places(handle).take_while(|p| p.handle.load(Acquire) != 0).find(|p| p.handle.load(Relaxed) == handle)
}

/// Bytes of this thread's stack below `here`; 0: not known.
pub fn room_below(here: u64) -> u64 {
    bounds().map_or(0, |[low, end]| if (low..end).contains(&here) { here - low } else { 0 })
}

/// Whether less than a sixteenth of this thread's stack is in use at `here` (of a small one, a quarter, 64 KiB at most), or that is not known.
pub fn is_little_used(here: u64) -> bool {
    const LITTLE: u64 = 64 << 10;
    bounds().is_none_or(|[low, end]| !(low..end).contains(&here) || end - here < ((end - low) / 16).max(LITTLE.min((end - low) / 4)))
}

/// Where this thread's stack may go to, and where it begins.
fn bounds() -> Option<[u64; 2]> {
    if let Some(top) = reach::top_of_first() {
        let mut limit = [0u64; 2];
        // SAFETY: limit is a struct rlimit64.
        unsafe { sys!(libc::SYS_prlimit64, 0, libc::RLIMIT_STACK, 0, limit.as_mut_ptr()) };
        let [soft, _] = limit;
        return Some([top.saturating_sub(soft), top]);
    }
    let handle = sys::thread_block();
    let end = (handle + PAGE) & !(PAGE - 1);
    known(handle).map(|place| [end - place.len.load(Relaxed).min(end), end])
}

/// A thread was made with these attributes (null: the default ones).
///
/// # Safety
/// `hot` is this thread's and set up; `attr` is what `pthread_create` took, and `handle` what it gave.
pub unsafe fn on_create(hot: *mut Hot, attr: *const c_void, handle: u64) {
    // SAFETY: settled at the start; attributes are 56 bytes.
    unsafe {
        let Some(a) = &*(&raw const ATTRIBUTES) else { return };
        if (*hot).mode == crate::config::COUNT {
            return;
        }
        let mut defaults = [0u64; 8];
        let attr = if attr.is_null() {
            (a.init)(defaults.as_mut_ptr().cast());
            defaults.as_ptr().cast()
        } else {
            attr
        };
        let (mut low, mut size, mut guard) = (core::ptr::null_mut(), 0, 0);
        // Without a stack of the program's this gives "0 less the size".
        if (a.stack)(attr, &mut low, &mut size) != 0 || (low as usize).wrapping_add(size) != 0 {
            return;
        }
        if (a.size)(attr, &mut size) != 0 || (a.guard)(attr, &mut guard) != 0 {
            return;
        }
        let guard = (guard as u64 + PAGE - 1) & !(PAGE - 1);
        let wanted = ((size as u64 + PAGE - 1) & !(PAGE - 1)) + guard;
        let Some(place) = place_of(handle) else { return };
        let len = place.len.load(Relaxed).max(wanted);
        let end = (handle + PAGE) & !(PAGE - 1);
        if end < len {
            return;
        }
        place.len.store(len, Relaxed);
        let now = sys::now();
        callers::note(hot);
        let made = |addr: u64, len: u64, prot: c_int| [start(op::MMAP, 0, ticket()), now, addr, len, (prot as u64) << 32 | FLAGS, KIND];
        push(hot, made(end - len + guard, len - guard, libc::PROT_READ | libc::PROT_WRITE));
        if guard > 0 {
            push(hot, made(end - len, guard, libc::PROT_NONE));
        }
        LIVING.fetch_add(1, AcqRel);
        place.since.store(TURN.load(Relaxed), Release);
    }
}

/// Takes a stack that has ended out; its first address and length.
fn take(place: &Place) -> Option<(u64, u64)> {
    let since = place.since.load(Acquire);
    if since == 0 || place.since.compare_exchange(since, 0, AcqRel, Relaxed).is_err() {
        return None;
    }
    LIVING.fetch_sub(1, AcqRel);
    let len = place.len.load(Relaxed);
    Some((((place.handle.load(Relaxed) + PAGE) & !(PAGE - 1)) - len, len))
}

/// This thread ends.
///
/// # Safety
/// `hot` is this thread's and set up.
pub unsafe fn on_end(hot: *mut Hot) {
    // SAFETY: the caller's hot.
    unsafe {
        if (*hot).mode != crate::config::COUNT
            && let Some((addr, len)) = known(sys::thread_block()).and_then(take)
        {
            push(hot, [start(op::MUNMAP, 0, ticket()), sys::now(), addr, len]);
        }
    }
}

/// Stacks whose threads have ended without telling. `gone` is told ticket, address and length of each. Those that began since the last
/// turn wait for the next: what says that they began may still be in a ring. The drain's lock is held.
pub fn reap(mut gone: impl FnMut(u64, u64, u64)) {
    // SAFETY: settled at the start.
    let Some(a) = (unsafe { &*(&raw const ATTRIBUTES) }) else { return };
    if LIVING.load(Acquire) == 0 {
        return;
    }
    let turn = TURN.fetch_add(1, AcqRel);
    for place in &PLACES_KNOWN {
        let since = place.since.load(Acquire);
        if since == 0 || since == turn || lives(place.handle.load(Relaxed) + a.tid_at) {
            continue;
        }
        if let Some((addr, len)) = take(place) {
            gone(ticket(), addr, len);
        }
    }
}

/// Whether a thread's id still stands at `at`, which may be mapped no more: the kernel writes 0 there when the thread ends, and glibc −1
/// when it has been joined. The kernel looks, in waits for such a word to change that end at once.
fn lives(at: u64) -> bool {
    let none = [0u64; 2];
    let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: nothing is touched by an instruction of ours, and nothing written; the timeout is a timespec.
    let is_not = |v: u32| unsafe { sys!(libc::SYS_futex, at, wait, v, none.as_ptr(), 0, 0) == -libc::EAGAIN as i64 };
    is_not(0) && is_not(u32::MAX)
}
