//! The thread that asks the driver how far the work has come: pairs of events that have passed, and streams that are busy.
//!
//! A thread of the C library's, since the driver's functions need one. It is made when the first copy is timed or the first kernel launched,
//! so a program without either never has it; it sleeps while there is nothing to ask. Two rules of captures: it exchanges its capture mode to
//! *relaxed* once, or its questions would spoil captures of other threads; and it looks at no stream while any capture is open, since to
//! ask a capturing stream whether it is busy spoils that one. `cuStreamBeginCapture` waits for a look under way (a question of microseconds), and so
//! does the end of a stream.

use super::contexts::{CONTEXTS, MOST};
use super::libcuda::own;
use super::{cupti, graphs, streams, timing};
use crate::config::CONFIG;
use crate::elf::weak_symbol;
use crate::hooks::heap::ready;
use crate::lane::{self, Hot};
use crate::real::REAL;
use crate::{drain, loaded, snapshot, sys};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use sys::sys;

/// 0 none, 1 there, 2 cannot be had.
static STATE: AtomicU32 = AtomicU32::new(0);
static BELL: AtomicU32 = AtomicU32::new(0);
static ASLEEP: AtomicU32 = AtomicU32::new(0);
/// A look at streams is under way.
static LOOKING: AtomicU32 = AtomicU32::new(0);
/// Forks under way: the driver is left alone, or a child could find its locks held by a thread that it lacks.
static FORKS: AtomicU32 = AtomicU32::new(0);
static TOLD: AtomicU64 = AtomicU64::new(0);

/// Between two looks while there is work.
const PAUSE_NS: u64 = 1_000_000;
/// With more pairs in flight it looks more often, so that there are free ones.
const MANY: u32 = 1024;
/// Streams that one look asks: so many at a thousand a second.
const STREAMS_A_LOOK: usize = 64;
/// What the driver says of a stream that has work.
pub const NOT_READY: i32 = 600;
/// Asleep it looks this often whether the program's threads are all gone.
const IDLE_NS: u64 = 200_000_000;

/// The process is at its end: the driver is asked nothing any more.
static ENDING: AtomicU32 = AtomicU32::new(0);

/// Whether the driver is about to go, or gone.
pub fn is_ending() -> bool {
    ENDING.load(Relaxed) != 0
}

/// Handlers run last registered first: registered at the first context, after the driver's own, this one runs before it.
pub fn end_before_driver() {
    type OnExit = unsafe extern "C" fn(unsafe extern "C" fn(c_int, *mut c_void), *mut c_void) -> c_int;
    let on_exit = weak_symbol!("on_exit");
    if !on_exit.is_null() {
        // SAFETY: the C library's function of this type; a plain registration.
        sys::keep_errno(|| unsafe { core::mem::transmute::<*const c_void, OnExit>(on_exit)(driver_ends, core::ptr::null_mut()) });
    }
}

unsafe extern "C" fn driver_ends(_: c_int, _: *mut c_void) {
    sys::keep_errno(|| {
        hurry();
        if timing::pending() > 0 {
            timing::take_over(ready());
        }
        ENDING.store(1, SeqCst);
        let until = sys::now() + 100_000_000;
        while (timing::REAPING.load(SeqCst) != 0 || LOOKING.load(SeqCst) != 0) && sys::now() < until {
            sys::yield_now();
        }
    });
}

/// There is work to ask after.
pub fn wake(hot: *mut Hot) {
    if !timing::is_by_device() || is_ending() {
        return;
    }
    if STATE.load(Acquire) == 0 {
        begin(hot);
    } else if ASLEEP.load(SeqCst) == 1 {
        ring();
    }
}

/// Wakes the thread.
pub fn ring() {
    BELL.fetch_add(1, SeqCst);
    sys::futex_wake(&BELL);
}

/// Whether the thread is there.
pub fn is_there() -> bool {
    STATE.load(Acquire) == 1
}

#[cold]
fn begin(_hot: *mut Hot) {
    if STATE.compare_exchange(0, 1, AcqRel, Relaxed).is_err() {
        return;
    }
    sys::keep_errno(|| {
        // Born with all signals blocked; what the program's threads do on signals is theirs.
        let signals = sys::block_signals();
        let mut thread = 0u64;
        // SAFETY: the C library's function, with a thread function of ours.
        let made = unsafe {
            REAL.pthread_create
                .is_some_and(|f| f((&raw mut thread).cast(), core::ptr::null(), run as *const c_void, core::ptr::null_mut()) == 0)
        };
        sys::restore_signals(signals);
        if !made {
            STATE.store(2, Release);
        }
    });
}

