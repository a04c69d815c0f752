//! The `gpu` keys of the report.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::model::units::Bytes;

/// What a run did with GPUs. Bandwidths are in 10⁹ bytes a second.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Gpu {
    /// How the device's times were taken: `events`, `cupti`, `wall`, `off`.
    pub timing: String,
    /// Why not by CUPTI, or not to the end, where that was asked for.
    pub timing_reason: Option<String>,
    /// What CUPTI told; `null` where it was not asked, or could not be had.
    pub cupti: Option<GpuCupti>,
    /// Kernels, by CUPTI.
    pub kernels: Option<GpuKernels>,
    pub devices: Vec<GpuDevice>,
    /// Page-locked memory of the host: allocated by the driver and registered, together.
    pub pinned_peak_bytes: Bytes,
    pub pinned: Pinned,
    pub transfers: Vec<GpuTransfer>,
    /// Those with the most work first, at most [`STREAMS_SHOWN`].
    pub streams: Vec<GpuStream>,
    pub streams_total: u64,
    /// Most streams of one device busy at once, and for how long at least two were. `null` where the device is not asked for times.
    pub concurrent_streams: Option<u64>,
    pub concurrent_s: Option<f64>,
    /// The host waited for a stream, an event or a context.
    pub host_waits: GpuWaits,
    /// At most [`STREAMS_SHOWN`].
    pub graphs: Vec<GpuGraph>,
    pub graphs_total: GpuGraphs,
    /// What could be faster, with the seconds that it would save.
    pub advice: Vec<GpuAdvice>,
    /// Calls that the driver refused.
    pub failed: Vec<FailedCall>,
    /// Frameworks that were loaded and have pools of their own, where what these hand out of their blocks is not known.
    pub own_pools: Vec<String>,
    /// Frees of what this trace did not see allocated.
    pub unknown_frees: u64,
    /// How the program found the driver's functions; `null` where it did not end by itself, or is linked to the driver and looked for none.
    pub lookups: Option<GpuLookups>,
    /// Driver calls that the program asked for and memshim does not know.
    pub unknown_calls: Vec<String>,
    /// Copies and launches that should have a time on the device and have none.
    pub untimed: u64,
    /// Hooked calls that left a row, and those that should have one and have none.
    pub calls: u64,
    pub lost: u64,
}

/// From where and for how long CUPTI told of work.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GpuCupti {
    /// As `cuptiGetVersion` gives it.
    pub version: u64,
    pub library: String,
    /// From when on, and how long in all.
    pub from_s: f64,
    pub told_s: f64,
    /// Kernels, copies and memsets that it told of.
    pub records: u64,
    /// Of these, of no call that was seen: made before CUPTI was there, or past the hooks.
    pub unknown_records: u64,
    /// Records that it had no room for.
    pub dropped_records: u64,
    /// Records without times: the device had no memory for them, or they were not done at the end.
    pub untimed_records: u64,
    /// Buffers that it gave back and that could not be read.
    pub torn_buffers: u64,
    /// Kernels that were launched and that it did not tell of: before it was there, after it was let go, or without room. Of these, on streams
    /// that nobody could look at meanwhile either.
    pub untold_kernels: u64,
    pub unseen_kernels: u64,
    /// For how long streams were busy by looking, all of them added up, while it did not tell.
    pub sampled_busy_s: f64,
    pub sampled_stderr_s: f64,
}

/// Kernels listed at most, and nodes of a graph.
pub const KERNELS_SHOWN: usize = 1000;
/// See [`KERNELS_SHOWN`].
pub const NODES_SHOWN: usize = 20;

#[derive(Clone, Debug, Default, Serialize)]
pub struct GpuKernels {
    /// That ran while CUPTI told, those in graphs too.
    pub count: u64,
    /// Their times added up: of two at once, both.
    pub device_s: f64,
    /// Different names.
    pub names: u64,
    /// Those with the most time first, at most [`KERNELS_SHOWN`].
    pub by_name: Vec<GpuKernel>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct GpuKernel {
    /// As its source has it.
    pub name: String,
    pub count: u64,
    /// Of these, in launches of graphs.
    pub in_graphs: u64,
    pub device_s: f64,
    pub mean_s: f64,
    pub min_s: f64,
    pub max_s: f64,
    /// Of all kernels' time.
    pub share: f64,
}

/// What a device did while CUPTI told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GpuBusy {
    /// At least one kernel, copy or memset ran.
    pub busy_s: f64,
    /// At least one kernel.
    pub kernel_s: f64,
    /// At least one copy or memset.
    pub copy_s: f64,
    /// Copies and kernels at once.
    pub overlap_s: f64,
    /// `busy_s` of the time that CUPTI told.
    pub utilization: f64,
}

