//! Where the fields lie that a walk reads, for each minor version of CPython on 64-bit machines. Up to 3.12 from the table here, which a
//! test recomputes from the headers of the interpreters it finds; from 3.13 on the interpreter says it itself (see [`super::offsets`]).

/// A field that this version does not have.
pub const NONE: u16 = u16::MAX;

/// Offsets in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Layout {
    /// Thread state: its thread's handle (`pthread_self`), and where the walk begins.
    pub thread_id: u16,
    pub top: u16,
    /// 3.11 and 3.12: `top` holds a `_PyCFrame` of the C stack, which has the frame here.
    pub cframe_current: u16,
    pub cframe_previous: u16,
    /// 3.11 and 3.12: the newest chunk of the thread's stack of frames, and its first byte that is free.
    pub stack_chunk: u16,
    pub stack_top: u16,
    /// Frame.
    pub previous: u16,
    pub code: u16,
    pub instr: u16,
    /// 3.11: `is_entry`; `owner` is the next byte.
    pub entry: u16,
    /// From 3.12: who owns it; from `shim_owner` on it is a C shim frame, which has no code of the program's.
    pub owner: u16,
    pub shim_owner: u8,
    /// Code object.
    pub filename: u16,
    pub name: u16,
    pub qualname: u16,
    pub firstlineno: u16,
    pub lines: u16,
    /// First instruction; before 3.11 `instr` is an index already.
    pub start: u16,
    /// Four bytes that tell a code object from its predecessor at the same address: its version number from 3.12, else part of its line
    /// table's address.
    pub stamp: u16,
    /// Bytecode of its own for each thread (free-threaded 3.14): an array in the code object, its index in the frame.
    pub tlbc: u16,
    pub tlbc_index: u16,
    /// Runtime: the thread state that ends the interpreter, null while it lives.
    pub finalizing: u16,
    /// Objects.
    pub object_type: u16,
    pub unicode_length: u16,
    pub unicode_state: u16,
    /// Bit in the state at which `kind` begins; `compact` and `ascii` follow it.
    pub unicode_kind_bit: u8,
    /// Where the characters begin: of ASCII strings, of others.
    pub unicode_ascii: u16,
    pub unicode_compact: u16,
    pub bytes_size: u16,
    pub bytes_data: u16,
    /// `tp_basicsize` of the type of code objects, by which a layout is recognised.
    pub code_size: u16,
}

const V37: Layout = Layout {
    thread_id: 176,
    top: 24,
    cframe_current: NONE,
    cframe_previous: NONE,
    stack_chunk: NONE,
    stack_top: NONE,
    previous: 24,
    code: 32,
    instr: 104,
    entry: NONE,
    owner: NONE,
    shim_owner: u8::MAX,
    filename: 96,
    name: 104,
    qualname: NONE,
    firstlineno: 36,
    lines: 112,
    start: NONE,
    stamp: 112,
    tlbc: NONE,
    tlbc_index: NONE,
    finalizing: 8,
    object_type: 8,
    unicode_length: 16,
    unicode_state: 32,
    unicode_kind_bit: 2,
    unicode_ascii: 48,
    unicode_compact: 72,
    bytes_size: 16,
    bytes_data: 32,
    code_size: 144,
};

const V38: Layout = Layout { filename: 104, name: 112, firstlineno: 40, lines: 120, stamp: 120, finalizing: 16, code_size: 176, ..V37 };

const V310: Layout = Layout { instr: 96, ..V38 };

const V311: Layout = Layout {
    thread_id: 152,
    top: 56,
    cframe_current: 8,
    cframe_previous: 16,
    stack_chunk: 296,
    stack_top: 304,
    previous: 48,
    code: 32,
    instr: 56,
    entry: 68,
    filename: 112,
    name: 120,
    qualname: 128,
    firstlineno: 72,
    lines: 136,
    start: 184,
    stamp: 136,
    finalizing: 24,
    code_size: 184,
    ..V37
};

const V312: Layout = Layout {
    thread_id: 136,
    cframe_current: 0,
    cframe_previous: 8,
    stack_chunk: 232,
    stack_top: 240,
    previous: 8,
    code: 0,
    entry: NONE,
    owner: 70,
    shim_owner: 3,
    firstlineno: 68,
    start: 192,
    stamp: 92,
    unicode_ascii: 40,
    unicode_compact: 56,
    code_size: 192,
    ..V311
};

/// The layout of a minor version, 0x030b for 3.11.
pub fn of(version: u16) -> Option<Layout> {
    match version {
        0x0307 => Some(V37),
        0x0308 | 0x0309 => Some(V38),
        0x030a => Some(V310),
        0x030b => Some(V311),
        0x030c => Some(V312),
        _ => None,
    }
}
