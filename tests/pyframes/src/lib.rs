//! The shim's walk along Python frames, for tests: called by Python through ctypes (`frames_*`), or preloaded, where it walks in every
//! `malloc`.
//!
//! Not for measuring: nodes are interned in ordinary maps here.
#![allow(dead_code, unused_imports, clippy::deref_addrof)] // parts of the shim are here that it uses and this does not

#[path = "../../../shim/src/elf.rs"]
mod elf;
#[path = "../../../shim/src/python/mod.rs"]
mod python;
#[path = "../../support/share.rs"]
mod share;
mod storm;
#[path = "../../../shim/src/sys.rs"]
mod sys;

use memshim_format::pylines;
use python::{Definition, Python, Spot};
use std::alloc::{Layout, alloc_zeroed};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// What a number of a code object stands for.
struct Code {
    file: Vec<u8>,
    name: Vec<u8>,
    first_line: u32,
    version: u16,
}

static CODES: Mutex<Vec<Option<Code>>> = Mutex::new(Vec::new());

/// A thread's remembered stack and its nodes.
struct Walker {
    python: Box<Python>,
    /// Caller's node, code, instruction and entry, line as a node says it.
    nodes: Vec<(u32, u32, u32, u32)>,
    numbers: HashMap<(u32, u32, u32), u32>,
    asked: u64,
}

impl Walker {
    fn new() -> Walker {
        // SAFETY: of a type with a size; all zero is a good beginning, it says.
        let python = unsafe { Box::from_raw(alloc_zeroed(Layout::new::<Python>()).cast::<Python>()) };
        Walker { python, nodes: Vec::new(), numbers: HashMap::new(), asked: 0 }
    }

    fn walk(&mut self) -> u32 {
        let Walker { python, nodes, numbers, asked } = self;
        let mut node = |parent, code, at, spot: &Spot| {
            *asked += 1;
            *numbers.entry((parent, code, at)).or_insert_with(|| {
                // SAFETY: the walk is under way.
                let said = if code == 0 { 0 } else { unsafe { spot.line_said() } };
                nodes.push((parent, code, at, said));
                nodes.len() as u32
            })
        };
        // SAFETY: this thread's.
        unsafe { python.update(&mut node, &mut define) }
    }
}

fn define(d: &Definition) -> bool {
    let mut codes = CODES.lock().expect("no panic while it is held");
    let n = d.number as usize;
    if codes.len() <= n {
        codes.resize_with(n + 1, || None);
    }
    assert!(codes[n].is_none(), "number {n} is defined twice");
    codes[n] = Some(Code { file: d.file.into(), name: d.name.into(), first_line: d.first_line, version: d.version });
    true
}

thread_local! {
    static WALKER: RefCell<Walker> = RefCell::new(Walker::new());
}

/// A frame as Python sees it.
#[repr(C)]
pub struct Row {
    code: u32,
    /// Its instruction, in units of two bytes.
    index: u32,
    entry: u32,
    /// 0: none.
    line: u32,
}

/// Looks for the interpreter; 1: it is known, 0: it is not, −1: there is none.
#[unsafe(no_mangle)]
pub extern "C" fn frames_seek() -> i32 {
    python::seek();
    python::state().map_or(-1, |s| s.known as i32)
}

/// Tells of a library that was loaded later, as [`frames_seek`].
///
/// # Safety
/// `path` is zero-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn frames_notice(path: *const c_char, bias: u64) -> i32 {
    // SAFETY: the caller's string.
    python::notice(unsafe { CStr::from_ptr(path) }.to_bytes(), bias);
    python::state().map_or(-1, |s| s.known as i32)
}

/// The version that was found, zero-terminated, into 32 bytes.
///
/// # Safety
/// `out` has 32 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn frames_version(out: *mut u8) {
    let version = python::state().map_or(&b""[..], |s| s.version);
    for (i, c) in version.iter().chain(&[0]).enumerate().take(32) {
        // SAFETY: the caller's room.
        unsafe { *out.add(i) = *c };
    }
}

/// This thread's frames, innermost first; how many. With `fresh` by a walk that remembers nothing.
///
/// # Safety
/// `out` has room for `room` rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn frames_walk(out: *mut Row, room: usize, fresh: i32) -> usize {
    WALKER.with_borrow_mut(|walker| {
        let mut own;
        let walker = if fresh != 0 {
            own = Walker::new();
            &mut own
        } else {
            walker
        };
        let (mut node, mut n) = (walker.walk(), 0);
        while node != 0 && n < room {
            let (parent, code, at, said) = walker.nodes[node as usize - 1];
            let codes = CODES.lock().expect("no panic while it is held");
            let c = codes.get(code as usize).and_then(|c| c.as_ref());
            let line = c.and_then(|c| pylines::line_said(c.first_line, said)).unwrap_or(0);
            // SAFETY: below the caller's room.
            unsafe { out.add(n).write(Row { code, index: at >> 1, entry: at & 1, line }) };
            (node, n) = (parent, n + 1);
        }
        n
    })
}

/// File (0) or name (1) of a code object, zero-terminated; its first line.
///
/// # Safety
/// `out` has `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn frames_code(number: u32, which: i32, out: *mut c_char, room: usize) -> u32 {
    let codes = CODES.lock().expect("no panic while it is held");
    let Some(Some(code)) = codes.get(number as usize) else { return u32::MAX };
    let text = if which == 0 { &code.file } else { &code.name };
    for (i, c) in text.iter().take(room - 1).chain(&[0]).enumerate() {
        // SAFETY: the caller's room.
        unsafe { *out.add(i) = *c as c_char };
    }
    code.first_line
}

/// How often this thread's walks asked for a node.
#[unsafe(no_mangle)]
pub extern "C" fn frames_asked() -> u64 {
    WALKER.with_borrow(|w| w.asked)
}

/// Walks `times` times, with nodes that cost nothing: to count instructions.
#[unsafe(no_mangle)]
pub extern "C" fn frames_repeat(times: u64) -> u32 {
    static PLAIN: AtomicPtr<Python> = AtomicPtr::new(core::ptr::null_mut());
    let mut python = PLAIN.load(Relaxed);
    if python.is_null() {
        python = sys::map_anon(size_of::<Python>()).cast();
        PLAIN.store(python, Relaxed);
    }
    let mut last = 0;
    for _ in 0..times {
        // SAFETY: one thread counts.
        last = unsafe { (*python).update(&mut |parent, code, at, _| parent ^ code ^ at, &mut |_| true) };
    }
    last
}
