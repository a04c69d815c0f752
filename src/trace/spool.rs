//! The spool of a process as a file: its structures read field by field, nothing trusted. What it means is `recover`'s matter.
//!
//! The layout is `memshim_format::spool`; offsets come from those types, so that the two can't drift apart.

use std::fs::File;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::read;
use memshim_format::live::{self, Entry};
use memshim_format::spool::{self as layout, Commit, Header, Killed, Kind, Nodes, Pending, Stacks};

/// Why a file is no spool that can be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("not a spool")]
    NotASpool,
    #[error("a spool of layout version {0}; this memshim reads version {ours}: read it with the memshim whose library wrote it", ours = layout::VERSION)]
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
    /// Python's blocks are recorded.
    pub python_alloc: bool,
    /// Column `x` says how often its lane had allocated at each event.
    pub ages: bool,
    pub lanes: u32,
    pub table_bytes: u64,
    /// The live table is lost with the process: it was not in the spool.
    pub table_private: bool,
    /// Bytes of the trace that hold whole lines.
    pub trace_len: u64,
    /// errno of the write that ended the recording, 0 for none.
    pub trouble: u32,
    /// Lane and half of the chunk that took `killed` out of the table.
    pub killer: Option<(u32, u32)>,
    pub killed: Vec<Killed>,
    /// The lane of threads for which there was no other.
    pub crowd: Option<u32>,
    /// errno by which the file could not grow, 0 it always could.
    pub refused: u32,
    /// What further threads counted is not in it.
    pub crowd_is_gone: bool,
    /// When that was.
    pub trouble_ns: u64,
    /// Every event before is in the trace.
    pub whole_ns: u64,
    /// How, with which code and when it ended, where it could not write that itself.
    pub end: Option<(&'static str, Option<i32>, u64)>,
    /// Lines taken over but not written, some of which the trace may hold.
    pub side: Vec<u8>,
    blocks: Vec<u8>,
}

/// A lane, with the half of its commit that holds.
pub struct Lane {
    pub counts: [[u64; 2]; layout::FNS_MAX],
    pub live: i64,
    pub blocks: i64,
    pub hi: i64,
    pub hi_blocks: i64,
    pub failed: u64,
    pub lost: u64,
    /// Of them, those that the disk had no room for.
    pub lost_by_disk: u64,
    /// Records of no heap call that had no room.
    pub rows_lost: u64,
    pub broken: u32,
    pub tid: u32,
    /// Its blocks are those of Python's allocators.
    pub python: bool,
    pub first: u32,
    pub commit: Commit,
    /// Which half of it holds.
    pub which: u32,
    pub k: Vec<u8>,
    pub x: Vec<u8>,
    pub z: Vec<u8>,
    pub t: Vec<u8>,
    pub s: Vec<u8>,
    pub p: Vec<u8>,
    /// Pending nodes, native and Python.
    pub nodes: [Vec<u8>; 2],
    /// Texts of a definition of which the rest is in the ring.
    pub d: Vec<u8>,
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
        let file = read::open_file(path)?;
        let meta = file.metadata()?;
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
            python_alloc: h.u32(offset_of!(Header, python_alloc)) != 0,
            ages: h.u32(offset_of!(Header, ages)) != 0,
            lanes: h.u32(offset_of!(Header, lanes)).min(layout::LANES_MAX as u32),
            table_bytes: h.u64(offset_of!(Header, table_bytes)),
            table_private: h.u32(offset_of!(Header, table_private)) != 0,
            trace_len: h.u64(offset_of!(Header, trace_len)),
            trouble: h.u32(offset_of!(Header, trouble)),
            killer: h.u32(offset_of!(Header, killer)).checked_sub(1).map(|k| (k >> 1, k & 1)),
            killed: killed_of(&h),
            trouble_ns: h.u64(offset_of!(Header, trouble_ns)),
            whole_ns: h.u64(offset_of!(Header, whole_ns)),
            crowd: h.u32(offset_of!(Header, crowd)).checked_sub(1),
            refused: h.u32(offset_of!(Header, refused)),
            crowd_is_gone: h.u32(offset_of!(Header, crowd_private)) != 0,
            end: end_of(&h),
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
        let which = f.u32(offset_of!(L, which)) & 1;
        let at = offset_of!(L, commit) + which as usize * size_of::<Commit>();
        let commit = commit_of(&Fields(&bytes[at..at + size_of::<Commit>()]));
        let column = |at: usize, cap: usize, len: u32| bytes[at..at + cap.min(len as usize)].to_vec();
        Ok(Lane {
            counts: std::array::from_fn(|i| std::array::from_fn(|j| f.u64(offset_of!(L, counts) + layout::cell(i as u8) * 16 + j * 8))),
            live: f.i64(offset_of!(L, live)),
            blocks: f.i64(offset_of!(L, blocks)),
            hi: f.i64(offset_of!(L, hi)),
            hi_blocks: f.i64(offset_of!(L, hi_blocks)),
            failed: f.u64(offset_of!(L, failed)),
            lost: f.u64(offset_of!(L, lost)),
            lost_by_disk: f.u64(offset_of!(L, lost_by_disk)),
            rows_lost: f.u64(offset_of!(L, rows_lost)),
            broken: f.u32(offset_of!(L, broken)),
            tid: f.u32(offset_of!(L, tid)),
            python: f.u32(offset_of!(L, python)) != 0,
            first: f.u32(offset_of!(L, first)),
            k: column(offset_of!(L, k), layout::K_CAP, commit.k_len),
            x: column(offset_of!(L, x), layout::X_CAP, commit.x_len),
            z: column(offset_of!(L, z), layout::Z_CAP, commit.z_len),
            t: column(offset_of!(L, t), layout::T_CAP, commit.t_len),
            s: column(offset_of!(L, s), layout::S_CAP, commit.stacks.s_len),
            p: column(offset_of!(L, p), layout::P_CAP, commit.stacks.p_len),
            nodes: [0, 1].map(|i| column(offset_of!(L, nodes) + i * layout::N_CAP, layout::N_CAP, commit.stacks.nodes[i].len)),
            d: column(offset_of!(L, d), layout::D_CAP, commit.stacks.d_len),
            commit,
            which,
        })
    }

    /// Calls `each` with address >> 3 and entry for every entry of the live table's nodes. Where no node begins, which a damaged file can
    /// have, it goes on at the next word that is one.
    pub fn for_each_entry(&self, mut each: impl FnMut(u64, Entry)) -> io::Result<()> {
        const CHUNK: u64 = 1 << 20;
        let start = layout::TABLE_OFF as u64;
        let end = self.len.min(start.saturating_add(self.table_bytes));
        let mut at = start;
        while at < end {
            let chunk = read_at(&self.file, at, CHUNK.min(end - at) as usize)?;
            let (mut done, mut found) = (0, false);
            while let Some(header) = chunk.get(done..done + live::UNIT) {
                let header = live::Header(Fields(header).u64(0));
                let Some(class) = header.class() else {
                    done += live::UNIT;
                    continue;
                };
                let Some(node) = chunk.get(done..done + live::bytes(class)) else {
                    // Beyond the chunk, or cut off by the end of the file.
                    break;
                };
                done += node.len();
                found = true;
                if let Some(span) = header.span() {
                    live::entries(span, class, node).for_each(|(addr3, e)| each(addr3, e));
                }
            }
            // A table has no holes: what follows is not its.
            if !found {
                break;
            }
            at += done as u64;
        }
        Ok(())
    }
}

