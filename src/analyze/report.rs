//! What `analyze` says: the JSON contract as types. Outputs render these and compute nothing.
//!
//! Keys are stable from the first release on; there may be more. `null` means "not known", never 0.
//! Times called `…_s` inside a run are seconds since the run's start.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::model::units::Bytes;

mod gpu;
mod job;
mod known;
mod outside;
mod phases;
mod sites;
pub use gpu::*;
pub use job::*;
pub use known::Known;
pub use outside::*;
pub use phases::*;
pub use sites::*;

/// Version of the JSON: grows when a key changes its meaning (which the contract forbids within a major release).
pub const SCHEMA: u32 = 1;

/// The whole answer for a job: all processes of all traces that were given.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// One for each image of each process, parents before children, images in order.
    pub runs: Vec<Run>,
    /// All of them together.
    pub job: Job,
    /// What was wrong with files as a whole (a spool of another version, a folder that can't be listed).
    pub problems: Vec<Missing>,
}

/// One image of one process (a process that exec's is several runs with one pid).
#[derive(Clone, Debug, Default, Serialize)]
pub struct Run {
    pub pid: u32,
    pub ppid: u32,
    pub rank: Option<i64>,
    pub job_id: Option<String>,
    pub host: String,
    /// The arguments; bytes that are not UTF-8 are replaced.
    pub command: Vec<String>,
    pub exe: String,
    pub cwd: String,
    /// The Python interpreter, and its own blocks where they are recorded; `null`: the program is not Python.
    pub python: Option<Python>,
    /// Recording mode: `full`, `fast`, `off`; `watch`: seen from outside only.
    pub mode: Mode,
    /// Seconds for which every call was an event, of a run in full mode that could not go on in it; `mode` is `fast` then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_until_s: Option<f64>,
    /// Why from some instant on less was recorded.
    #[serde(skip)]
    pub lowered: Option<Lowered>,
    /// Events are lost because the disk had no room to record them.
    #[serde(skip)]
    pub lacked_disk: bool,
    /// How many images of this process came before.
    pub exec: u32,
    /// Wall-clock start, RFC 3339, UTC.
    pub start: String,
    pub start_unix_s: f64,
    /// Start to end, or to the last thing seen.
    pub wall_s: f64,
    /// User and system time together.
    pub cpu_s: Option<f64>,
    /// Nobody looked at its end: it may have taken more.
    pub cpu_lower_bound: bool,
    pub allocator: String,
    pub end: End,
    /// The end is not in the trace, which was cut or could not be completed: figures are of the time up to here, and "at the end" is this instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known_until_s: Option<f64>,
    /// These and what is said of call sites are not known of a process that was only watched from outside.
    pub events: Known<Events>,
    pub heap: Known<Heap>,
    pub maps: Known<Maps>,
    /// `null` where the program never called a CUDA driver.
    pub gpu: Option<Gpu>,
    pub rss: Rss,
    pub children: Children,
    /// Those that somebody told of, else what the curve of the memory was cut into, in the order in which they began first; then the process's
    /// own (source `process`).
    pub phases: Vec<Phase>,
    /// Of phases that the curve was cut into: peaks that are in none of them.
    pub short_peaks: Vec<ShortPeak>,
    pub marks: Vec<Mark>,
    /// What compilers said in the output (`memshim run --compiles`), what took longest first.
    pub compiles: Vec<Compile>,
    /// Files written under `--artifacts`, in the order of their last writes.
    pub artifacts: Vec<Artifact>,
    /// What could need less; most to gain first.
    pub advice: Vec<Advice>,
    /// By bytes allocated, most first; at most [`THREADS_SHOWN`].
    pub threads: Vec<Thread>,
    /// `null`: not known, as of a process that was only watched.
    pub threads_total: Option<u64>,
    /// Call sites: most live at the heap's peak first, at most [`SITES_SHOWN`]. Empty where no stacks were recorded.
    pub sites: Vec<Site>,
    pub sites_total: Known<SiteSums>,
    /// Those sites by whose they are; at most [`OWNERS_SHOWN`].
    pub owners: Vec<Owner>,
    /// Where a view was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sites_view: Option<View>,
    /// Timeline of at most [`SAMPLES_SHOWN`] points; each the maximum over its span.
    pub samples: Vec<Sample>,
    /// Layered snapshots (start, RSS peaks, exit), thinned to at most [`SNAPSHOTS_SHOWN`].
    pub snapshots: Vec<serde_json::Value>,
    /// memshim's own memory in the process, as its last statement says.
    pub own: Option<serde_json::Value>,
    /// The view from outside (`memshim run`).
    pub outside: Option<serde_json::Value>,
    /// What the shim wrote as notes.
    pub notes: Vec<String>,
    /// What is not in the numbers above, and why.
    pub missing: Vec<Missing>,
    /// File it was read from.
    pub file: String,
    /// Whether part of it came from the spool of a process without an end.
    pub recovered: bool,
    /// How it hangs together with other processes: for [`Job`].
    #[serde(skip)]
    pub kin: Kin,
}

