//! What each call site holds over time: live now, at most, and at one instant that is known only afterwards (the heap's peak).
//!
//! To have the set that was live at the peak, nothing is copied when the level rises to a new one. Each site remembers which peak was the last
//! before its latest change; when it changes again and there has been another since, what it held in between is what it held at that peak.
//! So a step costs one comparison more, and the set is exact.
//!
//! Of samples the level is an estimate, and the highest of many estimates is one that is too high. What cannot have been is known: between two
//! `calls` lines no more was live than all lanes' maxima. The peak is where that allows most; of such instants one at which most was live of what is
//! no estimate, and of those the one whose estimate fits best.

mod steps;

use std::collections::VecDeque;
pub use steps::Steps;
use steps::{WAITING, Waiting};

use super::by_thread::ThreadSites;
use super::curve::Curve;
use super::kinds::{Kind, KindTable};
use super::live::KindId;

/// What a site holds; of samples, what they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Balance {
    pub bytes: i64,
    pub blocks: f64,
    /// Of the estimate of `bytes`; 0 where every block is an event.
    pub variance: f64,
}

impl Balance {
    /// What was there and is not any more in `later`, a part of it.
    pub(super) fn less(self, later: Balance) -> Balance {
        Balance {
            bytes: self.bytes.wrapping_sub(later.bytes),
            blocks: self.blocks - later.blocks,
            variance: (self.variance - later.variance).abs(),
        }
    }

    /// By how much it is more than `earlier`, of which nobody knows what has gone since.
    pub(super) fn since(self, earlier: Balance) -> Balance {
        Balance { variance: self.variance + earlier.variance, ..self.less(earlier) }
    }

    /// Adds what is held elsewhere.
    pub fn join(&mut self, other: Balance) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.blocks += other.blocks;
        self.variance += other.variance;
    }

    #[inline]
    pub(super) fn add(&mut self, kind: &Kind, sign: i64) {
        self.bytes = self.bytes.wrapping_add(sign * kind.heft);
        self.blocks += sign as f64 * kind.weight;
        if kind.weight > 1.0 {
            self.variance += sign as f64 * kind.variance();
        }
    }
}

/// One site.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Held {
    pub now: Balance,
    /// At the instant asked for; valid from the step on at which the site changed after it.
    pub then: Balance,
    /// Most bytes.
    pub peak: i64,
    /// Of the estimate of `peak`; 0 where every block is an event.
    pub peak_variance: f64,
    /// Instants that had come when it changed last.
    seen: u32,
    /// What [`Curve::mark`] was then.
    noted: u32,
}

/// Which instant's live set is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Instant {
    /// The one at which most was live.
    #[default]
    Peak,
    /// Nanoseconds on the trace's clock.
    At(u64),
    /// The one at which most was live from the first to the second.
    PeakWithin(u64, u64),
    /// The one at which most was live of what this thread allocated; sites are told apart by thread.
    PeakOf(u32),
}

impl Instant {
    /// Of times since the start, on a clock that was `start` then.
    pub fn on_the_clock(self, start: u64) -> Instant {
        match self {
            Instant::At(t) => Instant::At(start.saturating_add(t)),
            Instant::PeakWithin(from, to) => Instant::PeakWithin(start.saturating_add(from), start.saturating_add(to)),
            other => other,
        }
    }
}

/// What numbers of sites there are.
pub struct Numbers<'a> {
    pub count: usize,
    /// Where they are told apart by thread.
    pub by_thread: Option<&'a ThreadSites>,
}

/// See the module.
#[derive(Debug)]
pub struct SiteBook {
    held: Vec<Held>,
    instant: Instant,
    /// Instants so far: peaks above all before; with [`Instant::At`] 0 or 1.
    instants: u32,
    level: i64,
    peak: i64,
    peak_at: u64,
    /// Of the peak, where levels are estimates.
    rank: Rank,
    /// Of the level, what are blocks of their own, where others are samples.
    certain: i64,
    ceilings: Ceilings,
    /// Steps of samples for which no ceiling has been told yet.
    waiting: Waiting,
    /// When recording is lowered, of what has not been come to.
    lowered: VecDeque<u64>,
    /// Blocks of this size and more, and samples, are events from there on.
    big: u64,
    /// What sites held where it was lowered last, and their peaks before. From there on levels mean nothing.
    before: Option<Vec<(Balance, i64)>>,
    /// What sites held over time.
    pub curve: Curve,
}

