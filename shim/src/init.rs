//! Beginning and end: the first image of a process, a forked child, exec, exit.

mod ends;

pub use ends::{QUICK_CODE, before_exec, finish, is_in_its_parent};
use ends::{exits, exits_somehow, quick_exits};

use crate::config::{self, CONFIG, COUNT};
use crate::lane::{self, HOTS, Hot, LANES, MODE, Samples};
use crate::sink::{self, Opened, SINK};
use crate::spool::{self, HOTS_LEN, SPOOL};
use crate::sys::{self, sys};
use crate::text::Text;
use crate::{callers, drain, lines, proc, real, snapshot, thread_stacks, tls, writer};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// 0 nothing yet, 1 being set up, 2 recording, 3 not recording (switched off, excluded, or no trace to be had).
static PHASE: AtomicU32 = AtomicU32::new(0);

/// A page the kernel wipes in a forked child: its first word is 1 in the process that set it up.
static mut ALIVE: *mut u32 = core::ptr::null_mut();

static mut INHERITED: Option<Inherited> = None;
static mut THREAD_KEY: Option<u32> = None;
static mut SET_SPECIFIC: Option<unsafe extern "C" fn(u32, *const c_void) -> c_int> = None;

/// What a forked child finds.
#[derive(Clone, Copy)]
pub struct Inherited {
    /// Its parent's pid.
    pub from: u32,
    /// Live bytes and live blocks at the fork: of all lanes but Python's, and of those.
    pub held: [(i64, i64); 2],
    /// The parent's map calls before the fork have places below.
    pub map_ticket: u64,
}

/// In a forked child.
pub fn inherited() -> Option<Inherited> {
    // SAFETY: set while one thread exists.
    unsafe { INHERITED }
}

/// Whether real functions are known and calls may be passed on.
#[inline]
pub fn resolved() -> bool {
    // SAFETY: written once before the phase changes.
    unsafe { real::REAL.malloc.is_some() }
}

/// Whether this process is being recorded.
pub fn is_recording() -> bool {
    PHASE.load(Acquire) == 2
}

/// Calls of hooks while this process is being set up.
static HOOKS_CALLED: AtomicU32 = AtomicU32::new(0);

/// Whether what is called here calls hooks, while this process is being set up.
pub fn calls_hooks(call: impl FnOnce()) -> bool {
    let before = HOOKS_CALLED.load(Relaxed);
    call();
    HOOKS_CALLED.load(Relaxed) != before
}

/// The cold path of every hook: sets up whatever is missing and returns this thread's [`Hot`], null when nothing is to be recorded.
#[cold]
#[inline(never)]
pub fn enter() -> *mut Hot {
    let phase = PHASE.load(Acquire);
    if phase == 1 {
        HOOKS_CALLED.fetch_add(1, Relaxed);
    }
    // SAFETY: ALIVE is set before phase 2.
    if phase == 1 || phase == 3 || phase == 2 && unsafe { *ALIVE } == 1 && crate::crowd::stays() {
        return core::ptr::null_mut();
    }
    sys::keep_errno(|| {
        let signals = sys::block_signals();
        // SAFETY: ALIVE is set before phase 2.
        unsafe {
            if phase == 0 {
                if PHASE.compare_exchange(0, 1, AcqRel, Relaxed).is_ok() {
                    sys::set_up(|| begin());
                }
            } else if *ALIVE == 0 && PHASE.compare_exchange(2, 1, AcqRel, Relaxed).is_ok() {
                sys::set_up(|| begin_child());
            }
        }
        let mut hot = core::ptr::null_mut();
        if PHASE.load(Acquire) == 2 {
            hot = lane::current();
            if hot.is_null() {
                hot = lane::acquire(false);
                if hot.is_null() {
                    crate::crowd::join();
                } else {
                    tls::set_hot(hot);
                    tell_key();
                }
            }
        }
        sys::restore_signals(signals);
        hot
    })
}

/// Asks pthread to tell us of this thread's end.
fn tell_key() {
    // SAFETY: our key and its function, looked up at the start.
    unsafe {
        if let (Some(key), Some(set)) = (THREAD_KEY, SET_SPECIFIC) {
            set(key, core::ptr::without_provenance(1));
        }
    }
}

