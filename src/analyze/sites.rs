//! Who allocated, who held it at the peak, who never gave it back: one row a call site.

use std::collections::{BTreeMap, HashMap};

use super::report::{Frame, Owner, SITES_SHOWN, Site, SiteSums, View};
use super::stacks::{FrameTable, Names, Resolver, Stack};
use super::views::{self, Measure};
use super::{Options, owner};
use crate::model::image::ImageEnd;
use crate::model::kinds::{AGES, Kind};
use crate::model::maps::Class;
use crate::model::sites::{Instant, SitesEnd};
use crate::model::units::{Bytes, Nanos, whole};

/// What a row sums up; places in the code with equal stacks are one row.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    pub live_at: i64,
    pub live_at_blocks: f64,
    pub live_at_variance: f64,
    /// The largest of the own peaks, and their sum.
    pub peak: i64,
    pub peak_sum: i64,
    pub total: f64,
    pub total_variance: f64,
    pub allocs: f64,
    pub leaked: i64,
    pub leaked_blocks: f64,
    pub lifetimes: [f64; AGES.len() + 1],
    /// Bytes of the temporary ones.
    pub temporary: f64,
    /// Pattern of a known leak.
    pub suppressed: Option<String>,
    /// Allocations and frees by size.
    pub sizes: BTreeMap<u64, [f64; 2]>,
}

impl Sums {
    fn add_kind(&mut self, k: &Kind) {
        let n = k.allocs as f64;
        self.total += n * k.heft as f64;
        self.total_variance += if k.weight > 1.0 { n * k.variance() } else { 0.0 };
        self.allocs += n * k.weight;
        self.temporary += k.ages[0] as f64 * k.heft as f64;
        let mut young = 0;
        for (class, freed) in k.ages.iter().enumerate() {
            self.lifetimes[class] += *freed as f64 * k.weight;
            young += *freed as u64;
        }
        self.lifetimes[AGES.len()] += k.frees.saturating_sub(young) as f64 * k.weight;
        let size = self.sizes.entry(k.size).or_default();
        size[0] += n * k.weight;
        size[1] += k.frees as f64 * k.weight;
    }

    fn add_held(&mut self, ends: &SitesEnd, site: usize) {
        let Some(held) = ends.held.get(site) else { return };
        self.live_at = self.live_at.saturating_add(held.then.bytes);
        self.live_at_blocks += held.then.blocks;
        self.live_at_variance += held.then.variance;
        self.peak = self.peak.max(held.peak);
        self.peak_sum = self.peak_sum.saturating_add(held.peak);
        self.leaked = self.leaked.saturating_add(held.now.bytes);
        self.leaked_blocks += held.now.blocks;
    }
}

/// All rows of an image that are asked for, in no order; frames are in the table.
pub fn rows(image: &ImageEnd, names: &Names, table: &mut FrameTable, options: &Options) -> Vec<(Stack, Sums)> {
    let Some(ends) = &image.heap.sites else { return Vec::new() };
    let mut by_site: Vec<Sums> = vec![Sums::default(); image.stacks.sites().max(ends.held.len())];
    for k in image.kinds.used() {
        if let Some(sums) = by_site.get_mut(k.site as usize) {
            sums.add_kind(k);
        }
    }
    let mut resolver = Resolver::new(&image.stacks, names, options.interpreter);
    let mut row_of: HashMap<Stack, usize> = HashMap::new();
    let mut rows: Vec<(Stack, Sums)> = Vec::new();
    for (site, mut sums) in by_site.into_iter().enumerate().filter(|(_, s)| s.allocs > 0.0) {
        sums.add_held(ends, site);
        let stack = resolver.stack(site as u32, table);
        match row_of.get(&stack) {
            Some(&at) => join(&mut rows[at].1, sums),
            None => {
                row_of.insert(stack.clone(), rows.len());
                rows.push((stack, sums));
            }
        }
    }
    rows.retain(|(stack, _)| options.filters.iter().all(|f| views::passes(f, stack, table)));
    for (stack, sums) in &mut rows {
        sums.suppressed = options.suppressions.of(stack.frames.iter().map(|f| table.get(*f))).map(str::to_owned);
    }
    rows
}

