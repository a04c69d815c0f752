//! Ranges and marks of NVIDIA's tools extension (NVTX): the shim is its injection library, as a profiler is.
//!
//! Each object of a program that uses NVTX has its own tables of callbacks, and fills them at its first call: it asks the environment for
//! `NVTX_INJECTION64_PATH`, loads that library and calls its `InitializeInjectionNvtx2`. So `getenv` is hooked, for this one name, and
//! answers with the shim's own; the environment itself stays as it is. A library that the user has set there is initialised first, and called
//! by our callbacks, with its own handles and results.
//!
//! Layouts and numbers are those of `nvToolsExt.h` and `nvtxTypes.h`, version 3, which have not changed since version 1.

use super::{Source, begin, begin_range, end_in, end_range, mark, name, names};
use crate::hooks::heap::{call_real, ready};
use crate::real::REAL;
use crate::{init, real};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use memshim_format::phase::what;

const VARIABLE: &CStr = c"NVTX_INJECTION64_PATH";
/// The loader knows the shim by this name, wherever it lies.
const OURS: &CStr = c"libmemshim.so";
/// What the user has set.
static CHAINED: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());

/// What a lookup in the environment gives instead of `value`.
unsafe fn answer(asked: *const c_char, value: *mut c_char) -> *mut c_char {
    // SAFETY: a name that the program gave to getenv.
    unsafe {
        if *asked != b'N' as c_char || CStr::from_ptr(asked) != VARIABLE || ready().is_null() || !init::is_recording() {
            return value;
        }
        CHAINED.store(value, Release);
        OURS.as_ptr().cast_mut()
    }
}

macro_rules! environment {
    ($($name:ident)*) => { $(
        /// # Safety
        /// As the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(asked: *const c_char) -> *mut c_char {
            // SAFETY: passed on as called.
            unsafe {
                if REAL.$name.is_none() {
                    ready();
                }
                let value = call_real!($name(asked), core::ptr::null_mut());
                if asked.is_null() { value } else { answer(asked, value) }
            }
        }
    )* };
}
environment!(getenv secure_getenv);

type Export = unsafe extern "C" fn(u32) -> *const c_void;
type Initialize = unsafe extern "C" fn(Option<Export>) -> c_int;

#[repr(C)]
struct Callbacks {
    size: usize,
    tables: Option<Tables>,
}

const CALLBACKS: u32 = 1;
const CORE: u32 = 1;
const CORE2: u32 = 5;

/// Called by each object that uses NVTX, at its first use. 1: callbacks are set.
///
/// # Safety
/// `export` is NVTX's own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(export: Option<Export>) -> c_int {
    // SAFETY: NVTX's own tables, with the layout that it states.
    unsafe {
        let callbacks = export.map_or(core::ptr::null(), |export| export(CALLBACKS)).cast::<Callbacks>();
        let tables = (!callbacks.is_null() && (*callbacks).size >= size_of::<Callbacks>()).then(|| (*callbacks).tables).flatten();
        let unset = tables.map_or([[0; IDS]; 2], |tables| [CORE, CORE2].map(|module| entries(tables, module)));
        let theirs = chained().map_or(0, |initialize| initialize(export));
        let Some(tables) = tables.filter(|_| !ready().is_null()) else { return theirs };
        let [core, core2] = unset;
        put(tables, CORE, &CORE_HOOKS.0, &NEXT, (theirs != 0).then_some(&core));
        put(tables, CORE2, &CORE2_HOOKS.0, &NEXT2, (theirs != 0).then_some(&core2));
        1
    }
}

/// The library that the user wants there.
unsafe fn chained() -> Option<Initialize> {
    let path = CHAINED.load(Acquire);
    let open = real::default(b"dlopen");
    // SAFETY: the C library's functions; the path is a string of the environment.
    unsafe {
        if path.is_null() || *path == 0 || open.is_null() {
            return None;
        }
        let open: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void = transmute(open);
        let library = open(path, libc::RTLD_LAZY);
        let at = if library.is_null() { core::ptr::null_mut() } else { REAL.dlsym?(library, c"InitializeInjectionNvtx2".as_ptr()) };
        let ours: Initialize = InitializeInjectionNvtx2;
        (!at.is_null() && at as usize != ours as usize).then(|| transmute::<*mut c_void, Initialize>(at))
    }
}

type Hooks = [(usize, *const c_void)];

type Tables = unsafe extern "C" fn(u32, *mut *mut *mut usize, *mut u32) -> c_int;

