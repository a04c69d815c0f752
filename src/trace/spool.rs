//! The spool of a process as a file: its structures read field by field, nothing trusted. What it means is `recover`'s matter.
//!
//! The layout is `memshim_format::spool`; offsets come from those types, so that the two can't drift apart.

use std::fs::File;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::unix::fs::FileExt;
use std::path::Path;

use memshim_format::spool::{self as layout, Commit, Entry, Kind, Pending};
use nix::unistd::{Whence, lseek};

/// Why a file is no spool that can be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("not a spool")]
    NotASpool,
    #[error("a spool of layout version {0}; this memshim reads version {ours}", ours = layout::VERSION)]
    Version(u32),
}

/// Whose spool it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    pub pid: u32,
    pub start_ticks: u64,
    /// Images of the process that came before.
    pub exec: u32,
}

/// The used parts of a spool.
pub struct Spool {
    file: File,
    len: u64,
    pub owner: Owner,
    /// Fast mode.
    pub fast: bool,
    pub kinds: Vec<Kind>,
    pub kinds_written: u32,
    pub group: u64,
    pub failed: u64,
    pub lanes: u32,
    pub table_buckets: u64,
    /// The live table is lost with the process: it was not in the spool.
    pub table_private: bool,
    /// errno of the write that ended the recording, 0 for none.
    pub trouble: u32,
    /// Lines taken over but not written, some of which the trace may hold.
    pub side: Vec<u8>,
    blocks: Vec<u8>,
}

/// A lane, with the half of its commit that holds.
pub struct Lane {
    pub counts: [[u64; 2]; layout::FNS_MAX],
    pub live: i64,
    /// Blocks that reallocs ended.
    pub replaced: u64,
    pub hi: i64,
    pub failed: u64,
    pub lost: u64,
    pub tid: u32,
    pub first: u32,
    pub commit: Commit,
    pub k: Vec<u8>,
    pub x: Vec<u8>,
    pub z: Vec<u8>,
    pub t: Vec<u8>,
}

/// Little-endian fields of a structure; beyond its end everything is zero.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..at + N).and_then(|b| b.try_into().ok()).unwrap_or([0; N])
    }
    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.bytes(at))
    }
    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes(at))
    }
    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes(at))
    }
    fn i64(&self, at: usize) -> i64 {
        i64::from_le_bytes(self.bytes(at))
    }
}

