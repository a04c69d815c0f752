//! Memory for CUPTI's records: a few buffers of our own, asked for and given back by CUPTI's threads and the program's, read by ours. Where all are
//! full CUPTI gets none, and counts what it drops.

use crate::sys;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

const SIZE: usize = 1 << 20;
const COUNT: usize = 32;

static BASE: AtomicUsize = AtomicUsize::new(0);
/// Buffers that were ever given out.
static USED: AtomicUsize = AtomicUsize::new(0);

const FREE: u32 = 0;
const OUT: u32 = 1;
const COMPLETE: u32 = 2;

struct Buffer {
    state: AtomicU32,
    valid: AtomicUsize,
}

static BUFFERS: [Buffer; COUNT] = [const { Buffer { state: AtomicU32::new(FREE), valid: AtomicUsize::new(0) } }; COUNT];

/// Reserves the memory; its pages come when they are used.
pub fn map() -> bool {
    if BASE.load(Relaxed) == 0 {
        BASE.store(sys::map_anon(SIZE * COUNT) as usize, Release);
    }
    BASE.load(Relaxed) != 0
}

/// Private memory taken, in bytes, as far as it was used.
pub fn private() -> usize {
    USED.load(Relaxed) * SIZE
}

/// CUPTI needs a buffer: at any instant, on any thread.
///
/// # Safety
/// Called by CUPTI with places to write to.
pub unsafe extern "C" fn asked(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    let base = BASE.load(Acquire);
    let free = BUFFERS.iter().position(|b| b.state.compare_exchange(FREE, OUT, AcqRel, Relaxed).is_ok());
    let (at, len) = match free {
        Some(i) if base != 0 => {
            USED.fetch_max(i + 1, Relaxed);
            (base + i * SIZE, SIZE)
        }
        _ => (0, 0),
    };
    // SAFETY: the caller's places.
    unsafe {
        buffer.write(at as *mut u8);
        size.write(len);
        most.write(0);
    }
}

/// CUPTI gives a buffer back, with so many bytes of records.
///
/// # Safety
/// Called by CUPTI with a buffer that it got from [`asked`].
pub unsafe extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, _: usize, valid: usize) {
    let i = (buffer as usize).wrapping_sub(BASE.load(Relaxed)) / SIZE;
    if let Some(b) = BUFFERS.get(i) {
        b.valid.store(valid.min(SIZE), Relaxed);
        b.state.store(COMPLETE, Release);
    }
}

/// Has `read` read what came back: the buffer, and its bytes of records. By one thread.
pub fn each_completed(mut read: impl FnMut(*mut u8, usize)) {
    for (i, b) in BUFFERS.iter().enumerate().filter(|(_, b)| b.state.load(Acquire) == COMPLETE) {
        read((BASE.load(Relaxed) + i * SIZE) as *mut u8, b.valid.load(Relaxed));
        b.state.store(FREE, Release);
    }
}
