//! The functions behind the hooks: what the program would have called without us. Found once, at the first event of a process, which is
//! long before a second thread or a `dlopen` exists; never lazily in a hook (that deadlocks under the loader lock).

use crate::elf;
use crate::hooks::table::for_each_hook;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute_copy;

macro_rules! declare_real {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, $class:ident;)*) => {
        /// A pointer for every hooked function, `None` where the process has no such function besides ours.
        #[allow(non_snake_case)]
        pub struct Real { $(pub $name: Option<unsafe extern "C" fn($($ty),*) -> $ret>,)* }

        pub static mut REAL: Real = Real { $($name: None,)* };

        fn look_up_all() {
            $(
                let p = elf::find_next(stringify!($name).as_bytes()).map_or(core::ptr::null(), |f| f.at);
                // SAFETY: Option<fn> and a pointer have the same layout; the table gives the function's signature. Only one thread
                // exists while this runs.
                unsafe { REAL.$name = transmute_copy(&p) };
            )*
        }
    };
}
for_each_hook!(declare_real);

/// Whether the allocator is glibc's own, whose chunk headers we read for usable sizes.
pub static mut GLIBC: bool = false;

/// Which allocator the program uses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Allocator {
    Glibc,
    /// In the program itself: its calls do not come to us.
    Program,
    /// valgrind's: it takes over every malloc in the process, ours too.
    Valgrind,
    Other,
}

/// Settled by [`resolve`].
pub static mut ALLOCATOR: Allocator = Allocator::Glibc;
/// File name of the object that holds the allocator.
pub static mut ALLOCATOR_FILE: *const c_char = core::ptr::null();
/// Whether `operator new` belongs to the allocator rather than to the C++ library (where it is malloc by another name).
pub static mut CXX_BYPASSES_MALLOC: bool = false;

/// Looks up everything. One thread, once.
pub fn resolve() {
    look_up_all();
    // SAFETY: only one thread exists while this runs; the statics are read-only afterwards.
    unsafe {
        let malloc = elf::find_next(b"malloc");
        // By the object, not by `__libc_malloc`: tcmalloc has a function of that name too.
        let libc = elf::find_from(elf::program(), b"gnu_get_libc_version");
        GLIBC = malloc.zip(libc).is_some_and(|(m, l)| m.object == l.object);
        ALLOCATOR = if GLIBC { Allocator::Glibc } else { Allocator::Other };
        if let Some(f) = malloc {
            ALLOCATOR_FILE = elf::name(f.object);
        }
        if elf::find_from(elf::program(), b"malloc").is_some_and(|f| f.object == elf::program()) {
            ALLOCATOR = Allocator::Program;
            GLIBC = false;
            take_program_heap();
        }
        if malloc.is_some_and(|m| elf::defines(m.object, b"_dl_debug_addr")) {
            settle_musl();
        }
        if elf::any_object(|file| has(file, b"/vgpreload_") && !has(file, b"/vgpreload_core")) {
            ALLOCATOR = Allocator::Valgrind;
            GLIBC = false;
        }
        CXX_BYPASSES_MALLOC = match (elf::find_next(b"_Znwm"), ALLOCATOR) {
            (Some(f), Allocator::Glibc | Allocator::Other) => {
                let file = CStr::from_ptr(elf::name(f.object)).to_bytes();
                !has(file, b"libstdc++") && !has(file, b"libc++")
            }
            _ => false,
        };
    }
}

/// Whether a function is in the object that malloc is in.
pub fn is_of_allocator(name: &[u8]) -> bool {
    elf::find_next(b"malloc").zip(elf::find_next(name)).is_some_and(|(m, f)| m.object == f.object)
}

/// musl's calloc, posix_memalign and memalign call malloc and aligned_alloc by name, which are our hooks: such a call would be counted
/// twice. Here are the same without.
unsafe fn settle_musl() {
    // SAFETY: one thread; the functions have the signatures of the table.
    unsafe {
        REAL.calloc = Some(calloc_by_malloc);
        REAL.posix_memalign = Some(posix_memalign_by_aligned_alloc);
        REAL.memalign = REAL.aligned_alloc;
    }
}

unsafe extern "C" fn calloc_by_malloc(count: usize, size: usize) -> *mut c_void {
    const PAGE: usize = 4096;
    // SAFETY: the real malloc; n bytes of the block are written.
    unsafe {
        let Some((n, malloc)) = count.checked_mul(size).zip(REAL.malloc) else {
            *libc::__errno_location() = libc::ENOMEM;
            return core::ptr::null_mut();
        };
        let p = malloc(n).cast::<u8>();
        let mut at = 0;
        while !p.is_null() && at < n {
            // Pages fresh from the kernel are zero already, and stay untouched.
            let part = PAGE.min(n - at);
            if part < PAGE || (0..PAGE / 8).any(|i| p.add(at + 8 * i).cast::<u64>().read() != 0) {
                core::ptr::write_bytes(p.add(at), 0, part);
            }
            at += part;
        }
        p.cast()
    }
}

unsafe extern "C" fn posix_memalign_by_aligned_alloc(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    // SAFETY: the real aligned_alloc; errno is its way to say why.
    unsafe {
        let Some(alloc) = REAL.aligned_alloc.filter(|_| align >= size_of::<usize>()) else { return libc::EINVAL };
        let p = alloc(align, size);
        if p.is_null() {
            return *libc::__errno_location();
        }
        *out = p;
        0
    }
}

/// Where the program brings its own malloc, `operator new` must use that one, as the C++ library would have.
unsafe fn take_program_heap() {
    macro_rules! take {
        ($($name:ident)*) => { $(
            if let Some(f) = elf::find_from(elf::program(), stringify!($name).as_bytes()) && f.object == elf::program() {
                // SAFETY: same signature by the C standard; one thread.
                unsafe { REAL.$name = transmute_copy(&f.at) };
            }
        )* };
    }
    take!(malloc calloc realloc free posix_memalign aligned_alloc memalign malloc_usable_size);
}

fn has(name: &[u8], what: &[u8]) -> bool {
    name.windows(what.len()).any(|w| w == what)
}

/// A function as the program would find it, for our own use.
pub fn default(name: &[u8]) -> *const c_void {
    elf::find_from(elf::program(), name).map_or(core::ptr::null(), |f| f.at)
}
