//! Who allocated, who held it at the peak, who never gave it back: one row a call site.

use std::collections::BTreeMap;

use super::Options;
use super::instants::{of_instant, said};
use super::left;
use super::owner::{self, Own};
use super::python::ARENA;
use super::report::{Frame, Listed, Missing, OWNERS_SHOWN, Owner, Phase, SITES_SHOWN, Site, SiteSums, View};
use super::sources::{self, Memory};
use super::stacks::{FrameTable, Names, Stack};
use super::views::{self, Measure};
use crate::figures::seconds;
use crate::model::image::ImageEnd;
use crate::model::kinds::{AGES, Kind};
use crate::model::sites::{Instant, SitesEnd};
use crate::model::units::{Bytes, Nanos, whole};

/// What a row sums up; places in the code with equal stacks are one row.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    pub live_at: i64,
    pub live_at_blocks: f64,
    pub live_at_variance: f64,
    /// What the memory is: see `report::Site::kind`.
    pub kind: &'static str,
    /// The device, of a GPU's memory.
    pub device: Option<u8>,
    /// The thread that allocated, where threads are told apart.
    pub thread: Option<u32>,
    /// The largest of the own peaks, and their sum.
    pub peak: i64,
    pub peak_sum: i64,
    /// Of their sum.
    pub peak_variance: f64,
    pub total: f64,
    pub total_variance: f64,
    pub allocs: f64,
    pub leaked: i64,
    pub leaked_blocks: f64,
    pub leaked_variance: f64,
    /// `None`: not known.
    pub ages: Option<Ages>,
    /// Pattern of a known leak.
    pub suppressed: Option<String>,
    /// Allocations and frees by size.
    pub sizes: BTreeMap<u64, [f64; 2]>,
}

/// How old its blocks became.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ages {
    /// Blocks by [`AGES`]; the first are the temporary ones.
    pub lifetimes: [f64; AGES.len() + 1],
    /// Variance of their number.
    pub temporary_variance: f64,
    /// Their bytes.
    pub temporary_bytes: f64,
}

impl Ages {
    fn add_kind(&mut self, k: &Kind) {
        self.temporary_bytes += k.ages[0] as f64 * k.heft as f64;
        self.temporary_variance += k.temporary().1;
        let mut young = 0;
        for (class, freed) in k.ages.iter().enumerate() {
            self.lifetimes[class] += *freed as f64 * k.weight;
            young += *freed as u64;
        }
        self.lifetimes[AGES.len()] += k.frees.saturating_sub(young) as f64 * k.weight;
    }

    fn join(mut self, b: Ages) -> Ages {
        self.lifetimes.iter_mut().zip(b.lifetimes).for_each(|(a, b)| *a += b);
        self.temporary_variance += b.temporary_variance;
        self.temporary_bytes += b.temporary_bytes;
        self
    }
}

impl Sums {
    /// How many were temporary, and the variance of that; nothing where it is not known.
    pub fn temporary(&self) -> (f64, f64) {
        self.ages.map_or((0.0, 0.0), |a| (a.lifetimes[0], a.temporary_variance))
    }

    /// Adds what was allocated of a kind.
    pub fn add_kind(&mut self, k: &Kind) {
        let n = k.allocs as f64;
        self.total += n * k.heft as f64;
        self.total_variance += if k.weight > 1.0 { n * k.variance() } else { 0.0 };
        self.allocs += n * k.weight;
        self.ages.iter_mut().for_each(|ages| ages.add_kind(k));
        let size = self.sizes.entry(k.size).or_default();
        size[0] += n * k.weight;
        size[1] += k.frees as f64 * k.weight;
    }

    /// Adds what is held at a site.
    pub fn add_held(&mut self, ends: &SitesEnd, site: usize) {
        let Some(held) = ends.held.get(site) else { return };
        self.live_at = self.live_at.saturating_add(held.then.bytes);
        self.live_at_blocks += held.then.blocks;
        self.live_at_variance += held.then.variance;
        self.peak = self.peak.max(held.peak);
        self.peak_sum = self.peak_sum.saturating_add(held.peak);
        self.peak_variance += held.peak_variance;
        self.leaked = self.leaked.saturating_add(held.now.bytes);
        self.leaked_blocks += held.now.blocks;
        self.leaked_variance += held.now.variance;
    }
}

