//! Streams: what ran on each, for how long, and what ran on others at the same time.

use std::collections::{BTreeMap, HashMap};

use crate::trace::gpurow::Event;

/// What names a stream while it lives: device, context, handle, and for a thread's own default stream the thread.
type Key = (u8, u32, u64, u32);

/// A stream.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    pub device: u8,
    pub context: u32,
    /// 1 the context's default stream, 2 a thread's own.
    pub handle: u64,
    /// Made at (or first used), gone at (or the end of the run).
    pub from: u64,
    pub to: u64,
    pub copies: u64,
    pub launches: u64,
    pub kernels: u64,
    pub waits: u64,
    pub wait_ns: u64,
    /// Looks of the sampler, those that found it busy, and the time that these stand for.
    pub looks: u64,
    pub busy_looks: u64,
    pub sampled_busy_ns: u64,
    /// By CUPTI: kernels, and copies and memsets; their times added up.
    pub kernel_ns: u64,
    pub copy_ns: u64,
    pub told_kernels: u64,
    /// Timed work: the union of its intervals.
    pub timed_ns: u64,
    /// Of that, while another stream of the device was at work too.
    pub overlap_ns: u64,
    intervals: Vec<(u64, u64)>,
}

/// Kind of use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Copy,
    Graph,
}

/// Intervals kept in all; beyond that overlaps are not known.
const INTERVALS: usize = 1 << 23;

/// See the module.
#[derive(Default)]
pub struct Streams {
    pub all: Vec<Stream>,
    live: HashMap<Key, usize>,
    /// All that had a name, the first one first: CUPTI tells of a stream's work when it may be gone.
    had: HashMap<Key, Vec<usize>>,
    /// The host waited for contexts and events.
    pub other_waits: u64,
    pub other_wait_ns: u64,
    /// By device: most streams at work at once, and for how long at least two were.
    pub concurrency: BTreeMap<u8, (usize, u64)>,
    intervals: usize,
}

fn key(e: &Event, handle: u64) -> Key {
    (e.device, e.context, handle, if handle == 2 { e.lane } else { 0 })
}

impl Streams {
    fn at(&mut self, e: &Event, handle: u64) -> usize {
        let (all, had) = (&mut self.all, &mut self.had);
        *self.live.entry(key(e, handle)).or_insert_with(|| {
            all.push(Stream { device: e.device, context: e.context, handle, from: e.t, to: u64::MAX, ..Stream::default() });
            had.entry(key(e, handle)).or_default().push(all.len() - 1);
            all.len() - 1
        })
    }

    /// The stream that had a name when `e` happened: its number.
    pub fn at_time(&mut self, e: &Event, handle: u64) -> usize {
        let had = self.had.get(&key(e, handle)).map_or(&[][..], Vec::as_slice);
        let then = had.iter().rev().find(|i| self.all[**i].from <= e.t).or(had.first());
        then.copied().unwrap_or_else(|| self.at(e, handle))
    }

    /// CUPTI says when a kernel or a copy ran.
    pub fn told(&mut self, stream: usize, start: u64, took: u64, kernel: bool) {
        let s = &mut self.all[stream];
        s.told_kernels += kernel as u64;
        let sum = if kernel { &mut s.kernel_ns } else { &mut s.copy_ns };
        *sum = sum.saturating_add(took);
        self.worked(stream, start, took);
    }

    pub fn create(&mut self, e: &Event) {
        if e.code == 0 {
            self.live.remove(&key(e, e.words[0]));
            self.at(e, e.words[0]);
        }
    }

    pub fn destroy(&mut self, e: &Event) {
        if e.code == 0
            && let Some(i) = self.live.remove(&key(e, e.words[0]))
        {
            self.all[i].to = e.t;
        }
    }

    pub fn context_ends(&mut self, e: &Event) {
        let gone: Vec<Key> = self.live.keys().filter(|k| k.1 == e.context).copied().collect();
        for k in gone {
            if let Some(i) = self.live.remove(&k) {
                self.all[i].to = e.t;
            }
        }
    }

