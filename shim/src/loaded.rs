//! Finding a library by name among the objects that are loaded *now*, wherever they were opened from. Under the loader's own lock, by
//! `dl_iterate_phdr`: so not for hooks of allocations. Its users are hooks of GPU libraries, whose own functions take that lock too, and native
//! functions as phases.

mod scope;

pub use scope::sees;

use crate::{cuda, elf, real, sys};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

/// Where a library lies.
#[derive(Clone, Copy)]
pub struct Library {
    pub base: usize,
    pub end: usize,
    dynamic: usize,
    name: *const c_char,
}

impl Library {
    /// Keeps it from being unloaded: what we know of it stays true. A program that closes it and opens it again finds it as it was.
    pub fn keep(self) {
        let open = real::default(b"dlopen");
        if open.is_null() || self.name.is_null() {
            return;
        }
        // SAFETY: the C library's function; the name lives as long as the library, which the caller is using.
        unsafe {
            let open: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void = core::mem::transmute(open);
            open(self.name, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
        }
    }

    /// Its file's name as the loader has it, zero-terminated; valid while it is loaded.
    pub fn name(self) -> *const c_char {
        self.name
    }

    /// Its symbol tables.
    pub fn object(self) -> elf::Object {
        elf::Object::new(self.base as u64, self.dynamic as *const [u64; 2])
    }
}

/// What `dl_iterate_phdr` says of an object (the part that is there since glibc 2.4, and in musl).
#[repr(C)]
struct Info {
    base: usize,
    name: *const c_char,
    headers: *const libc::Elf64_Phdr,
    count: u16,
    /// Objects that were loaded so far, the same for each.
    adds: u64,
}

type Look<T> = unsafe extern "C" fn(*const Info, usize, *mut T) -> c_int;

/// Threads that walk over the loader's list.
static WALKS: AtomicUsize = AtomicUsize::new(0);

/// Whether a thread has the loader's lock by us: a child forked now would inherit it, with nobody to let it go.
pub fn is_walked() -> bool {
    WALKS.load(SeqCst) != 0
}

/// Waits until nobody forks, a second at most.
fn begin_walk() {
    let until = sys::now() + 1_000_000_000;
    loop {
        WALKS.fetch_add(1, SeqCst);
        if !cuda::is_forking() || sys::now() > until {
            return;
        }
        WALKS.fetch_sub(1, SeqCst);
        sys::yield_now();
    }
}

/// A forked child has one thread, which walks nowhere.
pub fn forget() {
    WALKS.store(0, Relaxed);
}

/// Calls `look` for each object until it returns something else than 0.
fn each<T>(look: Look<T>, with: &mut T) {
    begin_walk();
    static ITERATE: AtomicUsize = AtomicUsize::new(0);
    let mut at = ITERATE.load(Relaxed);
    if at == 0 {
        at = real::default(b"dl_iterate_phdr") as usize;
        ITERATE.store(at, Relaxed);
    }
    if at != 0 {
        // SAFETY: the C library's function and its signature.
        unsafe {
            let iterate: unsafe extern "C" fn(Look<T>, *mut c_void) -> c_int = core::mem::transmute(at);
            iterate(look, (with as *mut T).cast());
        }
    }
    WALKS.fetch_sub(1, SeqCst);
}

unsafe fn name_of<'a>(info: *const Info) -> &'a [u8] {
    // SAFETY: the loader's data, under its lock.
    unsafe { if (*info).name.is_null() { b"" } else { CStr::from_ptr((*info).name).to_bytes() } }
}

unsafe extern "C" fn once<F: FnOnce()>(_: *const Info, _: usize, work: *mut Option<F>) -> c_int {
    // SAFETY: the caller's variable.
    if let Some(work) = unsafe { (*work).take() } {
        work();
    }
    1
}

/// Runs `work` under the loader's lock: meanwhile no object comes or goes.
pub fn locked<F: FnOnce()>(work: F) {
    each(once::<F>, &mut Some(work));
}

struct Wanted<'a> {
    prefix: &'a [u8],
    found: Library,
}

