//! `dlvsym`, hooked for one question: where is the C library's `dlsym`? A library with a `dlsym` of its own (a limiter, a tracer) asks so, by version, for
//! by its plain name it would find itself. Where we stand behind it, the answer is ours, which jumps to the C library's: else what it passes on to the
//! driver would go past us. Every other question is the real function's: it looks at its caller, so this is a jump, as `dlsym` is.

use super::lookup::{PASS, Picked, RTLD_NEXT, asked_first, dlsym, found_late, is_before_us};
use crate::init;
use crate::real::REAL;
use core::ffi::{CStr, c_char, c_void};

/// The C library's, for the jump.
static mut REAL_DLVSYM: *const c_void = core::ptr::null();

/// One thread, at the start.
pub fn settle() {
    // SAFETY: one thread.
    unsafe { REAL_DLVSYM = REAL.dlvsym.map_or(core::ptr::null(), |f| f as *const c_void) };
}

asked_first!(dlvsym, pick, REAL_DLVSYM);

unsafe extern "C" fn pick(handle: *mut c_void, name: *const c_char, caller: usize) -> Picked {
    // SAFETY: a name that the program gave to dlvsym; idempotent stores of one pointer.
    unsafe {
        if REAL_DLVSYM.is_null() {
            REAL_DLVSYM = found_late(b"dlvsym").map_or(core::ptr::null(), |f| f.at);
        }
        if REAL_DLVSYM.is_null() {
            return Picked { done: 1, ..PASS };
        }
        let is_asked = handle == RTLD_NEXT && !name.is_null() && CStr::from_ptr(name) == c"dlsym";
        if is_asked && init::is_recording() && is_before_us(caller) {
            return Picked { at: dlsym as *const c_void, done: 1 };
        }
        PASS
    }
}
