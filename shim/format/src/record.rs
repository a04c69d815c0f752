//! The words of a ring. Every record is a start word (bit 63 set) and argument words (bit 63 clear):
//!
//! ```text
//! 63 62....56 55...........44 43...............0
//!  1    op      12 bits arg      44 bits arg         start word
//!  0              63 bits                            argument
//! ```
//!
//! A zero word where a start word is due is the rest of a block, or a place that a signal handler jumped out of.

use crate::gpu;
use crate::spool::BLOCK;

/// Bit that marks a start word.
pub const START: u64 = 1 << 63;
/// Where the op stands.
pub const OP_SHIFT: u32 = 56;
/// Where the 12-bit argument stands.
pub const ARG_SHIFT: u32 = 44;
/// Mask of an argument word.
pub const ARG_WORD: u64 = START - 1;

/// The counted functions, by number: index of `counts`, `fn` of a kind. Allocators first.
pub const FNS: [&str; 16] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    "operator new",
    "operator new[]",
    "free",
    "cfree",
    "free_sized",
    "operator delete",
    "operator delete[]",
];

/// Those of Python's allocators, in lanes of their own: the domain is the number's third part. As of [`FNS`] the releasing ones begin at
/// [`func::FIRST_FREE`].
pub const PYTHON_FNS: [&str; 14] = [
    "PyMem_RawMalloc",
    "PyMem_RawCalloc",
    "PyMem_RawRealloc",
    "PyMem_Malloc",
    "PyMem_Calloc",
    "PyMem_Realloc",
    "PyObject_Malloc",
    "PyObject_Calloc",
    "PyObject_Realloc",
    "",
    "",
    "PyMem_RawFree",
    "PyMem_Free",
    "PyObject_Free",
];

/// Numbers of [`FNS`].
#[allow(missing_docs)]
pub mod func {
    pub const MALLOC: u8 = 0;
    pub const CALLOC: u8 = 1;
    pub const REALLOC: u8 = 2;
    pub const REALLOCARRAY: u8 = 3;
    pub const POSIX_MEMALIGN: u8 = 4;
    pub const ALIGNED_ALLOC: u8 = 5;
    pub const MEMALIGN: u8 = 6;
    pub const VALLOC: u8 = 7;
    pub const PVALLOC: u8 = 8;
    pub const NEW: u8 = 9;
    pub const NEW_ARRAY: u8 = 10;
    pub const FREE: u8 = 11;
    pub const CFREE: u8 = 12;
    pub const FREE_SIZED: u8 = 13;
    pub const DELETE: u8 = 14;
    pub const DELETE_ARRAY: u8 = 15;
    /// First function that releases.
    pub const FIRST_FREE: u8 = FREE;
}

