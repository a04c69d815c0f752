//! Levels over time in bounded memory: spans double in length whenever there would be too many.

/// What is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Series {
    Rss,
    /// Usable bytes.
    Heap,
    /// Committed maps of all classes.
    Maps,
    /// Committed private anonymous maps, and the break as far as the program moved it.
    Anon,
}

/// How many are followed.
const SERIES: usize = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Level {
    most: u64,
    last: u64,
    last_at: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Timeline {
    start: u64,
    width: u64,
    spans_max: usize,
    spans: Vec<[Option<Level>; SERIES]>,
}

/// One span: the maximum of each series in it, and its last level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Start of the span.
    pub t: u64,
    /// By [`Series`].
    pub most: [u64; SERIES],
    pub last: [u64; SERIES],
    /// Of which instant the last level of the heap is.
    pub heap_at: u64,
}

/// Ten milliseconds: the shim looks at most that often.
const WIDTH: u64 = 10_000_000;

impl Timeline {
    /// From `start` on, in at most `spans_max` spans.
    pub fn new(start: u64, spans_max: usize) -> Self {
        Timeline { start, width: WIDTH, spans_max, spans: Vec::new() }
    }

    /// A level at an instant; order does not matter.
    pub fn note(&mut self, t: u64, series: Series, value: u64) {
        let since = t.saturating_sub(self.start);
        while since / self.width >= self.spans_max as u64 {
            self.halve();
        }
        let at = (since / self.width) as usize;
        if self.spans.len() <= at {
            self.spans.resize(at + 1, [None; SERIES]);
        }
        let slot = &mut self.spans[at][series as usize];
        *slot = Some(join(*slot, Level { most: value, last: value, last_at: t }));
    }

    fn halve(&mut self) {
        self.width = self.width.saturating_mul(2);
        self.spans = self
            .spans
            .chunks(2)
            .map(|pair| std::array::from_fn(|s| pair.iter().filter_map(|p| p[s]).reduce(|a, b| join(Some(a), b))))
            .collect();
    }

    /// All spans in which something was noted; a level holds until the next.
    pub fn points(&self) -> Vec<Point> {
        let (mut now, mut heap_at) = ([0; SERIES], self.start);
        let mut all = Vec::new();
        for (i, span) in self.spans.iter().enumerate() {
            if span.iter().all(Option::is_none) {
                continue;
            }
            let most = std::array::from_fn(|s| span[s].map_or(now[s], |l| l.most));
            now = std::array::from_fn(|s| span[s].map_or(now[s], |l| l.last));
            heap_at = span[Series::Heap as usize].map_or(heap_at, |l| l.last_at);
            let t = self.start.saturating_add((i as u64).saturating_mul(self.width));
            all.push(Point { t, most, last: now, heap_at });
        }
        all
    }

    /// The level of a series around an instant.
    pub fn level_at(&self, t: u64, series: Series) -> u64 {
        let at = (t.saturating_sub(self.start) / self.width) as usize;
        self.spans
            .iter()
            .take(at.saturating_add(1))
            .rev()
            .find_map(|s| s[series as usize])
            .map_or(0, |l| if l.last_at <= t { l.last } else { l.most })
    }
}

fn join(a: Option<Level>, b: Level) -> Level {
    match a {
        None => b,
        Some(a) => {
            let (last, last_at) = if b.last_at >= a.last_at { (b.last, b.last_at) } else { (a.last, a.last_at) };
            Level { most: a.most.max(b.most), last, last_at }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_the_maximum_survives() {
        let mut t = Timeline::new(0, 64);
        for i in 0..100_000u64 {
            t.note(i * 100_000_000, Series::Rss, if i == 777 { 9999 } else { i % 10 });
        }
        let p = t.points();
        assert!(p.len() <= 64);
        assert_eq!(p.iter().map(|p| p.most[0]).max(), Some(9999));
        assert_eq!(p.last().map(|p| p.last[0]), Some(9));
    }

    #[test]
    fn a_level_holds_until_the_next() {
        let mut t = Timeline::new(0, 64);
        t.note(0, Series::Heap, 5);
        t.note(0, Series::Rss, 1);
        t.note(20_000_000, Series::Rss, 2);
        assert_eq!(t.points()[1].most, [2, 5, 0, 0]);
        assert_eq!(t.points().iter().map(|p| p.heap_at).collect::<Vec<_>>(), [0, 0]);
        t.note(23_000_000, Series::Heap, 7);
        assert_eq!(t.points().iter().map(|p| p.heap_at).collect::<Vec<_>>(), [0, 23_000_000]);
        assert_eq!(t.level_at(21_000_000, Series::Heap), 7);
    }
}
