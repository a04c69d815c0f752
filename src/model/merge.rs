//! The order of the steps of several lanes, as far as it can be known: by time, interpolated between stamps.
//!
//! The order decides where the peak of the sum lies, nothing else. How far off it can be is [`super::sweep`]'s matter.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

/// Steps of a lane between two stamps; they happened within `[t0, t1]`, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    pub steps: Range<usize>,
    pub t0: u64,
    pub t1: u64,
}

/// Steps of one lane without one of another in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub lane: u32,
    /// Number of the batch.
    pub batch: usize,
    pub steps: Range<usize>,
    pub t0: u64,
    pub t1: u64,
}

/// The windows of a batch of `steps` steps in `[t0, t1]` by its column `t`. Stamps that go backwards or past the end are held within.
pub fn windows(stamps: &[u64], tick_ns: u64, steps: usize, t0: u64, t1: u64) -> Vec<Window> {
    let t1 = t1.max(t0);
    let mut all = Vec::with_capacity(stamps.len() / 2 + 1);
    let (mut from, mut t) = (0, t0);
    for pair in stamps.chunks_exact(2) {
        let to = from.max(usize::try_from(pair[0]).unwrap_or(usize::MAX).saturating_add(from).min(steps));
        let at = t.saturating_add(pair[1].saturating_mul(tick_ns)).min(t1);
        if to > from {
            all.push(Window { steps: from..to, t0: t, t1: at });
        }
        (from, t) = (to, at);
    }
    if from < steps {
        all.push(Window { steps: from..steps, t0: t, t1 });
    }
    all
}

/// Splits the window that step `at` is in: what comes before it happened before `t`, what follows after.
pub fn split_at_step(windows: &mut Vec<Window>, at: usize, t: u64) {
    let i = windows.partition_point(|w| w.steps.end <= at);
    if windows.get(i).is_some_and(|w| w.steps.start < at) {
        let w = windows[i].clone();
        let t = t.clamp(w.t0, w.t1);
        windows[i] = Window { steps: w.steps.start..at, t0: w.t0, t1: t };
        windows.insert(i + 1, Window { steps: at..w.steps.end, t0: t, t1: w.t1 });
    }
}

/// What comes before step `at` happened before `t`, what follows after: also where the windows around it, whose stamps are rounded, say otherwise.
pub fn pin_at_step(windows: &mut Vec<Window>, at: usize, t: u64) {
    split_at_step(windows, at, t);
    let next = windows.partition_point(|w| w.steps.start < at);
    for w in windows[..next].iter_mut().rev().take_while(|w| w.t1 > t) {
        (w.t0, w.t1) = (w.t0.min(t), t);
    }
    begin_at(&mut windows[next..], t);
}

/// All of it happened after `t`.
pub fn begin_at(windows: &mut [Window], t: u64) {
    for w in windows.iter_mut().take_while(|w| w.t0 < t) {
        (w.t0, w.t1) = (t, w.t1.max(t));
    }
}

/// Splits at a time the window that it is in, where steps lie on both sides of it.
pub fn split_at_time(windows: &mut Vec<Window>, t: u64) {
    if let Some(w) = windows.get(windows.partition_point(|w| w.t1 <= t)).filter(|w| w.t0 <= t) {
        let at = due_until(w, t);
        split_at_step(windows, at, t);
    }
}

/// How many of a batch's steps happened until `t`.
pub fn steps_until(windows: &[Window], t: u64) -> usize {
    let i = windows.partition_point(|w| w.t1 <= t);
    let whole = i.checked_sub(1).and_then(|i| windows.get(i)).map_or(0, |w| w.steps.end);
    windows.get(i).filter(|w| w.t0 <= t).map_or(whole, |w| due_until(w, t).max(whole))
}

/// Time of step `at` of a window, steps spread evenly.
fn time_of(window: &Window, at: usize) -> u64 {
    let n = window.steps.len() as u64 + 1;
    let i = (at - window.steps.start) as u64 + 1;
    let span = window.t1 - window.t0;
    window.t0 + span.checked_mul(i).map_or_else(|| (span as u128 * i as u128 / n as u128) as u64, |product| product / n)
}

/// Steps of a batch that are to be put in order.
#[derive(Clone, Debug)]
pub struct Piece<'a> {
    /// Number that its runs have.
    pub batch: usize,
    pub lane: u32,
    /// Of the whole batch.
    pub windows: &'a [Window],
    pub steps: Range<usize>,
}

