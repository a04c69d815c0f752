//! The walker of native stacks, with a plain table of nodes, as C functions: `tests/programs/unwind_check.c` compares its stacks with
//! libunwind's inside real programs. The modules are the shim's own files.
#![cfg_attr(not(test), no_std)]
#![allow(static_mut_refs, dead_code, unused_imports)]
#![allow(clippy::deref_addrof)]

#[path = "../../../shim/src/elf.rs"]
mod elf;
#[path = "../../support/share.rs"]
mod share;
#[path = "../../../shim/src/sys.rs"]
mod sys;
#[path = "../../../shim/src/unwind/mod.rs"]
mod unwind;

use unwind::{Native, modules};

#[cfg(not(test))]
#[panic_handler]
fn never(_: &core::panic::PanicInfo) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

const NODES: usize = 1 << 16;

/// A thread's walker and the nodes it was given. All zero is ready.
pub struct Checker {
    native: Native,
    nodes: [(u32, u64); NODES],
    count: u32,
    generation: u64,
    /// Added to the generation when the nodes are full.
    rounds: u64,
    /// Calls of the node function.
    asked: u64,
}

#[unsafe(no_mangle)]
pub extern "C" fn check_settle() {
    unwind::settle();
}

/// As with a C library whose counters are not known.
#[unsafe(no_mangle)]
pub extern "C" fn check_settle_uncounted() {
    unwind::reach::settle();
}

#[unsafe(no_mangle)]
pub extern "C" fn check_after_fork() {
    unwind::after_fork();
}

#[unsafe(no_mangle)]
pub extern "C" fn check_size() -> usize {
    size_of::<Checker>()
}

/// Number of nodes that were made so far.
///
/// # Safety
/// `c` is a checker.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn check_asked(c: *const Checker) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { (*c).asked }
}

/// The calling thread's leaf node; 0 none.
///
/// # Safety
/// `c` is this thread's checker.
#[unsafe(no_mangle)]
#[inline(never)]
pub unsafe extern "C" fn check_update(c: *mut Checker) -> u32 {
    // SAFETY: the caller's promise.
    let Checker { native, nodes, count, generation, rounds, asked } = unsafe { &mut *c };
    if *count as usize > NODES - 300 {
        *rounds += 1;
    }
    let now = modules::generation().wrapping_add(*rounds);
    if now != *generation {
        (*generation, *count) = (now, 0);
    }
    native.update(now, &mut |parent, frame| {
        *asked += 1;
        let i = *count;
        *count += 1;
        if let Some(place) = nodes.get_mut(i as usize) {
            *place = (parent, frame);
        }
        i + 1
    })
}

/// Writes the frames of the stack that ends in `leaf`, from there outwards; how many. The outermost may be 0 or 2: cut, short.
///
/// # Safety
/// `c` is this thread's checker; `to` has room for `max` frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn check_frames(c: *const Checker, mut leaf: u32, to: *mut u64, max: usize) -> usize {
    let mut n = 0;
    while leaf != 0 && n < max {
        // SAFETY: the caller's promises.
        let Some((parent, frame)) = (unsafe { (*c).nodes.get(leaf as usize - 1) }) else { break };
        // SAFETY: as above.
        unsafe { to.add(n).write(*frame) };
        n += 1;
        leaf = *parent;
    }
    n
}

type Tell = unsafe extern "C" fn(u32, u64, *const u8, usize, *const u8, usize, u64, u64);

/// Tells of modules that were loaded, and (with a null path) of those that are no more.
///
/// # Safety
/// `tell` is a function of this type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn check_modules(tell: Tell) {
    modules::tell(
        |id, m| {
            let (path, build_id) = (m.path(), m.build_id());
            let [start, end] = m.code.first().copied().unwrap_or_default();
            // SAFETY: the caller's function.
            unsafe { tell(id, m.bias, path.as_ptr(), path.len(), build_id.as_ptr(), build_id.len(), start, end) }
        },
        // SAFETY: as above.
        |id| unsafe { tell(id, 0, core::ptr::null(), 0, core::ptr::null(), 0, 0, 0) },
    );
}
