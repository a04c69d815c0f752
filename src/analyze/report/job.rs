//! The job: all processes together, and those that were not recorded.

use serde::Serialize;

use super::{Bytes, JobGpu, null_for_none};

/// Processes without a trace that are listed at most.
pub const NOT_RECORDED_SHOWN: usize = 200;

/// The job as a whole.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Job {
    /// Processes (not images).
    pub processes: u64,
    pub ranks: u64,
    pub hosts: u64,
    /// Groups of runs between which nothing ran: more than one are several jobs, or steps of one after another.
    pub groups: u64,
    /// Most resident memory at once on one host, summed over its processes (shared pages count in each); `null` where nobody could look.
    #[serde(serialize_with = "null_for_none")]
    pub peak_bytes: Bytes,
    pub peak_at_s: Option<f64>,
    /// Highest peak of a rank over their mean; `null` without ranks.
    pub imbalance: Option<f64>,
    pub worst_rank: Option<i64>,
    /// What to ask the scheduler for: the peak and 10 %, in whole MiB. Processes that were not recorded are in it as far as somebody saw what they
    /// needed; of one that was killed, the most that it can have had. `null` where nothing is known.
    #[serde(serialize_with = "null_for_none")]
    pub request_mem_bytes: Bytes,
    /// It is not all: of some processes nobody knows how much they needed, or how much more than what was seen.
    pub request_lower_bound: bool,
    /// Processes that ran and have no trace here, or went on without one; those that needed most first, at most [`NOT_RECORDED_SHOWN`].
    pub not_recorded: Vec<NotRecorded>,
    pub not_recorded_total: u64,
    /// GPUs by host and number.
    pub gpus: Vec<JobGpu>,
    /// Trace bytes and events read.
    pub trace_bytes: Bytes,
    pub events_read: u64,
}

/// A process that ran and has no trace here, or went on without one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NotRecorded {
    pub host: String,
    pub pid: u32,
    /// Who started it.
    pub ppid: u32,
    /// Name of its file.
    pub program: Option<String>,
    /// `environment`: it was started with one that has no `LD_PRELOAD` of ours; `no trace`: it left none, or it was not given;
    /// `children skip`: it was not to be recorded.
    pub why: &'static str,
    /// Most that was seen resident of it, from outside.
    pub peak_bytes: Option<Bytes>,
    /// No process that its parent waited for had more.
    pub at_most_bytes: Option<Bytes>,
    /// When it was seen.
    #[serde(skip)]
    pub seen_unix_s: Option<(f64, f64)>,
}

/// What a run knows of other processes. Not part of the answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kin {
    /// The run that it is of: a first process and all that it started.
    pub run: String,
    /// With the pid it names a process for good.
    pub start_ticks: u64,
    /// In which space of process numbers it lives.
    pub pid_ns: u64,
    /// How far its looks are apart, seconds.
    pub interval_s: f64,
    /// Its children were not to be recorded.
    pub skips: bool,
    /// It was made by a fork, and shares pages with its parent.
    pub forked: bool,
    /// Those that it made.
    pub children: Vec<Started>,
    /// Of which it heard that a signal had ended them: pid, when, signal.
    pub killed: Vec<(u32, f64, i32)>,
    /// It became this program, and was not seen any more.
    pub went_on: Option<Started>,
    /// What `memshim run` saw of the processes below it.
    pub seen_outside: Vec<SeenOutside>,
}

/// A program that was started.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Started {
    pub pid: u32,
    pub at_unix_s: f64,
    pub program: Option<String>,
    /// In an environment that does not bring it the library.
    pub bare: bool,
}

/// A process as it was seen from outside while it ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeenOutside {
    pub pid: u32,
    pub start_ticks: u64,
    pub ppid: u32,
    pub name: String,
    pub hwm: Bytes,
    pub from_unix_s: f64,
    pub to_unix_s: f64,
}
