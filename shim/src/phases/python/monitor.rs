//! From 3.12 on: `sys.monitoring`, under a tool number of our own. The interpreter tells of each code object that it makes (a "watcher"); of
//! those that have a name which a rule knows, the first call is asked for, where the module is known, and of those that are phases all
//! that begins and ends them. All other code is as it was, instruction by instruction. Exceptions that leave a frame or enter a generator
//! are told for all code or none, so they are asked for from the first phase on.
//!
//! Where no watcher can be had, the first call of every code object is asked for: that costs later calls nothing, but instructions that
//! were fused are single again (3.12), and each code object some memory.

use super::cpython::{Cpython, Monitoring, Py};
use super::rules::{self, Module, NONE, Phase};
use super::{begins, ends};
use super::{codes, cpython, eval, last};

use crate::python::strings::chars;
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::*};

/// Which event: its place in [`METHODS`].
const START: usize = 0;
const RESUME: usize = 1;
const THROW: usize = 2;
const RETURN: usize = 3;
const YIELD: usize = 4;
const UNWIND: usize = 5;
/// Their bits, which differ between versions: the interpreter says them.
static BITS: [AtomicI32; 6] = [const { AtomicI32::new(0) }; 6];

/// The bits of some events together.
fn bits<const N: usize>(events: [usize; N]) -> c_int {
    events.into_iter().filter_map(|e| BITS.get(e)).map(|b| b.load(Relaxed)).sum()
}

type Called = unsafe extern "C" fn(Py, *const Py, isize) -> Py;

/// A `PyMethodDef`.
#[repr(C)]
struct Method {
    name: *const c_char,
    call: Option<Called>,
    flags: c_int,
    doc: *const c_char,
}
// SAFETY: constants.
unsafe impl Sync for Method {}

const FASTCALL: c_int = 0x80;

const fn method(name: &'static core::ffi::CStr, call: Called) -> Method {
    Method { name: name.as_ptr(), call: Some(call), flags: FASTCALL, doc: core::ptr::null() }
}

/// What is called for which event. The program sees their names in nothing but the tool's registration.
static METHODS: [(&core::ffi::CStr, Method); 6] = [
    (c"PY_START", method(c"start", starts)),
    (c"PY_RESUME", method(c"resume", resumes)),
    (c"PY_THROW", method(c"throw", resumes)),
    (c"PY_RETURN", method(c"return", returns)),
    (c"PY_YIELD", method(c"yield", suspends)),
    (c"PY_UNWIND", method(c"unwind", suspends)),
];

/// Numbers that no well-known tool has; 0 while there is none.
const TOOLS: [u32; 2] = [4, 3];
/// Asked for in all code.
static FOR_ALL: AtomicI32 = AtomicI32::new(0);
static TOOL: AtomicU32 = AtomicU32::new(0);
/// `sys.monitoring.DISABLE`, one for all interpreters.
static DISABLE: AtomicU64 = AtomicU64::new(0);

/// Interpreters by number that have been set up, and those in which a phase was seen. Of later ones nothing is told.
const INTERPRETERS: usize = 4096;
static DONE: [AtomicU64; INTERPRETERS / 64] = [const { AtomicU64::new(0) }; INTERPRETERS / 64];
static MET: [AtomicU64; INTERPRETERS / 64] = [const { AtomicU64::new(0) }; INTERPRETERS / 64];

fn bit(id: i64) -> (usize, u64) {
    ((id as usize >> 6) % (INTERPRETERS / 64), 1 << (id & 63))
}

/// Whether an interpreter is set up, or never will be.
///
/// # Safety
/// An interpreter that lives.
pub unsafe fn is_done(p: &Cpython, interpreter: Py) -> bool {
    let Some(m) = &p.monitoring else { return true };
    // SAFETY: the caller's interpreter.
    let id = unsafe { (m.interpreter_id)(interpreter) };
    let (word, mask) = bit(id);
    !(0..INTERPRETERS as i64).contains(&id) || DONE.get(word).is_some_and(|w| w.load(Relaxed) & mask != 0)
}

