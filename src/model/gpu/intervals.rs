//! Intervals of time: when something was so, and for how long of a stretch.

/// Begin and end, in nanoseconds.
pub type Interval = (u64, u64);

/// Without overlaps, in order.
pub fn union(mut all: Vec<Interval>) -> Vec<Interval> {
    all.retain(|(start, end)| start < end);
    all.sort_unstable();
    let mut out: Vec<Interval> = Vec::with_capacity(all.len());
    for (start, end) in all {
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out.shrink_to_fit();
    out
}

/// How long they are together, of intervals without overlaps.
pub fn length(all: &[Interval]) -> u64 {
    all.iter().fold(0, |sum: u64, (from, to)| sum.saturating_add(to - from))
}

/// What two sets without overlaps, in order, have in common.
pub fn in_both(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    let (mut i, mut j, mut out) = (0, 0, Vec::new());
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let (from, to) = (x.0.max(y.0), x.1.min(y.1));
        if from < to {
            out.push((from, to));
        }
        if x.1 < y.1 { i += 1 } else { j += 1 }
    }
    out
}

/// What of `a` is not in `b`, both without overlaps and in order.
pub fn without(a: &[Interval], b: &[Interval]) -> Vec<Interval> {
    let (mut j, mut out) = (0, Vec::new());
    for &(mut from, to) in a {
        while b.get(j).is_some_and(|y| y.1 <= from) {
            j += 1;
        }
        let mut k = j;
        while let Some(&(begin, end)) = b.get(k).filter(|y| y.0 < to) {
            if from < begin {
                out.push((from, begin));
            }
            from = from.max(end);
            k += 1;
        }
        if from < to {
            out.push((from, to));
        }
    }
    out
}

/// Of intervals, which may overlap: how long they were before each of some instants, which are in order; of two at once both count.
pub fn until_each(all: &[Interval], instants: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut edges: Vec<(u64, i64)> = all.iter().filter(|(from, to)| from < to).flat_map(|(from, to)| [(*from, 1), (*to, -1)]).collect();
    edges.sort_unstable();
    let mut edges = edges.into_iter().peekable();
    let (mut sum, mut active, mut at) = (0u64, 0i64, 0u64);
    let mut go = |to: u64, active: i64| {
        sum = sum.saturating_add(to.saturating_sub(at).saturating_mul(active as u64));
        at = at.max(to);
        sum
    };
    instants
        .map(|t| {
            while let Some((edge, step)) = edges.next_if(|e| e.0 <= t) {
                go(edge, active);
                active += step;
            }
            go(t, active)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_intervals() {
        let a = union(vec![(30, 40), (0, 10), (5, 20), (20, 22), (7, 7)]);
        assert_eq!((a.as_slice(), length(&a)), (&[(0, 22), (30, 40)][..], 32));
        let b = [(10, 12), (15, 35)];
        assert_eq!(in_both(&a, &b), [(10, 12), (15, 22), (30, 35)]);
        assert_eq!(without(&a, &b), [(0, 10), (12, 15), (35, 40)]);
        assert_eq!((without(&a, &[]), without(&[], &a), without(&a, &[(0, 50)])), (a.clone(), vec![], vec![]));
    }

    #[test]
    fn a_stretch_of_time_has_what_is_before_its_end_and_not_before_its_begin() {
        let until = until_each(&[(10, 20), (15, 25), (40, 50)], [0, 12, 15, 18, 20, 45, 60].into_iter());
        assert_eq!(until, [0, 2, 5, 11, 15, 25, 30]);
    }
}
