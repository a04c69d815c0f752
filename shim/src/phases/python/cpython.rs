//! The interpreter's functions that phases use, found in its object as its version names them.

use super::fields::{self, Fields, INTERPRETER};
use crate::elf::{self, of_type as function};
use crate::python::interpreter::{self, Interpreter};
use core::ffi::{c_char, c_int, c_long, c_void};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// A `PyObject*`.
pub type Py = *mut u8;

type Get = unsafe extern "C" fn() -> Py;
type Give = unsafe extern "C" fn(Py) -> Py;

/// What is needed of every version.
pub struct Cpython {
    pub walked: &'static Interpreter,
    /// `None`: a version whose fields are not known, which has monitoring.
    pub fields: Option<Fields>,
    pub is_initialized: unsafe extern "C" fn() -> c_int,
    /// The current thread state, null: this thread does not run Python now.
    pub current: Get,
    pub item: unsafe extern "C" fn(Py, *const c_char) -> Py,
    pub default_eval: *const c_void,
    /// Which function evaluates frames (from 3.9).
    pub eval_of: Option<Give>,
    pub type_type: Py,
    pub tuple_type: u64,
    pub monitoring: Option<Monitoring>,
    /// Of 3.11, unless one of its functions is missing or it is a debug build.
    pub inlined: Option<Inlined>,
}

/// What is needed of 3.11, whose calls from Python to Python are no calls in C.
pub struct Inlined {
    pub function_type: Py,
    /// `_PyFunction_Vectorcall`.
    pub call: unsafe extern "C" fn(Py, *const Py, usize, Py) -> Py,
    pub fetch_error: unsafe extern "C" fn(*mut Py, *mut Py, *mut Py),
    pub normalize_error: unsafe extern "C" fn(*mut Py, *mut Py, *mut Py),
    pub set_traceback: unsafe extern "C" fn(Py, Py) -> c_int,
    pub release: unsafe extern "C" fn(Py),
    pub first_interpreter: Get,
    pub next_interpreter: Give,
}

/// What is needed where there is `sys.monitoring`, from 3.12 on.
pub struct Monitoring {
    pub sys_object: unsafe extern "C" fn(*const c_char) -> Py,
    pub call_method: unsafe extern "C" fn(Py, *const c_char, *const c_char, ...) -> Py,
    pub attribute: unsafe extern "C" fn(Py, *const c_char) -> Py,
    pub new_function: unsafe extern "C" fn(*const c_void, Py, Py) -> Py,
    pub as_long: unsafe extern "C" fn(Py) -> c_long,
    pub globals: Get,
    pub release: unsafe extern "C" fn(Py),
    pub clear_error: unsafe extern "C" fn(),
    /// `PyCode_AddWatcher`.
    pub watch_codes: Option<unsafe extern "C" fn(unsafe extern "C" fn(c_int, Py) -> c_int) -> c_int>,
    pub interpreter_id: unsafe extern "C" fn(Py) -> i64,
    pub none: Py,
}

const UNSOUGHT: u32 = 0;
const SEEKING: u32 = 1;
const NOT_USABLE: u32 = 2;
const READY: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(UNSOUGHT);
static mut CPYTHON: Option<Cpython> = None;

/// The interpreter, if there is one in the process by now that can be used.
#[inline]
pub fn get() -> Option<&'static Cpython> {
    match STATE.load(Acquire) {
        // SAFETY: written once, before that.
        READY => unsafe { (*(&raw const CPYTHON)).as_ref() },
        UNSOUGHT => find(),
        _ => None,
    }
}

/// Whether there is one that cannot be used.
pub fn is_unusable() -> bool {
    STATE.load(Acquire) == NOT_USABLE || interpreter::state().is_some_and(|s| !s.known)
}

#[cold]
fn find() -> Option<&'static Cpython> {
    let walked = interpreter::get()?;
    STATE.compare_exchange(UNSOUGHT, SEEKING, AcqRel, Acquire).ok()?;
    // SAFETY: one thread comes here, once; the interpreter's object stays.
    unsafe {
        *(&raw mut CPYTHON) = gather(walked);
        let found = (*(&raw const CPYTHON)).as_ref();
        STATE.store(if found.is_some() { READY } else { NOT_USABLE }, Release);
        found
    }
}

