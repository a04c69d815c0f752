//! Strings of the interpreter as bytes. They lie in memory as one, two or four bytes a character; of ASCII the bytes are the characters.

use super::layout::Layout;
use super::thread::{plausible, read};

/// Where a string's characters lie.
pub struct Chars {
    at: *const u8,
    pub len: usize,
    /// Bytes a character.
    kind: usize,
}

/// Longer strings are not believed.
const LIMIT: u64 = 1 << 24;

/// The characters of a `str`, `None` where it is not laid out as names of code objects are.
///
/// # Safety
/// `object` is a `str` that is alive, or null.
pub unsafe fn chars(l: &Layout, object: u64) -> Option<Chars> {
    if !plausible(object) {
        return None;
    }
    let p = object as *const u8;
    // SAFETY: the caller's object.
    unsafe {
        let len = read(p, l.unicode_length);
        let state = p.add(l.unicode_state as usize).cast::<u32>().read() >> l.unicode_kind_bit;
        let (kind, compact, ascii) = (state & 7, state & 8 != 0, state & 16 != 0);
        if !compact || !matches!(kind, 1 | 2 | 4) || len > LIMIT {
            return None;
        }
        let data = if ascii { l.unicode_ascii } else { l.unicode_compact };
        Some(Chars { at: p.add(data as usize), len: len as usize, kind: kind as usize })
    }
}

impl Chars {
    /// The last bytes, as a number: with the length what tells file names of generated code apart.
    ///
    /// # Safety
    /// The string is alive.
    pub unsafe fn tail(&self) -> u64 {
        // SAFETY: the string's bytes.
        unsafe { tail(self.at, self.len * self.kind) }
    }

    /// Whether an ASCII string begins so.
    ///
    /// # Safety
    /// The string is alive.
    pub unsafe fn begins(&self, with: &[u8]) -> bool {
        // SAFETY: below the string's length.
        self.kind == 1 && self.len >= with.len() && with.iter().enumerate().all(|(i, c)| unsafe { self.at.add(i).read() } == *c)
    }

    /// Writes the string as UTF-8, as much as fits by whole characters; how many bytes. Bytes of a file name that are no text, which Python
    /// keeps as U+DC80 to U+DCFF, become what they were; other halves of surrogate pairs become `?`.
    ///
    /// # Safety
    /// The string is alive.
    pub unsafe fn write(&self, out: &mut [u8]) -> usize {
        let mut n = 0;
        for i in 0..self.len {
            // SAFETY: character i of the string.
            let c = unsafe {
                match self.kind {
                    1 => self.at.add(i).read() as u32,
                    2 => self.at.cast::<u16>().add(i).read() as u32,
                    _ => self.at.cast::<u32>().add(i).read(),
                }
            };
            let (bytes, count) = encode(c);
            let Some(place) = out.get_mut(n..).and_then(|rest| rest.get_mut(..count)) else { break };
            for (to, from) in place.iter_mut().zip(bytes) {
                *to = from;
            }
            n += count;
        }
        n
    }
}

fn encode(c: u32) -> ([u8; 4], usize) {
    let more = |shift: u32| 0x80 | (c >> shift & 0x3f) as u8;
    match c {
        0..=0x7f => ([c as u8, 0, 0, 0], 1),
        0x80..=0x7ff => ([0xc0 | (c >> 6) as u8, more(0), 0, 0], 2),
        0xdc80..=0xdcff => ([c as u8, 0, 0, 0], 1),
        0xd800..=0xdfff | 0x11_0000.. => ([b'?', 0, 0, 0], 1),
        0x800..=0xffff => ([0xe0 | (c >> 12) as u8, more(6), more(0), 0], 3),
        _ => ([0xf0 | (c >> 18) as u8, more(12), more(6), more(0)], 4),
    }
}

/// The last 8 of some bytes, all of fewer.
///
/// # Safety
/// There are so many at `at`.
pub unsafe fn tail(at: *const u8, bytes: usize) -> u64 {
    // SAFETY: as far as there are any.
    unsafe {
        match bytes {
            0 => 0,
            1..4 => at.read() as u64 | (at.add(bytes / 2).read() as u64) << 8 | (at.add(bytes - 1).read() as u64) << 16,
            4..8 => at.cast::<u32>().read_unaligned() as u64 | (at.add(bytes - 4).cast::<u32>().read_unaligned() as u64) << 32,
            _ => at.add(bytes - 8).cast::<u64>().read_unaligned(),
        }
    }
}
