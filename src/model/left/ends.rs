//! What a place held at the ends of a phase that repeats, so that at the end of the run it can be told who held more and more.
//!
//! How often a phase will repeat nobody knows beforehand, and it may be a million times. So ends on a grid are told apart, 64 to 127 of
//! them, which gets coarser as there are more; where a place held the same at several, it notes that once.

use crate::model::judged::{self, LAST_OF};
use crate::model::sites::Balance;

/// Ends told apart at least, once there have been so many.
const GRID: u32 = 64;

/// How far from each other the ends are that are told apart, of so many.
fn grid(ends: u32) -> u32 {
    1 << (ends / GRID).max(1).ilog2()
}

/// Of so many ends the first that growth is told from, counted from 1 on: where the first is that is judged, or the next that is told apart.
pub fn first_told(ends: u32) -> u32 {
    (judged::first(ends as usize) as u32 + 1).next_multiple_of(grid(ends))
}

/// From which end on, counted from 1 on, what was held; until the next note. Before the first it was nothing.
#[derive(Debug, Default)]
pub(super) struct Ends(Vec<(u32, Balance)>);

impl Ends {
    /// At the ends after the one numbered `seen`, up to `count`, it held `now`. `noted`: notes that there are.
    pub(super) fn hold(&mut self, seen: u32, count: u32, now: Balance, noted: &mut usize) {
        let grid = grid(count);
        let from = (seen + 1).next_multiple_of(grid);
        let before = self.0.last().map_or(Balance::default(), |(_, held)| *held);
        if from > count || before == now {
            return;
        }
        if self.0.len() >= 2 * GRID as usize {
            *noted -= self.0.len();
            self.thin(grid);
            *noted += self.0.len();
        }
        self.0.push((from, now));
        *noted += 1;
    }

    /// Of notes that are of the same end of a coarser grid the last one says what was held there.
    fn thin(&mut self, grid: u32) {
        self.0.iter_mut().for_each(|(from, _)| *from = from.next_multiple_of(grid));
        self.0.reverse();
        self.0.dedup_by_key(|(from, _)| *from);
        self.0.reverse();
    }

    fn at(&self, end: u32) -> Balance {
        let next = self.0.partition_point(|(from, _)| *from <= end);
        next.checked_sub(1).map_or(Balance::default(), |at| self.0[at].1)
    }

    /// By how much what was held grew from the first end that is told on up to the last part of the way ([`LAST_OF`]), from there to the last
    /// end, at which it held `last`, and in all: the two parts have an end in common, so that their variances do not add up.
    pub(super) fn grown(&self, ends: u32, last: Balance) -> [Balance; 3] {
        if (ends as usize) < judged::LEAK_STEPS_MIN {
            return Default::default();
        }
        let first = first_told(ends);
        let later = self.at((first + (ends - first) / LAST_OF * (LAST_OF - 1)).next_multiple_of(grid(ends)));
        let first = self.at(first);
        [later.since(first), last.since(later), last.since(first)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balance(bytes: i64) -> Balance {
        Balance { bytes, blocks: bytes as f64, variance: 0.0 }
    }

    /// Growth of a place that holds so much at each of its ends, changing after it where the next differs.
    fn grown(ends: u32, held: impl Fn(u32) -> i64) -> ([i64; 3], usize) {
        let (mut all, mut seen, mut noted) = (Ends::default(), 0, 0);
        for end in 1..=ends {
            if end == ends || held(end) != held(end + 1) {
                all.hold(seen, end, balance(held(end)), &mut noted);
                seen = end;
            }
        }
        assert_eq!(noted, all.0.len());
        (all.grown(ends, balance(held(ends))).map(|b| b.bytes), noted)
    }

    #[test]
    fn growth_is_exact_however_many_ends_there_are() {
        for ends in [10, 63, 64, 127, 128, 129, 1000, 4097, 100_000] {
            let ([early, late, both], noted) = grown(ends, |end| i64::from(end) * 10);
            assert_eq!((early + late, both), (both, i64::from(ends - first_told(ends)) * 10), "{ends}");
            assert!((early - 2 * late).abs() <= 3 * 10 * i64::from(grid(ends) + 2), "{ends}: two thirds {early}, the last {late}");
            assert!(noted <= 2 * GRID as usize + 1, "{ends}: {noted}");
            assert!(first_told(ends) - ends / 10 <= ends / GRID + 1, "{ends}");
        }
    }

    #[test]
    fn what_warms_up_does_not_grow_and_what_jumps_or_stops_grows_in_one_part() {
        assert_eq!(grown(1000, |end| i64::from(end.min(90))).0, [0, 0, 0]);
        assert_eq!(grown(1000, |end| if end < 300 { 5 } else { 80 }).0, [75, 0, 75]);
        assert_eq!(grown(1000, |end| if end < 900 { 5 } else { 80 }).0, [0, 75, 75]);
        assert_eq!(grown(1000, |end| i64::from(end.min(600)) * 10).0[1], 0);
        assert_eq!(grown(1000, |_| 0), ([0, 0, 0], 0), "nothing to note of what is gone by each end");
        assert_eq!(grown(9, i64::from).0, [0, 0, 0], "too few");
    }

    /// Of what was there at the first end all may have gone since; what was there in between is in neither end's error.
    #[test]
    fn the_error_of_growth_is_that_of_its_two_ends() {
        let (mut all, mut noted) = (Ends::default(), 0);
        let of = |end: u32| Balance { variance: f64::from(end), ..balance(i64::from(end)) };
        (1..=60).for_each(|end| all.hold(end - 1, end, of(end), &mut noted));
        assert_eq!((first_told(60), all.grown(60, of(60)).map(|b| (b.bytes, b.variance))), (7, [(34, 48.0), (19, 101.0), (53, 67.0)]));
    }
}
