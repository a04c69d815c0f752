//! The spool: the shared memory of one process, laid out so that a reader finds in it exactly what the trace does not hold yet.
//!
//! The file is sparse; offsets are fixed, only what is used has blocks:
//!
//! | offset | what |
//! |---|---|
//! | 0 | [`Header`] |
//! | [`KINDS_OFF`] | [`Kind`] × [`KINDS_MAX`] |
//! | [`SIDE_OFF`] | text of [`Header::side_len`] bytes: whole lines |
//! | [`BLOCKS_OFF`] | [`Block`] × [`BLOCKS_MAX`]: the rings' memory, 4 KiB each, chained by `next` |
//! | [`LANES_OFF`] | [`Lane`] × [`LANES_MAX`] |
//! | [`TABLE_OFF`] | the live table: nodes ([`crate::live`]) in `Header::table_bytes` |
//!
//! A thread's ring is the chain of blocks that its lane points at. The producer fills the last block, the drain reads from
//! `Commit::{block,pos}`. Words are written last-to-first, so a record whose first word is there is there whole.
//!
//! The drain works in chunks: it reads up to [`CHUNK`] records, notes the table entries that they free in [`Header::killed`] and takes them
//! out, then writes a new [`Commit`] into the half of [`Lane::commit`] not in use and flips [`Lane::which`]. A reader of a dead
//! process's spool therefore starts from the commit, ignores table entries of a lane that were not made before its `Commit::seq`,
//! puts back the killed ones, and re-reads the records after the commit; nothing is lost or counted twice. A pending batch whose
//! `(group, lane)` the trace already holds was written just before the end and is skipped; so are kinds the trace holds.

use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64};

/// First word of a spool ("MEMSPOOL" read as little-endian bytes).
pub const MAGIC: u64 = u64::from_le_bytes(*b"MEMSPOOL");
/// Layout version; a reader refuses others.
pub const VERSION: u32 = 11;
/// Offset of the kinds.
pub const KINDS_OFF: usize = 64 << 10;
/// Kinds at most; further allocations use the kinds of size −1.
pub const KINDS_MAX: usize = 65536;
/// Offset of the side text: whole lines (maps, thread, child) taken over but not yet written to the trace.
pub const SIDE_OFF: usize = 0x14_0000;
/// Its size.
pub const SIDE_CAP: usize = 128 << 10;
/// Offset of the ring blocks.
pub const BLOCKS_OFF: usize = 2 << 20;
/// Ring blocks at most (12 MiB): one for each lane, and [`BLOCKS_SPARE`].
pub const BLOCKS_MAX: usize = LANES_MAX + BLOCKS_SPARE;
/// Blocks that lanes may fill beyond their first before their threads wait for the drain (4 MiB).
pub const BLOCKS_SPARE: usize = 1024;
/// Offset of the lanes.
pub const LANES_OFF: usize = 14 << 20;
/// Lanes at most; the last is shared by threads for which there is no other.
pub const LANES_MAX: usize = 2048;
/// What is said of threads that share a lane, by its number: there is no other for them, or no room for one.
/// `refused`: [`Header::refused`].
pub const fn crowded(lane: u32, refused: u32) -> &'static str {
    if lane as usize + 1 >= LANES_MAX {
        "more threads ran at once than the 2,047 whose calls can be recorded one by one; let fewer run at once"
    } else if refused == EDQUOT {
        "there was no room to record the calls of a further thread, on the disk of the trace (disk quota exceeded); make room, or set MEMSHIM_OUT to a path \
         on another disk"
    } else if refused != 0 {
        "there was no room to record the calls of a further thread, on the disk of the trace (no space left on the device); make room, or set MEMSHIM_OUT to \
         a path on another disk"
    } else {
        "there was no room to record the calls of a further thread, on the disk of the trace or in the address space that is allowed (ulimit -v); make room, or set \
         MEMSHIM_OUT to a path on another disk"
    }
}
const EDQUOT: u32 = 122;
const EFBIG: u32 = 27;

/// What is said of calls that are lost because the file of the spool could not grow, by the error number of that.
pub const fn no_room(refused: u32) -> &'static str {
    match refused {
        EDQUOT => {
            "the disk quota left no room for the memory that recording takes beside the trace; make room, or set MEMSHIM_OUT to a path on another disk"
        }
        EFBIG => "the limit on the size of files left no room for the memory that recording takes beside the trace; raise it (ulimit -f)",
        _ => {
            "the disk of the trace was full: no room for the memory that recording takes beside it; make room, or set MEMSHIM_OUT to a path on another disk"
        }
    }
}

