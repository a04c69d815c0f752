//! The spool in this process: one shared mapping of a file beside the trace, grown in place as rings and lanes are needed.
//!
//! Every page is given blocks on the disk before it is touched (`fallocate`), so a full disk is an error here and not a SIGBUS later.
//! Where the folder holds no shared mapping the same layout lies in private memory; then a kill loses what the trace has not got yet.

mod blocks;

use crate::lane::{Hot, LANES, STATES};
use crate::sys;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use libc::c_int;
use memshim_format::remote::is_remote;
use memshim_format::spool::*;
use sys::sys;

pub use blocks::{give_block, is_starved, take_block, wake_waiters};

/// What this process knows of its spool.
pub struct Spool {
    pub base: *mut u8,
    /// Bytes mapped there.
    pub mapped: usize,
    pub fd: c_int,
    pub id: (u64, u64),
    pub shared: bool,
    /// It is the mapping of a file, which has a name while it is `shared`.
    pub in_file: bool,
    /// Why it is not shared.
    pub reason: &'static str,
    pub pid: u32,
    /// Bytes that have been given memory.
    pub bytes: u64,
    pub path: [u8; 4200],
}

pub static mut SPOOL: Spool = Spool {
    base: core::ptr::null_mut(),
    mapped: 0,
    fd: -1,
    id: (0, 0),
    shared: false,
    in_file: false,
    reason: "",
    pid: 0,
    bytes: 0,
    path: [0; 4200],
};

/// Rings or lanes are being given memory.
static GROWING: AtomicU32 = AtomicU32::new(0);
static LANES_BACKED: AtomicU32 = AtomicU32::new(0);
/// Lanes that the mapping has room for.
static LANES_MAPPED: AtomicU32 = AtomicU32::new(LANES_MAX as u32);
/// Of the address space that a process may have, the spool takes no more than a part of this, but for [`LANES_LEAST`] lanes.
const SHARE: usize = 16;
/// Lanes that there is always room for.
const LANES_LEAST: usize = 16;

/// The header page.
#[inline(always)]
pub fn header() -> *mut Header {
    // SAFETY: the base is set before the first event.
    unsafe { SPOOL.base.cast() }
}

/// Ring block `i`.
///
/// # Safety
/// `i` was handed out by [`take_block`].
#[inline(always)]
pub unsafe fn block(i: u32) -> *mut Block {
    // SAFETY: within the mapping.
    unsafe { SPOOL.base.add(BLOCKS_OFF + i as usize * BLOCK).cast() }
}

/// Lane `i`.
///
/// # Safety
/// `i` is below [`LANES`].
#[inline(always)]
pub unsafe fn lane(i: u32) -> *mut Lane {
    // SAFETY: within the mapping.
    unsafe { SPOOL.base.add(LANES_OFF + i as usize * LANE).cast() }
}

/// The commit of a lane that holds.
///
/// # Safety
/// `lane` is one of ours; the drain's lock is held.
#[inline(always)]
pub unsafe fn committed(lane: *mut Lane) -> Commit {
    // SAFETY: the caller's promise.
    unsafe { (*lane).commit[(*lane).which.load(Relaxed) as usize & 1] }
}

/// Kind `i`, from 0.
///
/// # Safety
/// `i` is below [`KINDS_MAX`].
#[inline(always)]
pub unsafe fn kind(i: usize) -> *mut Kind {
    // SAFETY: within the mapping.
    unsafe { SPOOL.base.add(KINDS_OFF + i * size_of::<Kind>()).cast() }
}

/// Sets up a spool at `path` (zero-terminated; null: private memory from the start, for `reason`).
pub fn create(path: sys::Path, reason: &'static str) -> bool {
    // SAFETY: one thread (start of the process or of a forked child).
    unsafe {
        SPOOL.pid = sys::getpid();
        SPOOL.fd = -1;
        SPOOL.bytes = 0;
        SPOOL.shared = false;
        SPOOL.in_file = false;
        SPOOL.reason = reason;
        SPOOL.base = core::ptr::null_mut();
        blocks::reset();
        FD_HELD.store(false, Relaxed);
        REFUSED.store(u64::MAX, Relaxed);
        for c in [&GROWING, &LANES_BACKED, &LANES, &CROWD] {
            c.store(0, Relaxed);
        }
        for s in &STATES {
            s.store(0, Relaxed);
        }
        let allowed = sys::address_space() / SHARE;
        let lanes = (allowed.saturating_sub(LANES_OFF) / LANE).clamp(LANES_LEAST, LANES_MAX);
        LANES_MAPPED.store(lanes as u32, Relaxed);
        SPOOL.mapped = LANES_OFF + lanes * LANE;
        if !path.is_null() {
            open_shared(path);
        }
        if SPOOL.base.is_null() {
            SPOOL.base = sys::map_anon(SPOOL.mapped);
            if SPOOL.base.is_null() {
                return false;
            }
        }
        let h = header();
        (*h).magic = MAGIC;
        (*h).version = VERSION;
        (*h).pid = SPOOL.pid;
        true
    }
}

