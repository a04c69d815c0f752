//! CUPTI: what the device did, kernel by kernel, told by NVIDIA's own library. An option (`MEMSHIM_GPU_TIMING=cupti`), since it has one user at a
//! time, and takes more than events do.
//!
//! All of it happens on the thread of [`super::reaper`], never in a hook: that finds the library when the program has its first context
//! ([`library`]), subscribes, and then has CUPTI's buffers given back at the interval ([`buffers`]) and reads them ([`records`]). The hooks leave
//! a word for a callback that CUPTI makes inside the driver's call ([`expect`]), by which a record is known as one of our rows. Until CUPTI
//! is there, where it cannot be had, and from when the program uses it itself, event pairs time the copies as they do without it; the trace says why.
//!
//! Whoever waits for that thread does so for a second at most: at the end of the process, of a context, and where the program calls CUPTI.

mod attach;
mod buffers;
mod calls;
mod clock;
pub mod expect;
mod library;
mod names;
mod places;
mod program;
mod records;

pub use program::program_calls;

use super::call::ticket;
use super::{contexts, reaper};
use crate::config::{CONFIG, GPU_CUPTI};
use crate::elf::weak_symbol;
use crate::lane::{Hot, push};
use crate::spool::SPOOL;
use crate::sys;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use library::{Refused, own};
use memshim_format::gpu::{self, kind, name, state};
use memshim_format::phase::PIECE;
use memshim_format::record::{op, start};

const OFF: u32 = 0;
const STARTING: u32 = 1;
const ON: u32 = 2;
/// Not to be had, given up, or at the end.
const DONE: u32 = 3;
static STATE: AtomicU32 = AtomicU32::new(OFF);
/// Our thread is in CUPTI, or in the loader for it.
static INSIDE: AtomicU32 = AtomicU32::new(0);
/// Our thread.
static HELPER: AtomicUsize = AtomicUsize::new(0);
/// Threads that CUPTI has made on it.
static THREADS: AtomicU32 = AtomicU32::new(0);
static LAST_FLUSH: AtomicU64 = AtomicU64::new(0);
/// The last flush brought something, or there was none yet.
static BROUGHT: AtomicU32 = AtomicU32::new(1);

/// What others ask of our thread, by bits.
static ASKED: AtomicU32 = AtomicU32::new(0);
const FLUSH: u32 = 1;
const DRAIN: u32 = 2;
const GIVE_WAY: u32 = 4;
const END: u32 = 8;
const NUDGE: u32 = 16;

const FORCED: u32 = 1;
const SECOND: u64 = 1_000_000_000;

/// Whether it is asked for.
pub fn is_wanted() -> bool {
    // SAFETY: settings are read-only.
    unsafe { CONFIG.gpu == GPU_CUPTI }
}

/// Whether it tells of work now.
#[inline]
pub fn is_on() -> bool {
    STATE.load(Acquire) == ON
}

/// Whether our thread is somewhere that a fork must not copy.
pub fn is_inside() -> bool {
    INSIDE.load(SeqCst) != 0
}

/// Whether somebody waits for our thread.
pub fn is_asked() -> bool {
    ASKED.load(SeqCst) != 0
}

/// Private memory taken, in bytes.
pub fn private() -> usize {
    buffers::private() + expect::private()
}

/// Threads of CUPTI's that keep the process alive.
pub fn threads() -> u64 {
    THREADS.load(Relaxed) as u64
}

/// A thread was made, on this one.
pub fn thread_made(hot: *mut Hot) {
    if is_helper(hot) && is_inside() {
        THREADS.fetch_add(1, Relaxed);
    }
}

fn is_helper(hot: *mut Hot) -> bool {
    !hot.is_null() && HELPER.load(Relaxed) == hot as usize
}

/// A turn of our thread's: begins where that is due, does what is asked, flushes at the interval. `forks`: the process is about to fork.
pub fn turn(hot: *mut Hot, forks: impl Fn() -> bool) {
    if !is_wanted() || !matches!(STATE.load(Acquire), OFF | ON) {
        ASKED.store(0, SeqCst);
        return;
    }
    INSIDE.store(1, SeqCst);
    if !forks() {
        if STATE.load(Acquire) == OFF {
            begin(hot);
        }
        if STATE.load(Acquire) == ON {
            work(hot);
        }
    }
    INSIDE.store(0, SeqCst);
}

fn work(hot: *mut Hot) {
    let asked = ASKED.load(SeqCst);
    let now = sys::now();
    let due = now >= LAST_FLUSH.load(Relaxed) + interval();
    match asked {
        0 if due && (expect::pending() > 0 || BROUGHT.load(Relaxed) != 0) => flush(hot, 0),
        0 => drop(records::read_completed(hot)),
        NUDGE => flush(hot, 0),
        _ if asked & (GIVE_WAY | END) != 0 => {
            catch_up(hot, if asked & END != 0 { SECOND / 10 } else { 0 });
            leave(hot, asked & END == 0);
        }
        _ => catch_up(hot, if asked & DRAIN != 0 { SECOND } else { SECOND / 10 }),
    }
    ASKED.fetch_and(!asked, SeqCst);
}

/// Between two flushes: what is not given back at a kill is lost, and calls that wait for their records take room.
pub fn interval() -> u64 {
    // SAFETY: settings are read-only.
    unsafe { CONFIG.interval_ns }.min(SECOND / 10)
}

/// Flushes until nothing is missing any more, so long at most.
fn catch_up(hot: *mut Hot, ns: u64) {
    let until = sys::now() + ns;
    loop {
        flush(hot, 0);
        if expect::pending() <= 0 || sys::now() >= until {
            return;
        }
        sys::pause(1_000_000);
    }
}