/// Adds what another place in the code holds.
pub fn join(a: &mut Sums, b: Sums) {
    a.live_at = a.live_at.saturating_add(b.live_at);
    a.live_at_blocks += b.live_at_blocks;
    a.live_at_variance += b.live_at_variance;
    a.peak = a.peak.max(b.peak);
    a.peak_sum = a.peak_sum.saturating_add(b.peak_sum);
    a.total += b.total;
    a.total_variance += b.total_variance;
    a.allocs += b.allocs;
    a.temporary += b.temporary;
    a.leaked = a.leaked.saturating_add(b.leaked);
    a.leaked_blocks += b.leaked_blocks;
    a.lifetimes.iter_mut().zip(b.lifetimes).for_each(|(a, b)| *a += b);
    for (size, [allocs, frees]) in b.sizes {
        let of = a.sizes.entry(size).or_default();
        of[0] += allocs;
        of[1] += frees;
    }
}

/// What call sites have mapped, most at the peak of the maps first; at most so many.
fn maps(image: &ImageEnd, resolver: &mut Resolver, table: &mut FrameTable, filters: &[String]) -> Vec<Site> {
    let mut rows: Vec<_> = image.maps.sites.iter().filter(|m| m.site > 0).collect();
    rows.sort_by_key(|m| (std::cmp::Reverse((m.at_peak, m.peak, m.total)), m.site));
    let mut row_of: HashMap<(Stack, Class), usize> = HashMap::new();
    let mut all: Vec<(Stack, Class, Sums)> = Vec::new();
    for m in rows {
        let stack = resolver.stack(m.site, table);
        if !filters.iter().all(|f| views::passes(f, &stack, table)) {
            continue;
        }
        let sums = Sums {
            live_at: m.at_peak,
            peak: m.peak,
            peak_sum: m.peak,
            total: m.total as f64,
            allocs: m.calls as f64,
            leaked: m.now,
            ..Sums::default()
        };
        match row_of.get(&(stack.clone(), m.class)) {
            Some(&at) => join(&mut all[at].2, sums),
            None => {
                row_of.insert((stack.clone(), m.class), all.len());
                all.push((stack, m.class, sums));
            }
        }
    }
    all.truncate(SITES_SHOWN);
    let kind = |class: Class| match class {
        Class::Anon => "anon",
        Class::File => "file",
        Class::Shared => "shared",
        Class::Stack => "stack",
    };
    all.into_iter().map(|(stack, class, sums)| Site { kind: kind(class), ..site(&stack, sums, true, table) }).collect()
}

/// What a report says of an image's call sites.
#[derive(Debug, Default)]
pub struct Answer {
    pub sites: Vec<Site>,
    pub sums: SiteSums,
    pub owners: Vec<Owner>,
    pub view: Option<View>,
}

