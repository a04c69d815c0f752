//! A phase that repeats: does it grow, and which of its times stand out?
//!
//! Growth is the median of the slopes between all pairs of steps (Theil and Sen), with the interval that Kendall's statistic gives: a few
//! steps that load something, or a cache that fills at the start, do not move it. The first tenth is warming up and is left out.

use super::report::{Outlier, Steps};
use crate::model::units::Bytes;

/// One time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Step {
    pub begin_s: f64,
    pub wall_s: f64,
    /// Heap live at its end.
    pub level: i64,
    pub heap_peak: i64,
    pub heap_persistent: i64,
}

/// Fewer say nothing of growth.
pub const STEPS_MIN: usize = 3;
/// Steps between which slopes are taken; of more, evenly chosen ones.
const JUDGED: usize = 600;
/// A step that leaves less behind is not called a leak: interpreters keep a few small objects a step (lists of results, logs, interned names).
const LEAK_STEP: f64 = 512.0;
/// But so many bytes in all are one.
const LEAK_TOTAL: f64 = 10.0 * 1024.0 * 1024.0;
/// Steps below which a slope is no verdict.
const LEAK_STEPS_MIN: usize = 10;
/// z of a 95 % interval.
const Z: f64 = 1.959_963_985;
const OUTLIERS: usize = 10;
/// Beyond the median so many times the median deviation, scaled to a standard deviation.
const FAR: f64 = 5.0 * 1.4826;

/// The growth a step, and what is to be said of the steps; `None` where there are too few.
pub fn steps(all: &[Step]) -> Option<(f64, Steps)> {
    if all.len() < STEPS_MIN {
        return None;
    }
    let judged = &all[if all.len() >= LEAK_STEPS_MIN { all.len() / 10 } else { 0 }..];
    let n = judged.len().min(JUDGED);
    let at = |i: usize| if n > 1 { i * (judged.len() - 1) / (n - 1) } else { 0 };
    let points: Vec<(f64, f64)> = (0..n).map(at).map(|i| (i as f64, judged[i].level as f64)).collect();
    let mut slopes: Vec<f64> = Vec::with_capacity(n * n / 2);
    for (i, a) in points.iter().enumerate() {
        slopes.extend(points[i + 1..].iter().filter(|b| b.0 > a.0).map(|b| (b.1 - a.1) / (b.0 - a.0)));
    }
    slopes.sort_unstable_by(f64::total_cmp);
    let slope = quantile(&slopes, 0.5);
    // Var of Kendall's S, without ties.
    let m = n as f64;
    let c = Z * (m * (m - 1.0) * (2.0 * m + 5.0) / 18.0).sqrt();
    let pairs = slopes.len() as f64;
    let rank = |r: f64| slopes.get((r.max(0.0) as usize).min(slopes.len().saturating_sub(1))).copied().unwrap_or(0.0);
    let (low, high) = (rank(((pairs - c) / 2.0).floor()), rank(((pairs + c) / 2.0).ceil()));
    let total = slope * all.len() as f64;
    let leaks = all.len() >= LEAK_STEPS_MIN && low > 0.0 && (low >= LEAK_STEP || total > LEAK_TOTAL);
    let said = Steps { growth_low_bytes: low, growth_high_bytes: high, growth_total_bytes: total, leaks, outliers: outliers(all) };
    Some((slope, said))
}

fn outliers(all: &[Step]) -> Vec<Outlier> {
    let mut walls: Vec<f64> = all.iter().map(|s| s.wall_s).collect();
    walls.sort_unstable_by(f64::total_cmp);
    let median = quantile(&walls, 0.5);
    let mut off: Vec<f64> = walls.iter().map(|w| (w - median).abs()).collect();
    off.sort_unstable_by(f64::total_cmp);
    // Steps of a very even program stand out only where they take half as long again.
    let limit = median + (FAR * quantile(&off, 0.5)).max(median / 2.0);
    let mut far: Vec<(usize, &Step)> = all.iter().enumerate().filter(|(_, s)| s.wall_s > limit).collect();
    far.sort_by(|a, b| b.1.wall_s.total_cmp(&a.1.wall_s));
    far.into_iter()
        .take(OUTLIERS)
        .map(|(i, s)| Outlier {
            index: i as u64,
            begin_s: s.begin_s,
            wall_s: s.wall_s,
            heap_peak_bytes: Bytes::of_balance(s.heap_peak),
            heap_persistent_bytes: s.heap_persistent,
        })
        .collect()
}

/// Of sorted numbers, between neighbours by proportion; 0 of none.
pub fn quantile(sorted: &[f64], q: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = q * last as f64;
    let (low, part) = (at.floor() as usize, at.fract());
    let (a, b) = (sorted[low.min(last)], sorted[(low + 1).min(last)]);
    a + (b - a) * part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(of: impl Iterator<Item = i64>) -> Vec<Step> {
        of.map(|level| Step { level, wall_s: 1.0, ..Step::default() }).collect()
    }

    /// Numbers that look like noise and are the same each time.
    fn noise(i: i64, size: i64) -> i64 {
        (i.wrapping_mul(0x5851_f42d_4c95_7f2d) >> 33).rem_euclid(2 * size + 1) - size
    }

    #[test]
    fn a_kilobyte_a_step_is_found_in_noise_a_hundred_times_as_large() {
        let (slope, said) = steps(&levels((0..1000).map(|i| 1024 * i + noise(i, 100_000)))).unwrap();
        assert!((slope - 1024.0).abs() < 40.0, "{slope}");
        assert!(said.leaks && said.growth_low_bytes < 1024.0 && 1024.0 < said.growth_high_bytes, "{said:?}");
    }

    #[test]
    fn steady_programs_and_small_growth_are_no_leaks() {
        for all in [
            levels((0..1000).map(|i| 5_000_000 + noise(i, 100_000))),
            levels((0..500).map(|i| 240 * i)),
            // A cache that fills at the start.
            levels((0..200).map(|i| if i < 15 { i << 20 } else { 15 << 20 })),
            // One step that loads something.
            levels((0..200).map(|i| if i < 120 { 0 } else { 90 << 20 })),
            levels([1 << 30, 2 << 30, 3 << 30].into_iter()),
        ] {
            assert!(!steps(&all).unwrap().1.leaks);
        }
        assert!(steps(&levels((0..100_000).map(|i| 240 * i))).unwrap().1.leaks, "24 MB in all");
        assert_eq!(steps(&levels(0..2)), None);
    }

    #[test]
    fn a_step_that_takes_much_longer_stands_out() {
        let mut all = levels(0..50);
        all.iter_mut().enumerate().for_each(|(i, s)| s.wall_s = 1.0 + (i % 3) as f64 * 0.01);
        (all[7].wall_s, all[7].heap_peak) = (4.0, 99);
        let found = steps(&all).unwrap().1.outliers;
        assert_eq!((found.len(), found[0].index, found[0].heap_peak_bytes), (1, 7, Bytes(99)));
    }

    #[test]
    fn quantiles_lie_between_neighbours() {
        assert_eq!((quantile(&[1.0, 2.0, 4.0], 0.5), quantile(&[1.0, 3.0], 0.75), quantile(&[], 0.5)), (2.0, 2.5, 0.0));
    }
}
