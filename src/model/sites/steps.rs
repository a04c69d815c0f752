//! Steps of the replay: as they come, and kept for later.

use crate::model::live::KindId;
use std::collections::VecDeque;

/// Steps of one lane in `[t0, t1]`, in order; see `batch::Steps`.
pub struct Steps<'a> {
    pub requested: &'a [i64],
    /// Kind allocated, 0 for none.
    pub got: &'a [KindId],
    /// Kind ended.
    pub ended: &'a [KindId],
    pub t0: u64,
    pub t1: u64,
}

/// Steps to be played later, one after another.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) requested: Vec<i64>,
    pub(super) got: Vec<KindId>,
    pub(super) ended: Vec<KindId>,
    /// Of each piece: its last step, and its times.
    pub(super) pieces: VecDeque<(usize, u64, u64)>,
}

/// Steps that wait, at most.
pub(super) const WAITING: usize = 1 << 20;

impl Waiting {
    pub(super) fn add(&mut self, steps: &Steps) {
        self.requested.extend_from_slice(steps.requested);
        self.got.extend_from_slice(steps.got);
        self.ended.extend_from_slice(steps.ended);
        self.pieces.push_back((self.requested.len(), steps.t0, steps.t1));
    }
}

impl Steps<'_> {
    /// So many pieces of them, in order.
    pub(super) fn parts(&self, n: usize) -> impl Iterator<Item = Steps<'_>> {
        let len = self.requested.len();
        (0..n).map(move |i| {
            let (from, to) = (i * len / n, (i + 1) * len / n);
            let (requested, got, ended) = (&self.requested[from..to], &self.got[from..to], &self.ended[from..to]);
            Steps { requested, got, ended, t0: self.time_of(from), t1: self.time_of(to) }
        })
    }

    /// Instant of a step: they are spread evenly.
    pub(super) fn time_of(&self, at: usize) -> u64 {
        let n = self.requested.len().max(1) as u128;
        self.t0 + (self.t1.saturating_sub(self.t0) as u128 * at as u128 / n) as u64
    }
}