/// The rows for the report: the largest by each measure, most live at the instant first, and what all of them come to.
pub fn sites(image: &ImageEnd, names: &Names, table: &mut FrameTable, options: &Options) -> Answer {
    let rows = rows(image, names, table, options);
    let mut sums = SiteSums { recorded: image.header.stacks.clone(), ..SiteSums::default() };
    let Some(ends) = &image.heap.sites else { return Answer { sums, ..Answer::default() } };
    let at = match ends.instant {
        Instant::Peak => ends.peak_at,
        Instant::At(t) => t,
    };
    sums.at_s = Nanos(at).seconds_since(Nanos(image.header.mono_ns));
    sums.sites = rows.len() as u64;
    sums.problems = names.problems(&image.stacks);
    for (stack, s) in &rows {
        let total = bytes(s.total);
        sums.live_at_peak_bytes += Bytes::of_balance(s.live_at);
        sums.total_bytes += total;
        sums.leaked_bytes += Bytes::of_balance(s.leaked);
        if s.suppressed.is_some() {
            sums.suppressed_bytes += Bytes::of_balance(s.leaked);
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
    let at_peak = ends.instant == Instant::Peak;
    let owners = owner::sums(&rows, table);
    let view = options.view.as_ref().map(|request| views::view(&rows, table, request));
    let mut all: Vec<Site> = chosen(rows).into_iter().map(|(stack, s)| site(&stack, s, at_peak, table)).collect();
    let measure = options.view.as_ref().map_or(Measure::Peak, |v| v.measure);
    all.sort_by_cached_key(|s| {
        let live = s.live_at_peak_bytes.or(s.live_at_bytes).unwrap_or_default().0;
        let first = match measure {
            Measure::Peak => live,
            Measure::Leaked => {
                if s.suppressed.is_some() {
                    0
                } else {
                    s.leaked_bytes.0
                }
            }
            Measure::Temporary => s.temporary_allocs,
            Measure::Total => s.total_bytes.0,
        };
        (std::cmp::Reverse((first, live, s.total_bytes.0)), s.frames.first().map(|f| (f.function.clone(), f.line, f.addr)))
    });
    let mut resolver = Resolver::new(&image.stacks, names, options.interpreter);
    all.extend(maps(image, &mut resolver, table, &options.filters));
    Answer { sites: all, sums, owners, view }
}

/// At most [`SITES_SHOWN`]: a quarter of them by each measure.
fn chosen(mut rows: Vec<(Stack, Sums)>) -> Vec<(Stack, Sums)> {
    if rows.len() <= SITES_SHOWN {
        return rows;
    }
    let measures: [fn(&Sums) -> f64; 4] = [|s| s.live_at as f64, |s| s.leaked as f64, |s| s.lifetimes[0], |s| s.total];
    let mut kept = Vec::with_capacity(SITES_SHOWN);
    for measure in measures {
        rows.sort_by(|a, b| measure(&b.1).total_cmp(&measure(&a.1)));
        let rest = rows.split_off((SITES_SHOWN / 4).min(rows.len()));
        kept.append(&mut rows);
        rows = rest;
    }
    kept
}

fn bytes(f: f64) -> Bytes {
    Bytes(whole(f))
}

fn site(stack: &Stack, s: Sums, at_peak: bool, table: &FrameTable) -> Site {
    let frames: Vec<Frame> = stack.frames.iter().map(|f| table.get(*f).clone()).collect();
    let live = (Bytes::of_balance(s.live_at), whole(s.live_at_blocks));
    let peak = s.peak.max(s.live_at.min(s.peak_sum));
    Site {
        owner: owner::of(&frames),
        frames,
        kind: "heap",
        live_at_peak_bytes: at_peak.then_some(live.0),
        live_at_peak_allocs: at_peak.then_some(live.1),
        live_at_bytes: (!at_peak).then_some(live.0),
        live_at_allocs: (!at_peak).then_some(live.1),
        peak_bytes: Bytes::of_balance(peak),
        peak_bound_bytes: Bytes::of_balance(s.peak_sum.saturating_sub(peak)),
        total_bytes: bytes(s.total),
        allocs: whole(s.allocs),
        temporary_allocs: whole(s.lifetimes[0]),
        temporary_bytes: bytes(s.temporary),
        leaked_bytes: Bytes::of_balance(s.leaked),
        leaked_allocs: whole(s.leaked_blocks),
        stderr_bytes: s.live_at_variance.max(0.0).sqrt(),
        total_stderr_bytes: s.total_variance.max(0.0).sqrt(),
        lifetimes: s.lifetimes.map(whole),
        sizes: s.sizes.iter().map(|(size, [allocs, frees])| [*size, whole(*allocs), whole(*frees)]).collect(),
        truncated: stack.truncated,
        suppressed: s.suppressed,
    }
}
