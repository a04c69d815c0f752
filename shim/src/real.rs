//! The functions behind the hooks: what the program would have called without us. Resolved once, at the first event of a process,
//! which is long before a second thread or a `dlopen` exists; never lazily in a hook (that deadlocks under the loader lock).

use crate::hooks::table::for_each_hook;
use core::arch::global_asm;
use core::ffi::{c_char, c_int, c_void};
use core::mem::transmute_copy;

// glibc 2.34 gave these a new version; the old one is there on every glibc, and asking for it keeps us loadable on 2.17.
global_asm!(
    ".symver memshim_old_dlsym, dlsym@GLIBC_2.2.5",
    ".symver memshim_old_dladdr, dladdr@GLIBC_2.2.5",
    ".hidden memshim_dlsym",
    ".globl memshim_dlsym",
    ".type memshim_dlsym,@function",
    "memshim_dlsym:",
    "jmp qword ptr [rip + memshim_old_dlsym@GOTPCREL]",
    ".hidden memshim_dladdr",
    ".globl memshim_dladdr",
    ".type memshim_dladdr,@function",
    "memshim_dladdr:",
    "jmp qword ptr [rip + memshim_old_dladdr@GOTPCREL]",
);

unsafe extern "C" {
    fn memshim_dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn memshim_dladdr(addr: *const c_void, info: *mut libc::Dl_info) -> c_int;
    fn __libc_malloc(size: usize) -> *mut c_void;
    fn __libc_calloc(count: usize, size: usize) -> *mut c_void;
    fn __libc_realloc(old: *mut c_void, size: usize) -> *mut c_void;
    fn __libc_memalign(align: usize, size: usize) -> *mut c_void;
}

macro_rules! declare_real {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, $class:ident;)*) => {
        /// A pointer for every hooked function, `None` where the process has no such function besides ours.
        #[allow(non_snake_case)]
        pub struct Real { $(pub $name: Option<unsafe extern "C" fn($($ty),*) -> $ret>,)* }

        pub static mut REAL: Real = Real { $($name: None,)* };

        fn look_up_all() {
            $(
                let p = symbol(libc::RTLD_NEXT, concat!(stringify!($name), "\0"));
                // SAFETY: Option<fn> and a pointer have the same layout; the table gives the function's signature. Only one thread
                // exists while this runs.
                unsafe { REAL.$name = transmute_copy(&p) };
            )*
        }
    };
}
for_each_hook!(declare_real);

/// 1 when the allocator is glibc's own, whose chunk headers we read for usable sizes.
pub static mut GLIBC: bool = false;

/// Which allocator the program uses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Allocator {
    Glibc,
    /// In the program itself: its calls do not come to us.
    Program,
    Other,
}

/// Settled by [`resolve`].
pub static mut ALLOCATOR: Allocator = Allocator::Glibc;
/// File name of the object that holds the allocator.
pub static mut ALLOCATOR_FILE: *const c_char = core::ptr::null();
/// Whether `operator new` belongs to the allocator rather than to the C++ library (where it is malloc by another name).
pub static mut CXX_BYPASSES_MALLOC: bool = false;

/// # Safety contract kept here: `name` ends in a zero byte.
pub fn symbol(handle: *mut c_void, name: &str) -> *mut c_void {
    // SAFETY: name is zero-terminated by every caller.
    unsafe { memshim_dlsym(handle, name.as_ptr().cast()) }
}

fn object_of(p: *const c_void) -> Option<libc::Dl_info> {
    // SAFETY: Dl_info is plain pointers.
    let mut info: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: info is valid for writes.
    if !p.is_null() && unsafe { memshim_dladdr(p, &mut info) } != 0 { Some(info) } else { None }
}

/// Looks up everything. One thread, once.
pub fn resolve() {
    look_up_all();
    // SAFETY: only one thread exists while this runs; the statics are read-only afterwards.
    unsafe {
        let libc_malloc = __libc_malloc as *const c_void;
        let next = REAL.malloc.map_or(core::ptr::null(), |f| f as *const c_void);
        GLIBC = next == libc_malloc;
        ALLOCATOR = if GLIBC { Allocator::Glibc } else { Allocator::Other };
        let entry = libc::getauxval(libc::AT_ENTRY) as *const c_void;
        let first = symbol(libc::RTLD_DEFAULT, "malloc\0");
        if let (Some(a), Some(b)) = (object_of(first), object_of(entry))
            && a.dli_fbase == b.dli_fbase
        {
            ALLOCATOR = Allocator::Program;
            GLIBC = false;
            take_program_heap();
        }
        if let Some(o) = object_of(REAL.malloc.map_or(core::ptr::null(), |f| f as *const c_void)) {
            ALLOCATOR_FILE = o.dli_fname;
        }
        let new = REAL._Znwm.map_or(core::ptr::null(), |f| f as *const c_void);
        CXX_BYPASSES_MALLOC = match (object_of(new), ALLOCATOR) {
            (Some(o), Allocator::Glibc | Allocator::Other) => !name_has(o.dli_fname, b"libstdc++") && !name_has(o.dli_fname, b"libc++"),
            _ => false,
        };
        if REAL.malloc.is_none() {
            // No allocator behind us at all (a strange static-pie loader): glibc's own always is.
            REAL.malloc = Some(__libc_malloc);
            REAL.calloc = Some(__libc_calloc);
            REAL.realloc = Some(__libc_realloc);
            REAL.memalign = Some(__libc_memalign);
        }
    }
}

/// Where the program brings its own malloc, `operator new` must use that one, as the C++ library would have.
unsafe fn take_program_heap() {
    macro_rules! take {
        ($($name:ident)*) => { $(
            let p = symbol(libc::RTLD_DEFAULT, concat!(stringify!($name), "\0"));
            if !p.is_null() && p as *const c_void != crate::hooks::heap::$name as *const c_void {
                // SAFETY: same signature by the C standard; one thread.
                unsafe { REAL.$name = transmute_copy(&p) };
            }
        )* };
    }
    take!(malloc calloc realloc free posix_memalign aligned_alloc memalign malloc_usable_size);
}

/// # Safety
/// `name` is zero-terminated or null.
unsafe fn name_has(name: *const c_char, what: &[u8]) -> bool {
    if name.is_null() {
        return false;
    }
    let mut p = name.cast::<u8>();
    // SAFETY: reads up to the terminating zero only, each comparison stops at the first difference.
    unsafe {
        while *p != 0 {
            if what.iter().enumerate().all(|(i, c)| {
                // Stops at a zero byte: it differs from every byte of `what`.
                (0..i).all(|j| *p.add(j) != 0) && *p.add(i) == *c
            }) {
                return true;
            }
            p = p.add(1);
        }
    }
    false
}

/// Blocks handed out while [`resolve`] itself asked for memory (old glibc's dlsym does), which the allocator in use may not know.
static mut EARLY: [*mut c_void; 16] = [core::ptr::null_mut(); 16];
static mut EARLY_COUNT: usize = 0;

/// Memory for a call that comes from within [`resolve`].
pub fn early_alloc(count: usize, size: usize) -> *mut c_void {
    // SAFETY: glibc's allocator works before any constructor; one thread.
    unsafe {
        let p = __libc_calloc(count, size);
        if let Some(slot) = EARLY.get_mut(EARLY_COUNT) {
            *slot = p;
            EARLY_COUNT += 1;
        }
        p
    }
}

/// Whether `p` came from [`early_alloc`].
#[inline]
pub fn is_early(p: *mut c_void) -> bool {
    // SAFETY: written only while one thread existed.
    unsafe { EARLY_COUNT > 0 && EARLY.contains(&p) }
}
