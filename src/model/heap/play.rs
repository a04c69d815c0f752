//! Steps on their way from the groups that they were read in to what follows them.
//!
//! Rings are read one after another, so that groups are not in the order of their times: what a lane did before another's events can stand many
//! groups further on. A group says up to which instant everything has been read, and steps wait until that has come to theirs. So whatever is
//! played, by lanes and over groups, is played in the order of time, as far as that is known.

use super::Batch;
use super::Heap;
use crate::model::left::Turn;
use crate::model::merge::{self, Piece, Run};
use crate::model::sites;
use crate::model::track::{Cut, Part, Track, is_before};
use std::cell::LazyCell;
use std::collections::VecDeque;
use std::ops::Range;

/// Steps that wait, at most: twice of what all rings together hold. Then they are played as they came.
const HELD: usize = 1 << 20;

/// What is read and not played yet.
#[derive(Default)]
pub(super) struct Waiting {
    /// Those of one lane follow each other.
    batches: VecDeque<Batch>,
    /// Number of the first.
    first: usize,
    /// Steps of them that are not played.
    steps: usize,
    /// By time, places by number of the batch.
    cuts: Vec<Cut>,
    turns: Vec<(Cut, Turn)>,
}

impl Waiting {
    /// A group, and what its edges are, with places in it.
    pub(super) fn add(&mut self, batches: Vec<Batch>, cuts: Vec<Cut>, turns: Vec<(Cut, Turn)>) {
        let base = self.first + self.batches.len();
        let numbered = |cut: Cut| Cut { place: cut.place.map(|(batch, step)| (base + batch, step)), ..cut };
        self.cuts.extend(cuts.into_iter().map(numbered));
        self.cuts.sort_by_key(|cut| cut.t);
        self.turns.extend(turns.into_iter().map(|(cut, turn)| (numbered(cut), turn)));
        self.turns.sort_by_key(|(cut, _)| cut.t);
        self.steps += batches.iter().map(|b| b.steps.len()).sum::<usize>();
        batches.iter().for_each(|next| self.end_before(next));
        self.batches.extend(batches);
    }

    /// What waits of a lane happened before what comes next of it, whose first step's time is known when the next one's is.
    fn end_before(&mut self, next: &Batch) {
        let Some(mut first) = next.windows.first().cloned() else { return };
        for batch in self.batches.iter_mut().rev().filter(|b| b.lane == next.lane) {
            let Some(last) = batch.windows.last_mut() else { continue };
            let until = if first.t0 > last.t0 { first.t0 } else { first.t1 };
            if last.t1 <= until {
                return;
            }
            last.t1 = until.max(last.t0);
            let [only] = &batch.windows[..] else { return };
            first = only.clone();
        }
    }

    /// A place among the batches that wait; one that was played as it came has its time only.
    fn here(&self, cut: Cut) -> Cut {
        Cut { place: cut.place.and_then(|(batch, step)| Some((batch.checked_sub(self.first)?, step))), ..cut }
    }

    /// Takes the edges until `t`, in their order; batches are split where they are.
    fn due(&mut self, t: u64) -> (Vec<Cut>, Vec<(Cut, Turn)>) {
        let (cuts, turns) = (self.cuts.partition_point(|cut| cut.t <= t), self.turns.partition_point(|(cut, _)| cut.t <= t));
        let cuts: Vec<Cut> = self.cuts.drain(..cuts).collect();
        let turns: Vec<(Cut, Turn)> = self.turns.drain(..turns).collect();
        let cuts: Vec<Cut> = cuts.into_iter().map(|cut| self.here(cut)).collect();
        let turns = turns.into_iter().map(|(cut, turn)| (self.here(cut), turn)).collect();
        for cut in &cuts {
            for (at, batch) in self.batches.iter_mut().enumerate() {
                if cut.place.is_none_or(|(own, _)| own != at) {
                    merge::split_at_time(&mut batch.windows, cut.t);
                }
            }
        }
        (cuts, turns)
    }

