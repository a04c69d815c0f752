//! `operator new` and `delete`. With the C++ library's own they are malloc and free by other names; some allocators (jemalloc, tcmalloc,
//! mimalloc) bring their own, which go past malloc, or some of them do: of jemalloc's, those for aligned blocks call `aligned_alloc` and
//! `free` by name, which are our hooks. Which is which is tried at the start ([`probe`]). Each call is counted once, as `operator new`,
//! whichever way it goes.
//!
//! The entry points of `new` are assembly: a real `operator new` may throw through them, which needs a frame that the unwinder can
//! read and that Rust does not own. They save the arguments, let [`memshim_new`] do the work where new is malloc, and go on to the
//! real one when that fails (it calls the new-handler, and throws); where new bypasses malloc they call the real one and hand the
//! block to [`memshim_new_done`].

use super::assembly::{leave, restore, save};
use super::heap::{call_real, ready, release};
use crate::config::{FAST, FULL};
use crate::lane::quick::{self, STACKS};
use crate::lane::{Malloc, on_alloc, on_free};
use crate::real::{self, CXX_BYPASSES_MALLOC, REAL};
use crate::{crowd, init};
use core::arch::naked_asm;
use core::ffi::c_void;
use memshim_format::record::func;

/// For the assembly: 1 where new bypasses malloc, by class ([`class_of`]); set with the real functions.
#[allow(non_upper_case_globals)]
static mut memshim_new_bypass: [u8; CLASSES] = [0; CLASSES];
/// Where delete bypasses free, by its number below.
static mut DELETE_BYPASS: [bool; DELETES] = [false; DELETES];

/// Single objects and arrays, and both with an alignment.
const CLASSES: usize = 4;
const DELETES: usize = 12;

/// The class of a counted function.
const fn class_of(func: u32, aligned: u32) -> usize {
    ((func - func::NEW as u32) + 2 * aligned) as usize % CLASSES
}

macro_rules! new_entries {
    ($($name:ident, $slot:ident, $func:literal, $aligned:literal, $class:literal;)*) => {
        $(
            /// Where the real one is, for the assembly.
            #[allow(non_upper_case_globals)]
            static mut $slot: *const c_void = core::ptr::null();

            /// # Safety
            /// As the C++ operator.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            #[allow(non_snake_case)]
            pub unsafe extern "C" fn $name() {
                naked_asm!(
                ".cfi_startproc",
                save!(),
                concat!("cmp byte ptr [rip + {bypass} + ", $class, "], 0"),
                "jne 3f",
                concat!("mov edx, ", $func),
                concat!("mov ecx, ", $aligned),
                "call {new}",
                "test rax, rax",
                "je 2f",
                leave!(),
                "2:",
                concat!("mov edi, ", $func),
                "call {ready}",
                restore!(),
                "mov rax, qword ptr [rip + {slot}]",
                "test rax, rax",
                "je 4f",
                "jmp rax",
                "4:",
                "ret",
                "3:",
                ".cfi_adjust_cfa_offset 24",
                "call qword ptr [rip + {slot}]",
                "mov rdi, rax",
                "mov rsi, qword ptr [rsp + 16]",
                concat!("mov edx, ", $func),
                "call {done}",
                leave!(),
                ".cfi_endproc",
                bypass = sym memshim_new_bypass,
                new = sym memshim_new,
                ready = sym memshim_new_handler_ready,
                done = sym memshim_new_done,
                slot = sym $slot,
                );
            }
        )*

        /// Hands the real functions to the assembly. One thread, at the start (and when new ones appear, see below).
        pub fn settle() {
            // SAFETY: one thread, or idempotent stores of the same pointers.
            unsafe {
                memshim_new_bypass = [CXX_BYPASSES_MALLOC as u8; CLASSES];
                DELETE_BYPASS = [CXX_BYPASSES_MALLOC; DELETES];
                $( $slot = REAL.$name.map_or(core::ptr::null(), |f| f as *const c_void); )*
            }
        }

        /// Looks again, for a C++ library that a `dlopen` brought after the start.
        unsafe fn settle_late() {
            // SAFETY: stores of pointers that are never taken back.
            unsafe {
                $(
                    if $slot.is_null() {
                        $slot = crate::elf::find_next(stringify!($name).as_bytes()).map_or(core::ptr::null(), |f| f.at);
                    }
                )*
            }
        }
    };
}

