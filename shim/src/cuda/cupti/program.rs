//! The program's own calls of CUPTI: it gets it to itself.

use super::library;
use crate::cuda::call::{Entry, Hook};
use crate::hooks::heap::ready;
use crate::{elf, loaded, sys};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// The program has called CUPTI.
static CALLED: AtomicU32 = AtomicU32::new(0);

/// Whether the program has called CUPTI.
pub fn has_called() -> bool {
    CALLED.load(SeqCst) != 0
}

/// The program calls CUPTI: it gets it to itself.
///
/// # Safety
/// `args` are six words as the program passed them.
pub unsafe fn program_calls(entry: &'static Entry, args: *const usize) -> i32 {
    const NOT_INITIALIZED: i32 = 15;
    let hot = ready();
    if !super::is_helper(hot) && super::is_wanted() {
        sys::keep_errno(|| {
            CALLED.store(1, SeqCst);
            super::give_way();
        });
    }
    let real = match entry.real.load(Relaxed) {
        0 => sys::keep_errno(|| find_real(entry)),
        known => known,
    };
    if real == 0 {
        return NOT_INITIALIZED;
    }
    // SAFETY: CUPTI's function with the program's arguments.
    unsafe {
        let a = |i: usize| *args.add(i);
        let f: unsafe extern "C" fn(usize, usize, usize, usize) -> i32 = core::mem::transmute(real);
        f(a(0), a(1), a(2), a(3))
    }
}

/// What the program is linked to, or whatever library of that name is loaded.
#[cold]
fn find_real(entry: &Entry) -> usize {
    let symbol = entry.symbol.as_bytes();
    let linked = elf::find_next(symbol).map(|f| f.at);
    let found = linked.or_else(|| {
        let object = loaded::find(library::NAME)?.object();
        // SAFETY: a loaded object.
        unsafe { elf::find_in(&raw const object, symbol) }
    });
    let Hook(ours) = entry.export;
    let at = found.filter(|p| *p != ours.cast()).map_or(0, |p| p as usize);
    entry.real.store(at, Relaxed);
    at
}
