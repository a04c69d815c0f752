//! An image whose lines have all been read.

use super::*;
use crate::trace::line::Child;

/// What needs no further work at the end.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    pub end: Option<End>,
    pub outside: Option<Value>,
    pub children: Vec<Child>,
    /// Children in all; `children` holds the first of them.
    pub child_count: u64,
    /// Those of which it heard that a signal had ended them, when, and which.
    pub killed_children: Vec<(u32, u64, i32)>,
    /// Said that it is about to become another image, and was not seen after that.
    pub exec_announced: Option<Child>,
    pub notes: Vec<String>,
    /// Recording was lowered: the trace neared its cap, or could not be written any more.
    pub lowered: Vec<Lowered>,
    /// Every call was an event before.
    pub full_before: bool,
    /// Lost events by reason.
    pub lost: BTreeMap<String, u64>,
    /// What was lost and is no heap call: what it is, and why.
    pub lost_others: BTreeMap<(String, String), u64>,
    pub first_t: Option<Nanos>,
    pub last_t: Nanos,
    pub rss_peak: Option<Rss>,
    /// Its live heap, what was inherited included, where the snapshot said.
    pub rss_peak_heap: Option<Bytes>,
    pub rss_first: Option<Rss>,
    pub rss_last: Option<Rss>,
    /// Most that the first thread's stack took.
    pub main_stack: Bytes,
    pub hwm: Bytes,
    pub snapshots: Vec<Value>,
    /// Processor time of the process, its images before this one included, at the first look and at the last; ns.
    pub cpu_first: Option<u64>,
    pub cpu_last: Option<u64>,
    /// `maxrss` of `children` in the last snapshot that says.
    pub children_maxrss: Option<u64>,
    pub own: Option<Value>,
    pub bad_kinds: u64,
    /// Lines of a known type in which nothing could be used.
    pub useless: u64,
    /// Its rest came from its spool: from beside the trace, or where `memshim run` has put it.
    pub recovered: bool,
    /// Of one that ended without a last line: when its last one was. `last_t` is when its end was seen from outside.
    pub told_t: Option<Nanos>,
    /// It was still there when the trace was read: what its rings hold is not in it.
    pub running: bool,
    /// A Python whose frames memshim does not know how to read.
    pub python_unread: bool,
}

/// An image, finished.
pub struct ImageEnd {
    pub header: Header,
    /// What the side file says of it, but for edges.
    pub marks: Facts,
    pub heap: HeapEnd,
    pub kinds: KindTable,
    pub totals: Totals,
    pub doubled: u64,
    pub counts: Counts,
    pub threads: Vec<ThreadUse>,
    pub threads_total: u64,
    pub maps: MapsEnd,
    /// `None` where no driver was called.
    pub gpu: Option<GpuEnd>,
    pub phases: PhasesEnd,
    /// `None` where Python's own blocks are not recorded.
    pub python: Option<PythonEnd>,
    pub stacks: Stacks,
    pub timeline: Timeline,
    pub seen: Ended,
}

impl ImageEnd {
    /// Every call before is an event of the trace. 0: not in this mode.
    pub fn exact_until(&self) -> u64 {
        let full = self.seen.full_before || self.header.mode == "full";
        if full { self.told_until() } else { 0 }
    }

    /// Before recording was lowered: what was recorded is in the trace, and the ends of its blocks are.
    pub fn told_until(&self) -> u64 {
        self.seen.lowered.iter().map(Lowered::told_until).min().unwrap_or(u64::MAX)
    }

    /// Whether it is known how often a thread allocated while its recorded blocks lived.
    pub fn knows_ages(&self) -> bool {
        self.header.ages || self.header.mode == "full"
    }

    /// Whether it is known which of the recorded blocks of a time ended in it.
    pub fn tells_ends(&self, from: u64, to: u64) -> bool {
        to < self.told_until() || self.seen.lowered.iter().all(|l| l.mode == "fast" && from > l.t)
    }
}

impl Image {
    /// The lines are all read.
    pub fn finish(mut self) -> ImageEnd {
        let doubled = self.heap.doubled;
        let last = self.edges.last().max(Some(self.end.last_t.0)).unwrap_or(0);
        self.edges.feed(u64::MAX, &mut self.phases);
        self.phases.close_open(last);
        self.heap.expect(&mut self.phases.due, &mut self.phases.turns);
        let mut nobody = ThreadBook::default();
        let threads = if self.header.mode == "full" { &mut self.threads } else { &mut nobody };
        let (mut heap, kinds, totals) = self.heap.finish(self.stacks.sites(), threads);
        let totals = match self.before {
            // That frees and allocations do not find each other from then on says nothing new. Which frees before were of unknown blocks
            // cannot be told either: what would have settled them may be left out.
            Some(Totals { unmatched, unknown_kinds, gap_allocs, .. }) => {
                Totals { unknown_frees: 0, unknown_bytes: 0, unmatched, unknown_kinds, gap_allocs, ..totals }
            }
            None => totals,
        };
        let python = self.python.map(|python| python.finish(self.stacks.sites()));
        let (threads, threads_total) = self.threads.finish();
        let maps = self.maps.finish(&mut self.timeline, &mut self.phases);
        let gpu = self.gpu.finish(self.end.last_t.0, &mut self.phases);
        let phases = self.phases.finish(std::mem::take(&mut heap.phases), std::mem::take(&mut heap.around_edges));
        self.end.snapshots = thinned(self.end.snapshots, self.snapshots_max);
        ImageEnd {
            header: self.header,
            marks: self.marks,
            heap,
            kinds,
            totals,
            doubled,
            counts: self.counts,
            threads,
            threads_total,
            maps,
            gpu,
            phases,
            python,
            stacks: self.stacks,
            timeline: self.timeline,
            seen: self.end,
        }
    }
}

/// The first, the last, and evenly chosen ones between, at most `most`.
pub(super) fn thinned(all: Vec<Value>, most: usize) -> Vec<Value> {
    let n = all.len();
    if n <= most {
        return all;
    }
    let mut keep = vec![false; n];
    (0..most).for_each(|i| keep[i * (n - 1) / (most - 1)] = true);
    all.into_iter().zip(keep).filter_map(|(v, k)| k.then_some(v)).collect()
}