/// Adds what another place in the code holds.
pub fn join(a: &mut Sums, b: Sums) {
    a.live_at = a.live_at.saturating_add(b.live_at);
    a.live_at_blocks += b.live_at_blocks;
    a.live_at_variance += b.live_at_variance;
    a.peak = a.peak.max(b.peak);
    a.peak_sum = a.peak_sum.saturating_add(b.peak_sum);
    a.peak_variance += b.peak_variance;
    a.total += b.total;
    a.total_variance += b.total_variance;
    a.allocs += b.allocs;
    a.leaked = a.leaked.saturating_add(b.leaked);
    a.leaked_blocks += b.leaked_blocks;
    a.leaked_variance += b.leaked_variance;
    a.ages = a.ages.zip(b.ages).map(|(a, b)| a.join(b));
    for (size, [allocs, frees]) in b.sizes {
        let of = a.sizes.entry(size).or_default();
        of[0] += allocs;
        of[1] += frees;
    }
}

/// What a report says of an image's call sites.
#[derive(Debug, Default)]
pub struct Answer {
    pub sites: Vec<Site>,
    pub sums: SiteSums,
    pub owners: Vec<Owner>,
    pub view: Option<View>,
}

/// The rows for the report: of the memory that is asked for the largest by each measure, most live at the instant first, and what all of
/// them come to; then those of the other memories.
pub fn sites(image: &ImageEnd, phases: &[Phase], names: &Names, table: &mut FrameTable, options: &Options) -> Answer {
    let mut resolver = sources::resolver(image, names, options);
    let mut answer = Answer { sums: SiteSums { recorded: image.header.stacks.clone(), ..SiteSums::default() }, ..Answer::default() };
    if image.heap.sites.is_none() {
        answer.sums.absent = if asks(options) { "no call stacks were recorded".into() } else { String::new() };
        return answer;
    }
    answer.sums.problems = names.problems(&image.stacks);
    answer.sums.absent = if options.memory.instant(image).is_none() { options.memory.absent().into() } else { String::new() };
    let of = options.left.as_ref().and_then(|wanted| left::chosen(phases, wanted));
    let others = Memory::ALL.into_iter().filter(|m| *m != options.memory);
    for memory in std::iter::once(options.memory).chain(others) {
        let Some((at, instant)) = memory.instant(image) else { continue };
        let mut rows = sources::rows(image, memory, &mut resolver, table, options);
        if options.left.is_some() && memory == Memory::Heap {
            left::instead(&mut rows, image, of, &mut resolver, table);
        }
        let found = rows.len() as u64;
        if memory == options.memory && found == 0 && answer.sums.absent.is_empty() {
            answer.sums.absent = none_left(options);
        }
        let own = Own::of_all(rows.iter().map(|(stack, _)| stack), table);
        if memory == options.memory {
            total(&rows, &mut answer.sums, table);
            answer.sums.memory = memory.name();
            answer.sums.sites = found;
            answer.sums.at_s = Nanos(at).seconds_since(Nanos(image.header.mono_ns));
            answer.sums.instant = said(instant, Nanos(image.header.mono_ns));
            if instant == Instant::Peak && image.seen.full_before {
                let exact = Nanos(image.exact_until()).seconds_since(Nanos(image.header.mono_ns));
                answer.sums.instant = format!("the peak of the first {}", seconds(exact));
            }
            answer.sums.problems.extend(of_instant(image, instant));
            answer.sums.problems.extend(ageless(&rows, options));
            if let Some(phase) = of {
                (answer.sums.instant, answer.sums.at_s) = (left::said(phase), phase.end_s);
            }
            let owners = owner::sums(&rows, table, own);
            answer.sums.owners = owners.len() as u64;
            answer.sums.without_owner_bytes = Bytes(owners.iter().filter(|o| o.frame.function.is_none()).map(|o| o.total_bytes.0).sum());
            answer.owners = chosen_owners(owners);
            answer.view = options.view.as_ref().map(|request| views::view(&rows, table, request, &|tid| thread_of(image, memory, tid)));
        }
        let shown = listed(rows, instant == Instant::Peak && options.left.is_none(), table, options, own);
        if found > 0 {
            answer.sums.by_memory.insert(memory.name(), Listed { sites: found, listed: shown.len() as u64 });
        }
        answer.sites.extend(shown);
    }
    answer
}

/// Whether call sites of some kind are asked for, not the usual ones.
fn asks(options: &Options) -> bool {
    let usual = Options { memory: Memory::Heap, ..Options::default() };
    let kind = |o: &Options| (o.instant, o.memory, o.thread, o.left.clone(), o.filters.clone());
    kind(options) != kind(&usual)
}

/// Why no call site is left of what was asked for; empty: nothing was left out.
fn none_left(options: &Options) -> String {
    let filters: Vec<String> = options.filters.iter().map(|f| format!("--filter '{f}'")).collect();
    match (options.thread, filters.join(" ")) {
        (None, none) if none.is_empty() => String::new(),
        (Some(tid), none) if none.is_empty() => format!("no allocation of thread {tid} has a call stack in the trace"),
        (None, filters) => format!("no allocation is left by the filters ({filters}): no call site passes"),
        (Some(tid), filters) => format!("no allocation is left by the filters ({filters}) of thread {tid}: no call site passes"),
    }
}

