//! Whose what a phase left behind is, and what it needed only meanwhile: the largest call sites of each.

use std::collections::HashMap;

use super::owner::{self, Own};
use super::report::{Frame, PHASE_SITES_SHOWN, Phase, PhaseSite, PhaseSites};
use super::sites::Sums;
use super::sources::{self, Memory};
use super::stacks::{FrameTable, Names, Resolver, Stack};
use super::{Options, phases::is_of_process, views};
use crate::model::image::ImageEnd;
use crate::model::left::first_told;
use crate::model::sites::Balance;
use crate::model::units::{Bytes, Nanos, whole};

/// Phases whose sites are listed; of further ones those that left least have none.
const PHASES_SHOWN: usize = 200;
/// Who maps once in more steps than these leaks nothing each step.
const MAPS_RARELY: f64 = 10.0;
/// Growth of fewer standard errors is not one.
const CERTAIN: f64 = 3.0;

/// Fills in the sites of an image's phases.
pub fn complete(image: &ImageEnd, phases: &mut [Phase], names: &Names, table: &mut FrameTable, options: &Options) {
    if image.heap.sites.is_none() {
        return;
    }
    let mut order: Vec<usize> = (0..phases.len()).filter(|at| knows(image, &phases[*at])).collect();
    let size = |p: &Phase| p.heap_persistent_bytes.map_or(0, i64::unsigned_abs).max(p.heap_transient_bytes.map_or(0, |b| b.0));
    order.sort_by_key(|at| std::cmp::Reverse(size(&phases[*at])));
    order.truncate(PHASES_SHOWN);
    let mut resolver = sources::resolver(image, names, options);
    for at in order {
        let phase = &mut phases[at];
        let [left, meanwhile] = balances(image, phase).map(|sites| {
            let rows = sources::merged(sites.into_iter().map(|(site, held)| sums(image, site, held)).collect(), &mut resolver, table);
            of(rows, table)
        });
        phase.left = Some(left);
        phase.meanwhile = Some(meanwhile).filter(|_| phase.source != "auto");
    }
    // Those that leak, whatever else they left.
    let leak = |p: &&mut Phase| p.steps.as_ref().is_some_and(|s| s.leaks) && knows(image, p);
    for phase in phases.iter_mut().filter(leak).take(PHASES_SHOWN) {
        let sites = leaking(grown(image, phase));
        let Some(steps) = phase.steps.as_mut().filter(|_| !sites.is_empty()) else { continue };
        let rows = sources::merged(sites.into_iter().map(|(site, held)| sums(image, site, held)).collect(), &mut resolver, table);
        steps.sites = of(rows, table).top;
        steps.sites_from = Some(u64::from(first_told(u32::try_from(phase.count).unwrap_or(u32::MAX))) - 1);
    }
    let leak = |p: &&mut Phase| p.steps.as_ref().and_then(|s| s.growth.maps).is_some_and(|maps| maps.leaks);
    for phase in phases.iter_mut().filter(leak).take(PHASES_SHOWN) {
        let count = phase.count;
        let Some(steps) = phase.steps.as_mut() else { continue };
        steps.map_sites = mapped_often(image, count, &mut resolver, table, options);
    }
}

/// Who maps as often as a phase repeats, or nearly, by what of it is mapped still. Of maps nothing is known by phase.
fn mapped_often(image: &ImageEnd, times: u64, resolver: &mut Resolver, table: &mut FrameTable, options: &Options) -> Vec<PhaseSite> {
    let mut rows = sources::rows(image, Memory::Maps, resolver, table, options);
    rows.retain(|(_, s)| s.leaked > 0 && s.allocs * MAPS_RARELY >= times as f64);
    rows.iter_mut().for_each(|(_, s)| (s.live_at, s.live_at_blocks) = (s.leaked, s.allocs));
    of(rows, table).top
}

/// Who holds a site's memory, for a sentence.
pub fn who(site: &PhaseSite) -> String {
    site.owner.and_then(|at| site.frames.get(at)).or(site.frames.first()).map_or("code without a name".into(), views::label)
}

/// By how much each site of a phase holds more at its later ends, in two parts, the first two thirds of them and the last, and in all.
fn grown(image: &ImageEnd, phase: &Phase) -> HashMap<u32, [Balance; 3]> {
    let paths: Vec<bool> = image.phases.paths.iter().map(|p| is(p, phase)).collect();
    let mut all: HashMap<u32, [Balance; 3]> = HashMap::new();
    for l in image.heap.left.iter().filter(|l| paths.get(l.path as usize) == Some(&true)) {
        let parts = all.entry(l.site).or_default();
        parts.iter_mut().zip(l.grown).for_each(|(part, more)| part.join(more));
    }
    all
}

