//! What this process was handed before the Rust runtime touched it.
//!
//! The runtime ignores SIGPIPE and opens /dev/null on closed descriptors 0..2 before `main`; a target must get what *our* parent
//! gave us, so both are noted by a constructor that runs before the runtime does, and which other signals were ignored with them. One of the places
//! of the command with `unsafe`.
#![allow(unsafe_code)]

use nix::libc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

static CLOSED: AtomicU8 = AtomicU8::new(0);
/// Bit n−1: signal n.
static IGNORED: AtomicU64 = AtomicU64::new(0);
/// Beyond are real-time signals.
const LAST_SIGNAL: i32 = 31;

extern "C" fn note() {
    let mut closed = 0u8;
    for fd in 0..3 {
        // SAFETY: F_GETFD reads a flag of a descriptor number and touches no memory of ours.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            closed |= 1 << fd;
        }
    }
    CLOSED.store(closed, Relaxed);
    let mut ignored = 0u64;
    for signal in 1..=LAST_SIGNAL {
        // SAFETY: sigaction is plain data for which all zero bytes are valid.
        let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: a null new action only reads the old one, into memory that is ours.
        let rc = unsafe { libc::sigaction(signal, std::ptr::null(), &mut old) };
        if rc == 0 && old.sa_sigaction == libc::SIG_IGN {
            ignored |= 1 << (signal - 1);
        }
    }
    IGNORED.store(ignored, Relaxed);
}

// SAFETY: the section holds pointers to functions called once by the loader before `main`; `note` needs nothing of the Rust runtime.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

/// Which of descriptors 0, 1, 2 were closed when this process started.
pub fn closed_descriptors() -> impl Iterator<Item = i32> {
    let closed = CLOSED.load(Relaxed);
    (0..3).filter(move |fd| closed & (1 << fd) != 0)
}

/// The signals that were ignored when this process started (`nohup`, a background job of a script).
pub fn ignored_signals() -> impl Iterator<Item = i32> {
    let ignored = IGNORED.load(Relaxed);
    (1..=LAST_SIGNAL).filter(move |signal| ignored & (1 << (signal - 1)) != 0)
}
