//! Preloaded with `PYFRAMES_STORM` set, every `malloc`, `calloc` and `realloc` of the program walks its thread's frames: also those while a
//! frame is being made, the interpreter starts or ends, a thread comes or goes. Nothing is kept of it but counts, printed at the end. Set
//! to `signals`, a signal's handler does so, too.

use crate::python::{self, Definition, Python, Spot};
use crate::sys;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering::*};

thread_local! {
    static BUSY: Cell<bool> = const { Cell::new(false) };
    static PYTHON: Cell<*mut Python> = const { Cell::new(core::ptr::null_mut()) };
}

static ON: AtomicU64 = AtomicU64::new(0);
static WALKS: AtomicU64 = AtomicU64::new(0);
static DEEP: AtomicU64 = AtomicU64::new(0);
static NODES: AtomicU64 = AtomicU64::new(1);
static CODES: AtomicU64 = AtomicU64::new(0);
static BROKEN: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    fn __libc_malloc(n: usize) -> *mut c_void;
    fn __libc_calloc(n: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(p: *mut c_void, n: usize) -> *mut c_void;
    fn atexit(f: extern "C" fn()) -> c_int;
    fn dprintf(fd: c_int, format: *const u8, ...) -> c_int;
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    if let Some(how) = std::env::var_os("PYFRAMES_STORM") {
        python::seek();
        ON.store(1, Relaxed);
        if how == "signals" {
            interrupt();
        }
        // SAFETY: a function that lives as long as the process.
        unsafe { atexit(tell) };
    }
}

/// Walks in a signal handler of the first thread as well, which another thread keeps calling: at any instruction of the interpreter.
fn interrupt() {
    extern "C" fn on_signal(_: c_int) {
        walk();
    }
    // SAFETY: a handler that neither locks nor allocates; the structure is plain data.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (on_signal as extern "C" fn(c_int) as usize, libc::SA_RESTART);
        libc::sigaction(libc::SIGPROF, &action, core::ptr::null_mut());
        let (process, thread) = (sys::getpid() as u64, sys::gettid() as u64);
        std::thread::spawn(move || {
            while sys::call6(libc::SYS_tgkill, process, thread, libc::SIGPROF as u64, 0, 0, 0) == 0 {
                sys::pause(20_000);
            }
        });
    }
}

extern "C" fn tell() {
    let [w, d, c, b] = [&WALKS, &DEEP, &CODES, &BROKEN].map(|n| n.load(Relaxed));
    // SAFETY: four numbers for four.
    unsafe { dprintf(2, c"storm: %lu walks, %lu with frames, %lu codes, %lu broken\n".as_ptr().cast(), w, d, c, b) };
}

fn walk() {
    if ON.load(Relaxed) == 0 || BUSY.get() {
        return;
    }
    BUSY.set(true);
    let mut python = PYTHON.get();
    if python.is_null() {
        python = sys::map_anon(size_of::<Python>()).cast();
        PYTHON.set(python);
    }
    let mut node = |_, code, at, spot: &Spot| {
        BROKEN.fetch_add((code == 0 && at == 2) as u64, Relaxed);
        if code != 0 {
            // SAFETY: the walk is under way.
            std::hint::black_box(unsafe { spot.line_said() });
        }
        NODES.fetch_add(1, Relaxed) as u32
    };
    let mut define = |d: &Definition| {
        CODES.fetch_add((!d.file.is_empty() && !d.name.is_empty()) as u64, Relaxed);
        true
    };
    // SAFETY: this thread's; zeroed memory is a good beginning.
    let n = unsafe { (*python).update(&mut node, &mut define) };
    WALKS.fetch_add(1, Relaxed);
    DEEP.fetch_add((n != 0) as u64, Relaxed);
    BUSY.set(false);
}

#[unsafe(no_mangle)]
pub extern "C" fn malloc(n: usize) -> *mut c_void {
    walk();
    // SAFETY: glibc's own.
    unsafe { __libc_malloc(n) }
}

#[unsafe(no_mangle)]
pub extern "C" fn calloc(n: usize, size: usize) -> *mut c_void {
    walk();
    // SAFETY: glibc's own.
    unsafe { __libc_calloc(n, size) }
}

/// # Safety
/// As realloc.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(p: *mut c_void, n: usize) -> *mut c_void {
    walk();
    // SAFETY: glibc's own; the caller's block.
    unsafe { __libc_realloc(p, n) }
}
