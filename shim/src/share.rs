//! What the kernel counts of the process and is not the program's: bytes that memshim reads and writes, and what its writer thread and its own work on
//! the program's threads take. Not for: what hooks take there, call by call.
//!
//! Bytes are counted by the kernel a moment before they are here, so whoever looks waits until no call of ours is under way. What the writer
//! thread takes it notes itself each time before it sleeps; its processor time is read from outside, for that is exact in the midst of its work.

use crate::spool::SPOOL;
use crate::sys::{self, sys};
use core::sync::atomic::{AtomicU64, Ordering::*};

/// Bytes read, and written.
static MOVED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Calls that move bytes: begun, and ended.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);

/// Processor time in ns, minor << 32 | major page faults, voluntary << 32 | other switches.
pub type Usage = [u64; 3];
/// Of writer threads, as last noted; of those before the one that lives.
static WRITERS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static EARLIER: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
/// Of the program's threads while they did our work.
static WORK: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// Makes a call that reads so many bytes.
pub fn reads(call: impl FnOnce() -> i64) -> i64 {
    moves(&MOVED[0], call)
}

/// Makes a call that writes so many bytes.
pub fn writes(call: impl FnOnce() -> i64) -> i64 {
    moves(&MOVED[1], call)
}

fn moves(sum: &AtomicU64, call: impl FnOnce() -> i64) -> i64 {
    BEGUN.fetch_add(1, SeqCst);
    let n = call();
    // A child of vfork has our memory, but the kernel counts for it alone.
    // SAFETY: settled at the start; 0 before.
    let process = unsafe { SPOOL.pid };
    if n > 0 && (process == 0 || process == sys::getpid()) {
        sum.fetch_add(n as u64, SeqCst);
    }
    ENDED.fetch_add(1, SeqCst);
    n
}

/// What `look` finds at an instant at which none of our calls is under way, with the bytes that we had read and written by then. Signals are
/// blocked. It waits a moment for that, and then looks all the same: a call that takes long has not been counted by the kernel yet.
pub fn beside<T>(mut look: impl FnMut() -> T) -> (T, [u64; 2]) {
    const TRIES: u32 = 10;
    const SPINS: u32 = 500;
    const YIELDS: u32 = 20;
    let mut last = TRIES;
    loop {
        for turn in 0..SPINS + YIELDS {
            if ENDED.load(SeqCst) == BEGUN.load(SeqCst) {
                break;
            }
            // The kernel likes to take the processor away where a call ends.
            if turn < SPINS { core::hint::spin_loop() } else { sys::yield_now() }
        }
        let begun = BEGUN.load(SeqCst);
        let was_quiet = ENDED.load(SeqCst) == begun;
        let own = [MOVED[0].load(SeqCst), MOVED[1].load(SeqCst)];
        let found = look();
        last -= 1;
        // The look is a call itself.
        if last == 0 || was_quiet && BEGUN.load(SeqCst) == begun + 1 {
            return (found, own);
        }
    }
}

fn of_thread() -> Usage {
    // SAFETY: rusage is plain data.
    unsafe {
        let mut r: libc::rusage = core::mem::zeroed();
        sys!(libc::SYS_getrusage, libc::RUSAGE_THREAD, &raw mut r);
        words(&r)
    }
}

/// A `rusage` as words.
fn words(r: &libc::rusage) -> Usage {
    let ns = |v: libc::timeval| v.tv_sec as u64 * 1_000_000_000 + v.tv_usec as u64 * 1000;
    let both = |high: i64, low: i64| (high as u64 & 0x7fff_ffff) << 32 | low as u64 & 0xffff_ffff;
    [ns(r.ru_utime) + ns(r.ru_stime), both(r.ru_minflt, r.ru_majflt), both(r.ru_nvcsw, r.ru_nivcsw)]
}

/// `a` less `b`, half by half where it is two numbers.
fn less(a: Usage, b: Usage) -> Usage {
    let halves = |a: u64, b: u64| {
        let part = |shift: u32| (a >> shift & 0xffff_ffff).saturating_sub(b >> shift & 0xffff_ffff) << shift;
        part(32) | part(0)
    };
    [a[0].saturating_sub(b[0]), halves(a[1], b[1]), halves(a[2], b[2])]
}

/// Does work of ours on a thread of the program's.
pub fn work<T>(what: impl FnOnce() -> T) -> T {
    let before = of_thread();
    let r = what();
    for (sum, n) in WORK.iter().zip(less(of_thread(), before)) {
        sum.fetch_add(n, Relaxed);
    }
    r
}

/// A writer thread is about to be made.
pub fn writer_begins() {
    for (earlier, all) in EARLIER.iter().zip(&WRITERS) {
        earlier.store(all.load(Relaxed), Release);
    }
}

/// The writer, which calls, is about to sleep, or to end.
pub fn writer_notes(sleeps: bool) {
    let mut own = of_thread();
    own[2] += (sleeps as u64) << 32;
    for ((all, earlier), n) in WRITERS.iter().zip(&EARLIER).zip(own) {
        all.store(earlier.load(Relaxed) + n, Release);
    }
}

/// What thread `tid` has run, ns; 0 where it is no more.
fn run_by(tid: u32) -> u64 {
    // The kernel's number of a thread's clock.
    let clock = (!(tid as i32)) << 3 | 6;
    let mut t = [0u64; 2];
    // SAFETY: t is a timespec.
    let r = unsafe { sys!(libc::SYS_clock_gettime, clock as i64, t.as_mut_ptr()) };
    if r == 0 { t[0] * 1_000_000_000 + t[1] } else { 0 }
}

/// What the program has taken so far; `writer` is the writer thread's number, 0 there is none.
pub fn of_program(writer: u32) -> Usage {
    let earlier = EARLIER[0].load(Acquire);
    // First: to ask for it brings what the kernel has of a running thread up to date, also in the sum of all.
    let now = if writer == 0 { 0 } else { run_by(writer) };
    let mut ours = [0, 1, 2].map(|i: usize| WRITERS.get(i).map_or(0, |n| n.load(Acquire)));
    if now > 0 && EARLIER[0].load(Acquire) == earlier {
        ours[0] = ours[0].max(earlier + now);
    }
    // SAFETY: rusage is plain data.
    let all = unsafe {
        let mut r: libc::rusage = core::mem::zeroed();
        sys!(libc::SYS_getrusage, libc::RUSAGE_SELF, &raw mut r);
        words(&r)
    };
    let work = [0, 1, 2].map(|i: usize| WORK.get(i).map_or(0, |n| n.load(Relaxed)));
    less(less(all, ours), work)
}

/// A forked child begins anew.
pub fn forget() {
    for n in MOVED.iter().chain(&WRITERS).chain(&EARLIER).chain(&WORK).chain([&BEGUN, &ENDED]) {
        n.store(0, Relaxed);
    }
}