/// What of a window is to be put in order.
struct Clip<'a> {
    lane: u32,
    batch: usize,
    window: &'a Window,
    steps: Range<usize>,
}

impl Piece<'_> {
    fn clips(&self) -> impl DoubleEndedIterator<Item = Clip<'_>> {
        let from = self.windows.partition_point(|w| w.steps.end <= self.steps.start);
        let until = self.windows.partition_point(|w| w.steps.start < self.steps.end);
        self.windows.get(from..until).unwrap_or(&[]).iter().map(|window| Clip {
            lane: self.lane,
            batch: self.batch,
            window,
            steps: window.steps.start.max(self.steps.start)..window.steps.end.min(self.steps.end),
        })
    }
}

impl Clip<'_> {
    fn run(&self, steps: Range<usize>) -> Run {
        let (t0, t1) = (time_of(self.window, steps.start), time_of(self.window, steps.end - 1));
        Run { lane: self.lane, batch: self.batch, steps, t0, t1 }
    }

    /// Where no other lane's steps come between: a whole window has all of its time.
    fn alone(&self) -> Run {
        let run = self.run(self.steps.clone());
        if self.steps == self.window.steps { Run { t0: self.window.t0, t1: self.window.t1, ..run } } else { run }
    }
}

/// The order of the steps of all pieces; those of one lane follow each other.
pub fn order(pieces: &[Piece]) -> Vec<Run> {
    // Of each lane what is left, the next last.
    let mut lanes: BTreeMap<u32, Vec<Clip>> = BTreeMap::new();
    for piece in pieces.iter().rev().filter(|piece| !piece.steps.is_empty()) {
        lanes.entry(piece.lane).or_default().extend(piece.clips().rev());
    }
    let mut lanes: Vec<Vec<Clip>> = lanes.into_values().collect();
    if let [clips] = &lanes[..] {
        return clips.iter().rev().map(Clip::alone).collect();
    }
    let mut runs = Vec::new();
    let next = |clips: &[Clip]| clips.last().map(|c| time_of(c.window, c.steps.start));
    let mut due: BinaryHeap<_> = lanes.iter().enumerate().filter_map(|(lane, clips)| Some(Reverse((next(clips)?, lane)))).collect();
    while let Some(Reverse((_, lane))) = due.pop() {
        // Goes on in this lane, by one step at least, until another lane's next step is due.
        let limit = due.peek().map_or(u64::MAX, |Reverse((t, _))| *t);
        let clips = &mut lanes[lane];
        let mut moved = false;
        while let Some(clip) = clips.last_mut() {
            let from = clip.steps.start;
            let mut to = due_until(clip.window, limit).clamp(from, clip.steps.end);
            to += (to == from && !moved) as usize;
            if to > from {
                moved = true;
                runs.push(clip.run(from..to));
                clip.steps.start = to;
            }
            if !clip.steps.is_empty() {
                break;
            }
            clips.pop();
        }
        due.extend(next(clips).map(|t| Reverse((t, lane))));
    }
    runs
}

