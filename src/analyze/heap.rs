//! How much heap: totals, live, peak with its bound, by function and by size.

use std::collections::BTreeMap;

use super::Options;
use super::report::{Estimated, Events, Function, Heap, Mode, Selected, SizeEstimate, Usable};
use crate::model::image::{ImageEnd, function_name, releases};
use crate::model::kinds::{Kind, KindTable};
use crate::model::track::Peak;
use crate::model::units::{Bytes, Nanos};
use memshim_format::spool::CROWD_GONE;

/// The events of an image; what is missing of them is counted as lost. A call that a kill interrupted was counted and never became an
/// event: it is neither, and [`under_way`] says how many there were.
pub fn events(image: &ImageEnd, mode: Mode) -> Events {
    let single = image.totals.events;
    let declared = declared_lost(image);
    let rest = counted(image).saturating_sub(single).saturating_sub(under_way(image, mode));
    let (recorded, lost) = match mode {
        Mode::Full if image.seen.running => (single, declared.min(rest)),
        // What is said to be lost is lost as a call, also where a part of it is an event: of a realloc the old block's end. No more is lost than was counted.
        Mode::Full => {
            let declared = declared.min(single.saturating_add(rest));
            (single.saturating_sub(declared.saturating_sub(rest)), rest.max(declared))
        }
        // What a trace that could not be written does not hold was to be in it.
        _ if image.seen.full_before && unwritten(image).is_some() => (single, rest),
        _ => (single + rest.saturating_sub(declared), declared.min(rest)),
    };
    Events { counted: recorded + lost, recorded, single, lost, unknown_frees: image.totals.unknown_frees, failed: image.counts.failed }
}

/// Whether, in fast mode, each block that is an event has its end as one too, so that what the events add up to was live. Not so after a
/// fork, as inherited blocks end without one, nor where recording was lowered, nor where events are missing.
pub fn events_are_live_blocks(image: &ImageEnd) -> bool {
    let t = &image.totals;
    let damage = [t.gap_allocs, t.overlaps, t.miscounted, t.bad_codes, t.unknown_kinds, t.unmatched, declared_lost(image)];
    image.heap.slack.is_some() && image.seen.lowered.is_empty() && image.header.inherited.is_none() && damage.iter().all(|n| *n == 0)
}

/// Whether so many events of full mode are missing that the counts, which have every call, say more of the heap.
pub fn is_by_counts(events: &Events, mode: Mode) -> bool {
    mode == Mode::Full && lacks_many(events)
}

/// Whether so many events are missing that sums of the others say little.
pub fn lacks_many(events: &Events) -> bool {
    events.lost > 0 && events.lost.saturating_mul(MISSING) >= events.counted
}

/// One event in so many.
const MISSING: u64 = 100;

/// Why the trace could not be written to its end, where it could not.
pub fn unwritten(image: &ImageEnd) -> Option<&str> {
    image.seen.lowered.iter().find(|l| l.errno.is_some()).map(|l| l.why.0.as_str())
}

fn counted(image: &ImageEnd) -> u64 {
    let at_end = image.seen.end.as_ref().and_then(|e| e.counted).unwrap_or(0).min(1 << 60);
    image.counts.calls().max(at_end)
}

/// Events that the shim says it could not record. In fast mode those that were broken off may be events or none.
pub fn declared_lost(image: &ImageEnd) -> u64 {
    let broken = match image.header.mode.as_str() {
        // What a watch could not write was no event.
        "watch" => return 0,
        // Which of them were, the counts say.
        "full" => 0,
        _ => image.counts.broken,
    };
    image.counts.lost.max(image.seen.lost.values().sum()).saturating_add(broken)
}

/// Calls in which the process was killed, or other threads when it ended: at most one a thread, counted first and recorded after.
pub fn under_way(image: &ImageEnd, mode: Mode) -> u64 {
    let rest = counted(image).saturating_sub(image.totals.events);
    let lanes = image.counts.lanes.len() as u64;
    let at_most = match (&image.seen.end, image.seen.recovered) {
        (Some(_), _) => lanes.saturating_sub(1),
        (None, recovered) => lanes * recovered as u64,
    };
    if mode == Mode::Full && declared_lost(image) == 0 && image.counts.broken == 0 && rest <= at_most { rest } else { 0 }
}

