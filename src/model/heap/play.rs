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
use crate::model::track::{Cut, Part, Place, Track, is_before};
use std::cell::LazyCell;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;

/// Steps that wait, at most: twice of what all rings together hold; and batches. Then they are played as they came.
const HELD: usize = 1 << 20;
const BATCHES: usize = 1 << 14;

/// What is read and not played yet.
#[derive(Default)]
pub(super) struct Waiting {
    /// Those of one lane follow each other.
    batches: VecDeque<Batch>,
    /// Number of the first.
    first: usize,
    /// Number of each lane's last.
    last: HashMap<u32, usize>,
    /// Steps of them that are not played.
    steps: usize,
    /// By time, places by number of the batch.
    cuts: Vec<Cut>,
    turns: Vec<(Cut, Turn)>,
    /// Until when all is played.
    until: u64,
}

impl Waiting {
    /// A group, and what its edges are, with places in it.
    pub(super) fn add(&mut self, batches: Vec<Batch>, cuts: Vec<Cut>, turns: Vec<(Cut, Turn)>) {
        let base = self.first + self.batches.len();
        let numbered = |cut: Cut| Cut { place: cut.place.map(|place| Place { batch: base + place.batch, ..place }), ..cut };
        self.cuts.extend(cuts.into_iter().map(numbered));
        self.cuts.sort_by_key(|cut| cut.t);
        self.turns.extend(turns.into_iter().map(|(cut, turn)| (numbered(cut), turn)));
        self.turns.sort_by_key(|(cut, _)| cut.t);
        self.steps += batches.iter().map(|b| b.steps.len()).sum::<usize>();
        for (number, mut batch) in (base..).zip(batches) {
            batch.before = self.last.insert(batch.lane, number);
            self.end_before(&batch);
            self.batches.push_back(batch);
        }
    }

    /// What waits of a lane happened before what comes next of it, whose first step's time is known when the next one's is.
    fn end_before(&mut self, next: &Batch) {
        let (mut first, mut before) = (next.windows.first().cloned(), next.before);
        while let Some(number) = before
            && let Some(batch) = number.checked_sub(self.first).and_then(|at| self.batches.get_mut(at))
        {
            before = batch.before;
            let (Some(next), Some(last)) = (&first, batch.windows.last_mut()) else {
                // It has no steps: what comes after it says as much of the one before.
                first = first.or_else(|| batch.windows.first().cloned());
                continue;
            };
            let until = if next.t0 > last.t0 { next.t0 } else { next.t1 };
            if last.t1 <= until {
                return;
            }
            last.t1 = until.max(last.t0);
            let [only] = &batch.windows[..] else { return };
            first = Some(only.clone());
        }
    }

    /// Among the batches that wait; what is played is before all of them.
    fn here(&self, place: Place) -> Place {
        place.batch.checked_sub(self.first).map_or(Place { batch: 0, step: 0, ..place }, |batch| Place { batch, ..place })
    }

    /// Takes the edges until `t`, in their order; batches are split where they are.
    fn due(&mut self, t: u64) -> (Vec<Cut>, Vec<(Cut, Turn)>) {
        let (cuts, turns) = (self.cuts.partition_point(|cut| cut.t <= t), self.turns.partition_point(|(cut, _)| cut.t <= t));
        let cuts: Vec<Cut> = self.cuts.drain(..cuts).collect();
        let turns: Vec<(Cut, Turn)> = self.turns.drain(..turns).collect();
        let here = |cut: Cut| Cut { place: cut.place.map(|place| self.here(place)), ..cut };
        let cuts: Vec<Cut> = cuts.into_iter().map(here).collect();
        let turns = turns.into_iter().map(|(cut, turn)| (here(cut), turn)).collect();
        for cut in &cuts {
            for batch in self.batches.iter_mut().filter(|b| cut.place.is_none_or(|place| place.lane != b.lane)) {
                merge::split_at_time(&mut batch.windows, cut.t);
            }
        }
        (cuts, turns)
    }

    /// Which steps are of `t` or before; a lane's come in their order, and those before an edge of its own that is `due` are, and none behind
    /// one that is not.
    fn ready<'a>(&self, t: u64, due: impl Iterator<Item = &'a Cut>) -> Vec<Range<usize>> {
        let mut least: HashMap<u32, Place> = HashMap::new();
        for place in due.filter_map(|cut| cut.place) {
            least.entry(place.lane).and_modify(|p| *p = place.max(*p)).or_insert(place);
        }
        let mut most: HashMap<u32, Place> = HashMap::new();
        let later = self.cuts.iter().chain(self.turns.iter().map(|(cut, _)| cut));
        for place in later.filter_map(|cut| cut.place).map(|place| self.here(place)) {
            most.entry(place.lane).and_modify(|p| *p = place.min(*p)).or_insert(place);
        }
        let mut behind: HashSet<u32> = HashSet::new();
        let range = |(number, b): (usize, &Batch)| {
            // Steps of this batch that are before a place.
            let steps = |place: &Place| match number.cmp(&place.batch) {
                Ordering::Less => b.steps.len(),
                Ordering::Equal => place.step,
                Ordering::Greater => 0,
            };
            let mut to = if behind.contains(&b.lane) { 0 } else { merge::steps_until(&b.windows, t) };
            to = to.max(least.get(&b.lane).map_or(0, steps)).min(most.get(&b.lane).map_or(usize::MAX, steps));
            to = to.clamp(b.played, b.steps.len());
            if to < b.steps.len() {
                behind.insert(b.lane);
            }
            b.played..to
        };
        self.batches.iter().enumerate().map(range).collect()
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
        let is_full = self.waiting.steps > HELD || self.waiting.batches.len() > BATCHES;
        let t = if is_full { u64::MAX } else { t };
        if t <= self.waiting.until {
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        // All of what is there says nothing of what is read next.
        waiting.until = if t < u64::MAX { t } else { waiting.until };
        let (cuts, mut turns) = waiting.due(t);
        let ranges = waiting.ready(t, cuts.iter().chain(turns.iter().map(|(cut, _)| cut)));
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