/// Runs in an ending thread, once in each of glibc's four rounds of destructors; in the last the lane is given back (to be used again
/// when the thread is really gone: others' destructors still allocate).
unsafe extern "C" fn thread_ends(round: *mut c_void) {
    let round = round as usize;
    let hot = lane::current();
    if hot.is_null() {
        return;
    }
    // SAFETY: our key; the lane is this thread's.
    unsafe {
        if round < 4 {
            if let (Some(key), Some(set)) = (THREAD_KEY, SET_SPECIFIC) {
                set(key, core::ptr::without_provenance(round + 1));
            }
            return;
        }
        thread_stacks::on_end(hot);
        lane::on_thread_end(hot, proc::thread_name());
    }
}

/// Sets up the first image of a process, or one that exec made. Signals are blocked, one thread exists.
///
/// Not inline, nor is its kin: their paths take stack that a thread at its first event may not have.
#[inline(never)]
unsafe fn begin() {
    // SAFETY: one thread.
    unsafe {
        real::resolve();
        crate::hooks::cxx::settle();
        crate::hooks::process::settle();
        crate::hooks::waits::settle();
        crate::cuda::settle();
        thread_stacks::settle();
        wake_allocator();
        crate::hooks::cxx::probe();
        config::read();
        if CONFIG.off {
            PHASE.store(3, Release);
            return;
        }
        crate::follow::settle();
        callers::settle();
        crate::phases::python::settle();
        crate::phases::symbol::settle();
        if !map_private() {
            sink::note_stderr();
            no_memory();
            return;
        }
        match sink::open() {
            Opened::Failed(what, errno) => {
                refuse(what, errno);
                return;
            }
            Opened::Ready { header_due } => {
                if !SINK.first && !CONFIG.follow {
                    sink::remove_empty();
                    PHASE.store(3, Release);
                    return;
                }
                // Once a run: a build's thousand processes are told the same.
                if SINK.first && SINK.exec == 0 {
                    sink::complain(config::complaints());
                }
                sink::note_length();
                take_old_spool_away();
                if header_due {
                    lines::header_now();
                }
            }
        }
        crate::phases::process::returned::register();
        start_recording();
        register_exit();
        crate::phases::symbol::first();
        if PHASE.load(Relaxed) == 2 {
            crate::python_alloc::wrap();
        }
    }
}

/// Some allocators set themselves up in `malloc_usable_size`, by `operator new` (tcmalloc): done here once, where nothing is recorded, so
/// that no hook calls itself in a circle.
unsafe fn wake_allocator() {
    // SAFETY: one thread; the real functions on a block of our own.
    unsafe {
        if let (false, Some(alloc), Some(free), Some(usable)) =
            (real::GLIBC, real::REAL.malloc, real::REAL.free, real::REAL.malloc_usable_size)
        {
            let p = alloc(1);
            if !p.is_null() {
                usable(p);
                free(p);
            }
        }
    }
}

/// Sets up a forked child. Signals are blocked, one thread exists.
#[inline(never)]
unsafe fn begin_child() {
    // SAFETY: one thread. The mappings are the parent's, shared with it: read, then let go.
    unsafe {
        // What the parent had from its own parent is in none of its lanes, but what it freed of that is.
        let from_before = INHERITED.map_or([(0, 0); 2], |i| i.held);
        let [all, python] = from_before;
        let held = [(false, all), (true, python)].map(|(python, before): (bool, (i64, i64))| {
            let s = lines::totals(python);
            (s.live.wrapping_add(before.0), s.blocks.wrapping_add(before.1))
        });
        INHERITED = Some(Inherited { from: SPOOL.pid, held, map_ticket: crate::hooks::maps::next_ticket() });
        let (old_fd, old_id) = (SPOOL.fd, SPOOL.id);
        crate::table::TABLE.release();
        sys::unmap(SPOOL.base, SPOOL.mapped);
        SPOOL.base = core::ptr::null_mut();
        spool::forget_crowd();
        if old_fd >= 0 && sys::identity(old_fd) == old_id {
            sys::close(old_fd);
        }
        *ALIVE = 1;
        writer::forget();
        crate::share::forget();
        thread_stacks::forget();
        callers::forget();
        crate::phases::forget();
        lines::reset();
        lines::restart_counts();
        crate::cuda::forget();
        if !CONFIG.follow {
            PHASE.store(3, Release);
            return;
        }
        CONFIG.mode = CONFIG.asked;
        match sink::open_child() {
            Opened::Failed(what, errno) => {
                refuse(what, errno);
                return;
            }
            Opened::Ready { .. } => {
                sink::note_length();
                lines::header_now();
            }
        }
        start_recording();
    }
}

