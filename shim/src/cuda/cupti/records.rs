//! CUPTI's records, and the WORK rows that become of them.
//!
//! A record's type grows with CUPTI's version, at its end. What is read here lies at its start, and has lain there in every version from 17
//! (CUDA 11.6 and 11.7: `CUpti_ActivityKernel7`, `Memcpy5`, `MemcpyPtoP4`, `Memset4`) to 130500 (CUDA 13.5: `CUpti_ActivityKernel13`, `Memcpy7`,
//! `MemcpyPtoP4`, `Memset5`), all packed: by the types in the `cupti_activity.h` of each. How long a record is, only CUPTI knows, and is asked.

use super::expect::{self, Owner};
use super::library::own;
use super::{buffers, clock, names};
use crate::config::COUNT;
use crate::cuda::call::ticket;
use crate::lane::{Hot, push};
use memshim_format::gpu::{self, direction, kind, work};
use memshim_format::record::{ARG_WORD, op, start};

/// Kinds of records (`CUpti_ActivityKind`).
pub const COPY: u32 = 1;
pub const MEMSET: u32 = 2;
/// CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: without it kernels would run one after the other.
pub const KERNEL: u32 = 10;
/// CUPTI_ACTIVITY_KIND_MEMCPY2: between devices.
pub const PEER: u32 = 22;

/// Versions of CUPTI with records that are known. Before 13.0 they were counted, from then on they are xxyyzz; of 13 later ones are taken to grow at
/// the end as all did before.
pub fn are_known(version: u32) -> bool {
    matches!(version, 17..=28 | 130_000..=139_999)
}

/// Where the fields stand, in bytes.
pub struct Layout {
    pub kind: u32,
    pub start: usize,
    pub end: usize,
    pub device: usize,
    pub stream: usize,
    pub correlation: usize,
    /// Bytes moved or set; of a kernel the address of its name.
    pub bytes: usize,
    pub node: usize,
}

/// Every kind starts with its kind, four bytes; a copy's way stands in one byte behind it.
pub const LAYOUTS: [Layout; 4] = [
    Layout { kind: KERNEL, start: 16, end: 24, device: 40, stream: 48, correlation: 92, bytes: 104, node: 144 },
    Layout { kind: COPY, start: 16, end: 24, device: 32, stream: 40, correlation: 44, bytes: 8, node: 64 },
    Layout { kind: PEER, start: 16, end: 24, device: 32, stream: 40, correlation: 60, bytes: 8, node: 72 },
    Layout { kind: MEMSET, start: 16, end: 24, device: 32, stream: 40, correlation: 44, bytes: 8, node: 64 },
];
const WAY: usize = 4;

/// What was read.
#[derive(Default)]
pub struct Read {
    pub records: u64,
    /// Of these without times: the device had no memory for them, or had not done the work when CUPTI was let go.
    pub untimed: u64,
    /// Buffers that could not be read to their ends.
    pub torn: u64,
}

/// Reads what CUPTI gave back.
pub fn read_completed(hot: *mut Hot) -> Read {
    /// CUPTI_ERROR_MAX_LIMIT_REACHED: there are no more.
    const NO_MORE: i32 = 12;
    let mut read = Read::default();
    let Some(next) = own().next_record else { return read };
    buffers::each_completed(|buffer, valid| {
        let mut record: *mut u8 = core::ptr::null_mut();
        // SAFETY: CUPTI's function on a buffer that it has filled; it gives the address of a whole record.
        unsafe {
            loop {
                match next(buffer, valid, &raw mut record) {
                    0 if !record.is_null() => {
                        read.records += 1;
                        read.untimed += !take(hot, record) as u64;
                    }
                    NO_MORE => break,
                    _ => {
                        read.torn += (valid > 0) as u64;
                        break;
                    }
                }
            }
        }
    });
    read
}

/// Leaves a row of a record. False: it has no times.
///
/// # Safety
/// A whole record of CUPTI's.
unsafe fn take(hot: *mut Hot, record: *const u8) -> bool {
    // SAFETY: the record is whole, and has these fields.
    unsafe {
        let kind = record.cast::<u32>().read_unaligned();
        let Some(layout) = LAYOUTS.iter().find(|l| l.kind == kind) else { return true };
        let long = |at: usize| record.add(at).cast::<u64>().read_unaligned();
        let int = |at: usize| record.add(at).cast::<u32>().read_unaligned();
        let owner = expect::owner(int(layout.correlation));
        let (begins, ends, node) = (long(layout.start), long(layout.end), long(layout.node));
        if begins == 0 || ends < begins {
            return false;
        }
        if (*hot).mode == COUNT {
            return true;
        }
        let (what, what_of) = match kind {
            KERNEL => (work::KERNEL, names::number(hot, long(layout.bytes) as usize as *const _)),
            MEMSET => (work::MEMSET, long(layout.bytes)),
            PEER => (work::COPY | direction::P2P << work::DIRECTION, long(layout.bytes)),
            _ => (work::COPY | way(record.add(WAY).read()) << work::DIRECTION, long(layout.bytes)),
        };
        let (about, context, by_stream) = match owner {
            Some(Owner::Ticket(t)) => (t, 0, 0),
            Some(Owner::Launch { stream, context }) => (stream, context, work::BY_STREAM),
            None => (0, 0, work::BY_STREAM),
        };
        let flags = what | by_stream | if node != 0 { work::NODE } else { 0 };
        let head = gpu::head(0, int(layout.device).min(255) as u64, context, flags);
        let words = [ends - begins, about, int(layout.stream) as u64, what_of, node].map(|w| w & ARG_WORD);
        let [ns, about, stream, what_of, node] = words;
        let first = start(op::GPU + kind::WORK, gpu::NO_CALL, ticket());
        push(hot, [first, clock::ours(begins) & ARG_WORD, head, ns, about, stream, what_of, node]);
        true
    }
}

/// CUPTI's kind of copy (`CUpti_ActivityMemcpyKind`; A: an array).
fn way(kind: u8) -> u64 {
    match kind {
        1 | 3 => direction::H2D,
        2 | 4 => direction::D2H,
        9 => direction::H2H,
        10 => direction::P2P,
        _ => direction::D2D,
    }
}
