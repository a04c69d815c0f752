//! Processes and threads: fork, exec, spawn, exit, and the calls that must find the process without our writer thread.

use super::heap::{call_real, ready};
use crate::follow::{Environment, Next};
use crate::lane::{Hot, current, push};
use crate::phases::process::exit_begins;
use crate::real::REAL;
use crate::sys::{self, sys};
use crate::{init, sink, thread_stacks, writer};
use core::arch::naked_asm;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;
use memshim_format::record::{BARE, op, start};

/// # Safety
/// `hot` is null or this thread's.
unsafe fn child(hot: *mut Hot, how: u64, pid: u32) {
    sink::EXPECTED.store(true, Relaxed);
    // SAFETY: the caller's promise.
    unsafe {
        if !hot.is_null() && (*hot).mode != crate::config::COUNT {
            push(hot, [start(op::CHILD, how, pid as u64), sys::now()]);
        }
    }
}

/// Says that a program was started in a child.
///
/// # Safety
/// As [`child`].
unsafe fn started(hot: *mut Hot, how: u64, pid: u32, next: &Next) {
    sink::EXPECTED.store(true, Relaxed);
    // SAFETY: the caller's promise.
    unsafe {
        if !hot.is_null() && (*hot).mode != crate::config::COUNT {
            let [a, b, c, d, e, f] = next.words();
            let how = how | if next.bare { BARE } else { 0 };
            push(hot, [start(op::STARTED, how, pid as u64), sys::now(), a, b, c, d, e, f]);
        }
    }
}

/// # Safety
/// As the C function. The child finds its hot lines wiped and sets itself up at its first event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fork() -> c_int {
    let hot = ready();
    // SAFETY: passed on as called.
    unsafe {
        let r = call_real!(fork(), -1);
        if r > 0 {
            child(hot, 0, r as u32);
        }
        r
    }
}

macro_rules! exits {
    ($($name:ident)*) => { $(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(code: c_int) -> ! {
            init::finish("_exit", Some(code));
            loop {
                // SAFETY: ends the process.
                unsafe { sys!(libc::SYS_exit_group, code) };
            }
        }
    )* };
}
exits!(_exit _Exit);

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quick_exit(code: c_int) -> ! {
    exit_begins();
    init::QUICK_CODE.store(code, core::sync::atomic::Ordering::Relaxed);
    // SAFETY: passed on as called; it does not return.
    unsafe {
        call_real!(quick_exit(code), ());
        _exit(code)
    }
}

macro_rules! spawns {
    ($($name:ident)*) => { $(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            pid: *mut c_int,
            path: *const c_char,
            acts: *const c_void,
            attr: *const c_void,
            argv: *const *const c_char,
            env: *const *const c_char,
        ) -> c_int {
            let hot = ready();
            let mut own = 0;
            // SAFETY: passed on as called, with a place for the pid where the program wants none.
            unsafe {
                let place = if pid.is_null() { &raw mut own } else { pid };
                let r = call_real!($name(place, path, acts, attr, argv, env), libc::ENOSYS);
                if r == 0 && !hot.is_null() {
                    sys::keep_errno(|| started(hot, 2, *place as u32, &Next::of(path, Environment::Given(env))));
                }
                r
            }
        }
    )* };
}
spawns!(posix_spawn posix_spawnp);

/// # Safety
/// As the C function. Where the limit of threads is reached, ours gives way to the program's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(thread: *mut c_void, attr: *const c_void, start: *const c_void, arg: *mut c_void) -> c_int {
    let hot = ready();
    crate::phases::symbol::look();
    // SAFETY: passed on as called; glibc has written the handle before it returns.
    unsafe {
        let mut r = call_real!(pthread_create(thread, attr, start, arg), libc::EAGAIN);
        if r == libc::EAGAIN && writer::alive() {
            writer::stop();
            r = call_real!(pthread_create(thread, attr, start, arg), libc::EAGAIN);
        }
        if r == 0 && !hot.is_null() {
            sys::keep_errno(|| thread_stacks::on_create(hot, attr, thread.cast::<u64>().read()));
            crate::cuda::thread_made(hot);
        }
        r
    }
}

/// # Safety
/// As the C function. Allocators call it from inside: nothing is set up for it, and nothing recorded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setspecific(key: u32, value: *const c_void) -> c_int {
    if !init::resolved() {
        ready();
    }
    // SAFETY: passed on as called.
    let r = unsafe { call_real!(pthread_setspecific(key, value), libc::ENOMEM) };
    crate::phases::python::on_thread_storage(value);
    r
}

