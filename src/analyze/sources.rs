//! Rows of call sites, by what memory they are of: a row is a stack and what it holds.

use std::collections::HashMap;

use super::sites::{Ages, Sums, join};
use super::stacks::{FrameTable, Names, Resolver, Stack};
use super::{Options, heap, views};
use crate::model::gpu::sites::Place;
use crate::model::image::ImageEnd;
use crate::model::kinds::KindTable;
use crate::model::maps::{Class, MapSite};
use crate::model::sites::{Instant, SitesEnd};

/// Whose call sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    #[default]
    Heap,
    /// Python's own blocks, where they are recorded.
    Python,
    Maps,
    /// Of devices, and page-locked memory.
    Gpu,
}

impl Memory {
    pub const ALL: [Memory; 4] = [Memory::Heap, Memory::Python, Memory::Maps, Memory::Gpu];

    pub fn name(self) -> &'static str {
        match self {
            Memory::Heap => "heap",
            Memory::Python => "python",
            Memory::Maps => "maps",
            Memory::Gpu => "gpu",
        }
    }

    /// Why there is none of it in a trace, and how to get some.
    pub fn absent(self) -> &'static str {
        match self {
            Memory::Heap => "there is no call of malloc or its like in it",
            Memory::Python => {
                "there are no blocks of Python's own in it: they are recorded with MEMSHIM_PYTHON_ALLOC=1 (`memshim run --python-alloc`)"
            }
            Memory::Maps => "the program mapped nothing itself",
            Memory::Gpu => "there is no memory of a GPU in it: the program took none from CUDA's driver",
        }
    }

    /// Instant of the peak, or the one asked for, on the trace's clock; `None`: there is no such memory, or it has no sites.
    pub fn instant(self, image: &ImageEnd) -> Option<(u64, Instant)> {
        let of = |ends: &SitesEnd| match ends.instant {
            Instant::At(t) => (t, ends.instant),
            // It begins after the last event: what is live at the end is the most in it.
            Instant::PeakWithin(from, _) if ends.beyond => (from.min(image.seen.last_t.0), ends.instant),
            _ => (ends.peak_at, ends.instant),
        };
        let heap = image.heap.sites.as_ref()?;
        match self {
            Memory::Heap => Some(of(heap)),
            Memory::Python => image.python.as_ref()?.heap.sites.as_ref().map(of),
            // Of maps the peak is all that is known.
            Memory::Maps => Some((image.maps.peaks.total.t, Instant::Peak)),
            Memory::Gpu => {
                let memory = &image.gpu.as_ref()?.memory;
                let most = memory.devices.values().map(|d| d.live).max_by_key(|l| l.peak).unwrap_or(memory.pinned);
                let at = if let Instant::At(t) = heap.instant { t } else { most.peak_at };
                Some((at, heap.instant))
            }
        }
    }
}

/// All rows of an image that are asked for, of one memory, in no order; frames are in the table.
pub fn rows(image: &ImageEnd, memory: Memory, resolver: &mut Resolver, table: &mut FrameTable, options: &Options) -> Vec<(Stack, Sums)> {
    let ages = image.knows_ages().then(Ages::default);
    let of = |ends, kinds, kind| blocks(ends, kinds, &Sums { kind, ages, ..Sums::default() });
    let sums = match memory {
        Memory::Heap => image.heap.sites.as_ref().map(|ends| of(ends, &image.kinds, "heap")),
        Memory::Python => image.python.as_ref().and_then(|p| p.heap.sites.as_ref().map(|ends| of(ends, &p.kinds, "python"))),
        Memory::Maps => Some(image.maps.sites.iter().filter(|m| m.site > 0).map(mapped).collect()),
        Memory::Gpu => image.gpu.as_ref().map(|gpu| gpu.memory.sites.rows().into_iter().map(held).collect()),
    };
    let mut rows = merged(sums.unwrap_or_default(), resolver, table);
    within(&mut rows, freed(image, memory));
    rows.retain(|(stack, _)| options.filters.iter().all(|f| views::passes(f, stack, table)));
    if let Some(tid) = options.thread {
        rows.retain(|(_, sums)| sums.thread == Some(tid));
    }
    for (stack, sums) in &mut rows {
        sums.suppressed = options.suppressions.of(stack.frames.iter().map(|f| table.get(*f))).map(str::to_owned);
    }
    rows
}

/// Blocks of a memory that were freed, where samples are recorded and that is counted.
fn freed(image: &ImageEnd, memory: Memory) -> Option<u64> {
    match memory {
        Memory::Heap if image.header.mode != "full" => heap::bound_of_freed(image, heap::freed(image), image.totals.frees),
        Memory::Python => {
            let p = image.python.as_ref().filter(|p| !p.full)?;
            heap::bound_of_freed(image, p.counts.lanes.values().map(|l| l.frees).sum(), p.totals.frees)
        }
        _ => None,
    }
}

