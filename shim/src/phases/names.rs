//! Names of phases, by number: a table that only grows, looked up without a lock. A name goes into the trace before its first edge there; by
//! which process it was told is kept beside it, so that a forked child tells it again.

use crate::lane::{Hot, push};
use crate::spool::SPOOL;
use crate::text::hash as hash_of;
use core::sync::atomic::{AtomicU32, Ordering::*};
use memshim_format::phase::{OF_DOMAIN, PIECE, cut, words};
use memshim_format::record::{op, start};

const SLOTS: usize = 1 << 14;
const TEXT: usize = 1 << 20;
/// Places looked at for a name: a table that is full must not make each edge slow.
const PROBES: usize = 128;
/// Longer names are cut.
const NAME_MAX: usize = 512;
const DOMAIN_MAX: usize = 128;

struct Slot {
    /// Of the name; 0: free.
    hash: AtomicU32,
    /// Where its text begins, plus 1; 0: being written.
    at: AtomicU32,
    /// The process that told of it last.
    told: AtomicU32,
}

static SLOT: [Slot; SLOTS] = [const { Slot { hash: AtomicU32::new(0), at: AtomicU32::new(0), told: AtomicU32::new(0) } }; SLOTS];
/// Each: two bytes of length of the domain, two of the name, then both.
static mut ARENA: [u8; TEXT] = [0; TEXT];
static USED: AtomicU32 = AtomicU32::new(0);

/// The number of a name, from 1 on; 0: there is no room for another.
pub fn name(domain: &[u8], name: &[u8]) -> u32 {
    let domain = domain.get(..cut(domain, DOMAIN_MAX)).unwrap_or(domain);
    let name = name.get(..cut(name, NAME_MAX)).unwrap_or(name);
    let hash = hash(domain, name);
    for i in 0..PROBES {
        let number = (hash as usize).wrapping_add(i) % SLOTS;
        let Some(slot) = SLOT.get(number) else { break };
        let mut found = slot.hash.load(Acquire);
        if found == 0 {
            match slot.hash.compare_exchange(0, hash, AcqRel, Acquire) {
                Ok(_) => return if put(slot, domain, name) { number as u32 + 1 } else { 0 },
                Err(other) => found = other,
            }
        }
        // One that is being written (by a thread that a handler of ours may have interrupted) is not waited for: the name gets a second
        // number, and the reader goes by its text.
        if found == hash && text(slot) == Some((domain, name)) {
            return number as u32 + 1;
        }
    }
    0
}

/// The number of the name `first:second`.
pub fn name_of_parts(first: &[u8], second: &[u8]) -> u32 {
    let mut text = [0u8; NAME_MAX];
    let mut n = 0;
    for (to, c) in text.iter_mut().zip(first.iter().chain(b":").chain(second)) {
        *to = *c;
        n += 1;
    }
    name(b"", text.get(..n).unwrap_or(b""))
}

/// Never 0.
fn hash(domain: &[u8], name: &[u8]) -> u32 {
    let hash = hash_of(domain.iter().chain(&[0]).chain(name));
    ((hash >> 32 ^ hash) as u32).max(1)
}

/// Writes the text of a slot that was free. Without room it stays claimed, and empty.
fn put(slot: &Slot, domain: &[u8], name: &[u8]) -> bool {
    let len = 4 + domain.len() + name.len();
    let at = USED.load(Relaxed) as usize;
    if at + len > TEXT {
        return false;
    }
    let at = USED.fetch_add(len as u32, Relaxed) as usize;
    if at + len > TEXT {
        return false;
    }
    // SAFETY: the bytes at..at + len are this call's alone, and nobody has a reference to them.
    let to = unsafe { core::slice::from_raw_parts_mut((&raw mut ARENA).cast::<u8>().add(at), len) };
    let head = (domain.len() as u32 | (name.len() as u32) << 16).to_le_bytes();
    to.iter_mut().zip(head.iter().chain(domain).chain(name)).for_each(|(to, c)| *to = *c);
    slot.at.store(at as u32 + 1, Release);
    true
}

/// Domain and name of a slot.
fn text(slot: &Slot) -> Option<(&'static [u8], &'static [u8])> {
    let at = (slot.at.load(Acquire) as usize).checked_sub(1)?;
    let part = |at: usize, len: usize| {
        // SAFETY: what a slot points to is written and never changes.
        (at + len <= TEXT).then(|| unsafe { core::slice::from_raw_parts((&raw const ARENA).cast::<u8>().add(at), len) })
    };
    let head = u32::from_le_bytes(part(at, 4)?.try_into().ok()?);
    let (domain, name) = ((head & 0xffff) as usize, (head >> 16) as usize);
    Some((part(at + 4, domain)?, part(at + 4 + domain, name)?))
}

/// The name of a number, without its domain.
pub fn name_of(number: u32) -> &'static [u8] {
    (number as usize).checked_sub(1).and_then(|i| text(SLOT.get(i)?)).map_or(b"", |(_, name)| name)
}

/// Puts a name into the ring where this process has not told of it yet.
///
/// # Safety
/// `hot` is this thread's and set up.
pub unsafe fn tell(hot: *mut Hot, number: u32) {
    let Some(slot) = (number as usize).checked_sub(1).and_then(|i| SLOT.get(i)) else { return };
    // SAFETY: settled at the start.
    let me = unsafe { SPOOL.pid };
    if slot.told.load(Relaxed) == me {
        return;
    }
    let Some((domain, name)) = text(slot) else { return };
    // One of those that come at once tells it: a name may come after its first use.
    if slot.told.swap(me, Relaxed) == me {
        return;
    }
    // SAFETY: the caller's hot.
    unsafe {
        pieces(hot, number, OF_DOMAIN, domain);
        pieces(hot, number, 0, name);
    }
}

unsafe fn pieces(hot: *mut Hot, number: u32, flag: u64, mut text: &[u8]) {
    let mut piece = 0;
    while !text.is_empty() {
        let (now, rest) = text.split_at_checked(cut(text, PIECE)).unwrap_or((text, b""));
        let [a, b, c, d, e, f, g] = words(now);
        // SAFETY: the caller's hot.
        unsafe { push(hot, [start(op::PHASE_NAME, piece | flag, number as u64), a, b, c, d, e, f, g]) };
        text = rest;
        piece += 1;
    }
}