/// Reads as much of `len` bytes at `offset` as the file has; the rest is zero.
fn read_at(file: &File, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut all = vec![0; len];
    let mut done = 0;
    while done < len {
        match file.read_at(&mut all[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}

impl Spool {
    /// Reads the header, the kinds and the rings' blocks.
    pub fn open(path: &Path) -> Result<Spool, Error> {
        use layout::Header;
        let file = File::open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(Error::NotASpool);
        }
        let page = read_at(&file, 0, size_of::<Header>())?;
        let h = Fields(&page);
        if h.u64(offset_of!(Header, magic)) != layout::MAGIC {
            return Err(Error::NotASpool);
        }
        let version = h.u32(offset_of!(Header, version));
        if version != layout::VERSION {
            return Err(Error::Version(version));
        }
        let kinds = (h.u32(offset_of!(Header, kinds)) as usize).min(layout::KINDS_MAX);
        let blocks = (h.u32(offset_of!(Header, blocks)) as usize).min(layout::BLOCKS_MAX);
        let rows = read_at(&file, layout::KINDS_OFF as u64, kinds * size_of::<Kind>())?;
        let kinds = rows.chunks_exact(size_of::<Kind>()).map(|row| kind_of(&Fields(row))).collect();
        Ok(Spool {
            owner: Owner {
                pid: h.u32(offset_of!(Header, pid)),
                start_ticks: h.u64(offset_of!(Header, start_ticks)),
                exec: h.u32(offset_of!(Header, exec)),
            },
            fast: h.u32(offset_of!(Header, mode)) == 1,
            kinds,
            kinds_written: h.u32(offset_of!(Header, kinds_written)),
            group: h.u64(offset_of!(Header, group)),
            failed: h.u64(offset_of!(Header, failed)),
            lanes: h.u32(offset_of!(Header, lanes)).min(layout::LANES_MAX as u32),
            table_buckets: h.u64(offset_of!(Header, table_buckets)),
            table_private: h.u32(offset_of!(Header, table_private)) != 0,
            trouble: h.u32(offset_of!(Header, trouble)),
            side: read_at(&file, layout::SIDE_OFF as u64, h.u64(offset_of!(Header, side_len)).min(layout::SIDE_CAP as u64) as usize)?,
            blocks: read_at(&file, layout::BLOCKS_OFF as u64, blocks * layout::BLOCK)?,
            len: meta.len(),
            file,
        })
    }

    /// A ring block by its index.
    pub fn block(&self, index: usize) -> Option<&[u8]> {
        self.blocks.get(index.checked_mul(layout::BLOCK)?..)?.get(..layout::BLOCK)
    }

    /// A lane by its number.
    pub fn lane(&self, number: u32) -> io::Result<Lane> {
        use layout::Lane as L;
        let bytes = read_at(&self.file, (layout::LANES_OFF + number as usize * layout::LANE) as u64, size_of::<L>())?;
        let f = Fields(&bytes);
        let which = (f.u32(offset_of!(L, which)) & 1) as usize;
        let at = offset_of!(L, commit) + which * size_of::<Commit>();
        let commit = commit_of(&Fields(&bytes[at..at + size_of::<Commit>()]));
        let column = |at: usize, cap: usize, len: u32| bytes[at..at + cap.min(len as usize)].to_vec();
        Ok(Lane {
            counts: std::array::from_fn(|i| std::array::from_fn(|j| f.u64(offset_of!(L, counts) + i * 16 + j * 8))),
            live: f.i64(offset_of!(L, live)),
            replaced: f.u64(offset_of!(L, replaced)),
            hi: f.i64(offset_of!(L, hi)),
            failed: f.u64(offset_of!(L, failed)),
            lost: f.u64(offset_of!(L, lost)),
            tid: f.u32(offset_of!(L, tid)),
            first: f.u32(offset_of!(L, first)),
            k: column(offset_of!(L, k), layout::K_CAP, commit.k_len),
            x: column(offset_of!(L, x), layout::X_CAP, commit.x_len),
            z: column(offset_of!(L, z), layout::Z_CAP, commit.z_len),
            t: column(offset_of!(L, t), layout::T_CAP, commit.t_len),
            commit,
        })
    }

    /// Calls `each` for every entry of the live table's buckets; holes of the file are passed over.
    pub fn for_each_entry(&self, mut each: impl FnMut(Entry)) -> io::Result<()> {
        const CHUNK: u64 = 64 << 14;
        let start = layout::TABLE_OFF as u64;
        let end = self.len.min(start.saturating_add(self.table_buckets.saturating_mul(64)));
        let mut at = start;
        while at < end {
            // A file system without holes says that all is data; one that knows nothing of them fails: then everything is read.
            let data = match lseek(&self.file, at as i64, Whence::SeekData) {
                Ok(data) => data as u64,
                Err(nix::errno::Errno::ENXIO) => return Ok(()),
                Err(_) => at,
            };
            at = start + (data.max(at) - start) / 64 * 64;
            let chunk = read_at(&self.file, at, CHUNK.min(end.saturating_sub(at)) as usize)?;
            let slots = chunk.chunks_exact(64).flat_map(|bucket| bucket[..12 * layout::BUCKET_ENTRIES].chunks_exact(12));
            for slot in slots {
                let f = Fields(slot);
                let entry = Entry { lo: f.u64(0), hi: f.u32(8) };
                if entry.addr3() != 0 {
                    each(entry);
                }
            }
            at += CHUNK;
        }
        Ok(())
    }
}

fn kind_of(f: &Fields) -> Kind {
    Kind {
        size: f.i64(offset_of!(Kind, size)),
        slack: f.u32(offset_of!(Kind, slack)),
        func: f.bytes::<1>(offset_of!(Kind, func))[0],
        flags: f.bytes::<1>(offset_of!(Kind, flags))[0],
        pad: f.u16(offset_of!(Kind, pad)),
    }
}

fn commit_of(f: &Fields) -> Commit {
    let pend = offset_of!(Commit, pend);
    Commit {
        block: f.u32(offset_of!(Commit, block)),
        pos: f.u32(offset_of!(Commit, pos)),
        seq: f.u64(offset_of!(Commit, seq)),
        seq0: f.u64(offset_of!(Commit, seq0)),
        events: f.u32(offset_of!(Commit, events)),
        k_len: f.u32(offset_of!(Commit, k_len)),
        x_len: f.u32(offset_of!(Commit, x_len)),
        z_len: f.u32(offset_of!(Commit, z_len)),
        t_len: f.u32(offset_of!(Commit, t_len)),
        stamp_events: f.u32(offset_of!(Commit, stamp_events)),
        t0: f.u64(offset_of!(Commit, t0)),
        stamp_ns: f.u64(offset_of!(Commit, stamp_ns)),
        prev: f.u64(offset_of!(Commit, prev)),
        allocs: f.u32(offset_of!(Commit, allocs)),
        frees: f.u32(offset_of!(Commit, frees)),
        bytes: f.u64(offset_of!(Commit, bytes)),
        live: f.i64(offset_of!(Commit, live)),
        peak: f.i64(offset_of!(Commit, peak)),
        x_last: std::array::from_fn(|i| f.u64(offset_of!(Commit, x_last) + i * 8)),
        pend: Pending {
            what: f.u32(pend + offset_of!(Pending, what)),
            lane: f.u32(pend + offset_of!(Pending, lane)),
            seq: f.u64(pend + offset_of!(Pending, seq)),
            usable: f.u64(pend + offset_of!(Pending, usable)),
        },
    }
}
