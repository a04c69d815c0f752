//! CUPTI's library: found where programs of CUDA have it, opened where nobody has yet, and only if it is of a version whose records are known.

use super::super::libcuda::own_functions;
use super::{places, records};
use crate::text::Text;
use crate::{loaded, real, sys};
use core::ffi::{CStr, c_char, c_int, c_void};

/// What the file's name begins with, whatever its version.
pub const NAME: &[u8] = b"libcupti.so";

own_functions! {
    version: "cuptiGetVersion", (*mut u32);
    timestamp: "cuptiGetTimestamp", (*mut u64);
    subscribe: "cuptiSubscribe", (*mut usize, *const c_void, *mut c_void);
    enable_callback: "cuptiEnableCallback", (u32, usize, u32, u32);
    register: "cuptiActivityRegisterCallbacks", (*const c_void, *const c_void);
    enable: "cuptiActivityEnable", (u32);
    disable: "cuptiActivityDisable", (u32);
    flush_all: "cuptiActivityFlushAll", (u32);
    next_record: "cuptiActivityGetNextRecord", (*mut u8, usize, *mut *mut u8);
    unsubscribe: "cuptiUnsubscribe", (usize);
    dropped: "cuptiActivityGetNumDroppedRecords", (*mut c_void, u32, *mut usize);
    finalize: "cuptiFinalize", ();
}

/// CUPTI's functions. It can do without the last three.
pub fn own() -> &'static Own {
    // SAFETY: written once, by the thread that uses them.
    unsafe { &*(&raw const OWN) }
}

/// Why there is no CUPTI.
pub enum Refused {
    /// The program uses it itself.
    Program,
    NotFound,
    Symbol(&'static str),
    Version(u32),
    Call(&'static str, i32),
    Memory,
}

impl Refused {
    /// As a text for the trace.
    pub fn write<'a>(&self, space: &'a mut [u8]) -> &'a [u8] {
        let mut t = Text::over(space);
        match *self {
            Refused::Program => t.str("the program uses CUPTI itself"),
            Refused::NotFound => t.str(
                "no libcupti: not loaded, not beside libcudart, in no nvidia package of Python, not on the loader's path, not in CUDA_HOME, CUDA_PATH or /usr/local/cuda",
            ),
            Refused::Symbol(name) => t.bytes(path()).str(" has no ").str(name),
            Refused::Version(v) => t.bytes(path()).str(" is of version ").num(v as u64).str(", whose records are not known"),
            Refused::Memory => t.str("no memory for its buffers"),
            Refused::Call(call, code) => t.str(call).str(": ").str(meaning(code)).str(" (").int(code as i64).str(")"),
        };
        let n = t.len();
        space.get(..n).unwrap_or(b"")
    }
}

/// What a code of CUPTI's says to a user.
fn meaning(code: i32) -> &'static str {
    match code {
        15 => "CUPTI cannot be initialised, is there a driver",
        33 => "not on this virtual GPU",
        35 | 40 => "insufficient privileges (the driver's NVreg_RestrictProfilingToAdminUsers)",
        36 | 38 => "another profiling interface is in use or too old a device",
        39 => "another tool holds CUPTI: nsys, ncu, a debugger or a profiler in the program",
        41 => "not with confidential computing",
        42..=45 => "not on this device",
        999 => "an error inside CUPTI or the driver",
        _ => "refused",
    }
}

static mut PATH: [u8; 512] = [0; 512];

/// Where the library lies, as far as it fits.
pub fn path() -> &'static [u8] {
    // SAFETY: written once, by the thread that reads it.
    let all = unsafe { &*(&raw const PATH) };
    all.get(..all.iter().position(|c| *c == 0).unwrap_or(0)).unwrap_or(b"")
}

/// Finds or opens it and takes its functions. Gives its version.
pub fn open(driver: i32) -> Result<u32, Refused> {
    let newest = (driver / 1000).clamp(11, 13) as u64;
    let found = loaded::find(NAME).or_else(|| {
        places::each(newest, load).then_some(())?;
        loaded::find(NAME)
    });
    let Some(found) = found else { return Err(Refused::NotFound) };
    found.keep();
    let object = found.object();
    // SAFETY: a loaded object that stays; one thread.
    unsafe {
        let name = if found.name().is_null() { b"" } else { CStr::from_ptr(found.name()).to_bytes() };
        Text::over(&mut *(&raw mut PATH)).bytes(name.get(..name.len().min(511)).unwrap_or(b"")).str("\0");
        settle(&raw const object);
    }
    let mut version = 0u32;
    let Some(ask) = own().version else { return Err(Refused::Symbol("cuptiGetVersion")) };
    // SAFETY: writes one number.
    match unsafe { ask(&raw mut version) } {
        0 if records::are_known(version) => Ok(version),
        0 => Err(Refused::Version(version)),
        code => Err(Refused::Call("cuptiGetVersion", code)),
    }
}

/// Opens a library, which then stays.
fn load(path: &CStr) -> bool {
    let open = real::default(b"dlopen");
    if open.is_null() {
        return false;
    }
    // SAFETY: the C library's function; on a thread of ours, under nobody's lock.
    unsafe {
        let open: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void = core::mem::transmute(open);
        sys::keep_errno(|| !open(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE).is_null())
    }
}
