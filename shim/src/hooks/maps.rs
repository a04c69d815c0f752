//! The address space: mmap and its kin. Each call takes a ticket from one counter, so that the order in which they took effect is known
//! exactly over all threads: a release takes it before the call, a mapping after.

use super::heap::{call_real, ready};
use crate::callers;
use crate::lane::{Hot, on_failed, push};
use crate::real::REAL;
use crate::sys::{self, sys};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use memshim_format::record::{op, start};

static TICKET: AtomicU64 = AtomicU64::new(1);

/// The next place in the order of all map calls.
pub fn ticket() -> u64 {
    TICKET.fetch_add(1, Relaxed)
}

/// Which place it is, without taking it.
pub fn next_ticket() -> u64 {
    TICKET.load(Relaxed)
}

const FAILED: *mut c_void = libc::MAP_FAILED;

/// Whether map events are recorded: the thread is set up and the trace is written.
#[inline]
unsafe fn records(hot: *mut Hot) -> bool {
    crate::writer::come_back();
    // SAFETY: hot is null or this thread's.
    !hot.is_null() && unsafe { (*hot).mode } != crate::config::COUNT
}

/// What a mapping is of (`kind` of the format).
fn kind_of(flags: c_int, fd: c_int) -> u64 {
    let shared = (flags & libc::MAP_TYPE != libc::MAP_PRIVATE) as u64;
    if flags & libc::MAP_ANONYMOUS != 0 {
        return shared;
    }
    // SAFETY: stat is plain data; fstat of the program's descriptor only looks.
    unsafe {
        let mut st: libc::stat = core::mem::zeroed();
        sys!(libc::SYS_fstat, fd, &raw mut st);
        if st.st_mode & libc::S_IFMT == libc::S_IFCHR && st.st_rdev == libc::makedev(1, 5) {
            return if shared == 1 { 1 } else { 6 };
        }
        // A memfd is a file without a name in tmpfs.
        if st.st_nlink == 0 && is_tmpfs(fd) {
            return 4 + shared;
        }
    }
    2 + shared
}

unsafe fn is_tmpfs(fd: c_int) -> bool {
    let mut fs = [0i64; 15];
    // SAFETY: fs is a struct statfs.
    unsafe { sys!(libc::SYS_fstatfs, fd, fs.as_mut_ptr()) };
    let [kind, ..] = fs;
    kind == 0x0102_1994 || kind == 0x958458f6
}

