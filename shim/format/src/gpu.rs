//! What a GPU record says: the names of the hooked driver calls and the kinds of rows, for the shim, which writes them, and the command, which
//! reads them and recovers them from a spool.
//!
//! ```text
//! start word   op = FIRST_OP + kind, 12-bit argument = number of the call, 44 bits = ticket
//! argument 1   CLOCK_MONOTONIC ns at which the call began
//! argument 2   head: result code 0..16, device 16..24 (255 not known), context 24..36, flags 36..60
//! further      as the kind says
//! ```
//!
//! A NAME record has text instead: seven bytes a word, low byte first.

/// Driver calls that are events, by the name without the suffixes of their versions. A trace says them by name; another list is another version of the spool.
pub const CALLS: [&str; 140] = [
    "cuArray3DCreate",
    "cuArrayCreate",
    "cuArrayDestroy",
    "cuCtxCreate",
    "cuCtxDestroy",
    "cuCtxSynchronize",
    "cuDestroyExternalMemory",
    "cuDevicePrimaryCtxRelease",
    "cuDevicePrimaryCtxReset",
    "cuEventSynchronize",
    "cuExternalMemoryGetMappedBuffer",
    "cuExternalMemoryGetMappedMipmappedArray",
    "cuGetProcAddress",
    "cuGraphAddChildGraphNode",
    "cuGraphAddMemcpyNode",
    "cuGraphAddMemsetNode",
    "cuGraphClone",
    "cuGraphCreate",
    "cuGraphDestroy",
    "cuGraphExecChildGraphNodeSetParams",
    "cuGraphExecDestroy",
    "cuGraphExecKernelNodeSetParams",
    "cuGraphExecMemcpyNodeSetParams",
    "cuGraphExecMemsetNodeSetParams",
    "cuGraphExecNodeSetParams",
    "cuGraphExecUpdate",
    "cuGraphInstantiate",
    "cuGraphInstantiateWithFlags",
    "cuGraphInstantiateWithParams",
    "cuGraphLaunch",
    "cuGraphUpload",
    "cuGreenCtxStreamCreate",
    "cuImportExternalMemory",
    "cuIpcCloseMemHandle",
    "cuIpcOpenMemHandle",
    "cuLaunch",
    "cuLaunchCooperativeKernel",
    "cuLaunchCooperativeKernelMultiDevice",
    "cuLaunchGrid",
    "cuLaunchGridAsync",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuMemAlloc",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemAllocHost",
    "cuMemAllocManaged",
    "cuMemAllocPitch",
    "cuMemCreate",
    "cuMemFree",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemGetInfo",
    "cuMemHostAlloc",
    "cuMemHostRegister",
    "cuMemHostUnregister",
    "cuMemImportFromShareableHandle",
    "cuMemMap",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolImportPointer",
    "cuMemPoolSetAttribute",
    "cuMemPoolTrimTo",
    "cuMemPrefetchAsync",
    "cuMemPrefetchBatchAsync",
    "cuMemRelease",
    "cuMemRetainAllocationHandle",
    "cuMemUnmap",
    "cuMemcpy",
    "cuMemcpy2D",
    "cuMemcpy2DAsync",
    "cuMemcpy2DUnaligned",
    "cuMemcpy3D",
    "cuMemcpy3DAsync",
    "cuMemcpy3DBatchAsync",
    "cuMemcpy3DPeer",
    "cuMemcpy3DPeerAsync",
    "cuMemcpy3DWithAttributesAsync",
    "cuMemcpyAsync",
    "cuMemcpyAtoA",
    "cuMemcpyAtoD",
    "cuMemcpyAtoH",
    "cuMemcpyAtoHAsync",
    "cuMemcpyBatchAsync",
    "cuMemcpyDtoA",
    "cuMemcpyDtoD",
    "cuMemcpyDtoDAsync",
    "cuMemcpyDtoH",
    "cuMemcpyDtoHAsync",
    "cuMemcpyHtoA",
    "cuMemcpyHtoAAsync",
    "cuMemcpyHtoD",
    "cuMemcpyHtoDAsync",
    "cuMemcpyPeer",
    "cuMemcpyPeerAsync",
    "cuMemcpyWithAttributesAsync",
    "cuMemsetD16",
    "cuMemsetD16Async",
    "cuMemsetD2D16",
    "cuMemsetD2D16Async",
    "cuMemsetD2D32",
    "cuMemsetD2D32Async",
    "cuMemsetD2D8",
    "cuMemsetD2D8Async",
    "cuMemsetD32",
    "cuMemsetD32Async",
    "cuMemsetD8",
    "cuMemsetD8Async",
    "cuMipmappedArrayCreate",
    "cuMipmappedArrayDestroy",
    "cuMulticastCreate",
    "cuStreamBeginCapture",
    "cuStreamBeginCaptureToGraph",
    "cuStreamCreate",
    "cuStreamCreateWithPriority",
    "cuStreamDestroy",
    "cuStreamEndCapture",
    "cuStreamSynchronize",
    "cuGraphAddNode",
    "cuGraphAddMemAllocNode",
    "cuGraphAddMemFreeNode",
    "cuptiActivityRegisterCallbacks",
    "cuptiActivityRegisterCallbacks_v2",
    "cuptiSubscribe",
    "cuptiSubscribe_v2",
    "cuInit",
    "cuDevicePrimaryCtxRetain",
    "cuStreamBeginRecaptureToGraph",
    "cuStreamBeginCaptureToCig",
    "cuStreamEndCaptureToCig",
    "cuCtxAttach",
    "cuCtxDetach",
    "cuCtxFromGreenCtx",
    "cuGreenCtxDestroy",
    "cuGraphDestroyNode",
    "cuGraphMemcpyNodeSetParams",
    "cuGraphMemsetNodeSetParams",
    "cuGraphNodeSetEnabled",
    "cuGraphNodeSetParams",
    "cuMemDiscardAndPrefetchBatchAsync",
];

