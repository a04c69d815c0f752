//! Who sees whom among libraries that came by `dlopen`: those that one opening brought, what each needs with it. Nothing tells of openings; but where there is
//! an object that needs two, directly or not, one opening has brought both. Not by the loader's own handles, which are whole only of objects that
//! somebody opened by themselves.

use super::{locked, split};
use crate::elf::{self, Dynamic, Object, objects, tag};
use core::ffi::CStr;

/// Objects that are looked at, by their places in the loader's list.
type Set = [u64; 32];

fn has(set: &Set, i: usize) -> bool {
    set.get(i / 64).is_some_and(|word| word >> (i % 64) & 1 == 1)
}

/// Whether it was not there.
fn add(set: &mut Set, i: usize) -> bool {
    let Some(word) = set.get_mut(i / 64) else { return false };
    let new = *word >> (i % 64) & 1 == 0;
    *word |= 1 << (i % 64);
    new
}

/// Whether an object names another one as needed.
unsafe fn needs(o: *const Object, other: *const Object) -> bool {
    // SAFETY: loaded objects.
    unsafe {
        let path = elf::name(other);
        let path = if path.is_null() { b"" } else { CStr::from_ptr(path).to_bytes() };
        let (_, file) = split(path);
        let is_it =
            |name: &[u8]| !name.is_empty() && (name == path || name == file || Dynamic::names(other, tag::SONAME).any(|own| own == name));
        Dynamic::names(o, tag::NEEDED).any(is_it)
    }
}

/// The object, those that need it, those that need them …
unsafe fn bringers(of: *const Object) -> Set {
    let (mut set, mut done): (Set, Set) = ([0; 32], [0; 32]);
    if let Some(i) = objects().position(|o| o == of) {
        add(&mut set, i);
    }
    let mut more = true;
    while more {
        more = false;
        for (i, needed) in objects().enumerate() {
            if !has(&set, i) || !add(&mut done, i) {
                continue;
            }
            for (k, o) in objects().enumerate() {
                // SAFETY: as called.
                more |= !has(&set, k) && unsafe { needs(o, needed) } && add(&mut set, k);
            }
        }
    }
    set
}

/// Whether a library sees a function of a name, other than one of an object that everybody sees.
///
/// # Safety
/// `caller` is a loaded object.
pub unsafe fn sees(caller: *const Object, name: &[u8], but: *const Object) -> bool {
    let mut found = false;
    locked(|| {
        // SAFETY: objects of the loader's list, under its lock.
        unsafe {
            let mine = bringers(caller);
            let mut all = objects().filter(|o| *o != but && elf::defines(*o, name));
            found = all.any(|o| bringers(o).iter().zip(&mine).any(|(a, b)| a & b != 0));
        }
    });
    found
}
