//! How memory grows over the steps of a phase: the median slope of a class at their ends, and whether that is a leak. What grew and then stopped
//! is none.
//!
//! Pure: levels in, an answer out. What the levels are of is the caller's.

use super::quantile;
use crate::analyze::report::Growth;
use crate::model::judged::{self, LAST_OF};

/// Fewer say nothing of growth.
pub const STEPS_MIN: usize = 3;
/// A step that leaves less behind is not called a leak: interpreters keep a few small objects a step (lists of results, logs, interned names).
pub const LEAK_STEP: f64 = 512.0;
/// But so many bytes in all are one.
const LEAK_TOTAL: f64 = 10.0 * 1024.0 * 1024.0;
/// z of a 95 % interval.
const Z: f64 = 1.959_963_985;
/// Points of the last part ([`LAST_OF`]) below which it is not judged by itself.
const LAST_MIN: usize = 6;
/// Growth of a smaller share there than before has stopped, or is another one.
const GOES_ON: f64 = 0.5;
/// Points of a class other than the heap between which slopes are taken.
const POINTS: usize = 200;

/// A slope, and the interval of 95 % confidence; bytes a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slope {
    pub median: f64,
    pub low: f64,
    pub high: f64,
}

impl Slope {
    /// Between all pairs of points, of which there are `most` at most: of more, evenly chosen ones.
    pub fn of(points: &[(f64, f64)], most: usize) -> Slope {
        let Some(first) = points.first() else { return Slope::default() };
        if points.iter().all(|p| p.1 == first.1) {
            return Slope::default();
        }
        let n = points.len().min(most);
        let at = |i: usize| if n > 1 { i * (points.len() - 1) / (n - 1) } else { 0 };
        let chosen: Vec<(f64, f64)> = (0..n).map(|i| points[at(i)]).collect();
        let mut slopes: Vec<f64> = Vec::with_capacity(n * n / 2);
        for (i, a) in chosen.iter().enumerate() {
            slopes.extend(chosen[i + 1..].iter().filter(|b| b.0 > a.0).map(|b| (b.1 - a.1) / (b.0 - a.0)));
        }
        slopes.sort_unstable_by(f64::total_cmp);
        let median = quantile(&slopes, 0.5);
        // Var of Kendall's S, without ties.
        let m = n as f64;
        let c = Z * (m * (m - 1.0) * (2.0 * m + 5.0) / 18.0 * hang_together(&chosen, median)).sqrt();
        let pairs = slopes.len() as f64;
        let rank = |r: f64| slopes.get((r.max(0.0) as usize).min(slopes.len().saturating_sub(1))).copied().unwrap_or(0.0);
        Slope { median, low: rank(((pairs - c) / 2.0).floor()), high: rank(((pairs + c) / 2.0).ceil()) }
    }

    /// The growth that goes on: that of all points, or where it is clearly less in the last part of them, the one there. A cache that has filled
    /// grows no more, however long that took.
    pub fn going_on(points: &[(f64, f64)], most: usize) -> Slope {
        let all = Slope::of(points, most);
        // Points may stand thicker in one part than in another.
        let (Some(first), Some(end)) = (points.first(), points.last()) else { return all };
        let later = end.0 - (end.0 - first.0) / f64::from(LAST_OF);
        let last = &points[points.partition_point(|p| p.0 < later)..];
        let (Some(from), Some(to)) = (last.first(), last.last()) else { return all };
        if last.len() < LAST_MIN || all.median <= 0.0 {
            return all;
        }
        let slope = Slope::of(last, most);
        // Growth by jumps, some steps apart, may look flat between them: what it comes to counts as well.
        let grown = to.1 - from.1;
        let stopped = slope.high < all.median * GOES_ON && grown < all.median * GOES_ON * (to.0 - from.0);
        if stopped { slope } else { all }
    }

    /// Over so many steps, all told.
    pub fn total(&self, count: usize) -> f64 {
        self.median * count as f64
    }

    /// Whether it is more than what a steady program keeps.
    pub fn leaks(&self, count: usize) -> bool {
        count >= judged::LEAK_STEPS_MIN && self.low > 0.0 && (self.low >= LEAK_STEP || self.total(count) > LEAK_TOTAL)
    }
}

