//! What is to be known of one loaded object, read from its headers in memory.

use super::chain::{Object, copy_to};
use crate::elf;
use crate::sys::sys;
use crate::unwind::eh_frame::{SEGMENTS, Tables};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// Longest name that is kept, and longest build id.
const NAME: usize = 512;
const BUILD_ID: usize = 32;
/// Program headers that are looked at.
const HEADERS: usize = 32;
const PAGE: usize = crate::sys::PAGE as usize;

/// One object. Nothing in it changes while it is loaded, but for who knows of it.
#[repr(C)]
pub struct Module {
    dynamic: u64,
    /// Address in memory less address in the file.
    pub bias: u64,
    /// Executable ranges in memory; unused ones are empty.
    pub code: [[u64; 2]; SEGMENTS],
    pub(super) tables: Tables,
    /// In which reading of the list it was last there.
    pub(super) turn: u32,
    pub(super) loaded: AtomicU32,
    /// 0 the writer does not know of it, 1 it does, 2 it knows that it was unloaded.
    pub(super) told: AtomicU32,
    name_len: u16,
    build_id_len: u16,
    build_id: [u8; BUILD_ID],
    name: [u8; NAME],
}

impl Module {
    /// File name as the loader has it; the program's own path; `[vdso]`.
    pub fn path(&self) -> &[u8] {
        self.name.get(..self.name_len as usize).unwrap_or(b"")
    }

    /// The linker's build id, empty where it made none.
    pub fn build_id(&self) -> &[u8] {
        self.build_id.get(..self.build_id_len as usize).unwrap_or(b"")
    }

    pub(super) fn is_loaded(&self) -> bool {
        self.loaded.load(Relaxed) == 1
    }

    /// Whether it is the same file at the same place.
    pub(super) fn same_image(&self, other: &Module) -> bool {
        self.dynamic == other.dynamic
            && self.bias == other.bias
            && self.code == other.code
            && self.path() == other.path()
            && self.build_id() == other.build_id()
    }
}

/// A program header.
#[derive(Clone, Copy)]
pub struct Header {
    pub kind: u32,
    pub flags: u32,
    /// Where it lies, before the object was placed.
    pub address: u64,
    /// Bytes in the file, and in memory.
    pub file_size: u64,
    pub size: u64,
}

impl Header {
    /// Where it is in memory.
    pub fn span(&self, bias: u64) -> [u64; 2] {
        let start = bias.wrapping_add(self.address);
        [start, start.wrapping_add(self.size)]
    }
}

/// What goes from the first to the last place of two spans.
pub fn around([a, b]: [u64; 2], [from, to]: [u64; 2]) -> [u64; 2] {
    [a.min(from), b.max(to)]
}

/// Bytes of one.
const HEADER: usize = 56;

/// The beginning of an object, where its headers and its build id lie as a rule: copied at once, as each copy is a call of the kernel.
struct Beginning {
    at: u64,
    len: usize,
    words: [u64; 128],
}

impl Beginning {
    fn of(at: u64) -> Beginning {
        let mut b = Beginning { at, len: 0, words: [0; 128] };
        if copy_to(at, b.words.as_mut_ptr().cast(), size_of_val(&b.words)) {
            b.len = size_of_val(&b.words);
        }
        b
    }

    /// Bytes from `at` that are at hand.
    fn bytes(&self, at: u64, len: usize) -> Option<&[u8]> {
        // SAFETY: words as bytes.
        let all = unsafe { core::slice::from_raw_parts(self.words.as_ptr().cast::<u8>(), self.len) };
        let from = usize::try_from(at.checked_sub(self.at)?).ok()?;
        all.get(from..from.checked_add(len)?)
    }

    /// Copies words from `at`, which may lie elsewhere; None where they cannot be read.
    fn copy<const N: usize>(&self, at: u64) -> Option<[u64; N]> {
        let mut to = [[0; 8]; N];
        self.copy_to(at, to.as_flattened_mut()).then(|| to.map(u64::from_le_bytes))
    }

    fn copy_to(&self, at: u64, to: &mut [u8]) -> bool {
        let Some(bytes) = self.bytes(at, to.len()) else { return copy_to(at, to.as_mut_ptr(), to.len()) };
        to.copy_from_slice(bytes);
        true
    }
}

/// Calls `look` for each program header of an object; where that is entered. None where it has none that can be read.
pub fn each_header(o: Object, mut look: impl FnMut(Header)) -> Option<u64> {
    each_header_of(o, &Beginning::of(o.bias), &mut look)
}

fn each_header_of(o: Object, beginning: &Beginning, look: &mut impl FnMut(Header)) -> Option<u64> {
    let (at, count, entry) = headers(o, beginning)?;
    for i in 0..count {
        let [a, _, address, _, file_size, size, _] = beginning.copy::<7>(at + (i * HEADER) as u64)?;
        look(Header { kind: a as u32, flags: (a >> 32) as u32, address, file_size, size });
    }
    Some(entry)
}