/// Where a module's function pointers stand: of number `id`, if it has that.
unsafe fn place(tables: Tables, module: u32, id: usize) -> Option<*mut usize> {
    let (mut table, mut size) = (core::ptr::null_mut::<*mut usize>(), 0);
    // SAFETY: NVTX gives an array of `size` pointers to its function pointers.
    unsafe {
        let known = tables(module, &mut table, &mut size) != 0 && !table.is_null() && id < size as usize;
        known.then(|| *table.add(id)).filter(|place| !place.is_null())
    }
}

/// What stands in a module's table.
unsafe fn entries(tables: Tables, module: u32) -> [usize; IDS] {
    // SAFETY: NVTX's own tables.
    core::array::from_fn(|id| unsafe { place(tables, module, id).map_or(0, |place| *place) })
}

/// Puts our callbacks into a module's table, and remembers those of the library before us; `unset` is what stood there before that one came:
/// NVTX's own way here, which whoever sets nothing leaves there.
unsafe fn put(tables: Tables, module: u32, hooks: &Hooks, next: &[AtomicUsize; IDS], unset: Option<&[usize; IDS]>) {
    for (id, hook) in hooks {
        // SAFETY: NVTX's own tables.
        unsafe {
            let Some(place) = place(tables, module, *id) else { continue };
            let was_set = unset.and_then(|all| all.get(*id)).is_some_and(|before| before != &*place) && *place != *hook as usize;
            if let Some(next) = next.get(*id).filter(|_| was_set) {
                next.store(*place, Release);
            }
            place.write(*hook as usize);
        }
    }
}

const IDS: usize = 16;
static NEXT: [AtomicUsize; IDS] = [const { AtomicUsize::new(0) }; IDS];
static NEXT2: [AtomicUsize; IDS] = [const { AtomicUsize::new(0) }; IDS];

/// The chained library's function of a number.
fn next<F: Copy>(of: &[AtomicUsize; IDS], id: usize) -> Option<F> {
    let at = of.get(id).map_or(0, |next| next.load(Acquire));
    // SAFETY: the table at this number holds functions of this type.
    (at != 0).then(|| unsafe { core::mem::transmute_copy(&at) })
}

/// Attributes of an event, up to its message.
#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_void,
}

const ASCII: i32 = 1;
const WIDE: i32 = 2;
const REGISTERED: i32 = 3;

/// Handles that the chained library gave out, and the names they are of. Where there is none, a handle is its name's number.
const HANDLES: usize = 1 << 12;
static HANDLE: [AtomicU64; HANDLES] = [const { AtomicU64::new(0) }; HANDLES];
static NUMBER: [AtomicU64; HANDLES] = [const { AtomicU64::new(0) }; HANDLES];

fn places(handle: u64) -> impl Iterator<Item = (&'static AtomicU64, &'static AtomicU64)> {
    let first = (handle >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
    (0..HANDLES).filter_map(move |i| {
        let at = (first as usize + i) % HANDLES;
        HANDLE.get(at).zip(NUMBER.get(at))
    })
}

fn remember(handle: *mut c_void, number: u32) -> *mut c_void {
    let handle = handle as u64;
    for (place, of) in places(handle) {
        let was = place.compare_exchange(0, handle, AcqRel, Acquire).unwrap_or_else(|was| was);
        if was == 0 || was == handle {
            of.store(number as u64, Release);
            break;
        }
    }
    handle as *mut c_void
}

fn number_of(handle: *const c_void) -> u32 {
    let handle = handle as u64;
    if handle == 0 {
        return 0;
    }
    for (place, of) in places(handle) {
        match place.load(Acquire) {
            0 => break,
            found if found == handle => return of.load(Acquire) as u32,
            _ => {}
        }
    }
    handle as u32
}

fn domain_text(domain: *const c_void) -> &'static [u8] {
    names::name_of(number_of(domain))
}

unsafe fn plain(domain: &[u8], text: *const c_char) -> u32 {
    // SAFETY: null or zero-terminated, by NVTX's contract.
    name(domain, if text.is_null() { b"" } else { unsafe { CStr::from_ptr(text) }.to_bytes() })
}

/// A text of 32-bit characters.
unsafe fn wide(domain: &[u8], text: *const u32) -> u32 {
    let mut bytes = [0u8; 512];
    let mut n = 0;
    let mut at = text;
    // SAFETY: null or zero-terminated, by NVTX's contract.
    while let Some(c) = unsafe { at.as_ref() }.filter(|c| **c != 0) {
        let mut four = [0; 4];
        let encoded = char::from_u32(*c).unwrap_or('\u{fffd}').encode_utf8(&mut four).as_bytes();
        let Some(to) = bytes.get_mut(n..n + encoded.len()) else { break };
        to.iter_mut().zip(encoded).for_each(|(to, c)| *to = *c);
        n += encoded.len();
        at = at.wrapping_add(1);
    }
    name(domain, bytes.get(..n).unwrap_or(b""))
}