fn killed_of(header: &Fields) -> Vec<Killed> {
    let n = (header.u32(offset_of!(Header, killed_len)) as usize).min(layout::CHUNK);
    let at = |i| offset_of!(Header, killed) + i * size_of::<Killed>();
    let of = |at| Killed { addr3: header.u64(at + offset_of!(Killed, addr3)), entry: header.u64(at + offset_of!(Killed, entry)) };
    (0..n).map(|i| of(at(i))).collect()
}

fn end_of(h: &Fields) -> Option<(&'static str, Option<i32>, u64)> {
    let how = layout::HOWS.get((h.u32(offset_of!(Header, end_how)) as usize).checked_sub(1)?)?;
    let code = h.u32(offset_of!(Header, end_code)) as i32;
    Some((how, (code != layout::NO_CODE).then_some(code), h.u64(offset_of!(Header, end_ns))))
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

fn stacks_of(f: &Fields) -> Stacks {
    let at = offset_of!(Commit, stacks);
    let u32 = |field| f.u32(at + field);
    let nodes = |i: usize| {
        let at = at + offset_of!(Stacks, nodes) + i * size_of::<Nodes>();
        let u32 = |field| f.u32(at + field);
        Nodes {
            from: u32(offset_of!(Nodes, from)),
            count: u32(offset_of!(Nodes, count)),
            len: u32(offset_of!(Nodes, len)),
            pad: 0,
            last: f.u64(at + offset_of!(Nodes, last)),
        }
    };
    Stacks {
        now: f.u64(at + offset_of!(Stacks, now)),
        written: f.u64(at + offset_of!(Stacks, written)),
        s_len: u32(offset_of!(Stacks, s_len)),
        p_len: u32(offset_of!(Stacks, p_len)),
        s_events: u32(offset_of!(Stacks, s_events)),
        p_events: u32(offset_of!(Stacks, p_events)),
        nodes: [nodes(0), nodes(1)],
        d_len: u32(offset_of!(Stacks, d_len)),
        d_version: u32(offset_of!(Stacks, d_version)),
        d_number: f.u64(at + offset_of!(Stacks, d_number)),
        d_parts: f.u64(at + offset_of!(Stacks, d_parts)),
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
        count: f.u64(offset_of!(Commit, count)),
        counted: f.u64(offset_of!(Commit, counted)),
        pend: Pending {
            what: f.u32(pend + offset_of!(Pending, what)),
            lane: f.u32(pend + offset_of!(Pending, lane)),
            seq: f.u64(pend + offset_of!(Pending, seq)),
            usable: f.u64(pend + offset_of!(Pending, usable)),
        },
        stacks: stacks_of(f),
    }
}
