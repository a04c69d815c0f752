//! The tables that an object's dynamic section tells of: symbols, by their hash tables, and relocations.

use super::Object;
use core::ffi::{CStr, c_char};

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// Tags of a dynamic section.
pub mod tag {
    pub const NEEDED: u64 = 1;
    pub const PLT_LEN: u64 = 2;
    pub const HASH: u64 = 4;
    pub const STRINGS: u64 = 5;
    pub const SYMBOLS: u64 = 6;
    pub const RELOCATIONS: u64 = 7;
    pub const RELOCATIONS_LEN: u64 = 8;
    pub const SONAME: u64 = 14;
    pub const PLT_KIND: u64 = 20;
    pub const PLT: u64 = 23;
    pub const GNU_HASH: u64 = 0x6fff_fef5;
    pub const VERSIONS: u64 = 0x6fff_fff0;
}
const STT_NOTYPE: u8 = 0;
const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;
const STB_WEAK: u8 = 2;

/// What an object defines.
#[derive(Clone, Copy)]
pub struct Function {
    /// Where it is, or where that is asked.
    pub at: u64,
    /// A function that says which one is to be called (IFUNC).
    pub chosen: bool,
}

/// The tables that an object's dynamic section tells of.
pub struct Dynamic {
    base: u64,
    symbols: *const Symbol,
    strings: *const c_char,
    versions: *const u16,
    hash: *const u32,
    gnu_hash: *const u32,
    relocations: [(u64, u64); 2],
}

/// A relocation of the kinds that all objects of this machine have.
#[repr(C)]
pub struct Relocation {
    pub offset: u64,
    info: u64,
    pub addend: i64,
}

impl Relocation {
    pub fn kind(&self) -> u32 {
        self.info as u32
    }

    pub fn symbol(&self) -> u32 {
        (self.info >> 32) as u32
    }
}

/// Marks versions that are kept for old programs only.
const HIDDEN: u16 = 0x8000;

impl Symbol {
    fn kind(&self) -> u8 {
        self.info & 15
    }
}

impl Dynamic {
    /// # Safety
    /// `o` is a loaded object.
    pub unsafe fn of(o: *const Object) -> Option<Dynamic> {
        // SAFETY: the dynamic section of a loaded object.
        unsafe {
            let base = (*o).base;
            let mut entry = (*o).dynamic;
            if entry.is_null() {
                return None;
            }
            let (mut symbols, mut strings, mut versions, mut hash, mut gnu_hash) = (0, 0, 0, 0, 0);
            let ([mut first, mut first_len], [mut plt, mut plt_len], mut plt_kind) = ([0; 2], [0; 2], 0);
            loop {
                let [tag, value] = *entry;
                match tag {
                    0 => break,
                    tag::SYMBOLS => symbols = value,
                    tag::STRINGS => strings = value,
                    tag::VERSIONS => versions = value,
                    tag::HASH => hash = value,
                    tag::GNU_HASH => gnu_hash = value,
                    tag::RELOCATIONS => first = value,
                    tag::RELOCATIONS_LEN => first_len = value,
                    tag::PLT => plt = value,
                    tag::PLT_LEN => plt_len = value,
                    tag::PLT_KIND => plt_kind = value,
                    _ => {}
                }
                entry = entry.add(1);
            }
            if symbols == 0 || strings == 0 {
                return None;
            }
            // The loader makes these addresses, except in objects whose dynamic section it may not write (the vDSO).
            let at = |v: u64| if v != 0 && v < base { v + base } else { v };
            let plt_len = if plt_kind == tag::RELOCATIONS { plt_len } else { 0 };
            Some(Dynamic {
                base,
                symbols: at(symbols) as *const Symbol,
                strings: at(strings) as *const c_char,
                versions: at(versions) as *const u16,
                hash: at(hash) as *const u32,
                gnu_hash: at(gnu_hash) as *const u32,
                relocations: [(at(first), first_len), (at(plt), plt_len)],
            })
        }
    }

