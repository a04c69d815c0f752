//! The loader's list of objects, read without its lock: other threads may load and unload meanwhile. Every word of it is read by the
//! kernel, which fails where an instruction of ours would fault; links are followed only where they lead back.

use super::super::reach::readable;
use crate::elf;
use crate::sys;
use crate::unwind::eh_frame::Tables;
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

/// An object of the list: what its addresses in the file are shifted by, its name and its dynamic section.
#[derive(Clone, Copy)]
pub struct Object {
    pub bias: u64,
    pub name: u64,
    pub dynamic: u64,
    /// It is the first: the program.
    pub program: bool,
    /// It was there when the program began.
    pub stays: bool,
}

/// Objects that are followed; a list longer than that is none.
const LONGEST: usize = 4096;

/// glibc's own counters: objects ever loaded, and objects in the list. Point at zeros where they are not known.
static ADDED: AtomicPtr<u64> = AtomicPtr::new((&raw const ZERO).cast_mut());
static HELD: AtomicPtr<u32> = AtomicPtr::new((&raw const ZERO).cast::<u32>().cast_mut());
static ZERO: u64 = 0;
/// Objects that were there at the beginning; none of them is ever unloaded.
static INITIAL: AtomicU32 = AtomicU32::new(1);
static COUNTED: AtomicU32 = AtomicU32::new(0);
/// The last object of the list when it was last seen to its end.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Objects ever loaded and objects loaded now.
#[inline(always)]
pub fn counters() -> [u64; 2] {
    // SAFETY: words of the loader's data, which is never unmapped, or a word of ours.
    unsafe { [ADDED.load(Relaxed).read_volatile(), HELD.load(Relaxed).read_volatile() as u64] }
}

/// Whether the counters are known.
pub fn counted() -> bool {
    COUNTED.load(Relaxed) != 0
}

/// glibc's `_dl_find_object` (from 2.35 on), null elsewhere.
static FIND: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Where the tables of a place are, by glibc's own lookup, which takes no lock: for the moments in which the list is being changed or read.
pub fn ask(place: u64) -> Option<Tables> {
    let find = FIND.load(Relaxed);
    if find.is_null() {
        return None;
    }
    // Flags, first and last address, object, unwind tables, seven reserved words.
    let mut found = [0u64; 16];
    // SAFETY: the C library's function and its signature; there is more room than it has words.
    let failed = unsafe {
        let find: unsafe extern "C" fn(u64, *mut u64) -> i32 = core::mem::transmute(find);
        find(place, found.as_mut_ptr())
    };
    let [_, start, end, _, index, ..] = found;
    // Of an object with holes it tells the segment only.
    if failed != 0 || !(start..end).contains(&index) {
        return None;
    }
    let mut tables = Tables { index: [index as usize, end as usize], ..Tables::default() };
    let [segment, ..] = &mut tables.segments;
    *segment = [start as usize, end as usize];
    Some(tables)
}

/// Bytes of a mutex of glibc's, and where in it its kind stands.
const MUTEX: usize = 40;
const MUTEX_KIND: usize = 16;

/// Finds the counters. While one thread exists.
///
/// glibc's private `_rtld_global` begins with the list of the first namespace and the number of objects in it, in every version since
/// 2.4. The count of objects ever loaded comes after the namespaces, right behind the loader's recursive locks. Both are taken for what they
/// are only where they agree with the list.
pub fn settle() {
    const NAMESPACES: usize = 1024;
    const END: usize = 4096;
    if let Some(found) = elf::find_from(elf::program(), b"_dl_find_object") {
        FIND.store(found.at.cast_mut(), Relaxed);
    }
    let mut count = 0u64;
    if !each(|_| count += 1) {
        return;
    }
    INITIAL.store(count as u32, Relaxed);
    let Some(found) = elf::find_from(elf::program(), b"_rtld_global") else { return };
    let word = |at: usize| -> u64 {
        let p = found.at as usize + at;
        // SAFETY: aligned, and seen to be readable.
        if readable(p as u64) { unsafe { (p as *const u64).read_volatile() } } else { 0 }
    };
    if word(0) != elf::program() as u64 || word(8) as u32 as u64 != count {
        return;
    }
    let behind_lock = |at: usize| word(at - MUTEX + MUTEX_KIND) as u32 & 3 == libc::PTHREAD_MUTEX_RECURSIVE as u32;
    let is_count = |at: usize| (count..count + 100_000).contains(&word(at));
    if let Some(at) = (NAMESPACES..END).step_by(8).find(|at| is_count(*at) && behind_lock(*at)) {
        ADDED.store((found.at as usize + at) as *mut u64, Relaxed);
        HELD.store((found.at as usize + 8) as *mut u32, Relaxed);
        COUNTED.store(1, Release);
    }
}