/// An interpreter is being made where there was none: numbers begin anew.
pub fn forget() {
    for word in DONE.iter().chain(&MET) {
        word.store(0, Relaxed);
    }
}

/// Sets monitoring up in an interpreter, unless it is too early.
///
/// # Safety
/// This thread runs that interpreter, between two steps of its loop, and no exception is on its way.
pub unsafe fn install(p: &Cpython, interpreter: Py) {
    let Some(m) = &p.monitoring else { return };
    // SAFETY: as the caller says; objects that are returned are owned, but for those of `sys_object`.
    unsafe {
        if (p.is_initialized)() == 0 || is_done(p, interpreter) {
            return;
        }
        let monitoring = (m.sys_object)(c"monitoring".as_ptr());
        if monitoring.is_null() {
            return;
        }
        let (word, mask) = bit((m.interpreter_id)(interpreter));
        if let Some(w) = DONE.get(word) {
            w.fetch_or(mask, Relaxed);
        }
        eval::take_away(p, interpreter);
        last::settle(p);
        if !register(m, monitoring) {
            super::FAILED.store(true, Relaxed);
        }
    }
}

/// Lets go of a result; false: it was an error, which is no one's.
unsafe fn went_well(m: &Monitoring, result: Py) -> bool {
    // SAFETY: an owned object or null.
    unsafe { if result.is_null() { (m.clear_error)() } else { (m.release)(result) } }
    !result.is_null()
}

unsafe fn register(m: &Monitoring, monitoring: Py) -> bool {
    // SAFETY: calls of methods with arguments as their formats say.
    unsafe {
        let take =
            |tool: u32| went_well(m, (m.call_method)(monitoring, c"use_tool_id".as_ptr(), c"Is".as_ptr(), tool, c"memshim".as_ptr()));
        let known = TOOL.load(Relaxed);
        let tool = if known != 0 { Some(known).filter(|t| take(*t)) } else { TOOLS.into_iter().find(|t| take(*t)) };
        let disable = (m.attribute)(monitoring, c"DISABLE".as_ptr());
        let Some(tool) = tool.filter(|_| !disable.is_null()) else {
            went_well(m, disable);
            return false;
        };
        TOOL.store(tool, Relaxed);
        DISABLE.store(disable as u64, Relaxed);
        let events = (m.attribute)(monitoring, c"events".as_ptr());
        let all = METHODS.iter().zip(&BITS).all(|((event, method), bit)| {
            let number = if events.is_null() { events } else { (m.attribute)(events, event.as_ptr()) };
            if !number.is_null() {
                bit.store((m.as_long)(number) as c_int, Relaxed);
            }
            if !went_well(m, number) {
                return false;
            }
            let f = (m.new_function)((method as *const Method).cast::<c_void>(), core::ptr::null_mut(), core::ptr::null_mut());
            // `N` takes the function over, null is an error that is passed on.
            went_well(m, (m.call_method)(monitoring, c"register_callback".as_ptr(), c"IiN".as_ptr(), tool, bit.load(Relaxed), f))
        });
        went_well(m, events);
        let watched = m.watch_codes.is_some_and(|watch| watch(made) >= 0);
        if !watched {
            (m.clear_error)();
            FOR_ALL.store(bits([START]), Relaxed);
        }
        all && (watched || went_well(m, (m.call_method)(monitoring, c"set_events".as_ptr(), c"Ii".as_ptr(), tool, bits([START]))))
    }
}

/// A code object is made (0), or about to be no more.
unsafe extern "C" fn made(event: c_int, code: Py) -> c_int {
    let Some((p, m)) = cpython::get().and_then(|p| Some((p, p.monitoring.as_ref()?))) else { return 0 };
    // SAFETY: the interpreter's call: the code object is whole.
    unsafe {
        if event != 0 {
            codes::forget(code as u64);
            return 0;
        }
        let (l, mut function) = (&p.walked.layout, [0u8; 512]);
        let Some(n) = chars(l, code.add(l.qualname as usize).cast::<u64>().read()).map(|c| c.write(&mut function)) else { return 0 };
        if rules::may_be(function.get(..n).unwrap_or(b"")) {
            let monitoring = (m.sys_object)(c"monitoring".as_ptr());
            if !monitoring.is_null() {
                let tool = TOOL.load(Relaxed);
                went_well(m, (m.call_method)(monitoring, c"set_local_events".as_ptr(), c"IOi".as_ptr(), tool, code, bits([START])));
            }
        }
    }
    0
}

