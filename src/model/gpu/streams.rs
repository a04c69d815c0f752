//! Streams: what ran on each, for how long, and what ran on others at the same time.

use std::collections::{BTreeMap, HashMap};

use super::intervals::{Interval, in_both, length, union, without};
use crate::trace::gpurow::Event;

/// What names a stream while it lives: its handle; of the default ones, which each context has, the context, and of a thread's own the thread. (Of one that
/// the program made it may be another context that is current: 0.)
type Key = (u32, u64, u32);

/// Handles of the context's default stream and of the thread's own.
const DEFAULTS: u64 = 2;

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
    /// Launches that it told of, nodes of graphs left out.
    pub told_launches: u64,
    /// Timed work: the union of its intervals.
    pub timed_ns: u64,
    /// When it was at work, timed or by looking; of that, for how long another stream of the device was too. Set by [`Streams::finish`].
    pub busy: Vec<Interval>,
    pub overlap_ns: u64,
    pub spells: Vec<Spell>,
    /// Kernels that ran while nobody could look or tell, and when that was.
    pub unseen: u64,
    pub unseen_then: Vec<Interval>,
    /// Times that it was woken and found idle at the first look: from, to, how many.
    pub missed: Vec<(u64, u64, u64)>,
    told_at: u64,
    ended_spells: u64,
    copied: Vec<Interval>,
    computed: Vec<Interval>,
}

impl Stream {
    /// Kernels of which nobody knows when they ran: of a thread's own default stream, at which nobody can look, or while CUPTI was on its way.
    pub fn unseen_kernels(&self) -> u64 {
        if self.looks > 0 { self.unseen } else { self.unseen.max(self.kernels.saturating_sub(self.told_launches)) }
    }

    /// Whether there were any, and it is not known when; if it is, see `unseen_then`.
    pub fn is_unseen(&self) -> bool {
        self.unseen_kernels() > self.unseen
    }

    /// Between two looks, mostly.
    pub fn gap_ns(&self) -> u64 {
        self.sampled_busy_ns.checked_div(self.busy_looks).unwrap_or(1_000_000)
    }

    /// The variance of what looks tell, in ns²: each time that it was found idle it had ended somewhere in the gap before.
    pub fn variance(&self) -> f64 {
        let square = |ns: u64| ns as f64 * ns as f64 / 12.0;
        let missed = self.missed.iter().fold(0u64, |sum, (_, _, n)| sum.saturating_add(*n));
        self.spells.iter().map(|s| square(s.gap)).sum::<f64>() + missed as f64 * square(self.gap_ns())
    }

    /// For how long it was at work. Traces without spells know of looks only how long all of them stand for.
    pub fn busy_ns(&self) -> u64 {
        let known = length(&self.busy).max(self.timed_ns);
        if self.spells.is_empty() { known.max(self.sampled_busy_ns) } else { known }
    }
}

/// A time during which each look found a stream busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spell {
    pub from: u64,
    pub to: u64,
    /// It ended between two looks that were so far apart, the first of them half of that before `to`. 0: it went on.
    pub gap: u64,
}

impl Spell {
    /// Between which looks it ended.
    pub fn end(&self) -> Interval {
        let last = self.to.saturating_sub(self.gap / 2);
        (last, last.saturating_add(self.gap))
    }
}

/// What all streams of a device did. Set by [`Streams::finish`].
#[derive(Debug, Default)]
pub struct DeviceWork {
    pub streams: Vec<usize>,
    /// Copies and memsets; graph launches, kernels, and what looks found that is no copy of that stream.
    pub copied: Vec<Interval>,
    pub computed: Vec<Interval>,
    /// Either, and both at once.
    pub busy: Vec<Interval>,
    pub both: Vec<Interval>,
    /// Two streams or more at work; the most at once.
    pub together: Vec<Interval>,
    pub most: usize,
}

/// Kind of use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// And memsets.
    Copy,
    /// And kernels.
    Graph,
}

/// Intervals kept in all; beyond that it is not known when things were.
const INTERVALS: usize = 1 << 23;

/// See the module.
#[derive(Default)]
pub struct Streams {
    pub all: Vec<Stream>,
    live: HashMap<Key, usize>,
    /// All that had a name, the first one first: CUPTI tells of a stream's work when it may be gone.
    had: HashMap<Key, Vec<usize>>,
    /// The devices of contexts: a copy's row has the device of the memory.
    contexts: HashMap<u32, u8>,
    /// The host waited for contexts and events.
    pub other_waits: u64,
    pub other_wait_ns: u64,
    pub devices: BTreeMap<u8, DeviceWork>,
    /// When the host waited: for streams, contexts and events.
    pub waited: Vec<Interval>,
    kept: usize,
    /// There was no room for all of it.
    pub is_cut: bool,
}

fn key(e: &Event, handle: u64) -> Key {
    let context = if handle > DEFAULTS { 0 } else { e.context };
    (context, handle, if handle == DEFAULTS { e.lane } else { 0 })
}

impl Streams {
    /// A context is on a device.
    pub fn context(&mut self, e: &Event) {
        self.contexts.insert(e.context, e.device);
    }