    /// Which steps are of `t` or before; a lane's come in their order.
    fn until(&self, t: u64) -> Vec<Range<usize>> {
        let mut behind: Vec<u32> = Vec::new();
        let mut range = |b: &Batch| {
            let to = if behind.contains(&b.lane) { b.played } else { merge::steps_until(&b.windows, t).clamp(b.played, b.steps.len()) };
            if to < b.steps.len() {
                behind.push(b.lane);
            }
            b.played..to
        };
        self.batches.iter().map(&mut range).collect()
    }

    /// So many steps of each batch are played; gives those of which nothing is left.
    fn played(&mut self, ranges: &[Range<usize>]) -> impl Iterator<Item = Batch> {
        for (batch, range) in self.batches.iter_mut().zip(ranges) {
            batch.played = range.end;
            self.steps -= range.len();
        }
        let done = self.batches.iter().take_while(|b| b.played == b.steps.len()).count();
        self.first += done;
        self.batches.drain(..done)
    }
}

impl Heap {
    /// Plays what happened until `t`, which has been read.
    pub(super) fn play_until(&mut self, t: u64, sites: usize) {
        let mut waiting = std::mem::take(&mut self.waiting);
        let t = if waiting.steps > HELD { u64::MAX } else { t };
        let (cuts, mut turns) = waiting.due(t);
        let ranges = waiting.until(t);
        let batches = &waiting.batches;
        let runs = LazyCell::new(|| {
            let all = batches.iter().zip(&ranges).enumerate();
            let pieces = all.map(|(batch, (b, steps))| Piece { batch, lane: b.lane, windows: &b.windows, steps: steps.clone() });
            merge::order(&pieces.collect::<Vec<_>>())
        });
        let play = |track: &mut Track, changes: fn(&Batch) -> &[i64], cuts: Vec<Cut>| {
            let parts = batches.iter().zip(&ranges).map(|(b, steps)| Part { changes: changes(b), steps: steps.clone() });
            track.play(&parts.collect::<Vec<_>>(), || runs.as_slice(), cuts);
        };
        play(&mut self.requested, |b| &b.steps.requested, cuts);
        play(&mut self.usable, |b| &b.steps.usable, Vec::new());
        if let Some(slack) = &mut self.slack {
            play(slack, |b| &b.slack, Vec::new());
        }
        if let Some((bytes, count)) = &mut self.selected {
            play(bytes, |b| &b.steps.selected, Vec::new());
            play(count, |b| &b.steps.selected_count, Vec::new());
        }
        if self.sites.is_some() {
            turns.reverse();
            for run in runs.iter() {
                self.play_sites(&batches[run.batch], run, &mut turns, sites);
            }
        }
        if let Some(left) = &mut self.left {
            turns.iter().rev().for_each(|(_, turn)| left.turn(turn));
        }
        for mut done in waiting.played(&ranges) {
            done.clear();
            self.spare.push(done);
        }
        self.waiting = waiting;
    }

    /// One run, for the call sites. Takes the turns before it off the end of `turns`.
    fn play_sites(&mut self, batch: &Batch, run: &Run, turns: &mut Vec<(Cut, Turn)>, sites: usize) {
        let Some(book) = &mut self.sites else { return };
        let count = self.by_thread.as_ref().map_or(sites, |t| t.len());
        let s = &batch.steps;
        let (requested, got, ended) = (&s.requested[run.steps.clone()], &s.got[run.steps.clone()], &s.ended[run.steps.clone()]);
        let steps = sites::Steps { requested, got, ended, t0: run.t0, t1: run.t1 };
        book.play(&steps, &self.kinds, &sites::Numbers { count, by_thread: self.by_thread.as_ref() }, self.exact);
        if let Some(left) = &mut self.left {
            while let Some((_, turn)) = turns.pop_if(|(cut, _)| is_before(cut, run)) {
                left.turn(&turn);
            }
            left.play(&steps, &self.kinds, self.exact);
        }
    }
}
