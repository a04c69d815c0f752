//! What devices and streams did while each phase was on: by the time on the device, whoever gave them the work and whenever.

use crate::analyze::report::{PHASE_STREAMS, Phase, PhaseDevice, PhaseGpu, PhaseStream};
use crate::model::gpu::GpuEnd;
use crate::model::gpu::calls::{Calls, Moved};
use crate::model::gpu::intervals::{Interval, in_both, length, until_each};
use crate::model::gpu::streams::{Spell, Stream};
use crate::model::image::ImageEnd;
use crate::model::phases::Instance;
use crate::model::units::Nanos;
use memshim_format::gpu::NO_DEVICE;

/// The times of a phase without overlaps, as pairs of edges.
type Spans = Vec<(u32, u32)>;

/// One for each phase, of whose times (in the order in which they began) all are given; nothing where no driver was called, or where
/// there is too much to know when things ran.
pub fn phases(image: &ImageEnd, phases: &[&[&Instance]]) -> Vec<Option<PhaseGpu>> {
    let Some(g) = known(image) else { return vec![None; phases.len()] };
    let spans: Vec<Spans> = phases.iter().map(|times| spans(times)).collect();
    let edges: Vec<u64> = image.phases.edges.iter().map(|e| e.t).collect();
    work(g, &Within { spans: &spans, edges: &edges }).into_iter().map(Some).collect()
}

/// How fast the copies to the device and back were that each phase called, in 10⁹ bytes a second.
pub fn rates(image: &ImageEnd, phases: &[&[&Instance]]) -> Vec<[Option<f64>; 2]> {
    let Some(g) = &image.gpu else { return vec![[None; 2]; phases.len()] };
    let t = |edge: u32| image.phases.edges.get(edge as usize).map_or(0, |e| e.t);
    let rate = |times: &[&Instance], calls: &Calls| {
        let moved = times.iter().map(|i| calls.between(t(i.begin), t(i.end))).fold(Moved::default(), |sum, one| sum.and(&one));
        moved.rate().filter(|_| !calls.is_cut)
    };
    phases.iter().map(|times| [0, 1].map(|direction: usize| rate(times, &g.transfers.calls[direction]))).collect()
}

/// As [`phases`], of stretches of the curve, which follow each other.
pub fn curve(image: &ImageEnd, stretches: &mut [Phase]) {
    let Some(g) = known(image) else { return };
    let at = |s: f64| image.header.mono_ns.saturating_add(Nanos::of_seconds(s).0);
    let edges: Vec<u64> = stretches.iter().flat_map(|p| [at(p.begin_s), at(p.end_s)]).collect();
    let spans: Vec<Spans> = (0..stretches.len() as u32).map(|i| vec![(2 * i, 2 * i + 1)]).collect();
    let all = work(g, &Within { spans: &spans, edges: &edges });
    stretches.iter_mut().zip(all).for_each(|(p, gpu)| p.gpu = Some(gpu));
}

/// What GPUs did, where it is known when.
fn known(image: &ImageEnd) -> Option<&GpuEnd> {
    image.gpu.as_ref().filter(|g| !g.streams.is_cut)
}

fn work(g: &GpuEnd, within: &Within) -> Vec<PhaseGpu> {
    let mut all = vec![PhaseGpu::default(); within.spans.len()];
    let whole = vec![(0, u64::MAX)];
    let begins: Vec<Interval> = g.streams.waited.iter().map(|(from, _)| (*from, from.saturating_add(1))).collect();
    let told = (!g.work.spans.is_empty()).then(|| within.each(&g.work.spans));
    let (covered, waited, waits) = (within.each(&whole), within.each(&g.streams.waited), within.each(&begins));
    for (i, p) in all.iter_mut().enumerate() {
        (p.covered_s, p.host_wait_s, p.host_waits) = (seconds(covered[i]), seconds(waited[i]), waits[i]);
        p.cupti_s = told.as_ref().map(|told| seconds(told[i]));
    }
    for (&index, d) in g.streams.devices.iter().filter(|_| is_by_device(g)) {
        let of = |what: &[Interval]| within.each(what);
        let [busy, copied, computed, both, together] = [&d.busy, &d.copied, &d.computed, &d.both, &d.together].map(|what| of(what));
        let mut variance = vec![0.0; all.len()];
        let mut streams: Vec<usize> = d.streams.iter().copied().filter(|i| !g.streams.all[*i].busy.is_empty()).collect();
        streams.sort_by_key(|i| (std::cmp::Reverse(length(&g.streams.all[*i].busy)), *i));
        for (rank, &number) in streams.iter().enumerate() {
            let s = &g.streams.all[number];
            let error = within.variance(s);
            variance.iter_mut().zip(&error).for_each(|(sum, v)| *sum += v);
            if rank < PHASE_STREAMS {
                let (busy, overlap) = (of(&s.busy), of(&in_both(&s.busy, &d.together)));
                for (i, p) in all.iter_mut().enumerate().filter(|(i, _)| busy[*i] > 0) {
                    p.streams.push(PhaseStream {
                        id: number as u64,
                        busy_s: seconds(busy[i]),
                        stderr_s: (!s.spells.is_empty()).then(|| error[i].sqrt() / 1e9),
                        utilization: share(busy[i], covered[i]),
                        overlap_s: seconds(overlap[i]),
                    });
                }
            }
        }
        let of_device = d.streams.iter().map(|i| &g.streams.all[*i]);
        let (sampled, unseen) = (of_device.clone().any(|s| s.looks > 0), of_device.clone().any(Stream::is_unseen));
        let then: Vec<Interval> = of_device.flat_map(|s| s.unseen_then.iter().copied()).collect();
        let then = of(&then);
        for (i, p) in all.iter_mut().enumerate() {
            p.devices.push(PhaseDevice {
                index: (index as u64 != NO_DEVICE).then_some(index as u64),
                busy_s: seconds(busy[i]),
                stderr_s: sampled.then(|| variance[i].sqrt() / 1e9),
                utilization: share(busy[i], covered[i]),
                at_least: unseen || then[i] > 0,
                copy_s: seconds(copied[i]),
                compute_s: seconds(computed[i]),
                overlap_s: seconds(both[i]),
                concurrent_s: seconds(together[i]),
            });
        }
    }
    all
}