/// A node of a graph, by CUPTI.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GpuNode {
    /// Its number in CUPTI.
    pub id: u64,
    /// `kernel`, `copy`, `memset`.
    pub kind: String,
    /// The kernel's name, or the direction.
    pub name: String,
    pub count: u64,
    pub device_s: f64,
}

/// Streams and graphs listed at most.
pub const STREAMS_SHOWN: usize = 1000;

#[derive(Clone, Debug, Default, Serialize)]
pub struct GpuDevice {
    /// `null` where it is not known.
    pub index: Option<u64>,
    pub name: Option<String>,
    /// Which card it is, or which instance of MIG: `GPU-` and 8-4-4-4-12 hexadecimal digits, as `nvidia-smi -L` lists cards.
    pub uuid: Option<String>,
    /// Where it is on the PCI bus, `0000:3B:00.0`.
    pub pci_bus_id: Option<String>,
    /// What its link to the host can carry one way, 10⁹ bytes a second, by its generation and width.
    pub link_gb_per_s: Option<f64>,
    pub total_bytes: Option<Bytes>,
    /// At the last look.
    pub free_bytes: Option<Bytes>,
    /// Most in use by all processes, at the looks.
    pub used_peak_bytes: Option<Bytes>,
    /// What the program's calls allocated: blocks, physical allocations, arrays.
    pub live_bytes: Bytes,
    pub live_allocs: u64,
    pub peak_bytes: Bytes,
    pub peak_at_s: Option<f64>,
    /// The same with what pools keep in place of the blocks from them.
    pub reserved_bytes: Bytes,
    pub reserved_peak_bytes: Bytes,
    /// In use at the look with the most, and not by these calls: contexts, modules, libraries, other processes.
    pub unattributed_bytes: Option<i64>,
    pub allocs: u64,
    pub frees: u64,
    /// By class: `device`, `managed`, `pool`, `handle`, `array`, `mipmap`, `graph`.
    pub classes: BTreeMap<String, GpuClass>,
    pub pools: Vec<GpuPool>,
    /// Memory of other processes and interfaces that was opened here, by class: `ipc`, `external`, `imported handle`. In none of the figures above.
    pub imports: BTreeMap<String, GpuImports>,
    /// What frameworks say of their own allocators.
    pub framework: BTreeMap<String, GpuFramework>,
    /// By CUPTI.
    pub work: Option<GpuBusy>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GpuFramework {
    /// To tensors or arrays.
    pub allocated_peak_bytes: Bytes,
    /// In blocks got from the driver.
    pub reserved_peak_bytes: Bytes,
    /// Known by asking so often: between two looks both may have been more, the former up to the latter. `null`: told of at each change.
    pub looks: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GpuClass {
    pub live_bytes: Bytes,
    pub peak_bytes: Bytes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GpuImports {
    pub opened: u64,
    /// Not closed at the end.
    pub live: u64,
    /// Of those whose size the driver or the program says; of an imported handle nobody does.
    pub live_bytes: Bytes,
    pub peak_bytes: Bytes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GpuPool {
    pub reserved_bytes: Bytes,
    pub used_peak_bytes: Bytes,
    pub reserved_peak_bytes: Bytes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Pinned {
    pub live_bytes: Bytes,
    pub peak_bytes: Bytes,
    pub peak_at_s: Option<f64>,
    /// By the driver's own allocations.
    pub allocated_peak_bytes: Bytes,
    /// The program's own memory, registered: it is heap or maps as well.
    pub registered_peak_bytes: Bytes,
}

/// Copies of one direction and memory on one device. Those captured into graphs are not in it: see `graphs`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GpuTransfer {
    /// `H2D`, `D2H`, `D2D`, `P2P`, `H2H`, `memset`.
    pub direction: String,
    /// Of the host's side: `pageable`, `pinned`, `managed`; else `device`.
    pub memory: String,
    pub device: Option<u64>,
    pub count: u64,
    pub bytes: Bytes,
    pub timed_count: u64,
    pub timed_bytes: Bytes,
    /// Time on the device of the timed ones.
    pub device_s: Option<f64>,
    /// Time in the calls.
    pub wall_s: Option<f64>,
    pub gb_per_s: Option<f64>,
    /// Of single copies of 64 KiB and more.
    pub p5_gb_per_s: Option<f64>,
    pub p50_gb_per_s: Option<f64>,
    pub p95_gb_per_s: Option<f64>,
    pub max_gb_per_s: Option<f64>,
    /// `gb_per_s` as a share of what the link can carry (copies between host and device).
    pub link_share: Option<f64>,
    /// Copies below 64 KiB.
    pub small_count: u64,
    /// Prefetches of managed memory: pages that were there already did not move.
    pub prefetch_count: u64,
    /// What `gb_per_s` is by: `events`, `cupti` (most of them), `wall` (synchronous calls only), `off` (not known).
    pub timing: String,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct GpuStream {
    pub id: u64,
    pub device: Option<u64>,
    /// `default`, `per thread`, `made`.
    pub kind: String,
    pub from_s: f64,
    /// From when it was made, or first used, to its end or the run's.
    pub life_s: f64,
    /// When it was at work: by CUPTI, by timed copies and graph launches, by looking. `null` where none of these was on, or where only kernels
    /// ran and nobody saw any.
    pub busy_s: Option<f64>,
    pub timed_busy_s: Option<f64>,
    /// By looking whether it is busy, about a thousand times a second while it has kernels and CUPTI does not tell.
    pub sampled_busy_s: Option<f64>,
    pub sampled_stderr_s: Option<f64>,
    /// `busy_s / life_s`.
    pub utilization: Option<f64>,
    pub copies: u64,
    pub kernels: u64,
    /// Of these, those that neither CUPTI told of nor anybody could look for: what they took is in none of the times here.
    pub unseen_kernels: u64,
    /// By CUPTI: times of its kernels, and of its copies and memsets, added up; those of graphs too.
    pub kernel_s: Option<f64>,
    pub copy_s: Option<f64>,
    pub graph_launches: u64,
    /// Of `busy_s`, while another stream of the device was busy too.
    pub overlap_s: Option<f64>,
    /// The host waited for it.
    pub waits: u64,
    pub wait_s: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GpuWaits {
    pub count: u64,
    pub wall_s: f64,
}

/// An executable graph, or (without instantiations) a captured one that never became executable.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GpuGraph {
    pub id: u64,
    pub captures: u64,
    pub instantiations: u64,
    pub updates: u64,
    /// Single nodes changed in the executable graph.
    pub node_updates: u64,
    pub launches: u64,
    pub uploads: u64,
    /// Share of the launches that needed neither an instantiation nor an update.
    pub reuse_rate: Option<f64>,
    /// By direction; `None` where nodes of it that copy have been changed.
    pub bytes_per_launch: Option<BTreeMap<String, Bytes>>,
    pub device_s: Option<f64>,
    pub timed_launches: u64,
    /// By CUPTI: the times of its nodes added up, and those with the most, at most [`NODES_SHOWN`].
    pub node_s: Option<f64>,
    pub node_runs: u64,
    pub nodes: Vec<GpuNode>,
    /// What its own allocations take while it is instantiated.
    pub memory_bytes: Bytes,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct GpuGraphs {
    pub count: u64,
    pub captures: u64,
    pub failed_captures: u64,
    pub instantiations: u64,
    pub updates: u64,
    pub launches: u64,
    pub reuse_rate: Option<f64>,
    /// What all launches copied, by direction; `None` where that is not known of some.
    pub bytes: Option<BTreeMap<String, Bytes>>,
    pub device_s: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GpuAdvice {
    pub what: String,
    /// The numbers behind it.
    pub evidence: String,
    /// What it would save at most; `null` where nobody knows.
    pub gain_s: Option<f64>,
}

/// Lookups of functions of the driver: the runtime makes some hundreds at its start, wherever it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GpuLookups {
    /// By `dlsym` in the driver's library, of functions that are hooked or not known.
    pub dlsym: u64,
    /// By `cuGetProcAddress`, those without an answer too.
    pub proc: u64,
    /// Of both, those that memshim's own functions were the answer to.
    pub hooked: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FailedCall {
    pub call: String,
    pub code: u32,
    pub count: u64,
}

/// A device as all processes of the job used it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JobGpu {
    pub host: String,
    /// The number that it has in each of the processes; `null` where that is not the same in all.
    pub index: Option<u64>,
    /// Which it is: by the UUID, else by its place on the bus, else by the index.
    pub uuid: Option<String>,
    pub pci_bus_id: Option<String>,
    pub name: Option<String>,
    pub total_bytes: Option<Bytes>,
    /// Processes that called its driver, and their ranks.
    pub processes: u64,
    pub ranks: Vec<i64>,
    /// Sums of the processes' own peaks, which need not have been at one time.
    pub peak_sum_bytes: Bytes,
    pub reserved_peak_sum_bytes: Bytes,
    /// Most in use at a look, by whatever.
    pub used_peak_bytes: Option<Bytes>,
    pub h2d_bytes: Bytes,
    pub d2h_bytes: Bytes,
}
