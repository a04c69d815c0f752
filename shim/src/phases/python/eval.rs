//! Up to 3.11: the function that evaluates frames is ours (PEP 523), in front of the one that was there.
//!
//! A call costs a few instructions more unless it is of a function that is a phase: those are known beforehand. The body of a module that a
//! rule is for runs before its functions can, and the code objects of all functions in it are among its constants. A frame that is no
//! phase's is passed on by a jump: not even the stack is another one. Who comes later and passes frames on, as he must, leaves it in place.
//!
//! 3.11 is different in one thing: without such a function calls from Python to Python do not use the C stack. A program that counts on that
//! has its own way back (see `deep`).
//!
//! From 3.12 on it is there for a moment only, to set up `sys.monitoring` where Python code may run.

use super::cpython::{Cpython, Py, interpreter_of};
use super::fields::{self, Fields, GENERATOR_STATE, ITEMS};
use super::rules::{Module, Phase};
use super::{begins, codes, cpython, ends, inlined, last, monitor};
use crate::python::strings::chars;
use crate::thread_stacks;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};

type Two = unsafe extern "C" fn(Py, c_int) -> Py;
type Three = unsafe extern "C" fn(Py, Py, c_int) -> Py;

/// Flags of a code object: locals are in slots (a function); a generator, a coroutine, an asynchronous generator.
pub const OPTIMIZED: u32 = 1;
pub const SUSPENDS: u32 = 0x20 | 0x80 | 0x200;

/// Who evaluates frames behind us.
static NEXT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Threads far down in 3.11, for whose sake it is not ours.
static AWAY: AtomicU32 = AtomicU32::new(0);

/// Puts ours in place in an interpreter.
///
/// # Safety
/// An interpreter that lives and that this thread is in.
pub unsafe fn put(p: &Cpython, interpreter: Py) {
    // SAFETY: the caller's interpreter.
    unsafe {
        let Some(place) = p.eval_place(interpreter) else { return };
        let there = *place;
        if is_ours(there) || AWAY.load(Relaxed) > 0 || p.monitoring.is_some() && monitor::is_done(p, interpreter) {
            return;
        }
        let before = if there.is_null() { p.default_eval } else { there };
        if NEXT.compare_exchange(core::ptr::null_mut(), before.cast_mut(), AcqRel, Acquire).is_err_and(|next| next.cast_const() != before) {
            return;
        }
        place.write_volatile(ours(p.walked.version));
        // Not the word that was meant: as it was.
        if p.eval_of.is_some_and(|f| f(interpreter).cast_const().cast() != ours(p.walked.version)) {
            place.write_volatile(there);
        }
    }
}

/// Takes it away again.
///
/// # Safety
/// As [`put`].
pub unsafe fn take_away(p: &Cpython, interpreter: Py) {
    // SAFETY: the caller's interpreter.
    unsafe {
        if let Some(place) = p.eval_place(interpreter)
            && is_ours(*place)
        {
            let next = NEXT.load(Relaxed).cast_const();
            place.write_volatile(if next == p.default_eval && p.walked.version > 0x030a { core::ptr::null() } else { next });
        }
    }
}

fn ours(version: u16) -> *const c_void {
    match version {
        0x0307 => two::<0x0307> as *const c_void,
        0x0308 => two::<0x0308> as *const c_void,
        0x0309 => three::<0x0309> as *const c_void,
        0x030a => three::<0x030a> as *const c_void,
        0x030b => three::<0x030b> as *const c_void,
        _ => first as *const c_void,
    }
}

/// Whether a function is one of ours.
pub fn is_ours(f: *const c_void) -> bool {
    [0x0307, 0x0308, 0x0309, 0x030a, 0x030b, 0x030c].iter().any(|v| ours(*v) == f)
}

unsafe extern "C" fn two<const V: u16>(frame: Py, throw: c_int) -> Py {
    // SAFETY: the interpreter's call, passed on.
    unsafe {
        let next = core::mem::transmute::<*mut c_void, Two>(NEXT.load(Relaxed));
        if is_none::<V>(frame) || !is_near() {
            return next(frame, throw);
        }
        watched::<V>(frame, move || next(frame, throw))
    }
}

unsafe extern "C" fn three<const V: u16>(state: Py, frame: Py, throw: c_int) -> Py {
    // SAFETY: the interpreter's call, passed on.
    unsafe {
        let next = core::mem::transmute::<*mut c_void, Three>(NEXT.load(Relaxed));
        if V == 0x030b && is_deeper(state, DEEP) {
            return deep(state, frame, throw);
        }
        if is_none::<V>(frame) || V < 0x030b && !is_near() {
            return next(state, frame, throw);
        }
        watched::<V>(frame, move || next(state, frame, throw))
    }
}