/// See the module.
pub fn heap(image: &ImageEnd, mode: Mode, options: &Options) -> Heap {
    let start = Nanos(image.header.mono_ns);
    let mut heap = Heap {
        requested_bytes: requested(image),
        by_function: by_function(image, mode),
        inherited_allocs: image.header.inherited.as_ref().map_or(0, |i| i.blocks.max(0) as u64),
        inherited_bytes: Bytes::of_balance(image.header.inherited.as_ref().map_or(0, |i| i.live)),
        unknown_freed_bytes: Bytes(image.totals.unknown_bytes),
        big: image.header.big,
        sample: image.header.sample,
        ..Heap::default()
    };
    heap.reallocs = heap.by_function.iter().filter(|(name, _)| name.contains("realloc")).map(|(_, f)| f.allocs).sum();
    let by_counts = is_by_counts(&events(image, mode), mode);
    match mode {
        Mode::Full if !by_counts => full(image, start, &mut heap),
        _ => fast(image, start, &mut heap),
    }
    // In fast mode the blocks from `big` on are events, each of them.
    if mode == Mode::Full || options.sizes.iter().all(|size| *size >= image.header.big) {
        heap.selected = image.heap.selected.map(|(bytes, allocs)| selected(image, bytes, allocs, &options.sizes));
    }
    (heap.sizes, heap.sizes_estimated) = sizes(image, mode);
    heap.seen = image.header.heap_seen != Some(false);
    let counts_are_gone = image.seen.lost_others.keys().any(|(what, _)| what == CROWD_GONE[0]);
    // Of a process that is running the latest events are in its memory.
    if !heap.seen || image.seen.running || counts_are_gone || mode == Mode::Full && !by_counts && is_uncertain(image, mode) {
        (heap.peak_bound_bytes, heap.live_bound_bytes) = (None, None);
    }
    heap
}

/// Whether an event is missing where every call was to be one, or a block is live for ever as its end was not known as its own.
pub fn is_uncertain(image: &ImageEnd, mode: Mode) -> bool {
    let lost = if mode == Mode::Full { events(image, mode).lost } else { declared_lost(image) };
    lost > 0 || image.counts.broken > 0
}

/// Blocks that are live of `inherited` ones and those since.
fn still(inherited: i64, allocs: u64, frees: u64) -> u64 {
    (inherited.max(0) as u64).saturating_add(allocs).saturating_sub(frees)
}

fn full(image: &ImageEnd, start: Nanos, heap: &mut Heap) {
    let (requested, usable) = (image.heap.requested, image.heap.usable);
    heap.allocs = image.totals.allocs;
    heap.frees = image.totals.frees;
    heap.live_bytes = Bytes::of_balance(requested.live);
    let inherited = image.header.inherited.as_ref().map_or(0, |i| i.blocks);
    heap.live_allocs = if inherited > 0 { still(inherited, heap.allocs, heap.frees) } else { image.heap.live_blocks };
    heap.live_bound_bytes = Some(Bytes(0));
    heap.peak_bytes = Bytes::of_balance(requested.peak);
    heap.peak_bound_bytes = Some(Bytes::of_balance(requested.bound));
    heap.peak_at_s = Some(Nanos(requested.at).seconds_since(start));
    heap.temporary_allocs = Some(image.totals.temporary);
    heap.leaked_allocs = Some(image.heap.live_blocks);
    let leaked = image.kinds.used().map(|k| Bytes((k.allocs - k.frees.min(k.allocs)).saturating_mul(k.size))).sum();
    heap.leaked_bytes = Some(leaked);
    heap.usable = Usable { live_bytes: Bytes::of_balance(usable.live), peak_bytes: Bytes::of_balance(usable.peak) };
}

