//! What `/proc/self/status` says.

use super::STATUS;
use crate::{proc, writer};

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

/// What is known also of a process whose first thread has ended, which has no memory for `/proc` any more. The lock is held, or one thread exists.
pub fn look() -> Option<Status> {
    // SAFETY: the caller's promise.
    let s = unsafe { STATUS.read() };
    let f = |k: &[u8]| proc::field(s, k).unwrap_or(0);
    proc::field(s, b"Threads")?;
    Some(Status {
        rss: f(b"VmRSS"),
        hwm: f(b"VmHWM"),
        anon: f(b"RssAnon"),
        file: f(b"RssFile"),
        shmem: f(b"RssShmem"),
        swap: f(b"VmSwap"),
        size: f(b"VmSize"),
        peak: f(b"VmPeak"),
        stk: f(b"VmStk"),
        hugetlb: f(b"HugetlbPages"),
        threads: f(b"Threads").saturating_sub(writer::alive() as u64),
        first_ended: s.windows(9).any(|w| w == b"State:\tZ "),
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