/// Whether the device's times are known at all: else nobody knows when streams were busy.
pub(super) fn is_by_device(g: &GpuEnd) -> bool {
    matches!(g.timing.as_str(), "events" | "cupti")
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn share(part: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| (part as f64 / of as f64).min(1.0))
}

/// Times of one phase on several threads can overlap.
fn spans(times: &[&Instance]) -> Spans {
    let mut out: Spans = Vec::new();
    for i in times.iter().filter(|i| i.begin < i.end) {
        match out.last_mut() {
            Some(last) if i.begin <= last.1 => last.1 = last.1.max(i.end),
            _ => out.push((i.begin, i.end)),
        }
    }
    out
}

struct Within<'a> {
    spans: &'a [Spans],
    /// All edges' times, in order.
    edges: &'a [u64],
}

impl Within<'_> {
    /// How much of intervals lies within each phase.
    fn each(&self, what: &[Interval]) -> Vec<u64> {
        if what.is_empty() {
            return vec![0; self.spans.len()];
        }
        let until = until_each(what, self.edges.iter().copied());
        let at = |edge: u32| until.get(edge as usize).copied().unwrap_or(0);
        self.spans.iter().map(|spans| spans.iter().map(|&(from, to)| at(to).saturating_sub(at(from))).sum()).collect()
    }

    /// The variance, in ns², of how long a stream was busy within each phase, by looking.
    fn variance(&self, s: &Stream) -> Vec<f64> {
        let ends: Vec<Interval> = s.spells.iter().filter(|spell| spell.gap > 0).map(Spell::end).collect();
        let mut all = vec![0.0; self.spans.len()];
        if ends.is_empty() && s.missed.is_empty() {
            return all;
        }
        let t = |edge: u32| self.edges.get(edge as usize).copied().unwrap_or(0);
        for (of, spans) in all.iter_mut().zip(self.spans) {
            for &(from, to) in spans {
                let (from, to) = (t(from), t(to));
                *of += in_stretch(&ends, from, to).map(|end| square(common(end, from, to))).sum::<f64>() / 12.0;
                let first = s.missed.partition_point(|(_, end, _)| *end <= from);
                let some = s.missed[first..].iter().take_while(|(begin, ..)| *begin < to);
                let missed: f64 = some.map(|&(begin, end, n)| n as f64 * part((begin, end), from, to)).sum();
                *of += missed * square(s.gap_ns()) / 12.0;
            }
        }
        all
    }
}

/// Of intervals in order those that a stretch of time can have a part of.
fn in_stretch(all: &[Interval], from: u64, to: u64) -> impl Iterator<Item = Interval> {
    let first = all.partition_point(|(_, end)| *end <= from);
    all[first..].iter().copied().take_while(move |(begin, _)| *begin < to)
}

fn common(of: Interval, from: u64, to: u64) -> u64 {
    of.1.min(to).saturating_sub(of.0.max(from))
}

fn part(of: Interval, from: u64, to: u64) -> f64 {
    common(of, from, to) as f64 / of.1.saturating_sub(of.0).max(1) as f64
}

fn square(ns: u64) -> f64 {
    ns as f64 * ns as f64
}
