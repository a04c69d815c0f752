//! Structures of the API, as its header has them: with fields that nobody here reads.
#![allow(dead_code)]

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    pub kind: i32,
    pub id: i32,
}

pub const ON_DEVICE: i32 = 1;
/// On a node of the host's memory.
pub const ON_NODE: i32 = 3;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Descriptor2 {
    pub w: u64,
    pub h: u64,
    pub format: i32,
    pub channels: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct NarrowDescriptor2 {
    pub w: u32,
    pub h: u32,
    pub format: i32,
    pub channels: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Descriptor3 {
    pub w: u64,
    pub h: u64,
    pub d: u64,
    pub format: i32,
    pub channels: u32,
    pub flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct NarrowDescriptor3 {
    pub w: u32,
    pub h: u32,
    pub d: u32,
    pub format: i32,
    pub channels: u32,
    pub flags: u32,
}

/// What an end of a copy is.
pub const HOST: i32 = 1;
pub const ARRAY: i32 = 3;

/// A copy of two dimensions: `N` is a size, `P` an address of the device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Plane<N, P> {
    from_x: N,
    from_y: N,
    pub from_kind: i32,
    pub from_host: u64,
    pub from_device: P,
    from_array: u64,
    pub from_pitch: N,
    to_x: N,
    to_y: N,
    pub to_kind: i32,
    pub to_host: u64,
    pub to_device: P,
    to_array: u64,
    pub to_pitch: N,
    pub w: N,
    pub h: N,
}

/// An end of a copy of three dimensions.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct End3<N, P> {
    at: [N; 3],
    lod: N,
    pub kind: i32,
    pub host: u64,
    pub device: P,
    array: u64,
    pub context: u64,
    pitch: N,
    height: N,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Volume<N, P> {
    pub from: End3<N, P>,
    pub to: End3<N, P>,
    pub w: N,
    pub h: N,
    pub d: N,
}

/// An end of one of several copies: a pointer, or an array.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Operand {
    pub kind: i32,
    /// An address, or an array's handle.
    pub at: u64,
    rest: [u64; 3],
}

impl Operand {
    pub fn is_array(&self) -> bool {
        self.kind == 2
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Operation {
    pub from: Operand,
    pub to: Operand,
    pub w: u64,
    pub h: u64,
    pub d: u64,
    order: i32,
    flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct SetNode {
    at: u64,
    pitch: u64,
    value: u32,
    pub element: u32,
    pub w: u64,
    pub h: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct AllocNode {
    kind: i32,
    handles: i32,
    at: Location,
    security: u64,
    most: u64,
    reserved: [u8; 56],
    access: u64,
    accesses: u64,
    pub bytes: u64,
    pub address: u64,
}

/// The configuration of a kernel's launch.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    pub stream: u64,
    attributes: u64,
    n: u32,
}