/// Bytes of the memory that a forked child finds wiped.
const WIPED: usize = HOTS_LEN + 4096 + size_of::<Samples>();

/// Memory that a forked child finds wiped: the hot lines and the word that tells.
unsafe fn map_private() -> bool {
    // SAFETY: one thread.
    unsafe {
        let p = sys::map_anon(WIPED);
        if p.is_null() {
            return false;
        }
        const MADV_WIPEONFORK: i32 = 18;
        let wiped = sys!(libc::SYS_madvise, p, WIPED, MADV_WIPEONFORK) == 0;
        HOTS = p.cast();
        ALIVE = p.add(HOTS_LEN).cast();
        lane::quick::settle(p.add(HOTS_LEN + 4096).cast());
        *ALIVE = 1;
        let f = real::default(b"__register_atfork");
        if !f.is_null() {
            let register: unsafe extern "C" fn(*const c_void, *const c_void, *const c_void, *const c_void) -> c_int =
                core::mem::transmute(f);
            // A kernel before 4.14: forks through libc are told of, raw ones are not.
            let child = if wiped { core::ptr::null() } else { wipe as *const c_void };
            register(writer::before_fork as *const c_void, writer::after_fork as *const c_void, child, core::ptr::null());
        }
        true
    }
}

/// What the kernel does where it can.
unsafe extern "C" fn wipe() {
    // SAFETY: a fresh child has one thread.
    unsafe { core::ptr::write_bytes(HOTS.cast::<u8>(), 0, WIPED) };
}

const NO_MEMORY: &str = "there is no memory to record in; allow more address space (ulimit -v)";

/// There is none: one line says so, and the program runs on unrecorded.
fn no_memory() {
    PHASE.store(3, Release);
    let mut b = [0u8; 256];
    sink::complain(Text::over(&mut b).str("memshim: ").str(NO_MEMORY).str(". The program runs on, not recorded.\n").as_bytes());
}

/// No trace can be written: one line says why, and the program runs on unrecorded.
unsafe fn refuse(what: &str, errno: i32) {
    PHASE.store(3, Release);
    if what.is_empty() {
        return;
    }
    let mut b = [0u8; 768];
    let mut t = Text::over(&mut b);
    // SAFETY: one thread.
    unsafe {
        let out = &*(&raw const CONFIG.out);
        let n = out.iter().position(|c| *c == 0).unwrap_or(0).min(400);
        let path = out.get(..n).unwrap_or(b"");
        t.str("memshim: ").str(what).str(" ").bytes(path).str(": ").str(sink::reason_of(errno, path));
        t.str("; the program runs on, not recorded. Set MEMSHIM_OUT to a path that can be written.\n");
        sink::complain(t.as_bytes());
    }
}

unsafe fn spool_path(t: &mut Text) {
    // SAFETY: one thread.
    unsafe {
        let p = &*(&raw const SINK.path);
        t.bytes(p.get(..p.iter().position(|c| *c == 0).unwrap_or(0)).unwrap_or(b"")).str(".spool");
    }
}

/// The spool that an image before this one (exec) or a process of this name left: kept for the reader under a number if it holds
/// anything, else removed.
unsafe fn take_old_spool_away() {
    let mut from = [0u8; 4300];
    let mut to = [0u8; 4300];
    // SAFETY: one thread; paths are zero-terminated.
    unsafe {
        let mut t = Text::over(&mut from);
        spool_path(&mut t);
        t.str("\0");
        let fd = sys::openat(libc::AT_FDCWD, from.as_ptr(), libc::O_RDONLY | libc::O_NOFOLLOW, 0);
        if fd < 0 {
            return;
        }
        let clean = spool::is_settled(fd);
        sys::close(fd);
        if clean {
            sys!(libc::SYS_unlink, from.as_ptr());
            return;
        }
        for n in 0..1000 {
            let mut t = Text::over(&mut to);
            spool_path(&mut t);
            t.str(".").num(SINK.exec as u64 + n).str("\0");
            let r = sys!(libc::SYS_renameat2, libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::RENAME_NOREPLACE);
            if r != -libc::EEXIST as i64 {
                return;
            }
        }
    }
}

