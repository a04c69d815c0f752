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
//! | [`TABLE_OFF`] | the live table: [`Bucket`] × `Header::table_buckets` |
//!
//! A thread's ring is the chain of blocks that its lane points at. The producer fills the last block, the drain reads from
//! `Commit::{block,pos}`. Words are written last-to-first, so a record whose first word is there is there whole.
//!
//! The drain works in chunks: it reads up to [`CHUNK`] records, marks the table entries they free as dead (it does not remove
//! them), then writes a new [`Commit`] into the half of [`Lane::commit`] not in use and flips [`Lane::which`]. A reader of a dead
//! process's spool therefore starts from the commit, ignores table entries of this lane whose `seq` is at or above `Commit::seq`,
//! takes dead entries as live, and re-reads the records after the commit; nothing is lost or counted twice. A pending batch whose
//! `(group, lane)` the trace already holds was written just before the end and is skipped; so are kinds the trace holds.

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

/// First word of a spool ("MEMSPOOL" read as little-endian bytes).
pub const MAGIC: u64 = u64::from_le_bytes(*b"MEMSPOOL");
/// Layout version; a reader refuses others.
pub const VERSION: u32 = 1;
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
/// Ring blocks at most (8 MiB): one for each lane, and [`BLOCKS_SPARE`].
pub const BLOCKS_MAX: usize = 2048;
/// Blocks that lanes may fill beyond their first before their threads wait for the drain (4 MiB).
pub const BLOCKS_SPARE: usize = 1024;
/// Offset of the lanes.
pub const LANES_OFF: usize = 10 << 20;
/// Lanes (threads alive at once) at most.
pub const LANES_MAX: usize = 2048;
/// Offset of the live table.
pub const TABLE_OFF: usize = 42 << 20;
/// Records a chunk of the drain holds at most.
pub const CHUNK: usize = 64;

/// Size of a ring block.
pub const BLOCK: usize = 4096;
/// Size of a lane.
pub const LANE: usize = 16 << 10;
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
    /// Buckets of the live table.
    pub table_buckets: AtomicU64,
    /// Entries in it.
    pub table_used: AtomicU64,
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
    /// Events read from the rings and put into batches, all lanes.
    pub recorded: AtomicU64,
}

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
    /// A realloc whose first half has been read: identity of the old block.
    pub pend: Pending,
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

/// One lane: a ring, the exact counts of its thread, and its pending batch.
#[repr(C)]
pub struct Lane {
    /// Calls that succeeded and bytes asked for, by function. Only the lane's thread writes them.
    pub counts: [[AtomicU64; 2]; FNS_MAX],
    /// Live usable bytes: what this thread allocated less what it freed.
    pub live: AtomicI64,
    /// Blocks that a realloc of this thread ended: live blocks are allocation calls − free calls − replaced.
    pub replaced: AtomicU64,
    /// Most that `live` was since the drain last looked.
    pub hi: AtomicI64,
    /// Calls that failed.
    pub failed: AtomicU64,
    /// Events counted but not recorded: the ring was full.
    pub lost: AtomicU64,
    /// Thread that uses the lane.
    pub tid: AtomicU32,
    /// 0 free, 1 in use, 2 its thread is ending.
    pub state: AtomicU32,
    /// Index + 1 of the first block of the chain ever (then see the commit), 0 while there is none.
    pub first: AtomicU32,
    /// Which of `commit` holds.
    pub which: AtomicU32,
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
}
const _: () = assert!(size_of::<Lane>() <= LANE);
const _: () = assert!(size_of::<Header>() <= 4096);

/// A live block in the table: 12 bytes, five to a cache line, so that the table stays at 20 bytes a live block from 64 % load on.
///
/// `lo`: address >> 3 in bits 0..44, low 20 bits of `seq` above. `hi`: lane in bits 0..11, two bits made of the
/// usable size in 11..13, dead in bit 13, high 18 bits of `seq` above.
/// An empty slot is all zero.
#[repr(C, packed(4))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// See above.
    pub lo: u64,
    /// See above.
    pub hi: u32,
}
const _: () = assert!(size_of::<Entry>() == 12);

/// Entries of a bucket.
pub const BUCKET_ENTRIES: usize = 5;

/// A cache line of the live table.
#[repr(C, align(64))]
pub struct Bucket {
    /// In no order.
    pub entries: [Entry; BUCKET_ENTRIES],
    /// Entries that stand in later buckets though their home is this one or one before it.
    pub passed: u32,
}
const _: () = assert!(size_of::<Bucket>() == 64);

/// Bits of `address >> 3`.
pub const ADDR_BITS: u32 = 44;
/// Mask of `address >> 3`.
pub const ADDR_MASK: u64 = (1 << ADDR_BITS) - 1;

impl Entry {
    /// The entry of block `(lane, seq)` at `addr3` = address >> 3.
    #[inline(always)]
    pub const fn new(addr3: u64, lane: u32, seq: u64) -> Entry {
        Entry { lo: addr3 & ADDR_MASK | seq << ADDR_BITS, hi: lane & 0x7ff | ((seq >> 20) as u32) << 14 }
    }

    /// Two bits of a usable size, mixed of its lower ones.
    #[inline(always)]
    const fn size_bits(usable: u64) -> u32 {
        let u = usable >> 4;
        ((u ^ u >> 2 ^ u >> 4 ^ u >> 6) & 3) as u32
    }

    /// The same with the bits of its usable size, which tell blocks of one address apart.
    #[inline(always)]
    pub const fn sized(self, usable: u64) -> Entry {
        Entry { lo: self.lo, hi: self.hi & !(3 << 11) | Self::size_bits(usable) << 11 }
    }

    /// Whether it can be a block of that usable size.
    #[inline(always)]
    pub const fn can_be(self, usable: u64) -> bool {
        self.hi >> 11 & 3 == Self::size_bits(usable)
    }

    /// Address >> 3; 0 for an empty slot.
    #[inline(always)]
    pub const fn addr3(self) -> u64 {
        self.lo & ADDR_MASK
    }

    /// Owner lane.
    #[inline(always)]
    pub const fn lane(self) -> u32 {
        self.hi & 0x7ff
    }

    /// Sequence number in the owner lane (38 bits).
    #[inline(always)]
    pub const fn seq(self) -> u64 {
        self.lo >> ADDR_BITS | ((self.hi >> 14) as u64) << 20
    }

    /// Freed by a record that is being taken over.
    #[inline(always)]
    pub const fn dead(self) -> bool {
        self.hi & 1 << 13 != 0
    }

    /// The same, marked dead.
    #[inline(always)]
    pub const fn as_dead(self) -> Entry {
        Entry { lo: self.lo, hi: self.hi | 1 << 13 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_keeps_address_lane_and_sequence_number() {
        for (a, l, s) in [(1, 0, 0), (ADDR_MASK, 2047, (1 << 38) - 1), (0x7f12_3456_7890 >> 3, 17, 0x12_3456_789a)] {
            let e = Entry::new(a, l, s);
            assert_eq!((e.addr3(), e.lane(), e.seq(), e.dead()), (a, l, s, false));
            let d = e.as_dead();
            assert_eq!((d.addr3(), d.lane(), d.seq(), d.dead()), (a, l, s, true));
        }
    }
}
