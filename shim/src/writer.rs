//! The writer thread: drains the rings, samples the RSS each interval, writes what is pending each second.
//!
//! It is no pthread: made by `clone` with thread-local storage of its own, it is unknown to glibc. So the program stays
//! single-threaded in glibc's eyes (no atomic instructions in its malloc and stdio that were not there before), `pthread_exit` of
//! the last thread still ends the process, and nothing of the program's stacks or TLS is shared. It blocks all signals and makes only
//! system calls. What glibc does to all threads it knows (`setuid`) or the kernel refuses to several (`unshare`) is done without it:
//! [`without`] ends it, makes the call, and starts it anew. Over a fork of a program of one thread it is away a little longer: some count
//! their threads right after (Python 3.12 warns of forks among several).

use crate::config::{CONFIG, FAST};
use crate::spool::SPOOL;
use crate::sys::{self, sys};
use crate::{cuda, drain, lane, lines, share, sink, snapshot};
use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use memshim_format::record::THIN_MAX;

/// Its thread id while it lives; the kernel zeroes it and wakes waiters when it ends.
static TID: AtomicU32 = AtomicU32::new(0);
static STOP: AtomicU32 = AtomicU32::new(0);
/// Rung by threads that have filled blocks.
static DOORBELL: AtomicU32 = AtomicU32::new(0);
static SLEEPING: AtomicU32 = AtomicU32::new(0);
/// Blocks filled since the last drain.
static FILLED: AtomicU32 = AtomicU32::new(0);
static LAST_TICK: AtomicU64 = AtomicU64::new(0);
static LAST_FLUSH: AtomicU64 = AtomicU64::new(0);
static LAST_LOOK: AtomicU64 = AtomicU64::new(0);
/// When it comes back after a fork; 0 when that is not awaited.
static BACK_AT: AtomicU64 = AtomicU64::new(0);
const AWAY_NS: u64 = 50_000_000;
/// How often it looks whether the program's threads are all gone.
const LOOK_NS: u64 = 100_000_000;
/// When a spool was seen to be private since an exec; `u64::MAX` that has been said.
static PRIVATE_SINCE: AtomicU64 = AtomicU64::new(0);
static mut MEMORY: *mut u8 = core::ptr::null_mut();

const STACK: usize = 64 << 10;
/// Thread-local storage: the negative part is for libc's variables, should any be touched.
const TLS: usize = 32 << 10;
/// Private memory it takes, in bytes.
pub const PRIVATE: usize = STACK + TLS;
/// Blocks that wake it.
const WAKE_AT: u32 = 32;

/// Whether it lives.
#[inline]
pub fn alive() -> bool {
    TID.load(Relaxed) != 0
}

/// Its number while it lives, else 0.
pub fn tid() -> u32 {
    TID.load(Acquire)
}

/// Whether this thread is it.
pub fn is_current() -> bool {
    alive() && TID.load(Relaxed) == sys::gettid()
}

/// A forked child has none.
pub fn forget() {
    TID.store(0, Relaxed);
    STOP.store(0, Relaxed);
    BACK_AT.store(0, Relaxed);
    FILLED.store(0, Relaxed);
    SLEEPING.store(0, Relaxed);
    PRIVATE_SINCE.store(0, Relaxed);
    LAST_SAMPLES.store(0, Relaxed);
    lane::THIN.store(0, Relaxed);
    LAST_TICK.store(sys::now(), Relaxed);
    LAST_FLUSH.store(sys::now(), Relaxed);
}

/// Starts it. False: no thread may be had; then the program's threads drain by themselves.
pub fn start() -> bool {
    // SAFETY: one caller at a time; the memory is the writer's alone.
    unsafe {
        if MEMORY.is_null() {
            MEMORY = sys::map_anon(PRIVATE);
            if MEMORY.is_null() {
                return false;
            }
        }
        if lane::MODE.load(Relaxed) == FAST {
            lane::quick::populate();
        }
        STOP.store(0, Relaxed);
        share::writer_begins();
        let tcb = MEMORY.add(STACK + TLS - 4096).cast::<u64>();
        // The words of a thread control block that code may read: itself (fs:0, fs:16), several threads (fs:24), the stack canary (fs:40).
        tcb.write(tcb as u64);
        tcb.add(2).write(tcb as u64);
        tcb.add(3).write(1);
        tcb.add(5).write(0x5ca1_ab1e_0000);
        let flags = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM
            | libc::CLONE_SETTLS
            | libc::CLONE_PARENT_SETTID
            | libc::CLONE_CHILD_CLEARTID;
        let signals = sys::block_signals();
        let r: i64;
        // SAFETY: the child runs `run` on the new stack and never returns here.
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "call {run}",
            "ud2",
            "2:",
            run = sym run,
            inlateout("rax") libc::SYS_clone => r,
            in("rdi") flags as u64,
            in("rsi") MEMORY.add(STACK),
            in("rdx") TID.as_ptr(),
            in("r10") TID.as_ptr(),
            in("r8") tcb,
            lateout("rcx") _,
            lateout("r11") _,
        );
        sys::restore_signals(signals);
        r > 0
    }
}