/// Why less was recorded from some instant on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lowered {
    /// The trace neared its cap (`MEMSHIM_MAX`).
    Cap,
    /// Nothing could be written any more.
    Unwritten,
}

/// Threads listed at most.
pub const THREADS_SHOWN: usize = 1000;
/// Points of a timeline at most.
pub const SAMPLES_SHOWN: usize = 512;
/// Snapshots listed at most.
pub const SNAPSHOTS_SHOWN: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    #[default]
    Off,
    Fast,
    Full,
    Watch,
}

/// How a run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct End {
    pub kind: EndKind,
    /// Exit code, where it exited and the code is known.
    pub code: Option<i32>,
    /// Signal, where it was ended by one and somebody saw which.
    pub signal: Option<i32>,
    /// Nobody saw how it ended: recording had ended before (it may have been in order), or it was only watched from outside.
    pub unseen: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EndKind {
    Exited,
    Signaled,
    Exec,
    /// No end line, and the process is gone (or of another host): killed without anybody seeing how.
    #[default]
    Killed,
    Running,
}

/// The events of a run. `counted = recorded + lost`, in both modes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Events {
    /// Heap calls that succeeded, as counted by the shim.
    pub counted: u64,
    /// Heap calls that the trace holds: in full mode each as an event, in fast mode in its exact counts.
    pub recorded: u64,
    /// Heap calls that are events by themselves: all in full mode; the big and the sampled ones in fast mode.
    pub single: u64,
    /// Calls that should be events and are not (see `missing` for why).
    pub lost: u64,
    /// Frees of blocks that this trace did not see allocated.
    pub unknown_frees: u64,
    /// Calls that failed.
    pub failed: u64,
}

/// Heap of a run. Full mode: by requested size unless it says usable. Fast mode: by usable size, `peak_bound_bytes` says how far off.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Heap {
    /// False: the program's heap calls do not come to the shim (an allocator in the program, valgrind's): the numbers are of other calls.
    pub seen: bool,
    /// Blocks allocated (reallocations included).
    pub allocs: u64,
    /// Blocks freed (old blocks of reallocations included).
    pub frees: u64,
    pub reallocs: u64,
    pub requested_bytes: Bytes,
    /// Live at the end (or at the last event).
    pub live_bytes: Bytes,
    pub live_allocs: u64,
    /// By requested size less is live by at most this; `null`: not known.
    pub live_bound_bytes: Option<Bytes>,
    pub peak_bytes: Bytes,
    /// The true peak differs from `peak_bytes` by at most this; `null`: no bound is known.
    pub peak_bound_bytes: Option<Bytes>,
    pub peak_at_s: Option<f64>,
    /// Freed before the same thread allocated anything else; `null` in fast mode.
    pub temporary_allocs: Option<u64>,
    /// The same from samples, in fast mode; `null` where these do not tell, and in full mode.
    pub temporary_estimated: Option<Estimated>,
    /// `null`: of a forked child in fast mode it is not told apart from what it inherited, and a trace without its end tells of no leaks.
    pub leaked_bytes: Option<Bytes>,
    pub leaked_allocs: Option<u64>,
    /// Of the parent, live at the fork, in `live` and `peak` by usable size.
    pub inherited_bytes: Bytes,
    pub inherited_allocs: u64,
    /// Freed of unknown blocks, usable size.
    pub unknown_freed_bytes: Bytes,
    pub usable: Usable,
    pub by_function: BTreeMap<String, Function>,
    /// `[size, allocs, frees]` by requested size: all (full), from `big` on (fast).
    pub sizes: Vec<[u64; 3]>,
    /// Estimates from samples, fast mode, sizes below `big`.
    pub sizes_estimated: Vec<SizeEstimate>,
    pub big: u64,
    pub sample: u64,
    /// The sizes asked for with `--sizes`, together.
    pub selected: Option<Selected>,
}