type Rank = (i64, i64, i64);

/// What can have been live at most, where blocks are samples.
#[derive(Debug)]
struct Ceilings {
    /// Until when, and bytes; the first is that of the latest step.
    ahead: VecDeque<(u64, i64)>,
    now: i64,
}

impl Ceilings {
    /// How much a level can have been, how much of it is certain, and by how much less it is wrong: of two the higher is the peak.
    fn rank(&self, level: i64, certain: i64) -> Rank {
        (level.min(self.now), certain, self.now.saturating_sub(level).min(0))
    }
}

impl SiteBook {
    /// `base`: live before the first event, of no site.
    pub fn new(base: i64, instant: Instant) -> Self {
        let ceilings = Ceilings { ahead: VecDeque::new(), now: i64::MAX };
        SiteBook {
            held: vec![Held::default()],
            instant,
            instants: 0,
            level: base,
            peak: base,
            peak_at: 0,
            rank: (base, 0, 0),
            certain: 0,
            ceilings,
            waiting: Waiting::default(),
            lowered: VecDeque::new(),
            big: 0,
            before: None,
            curve: Curve::default(),
        }
    }

    /// Recording is lowered at `t`: of blocks from before nobody knows when they end. From there on those of `big` bytes and more are events.
    pub fn lower(&mut self, t: u64, big: u64) {
        self.lowered.push_back(t);
        self.big = big;
    }

    /// What is held from now on is beyond what is held now.
    fn forget_ends(&mut self) {
        let before = self.before.get_or_insert_default();
        before.resize(self.held.len(), Default::default());
        for (before, held) in before.iter_mut().zip(&mut self.held) {
            let since = held.peak.saturating_sub(before.0.bytes);
            *before = (held.now, before.1.max(since));
            held.peak = held.now.bytes;
        }
    }

    /// From the ceiling before until `t` no more than these bytes were live.
    pub fn at_most(&mut self, t: u64, most: i64) {
        self.ceilings.ahead.push_back((t, most));
    }

    /// Plays steps. `exact`: every call is an event, the level is that of `requested`.
    pub fn play(&mut self, steps: &Steps, kinds: &KindTable, sites: &Numbers, exact: bool) {
        if exact {
            return self.play_now(steps, kinds, sites, true);
        }
        self.waiting.add(steps);
        let told = self.ceilings.ahead.back().map_or(0, |(t, _)| *t);
        // Threads' highest levels are told once a second where there are many; groups can come more often.
        if steps.t1 <= told || self.waiting.requested.len() > WAITING {
            self.play_waiting(kinds, sites);
        }
    }

    /// Plays what has waited.
    pub fn play_waiting(&mut self, kinds: &KindTable, sites: &Numbers) {
        let Waiting { requested, got, ended, pieces } = std::mem::take(&mut self.waiting);
        let mut from = 0;
        for (to, t0, t1) in pieces {
            let steps = Steps { requested: &requested[from..to], got: &got[from..to], ended: &ended[from..to], t0, t1 };
            self.play_now(&steps, kinds, sites, false);
            from = to;
        }
    }

    fn play_now(&mut self, steps: &Steps, kinds: &KindTable, sites: &Numbers, exact: bool) {
        let parts = (steps.t1.saturating_sub(steps.t0) / self.curve.width()).min(steps.requested.len() as u64) as usize;
        if parts < 2 {
            return self.play_part(steps, kinds, sites, exact);
        }
        // Longer than what the curve tells apart: piece by piece.
        for part in steps.parts(parts) {
            self.play_part(&part, kinds, sites, exact);
        }
    }

    fn play_part(&mut self, steps: &Steps, kinds: &KindTable, sites: &Numbers, exact: bool) {
        if self.held.len() < sites.count {
            self.held.resize(sites.count, Held::default());
        }
        while self.lowered.front().is_some_and(|t| *t <= steps.t0) {
            self.lowered.pop_front();
            self.forget_ends();
        }
        if self.before.is_some() {
            return self.play_on(steps, kinds);
        }
        self.curve.reach(steps.t1);
        if matches!(self.instant, Instant::At(_) | Instant::PeakOf(_)) {
            self.reach(steps.t0, None);
        }
        match self.instant {
            Instant::Peak if exact => self.play_to_peak::<true>(steps, kinds),
            Instant::Peak => self.play_to_peak::<false>(steps, kinds),
            Instant::At(t) => self.play_to(t, steps, kinds),
            Instant::PeakWithin(from, to) => self.play_within(from, to, steps, kinds, exact),
            Instant::PeakOf(tid) => self.play_thread(tid, steps, kinds, sites.by_thread),
        }
    }