/// Ends it and waits until it is gone, at most two seconds.
pub fn stop() {
    BACK_AT.store(0, Relaxed);
    let tid = TID.load(Acquire);
    if tid == 0 {
        return;
    }
    STOP.store(1, Release);
    DOORBELL.fetch_add(1, Release);
    sys::futex_wake(&DOORBELL);
    let until = sys::now() + 2_000_000_000;
    while TID.load(Acquire) != 0 && sys::now() < until {
        let t = [0u64, 10_000_000];
        // The kernel's wake at a thread's end is to shared waiters.
        // SAFETY: TID is static.
        unsafe { sys!(libc::SYS_futex, TID.as_ptr(), libc::FUTEX_WAIT, tid, t.as_ptr(), 0, 0) };
    }
    // The word is cleared a moment before the kernel forgets the thread.
    // SAFETY: settled at the start.
    while sys::thread_exists(unsafe { SPOOL.pid }, tid) && sys::now() < until {
        sys::yield_now();
    }
}

/// Makes a call that must find the process without our thread.
pub fn without<T>(call: impl FnOnce() -> T) -> T {
    // SAFETY: settled at the start.
    let had = alive() && sys::getpid() == unsafe { SPOOL.pid };
    if had {
        stop();
    }
    let r = call();
    if had {
        sys::keep_errno(start);
    }
    r
}

/// What the C library calls before it forks.
pub extern "C" fn before_fork() {
    cuda::before_fork();
    // SAFETY: settled at the start.
    if (alive() || BACK_AT.load(Relaxed) != 0) && sys::getpid() == unsafe { SPOOL.pid } && lane::in_use() <= 1 {
        stop();
        BACK_AT.store(u64::MAX, Relaxed);
    }
}

/// The same in the parent, when it has forked or could not.
pub extern "C" fn after_fork() {
    cuda::after_fork();
    if BACK_AT.load(Relaxed) == u64::MAX {
        BACK_AT.store(sys::now() + AWAY_NS, Relaxed);
    }
}

/// Starts it when it has been away over a fork for long enough. Called where events are recorded, but not for each.
#[inline(always)]
pub fn come_back() {
    if BACK_AT.load(Relaxed) != 0 {
        come_back_if_due();
    }
}

#[cold]
#[inline(never)]
fn come_back_if_due() {
    let at = BACK_AT.load(Relaxed);
    // SAFETY: settled at the start.
    let own = sys::getpid() == unsafe { SPOOL.pid };
    if own && sys::now() >= at && BACK_AT.compare_exchange(at, 0, AcqRel, Relaxed).is_ok() && !alive() {
        sys::keep_errno(start);
    }
}

extern "C" fn run() -> ! {
    let me = sys::gettid();
    // SAFETY: settings are read-only.
    let interval = unsafe { CONFIG.interval_ns };
    let mut more = false;
    // First it says what is loaded by now, for those who read what a program left that died young.
    let mut is_new = true;
    while STOP.load(Acquire) == 0 {
        let bell = DOORBELL.load(Acquire);
        SLEEPING.store(1, Release);
        // Without a spool that outlives us, what is pending must reach the file soon.
        // SAFETY: a spool becomes private at most once, under the lock; seeing that a turn late is soon enough.
        let pause = if unsafe { SPOOL.shared } { interval } else { interval.min(10_000_000) };
        if !is_new && !more && FILLED.load(Acquire) < WAKE_AT && STOP.load(Acquire) == 0 {
            share::writer_notes(true);
            sys::futex_wait(&DOORBELL, bell, pause.min(time_left(interval)).min(LOOK_NS));
        }
        SLEEPING.store(0, Release);
        if drain::try_lock(me) {
            if is_new {
                lines::loaded();
                is_new = false;
            } else {
                more = work();
            }
            share::writer_notes(false);
            drain::unlock();
        } else {
            // Who has it, or wants it, ends the process, or reads for this thread.
            share::writer_notes(true);
            sys::futex_wait(&DOORBELL, bell, 1_000_000);
        }
    }
    let mut code = 0;
    if STOP.load(Acquire) == 2 {
        // The kernel takes the last thread's code for the process's: that of the program's.
        code = crate::proc::first_thread_code();
        crate::init::finish("_exit", Some(code));
    }
    share::writer_notes(false);
    loop {
        // SAFETY: ends this thread only.
        unsafe { sys!(libc::SYS_exit, code) };
    }
}

fn time_left(interval: u64) -> u64 {
    (LAST_TICK.load(Relaxed) + interval).saturating_sub(sys::now()).max(100_000)
}

