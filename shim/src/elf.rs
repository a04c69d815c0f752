//! Finding functions in the loaded objects by reading their symbol tables.
//!
//! Not `dlsym`: a name that is not there makes it allocate an error text and changes what the program's `dlerror` says, and the free of
//! that text can run into other interposers. The loader's list (`_r_debug`) is in search order as long as nothing has been `dlopen`ed,
//! which is when we look: the program, the preloaded objects, their dependencies. musl has the same list under another name.

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

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_VERSYM: u64 = 0x6fff_fff0;
const STT_GNU_IFUNC: u8 = 10;

impl Object {
    /// An object that is known by its place and its dynamic section only.
    pub const fn new(base: u64, dynamic: *const [u64; 2]) -> Object {
        Object { base, name: core::ptr::null(), dynamic, next: core::ptr::null() }
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

/// Looks for `name` in one object.
///
/// # Safety
/// `o` is a loaded object.
pub unsafe fn find_in(o: *const Object, name: &[u8]) -> Option<*const c_void> {
    // SAFETY: the dynamic section of a loaded object and the tables it points at.
    unsafe {
        let (mut symbols, mut strings, mut versions) = (0u64, 0u64, 0u64);
        let (mut hash, mut gnu_hash) = (0u64, 0u64);
        let mut d = (*o).dynamic;
        if d.is_null() {
            return None;
        }
        loop {
            let [tag, value] = *d;
            match tag {
                0 => break,
                DT_SYMTAB => symbols = value,
                DT_STRTAB => strings = value,
                DT_VERSYM => versions = value,
                DT_HASH => hash = value,
                DT_GNU_HASH => gnu_hash = value,
                _ => {}
            }
            d = d.add(1);
        }
        // The loader makes these addresses, except in objects whose dynamic section it may not write (the vDSO).
        let at = |v: u64| if v != 0 && v < (*o).base { v + (*o).base } else { v };
        let table =
            Table { symbols: at(symbols) as *const Symbol, strings: at(strings) as *const c_char, versions: at(versions) as *const u16 };
        if symbols == 0 || strings == 0 {
            return None;
        }
        let index = if gnu_hash != 0 {
            gnu_lookup(at(gnu_hash) as *const u32, &table, name)
        } else if hash != 0 {
            sysv_lookup(at(hash) as *const u32, &table, name)
        } else {
            None
        }?;
        let s = table.symbols.add(index as usize);
        let p = ((*o).base + (*s).value) as *const c_void;
        if (*s).info & 15 == STT_GNU_IFUNC {
            let choose: unsafe extern "C" fn() -> *const c_void = core::mem::transmute(p);
            return Some(choose());
        }
        Some(p)
    }
}

struct Table {
    symbols: *const Symbol,
    strings: *const c_char,
    versions: *const u16,
}

impl Table {
    /// Whether symbol `i` is a defined function or variable `name` of the object's default version.
    unsafe fn is(&self, i: u32, name: &[u8]) -> bool {
        // SAFETY: i is an index that the object's hash table holds.
        unsafe {
            let s = self.symbols.add(i as usize);
            let kind = (*s).info & 15;
            if (*s).section == 0 || !matches!(kind, 0..=2 | STT_GNU_IFUNC) {
                return false;
            }
            // Bit 15 marks versions kept for old programs only.
            if !self.versions.is_null() && *self.versions.add(i as usize) & 0x8000 != 0 {
                return false;
            }
            CStr::from_ptr(self.strings.add((*s).name as usize)).to_bytes() == name
        }
    }
}

unsafe fn gnu_lookup(t: *const u32, table: &Table, name: &[u8]) -> Option<u32> {
    let h = name.iter().fold(5381u32, |h, c| h.wrapping_mul(33).wrapping_add(*c as u32));
    // SAFETY: the layout of DT_GNU_HASH: buckets, first index, bloom words, shift, bloom, buckets, chains.
    unsafe {
        let (buckets, first, blooms) = (*t, *t.add(1), *t.add(2));
        if buckets == 0 {
            return None;
        }
        let bucket = t.add(4 + blooms as usize * 2);
        let chain = bucket.add(buckets as usize);
        let mut i = *bucket.add((h % buckets) as usize);
        if i < first {
            return None;
        }
        loop {
            let c = *chain.add((i - first) as usize);
            if c | 1 == h | 1 && table.is(i, name) {
                return Some(i);
            }
            if c & 1 != 0 {
                return None;
            }
            i += 1;
        }
    }
}

unsafe fn sysv_lookup(t: *const u32, table: &Table, name: &[u8]) -> Option<u32> {
    let h = name.iter().fold(0u32, |h, c| {
        let h = (h << 4).wrapping_add(*c as u32);
        (h ^ (h >> 24 & 0xf0)) & 0x0fff_ffff
    });
    // SAFETY: the layout of DT_HASH: bucket count, chain count, buckets, chains.
    unsafe {
        let buckets = *t;
        if buckets == 0 {
            return None;
        }
        let mut i = *t.add(2 + (h % buckets) as usize);
        while i != 0 {
            if table.is(i, name) {
                return Some(i);
            }
            i = *t.add(2 + (buckets + i) as usize);
        }
    }
    None
}
