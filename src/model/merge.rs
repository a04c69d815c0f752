//! The order of the steps of several lanes in one group, as far as it can be known: by time, interpolated between stamps.
//!
//! The order decides where the peak of the sum lies, nothing else. How far off it can be is [`super::sweep`]'s matter.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
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
    /// Index of the batch in the group.
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
    for w in windows[next..].iter_mut().take_while(|w| w.t0 < t) {
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

/// The order of all steps of a group; `batches` are the windows of each batch, in order.
pub fn order(batches: &[&[Window]]) -> Vec<Run> {
    let mut runs = Vec::new();
    if let [windows] = batches {
        runs.extend(windows.iter().map(|w| Run { batch: 0, steps: w.steps.clone(), t0: w.t0, t1: w.t1 }));
        return runs;
    }
    // Where each batch stands: its current window and the step in it.
    let mut at: Vec<(usize, usize)> = vec![(0, 0); batches.len()];
    let mut due: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::with_capacity(batches.len());
    for (b, windows) in batches.iter().enumerate() {
        if let Some(w) = windows.first() {
            at[b].1 = w.steps.start;
            due.push(Reverse((time_of(w, w.steps.start), b)));
        }
    }
    while let Some(Reverse((_, b))) = due.pop() {
        // Goes on in this lane, by one step at least, until another lane's next step is due.
        let limit = due.peek().map_or(u64::MAX, |Reverse((t, _))| *t);
        let (mut w, mut step) = at[b];
        let mut moved = false;
        while let Some(window) = batches[b].get(w) {
            let from = step.max(window.steps.start);
            step = due_until(window, limit).max(from);
            if step == from && !moved {
                step += 1;
            }
            if step > from {
                moved = true;
                runs.push(Run { batch: b, steps: from..step, t0: time_of(window, from), t1: time_of(window, step - 1) });
            }
            if step < window.steps.end {
                at[b] = (w, step);
                due.push(Reverse((time_of(window, step), b)));
                break;
            }
            w += 1;
        }
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
        let runs = order(&[&a, &b]);
        let got: Vec<_> = runs.iter().map(|r| (r.batch, r.steps.clone())).collect();
        assert_eq!(got, [(0, 0..2), (1, 0..2), (0, 2..4)]);
    }

    proptest! {
        #[test]
        fn every_step_has_its_place_and_lanes_keep_their_order(
            lanes in proptest::collection::vec((0usize..50, 0u64..100, 0u64..100, proptest::collection::vec(0u64..30, 0..8)), 1..6)
        ) {
            let all: Vec<Vec<Window>> = lanes.iter().map(|(n, t0, d, t)| windows(t, 1, *n, *t0, t0 + d)).collect();
            let refs: Vec<&[Window]> = all.iter().map(Vec::as_slice).collect();
            let mut next = vec![0; lanes.len()];
            let mut last = 0;
            for r in order(&refs) {
                prop_assert_eq!(r.steps.start, next[r.batch]);
                next[r.batch] = r.steps.end;
                prop_assert!(r.t1 >= r.t0);
                if lanes.len() > 1 { prop_assert!(r.t0 >= last); last = r.t0; }
            }
            for (n, lane) in next.iter().zip(&lanes) { prop_assert_eq!(*n, lane.0); }
        }
    }
}
