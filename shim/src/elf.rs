//! Finding functions in the loaded objects by reading their symbol tables.
//!
//! Not `dlsym`: a name that is not there makes it allocate an error text and changes what the program's `dlerror` says, and the free of
//! that text can run into other interposers. The loader's list (`_r_debug`) is in search order as long as nothing has been `dlopen`ed,
//! which is when we look: the program, the preloaded objects, their dependencies. musl has the same list under another name.

// Said, since tests take this file from elsewhere.
#[path = "elf/dynamic.rs"]
mod dynamic;

pub use dynamic::{Dynamic, Function, Relocation, tag};

use core::ffi::{CStr, c_char, c_void};

/// The public head of the loader's `struct link_map`.
#[repr(C)]
pub struct Object {
    base: u64,
    name: *const c_char,
    dynamic: *const [u64; 2],
    next: *const Object,
}

#[repr(C)]
struct Debug {
    version: i32,
    map: *const Object,
}

impl Object {
    /// An object that is known by its place and its dynamic section only.
    pub const fn new(base: u64, dynamic: *const [u64; 2]) -> Object {
        Object { base, name: core::ptr::null(), dynamic, next: core::ptr::null() }
    }

    /// Address in memory less address in the file, and where its dynamic section is.
    pub fn place(&self) -> (u64, u64) {
        (self.base, self.dynamic as u64)
    }

    /// The same object, by its place only.
    pub const fn alone(&self) -> Object {
        Object::new(self.base, self.dynamic)
    }
}

/// A function and the object that defines it.
#[derive(Clone, Copy)]
pub struct Found {
    pub at: *const c_void,
    pub object: *const Object,
}

/// The address of a variable or function of the C library, null where this one has none of that name: a strong reference would keep the program from
/// starting there.
macro_rules! weak_symbol {
    ($name:literal) => {{
        let p: *const core::ffi::c_void;
        // SAFETY: reads an entry of the global offset table, which the loader has filled.
        unsafe {
            core::arch::asm!(concat!(".weak ", $name), concat!("mov {p}, qword ptr [rip + ", $name, "@GOTPCREL]"), p = out(reg) p,
                options(nostack, pure, readonly, preserves_flags))
        };
        p
    }};
}
pub(crate) use weak_symbol;

/// The first object: the program.
pub fn program() -> *const Object {
    let glibc: *const Debug = weak_symbol!("_r_debug").cast();
    let musl: *const *const Debug = weak_symbol!("_dl_debug_addr").cast();
    // SAFETY: the loader's own variables.
    unsafe {
        if !glibc.is_null() {
            (*glibc).map
        } else if !musl.is_null() && !(*musl).is_null() {
            (**musl).map
        } else {
            core::ptr::null()
        }
    }
}

/// This library.
pub fn ourselves() -> *const Object {
    let mut o = program();
    // Ours is the object whose dynamic section is the one linked into us.
    // SAFETY: the loader's list; `_DYNAMIC` is made by the linker.
    unsafe {
        while !o.is_null() {
            if (*o).dynamic.cast() == own_dynamic() {
                return o;
            }
            o = (*o).next;
        }
    }
    core::ptr::null()
}

fn own_dynamic() -> *const c_void {
    let p: *const c_void;
    // SAFETY: an address relative to the code.
    unsafe { core::arch::asm!("lea {p}, [rip + _DYNAMIC]", p = out(reg) p, options(nomem, nostack, pure, preserves_flags)) };
    p
}

/// File name of an object, empty for the program.
///
/// # Safety
/// `o` is an object of the loader's list.
pub unsafe fn name(o: *const Object) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { (*o).name }
}

/// The object after this one in the loader's list; null at its end.
///
/// # Safety
/// `o` is an object of the loader's list.
pub unsafe fn next(o: *const Object) -> *const Object {
    // SAFETY: the caller's promise.
    unsafe { (*o).next }
}

/// Whether the file name of an object is one that `wanted` says.
pub fn any_object(wanted: impl Fn(&[u8]) -> bool) -> bool {
    let mut o = program();
    // SAFETY: the loader's list and its strings.
    unsafe {
        while !o.is_null() {
            if !(*o).name.is_null() && wanted(CStr::from_ptr((*o).name).to_bytes()) {
                return true;
            }
            o = (*o).next;
        }
    }
    false
}

/// Whether an object defines `name`, a function or a variable.
///
/// # Safety
/// `o` is an object of the loader's list.
pub unsafe fn defines(o: *const Object, name: &[u8]) -> bool {
    // SAFETY: the caller's promise.
    unsafe { find_in(o, name) }.is_some()
}

/// Looks for `name` in the objects from `from` on.
pub fn find_from(from: *const Object, name: &[u8]) -> Option<Found> {
    let mut o = from;
    // SAFETY: the loader's list.
    unsafe {
        while !o.is_null() {
            if let Some(at) = find_in(o, name) {
                return Some(Found { at, object: o });
            }
            o = (*o).next;
        }
    }
    None
}

/// Looks behind this library, as RTLD_NEXT would.
pub fn find_next(name: &[u8]) -> Option<Found> {
    let us = ourselves();
    // SAFETY: an object of the loader's list.
    if us.is_null() { None } else { find_from(unsafe { (*us).next }, name) }
}

/// Looks behind this library, up to an object that has been there from the start.
pub fn find_next_until(last: *const Object, name: &[u8]) -> Option<Found> {
    let mut o = ourselves();
    // SAFETY: objects of the loader's list.
    unsafe {
        while !o.is_null() && o != last {
            o = (*o).next;
            if !o.is_null()
                && let Some(at) = find_in(o, name)
            {
                return Some(Found { at, object: o });
            }
        }
    }
    None
}

/// The objects of the loader's list, the program first. Those that the program began with stay; of others the caller has the loader's lock.
pub fn objects() -> impl Iterator<Item = *const Object> {
    let there = |o: &*const Object| !o.is_null();
    // SAFETY: objects of the loader's list, as said.
    core::iter::successors(Some(program()).filter(there), move |o| Some(unsafe { next(*o) }).filter(there))
}

/// The last object of the loader's list.
pub fn last() -> *const Object {
    objects().last().unwrap_or(core::ptr::null())
}

/// Looks for `name` in one object.
///
/// # Safety
/// `o` is a loaded object.
pub unsafe fn find_in(o: *const Object, name: &[u8]) -> Option<*const c_void> {
    // SAFETY: the caller's promise.
    unsafe {
        let d = Dynamic::of(o)?;
        let found = d.default(name)?;
        let p = found.at as *const c_void;
        if found.chosen {
            let choose: unsafe extern "C" fn() -> *const c_void = core::mem::transmute(p);
            return Some(choose());
        }
        Some(p)
    }
}

/// The same, of a function or a variable's address as what it is.
///
/// # Safety
/// As [`find_in`]; `T` is a pointer of that type.
pub unsafe fn of_type<T>(o: *const Object, name: &[u8]) -> Option<T> {
    // SAFETY: the caller's promise; both are pointers.
    unsafe {
        let at = find_in(o, name)?;
        (size_of::<T>() == size_of_val(&at)).then(|| core::mem::transmute_copy(&at))
    }
}