/// Reads what is to be known of `o` into `m`. None where it is no object that can be told: without a header or without code.
pub fn read(o: Object, m: &mut Module) -> Option<()> {
    (m.dynamic, m.bias) = (o.dynamic, o.bias);
    (m.code, m.tables) = ([[0; 2]; SEGMENTS], Tables::default());
    (m.name_len, m.build_id_len) = (0, 0);
    m.told.store(0, Relaxed);
    let (mut codes, mut segments) = (0, 0);
    let beginning = Beginning::of(o.bias);
    let mut look = |h: Header| {
        let start = o.bias.wrapping_add(h.address);
        match h.kind {
            libc::PT_LOAD => {
                if h.flags & libc::PF_X != 0 {
                    put(&mut m.code, &mut codes, [start, start.wrapping_add(h.size)]);
                }
                if h.flags & libc::PF_R != 0 && h.flags & libc::PF_W == 0 {
                    put(&mut m.tables.segments, &mut segments, [start as usize, start.wrapping_add(h.file_size) as usize]);
                }
            }
            libc::PT_GNU_EH_FRAME => m.tables.index = [start as usize, start.wrapping_add(h.size) as usize],
            libc::PT_NOTE if m.build_id_len == 0 => m.read_build_id(&beginning, start, h.size),
            _ => {}
        }
    };
    let entry = each_header_of(o, &beginning, &mut look)?;
    (m.tables.entry, m.tables.stays) = (entry as usize, o.stays);
    // The index lies inside one of the segments, else it is none.
    let [from, to] = m.tables.index;
    if !m.tables.segments.iter().any(|[a, b]| *a <= from && to <= *b) {
        m.tables.index = [0, 0];
    }
    m.read_name(o);
    (codes > 0).then_some(())
}

fn put<T: Copy>(list: &mut [T; SEGMENTS], count: &mut usize, v: T) {
    if let Some(place) = list.get_mut(*count) {
        *place = v;
        *count += 1;
    }
}

/// Where the program headers of an object are, how many, and where it is entered.
fn headers(o: Object, beginning: &Beginning) -> Option<(u64, usize, u64)> {
    if o.program
        && let (Some(at), Some(count)) = (auxiliary(libc::AT_PHDR), auxiliary(libc::AT_PHNUM))
    {
        return Some((at, (count as usize).min(HEADERS), auxiliary(libc::AT_ENTRY).unwrap_or(0)));
    }
    // The file's header is what stands at address 0 of the file, but in files that were laid out for a fixed place.
    let [magic, _, _, entry, offset, _, sizes, counts] = beginning.copy::<8>(o.bias)?;
    if magic as u32 != u32::from_le_bytes(*b"\x7fELF") || (sizes >> 48) as usize != HEADER {
        return None;
    }
    Some((o.bias.wrapping_add(offset), (counts as u16 as usize).min(HEADERS), o.bias.wrapping_add(entry)))
}

fn auxiliary(kind: u64) -> Option<u64> {
    let find = elf::weak_symbol!("getauxval");
    if find.is_null() {
        return None;
    }
    // SAFETY: the C library's function, which reads a vector that never changes.
    let v = unsafe { core::mem::transmute::<*const core::ffi::c_void, unsafe extern "C" fn(u64) -> u64>(find)(kind) };
    (v != 0).then_some(v)
}

impl Module {
    /// Looks for the build id among the notes at `at`.
    fn read_build_id(&mut self, beginning: &Beginning, mut at: u64, len: u64) {
        const NT_GNU_BUILD_ID: u64 = 3;
        const GNU: u64 = u32::from_le_bytes(*b"GNU\0") as u64;
        let end = at.wrapping_add(len);
        for _ in 0..16 {
            if at.wrapping_add(16) > end {
                return;
            }
            let Some([sizes, kind_name]) = beginning.copy::<2>(at) else { return };
            let (name_len, len) = (sizes & 0xffff_ffff, sizes >> 32);
            if name_len == 4 && kind_name & 0xffff_ffff == NT_GNU_BUILD_ID && kind_name >> 32 == GNU {
                let len = (len as usize).min(BUILD_ID);
                if at.wrapping_add(16 + len as u64) <= end && self.build_id.get_mut(..len).is_some_and(|to| beginning.copy_to(at + 16, to))
                {
                    self.build_id_len = len as u16;
                }
                return;
            }
            at = at.wrapping_add(12 + ((name_len + 3) & !3) + ((len + 3) & !3));
        }
    }

    fn read_name(&mut self, o: Object) {
        let vdso = auxiliary(libc::AT_SYSINFO_EHDR) == Some(o.bias);
        if vdso {
            self.set_name(b"[vdso]");
        } else if o.program {
            // SAFETY: the name has room; the path is zero-terminated.
            let n = unsafe { sys!(libc::SYS_readlinkat, libc::AT_FDCWD, c"/proc/self/exe".as_ptr(), self.name.as_mut_ptr(), NAME) };
            self.name_len = n.max(0) as u16;
        } else {
            self.copy_name(o.name);
        }
    }

    fn set_name(&mut self, name: &[u8]) {
        for (to, from) in self.name.iter_mut().zip(name) {
            *to = *from;
        }
        self.name_len = name.len().min(NAME) as u16;
    }

    fn copy_name(&mut self, at: u64) {
        self.name_len = copy_string(at, &mut self.name) as u16;
    }
}

/// Copies the string at `at`, in parts that do not cross a page; gives its length, or that of what there is room for.
pub(super) fn copy_string(mut at: u64, whole: &mut [u8]) -> usize {
    let mut len = 0usize;
    while len < whole.len() {
        let part = (PAGE - (at as usize & (PAGE - 1))).min(whole.len() - len);
        let Some(to) = whole.get_mut(len..len + part) else { break };
        if !copy_to(at, to.as_mut_ptr(), part) {
            break;
        }
        if let Some(end) = to.iter().position(|c| *c == 0) {
            return len + end;
        }
        len += part;
        at += part as u64;
    }
    len
}
