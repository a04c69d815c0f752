//! The levels of one metric over time, and what they were at the edges of phases and at most between them. Notes and edges may come in any
//! order: both are put in order at the end.

/// A level that holds from `t` on.
#[derive(Clone, Copy, Debug)]
struct Note {
    t: u64,
    /// The most since the note before, this level included.
    most: i64,
    level: i64,
}

/// Notes kept before neighbours are joined: of two, the maximum and the later level stay.
const NOTES: usize = 1 << 21;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Levels {
    notes: Vec<Note>,
    /// Before them.
    base: i64,
    /// Notes at the front that have been joined as far as they can be.
    joined: usize,
}

/// Latest notes that are kept as they are: an edge can stand further down in the trace than what happened after it.
const AHEAD: usize = 1 << 13;

/// A metric at the edges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtEdges {
    /// By edge.
    pub level: Vec<i64>,
    /// By edge: the most since the edge before, both levels included.
    pub most: Vec<i64>,
    /// By edge: a note stands at its very time.
    pub noted: Vec<bool>,
    /// By edge: the most that the next note tells of, where there is one: part of its stretch is before the edge.
    pub next: Vec<Option<i64>>,
    /// By edge: the most that the notes since the edge before tell of; of the first, whose stretch may have begun before that edge, its level.
    within: Vec<i64>,
    /// By edge: the first edge after it with a note between that one and the edge before.
    looked_after: Vec<usize>,
}

impl Levels {
    /// From `t` on the level is this.
    pub fn note(&mut self, t: u64, level: i64) {
        self.note_most(t, level, level);
    }

    /// The same, where in between there was `most`.
    pub fn note_most(&mut self, t: u64, level: i64, most: i64) {
        if let Some(last) = self.notes.last_mut()
            && last.t == t
        {
            *last = Note { t, most: last.most.max(most), level };
            return;
        }
        if self.notes.len() == NOTES {
            self.notes.sort_by_key(|n| n.t);
            let joined = |pair: &[Note]| {
                let last = pair[pair.len() - 1];
                Note { most: pair.iter().map(|n| n.most).max().unwrap_or(last.most), ..last }
            };
            self.notes = self.notes.chunks(2).map(joined).collect();
            self.joined = 0;
        }
        self.notes.push(Note { t, most: most.max(level), level });
    }

    /// No edge has come since the last one, at `edge`: of what is long past after it only the most and the last level matter; without any
    /// edge the level alone.
    pub fn join_old(&mut self, edge: Option<u64>) {
        if self.notes.len() < self.joined + 2 * AHEAD {
            return;
        }
        let old = self.notes.len() - AHEAD;
        let Some(edge) = edge else {
            self.base = self.notes.drain(..old).next_back().map_or(self.base, |n| n.level);
            return;
        };
        // Notes of one metric come nearly in order: what is behind the last that is not after the edge is after it.
        let from = self.joined.min(old);
        let first = self.notes[from..old].iter().rposition(|n| n.t <= edge).map_or(from, |at| from + at + 1);
        if let Some(&last) = self.notes[first..old].last() {
            let most = self.notes[first..old].iter().map(|n| n.most).max().unwrap_or(last.most);
            self.notes.splice(first..old, [Note { most, ..last }]);
            // The next ones join it.
            self.joined = first;
        } else {
            self.joined = old;
        }
    }

    /// Cuts at the edges, whose times never go back. A note at the very time of an edge is before it.
    pub fn at(mut self, edges: impl Iterator<Item = u64>) -> AtEdges {
        self.notes.sort_by_key(|n| n.t);
        let mut notes = self.notes.into_iter().peekable();
        let (mut level, mut all, mut at) = (self.base, AtEdges::default(), None);
        for t in edges {
            let (mut most, mut within) = (level, i64::MIN);
            let (mut noted, mut first) = (false, true);
            while let Some(note) = notes.next_if(|n| n.t <= t) {
                (level, most, noted) = (note.level, most.max(note.most), note.t == t);
                within = within.max(if first { note.level } else { note.most });
                first = false;
            }
            let edge = all.level.len();
            if !first {
                all.looked_after.resize(edge, edge);
            }
            all.level.push(level);
            all.most.push(most);
            all.within.push(within);
            all.noted.push(noted || at == Some(t));
            at = noted.then_some(t).or(at);
            all.next.push(notes.peek().map(|n| n.most));
        }
        all.looked_after.resize(all.level.len(), all.level.len());
        all
    }
}

impl AtEdges {
    /// The most from one edge to a later one.
    pub fn between(&self, tree: &RangeMax, from: usize, to: usize) -> i64 {
        let at = |i: usize| self.level.get(i).copied().unwrap_or(0);
        at(from).max(at(to)).max(if to > from { tree.most(from + 1, to) } else { i64::MIN })
    }

    /// The most from one edge to a later one, without what may have been before: of a note whose stretch began before the first of the two,
    /// its level. `None`: there is no note.
    pub fn surely_between(&self, tree: &RangeMax, from: usize, to: usize) -> Option<i64> {
        if self.noted.get(from).copied().unwrap_or(false) {
            return Some(self.between(tree, from, to));
        }
        let first = self.looked_after.get(from).copied().filter(|first| *first <= to)?;
        Some(self.between(tree, first, to).max(self.within[first]))
    }

    pub fn tree(&self) -> RangeMax {
        RangeMax::new(&self.most)
    }
}

/// Maxima of ranges of a row of numbers: a binary tree over it, leaves last.
#[derive(Clone, Debug, Default)]
pub struct RangeMax(Vec<i64>);