/// From 3.12 on.
unsafe extern "C" fn first(state: Py, frame: Py, throw: c_int) -> Py {
    // SAFETY: the interpreter's call, passed on. Nothing of the frame has run yet, no exception is on its way: Python code may run.
    unsafe {
        if throw == 0
            && let Some(p) = cpython::get()
        {
            monitor::install(p, interpreter_of(state));
        }
        core::mem::transmute::<*mut c_void, Three>(NEXT.load(Relaxed))(state, frame, throw)
    }
}

const fn fields_of(version: u16) -> Fields {
    match fields::of(version) {
        Some(f) => f,
        None => panic!("a version without fields"),
    }
}

/// The fields of a version, where it is known when the program is compiled.
struct Of<const V: u16>;
impl<const V: u16> Of<V> {
    const F: Fields = fields_of(V);
}

#[inline(always)]
unsafe fn word(p: *const u8, offset: u16) -> u64 {
    // SAFETY: the caller's object has that field.
    unsafe { p.add(offset as usize).cast::<u64>().read() }
}

#[inline(always)]
unsafe fn half(p: *const u8, offset: u16) -> u32 {
    // SAFETY: as above.
    unsafe { p.add(offset as usize).cast::<u32>().read() }
}

/// Whether a frame is no phase's, as nearly all are.
#[inline(always)]
unsafe fn is_none<const V: u16>(frame: Py) -> bool {
    // SAFETY: the interpreter's frame and its code object.
    unsafe {
        let code = word(frame, Of::<V>::F.code);
        half(code as *const u8, Of::<V>::F.flags) & OPTIMIZED != 0 && !codes::may_be(code)
    }
}

/// What tells a code object from another one at its address.
pub unsafe fn print_of(f: &Fields, code: *const u8) -> u64 {
    // SAFETY: the caller's code object.
    unsafe {
        let mix = |h: u64, v: u64| (h ^ v).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        [word(code, f.name), word(code, f.filename), word(code, f.constants)].into_iter().fold(half(code, f.first_line) as u64, mix)
    }
}

/// A frame that may be a phase's, or of a module's body.
#[cold]
#[inline(never)]
unsafe fn watched<const V: u16>(frame: Py, run: impl FnOnce() -> Py) -> Py {
    let f = &Of::<V>::F;
    // SAFETY: the interpreter's frame and its code object; its caller holds the frame till after we return.
    unsafe {
        let code = word(frame, f.code);
        let flags = half(code as *const u8, f.flags);
        if flags & OPTIMIZED == 0 {
            body(f, code, word(frame, f.globals) as Py);
        }
        let phase = codes::phase_of(code, || print_of(f, code as *const u8));
        // 3.11 makes a generator by running its function up to there.
        let makes = V == 0x030b && flags & SUSPENDS != 0 && frame.add(f.owner as usize).read() == 0;
        if phase.number == 0 || makes {
            return run();
        }
        phase.meet();
        begins(phase.number);
        let result = run();
        let slot = frame.add(f.locals as usize).cast::<Py>();
        let waits = !result.is_null() && flags & OPTIMIZED != 0 && is_over::<V>(frame, flags) && last::wait(slot);
        if !waits {
            ends(false);
        }
        result
    }
}

/// Whether a frame goes, with its locals, as soon as we return.
unsafe fn is_over<const V: u16>(frame: Py, flags: u32) -> bool {
    let f = &Of::<V>::F;
    // SAFETY: the interpreter's frame.
    unsafe {
        let object = if V < 0x030b { frame } else { word(frame, f.frame_object) as Py };
        if !object.is_null() && object.cast::<u64>().read() != 1 {
            return false;
        }
        match V {
            ..0x030a => word(frame, f.stack_top) == 0,
            0x030a => frame.add(f.state as usize).cast::<i8>().read() > 0,
            _ => flags & SUSPENDS == 0 || frame.offset(GENERATOR_STATE).cast::<i8>().read() >= 0,
        }
    }
}