/// Ops of start words.
#[allow(missing_docs)]
pub mod op {
    /// Allocation by function `op - ALLOC`: address >> 3 | flags (kind flags, [`super::WIDE`]); argument: size in bits 0..40, slack in 40..63;
    /// with WIDE two arguments: size, usable.
    pub const ALLOC: u8 = 0x01;
    /// Free: address >> 3 | units, its usable size being `units * 16 - 8`; units 0: an argument word has the usable size.
    pub const FREE: u8 = 0x20;
    /// First half of a realloc: as FREE. The old block goes if an ALLOC with flag 1 follows, stays if UNFREE does.
    pub const REALLOC_FREE: u8 = 0x21;
    /// The realloc failed: as REALLOC_FREE said, undone. Argument none.
    pub const UNFREE: u8 = 0x22;
    /// Ends what a REALLOC_FREE began: if no ALLOC with flag 1 came in between, the old block is gone (size 0, or fast mode and the new
    /// block is not recorded). No argument.
    pub const REALLOC_DONE: u8 = 0x23;
    /// Rest of a block is not used.
    pub const PAD: u8 = 0x3f;
    /// mmap: ticket; t_ns, addr, len, prot << 32 | flags, kind.
    pub const MMAP: u8 = 0x40;
    /// munmap: ticket; t_ns, addr, len.
    pub const MUNMAP: u8 = 0x41;
    /// mremap: first ticket; second ticket, t_ns, old, old len, new, new len, flags.
    pub const MREMAP: u8 = 0x42;
    /// mprotect: ticket; t_ns, addr, len, prot.
    pub const MPROTECT: u8 = 0x43;
    /// madvise: ticket; t_ns, addr, len, advice.
    pub const MADVISE: u8 = 0x44;
    /// brk: ticket; t_ns, old, new.
    pub const BRK: u8 = 0x45;
    /// shmat: ticket; t_ns, addr, len.
    pub const SHMAT: u8 = 0x46;
    /// shmdt: ticket; t_ns, addr.
    pub const SHMDT: u8 = 0x47;
    /// The call with this ticket failed.
    pub const UNDO: u8 = 0x48;
    /// A thread begins to use the lane: tid; t_ns.
    pub const THREAD_START: u8 = 0x50;
    /// It ends: tid; t_ns, name in three words of six bytes, low byte first.
    pub const THREAD_END: u8 = 0x51;
    /// A child was made: pid, arg 0 fork 1 vfork 2 spawn; t_ns.
    pub const CHILD: u8 = 0x52;
    /// An edge of a phase: see [`crate::phase`].
    pub const PHASE: u8 = 0x53;
    /// A node of the lane's tree of native frames: its number; its parent's, the frame.
    pub const NODE: u8 = 0x54;
    /// A node of the lane's tree of Python frames: its number; its parent's, code << 32 | line (as [`crate::pylines::said`]) << 1 | entry.
    pub const PYNODE: u8 = 0x55;
    /// The stack of the allocations and rows that follow: Python node in bits 28..56, native node below. No argument word.
    pub const STACK: u8 = 0x56;
    /// A code object of Python's is defined: version, number; first line << 26 | bytes of file << 13 | of name. The
    /// texts follow, one after the other, in TEXT records.
    pub const CODE: u8 = 0x57;
    /// Text of what the record before began: bytes in it; seven words of seven bytes, low byte first.
    pub const TEXT: u8 = 0x58;
    /// A piece of a phase's name.
    pub const PHASE_NAME: u8 = 0x59;
    /// What follows happens at this time, what came before happened before it: its low bits, as of [`super::stamp`]. No argument word.
    pub const STAMP: u8 = 0x5a;
    /// The event before it happened at the last stamp. No argument word.
    pub const STAMPED: u8 = 0x5b;
    /// A program was started: pid, arg as of CHILD, with [`super::BARE`]; t_ns, its file's name in six words of seven bytes, low byte first.
    pub const STARTED: u8 = 0x5c;
    /// A child was waited for that a signal, the arg, had ended: pid; t_ns.
    pub const ENDED: u8 = 0x5d;
    /// Fast mode: how often the lane has allocated so far, where the record behind it happens: the low bits. No argument word.
    pub const COUNT: u8 = 0x5e;
    /// First of the GPU rows, one op a kind: see [`super::gpu`].
    pub const GPU: u8 = super::gpu::FIRST_OP;
    /// Last of them.
    pub const GPU_LAST: u8 = GPU + super::gpu::KINDS.len() as u8 - 1;
}

/// Flag of STARTED: in an environment that does not bring it the library.
pub const BARE: u64 = 1 << 4;
/// Ways to make a child, by number: of CHILD and STARTED.
pub const HOWS: [&str; 3] = ["fork", "vfork", "spawn"];

/// Flag of ALLOC: two argument words, size and usable.
pub const WIDE: u64 = 1 << 11;
/// Kind flag: releases an old block.
pub const REPLACES: u64 = 1;
/// Kind flag: in place.
pub const IN_PLACE: u64 = 2;
/// Kind flag: chosen by the byte sampler.
pub const SAMPLED: u64 = 4;
/// Where the flags of a sampled kind say how thin the samples were: the mean of the bytes between them was doubled so often.
pub const THIN_SHIFT: u32 = 3;
/// Most often.
pub const THIN_MAX: u32 = 15;
/// Mask of a record's kind flags.
pub const KIND_FLAGS: u64 = ((1 << THIN_SHIFT) - 1) | ((THIN_MAX as u64) << THIN_SHIFT);

/// A start word.
#[inline(always)]
pub const fn start(op: u8, arg: u64, low: u64) -> u64 {
    START | (op as u64) << OP_SHIFT | (arg & 0xfff) << ARG_SHIFT | low & super::spool::ADDR_MASK
}

/// Bits of a node's number in a STACK record.
pub const NODE_BITS: u32 = 28;
/// Bits of a length in a CODE record.
pub const LEN_BITS: u32 = 13;
/// Bytes of text in a TEXT record.
pub const TEXT_BYTES: usize = 49;

const STAMP_BITS: u64 = (1 << OP_SHIFT) - 1;