/// A Python interpreter. What its own allocators gave out is a layer of its own (`MEMSHIM_PYTHON_ALLOC=1`, else `null`): large objects are blocks of
/// `heap`, too, and arenas of small ones are maps. Full mode: by requested size; fast mode: by usable size.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Python {
    /// Where known.
    pub version: Option<String>,
    /// Live at the end (or at the last event).
    pub live_bytes: Option<Bytes>,
    pub live_allocs: Option<u64>,
    pub peak_bytes: Option<Bytes>,
    /// The true peak differs from `peak_bytes` by at most this; `null`: no bound is known.
    pub peak_bound_bytes: Option<Bytes>,
    pub peak_at_s: Option<f64>,
    pub allocs: Option<u64>,
    pub frees: Option<u64>,
    pub requested_bytes: Option<Bytes>,
    /// As of `heap`.
    pub temporary_allocs: Option<u64>,
    pub temporary_estimated: Option<Estimated>,
    /// Of blocks that were not seen allocated.
    pub unknown_frees: u64,
    /// Calls that should be in it and are not.
    pub lost: u64,
    /// Of the parent, live at the fork, in `live` and `peak`; `null`, and in neither: the allocator does not say (free-threaded builds).
    pub inherited_bytes: Option<Bytes>,
    /// `null` where the allocator does not say.
    pub usable: Option<Usable>,
    /// By function of the three domains: `PyMem_Raw…`, `PyMem_…`, `PyObject_…`.
    pub by_function: BTreeMap<String, Function>,
    /// Mapped for arenas of small objects when most was mapped; `null`: no call stacks were recorded, or another instant was asked for.
    pub arenas_bytes: Option<Bytes>,
}

/// By usable size.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Usable {
    pub live_bytes: Bytes,
    pub peak_bytes: Bytes,
}

/// Exact counts of one function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Function {
    pub allocs: u64,
    /// Calls that freed. For realloc: blocks replaced (`null` in fast mode).
    pub frees: Option<u64>,
    pub bytes: Bytes,
}

/// A number of allocations that samples stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Estimated {
    pub allocs: f64,
    pub allocs_stderr: f64,
}

/// What the samples of one size stand for.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SizeEstimate {
    pub size: u64,
    pub allocs: f64,
    pub allocs_stderr: f64,
    pub frees: f64,
    pub frees_stderr: f64,
    pub samples: u64,
}

/// Live blocks of chosen sizes taken together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Selected {
    pub sizes: Vec<u64>,
    pub peak_bytes: Bytes,
    pub peak_bound_bytes: Bytes,
    pub peak_allocs: u64,
    pub peak_bound_allocs: u64,
    pub live_bytes: Bytes,
    pub live_allocs: u64,
    /// Rows as in `heap.sizes`, by function that allocated.
    pub by_function: BTreeMap<String, Vec<[u64; 3]>>,
}

