//! How programs get at driver functions by name: `dlsym`, which is hooked, and `cuGetProcAddress`. Both answer with our hooks for the functions
//! of the table, exactly by name and ABI, and with what the driver gave for everything else.
//!
//! `dlsym` looks at its caller's return address for `RTLD_NEXT` and for the namespace. So the hook is a jump and not a call: unless it has an
//! answer by itself, the real `dlsym` finds the stack as the program left it.

use super::call::{Call, Entry, Flavour, UNDER_WAY, ticket};
use super::shape::Shape;
use super::table::ENTRIES;
use super::{contexts, known, libcuda};
use crate::lane::{self, Hot, push};
use crate::phases::symbol;
use crate::real::REAL;
use crate::{elf, init, loaded, sys};
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicU64, Ordering::*};
use memshim_format::gpu::{self, kind, state};
use memshim_format::record::{op, start};

/// The C library's `dlsym`, for the jump.
static mut REAL_DLSYM: *const c_void = core::ptr::null();

/// One thread, at the start.
pub fn settle() {
    // SAFETY: one thread.
    unsafe { REAL_DLSYM = REAL.dlsym.map_or(core::ptr::null(), |f| f as *const c_void) };
}

/// A function of the C library that looks at its caller: `$pick(handle, name, caller)` is asked first, and what it leaves ([`PASS`]) goes on to the real
/// function as it came, by a jump.
macro_rules! asked_first {
    ($name:ident, $pick:ident, $real:ident) => {
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                $crate::hooks::assembly::save!(),
                "mov rdx, qword ptr [rsp + 24]",
                "call {pick}",
                "mov rcx, rdx",
                $crate::hooks::assembly::restore!(),
                "test rcx, rcx",
                "je 2f",
                "ret",
                "2:",
                "jmp qword ptr [rip + {real}]",
                ".cfi_endproc",
                pick = sym $pick,
                real = sym $real,
            );
        }
    };
}
pub(super) use asked_first;

asked_first!(dlsym, pick, REAL_DLSYM);

/// Lookups in the driver's library by `dlsym`, lookups by `cuGetProcAddress`, and those of both that a hook was the answer to.
static LOOKUPS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
const BY_DLSYM: usize = 0;
const BY_PROC: usize = 1;
const HOOKED: usize = 2;

fn count(what: usize) {
    if let Some(n) = LOOKUPS.get(what) {
        n.fetch_add(1, Relaxed);
    }
}

/// Leaves a row of how functions of the driver were found, if any was looked for.
pub fn tell(hot: *mut Hot) {
    let [by_dlsym, by_proc, hooked] = [BY_DLSYM, BY_PROC, HOOKED].map(|i| LOOKUPS.get(i).map_or(0, |n| n.load(Relaxed)));
    if by_dlsym + by_proc > 0 {
        let head = gpu::head(0, gpu::NO_DEVICE, 0, state::LOOKUPS);
        let first = start(op::GPU + kind::STATE, gpu::NO_CALL, ticket());
        // SAFETY: this thread's hot.
        unsafe { push(hot, [first, sys::now(), head, by_dlsym, by_proc, hooked]) };
    }
}

/// Whether any function of the driver was looked for.
pub fn is_used() -> bool {
    LOOKUPS.iter().any(|n| n.load(Relaxed) != 0)
}

/// A forked child has looked for none.
pub fn forget() {
    LOOKUPS.iter().for_each(|n| n.store(0, Relaxed));
}

/// An answer, in two registers: `done` 0 leaves it to the real function.
#[repr(C)]
pub struct Picked {
    pub at: *const c_void,
    pub done: usize,
}

/// Left to the real function.
pub const PASS: Picked = Picked { at: core::ptr::null(), done: 0 };
/// Behind the caller.
pub const RTLD_NEXT: *mut c_void = -1isize as *mut c_void;

