//! How much all processes of a run have written: the cap holds for them together.
//!
//! Two words in a small file of the run's folder, mapped by everybody who writes: what the first process wrote, and what all others did.
//! The first process alone has no folder and needs no file; it looks for one as it writes. Where the folder holds no good shared
//! mapping each process knows of itself only.

use super::aside::folder;
use super::{LAST_LINES, PATH, SINK};
use crate::config::CONFIG;
use crate::share;
use crate::sys::{self, sys};
use crate::text::Text;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU64};

/// Memory that the mapping takes, in bytes.
pub const PRIVATE: usize = 4096;

#[repr(C)]
struct Tally {
    first: AtomicU64,
    others: AtomicU64,
}

static mut TALLY: *const Tally = core::ptr::null();
/// The process has a child, which makes the file.
pub static EXPECTED: AtomicBool = AtomicBool::new(false);
/// When the first process, which does not make it, looks for it again where it knows of no child.
static mut AGAIN: u64 = 0;
const AGAIN_NS: u64 = 10_000_000;

/// Maps the file; whoever is not the first process makes it. To be called again until it is there.
///
/// # Safety
/// The lock is held, or one thread exists.
unsafe fn open() {
    // SAFETY: the path is zero-terminated; the caller's promise.
    unsafe {
        if !TALLY.is_null() || !SINK.regular {
            return;
        }
        if SINK.first && !SINK.last && !EXPECTED.load(Relaxed) {
            let now = sys::now();
            if now < AGAIN {
                return;
            }
            AGAIN = now + AGAIN_NS;
        }
        let mut path = [0u8; PATH];
        let mut t = Text::over(&mut path);
        folder(&mut t, &*(&raw const CONFIG.out));
        t.str("/bytes\0");
        let make = if SINK.first { 0 } else { libc::O_CREAT };
        let fd = sys::openat(libc::AT_FDCWD, path.as_ptr(), libc::O_RDWR | libc::O_NOFOLLOW | libc::O_NONBLOCK | make, 0o600);
        if fd < 0 {
            return;
        }
        // Its last byte is 0 whoever writes it: so the words have their place on the disk, and nobody's count is lost.
        if !is_ours(fd) {
            sys::close(fd);
            return;
        }
        let whole = share::writes(|| sys!(libc::SYS_pwrite64, fd, [0u8].as_ptr(), 1, size_of::<Tally>() - 1)) == 1;
        if whole && !is_remote(fd) {
            let r = sys!(libc::SYS_mmap, 0, PRIVATE, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0);
            if r > 0 {
                TALLY = r as *const Tally;
                note_first();
            }
        }
        sys::close(fd);
    }
}

/// What the first process wrote before there was the file: at its cap it writes no more, and does not look for it.
unsafe fn note_first() {
    // SAFETY: the path is zero-terminated; stat is plain data; the mapping is there.
    unsafe {
        let mut st: libc::stat = core::mem::zeroed();
        let out = &raw const CONFIG.out;
        let r = sys!(libc::SYS_newfstatat, libc::AT_FDCWD, out, &raw mut st, libc::AT_SYMLINK_NOFOLLOW);
        if !SINK.first && r == 0 && st.st_mode & libc::S_IFMT == libc::S_IFREG {
            (*TALLY).first.fetch_max(st.st_size.max(0) as u64, Relaxed);
        }
    }
}

/// Whether nobody else can have made the file, or can cut it short while it is mapped.
unsafe fn is_ours(fd: libc::c_int) -> bool {
    // SAFETY: stat is plain data.
    unsafe {
        let mut st: libc::stat = core::mem::zeroed();
        sys!(libc::SYS_fstat, fd, &raw mut st) == 0
            && st.st_mode & libc::S_IFMT == libc::S_IFREG
            && st.st_mode & 0o022 == 0
            && st.st_nlink == 1
            && st.st_uid as i64 == sys!(libc::SYS_geteuid)
    }
}

unsafe fn is_remote(fd: libc::c_int) -> bool {
    // SAFETY: statfs is plain data.
    unsafe {
        let mut fs: libc::statfs = core::mem::zeroed();
        sys!(libc::SYS_fstatfs, fd, &raw mut fs) != 0 || memshim_format::remote::is_remote(fs.f_type)
    }
}

/// What the run has written, as far as this process knows.
///
/// # Safety
/// As [`open`].
pub unsafe fn total() -> u64 {
    // SAFETY: the mapping is kept; the caller's promise.
    unsafe {
        open();
        let own = SINK.written;
        if TALLY.is_null() {
            return own;
        }
        let (first, others) = ((*TALLY).first.load(Relaxed), (*TALLY).others.load(Relaxed));
        if SINK.first { (own + RESERVED).saturating_add(others) } else { first.saturating_add(others).max(own) }
    }
}

/// Bytes that this process is about to write, which others count as written.
static mut RESERVED: u64 = 0;

/// Makes room within the cap for a write of at most so many bytes, before it: of processes that write at once none takes what another has. False:
/// there is not so much. To be followed by [`settle`].
///
/// # Safety
/// As [`open`].
pub unsafe fn reserve(bytes: u64) -> bool {
    // SAFETY: the mapping is kept; the caller's promise.
    unsafe {
        open();
        // Last words, in the midst of a write that failed.
        settle();
        RESERVED = bytes;
        count(bytes as i64);
        let fits = total().saturating_add(if TALLY.is_null() { bytes } else { 0 }).saturating_add(LAST_LINES) <= CONFIG.max;
        if !fits {
            settle();
        }
        fits
    }
}

/// Gives back what of a reservation was not written.
///
/// # Safety
/// As [`open`].
pub unsafe fn settle() {
    // SAFETY: the caller's promise.
    unsafe {
        let rest = core::mem::replace(&mut *(&raw mut RESERVED), 0);
        count(-(rest as i64));
    }
}

/// A forked child has reserved nothing.
pub fn forget() {
    // SAFETY: one thread (a fresh child).
    unsafe { RESERVED = 0 };
}

/// This process has written so many bytes more.
///
/// # Safety
/// As [`open`].
pub unsafe fn add(bytes: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        open();
        let reserved = bytes.min(RESERVED);
        RESERVED -= reserved;
        count((bytes - reserved) as i64);
    }
}

/// Changes what others see of this process.
unsafe fn count(bytes: i64) {
    // SAFETY: the mapping is kept; the lock is held.
    unsafe {
        if TALLY.is_null() {
            return;
        }
        if SINK.first {
            (*TALLY).first.store(SINK.written + RESERVED, Relaxed);
        } else {
            (*TALLY).others.fetch_add(bytes as u64, Relaxed);
        }
    }
}
