//! What each phase needed, left behind and took.

use super::Units;
use super::report::{Latency, Mark, Mode, PerUnit, Phase, Steps};
use super::steps::{self, Step, quantile};
use super::{gpu, heap};
use crate::model::image::ImageEnd;
use crate::model::phases::{HeapOver, Instance, Metric, PhasesEnd};
use crate::model::units::{Bytes, Nanos};
use crate::symbols;
use memshim_format::phase::{SOURCES, Source};
use serde_json::{Value, json};

/// Phases listed at most; those that took longest are kept.
pub const PHASES_SHOWN: usize = 2000;
/// Times of a phase of which it is remembered when they were.
const SPANS: usize = 10_000;
/// Marks listed at most.
const MARKS_SHOWN: usize = 10_000;

/// The process's own phases.
pub fn is_of_process(phase: &Phase) -> bool {
    phase.source == SOURCES[Source::Process as usize]
}

/// Phases in the order in which they began first, the process's own last, and how many more there were.
pub fn phases(image: &ImageEnd, mode: Mode, units: Option<&Units>) -> (Vec<Phase>, u64) {
    let found = &image.phases;
    let mut groups: Vec<(&[String], &'static str, Vec<&Instance>)> = Vec::new();
    let mut by_path = std::collections::HashMap::new();
    for instance in &found.instances {
        let Some(path) = found.paths.get(instance.path as usize) else { continue };
        let at = *by_path.entry((path.names.as_slice(), path.source)).or_insert_with(|| {
            groups.push((&path.names, path.source, Vec::new()));
            groups.len() - 1
        });
        groups[at].2.push(instance);
    }
    let mut all: Vec<Phase> = groups.iter().map(|(path, source, times)| phase(image, mode, path, source, times)).collect();
    let times: Vec<&[&Instance]> = groups.iter().map(|(_, _, times)| times.as_slice()).collect();
    all.iter_mut().zip(gpu::phases::phases(image, &times)).for_each(|(phase, gpu)| phase.gpu = gpu);
    all.iter_mut().zip(gpu::phases::rates(image, &times)).for_each(|(phase, rates)| [phase.h2d_gb_per_s, phase.d2h_gb_per_s] = rates);
    if let Some(units) = units {
        for phase in all.iter_mut().filter(|p| p.count >= steps::STEPS_MIN as u64) {
            phase.per_unit = Some(PerUnit { unit: units.unit.clone(), median_s: phase.latency.median / units.count });
        }
    }
    let more = all.len().saturating_sub(PHASES_SHOWN);
    if more > 0 {
        let mut walls: Vec<f64> = all.iter().map(|p| p.wall_s).collect();
        walls.sort_unstable_by(f64::total_cmp);
        let least = walls[more];
        all.retain(|p| p.wall_s >= least);
    }
    all.sort_by_key(is_of_process);
    (all, more as u64)
}

/// Marks in order.
pub fn marks(image: &ImageEnd) -> Vec<Mark> {
    let start = Nanos(image.header.mono_ns);
    let mut all: Vec<_> = image.phases.marks.iter().collect();
    all.sort_by_key(|m| m.0);
    let shown = all.into_iter().take(MARKS_SHOWN);
    shown.map(|(t, source, name)| Mark { t_s: Nanos(*t).seconds_since(start), name: name.clone(), source }).collect()
}

/// The heap when an instance began, when it ended, and at most meanwhile.
struct HeapOf {
    begin: i64,
    end: i64,
    /// Its most, and at least and at most that: what is sure and what is possible.
    peak: i64,
    lower: i64,
    upper: i64,
    /// How far off begin and end can be together; `None`: not known, nor is `lower`.
    edges_off: Option<i64>,
}

impl HeapOf {
    /// What it needed only meanwhile: as it is told, at least and at most.
    fn transient(&self) -> [i64; 3] {
        let around = self.begin.max(self.end);
        let off = self.edges_off.unwrap_or(0);
        let of = |peak: i64, off: i64| peak.saturating_sub(around).saturating_add(off).max(0);
        [of(self.peak, 0), of(self.lower, -off), of(self.upper, off)]
    }
}

/// What is known of an image's heap as a whole.
struct Known {
    /// Every call before is an event of the trace.
    exact_until: u64,
    /// Of one thread alone, which has its events in their order.
    alone: bool,
    /// By how much usable sizes exceed what was asked for, where those are what is known; `None`: by no known number.
    slack: Option<i64>,
    /// What the blocks that are events add up to was live.
    whole: bool,
    /// Events are missing where every call was to be one: figures of those have no bound.
    lacking: bool,
}

impl Known {
    fn of(image: &ImageEnd, mode: Mode) -> Known {
        let slack = heap::slack_at_most(image).map(|slack| i64::try_from(slack.0).unwrap_or(i64::MAX));
        let alone = image.heap.lanes.max(image.counts.lanes.len()) < 2;
        // Of a full trace that lacks many events the counts say more.
        let by_counts = mode == Mode::Fast && image.header.mode == "full";
        Known {
            exact_until: if by_counts { 0 } else { image.exact_until() },
            alone,
            slack,
            whole: heap::events_are_live_blocks(image),
            lacking: heap::is_uncertain(image, mode),
        }
    }
}

fn heap_of(p: &PhasesEnd, i: &Instance, known: &Known) -> HeapOf {
    let is_exact = p.edges.get(i.end as usize).is_some_and(|end| end.t < known.exact_until);
    if let Some(HeapOver { begin, end, most, bounds }) = p.heap.of(i).filter(|_| is_exact) {
        let from_outside = |edge: u32| p.edges.get(edge as usize).is_some_and(|e| e.since.is_some());
        let is_placed = !from_outside(i.begin) && !from_outside(i.end);
        let Some([least, possible]) = bounds.filter(|_| !(known.alone && is_placed)) else {
            let exact = known.alone && is_placed && !known.lacking;
            return HeapOf { begin, end, peak: most, lower: most, upper: most, edges_off: exact.then_some(0) };
        };
        let off = |of: i64, at: usize| (possible[at] - of).max(of - least[at]).max(0);
        let peak = most.clamp(least[2].min(possible[2]), possible[2]);
        return HeapOf {
            begin,
            end,
            peak,
            lower: least[2],
            upper: possible[2],
            edges_off: (!known.lacking).then(|| off(begin, 0).saturating_add(off(end, 1))),
        };
    }
    let live = |edge: u32| p.edges.get(edge as usize).and_then(|e| e.live).unwrap_or_else(|| p.at(Metric::HeapLower, edge));
    let (begin, end) = (live(i.begin), live(i.end));
    // What a look tells of is the stretch before it. Where the begin was not looked at, the highest of the first stretch may have been before;
    // where the end was not, the highest of the last may be told after it.
    let after = if p.is_noted(Metric::HeapUpper, i.end) { None } else { p.next(Metric::HeapUpper, i.end) };
    // Blocks that are events were there, whatever the counts say.
    let of_events = p.heap.of(i).filter(|_| known.whole).and_then(|h| h.bounds).map_or(end, |[least, _]| least[2]);
    let lower = p.surely(Metric::HeapLower, i).unwrap_or(end).max(begin).max(end).max(of_events);
    let upper = p.most(Metric::HeapUpper, i).max(after.unwrap_or(lower)).max(lower);
    let peak = lower + (upper - lower) / 2;
    HeapOf { begin, end, peak, lower: lower.saturating_sub(known.slack.unwrap_or(0)), upper, edges_off: known.slack }
}

/// The sum of a quantity over all times, where each is known.
fn sum(times: &[&Instance], of: impl Fn(&Instance) -> Option<u64>) -> Option<u64> {
    times.iter().try_fold(0u64, |sum, i| Some(sum.saturating_add(of(i)?)))
}

/// A phase's name as its source has it: of `object:function` the function demangled.
fn spoken(name: &str) -> String {
    match name.split_once(':').filter(|(_, function)| function.starts_with("_Z") || function.starts_with("_R")) {
        Some((object, function)) => format!("{object}:{}", symbols::demangled(function)),
        None => name.to_owned(),
    }
}

fn phase(image: &ImageEnd, mode: Mode, path: &[String], source: &'static str, times: &[&Instance]) -> Phase {
    let p = &image.phases;
    let start = Nanos(image.header.mono_ns);
    let t = |edge: u32| Nanos(p.edges.get(edge as usize).map_or(0, |e| e.t));
    let wall = |i: &Instance| (t(i.end) - t(i.begin)).seconds();
    let known = Known::of(image, mode);
    let heaps: Vec<HeapOf> = times.iter().map(|i| heap_of(p, i, &known)).collect();
    let highest = heaps.iter().zip(times).max_by_key(|(h, _)| h.peak);
    let peak_time = highest.map_or((0.0, 0.0), |(_, i)| (t(i.begin).seconds_since(start), t(i.end).seconds_since(start)));
    let highest = highest.map(|(h, _)| h);
    let peak = highest.map_or(0, |h| h.peak);
    let bound = heaps.iter().map(|h| h.upper).max().unwrap_or(0).saturating_sub(peak).max(highest.map_or(0, |h| peak - h.lower));
    // Of all times the one that needed most: which one that was may not be known.
    let transient = heaps.iter().map(HeapOf::transient).fold([0; 3], |most, of| [0, 1, 2].map(|i| most[i].max(of[i])));
    // What other threads do with small blocks has no time of its own: the windows that it lies in say how far off a figure can be.
    let edges_off = heaps.iter().try_fold(0i64, |sum, h| Some(sum.saturating_add(h.edges_off?)));
    // Of edges from outside only the time is known, or that they were within a time: what was live then is not known to the byte.
    let is_known = |edge: u32| p.edges.get(edge as usize).is_some_and(|e| e.live.is_some() || e.since.is_some() && e.t < known.exact_until);
    // Of the process's own there are ends that are the process's.
    let own = source == SOURCES[Source::Process as usize];
    let edges_off = edges_off.filter(|_| times.iter().all(|i| is_known(i.begin) && (is_known(i.end) || !i.ended || own)));
    // Where a script begins the block that tells of it is taken out of the counts, and with it what was highest just before.
    let by_counts = mode == Mode::Fast && times.iter().any(|i| t(i.end).0 >= known.exact_until);
    let edges_off = edges_off.filter(|_| !(own && by_counts && path == ["imports"]));
    let most = |metric: Metric| times.iter().map(|i| p.most(metric, i)).max().unwrap_or(0);
    let change = |metric: Metric| times.iter().fold(0i64, |sum, i| sum.saturating_add(p.at(metric, i.end) - p.at(metric, i.begin)));
    let moved = |metric: Metric| Bytes::of_balance(change(metric));
    let has_gpu = image.gpu.is_some();
    let inside = mode != Mode::Watch;
    let known_heap = inside && image.header.heap_seen != Some(false);
    let usage = |at: usize| {
        sum(times, |i| {
            let of = |edge: u32| p.edges.get(edge as usize)?.usage;
            Some(of(i.end)?[at].saturating_sub(of(i.begin)?[at]))
        })
    };
    let bytes = |at: usize| sum(times, |i| Some(p.moved(i.end)[at]?.saturating_sub(p.moved(i.begin)[at]?))).map(Bytes);
    let looked_at = |metric: Metric| times.iter().all(|i| p.is_noted(metric, i.begin) && p.is_noted(metric, i.end));
    // A time that nobody saw the end of is no step: it was cut off, or went on until the process ended.
    let any_ended = times.iter().any(|i| i.ended);
    let (steps_of, heaps_of): (Vec<&Instance>, Vec<&HeapOf>) =
        times.iter().copied().zip(&heaps).filter(|(i, _)| i.ended || !any_ended).unzip();
    let all: Vec<Step> = steps_of
        .iter()
        .zip(&heaps_of)
        .map(|(i, h)| Step {
            begin_s: t(i.begin).seconds_since(start),
            wall_s: wall(i),
            level: h.end,
            heap_peak: h.peak,
            heap_persistent: h.end - h.begin,
            figures: steps::of_one(p, i, [(h.peak - h.begin.max(h.end)).max(0), h.end - h.begin]),
        })
        .collect();
    // What a phase is blamed for is what it left behind itself, and what is there still: not what grew beside it, nor what somebody frees later.
    let growth = steps::steps(&all).map(|level| if level.0 > 0.0 { least(level, steps::steps(&of_its_own(&all))) } else { level });
    let growth = growth.filter(|_| inside).map(|(per_count, mut said)| {
        let change = heaps_of.last().zip(heaps_of.first()).map_or(0, |(last, first)| last.end.saturating_sub(first.begin));
        let heap = steps::of_heap(per_count, &said, change);
        said.growth = steps::by_class(p, &steps_of, known_heap.then_some(heap), [has_gpu, has_python(image)]);
        (per_count, said)
    });
    let wall_s: f64 = times.iter().map(|i| wall(i)).sum();
    let inner = times.iter().fold(0u64, |sum, i| sum.saturating_add(i.inner_ns));
    let rss = times.iter().filter_map(|i| rss_peak(p, i)).max();
    Phase {
        name: path.last().map(|name| spoken(name)).unwrap_or_default(),
        source,
        path: path.iter().map(|name| spoken(name)).collect(),
        count: times.len() as u64,
        open: times.iter().filter(|i| !i.ended).count() as u64,
        begin_s: times.first().map_or(0.0, |i| t(i.begin).seconds_since(start)),
        end_s: times.iter().map(|i| t(i.end).seconds_since(start)).fold(0.0, f64::max),
        wall_s,
        self_wall_s: (wall_s - Nanos(inner).seconds()).max(0.0),
        latency: latency(all.iter().map(|s| s.wall_s).collect()),
        heap_begin_bytes: inside.then(|| Bytes::of_balance(heaps.first().map_or(0, |h| h.begin))),
        heap_peak_bytes: inside.then(|| Bytes::of_balance(peak)),
        heap_peak_bound_bytes: edges_off.filter(|_| known_heap).map(|_| Bytes::of_balance(bound)),
        peak_begin_s: peak_time.0,
        peak_end_s: peak_time.1,
        heap_persistent_bytes: inside.then(|| heaps.iter().fold(0i64, |sum, h| sum.saturating_add(h.end.saturating_sub(h.begin)))),
        heap_persistent_bound_bytes: edges_off.filter(|_| known_heap).map(Bytes::of_balance),
        heap_transient_bytes: inside.then(|| Bytes::of_balance(transient[0])),
        heap_transient_bound_bytes: edges_off
            .filter(|_| known_heap)
            .map(|_| Bytes::of_balance((transient[2] - transient[0]).max(transient[0] - transient[1]))),
        rss_peak_bytes: rss.map(Bytes::of_balance),
        rss_persistent_bytes: looked_at(Metric::Rss).then(|| change(Metric::Rss)),
        map_peak_bytes: inside.then(|| Bytes::of_balance(most(Metric::Maps))),
        map_persistent_bytes: inside.then(|| change(Metric::Maps)),
        gpu_peak_bytes: has_gpu.then(|| Bytes::of_balance(most(Metric::Gpu))),
        gpu_persistent_bytes: has_gpu.then(|| change(Metric::Gpu)),
        pinned_peak_bytes: has_gpu.then(|| Bytes::of_balance(most(Metric::Pinned))),
        children_peak_bytes: None,
        left: None,
        meanwhile: None,
        sampled: None,
        growth_per_count_bytes: growth.as_ref().map(|g| g.0),
        per_unit: None,
        steps: growth.map(|g| g.1),
        h2d_bytes: has_gpu.then(|| moved(Metric::H2d)),
        d2h_bytes: has_gpu.then(|| moved(Metric::D2h)),
        h2d_gb_per_s: None,
        d2h_gb_per_s: None,
        gpu: None,
        edges_late_s: times
            .iter()
            .flat_map(|i| [i.begin, i.end])
            .filter_map(|e| p.edges.get(e as usize)?.late)
            .max()
            .map(|ns| Nanos(ns).seconds()),
        cpu_s: usage(0).map(|ns| Nanos(ns).seconds()),
        minor_faults: usage(1),
        major_faults: usage(2),
        voluntary_switches: usage(3),
        involuntary_switches: usage(4),
        read_bytes: bytes(0),
        written_bytes: bytes(1),
        snapshots: snapshots(image, times, &known),
        spans: times.iter().take(SPANS).map(|i| (t(i.begin).seconds_since(start), t(i.begin).seconds_since(start) + wall(i))).collect(),
    }
}

/// The layers when it began first and when it ended last, or as near to that as there was a look: the kernel's, as the trace has them, and what is
/// known of the others at that edge.
fn snapshots(image: &ImageEnd, times: &[&Instance], known: &Known) -> Option<[Value; 2]> {
    let p = &image.phases;
    let t = |edge: u32| p.edges.get(edge as usize).map_or(0, |e| e.t);
    let (first, last) = (times.first()?, times.iter().max_by_key(|i| i.end)?);
    // Of phases that are around many others those others' edges may be looked at, and not their own.
    // In a damaged trace an edge can be of any time.
    let within = |i: &Instance| p.snapshots.range(t(i.begin)..=t(i.end).max(t(i.begin)));
    let began = within(first).next().map(|(at, _)| *at);
    let ended = within(last).next_back().map(|(at, _)| *at);
    let is_seen = |at: &u64| p.snapshots.contains_key(at);
    let began = began.or_else(|| times.iter().map(|i| t(i.begin)).find(is_seen))?;
    let ended = ended.or_else(|| times.iter().map(|i| t(i.end)).filter(is_seen).max())?;
    Some([snapshot(image, began, known)?, snapshot(image, ended, known)?])
}

fn snapshot(image: &ImageEnd, t: u64, known: &Known) -> Option<Value> {
    let p = &image.phases;
    let edge = p.edges.partition_point(|e| e.t < t) as u32;
    let told = p.edges.get(edge as usize).filter(|e| e.t == t)?;
    let exact = p.heap.level(edge).filter(|_| t < known.exact_until);
    let live = exact.or(told.live).unwrap_or_else(|| p.at(Metric::HeapLower, edge));
    let level = |metric: Metric| Value::from(p.at(metric, edge).max(0));
    let mut snapshot = p.snapshots.get(&t)?.clone();
    let object = snapshot.as_object_mut()?;
    let mut put = |key: &str, value: Value| _ = object.insert(key.into(), value);
    put("elapsed_s", Nanos(t).seconds_since(Nanos(image.header.mono_ns)).into());
    put("heap_live_bytes", live.max(0).into());
    put("map_bytes", level(Metric::Maps));
    if image.gpu.is_some() {
        put("gpu_bytes", level(Metric::Gpu));
        put("pinned_bytes", level(Metric::Pinned));
    }
    if has_python(image) && p.is_noted(Metric::Python, edge) {
        put("python", json!({"live_bytes": level(Metric::Python), "peak_bytes": p.most_until(Metric::Python, edge).max(0)}));
    }
    Some(snapshot)
}

/// Whether the sizes of Python's own blocks are known.
fn has_python(image: &ImageEnd) -> bool {
    image.python.as_ref().is_some_and(|python| !python.sizeless)
}

/// What was sampled, or the kernel's high-water mark where it rose meanwhile. `None`: nobody looked.
fn rss_peak(p: &PhasesEnd, i: &Instance) -> Option<i64> {
    let (before, after) = (p.at(Metric::Hwm, i.begin), p.at(Metric::Hwm, i.end));
    let sampled = p.most(Metric::Rss, i);
    let looked = p.is_noted(Metric::Hwm, i.begin) && p.is_noted(Metric::Hwm, i.end);
    let most = if looked && after > before { sampled.max(after) } else { sampled };
    (most > 0).then_some(most)
}

/// Of times in seconds.
pub fn latency(mut walls: Vec<f64>) -> Latency {
    walls.sort_unstable_by(f64::total_cmp);
    let n = walls.len().max(1) as f64;
    let mean = walls.iter().sum::<f64>() / n;
    let deviation = (walls.iter().map(|w| (w - mean).powi(2)).sum::<f64>() / n).sqrt();
    Latency {
        mean,
        median: quantile(&walls, 0.5),
        p95: quantile(&walls, 0.95),
        p99: quantile(&walls, 0.99),
        min: walls.first().copied().unwrap_or(0.0),
        max: walls.last().copied().unwrap_or(0.0),
        cv: if mean > 0.0 { deviation / mean } else { 0.0 },
    }
}

/// The steps with what the phase left behind itself until then, in the place of what was live.
fn of_its_own(all: &[Step]) -> Vec<Step> {
    let sum = |left: &mut i64, s: &Step| {
        *left = left.saturating_add(s.heap_persistent);
        Some(Step { level: *left, ..*s })
    };
    all.iter().scan(0, sum).collect()
}

/// The one that grows less.
fn least(level: (f64, Steps), own: Option<(f64, Steps)>) -> (f64, Steps) {
    own.filter(|own| own.0 < level.0).unwrap_or(level)
}