macro_rules! alone {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => { $(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            ready();
            // SAFETY: passed on as called.
            writer::without(|| unsafe { call_real!($name($($arg),*), -1) })
        }
    )* };
}
alone! {
    setuid(id: u32);
    setgid(id: u32);
    seteuid(id: u32);
    setegid(id: u32);
    setreuid(a: u32, b: u32);
    setregid(a: u32, b: u32);
    setresuid(a: u32, b: u32, c: u32);
    setresgid(a: u32, b: u32, c: u32);
    setgroups(n: usize, list: *const u32);
    unshare(flags: c_int);
    setns(fd: c_int, flags: c_int);
}

/// The program's `main`, for [`main_next`], and the C library's function that calls it.
static mut MAIN: *const c_void = core::ptr::null();
static mut REAL_START_MAIN: *const c_void = core::ptr::null();

/// What the program's first instructions call with its `main`. A jump, so that nothing of ours lies under `main`, in no backtrace.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn __libc_start_main() {
    naked_asm!(
        "push rsi", "push rdx", "push rcx", "push r8", "push r9",
        "call {starts}",
        "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi",
        "mov rdi, rax",
        "jmp qword ptr [rip + {real}]",
        starts = sym starts,
        real = sym REAL_START_MAIN,
    );
}

/// Keeps the program's `main`; what is to be called in its place.
unsafe extern "C" fn starts(main: *const c_void) -> *const c_void {
    // Under musl constructors come later: here all begins.
    ready();
    // SAFETY: one thread of the program's.
    unsafe {
        MAIN = main;
        REAL_START_MAIN = REAL.__libc_start_main.map_or(no_start_main as *const c_void, |f| f as *const c_void);
    }
    if init::is_recording() { main_next as *const c_void } else { main }
}

extern "C" fn no_start_main() -> c_int {
    -1
}

/// Stands for `main`: says that it begins and goes on there. The arguments and the stack stay as they are.
#[unsafe(naked)]
unsafe extern "C" fn main_next() {
    naked_asm!(
        "push rdi", "push rsi", "push rdx",
        "call {begins}",
        "pop rdx", "pop rsi", "pop rdi",
        "jmp qword ptr [rip + {main}]",
        begins = sym crate::phases::process::main_begins,
        main = sym MAIN,
    );
}

/// The exit call and the exec family only have something done before them; arguments, also variable ones, stay where they are.
macro_rules! before {
    ($($name:ident, $slot:ident, $before:path;)*) => {
        $(
            static mut $slot: *const c_void = core::ptr::null();

            /// # Safety
            /// As the C function.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                naked_asm!(
                    "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                    "call {before}",
                    "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                    "jmp qword ptr [rip + {slot}]",
                    before = sym $before,
                    slot = sym $slot,
                );
            }
        )*

        /// Hands the real functions to the trampolines. One thread, at the start.
        pub fn settle() {
            // SAFETY: one thread.
            unsafe { $( $slot = REAL.$name.map_or(core::ptr::null(), |f| f as *const c_void); )* }
        }
    };
}
before! {
    exit, REAL_EXIT, exit_begins;
    execve, REAL_EXECVE, exec_with;
    execv, REAL_EXECV, exec_in_own;
    execvp, REAL_EXECVP, exec_in_own;
    execvpe, REAL_EXECVPE, exec_with;
    execl, REAL_EXECL, exec_in_own;
    execlp, REAL_EXECLP, exec_in_own;
    execle, REAL_EXECLE, exec_somehow;
    fexecve, REAL_FEXECVE, exec_of_file;
}

/// With the arguments of `execve`.
unsafe extern "C" fn exec_with(path: *const c_char, _: *const *const c_char, env: *const *const c_char) {
    // SAFETY: what the program gave.
    exec_begins(|| unsafe { Next::of(path, Environment::Given(env)) });
}

unsafe extern "C" fn exec_in_own(path: *const c_char) {
    // SAFETY: what the program gave.
    exec_begins(|| unsafe { Next::of(path, Environment::Own) });
}

/// Its environment stands behind all arguments.
unsafe extern "C" fn exec_somehow(path: *const c_char) {
    // SAFETY: what the program gave.
    exec_begins(|| unsafe { Next::of(path, Environment::Unknown) });
}

/// The file has no name here.
unsafe extern "C" fn exec_of_file(_: c_int, _: *const *const c_char, env: *const *const c_char) {
    // SAFETY: what the program gave.
    exec_begins(|| unsafe { Next::of(core::ptr::null(), Environment::Given(env)) });
}

fn exec_begins(next: impl FnOnce() -> Next) {
    if !init::resolved() {
        ready();
    }
    sys::keep_errno(|| {
        let next = next();
        if init::is_in_its_parent() {
            // The thread that made the child waits for it: its ring is ours meanwhile.
            if next.there {
                // SAFETY: see above.
                unsafe { started(current(), 1, sys::getpid(), &next) };
            }
        } else {
            init::before_exec(&next);
        }
    });
}