unsafe fn none(m: &Monitoring) -> Py {
    // Not mortal from 3.12 on.
    m.none
}

unsafe fn argument(arguments: *const Py, count: isize) -> Py {
    // SAFETY: the interpreter's call.
    if count < 1 { core::ptr::null_mut() } else { unsafe { *arguments } }
}

/// What tells a code object from another one at its address.
unsafe fn print_of(p: &Cpython, code: Py) -> u64 {
    // SAFETY: the caller's code object.
    unsafe { code.add(p.walked.layout.stamp as usize).cast::<u32>().read() as u64 }
}

/// The phase that a code object is by the rules.
unsafe fn decide(p: &Cpython, m: &Monitoring, code: Py) -> Phase {
    let l = &p.walked.layout;
    // SAFETY: a code object, whose frame is the current one.
    unsafe {
        let field = |offset: u16| code.add(offset as usize).cast::<u64>().read();
        let (mut name, mut file, mut function) = ([0u8; 512], [0u8; 1024], [0u8; 512]);
        let globals = (m.globals)();
        if globals.is_null() {
            return NONE;
        }
        let Some(n) = chars(l, (p.item)(globals, c"__name__".as_ptr()) as u64).map(|c| c.write(&mut name)) else { return NONE };
        let at = chars(l, field(l.filename)).map_or(0, |c| c.write(&mut file));
        let module = Module { name: name.get(..n).unwrap_or(b""), file: file.get(..at).unwrap_or(b"") };
        if !module.is_wanted() {
            return NONE;
        }
        let Some(n) = chars(l, field(l.qualname)).map(|c| c.write(&mut function)) else { return NONE };
        let function = function.get(..n).unwrap_or(b"");
        let phase = module.phase(function);
        if phase.number == 0 || function.starts_with(b"<module") {
            return phase;
        }
        // The body of a class is none.
        let flags = (m.attribute)(code, c"co_flags".as_ptr());
        let optimized = !flags.is_null() && (m.as_long)(flags) & eval::OPTIMIZED as i64 != 0;
        went_well(m, flags);
        if optimized { phase } else { NONE }
    }
}

unsafe extern "C" fn starts(_: Py, arguments: *const Py, count: isize) -> Py {
    let Some((p, m)) = cpython::get().and_then(|p| Some((p, p.monitoring.as_ref()?))) else { return core::ptr::null_mut() };
    // SAFETY: the interpreter's call: its first argument is the code object of the current frame.
    unsafe {
        let code = argument(arguments, count);
        if code.is_null() {
            return none(m);
        }
        let print = print_of(p, code);
        let mut phase = codes::phase_of(code as u64, || print);
        if phase.number == 0 || !is_asked_for(p, m) {
            phase = decide(p, m, code);
            if phase.number == 0 || !codes::set(code as u64, print, phase) {
                return DISABLE.load(Relaxed) as Py;
            }
            ask_for(p, m, code);
        }
        phase.meet();
        begins(phase.number);
        none(m)
    }
}

/// Whether this interpreter tells of exceptions.
unsafe fn is_asked_for(p: &Cpython, m: &Monitoring) -> bool {
    // SAFETY: this thread runs an interpreter.
    unsafe {
        let (word, mask) = bit((m.interpreter_id)(cpython::interpreter_of((p.current)())));
        MET.get(word).is_some_and(|w| w.load(Relaxed) & mask != 0)
    }
}