/// Has CUPTI give its buffers back, and reads them.
fn flush(hot: *mut Hot, how: u32) {
    clock::check();
    if let Some(f) = own().flush_all {
        // SAFETY: CUPTI's function, on a thread of ours outside of its callbacks.
        unsafe { f(how) };
    }
    let mut dropped = 0usize;
    if let Some(f) = own().dropped {
        // SAFETY: writes one number.
        unsafe { f(core::ptr::null_mut(), 0, &raw mut dropped) };
    }
    let read = records::read_completed(hot);
    BROUGHT.store((read.records > 0) as u32, Relaxed);
    if dropped as u64 + read.untimed + read.torn > 0 {
        row(hot, state::DROPPED, [dropped as u64, read.untimed, read.torn]);
    }
    LAST_FLUSH.store(sys::now(), Relaxed);
}

fn row(hot: *mut Hot, what: u64, w: [u64; 3]) {
    let head = gpu::head(0, gpu::NO_DEVICE, 0, what);
    let [a, b, c] = w;
    // SAFETY: this thread's hot.
    unsafe { push(hot, [start(op::GPU + kind::STATE, gpu::NO_CALL, ticket()), sys::now(), head, a, b, c]) };
}

/// A longer text in pieces, zero or more of one number.
fn say(hot: *mut Hot, what: u64, number: u64, text: &[u8]) {
    for (i, piece) in text.chunks(PIECE).enumerate() {
        contexts::name(hot, what, number << 8 | i as u64, piece);
    }
}

fn begin(hot: *mut Hot) {
    STATE.store(STARTING, SeqCst);
    HELPER.store(hot as usize, Relaxed);
    match attach::attach() {
        Ok(version) => {
            end_before_cupti();
            reaper::look_before_cupti(hot);
            say(hot, name::CUPTI, 0, library::path());
            row(hot, state::CUPTI, [1, version as u64, 0]);
            STATE.store(ON, SeqCst);
        }
        Err(why) => {
            let mut text = [0u8; 512];
            say(hot, name::REASON, 0, why.write(&mut text));
            STATE.store(DONE, SeqCst);
        }
    }
}

/// From here on CUPTI is not ours: the program wants it, or is at its end.
fn leave(hot: *mut Hot, gives_way: bool) {
    STATE.store(DONE, SeqCst);
    flush(hot, FORCED);
    attach::let_go();
    records::read_completed(hot);
    if gives_way {
        let mut text = [0u8; 64];
        say(hot, name::REASON, 0, Refused::Program.write(&mut text));
    }
    row(hot, state::CUPTI, [0, gives_way as u64, 0]);
}

/// Only our own threads are left: CUPTI's must end, or the process would not.
pub fn program_is_gone(hot: *mut Hot) {
    if is_on() {
        INSIDE.store(1, SeqCst);
        leave(hot, false);
        if let Some(f) = own().finalize {
            // SAFETY: nobody else is left who could be in it.
            unsafe { f() };
        }
        INSIDE.store(0, SeqCst);
    }
}

/// Asks our thread, and waits so long at most.
fn ask(what: u32, ns: u64) {
    if !is_on() || is_helper(crate::lane::current()) {
        return;
    }
    ASKED.fetch_or(what, SeqCst);
    reaper::ring();
    let until = sys::now() + ns;
    while ASKED.load(SeqCst) & what != 0 && reaper::is_there() && sys::now() < until {
        sys::pause(100_000);
    }
}

/// There is much to flush. In a callback of CUPTI's, so nothing is waited for.
fn nudge() {
    ASKED.fetch_or(NUDGE, SeqCst);
    reaper::ring();
}

/// What is done by now is asked for once more. Whether CUPTI is to be had is known first: the trace is to say it.
pub fn hurry() {
    if !is_ours() {
        return;
    }
    let until = sys::now() + SECOND;
    while is_wanted() && matches!(STATE.load(SeqCst), OFF | STARTING) && reaper::is_there() && sys::now() < until {
        sys::pause(500_000);
    }
    ask(FLUSH, SECOND / 5);
}

/// A context is about to end: what is in flight is waited for, a second at most.
pub fn drain() {
    sys::keep_errno(|| ask(DRAIN, SECOND + SECOND / 5));
}

/// CUPTI's own handlers at the end of the process came with it, before this one: so this one runs before them.
fn end_before_cupti() {
    type OnExit = unsafe extern "C" fn(unsafe extern "C" fn(c_int, *mut c_void), *mut c_void) -> c_int;
    let on_exit = weak_symbol!("on_exit");
    if !on_exit.is_null() {
        // SAFETY: the C library's function of this type; a plain registration.
        unsafe { core::mem::transmute::<*const c_void, OnExit>(on_exit)(ends, core::ptr::null_mut()) };
    }
}

unsafe extern "C" fn ends(_: c_int, _: *mut c_void) {
    if is_ours() {
        sys::keep_errno(|| ask(END, SECOND + SECOND / 5));
    }
}

/// Whether this is not a forked child, which has what its parent knew and nobody who answers, until its first call comes by us.
fn is_ours() -> bool {
    // SAFETY: settled at the start.
    sys::getpid() == unsafe { SPOOL.pid }
}

/// The program wants it: our thread lets it go before this returns, or in a second at most.
fn give_way() {
    let until = sys::now() + SECOND;
    while STATE.load(SeqCst) == STARTING && sys::now() < until {
        sys::pause(100_000);
    }
    ask(GIVE_WAY, SECOND);
}

/// A forked child has none of it: neither CUPTI nor the driver work there.
pub fn forget() {
    STATE.store(DONE, Relaxed);
    INSIDE.store(0, Relaxed);
    ASKED.store(0, Relaxed);
    HELPER.store(0, Relaxed);
    THREADS.store(0, Relaxed);
    expect::forget();
}
