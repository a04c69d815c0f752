//! System calls made directly: they set no errno, are no cancellation points, and are never one of our own hooks.
//! Results are the kernel's: negative numbers are −errno.

use crate::share;
use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use libc::c_int;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// # Safety
/// As the system call `n` asks of its arguments.
#[inline(always)]
pub unsafe fn call6(n: i64, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64) -> i64 {
    let r: i64;
    // SAFETY: the syscall instruction clobbers rcx and r11 only; the caller vouches for the arguments.
    unsafe {
        asm!("syscall", inlateout("rax") n => r, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
             lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    r
}

macro_rules! sys {
    ($n:expr) => { sys!($n, 0) };
    ($n:expr, $($a:expr),+) => { sys!(@pad $n; $($a as u64),+) };
    (@pad $n:expr; $a:expr) => { $crate::sys::call6($n, $a, 0, 0, 0, 0, 0) };
    (@pad $n:expr; $a:expr, $b:expr) => { $crate::sys::call6($n, $a, $b, 0, 0, 0, 0) };
    (@pad $n:expr; $a:expr, $b:expr, $c:expr) => { $crate::sys::call6($n, $a, $b, $c, 0, 0, 0) };
    (@pad $n:expr; $a:expr, $b:expr, $c:expr, $d:expr) => { $crate::sys::call6($n, $a, $b, $c, $d, 0, 0) };
    (@pad $n:expr; $a:expr, $b:expr, $c:expr, $d:expr, $e:expr) => { $crate::sys::call6($n, $a, $b, $c, $d, $e, 0) };
    (@pad $n:expr; $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => { $crate::sys::call6($n, $a, $b, $c, $d, $e, $f) };
}
pub(crate) use sys;

/// A zero-terminated path on our side.
pub type Path = *const u8;

/// All signals, as the kernel's 64-bit set.
static ALL: u64 = !0;

/// Blocks every signal of this thread (also those glibc keeps for itself) and returns the set that was blocked before.
#[inline]
pub fn block_signals() -> u64 {
    let mut old = 0u64;
    // SAFETY: both sets are 8-byte variables.
    unsafe { sys!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const ALL, &raw mut old, 8) };
    old
}

/// Restores what [`block_signals`] returned.
#[inline]
pub fn restore_signals(old: u64) {
    // SAFETY: the set is an 8-byte variable.
    unsafe { sys!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const old, 0, 8) };
}

/// Takes a signal that a write of ours brought on this thread (SIGXFSZ, SIGPIPE) out of its queue. Signals must be blocked.
pub fn swallow(signal: c_int) {
    let set = 1u64 << (signal - 1);
    let zero = [0u64; 2];
    // SAFETY: set and timeout are variables of the right size; no siginfo is asked for.
    unsafe { sys!(libc::SYS_rt_sigtimedwait, &raw const set, 0, zero.as_ptr(), 8) };
}

/// Process id as the kernel sees it now (a vfork child has its own).
#[inline]
pub fn getpid() -> u32 {
    // SAFETY: no arguments.
    unsafe { sys!(libc::SYS_getpid) as u32 }
}

/// Where this thread's stack is.
#[inline(always)]
pub fn stack_pointer() -> u64 {
    let p: u64;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mov {p}, rsp", p = out(reg) p, options(nomem, nostack, preserves_flags)) };
    p
}

/// This thread's control block, which glibc gives out as its handle: the first word of the block is its own address, by the ABI.
#[inline(always)]
pub fn thread_block() -> u64 {
    let block: u64;
    // SAFETY: see above.
    unsafe { core::arch::asm!("mov {p}, qword ptr fs:[0]", p = out(reg) block, options(nostack, readonly, preserves_flags)) };
    block
}

/// Copies `len` bytes of this process's memory that may be none, by the kernel: how many, or a negative error.
///
/// # Safety
/// `to` has room.
#[inline(always)]
pub unsafe fn copy_own(at: u64, to: *mut u8, len: usize) -> i64 {
    let (ours, theirs) = ([to as u64, len as u64], [at, len as u64]);
    // SAFETY: the kernel writes into `to` only.
    unsafe { sys!(libc::SYS_process_vm_readv, getpid(), ours.as_ptr(), 1, theirs.as_ptr(), 1, 0) }
}

/// Thread id.
#[inline]
pub fn gettid() -> u32 {
    // SAFETY: no arguments.
    unsafe { sys!(libc::SYS_gettid) as u32 }
}

/// Whether thread `tid` of process `pid` exists.
pub fn thread_exists(pid: u32, tid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { sys!(libc::SYS_tgkill, pid, tid, 0) == 0 }
}

/// `CLOCK_MONOTONIC` in nanoseconds.
#[inline]
pub fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// `CLOCK_REALTIME` in nanoseconds.
pub fn wall() -> u64 {
    clock(libc::CLOCK_REALTIME)
}

fn clock(id: c_int) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: t is a timespec; the libc function goes through the vDSO and touches nothing else when it succeeds.
    unsafe { libc::clock_gettime(id, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Bytes of a stretch of whole pages that lie in memory; `None` where the kernel does not say.
///
/// # Safety
/// One thread at a time: it may be on a signal handler's stack, which has no room for what the kernel says.
pub unsafe fn resident(at: *const u8, len: usize) -> Option<u64> {
    const PAGES: usize = 2048;
    static mut STATES: [u8; PAGES] = [0; PAGES];
    let states = (&raw mut STATES).cast::<u8>();
    let mut sum = 0;
    for from in (0..len).step_by(PAGES * PAGE as usize) {
        let pages = (len - from).div_ceil(PAGE as usize).min(PAGES);
        // SAFETY: the kernel writes a byte a page, and refuses what is not mapped.
        if unsafe { sys!(libc::SYS_mincore, at.wrapping_add(from), pages * PAGE as usize, states) } < 0 {
            return None;
        }
        // SAFETY: of PAGES bytes, which nobody else uses: the caller's promise.
        let states = unsafe { core::slice::from_raw_parts(states, pages) };
        sum += states.iter().filter(|state| **state & 1 != 0).count() as u64 * PAGE;
    }
    Some(sum)
}

/// Anonymous private memory, zeroed; null where there is none to be had.
pub fn map_anon(len: usize) -> *mut u8 {
    // SAFETY: a new mapping at an address the kernel picks.
    let r = unsafe {
        sys!(
            libc::SYS_mmap,
            0,
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1i64,
            0
        )
    };
    if r < 0 { core::ptr::null_mut() } else { r as *mut u8 }
}

/// Gives private memory its pages at once, where the kernel can (from 5.14 on). A page that is read before it is written is given twice: first
/// the page of zeros, and then the program waits until all processors that run its threads have forgotten that.
///
/// # Safety
/// `p` begins a page, and the pages that the bytes lie in are private memory of ours.
pub unsafe fn populate(p: *const u8, len: usize) {
    const MADV_POPULATE_WRITE: i32 = 23;
    // SAFETY: the caller's promise; what is in it stays.
    unsafe { sys!(libc::SYS_madvise, p, len, MADV_POPULATE_WRITE) };
}

/// # Safety
/// Nothing may use the mapping any more.
pub unsafe fn unmap(p: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { sys!(libc::SYS_munmap, p, len) };
}

/// Opens `path` below `dir` (−100: the current folder).
///
/// # Safety
/// `path` is zero-terminated.
pub unsafe fn openat(dir: c_int, path: Path, flags: c_int, mode: u32) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { sys!(libc::SYS_openat, dir, path, flags | libc::O_CLOEXEC, mode) as c_int }
}

/// Closes a descriptor of ours.
pub fn close(fd: c_int) {
    // SAFETY: closing an fd has no memory effects.
    unsafe { sys!(libc::SYS_close, fd) };
}

/// Device and inode of an open file, `(0, 0)` when it is not open.
pub fn identity(fd: c_int) -> (u64, u64) {
    // SAFETY: stat is plain data, all zero is valid.
    let mut st: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: st is a kernel stat on x86-64.
    if unsafe { sys!(libc::SYS_fstat, fd, &raw mut st) } < 0 { (0, 0) } else { (st.st_dev, st.st_ino) }
}

/// A process is being set up: one thread exists.
static SETTING_UP: AtomicBool = AtomicBool::new(false);
/// So few descriptors are allowed that ours are in the program's way: what can be opened again is not kept open.
static FEW: AtomicBool = AtomicBool::new(false);
/// Limits up to which that is so.
const FEW_ARE: u64 = 64;
/// Our descriptors begin here where the limit allows, and take no more numbers than this.
const HIGH: u64 = 1000;
const OURS: u64 = 24;

/// The limit on descriptors: the one that holds, and what it may be raised to.
fn descriptor_limits() -> [u64; 2] {
    let mut lim = [0u64; 2];
    // SAFETY: lim is a struct rlimit64.
    let r = unsafe { sys!(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, 0, lim.as_mut_ptr()) };
    // A sandbox may not tell: what is usual.
    if r < 0 { [1024; 2] } else { lim }
}

/// Bytes of address space that the process may have.
pub fn address_space() -> usize {
    soft_limit(libc::RLIMIT_AS) as usize
}

/// How long a file may become.
pub fn file_size() -> u64 {
    soft_limit(libc::RLIMIT_FSIZE)
}

fn soft_limit(of: u32) -> u64 {
    let mut lim = [0u64; 2];
    // SAFETY: lim is a struct rlimit64.
    let r = unsafe { sys!(libc::SYS_prlimit64, 0, of, 0, lim.as_mut_ptr()) };
    if r < 0 { u64::MAX } else { lim[0] }
}

/// Sets a process up, with one thread.
pub fn set_up(work: impl FnOnce()) {
    let [soft, hard] = descriptor_limits();
    FEW.store(hard <= FEW_ARE && soft <= FEW_ARE, Relaxed);
    SETTING_UP.store(true, Relaxed);
    work();
    SETTING_UP.store(false, Relaxed);
}

/// Whether what can be opened again is to be closed after its use.
pub fn has_few_descriptors() -> bool {
    FEW.load(Relaxed)
}

/// Moves `fd` to a number that programs do not reach for: beyond what they may have, where the limit can be raised for a moment and nobody sees it,
/// else 1000 and above, or the top of what the limit allows.
pub fn move_high(fd: c_int) -> c_int {
    if fd < 0 {
        return fd;
    }
    let [soft, hard] = descriptor_limits();
    let moved = |from: u64| {
        // SAFETY: duplicating an fd has no memory effects.
        let n = unsafe { sys!(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, from) } as c_int;
        if n >= 0 {
            close(fd);
        }
        n
    };
    let beyond = soft.max(HIGH);
    if SETTING_UP.load(Relaxed) && soft <= 4 * HIGH && hard >= beyond + OURS {
        let set = |soft: u64| {
            let lim = [soft, hard];
            // SAFETY: lim is a struct rlimit64.
            unsafe { sys!(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, lim.as_ptr(), 0) }
        };
        if set(beyond + OURS) == 0 {
            let n = moved(beyond);
            set(soft);
            if n >= 0 {
                return n;
            }
        }
    }
    let mut from = if soft > HIGH + 40 { HIGH } else { soft.saturating_sub(OURS) };
    while from > OURS {
        match moved(from) {
            n if n >= 0 => return n,
            _ => from /= 2,
        }
    }
    // From the last number down: the lowest are those that the program gets next.
    let mut last = soft.min(2 * OURS);
    while last > fd as u64 + 1 {
        last -= 1;
        match moved(last) {
            n if n >= 0 => return n,
            _ => {}
        }
    }
    fd
}

/// Reads from `fd` at `at`; the number of bytes, or negative.
///
/// # Safety
/// `buf` must be valid for writes of `len` bytes.
pub unsafe fn pread(fd: c_int, buf: *mut u8, len: usize, at: u64) -> isize {
    // SAFETY: the caller's promise.
    share::reads(|| unsafe { sys!(libc::SYS_pread64, fd, buf, len, at) }) as isize
}

/// Writes at the end of `fd`, or at its place; the number of bytes, or negative.
///
/// # Safety
/// `buf` must be valid for reads of `len` bytes.
pub unsafe fn write(fd: c_int, buf: *const u8, len: usize) -> i64 {
    // SAFETY: the caller's promise.
    share::writes(|| unsafe { sys!(libc::SYS_write, fd, buf, len) })
}

/// Sleeps on `word` while it holds `value`, at most `ns`.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, value: u32, ns: u64) {
    let t = [ns / 1_000_000_000, ns % 1_000_000_000];
    // SAFETY: word lives through the call; the timeout is a timespec.
    unsafe { sys!(libc::SYS_futex, word as *const _, libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG, value, t.as_ptr(), 0, 0) };
}

/// Wakes every sleeper on `word`.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32) {
    // SAFETY: word lives through the call.
    unsafe { sys!(libc::SYS_futex, word as *const _, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX, 0, 0, 0) };
}

/// Gives the processor to another thread.
pub fn yield_now() {
    // SAFETY: no arguments.
    unsafe { sys!(libc::SYS_sched_yield) };
}

/// Sleeps, a signal's length less.
pub fn pause(ns: u64) {
    let t = [ns / 1_000_000_000, ns % 1_000_000_000];
    // SAFETY: t is a timespec.
    unsafe { sys!(libc::SYS_nanosleep, t.as_ptr(), 0) };
}

/// Runs `f` with errno as it was.
#[inline]
pub fn keep_errno<T>(f: impl FnOnce() -> T) -> T {
    // SAFETY: glibc's errno location is valid for the thread's life.
    let at = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let old = unsafe { *at };
    let r = f();
    // SAFETY: as above.
    unsafe { *at = old };
    r
}
