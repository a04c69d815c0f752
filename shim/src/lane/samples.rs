//! Fast mode: which small calls are recorded (by bytes, without bias), and which blocks those gave.

use super::Hot;
use super::quick::SETTLED;
use crate::config::CONFIG;
use crate::sys;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use memshim_format::record;

/// The recorded small blocks of fast mode: a byte a place, how many hash there, which every free looks at; and behind it the addresses
/// themselves, in buckets of a cache line, which tell for sure. Wiped on fork, as the hot lines are.
#[repr(C)]
pub struct Samples {
    /// First: assembly has only their address.
    marks: [AtomicU8; MARKS],
    buckets: [[AtomicU64; 8]; BUCKETS],
}
const MARKS: usize = 65536;

const BUCKETS: usize = 8192;

#[inline(always)]
fn hash(addr: u64) -> u64 {
    (addr >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Samples {
    /// A mark's index is the upper half of this times the lower 32 bits of an address without the last four: blocks beside each other have marks
    /// beside each other, so what is freed together shares their cache lines, and each MiB of addresses begins 301 marks further than the one before.
    pub const MARK_FACTOR: u32 = 0x1_012d;

    /// Gives what every free looks at its memory.
    pub fn populate(&self) {
        // SAFETY: the marks begin the pages that they lie in.
        unsafe { sys::populate(self.marks.as_ptr().cast(), MARKS) };
    }

    /// Whether the block at `addr` may be recorded.
    #[inline(always)]
    pub(super) fn may_hold(&self, addr: u64) -> bool {
        self.mark(addr).load(Relaxed) != 0
    }

    #[inline(always)]
    fn mark(&self, addr: u64) -> &AtomicU8 {
        // SAFETY: 16 bits index 65536 marks.
        unsafe { self.marks.get_unchecked(((addr as u32 >> 4).wrapping_mul(Self::MARK_FACTOR) >> 16) as usize) }
    }

    fn bucket(&self, addr: u64) -> &[AtomicU64; 8] {
        &self.buckets[(hash(addr) >> 35) as usize % BUCKETS]
    }

    /// Notes a block; false when its bucket is full (which one sample in a million meets), or its mark has no room for another: then it is not recorded.
    pub(super) fn add(&self, addr: u64) -> bool {
        // A mark of all that hash there is never 0, else their frees would not be looked at.
        if self.mark(addr).fetch_update(Relaxed, Relaxed, |n| n.checked_add(1)).is_err() {
            return false;
        }
        for slot in self.bucket(addr) {
            // Not read first: of a page that is, see [`sys::populate`].
            if slot.compare_exchange(0, addr, AcqRel, Relaxed).is_ok() {
                return true;
            }
        }
        self.mark(addr).fetch_sub(1, Relaxed);
        false
    }

    /// Takes a block out; false when it was not there. Only the thread that frees the block asks.
    #[cold]
    #[inline(never)]
    fn remove(&self, addr: u64) -> bool {
        for slot in self.bucket(addr) {
            if slot.load(Relaxed) == addr {
                slot.store(0, Release);
                self.mark(addr).fetch_sub(1, Relaxed);
                return true;
            }
        }
        false
    }
}

/// Fast mode: whether a block is one of the recorded, and stays so.
#[cold]
#[inline(never)]
pub(super) unsafe fn is_recorded(addr: u64, usable: usize) -> bool {
    // SAFETY: as for [`was_recorded`].
    unsafe { usable >= CONFIG.big || (*SETTLED.samples).bucket(addr).iter().any(|slot| slot.load(Relaxed) == addr) }
}

/// Fast mode: whether a block that ends is one of the recorded, which it then is no more.
#[inline(always)]
pub(super) unsafe fn was_recorded(addr: u64, usable: usize) -> bool {
    // SAFETY: the samples are there before any lane.
    unsafe { usable >= CONFIG.big || (*SETTLED.samples).may_hold(addr) && (*SETTLED.samples).remove(addr) }
}

/// Where a lane's draws begin, never 0: every bit depends on all of `of` (the finaliser of splitmix64), else lanes that begin shortly after each other would
/// draw much the same at first.
pub(super) fn seed(of: u64) -> u64 {
    let of = (of ^ of >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let of = (of ^ of >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (of ^ of >> 31).max(1)
}

/// How often the mean is doubled by now: where samples are many the writer makes them fewer.
pub static THIN: AtomicU32 = AtomicU32::new(0);

/// Bytes until the next sample: exponential with mean `CONFIG.sample`, so that a call of s bytes is taken with probability
/// 1 − exp(−s/mean) whatever came before; its weight in estimates is the inverse. The mean is that of now: what is left to the next sample
/// says nothing of the past, so that another mean from here on is as unbiased.
pub(super) unsafe fn draw(hot: *mut Hot) -> i64 {
    // SAFETY: the caller's hot.
    unsafe {
        let mut x = (*hot).rng;
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (*hot).rng = x;
        // u in (0, 1], 53 bits; −ln u = 64·ln2 − …, by exponent and a series for the mantissa m in [1, 2).
        let u = (x >> 11) + 1;
        let e = 63 - u.leading_zeros() as i64;
        let m = f64::from_bits((u << (63 - e) << 1 >> 12) | 0x3ff0_0000_0000_0000);
        let y = (m - 1.0) / (m + 1.0);
        let y2 = y * y;
        let ln_m = 2.0 * y * (1.0 + y2 * (1.0 / 3.0 + y2 * (1.0 / 5.0 + y2 * (1.0 / 7.0 + y2 / 9.0))));
        let ln_u = (e - 53) as f64 * core::f64::consts::LN_2 + ln_m;
        (*hot).thin = THIN.load(Relaxed).min(record::THIN_MAX);
        (-ln_u * CONFIG.sample as f64 * (1u64 << (*hot).thin) as f64) as i64
    }
}
