//! Ends: of the process, and of the image that an exec replaces.

use super::{ALIVE, PHASE, enter};
use crate::cuda;
use crate::follow::Next;
use crate::lane;
use crate::python_alloc;
use crate::sink::{self, SINK};
use crate::spool::{self, SPOOL};
use crate::sys::sys;
use crate::{drain, lines, snapshot, sys, writer};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicI32, Ordering::*};
use memshim_format::spool::{HOWS, NO_CODE};

pub(super) unsafe extern "C" fn exits(code: c_int, _: *mut c_void) {
    look_at_python();
    finish("exit", Some(code));
}

/// Before anything is locked: the interpreter is asked, which has ended by now.
fn look_at_python() {
    if is_us() && python_alloc::were_replaced() {
        alone(|| lines::note(&[python_alloc::REPLACED]));
    }
    if is_us() && cuda::was_refused() {
        alone(|| lines::note(&[cuda::NOT_ASKED]));
    }
}

pub(super) unsafe extern "C" fn exits_somehow(_: *mut c_void) {
    look_at_python();
    finish("exit", None);
}

pub(super) unsafe extern "C" fn quick_exits(_: *mut c_void) {
    let code = QUICK_CODE.load(Relaxed);
    finish("quick_exit", if code == i32::MIN { None } else { Some(code) });
}

/// What the program gave `quick_exit`, whose handlers are not told.
pub static QUICK_CODE: AtomicI32 = AtomicI32::new(i32::MIN);

/// Whether this is a child that has its parent's memory, and its parent's thread's place in it, until it runs a program or ends.
pub fn is_in_its_parent() -> bool {
    // SAFETY: ALIVE is set before phase 2.
    unsafe { PHASE.load(Acquire) == 2 && *ALIVE == 1 && sys::getpid() != SPOOL.pid }
}

/// Whether this is the recording process itself: not a vfork child in its memory, not a child that has not begun.
fn is_us() -> bool {
    // SAFETY: ALIVE is set before phase 2.
    unsafe { PHASE.load(Acquire) == 2 && *ALIVE == 1 && sys::getpid() == SPOOL.pid }
}

/// Runs `work` under the drain's lock where this is the recording process, and the lock can be had; else, in the recording process, `or`: whoever
/// has the lock is stuck in a write.
fn alone_or(work: impl FnOnce(), or: impl FnOnce()) {
    if !is_us() {
        return;
    }
    sys::keep_errno(|| {
        crate::cuda::tell();
        let signals = sys::block_signals();
        if drain::lock_within_a_second() {
            work();
            drain::unlock();
        } else {
            or();
        }
        sys::restore_signals(signals);
    });
}

fn alone(work: impl FnOnce()) {
    alone_or(work, || ());
}

/// The process ends: everything is written and the spool goes.
pub fn finish(how: &str, code: Option<i32>) {
    // SAFETY: ALIVE is set before phase 2.
    if PHASE.load(Acquire) == 2 && unsafe { *ALIVE } == 0 {
        // A child that allocated nothing yet: it leaves a trace all the same, with its lineage.
        enter();
    }
    let end = || {
        // What other threads do from here on is after the end: neither counted nor recorded.
        PHASE.store(3, Release);
        lane::switch_mode(0);
        drain::drain(true);
        let now = sys::now();
        // Twice: all rings are read, so stacks may end that have begun just now.
        lines::ended_stacks(now);
        lines::ended_stacks(now);
        let last_lines = || {
            lines::calls(now, true);
            snapshot::last(now);
        };
        // SAFETY: the lock is held.
        let trouble = unsafe { SINK.trouble };
        if trouble == 0 {
            let capped = sink::is_capped();
            if capped {
                lines::drop_pending();
            }
            sink::beyond_cap(last_lines);
            if !capped {
                lines::flush_group();
            }
            sink::beyond_cap(|| lines::end(how, code));
        } else {
            sink::end_in_trouble(trouble, || {
                lines::drop_pending();
                last_lines();
                lines::end(how, code);
            });
        }
        // SAFETY: the lock is held.
        unsafe {
            if SINK.trouble == 0 {
                (*spool::header()).ended.store(1, Relaxed);
                if SPOOL.shared {
                    unlink_spool();
                }
            } else {
                leave_end(how, code, now);
            }
        }
    };
    // SAFETY: the header is there while this process records.
    alone_or(end, || unsafe { leave_end(how, code, sys::now()) });
}

/// The end line could not be written: the spool says it.
unsafe fn leave_end(how: &str, code: Option<i32>, now: u64) {
    // SAFETY: the header is there.
    let h = unsafe { &*spool::header() };
    h.end_code.store(code.unwrap_or(NO_CODE), Relaxed);
    h.end_ns.store(now, Relaxed);
    h.end_how.store(HOWS.iter().position(|h| *h == how).map_or(0, |i| i as u32 + 1), Release);
}

unsafe fn unlink_spool() {
    // SAFETY: path is zero-terminated; another file of that name (the folder was replaced) is not ours to remove.
    unsafe {
        let fd = sys::openat(libc::AT_FDCWD, SPOOL.path.as_ptr(), libc::O_RDONLY | libc::O_NOFOLLOW, 0);
        if fd >= 0 {
            let same = sys::identity(fd) == SPOOL.id;
            sys::close(fd);
            if same {
                sys!(libc::SYS_unlink, SPOOL.path.as_ptr());
            }
        }
    }
}

/// This process is about to exec: what it recorded is written. If the exec fails, recording just goes on.
pub fn before_exec(next: &Next) {
    // SAFETY: ALIVE is set before phase 2.
    if next.bare && next.there && PHASE.load(Acquire) == 2 && unsafe { *ALIVE } == 0 {
        // A child that did nothing yet, and that nobody will hear of again.
        enter();
    }
    alone(|| {
        drain::drain(false);
        let now = sys::now();
        let capped = sink::is_capped();
        if capped {
            lines::drop_pending();
        }
        sink::beyond_cap(|| {
            lines::calls(now, true);
            snapshot::snap("exec");
        });
        if !capped {
            lines::flush_group();
        }
        sink::beyond_cap(|| lines::exec(now, next));
        // SAFETY: the lock is held; where the program has one thread it is this one.
        unsafe {
            if SINK.trouble == 0 && snapshot::program_threads() == Some(writer::alive() as u64) {
                spool::take_name();
            }
        }
    });
}
