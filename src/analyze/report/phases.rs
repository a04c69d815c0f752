//! Phases of a run as `analyze` says them.

use serde::Serialize;

use super::Frame;
use crate::model::units::Bytes;

/// A phase by its name and what was around it: all times that it was on together. Times are seconds; those called `…_s` alone since the run's start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Phase {
    pub name: String,
    /// Who told of it: `nvtx`, `python`, `symbol`, `output`, `mark`, `api`, `process`, `auto`.
    pub source: &'static str,
    /// Names of the phases around it on its thread, outermost first, and its own.
    pub path: Vec<String>,
    /// Times that it was on.
    pub count: u64,
    /// Of these, not seen to end: they go on to the end of the run, or of their thread.
    pub open: u64,
    pub begin_s: f64,
    /// End of the last.
    pub end_s: f64,
    /// All times together.
    pub wall_s: f64,
    /// Less the phases inside it on the same thread.
    pub self_wall_s: f64,
    pub latency: Latency,
    /// Live when it began first.
    pub heap_begin_bytes: Option<Bytes>,
    /// Most live at once in the process while it was on. Full mode: requested; fast mode: usable, wrong by
    /// at most the bound, slack of blocks included; so are the others of the heap. They are `null` where the process was only watched from outside,
    /// and of child processes.
    pub heap_peak_bytes: Option<Bytes>,
    /// So far the peak can be off. In full mode 0 where one thread allocated; where others did near its edges or at once, by what they did in the
    /// windows of time that are known of them. `null`: not known.
    pub heap_peak_bound_bytes: Option<Bytes>,
    /// When the time with that peak began and ended.
    pub peak_begin_s: f64,
    pub peak_end_s: f64,
    /// What it left behind: live at its ends less live at its begins.
    pub heap_persistent_bytes: Option<i64>,
    /// So far that can be off, likewise: all its begins and ends together.
    pub heap_persistent_bound_bytes: Option<Bytes>,
    /// What it needed only meanwhile: its highest peak above what was live both before or after it.
    pub heap_transient_bytes: Option<Bytes>,
    /// As `heap_peak_bound_bytes`, of `heap_transient_bytes`.
    pub heap_transient_bound_bytes: Option<Bytes>,
    pub rss_peak_bytes: Option<Bytes>,
    pub rss_persistent_bytes: Option<i64>,
    /// Committed maps of all classes; `null` as those of the heap are.
    pub map_peak_bytes: Option<Bytes>,
    pub map_persistent_bytes: Option<i64>,
    /// On all devices together.
    pub gpu_peak_bytes: Option<Bytes>,
    pub gpu_persistent_bytes: Option<i64>,
    pub pinned_peak_bytes: Option<Bytes>,
    /// Most resident at once of the processes that were started in it.
    pub children_peak_bytes: Option<Bytes>,
    /// Whose what it left behind is: what was allocated in it and live at its last end, by call site; of a ramp of the curve, what each site held
    /// more at its end than at its begin. `null`: no call stacks were recorded, or of this phase it is not known.
    pub left: Option<PhaseSites>,
    /// Whose what it needed only meanwhile is: allocated in it, live at its highest peak, and gone at the end after that.
    pub meanwhile: Option<PhaseSites>,
    /// What it leaves behind each time: the median of all slopes between two of its ends; `null` below three times.
    pub growth_per_count_bytes: Option<f64>,
    /// Median time for one of the `--units`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_unit: Option<PerUnit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Steps>,
    pub h2d_bytes: Option<Bytes>,
    pub d2h_bytes: Option<Bytes>,
    /// 10⁹ bytes a second: those of the timed copies called in it over how long the device took for them; where none is timed and all
    /// waited, over the time of the calls. `null`: not known, or there were none.
    pub h2d_gb_per_s: Option<f64>,
    pub d2h_gb_per_s: Option<f64>,
    /// How busy devices and streams were while it was on; `null` where no driver was called.
    pub gpu: Option<PhaseGpu>,
    /// Of phases told from outside: each of its edges was at most so long before somebody read of it, so far as that is known; in full mode the
    /// bounds above have what the heap did meanwhile, in fast mode they have not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edges_late_s: Option<f64>,
    /// Of the whole program meanwhile, without memshim's writer thread and its looks.
    pub cpu_s: Option<f64>,
    pub minor_faults: Option<u64>,
    pub major_faults: Option<u64>,
    pub voluntary_switches: Option<u64>,
    pub involuntary_switches: Option<u64>,
    /// By read and write calls of any kind, without memshim's own; `null` where too many phases came too fast to look each time.
    pub read_bytes: Option<Bytes>,
    pub written_bytes: Option<Bytes>,
    /// Layers of memory when it began first and when it ended last, of the begins and ends at which they were looked at: `elapsed_s`, the
    /// kernel's as in the trace, `heap_live_bytes`, `map_bytes`, `gpu_bytes`, `pinned_bytes`, `python` (`live_bytes`, `peak_bytes` so far).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<[serde_json::Value; 2]>,
    /// Of a stretch of the curve: the instants that its first and its last level of the heap are of.
    #[serde(skip)]
    pub sampled: Option<(f64, f64)>,
    /// When it was on, for the job's sake.
    #[serde(skip)]
    pub spans: Vec<(f64, f64)>,
}