/// Of a run that was lowered from full mode: its peak, where that was before.
fn peak_before(image: &ImageEnd) -> Option<Peak> {
    let of_events = image.heap.requested;
    let since = image.counts.upper_since.filter(|_| image.seen.full_before)?;
    // Where writing ended, what one thread did last may be in the trace, and what another did not.
    let whole = image.heap.lanes < 2 || image.seen.lowered.iter().all(|l| l.mode == "fast");
    let is_later = since > of_events.peak.saturating_add(of_events.bound);
    (whole && !is_later && !is_uncertain(image, Mode::Fast)).then_some(of_events)
}

/// Fast mode knows usable sizes: of each lane at each `calls` line, and its highest since the one before.
fn fast(image: &ImageEnd, start: Nanos, heap: &mut Heap) {
    let counts = &image.counts;
    // At its cap a trace may lack the lanes' last rows; what was called is said of functions too.
    let called: u64 = allocating(image).map(|row| row.0).sum();
    heap.allocs = counts.lanes.values().map(|l| l.allocs).sum::<u64>().max(called);
    heap.frees = freed(image);
    heap.live_bytes = Bytes::of_balance(counts.lanes_live());
    let inherited = image.header.inherited.as_ref().map_or(0, |i| i.blocks);
    heap.live_allocs = inherited.saturating_add(counts.blocks).max(0) as u64;
    // What the blocks that are events needed at least, at one instant; that is by requested size.
    let events = image.heap.requested;
    let of_events = if events_are_live_blocks(image) { events.peak.saturating_sub(events.bound) } else { i64::MIN };
    let (lower, at) = if of_events > counts.lower { (of_events, events.at) } else { (counts.lower, counts.lower_at) };
    // Between the two nobody knows; the middle is wrong by least. By requested size the peak is lower by at most the slack of the
    // blocks that were live.
    let upper = counts.upper.max(lower);
    let peak = lower + (upper - lower) / 2;
    heap.peak_bytes = Bytes::of_balance(peak);
    heap.peak_at_s = Some(Nanos(at).seconds_since(start));
    let recorded = image.heap.slack.unwrap_or_default();
    heap.peak_bound_bytes = counts
        .lower_blocks
        .and_then(|blocks| slack(image, blocks, recorded.peak.saturating_add(recorded.bound), counts.lower))
        .map(|slack| counts.lower.saturating_sub_unsigned(slack.0).max(of_events))
        .map(|least| Bytes::of_balance((upper - peak).max(peak - least)));
    if let Some(exact) = peak_before(image) {
        heap.peak_bytes = Bytes::of_balance(exact.peak);
        heap.peak_bound_bytes = Some(Bytes::of_balance(exact.bound));
        heap.peak_at_s = Some(Nanos(exact.at).seconds_since(start));
    }
    heap.live_bound_bytes = slack(image, counts.blocks, recorded.live, counts.lanes_live());
    // Which of a forked child's frees were of blocks that it inherited is not told.
    if inherited == 0 {
        (heap.leaked_allocs, heap.leaked_bytes) = (Some(heap.live_allocs), Some(heap.live_bytes));
    }
    heap.usable = Usable { live_bytes: heap.live_bytes, peak_bytes: heap.peak_bytes };
    // Of a trace without its end no more than were allocated by its counts, where it has any.
    let allocated = (heap.allocs > 0).then_some(heap.allocs);
    let freed = bound_of_freed(image, heap.frees, image.totals.frees).or(allocated);
    heap.temporary_estimated = temporary(image, &image.kinds, freed);
}

/// Blocks freed, by the counts, which have every call.
pub fn freed(image: &ImageEnd) -> u64 {
    let counts = &image.counts;
    let called: u64 = allocating(image).map(|row| row.0).sum();
    counts.lanes.values().map(|l| l.frees).sum::<u64>().max(called.saturating_add_signed(counts.blocks.saturating_neg()))
}

/// What the counts say was freed, where they have every call: the trace has its end, and no fewer than are events. `None`: not known.
pub fn bound_of_freed(image: &ImageEnd, counted: u64, events: u64) -> Option<u64> {
    let whole = image.seen.end.is_some() || image.seen.recovered;
    (whole && counted >= events).then_some(counted)
}