/// By how much the variance of Kendall's S is larger than of as many independent points: a working set of which each step changes a part is at one step
/// much what it was at the one before. By the autocorrelation of ranks without the slope (Hamed and Rao, J. Hydrol. 204, 1998), as far as it is significant
/// from the first lag on.
fn hang_together(points: &[(f64, f64)], slope: f64) -> f64 {
    let n = points.len();
    let ranks = ranks(&points.iter().map(|p| p.1 - slope * p.0).collect::<Vec<f64>>());
    let square: f64 = ranks.iter().map(|r| r * r).sum();
    if square == 0.0 || n < STEPS_MIN {
        return 1.0;
    }
    let at = |lag: usize| ranks[lag..].iter().zip(&ranks).map(|(a, b)| a * b).sum::<f64>() / square;
    let significant = (1..n / 3).map(|lag| (lag, at(lag))).take_while(|(_, r)| *r > Z / (n as f64).sqrt());
    let triples = |n: usize| n as f64 * (n as f64 - 1.0) * (n as f64 - 2.0);
    1.0 + 2.0 * significant.map(|(lag, r)| triples(n - lag) * r).sum::<f64>() / triples(n)
}

/// Each value's rank, from their middle on; equal ones have one between theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|a, b| values[*a].total_cmp(&values[*b]));
    let middle = (values.len() as f64 - 1.0) / 2.0;
    let mut ranks = vec![0.0; values.len()];
    let mut below = 0;
    for equal in order.chunk_by(|a, b| values[*a] == values[*b]) {
        for i in equal {
            ranks[*i] = below as f64 + (equal.len() as f64 - 1.0) / 2.0 - middle;
        }
        below += equal.len();
    }
    ranks
}

/// A class of memory as a report's keys have it, in words.
pub fn in_words(class: &str) -> &str {
    match class {
        "maps" => "committed maps",
        "gpu" => "GPU memory",
        "pinned" => "pinned memory",
        "python" => "Python objects",
        "rss" => "resident memory",
        other => other,
    }
}

/// What was live of a class when a step began and when it ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Around {
    /// Which step, from 0 on.
    pub step: usize,
    pub begin: i64,
    pub end: i64,
}

/// Of the steps that are known of `count`. As of the heap, what counts is what they leave behind themselves and is there still.
pub fn growth(known: &[Around], count: usize) -> Option<Growth> {
    let (first, last) = (known.first()?, known.last()?);
    if known.len() < STEPS_MIN {
        return None;
    }
    let from = known.partition_point(|a| a.step < judged::first(count));
    let level: Vec<(f64, f64)> = known[from..].iter().map(|a| (a.step as f64, a.end as f64)).collect();
    let mut slope = Slope::going_on(&level, POINTS);
    if slope.median > 0.0 {
        let mut left = 0.0;
        let own = known.iter().enumerate().map(|(at, a)| {
            left += (a.end - a.begin) as f64;
            (at as f64, left)
        });
        let own = Slope::going_on(&own.collect::<Vec<_>>()[from..], POINTS);
        slope = if own.median < slope.median { own } else { slope };
    }
    Some(Growth { change_bytes: last.end.saturating_sub(first.begin), ..said(slope, count) })
}

/// Of resident memory: pages of older blocks that are touched for the first time are no leak.
pub fn resident(known: &[Around], count: usize) -> Option<Growth> {
    // It is looked at now and then, perhaps in one part of the steps alone: what it has really come to counts as well.
    growth(known, count).map(|g| Growth { leaks: g.leaks && g.total_bytes > LEAK_TOTAL && g.change_bytes as f64 > LEAK_TOTAL, ..g })
}

