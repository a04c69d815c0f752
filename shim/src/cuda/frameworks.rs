//! What frameworks do with the memory that they got: PyTorch tells by a function that it calls at each tensor's allocation and free; of others it
//! is only known that they are there, and that their pools hand out what the driver never hears of.

use super::call::ticket;
use super::{contexts, libcuda};
use crate::config::{CONFIG, COUNT};
use crate::hooks::heap::ready;
use crate::lane::{Hot, push};
use crate::{loaded, sys};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use memshim_format::gpu::{self, kind, state};
use memshim_format::record::{ARG_WORD, op, start};

/// What tells of a pool by the paths of loaded libraries, as [`loaded::mentioned`] takes it, and the pool's name.
type Pool = (&'static [&'static [u8]], &'static [u8]);

/// A folder that is called `cupy` and no more can be anything's: CuPy's own modules lie in packages of it.
const POOLS: [Pool; 3] = [
    (&[b"cupy/_core/", b"cupy/core/", b"cupy/cuda/", b"cupy_backends/", b"cupy"], b"CuPy"),
    (&[b"xla_cuda", b"xla_extension"], b"XLA"),
    (&[b"librmm", b"rmm/pylibrmm/", b"rmm/_lib/"], b"RMM"),
];

/// Bit by pool: it is named.
static NAMED: AtomicU64 = AtomicU64::new(0);

/// Objects that had been loaded when pools were looked for last.
static LOOKED: AtomicU64 = AtomicU64::new(0);

/// Names the frameworks that are loaded, each once: when the first context is met, at the interval of the other samples, and at the end.
pub fn name_pools(hot: *mut Hot) {
    let seen = loaded::mentioned(&POOLS.map(|(signs, _)| signs), &LOOKED);
    let new = seen & !NAMED.fetch_or(seen, Relaxed);
    for (i, (_, name)) in POOLS.iter().enumerate() {
        if new >> i & 1 == 1 {
            contexts::name(hot, gpu::name::POOL, i as u64, name);
        }
    }
}

type Report = unsafe extern "C" fn(*mut c_void, i64, usize, usize, u16);

const SYMBOL: &[u8] = b"_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";

/// A place in PyTorch's code that calls its function, and the function that it means: a process can have PyTorch twice, and each copy has its own.
struct Site {
    caller: AtomicUsize,
    /// 0 while it is not known, [`NONE`] where there is none.
    real: AtomicUsize,
}

static SITES: [Site; 64] = [const { Site { caller: AtomicUsize::new(0), real: AtomicUsize::new(0) } }; 64];
const NONE: usize = 1;

/// The function that a caller means.
fn real(caller: usize) -> usize {
    let first = caller.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58;
    for i in 0..SITES.len() {
        let Some(site) = SITES.get((first + i) % SITES.len()) else { break };
        if is_it(&site.caller, caller) {
            let known = site.real.load(Relaxed);
            if known == 0 {
                site.real.store(find(caller), Relaxed);
            }
            return site.real.load(Relaxed);
        }
    }
    find(caller)
}

/// As the loader would: what there was at the start is everybody's. What came later is mostly in a library out of sight of the global scope, which is the
/// caller or lies beside it; else in one of the name, else in whichever has it. Not by `dlsym`: PyTorch's locks are held, and other threads may want those while
/// they hold the loader's.
#[cold]
fn find(caller: usize) -> usize {
    let hook = _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE as *const c_void;
    let found = libcuda::next_at_start(SYMBOL).unwrap_or_else(|| loaded::function(SYMBOL, hook, caller, b"libc10.so"));
    (found as usize).max(NONE)
}

/// Copies of PyTorch, by their functions; those that find no room count as the last.
static COPIES: [AtomicUsize; 8] = [const { AtomicUsize::new(0) }; 8];

fn copy(real: usize) -> usize {
    COPIES.iter().position(|at| is_it(at, real)).unwrap_or(COPIES.len() - 1)
}

/// Whether a place is that of a value, or was nobody's and is now.
fn is_it(at: &AtomicUsize, value: usize) -> bool {
    match at.load(Relaxed) {
        0 => at.compare_exchange(0, value, Relaxed, Relaxed).map_or_else(|of| of == value, |_| true),
        of => of == value,
    }
}

/// What was told of each device: what each copy has allocated and reserved; the most of all together, and when.
struct Told {
    latest: [[AtomicU64; 2]; COPIES.len()],
    allocated: AtomicU64,
    reserved: AtomicU64,
    at: AtomicU64,
}

impl Told {
    const fn new() -> Told {
        Told {
            latest: [const { [const { AtomicU64::new(0) }; 2] }; COPIES.len()],
            allocated: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            at: AtomicU64::new(0),
        }
    }
}

static TOLD: [Told; 16] = [const { Told::new() }; 16];

/// `c10::reportMemoryUsageToProfiler(void*, int64_t, size_t allocated, size_t reserved, c10::Device)`: called by PyTorch's allocators under
/// their locks, so nothing is done but to leave a row: at each new maximum, and at the interval of the other samples.
///
/// # Safety
/// As PyTorch's function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE() {
    // Where it was called from is one argument more.
    core::arch::naked_asm!("mov r9, qword ptr [rsp]", "jmp {told}", told = sym told);
}

unsafe extern "C" fn told(p: *mut c_void, size: i64, allocated: usize, reserved: usize, device: u16, caller: usize) {
    let f = real(caller);
    const CUDA: u16 = 1;
    if device & 0xff == CUDA {
        note(copy(f), (device >> 8) as usize, allocated as u64, reserved as u64);
    }
    if f > NONE {
        // SAFETY: PyTorch's own function with its own arguments.
        unsafe {
            let f: Report = core::mem::transmute(f);
            f(p, size, allocated, reserved, device);
        }
    }
}

fn note(copy: usize, device: usize, allocated: u64, reserved: u64) {
    let hot = ready();
    let Some(told) = TOLD.get(device) else { return };
    // SAFETY: null or this thread's; settings are read-only.
    if hot.is_null() || unsafe { (*hot).mode } == COUNT {
        return;
    }
    if let Some([a, r]) = told.latest.get(copy) {
        a.store(allocated, Relaxed);
        r.store(reserved, Relaxed);
    }
    let [allocated, reserved] = [0, 1].map(|i| told.latest.iter().filter_map(|of| of.get(i)).map(|n| n.load(Relaxed)).sum());
    // Both, also where the first is new.
    let new = (told.allocated.fetch_max(allocated, Relaxed) < allocated) | (told.reserved.fetch_max(reserved, Relaxed) < reserved);
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
    NAMED.store(0, Relaxed);
    LOOKED.store(0, Relaxed);
    for t in &TOLD {
        t.latest.iter().flatten().for_each(|n| n.store(0, Relaxed));
        t.allocated.store(0, Relaxed);
        t.reserved.store(0, Relaxed);
        t.at.store(0, Relaxed);
    }
}
