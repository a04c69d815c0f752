//! Which CPython is in this process. It is recognised by what its object exports: `_PyRuntime` (from 3.7) and functions of its API; the
//! version says the layout, and sizes that the interpreter states itself confirm it. What is not recognised is not walked.

use super::layout::{self, Layout};
use super::offsets;
use super::thread::peek;
use crate::elf::{self, Object};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

/// Functions of the interpreter that neither lock nor allocate.
pub type Ask = unsafe extern "C" fn() -> *const u8;

/// A recognised interpreter.
pub struct Interpreter {
    pub object: Object,
    pub layout: Layout,
    pub version: u16,
    pub runtime: *const u8,
    pub code_type: u64,
    /// `PyGILState_GetThisThreadState`.
    pub this_thread: Ask,
    /// `_PyThreadState_UncheckedGet`, `PyInterpreterState_Head` and `_Main`: up to 3.11, where only they tell of a subinterpreter.
    pub holder: Option<(Ask, Ask, Ask)>,
}

/// What to say of the interpreter.
#[derive(Clone, Copy)]
pub struct State {
    /// Such as `3.11.7`; empty: not to be found out.
    pub version: &'static [u8],
    /// Its frames are walked. Otherwise stacks are native only.
    pub known: bool,
    pub free_threaded: bool,
}

const NOT_FOUND: u32 = 0;
const UNKNOWN: u32 = 1;
const KNOWN: u32 = 2;

static FOUND: AtomicU32 = AtomicU32::new(NOT_FOUND);
static SEEKING: AtomicBool = AtomicBool::new(false);
static mut INTERPRETER: Option<Interpreter> = None;
static mut VERSION: [u8; 32] = [0; 32];
static mut FREE_THREADED: bool = false;

/// The interpreter, if there is one whose frames can be walked.
#[inline(always)]
pub fn get() -> Option<&'static Interpreter> {
    if FOUND.load(Acquire) != KNOWN {
        return None;
    }
    // SAFETY: written once, before that.
    unsafe { (*(&raw const INTERPRETER)).as_ref() }
}

/// What was found, `None`: no interpreter so far.
pub fn state() -> Option<State> {
    let found = FOUND.load(Acquire);
    if found == NOT_FOUND {
        return None;
    }
    // SAFETY: written once, before that.
    unsafe {
        let version = CStr::from_ptr((&raw const VERSION).cast()).to_bytes();
        Some(State { version, known: found == KNOWN, free_threaded: *(&raw const FREE_THREADED) })
    }
}

/// Looks at all objects of the loader's list. At the start, where nobody changes that list.
pub fn seek() {
    let mut o = elf::program();
    // SAFETY: the loader's list.
    unsafe {
        while !o.is_null() && !consider(o, None) {
            o = elf::next(o);
        }
    }
}

/// Looks whether a library is an interpreter.
///
/// # Safety
/// It is loaded, stays so, and may be called.
pub unsafe fn seek_in(library: &Object) {
    // SAFETY: the caller's promise.
    unsafe { consider(library, None) };
}

/// A library has been loaded whose file is `path` and which lies at `bias`: looks whether it is an interpreter, if its file's name says so.
/// On the writer.
pub fn notice(path: &[u8], bias: u64) {
    let file = path.rsplit(|c| *c == b'/').next().unwrap_or(path);
    if FOUND.load(Acquire) != NOT_FOUND || !file.starts_with(b"libpython") {
        return;
    }
    // The kernel reads the headers: they need not be there where one thinks.
    const WORDS: usize = 7;
    let mut header = [0u64; 8];
    if peek(bias, &mut header) != 64 || header[0] as u32 != u32::from_le_bytes(*b"\x7fELF") {
        return;
    }
    let (first, count) = (bias.wrapping_add(header[4]), (header[7] & 0xffff).min(64));
    for n in 0..count {
        let mut segment = [0u64; WORDS];
        if peek(first + n * 8 * WORDS as u64, &mut segment) == 8 * WORDS as i64 && segment[0] as u32 == libc::PT_DYNAMIC {
            let dynamic = bias.wrapping_add(segment[2]);
            let mut entry = [0u64; 2];
            if peek(dynamic, &mut entry) == 16 {
                // The writer can call no function of the C library's kind, and the library may not be ready for calls: its name says the version.
                let name = file.get(b"libpython".len()..).unwrap_or(b"");
                let digits = name.iter().position(|c| !c.is_ascii_digit() && *c != b'.').unwrap_or(name.len());
                let digits = name.get(..digits).unwrap_or(b"");
                let named = digits.strip_suffix(b".").unwrap_or(digits);
                // SAFETY: a library of that name that is loaded; programs that run Python do not unload it.
                unsafe { consider(&Object::new(bias, dynamic as *const [u64; 2]), Some(named)) };
            }
        }
    }
}