    fn play_to_peak<const EXACT: bool>(&mut self, steps: &Steps, kinds: &KindTable) {
        let ids = steps.got.iter().zip(steps.ended);
        for (at, (change, (&got, &ended))) in steps.requested.iter().zip(ids).enumerate() {
            if EXACT {
                self.change(got, ended, kinds);
                self.level = self.level.wrapping_add(*change);
                if self.level > self.peak {
                    self.peak = self.level;
                    self.instants += 1;
                    self.peak_at = steps.time_of(at);
                }
            } else {
                let t = steps.time_of(at);
                self.reach(t, Some((0, u64::MAX)));
                self.estimate(got, ended, kinds);
                self.look(t);
            }
        }
    }

    /// What is held changes, and no level is looked at. A block that would not be an event now is from before, whatever its time.
    fn play_on(&mut self, steps: &Steps, kinds: &KindTable) {
        let big = self.big;
        let meant = |id: KindId| Some(kinds.get(id)).filter(|k| k.sampled() || k.size >= big).map_or(0, |_| id);
        steps.got.iter().zip(steps.ended).for_each(|(&got, &ended)| _ = self.change(meant(got), meant(ended), kinds));
    }

    /// Goes on to a time: the level is what it was for as long. `within`: where the peak is looked for. What was told last holds from then on.
    fn reach(&mut self, t: u64, within: Option<(u64, u64)>) {
        while let Some(&(until, most)) = self.ceilings.ahead.front() {
            self.ceilings.now = most;
            let Some(&(_, next)) = self.ceilings.ahead.get(1).filter(|_| until < t) else { return };
            self.ceilings.ahead.pop_front();
            self.ceilings.now = next;
            if within.is_some_and(|(from, to)| (from..=to).contains(&until)) {
                self.look(until);
            }
        }
    }

    /// One step where blocks are samples.
    fn estimate(&mut self, got: KindId, ended: KindId, kinds: &KindTable) {
        self.weigh(got, ended, kinds);
        self.level = self.level.wrapping_add(self.change(got, ended, kinds));
    }

    /// What is certain after a step.
    fn weigh(&mut self, got: KindId, ended: KindId, kinds: &KindTable) {
        let certain = |id: KindId| Some(kinds.get(id)).filter(|k| k.weight <= 1.0).map_or(0, |k| k.heft);
        self.certain += certain(got) - certain(ended);
    }

    /// Whether the level is the peak now.
    fn look(&mut self, t: u64) {
        let rank = self.ceilings.rank(self.level, self.certain);
        if rank > self.rank {
            (self.rank, self.peak, self.peak_at) = (rank, self.level, t);
            self.instants += 1;
        }
    }

    fn play_to(&mut self, t: u64, steps: &Steps, kinds: &KindTable) {
        for (at, (&got, &ended)) in steps.got.iter().zip(steps.ended).enumerate() {
            if self.instants == 0 && steps.t1 >= t && steps.time_of(at) > t {
                self.instants = 1;
            }
            self.weigh(got, ended, kinds);
            self.change(got, ended, kinds);
        }
    }

    /// The level that the window begins with counts as one in it.
    fn play_within(&mut self, from: u64, to: u64, steps: &Steps, kinds: &KindTable, exact: bool) {
        let ids = steps.got.iter().zip(steps.ended);
        for (at, (change, (&got, &ended))) in steps.requested.iter().zip(ids).enumerate() {
            let t = steps.time_of(at);
            self.reach(t, (self.instants > 0).then_some((from, to)));
            if t >= from && self.instants == 0 {
                (self.peak, self.peak_at, self.instants) = (self.level, from, 1);
                self.rank = self.ceilings.rank(self.level, self.certain);
            }
            if exact {
                self.change(got, ended, kinds);
                self.level = self.level.wrapping_add(*change);
            } else {
                self.estimate(got, ended, kinds);
            }
            if self.instants > 0 && t <= to {
                self.look(t);
            }
        }
    }