impl Phase {
    /// Whether this is its name: alone, or with those around it, as `outer/inner` or as the screen has it.
    pub fn is_called(&self, wanted: &str) -> bool {
        self.name == wanted || self.path.join("/") == wanted || self.path.join(" › ") == wanted
    }
}

/// Call sites of a phase; figures estimated from samples have standard errors.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PhaseSites {
    /// Of all sites.
    pub bytes: Bytes,
    pub stderr_bytes: f64,
    pub sites: u64,
    /// The largest, at most [`PHASE_SITES_SHOWN`].
    pub top: Vec<PhaseSite>,
}

/// See [`PhaseSites`].
pub const PHASE_SITES_SHOWN: usize = 5;

/// See [`PhaseSites`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PhaseSite {
    pub bytes: Bytes,
    pub allocs: u64,
    /// 0 where every call is an event.
    pub stderr_bytes: f64,
    /// Index in `frames` of the innermost one that is the program's own.
    pub owner: Option<usize>,
    /// Innermost first.
    pub frames: Vec<Frame>,
}

/// What devices and streams did while a phase was on, whoever gave them the work. Seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PhaseGpu {
    /// The time in which the phase was on at least once: `wall_s`, unless several threads were in it.
    pub covered_s: f64,
    /// Of that, the time that CUPTI told of; `null` without it.
    pub cupti_s: Option<f64>,
    /// The host waited for streams, events and contexts; of two threads at once both count. How often it began to.
    pub host_wait_s: f64,
    pub host_waits: u64,
    /// Empty where the device is not asked for times (`wall`, `off`).
    pub devices: Vec<PhaseDevice>,
    /// Those at work meanwhile, of each device at most the [`PHASE_STREAMS`] busiest of the run.
    pub streams: Vec<PhaseStream>,
}

/// See [`PhaseGpu`].
pub const PHASE_STREAMS: usize = 64;

/// See [`PhaseGpu`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PhaseDevice {
    /// `null` where it is not known.
    pub index: Option<u64>,
    /// At least one of its streams was at work.
    pub busy_s: f64,
    /// Where that is by looking too.
    pub stderr_s: Option<f64>,
    /// `busy_s / covered_s`.
    pub utilization: Option<f64>,
    /// It may have been busy longer: the run has kernels that nobody saw ([`super::GpuStream::unseen_kernels`]).
    pub at_least: bool,
    /// At least one copy or memset; kernels, graph launches, and what looks found that was no copy of that stream.
    pub copy_s: f64,
    pub compute_s: f64,
    /// Both of these at once.
    pub overlap_s: f64,
    /// Two streams or more were at work.
    pub concurrent_s: f64,
}

/// See [`PhaseGpu`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PhaseStream {
    /// As in `gpu.streams`.
    pub id: u64,
    pub busy_s: f64,
    /// Where that is by looking too.
    pub stderr_s: Option<f64>,
    pub utilization: Option<f64>,
    /// While another stream of the device was at work too.
    pub overlap_s: f64,
}

/// What one unit of a step's work costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PerUnit {
    /// What a unit is, `atom`; empty: not said.
    pub unit: String,
    pub median_s: f64,
}

/// Of the time that a phase takes, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    pub mean: f64,
    pub median: f64,
    pub p95: f64,
    pub p99: f64,
    pub min: f64,
    pub max: f64,
    /// Standard deviation over mean.
    pub cv: f64,
}