/// The STAMP record of a time.
pub const fn stamp(t_ns: u64) -> u64 {
    START | (op::STAMP as u64) << OP_SHIFT | t_ns & STAMP_BITS
}

/// A stamp comes at most so long after it was made, ns: then its thread had been held up between the clock and the ring.
pub const LATE: u64 = 3_600_000_000_000;

/// Its time, which is not before `since`.
pub const fn time_of_stamp(w: u64, since: u64) -> u64 {
    let t = since & !STAMP_BITS | w & STAMP_BITS;
    if t < since { t + STAMP_BITS + 1 } else { t }
}

/// The COUNT record of so many allocations.
pub const fn count(allocs: u64) -> u64 {
    start(op::COUNT, 0, allocs)
}

/// The allocations that a COUNT record with these low bits says, of which there were `before` already. A handler that allocates while its thread
/// makes one has told of more: it never becomes fewer.
pub const fn allocs_of_count(low: u64, before: u64) -> u64 {
    let more = low.wrapping_sub(before) & super::spool::ADDR_MASK;
    if more > super::spool::ADDR_MASK / 2 { before } else { before.wrapping_add(more) }
}

/// What is lost where a record does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// Nothing of the program's: it is about stacks, time or counts.
    Nothing,
    /// A counted call.
    Call,
    /// Half of a counted call, which counts with the other half.
    Half,
    /// That the block of a half before stays: whether that was in the ring nobody knows.
    End,
    /// What is no heap call.
    Row,
}

/// See [`Loss`].
pub const fn loss(w: u64) -> Loss {
    match op_of(w) {
        op::NODE..=op::TEXT | op::STAMP | op::STAMPED | op::COUNT => Loss::Nothing,
        op::ALLOC..=op::FREE | op::REALLOC_DONE => Loss::Call,
        op::REALLOC_FREE => Loss::Half,
        op::UNFREE => Loss::End,
        _ => Loss::Row,
    }
}

/// The second word of a CODE record: first line of the code, bytes of its two texts.
pub const fn code_parts(first_line: u32, lens: [usize; 2]) -> u64 {
    ((first_line as u64) << LEN_BITS | lens[0] as u64) << LEN_BITS | lens[1] as u64
}

/// What [`code_parts`] was given.
pub const fn parts_of_code(w: u64) -> (u32, [usize; 2]) {
    const MASK: u64 = (1 << LEN_BITS) - 1;
    ((w >> (LEN_BITS * 2)) as u32, [(w >> LEN_BITS & MASK) as usize, (w & MASK) as usize])
}

/// Whether a row has a stack: one that asks for memory. Others come after their call's stack by chance only.
pub const fn has_stack(w: u64) -> bool {
    const ALLOC: u8 = op::GPU + gpu::kind::ALLOC;
    const MAP: u8 = op::GPU + gpu::kind::MAP;
    matches!(op_of(w), op::MMAP | op::MREMAP | op::BRK | op::SHMAT | ALLOC | MAP)
}

/// The STACK record of two nodes.
pub const fn stack(native: u32, python: u32) -> u64 {
    START | (op::STACK as u64) << OP_SHIFT | (python as u64) << NODE_BITS | native as u64
}

/// The native and the Python node of a STACK record.
pub const fn nodes_of(w: u64) -> (u32, u32) {
    let mask = (1 << NODE_BITS) - 1;
    ((w & mask) as u32, (w >> NODE_BITS & mask) as u32)
}

/// Op of a start word.
#[inline(always)]
pub const fn op_of(w: u64) -> u8 {
    (w >> OP_SHIFT) as u8 & 0x7f
}

/// Its 12-bit argument.
#[inline(always)]
pub const fn arg_of(w: u64) -> u64 {
    w >> ARG_SHIFT & 0xfff
}

/// Its 44-bit argument.
#[inline(always)]
pub const fn low_of(w: u64) -> u64 {
    w & super::spool::ADDR_MASK
}