fn said(slope: Slope, count: usize) -> Growth {
    Growth {
        per_count_bytes: slope.median,
        low_bytes: slope.low,
        high_bytes: slope.high,
        total_bytes: slope.total(count),
        leaks: slope.leaks(count),
        change_bytes: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(n: usize, of: impl Fn(usize) -> (i64, i64)) -> Vec<Around> {
        (0..n).map(|step| (step, of(step))).map(|(step, (begin, end))| Around { step, begin, end }).collect()
    }

    #[test]
    fn a_page_a_step_is_a_leak_of_the_steps_that_leave_it() {
        let g = growth(&steps(100, |i| (4096 * i as i64, 4096 * (i as i64 + 1))), 100).unwrap();
        assert_eq!(
            (g.per_count_bytes, g.low_bytes, g.high_bytes, g.total_bytes, g.change_bytes),
            (4096.0, 4096.0, 4096.0, 409_600.0, 409_600)
        );
        assert!(g.leaks);
        let beside = growth(&steps(100, |i| (4096 * i as i64, 4096 * i as i64)), 100).unwrap();
        assert_eq!((beside.per_count_bytes, beside.leaks), (0.0, false), "somebody else's");
    }

    #[test]
    fn of_some_steps_the_slope_is_still_one_a_step() {
        let all = steps(900, |i| (1000 * i as i64, 1000 * (i as i64 + 1)));
        let some: Vec<Around> = all.into_iter().filter(|a| a.step % 3 == 0).collect();
        let g = growth(&some, 900).unwrap();
        assert_eq!((g.per_count_bytes, g.leaks), (1000.0, true));
        assert_eq!(resident(&some, 900).map(|g| g.leaks), Some(false), "below 10 MiB");
        assert_eq!(growth(&some[..2], 900), None);
        let early = steps(600, |i| (12_288 * i as i64, 12_288 * (i as i64 + 1)));
        let looks: Vec<Around> = early.into_iter().filter(|a| a.step % 50 == 0).collect();
        assert_eq!(resident(&looks, 1000).map(|g| (g.total_bytes > LEAK_TOTAL, g.leaks)), Some((true, false)), "nobody looked later");
    }

    /// Points of a level, one a step.
    fn points(n: i64, of: impl Fn(i64) -> i64) -> Vec<(f64, f64)> {
        (0..n).map(|i| (i as f64, of(i) as f64)).collect()
    }

    #[test]
    fn growth_that_stops_is_none_and_one_that_goes_on_beside_it_is_what_it_is() {
        for n in [18, 60, 200, 600, 1000] {
            let fills = |i: i64| 10_240 * i.min(n * 6 / 10);
            assert_eq!(Slope::going_on(&points(n, fills), 600), Slope::default(), "{n}");
            assert!(Slope::of(&points(n, fills), 600).low > 512.0, "{n}: of all steps it is growth");
            let beside = Slope::going_on(&points(n, |i| fills(i) + 1024 * i), 600);
            assert_eq!((beside.low, beside.median, beside.high), (1024.0, 1024.0, 1024.0), "{n}");
        }
    }

    #[test]
    fn growth_by_jumps_goes_on_between_them() {
        for every in 1..=12 {
            for first in 0..every {
                let jumps = Slope::going_on(&points(60, |i| 1024 * every * ((i + first) / every)), 600);
                assert!(jumps.low >= 512.0, "every {every} from {first}: {jumps:?}");
            }
        }
    }

    /// A working set of so many blocks of random sizes, of which each step puts one in another one's place, beside what it keeps: its level at the ends.
    fn working_set(seed: u64, steps: i64, blocks: usize, most: u64, kept: i64) -> Vec<(f64, f64)> {
        let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = |below: u64| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 11) % below
        };
        let mut sizes: Vec<i64> = (0..blocks).map(|_| random(most) as i64).collect();
        points(steps, |_| 0)
            .into_iter()
            .map(|(step, _)| {
                let (at, size) = (random(blocks as u64) as usize, random(most) as i64);
                sizes[at] = size;
                (step, (sizes.iter().sum::<i64>() + kept * (step as i64 + 1)) as f64)
            })
            .collect()
    }

    #[test]
    fn a_working_set_that_changes_bit_by_bit_is_no_growth_and_a_leak_beside_it_is_one() {
        for (steps, blocks) in [(300, 32), (1000, 64)] {
            let leaks = |kept: i64, most: u64| {
                let of = |seed| Slope::going_on(&working_set(seed, steps, blocks, most, kept), POINTS).leaks(steps as usize);
                (1..=60).filter(|seed| of(*seed)).count()
            };
            let (none, all) = (leaks(0, 100_000), leaks(1024, 4000));
            assert!(none <= 60 / 20 && all == 60, "{blocks} blocks, {steps} steps: more than one of twenty: {none}; {all}");
        }
    }

    #[test]
    fn ranks_of_equal_values_are_one() {
        assert_eq!(ranks(&[5.0, 1.0, 5.0, 9.0]), [0.0, -1.5, 0.0, 1.5]);
        let alternating: Vec<(f64, f64)> = (0..40).map(|i| (f64::from(i), f64::from(i % 2))).collect();
        assert_eq!(hang_together(&alternating, 0.0), 1.0, "no more than of independent points");
        let halves: Vec<(f64, f64)> = (0..40).map(|i| (f64::from(i), f64::from(i / 20))).collect();
        assert!(hang_together(&halves, 0.0) > 5.0);
    }

    #[test]
    fn what_fills_while_warming_up_is_no_growth() {
        let g = growth(&steps(100, |i| (i.min(9) as i64 * 5000, (i + 1).min(9) as i64 * 5000)), 100).unwrap();
        assert_eq!((g.per_count_bytes, g.leaks, g.change_bytes), (0.0, false, 45_000));
    }
}
