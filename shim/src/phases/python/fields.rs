//! Where the fields lie that phases need besides those of a walk ([`crate::python`]), for each minor version of CPython on 64-bit machines.
//! A test recomputes the table from the headers of the interpreters it finds. What a version does not have is `NONE`.

/// A field that this version does not have.
pub const NONE: u16 = u16::MAX;

/// Offsets in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fields {
    /// Frame.
    pub code: u16,
    pub globals: u16,
    pub locals: u16,
    /// The object that stands for the frame (from 3.11); before, the frame is that object.
    pub frame_object: u16,
    /// Who owns the frame (3.11): 0 its thread, 1 a generator.
    pub owner: u16,
    /// Up to 3.9: null but in a generator that is suspended.
    pub stack_top: u16,
    /// 3.10: negative in a generator that is suspended.
    pub state: u16,
    /// Code object.
    pub flags: u16,
    pub constants: u16,
    pub name: u16,
    pub filename: u16,
    pub first_line: u16,
    /// Code object (from 3.12): what monitoring has of it; and in that: tools that are told of its returns, by bits.
    pub monitoring: u16,
    pub return_tools: u16,
    /// Interpreter.
    pub eval_frame: u16,
    /// Thread state (3.11): how many calls are left, and of how many.
    pub calls_left: u16,
    pub calls: u16,
}

/// What is needed besides of 3.11, whose calls from Python to Python stay in one run of its loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inlined {
    /// Frame: its function, and the first of its locals.
    pub function: u16,
    pub first_local: u16,
    /// Function object: its code object.
    pub function_code: u16,
    /// Code object: how many arguments, how many that have a name only, how many locals with cells and free variables; where exceptions lead.
    pub arguments: u16,
    pub named_arguments: u16,
    pub all_locals: u16,
    pub exceptions: u16,
    /// A `_PyCFrame`: 255 where instructions are traced.
    pub traces: u16,
}

pub const INLINED: Inlined = Inlined {
    function: 0,
    first_local: 72,
    function_code: 48,
    arguments: 56,
    named_arguments: 64,
    all_locals: 76,
    exceptions: 40,
    traces: 0,
};

/// Thread state: its interpreter.
pub const INTERPRETER: u16 = 16;
/// Tuple: its items (up to 3.13).
pub const ITEMS: u16 = 24;
/// The frame's byte (3.11) of the generator that it lies in, before the frame: negative while that is suspended.
pub const GENERATOR_STATE: isize = -5;
/// Type object: what is set in one of ours.
pub const TYPE_NAME: usize = 24;
pub const TYPE_SIZE: usize = 32;
pub const TYPE_DEALLOC: usize = 48;
/// At least as large as a type object is.
pub const TYPE: usize = 512;

const V37: Fields = Fields {
    code: 32,
    globals: 48,
    locals: 56,
    frame_object: NONE,
    owner: NONE,
    stack_top: 72,
    state: NONE,
    flags: 32,
    constants: 48,
    name: 104,
    filename: 96,
    first_line: 36,
    eval_frame: 464,
    calls_left: NONE,
    calls: NONE,
    monitoring: NONE,
    return_tools: NONE,
};
const V38: Fields = Fields { flags: 36, constants: 56, name: 112, filename: 104, first_line: 40, eval_frame: 568, ..V37 };
const V39: Fields = Fields { eval_frame: 1400, ..V38 };
const V310: Fields = Fields { stack_top: NONE, state: 108, eval_frame: 1368, ..V39 };
const V311: Fields = Fields {
    code: 32,
    globals: 8,
    locals: 24,
    frame_object: 40,
    owner: 69,
    state: NONE,
    flags: 48,
    constants: 24,
    name: 120,
    filename: 112,
    first_line: 72,
    eval_frame: 1424,
    calls_left: 32,
    calls: 36,
    ..V310
};
const V312: Fields = Fields {
    code: 0,
    globals: 24,
    locals: 40,
    frame_object: 48,
    owner: 70,
    first_line: 68,
    eval_frame: 1744,
    monitoring: 168,
    return_tools: 17,
    calls_left: NONE,
    calls: NONE,
    ..V311
};
const V313: Fields = Fields { monitoring: 176, return_tools: 12, eval_frame: 8472, ..V312 };

const V314: Fields = Fields { owner: 74, return_tools: 13, eval_frame: 8520, ..V313 };

/// Those of a minor version, 0x030b for 3.11.
pub const fn of(version: u16) -> Option<Fields> {
    match version {
        0x0307 => Some(V37),
        0x0308 => Some(V38),
        0x0309 => Some(V39),
        0x030a => Some(V310),
        0x030b => Some(V311),
        0x030c => Some(V312),
        0x030d => Some(V313),
        0x030e => Some(V314),
        _ => None,
    }
}