    /// The names under a tag of the dynamic section.
    ///
    /// # Safety
    /// `o` is loaded as long as they are looked at.
    pub unsafe fn names(o: *const Object, wanted: u64) -> impl Iterator<Item = &'static [u8]> {
        // SAFETY: the caller's promise.
        let (strings, mut entry) = unsafe { (Dynamic::of(o).map(|d| d.strings), (*o).dynamic) };
        core::iter::from_fn(move || {
            let strings = strings?;
            loop {
                // SAFETY: the section ends in an entry of tag 0.
                unsafe {
                    let [tag, value] = *entry;
                    if tag == 0 {
                        return None;
                    }
                    entry = entry.add(1);
                    if tag == wanted {
                        return Some(CStr::from_ptr(strings.add(value as usize)).to_bytes());
                    }
                }
            }
        })
    }

    /// All relocations, those of calls last.
    ///
    /// # Safety
    /// The object is loaded as long as they are looked at.
    pub unsafe fn relocations(&self) -> impl Iterator<Item = &'static Relocation> {
        self.relocations.into_iter().filter(|(at, _)| *at != 0).flat_map(|(at, len)| {
            // SAFETY: a table of the object's.
            unsafe { core::slice::from_raw_parts(at as *const Relocation, len as usize / size_of::<Relocation>()) }
        })
    }

    /// The name of a symbol.
    ///
    /// # Safety
    /// `i` is an index that a table of the object holds; the object is loaded.
    pub unsafe fn name(&self, i: u32) -> &'static [u8] {
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr(self.strings.add((*self.symbols.add(i as usize)).name as usize)).to_bytes() }
    }

    /// Bytes that a symbol's variable takes.
    ///
    /// # Safety
    /// As [`Dynamic::name`].
    pub unsafe fn size(&self, i: u32) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { (*self.symbols.add(i as usize)).size }
    }

    /// Whether a symbol may have no definition.
    ///
    /// # Safety
    /// As [`Dynamic::name`].
    pub unsafe fn is_weak(&self, i: u32) -> bool {
        // SAFETY: the caller's promise.
        unsafe { (*self.symbols.add(i as usize)).info >> 4 == STB_WEAK }
    }

    /// The function or variable `name` of the object's default version.
    ///
    /// # Safety
    /// The object is loaded.
    pub unsafe fn default(&self, name: &[u8]) -> Option<Function> {
        let fits = |s: &Symbol, version| matches!(s.kind(), STT_NOTYPE | STT_OBJECT | STT_FUNC | STT_GNU_IFUNC) && version & HIDDEN == 0;
        // SAFETY: the caller's promise.
        unsafe { self.look_up(name, fits).map(|s| self.place(&*s)) }
    }

    /// Where the function `name` of the object's default version begins and ends.
    ///
    /// # Safety
    /// The object is loaded.
    pub unsafe fn extent(&self, name: &[u8]) -> Option<[u64; 2]> {
        let fits = |s: &Symbol, version| s.kind() == STT_FUNC && version & HIDDEN == 0;
        // SAFETY: the caller's promise.
        unsafe {
            let s = &*self.look_up(name, fits)?;
            let at = self.place(s).at;
            Some([at, at + s.size])
        }
    }

    fn place(&self, s: &Symbol) -> Function {
        Function { at: self.base.wrapping_add(s.value), chosen: s.kind() == STT_GNU_IFUNC }
    }

    /// The function `name` of whatever version, where it is at `at` or anywhere.
    ///
    /// # Safety
    /// The object is loaded.
    pub unsafe fn function(&self, name: &[u8], at: Option<u64>) -> Option<Function> {
        let fits = |s: &Symbol, _| {
            let f = self.place(s);
            matches!(s.kind(), STT_NOTYPE | STT_FUNC | STT_GNU_IFUNC) && at.is_none_or(|at| f.chosen || f.at == at)
        };
        // SAFETY: the caller's promise.
        unsafe { self.look_up(name, fits).map(|s| self.place(&*s)) }
    }

    /// Whether there is another function `name`, of another version, than `than`.
    ///
    /// # Safety
    /// The object is loaded.
    pub unsafe fn has_other(&self, name: &[u8], than: Function) -> bool {
        let fits = |s: &Symbol, _| matches!(s.kind(), STT_NOTYPE | STT_FUNC | STT_GNU_IFUNC) && self.place(s).at != than.at;
        // SAFETY: the caller's promise.
        unsafe { self.look_up(name, fits) }.is_some()
    }

    /// A symbol that is defined here, of that name, and that `fits` by itself and its version.
    unsafe fn look_up(&self, name: &[u8], fits: impl Fn(&Symbol, u16) -> bool) -> Option<*const Symbol> {
        // SAFETY: i is an index that the object's hash table holds.
        let is = |i: u32| unsafe {
            let s = &*self.symbols.add(i as usize);
            let version = if self.versions.is_null() { 0 } else { *self.versions.add(i as usize) };
            s.section != 0 && fits(s, version) && self.name(i) == name
        };
        // SAFETY: tables of a loaded object.
        let index = unsafe {
            if !self.gnu_hash.is_null() {
                gnu_lookup(self.gnu_hash, name, is)
            } else if !self.hash.is_null() {
                sysv_lookup(self.hash, name, is)
            } else {
                None
            }
        }?;
        // SAFETY: as above.
        Some(unsafe { self.symbols.add(index as usize) })
    }
}

unsafe fn gnu_lookup(t: *const u32, name: &[u8], is: impl Fn(u32) -> bool) -> Option<u32> {
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
            if c | 1 == h | 1 && is(i) {
                return Some(i);
            }
            if c & 1 != 0 {
                return None;
            }
            i += 1;
        }
    }
}

unsafe fn sysv_lookup(t: *const u32, name: &[u8], is: impl Fn(u32) -> bool) -> Option<u32> {
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
            if is(i) {
                return Some(i);
            }
            i = *t.add(2 + (buckets + i) as usize);
        }
    }
    None
}
