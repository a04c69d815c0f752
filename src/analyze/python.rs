//! What Python's own blocks amount to, where they are recorded (`MEMSHIM_PYTHON_ALLOC`).

use std::collections::BTreeMap;

use super::heap;
use super::report::{Function, Python, Site, Usable};
use crate::model::image::{ImageEnd, releases};
use crate::model::python::PythonEnd;
use crate::model::units::{Bytes, Nanos};

/// What such memory is called.
pub const ARENA: &str = "pymalloc arena";
/// By how much the usable size of a block exceeds what was asked for, at most: malloc's chunks and pymalloc's size classes.
const SLACK: i64 = 31;

/// See the module; `None` where the program is not Python.
pub fn python(image: &ImageEnd) -> Option<Python> {
    let seen = image.python.as_ref().filter(|p| p.counts.calls() > 0 || p.totals.events > 0);
    if image.header.python.is_none() && seen.is_none() {
        return None;
    }
    let mut of = Python { version: image.header.python.as_ref().map(|v| v.0.clone()), ..Python::default() };
    if let Some(p) = seen {
        counted(image, p, &mut of);
        if p.full { full(image, p, &mut of) } else { fast(image, p, &mut of) }
    }
    Some(of)
}

/// What of the call sites' maps is arenas of its small objects.
pub fn arenas(sites: &[Site]) -> Option<Bytes> {
    sites.iter().filter(|s| s.name == Some(ARENA)).try_fold(Bytes(0), |sum, s| Some(sum + s.live_at_peak_bytes?)).filter(|b| b.0 > 0)
}

fn counted(image: &ImageEnd, p: &PythonEnd, of: &mut Python) {
    let known = image.header.python_fns.iter().flatten();
    let mut by_function = BTreeMap::new();
    for (name, &(calls, bytes)) in known.zip(&p.counts.by_fn).filter(|(_, row)| row.0 > 0) {
        let (allocs, frees) = if name.contains("Free") || releases(name) { (0, Some(calls)) } else { (calls, None) };
        by_function.insert(name.clone(), Function { allocs, frees, bytes: Bytes(bytes) });
    }
    of.requested_bytes = Some(by_function.values().map(|f| f.bytes).sum());
    of.by_function = by_function;
    let end = image.seen.end.as_ref().and_then(|e| e.python).unwrap_or_default();
    let missing = if p.full {
        p.counts.calls().saturating_sub(p.totals.events).max(p.counts.lost)
    } else {
        // Records that were broken off may be calls.
        p.counts.lost.saturating_add(p.counts.broken)
    };
    of.lost = missing.max(end.lost);
    of.unknown_frees = p.totals.unknown_frees;
    of.inherited_bytes = (!p.sizeless || p.counts.inherited_blocks() == 0).then(|| Bytes::of_balance(p.inherited));
}

fn full(image: &ImageEnd, p: &PythonEnd, of: &mut Python) {
    let (requested, usable) = (p.heap.requested, p.heap.usable);
    of.allocs = Some(p.totals.allocs);
    of.frees = Some(p.totals.frees);
    of.live_bytes = Some(Bytes::of_balance(requested.live));
    of.live_allocs = Some(p.heap.live_blocks);
    of.peak_bytes = Some(Bytes::of_balance(requested.peak));
    of.peak_bound_bytes = (of.lost == 0 && p.counts.broken == 0).then_some(Bytes::of_balance(requested.bound));
    of.peak_at_s = Some(Nanos(requested.at).seconds_since(Nanos(image.header.mono_ns)));
    of.temporary_allocs = Some(p.totals.temporary);
    of.usable = (!p.sizeless).then(|| Usable { live_bytes: Bytes::of_balance(usable.live), peak_bytes: Bytes::of_balance(usable.peak) });
}

/// By usable size; see `heap`.
fn fast(image: &ImageEnd, p: &PythonEnd, of: &mut Python) {
    let counts = &p.counts;
    of.allocs = Some(counts.lanes.values().map(|l| l.allocs).sum());
    of.frees = Some(counts.lanes.values().map(|l| l.frees).sum());
    of.live_allocs = Some(counts.blocks.max(0) as u64);
    of.temporary_estimated = heap::temporary(image, &p.kinds, heap::bound_of_freed(image, of.frees.unwrap_or(0), p.totals.frees));
    if p.sizeless {
        return;
    }
    let peak = counts.lower + (counts.upper - counts.lower) / 2;
    of.live_bytes = Some(Bytes::of_balance(counts.lanes_live()));
    of.peak_bytes = Some(Bytes::of_balance(peak));
    let bound = |blocks: i64| Bytes::of_balance(counts.upper - peak).max(Bytes::of_balance(peak - counts.lower + blocks.max(0) * SLACK));
    of.peak_bound_bytes = counts.lower_blocks.filter(|_| of.lost == 0).map(bound);
    of.peak_at_s = Some(Nanos(counts.lower_at).seconds_since(Nanos(image.header.mono_ns)));
    of.usable = Some(Usable { live_bytes: Bytes::of_balance(counts.lanes_live()), peak_bytes: Bytes::of_balance(peak) });
}