/// Drains, and does what is due by time. True: there is more to drain. The lock is held.
fn work() -> bool {
    FILLED.store(0, Release);
    let more = drain::drain(false);
    let now = sys::now();
    // SAFETY: settings are read-only.
    let (interval, shared) = unsafe { (CONFIG.interval_ns, SPOOL.shared) };
    let looks = alive() && now >= LAST_LOOK.load(Relaxed) + LOOK_NS;
    let ticks = now >= LAST_TICK.load(Relaxed) + interval;
    if ticks {
        LAST_TICK.store(now, Relaxed);
        lines::ended_stacks(now);
        lines::loaded();
        lines::calls(now, false);
    }
    // Last, so that what is resident and what is live are of one instant.
    let status = if looks || ticks { snapshot::look() } else { None };
    if looks {
        LAST_LOOK.store(now, Relaxed);
        if status.is_some_and(|s| s.is_without_program()) {
            // Every thread of the program has left by the bare system call: ours must not keep the process.
            STOP.store(2, Release);
            return false;
        }
    }
    if ticks {
        snapshot::sample(now, status);
    }
    note_failed_exec(shared, now);
    if !shared || now >= LAST_FLUSH.load(Relaxed) + 1_000_000_000 {
        LAST_FLUSH.store(now, Relaxed);
        lines::flush_group();
    }
    sink::lower_near_cap();
    thin_out(now);
    more
}

/// In fast mode a trace grows by about 1 MiB a minute at most, but for the blocks that are big: a program that allocates without a pause has
/// fewer samples. The first ones are all there, and so are those that were asked for.
fn thin_out(now: u64) {
    const SECOND: u64 = 1_000_000_000;
    // SAFETY: settings are read-only.
    if unsafe { CONFIG.mode != FAST || CONFIG.sample_given } || now < LAST_THINNED.load(Relaxed) + SECOND {
        return;
    }
    let all = drain::samples();
    let span = now - LAST_THINNED.swap(now, Relaxed);
    let rate = (all - LAST_SAMPLES.swap(all, Relaxed).min(all)).saturating_mul(SECOND) / span.max(1);
    let thin = lane::THIN.load(Relaxed);
    if all > SAMPLES_FREE && rate > SAMPLES_A_SECOND {
        lane::THIN.store((thin + (rate / SAMPLES_A_SECOND).ilog2().max(1)).min(THIN_MAX), Relaxed);
    } else if rate < SAMPLES_A_SECOND / 4 {
        lane::THIN.store(thin.saturating_sub(1), Relaxed);
    }
}

/// Samples of about 13 bytes each, their frees included, that a trace has room for in a second, and those that come before anybody asks.
const SAMPLES_A_SECOND: u64 = 800;
const SAMPLES_FREE: u64 = 20_000;
static LAST_THINNED: AtomicU64 = AtomicU64::new(0);
static LAST_SAMPLES: AtomicU64 = AtomicU64::new(0);

/// Says that the spool is private since an exec. One that succeeds ends this thread long before.
fn note_failed_exec(shared: bool, now: u64) {
    // SAFETY: the lock is held.
    let due = unsafe { !shared && SPOOL.in_file };
    match PRIVATE_SINCE.load(Relaxed) {
        0 if due => PRIVATE_SINCE.store(now, Relaxed),
        u64::MAX => {}
        since if due && now > since + 100_000_000 => {
            PRIVATE_SINCE.store(u64::MAX, Relaxed);
            // SAFETY: the lock is held.
            lines::note(&["spool private: ", unsafe { SPOOL.reason }]);
        }
        _ => {}
    }
}

/// A thread has begun a new block. Signals are blocked.
pub fn block_filled() {
    let n = FILLED.fetch_add(1, AcqRel) + 1;
    if alive() {
        if n.is_multiple_of(WAKE_AT) && SLEEPING.load(Acquire) == 1 {
            DOORBELL.fetch_add(1, Release);
            sys::futex_wake(&DOORBELL);
        }
        return;
    }
    // SAFETY: settings are read-only.
    let interval = unsafe { CONFIG.interval_ns };
    come_back();
    if (n >= WAKE_AT || sys::now() >= LAST_TICK.load(Relaxed) + interval) && drain::try_lock(sys::gettid()) {
        share::work(work);
        drain::unlock();
    }
}

/// Memory for rings is used up: drains by oneself where nobody does. False: somebody does. Signals are blocked.
pub fn help() -> bool {
    if alive() && SLEEPING.load(Acquire) == 1 {
        DOORBELL.fetch_add(1, Release);
        sys::futex_wake(&DOORBELL);
    }
    if !drain::try_lock(sys::gettid()) {
        return false;
    }
    share::work(|| drain::drain(false));
    drain::unlock();
    true
}