/// The spool is a sparse file of that length.
const LIMITED: &str = "the limit on the size of files (ulimit -f) is below the 78 MiB of its file";
const _: () = assert!(TABLE_OFF.div_ceil(1 << 20) == 78);

unsafe fn open_shared(path: sys::Path) {
    // SAFETY: path is zero-terminated; SPOOL is this thread's alone now.
    unsafe {
        let fd = sys::openat(libc::AT_FDCWD, path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW, 0o600);
        if fd < 0 {
            SPOOL.reason = "its file cannot be created";
            return;
        }
        let fd = sys::move_high(fd);
        let mut fs = [0i64; 15];
        sys!(libc::SYS_fstatfs, fd, fs.as_mut_ptr());
        let [kind, ..] = fs;
        let usable = !is_remote(kind) && sys!(libc::SYS_ftruncate, fd, TABLE_OFF) == 0 && sys!(libc::SYS_fallocate, fd, 0, 0, 4096) == 0;
        let base =
            if usable { sys!(libc::SYS_mmap, 0, SPOOL.mapped, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0) } else { -1 };
        if base < 0 {
            sys::swallow(libc::SIGXFSZ); // RLIMIT_FSIZE below the spool's size
            SPOOL.reason = if sys::file_size() < TABLE_OFF as u64 { LIMITED } else { "the folder of the trace holds no shared mapping" };
            sys!(libc::SYS_unlink, path);
            sys::close(fd);
            return;
        }
        SPOOL.base = base as *mut u8;
        SPOOL.fd = fd;
        SPOOL.id = sys::identity(fd);
        SPOOL.shared = true;
        SPOOL.in_file = true;
        SPOOL.bytes = 4096;
        // Pages are touched here and there: reading ahead would fill memory with what is never used.
        sys!(libc::SYS_madvise, base, SPOOL.mapped, libc::MADV_RANDOM);
        // The mapping shows in no core dump.
        sys!(libc::SYS_madvise, base, SPOOL.mapped, libc::MADV_DONTDUMP);
    }
}

/// What the disk had no room for last, and when: asking takes long where it is full, and each event would ask.
static REFUSED: AtomicU64 = AtomicU64::new(u64::MAX);
static REFUSED_AT: AtomicU64 = AtomicU64::new(0);
const ASK_AGAIN_NS: u64 = 100_000_000;

/// Whether the disk had no room for so much a moment ago.
fn was_refused(len: usize) -> bool {
    len as u64 >= REFUSED.load(Relaxed) && sys::now().saturating_sub(REFUSED_AT.load(Relaxed)) < ASK_AGAIN_NS
}

/// Gives `len` bytes at `off` memory; false where there is none.
pub fn back(off: usize, len: usize) -> bool {
    // SAFETY: the fd is checked to be ours before it is used.
    unsafe {
        if SPOOL.in_file {
            if was_refused(len) {
                return false;
            }
            let Some(r) = with_fd(|fd| sys!(libc::SYS_fallocate, fd, 0, off, len)) else { return false };
            if r < 0 {
                sys::swallow(libc::SIGXFSZ);
                REFUSED_AT.store(sys::now(), Relaxed);
                REFUSED.store(len as u64, Relaxed);
                (*header()).refused.store(-r as u32, Relaxed);
                return false;
            }
            if len as u64 >= REFUSED.load(Relaxed) {
                REFUSED.store(u64::MAX, Relaxed);
            }
        }
        if off < TABLE_OFF {
            SPOOL.bytes += len as u64; // the table states its own
        }
        true
    }
}

