//! How a frame whose function has been called anew is left: with what came out, by instructions that the interpreter has.

use super::super::cpython::{self, Cpython, Py};
use super::super::{last, opcodes};
use super::{F, I, first_of, number, pointer, word};

/// A frame that is being left.
struct Leave {
    /// Its second instruction is here, and is this.
    at: *mut u16,
    instruction: u16,
    frame: Py,
    /// Where `LOAD_FAST` finds what came out, if that is no local that is cleared with the frame.
    stray: Py,
    raises: bool,
}
static mut LEAVE: Leave =
    Leave { at: core::ptr::null_mut(), instruction: 0, frame: core::ptr::null_mut(), stray: core::ptr::null_mut(), raises: false };

/// Prepares a frame to be left with a value; what the interpreter is to do.
///
/// # Safety
/// A frame before its first instruction, of a code object that has at least two more; the interpreter's lock is held from here to [`left`].
pub unsafe fn leave(p: &Cpython, cframe: Py, frame: Py, value: Py, raises: bool) -> u64 {
    // SAFETY: a frame before its first instruction, of a code object that has at least two more.
    unsafe {
        let code = pointer(frame, F.code);
        let first = first_of(p, code);
        let index = *first.add(1) as u32;
        let is_local = index < *number(code, I.all_locals);
        let place = word(frame, I.first_local).add(index as usize);
        let was = if is_local { *place as Py } else { core::ptr::null_mut() };
        *place = value as u64;
        if let Some(i) = p.inlined.as_ref().filter(|_| !was.is_null()) {
            (i.release)(was);
        }
        // Tracing that began meanwhile goes on when this frame is cleared.
        let traces = cframe.add(I.traces as usize);
        if *traces != 0 && *word(frame, F.locals) == 0 {
            *word(frame, F.locals) = last::tracing_goes_on() as u64;
            *traces = 0;
        }
        let at = first.add(2).cast::<u16>();
        LEAVE = Leave { at, instruction: *at, frame, stray: if is_local { core::ptr::null_mut() } else { value }, raises };
        *at = opcodes::LEFT as u16;
        opcodes::original(opcodes::LOAD_FAST)
    }
}

/// What came out is on the frame's stack. What the interpreter is to do.
///
/// # Safety
/// Called by the loop in place of an instruction.
pub unsafe extern "C" fn left() -> u64 {
    // SAFETY: `leave` came before, with the lock held since.
    unsafe {
        let leave = &*(&raw const LEAVE);
        *leave.at = leave.instruction;
        if !leave.stray.is_null() {
            // It has been taken from a place that nobody clears.
            *leave.stray.cast::<u64>() -= 1;
        }
        if !leave.raises {
            return opcodes::original(opcodes::RETURN_VALUE);
        }
        // The function's own handlers are not for this frame: a code object without any stands for its own.
        let own = word(leave.frame, F.code);
        let (code, stand_in) = (*own as Py, (&raw mut STAND_IN).cast::<u8>());
        core::ptr::copy_nonoverlapping(code, stand_in, HEADER);
        stand_in.cast::<u64>().write(1 << 40);
        word(stand_in, I.exceptions).write((&raw const NO_HANDLERS) as u64);
        *own = stand_in as u64;
        if let Some(i) = cpython::get().and_then(|p| p.inlined.as_ref()) {
            (i.release)(code);
        }
        opcodes::original(opcodes::RERAISE)
    }
}

/// As much of a code object as comes before its instructions.
const HEADER: usize = 184;
#[repr(C, align(16))]
struct Code([u8; HEADER + 8]);
static mut STAND_IN: Code = Code([0; HEADER + 8]);
/// An empty object of bytes, of which length and contents are read.
static NO_HANDLERS: [u64; 6] = [1 << 40, 0, 0, 0, 0, 0];