/// Words of a record by its op, without what FREE and ALLOC may add.
const WORDS: [u8; 128] = {
    let mut t = [1u8; 128];
    let mut o = op::ALLOC as usize;
    while o < op::FREE as usize {
        t[o] = 2;
        o += 1;
    }
    t[op::MMAP as usize] = 6;
    t[op::MUNMAP as usize] = 4;
    t[op::MREMAP as usize] = 8;
    t[op::MPROTECT as usize] = 5;
    t[op::MADVISE as usize] = 5;
    t[op::BRK as usize] = 4;
    t[op::SHMAT as usize] = 4;
    t[op::SHMDT as usize] = 3;
    t[op::THREAD_START as usize] = 2;
    t[op::THREAD_END as usize] = 5;
    t[op::CHILD as usize] = 2;
    t[op::STARTED as usize] = 8;
    t[op::ENDED as usize] = 2;
    t[op::PHASE as usize] = 9;
    t[op::PHASE_NAME as usize] = 8;
    t[op::NODE as usize] = 3;
    t[op::PYNODE as usize] = 3;
    t[op::CODE as usize] = 2;
    t[op::TEXT as usize] = 8;
    let mut k = 0;
    while k < gpu::KINDS.len() {
        t[op::GPU as usize + k] = 3 + gpu::KINDS[k].words as u8;
        k += 1;
    }
    t
};

/// Words of the record that starts with `w`, the start word included. Without branches: allocations and frees come in no order that a
/// processor could predict.
#[inline(always)]
pub const fn words(w: u64) -> usize {
    let o = op_of(w);
    let arg = arg_of(w);
    let long_free = (o & 0x7e == op::FREE) & (arg == 0);
    let wide = (o < op::FREE) & (arg & WIDE != 0);
    WORDS[o as usize & 127] as usize + (long_free | wide) as usize
}

/// The longest record, in words.
pub const MAX_WORDS: usize = 9;

/// What stands at a place of a ring block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Here {
    /// No more records in this block.
    End,
    /// A record.
    Record,
    /// One that would go on behind the block: the program has written there.
    Damaged,
    /// Nothing yet, or what a record was to be put into; or a word that begins none.
    Unwritten,
}

/// What the word `w`, at byte `pos` of its block, says of that place.
pub const fn here(w: u64, pos: usize) -> Here {
    if pos + 8 > BLOCK {
        return Here::End;
    }
    if w & START == 0 {
        return Here::Unwritten;
    }
    let len = words(w) * 8;
    match op_of(w) {
        op::PAD => Here::End,
        _ if len > 0 && pos + len <= BLOCK => Here::Record,
        _ => Here::Damaged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::BLOCK_WORDS;

    #[test]
    fn a_place_of_a_block_is_what_its_word_says() {
        let free = start(op::FREE, 1, 77);
        assert_eq!((words(free), words(start(op::FREE, 0, 77))), (1, 2));
        assert_eq!([here(free, BLOCK_WORDS), here(free, BLOCK - 8), here(free, BLOCK)], [Here::Record, Here::Record, Here::End]);
        // Written since the search for it: a record, not damage.
        assert_eq!([here(0, BLOCK_WORDS), here(start(op::ALLOC, 0, 77), BLOCK_WORDS)], [Here::Unwritten, Here::Record]);
        assert_eq!([here(start(op::FREE, 0, 77), BLOCK - 16), here(start(op::FREE, 0, 77), BLOCK - 8)], [Here::Record, Here::Damaged]);
        assert_eq!([here(start(op::PAD, 0, 0), BLOCK_WORDS), here(77, BLOCK_WORDS)], [Here::End, Here::Unwritten]);
        let of_length = (0..128).filter(|o| *o != op::PAD).all(|o| here(start(o, 1, 1), 0) == Here::Damaged || words(start(o, 1, 1)) > 0);
        assert!(of_length, "a record without a length would be met for ever");
    }

    #[test]
    fn a_stamp_keeps_its_time_over_years() {
        for t in [0, 1 << 40, (1 << 56) - 1, 1 << 56, (1 << 60) + 12_345] {
            for before in [0, 1_000_000_000] {
                assert_eq!(time_of_stamp(stamp(t), t - before.min(t)), t);
            }
        }
        assert!(op_of(stamp(u64::MAX)) == op::STAMP && words(stamp(u64::MAX)) == 1);
    }

    #[test]
    fn a_count_goes_on_beyond_its_bits_and_never_back() {
        let said = |allocs: u64, before| allocs_of_count(low_of(count(allocs)), before);
        for (allocs, before) in [(0, 0), (7, 7), ((1 << 44) + 3, (1 << 44) - 5), ((5 << 44) + 9, 5 << 44), (1 << 43, 1)] {
            assert_eq!(said(allocs, before), allocs);
        }
        assert_eq!([said(99, 100), said(1 << 44, (1 << 44) + 2)], [100, (1 << 44) + 2], "told by a handler meanwhile");
        assert!(loss(count(u64::MAX)) == Loss::Nothing && words(count(u64::MAX)) == 1);
    }
}
