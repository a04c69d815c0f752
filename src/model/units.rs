//! Units as types: a size is not a time. Serialised as plain numbers; JSON keys carry the unit (`_bytes`, `_s`).

use std::ops::{Add, AddAssign, Sub};

use serde::Serialize;

/// An estimate as a count; what sampling takes below zero is none.
pub fn whole(estimate: f64) -> u64 {
    estimate.max(0.0).round() as u64
}

/// A size in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    /// A balance that should not be negative; a trace that starts late or lost events can make it so, then it is 0.
    pub fn of_balance(n: i64) -> Bytes {
        Bytes(n.max(0) as u64)
    }

    /// The larger of two.
    pub fn max(self, other: Bytes) -> Bytes {
        Bytes(self.0.max(other.0))
    }

    /// The difference, 0 where it would be negative.
    pub fn less(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(all: I) -> Bytes {
        all.fold(Bytes(0), Add::add)
    }
}

/// An instant or a length of time on the monotonic clock of one host, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Seconds since `start` (0 where it is not after it).
    pub fn seconds_since(self, start: Nanos) -> f64 {
        (self - start).seconds()
    }

    /// As seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Of seconds, to the nearest one, so that what [`Nanos::seconds`] says comes back as it was; 0 of negative ones.
    pub fn of_seconds(s: f64) -> Nanos {
        Nanos((s * 1e9).round() as u64)
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_that_are_said_come_back_as_they_were() {
        for t in (0..2_000_000).step_by(7).chain((1_000_000_000_000..1_000_000_000_500).step_by(3)) {
            let said: f64 = Nanos(t).seconds().to_string().parse().unwrap();
            assert_eq!(Nanos::of_seconds(said), Nanos(t));
        }
        assert_eq!((Nanos::of_seconds(-1.0), Nanos::of_seconds(f64::NAN)), (Nanos(0), Nanos(0)));
    }
}
