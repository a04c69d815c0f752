//! A look at a living process's counts in its spool: what is live at this instant, by its own exact counts. Nothing is stopped for it and nothing
//! written; the counts are of the microseconds that the look takes.
//!
//! Not for: spools of the dead (`spool`, `recover`), full mode, where events tell more than counts.

use memshim_format::record::func;
use memshim_format::spool::{self as layout, FNS_MAX, Header, LANE, LANES_MAX, LANES_OFF, Lane};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What the exact counts of a process said at an instant, without what a fork inherited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Usable bytes live.
    pub live: i64,
    /// The most since the last line of counts: at least this …
    pub sure: i64,
    /// … and at most this.
    pub most: i64,
    /// Successful allocations so far, and bytes they asked for.
    pub allocs: u64,
    pub bytes: u64,
}

/// Bytes of a lane that are looked at.
const TOP: usize = offset_of!(Lane, commit);

/// Looks at the spool of process `pid`; `None` where it is another's, of full mode, or cannot be read.
pub fn at(path: &Path, pid: u32) -> Option<Seen> {
    let file = super::read::open_file(path).ok()?;
    let head = page(&file, 0, size_of::<Header>()).ok()?;
    let word = |at: usize| head.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
    let magic = head.get(..8) == Some(&layout::MAGIC.to_le_bytes());
    let ours = magic && word(offset_of!(Header, version)) == layout::VERSION && word(offset_of!(Header, pid)) == pid;
    if !ours || word(offset_of!(Header, mode)) != 1 || word(offset_of!(Header, ended)) != 0 {
        return None;
    }
    let lanes = (word(offset_of!(Header, lanes)) as usize).min(LANES_MAX);
    let mut seen = Seen::default();
    let mut used = 0;
    let crowd = word(offset_of!(Header, crowd)) as usize;
    let mut top = vec![0; TOP];
    for index in 0..lanes {
        file.read_exact_at(&mut top, (LANES_OFF + index * LANE) as u64).ok()?;
        let number = |at: usize| top.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        if number(offset_of!(Lane, python)) as u32 != 0 {
            continue;
        }
        // Without room on the disk the lane that threads share lies in memory, and the file has a hole there.
        if index + 1 == crowd && number(offset_of!(Lane, state)) as u32 != 3 {
            return None;
        }
        let (live, hi) = (number(offset_of!(Lane, live)) as i64, number(offset_of!(Lane, hi)) as i64);
        seen.live = seen.live.saturating_add(live);
        seen.most = seen.most.saturating_add(hi.max(live));
        let before = seen.allocs;
        for f in 0..(func::FIRST_FREE as usize).min(FNS_MAX) {
            seen.allocs = seen.allocs.saturating_add(number(offset_of!(Lane, counts) + 16 * layout::cell(f as u8)));
            seen.bytes = seen.bytes.saturating_add(number(offset_of!(Lane, counts) + 16 * layout::cell(f as u8) + 8));
        }
        used += (seen.allocs > before || live != 0) as usize;
    }
    // When each of several threads held most is not known.
    seen.sure = if used > 1 { seen.live } else { seen.most };
    Some(seen)
}

fn page(file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}