/// Spool, first snapshot, writer. The trace is open.
unsafe fn start_recording() {
    // SAFETY: one thread.
    unsafe {
        drain::reset(INHERITED.is_some());
        let path = &mut *(&raw mut SPOOL.path);
        *path = [0; 4200];
        let mut t = Text::over(path);
        spool_path(&mut t);
        t.str("\0");
        let shareable = SINK.is_regular_own();
        let at = if shareable { path.as_ptr() } else { core::ptr::null() };
        if !spool::create(at, "the trace is not a file of this process's own") {
            lines::mode("none", &[NO_MEMORY], libc::ENOMEM, None);
            no_memory();
            return;
        }
        let h = spool::header();
        (*h).start_ticks = SINK.me.1;
        (*h).exec = SINK.exec;
        (*h).mode = CONFIG.mode;
        (*h).python_alloc = CONFIG.python_alloc as u32;
        (*h).ages = config::tells_ages() as u32;
        (*h).glibc = real::GLIBC as u32;
        if !SPOOL.shared {
            lines::note(&["spool private: ", SPOOL.reason]);
        }
        config::notes(SINK.first && SINK.exec == 0, lines::note_given);
        snapshot::open();
        snapshot::snap("start");
        writer::forget();
        MODE.store(if SINK.trouble == 0 { CONFIG.mode } else { COUNT }, Relaxed);
        if !writer::start() {
            lines::note(&["writer thread could not start: events are written by the program's threads; the RSS is sampled when they are"]);
        }
        PHASE.store(2, Release);
    }
}

type Register = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;
type RegisterPlain = unsafe extern "C" fn(*const c_void) -> c_int;

/// Handlers run last registered first: ours, registered before the program's, run after its handlers and all destructors. Where there is
/// no `on_exit` (musl), the code is not known, and destructors of objects come after.
unsafe fn register_exit() {
    let find = |name: &[u8]| Some(real::default(name)).filter(|f| !f.is_null());
    // SAFETY: plain registrations with the C library's own functions of these types; one thread.
    unsafe {
        if let Some(f) = find(b"on_exit") {
            core::mem::transmute::<*const c_void, Register>(f)(exits as *const c_void, core::ptr::null());
        } else if let Some(f) = find(b"__cxa_atexit") {
            let register: unsafe extern "C" fn(*const c_void, *const c_void, *const c_void) -> c_int = core::mem::transmute(f);
            register(exits_somehow as *const c_void, core::ptr::null(), core::ptr::null());
        }
        if let Some(f) = find(b"__cxa_at_quick_exit") {
            core::mem::transmute::<*const c_void, Register>(f)(quick_exits as *const c_void, core::ptr::null());
        } else if let Some(f) = find(b"at_quick_exit") {
            core::mem::transmute::<*const c_void, RegisterPlain>(f)(quick_exits as *const c_void);
        }
        let create = real::default(b"pthread_key_create");
        let set = real::default(b"pthread_setspecific");
        if !create.is_null() && !set.is_null() {
            let create: unsafe extern "C" fn(*mut u32, unsafe extern "C" fn(*mut c_void)) -> c_int = core::mem::transmute(create);
            let mut key = 0;
            if create(&mut key, thread_ends) == 0 {
                THREAD_KEY = Some(key);
                SET_SPECIFIC = Some(core::mem::transmute::<*const c_void, unsafe extern "C" fn(u32, *const c_void) -> c_int>(set));
            }
        }
    }
}

/// A write failed: from now on calls are only counted; the counts stay in the spool.
pub fn writing_failed(errno: i32) {
    // SAFETY: the header is there once the spool is.
    unsafe {
        if !SPOOL.base.is_null() {
            (*spool::header()).trouble_ns.store(sys::now(), Relaxed);
            (*spool::header()).trouble.store(errno as u32, Relaxed);
        }
    }
    if MODE.load(Relaxed) != 0 || LANES.load(Relaxed) > 0 {
        lane::switch_mode(COUNT);
    }
}

/// The constructor: begins, where no allocation has come before.
unsafe extern "C" fn constructor() {
    if PHASE.load(Acquire) == 0 {
        enter();
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: unsafe extern "C" fn() = constructor;
