//! Names of kernels: each is written once, in pieces, and has a number from then on. By one thread.

use super::say;
use crate::lane::Hot;
use crate::text::hash;
use core::ffi::c_char;
use memshim_format::gpu::{OTHER_KERNELS, name};
use memshim_format::phase::PIECE;

const SLOTS: usize = 4096;
/// Of longer names the start is taken.
const LONGEST: usize = PIECE * 64;

/// Hashes of those that have a number, by open addressing: the place is the number, less one.
static mut SEEN: [u64; SLOTS] = [0; SLOTS];

/// The number of a kernel's name.
///
/// # Safety
/// Null or zero-terminated; on the one thread that reads records.
pub unsafe fn number(hot: *mut Hot, text: *const c_char) -> u64 {
    if text.is_null() {
        return OTHER_KERNELS;
    }
    let mut len = 0;
    // SAFETY: up to its end.
    unsafe {
        while len < LONGEST && *text.add(len) != 0 {
            len += 1;
        }
        let text = core::slice::from_raw_parts(text.cast::<u8>(), len);
        let hash = hash(text) | 1;
        for i in 0..64 {
            let at = ((hash >> 20) as usize + i) % SLOTS;
            let Some(slot) = (*(&raw mut SEEN)).get_mut(at) else { break };
            if *slot == hash {
                return at as u64 + 1;
            }
            if *slot == 0 {
                *slot = hash;
                say(hot, name::KERNEL, at as u64 + 1, text);
                return at as u64 + 1;
            }
        }
    }
    OTHER_KERNELS
}