/// Whether it is said of calls or threads for which the disk of the trace had no room.
pub fn is_of_disk(why: &str) -> bool {
    [EDQUOT, 1].iter().any(|refused| why == no_room(*refused) || why == crowded(0, *refused))
}

/// What of a process that is gone is in no count, and why (see [`Header::crowd_private`]).
pub const CROWD_GONE: [&str; 2] = [
    "counts of further threads",
    "they were in memory that went with the process, since the disk of the trace had no room for them; make room, or set MEMSHIM_OUT to a path on another disk",
];

/// Of those that are lost for another reason.
pub const NO_BLOCK: &str = "no room was left for them in a ring or in the table of live blocks";

/// What of records that had no room is no heap call.
pub const ROWS: &str = "calls of mmap and the like, begins and ends of threads, phases and work on GPUs";

/// Offset of the live table.
pub const TABLE_OFF: usize = 78 << 20;
/// Records a chunk of the drain holds at most.
pub const CHUNK: usize = 64;

/// Size of a ring block.
pub const BLOCK: usize = 4096;
/// Size of a lane.
pub const LANE: usize = 32 << 10;
/// Counted functions at most.
pub const FNS_MAX: usize = 24;

/// Bytes of the columns of a lane's pending batch.
pub const K_CAP: usize = 6144;
/// See [`K_CAP`].
pub const X_CAP: usize = 5120;
/// See [`K_CAP`].
pub const Z_CAP: usize = 2048;
/// See [`K_CAP`].
pub const T_CAP: usize = 1024;
/// See [`K_CAP`]: native and Python stacks of the batch's allocations.
pub const S_CAP: usize = 2048;
/// See [`S_CAP`].
pub const P_CAP: usize = 2048;
/// Bytes of a lane's pending nodes, native and Python ones each.
pub const N_CAP: usize = 2048;
/// Bytes of texts that a definition in a lane's ring can have.
pub const D_CAP: usize = 3072;

/// Page 0 of the spool.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`]
    pub magic: u64,
    /// [`VERSION`]
    pub version: u32,
    /// Process that maps it.
    pub pid: u32,
    /// Its start, field 22 of `/proc/PID/stat`.
    pub start_ticks: u64,
    /// How many images of the process came before.
    pub exec: u32,
    /// 1 fast, 2 full.
    pub mode: u32,
    /// Kinds defined so far (numbers 1..=kinds).
    pub kinds: AtomicU32,
    /// Of these, written to the trace.
    pub kinds_written: AtomicU32,
    /// Number of the group that will be written next.
    pub group: AtomicU64,
    /// Lanes ever used.
    pub lanes: AtomicU32,
    /// Ring blocks that have memory.
    pub blocks: AtomicU32,
    /// Bytes of the live table's nodes.
    pub table_bytes: AtomicU64,
    /// Bytes of side text. It may repeat lines that the trace holds already (same ticket, same thread).
    pub side_len: AtomicU64,
    /// Bytes of the trace file that hold whole lines of this process.
    pub trace_len: AtomicU64,
    /// Settled at start: 1 where usable sizes of the allocator are read from glibc's chunk headers.
    pub glibc: u32,
    /// 1 once the end line is written.
    pub ended: AtomicU32,
    /// Failed calls of the process (all lanes).
    pub failed: AtomicU64,
    /// Frees of unknown blocks, written so far.
    pub unknown_frees: AtomicU64,
    /// errno of the write that ended the recording (disk full, quota, …), 0 while all is well.
    pub trouble: AtomicU32,
    /// 1 when the live table is not in the spool (no room for it on the disk).
    pub table_private: AtomicU32,
    /// Events in batches that were written to the trace, all lanes.
    pub recorded: AtomicU64,
    /// How the process ended, where the end line could not be written: [`HOWS`] + 1, 0 while it has not.
    pub end_how: AtomicU32,
    /// Its exit code; [`NO_CODE`] where that is not known.
    pub end_code: AtomicI32,
    /// When.
    pub end_ns: AtomicU64,
    /// Number + 1 of the lane whose counts threads without a lane share, 0 while there is none such.
    pub crowd: AtomicU32,
    /// As `recorded` and `unknown_frees`, of Python's blocks.
    pub python_recorded: AtomicU64,
    /// See `python_recorded`.
    pub python_unknown_frees: AtomicU64,
    /// Settled at start: 1 where Python's blocks are recorded.
    pub python_alloc: u32,
    /// Settled at start: 1 where column `x` says how often its lane had allocated at each event.
    pub ages: u32,
    /// errno by which the file could not grow, when that was last tried in vain; 0 it never was.
    pub refused: AtomicU32,
    /// 1 where the file had no room for the lane that further threads share: their counts are in private memory.
    pub crowd_private: AtomicU32,
    /// When [`Header::trouble`] came.
    pub trouble_ns: AtomicU64,
    /// Every event before is in the trace.
    pub whole_ns: AtomicU64,
    /// Whose chunk took out the entries of `killed`: its lane << 1 | what `which` was, plus one. They count only while `which` is that.
    pub killer: AtomicU32,
    /// Their number.
    pub killed_len: AtomicU32,
    /// The entries, and their addresses >> 3.
    pub killed: [Killed; CHUNK],
}

