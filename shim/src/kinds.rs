//! The dictionary of allocations (function, size, slack, flags): a number for each, so that an event is one small code.
//! The rows lie in the spool; a hash index in private memory finds them. It belongs to the drain.

use crate::spool::{self, kind};
use crate::sys::{self, sys};
use core::sync::atomic::Ordering::Relaxed;
use memshim_format::record;
use memshim_format::spool::{FNS_MAX, KINDS_MAX, KINDS_OFF, Kind};

/// The index.
pub struct Kinds {
    /// Numbers (0 empty) at their hash, open addressing; `mask` + 1 places of [`INDEX`] are in use, since most programs have few kinds and
    /// a page that is not touched costs nothing.
    index: *mut u32,
    mask: usize,
    count: u32,
    /// Rows that have memory.
    backed: u32,
    /// The last kind found at each place of a small cache: its [`word_of`] and number, 0 for none.
    cache: *mut (u64, u32),
}

pub static mut KINDS: Kinds =
    Kinds { index: core::ptr::null_mut(), mask: FIRST_INDEX - 1, count: 0, backed: 0, cache: core::ptr::null_mut() };

const INDEX: usize = 2 * KINDS_MAX;
const FIRST_INDEX: usize = 2048;
const CACHE: usize = 4096;
/// Rows given memory at a time.
const STEP: u32 = 1024;
/// Numbers kept for the kinds of size −1: one for each function and set of flags.
const RAW: u32 = (FNS_MAX * 8) as u32 * 4;

/// Private memory of the index, in bytes.
pub const PRIVATE: usize = INDEX * 4 + CACHE * size_of::<(u64, u32)>();

#[inline(always)]
fn hash(k: &Kind) -> u64 {
    let x = (k.size as u64) << 16 ^ (k.slack as u64) << 8 ^ (k.func as u64) << 3 ^ k.flags as u64;
    x.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A kind in one word: `v`, an allocation's argument ([`record::op::ALLOC`]), with function and flags in the size's upper bits, which
/// hardly any size has. Those of thinned samples are found by the index.
#[inline(always)]
const fn word_of(func: u8, v: u64, flags: u8) -> Option<u64> {
    const FREE: u32 = 32;
    const { assert!(FNS_MAX <= 32) };
    if v >> FREE & 0xff == 0 && flags < 8 { Some(v | ((func << 3 | flags & 7) as u64) << FREE) } else { None }
}

impl Kinds {
    /// Starts empty (a new image, a forked child). Memory is kept, zeroed.
    pub fn reset(&mut self) {
        self.count = 0;
        self.backed = 0;
        self.mask = FIRST_INDEX - 1;
        if self.index.is_null() {
            let p = sys::map_anon(PRIVATE);
            self.index = p.cast();
            // SAFETY: the mapping holds both; an index is a multiple of 16 bytes.
            self.cache = if p.is_null() { p.cast() } else { unsafe { p.add(INDEX * 4).cast() } };
        } else {
            // Back to zero pages, which cost nothing until they are touched.
            // SAFETY: the mapping is PRIVATE bytes.
            unsafe { sys!(libc::SYS_madvise, self.index, PRIVATE, libc::MADV_DONTNEED) };
        }
    }

    /// Number of a kind (from 1) and whether size and slack go into column `z`. 0: no memory. `v`: the record's argument word, which has
    /// both, where one is enough.
    #[inline(always)]
    pub fn number(&mut self, func: u8, size: u64, slack: u64, v: Option<u64>, flags: u8) -> (u32, bool) {
        // SAFETY: the cache has CACHE entries; memory is checked at reset.
        unsafe {
            if self.cache.is_null() {
                return (0, false);
            }
            let Some(word) = v.and_then(|v| word_of(func, v, flags)) else { return self.number_of_index(func, size, slack, flags) };
            let at = self.cache.add((word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize % CACHE);
            if (*at).0 == word && (*at).1 != 0 {
                return ((*at).1, false);
            }
            let (n, raw) = self.number_of_index(func, size, slack, flags);
            if !raw {
                at.write((word, n));
            }
            (n, raw)
        }
    }

    /// The same by the index.
    #[inline(never)]
    unsafe fn number_of_index(&mut self, func: u8, size: u64, slack: u64, flags: u8) -> (u32, bool) {
        // SAFETY: the index has memory.
        unsafe {
            if slack <= u32::MAX as u64 && size <= i64::MAX as u64 {
                let key = Kind { size: size as i64, slack: slack as u32, func, flags, pad: 0 };
                let n = self.find_or_add(key, hash(&key), KINDS_MAX as u32 - RAW);
                if n != 0 {
                    return (n, false);
                }
            }
            let raw = Kind { size: -1, slack: 0, func, flags, pad: 0 };
            (self.find_or_add(raw, hash(&raw), KINDS_MAX as u32), true)
        }
    }

    unsafe fn find_or_add(&mut self, key: Kind, h: u64, most: u32) -> u32 {
        let mut i = (h >> 40) as usize & self.mask;
        // SAFETY: i is at most the mask, which is below INDEX; numbers in the index are rows that exist.
        unsafe {
            loop {
                let n = *self.index.add(i);
                if n == 0 {
                    break;
                }
                if *kind(n as usize - 1) == key {
                    return n;
                }
                i = (i + 1) & self.mask;
            }
            if self.count >= most {
                return 0;
            }
            if self.count == 0 {
                // There is an event: from now on each looks here.
                sys::populate(self.index.cast(), FIRST_INDEX * 4);
                sys::populate(self.cache.cast(), CACHE * size_of::<(u64, u32)>());
            }
            if self.count >= self.backed {
                if !spool::back(KINDS_OFF + self.backed as usize * size_of::<Kind>(), STEP as usize * size_of::<Kind>()) {
                    return 0;
                }
                self.backed += STEP;
            }
            kind(self.count as usize).write(key);
            self.count += 1;
            *self.index.add(i) = self.count;
            if self.count as usize * 2 > self.mask && self.mask < INDEX - 1 {
                self.spread();
            }
            (*spool::header()).kinds.store(self.count, Relaxed);
        }
        self.count
    }

    /// Goes on with four times the places.
    #[cold]
    unsafe fn spread(&mut self) {
        // SAFETY: the index holds INDEX places, and the mask stays below; rows up to the count exist.
        unsafe {
            core::ptr::write_bytes(self.index, 0, self.mask + 1);
            self.mask = (self.mask * 4 + 3).min(INDEX - 1);
            for n in 1..=self.count {
                let mut i = (hash(&*kind(n as usize - 1)) >> 40) as usize & self.mask;
                while *self.index.add(i) != 0 {
                    i = (i + 1) & self.mask;
                }
                *self.index.add(i) = n;
            }
        }
    }

    /// Kinds defined.
    pub fn count(&self) -> u32 {
        self.count
    }
}

/// Whether an event of this kind ends an old block too.
#[inline(always)]
pub fn replaces(flags: u8) -> bool {
    flags as u64 & record::REPLACES != 0
}