/// The first step of a window whose time is after `limit`.
fn due_until(window: &Window, limit: u64) -> usize {
    if limit >= window.t1 {
        return window.steps.end;
    }
    let Some(ahead) = limit.checked_sub(window.t0) else { return window.steps.start };
    // floor(span·i / n) ≤ ahead  ⇔  i < (ahead + 1)·n / span; the first step has i = 1.
    let (n, span) = (window.steps.len() as u64 + 1, window.t1 - window.t0);
    let i = match (ahead + 1).checked_mul(n) {
        Some(product) => product.div_ceil(span),
        None => ((ahead + 1) as u128 * n as u128).div_ceil(span as u128) as u64,
    };
    (window.steps.start + i as usize - 1).min(window.steps.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn stamps_cut_a_batch_into_windows() {
        let w = windows(&[10, 5, 20, 1], 100, 40, 1000, 2000);
        assert_eq!(
            w,
            [
                Window { steps: 0..10, t0: 1000, t1: 1500 },
                Window { steps: 10..30, t0: 1500, t1: 1600 },
                Window { steps: 30..40, t0: 1600, t1: 2000 }
            ]
        );
        assert_eq!(windows(&[], 100, 2, 5, 4), [Window { steps: 0..2, t0: 5, t1: 5 }]);
        assert_eq!(windows(&[9, u64::MAX], 100, 3, 5, 9), [Window { steps: 0..3, t0: 5, t1: 9 }]);
    }

    #[test]
    fn a_window_is_split_at_a_step_or_a_time() {
        let mut w = windows(&[], 100, 40, 1000, 2000);
        split_at_step(&mut w, 10, 1900);
        split_at_time(&mut w, 1950);
        let got: Vec<_> = w.iter().map(|w| (w.steps.clone(), w.t0, w.t1)).collect();
        assert_eq!(got, [(0..10, 1000, 1900), (10..25, 1900, 1950), (25..40, 1950, 2000)]);
        assert_eq!([999, 1000, 1900, 1951, 2000, 3000].map(|t| steps_until(&w, t)), [0, 0, 10, 25, 40, 40]);
        split_at_step(&mut w, 40, 2000);
        split_at_step(&mut w, 0, 0);
        split_at_time(&mut w, 3000);
        assert_eq!(w.len(), 3);
    }

    #[test]
    fn what_is_pinned_lies_on_its_side_of_the_instant() {
        // Stamps are rounded down: the second window begins before the edge that stands before it.
        let mut w = windows(&[10, 5, 20, 1], 100, 40, 1000, 2000);
        pin_at_step(&mut w, 10, 1550);
        pin_at_step(&mut w, 20, 1580);
        let got: Vec<_> = w.iter().map(|w| (w.steps.clone(), w.t0, w.t1)).collect();
        assert_eq!(got, [(0..10, 1000, 1500), (10..20, 1550, 1580), (20..30, 1580, 1600), (30..40, 1600, 2000)]);
        pin_at_step(&mut w, 30, 1570);
        assert_eq!((w[2].t0, w[2].t1, w[1].t1), (1570, 1570, 1570), "a clock that says otherwise");
    }

    #[test]
    fn lanes_take_turns_by_time() {
        let a = windows(&[2, 10], 1, 4, 0, 20);
        let b = windows(&[], 1, 2, 9, 12);
        let piece = |batch, lane, windows, steps| Piece { batch, lane, windows, steps };
        let got = |pieces: &[Piece]| order(pieces).iter().map(|r| (r.batch, r.steps.clone())).collect::<Vec<_>>();
        assert_eq!(got(&[piece(0, 7, &a, 0..4), piece(1, 8, &b, 0..2)]), [(0, 0..2), (1, 0..2), (0, 2..4)]);
        // Parts of batches, and two of one lane, the second of which has times before the first one's end.
        assert_eq!(got(&[piece(0, 7, &a, 1..3), piece(1, 8, &b, 1..2)]), [(0, 1..2), (1, 1..2), (0, 2..3)]);
        assert_eq!(got(&[piece(0, 7, &a, 0..4), piece(1, 7, &b, 0..2)]), [(0, 0..2), (0, 2..4), (1, 0..2)]);
        assert_eq!(got(&[piece(0, 7, &a, 3..4), piece(1, 7, &b, 0..1), piece(2, 8, &b, 2..2)]), [(0, 3..4), (1, 0..1)]);
    }

    proptest! {
        #[test]
        fn every_step_has_its_place_and_lanes_keep_their_order(
            lanes in proptest::collection::vec((0usize..50, 0u64..100, 0u64..100, proptest::collection::vec(0u64..30, 0..8)), 1..6)
        ) {
            let all: Vec<Vec<Window>> = lanes.iter().map(|(n, t0, d, t)| windows(t, 1, *n, *t0, t0 + d)).collect();
            let whole = all.iter().zip(&lanes).enumerate();
            let pieces: Vec<_> = whole.map(|(i, (windows, lane))| Piece { batch: i, lane: i as u32, windows, steps: 0..lane.0 }).collect();
            let mut next = vec![0; lanes.len()];
            let mut last = 0;
            for r in order(&pieces) {
                prop_assert_eq!(r.steps.start, next[r.batch]);
                next[r.batch] = r.steps.end;
                prop_assert!(r.t1 >= r.t0);
                if lanes.len() > 1 { prop_assert!(r.t0 >= last); last = r.t0; }
            }
            for (n, lane) in next.iter().zip(&lanes) { prop_assert_eq!(*n, lane.0); }
        }
    }
}