unsafe extern "C" fn pick(handle: *mut c_void, name: *const c_char, caller: usize) -> Picked {
    // SAFETY: a name that the program gave to dlsym.
    unsafe {
        if REAL_DLSYM.is_null() {
            find_real();
            if REAL_DLSYM.is_null() {
                return Picked { done: 1, ..PASS };
            }
        }
        if name.is_null() || !init::is_recording() {
            return PASS;
        }
        let of_driver = *name == b'c' as c_char && *name.add(1) == b'u' as c_char;
        let picked = if of_driver { pick_of_driver(handle, CStr::from_ptr(name), caller) } else { PASS };
        match symbol::found(handle, CStr::from_ptr(name)) {
            Some(at) if picked.done == 0 => Picked { at, done: 1 },
            _ => picked,
        }
    }
}

/// An answer for what may be a function of the driver.
unsafe fn pick_of_driver(handle: *mut c_void, name: &CStr, caller: usize) -> Picked {
    // SAFETY: as called.
    unsafe {
        let entry = by_symbol(name.to_bytes());
        if handle == RTLD_NEXT {
            return if entry.is_some() && is_nowhere(name, caller) { Picked { done: 1, ..PASS } } else { PASS };
        }
        if handle.is_null() {
            return entry.map_or(PASS, |e| in_global_scope(e, name, caller));
        }
        let of_program = handle.cast_const() == elf::program().cast::<c_void>();
        if of_program && entry.is_some() && !elf::defines(elf::program(), name.to_bytes()) && is_nowhere(name, 0) {
            return Picked { done: 1, ..PASS };
        }
        if entry.is_none() && !is_new(name.to_bytes()) || libcuda::holds(caller) || in_a_hook() {
            return PASS;
        }
        answer(handle, name, entry)
    }
}

/// `RTLD_DEFAULT`: our own export is in the way, and is the answer only where there would be one without us.
unsafe fn in_global_scope(e: &Entry, name: &CStr, caller: usize) -> Picked {
    // SAFETY: the real dlsym. By RTLD_NEXT, from here, it finds what is behind us in the global scope.
    unsafe {
        let Some(look) = REAL.dlsym else { return PASS };
        let ours = look(core::ptr::null_mut(), name.as_ptr()).cast_const() == e.export.0.cast::<c_void>();
        // Somebody's in front of us, or one behind us.
        if !ours || !look(RTLD_NEXT, name.as_ptr()).is_null() {
            return PASS;
        }
        // A library that came later sees its own scope too.
        let own = loaded::object_at(caller);
        if libcuda::is_loaded()
            && !own.is_null()
            && !libcuda::was_there_at_start(own)
            && loaded::sees(own, name.to_bytes(), elf::ourselves())
        {
            return PASS;
        }
        Picked { done: 1, ..PASS }
    }
}

/// The real function's answer to a lookup in a library, or our hook in place of the driver's.
unsafe fn answer(handle: *mut c_void, name: &CStr, entry: Option<&'static Entry>) -> Picked {
    // SAFETY: the real dlsym.
    unsafe {
        let Some(look) = REAL.dlsym else { return PASS };
        let mut p: *const c_void = look(handle, name.as_ptr());
        let found_us = entry.is_some_and(|e| e.export.0.cast::<c_void>() == p);
        if found_us {
            p = look(RTLD_NEXT, name.as_ptr());
        }
        if let (false, Some(e)) = (p.is_null(), entry.filter(|e| matches!(e.shape, Shape::Cupti))) {
            e.real.store(p as usize, Relaxed);
            return Picked { at: e.export.0.cast(), done: 1 };
        }
        if p.is_null() || !libcuda::is_loaded() {
            return Picked { at: p, done: 1 };
        }
        if !libcuda::holds(p as usize) {
            let at = match entry {
                // The next in the scope that we were found in: what our export stands in place of.
                Some(e) if found_us => e.export.0.cast(),
                Some(e) if e.real.load(Relaxed) != 0 && libcuda::is_handle(handle) => before(e, p as usize) as *const c_void,
                _ => p,
            };
            return Picked { at, done: 1 };
        }
        count(BY_DLSYM);
        match entry {
            Some(e) => {
                count(HOOKED);
                let _ = e.real.compare_exchange(0, p as usize, AcqRel, Relaxed);
                Picked { at: e.hook.0.cast(), done: 1 }
            }
            None => {
                note_new(name.to_bytes());
                Picked { at: p, done: 1 }
            }
        }
    }
}

