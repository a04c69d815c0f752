//! What a process starts next: the program's name, and whether its environment brings it this library. A program that is started with a cleared
//! environment is recorded by nobody; who started it can say so.

use crate::elf::{self, weak_symbol};
use crate::sys::{self, sys};
use core::ffi::{CStr, c_char};
use memshim_format::phase;

/// Bytes of a name that are kept: what six words of a record hold.
const NAME: usize = 42;
/// Variables looked at.
const VARIABLES: usize = 1 << 16;

/// Name of the library's file; empty where it did not come by `LD_PRELOAD`: then no environment says who gets it.
static mut OURS: &[u8] = b"";

/// A program that is about to run in this process, or in one of its children.
pub struct Next {
    name: [u8; NAME],
    len: usize,
    /// Its environment has no `LD_PRELOAD` that names this library.
    pub bare: bool,
    /// So far as can be told there is a program to run.
    pub there: bool,
}

/// Which environment it is to have.
#[derive(Clone, Copy)]
pub enum Environment {
    /// The process's own.
    Own,
    Given(*const *const c_char),
    Unknown,
}

/// Notes by which name the library is preloaded. One thread, at the start.
pub fn settle() {
    // SAFETY: one thread; the loader's list and its strings, which stay.
    unsafe {
        let us = elf::ourselves();
        if us.is_null() || elf::name(us).is_null() {
            return;
        }
        OURS = file_of(CStr::from_ptr(elf::name(us)).to_bytes());
        if names_us(own(), true) != Some(true) {
            OURS = b"";
        }
    }
}

impl Next {
    /// Of a path or a name that is looked for in `PATH`; null: not known.
    ///
    /// # Safety
    /// `path` is null or a string; `env` is what the program gave.
    pub unsafe fn of(path: *const c_char, env: Environment) -> Next {
        // SAFETY: the caller's promise.
        unsafe {
            let path = if path.is_null() || !readable(path.cast()) { &b""[..] } else { CStr::from_ptr(path).to_bytes_with_nul() };
            let text = file_of(path.get(..path.len().saturating_sub(1)).unwrap_or(b""));
            let mut next = Next { name: [0; NAME], len: 0, bare: is_bare(env), there: !path.contains(&b'/') || is_there(path) };
            next.len = phase::cut(text, NAME);
            next.name.iter_mut().zip(text.iter().take(next.len)).for_each(|(to, c)| *to = *c);
            next
        }
    }

    /// Name of the program's file.
    pub fn name(&self) -> &[u8] {
        self.name.get(..self.len).unwrap_or(b"")
    }

    /// The same, as words of a record.
    pub fn words(&self) -> [u64; 6] {
        let [a, b, c, d, e, f, _] = phase::words(self.name());
        [a, b, c, d, e, f]
    }
}

fn file_of(path: &[u8]) -> &[u8] {
    path.rsplit(|c| *c == b'/').next().unwrap_or(path)
}

/// Whether there is a program that may be run; `path` ends in a zero.
fn is_there(path: &[u8]) -> bool {
    // SAFETY: zero-terminated.
    unsafe { sys!(libc::SYS_faccessat, libc::AT_FDCWD, path.as_ptr(), libc::X_OK) == 0 }
}

/// Whether a program with this environment is not followed. What cannot be told counts as followed.
unsafe fn is_bare(env: Environment) -> bool {
    // SAFETY: settled at the start; the caller's environment.
    unsafe {
        let env = match env {
            _ if OURS.is_empty() => return false,
            Environment::Own => own(),
            Environment::Given(env) => env,
            Environment::Unknown => return false,
        };
        names_us(env, env == own()) == Some(false)
    }
}

/// The process's environment, which may be none.
fn own() -> *const *const c_char {
    let environ: *const *const *const c_char = weak_symbol!("__environ").cast();
    // SAFETY: the C library's variable.
    unsafe { if environ.is_null() { core::ptr::null() } else { *environ } }
}

/// Whether an environment names this library in `LD_PRELOAD`; `None`: it cannot be read. `trusted`: it can.
unsafe fn names_us(env: *const *const c_char, trusted: bool) -> Option<bool> {
    if env.is_null() {
        return Some(false);
    }
    // SAFETY: a list that ends with a null; of one that a program hands to the kernel each part is asked for first.
    unsafe {
        for i in 0..VARIABLES {
            let slot = env.wrapping_add(i);
            if !trusted && !readable(slot.cast()) {
                return None;
            }
            let entry = *slot;
            if entry.is_null() {
                return Some(false);
            }
            if !trusted && !readable(entry.cast()) {
                return None;
            }
            if let Some(value) = CStr::from_ptr(entry).to_bytes().strip_prefix(b"LD_PRELOAD=") {
                let ours = OURS;
                return Some(value.windows(ours.len().max(1)).any(|part| part == ours));
            }
        }
    }
    None
}

/// Whether a program's pointer leads to memory: a wrong one is the kernel's to refuse. Where it may not be asked, it is taken for right.
fn readable(at: *const u8) -> bool {
    let mut byte = 0u8;
    // SAFETY: a byte has room for one.
    unsafe { sys::copy_own(at as u64, &raw mut byte, 1) != -libc::EFAULT as i64 }
}
