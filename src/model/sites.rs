//! What each call site holds over time: live now, at most, and at one instant that is known only afterwards (the heap's peak).
//!
//! To have the set that was live at the peak, nothing is copied when the level rises to a new one. Each site remembers which peak was the last
//! before its latest change; when it changes again and there has been another since, what it held in between is what it held at that peak.
//! So a step costs one comparison more, and the set is exact.
//!
//! Of samples the level is an estimate, and the highest of many estimates is one that is too high. What cannot have been is known: between two
//! `calls` lines no more was live than all lanes' maxima. The peak is where that allows most, and of such instants the one whose estimate fits best.

use std::collections::VecDeque;

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
    rank: (i64, i64),
    ceilings: Ceilings,
    /// What sites held over time.
    pub curve: Curve,
}

/// What can have been live at most, where blocks are samples.
#[derive(Debug)]
struct Ceilings {
    /// Until when, and bytes; the first is that of the latest step.
    ahead: VecDeque<(u64, i64)>,
    now: i64,
}

impl Ceilings {
    /// How much a level can have been, and by how much less it is wrong: of two the higher is the peak.
    fn rank(&self, level: i64) -> (i64, i64) {
        (level.min(self.now), self.now.saturating_sub(level).min(0))
    }
}

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

impl Steps<'_> {
    /// So many pieces of them, in order.
    fn parts(&self, n: usize) -> impl Iterator<Item = Steps<'_>> {
        let len = self.requested.len();
        (0..n).map(move |i| {
            let (from, to) = (i * len / n, (i + 1) * len / n);
            let (requested, got, ended) = (&self.requested[from..to], &self.got[from..to], &self.ended[from..to]);
            Steps { requested, got, ended, t0: self.time_of(from), t1: self.time_of(to) }
        })
    }

    /// Instant of a step: they are spread evenly.
    fn time_of(&self, at: usize) -> u64 {
        let n = self.requested.len().max(1) as u128;
        self.t0 + (self.t1.saturating_sub(self.t0) as u128 * at as u128 / n) as u64
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
            rank: (base, 0),
            ceilings,
            curve: Curve::default(),
        }
    }

    /// From the ceiling before until `t` no more than these bytes were live. Told before the steps of that time are played.
    pub fn at_most(&mut self, t: u64, most: i64) {
        self.ceilings.ahead.push_back((t, most));
    }

    /// Plays steps. `exact`: every call is an event, the level is that of `requested`.
    pub fn play(&mut self, steps: &Steps, kinds: &KindTable, sites: &Numbers, exact: bool) {
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
                self.level = self.level.wrapping_add(self.change(got, ended, kinds));
                self.look(t);
            }
        }
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

    /// Whether the level is the peak now.
    fn look(&mut self, t: u64) {
        let rank = self.ceilings.rank(self.level);
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
                self.rank = self.ceilings.rank(self.level);
            }
            let sum = self.change(got, ended, kinds);
            self.level = self.level.wrapping_add(if exact { *change } else { sum });
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
            held.peak = held.peak.max(held.now.bytes.min(self.ceilings.now));
        }
        sum
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
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Kinds of 100 bytes at sites 1 to 4, by site.
    fn kinds() -> (KindTable, Vec<KindId>) {
        let mut k = KindTable::new(&[], 1000);
        assert!(k.define(1, 0, 100, 0, 0));
        let base = k.id(1);
        let ids = (0..5).map(|site| k.at_site(base, site)).collect();
        (k, ids)
    }

    #[test]
    fn the_set_at_the_peak_is_that_of_a_naive_model() {
        let (kinds, ids) = kinds();
        let mut random = 88172645463325252u64;
        let mut below = |n: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % n
        };
        for _ in 0..200 {
            let (mut got, mut ended, mut requested) = (Vec::new(), Vec::new(), Vec::new());
            let mut now: HashMap<usize, i64> = HashMap::new();
            let mut own_peak: HashMap<usize, i64> = HashMap::new();
            let (mut level, mut peak, mut then) = (0i64, 0i64, HashMap::new());
            for _ in 0..below(60) {
                let (site, free) = (below(5) as usize, below(5) as usize);
                let frees = now.get(&free).is_some_and(|n| *n > 0) && below(2) == 0;
                let allocs = !frees || below(4) == 0;
                got.push(if allocs { ids[site] } else { 0 });
                ended.push(if frees { ids[free] } else { 0 });
                if allocs {
                    *now.entry(site).or_default() += 100;
                }
                if frees {
                    *now.entry(free).or_default() -= 100;
                }
                if allocs {
                    let p = own_peak.entry(site).or_default();
                    *p = (*p).max(now[&site]);
                }
                let change = 100 * (allocs as i64 - frees as i64);
                requested.push(change);
                level += change;
                if level > peak {
                    (peak, then) = (level, now.clone());
                }
            }
            let mut book = SiteBook::new(0, Instant::Peak);
            for at in 0..got.len() {
                let one = at..at + 1;
                let steps =
                    Steps { requested: &requested[one.clone()], got: &got[one.clone()], ended: &ended[one], t0: at as u64, t1: at as u64 };
                book.play(&steps, &kinds, &Numbers { count: 5, by_thread: None }, true);
            }
            let end = book.finish(None);
            assert_eq!(end.peak, peak);
            for (site, held) in end.held.iter().enumerate() {
                assert_eq!(held.then.bytes, then.get(&site).copied().unwrap_or(0));
                assert_eq!(held.now.bytes, now.get(&site).copied().unwrap_or(0));
                assert_eq!(held.peak, own_peak.get(&site).copied().unwrap_or(0));
            }
        }
    }

    #[test]
    fn any_instant_can_be_asked_for() {
        let (kinds, ids) = kinds();
        for (t, expected) in [(0, 0), (999, 0), (1000, 100), (1005, 200), (1999, 400), (5000, 400)] {
            let mut book = SiteBook::new(0, Instant::At(t));
            let got = [ids[1]; 4];
            // At 1000, 1002, 1005, 1007.
            book.play(
                &Steps { requested: &[100; 4], got: &got, ended: &[0; 4], t0: 1000, t1: 1010 },
                &kinds,
                &Numbers { count: 5, by_thread: None },
                true,
            );
            let end = book.finish(None);
            let held = end.held[1].then.bytes;
            assert_eq!(held, if t == 1005 { 300 } else { expected }, "{t}");
        }
    }

    #[test]
    fn samples_stand_for_what_was_not_sampled() {
        let mut k = KindTable::new(&[], 1000);
        k.define(1, 0, 100, 0, memshim_format::record::SAMPLED as u32);
        let base = k.id(1);
        let id = k.at_site(base, 1);
        let mut book = SiteBook::new(0, Instant::Peak);
        book.play(&Steps { requested: &[100], got: &[id], ended: &[0], t0: 0, t1: 0 }, &k, &Numbers { count: 2, by_thread: None }, false);
        let end = book.finish(None);
        let p = 1.0 - (-0.1f64).exp();
        assert_eq!(end.held[1].then.bytes, (100.0 / p).round() as i64);
        assert!((end.held[1].then.blocks - 1.0 / p).abs() < 1e-9);
        assert!((end.held[1].then.variance - 1e4 * (1.0 - p) / (p * p)).abs() < 1e-6);
    }

    #[test]
    fn the_peak_of_samples_is_where_so_much_can_have_been_live() {
        let mut k = KindTable::new(&[], 100);
        // Each stands for 158 bytes.
        k.define(1, 0, 100, 0, memshim_format::record::SAMPLED as u32);
        let base = k.id(1);
        let ids: Vec<KindId> = (0..4).map(|site| k.at_site(base, site)).collect();
        let numbers = Numbers { count: 4, by_thread: None };
        // At site 1 seven samples are live at 10, by the counts 200 bytes at most were until then; at site 2 three, of 500.
        let play = |told: &[(u64, i64)]| {
            let mut book = SiteBook::new(0, Instant::Peak);
            told.iter().for_each(|&(t, most)| book.at_most(t, most));
            for (t, site, live) in [(10, 1, 7), (30, 2, 3)] {
                for (got, ended) in [(ids[site], 0), (0, ids[site])] {
                    let (got, ended) = (vec![got; live], vec![ended; live]);
                    book.play(&Steps { requested: &vec![0; live], got: &got, ended: &ended, t0: t, t1: t }, &k, &numbers, false);
                }
            }
            let end = book.finish(None);
            (end.peak_at, [1, 2].map(|site| (end.held[site].then.bytes, end.held[site].peak)))
        };
        assert_eq!(play(&[]), (10, [(7 * 158, 7 * 158), (0, 3 * 158)]));
        assert_eq!(play(&[(20, 200), (40, 500)]), (30, [(0, 200), (3 * 158, 3 * 158)]));
        // Where it is told that so much was live at 10, it is there; where not much was at any time, where the estimate fits best.
        assert_eq!(play(&[(20, 900), (40, 500)]), (10, [(6 * 158, 900), (0, 3 * 158)]));
        assert_eq!(play(&[(20, 150), (40, 150)]), (10, [(158, 150), (0, 150)]));
        // What was told last holds for what comes after it.
        assert_eq!(play(&[(5, 200)]), (10, [(2 * 158, 200), (0, 200)]));
    }

    #[test]
    fn a_level_of_samples_lasts_into_the_time_that_allows_it() {
        let mut k = KindTable::new(&[], 100);
        k.define(1, 0, 1000, 0, 0);
        let base = k.id(1);
        let id = k.at_site(base, 1);
        let numbers = Numbers { count: 2, by_thread: None };
        for (most, at) in [(2000, 20), (10, 15)] {
            let mut book = SiteBook::new(0, Instant::Peak);
            book.at_most(20, 10);
            book.at_most(40, most);
            book.play(&Steps { requested: &[1000], got: &[id], ended: &[0], t0: 15, t1: 15 }, &k, &numbers, false);
            let end = book.finish(None);
            assert_eq!((end.peak, end.peak_at, end.held[1].then.bytes), (1000, at, 1000));
        }
    }
}