    fn at(&mut self, e: &Event, handle: u64) -> usize {
        let (all, had) = (&mut self.all, &mut self.had);
        let device = self.contexts.get(&e.context).copied().unwrap_or(e.device);
        *self.live.entry(key(e, handle)).or_insert_with(|| {
            all.push(Stream { device, context: e.context, handle, from: e.t, to: u64::MAX, ..Stream::default() });
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

    /// CUPTI says when a kernel or a copy ran; `launch`: a kernel that was launched by itself.
    pub fn told(&mut self, stream: usize, start: u64, took: u64, kernel: bool, launch: bool) {
        let s = &mut self.all[stream];
        s.told_launches += launch as u64;
        let sum = if kernel { &mut s.kernel_ns } else { &mut s.copy_ns };
        *sum = sum.saturating_add(took);
        self.worked(stream, start, took, if kernel { Work::Graph } else { Work::Copy });
    }

    /// The same, of nobody knows which stream.
    pub fn told_of_device(&mut self, device: u8, start: u64, took: u64, kernel: bool) {
        if self.has_room() {
            let d = self.devices.entry(device).or_default();
            if kernel { &mut d.computed } else { &mut d.copied }.push((start, start.saturating_add(took)));
        }
    }

    fn has_room(&mut self) -> bool {
        self.kept += 1;
        self.is_cut |= self.kept > INTERVALS;
        !self.is_cut
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
        let all = &mut self.all;
        self.live.retain(|_, i| {
            let lives = all[*i].context != e.context;
            if !lives {
                all[*i].to = e.t;
            }
            lives
        });
    }

    pub fn wait(&mut self, e: &Event) {
        let [handle, _, wall, ..] = e.words;
        if self.has_room() {
            self.waited.push((e.t, e.t.saturating_add(wall)));
        }
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
        // Each look that found it idle either ended a spell or was the first after a launch.
        let missed = looks.saturating_sub(busy).saturating_sub(std::mem::take(&mut s.ended_spells));
        let from = s.told_at.max(s.from).min(e.t);
        s.told_at = e.t;
        if missed > 0 && self.has_room() {
            self.all[i].missed.push((from, e.t, missed));
        }
    }

    /// It was found busy at each look of a time.
    pub fn spell(&mut self, e: &Event) {
        let [handle, ns, looks, gap, ..] = e.words;
        let i = self.at_time(&Event { lane: e.flags as u32, ..e.clone() }, handle);
        self.all[i].from = self.all[i].from.min(e.t);
        if looks == 0 {
            self.all[i].unseen = self.all[i].unseen.saturating_add(gap);
            if self.has_room() {
                self.all[i].unseen_then.push((e.t, e.t.saturating_add(ns)));
            }
            return;
        }
        let gap = gap.min(ns.saturating_mul(2));
        self.all[i].ended_spells += (gap > 0) as u64;
        if self.has_room() {
            self.all[i].spells.push(Spell { from: e.t, to: e.t.saturating_add(ns), gap });
        }
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
    pub fn worked(&mut self, stream: usize, start: u64, took: u64, work: Work) {
        let has_room = self.has_room();
        let s = &mut self.all[stream];
        if !has_room {
            s.timed_ns = s.timed_ns.saturating_add(took);
        } else if work == Work::Copy {
            s.copied.push((start, start.saturating_add(took)));
        } else {
            s.computed.push((start, start.saturating_add(took)));
        }
    }

    /// All rows have come; the last was at `last`.
    pub fn finish(&mut self, last: u64) {
        for (i, s) in self.all.iter_mut().enumerate() {
            s.to = s.to.min(last.max(s.from));
            let copies = union(std::mem::take(&mut s.copied));
            let timed = union([copies.as_slice(), &s.computed].concat());
            s.timed_ns = s.timed_ns.saturating_add(length(&timed));
            let spells = s.spells.iter().map(|spell| (spell.from, spell.to));
            s.busy = union(timed.into_iter().chain(spells.clone()).collect());
            // A look does not tell what keeps a stream busy; what is no copy then is taken for work that computes.
            let computed = union(std::mem::take(&mut s.computed).into_iter().chain(spells).collect());
            let device = self.devices.entry(s.device).or_default();
            device.computed.extend(without(&computed, &copies));
            device.copied.extend(copies);
            device.streams.push(i);
        }
        for d in self.devices.values_mut() {
            d.copied = union(std::mem::take(&mut d.copied));
            d.computed = union(std::mem::take(&mut d.computed));
            d.both = in_both(&d.copied, &d.computed);
            let mut edges = Vec::new();
            for &i in &d.streams {
                edges.extend(self.all[i].busy.iter().flat_map(|&(from, to)| [(from, true), (to, false)]));
            }
            // Ends before begins of the same instant: what follows without a gap does not overlap.
            edges.sort_unstable();
            (d.most, d.together) = together(&edges);
            for &i in &d.streams {
                self.all[i].overlap_ns = length(&in_both(&self.all[i].busy, &d.together));
            }
            d.busy = union([d.copied.as_slice(), &d.computed].concat());
        }
    }
}

/// The most streams at work at once, and when it were two or more.
fn together(edges: &[(u64, bool)]) -> (usize, Vec<Interval>) {
    let (mut active, mut most, mut since, mut out) = (0usize, 0, 0, Vec::new());
    for &(t, begins) in edges {
        active = if begins { active + 1 } else { active.saturating_sub(1) };
        most = most.max(active);
        match (begins, active) {
            (true, 2) => since = t,
            (false, 1) => out.push((since, t)),
            _ => {}
        }
    }
    (most, union(out))
}

/// When something ran: intervals, as many as there is room for.
#[derive(Debug, Default)]
pub struct Intervals {
    all: Vec<Interval>,
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
    pub fn take(&mut self) -> (Vec<Interval>, u64) {
        (union(std::mem::take(&mut self.all)), self.beyond)
    }
}