/// An entry that was taken out of the table.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Killed {
    /// Address >> 3 of its block.
    pub addr3: u64,
    /// The entry.
    pub entry: u64,
}

/// Ways to end by which a process says that it ends: `how` of the end line.
pub const HOWS: [&str; 3] = ["exit", "_exit", "quick_exit"];
/// See [`Header::end_code`].
pub const NO_CODE: i32 = i32::MIN;

/// One row of the dictionary of allocations.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Requested size, or −1: see column `z`.
    pub size: i64,
    /// Usable minus requested size.
    pub slack: u32,
    /// Index of the function.
    pub func: u8,
    /// 1 replaces an old block, 2 in place, 4 sampled.
    pub flags: u8,
    /// Zero.
    pub pad: u16,
}
const _: () = assert!(size_of::<Kind>() == 16);
const _: () = assert!(KINDS_OFF + KINDS_MAX * 16 <= SIDE_OFF && SIDE_OFF + SIDE_CAP <= BLOCKS_OFF);

/// Start of a ring block; words follow up to [`BLOCK`].
#[repr(C)]
pub struct Block {
    /// Index + 1 of the block that follows in the chain, 0 while this is the last.
    pub next: AtomicU32,
    /// Lane that fills it.
    pub lane: AtomicU32,
    /// `CLOCK_MONOTONIC` when it was begun.
    pub t_ns: AtomicU64,
}
/// Offset of the first word of a block. Blocks are aligned to their size, so an address says whether a record fits; the room before the
/// first word is where reservations that overshoot the block before can end, also of nested signal handlers.
pub const BLOCK_WORDS: usize = 128;
const _: () = assert!(size_of::<Block>() == 16);

/// What the drain has taken over from a lane's ring, and the pending batch it made of it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Commit {
    /// Index + 1 of the block being read, 0 before the first.
    pub block: u32,
    /// Byte offset in it of the next word to read.
    pub pos: u32,
    /// Sequence number that the lane's next allocation gets.
    pub seq: u64,
    /// Sequence number of the pending batch's first allocation.
    pub seq0: u64,
    /// Events in the pending batch.
    pub events: u32,
    /// Bytes used of the columns.
    pub k_len: u32,
    /// See `k_len`.
    pub x_len: u32,
    /// See `k_len`.
    pub z_len: u32,
    /// See `k_len`.
    pub t_len: u32,
    /// Events of the batch up to its last stamp.
    pub stamp_events: u32,
    /// Time of the batch's start.
    pub t0: u64,
    /// Instant of its last stamp (t0 plus whole ticks).
    pub stamp_ns: u64,
    /// Own block freed before (`prev` of the format).
    pub prev: u64,
    /// Allocations and frees in the batch.
    pub allocs: u32,
    /// See `allocs`.
    pub frees: u32,
    /// Requested bytes of its allocations.
    pub bytes: u64,
    /// The lane's live usable bytes, over its whole life.
    pub live: i64,
    /// Their maximum within the batch.
    pub peak: i64,
    /// Last sequence number freed from an owner lane, by owner modulo 8 (column `x`).
    pub x_last: [u64; 8],
    /// Allocations of the lane by the COUNT record read last.
    pub count: u64,
    /// Those that the batch's column `x` has told of.
    pub counted: u64,
    /// A realloc whose first half has been read: identity of the old block.
    pub pend: Pending,
    /// Stacks of its events.
    pub stacks: Stacks,
}

/// Where a lane is in its stacks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    /// The STACK record read last (0: none).
    pub now: u64,
    /// The one that the batch's columns have reached.
    pub written: u64,
    /// Bytes used of columns `s` and `p`.
    pub s_len: u32,
    /// See `s_len`.
    pub p_len: u32,
    /// Events of the batch up to the last pair of `s` and of `p`.
    pub s_events: u32,
    /// See `s_events`.
    pub p_events: u32,
    /// Pending nodes, native and Python.
    pub nodes: [Nodes; 2],
    /// Bytes of the definition being read.
    pub d_len: u32,
    /// Its version, number and lengths, as in the CODE record.
    pub d_version: u32,
    /// See `d_version`.
    pub d_number: u64,
    /// See `d_version`.
    pub d_parts: u64,
}