/// Mappings made by the program's own calls, by class.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Maps {
    pub anon: MapClass,
    pub file: MapClass,
    pub shared: MapClass,
    pub stack: MapClass,
    pub brk: BrkClass,
    /// All classes together.
    pub peak_bytes: Bytes,
    pub peak_at_s: Option<f64>,
    /// Committed in its parent at the fork and counted in all the others; 0 where it is no forked child, `null` where its parent's trace is not there.
    pub inherited_bytes: Option<Bytes>,
    /// Committed bytes whose pages the program gave back (MADV_DONTNEED and the like), in all; they stay mapped.
    pub given_back_bytes: Bytes,
    /// mmap calls by length and kind.
    pub calls: Vec<MapCalls>,
    /// Committed bytes of address ranges over time.
    pub regions: Vec<Region>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MapClass {
    /// At the end.
    pub committed_bytes: Bytes,
    pub peak_bytes: Bytes,
    /// Of no access (PROT_NONE), at the end.
    pub reserved_bytes: Bytes,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BrkClass {
    pub committed_bytes: Bytes,
    pub peak_bytes: Bytes,
    pub reserved_bytes: Bytes,
    pub up_bytes: Bytes,
    pub down_bytes: Bytes,
    pub net_bytes: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MapCalls {
    pub len: u64,
    /// `anon_private`, `file_shared`, …
    pub kind: String,
    pub maps: u64,
    pub unmaps: u64,
    /// Made with PROT_NONE.
    pub prot_none: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Region {
    pub addr: u64,
    pub len: u64,
    /// Committed private anonymous bytes after each call that changed them.
    pub anon_bytes: Vec<u64>,
    pub peak_bytes: u64,
    pub end_bytes: u64,
    /// The history was cut.
    pub cut: bool,
}

/// A process has some memory: none is not known, and nothing else.
pub(super) fn null_for_none<S: serde::Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    Some(bytes).filter(|b| b.0 > 0).serialize(serializer)
}

/// Resident memory as the kernel counts it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Rss {
    /// Most that was sampled; `null` where nobody could look.
    #[serde(serialize_with = "null_for_none")]
    pub peak_bytes: Bytes,
    pub peak_at_s: Option<f64>,
    /// VmHWM, read from inside.
    pub hwm_bytes: Option<Bytes>,
    /// VmHWM as `memshim run` saw it.
    pub outside_hwm_bytes: Option<Bytes>,
    /// These three are at least so much: it went on after the last look, and nobody looked at its end.
    pub lower_bound: bool,
    /// It did not have more: the kernel's figure for it and what it waited for, where somebody waited for it.
    pub at_most_bytes: Option<Bytes>,
    /// At the first look and at the last one, and when these were; `null` where nobody looked.
    pub start_bytes: Option<Bytes>,
    pub start_at_s: Option<f64>,
    pub end_bytes: Option<Bytes>,
    pub end_at_s: Option<f64>,
    /// From the start to the end; `null` where the first look was not at the start, or the last one not at the end: the run was killed, or goes on.
    pub growth_bytes: Option<i64>,
    pub at_peak: Option<AtPeak>,
}

/// RSS at its peak: `rss = heap + maps_anon + brk + stack + file + shmem + hugetlb(outside RSS) + unaccounted`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AtPeak {
    pub t_s: f64,
    pub rss: Bytes,
    pub anon: Bytes,
    pub file: Bytes,
    pub shmem: Bytes,
    /// Not part of RSS.
    pub hugetlb: Bytes,
    /// Live heap by usable size; in a forked child with what it inherited and has not freed. `null`, as are maps, `brk` and what is left: the
    /// process was only watched from outside.
    pub heap: Option<Bytes>,
    /// Anonymous maps of the program, committed (pages never touched are in it and not in RSS: then `unaccounted` is negative).
    pub maps_anon: Option<Bytes>,
    pub brk: Option<Bytes>,
    pub stack: Bytes,
    /// What is left: the allocator's free memory and overhead, libraries' data, less maps never touched.
    pub unaccounted: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Children {
    /// Highest VmHWM of a traced child.
    pub rss_peak_bytes: Option<Bytes>,
    pub count: u64,
    /// RUSAGE_CHILDREN: keeps what a fork inherited even over an exec, so it can be too high.
    pub rusage_maxrss_bytes: Option<Bytes>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Thread {
    pub tid: u32,
    pub name: String,
    pub allocs: u64,
    pub bytes: Bytes,
    /// Most that it allocated more than it freed.
    pub peak_bytes: Bytes,
}

/// One point of the timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    pub t_s: f64,
    pub rss: Bytes,
    /// Live heap, usable size, with what was inherited; `null`, as are maps: watched from outside.
    pub heap: Option<Bytes>,
    /// Committed maps of the program, all classes together.
    pub maps: Option<Bytes>,
    /// The levels at the end of its span, where those above are the highest in it: of what is resident, the heap, the maps, those of private
    /// anonymous memory.
    #[serde(skip)]
    pub last: [Bytes; 4],
    /// Of which instant that of the heap is.
    #[serde(skip)]
    pub heap_at_s: f64,
}

/// Something that could need less memory or time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Advice {
    pub what: String,
    pub evidence: String,
    /// At most so much less.
    pub gain_bytes: Option<Bytes>,
    /// At most so many seconds less.
    pub gain_s: Option<f64>,
}

/// Something that is not in the numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Missing {
    pub what: String,
    pub count: u64,
    pub why: String,
}
