//! 3.11: only functions that are phases are touched, and all others are called as the interpreter calls them, with no instruction more.
//!
//! 3.11 runs calls from Python to Python in one run of its loop, as long as nobody has another function that evaluates frames (PEP 523).
//! With one, each call goes over the C stack, and its caller holds the arguments until it returns. So here there is none. Instead the first
//! instruction of a code object that is a phase gets an opcode of ours ([`opcodes`]), which the interpreter's own table of origins shows as
//! what it was: `co_code`, `dis`, comparisons, `marshal` and tracers see the compiler's. The bodies of modules, where functions are found
//! ([`super::eval::body`]), come by since each code object's first executions have an instruction (`RESUME`) that later ones have not.
//!
//! **How a call runs.** We come to stand at the first instruction of a frame, the *outer* one, which the loop has just begun and which nobody
//! sees until it has done that instruction. There we call the function anew, in C and without arguments, and when its frame, the *inner*
//! one, is at the same place it is handed all that the outer one has: the same references, none more. It runs and is cleared, locals and
//! all, before that call returns, whether with a result or an exception. So the end is told. The outer frame then only has to be left with
//! what came out, by instructions that the interpreter has: `LOAD_FAST`, for which the result is put into the local that our instruction's
//! number says, and in the place of the function's second instruction, for that moment, one of ours that has `RETURN_VALUE` or `RERAISE` done.
//! The interpreter's lock is held from one to the other, and no Python runs.
//!
//! **What this is not for:** generators and coroutines, which go on in their midst, and tracers and profilers, which are told of the original
//! instructions. From the first of those that is a phase, or the first traced instruction, on, calls go the old way ([`old_way`]).

mod leave;

pub use leave::left;

use super::cpython::{Cpython, Py, interpreter_of};
use super::fields::{self, Fields, INLINED, Inlined};
use super::rules::Phase;
use super::{begins, codes, cpython, ends, eval, opcodes, stubs};
use crate::python::{TWICE, TWICE_AT};
use crate::sys;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering::*};

const F: Fields = match fields::of(0x030b) {
    Some(f) => f,
    None => panic!("3.11 has no fields"),
};
const I: Inlined = INLINED;

/// Calls from which on the stack is looked at. A phase takes a good kilobyte of it, where a call of 3.11 takes nothing; the smallest stacks of
/// threads have 32 KiB.
const DEEP: u32 = 16;

const UNSOUGHT: u32 = 0;
const NOT_POSSIBLE: u32 = 1;
const READY: u32 = 2;
static STATE: AtomicU32 = AtomicU32::new(UNSOUGHT);

/// Whether this interpreter's calls are told of here, and not by a function that evaluates frames. The first time it is set up.
///
/// # Safety
/// The interpreter runs no Python yet, or its lock is held.
pub unsafe fn is_ready(p: &Cpython) -> bool {
    if p.walked.version != 0x030b {
        return false;
    }
    if STATE.load(Acquire) == UNSOUGHT {
        // SAFETY: the caller's promise.
        let done = p.inlined.is_some() && unsafe { opcodes::settle(p, stubs::of) };
        stubs::settle();
        STATE.store(if done { READY } else { NOT_POSSIBLE }, Release);
    }
    STATE.load(Relaxed) == READY
}

/// Whether calls go the old way in 3.11.
pub fn is_old_way() -> bool {
    STATE.load(Relaxed) == NOT_POSSIBLE
}

/// From now on a function of ours evaluates frames, in all interpreters.
///
/// # Safety
/// The interpreter's lock is held.
#[cold]
unsafe fn old_way(p: &Cpython) {
    if STATE.swap(NOT_POSSIBLE, AcqRel) != READY {
        return;
    }
    // SAFETY: the tables were found; interpreters of the list live while the lock is held.
    unsafe {
        opcodes::restore(opcodes::DO_TRACING);
        opcodes::restore(opcodes::RESUME);
        let Some(i) = &p.inlined else { return };
        let mut interpreter = (i.first_interpreter)();
        while !interpreter.is_null() {
            eval::put(p, interpreter);
            interpreter = (i.next_interpreter)(interpreter);
        }
    }
}

/// A code object is a phase: its calls are to be told of.
///
/// # Safety
/// A code object, and the interpreter's lock.
pub unsafe fn watch(p: &Cpython, code: u64) {
    if STATE.load(Relaxed) != READY {
        return;
    }
    // SAFETY: the caller's code object, whose instructions the interpreter writes to as well.
    unsafe {
        let first = first_of(p, code as Py);
        let its = match *first {
            opcodes::RESUME_QUICK => opcodes::RESUME,
            opcode => opcodes::behind(opcode),
        };
        match opcodes::CALLED.iter().find(|(_, of)| *of == its) {
            Some((ours, _)) => *first = *ours,
            None => old_way(p),
        }
    }
}