/// Nodes of a lane that no line holds yet.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// Number of the first.
    pub from: u32,
    /// How many.
    pub count: u32,
    /// Bytes of their column.
    pub len: u32,
    /// Zero.
    pub pad: u32,
    /// The last one's frame.
    pub last: u64,
}

/// The old block of a realloc in progress.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// 0 none, 1 an own block, 2 a block of another lane, 3 unknown.
    pub what: u32,
    /// Owner lane (2).
    pub lane: u32,
    /// Sequence number (1, 2) or address >> 3 (3).
    pub seq: u64,
    /// Its usable size.
    pub usable: u64,
}

/// Where in [`Lane::counts`] a function is: so that malloc and free are first, in one cache line with what is live.
#[inline(always)]
pub const fn cell(func: u8) -> usize {
    if func < 16 { func as usize * 3 % 16 } else { func as usize }
}
const _: () = assert!(cell(crate::record::func::MALLOC) == 0 && cell(crate::record::func::FREE) == 1 && FNS_MAX > 16);
const _: () = assert!(core::mem::offset_of!(Lane, counts) == 32 && LANES_OFF.is_multiple_of(64) && LANE.is_multiple_of(64));

/// One lane: a ring, the exact counts of its thread, and its pending batch.
#[repr(C)]
pub struct Lane {
    /// Live usable bytes: what this thread allocated less what it freed.
    pub live: AtomicI64,
    /// Live blocks: those this thread allocated less those it freed. What its reallocs ended is allocation calls − free calls − blocks.
    pub blocks: AtomicI64,
    /// Most that `live` was since the drain last looked.
    pub hi: AtomicI64,
    /// Live blocks at that instant. Written before `hi`: who reads `hi` first has blocks of an instant when `live` was no lower.
    pub hi_blocks: AtomicI64,
    /// Calls that succeeded and bytes asked for, by function at its [`cell`]. Only the lane's thread writes them.
    pub counts: [[AtomicU64; 2]; FNS_MAX],
    /// Calls that failed.
    pub failed: AtomicU64,
    /// Calls counted that are not recorded for sure: the ring was full, or the table of live blocks.
    pub lost: AtomicU64,
    /// Thread that uses the lane.
    pub tid: AtomicU32,
    /// 0 free, 1 in use, 2 its thread is ending, 3 shared by threads for which there was none.
    pub state: AtomicU32,
    /// Index + 1 of the first block of the chain ever (then see the commit), 0 while there is none.
    pub first: AtomicU32,
    /// Which of `commit` holds.
    pub which: AtomicU32,
    /// 1: its blocks are those of Python's allocators, its functions [`crate::record::PYTHON_FNS`].
    pub python: AtomicU32,
    /// Records that were never finished (a signal's handler jumped out while one was written) or can't be read, and blocks whose end will
    /// not be known as theirs. Each may be of a counted call, or of none.
    pub broken: AtomicU32,
    /// First halves of reallocs that had no room: the call is lost with its second half, or counted as that where this one has room.
    pub halves_lost: AtomicU32,
    /// Of `lost`, those for which the file of the spool could not grow (see [`Header::refused`]).
    pub lost_by_disk: AtomicU64,
    /// Records of no heap call (see [`ROWS`]) that had no room.
    pub rows_lost: AtomicU64,
    /// The two halves.
    pub commit: [Commit; 2],
    /// Column `k` of the pending batch.
    pub k: [u8; K_CAP],
    /// Column `x`.
    pub x: [u8; X_CAP],
    /// Column `z`.
    pub z: [u8; Z_CAP],
    /// Column `t`.
    pub t: [u8; T_CAP],
    /// Column `s`.
    pub s: [u8; S_CAP],
    /// Column `p`.
    pub p: [u8; P_CAP],
    /// Columns of the pending nodes, native and Python.
    pub nodes: [[u8; N_CAP]; 2],
    /// Texts of the definition being read.
    pub d: [u8; D_CAP],
}
const _: () = assert!(BLOCKS_OFF + BLOCKS_MAX * BLOCK <= LANES_OFF && LANES_OFF + LANES_MAX * LANE <= TABLE_OFF);
const _: () = assert!(size_of::<Lane>() <= LANE);
const _: () = assert!(size_of::<Header>() <= 4096);

/// Bits of `address >> 3`.
pub const ADDR_BITS: u32 = 44;
/// Beside `address >> 3` in the live table: the block is one of Python's allocators. A block of malloc can lie at its address.
pub const PYTHON_BLOCK: u64 = 1 << ADDR_BITS;
/// Mask of `address >> 3`.
pub const ADDR_MASK: u64 = (1 << ADDR_BITS) - 1;