/// Signals that the C library sends to its threads itself (`setuid` waits for their answer).
const OF_LIBC: u64 = 1 << 31 | 1 << 32;

unsafe extern "C" fn run(_: *mut c_void) -> *mut c_void {
    let open = !OF_LIBC;
    let detach = weak_symbol!("pthread_detach");
    // SAFETY: the set is a variable of eight bytes; the name is zero-terminated; this thread detaches itself.
    unsafe {
        sys!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const open, 0, 8);
        sys!(libc::SYS_prctl, libc::PR_SET_NAME, c"memshim-gpu".as_ptr());
        if !detach.is_null() {
            core::mem::transmute::<*const c_void, unsafe extern "C" fn(u64) -> c_int>(detach)(sys::thread_block());
        }
    }
    let hot = ready();
    let mut relaxed = false;
    while !hot.is_null() && lane::current() == hot && !is_ending() {
        cupti::turn(hot, is_forking);
        let work = pass(hot, &mut relaxed);
        if work {
            sys::pause(if timing::pending() > MANY { PAUSE_NS / 20 } else { PAUSE_NS });
            continue;
        }
        let bell = BELL.load(SeqCst);
        ASLEEP.store(1, SeqCst);
        // Whoever gives work first gives it and then looks whether we sleep; we the other way round.
        if timing::pending() == 0 && !streams::any_awake() {
            let pause = if cupti::is_on() { cupti::interval() } else { IDLE_NS };
            if !cupti::is_asked() {
                sys::futex_wait(&BELL, bell, pause);
                // Looks at once would find the work that has just begun, however short: the first comes at any time of the first pause.
                if streams::any_awake() && !cupti::is_asked() {
                    sys::pause(at_random(PAUSE_NS));
                }
            }
        } else {
            sys::pause(PAUSE_NS);
        }
        ASLEEP.store(0, SeqCst);
        if BELL.load(SeqCst) == bell && program_is_gone() {
            cupti::program_is_gone(hot);
            break;
        }
    }
    STATE.store(2, Release);
    core::ptr::null_mut()
}