/// Of these the sites that hold more and more. What grows in one part alone was loaded once, or has filled; that is only told where nothing surely grows in
/// both. What surely did not grow in the last part is never told: growth goes on there, or there were no leak.
fn leaking(sites: HashMap<u32, [Balance; 3]>) -> Vec<(u32, Balance)> {
    let mut all: Vec<(u32, Balance, bool)> = Vec::new();
    for (site, parts) in sites {
        let [early, late, both] = parts;
        let certain = both.bytes as f64 > CERTAIN * both.variance.max(0.0).sqrt();
        if both.bytes > 0 && !has_stopped(early, late) {
            all.push((site, both, early.bytes > 0 && late.bytes > 0 && certain));
        }
    }
    let any = all.iter().any(|(_, _, steady)| *steady);
    all.into_iter().filter(|(_, _, steady)| *steady || !any).map(|(site, more, _)| (site, more)).collect()
}

/// Whether a site grew in the first two thirds and then no more: by samples, where as many as are to be expected of growth that goes on would have been
/// missed by chance in less than one case in twenty.
fn has_stopped(early: Balance, late: Balance) -> bool {
    // −ln 0.05.
    const MISSED: f64 = 3.0;
    let early_bytes = early.bytes as f64;
    // A sample stands for variance / bytes, none of exact figures; the last part is half as long.
    late.bytes <= 0 && early.bytes > 0 && early_bytes * early_bytes >= 2.0 * MISSED * early.variance.max(0.0)
}

/// Whether anything is known of a phase's sites.
fn knows(image: &ImageEnd, phase: &Phase) -> bool {
    image.tells_ends(on_the_clock(image, phase.begin_s), on_the_clock(image, phase.end_s)) && has_sites(image, phase)
}

/// Of seconds since the start, the trace's time.
fn on_the_clock(image: &ImageEnd, s: f64) -> u64 {
    image.header.mono_ns.saturating_add(Nanos::of_seconds(s).0)
}

fn has_sites(image: &ImageEnd, phase: &Phase) -> bool {
    match phase.source {
        "auto" => phase.name == "ramp",
        _ => !is_of_process(phase) || image.phases.paths.iter().zip(0u32..).any(|(p, at)| is(p, phase) && has(image, at)),
    }
}

fn is(path: &crate::model::phases::Path, phase: &Phase) -> bool {
    path.source == phase.source && path.names == phase.path
}

fn has(image: &ImageEnd, path: u32) -> bool {
    image.heap.left.iter().any(|l| l.path == path)
}

/// What each site held of a phase: left, and needed meanwhile.
pub fn balances(image: &ImageEnd, phase: &Phase) -> [Vec<(u32, Balance)>; 2] {
    if phase.source == "auto" {
        let t = |s: f64| on_the_clock(image, s);
        let (from, to) = phase.sampled.unwrap_or((phase.begin_s, phase.end_s));
        let grown = image.heap.sites.as_ref().map(|ends| ends.curve.grown(t(from), t(to), &ends.held));
        return [grown.unwrap_or_default(), Vec::new()];
    }
    let mut both: [HashMap<u32, Balance>; 2] = Default::default();
    let paths: Vec<bool> = image.phases.paths.iter().map(|p| is(p, phase)).collect();
    for l in image.heap.left.iter().filter(|l| paths.get(l.path as usize) == Some(&true)) {
        both[0].entry(l.site).or_default().join(l.left);
        both[1].entry(l.site).or_default().join(l.meanwhile);
    }
    both.map(|sites| sites.into_iter().filter(|(_, held)| held.bytes > 0).collect())
}

/// The phase that is asked for: its name, or `outer/inner`; of several, the one that left most.
pub fn chosen<'a>(phases: &'a [Phase], wanted: &str) -> Option<&'a Phase> {
    let fits = |p: &&Phase| p.left.is_some() && p.is_called(wanted);
    phases.iter().filter(fits).max_by_key(|p| p.left.as_ref().map(|l| l.bytes))
}

/// What is shown of it, in words that go on `live at `.
pub fn said(phase: &Phase) -> String {
    match phase.source {
        "auto" => format!("the end of the {} and not at its begin", phase.name),
        _ => format!("the end of `{}` of what was allocated in it", phase.path.join(" › ")),
    }
}