unsafe extern "C" fn look_for(info: *const Info, _: usize, wanted: *mut Wanted) -> c_int {
    // SAFETY: the loader's data, under its lock; the caller's variable.
    unsafe {
        let name = name_of(info);
        if !split(name).1.starts_with((*wanted).prefix) {
            return 0;
        }
        let found = &mut (*wanted).found;
        for i in 0..(*info).count as usize {
            let h = &*(*info).headers.add(i);
            let at = (*info).base.wrapping_add(h.p_vaddr as usize);
            match h.p_type {
                libc::PT_DYNAMIC => found.dynamic = at,
                libc::PT_LOAD => found.end = found.end.max(at + h.p_memsz as usize),
                _ => {}
            }
        }
        (found.base, found.name) = ((*info).base, (*info).name);
        1
    }
}

/// The first library whose file name begins with `prefix`.
pub fn find(prefix: &[u8]) -> Option<Library> {
    let mut wanted = Wanted { prefix, found: Library { base: 0, end: 0, dynamic: 0, name: core::ptr::null() } };
    each(look_for, &mut wanted);
    (wanted.found.dynamic != 0).then_some(wanted.found)
}

/// A function that is looked for: its name, what it must not be, who calls it, and the beginning of the file name that its library mostly has.
struct Named<'a> {
    name: &'a [u8],
    but: *const c_void,
    caller: usize,
    /// The path of the caller's object.
    path: &'a [u8],
    file: &'a [u8],
    at: *const c_void,
    /// How near to the caller that is, from 1 on.
    nearness: u32,
}

/// A path's folder, with its slash, and the rest.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let at = path.iter().rposition(|c| *c == b'/').map_or(0, |i| i + 1);
    (path.get(..at).unwrap_or_default(), path.get(at..).unwrap_or_default())
}

/// Whether an address is in an object.
unsafe fn contains(info: *const Info, address: usize) -> bool {
    // SAFETY: the loader's data, under its lock.
    unsafe {
        let mut loads = (0..(*info).count as usize).map(|i| &*(*info).headers.add(i)).filter(|h| h.p_type == libc::PT_LOAD);
        loads.any(|h| address.wrapping_sub((*info).base.wrapping_add(h.p_vaddr as usize)) < h.p_memsz as usize)
    }
}

unsafe extern "C" fn find_caller(info: *const Info, _: usize, named: *mut Named) -> c_int {
    // SAFETY: the loader's data, under its lock; the caller's variable. The name lives as long as the caller's library, which is in use.
    unsafe {
        let named = &mut *named;
        let is_it = contains(info, named.caller);
        if is_it {
            named.path = name_of(info);
        }
        is_it as c_int
    }
}

unsafe extern "C" fn look_in(info: *const Info, _: usize, named: *mut Named) -> c_int {
    // SAFETY: the loader's data, under its lock; the caller's variable.
    unsafe {
        let mut headers = (0..(*info).count as usize).map(|i| &*(*info).headers.add(i));
        let Some(dynamic) = headers.find(|h| h.p_type == libc::PT_DYNAMIC) else { return 0 };
        let object = elf::Object::new((*info).base as u64, (*info).base.wrapping_add(dynamic.p_vaddr as usize) as *const [u64; 2]);
        let named = &mut *named;
        let Some(at) = elf::find_in(&raw const object, named.name).filter(|at| *at != named.but) else { return 0 };
        let (folder, file) = split(name_of(info));
        let nearness = match () {
            _ if contains(info, named.caller) => 4,
            _ if !folder.is_empty() && folder == split(named.path).0 => 3,
            _ if file.starts_with(named.file) => 2,
            _ => 1,
        };
        if nearness > named.nearness {
            (named.at, named.nearness) = (at, nearness);
        }
        0
    }
}

