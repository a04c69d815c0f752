//! The offsets that an interpreter from 3.13 on says of itself: `_PyRuntime` begins with `_Py_DebugOffsets`, a cookie, a version and a list
//! of 64-bit words. The list differs between minor versions; one that is not known here is not guessed.

use super::layout::{Layout, NONE};

const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");

/// Which word says what.
struct Words {
    thread: usize,
    frame: usize,
    code: usize,
    object: usize,
    bytes: usize,
    unicode: usize,
    /// Words of `tlbc_index` and `co_tlbc`, 0 none.
    tlbc_index: usize,
    tlbc: usize,
}

const V313: Words = Words { thread: 19, frame: 28, code: 34, object: 44, bytes: 64, unicode: 67, tlbc_index: 0, tlbc: 0 };
const V314: Words = Words { thread: 22, frame: 31, code: 39, object: 50, bytes: 74, unicode: 77, tlbc_index: 38, tlbc: 49 };

/// Reads the layout of the interpreter whose `_PyRuntime` this is, and whether it is a free-threaded one.
///
/// # Safety
/// `runtime` is the variable of that name of an interpreter from 3.13 on.
pub unsafe fn read(runtime: *const u64, version: u16) -> Option<(Layout, bool)> {
    // SAFETY: the structure is larger than what is read.
    let at = |i: usize| unsafe { runtime.add(i).read() };
    let w = match version {
        0x030d => V313,
        0x030e => V314,
        _ => return None,
    };
    if at(0) != COOKIE || (at(1) >> 16) as u16 != version {
        return None;
    }
    let free_threaded = at(2) != 0;
    let mut good = true;
    let mut field = |i: usize| {
        let v = at(i);
        good &= v < 4096;
        v as u16
    };
    let ascii = field(w.unicode + 3);
    let mut layout = Layout {
        thread_id: field(w.thread + 5),
        top: field(w.thread + 4),
        cframe_current: NONE,
        cframe_previous: NONE,
        stack_chunk: NONE,
        stack_top: NONE,
        previous: field(w.frame + 1),
        code: field(w.frame + 2),
        instr: field(w.frame + 3),
        entry: NONE,
        owner: field(w.frame + 5),
        shim_owner: 3,
        filename: field(w.code + 1),
        name: field(w.code + 2),
        qualname: field(w.code + 3),
        lines: field(w.code + 4),
        firstlineno: field(w.code + 5),
        start: field(w.code + 9),
        // The version number stands right before the names of locals.
        stamp: field(w.code + 7).wrapping_sub(4),
        tlbc: NONE,
        tlbc_index: NONE,
        finalizing: field(4),
        object_type: field(w.object + 1),
        unicode_state: field(w.unicode + 1),
        unicode_length: field(w.unicode + 2),
        unicode_kind_bit: 2,
        unicode_ascii: ascii,
        unicode_compact: ascii.wrapping_add(16),
        bytes_size: field(w.bytes + 1),
        bytes_data: field(w.bytes + 2),
        code_size: field(w.code + 9),
    };
    if free_threaded && w.tlbc != 0 {
        layout.tlbc = field(w.tlbc);
        layout.tlbc_index = field(w.tlbc_index);
        // `interned` is a byte of its own there.
        layout.unicode_kind_bit = 8;
    }
    good.then_some((layout, free_threaded))
}