/// Puts what a phase left in the place of what rows held; without one, nothing.
pub fn instead(rows: &mut Vec<(Stack, Sums)>, image: &ImageEnd, phase: Option<&Phase>, resolver: &mut Resolver, table: &mut FrameTable) {
    let [sites, _] = phase.map(|p| balances(image, p)).unwrap_or_default();
    let left = sources::merged(sites.into_iter().map(|(site, held)| sums(image, site, held)).collect(), resolver, table);
    let mut left: HashMap<(Stack, Option<u32>), Sums> = left.into_iter().map(|(stack, s)| ((stack, s.thread), s)).collect();
    for (stack, s) in rows.iter_mut() {
        let of = left.remove(&(stack.clone(), s.thread)).unwrap_or_default();
        (s.live_at, s.live_at_blocks, s.live_at_variance) = (of.live_at, of.live_at_blocks, of.live_at_variance);
    }
    rows.retain(|(_, s)| s.live_at > 0);
}

/// A row of the pages of sites, whose live bytes are these.
pub fn sums(image: &ImageEnd, number: u32, held: Balance) -> (u32, Sums) {
    let (site, thread) = image.heap.sites.as_ref().map_or((number, None), |ends| ends.site_of(number as usize));
    let sums =
        Sums { kind: "heap", thread, live_at: held.bytes, live_at_blocks: held.blocks, live_at_variance: held.variance, ..Sums::default() };
    (site, sums)
}

fn of(mut rows: Vec<(Stack, Sums)>, table: &FrameTable) -> PhaseSites {
    let own = Own::of_all(rows.iter().map(|(stack, _)| stack), table);
    let variance: f64 = rows.iter().map(|(_, s)| s.live_at_variance).sum();
    let mut all = PhaseSites {
        bytes: rows.iter().map(|(_, s)| Bytes::of_balance(s.live_at)).sum(),
        stderr_bytes: variance.max(0.0).sqrt(),
        sites: rows.len() as u64,
        top: Vec::new(),
    };
    rows.sort_by_cached_key(|(stack, s)| {
        let first = stack.frames.first().map(|f| table.get(*f));
        (std::cmp::Reverse(s.live_at), first.map(|f| (f.function.clone(), f.line, f.addr)))
    });
    rows.truncate(PHASE_SITES_SHOWN);
    all.top = rows
        .into_iter()
        .map(|(stack, s)| {
            let frames: Vec<Frame> = stack.frames.iter().map(|f| table.get(*f).clone()).collect();
            PhaseSite {
                bytes: Bytes::of_balance(s.live_at),
                allocs: whole(s.live_at_blocks),
                stderr_bytes: s.live_at_variance.max(0.0).sqrt(),
                owner: owner::of(&frames, own),
                frames,
            }
        })
        .collect();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Growth by so many samples of 500 kB, or exact where `by` is 0.
    fn part(bytes: i64, by: f64) -> Balance {
        Balance { bytes, blocks: 1.0, variance: bytes.unsigned_abs() as f64 * by }
    }

    fn told(sites: &[(u32, Balance, Balance)]) -> Vec<u32> {
        let both = |a: Balance, b: Balance| Balance { bytes: a.bytes + b.bytes, blocks: 1.0, variance: a.variance + b.variance };
        let mut told: Vec<u32> =
            leaking(sites.iter().map(|&(site, a, b)| (site, [a, b, both(a, b)])).collect()).into_iter().map(|(site, _)| site).collect();
        told.sort_unstable();
        told
    }

    #[test]
    fn a_cache_that_has_filled_is_not_told_beside_a_leak_that_samples_do_not_show_surely() {
        let (cache, by) = ((1, part(13_400_000, 0.0), part(0, 0.0)), 5e5);
        // Two samples and one; two and none; none at all.
        assert_eq!(told(&[cache, (2, part(1_000_000, by), part(500_000, by))]), [2]);
        assert_eq!(told(&[cache, (2, part(1_000_000, by), part(0, by))]), [2]);
        assert!(told(&[cache]).is_empty());
        // The cache itself by 20 samples.
        assert_eq!(told(&[(1, part(10_000_000, by), part(0, by)), (2, part(500_000, by), part(500_000, by))]), [2]);
    }

    #[test]
    fn sure_growth_in_both_parts_is_told_alone_and_growth_in_the_last_where_there_is_no_other() {
        let (leak, late, early) =
            ((1, part(2000, 0.0), part(1000, 0.0)), (2, part(0, 0.0), part(9000, 0.0)), (3, part(9000, 0.0), part(-9000, 0.0)));
        assert_eq!(told(&[leak, late, early]), [1]);
        assert_eq!(told(&[late, early]), [2]);
    }
}