/// What is given out where another library has put a function of its own in front of the driver's: the hook that calls that. A second such function for
/// one name is given out as it is.
fn before(e: &'static Entry, function: usize) -> usize {
    let is_ours = [&e.hook, &e.export, &e.relay].iter().any(|hook| hook.0 as usize == function);
    if is_ours || e.given.compare_exchange(0, function, AcqRel, Acquire).is_err_and(|given| given != function) {
        return function;
    }
    count(HOOKED);
    e.relay.0 as usize
}

/// Whether nothing but our own exports is of this name behind the caller: no driver is loaded, and nobody between us or behind us has it.
unsafe fn is_nowhere(name: &CStr, caller: usize) -> bool {
    // SAFETY: the real dlsym; objects that are never unloaded.
    unsafe {
        let behind_us = || REAL.dlsym.is_none_or(|look| look(RTLD_NEXT, name.as_ptr()).is_null());
        !libcuda::is_loaded() && behind_us() && !between(caller).any(|o| elf::defines(o, name.to_bytes()))
    }
}

/// The objects before us in the order of search, the program first: they were there from the start, and are never unloaded. What comes behind us may be
/// another thread's to unload, at any instant.
fn before_us() -> impl Iterator<Item = *const elf::Object> {
    let us = elf::ourselves();
    elf::objects().take_while(move |o| !us.is_null() && *o != us)
}

/// The object that an address is in; the program where it is in none.
fn object_of(address: usize) -> *const elf::Object {
    let object = loaded::object_at(address);
    if object.is_null() { elf::program() } else { object }
}

/// Whether an address is in the program or in a library that stands before us in the order of search.
pub fn is_before_us(address: usize) -> bool {
    let its = object_of(address);
    before_us().any(|o| o == its)
}

/// The objects between the one that an address is in and us; none where that is behind us.
fn between(address: usize) -> impl Iterator<Item = *const elf::Object> {
    let its = object_of(address);
    before_us().skip_while(move |o| *o != its).skip(1)
}

/// A function behind us, among whatever is loaded by now.
#[cold]
pub fn found_late(name: &[u8]) -> Option<elf::Found> {
    let mut found = None;
    loaded::locked(|| found = elf::find_next(name));
    found
}

/// Before glibc 2.34 `dlsym` is in a library of its own, which may come later than we do.
#[cold]
unsafe fn find_real() {
    if !init::resolved() {
        init::enter();
    }
    // SAFETY: idempotent stores of one pointer.
    unsafe {
        if REAL_DLSYM.is_null()
            && let Some(f) = found_late(b"dlsym")
        {
            REAL.dlsym = Some(core::mem::transmute::<*const c_void, unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void>(f.at));
            REAL_DLSYM = f.at;
        }
    }
}

/// Whether this thread is inside a hooked driver call: then it is the driver that asks.
fn in_a_hook() -> bool {
    let hot: *mut Hot = lane::current();
    // SAFETY: null or this thread's.
    !hot.is_null() && unsafe { (*hot).gpu != 0 }
}

fn by_symbol(name: &[u8]) -> Option<&'static Entry> {
    ENTRIES.iter().find(|e| e.symbol.as_bytes() == name)
}

