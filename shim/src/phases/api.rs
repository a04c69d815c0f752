//! What a program may call by itself (`include/memshim.h`); without the shim it calls nothing.

use super::{Source, begin, end, mark, name};
use core::ffi::{CStr, c_char};

/// # Safety
/// `text` is null or zero-terminated.
unsafe fn number(text: *const c_char) -> u32 {
    // SAFETY: the caller's text.
    if text.is_null() { 0 } else { name(b"", unsafe { CStr::from_ptr(text) }.to_bytes()) }
}

/// A phase of the calling thread begins.
///
/// # Safety
/// `name` is null or zero-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memshim_phase_begin(name: *const c_char) {
    // SAFETY: the caller's name.
    begin(Source::Api, unsafe { number(name) });
}

/// The calling thread's innermost phase ends.
#[unsafe(no_mangle)]
pub extern "C" fn memshim_phase_end() {
    end(Source::Api);
}

/// Something happens now.
///
/// # Safety
/// `name` is null or zero-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memshim_mark(name: *const c_char) {
    // SAFETY: the caller's name.
    mark(Source::Api, unsafe { number(name) });
}
