//! Steps that took much longer than the others, and what they did differently.

use super::{Step, quantile};
use crate::analyze::report::{Difference, Outlier};
use crate::model::units::Bytes;

const OUTLIERS: usize = 10;
/// Beyond the median so many times the median deviation, scaled to a standard deviation.
const FAR: f64 = 5.0 * 1.4826;
/// Of a step's time, and of the time that it took longer: less on a processor explains nothing.
const CPU_SHARE: f64 = 0.2;

/// What steps are compared by beside their time, and what a difference is at least.
pub const FIGURES: [(&str, f64); 9] = [
    ("cpu_s", 0.0),
    ("minor_faults", 32.0),
    ("major_faults", 0.5),
    ("voluntary_switches", 4.0),
    ("involuntary_switches", 4.0),
    ("read_bytes", 65536.0),
    ("written_bytes", 65536.0),
    ("heap_transient_bytes", 65536.0),
    ("heap_persistent_bytes", 65536.0),
];
const CPU: usize = 0;

/// A number's place among those of all steps.
#[derive(Clone, Copy, Debug, Default)]
struct Usual {
    median: f64,
    /// Median deviation from it.
    off: f64,
}

impl Usual {
    fn of(mut all: Vec<f64>) -> Usual {
        all.sort_unstable_by(f64::total_cmp);
        let median = quantile(&all, 0.5);
        all.iter_mut().for_each(|v| *v = (*v - median).abs());
        all.sort_unstable_by(f64::total_cmp);
        Usual { median, off: quantile(&all, 0.5) }
    }

    /// Steps of a very even program stand out only where they are half as much again.
    fn limit(&self) -> f64 {
        (FAR * self.off).max(self.median.abs() / 2.0)
    }
}

/// Those that took longest, the longest first.
pub fn outliers(all: &[Step]) -> Vec<Outlier> {
    let wall = Usual::of(all.iter().map(|s| s.wall_s).collect());
    let mut far: Vec<(usize, &Step)> = all.iter().enumerate().filter(|(_, s)| s.wall_s > wall.median + wall.limit()).collect();
    if far.is_empty() {
        return Vec::new();
    }
    far.sort_by(|a, b| b.1.wall_s.total_cmp(&a.1.wall_s));
    far.truncate(OUTLIERS);
    // A figure is compared where all steps have it.
    let usual: [Option<Usual>; FIGURES.len()] =
        std::array::from_fn(|f| all.iter().map(|s| s.figures[f]).collect::<Option<Vec<f64>>>().map(Usual::of));
    far.into_iter().map(|(i, s)| outlier(i, s, wall.median, &usual)).collect()
}

fn outlier(index: usize, s: &Step, median_s: f64, usual: &[Option<Usual>; FIGURES.len()]) -> Outlier {
    let longer = s.wall_s - median_s;
    let differs = FIGURES.iter().enumerate().filter_map(|(f, &(what, least))| {
        let (value, usual) = (s.figures[f]?, usual[f]?);
        let least = if f == CPU { median_s * CPU_SHARE } else { least };
        let clear = (value - usual.median).abs() > usual.limit().max(least);
        clear.then_some(Difference { what, value, median: usual.median })
    });
    let cpu = s.figures[CPU].zip(usual[CPU]).map(|(cpu, usual)| cpu - usual.median);
    Outlier {
        index: index as u64,
        begin_s: s.begin_s,
        wall_s: s.wall_s,
        heap_peak_bytes: Bytes::of_balance(s.heap_peak),
        heap_persistent_bytes: s.heap_persistent,
        waited: cpu.map(|more| more < longer * CPU_SHARE),
        differs: differs.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps of a millisecond, all of it on a processor.
    fn even() -> Vec<Step> {
        let step = |i: usize| {
            let wall_s = 1e-3 + (i % 3) as f64 * 1e-5;
            let figures = [wall_s, 3.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1000.0, 0.0].map(Some);
            Step { begin_s: i as f64, wall_s, figures, ..Step::default() }
        };
        (0..50).map(step).collect()
    }

    #[test]
    fn a_step_that_takes_much_longer_stands_out_with_what_it_did() {
        assert_eq!(outliers(&even()), []);
        let mut all = even();
        all[7].wall_s = 5e-3;
        (all[20].wall_s, all[20].heap_peak) = (9e-3, 99);
        all[20].figures = [9e-3, 900.0, 0.0, 1.0, 0.0, 0.0, 1e6, 1000.0, 0.0].map(Some);
        let found = outliers(&all);
        assert_eq!(found.iter().map(|o| (o.index, o.waited)).collect::<Vec<_>>(), [(20, Some(false)), (7, Some(true))]);
        assert_eq!(found[0].heap_peak_bytes, Bytes(99));
        let differs: Vec<(&str, f64)> = found[0].differs.iter().map(|d| (d.what, d.value)).collect();
        assert_eq!(differs, [("cpu_s", 9e-3), ("minor_faults", 900.0), ("written_bytes", 1e6)]);
        assert_eq!(found[0].differs[1].median, 3.0);
        assert_eq!(found[1].differs, [], "it waited, and that is all");
    }

    #[test]
    fn what_is_not_known_of_every_step_is_not_compared() {
        let mut all = even();
        (all[7].wall_s, all[7].figures[1], all[3].figures[1], all[9].figures[CPU]) = (5e-3, Some(900.0), None, None);
        let found = outliers(&all);
        assert_eq!((found.len(), found[0].waited, found[0].differs.len()), (1, None, 0));
    }
}
