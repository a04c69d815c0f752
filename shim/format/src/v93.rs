//! Columns of unsigned integers as printable text ("V93"): no JSON escaping ever, byte aligned, small values in one character.
//!
//! The 93 characters 0x20..=0x7e without `"` and `\`, in order, are the digits 0..=92. The first digit says how many follow:
//!
//! | first digit d | value | further digits |
//! |---|---|---|
//! | 0..60 | d | 0 |
//! | 60..84 | 60 + (d-60)*93 + rest | 1 |
//! | 84..90 | 2292 + (d-84)*8649 + rest | 2 |
//! | 90 | 54186 + rest | 3 |
//! | 91 | 858543 + rest | 5 |
//! | 92 | 6957742236 + rest | 10 |
//!
//! Ten digits hold 93^10 > 2^65 values, so every `u64` has a form. Used by the shim (no allocation, no panic) and by the reader.

/// The longest form of one value, in bytes.
pub const MAX_LEN: usize = 11;

const BASE: u64 = 93;
/// Where the values of two digits begin and end.
const TWO: u64 = 60;
const TWO_END: u64 = 2292;

/// The characters of the digits.
const CHARS: [u8; BASE as usize] = {
    let mut t = [0; BASE as usize];
    let mut d = 0;
    while d < BASE as usize {
        let c = d as u8 + 0x20;
        // Two characters are left out: `"` (0x22) and `\` (0x5c).
        let c = c + (c >= 0x22) as u8;
        t[d] = c + (c >= 0x5c) as u8;
        d += 1;
    }
    t
};

/// The character of digit `d` (0..=92).
#[inline(always)]
const fn char_of(d: u64) -> u8 {
    CHARS[d as usize % BASE as usize]
}

/// The forms of the values of two digits, 60..2292, without a division at run time.
static PAIRS: [[u8; 2]; (TWO_END - TWO) as usize] = {
    let mut t = [[0; 2]; (TWO_END - TWO) as usize];
    let mut r = 0;
    while r < TWO_END - TWO {
        t[r as usize] = [char_of(TWO + r / BASE), char_of(r % BASE)];
        r += 1;
    }
    t
};

/// The digit of character `c`, or 255 for a character that is none.
#[inline(always)]
const fn digit_of(c: u8) -> u8 {
    match c {
        0x20..=0x21 => c - 0x20,
        0x23..=0x5b => c - 0x21,
        0x5d..=0x7e => c - 0x22,
        _ => 255,
    }
}

const DIGITS: [u8; 256] = {
    let mut t = [255u8; 256];
    let mut i = 0;
    while i < 256 {
        t[i] = digit_of(i as u8);
        i += 1;
    }
    t
};

/// Writes `v` at `out` and returns the number of bytes written.
///
/// # Safety
/// `out` must be valid for writes of [`MAX_LEN`] bytes.
#[inline(always)]
pub unsafe fn put(out: *mut u8, v: u64) -> usize {
    // SAFETY: at most MAX_LEN bytes are written, which the caller provides.
    unsafe {
        if v < TWO {
            *out = *CHARS.as_ptr().add(v as usize);
            1
        } else if v < TWO_END {
            out.cast::<[u8; 2]>().write_unaligned(*PAIRS.as_ptr().add((v - TWO) as usize));
            2
        } else {
            put_long(out, v)
        }
    }
}

/// # Safety
/// As [`put`].
unsafe fn put_long(out: *mut u8, v: u64) -> usize {
    let (lead, rest, n) = if v < 54186 {
        let r = v - 2292;
        (84 + r / (BASE * BASE), r % (BASE * BASE), 2)
    } else if v < 858_543 {
        (90, v - 54186, 3)
    } else if v < 6_957_742_236 {
        (91, v - 858_543, 5)
    } else {
        (92, v - 6_957_742_236, 10)
    };
    // SAFETY: n <= 10, so at most MAX_LEN bytes.
    unsafe {
        *out = char_of(lead);
        let mut r = rest;
        let mut i = n;
        while i > 0 {
            *out.add(i) = char_of(r % BASE);
            r /= BASE;
            i -= 1;
        }
    }
    n + 1
}

