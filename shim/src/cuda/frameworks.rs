//! What frameworks do with the memory that they got: PyTorch tells by a function that it calls at each tensor's allocation and free; of others it
//! is only known that they are there, and that their pools hand out what the driver never hears of.

use super::call::ticket;
use super::contexts;
use crate::config::{CONFIG, COUNT};
use crate::hooks::heap::ready;
use crate::lane::{Hot, push};
use crate::{elf, loaded, sys};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use memshim_format::gpu::{self, kind, state};
use memshim_format::record::{ARG_WORD, op, start};

/// Pools by a word in the path of their library.
const POOLS: [(&[u8], &[u8]); 4] = [(b"/cupy", b"CuPy"), (b"xla_cuda", b"XLA"), (b"xla_extension", b"XLA"), (b"librmm", b"RMM")];

/// Names the frameworks that are loaded when the first context is met.
pub fn name_pools(hot: *mut Hot) {
    let seen = loaded::mentioned(&POOLS.map(|(word, _)| word));
    for (i, (_, name)) in POOLS.iter().enumerate() {
        if seen >> i & 1 == 1 {
            contexts::name(hot, gpu::name::POOL, i as u64, name);
        }
    }
}

type Report = unsafe extern "C" fn(*mut c_void, i64, usize, usize, u16);

/// PyTorch's own function, 1 where there is none.
static REAL: AtomicUsize = AtomicUsize::new(0);
const NONE: usize = 1;
const SYMBOL: &[u8] = b"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";

fn real() -> usize {
    let known = REAL.load(Relaxed);
    if known != 0 {
        return known;
    }
    // Whoever calls has it loaded, perhaps out of sight of the global scope; mostly in a library of this name, else in whichever has it.
    let found = loaded::find(b"libc10.so").and_then(|l| {
        let object = l.object();
        // SAFETY: a loaded object.
        unsafe { elf::find_in(&raw const object, SYMBOL) }
    });
    let hook = _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE as *const c_void;
    let at = found.unwrap_or_else(|| loaded::function(SYMBOL, hook)) as usize;
    REAL.store(at.max(NONE), Relaxed);
    at.max(NONE)
}

/// What was told of each device: the most allocated and reserved, and when.
struct Told {
    allocated: AtomicU64,
    reserved: AtomicU64,
    at: AtomicU64,
}

static TOLD: [Told; 16] = [const { Told { allocated: AtomicU64::new(0), reserved: AtomicU64::new(0), at: AtomicU64::new(0) } }; 16];

/// `c10::reportMemoryUsageToProfiler(void*, int64_t, size_t allocated, size_t reserved, c10::Device)`: called by PyTorch's allocators under
/// their locks, so nothing is done but to leave a row: at each new maximum, and at the interval of the other samples.
///
/// # Safety
/// As PyTorch's function.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(
    p: *mut c_void,
    size: i64,
    allocated: usize,
    reserved: usize,
    device: u16,
) {
    let f = real();
    const CUDA: u16 = 1;
    if device & 0xff == CUDA {
        note((device >> 8) as usize, allocated as u64, reserved as u64);
    }
    if f > NONE {
        // SAFETY: PyTorch's own function with its own arguments.
        unsafe {
            let f: Report = core::mem::transmute(f);
            f(p, size, allocated, reserved, device);
        }
    }
}

fn note(device: usize, allocated: u64, reserved: u64) {
    let hot = ready();
    let Some(told) = TOLD.get(device) else { return };
    // SAFETY: null or this thread's; settings are read-only.
    if hot.is_null() || unsafe { (*hot).mode } == COUNT {
        return;
    }
    let new = told.allocated.fetch_max(allocated, Relaxed) < allocated || told.reserved.fetch_max(reserved, Relaxed) < reserved;
    let now = sys::now();
    // SAFETY: as above.
    if !new && now < told.at.load(Relaxed) + unsafe { CONFIG.interval_ns } {
        return;
    }
    told.at.store(now, Relaxed);
    let head = gpu::head(0, device as u64, 0, state::TORCH);
    let first = start(op::GPU + kind::STATE, gpu::NO_CALL, ticket());
    // SAFETY: this thread's hot.
    unsafe { push(hot, [first, now, head, allocated & ARG_WORD, reserved & ARG_WORD, 0]) };
}

/// A forked child has told nothing.
pub fn forget() {
    for t in &TOLD {
        t.allocated.store(0, Relaxed);
        t.reserved.store(0, Relaxed);
        t.at.store(0, Relaxed);
    }
}
