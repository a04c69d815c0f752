//! Unwind tables: from a place in the code to the row of its function's table, by the sorted index that linkers make (`.eh_frame_hdr`).
//!
//! Not for: objects without that index (linked with `--no-eh-frame-hdr`), `.debug_frame`, tables that a program registers at run time.

use super::cursor::Cursor;
use super::row::{self, Alignment, Row, Scratch};

/// Segments of an object that are kept; programs have up to six that are not written to.
pub const SEGMENTS: usize = 8;

/// Where the tables of a module lie.
#[derive(Clone, Copy, Default)]
pub struct Tables {
    /// The index, and the end of the segment it is in.
    pub index: [usize; 2],
    /// Where the object is entered by the kernel; the beginning of its code, mostly, where it is not.
    pub entry: usize,
    /// The object was there when the program began: it is never unloaded.
    pub stays: bool,
    /// The segments that may be read.
    pub segments: [[usize; 2]; SEGMENTS],
}

impl Tables {
    /// A cursor at `at`, to the end of its segment.
    fn cursor(&self, at: usize) -> Option<Cursor> {
        let [_, end] = *self.segments.iter().find(|[from, to]| (*from..*to).contains(&at))?;
        // SAFETY: segments of a loaded module.
        Some(unsafe { Cursor::new(at, end) })
    }
}

/// What a CIE says.
struct Common {
    align: Alignment,
    augmented: bool,
    signal: bool,
    code: Cursor,
}

const TABLE_OF_OFFSETS: u8 = 0x3b;
const TABLE_OF_WIDE_OFFSETS: u8 = 0x3c;

/// Makes the row for the instruction at `place` in `scratch.row`; whether its function is a signal's return. None: there is none.
pub fn find<'s>(tables: &Tables, place: usize, scratch: &'s mut Scratch) -> Option<(&'s Row, bool)> {
    let mut fde = entry(tables.cursor(indexed(tables, place)?)?)?;
    let id_at = fde.at;
    let back = fde.u32()? as usize;
    if back == 0 {
        return None;
    }
    let common = common(entry(tables.cursor(id_at.checked_sub(back)?)?)?)?;
    let begin = fde.encoded(common.align.encoding, 0)?;
    let len = fde.value(common.align.encoding)?;
    if place.wrapping_sub(begin) >= len {
        return None;
    }
    if common.augmented {
        let len = fde.uleb()?;
        fde.skip(len)?;
    }
    row::make(scratch, common.code, fde, begin, place, common.align)?;
    Some((&scratch.row, common.signal))
}

/// The address of the FDE that the index has for `place`.
fn indexed(tables: &Tables, place: usize) -> Option<usize> {
    let [at, end] = tables.index;
    // SAFETY: inside the segment of the index.
    let mut head = unsafe { Cursor::new(at, end) };
    let version = head.u8()?;
    let (to_frames, to_count, table) = (head.u8()?, head.u8()?, head.u8()?);
    if version != 1 {
        return None;
    }
    head.pass_encoded(to_frames)?;
    let count = head.encoded(to_count, at)?;
    let width = match table {
        TABLE_OF_OFFSETS => 4,
        TABLE_OF_WIDE_OFFSETS => 8,
        _ => return None,
    };
    let first = head.at;
    if count == 0 || count > (end.checked_sub(first)?) / (2 * width) {
        return None;
    }
    let value = |i: usize| {
        // SAFETY: entries below the count lie inside the segment, as was seen above.
        let mut c = unsafe { Cursor::new(first + i * width, end) };
        Some(at.wrapping_add(c.value(table)?))
    };
    // The last entry that does not begin behind the place.
    let (mut low, mut high) = (0, count);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if value(2 * middle)? <= place { low = middle } else { high = middle }
    }
    if value(2 * low)? <= place { value(2 * low + 1) } else { None }
}

/// What stands in the entry (a CIE or an FDE) at a cursor, behind its length.
fn entry(mut c: Cursor) -> Option<Cursor> {
    let mut len = c.u32()? as u64;
    if len == 0xffff_ffff {
        len = c.u64()?;
    }
    c.part(len)
}

fn common(mut c: Cursor) -> Option<Common> {
    if c.u32()? != 0 {
        return None;
    }
    let version = c.u8()?;
    if !matches!(version, 1 | 3 | 4) {
        return None;
    }
    let mut letters = c;
    while c.u8()? != 0 {}
    if version == 4 {
        c.skip(2)?;
    }
    let code = c.uleb()?;
    let data = c.sleb()?;
    let ra = if version == 1 { c.u8()? as u64 } else { c.uleb()? };
    if ra != row::RETURN as u64 {
        return None;
    }
    let mut found = Common { align: Alignment { code, data, encoding: 0 }, augmented: false, signal: false, code: c };
    let mut more = c;
    loop {
        match letters.u8()? {
            0 => break,
            b'z' => {
                let len = found.code.uleb()?;
                more = found.code.part(len)?;
                found.augmented = true;
            }
            b'R' if found.augmented => found.align.encoding = more.u8()?,
            b'L' if found.augmented => {
                more.u8()?;
            }
            b'P' if found.augmented => {
                let how = more.u8()?;
                more.pass_encoded(how)?;
            }
            b'S' => found.signal = true,
            b'B' | b'G' => {}
            // What follows is not known: its length is, where there is one.
            _ if found.augmented => break,
            _ => return None,
        }
    }
    Some(found)
}
