//! The malloc family.

use crate::lane::{self, Hot, Malloc, current, on_alloc, on_failed, on_free, on_realloc_begin, on_realloc_end};
use crate::real::REAL;
use crate::{crowd, init};
use core::ffi::{c_int, c_void};
use memshim_format::record::func;

/// This thread's hot line, set up if need be; null: pass the call on and record nothing.
#[inline(always)]
pub fn ready() -> *mut Hot {
    let hot = current();
    if hot.is_null() { init::enter() } else { hot }
}

/// Calls the real function; `$none` where there is none (only while they are being looked up, or on a libc without it).
macro_rules! call_real {
    ($name:ident($($arg:expr),*), $none:expr) => {
        match REAL.$name { Some(f) => f($($arg),*), None => $none }
    };
}
pub(crate) use call_real;

/// Records what an allocating function returned.
#[inline(always)]
unsafe fn allocated(hot: *mut Hot, func: u8, p: *mut c_void, size: usize) -> *mut c_void {
    if !hot.is_null() {
        // SAFETY: hot is this thread's; p is a live block.
        unsafe { if p.is_null() { on_failed(hot) } else { on_alloc::<Malloc>(hot, func, p, size, 0) } };
    } else {
        // SAFETY: p is null or a live block.
        unsafe { crowd::on_alloc(func, p, size) };
    }
    p
}

macro_rules! allocators {
    ($($name:ident($($arg:ident),*) by $func:ident, size $size:expr;)*) => { $(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: usize),*) -> *mut c_void {
            let hot = ready();
            // SAFETY: passed on as called.
            unsafe {
                let p = call_real!($name($($arg),*), core::ptr::null_mut());
                allocated(hot, func::$func, p, $size)
            }
        }
    )* };
}

allocators! {
    malloc(size) by MALLOC, size size;
    calloc(count, size) by CALLOC, size count.wrapping_mul(size);
    aligned_alloc(align, size) by ALIGNED_ALLOC, size size;
    memalign(align, size) by MEMALIGN, size size;
    valloc(size) by VALLOC, size size;
    pvalloc(size) by PVALLOC, size size;
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, size: usize) -> c_int {
    let hot = ready();
    // SAFETY: passed on as called; on success *out is a live block.
    unsafe {
        let r = call_real!(posix_memalign(out, align, size), libc::ENOMEM);
        if !hot.is_null() {
            if r == 0 { on_alloc::<Malloc>(hot, func::POSIX_MEMALIGN, *out, size, 0) } else { on_failed(hot) }
        } else {
            crowd::on_alloc(func::POSIX_MEMALIGN, if r == 0 { *out } else { core::ptr::null_mut() }, size);
        }
        r
    }
}

/// Frees a block by `func`.
#[inline(always)]
pub unsafe fn release(func: u8, p: *mut c_void) {
    if p.is_null() {
        return;
    }
    let hot = ready();
    // SAFETY: p is a live block of the program's.
    unsafe {
        if !hot.is_null() {
            on_free::<Malloc>(hot, func, p);
        } else {
            crowd::on_free(func, p);
        }
        call_real!(free(p), ());
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(p: *mut c_void) {
    // SAFETY: as called.
    unsafe { release(func::FREE, p) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(p: *mut c_void) {
    // SAFETY: as called; cfree is free by an older name.
    unsafe { release(func::CFREE, p) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(p: *mut c_void, size: usize) {
    // SAFETY: as called.
    unsafe { release_sized(p, |p| if let Some(f) = REAL.free_sized { f(p, size) } else { call_real!(free(p), ()) }) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(p: *mut c_void, align: usize, size: usize) {
    // SAFETY: as called.
    unsafe { release_sized(p, |p| if let Some(f) = REAL.free_aligned_sized { f(p, align, size) } else { call_real!(free(p), ()) }) }
}

#[inline(always)]
unsafe fn release_sized(p: *mut c_void, real_free: impl FnOnce(*mut c_void)) {
    if p.is_null() {
        return;
    }
    let hot = ready();
    // SAFETY: p is a live block of the program's.
    unsafe { if hot.is_null() { crowd::on_free(func::FREE_SIZED, p) } else { on_free::<Malloc>(hot, func::FREE_SIZED, p) } };
    real_free(p);
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: as called.
    unsafe { resize(func::REALLOC, old, size, || call_real!(realloc(old, size), core::ptr::null_mut())) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(old: *mut c_void, count: usize, size: usize) -> *mut c_void {
    let Some(total) = count.checked_mul(size) else {
        // SAFETY: glibc's errno location; the block stays as it is.
        unsafe {
            *libc::__errno_location() = libc::ENOMEM;
            let hot = ready();
            if !hot.is_null() {
                on_failed(hot);
            }
        }
        return core::ptr::null_mut();
    };
    // The real reallocarray of some allocators calls realloc by name, which is our hook: counted there, once. So it is made one here.
    // SAFETY: as called.
    unsafe { resize(func::REALLOCARRAY, old, total, || call_real!(realloc(old, total), core::ptr::null_mut())) }
}

#[inline(always)]
unsafe fn resize(func: u8, old: *mut c_void, size: usize, call: impl FnOnce() -> *mut c_void) -> *mut c_void {
    let hot = ready();
    // SAFETY: old is null or a live block; hot is this thread's.
    unsafe {
        if hot.is_null() {
            return crowd::on_realloc(func, old, size, call);
        }
        if old.is_null() {
            return allocated(hot, func, call(), size);
        }
        let was = on_realloc_begin::<Malloc>(hot, old);
        let p = call();
        on_realloc_end::<Malloc>(hot, func, old, was, p, size);
        p
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(p: *mut c_void) -> usize {
    if !init::resolved() {
        lane_begin();
    }
    // SAFETY: passed on as called.
    unsafe { call_real!(malloc_usable_size(p), 0) }
}

#[cold]
fn lane_begin() {
    let _: *mut lane::Hot = init::enter();
}