impl RangeMax {
    pub fn new(row: &[i64]) -> RangeMax {
        let n = row.len();
        let mut tree = vec![i64::MIN; n];
        tree.extend_from_slice(row);
        for i in (1..n).rev() {
            tree[i] = tree[2 * i].max(tree[2 * i + 1]);
        }
        RangeMax(tree)
    }

    /// The maximum of the numbers from one index to another, both included.
    pub fn most(&self, from: usize, to: usize) -> i64 {
        let n = self.0.len() / 2;
        let (mut left, mut right, mut most) = (from.min(n) + n, (to + 1).min(n) + n, i64::MIN);
        while left < right {
            if left % 2 == 1 {
                most = most.max(self.0[left]);
                left += 1;
            }
            if right % 2 == 1 {
                right -= 1;
                most = most.max(self.0[right]);
            }
            (left, right) = (left / 2, right / 2);
        }
        most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_level_holds_until_the_next_and_its_most_is_of_the_stretch_before() {
        let mut levels = Levels::default();
        levels.note(30, 5);
        levels.note(10, 7);
        levels.note_most(40, 1, 9);
        let at = levels.at([5, 10, 20, 40, 50].into_iter());
        assert_eq!((&at.level, &at.most), (&vec![0, 7, 7, 1, 1], &vec![0, 7, 7, 9, 1]));
        assert_eq!((&at.noted, &at.next), (&vec![false, true, false, true, false], &vec![Some(7), Some(5), Some(5), None, None]));
        let tree = at.tree();
        assert_eq!((at.between(&tree, 1, 2), at.between(&tree, 2, 4), at.between(&tree, 4, 4)), (7, 9, 1));
    }

    #[test]
    fn what_may_have_been_before_the_first_edge_is_not_sure() {
        let mut levels = Levels::default();
        [(10, 2, 9), (20, 3, 8), (30, 1, 7), (50, 0, 6)].into_iter().for_each(|(t, level, most)| levels.note_most(t, level, most));
        let at = levels.at([5, 12, 15, 20, 35, 40, 55].into_iter());
        let tree = at.tree();
        let sure = |from, to| at.surely_between(&tree, from, to);
        // The note at 10 may tell of what was before 5, the note at 20 does not; nor does the one at 30 tell of what was before 20.
        assert_eq!([sure(0, 1), sure(0, 2), sure(0, 3), sure(0, 4)], [Some(2), Some(2), Some(8), Some(8)]);
        // The note at 20 may tell of what was before 12, whatever edge stands between.
        assert_eq!([sure(1, 2), sure(1, 3), sure(2, 3), sure(1, 4), sure(2, 4)], [None, Some(3), Some(3), Some(7), Some(7)]);
        assert_eq!([sure(3, 4), sure(3, 6), sure(4, 5), sure(4, 6)], [Some(7), Some(7), None, Some(0)]);
    }

    proptest! {
        #[test]
        fn what_is_sure_is_what_a_walk_over_the_notes_says(
            notes in proptest::collection::btree_map(0u64..60, (0i64..50, 0i64..50), 0..20),
            mut edges in proptest::collection::vec(0u64..60, 2..12),
            a in 0usize..12, b in 0usize..12,
        ) {
            edges.sort_unstable();
            edges.dedup();
            let (from, to) = (a.min(b).min(edges.len() - 1), a.max(b).min(edges.len() - 1));
            let mut levels = Levels::default();
            notes.iter().for_each(|(t, (level, more))| levels.note_most(*t, *level, level + more));
            let at = levels.at(edges.iter().copied());
            // A note tells of the stretch since the note before it.
            let began = |t: u64| notes.range(..t).next_back().map(|(t, _)| *t);
            let inside = notes.range(edges[from]..=edges[to]).map(|(t, (level, more))| {
                if began(*t).is_some_and(|began| began >= edges[from]) { level + more } else { *level }
            });
            prop_assert_eq!(at.surely_between(&at.tree(), from, to), inside.max());
        }
    }

    #[test]
    fn joining_keeps_the_maximum_and_the_last_level() {
        let mut levels = Levels::default();
        (0..5 << 20).for_each(|t| levels.note(t, if t == 12_345 { 99 } else { (t % 3) as i64 }));
        let at = levels.at([1 << 30].into_iter());
        assert_eq!((at.most[0], at.level[0]), (99, ((5i64 << 20) - 1) % 3));
    }

    #[test]
    fn what_is_long_past_is_joined_between_edges() {
        let (mut joined, mut whole) = (Levels::default(), Levels::default());
        let mut edges = Vec::new();
        for t in 0..10 * AHEAD as u64 {
            let level = (t * 7919 % 1000) as i64;
            joined.note(t, level);
            whole.note(t, level);
            if t == 5 || t == 4 * AHEAD as u64 {
                edges.push(t);
            }
            joined.join_old(edges.last().copied());
        }
        assert!(joined.notes.len() < 5 * AHEAD, "{}", joined.notes.len());
        edges.push(1 << 40);
        let (a, b) = (joined.at(edges.iter().copied()), whole.at(edges.iter().copied()));
        assert_eq!((a.level, a.most, a.noted), (b.level, b.most, b.noted));
        let mut none = Levels::default();
        (0..5 * AHEAD as u64).for_each(|t| {
            none.note(t, t as i64);
            none.join_old(None);
        });
        assert!(none.notes.len() <= 2 * AHEAD);
    }

    proptest! {
        #[test]
        fn the_tree_says_what_a_search_says(row in proptest::collection::vec(any::<i64>(), 1..70), a in 0usize..70, b in 0usize..70) {
            let (from, to) = (a.min(b).min(row.len() - 1), a.max(b).min(row.len() - 1));
            prop_assert_eq!(RangeMax::new(&row).most(from, to), *row[from..=to].iter().max().unwrap());
        }
    }
}
