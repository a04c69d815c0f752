//! What each call site held at instants spread over a run whose length nobody knows beforehand: for the ramps of a curve that is cut up at the end.
//!
//! Time is cut into epochs. A site that changes for the first time in one notes what it held until then; a site that does not change notes
//! nothing. When there are too many epochs, two become one.

use super::sites::{Balance, Held};

/// Epochs at most; at least half as many once the run has lasted that long.
const EPOCHS: u64 = 256;
/// Length of the first ones.
const SHORTEST_NS: u64 = 4_000_000;

/// See the module.
#[derive(Clone, Debug)]
pub struct Curve {
    start: u64,
    width: u64,
    epoch: u32,
    /// Of epochs, those before a joining of two included.
    mark: u32,
    /// By site: epochs in which it changed, and what it held before.
    notes: Vec<Vec<(u32, Balance)>>,
    on: bool,
}

impl Default for Curve {
    fn default() -> Self {
        Curve { start: 0, width: SHORTEST_NS, epoch: 0, mark: 1, notes: Vec::new(), on: true }
    }
}

impl Curve {
    /// What happens next is at `t`, or later.
    pub fn reach(&mut self, t: u64) {
        if !self.on {
            return;
        }
        if self.start == 0 {
            self.start = t;
        }
        let at = |curve: &Curve| t.saturating_sub(curve.start) / curve.width;
        while at(self) >= EPOCHS {
            self.mark += 1;
            self.width *= 2;
            self.epoch /= 2;
            for notes in &mut self.notes {
                notes.iter_mut().for_each(|(epoch, _)| *epoch /= 2);
                // The first of two is what was held before both.
                notes.dedup_by_key(|(epoch, _)| *epoch);
            }
        }
        let now = self.epoch.max(at(self) as u32);
        self.mark += (now != self.epoch) as u32;
        self.epoch = now;
    }

    /// Length of an epoch; as good as endless where nothing is noted.
    pub fn width(&self) -> u64 {
        if self.on { self.width } else { u64::MAX }
    }

    /// Another one in each epoch; 0 where nothing is noted.
    #[inline]
    pub fn mark(&self) -> u32 {
        if self.on { self.mark } else { 0 }
    }

    /// A site is about to change, for the first time since [`Curve::mark`] is what it is.
    pub fn note(&mut self, site: usize, now: Balance) {
        if !self.on {
            return;
        }
        if self.notes.len() <= site {
            self.notes.resize_with(site + 1, Vec::new);
        }
        let notes = &mut self.notes[site];
        if notes.last().is_none_or(|(epoch, _)| *epoch != self.epoch) {
            notes.push((self.epoch, now));
        }
    }

    /// Somebody tells of phases: nobody will ask for the curve's.
    pub fn forget(&mut self) {
        self.on = false;
        self.notes = Vec::new();
    }

    /// Sites that hold more at the end of a stretch than at its begin, and how much; as exact in time as an epoch is long, the stretch's own whole
    /// within. `held`: what they hold at the end of the run.
    pub fn grown(&self, from: u64, to: u64, held: &[Held]) -> Vec<(u32, Balance)> {
        let epochs = |t: u64| t.saturating_sub(self.start) as f64 / self.width as f64;
        let (from, to) = (epochs(from).floor() as u32, epochs(to).ceil() as u32);
        let at = |notes: &[(u32, Balance)], epoch: u32, now: Balance| {
            notes.get(notes.partition_point(|(e, _)| *e < epoch)).map_or(now, |(_, before)| *before)
        };
        let sites = self.notes.iter().zip(held).enumerate();
        let grown = sites.map(|(site, (notes, held))| (site as u32, at(notes, to, held.now).less(at(notes, from, held.now))));
        grown.filter(|(_, more)| more.bytes > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balance(bytes: i64) -> Balance {
        Balance { bytes, blocks: bytes as f64, variance: 0.0 }
    }

    #[test]
    fn what_a_site_grew_by_in_a_stretch_is_told_afterwards() {
        // Site 1 grows by one each 10 ms; site 2 holds 50 from 1 s to 2 s; site 3 never changes.
        for lasts in [3_000u64, 300_000] {
            let mut curve = Curve::default();
            let mut held = vec![Held::default(); 4];
            for t in (0..lasts).step_by(10) {
                curve.reach(1 + t * 1_000_000);
                let mut change = |held: &mut Vec<Held>, site: usize, by: i64| {
                    curve.note(site, held[site].now);
                    held[site].now = balance(held[site].now.bytes + by);
                };
                change(&mut held, 1, 1);
                let third = t * 3 / lasts;
                if third == 1 && held[2].now.bytes == 0 {
                    change(&mut held, 2, 50);
                } else if third == 2 && held[2].now.bytes == 50 {
                    change(&mut held, 2, -50);
                }
            }
            let third = lasts * 1_000_000 / 3;
            let slack = 2 * (curve.width / 10_000_000 + 1) as i64;
            let grown = |from: u64, to: u64| curve.grown(from, to, &held).iter().map(|(s, b)| (*s, b.bytes)).collect::<Vec<_>>();
            let all = grown(0, u64::MAX / 2);
            assert_eq!(all, [(1, lasts as i64 / 10)], "{lasts}");
            let first = grown(third / 2, third * 3 / 2);
            assert!(first.len() == 2 && first[1] == (2, 50) && (first[0].1 - lasts as i64 / 30).abs() <= slack, "{first:?}");
            let second = grown(third * 3 / 2, third * 5 / 2);
            assert!(second.len() == 1 && second[0].0 == 1, "{second:?}");
        }
    }
}