new_entries! {
    _Znwm, memshim_real_new, 9, 0, 0;
    _Znam, memshim_real_new_array, 10, 0, 1;
    _ZnwmRKSt9nothrow_t, memshim_real_new_nothrow, 9, 0, 0;
    _ZnamRKSt9nothrow_t, memshim_real_new_array_nothrow, 10, 0, 1;
    _ZnwmSt11align_val_t, memshim_real_new_aligned, 9, 1, 2;
    _ZnamSt11align_val_t, memshim_real_new_array_aligned, 10, 1, 3;
    _ZnwmSt11align_val_tRKSt9nothrow_t, memshim_real_new_aligned_nothrow, 9, 1, 2;
    _ZnamSt11align_val_tRKSt9nothrow_t, memshim_real_new_array_aligned_nothrow, 10, 1, 3;
}

/// `operator new` where it is malloc: null when that fails. A size of 0 asks for 1, as the C++ library does.
unsafe extern "C" fn memshim_new(size: usize, align: usize, func: u32, aligned: u32) -> *mut c_void {
    let hot = ready();
    let ask = size.max(1);
    // SAFETY: the real functions as the C++ library would call them.
    unsafe {
        if memshim_new_bypass[class_of(func, aligned)] != 0 {
            // Settled just now, by ready(): the real one is next.
            return core::ptr::null_mut();
        }
        let p = if aligned == 0 {
            call_real!(malloc(ask), core::ptr::null_mut())
        } else {
            call_real!(memalign(align, ask), core::ptr::null_mut())
        };
        if p.is_null() {
            return p;
        }
        if quick::is(hot, FAST) {
            return quick::allocated::<FAST>(hot, func as u8, p, size);
        }
        if quick::is(hot, FULL) {
            return quick::allocated::<FULL>(hot, func as u8, p, size);
        }
        if quick::is(hot, STACKS) {
            return quick::allocated::<STACKS>(hot, func as u8, p, size);
        }
        if hot.is_null() {
            crowd::on_alloc(func as u8, p, size)
        } else {
            on_alloc::<Malloc>(hot, func as u8, p, size, 0)
        }
        p
    }
}

/// malloc failed: the real `operator new` is about to be called. A C++ library loaded by `dlopen` is looked for only now.
unsafe extern "C" fn memshim_new_handler_ready(_func: u32) {
    // SAFETY: reads the loader's list; memory has run out and nobody waits for speed.
    unsafe {
        if memshim_real_new.is_null() {
            settle_late();
        }
    }
}

/// The allocator's own `operator new` returned.
unsafe extern "C" fn memshim_new_done(p: *mut c_void, size: usize, func: u32) -> *mut c_void {
    let hot = ready();
    if !p.is_null() {
        // SAFETY: a live block.
        unsafe { if hot.is_null() { crowd::on_alloc(func as u8, p, size) } else { on_alloc::<Malloc>(hot, func as u8, p, size, 0) } };
    }
    p
}

macro_rules! deletes {
    ($($name:ident($($arg:ident: $ty:ty),*) by $func:ident, $number:literal;)*) => { $(
        /// # Safety
        /// As the C++ operator.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name(p: *mut c_void, $($arg: $ty),*) {
            // SAFETY: as called.
            unsafe {
                if !DELETE_BYPASS[$number] {
                    $( let _ = $arg; )*
                    release(func::$func, p);
                    return;
                }
                let hot = ready();
                if !p.is_null() {
                    if hot.is_null() { crowd::on_free(func::$func, p) } else { on_free::<Malloc>(hot, func::$func, p) }
                }
                match REAL.$name {
                    Some(f) => f(p, $($arg),*),
                    None => call_real!(free(p), ()),
                }
            }
        }
    )* };
}