/// Where temporary allocations are asked for and nobody knows them.
fn ageless(rows: &[(Stack, Sums)], options: &Options) -> Option<Missing> {
    let asked = options.view.as_ref().is_some_and(|view| view.measure == Measure::Temporary);
    let count = rows.iter().filter(|(_, s)| s.ages.is_none()).count() as u64;
    (asked && count > 0).then(|| Missing { what: "temporary allocations".into(), count, why: format!("not known: {AGELESS}") })
}

/// Why it is not known how long blocks lived, and what to do.
pub const AGELESS: &str = "the trace does not say how old its sampled blocks became (it is of an earlier version, or was lowered from full mode); record again, \
     with MEMSHIM_MODE=full for exact figures";

/// What a thread is called, and the most that it allocated more than it freed.
fn thread_of(image: &ImageEnd, memory: Memory, tid: u32) -> (String, Option<Bytes>) {
    let found = image.threads.iter().find(|t| t.tid == tid);
    let used = image.python.iter().filter(|_| memory == Memory::Python).flat_map(|p| &p.threads).find(|t| t.tid == tid).or(found);
    let name = match (tid, found.map_or("", |t| t.name.as_str())) {
        (0, _) => "a thread that is not known".into(),
        (tid, "") => format!("thread {tid}"),
        (tid, name) => format!("{name} ({tid})"),
    };
    (name, used.map(|t| Bytes::of_balance(t.peak)))
}

fn total(rows: &[(Stack, Sums)], sums: &mut SiteSums, table: &FrameTable) {
    let (mut variance, mut of_total, mut of_leaked, mut of_suppressed) = (0.0, 0.0, 0.0, 0.0);
    for (stack, s) in rows {
        let total = bytes(s.total);
        sums.live_at_peak_bytes += Bytes::of_balance(s.live_at);
        variance += s.live_at_variance;
        of_total += s.total_variance;
        of_leaked += s.leaked_variance;
        sums.total_bytes += total;
        sums.leaked_bytes += Bytes::of_balance(s.leaked);
        if s.suppressed.is_some() {
            sums.suppressed_bytes += Bytes::of_balance(s.leaked);
            of_suppressed += s.leaked_variance;
        }
        match stack.frames.first().map(|f| table.get(*f)) {
            None => sums.without_stack_bytes += total,
            Some(frame) if frame.function.is_none() => sums.unresolved_bytes += total,
            Some(_) => {}
        }
        if stack.truncated {
            sums.truncated_bytes += total;
        }
    }
    sums.stderr_bytes = f64::max(variance, 0.0).sqrt();
    sums.total_stderr_bytes = f64::max(of_total, 0.0).sqrt();
    sums.leaked_stderr_bytes = f64::max(of_leaked, 0.0).sqrt();
    sums.unsuppressed_stderr_bytes = f64::max(of_leaked - of_suppressed, 0.0).sqrt();
}

/// The largest of the rows, in order.
fn listed(rows: Vec<(Stack, Sums)>, at_peak: bool, table: &FrameTable, options: &Options, own: Own) -> Vec<Site> {
    let mut all: Vec<Site> = chosen(rows).into_iter().map(|(stack, s)| site(&stack, s, at_peak, table, own)).collect();
    let measure = options.view.as_ref().map_or(Measure::Peak, |v| v.measure);
    all.sort_by_cached_key(|s| {
        let live = s.live_at_peak_bytes.or(s.live_at_bytes).unwrap_or_default().0;
        let first = match measure {
            Measure::Peak => live,
            Measure::Leaked if s.suppressed.is_some() => 0,
            Measure::Leaked => s.leaked_bytes.0,
            Measure::Temporary => s.temporary_allocs.unwrap_or(0),
            Measure::Total => s.total_bytes.0,
        };
        (std::cmp::Reverse((first, live, s.total_bytes.0)), s.frames.first().map(|f| (f.function.clone(), f.line, f.addr)))
    });
    all
}

/// At most [`SITES_SHOWN`].
fn chosen(rows: Vec<(Stack, Sums)>) -> Vec<(Stack, Sums)> {
    largest(rows, SITES_SHOWN, [|(_, s)| s.live_at as f64, |(_, s)| s.leaked as f64, |(_, s)| s.temporary().0, |(_, s)| s.total])
}

/// At most so many of them, most live first.
fn chosen_owners(owners: Vec<Owner>) -> Vec<Owner> {
    let measures: [fn(&Owner) -> f64; 4] = [
        |o| o.live_at_peak_bytes.0 as f64,
        |o| o.leaked_bytes.0 as f64,
        |o| o.temporary_allocs.unwrap_or(0) as f64,
        |o| o.total_bytes.0 as f64,
    ];
    let mut kept = largest(owners, OWNERS_SHOWN, measures);
    kept.sort_by_key(|o| std::cmp::Reverse(o.live_at_peak_bytes));
    kept
}

