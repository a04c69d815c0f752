//! What the steps of a phase did and held, from what is known at their edges.

use super::growth::{self, Around};
use super::outliers::FIGURES;
use crate::analyze::report::{Growth, GrowthByClass};
use crate::model::judged::LEAK_STEPS_MIN;
use crate::model::phases::{Instance, Metric, PhasesEnd};

/// What one time did, in the order of [`FIGURES`]; `heap`: what it needed only meanwhile, and left behind.
pub fn of_one(p: &PhasesEnd, i: &Instance, heap: [i64; 2]) -> [Option<f64>; FIGURES.len()] {
    let usage = |edge: u32| p.edges.get(edge as usize)?.usage;
    let used = usage(i.begin).zip(usage(i.end));
    let used = |at: usize| used.map(|(begin, end)| end[at].saturating_sub(begin[at]) as f64);
    let (begin, end) = (p.moved(i.begin), p.moved(i.end));
    let moved = |at: usize| Some(end[at]?.saturating_sub(begin[at]?) as f64);
    let [meanwhile, left] = heap.map(|bytes| Some(bytes as f64));
    let cpu_s = used(0).map(|ns| ns / 1e9);
    [cpu_s, used(1), used(2), used(3), used(4), moved(0), moved(1), meanwhile, left]
}

fn looked_at(p: &PhasesEnd, metric: Metric, i: &Instance) -> bool {
    p.is_noted(metric, i.begin) && p.is_noted(metric, i.end)
}

/// Growth of what is known beside the heap, whose own is told where it is; `has`: GPUs, and Python's own blocks.
pub fn by_class(p: &PhasesEnd, times: &[&Instance], heap: Option<Growth>, has: [bool; 2]) -> GrowthByClass {
    let around = |metric: Metric, known: &dyn Fn(&Instance) -> bool| -> Vec<Around> {
        let known = times.iter().enumerate().filter(|(_, i)| known(i));
        known.map(|(step, i)| Around { step, begin: p.at(metric, i.begin), end: p.at(metric, i.end) }).collect()
    };
    let all = |metric: Metric| growth::growth(&around(metric, &|_| true), times.len());
    // Their counts come now and then: at edges where that is often enough, else whatever was counted last.
    let python = || {
        let looked = around(Metric::Python, &|i| looked_at(p, Metric::Python, i));
        if looked.len() < LEAK_STEPS_MIN { all(Metric::Python) } else { growth::growth(&looked, times.len()) }
    };
    let [has_gpu, has_python] = has;
    GrowthByClass {
        heap,
        python: has_python.then(python).flatten(),
        maps: all(Metric::Maps),
        rss: growth::resident(&around(Metric::Rss, &|i| looked_at(p, Metric::Rss, i)), times.len()),
        gpu: has_gpu.then(|| all(Metric::Gpu)).flatten(),
        pinned: has_gpu.then(|| all(Metric::Pinned)).flatten(),
    }
}
