//! Lines about stacks: nodes, code objects, modules, the interpreter.

use super::side;
use crate::config::{CONFIG, NATIVE, PYTHON};
use crate::text::Text;
use crate::unwind::modules;
use crate::{python, python_alloc, sys};
use memshim_format::spool::*;

/// What the header says of stacks.
pub(super) fn settings(t: &mut Text) {
    // SAFETY: settings are read-only.
    let wanted = unsafe { CONFIG.stacks };
    let name = match wanted {
        0 => "off",
        NATIVE => "native",
        PYTHON => "python",
        _ => "mixed",
    };
    t.str(",\"stacks\":\"").str(name).str("\"");
    let state = python::state().filter(|_| wanted & PYTHON != 0);
    // SAFETY: the lock is held, or one thread exists.
    unsafe { SAID = state.is_some() };
    match state {
        Some(p) => t
            .str(",\"python\":")
            .quoted(p.version)
            .str(if p.known { "" } else { ",\"python_known\":false" })
            .str(if p.free_threaded { ",\"free_threaded\":true" } else { "" }),
        None => t.str(",\"python\":null"),
    };
}

/// What interpreter there is stands in the trace.
static mut SAID: bool = false;
/// Libraries that may be interpreters and have been loaded since the start: where they lie, when that was seen, their files' names.
static mut LATE: (u64, u64, [u8; 32]) = (0, 0, [0; 32]);
/// By then the loader has made a library ready.
const READY_NS: u64 = 50_000_000;

/// Notes such a library.
fn note_late(path: &[u8], bias: u64) {
    let file = path.rsplit(|c| *c == b'/').next().unwrap_or(path);
    // SAFETY: the lock is held.
    if file.starts_with(b"libpython") && unsafe { !SAID } {
        let mut name = [0; 32];
        name.iter_mut().zip(file).for_each(|(to, c)| *to = *c);
        // SAFETY: the lock is held.
        unsafe { LATE = (bias, sys::now(), name) };
    }
}

/// Looks at one that was noted, and says what it is.
fn consider_late() {
    // SAFETY: the lock is held.
    let (bias, since, name) = unsafe { LATE };
    if bias == 0 || sys::now() < since + READY_NS {
        return;
    }
    // SAFETY: as above.
    unsafe { LATE.0 = 0 };
    python::notice(&name, bias);
    // SAFETY: settings are read-only.
    if unsafe { CONFIG.python_alloc } && python::state().is_some() && !python_alloc::are_wrapped() {
        super::note(&["Python was loaded after the program's start: its blocks are not seen"]);
    }
    if let Some(p) = python::state() {
        // SAFETY: as above.
        unsafe { SAID = true };
        side(|t| {
            t.str("{\"type\":\"python\"").field("t", sys::now()).str(",\"version\":").quoted(p.version);
            t.str(if p.known { ",\"known\":true}\n" } else { ",\"known\":false}\n" });
        });
    }
}

/// Writes which modules have come and gone since the last time.
pub fn loaded() {
    // SAFETY: settings are read-only.
    if unsafe { CONFIG.stacks } & NATIVE == 0 {
        return;
    }
    consider_late();
    modules::tell(
        |id, m| {
            note_late(m.path(), m.bias);
            side(|t| {
                t.str("{\"type\":\"modules\"").field("t", sys::now()).str(",\"load\":[[").num(id as u64).str(",").num(m.bias);
                t.str(",").quoted(m.path()).str(",\"");
                hex(t, m.build_id());
                t.str("\",[");
                for (i, [start, end]) in m.code.iter().filter(|[start, end]| start < end).enumerate() {
                    t.str(if i > 0 { ",[" } else { "[" }).num(*start).str(",").num(*end).str("]");
                }
                t.str("]]]}\n");
            });
        },
        |id| {
            side(|t| {
                t.str("{\"type\":\"modules\"").field("t", sys::now()).str(",\"unload\":[").num(id as u64).str("]}\n");
            });
        },
    );
}

/// Writes the pending nodes of a lane, native (`which` 0) or Python (1), if there are any.
///
/// # Safety
/// The lock is held; `c` is the lane's commit under way.
pub unsafe fn nodes(i: u32, lane: *mut Lane, c: &mut Commit, which: usize) {
    let of = &mut c.stacks.nodes[which & 1];
    if of.count == 0 {
        return;
    }
    loaded();
    // SAFETY: so many bytes of the column are used.
    let column = unsafe { core::slice::from_raw_parts((&raw const (*lane).nodes[which & 1]).cast::<u8>(), of.len as usize) };
    side(|t| {
        t.str(if which == 0 { "{\"type\":\"nodes\"" } else { "{\"type\":\"pynodes\"" });
        t.field("lane", i as u64).field("from", of.from as u64).field("n", of.count as u64);
        t.str(",\"nodes\":\"").bytes(column).str("\"}\n");
    });
    (of.count, of.len, of.last) = (0, 0, 0);
}

/// Writes the definition of a code object: file and name lie one after the other in `texts`.
pub fn code(texts: &[u8], number: u64, version: u32, first_line: u32, lens: [usize; 2]) {
    let part = |from: usize, len: usize| texts.get(from..from + len).unwrap_or(b"");
    let [file, name] = lens;
    side(|t| {
        t.str("{\"type\":\"code\",\"codes\":[[").num(number).str(",").quoted(part(0, file)).str(",").quoted(part(file, name));
        t.str(",").num(first_line as u64).str(",").num(version as u64).str("]]}\n");
    });
}

fn hex(t: &mut Text, bytes: &[u8]) {
    for b in bytes {
        let digit = |d: u8| if d < 10 { b'0' + d } else { b'a' + d - 10 };
        t.bytes(&[digit(b >> 4), digit(b & 15)]);
    }
}
