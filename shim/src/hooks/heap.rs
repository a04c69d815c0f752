//! The malloc family.

use crate::config::{FAST, FULL};
use crate::lane::quick::{self, SETTLED, STACKS};
use crate::lane::{self, Hot, Malloc, current, on_alloc, on_failed, on_free, on_realloc_begin, on_realloc_end};
use crate::phases::process::returned;
use crate::real::REAL;
use crate::{crowd, init, tls};
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

/// The rest of malloc and calloc after [`quick`]'s part. Each way is a function of its own, so that none saves registers for another, and
/// each ends in a jump to the next, so that a stack has no more frames of ours.
macro_rules! quick_allocators {
    ($($name:ident: $more:ident, $full:ident, $stacks:ident, $otherwise:ident($($arg:ident),*) by $func:ident, real $real:expr, size $size:expr;)*) => { $(
        /// What is no quick call of fast mode.
        ///
        /// # Safety
        /// As the C function; `hot` is this thread's or null.
        #[inline(never)]
        pub unsafe extern "C" fn $more($($arg: usize,)* hot: *mut Hot) -> *mut c_void {
            // SAFETY: passed on as called.
            unsafe {
                if quick::is(hot, FULL) {
                    return $full($($arg,)* hot);
                }
                if quick::is(hot, STACKS) {
                    return $stacks($($arg,)* hot);
                }
                $otherwise($($arg),*)
            }
        }

        #[inline(never)]
        unsafe extern "C" fn $full($($arg: usize,)* hot: *mut Hot) -> *mut c_void {
            // SAFETY: as above; hot is this thread's and of this kind, and there is a real function where calls are quick.
            unsafe {
                let p = ($real)(hot).unwrap_unchecked()($($arg),*);
                quick::allocated::<FULL>(hot, func::$func, p, $size)
            }
        }

        #[inline(never)]
        unsafe extern "C" fn $stacks($($arg: usize,)* hot: *mut Hot) -> *mut c_void {
            // SAFETY: as above.
            unsafe {
                let p = ($real)(hot).unwrap_unchecked()($($arg),*);
                quick::allocated::<STACKS>(hot, func::$func, p, $size)
            }
        }

        #[inline(never)]
        unsafe extern "C" fn $otherwise($($arg: usize),*) -> *mut c_void {
            let hot = ready();
            // SAFETY: passed on as called.
            unsafe {
                let p = REAL.$name.map_or(core::ptr::null_mut(), |f| f($($arg),*));
                allocated(hot, func::$func, p, $size)
            }
        }
    )* };
}

quick_allocators! {
    malloc: malloc_more, malloc_full, malloc_with_stack, malloc_otherwise(size) by MALLOC, real |hot: *mut Hot| (*hot).malloc, size size;
    calloc: calloc_more, calloc_full, calloc_with_stack, calloc_otherwise(count, size) by CALLOC, real |_| SETTLED.calloc, size count.wrapping_mul(size);
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    let hot = tls::hot();
    // SAFETY: passed on as called; there is a real function where calls are quick.
    unsafe {
        if quick::is(hot, FAST) {
            let p = SETTLED.calloc.unwrap_unchecked()(count, size);
            return quick::allocated::<FAST>(hot, func::CALLOC, p, count.wrapping_mul(size));
        }
        calloc_more(count, size, hot)
    }
}

allocators! {
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
    let hot = tls::hot();
    // SAFETY: p is a live block of the program's; there is a real function where calls are quick.
    unsafe {
        if quick::is(hot, FAST) && quick::freed::<FAST>(hot, func, p) {
            return (*hot).free.unwrap_unchecked()(p);
        }
        release_full(p, func as u32, hot);
    }
}

/// Frees a block by `func` where that is no quick call of fast mode.
///
/// # Safety
/// `p` is a live block of the program's; `hot` is this thread's or null.
#[inline(never)]
pub unsafe extern "C" fn release_full(p: *mut c_void, func: u32, hot: *mut Hot) {
    // SAFETY: as above.
    unsafe {
        if quick::is_full(hot) && quick::freed::<FULL>(hot, func as u8, p) {
            return (*hot).free.unwrap_unchecked()(p);
        }
        release_otherwise(p, func);
    }
}

#[inline(never)]
unsafe extern "C" fn release_otherwise(p: *mut c_void, func: u32) {
    if returned::is_note(p) {
        return;
    }
    let hot = ready();
    // SAFETY: p is a live block of the program's.
    unsafe {
        if !hot.is_null() {
            on_free::<Malloc>(hot, func as u8, p);
        } else {
            crowd::on_free(func as u8, p);
        }
        call_real!(free(p), ());
    }
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