deletes! {
    _ZdlPv() by DELETE, 0;
    _ZdaPv() by DELETE_ARRAY, 1;
    _ZdlPvm(size: usize) by DELETE, 2;
    _ZdaPvm(size: usize) by DELETE_ARRAY, 3;
    _ZdlPvRKSt9nothrow_t(tag: *const c_void) by DELETE, 4;
    _ZdaPvRKSt9nothrow_t(tag: *const c_void) by DELETE_ARRAY, 5;
    _ZdlPvSt11align_val_t(align: usize) by DELETE, 6;
    _ZdaPvSt11align_val_t(align: usize) by DELETE_ARRAY, 7;
    _ZdlPvmSt11align_val_t(size: usize, align: usize) by DELETE, 8;
    _ZdaPvmSt11align_val_t(size: usize, align: usize) by DELETE_ARRAY, 9;
    _ZdlPvSt11align_val_tRKSt9nothrow_t(align: usize, tag: *const c_void) by DELETE, 10;
    _ZdaPvSt11align_val_tRKSt9nothrow_t(align: usize, tag: *const c_void) by DELETE_ARRAY, 11;
}

/// Tries what an allocator's own operators do: those that call our hooks are malloc and free by other names, as the C++ library's are. While
/// nothing is recorded; one thread.
pub fn probe() {
    // SAFETY: one thread; blocks of our own, given back by what belongs to how they were got. The tag is an empty object.
    unsafe {
        if !CXX_BYPASSES_MALLOC || !real::is_of_allocator(b"memalign") {
            return;
        }
        let tag = (&raw const DELETE_BYPASS).cast::<c_void>();
        let align = 64;
        let single = || call_real!(_ZnwmRKSt9nothrow_t(SIZE, tag), core::ptr::null_mut());
        let array = || call_real!(_ZnamRKSt9nothrow_t(SIZE, tag), core::ptr::null_mut());
        let aligned = || call_real!(_ZnwmSt11align_val_tRKSt9nothrow_t(SIZE, align, tag), core::ptr::null_mut());
        let aligned_array = || call_real!(_ZnamSt11align_val_tRKSt9nothrow_t(SIZE, align, tag), core::ptr::null_mut());
        macro_rules! try_delete {
            ($number:literal, $got:ident, $name:ident($($arg:expr),*)) => {
                let p = $got();
                if let (false, Some(delete)) = (p.is_null(), REAL.$name) {
                    DELETE_BYPASS[$number] = !init::calls_hooks(|| delete(p, $($arg),*));
                }
            };
        }
        macro_rules! try_new {
            ($class:literal, $got:ident, $delete:ident($($arg:expr),*)) => {
                let mut p = core::ptr::null_mut();
                let calls = init::calls_hooks(|| p = $got());
                if !p.is_null() {
                    memshim_new_bypass[$class] = !calls as u8;
                    if let Some(delete) = REAL.$delete {
                        delete(p, $($arg),*);
                    }
                }
            };
        }
        try_new!(0, single, _ZdlPv());
        try_new!(1, array, _ZdaPv());
        try_new!(2, aligned, _ZdlPvSt11align_val_t(align));
        try_new!(3, aligned_array, _ZdaPvSt11align_val_t(align));
        try_delete!(0, single, _ZdlPv());
        try_delete!(1, array, _ZdaPv());
        try_delete!(2, single, _ZdlPvm(SIZE));
        try_delete!(3, array, _ZdaPvm(SIZE));
        try_delete!(4, single, _ZdlPvRKSt9nothrow_t(tag));
        try_delete!(5, array, _ZdaPvRKSt9nothrow_t(tag));
        try_delete!(6, aligned, _ZdlPvSt11align_val_t(align));
        try_delete!(7, aligned_array, _ZdaPvSt11align_val_t(align));
        try_delete!(8, aligned, _ZdlPvmSt11align_val_t(SIZE, align));
        try_delete!(9, aligned_array, _ZdaPvmSt11align_val_t(SIZE, align));
        try_delete!(10, aligned, _ZdlPvSt11align_val_tRKSt9nothrow_t(align, tag));
        try_delete!(11, aligned_array, _ZdaPvSt11align_val_tRKSt9nothrow_t(align, tag));
    }
}

/// Of a block that is tried.
const SIZE: usize = 64;
