//! Copies between host and device one by one, by when they were called: what of them a phase called, and how long those took.

/// Copies kept of a direction.
const KEPT: usize = 1 << 20;

/// What copies amount to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    pub count: u64,
    pub bytes: u64,
    /// Of these, timed on the device.
    pub timed: u64,
    pub timed_bytes: u64,
    pub device_ns: u64,
    /// The calls themselves, and how many of them waited for the copy.
    pub wall_ns: u64,
    pub synchronous: u64,
}

/// Copies of one direction in the order of their effects.
#[derive(Debug, Default)]
pub struct Calls {
    all: Vec<(u64, Moved)>,
    /// There were too many.
    pub is_cut: bool,
}

impl Calls {
    /// One more, at `t`; its number, if it is kept.
    pub fn add(&mut self, t: u64, call: Moved) -> Option<u32> {
        if self.all.len() >= KEPT {
            self.is_cut = true;
            return None;
        }
        self.all.push((t, call));
        Some(self.all.len() as u32 - 1)
    }

    /// How long the device took for it has become known.
    pub fn timed(&mut self, number: u32, took: u64) {
        if let Some((_, call)) = self.all.get_mut(number as usize) {
            (call.timed, call.timed_bytes, call.device_ns) = (call.count, call.bytes, took);
        }
    }

    /// Each stands for all until then.
    pub fn add_up(&mut self) {
        let mut sum = Moved::default();
        for (_, call) in &mut self.all {
            sum = with(&sum, call, u64::saturating_add);
            *call = sum;
        }
    }

    /// What was called after `from`, up to `to`. When all have been added up.
    pub fn between(&self, from: u64, to: u64) -> Moved {
        let until = |t: u64| match self.all.partition_point(|(at, _)| *at <= t) {
            0 => Moved::default(),
            n => self.all[n - 1].1,
        };
        with(&until(to), &until(from), u64::saturating_sub)
    }
}

impl Moved {
    /// Both together.
    pub fn and(&self, other: &Moved) -> Moved {
        with(self, other, u64::saturating_add)
    }

    /// Bytes a nanosecond: by the device's time, else by that of the calls, if all of them waited.
    pub fn rate(&self) -> Option<f64> {
        let by = |bytes: u64, ns: u64| (ns > 0).then(|| bytes as f64 / ns as f64);
        match self.timed {
            0 if self.synchronous == self.count => by(self.bytes, self.wall_ns),
            0 => None,
            _ => by(self.timed_bytes, self.device_ns),
        }
    }
}

fn with(a: &Moved, b: &Moved, of: fn(u64, u64) -> u64) -> Moved {
    Moved {
        count: of(a.count, b.count),
        bytes: of(a.bytes, b.bytes),
        timed: of(a.timed, b.timed),
        timed_bytes: of(a.timed_bytes, b.timed_bytes),
        device_ns: of(a.device_ns, b.device_ns),
        wall_ns: of(a.wall_ns, b.wall_ns),
        synchronous: of(a.synchronous, b.synchronous),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_called_in_a_stretch_has_its_own_rate() {
        let mut calls = Calls::default();
        let call = |bytes, synchronous| Moved { count: 1, bytes, wall_ns: 50, synchronous, ..Moved::default() };
        let first = calls.add(10, call(1000, 0)).unwrap();
        calls.add(20, call(400, 1));
        let last = calls.add(30, call(600, 0)).unwrap();
        calls.timed(last, 300);
        calls.timed(first, 100);
        calls.add_up();
        assert_eq!(calls.between(0, 10).rate(), Some(10.0));
        assert_eq!(calls.between(10, 20).rate(), Some(8.0), "nobody timed it, but the call waited");
        assert_eq!(calls.between(10, 30).rate(), Some(2.0), "of those that were timed");
        assert_eq!((calls.between(30, 40).rate(), calls.between(0, 30).bytes), (None, 2000));
        assert_eq!(calls.between(0, 10).and(&calls.between(20, 30)).rate(), Some(4.0));
    }

    #[test]
    fn a_call_that_did_not_wait_says_nothing_by_its_own_time() {
        let mut calls = Calls::default();
        calls.add(10, Moved { count: 1, bytes: 1000, wall_ns: 50, ..Moved::default() });
        calls.add_up();
        assert_eq!(calls.between(0, 10).rate(), None);
    }
}