    /// The level is that of one thread's blocks, whoever frees them.
    fn play_thread(&mut self, tid: u32, steps: &Steps, kinds: &KindTable, threads: Option<&ThreadSites>) {
        let of = |id: KindId| {
            let kind = kinds.get(id);
            if threads.is_some_and(|t| t.get(kind.site).1 == tid) { kind.heft } else { 0 }
        };
        for (at, (&got, &ended)) in steps.got.iter().zip(steps.ended).enumerate() {
            self.weigh(got, ended, kinds);
            self.change(got, ended, kinds);
            self.level = self.level.wrapping_add(of(got) - of(ended));
            if self.level > self.peak {
                (self.peak, self.peak_at) = (self.level, steps.time_of(at));
                self.instants += 1;
            }
        }
    }

    /// One step; gives the change of all sites' bytes together.
    #[inline]
    fn change(&mut self, got: KindId, ended: KindId, kinds: &KindTable) -> i64 {
        let mut sum = 0;
        let mut add = |id: KindId, sign: i64| {
            let kind = kinds.get(id);
            let Some(held) = self.held.get_mut(kind.site as usize) else { return };
            if held.noted != self.curve.mark() {
                held.noted = self.curve.mark();
                self.curve.note(kind.site as usize, held.now);
            }
            if held.seen != self.instants {
                held.then = held.now;
                held.seen = self.instants;
            }
            held.now.add(kind, sign);
            sum += sign * kind.heft;
        };
        if got != 0 {
            add(got, 1);
        }
        if ended != 0 {
            add(ended, -1);
        }
        // After both: the old block of a realloc goes in the same step.
        if got != 0
            && let Some(held) = self.held.get_mut(kinds.get(got).site as usize)
        {
            // Its time may be a little off, so that the ceiling is that of the look before: what is certain was live all the same.
            let most = held.now.bytes.min(self.ceilings.now.max(self.certain));
            if most > held.peak {
                // Of what can have been at most so much, no more than that is wrong.
                (held.peak, held.peak_variance) = (most, held.now.variance.min(most as f64 * most as f64));
            }
        }
        sum
    }

    /// Leaves of what is held now what came since recording was lowered.
    fn keep_since(&mut self, before: &[(Balance, i64)]) {
        for (at, held) in self.held.iter_mut().enumerate() {
            let (of, peak) = before.get(at).copied().unwrap_or_default();
            held.peak = peak.max(held.peak.saturating_sub(of.bytes));
            held.now = held.now.less(of);
            // Of what was there before an end may have been told all the same.
            if held.now.bytes < 0 || held.now.blocks < 0.0 {
                held.now = Balance::default();
            }
        }
    }

    /// What all sites held; `then` is final. With the peak's instant and bytes.
    pub fn finish(mut self, by_thread: Option<ThreadSites>) -> SitesEnd {
        match self.instant {
            Instant::Peak => self.reach(u64::MAX, Some((0, u64::MAX))),
            Instant::PeakWithin(from, to) if self.instants > 0 => self.reach(u64::MAX, Some((from, to))),
            _ => {}
        }
        // A peak that never was is at the start, when nothing was live.
        let beyond = self.instants == 0 && matches!(self.instant, Instant::At(_) | Instant::PeakWithin(..));
        if beyond {
            // The trace ends before it.
            self.instants = 1;
        }
        for held in &mut self.held {
            if held.seen != self.instants {
                held.then = held.now;
            }
        }
        std::mem::take(&mut self.lowered).iter().for_each(|_| self.forget_ends());
        if let Some(before) = self.before.take() {
            self.keep_since(&before);
        }
        let SiteBook { held, peak, peak_at, instant, curve, .. } = self;
        SitesEnd { held, peak, peak_at, instant, beyond, by_thread, curve }
    }
}

/// See [`SiteBook::finish`].
#[derive(Clone, Debug, Default)]
pub struct SitesEnd {
    /// By site.
    pub held: Vec<Held>,
    pub peak: i64,
    pub peak_at: u64,
    pub instant: Instant,
    /// Nothing happened after the instant asked for.
    pub beyond: bool,
    pub by_thread: Option<ThreadSites>,
    pub curve: Curve,
}

impl SitesEnd {
    /// The stack's site and the thread of a site's number; no thread where they are not told apart.
    pub fn site_of(&self, number: usize) -> (u32, Option<u32>) {
        let number = number as u32;
        self.by_thread.as_ref().map_or((number, None), |t| {
            let (site, tid) = t.get(number);
            (site, Some(tid))
        })
    }
}

#[cfg(test)]
mod tests;