unsafe fn word(p: Py, offset: u16) -> *mut u64 {
    // SAFETY: the caller's object has that field.
    unsafe { p.add(offset as usize).cast() }
}

unsafe fn pointer(p: Py, offset: u16) -> Py {
    // SAFETY: as above.
    unsafe { word(p, offset).read() as Py }
}

unsafe fn number(p: Py, offset: u16) -> *mut u32 {
    // SAFETY: as above.
    unsafe { word(p, offset).cast() }
}

/// The opcode of a code object's first instruction; its argument is the next byte.
unsafe fn first_of(p: &Cpython, code: Py) -> *mut u8 {
    // SAFETY: the caller's code object.
    unsafe { code.add(p.walked.layout.start as usize) }
}

/// This thread's `_PyCFrame` and the frame that runs.
unsafe fn running(p: &Cpython, state: Py) -> (Py, Py) {
    let l = &p.walked.layout;
    // SAFETY: this thread's state, in the midst of the loop.
    unsafe {
        let cframe = pointer(state, l.top);
        (cframe, pointer(cframe, l.cframe_current))
    }
}

/// Says of a function that is a phase whether two runs of the loop are for its frame.
unsafe fn mark(p: &Cpython, frame: Py, twice: bool) {
    // SAFETY: two bytes that the interpreter does not use.
    unsafe { frame.add((p.walked.layout.entry + TWICE_AT) as usize).cast::<u16>().write(if twice { TWICE } else { 0 }) }
}

/// A call that is being made, from the outer frame to where the inner one is: the interpreter's lock is held all the while.
struct Call {
    outer: Py,
    code: Py,
    /// Of the code object: what says which arguments there are. Meanwhile there are none.
    kept: [u32; 3],
    /// The function that evaluates frames, where there is another one. Meanwhile there is none.
    eval: *mut *const c_void,
    evaluates: *const c_void,
}
static mut CALL: Call = Call {
    outer: core::ptr::null_mut(),
    code: core::ptr::null_mut(),
    kept: [0; 3],
    eval: core::ptr::null_mut(),
    evaluates: core::ptr::null(),
};

const COUNTS: [u16; 3] = [I.arguments, I.named_arguments, F.flags];
/// Flags of a code object: what further arguments go into.
const FURTHER: u32 = 4 | 8;

impl Call {
    /// Begins, if the outer frame is one of a function.
    unsafe fn begin(p: &Cpython, state: Py, outer: Py, code: Py) {
        // SAFETY: the caller's frame and code object; the lock is held.
        unsafe {
            let kept = COUNTS.map(|field| *number(code, field));
            let [arguments, named, flags] = COUNTS.map(|field| number(code, field));
            (*arguments, *named) = (0, 0);
            *flags &= !FURTHER;
            let eval = p.eval_place(interpreter_of(state)).unwrap_or(core::ptr::null_mut());
            let evaluates = if eval.is_null() { core::ptr::null() } else { *eval };
            if !evaluates.is_null() {
                *eval = core::ptr::null();
            }
            CALL = Call { outer, code, kept, eval, evaluates };
        }
    }

    /// Puts everything back as it was: the inner frame is there, or will not be.
    unsafe fn end(&mut self) {
        // SAFETY: as in `begin`.
        unsafe {
            for (field, was) in COUNTS.into_iter().zip(self.kept) {
                *number(self.code, field) = was;
            }
            if !self.evaluates.is_null() {
                *self.eval = self.evaluates;
            }
        }
        self.outer = core::ptr::null_mut();
    }

    /// Hands all that the outer frame has to the inner one.
    unsafe fn hand_over(&mut self, p: &Cpython, inner: Py) {
        let (l, outer) = (&p.walked.layout, self.outer);
        // SAFETY: two frames of the same code object, both before their first instruction.
        unsafe {
            let swap = |at: u16| core::ptr::swap(word(inner, at), word(outer, at));
            for local in 0..*number(self.code, I.all_locals) {
                core::ptr::swap(word(inner, I.first_local).add(local as usize), word(outer, I.first_local).add(local as usize));
            }
            swap(F.locals);
            // Who follows the frames does not come by it; whether it was entered from C is marked.
            *word(inner, l.previous) = *word(outer, l.previous);
            mark(p, inner, *outer.add(l.entry as usize) != 0);
            self.end();
        }
    }
}