/// The function of a name that a caller means, but for one that is known: in its own library, in one beside it, in one whose file name begins with
/// `file`, in the first of all; null where there is none.
pub fn function(name: &[u8], but: *const c_void, caller: usize, file: &[u8]) -> *const c_void {
    let mut named = Named { name, but, caller, path: b"", file, at: core::ptr::null(), nearness: 0 };
    each(find_caller, &mut named);
    each(look_in, &mut named);
    named.at
}

struct Marks<'a> {
    signs: &'a [&'a [&'a [u8]]],
    seen: u64,
    before: u64,
    adds: u64,
}

unsafe extern "C" fn mark(info: *const Info, _: usize, marks: *mut Marks) -> c_int {
    // SAFETY: the loader's data, under its lock; the caller's variable.
    unsafe {
        (*marks).adds = (*info).adds;
        if (*marks).adds == (*marks).before {
            return 1;
        }
        let name = name_of(info);
        for (i, signs) in (*marks).signs.iter().enumerate() {
            if signs.iter().any(|sign| bears(name, sign)) {
                (*marks).seen |= 1 << i;
            }
        }
        0
    }
}

/// Whether a path has a sign: folders one in the other, with a slash after each, or else the beginning of the file's name.
fn bears(path: &[u8], sign: &[u8]) -> bool {
    let (folder, file) = split(path);
    if !sign.ends_with(b"/") {
        return file.starts_with(sign);
    }
    let begins = |at: usize| at == 0 || folder.get(at - 1) == Some(&b'/');
    (0..folder.len()).any(|at| begins(at) && folder.get(at..).is_some_and(|rest| rest.starts_with(sign)))
}

/// Of which of `signs` (64 at most) the path of a loaded object has one: bit by bit. A sign is folders one in the other, each with a slash
/// after it (`cupy/cuda/`), or the beginning of a file's name. `until`: how many objects had been loaded when this was asked last; where none has come
/// since, nothing is looked at.
pub fn mentioned(signs: &[&[&[u8]]], until: &AtomicU64) -> u64 {
    let before = until.load(Relaxed);
    let mut marks = Marks { signs, seen: 0, before, adds: before };
    each(mark, &mut marks);
    until.store(marks.adds, Relaxed);
    marks.seen
}

struct Path<'a> {
    word: &'a [u8],
    into: &'a mut [u8],
    len: usize,
}

unsafe extern "C" fn take_path(info: *const Info, _: usize, path: *mut Path) -> c_int {
    // SAFETY: the loader's data, under its lock; the caller's variable.
    unsafe {
        let (name, path) = (name_of(info), &mut *path);
        let Some(at) = (0..name.len()).find(|at| name.get(*at..).is_some_and(|rest| rest.starts_with(path.word))) else { return 0 };
        let Some((from, to)) = name.get(..at + path.word.len()).and_then(|n| Some((n, path.into.get_mut(..n.len())?))) else { return 0 };
        to.copy_from_slice(from);
        path.len = from.len();
        1
    }
}

/// The path of the first loaded object in which `word` stands, up to and with the word, copied: how long it is, 0 for none.
pub fn path_up_to(word: &[u8], into: &mut [u8]) -> usize {
    let mut path = Path { word, into, len: 0 };
    each(take_path, &mut path);
    path.len
}

/// The object that an address is in; null where there is none, and for the program, whose scope is the global one.
pub fn object_at(address: usize) -> *const elf::Object {
    const RTLD_DL_LINKMAP: c_int = 2;
    let f = real::default(b"dladdr1");
    if f.is_null() {
        return core::ptr::null();
    }
    // SAFETY: the C library's function; it writes four pointers and one more. The loader's handles are its objects.
    unsafe {
        let ask: unsafe extern "C" fn(usize, *mut [usize; 4], *mut *mut c_void, c_int) -> c_int = core::mem::transmute(f);
        let (mut info, mut object) = ([0usize; 4], core::ptr::null_mut::<c_void>());
        let found = ask(address, &raw mut info, &raw mut object, RTLD_DL_LINKMAP) != 0;
        let object = object.cast::<elf::Object>().cast_const();
        if found && object != elf::program() { object } else { core::ptr::null() }
    }
}