/// Any number below `most`.
fn at_random(most: u64) -> u64 {
    (sys::now().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % most
}

/// Whether only our own threads are left: then the process must be able to end.
fn program_is_gone() -> bool {
    let signals = sys::block_signals();
    let mut gone = false;
    if drain::try_lock(sys::gettid()) {
        let ours = 2 - !crate::writer::alive() as u64 + cupti::threads();
        // It counts all threads but one, which is the writer where there is one.
        gone = snapshot::program_threads() == Some(ours - 1);
        drain::unlock();
    }
    sys::restore_signals(signals);
    gone
}

/// One look at everything. Whether there is more to look at soon.
fn pass(hot: *mut Hot, relaxed: &mut bool) -> bool {
    let mut work = false;
    for (slot, context) in CONTEXTS.iter().enumerate() {
        let handle = context.handle.load(Acquire);
        if handle == 0 {
            continue;
        }
        let timed = timing::has_pending(hot, slot);
        let busy = streams::awake_in(slot).next().is_some();
        if timed || busy {
            work |= in_context(hot, slot, handle, relaxed, || {
                if timed {
                    timing::refresh_anchor(hot, slot);
                    timing::reap(hot, slot);
                }
                if busy {
                    look_at_streams(slot, |s, busy, now| s.looked(hot, busy, now));
                }
            });
        }
    }
    let now = sys::now();
    // SAFETY: settings are read-only.
    if now >= TOLD.load(Relaxed) + unsafe { CONFIG.interval_ns } {
        TOLD.store(now, Relaxed);
        streams::tell_all(hot);
        timing::tell_untimed(hot);
    }
    work
}

/// Runs `f` in a context, unless that is about to end. Whether there may be more to do in it.
fn in_context(hot: *mut Hot, slot: usize, handle: u64, relaxed: &mut bool, f: impl FnOnce()) -> bool {
    let mut work = false;
    timing::REAPING.store(slot as u32 + 1, SeqCst);
    if is_forking() {
        work = true; // in a moment
    } else if !is_ending() && !timing::is_dying(hot, slot) {
        if enter(handle, relaxed) {
            f();
            work = true;
        }
        leave();
    }
    timing::REAPING.store(0, SeqCst);
    work
}

/// The last look at what CUPTI, which is there from now on, does not tell of.
pub fn look_before_cupti(hot: *mut Hot) {
    for (slot, context) in CONTEXTS.iter().enumerate() {
        let handle = context.handle.load(Acquire);
        if handle != 0 && streams::awake_in(slot).next().is_some() {
            let look = || look_at_streams(slot, |s, busy, now| s.looked_before_cupti(hot, busy, now));
            in_context(hot, slot, handle, &mut false, look);
        }
    }
}

fn enter(handle: u64, relaxed: &mut bool) -> bool {
    // SAFETY: a live context: its end waits for us.
    unsafe {
        if own().set_context.is_none_or(|f| f(handle as usize) != 0) {
            return false;
        }
        // With a context only: without one the call could make one.
        if !*relaxed {
            let mut mode = timing::RELAXED;
            *relaxed = own().exchange_capture_mode.is_some_and(|f| f(&raw mut mode) == 0);
        }
        *relaxed
    }
}

fn leave() {
    if let Some(f) = own().set_context {
        // SAFETY: none is current from here on.
        unsafe { f(0) };
    }
}

/// Streams that can have work are asked whether they have any.
fn look_at_streams(slot: usize, looked: impl Fn(&streams::Slot, bool, u64)) {
    /// Where the next look at a context's streams begins: where there are more than one look asks, each has its turn.
    static NEXT: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];
    let (Some(query), Some(next)) = (own().stream_query, NEXT.get(slot)) else { return };
    for (at, s) in streams::awake_from(slot, next.load(Relaxed)).take(STREAMS_A_LOOK) {
        next.store(at + 1, Relaxed);
        let handle = s.handle.load(Relaxed);
        // The thread's own default stream would be ours.
        if handle == 2 {
            s.awake.store(0, Relaxed);
            continue;
        }
        LOOKING.store(1, SeqCst);
        let there = s.context.load(SeqCst) == slot as u32 + 1;
        // A capture that began past the hooks is known by asking alone, which does it no harm.
        if there && !graphs::is_capturing() && graphs::capture_of(handle) == graphs::Capture::No {
            s.awake.store(0, Relaxed);
            // SAFETY: a live stream: its end waits for us.
            let r = unsafe { query(handle as usize) };
            looked(s, r == NOT_READY, sys::now());
        }
        LOOKING.store(0, SeqCst);
    }
}

/// Waits until no look at a stream is under way, a second at most.
pub fn wait_for_sampler() {
    let mut until = 0;
    while LOOKING.load(SeqCst) != 0 {
        let now = sys::now();
        if until == 0 {
            until = now + 1_000_000_000;
        }
        if now > until {
            return;
        }
        sys::yield_now();
    }
}

/// How long a fork waits for us; hardly, when one has waited in vain.
static PATIENCE_NS: AtomicU64 = AtomicU64::new(1_000_000_000);

/// The process is about to fork: waits until we are out of the driver and the loader, a second at most, and keeps us out.
pub fn before_fork() {
    FORKS.fetch_add(1, SeqCst);
    let until = sys::now() + PATIENCE_NS.load(Relaxed);
    while timing::REAPING.load(SeqCst) != 0 || cupti::is_inside() || loaded::is_walked() {
        if sys::now() > until {
            PATIENCE_NS.store(1_000_000, Relaxed);
            break;
        }
        sys::yield_now();
    }
}

/// Whether a fork is under way.
pub fn is_forking() -> bool {
    FORKS.load(SeqCst) != 0
}

/// It has, or could not.
pub fn after_fork() {
    FORKS.fetch_sub(1, SeqCst);
}

/// The process ends or becomes another image: work that is done is asked after once more.
pub fn hurry() {
    cupti::hurry();
    if STATE.load(Acquire) != 1 || timing::pending() == 0 {
        return;
    }
    let until = sys::now() + 100_000_000;
    while timing::pending() > 0 && sys::now() < until && STATE.load(Acquire) == 1 {
        sys::pause(200_000);
    }
}

/// A forked child has none.
pub fn forget() {
    STATE.store(0, Relaxed);
    FORKS.store(0, Relaxed);
    loaded::forget();
    ENDING.store(0, Relaxed);
    ASLEEP.store(0, Relaxed);
    LOOKING.store(0, Relaxed);
}