/// The body of a module or of a class is about to run: which functions in a module are phases.
#[inline(never)]
pub unsafe fn body(f: &Fields, code: u64, globals: Py) {
    let Some(p) = cpython::get() else { return };
    let l = &p.walked.layout;
    // SAFETY: the interpreter's objects; it holds them while they run.
    unsafe {
        let is_module = |code: u64| chars(l, word(code as *const u8, f.name)).is_some_and(|c| c.begins(b"<module"));
        if globals.is_null() || !is_module(code) {
            return;
        }
        let (mut name, mut file, mut path) = ([0u8; 512], [0u8; 1024], [0u8; 512]);
        let named = (p.item)(globals, c"__name__".as_ptr());
        let Some(n) = chars(l, named as u64).map(|c| c.write(&mut name)) else { return };
        let at = chars(l, word(code as *const u8, f.filename)).map_or(0, |c| c.write(&mut file));
        let module = Module { name: name.get(..n).unwrap_or(b""), file: file.get(..at).unwrap_or(b"") };
        if module.is_wanted() {
            take(p, f, code, module.phase(b"<module>"));
            Inside { p, f, module: &module }.each(code, &mut path, 0, 0);
        }
    }
}

/// Says which phase a code object is.
unsafe fn take(p: &Cpython, f: &Fields, code: u64, phase: Phase) {
    // SAFETY: the caller's code object.
    unsafe {
        if codes::set(code, print_of(f, code as *const u8), phase) && phase.number != 0 {
            inlined::watch(p, code);
        }
    }
}

/// A module whose functions are looked at.
struct Inside<'a> {
    p: &'static Cpython,
    f: &'a Fields,
    module: &'a Module<'a>,
}

impl Inside<'_> {
    /// The code objects among the constants of `code`, whose names begin with `path[..len]`, and those inside them.
    unsafe fn each(&self, code: u64, path: &mut [u8; 512], len: usize, depth: u32) {
        let (l, f) = (&self.p.walked.layout, self.f);
        // SAFETY: a code object and its constants, which it holds.
        unsafe {
            let constants = word(code as *const u8, f.constants) as *const u8;
            if depth > 20 || constants.is_null() || word(constants, l.object_type) != self.p.tuple_type {
                return;
            }
            for i in 0..word(constants, l.bytes_size) {
                let inner = constants.add(ITEMS as usize).cast::<u64>().add(i as usize).read();
                if inner == 0 || word(inner as *const u8, l.object_type) != self.p.walked.code_type {
                    continue;
                }
                let Some(name) = chars(l, word(inner as *const u8, f.name)) else { continue };
                let end = len + path.get_mut(len..).map_or(0, |room| name.write(room));
                let is_function = half(inner as *const u8, f.flags) & OPTIMIZED != 0;
                if is_function {
                    take(self.p, f, inner, self.module.phase(path.get(..end).unwrap_or(b"")));
                }
                let joint = if is_function { &b".<locals>."[..] } else { b"." };
                let room = path.iter_mut().skip(end).zip(joint);
                let next = end + room.map(|(to, c)| *to = *c).count();
                self.each(inner, path, next, depth + 1);
            }
        }
    }
}

/// More calls deep than any stack has trouble with.
const DEEP: u32 = 150;
/// Bytes of stack that are left to C code.
const LEFT: u64 = 512 << 10;

/// Up to 3.10, where calls of Python take stack by themselves, as much as a program counts on: whether a phase's may take more.
#[cold]
#[inline(never)]
fn is_near() -> bool {
    let mark = 0u8;
    let near = thread_stacks::is_little_used(&raw const mark as u64);
    if !near {
        super::FAR_DOWN.store(true, Relaxed);
    }
    near
}

/// Whether the stack below `here` has room for C code.
pub fn has_room(here: u64) -> bool {
    thread_stacks::room_below(here) > LEFT
}

/// Whether a thread of 3.11 is in more than so many calls.
///
/// # Safety
/// The interpreter's thread state.
#[inline(always)]
pub unsafe fn is_deeper(state: Py, than: u32) -> bool {
    let f = &Of::<0x030b>::F;
    // SAFETY: the caller's promise.
    unsafe { half(state, f.calls).wrapping_sub(half(state, f.calls_left)) as i32 > than as i32 }
}

/// Far down in 3.11: where the stack comes to its end, calls from here on are left to the interpreter, which needs none of it for them.
#[cold]
#[inline(never)]
unsafe fn deep(state: Py, frame: Py, throw: c_int) -> Py {
    // SAFETY: the interpreter's call, passed on.
    unsafe {
        let next = core::mem::transmute::<*mut c_void, Three>(NEXT.load(Relaxed));
        let run = move || next(state, frame, throw);
        let here = &raw const next as u64;
        if has_room(here) {
            return if is_none::<0x030b>(frame) { run() } else { watched::<0x030b>(frame, run) };
        }
        let Some(p) = cpython::get() else { return run() };
        let interpreter = interpreter_of(state);
        AWAY.fetch_add(1, Relaxed);
        take_away(p, interpreter);
        super::FAR_DOWN.store(true, Relaxed);
        let result = run();
        AWAY.fetch_sub(1, Relaxed);
        put(p, interpreter);
        result
    }
}
