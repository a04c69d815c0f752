//! The records of a ring that its process did not live to drain.

use memshim_format::record::{self, op};
use memshim_format::spool::{BLOCK, BLOCK_WORDS, BLOCKS_MAX, Block, PYTHON_BLOCK};
use std::mem::offset_of;

use super::spool::{Lane, Spool};

/// A record, its argument words, and the start of the block it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub op: u8,
    pub arg: u64,
    pub low: u64,
    pub args: [u64; record::MAX_WORDS - 1],
    pub block_t: u64,
}

impl Record {
    /// Of a STAMP: it can be older than the block that its push began.
    pub fn time(&self) -> u64 {
        record::time_of_stamp(record::stamp(self.arg << record::ARG_SHIFT | self.low), self.block_t.saturating_sub(record::LATE))
    }
}

/// All records of a lane after its commit, in order, and how many words made no sense.
pub fn records(spool: &Spool, number: u32, lane: &Lane) -> (Vec<Record>, u64) {
    let mut all = Vec::new();
    let mut bad = 0;
    let (mut index, mut pos) = match lane.commit.block {
        0 => (lane.first, BLOCK_WORDS),
        block => (block, (lane.commit.pos as usize).max(BLOCK_WORDS)),
    };
    // A chain that runs in a circle is a damaged one: it ends after as many blocks as there are.
    for _ in 0..BLOCKS_MAX {
        let Some(block) = (index as usize).checked_sub(1).and_then(|i| spool.block(i)) else { break };
        let u32_at = |at: usize| block.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
        let u64_at = |at: usize| block.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        if u32_at(offset_of!(Block, lane)) != number {
            bad += (all.is_empty() && lane.commit.block == 0) as u64;
            break;
        }
        let block_t = u64_at(offset_of!(Block, t_ns));
        pos = pos.next_multiple_of(8);
        while pos + 8 <= BLOCK {
            let word = u64_at(pos);
            pos += 8;
            if word & record::START == 0 {
                bad += (word != 0) as u64;
                continue;
            }
            if record::op_of(word) == op::PAD {
                break;
            }
            let n = record::words(word) - 1;
            let args: [u64; record::MAX_WORDS - 1] = std::array::from_fn(|i| if i < n { u64_at(pos + i * 8) } else { 0 });
            // A record stands whole in one block, and its arguments are written before its start.
            if pos + n * 8 > BLOCK || args[..n].iter().any(|a| a & record::START != 0) || !known(record::op_of(word)) {
                bad += 1;
                continue;
            }
            let op = record::op_of(word);
            // Of a block of Python's, another of malloc may lie at the address.
            let beside = if lane.python && op <= op::UNFREE { PYTHON_BLOCK } else { 0 };
            all.push(Record { op, arg: record::arg_of(word), low: record::low_of(word) | beside, args, block_t });
            pos += n * 8;
        }
        index = u32_at(offset_of!(Block, next));
        pos = BLOCK_WORDS;
    }
    (all, bad)
}

fn known(o: u8) -> bool {
    matches!(o, op::ALLOC..op::FREE | op::FREE..=op::REALLOC_DONE | op::MMAP..=op::UNDO | op::THREAD_START..=op::CHILD | op::PHASE..=op::COUNT | op::GPU..=op::GPU_LAST)
}