unsafe fn gather(walked: &'static Interpreter) -> Option<Cpython> {
    let o = &raw const walked.object;
    // SAFETY: functions and variables of CPython have these types in every version that is recognised.
    unsafe {
        let object = |name: &[u8]| elf::find_in(o, name).map(|p| p.cast_mut().cast::<u8>());
        let monitoring = if walked.version >= 0x030c {
            Some(Monitoring {
                sys_object: function(o, b"PySys_GetObject")?,
                call_method: function(o, b"PyObject_CallMethod")?,
                attribute: function(o, b"PyObject_GetAttrString")?,
                new_function: function(o, b"PyCFunction_NewEx")?,
                as_long: function(o, b"PyLong_AsLong")?,
                globals: function(o, b"PyEval_GetGlobals")?,
                release: function(o, b"Py_DecRef")?,
                clear_error: function(o, b"PyErr_Clear")?,
                watch_codes: function(o, b"PyCode_AddWatcher"),
                interpreter_id: function(o, b"PyInterpreterState_GetID")?,
                none: object(b"_Py_NoneStruct")?,
            })
        } else {
            None
        };
        let inlined = || {
            Some(Inlined {
                function_type: object(b"PyFunction_Type")?,
                call: function(o, b"_PyFunction_Vectorcall")?,
                fetch_error: function(o, b"PyErr_Fetch")?,
                normalize_error: function(o, b"PyErr_NormalizeException")?,
                set_traceback: function(o, b"PyException_SetTraceback")?,
                release: function(o, b"Py_DecRef")?,
                first_interpreter: function(o, b"PyInterpreterState_Head")?,
                next_interpreter: function(o, b"PyInterpreterState_Next")?,
            })
        };
        // Debug builds check more of frames than is meant to hold.
        let is_debug = elf::find_in(o, b"_Py_RefTotal").is_some();
        let inlined = if walked.version == 0x030b && !is_debug { inlined() } else { None };
        // Free-threaded builds have other objects.
        let fields = fields::of(walked.version).filter(|_| walked.layout.object_type == 8);
        if fields.is_none() && monitoring.is_none() {
            return None;
        }
        Some(Cpython {
            walked,
            fields,
            is_initialized: function(o, b"Py_IsInitialized")?,
            current: function(o, b"_PyThreadState_UncheckedGet").or_else(|| function(o, b"PyThreadState_GetUnchecked"))?,
            item: function(o, b"PyDict_GetItemString")?,
            default_eval: elf::find_in(o, b"_PyEval_EvalFrameDefault")?,
            eval_of: function(o, b"_PyInterpreterState_GetEvalFrameFunc"),
            type_type: object(b"PyType_Type")?,
            tuple_type: object(b"PyTuple_Type")? as u64,
            monitoring,
            inlined,
        })
    }
}

impl Cpython {
    /// The place in an interpreter's state that says which function evaluates its frames, if what stands there is what the interpreter says.
    ///
    /// # Safety
    /// An interpreter that lives.
    pub unsafe fn eval_place(&self, interpreter: Py) -> Option<*mut *const c_void> {
        // SAFETY: the function's own code is read; then a word of the caller's interpreter.
        unsafe {
            let offset = match (self.fields, self.eval_of) {
                (Some(f), _) => f.eval_frame as usize,
                (None, Some(f)) => offset_in(f as *const u8)?,
                (None, None) => return None,
            };
            let place = interpreter.add(offset).cast::<*const c_void>();
            let there = *place;
            let fits = match self.eval_of {
                Some(f) => f(interpreter).cast_const().cast() == if there.is_null() { self.default_eval } else { there },
                None => there == self.default_eval || super::eval::is_ours(there),
            };
            fits.then_some(place)
        }
    }
}

/// The offset that a function reads at: `mov rax, [rdi + offset]` is its first instruction.
unsafe fn offset_in(function: *const u8) -> Option<usize> {
    // SAFETY: the first bytes of a function.
    unsafe {
        let at = if function.cast::<u32>().read_unaligned() == 0xfa1e_0ff3 { function.add(4) } else { function };
        let opens = at.cast::<u32>().read_unaligned() & 0x00ff_ffff == 0x0087_8b48;
        opens.then(|| at.add(3).cast::<u32>().read_unaligned() as usize)
    }
}

/// The interpreter of a thread state.
///
/// # Safety
/// A thread state that lives.
pub unsafe fn interpreter_of(state: Py) -> Py {
    // SAFETY: the caller's promise.
    unsafe { state.add(INTERPRETER as usize).cast::<Py>().read() }
}