/// A phase that repeats.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Steps {
    /// With 95 % confidence its growth is between these.
    pub growth_low_bytes: f64,
    pub growth_high_bytes: f64,
    /// From the first to the last of those judged.
    pub growth_total_bytes: f64,
    /// It grows by more than what a steady program does.
    pub leaks: bool,
    /// The same of each class of memory that is known, the heap included.
    pub growth: GrowthByClass,
    /// Of one that leaks: what was allocated in it and holds more at its last end than at an early one, at most [`PHASE_SITES_SHOWN`] call sites,
    /// the one that grew most first. Empty: it does not, or no call stacks were recorded.
    pub sites: Vec<PhaseSite>,
    /// At the end of which time that is, from 0 on: the first that is judged, or of many one soon after it.
    pub sites_from: Option<u64>,
    /// Of one that leaks committed maps: call sites that map as often as it repeats, or nearly, by what of theirs was mapped when the run ended
    /// (`allocs`: how often they mapped), at most [`PHASE_SITES_SHOWN`]. Empty: it does not, nothing was left, or no call stacks were recorded.
    pub map_sites: Vec<PhaseSite>,
    /// Those that took much longer than the others, longest first.
    pub outliers: Vec<Outlier>,
}

/// How the memory of each class grows over the steps; `null` where it is not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GrowthByClass {
    pub heap: Option<Growth>,
    /// Python's own blocks (`MEMSHIM_PYTHON_ALLOC`), small objects among them; by the last look before each edge.
    pub python: Option<Growth>,
    /// Committed maps of all classes.
    pub maps: Option<Growth>,
    /// Of the times at whose edges it was looked at.
    pub rss: Option<Growth>,
    /// On all devices together.
    pub gpu: Option<Growth>,
    pub pinned: Option<Growth>,
}

impl GrowthByClass {
    /// The classes that are known, with their names; the most telling first.
    pub fn known(&self) -> impl Iterator<Item = (&'static str, &Growth)> {
        let all = [
            ("heap", &self.heap),
            ("python", &self.python),
            ("maps", &self.maps),
            ("gpu", &self.gpu),
            ("pinned", &self.pinned),
            ("rss", &self.rss),
        ];
        all.into_iter().filter_map(|(class, of)| Some((class, of.as_ref()?)))
    }

    /// The class that leaks, of several the most telling one but for those that leak more than twice as much: small objects of Python lie in no block of the heap.
    pub fn leaking(&self) -> Option<(&'static str, &Growth)> {
        self.known().filter(|(_, of)| of.leaks).reduce(|told, next| if next.1.total_bytes > 2.0 * told.1.total_bytes { next } else { told })
    }
}

/// See [`GrowthByClass`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Growth {
    /// The median of all slopes between two ends, and the interval of 95 % confidence.
    pub per_count_bytes: f64,
    pub low_bytes: f64,
    pub high_bytes: f64,
    /// All times together, at that slope.
    pub total_bytes: f64,
    /// See [`Steps::leaks`]; of resident memory, which grows by what was allocated before too, only where it is much in all.
    pub leaks: bool,
    /// What is live at the last end less what was at the first begin, warming up included.
    pub change_bytes: i64,
}

/// One that took longer.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outlier {
    /// Which, from 0 on.
    pub index: u64,
    pub begin_s: f64,
    pub wall_s: f64,
    pub heap_peak_bytes: Bytes,
    pub heap_persistent_bytes: i64,
    /// It took longer without more time on a processor; `null`: not known.
    pub waited: Option<bool>,
    /// What it did clearly more of than the median step, or less.
    pub differs: Vec<Difference>,
}

/// See [`Outlier::differs`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Difference {
    /// A key of the phase: `cpu_s`, `minor_faults`, `read_bytes`, …
    pub what: &'static str,
    pub value: f64,
    /// Of all steps.
    pub median: f64,
}

/// A mark.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Mark {
    pub t_s: f64,
    pub name: String,
    pub source: &'static str,
}

/// A peak that is in none of the phases which the curve was cut into: shorter than the time between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ShortPeak {
    /// `heap` or `resident`.
    pub of: &'static str,
    pub peak_bytes: Bytes,
    /// `null`: only the kernel's high-water mark tells of it.
    pub at_s: Option<f64>,
    /// Index in `phases` of the one that was on then.
    pub phase: Option<usize>,
    /// The most that any of them shows.
    pub shown_bytes: Bytes,
}
