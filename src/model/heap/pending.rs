//! What waits for its place in the replay: edges of phases, and phases that begin or end there.

use std::collections::BTreeMap;

use crate::model::phases::HeapEdge;

/// Those that have a place among a lane's events stand by its group, so that a line looks at its own alone; the others have a time only.
#[derive(Debug)]
pub struct Pending<T> {
    placed: BTreeMap<u64, Vec<T>>,
    timed: Vec<T>,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Pending { placed: BTreeMap::new(), timed: Vec::new() }
    }
}

impl<T: AsRef<HeapEdge>> Pending<T> {
    /// More to wait for, of which nothing is left in `more`.
    pub fn append(&mut self, more: &mut Vec<T>) {
        for one in more.drain(..) {
            match one.as_ref().place {
                Some((_, group, _)) => self.placed.entry(group).or_default().push(one),
                None => self.timed.push(one),
            }
        }
    }

    /// Those of a group, of every lane.
    pub fn of_group(&mut self, group: u64) -> &mut [T] {
        self.placed.get_mut(&group).map_or(&mut [], Vec::as_mut_slice)
    }

    /// Those of the groups up to `group`, and those without a place up to `t`.
    pub fn until(&self, group: u64, t: u64) -> impl Iterator<Item = &T> {
        let placed = self.placed.range(..=group).flat_map(|(_, all)| all);
        placed.chain(self.timed.iter().filter(move |one| one.as_ref().t <= t))
    }

    /// The same, taken out, by time.
    pub fn take_until(&mut self, group: u64, t: u64) -> Vec<T> {
        let later = group.checked_add(1).map(|next| self.placed.split_off(&next)).unwrap_or_default();
        let now = std::mem::replace(&mut self.placed, later);
        let timed = self.timed.extract_if(.., |one| one.as_ref().t <= t);
        by_time(now.into_values().flatten().chain(timed).collect())
    }

    /// All of them, by time.
    pub fn take_all(&mut self) -> Vec<T> {
        let Pending { placed, timed } = std::mem::take(self);
        by_time(placed.into_values().flatten().chain(timed).collect())
    }
}

fn by_time<T: AsRef<HeapEdge>>(mut all: Vec<T>) -> Vec<T> {
    all.sort_by_key(|one| one.as_ref().t);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(edge: u32, t: u64, group: Option<u64>) -> HeapEdge {
        HeapEdge { edge, t, place: group.map(|g| (0, g, 5)), since: None }
    }

    #[test]
    fn what_is_due_is_taken_by_group_or_by_time() {
        let mut pending = Pending::default();
        let mut all = vec![edge(1, 90, Some(2)), edge(2, 10, None), edge(3, 50, Some(1)), edge(4, 95, None), edge(5, 20, Some(u64::MAX))];
        pending.append(&mut all);
        assert!(all.is_empty());
        let numbers = |of: Vec<&HeapEdge>| of.iter().map(|e| e.edge).collect::<Vec<_>>();
        assert_eq!(numbers(pending.until(1, 40).collect()), [3, 2]);
        assert_eq!(numbers(pending.of_group(2).iter().collect()), [1]);
        assert_eq!(pending.take_until(2, 40).iter().map(|e| e.edge).collect::<Vec<_>>(), [2, 3, 1], "by time");
        assert_eq!(numbers(pending.until(u64::MAX, u64::MAX).collect()), [5, 4]);
        assert_eq!(pending.take_all().iter().map(|e| e.edge).collect::<Vec<_>>(), [5, 4]);
        assert_eq!(pending.until(u64::MAX, u64::MAX).count(), 0);
    }
}
