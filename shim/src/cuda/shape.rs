//! What the arguments of a hooked call mean, and which file records it.

use super::call::Call;
use super::kernels::Stream;
use super::{contexts, graphs, green, kernels, memory, state, streams, transfers};
use crate::phases::process::{self, Driver};
use memshim_format::gpu::graph;

/// Ways to get memory: where the address goes and where the size stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// (address*, bytes)
    Linear,
    /// (address*, pitch*, width, height, element)
    Pitch,
    /// (address*, bytes, flags)
    Managed,
    /// (address*, bytes, stream)
    Async,
    /// (address*, bytes, pool, stream)
    FromPool,
    /// (address*, bytes, …)
    Host,
    /// (address, bytes, flags)
    Register,
    /// (array*, descriptor of two dimensions)
    Array2,
    /// (array*, descriptor of three)
    Array3,
    /// (mipmap*, descriptor of three, levels)
    Mipmap,
    /// (handle*, bytes, properties, flags)
    Handle,
    /// (handle*, of the system, kind)
    ImportHandle,
    /// (address*, 64 bytes by value, flags)
    Ipc,
    /// (external*, descriptor)
    External,
    /// (address*, external, descriptor)
    ExternalBuffer,
    /// (mipmap*, external, descriptor)
    ExternalMipmap,
    /// (address*, pool, 64 bytes)
    PoolPointer,
    /// (handle*, properties)
    Multicast,
}

/// Which way a copy goes, by its name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The addresses tell.
    Any,
    HtoD,
    DtoH,
    DtoD,
    Peer,
}

/// Whether the change of a graph's node can change what a launch copies.
#[derive(Clone, Copy)]
pub enum Touch {
    Never,
    Always,
    /// Where the node is one that copies: by its parameters, which begin with its kind; the place of these.
    ByParameters(u8),
    /// The same by the node, whose kind the driver says; its place.
    ByNode(u8),
}

/// See the module.
#[derive(Clone, Copy)]
pub enum Shape {
    Alloc(Form),
    /// (address or handle, …), of this class.
    Free(u64),
    /// (address, bytes, offset, handle, flags)
    Map,
    /// (address, bytes)
    Unmap,
    /// (handle*, address)
    Retain,
    /// (pool*, properties)
    PoolCreate,
    /// (pool)
    PoolDestroy,
    /// (pool, …): what it holds can change.
    PoolChange,
    /// (free*, total*)
    MemGetInfo,
    /// (…): the driver sets itself or a context up.
    Start(Driver),
    /// (context*, …)
    CtxCreate,
    /// (context)
    CtxDestroy,
    /// (context*, flags): one use more of the current context.
    CtxAttach,
    /// (context): one use less, and none is its end.
    CtxDetach,
    /// (context*, green context)
    GreenContext,
    /// (green context)
    GreenDestroy,
    /// (context*, device)
    PrimaryRetain,
    /// (device)
    PrimaryRelease,
    /// (device)
    PrimaryReset,
    /// Way and the places of destination, source (9: an array, or none), bytes, stream (0: none).
    Copy(Way, u8, u8, u8, u8),
    /// (parameters, …), the place of the stream (0: none).
    Copy2d(u8),
    /// See `Copy2d`.
    Copy3d(u8),
    /// (destinations, sources, sizes, count, …)
    CopyBatch,
    /// (count, operations, …)
    Copy3dBatch,
    /// (operation, flags, stream)
    Copy3dAttributes,
    /// (address, bytes, device or location, …)
    Prefetch,
    /// (addresses, sizes, count, locations, their first uses, how many, flags, stream)
    PrefetchBatch,
    /// Bytes of an element, the place of the stream (0: none): (address, value, count, …).
    Set(u8, u8),
    /// The same: (address, pitch, value, width, height, …).
    Set2d(u8, u8),
    /// (stream*, …)
    StreamCreate,
    /// (stream)
    StreamDestroy,
    /// (stream)
    StreamSync,
    /// The host waits for a context or an event.
    HostWait,
    /// (stream, …)
    CaptureBegin,
    /// (stream, graph, …)
    CaptureBeginTo,
    /// (stream, mode, graph, …)
    Recapture,
    /// (stream, graph*)
    CaptureEnd,
    /// (stream)
    CaptureEndToCig,
    /// (graph*, …)
    GraphCreate,
    /// (graph)
    GraphDestroy,
    /// (clone*, graph)
    GraphClone,
    /// (executable*, graph, …)
    Instantiate,
    /// (executable, graph, …)
    ExecUpdate,
    /// (executable, …)
    ExecNodeUpdate(Touch),
    /// (node, …): of a graph.
    NodeChange(Touch),
    /// (executable)
    ExecDestroy,
    /// (executable, stream)
    GraphLaunch,
    /// (executable, stream)
    GraphUpload,
    /// (node*, graph, dependencies, count, parameters, context)
    AddCopyNode,
    /// See `AddCopyNode`.
    AddSetNode,
    /// (node*, graph, dependencies, count, child)
    AddChildNode,
    /// (node*, graph, dependencies, count, parameters)
    AddAllocNode,
    /// (node*, graph, dependencies, count, address)
    AddFreeNode,
    /// (node*, graph, dependencies, …, parameters): a node of any kind; the place of the parameters.
    AddNode(u8),
    /// (function, …), the place of the stream (0: none).
    Kernel(u8),
    /// (launches, count, flags): one on each device.
    Kernels,
    /// (configuration, function, …)
    KernelEx,
    /// `cuGetProcAddress`.
    Lookup,
    /// CUPTI, which the program takes for itself.
    Cupti,
}