/// Asks for all that is to be known of a code object.
unsafe fn ask_for(p: &Cpython, m: &Monitoring, code: Py) {
    let tool = TOOL.load(Relaxed);
    // SAFETY: as in `register`.
    unsafe {
        let monitoring = (m.sys_object)(c"monitoring".as_ptr());
        if monitoring.is_null() {
            return;
        }
        if !is_asked_for(p, m) {
            let (word, mask) = bit((m.interpreter_id)(cpython::interpreter_of((p.current)())));
            if let Some(w) = MET.get(word) {
                w.fetch_or(mask, Relaxed);
            }
            let events = FOR_ALL.load(Relaxed) | bits([UNWIND, THROW]);
            went_well(m, (m.call_method)(monitoring, c"set_events".as_ptr(), c"Ii".as_ptr(), tool, events));
        }
        let events = bits([START, RESUME, RETURN, YIELD]);
        went_well(m, (m.call_method)(monitoring, c"set_local_events".as_ptr(), c"IOi".as_ptr(), tool, code, events));
    }
}

/// The phase of the code object that an event is of, and what the interpreter gets back.
unsafe fn told(arguments: *const Py, count: isize) -> (u32, Py) {
    let Some((p, m)) = cpython::get().and_then(|p| Some((p, p.monitoring.as_ref()?))) else { return (0, core::ptr::null_mut()) };
    // SAFETY: the interpreter's call.
    unsafe {
        let code = argument(arguments, count);
        (if code.is_null() { 0 } else { codes::phase_of(code as u64, || print_of(p, code)).number }, none(m))
    }
}

unsafe extern "C" fn resumes(_: Py, arguments: *const Py, count: isize) -> Py {
    // SAFETY: the interpreter's call.
    let (phase, none) = unsafe { told(arguments, count) };
    if phase != 0 {
        begins(phase);
    }
    none
}

unsafe extern "C" fn suspends(_: Py, arguments: *const Py, count: isize) -> Py {
    // SAFETY: the interpreter's call.
    let (phase, none) = unsafe { told(arguments, count) };
    if phase != 0 {
        ends(false);
    }
    none
}

unsafe extern "C" fn returns(_: Py, arguments: *const Py, count: isize) -> Py {
    // SAFETY: the interpreter's call.
    unsafe {
        let (phase, none) = told(arguments, count);
        if phase != 0 {
            match locals(argument(arguments, count)) {
                Locals::Wait => {}
                Locals::Go => ends(true),
                Locals::Stay => ends(false),
            }
        }
        none
    }
}

/// What becomes of a frame's locals when it returns.
enum Locals {
    /// They go, and tell the end.
    Wait,
    /// They go.
    Go,
    /// Somebody else holds the frame, or they are a module's.
    Stay,
}

/// What becomes of the locals of the current frame. They tell the end where no other tool is told of the return after us.
unsafe fn locals(code: Py) -> Locals {
    let Some(p) = cpython::get() else { return Locals::Stay };
    let Some(f) = &p.fields else { return Locals::Go };
    let (l, tool) = (&p.walked.layout, TOOL.load(Relaxed));
    // SAFETY: the interpreter's call; the current frame is this thread's and executing.
    unsafe {
        let state = (p.current)();
        let mut frame = state.add(l.top as usize).cast::<Py>().read();
        if l.cframe_current != crate::python::NONE {
            frame = frame.add(l.cframe_current as usize).cast::<Py>().read();
        }
        let field = |offset: u16| frame.add(offset as usize).cast::<Py>().read();
        // From 3.14 on its lowest bits say how it is held.
        if frame.is_null() || (field(f.code) as u64 & !7) as Py != code || !field(f.locals).is_null() {
            return Locals::Stay;
        }
        let object = field(f.frame_object);
        if !object.is_null() && object.cast::<u64>().read() as u32 != 1 {
            return Locals::Stay;
        }
        // Of the tools that are told of this return those with lower numbers are told after us.
        let known = code.add(f.monitoring as usize).cast::<Py>().read();
        let tools = if known.is_null() { 0 } else { known.add(f.return_tools as usize).read() };
        let is_last = tools & ((2u8 << tool) - 1) == 1 << tool;
        if is_last && last::wait(frame.add(f.locals as usize).cast()) { Locals::Wait } else { Locals::Go }
    }
}