/// Whether the disk had no room when it was last asked.
pub fn is_full() -> bool {
    REFUSED.load(Relaxed) != u64::MAX
}

/// A thread uses the descriptor: rings and the table grow on different ones.
static FD_HELD: AtomicBool = AtomicBool::new(false);

/// Does something with the spool's descriptor, checked to be ours; `None` where it is gone. All signals are blocked.
pub fn with_fd<R>(work: impl FnOnce(libc::c_int) -> R) -> Option<R> {
    while FD_HELD.swap(true, Acquire) {
        sys::yield_now();
    }
    // SAFETY: one thread at a time.
    let done = if is_open() { Some(work(unsafe { SPOOL.fd })) } else { None };
    rest();
    FD_HELD.store(false, Release);
    done
}

/// The descriptor is not needed for now.
pub fn rest() {
    // SAFETY: the fd is checked to be ours.
    unsafe {
        if sys::has_few_descriptors() && SPOOL.fd >= 0 && sys::identity(SPOOL.fd) == SPOOL.id {
            sys::close(SPOOL.fd);
            SPOOL.fd = -1;
        }
    }
}

/// Whether the spool's descriptor is ours, found again by name if the program closed it.
pub fn is_open() -> bool {
    // SAFETY: path is zero-terminated.
    unsafe {
        if sys::identity(SPOOL.fd) != SPOOL.id {
            reopen();
        }
        SPOOL.fd >= 0
    }
}

/// The program closed our descriptor: the file is found again by name, and is used only if it is the same.
unsafe fn reopen() {
    // SAFETY: path is zero-terminated.
    unsafe {
        SPOOL.fd = sys::move_high(sys::openat(libc::AT_FDCWD, SPOOL.path.as_ptr(), libc::O_RDWR | libc::O_NOFOLLOW, 0));
        if sys::identity(SPOOL.fd) != SPOOL.id {
            sys::close(SPOOL.fd);
            SPOOL.fd = -1;
        }
    }
}

/// Number + 1 of the lane that threads without one share; 0 while there is none such.
static CROWD: AtomicU32 = AtomicU32::new(0);

/// Whether a lane is of Python's blocks.
pub fn is_python(i: u32) -> bool {
    // SAFETY: the caller's lane is below LANES.
    unsafe { (*lane(i)).python.load(Relaxed) != 0 }
}

/// The lane that threads without one share (see [`crate::crowd`]).
pub fn crowd() -> Option<u32> {
    CROWD.load(Acquire).checked_sub(1)
}

/// What is said of the threads that share lane `i`.
pub fn crowded(i: u32) -> &'static str {
    // SAFETY: the header is there once there are lanes.
    memshim_format::spool::crowded(i, unsafe { (*header()).refused.load(Relaxed) })
}

/// A forked child has none.
pub fn forget_crowd() {
    CROWD.store(0, Release);
}

/// Makes it: the lane after the last, which is kept free for this. Where the disk has no room for it, it lies in private memory.
/// `None`: there are lanes again.
pub fn make_crowd() -> Option<u32> {
    while GROWING.swap(1, Acquire) != 0 {
        sys::yield_now();
    }
    let (n, most) = (LANES.load(Acquire), LANES_MAPPED.load(Relaxed));
    let off = LANES_OFF + n as usize * LANE;
    if CROWD.load(Acquire) == 0 && n < most && n >= LANES_BACKED.load(Acquire).min(most - 1) {
        let there = n < LANES_BACKED.load(Acquire) || back(off, LANE) || {
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
            // SAFETY: pages of the spool's mapping that nobody has used; the header is there.
            unsafe {
                (*header()).crowd_private.store(1, Relaxed);
                sys!(libc::SYS_mmap, SPOOL.base.add(off), LANE, prot, flags, -1i64, 0) > 0
            }
        };
        if there {
            if let Some(s) = STATES.get(n as usize) {
                s.store(3, Release);
            }
            // SAFETY: the header is there, and the lane now.
            unsafe {
                (*lane(n)).state.store(3, Relaxed);
                (*header()).crowd.store(n + 1, Relaxed);
                (*header()).lanes.fetch_max(n + 1, Relaxed);
            }
            LANES.store(n + 1, Release);
            CROWD.store(n + 1, Release);
        }
    }
    GROWING.store(0, Release);
    crowd()
}