/// Number where a row is of no call: what is seen beside them.
pub const NO_CALL: u64 = 0xfff;

/// Number of a call, for tables made at compile time.
pub const fn call_number(name: &str) -> u16 {
    let mut i = 0;
    while i < CALLS.len() {
        if same(CALLS[i].as_bytes(), name.as_bytes()) {
            return i as u16;
        }
        i += 1;
    }
    panic!("not among CALLS")
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// A kind of row.
pub struct Kind {
    /// First word of the row in a trace.
    pub name: &'static str,
    /// Its words after time and head.
    pub words: usize,
}

/// Op of the first kind.
pub const FIRST_OP: u8 = 0x60;

/// Numbers of [`KINDS`].
#[allow(missing_docs)]
pub mod kind {
    pub const ALLOC: u8 = 0;
    pub const FREE: u8 = 1;
    pub const COPY: u8 = 2;
    pub const TIME: u8 = 3;
    pub const STREAM: u8 = 4;
    pub const GRAPH: u8 = 5;
    pub const STATE: u8 = 6;
    pub const BUSY: u8 = 7;
    pub const NAME: u8 = 8;
    pub const CONTEXT: u8 = 9;
    pub const MAP: u8 = 10;
    pub const WORK: u8 = 11;
    pub const SPELL: u8 = 12;
}

const fn row(name: &'static str, words: usize) -> Kind {
    Kind { name, words }
}

/// All kinds; what their words are stands in `docs/trace-format.md`.
pub const KINDS: [Kind; 13] = [
    row("alloc", 3),
    row("free", 2),
    row("copy", 5),
    row("time", 1),
    row("stream", 3),
    row("graph", 4),
    row("state", 3),
    row("busy", 5),
    row("name", 5),
    row("context", 1),
    row("map", 3),
    row("work", 5),
    row("spell", 4),
];

/// Classes of memory (flags of ALLOC and FREE).
#[allow(missing_docs)]
pub mod class {
    pub const DEVICE: u64 = 0;
    pub const MANAGED: u64 = 1;
    /// From a pool, in stream order.
    pub const POOL: u64 = 2;
    /// A physical allocation, named by its handle (cuMemCreate).
    pub const HANDLE: u64 = 3;
    pub const PINNED: u64 = 4;
    /// Host memory of the program's, registered.
    pub const REGISTERED: u64 = 5;
    pub const ARRAY: u64 = 6;
    pub const MIPMAP: u64 = 7;
    /// Memory of another process or interface, opened here: not counted.
    pub const IPC: u64 = 8;
    pub const EXTERNAL: u64 = 9;
    pub const IMPORTED_HANDLE: u64 = 10;
    /// What executable graphs keep for their own allocations: in no row, but counted by a reader from those of graphs.
    pub const GRAPH: u64 = 11;
    /// Names, in order.
    pub const NAMES: [&str; 12] =
        ["device", "managed", "pool", "handle", "pinned", "registered", "array", "mipmap", "ipc", "external", "imported handle", "graph"];
}

/// Directions of copies (flags of COPY, bits 0..4).
#[allow(missing_docs)]
pub mod direction {
    pub const H2D: u64 = 0;
    pub const D2H: u64 = 1;
    pub const D2D: u64 = 2;
    pub const P2P: u64 = 3;
    pub const H2H: u64 = 4;
    pub const MEMSET: u64 = 5;
    /// Names, in order.
    pub const NAMES: [&str; 6] = ["H2D", "D2H", "D2D", "P2P", "H2H", "memset"];
}

/// Host side of a copy (flags of COPY, bits 4..8).
#[allow(missing_docs)]
pub mod memory {
    pub const PAGEABLE: u64 = 0;
    pub const PINNED: u64 = 1;
    pub const MANAGED: u64 = 2;
    /// No host side.
    pub const DEVICE: u64 = 3;
    /// Names, in order.
    pub const NAMES: [&str; 4] = ["pageable", "pinned", "managed", "device"];
}

/// Further flags of COPY.
#[allow(missing_docs)]
pub mod copy {
    pub const ASYNC: u64 = 1 << 8;
    /// Into a graph that is being captured: nothing moves yet.
    pub const CAPTURED: u64 = 1 << 9;
    /// It has an event pair: a TIME row follows.
    pub const TIMED: u64 = 1 << 10;
    /// A prefetch: pages that were there already did not move.
    pub const PREFETCH: u64 = 1 << 11;
    /// CUPTI is asked for its time: WORK rows follow (also of graph launches).
    pub const WATCHED: u64 = 1 << 12;
    /// With WATCHED: the call has further rows, and what CUPTI tells of it is of all of them together.
    pub const SEVERAL: u64 = 1 << 13;
}

/// What a WORK row says (its flags): a kernel, copy or memset that ran, by CUPTI. Its time is when the device began. Words: ns, the ticket of the
/// row that it belongs to or (BY_STREAM) the stream, CUPTI's number of the stream, the kernel's name or the bytes, the graph's node.
#[allow(missing_docs)]
pub mod work {
    /// Bits 0..2.
    pub const KERNEL: u64 = 0;
    pub const COPY: u64 = 1;
    pub const MEMSET: u64 = 2;
    /// The second word is the stream of the launch, 0 where that is not known. Else it is a ticket.
    pub const BY_STREAM: u64 = 1 << 2;
    /// It is a node of a graph.
    pub const NODE: u64 = 1 << 3;
    /// Direction of a copy, in bits 4..8.
    pub const DIRECTION: u32 = 4;
    /// A thread's own default stream is 2, and the thread's id from this bit on.
    pub const THREAD: u32 = 8;
}

/// What a STREAM row says (its flags).
#[allow(missing_docs)]
pub mod stream {
    pub const CREATE: u64 = 0;
    pub const DESTROY: u64 = 1;
    /// The host waited for the stream (or, stream 0, for a context or an event).
    pub const WAIT: u64 = 2;
    /// A kernel launch that failed; those that succeed are counted.
    pub const LAUNCH: u64 = 3;
}

/// What a GRAPH row says (its flags).
#[allow(missing_docs)]
pub mod graph {
    /// a: the stream, b: the graph that it goes into, if that is there already, c: 1 where it replaces what that has.
    pub const CAPTURE_BEGIN: u64 = 0;
    /// a: the graph, b: the capture.
    pub const CAPTURE_END: u64 = 1;
    pub const CREATE: u64 = 2;
    pub const DESTROY: u64 = 3;
    /// a: the clone, b: the original.
    pub const CLONE: u64 = 4;
    /// a: the executable graph, b: the graph.
    pub const INSTANTIATE: u64 = 5;
    pub const UPDATE: u64 = 6;
    /// a: the executable graph, b: 1 where what a launch copies can be another from here on.
    pub const NODE_UPDATE: u64 = 7;
    pub const EXEC_DESTROY: u64 = 8;
    /// a: the executable graph, b: the stream.
    pub const LAUNCH: u64 = 9;
    pub const UPLOAD: u64 = 10;
    /// a: the graph, b: bytes, d: direction.
    pub const ADD_COPY: u64 = 11;
    pub const ADD_SET: u64 = 12;
    /// a: the graph, b: the child.
    pub const ADD_CHILD: u64 = 13;
    /// a: the graph, b: bytes, c: address; while it is being captured a: 0, d: the capture.
    pub const ADD_ALLOC: u64 = 14;
    /// a: the graph, c: address; while it is being captured a: 0, d: the capture.
    pub const ADD_FREE: u64 = 15;
    /// A node of a graph is changed, or removed; of which graph is not said. a: the node, b: 1 where what that graph copies can be another from here on.
    pub const NODE_CHANGE: u64 = 16;
    /// A node is added of which it is not known what it copies: that of a conditional's body. a: the graph.
    pub const ADD_UNKNOWN: u64 = 17;
}

/// What a STATE row says (its flags).
#[allow(missing_docs)]
pub mod state {
    /// Free and total bytes of the device.
    pub const VRAM: u64 = 0;
    /// A pool: its handle, most used, most reserved.
    pub const POOL: u64 = 1;
    /// A framework's own allocator: bytes allocated, reserved.
    pub const TORCH: u64 = 2;
    /// Event pairs that could not be used: how many, and why (0 too many at once, 1 the driver refused).
    pub const UNTIMED: u64 = 3;
    /// Work that CUPTI ran out of room for, work that it gave no times of, and buffers that could not be read to their ends.
    pub const DROPPED: u64 = 4;
    /// CUPTI tells of work from here on (1) or up to here (0); then its version.
    pub const CUPTI: u64 = 5;
    /// CuPy's pool, as it says when it is asked: bytes in arrays, and in blocks from the driver.
    pub const CUPY: u64 = 6;
    /// How the driver's functions were found: by `dlsym` in its library (those that are hooked or not known), by `cuGetProcAddress`, and how
    /// often the answer was a hook. Sums since the image began; the last row counts.
    pub const LOOKUPS: u64 = 7;
}

/// What a CONTEXT row says (its flags).
#[allow(missing_docs)]
pub mod context {
    /// First seen.
    pub const SEEN: u64 = 0;
    pub const END: u64 = 1;
    /// A call failed that leaves no other row: of contexts, pools, the driver as a whole.
    pub const FAILED: u64 = 2;
}

/// What a MAP row says (its flags): words handle, address, bytes.
#[allow(missing_docs)]
pub mod map {
    pub const MAP: u64 = 0;
    pub const UNMAP: u64 = 1;
    pub const RETAIN: u64 = 2;
}

/// What a NAME row names (its call number).
#[allow(missing_docs)]
pub mod name {
    /// A device; the ticket is its number.
    pub const DEVICE: u64 = 1;
    /// A driver call that this version does not know; the ticket is a running number.
    pub const UNKNOWN_CALL: u64 = 2;
    /// How transfers are timed.
    pub const TIMING: u64 = 3;
    /// A device's link as the kernel shows it, `32.0 GT/s PCIe x16`; the ticket is the device's number.
    pub const LINK: u64 = 4;
    /// A framework that is loaded and has a pool of its own; the ticket is a running number.
    pub const POOL: u64 = 5;
    /// A piece of a kernel's name as the compiler wrote it; the ticket is the name's number << 8 and the piece's.
    pub const KERNEL: u64 = 6;
    /// A piece of why CUPTI does not time, or no longer; the ticket is the piece's number.
    pub const REASON: u64 = 7;
    /// A piece of the path of CUPTI's library; the ticket is the piece's number.
    pub const CUPTI: u64 = 8;
    /// A device's UUID, `GPU-` and 8-4-4-4-12 hexadecimal digits, which is another for each instance of MIG; the ticket is the
    /// device's number.
    pub const UUID: u64 = 9;
    /// Where a device is on the PCI bus, as the driver writes it, `0000:3B:00.0`; the ticket is the device's number.
    pub const BUS: u64 = 10;
}

/// The number of kernels whose names have no number: there are too many.
pub const OTHER_KERNELS: u64 = 0;

/// Device not known.
pub const NO_DEVICE: u64 = 255;

/// A head word.
#[inline(always)]
pub const fn head(code: u64, device: u64, context: u64, flags: u64) -> u64 {
    code & 0xffff | (device & 0xff) << 16 | (context & 0xfff) << 24 | (flags & 0xff_ffff) << 36
}

/// Its parts: code, device, context, flags.
#[inline(always)]
pub const fn parts(head: u64) -> [u64; 4] {
    [head & 0xffff, head >> 16 & 0xff, head >> 24 & 0xfff, head >> 36 & 0xff_ffff]
}

/// Text of a NAME record.
pub fn text(words: &[u64], out: &mut [u8; 49]) -> usize {
    let bytes = words.iter().flat_map(|w| (0..7).map(move |i| (w >> (8 * i)) as u8));
    let mut n = 0;
    for (slot, c) in out.iter_mut().zip(bytes) {
        if c == 0 {
            break;
        }
        *slot = c;
        n += 1;
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_keeps_its_parts() {
        assert_eq!(parts(head(701, 255, 4095, 0xabcdef)), [701, 255, 4095, 0xabcdef]);
        assert!(head(0xffff, 255, 0xfff, 0xff_ffff) < 1 << 63);
    }

    #[test]
    fn kinds_fit_a_record_and_calls_a_start_word() {
        assert!(KINDS.iter().all(|k| 3 + k.words <= crate::record::MAX_WORDS));
        assert!(CALLS.len() < 4096 && CALLS[call_number("cuMemAlloc") as usize] == "cuMemAlloc");
    }
}
