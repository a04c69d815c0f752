//! A phase that repeats: does it grow, and which of its times stand out?
//!
//! Growth is the median of the slopes between all pairs of steps (Theil and Sen), with the interval that Kendall's statistic gives: a few
//! steps that load something, or a cache that fills at the start, do not move it. The first tenth is warming up and is left out. Where less
//! grows in the last third of the rest, what grows there is the growth: what has stopped is a cache that has filled.

mod figures;
mod growth;
mod outliers;

use super::report::{Growth, Steps};
use crate::model::judged;
pub use figures::{by_class, of_one};
use growth::Slope;
pub use growth::{LEAK_STEP, STEPS_MIN, in_words};
pub use judged::LEAK_STEPS_MIN;
use outliers::{FIGURES, outliers};

/// One time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Step {
    pub begin_s: f64,
    pub wall_s: f64,
    /// Heap live at its end.
    pub level: i64,
    pub heap_peak: i64,
    pub heap_persistent: i64,
    /// What it did, in the order of [`FIGURES`].
    pub figures: [Option<f64>; FIGURES.len()],
}

/// Steps between which slopes are taken; of more, evenly chosen ones.
const JUDGED: usize = 600;

/// The growth a step, and what is to be said of the steps; `None` where there are too few.
pub fn steps(all: &[Step]) -> Option<(f64, Steps)> {
    if all.len() < STEPS_MIN {
        return None;
    }
    let judged = all[judged::first(all.len())..].iter().enumerate();
    let points: Vec<(f64, f64)> = judged.map(|(at, s)| (at as f64, s.level as f64)).collect();
    let slope = Slope::going_on(&points, JUDGED);
    let said = Steps {
        growth_low_bytes: slope.low,
        growth_high_bytes: slope.high,
        growth_total_bytes: slope.total(all.len()),
        leaks: slope.leaks(all.len()),
        outliers: outliers(all),
        ..Steps::default()
    };
    Some((slope.median, said))
}

/// The growth of the heap as that of a class; `change`: what is live at the last end less what was at the first begin.
pub fn of_heap(per_count: f64, said: &Steps, change: i64) -> Growth {
    Growth {
        per_count_bytes: per_count,
        low_bytes: said.growth_low_bytes,
        high_bytes: said.growth_high_bytes,
        total_bytes: said.growth_total_bytes,
        leaks: said.leaks,
        change_bytes: change,
    }
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
    use crate::model::units::Bytes;

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
            // Caches that fill later: at once, and as what is asked for comes at random.
            levels((0..1000).map(|i| i.min(600) << 14)),
            levels((0..60).map(|i| (i.min(36) << 14) + noise(i, 3000))),
            levels((0..600).map(|i| (1e7 * (1.0 - (-i as f64 / 90.0).exp())) as i64)),
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