#[inline(always)]
unsafe fn map(call: impl FnOnce() -> *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int) -> *mut c_void {
    let hot = ready();
    let p = call();
    if hot.is_null() {
        return p;
    }
    // SAFETY: hot is this thread's.
    unsafe {
        if p == FAILED {
            on_failed(hot);
        } else if records(hot) {
            let kind = kind_of(flags, fd);
            crate::phases::python::look();
            callers::note(hot);
            push(hot, [start(op::MMAP, 0, ticket()), sys::now(), p as u64, len as u64, (prot as u64) << 32 | flags as u32 as u64, kind]);
        }
    }
    p
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(addr: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, off: i64) -> *mut c_void {
    // SAFETY: passed on as called.
    unsafe { map(|| call_real!(mmap(addr, len, prot, flags, fd, off), raw_mmap(addr, len, prot, flags, fd, off)), len, prot, flags, fd) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(addr: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, off: i64) -> *mut c_void {
    // SAFETY: passed on as called.
    unsafe { map(|| call_real!(mmap64(addr, len, prot, flags, fd, off), raw_mmap(addr, len, prot, flags, fd, off)), len, prot, flags, fd) }
}

/// For calls that come while the real functions are being looked up.
unsafe fn raw_mmap(addr: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, off: i64) -> *mut c_void {
    // SAFETY: as called.
    let r = unsafe { sys!(libc::SYS_mmap, addr, len, prot, flags, fd, off) };
    if r < 0 && r > -4096 { failed_with(-r as i32, FAILED) } else { r as *mut c_void }
}

fn failed_with<T>(errno: i32, result: T) -> T {
    // SAFETY: glibc's errno location.
    unsafe { *libc::__errno_location() = errno };
    result
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(addr: *mut c_void, len: usize) -> c_int {
    let hot = ready();
    // SAFETY: passed on as called; hot is this thread's.
    unsafe {
        let records = records(hot);
        let tk = ticket();
        if records {
            push(hot, [start(op::MUNMAP, 0, tk), sys::now(), addr as u64 & !START_BIT, len as u64 & !START_BIT]);
        }
        let r = call_real!(munmap(addr, len), {
            let r = sys!(libc::SYS_munmap, addr, len);
            if r < 0 { failed_with(-r as i32, -1) } else { 0 }
        });
        if r != 0 && !hot.is_null() {
            if records {
                push(hot, [start(op::UNDO, 0, tk)]);
            }
            on_failed(hot);
        }
        r
    }
}

/// Argument words keep bit 63 clear; no valid address or length has it set.
const START_BIT: u64 = 1 << 63;

/// # Safety
/// As the C function (its fifth argument is there with MREMAP_FIXED only; passing on what is in the register is harmless).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(old: *mut c_void, old_len: usize, new_len: usize, flags: c_int, new: *mut c_void) -> *mut c_void {
    let hot = ready();
    // SAFETY: passed on as called; hot is this thread's.
    unsafe {
        let before = ticket();
        let p = call_real!(mremap(old, old_len, new_len, flags, new), FAILED);
        if p == FAILED {
            if !hot.is_null() {
                on_failed(hot);
            }
        } else if records(hot) {
            callers::note(hot);
            push(
                hot,
                [
                    start(op::MREMAP, 0, before),
                    ticket(),
                    sys::now(),
                    old as u64,
                    old_len as u64,
                    p as u64,
                    new_len as u64,
                    flags as u32 as u64,
                ],
            );
        }
        p
    }
}

macro_rules! range_calls {
    ($($name:ident by $op:ident where $tells:expr;)*) => { $(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(addr: *mut c_void, len: usize, how: c_int) -> c_int {
            let hot = ready();
            // SAFETY: passed on as called; hot is this thread's.
            unsafe {
                let r = call_real!($name(addr, len, how), -1);
                if r == 0 {
                    if records(hot) && $tells(hot, how) {
                        push(hot, [start(op::$op, 0, ticket()), sys::now(), addr as u64, len as u64, how as u32 as u64]);
                    }
                } else if !hot.is_null() {
                    on_failed(hot);
                }
                r
            }
        }
    )* };
}

range_calls! {
    mprotect by MPROTECT where |_, _| true;
    madvise by MADVISE where tells_of_memory;
}

/// Whether an advice gives memory back. Hints are events in full mode only: numpy gives one with each large array.
unsafe fn tells_of_memory(hot: *mut Hot, advice: c_int) -> bool {
    // SAFETY: hot is this thread's.
    matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_REMOVE) || unsafe { (*hot).mode } == crate::config::FULL
}

/// The break as the kernel has it.
fn current_break() -> u64 {
    // SAFETY: brk(0) only asks.
    unsafe { sys!(libc::SYS_brk, 0) as u64 }
}

unsafe fn moved_break(hot: *mut Hot, old: u64, failed: bool) {
    // SAFETY: hot is null or this thread's.
    unsafe {
        if failed {
            if !hot.is_null() {
                on_failed(hot);
            }
            return;
        }
        let new = current_break();
        if new != old && records(hot) {
            callers::note(hot);
            push(hot, [start(op::BRK, 0, ticket()), sys::now(), old, new]);
        }
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brk(addr: *mut c_void) -> c_int {
    let hot = ready();
    let old = current_break();
    // SAFETY: passed on as called; hot is this thread's.
    unsafe {
        let r = call_real!(brk(addr), -1);
        moved_break(hot, old, r != 0);
        r
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sbrk(delta: isize) -> *mut c_void {
    let hot = ready();
    // SAFETY: passed on as called; hot is this thread's.
    unsafe {
        if delta == 0 {
            return call_real!(sbrk(delta), FAILED);
        }
        let old = current_break();
        let p = call_real!(sbrk(delta), FAILED);
        moved_break(hot, old, p == FAILED);
        p
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmat(id: c_int, addr: *const c_void, flags: c_int) -> *mut c_void {
    let hot = ready();
    // SAFETY: passed on as called; hot is this thread's; shmid_ds is plain data.
    unsafe {
        let p = call_real!(shmat(id, addr, flags), FAILED);
        if p == FAILED {
            if !hot.is_null() {
                on_failed(hot);
            }
        } else if records(hot) {
            let mut ds: libc::shmid_ds = core::mem::zeroed();
            sys!(libc::SYS_shmctl, id, libc::IPC_STAT, &raw mut ds);
            callers::note(hot);
            push(hot, [start(op::SHMAT, 0, ticket()), sys::now(), p as u64, ds.shm_segsz as u64]);
        }
        p
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmdt(addr: *const c_void) -> c_int {
    let hot = ready();
    // SAFETY: passed on as called; hot is this thread's.
    unsafe {
        let records = records(hot);
        let tk = ticket();
        if records {
            push(hot, [start(op::SHMDT, 0, tk), sys::now(), addr as u64 & !START_BIT]);
        }
        let r = call_real!(shmdt(addr), -1);
        if r != 0 && !hot.is_null() {
            if records {
                push(hot, [start(op::UNDO, 0, tk)]);
            }
            on_failed(hot);
        }
        r
    }
}
