//! Where the code of a Python interpreter ends it: told by the return addresses of native frames. Not for: what that means.

use crate::elf::{Dynamic, Object};
use crate::sys;
use crate::unwind::modules;
use core::sync::atomic::{AtomicBool, Ordering::*};

/// Places in the code of an interpreter.
struct Ending {
    /// `Py_FinalizeEx`, 0 where it exports none, and where the code that it lies in begins and ends.
    finalize: u64,
    code: [u64; 2],
    /// The part of its data where the linkage table lies as a rule.
    data: [u64; 2],
    /// Where `Py_Exit` begins and ends.
    exit: [u64; 2],
}

static mut ENDING: Ending = Ending { finalize: 0, code: [0; 2], data: [0; 2], exit: [0; 2] };
static KNOWN: AtomicBool = AtomicBool::new(false);

/// Looks at an interpreter. Once, on one thread; neither locks nor allocates.
pub fn settle(interpreter: &Object) {
    // SAFETY: the interpreter is loaded and stays so; nobody reads the places yet.
    unsafe {
        let Some(exports) = Dynamic::of(interpreter) else { return };
        let [finalize, _] = exports.extent(b"Py_FinalizeEx").unwrap_or([0; 2]);
        let exit = exports.extent(b"Py_Exit").unwrap_or([0; 2]);
        let (_, dynamic) = interpreter.place();
        ENDING = Ending { finalize, code: segment_of(interpreter, finalize), data: segment_of(interpreter, dynamic), exit };
    }
    KNOWN.store(true, Release);
}

/// Whether a return address is where the interpreter ends itself: in `Py_Exit`, or behind its own call of `Py_FinalizeEx`.
pub fn is_at(return_address: u64) -> bool {
    // SAFETY: written once, before.
    KNOWN.load(Acquire) && unsafe { (*(&raw const ENDING)).is_at(return_address) }
}

impl Ending {
    fn is_at(&self, return_address: u64) -> bool {
        let [exit, exit_end] = self.exit;
        (exit + 1..=exit_end).contains(&return_address) || self.finalize != 0 && self.has_called_finalize(return_address)
    }

    fn has_called_finalize(&self, return_address: u64) -> bool {
        let has = |at: u64, len: u64| at >= self.code[0] && at.saturating_add(len) <= self.code[1];
        // SAFETY: reads of code that is loaded, within its bounds.
        let (jump, slot) = unsafe {
            let behind = |at: u64| at.wrapping_add(4).wrapping_add_signed((at as *const i32).read_unaligned() as i64);
            let Some(call) = return_address.checked_sub(5).filter(|at| has(*at, 5)) else { return false };
            if (call as *const u8).read() != 0xe8 {
                return false;
            }
            let target = behind(call + 1);
            if target == self.finalize || !has(target, 16) {
                return target == self.finalize;
            }
            // A stub of the linkage table; `endbr64` and the prefix of a bound jump may come first.
            let mut stub = target;
            if (stub as *const [u8; 4]).read() == [0xf3, 0x0f, 0x1e, 0xfa] {
                stub += 4;
            }
            stub += ((stub as *const u8).read() == 0xf2) as u64;
            ((stub as *const [u8; 2]).read(), behind(stub + 2))
        };
        if jump != [0xff, 0x25] {
            return false;
        }
        if slot >= self.data[0] && slot.saturating_add(8) <= self.data[1] {
            // SAFETY: a word of the interpreter's data, which stays.
            return unsafe { (slot as *const u64).read_unaligned() } == self.finalize;
        }
        let mut entry = [0u8; 8];
        // What looks like a stub need not be one, and a linker may put the table elsewhere: the kernel reads it.
        // SAFETY: eight bytes are written into as many.
        unsafe { sys::copy_own(slot, entry.as_mut_ptr(), 8) == 8 && u64::from_le_bytes(entry) == self.finalize }
    }
}

/// The part of an object, mapped at once, that a place is in; empty where it is in none.
fn segment_of(object: &Object, place: u64) -> [u64; 2] {
    let (bias, dynamic) = object.place();
    let mut found = [0; 2];
    if let Some(listed) = modules::of_place(bias, dynamic) {
        modules::each_header(listed, |h| {
            let [from, to] = h.span(bias);
            if h.kind == libc::PT_LOAD && (from..to).contains(&place) {
                found = [from, to];
            }
        });
    }
    found
}
