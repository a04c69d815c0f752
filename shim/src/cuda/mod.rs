//! CUDA: what the program asks of the driver, seen at the driver's own functions.
//!
//! Every way to the GPU ends in `libcuda.so.1`: the runtime, shared or linked in, and everything above it. So the driver is where calls are
//! hooked, each once, by three ways in: the exported names (programs linked to the driver), `dlsym`, and `cuGetProcAddress`
//! ([`lookup`]). One table ([`table`]) has every hooked function; one body ([`call`]) runs them all. Rows go through the thread's ring as heap
//! events do ([`memory`], [`transfers`], [`streams`], [`graphs`], [`state`]). [`timing`] and [`reaper`] ask the driver how long things took.
//!
//! The driver is never loaded by us, and without it nothing here runs: a process that never calls it has no thread, no memory and no line more.

mod call;
mod contexts;
mod copies;
mod cupti;
mod cupy;
mod dlvsym;
mod frameworks;
mod graphs;
mod green;
mod kernels;
mod known;
mod libcuda;
pub mod line;
mod lock;
mod lookup;
mod memory;
mod pairs;
mod ranges;
mod reaper;
mod shape;
mod state;
mod streams;
mod table;
mod timing;
mod transfers;

pub use cupti::thread_made;
pub use cupy::{NOT_ASKED, was_refused};
pub use reaper::{after_fork, before_fork, is_forking};

/// Private memory taken for GPUs, in bytes.
pub fn private() -> usize {
    pairs::private() + ranges::private() + cupti::private()
}

use crate::hooks::heap::ready;

/// One thread, at the start, when the real functions are known.
pub fn settle() {
    lookup::settle();
    dlvsym::settle();
    libcuda::settle_start();
}

/// The process ends, or is about to exec: what is only counted yet is told. Not under the drain's lock.
pub fn tell() {
    if call::is_unused() && !lookup::is_used() {
        return;
    }
    reaper::hurry();
    let hot = ready();
    if !hot.is_null() {
        streams::end_all(hot);
        timing::tell_untimed(hot);
        if !call::is_unused() {
            frameworks::name_pools(hot);
        }
        lookup::tell(hot);
    }
}

/// A forked child: the driver does not work there, and nothing of the parent's is its own.
pub fn forget() {
    reaper::forget();
    lookup::forget();
    if call::is_unused() {
        return;
    }
    call::forget();
    lock::forget();
    contexts::forget();
    ranges::forget();
    streams::forget();
    graphs::forget();
    green::forget();
    state::forget();
    frameworks::forget();
    timing::forget();
    cupti::forget();
    cupy::forget();
}