    pub fn wait(&mut self, e: &Event) {
        let [handle, _, wall, ..] = e.words;
        if handle == 0 {
            self.other_waits += 1;
            self.other_wait_ns = self.other_wait_ns.saturating_add(wall);
            return;
        }
        let i = self.at(e, handle);
        self.all[i].waits += 1;
        self.all[i].wait_ns = self.all[i].wait_ns.saturating_add(wall);
    }

    pub fn busy(&mut self, e: &Event) {
        let [handle, looks, busy, kernels, busy_ns] = e.words;
        // The row may be another thread's: the thread whose stream it was stands in its flags.
        let i = self.at(&Event { lane: e.flags as u32, ..e.clone() }, handle);
        let s = &mut self.all[i];
        s.looks = s.looks.saturating_add(looks);
        s.busy_looks = s.busy_looks.saturating_add(busy);
        s.kernels = s.kernels.saturating_add(kernels);
        s.sampled_busy_ns = s.sampled_busy_ns.saturating_add(busy_ns);
    }

    /// Work was given to a stream; its number.
    pub fn used(&mut self, e: &Event, handle: u64, work: Work) -> usize {
        let i = self.at(e, handle);
        match work {
            Work::Copy => self.all[i].copies += 1,
            Work::Graph => self.all[i].launches += 1,
        }
        i
    }

    /// When it ran.
    pub fn worked(&mut self, stream: usize, start: u64, took: u64) {
        if self.intervals < INTERVALS {
            self.intervals += 1;
            self.all[stream].intervals.push((start, start.saturating_add(took)));
        } else {
            self.all[stream].timed_ns = self.all[stream].timed_ns.saturating_add(took);
        }
    }

    pub fn finish(&mut self, last: u64) {
        let mut by_device = BTreeMap::<u8, Vec<(u64, bool, usize)>>::new();
        for (i, s) in self.all.iter_mut().enumerate() {
            s.to = s.to.min(last.max(s.from));
            let edges = by_device.entry(s.device).or_default();
            for (start, end) in union(std::mem::take(&mut s.intervals)) {
                s.timed_ns = s.timed_ns.saturating_add(end - start);
                edges.push((start, true, i));
                edges.push((end, false, i));
            }
        }
        for (device, mut edges) in by_device {
            // Ends before begins of the same instant: what follows without a gap does not overlap.
            edges.sort_unstable();
            let together = self.sweep(&edges);
            self.concurrency.insert(device, together);
        }
    }

    fn sweep(&mut self, edges: &[(u64, bool, usize)]) -> (usize, u64) {
        let mut active: Vec<usize> = Vec::new();
        let (mut most, mut together, mut before) = (0, 0, 0);
        for &(t, begins, stream) in edges {
            if active.len() > 1 {
                together += t - before;
                active.iter().for_each(|&i| self.all[i].overlap_ns += t - before);
            }
            before = t;
            if begins {
                active.push(stream);
                most = most.max(active.len());
            } else if let Some(at) = active.iter().position(|&i| i == stream) {
                active.swap_remove(at);
            }
        }
        (most, together)
    }
}

/// When something ran: intervals, as many as there is room for.
#[derive(Debug, Default)]
pub struct Intervals {
    all: Vec<(u64, u64)>,
    /// The length of what did not fit.
    beyond: u64,
}

impl Intervals {
    pub fn add(&mut self, start: u64, end: u64) {
        if self.all.len() < INTERVALS {
            self.all.push((start, end));
        } else {
            self.beyond = self.beyond.saturating_add(end.saturating_sub(start));
        }
    }

    /// Without overlaps, in order; and the length of what did not fit.
    pub fn take(&mut self) -> (Vec<(u64, u64)>, u64) {
        (union(std::mem::take(&mut self.all)), self.beyond)
    }
}

/// For how long two sets of intervals without overlaps, in order, hold at once.
pub fn in_both(a: &[(u64, u64)], b: &[(u64, u64)]) -> u64 {
    let (mut i, mut j, mut sum) = (0, 0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        sum += x.1.min(y.1).saturating_sub(x.0.max(y.0));
        if x.1 < y.1 { i += 1 } else { j += 1 }
    }
    sum
}

/// Intervals without overlaps, in order.
fn union(mut all: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    all.retain(|(start, end)| start < end);
    all.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::with_capacity(all.len());
    for (start, end) in all {
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}