/// Looks whether an object is an interpreter; true: one is known now. Neither locks nor allocates; a few thousand instructions.
///
/// # Safety
/// `o` is a loaded object that stays so. Its version is `named`; `None`: it can be asked.
unsafe fn consider(o: *const Object, named: Option<&[u8]>) -> bool {
    if FOUND.load(Acquire) != NOT_FOUND {
        return true;
    }
    // SAFETY: the caller's object; addresses of its functions and variables, which have these types in every CPython.
    unsafe {
        let find = |name: &[u8]| elf::find_in(o, name);
        let Some(this_thread) = find(b"PyGILState_GetThisThreadState") else { return false };
        if SEEKING.swap(true, Acquire) {
            return false;
        }
        if FOUND.load(Acquire) == NOT_FOUND {
            let version = match (named, find(b"Py_GetVersion")) {
                (Some(name), _) => keep_version(name),
                // It may be called at any time: it formats constants into a buffer of its own.
                (None, Some(f)) => keep_version(CStr::from_ptr(ask(f.cast())().cast::<c_char>()).to_bytes()),
                (None, None) => 0,
            };
            let version = find(b"Py_Version").map_or(version, |v| (v.cast::<u32>().read() >> 16) as u16);
            let found = recognise((*o).alone(), version, ask(this_thread.cast()), |name| find(name).map(|p| p.cast()));
            *(&raw mut INTERPRETER) = found;
            FOUND.store(if (*(&raw const INTERPRETER)).is_some() { KNOWN } else { UNKNOWN }, Release);
        }
        SEEKING.store(false, Release);
        true
    }
}

/// # Safety
/// `f` is a function without arguments that gives a pointer.
unsafe fn ask(f: *const u8) -> Ask {
    // SAFETY: the caller's promise.
    unsafe { core::mem::transmute(f) }
}

/// Keeps the version's name and makes its number.
fn keep_version(text: &[u8]) -> u16 {
    // SAFETY: the one place where VERSION is written.
    unsafe {
        let (mut parts, mut part) = ([0u16; 3], 0);
        let kept = &mut *(&raw mut VERSION);
        for (c, kept) in text.iter().zip(kept.iter_mut().take(31)) {
            match c {
                b'.' => part += 1,
                b'0'..=b'9' => {
                    if let Some(p) = parts.get_mut(part) {
                        *p = p.wrapping_mul(10).wrapping_add((c - b'0') as u16);
                    }
                }
                b' ' => break,
                _ => part = 3,
            }
            *kept = *c;
        }
        let [major, minor, _] = parts;
        major << 8 | minor & 0xff
    }
}

/// # Safety
/// `find` gives addresses of a loaded interpreter's exports.
unsafe fn recognise(object: Object, version: u16, this_thread: Ask, find: impl Fn(&[u8]) -> Option<*const u8>) -> Option<Interpreter> {
    let runtime = find(b"_PyRuntime")?;
    let (code_type, type_type) = (find(b"PyCode_Type")?, find(b"PyType_Type")?);
    // SAFETY: the interpreter's own static variables.
    unsafe {
        let (layout, free_threaded) = match layout::of(version) {
            Some(layout) => (layout, false),
            None => offsets::read(runtime.cast(), version)?,
        };
        *(&raw mut FREE_THREADED) = free_threaded;
        // A build with other object heads (for tracing references) has its types elsewhere; other fields make other sizes.
        let head = layout.object_type as usize;
        let fits = |t: *const u8, size: u16| {
            t.add(head).cast::<*const u8>().read() == type_type && t.add(head + 24).cast::<u64>().read() == size as u64
        };
        let others = (find(b"PyUnicode_Type")?, find(b"PyBytes_Type")?);
        if !fits(code_type, layout.code_size) || !fits(others.0, layout.unicode_compact + 8) || !fits(others.1, layout.bytes_data + 1) {
            return None;
        }
        let holder = if version < 0x030c {
            let f = |name: &[u8]| find(name).map(|p| ask(p));
            Some((f(b"_PyThreadState_UncheckedGet")?, f(b"PyInterpreterState_Head")?, f(b"PyInterpreterState_Main")?))
        } else {
            None
        };
        Some(Interpreter { object, layout, version, runtime, code_type: code_type as u64, this_thread, holder })
    }
}