/// Blocks that were temporary were freed: no site's estimate is of more than were in all. Of several that are more together nobody knows which is too high:
/// one block of a byte, that stands for thousands, must not make less of what is well known.
fn within(rows: &mut [(Stack, Sums)], freed: Option<u64>) {
    let Some(freed) = freed.map(|n| n as f64) else { return };
    for ages in rows.iter_mut().filter_map(|(_, s)| s.ages.as_mut()).filter(|ages| ages.lifetimes[0] > freed) {
        let share = freed / ages.lifetimes[0];
        ages.lifetimes[0] *= share;
        ages.temporary_bytes *= share;
        ages.temporary_variance *= share * share;
    }
}

/// A resolver for all of an image's rows.
pub fn resolver<'a>(image: &'a ImageEnd, names: &'a Names, options: &Options) -> Resolver<'a> {
    Resolver::new(&image.stacks, names, options.interpreter)
}

/// What makes a row: stack, kind, device, thread.
type Key = (Stack, &'static str, Option<u8>, Option<u32>);

/// Places in the code with equal stacks are one row.
pub fn merged(sums: Vec<(u32, Sums)>, resolver: &mut Resolver, table: &mut FrameTable) -> Vec<(Stack, Sums)> {
    let mut row_of: HashMap<Key, usize> = HashMap::new();
    let mut rows: Vec<(Stack, Sums)> = Vec::new();
    for (site, sums) in sums {
        let stack = resolver.stack(site, table);
        let key = (stack, sums.kind, sums.device, sums.thread);
        match row_of.get(&key) {
            Some(&at) => join(&mut rows[at].1, sums),
            None => {
                rows.push((key.0.clone(), sums));
                row_of.insert(key, rows.len() - 1);
            }
        }
    }
    rows
}

/// Sums of blocks, each from `empty` ones on.
fn blocks(ends: &SitesEnd, kinds: &KindTable, empty: &Sums) -> Vec<(u32, Sums)> {
    let mut by_number: Vec<Sums> = Vec::new();
    for k in kinds.used() {
        if by_number.len() <= k.site as usize {
            by_number.resize(k.site as usize + 1, empty.clone());
        }
        by_number[k.site as usize].add_kind(k);
    }
    let used = by_number.into_iter().enumerate().filter(|(_, s)| s.allocs > 0.0);
    used.map(|(number, mut sums)| {
        sums.add_held(ends, number);
        let (site, thread) = ends.site_of(number);
        sums.thread = thread;
        (site, sums)
    })
    .collect()
}

fn mapped(m: &MapSite) -> (u32, Sums) {
    let kind = match m.class {
        Class::Anon => "anon",
        Class::File => "file",
        Class::Shared => "shared",
        Class::Stack => "stack",
    };
    let sums = Sums {
        kind,
        live_at: m.at_peak,
        peak: m.peak,
        peak_sum: m.peak,
        total: m.total as f64,
        allocs: m.calls as f64,
        leaked: m.now,
        ..Sums::default()
    };
    (m.site, sums)
}

fn held((place, site, of): (Place, u32, crate::model::gpu::sites::GpuUse)) -> (u32, Sums) {
    let (kind, device) = match place {
        Place::Device(n) => ("gpu", Some(n)),
        Place::Pinned => ("pinned", None),
    };
    let sums = Sums {
        kind,
        device,
        live_at: of.then,
        live_at_blocks: of.then_blocks as f64,
        peak: of.peak,
        peak_sum: of.peak,
        total: of.total as f64,
        allocs: of.allocs as f64,
        leaked: of.now,
        leaked_blocks: of.blocks as f64,
        ..Sums::default()
    };
    (site, sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary(estimates: &[f64], freed: Option<u64>) -> Vec<(f64, f64)> {
        let ages = |n| Ages { lifetimes: [n, 7.0, 0.0, 0.0, 0.0], temporary_variance: 16.0, ..Ages::default() };
        let row = |n: &f64| (Stack::default(), Sums { ages: Some(ages(*n)), ..Sums::default() });
        let mut rows: Vec<(Stack, Sums)> = estimates.iter().map(row).collect();
        within(&mut rows, freed);
        assert!(rows.iter().all(|(_, s)| s.ages.is_some_and(|a| a.lifetimes[1] == 7.0)), "what lived longer is as it was");
        rows.iter().map(|(_, s)| s.temporary()).collect()
    }

    #[test]
    fn no_more_blocks_were_temporary_than_were_freed() {
        assert_eq!(temporary(&[400.0, 100.0], Some(200)), [(200.0, 4.0), (100.0, 16.0)], "what is known stays as it is");
        assert_eq!(temporary(&[300.0, 100.0], Some(300)), [(300.0, 16.0), (100.0, 16.0)]);
        assert_eq!(temporary(&[300.0], None), [(300.0, 16.0)]);
        assert_eq!(temporary(&[0.0], Some(0)), [(0.0, 16.0)]);
    }
}