/// The first instruction of a function that is a phase. What the interpreter is to do.
///
/// # Safety
/// Called by the loop in place of an instruction.
pub unsafe extern "C" fn called() -> u64 {
    // Nobody gets here before it is known.
    let Some(p) = cpython::get() else { return opcodes::original(opcodes::RESUME) };
    // SAFETY: the loop's call, in place of an instruction: the lock is held.
    unsafe {
        let state = (p.current)();
        let (cframe, frame) = running(p, state);
        let code = pointer(frame, F.code);
        let go_on = opcodes::original(opcodes::behind(*first_of(p, code)));
        let call = &mut *(&raw mut CALL);
        if !call.outer.is_null() {
            if call.code == code {
                call.hand_over(p, frame);
            }
            return go_on;
        }
        mark(p, frame, false);
        if STATE.load(Relaxed) != READY {
            return go_on;
        }
        let phase = codes::phase_of(code as u64, || eval::print_of(&F, code));
        if phase.number == 0 {
            return go_on;
        }
        if *number(code, F.flags) & eval::SUSPENDS != 0 {
            // What it makes will be run from C, the first time too.
            sys::keep_errno(|| old_way(p));
            return go_on;
        }
        call_anew(p, state, cframe, frame, phase).unwrap_or(go_on)
    }
}

/// An instruction that code has while it is new. What the interpreter is to do.
///
/// # Safety
/// Called by the loop in place of an instruction.
pub unsafe extern "C" fn resumed() -> u64 {
    let go_on = opcodes::original(opcodes::RESUME);
    let Some(p) = cpython::get() else { return go_on };
    // SAFETY: as in `called`.
    unsafe {
        let state = (p.current)();
        let (cframe, frame) = running(p, state);
        let code = pointer(frame, F.code);
        if *number(code, F.flags) & eval::OPTIMIZED != 0 || STATE.load(Relaxed) != READY {
            return go_on;
        }
        sys::keep_errno(|| eval::body(&F, code as u64, pointer(frame, F.globals)));
        // A module that is a phase itself has been given our instruction.
        let phase = codes::phase_of(code as u64, || eval::print_of(&F, code));
        let begins_here = pointer(frame, p.walked.layout.instr) == first_of(p, code).sub(2);
        if phase.number == 0 || !begins_here || opcodes::behind(*first_of(p, code)) == *first_of(p, code) {
            return go_on;
        }
        call_anew(p, state, cframe, frame, phase).unwrap_or(go_on)
    }
}

/// An instruction is traced: from here on calls go the old way.
///
/// # Safety
/// Called by the loop in place of an instruction.
pub unsafe extern "C" fn traced() -> u64 {
    if let Some(p) = cpython::get() {
        // SAFETY: the loop's call: the lock is held.
        unsafe { sys::keep_errno(|| old_way(p)) };
    }
    opcodes::original(opcodes::DO_TRACING)
}

/// Calls the function of a frame that has just begun; what the interpreter is to do then. `None`: it cannot be.
unsafe fn call_anew(p: &Cpython, state: Py, cframe: Py, outer: Py, phase: Phase) -> Option<u64> {
    let i = p.inlined.as_ref()?;
    // SAFETY: the caller's frame, whose function and code object it holds.
    unsafe {
        let (function, code) = (pointer(outer, I.function), pointer(outer, F.code));
        if pointer(function, p.walked.layout.object_type) != i.function_type || pointer(function, I.function_code) != code {
            return None;
        }
        if eval::is_deeper(state, DEEP) && !eval::has_room(&raw const i as u64) {
            super::FAR_DOWN.store(true, Relaxed);
            return None;
        }
        phase.meet();
        begins(phase.number);
        // The outer frame counts as a call, and so does the inner one.
        let left = number(state, F.calls_left);
        *left = (*left).wrapping_add(1);
        Call::begin(p, state, outer, code);
        let result = (i.call)(function, core::ptr::null(), 0, core::ptr::null_mut());
        let call = &mut *(&raw mut CALL);
        if !call.outer.is_null() {
            // There was no memory for a frame.
            call.end();
        }
        ends(false);
        *left = (*left).wrapping_sub(1);
        let raises = result.is_null();
        let value = if raises { caught(i) } else { result };
        Some(leave::leave(p, cframe, outer, value, raises))
    }
}

/// The exception that is on its way, whole; the reference is the caller's.
unsafe fn caught(i: &cpython::Inlined) -> Py {
    let (mut kind, mut value, mut trace) = (core::ptr::null_mut(), core::ptr::null_mut(), core::ptr::null_mut());
    // SAFETY: the interpreter's functions, and objects that they gave.
    unsafe {
        (i.fetch_error)(&mut kind, &mut value, &mut trace);
        (i.normalize_error)(&mut kind, &mut value, &mut trace);
        if !trace.is_null() {
            (i.set_traceback)(value, trace);
            (i.release)(trace);
        }
        (i.release)(kind);
    }
    value
}