/// Maps a signed number to an unsigned one, small magnitudes to small values.
#[inline(always)]
pub const fn zigzag(n: i64) -> u64 {
    ((n << 1) ^ (n >> 63)) as u64
}

/// The inverse of [`zigzag`].
#[inline(always)]
pub const fn unzigzag(v: u64) -> i64 {
    (v >> 1) as i64 ^ -((v & 1) as i64)
}

/// Reads the values of a column one after another; stops at the end or at the first thing that is not V93.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// A decoder of the whole of `text`.
    pub fn new(text: &'a [u8]) -> Self {
        Decoder { rest: text }
    }

    /// What has not been read: empty after a clean end, else it starts with the value that is not V93.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline(never)]
    fn next_long(&mut self, d: u64) -> Option<u64> {
        let (n, base, lead) = match d {
            60..=83 => (1, 60, d - 60),
            84..=89 => (2, 2292, d - 84),
            90 => (3, 54186, 0),
            91 => (5, 858_543, 0),
            92 => (10, 6_957_742_236, 0),
            _ => return None,
        };
        let digits = self.rest.get(1..=n)?;
        let mut v = lead;
        for &c in digits {
            let d = DIGITS[c as usize];
            if d > 92 {
                return None;
            }
            v = v.checked_mul(BASE)?.checked_add(d as u64)?;
        }
        self.rest = self.rest.get(n + 1..)?;
        v.checked_add(base)
    }
}

impl Iterator for Decoder<'_> {
    type Item = u64;

    #[inline(always)]
    fn next(&mut self) -> Option<u64> {
        let (&c, tail) = self.rest.split_first()?;
        let d = DIGITS[c as usize] as u64;
        if d < 60 {
            self.rest = tail;
            return Some(d);
        }
        if d < 84 {
            if let Some((&c1, tail)) = tail.split_first() {
                let d1 = DIGITS[c1 as usize] as u64;
                if d1 < 93 {
                    self.rest = tail;
                    return Some(60 + (d - 60) * BASE + d1);
                }
            }
            return None;
        }
        self.next_long(d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(v: u64) -> ([u8; MAX_LEN], usize) {
        let mut b = [0; MAX_LEN];
        // SAFETY: b has MAX_LEN bytes.
        let n = unsafe { put(b.as_mut_ptr(), v) };
        (b, n)
    }

    #[test]
    fn every_boundary_value_comes_back() {
        for edge in [0, 59, 60, 2291, 2292, 54185, 54186, 858_542, 858_543, 6_957_742_235, 6_957_742_236, u64::MAX] {
            for v in edge.saturating_sub(2)..=edge.saturating_add(2) {
                let (b, n) = text(v);
                let mut d = Decoder::new(&b[..n]);
                assert_eq!(d.next(), Some(v));
                assert!(d.rest().is_empty());
            }
        }
    }

    #[test]
    fn every_character_is_printable_and_needs_no_escape() {
        let mut seen = 0;
        for d in 0..93 {
            let c = char_of(d);
            assert!((0x20..=0x7e).contains(&c) && c != b'"' && c != b'\\');
            assert_eq!(digit_of(c) as u64, d);
            seen += 1;
        }
        assert_eq!(seen, 93);
    }

    #[test]
    fn a_truncated_or_foreign_value_stops_the_decoder() {
        let (b, n) = text(123_456_789_000);
        for cut in 0..n {
            assert_eq!(Decoder::new(&b[..cut]).next(), None);
        }
        assert_eq!(Decoder::new(b"\"").next(), None);
        assert_eq!(Decoder::new(b"~~~~~~~~~~~").next(), None, "above u64::MAX");
    }

    #[test]
    fn zigzag_is_its_own_inverse() {
        for n in [0, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(n)), n);
        }
    }
}