/// A lane never used before, `None` when all are in use.
pub fn new_lane() -> Option<u32> {
    loop {
        let n = LANES.load(Acquire);
        if n + 1 >= LANES_MAPPED.load(Relaxed) || CROWD.load(Acquire) != 0 {
            return None;
        }
        if n < LANES_BACKED.load(Acquire) {
            if LANES.compare_exchange(n, n + 1, AcqRel, Relaxed).is_ok() {
                STATES.get(n as usize)?.store(1, Release);
                // SAFETY: the header is there.
                unsafe { (*header()).lanes.fetch_max(n + 1, Relaxed) };
                return Some(n);
            }
            continue;
        }
        if GROWING.swap(1, Acquire) != 0 {
            sys::yield_now();
            continue;
        }
        let backed = LANES_BACKED.load(Acquire);
        let step = if backed == 0 { 4 } else { 16 };
        let grown = n < backed || back(LANES_OFF + backed as usize * LANE, step * LANE);
        if grown && n >= backed {
            LANES_BACKED.store(backed + step as u32, Release);
        }
        GROWING.store(0, Release);
        if !grown {
            return None;
        }
    }
}

/// Bytes of our own outside the spool: the hot lines and what is mapped by others is theirs to state.
pub const HOTS_LEN: usize = LANES_MAX * size_of::<Hot>();

/// Takes the name from a spool that holds nothing which the trace lacks: the program is about to be another, and nobody might come to
/// remove it. Should the program go on after all, its spool is private from here.
///
/// # Safety
/// The drain's lock is held, and this thread is the only one of the program.
pub unsafe fn take_name() {
    // SAFETY: path is zero-terminated; another file of that name is not ours to remove.
    unsafe {
        if !SPOOL.shared || !is_open() || !is_settled(SPOOL.fd) {
            return;
        }
        let fd = sys::openat(libc::AT_FDCWD, SPOOL.path.as_ptr(), libc::O_RDONLY | libc::O_NOFOLLOW, 0);
        if fd < 0 {
            return;
        }
        if sys::identity(fd) == SPOOL.id {
            SPOOL.shared = false;
            SPOOL.reason = "an exec failed";
            sys!(libc::SYS_unlink, SPOOL.path.as_ptr());
        }
        sys::close(fd);
    }
}

/// Whether a spool file holds nothing that its trace lacks: every lane's ring read to its end and nothing pending.
pub fn is_settled(fd: c_int) -> bool {
    let mut at = 0u32;
    // SAFETY: both types are plain data, valid as any bytes.
    unsafe {
        let mut h: Header = core::mem::zeroed();
        if sys::pread(fd, (&raw mut h).cast(), size_of::<Header>(), 0) < size_of::<Header>() as isize || h.magic != MAGIC {
            return true;
        }
        if h.side_len.load(Relaxed) > 0 || h.kinds.load(Relaxed) != h.kinds_written.load(Relaxed) {
            return false;
        }
        while at < h.lanes.load(Relaxed).min(LANES_MAX as u32) {
            let base = LANES_OFF as u64 + at as u64 * LANE as u64;
            let mut head: [u8; core::mem::offset_of!(Lane, k)] = [0; core::mem::offset_of!(Lane, k)];
            if sys::pread(fd, head.as_mut_ptr(), head.len(), base) < head.len() as isize {
                return false;
            }
            let word = |off: usize| head.as_ptr().add(off).cast::<u32>().read_unaligned();
            let which = word(core::mem::offset_of!(Lane, which)) as usize & 1;
            let c = head.as_ptr().add(core::mem::offset_of!(Lane, commit)).cast::<Commit>().add(which).read_unaligned();
            if c.events > 0 || (c.block == 0 && word(core::mem::offset_of!(Lane, first)) != 0) {
                return false;
            }
            if c.block > 0 {
                let block = BLOCKS_OFF as u64 + (c.block as u64 - 1) * BLOCK as u64;
                let (mut next, mut w) = (0u32, 0u64);
                sys::pread(fd, (&raw mut next).cast(), 4, block);
                if c.pos as usize + 8 <= BLOCK {
                    sys::pread(fd, (&raw mut w).cast(), 8, block + c.pos as u64);
                }
                if next != 0 || w != 0 {
                    return false;
                }
            }
            at += 1;
        }
    }
    true
}
