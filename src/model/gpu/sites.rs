//! What each call site holds on each device, and of page-locked memory: now, at most, and when the device held most. The peak's set is found as in `model::sites`.

use std::collections::{BTreeMap, HashMap};

use crate::model::sites::Instant;

/// Where memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    Device(u8),
    /// Page-locked memory of the host.
    Pinned,
}

/// What one site holds in one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuUse {
    pub now: i64,
    pub blocks: i64,
    /// At the place's peak, or at the instant asked for.
    pub then: i64,
    pub then_blocks: i64,
    pub peak: i64,
    pub total: u64,
    pub allocs: u64,
    /// Instants that had come when it changed last.
    seen: u32,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct GpuSites {
    uses: HashMap<(Place, u32), GpuUse>,
    instants: BTreeMap<Place, u32>,
    instant: Instant,
    /// Highest level within the window asked for; before it the level.
    within: BTreeMap<Place, i64>,
}

impl GpuSites {
    pub fn new(instant: Instant) -> Self {
        GpuSites { instant, ..GpuSites::default() }
    }

    /// Bytes come or go at `t`; before the level of the place changes.
    pub fn change(&mut self, place: Place, site: u32, bytes: i64, t: u64) {
        let instants = self.instants.entry(place).or_default();
        match self.instant {
            Instant::At(asked) if t > asked => *instants = 1,
            // What is live when the window begins is in it.
            Instant::PeakWithin(from, _) if t >= from && *instants == 0 => *instants = 1,
            _ => {}
        }
        let of = self.uses.entry((place, site)).or_default();
        if of.seen != *instants {
            (of.then, of.then_blocks, of.seen) = (of.now, of.blocks, *instants);
        }
        of.now = of.now.saturating_add(bytes);
        of.blocks += bytes.signum();
        of.peak = of.peak.max(of.now);
        if bytes > 0 {
            of.total = of.total.saturating_add(bytes as u64);
            of.allocs += 1;
        }
    }

    /// The level of the place is now this; it never was so high where `highest`.
    pub fn reached(&mut self, place: Place, level: i64, highest: bool, t: u64) {
        let higher = match self.instant {
            Instant::At(_) => false,
            Instant::PeakWithin(from, to) => {
                let within = self.within.entry(place).or_insert(i64::MIN);
                let higher = t >= from && t <= to && level > *within;
                if higher || t < from {
                    *within = level;
                }
                higher
            }
            Instant::Peak | Instant::PeakOf(_) => highest,
        };
        if higher {
            *self.instants.entry(place).or_default() += 1;
        }
    }

    /// All of them, `then` final, in the order of places and sites.
    pub fn rows(&self) -> Vec<(Place, u32, GpuUse)> {
        let last = |(&(place, site), of): (&(Place, u32), &GpuUse)| {
            let mut of = *of;
            let instants = self.instants.get(&place).copied().unwrap_or(0);
            // Nothing after the instant asked for: what is live at the end was live then.
            if of.seen != instants || !matches!(self.instant, Instant::Peak | Instant::PeakOf(_)) && instants == 0 {
                (of.then, of.then_blocks) = (of.now, of.blocks);
            }
            (place, site, of)
        };
        let mut all: Vec<_> = self.uses.iter().map(last).collect();
        all.sort_by_key(|(place, site, _)| (*place, *site));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Site, bytes, at each instant; the level of one device.
    fn played(instant: Instant, steps: &[(u32, i64)]) -> Vec<(u32, i64, i64, i64)> {
        let (mut sites, mut level, mut most) = (GpuSites::new(instant), 0, 0);
        for (t, &(site, bytes)) in (1..).zip(steps) {
            sites.change(Place::Device(0), site, bytes, t);
            level += bytes;
            let highest = level > most;
            most = most.max(level);
            sites.reached(Place::Device(0), level, highest, t);
        }
        sites.rows().into_iter().map(|(_, site, of)| (site, of.then, of.now, of.peak)).collect()
    }

    #[test]
    fn the_set_at_the_devices_peak_and_at_any_instant() {
        let steps = [(1, 100), (2, 50), (1, -100), (2, 70), (1, 30), (3, 20), (2, -50)];
        // Levels 100, 150, 50, 120, 150, 170, 120: the peak comes with the sixth step.
        assert_eq!(played(Instant::Peak, &steps), [(1, 30, 30, 100), (2, 120, 70, 120), (3, 20, 20, 20)]);
        assert_eq!(played(Instant::At(2), &steps), [(1, 100, 30, 100), (2, 50, 70, 120), (3, 0, 20, 20)]);
        // A window begins with what is live then.
        assert_eq!(played(Instant::PeakWithin(3, 5), &steps), [(1, 100, 30, 100), (2, 50, 70, 120), (3, 0, 20, 20)]);
        assert_eq!(played(Instant::PeakWithin(4, 5), &steps), [(1, 30, 30, 100), (2, 120, 70, 120), (3, 0, 20, 20)]);
        assert_eq!(played(Instant::At(99), &steps), [(1, 30, 30, 100), (2, 70, 70, 120), (3, 20, 20, 20)]);
    }
}
