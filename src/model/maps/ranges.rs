//! Disjoint address ranges with a value each. Neighbours of equal value are one range.

use std::collections::BTreeMap;

/// `[start, end)` and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<V> {
    pub start: u64,
    pub end: u64,
    pub value: V,
}

#[derive(Debug)]
pub struct RangeMap<V> {
    /// Start → (end, value).
    map: BTreeMap<u64, (u64, V)>,
}

impl<V> Default for RangeMap<V> {
    fn default() -> Self {
        Self { map: BTreeMap::new() }
    }
}

impl<V: Copy + PartialEq> RangeMap<V> {
    /// The ranges in `[start, end)`, cut to it, in order.
    pub fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = Piece<V>> + '_ {
        let before = self.map.range(..start).next_back().filter(|(_, (e, _))| *e > start);
        let inside = (start < end).then(|| self.map.range(start..end)).into_iter().flatten();
        let all = before.into_iter().filter(move |_| start < end).chain(inside);
        all.map(move |(&s, &(e, value))| Piece { start: s.max(start), end: e.min(end), value })
    }

    /// Takes the ranges in `[start, end)` out, cut to it, and appends them to `out` in order. `start < end`.
    pub fn take(&mut self, start: u64, end: u64, out: &mut Vec<Piece<V>>) {
        self.cut_at(start);
        self.cut_at(end);
        while let Some((&s, &(e, value))) = self.map.range(start..end).next() {
            self.map.remove(&s);
            out.push(Piece { start: s, end: e, value });
        }
    }

    /// `[start, end)` must be free and not empty.
    pub fn insert(&mut self, mut start: u64, mut end: u64, value: V) {
        if let Some((&s, &(e, v))) = self.map.range(..start).next_back()
            && e == start
            && v == value
        {
            start = s;
        }
        if let Some(&(e, v)) = self.map.get(&end)
            && v == value
        {
            self.map.remove(&end);
            end = e;
        }
        self.map.insert(start, (end, value));
    }

    fn cut_at(&mut self, at: u64) {
        if let Some((_, range)) = self.map.range_mut(..at).next_back()
            && range.0 > at
        {
            let upper = *range;
            range.0 = at;
            self.map.insert(at, upper);
        }
    }
}