impl Shape {
    /// Calls of which a row is left only where they fail.
    pub const fn tells_failures_alone(&self) -> bool {
        use Shape::*;
        matches!(
            self,
            Start(_)
                | CtxCreate
                | CtxDestroy
                | CtxAttach
                | CtxDetach
                | GreenContext
                | GreenDestroy
                | PrimaryRetain
                | PrimaryRelease
                | PrimaryReset
                | PoolCreate
                | PoolDestroy
                | PoolChange
                | MemGetInfo
        )
    }

    /// A copy or a memset.
    pub const fn is_transfer(&self) -> bool {
        use Shape::*;
        matches!(
            self,
            Copy(..) | Copy2d(_) | Copy3d(_) | CopyBatch | Copy3dBatch | Copy3dAttributes | Prefetch | PrefetchBatch | Set(..) | Set2d(..)
        )
    }
}

/// Makes the call and records it.
///
/// # Safety
/// The call is the program's, and has not been made.
#[inline(always)]
pub unsafe fn run(c: &Call) -> i32 {
    // SAFETY: the caller's promise.
    unsafe {
        match c.entry.shape {
            Shape::Alloc(form) => memory::alloc(c, form),
            Shape::Free(class) => memory::free(c, class),
            Shape::Map => memory::map(c),
            Shape::Unmap => memory::unmap(c),
            Shape::Retain => memory::retain(c),
            Shape::PoolCreate => state::pool_created(c),
            Shape::PoolDestroy => state::pool_ends(c),
            Shape::PoolChange => state::pool_changes(c),
            Shape::MemGetInfo => state::asked(c),
            Shape::Start(driver) => process::starting(driver, || c.make()),
            Shape::CtxCreate => process::starting(Driver::Context, || memory::context_created(c)),
            Shape::CtxDestroy => memory::context_ends(c, Some(c.word(0) as u64)),
            Shape::CtxAttach => contexts::attached(c),
            Shape::CtxDetach => memory::context_detached(c),
            Shape::GreenContext => green::context_given(c),
            Shape::GreenDestroy => green::ends(c),
            Shape::PrimaryRetain => process::starting(Driver::Context, || contexts::primary_retained(c)),
            Shape::PrimaryRelease => memory::primary_released(c),
            Shape::PrimaryReset => memory::context_ends(c, None),
            Shape::Copy(way, to, from, bytes, stream) => transfers::linear(c, way, to, from, bytes, stream),
            Shape::Copy2d(stream) => transfers::plane(c, stream),
            Shape::Copy3d(stream) => transfers::volume(c, stream),
            Shape::CopyBatch => transfers::batch(c),
            Shape::Copy3dBatch => transfers::volumes(c, c.word(1), c.word(0), c.stream(if c.entry.version >= 13000 { 3 } else { 4 })),
            Shape::Copy3dAttributes => transfers::volumes(c, c.word(0), 1, c.stream(2)),
            Shape::Prefetch => transfers::prefetch(c),
            Shape::PrefetchBatch => transfers::prefetch_batch(c),
            Shape::Set(width, stream) => transfers::set(c, width as u64 * c.size(2), stream),
            Shape::Set2d(width, stream) => transfers::set(c, width as u64 * c.size(3) * c.size(4), stream),
            Shape::StreamCreate => streams::create(c),
            Shape::StreamDestroy => streams::destroy(c),
            Shape::StreamSync => streams::wait(c, c.stream(0)),
            Shape::HostWait => streams::wait(c, 0),
            Shape::CaptureBegin => graphs::capture_begin(c, 0, false),
            Shape::CaptureBeginTo => graphs::capture_begin(c, c.word(1) as u64, false),
            Shape::Recapture => graphs::capture_begin(c, c.word(2) as u64, true),
            Shape::CaptureEnd => graphs::capture_end(c, true),
            Shape::CaptureEndToCig => graphs::capture_end(c, false),
            Shape::GraphCreate => graphs::made(c, graph::CREATE, 0),
            Shape::GraphClone => graphs::made(c, graph::CLONE, c.word(1) as u64),
            Shape::Instantiate => graphs::made(c, graph::INSTANTIATE, c.word(1) as u64),
            Shape::GraphDestroy => graphs::ended(c, graph::DESTROY),
            Shape::ExecDestroy => graphs::ended(c, graph::EXEC_DESTROY),
            Shape::ExecUpdate => graphs::changed(c, graph::UPDATE, c.word(0) as u64, c.word(1) as u64),
            Shape::ExecNodeUpdate(touch) => graphs::node_changed(c, graph::NODE_UPDATE, touch),
            Shape::NodeChange(touch) => graphs::node_changed(c, graph::NODE_CHANGE, touch),
            Shape::AddChildNode => graphs::changed(c, graph::ADD_CHILD, c.word(1) as u64, c.word(4) as u64),
            Shape::AddCopyNode => graphs::added(c, || transfers::node_of_copy(c, c.word(4))),
            Shape::AddAllocNode => graphs::added_alloc(c, c.word(4)),
            Shape::AddFreeNode => graphs::added_free(c, c.word(4) as u64),
            Shape::AddNode(at) => graphs::added_any(c, c.word(at as usize)),
            Shape::AddSetNode => graphs::added(c, || transfers::node_of_set(c.word(4))),
            Shape::GraphLaunch => graphs::launch(c),
            Shape::GraphUpload => graphs::changed(c, graph::UPLOAD, c.word(0) as u64, c.stream(1)),
            Shape::Kernel(0) => kernels::launch(c, Stream::Is(c.default_stream())),
            Shape::Kernel(stream) => kernels::launch(c, Stream::Is(c.stream(stream as usize))),
            Shape::Kernels => kernels::launch_on_devices(c),
            Shape::KernelEx => kernels::launch(c, Stream::InConfiguration),
            Shape::Lookup | Shape::Cupti => c.make(),
        }
    }
}