/// How many allocations were temporary, by the samples: of `freed` blocks, where that is known, no more. After recording was lowered nobody knows.
pub fn temporary(image: &ImageEnd, kinds: &KindTable, freed: Option<u64>) -> Option<Estimated> {
    if !image.header.ages || !image.seen.lowered.is_empty() {
        return None;
    }
    let (allocs, variance) = kinds.used().map(Kind::temporary).fold((0.0, 0.0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    let share = freed.filter(|n| allocs > *n as f64).map_or(1.0, |n| n as f64 / allocs);
    Some(Estimated { allocs: allocs * share, allocs_stderr: f64::max(variance, 0.0).sqrt() * share })
}

/// What an aligned block can have beyond another: the room before and behind it that is too small for a chunk of its own.
const ALIGNED_SLACK: u64 = 16;
/// What a block can have that the allocator mapped by itself: the rest of its page.
const MAPPED_SLACK: u64 = 4096;
/// From this size on the C library maps a block by itself, unless the program has set it another threshold.
const MAPPED_FROM: u64 = 128 << 10;

/// By how much live bytes of a phase by usable size can exceed those by requested size, at any time of the run; `None`: not known.
pub fn slack_at_most(image: &ImageEnd) -> Option<Bytes> {
    let recorded = image.heap.slack.unwrap_or_default();
    slack(image, image.counts.most_blocks, recorded.peak.saturating_add(recorded.bound), image.counts.upper)
}

/// By how much `usable` bytes in `blocks` blocks exceed what was asked for, at most; `recorded`: the part of blocks that are events.
fn slack(image: &ImageEnd, blocks: i64, recorded: i64, usable: i64) -> Option<Bytes> {
    let each = image.header.slack?;
    // Of `operator new` only the allocator knows which calls were aligned.
    let aligned = |name: &str| name.contains("align") || name.contains("valloc") || name.contains("new");
    let any_aligned = image.counts.by_fn.iter().enumerate().any(|(func, row)| row.0 > 0 && aligned(&function_name(&image.header, func)));
    let (blocks, usable) = (blocks.max(0) as u64, usable.max(0) as u64);
    let more = if any_aligned { ALIGNED_SLACK } else { 0 };
    // Where events are missing, or recording was lowered, not each big block is one.
    let mapped = if image.heap.slack.is_none() { blocks.saturating_mul(MAPPED_SLACK).min(usable / MAPPED_FROM * MAPPED_SLACK) } else { 0 };
    let each = blocks.saturating_mul(each.saturating_add(more));
    Some(Bytes(each.saturating_add(mapped).saturating_add_signed(recorded.max(0)).min(usable)))
}

/// Calls and bytes of each function that gives blocks.
fn allocating(image: &ImageEnd) -> impl Iterator<Item = &(u64, u64)> {
    let rows = image.counts.by_fn.iter().enumerate();
    rows.filter(|(func, _)| !releases(&function_name(&image.header, *func))).map(|(_, row)| row)
}

fn requested(image: &ImageEnd) -> Bytes {
    let counted: Bytes = allocating(image).map(|row| Bytes(row.1)).sum();
    let recorded = image.kinds.used().map(|k| Bytes(k.allocs.saturating_mul(k.size))).sum();
    if image.header.mode == "full" { counted.max(recorded) } else { counted }
}

fn by_function(image: &ImageEnd, mode: Mode) -> BTreeMap<String, Function> {
    let mut replaced = BTreeMap::<u32, u64>::new();
    for k in image.kinds.used().filter(|k| k.replaces()) {
        *replaced.entry(k.func).or_default() += k.allocs;
    }
    let rows = image.counts.by_fn.iter().enumerate().filter(|(_, row)| row.0 > 0);
    rows.map(|(func, &(calls, bytes))| {
        let name = function_name(&image.header, func);
        let frees = match (releases(&name), name.contains("realloc"), mode) {
            (true, ..) => Some(calls),
            (_, true, Mode::Full) => Some(replaced.get(&(func as u32)).copied().unwrap_or(0)),
            (_, true, _) => None,
            _ => Some(0),
        };
        let allocs = if releases(&name) { 0 } else { calls };
        (name, Function { allocs, frees, bytes: Bytes(bytes) })
    })
    .collect()
}

/// Exact rows and, in fast mode, estimates of the sizes that only samples tell of.
fn sizes(image: &ImageEnd, mode: Mode) -> (Vec<[u64; 3]>, Vec<SizeEstimate>) {
    let mut exact = BTreeMap::<u64, [u64; 2]>::new();
    let mut sampled = BTreeMap::<u64, Estimate>::new();
    for k in image.kinds.used() {
        if k.sampled() && mode != Mode::Full {
            sampled.entry(k.size).or_default().add(k.weight, k.allocs, k.frees);
        } else {
            let row = exact.entry(k.size).or_default();
            row[0] += k.allocs;
            row[1] += k.frees;
        }
    }
    let estimates = sampled.into_iter().map(|(size, e)| e.of_size(size)).collect();
    (exact.into_iter().map(|(size, [allocs, frees])| [size, allocs, frees]).collect(), estimates)
}

/// Calls by samples, each of which stands for `weight` 1/p of them. A call of `size` bytes is sampled with p = 1 − exp(−size/mean); n samples
/// stand for n/p calls, with variance n(1−p)/p².
#[derive(Default)]
struct Estimate {
    samples: u64,
    /// Allocations and frees, and the variances of both.
    calls: [f64; 2],
    variances: [f64; 2],
}

impl Estimate {
    fn add(&mut self, weight: f64, allocs: u64, frees: u64) {
        self.samples += allocs;
        for (at, n) in [allocs, frees].into_iter().enumerate() {
            self.calls[at] += n as f64 * weight;
            self.variances[at] += n as f64 * weight * (weight - 1.0);
        }
    }

    fn of_size(&self, size: u64) -> SizeEstimate {
        let [allocs_stderr, frees_stderr] = self.variances.map(f64::sqrt);
        let [allocs, frees] = self.calls;
        SizeEstimate { size, allocs, allocs_stderr, frees, frees_stderr, samples: self.samples }
    }
}

fn selected(image: &ImageEnd, bytes: Peak, allocs: Peak, sizes: &[u64]) -> Selected {
    let mut rows = BTreeMap::<(String, u64), [u64; 2]>::new();
    for k in image.kinds.used().filter(|k| k.selected) {
        let row = rows.entry((function_name(&image.header, k.func as usize), k.size)).or_default();
        row[0] += k.allocs;
        row[1] += k.frees;
    }
    let mut by_function = BTreeMap::<String, Vec<[u64; 3]>>::new();
    for ((name, size), [allocs, frees]) in rows {
        by_function.entry(name).or_default().push([size, allocs, frees]);
    }
    Selected {
        by_function,
        sizes: sizes.to_vec(),
        peak_bytes: Bytes::of_balance(bytes.peak),
        peak_bound_bytes: Bytes::of_balance(bytes.bound),
        peak_allocs: allocs.peak.max(0) as u64,
        peak_bound_allocs: allocs.bound.max(0) as u64,
        live_bytes: Bytes::of_balance(bytes.live),
        live_allocs: allocs.live.max(0) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::super::missing;
    use super::super::report::{End, EndKind};
    use super::*;
    use crate::model::forks::Forks;
    use crate::model::image::{Image, Interest};
    use crate::trace::line::{Header, parse};

    /// Of a trace with so many events of so many calls: (recorded, lost) and what is said to be missing, as (what, count).
    fn told(mode: &str, events: u64, calls: u64, lost: u64, broken: u64) -> ((u64, u64), Vec<(String, u64)>) {
        let mut image = Image::new(Header { mode: mode.into(), ..Header::default() }, &Interest::default(), &Forks::default());
        let line =
            format!(r#"{{"type":"calls","t":5,"fns":[[0,{calls},0]],"lost":{lost},"broken":{broken},"lanes":[[0,{calls},0,0,0,0]]}}"#);
        image.read(parse(line.as_bytes()).expect("a line"));
        image.read(parse(br#"{"type":"end","t":6,"how":"exit","code":0}"#).expect("a line"));
        let mut image = image.finish();
        image.totals.events = events;
        let mode = if mode == "full" { Mode::Full } else { Mode::Fast };
        let of = super::events(&image, mode);
        assert_eq!(of.counted, of.recorded + of.lost);
        let rows = missing::of_image(&image, &of, mode, &End { kind: EndKind::Exited, ..End::default() }, 0);
        ((of.recorded, of.lost), rows.into_iter().map(|m| (m.what, m.count)).collect())
    }

    #[test]
    fn what_is_lost_is_counted_once_and_said() {
        let rows = |rows: &[(&str, u64)]| rows.iter().map(|(what, n)| ((*what).to_owned(), *n)).collect::<Vec<_>>();
        assert_eq!(told("full", 100, 100, 0, 0), ((100, 0), rows(&[])));
        assert_eq!(told("full", 90, 100, 10, 0), ((90, 10), rows(&[("events", 10)])));
        // Reallocs of which the old block's end is an event.
        assert_eq!(told("full", 100, 100, 4, 0), ((96, 4), rows(&[("events", 4)])));
        assert_eq!(told("full", 97, 100, 4, 0), ((96, 4), rows(&[("events", 4)])));
        // Of records broken off the counts say which were calls.
        assert_eq!(told("full", 100, 100, 0, 1), ((100, 0), rows(&[("records", 1)])));
        assert_eq!(told("full", 99, 100, 0, 3), ((99, 1), rows(&[("events", 1), ("records", 2)])));
        assert_eq!(told("full", 95, 100, 0, 3), ((95, 5), rows(&[("events", 3), ("events", 2)])));
        // In fast mode nobody can tell; they may have been.
        assert_eq!(told("fast", 7, 100, 0, 2), ((98, 2), rows(&[("events", 2)])));
        assert_eq!(told("fast", 7, 100, 3, 2), ((95, 5), rows(&[("events", 3), ("events", 2)])));
    }

    #[test]
    fn calls_that_no_row_of_a_lane_has_are_those_of_the_functions() {
        let header = Header { mode: "fast".into(), fns: vec!["malloc".into(), "free".into()], ..Header::default() };
        let mut image = Image::new(header, &Interest::default(), &Forks::default());
        for line in [
            r#"{"type":"calls","t":5,"fns":[[0,10,80]],"blocks":10,"lanes":[[0,10,80,0,0,0]]}"#,
            r#"{"type":"calls","t":6,"fns":[[0,100,800],[1,93,0]],"blocks":7,"lanes":[]}"#,
        ] {
            image.read(parse(line.as_bytes()).expect("a line"));
        }
        let heap = heap(&image.finish(), Mode::Fast, &Options::default());
        assert_eq!((heap.allocs, heap.frees, heap.live_allocs), (100, 93, 7));
    }

    #[test]
    fn an_estimate_is_unbiased_and_its_error_shrinks_with_size() {
        let mean = 524_288;
        let of = |size: u64, thinned: &[(u32, u64, u64)]| {
            let mut e = Estimate::default();
            let weight = |thin: u32| -1.0 / f64::exp_m1(-(size as f64) / (mean << thin) as f64);
            thinned.iter().for_each(|(thin, allocs, frees)| e.add(weight(*thin), *allocs, *frees));
            e.of_size(size)
        };
        let e = of(65_535, &[(0, 1000, 900)]);
        let p = 1.0 - (-65_535.0f64 / mean as f64).exp();
        assert!((e.allocs - 1000.0 / p).abs() < 1e-6 && e.samples == 1000);
        assert!(e.allocs_stderr / e.allocs < 0.032);
        let one = of(16, &[(0, 1, 0)]);
        assert!(one.allocs_stderr > 0.99 * one.allocs);
        // Samples of another mean stand for others; what each part is wrong by adds up in squares.
        let (thin, both) = (of(65_535, &[(3, 130, 120)]), of(65_535, &[(0, 1000, 900), (3, 130, 120)]));
        assert!((thin.allocs / 130.0) / (e.allocs / 1000.0) > 7.4, "{thin:?} {e:?}");
        assert!((both.allocs - e.allocs - thin.allocs).abs() < 1e-6 && both.samples == 1130);
        assert!((both.frees_stderr.powi(2) - e.frees_stderr.powi(2) - thin.frees_stderr.powi(2)).abs() < 1e-3);
    }
}