unsafe fn message(domain: *const c_void, event: *const Attributes) -> u32 {
    let domain = domain_text(domain);
    // SAFETY: NVTX's contract: an event states how much of it there is.
    unsafe {
        if event.is_null() || ((*event).size as usize) < size_of::<Attributes>() {
            return name(domain, b"");
        }
        let at = (*event).message;
        match (*event).message_type {
            ASCII => plain(domain, at.cast()),
            WIDE => wide(domain, at.cast()),
            REGISTERED => name(domain, names::name_of(number_of(at))),
            _ => name(domain, b""),
        }
    }
}

/// What NVTX says where nobody counts levels.
const NO_LEVEL: c_int = -2;

type Event = *const Attributes;
type Text = *const c_char;
type WideText = *const u32;
type Handle = *mut c_void;

/// `id name(arguments) -> result: |theirs| ours;`: what the chained library gives, where there is one, is known to what we do and give.
macro_rules! callbacks {
    ($hooks:ident, $next:ident: $($id:literal $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty: |$theirs:ident| $ours:expr;)*) => {
        $(
            unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
                // SAFETY: NVTX calls with what the program gave it.
                unsafe {
                    let $theirs = next::<unsafe extern "C" fn($($ty),*) -> $ret>(&$next, $id).map(|f| f($($arg),*));
                    $ours
                }
            }
        )*
        static $hooks: Table<{ [$($id),*].len() }> = Table([$(($id, $name as *const c_void)),*]);
    };
}

/// Functions by number.
struct Table<const N: usize>([(usize, *const c_void); N]);
// SAFETY: addresses of functions.
unsafe impl<const N: usize> Sync for Table<N> {}

const NOBODY: *mut c_void = core::ptr::null_mut();
const NVTX: Source = Source::Nvtx;

callbacks! { CORE_HOOKS, NEXT:
    1 mark_ex(event: Event) -> (): |_theirs| mark(NVTX, message(NOBODY, event));
    2 mark_a(text: Text) -> (): |_theirs| mark(NVTX, plain(b"", text));
    3 mark_w(text: WideText) -> (): |_theirs| mark(NVTX, wide(b"", text));
    4 start_ex(event: Event) -> u64: |theirs| start(message(NOBODY, event), theirs);
    5 start_a(text: Text) -> u64: |theirs| start(plain(b"", text), theirs);
    6 start_w(text: WideText) -> u64: |theirs| start(wide(b"", text), theirs);
    7 stop(id: u64) -> (): |_theirs| end_range(NVTX, id);
    8 push_ex(event: Event) -> c_int: |theirs| push(message(NOBODY, event), theirs);
    9 push_a(text: Text) -> c_int: |theirs| push(plain(b"", text), theirs);
    10 push_w(text: WideText) -> c_int: |theirs| push(wide(b"", text), theirs);
    11 pop() -> c_int: |theirs| popped(NOBODY, theirs);
}

callbacks! { CORE2_HOOKS, NEXT2:
    1 domain_mark(domain: Handle, event: Event) -> (): |_theirs| mark(NVTX, message(domain, event));
    2 domain_start(domain: Handle, event: Event) -> u64: |theirs| start(message(domain, event), theirs);
    3 domain_stop(_domain: Handle, id: u64) -> (): |_theirs| end_range(NVTX, id);
    4 domain_push(domain: Handle, event: Event) -> c_int: |theirs| push(message(domain, event), theirs);
    5 domain_pop(domain: Handle) -> c_int: |theirs| popped(domain, theirs);
    10 register_a(_domain: Handle, text: Text) -> Handle: |theirs| handle(plain(b"", text), theirs);
    11 register_w(_domain: Handle, text: WideText) -> Handle: |theirs| handle(wide(b"", text), theirs);
    12 create_a(text: Text) -> Handle: |theirs| handle(plain(b"", text), theirs);
    13 create_w(text: WideText) -> Handle: |theirs| handle(wide(b"", text), theirs);
}

/// A range has the number that its program knows.
fn start(name: u32, theirs: Option<u64>) -> u64 {
    begin_range(NVTX, name, theirs)
}

fn push(name: u32, theirs: Option<c_int>) -> c_int {
    begin(NVTX, name);
    theirs.unwrap_or(NO_LEVEL)
}

fn popped(domain: Handle, theirs: Option<c_int>) -> c_int {
    end_in(NVTX, number_of(domain), what::END);
    theirs.unwrap_or(NO_LEVEL)
}

fn handle(number: u32, theirs: Option<Handle>) -> Handle {
    match theirs {
        Some(handle) => remember(handle, number),
        None => number as usize as Handle,
    }
}