/// Whether a lock of the loader's is held, where it can be told; else it may be. Asked by a thread that holds none, while there is no other.
///
/// In glibc they are the two or three recursive mutexes right in front of the counter.
pub fn may_be_locked() -> bool {
    let added = ADDED.load(Relaxed) as usize;
    if !counted() {
        return true;
    }
    (1..=3).any(|n| {
        let at = (added - n * MUTEX) as *const u32;
        // SAFETY: words of the loader's data, which is never unmapped.
        unsafe {
            let is_mutex = at.byte_add(MUTEX_KIND).read_volatile() & 3 == libc::PTHREAD_MUTEX_RECURSIVE as u32;
            is_mutex && at.read_volatile() != 0
        }
    })
}

/// Copies `N` words from `at`; None where they cannot be read.
pub fn copy<const N: usize>(at: u64) -> Option<[u64; N]> {
    let mut to = [0u64; N];
    copy_to(at, to.as_mut_ptr().cast(), N * 8).then_some(to)
}

/// Copies `len` bytes from `at`, by the kernel; whether all could be read.
pub fn copy_to(at: u64, to: *mut u8, len: usize) -> bool {
    // SAFETY: `to` has room.
    let n = unsafe { sys::copy_own(at, to, len) };
    if n == -libc::ENOSYS as i64 || n == -libc::EPERM as i64 {
        // Forbidden here: looked at first.
        let last = (at + len as u64).saturating_sub(1);
        let pages = (at >> 12)..=(last >> 12);
        if !pages.into_iter().all(|p| readable(p << 12)) {
            return false;
        }
        // SAFETY: readable a moment ago; objects are unloaded too rarely to be just now.
        unsafe { core::ptr::copy_nonoverlapping(at as *const u8, to, len) };
        return true;
    }
    n == len as i64
}

/// Whether the list goes on where it ended, or is another one by now.
pub fn has_more() -> bool {
    let at = LAST.load(Relaxed);
    at == 0 || copy::<5>(at).is_none_or(|[_, _, _, next, _]| next != 0)
}

/// Calls `look` for each object, in the list's order; whether the list was seen to its end.
pub fn each(look: impl FnMut(Object)) -> bool {
    seen_to(follow(elf::program() as *const c_void as u64, 0, INITIAL.load(Relaxed) as usize, look))
}

/// The same for who only asks: what is remembered of the list stays as it is.
pub fn visit(look: impl FnMut(Object)) -> bool {
    follow(elf::program() as *const c_void as u64, 0, INITIAL.load(Relaxed) as usize, look).is_some()
}

fn seen_to(last: Option<u64>) -> bool {
    if let Some(last) = last {
        LAST.store(last, Relaxed);
    }
    last.is_some()
}

/// Calls `look` for the objects that came since the list was last seen to its end. Nothing has gone since then.
pub fn each_new(look: impl FnMut(Object)) -> bool {
    let last = LAST.load(Relaxed);
    match copy::<5>(last) {
        Some([_, _, _, next, _]) if last != 0 => seen_to(follow(next, last, 0, look)),
        _ => false,
    }
}

/// Gives the last object, where the list was seen to its end. Of those that it comes to, the first `stay` were there at the beginning.
fn follow(mut at: u64, mut before: u64, stay: usize, mut look: impl FnMut(Object)) -> Option<u64> {
    for i in 0..LONGEST {
        if at == 0 {
            return Some(before);
        }
        let [bias, name, dynamic, next, back] = copy::<5>(at)?;
        if back != before {
            return None;
        }
        look(Object { bias, name, dynamic, program: before == 0, stays: i < stay });
        (before, at) = (at, next);
    }
    None
}