/// The entry that a name, a version and flags mean: of those with this base and flavour the newest that is no newer than asked. A driver that is older
/// than what was asked for gives what it has: that is the newest of those that it exports.
fn by_version(name: &[u8], version: u64, flags: u64) -> Option<&'static Entry> {
    let newest = |per_thread: bool, exported: bool| {
        let fits = |e: &&Entry| {
            let fits = e.base.as_bytes() == name && e.version as u64 <= version && (e.flavour == Flavour::PerThread) == per_thread;
            fits && (!exported || e.real.load(Relaxed) != 0)
        };
        ENTRIES.iter().filter(fits).max_by_key(|e| e.version)
    };
    let either = |per_thread: bool| newest(per_thread, true).or_else(|| newest(per_thread, false));
    let per_thread = if flags & PER_THREAD_DEFAULT_STREAM != 0 { either(true) } else { None };
    per_thread.or_else(|| either(false))
}

/// The entry whose function the driver has given for a name: the one that is meant, or where that is another's, the other.
fn by_function(name: &[u8], meant: &'static Entry, given: usize) -> &'static Entry {
    let is_it = |e: &&Entry| e.base.as_bytes() == name && e.real.load(Relaxed) == given;
    if is_it(&meant) { meant } else { ENTRIES.iter().find(is_it).unwrap_or(meant) }
}

/// The CUDA version that the table is of.
const NEWEST: u64 = 13050;
const PER_THREAD_DEFAULT_STREAM: u64 = 2;

/// The hook of `cuGetProcAddress`, in both of its ABIs: (name, function*, version, flags[, status*]).
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn get_proc_address(c: &Call) -> i32 {
    // SAFETY: as called.
    unsafe {
        let inside = in_a_hook();
        // A driver may find by the one ABI what it was asked for by the other.
        let r = if inside || c.hot.is_null() {
            c.make()
        } else {
            count(BY_PROC);
            (*c.hot).gpu = UNDER_WAY;
            let r = c.make();
            (*c.hot).gpu = 0;
            r
        };
        let (name, place) = (c.word(0) as *const c_char, c.word(1) as *mut usize);
        if r != 0 || name.is_null() || place.is_null() || *place == 0 || inside || !init::is_recording() {
            return r;
        }
        let (name, given) = (CStr::from_ptr(name).to_bytes(), *place);
        let Some(meant) = by_version(name, c.int(2), c.word(3) as u64) else {
            if is_new(name) {
                note_new(name);
            }
            return r;
        };
        if ENTRIES.iter().any(|e| e.base.as_bytes() == name && given == e.export.0 as usize) {
            // The driver has found its own function as programs do, and so the exported hook.
            count(HOOKED);
            return r;
        }
        if !libcuda::holds(given) {
            *place = before(meant, given);
            return r;
        }
        let e = by_function(name, meant, given);
        if c.int(2) > NEWEST && e.real.load(Relaxed) != given {
            // Of a version newer than the table the name may mean another function.
            note_new(name);
        } else {
            count(HOOKED);
            let _ = e.real.compare_exchange(0, given, AcqRel, Relaxed);
            *place = e.hook.0 as usize;
        }
        r
    }
}

/// A name of the driver's that stands in neither list.
fn is_new(name: &[u8]) -> bool {
    matches!(name, [b'c', b'u', third, ..] if third.is_ascii_uppercase())
        && !known::is_known(name)
        && !ENTRIES.iter().any(|e| e.base.as_bytes() == name || e.symbol.as_bytes() == name)
}

/// New names that the trace holds: their hashes.
static NOTED: [AtomicU64; 128] = [const { AtomicU64::new(0) }; 128];

/// Names a call that this version does not know, once.
fn note_new(name: &[u8]) {
    let hash = crate::text::hash(name) | 1;
    let hot = crate::hooks::heap::ready();
    if hot.is_null() {
        return;
    }
    for (i, slot) in NOTED.iter().enumerate() {
        match slot.compare_exchange(0, hash, AcqRel, Relaxed) {
            Ok(_) => return contexts::name(hot, gpu::name::UNKNOWN_CALL, i as u64, name),
            Err(h) if h == hash => return,
            Err(_) => {}
        }
    }
}
