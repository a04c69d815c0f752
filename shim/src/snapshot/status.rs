//! What `/proc/self/status` says.

use super::STATUS;
use crate::writer;
use memshim_format::proc::fields;

/// The numbers of `/proc/self/status`.
#[derive(Clone, Copy, Default)]
pub struct Status {
    pub(super) rss: u64,
    pub(super) hwm: u64,
    pub(super) anon: u64,
    pub(super) file: u64,
    pub(super) shmem: u64,
    pub(super) swap: u64,
    pub(super) size: u64,
    pub(super) peak: u64,
    pub(super) stk: u64,
    pub(super) hugetlb: u64,
    /// Without the writer, which is not one of the program's.
    pub(super) threads: u64,
    /// The first thread has ended; it counts until the process has been waited for.
    first_ended: bool,
}

impl Status {
    /// Whether no thread of the program is left. The writer lives.
    pub fn is_without_program(&self) -> bool {
        self.threads == self.first_ended as u64
    }

    pub(super) fn has_memory(&self) -> bool {
        self.rss > 0
    }
}

/// Behind the name, escaped, and the mask of files.
const STATE_WITHIN: usize = 128;

/// What is known also of a process whose first thread has ended, which has no memory for `/proc` any more. The lock is held, or one thread exists.
pub fn look() -> Option<Status> {
    // SAFETY: the caller's promise.
    let s = unsafe { STATUS.read() };
    let keys: [&[u8]; 11] =
        [b"VmPeak", b"VmSize", b"VmHWM", b"VmRSS", b"RssAnon", b"RssFile", b"RssShmem", b"VmStk", b"VmSwap", b"HugetlbPages", b"Threads"];
    let found = fields(s, keys);
    let [peak, size, hwm, rss, anon, file, shmem, stk, swap, hugetlb, _] = found.map(|n| n.unwrap_or(0));
    let [.., threads] = found;
    let threads = threads?.saturating_sub(writer::alive() as u64);
    Some(Status {
        rss,
        hwm,
        anon,
        file,
        shmem,
        swap,
        size,
        peak,
        stk,
        hugetlb,
        threads,
        first_ended: s.get(..STATE_WITHIN).unwrap_or(s).windows(9).any(|w| w == b"State:\tZ "),
    })
}

pub(super) fn status() -> Option<Status> {
    look().filter(Status::has_memory)
}

/// Threads of the program, but for one where the writer does not live; where `/proc` tells. The lock is held.
pub fn program_threads() -> Option<u64> {
    let s = look()?;
    Some((s.threads + writer::alive() as u64).saturating_sub(1 + s.first_ended as u64))
}
