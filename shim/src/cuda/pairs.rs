//! Pairs of events and the lists they are in: free ones of each context, and those in flight, the first recorded first.
//! All under [`super::lock`]; a pair that is in no list is the one thread's that took it out.

use super::contexts::MOST as CONTEXTS_MOST;
use crate::sys;

/// Pairs at most; copies beyond that many in flight are not timed.
const PAIRS: usize = 8192;

pub struct Pair {
    pub begins: usize,
    pub ends: usize,
    pub ticket: u64,
    /// The next in its list, as number + 1.
    pub next: u32,
}

/// What a context needs to time: lists of pairs (by number + 1), the anchor.
#[derive(Clone, Copy)]
pub struct Clock {
    free: u32,
    /// Pairs in flight, the first recorded first.
    pub head: u32,
    pub tail: u32,
    pub anchor: usize,
    pub anchor_at: u64,
    pub stream: usize,
    /// Its context is about to end.
    pub dying: bool,
}

const NONE: Clock = Clock { free: 0, head: 0, tail: 0, anchor: 0, anchor_at: 0, stream: 0, dying: false };

static mut MEMORY: *mut Pair = core::ptr::null_mut();
static mut USED: u32 = 0;
/// Pairs whose events went with their contexts: the first, as number + 1.
static mut SPARE: u32 = 0;
static mut CLOCKS: [Clock; CONTEXTS_MOST] = [NONE; CONTEXTS_MOST];
/// A pair by its number.
///
/// # Safety
/// It was handed out.
pub unsafe fn pair(i: u32) -> &'static mut Pair {
    // SAFETY: the caller's number is of a pair handed out, which is one thread's at a time.
    unsafe { &mut *MEMORY.add(i as usize) }
}

/// What a context times with.
///
/// # Safety
/// The lock is held, or nobody else can be at it.
pub unsafe fn clock_of(slot: usize) -> Option<&'static mut Clock> {
    // SAFETY: only used under the lock.
    unsafe { (*(&raw mut CLOCKS)).get_mut(slot) }
}

/// A free pair of a context, or a new one without events.
///
/// # Safety
/// The lock is held.
pub unsafe fn take(slot: usize) -> Option<u32> {
    // SAFETY: the caller's lock.
    unsafe {
        let c = clock_of(slot)?;
        if c.dying {
            return None;
        }
        if c.free != 0 {
            let i = c.free - 1;
            c.free = pair(i).next;
            return Some(i);
        }
        if SPARE != 0 {
            let i = SPARE - 1;
            SPARE = pair(i).next;
            return Some(i);
        }
        if MEMORY.is_null() {
            MEMORY = sys::map_anon(PAIRS * size_of::<Pair>()).cast();
        }
        if MEMORY.is_null() || USED as usize >= PAIRS {
            return None;
        }
        USED += 1;
        let i = USED - 1;
        *pair(i) = Pair { begins: 0, ends: 0, ticket: 0, next: 0 };
        Some(i)
    }
}

/// Private memory taken, in bytes, as far as it is used.
pub fn private() -> usize {
    // SAFETY: a word that is written whole; one that is a little old does no harm.
    unsafe { (&raw const USED).read_volatile() as usize * size_of::<Pair>() }
}

/// Gives a pair back.
///
/// # Safety
/// The lock is held.
pub unsafe fn give(slot: usize, i: u32) {
    // SAFETY: the caller's lock.
    unsafe {
        if let Some(c) = clock_of(slot) {
            pair(i).next = c.free;
            c.free = i + 1;
        }
    }
}

/// Takes the pair out that has been in flight longest.
///
/// # Safety
/// The lock is held.
pub unsafe fn first(slot: usize) -> Option<u32> {
    // SAFETY: the caller's lock.
    unsafe {
        let c = clock_of(slot)?;
        let i = c.head.checked_sub(1)?;
        c.head = pair(i).next;
        if c.head == 0 {
            c.tail = 0;
        }
        Some(i)
    }
}

/// Puts pairs back at the head, in their order.
///
/// # Safety
/// The lock is held.
pub unsafe fn put_back(slot: usize, waiting: &[u32]) {
    // SAFETY: the caller's lock.
    unsafe {
        let Some(c) = clock_of(slot) else { return };
        for &i in waiting.iter().rev() {
            pair(i).next = c.head;
            c.head = i + 1;
            if c.tail == 0 {
                c.tail = i + 1;
            }
        }
    }
}

/// A context is gone with its events: how many pairs were in flight. Others may use their places.
///
/// # Safety
/// Nobody times in it any more; the lock is held.
pub unsafe fn drop_all(slot: usize) -> u32 {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(c) = clock_of(slot) else { return 0 };
        let lists = [c.head, c.free];
        *c = NONE;
        lists.map(|first| spare_all(first))[0]
    }
}

/// Takes the events off a list's pairs and gives these to whoever needs some: how many.
unsafe fn spare_all(first: u32) -> u32 {
    // SAFETY: as `drop_all`.
    unsafe {
        let (mut n, mut at) = (0, first);
        while at != 0 {
            let i = at - 1;
            let p = pair(i);
            at = p.next;
            *p = Pair { begins: 0, ends: 0, ticket: 0, next: SPARE };
            SPARE = i + 1;
            n += 1;
        }
        n
    }
}

/// A forked child has none.
pub fn forget() {
    // SAFETY: one thread.
    unsafe {
        USED = 0;
        SPARE = 0;
        CLOCKS = [NONE; CONTEXTS_MOST];
    }
}