/// Of more than so many, a quarter by each measure.
fn largest<T>(mut all: Vec<T>, most: usize, measures: [fn(&T) -> f64; 4]) -> Vec<T> {
    if all.len() <= most {
        return all;
    }
    let mut kept = Vec::with_capacity(most);
    for measure in measures {
        all.sort_by(|a, b| measure(b).total_cmp(&measure(a)));
        let rest = all.split_off((most / 4).min(all.len()));
        kept.append(&mut all);
        all = rest;
    }
    kept
}

fn bytes(f: f64) -> Bytes {
    Bytes(whole(f))
}

fn site(stack: &Stack, s: Sums, at_peak: bool, table: &FrameTable, own: Own) -> Site {
    let frames: Vec<Frame> = stack.frames.iter().map(|f| table.get(*f).clone()).collect();
    // Of maps it is known how much is mapped, not in how many pieces.
    let counted = !matches!(s.kind, "anon" | "file" | "shared" | "stack");
    let blocks = |n: f64| counted.then(|| whole(n));
    let (live, live_blocks) = (Bytes::of_balance(s.live_at), blocks(s.live_at_blocks));
    let peak = s.peak.max(s.live_at.min(s.peak_sum));
    Site {
        owner: owner::of(&frames, own),
        kind: if s.kind.is_empty() { "heap" } else { s.kind },
        device: s.device,
        thread: s.thread,
        name: arenas(&frames, &s),
        live_at_peak_bytes: at_peak.then_some(live),
        live_at_peak_allocs: live_blocks.filter(|_| at_peak),
        live_at_bytes: (!at_peak).then_some(live),
        live_at_allocs: live_blocks.filter(|_| !at_peak),
        peak_bytes: Bytes::of_balance(peak),
        peak_bound_bytes: Bytes::of_balance(s.peak_sum.saturating_sub(peak)),
        peak_stderr_bytes: s.peak_variance.max(0.0).sqrt(),
        total_bytes: bytes(s.total),
        allocs: whole(s.allocs),
        temporary_allocs: s.ages.map(|a| whole(a.lifetimes[0])),
        temporary_stderr_allocs: s.ages.map(|a| a.temporary_variance.max(0.0).sqrt()),
        leaked_stderr_bytes: s.leaked_variance.max(0.0).sqrt(),
        temporary_bytes: s.ages.map(|a| bytes(a.temporary_bytes)),
        leaked_bytes: Bytes::of_balance(s.leaked),
        leaked_allocs: blocks(s.leaked_blocks),
        stderr_bytes: s.live_at_variance.max(0.0).sqrt(),
        total_stderr_bytes: s.total_variance.max(0.0).sqrt(),
        lifetimes: s.ages.map(|a| a.lifetimes.map(whole)),
        sizes: s.sizes.iter().map(|(size, [allocs, frees])| [*size, whole(*allocs), whole(*frees)]).collect(),
        truncated: stack.truncated,
        suppressed: s.suppressed,
        frames,
    }
}

/// What Python's allocator of small objects asks the system for.
fn arenas(frames: &[Frame], s: &Sums) -> Option<&'static str> {
    let first = frames.first().filter(|_| s.kind == "anon")?;
    // From 3.11 on frames of Python code come from there, too, in smaller pieces.
    let each = s.total / s.allocs.max(1.0);
    let of_its_size = [256 << 10, 1 << 20].iter().any(|size| each == f64::from(*size));
    let named = first.function.as_deref().is_none_or(|f| f.starts_with("_PyObject_Arena") || f.starts_with("_PyMem_Arena"));
    (of_its_size && named && owner::is_interpreter(first)).then_some(ARENA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaks_most_is_listed_though_nothing_of_it_was_live_at_the_peak() {
        let of = |live: u64, leaked: u64| Owner { live_at_peak_bytes: Bytes(live), leaked_bytes: Bytes(leaked), ..Owner::default() };
        let mut all: Vec<Owner> = (0..300).map(|i| of(1000 - i, 1)).collect();
        all.push(of(0, 5000));
        let kept = chosen_owners(all);
        assert_eq!((kept.len(), kept[0].live_at_peak_bytes), (OWNERS_SHOWN, Bytes(1000)));
        assert!(kept.iter().any(|o| o.leaked_bytes == Bytes(5000)), "who leaked most");
        assert!(kept.is_sorted_by_key(|o| std::cmp::Reverse(o.live_at_peak_bytes)));
        assert_eq!(chosen_owners(vec![of(1, 0), of(2, 9)]).len(), 2);
    }
}
