//! Phases when all lines have been read: edges in the order of time, names put together, and what each metric was between.

use super::*;
use crate::model::sweep::AtEdge;

/// Phases at the end.
#[derive(Default)]
pub struct PhasesEnd {
    /// By time.
    pub edges: Vec<Edge>,
    pub instances: Vec<Instance>,
    pub paths: Vec<Path>,
    /// Full mode: requested bytes, by edge, in the order in which the replay met them.
    pub heap: HeapLevels,
    metrics: [AtEdges; METRICS],
    trees: [RangeMax; METRICS],
    /// Snapshots at edges, by time: of each path at least those of the first begin and the last end that have one.
    pub snapshots: BTreeMap<u64, Value>,
    /// Time, source, name.
    pub marks: Vec<(u64, &'static str, String)>,
    pub left_out: u64,
    pub unknown: u64,
    pub unmatched: u64,
}

/// A phase's name, source, and the names of those around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    pub names: Vec<String>,
    pub source: &'static str,
}

/// Requested bytes at the edges, as the replay met them.
#[derive(Default)]
pub struct HeapLevels {
    at: AtEdges,
    tree: RangeMax,
    /// Where an edge is in that order.
    position: Vec<Option<u32>>,
    settling: Vec<i64>,
    /// By edge from outside: the one at which the earliest is that it can be.
    since: Vec<Option<u32>>,
    /// What they can have been at least, and at most; and the most below zero that it was since the edge before.
    sides: [AtEdges; 2],
    side_trees: [RangeMax; 2],
    least_tree: RangeMax,
    /// Where an edge is in the order of those.
    side_position: Vec<Option<u32>>,
    /// So much more, either way: blocks whose free was seen before they were.
    unsettled: i64,
}

/// Requested bytes while an instance was on: when it began, when it ended, and at most meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapOver {
    pub begin: i64,
    pub end: i64,
    pub most: i64,
    /// Each of the three can have been at least, and at most; `None`: that is not known.
    pub bounds: Option<[[i64; 3]; 2]>,
}

impl PhaseBook {
    /// All lines have been read; `heap` is what the replay found, `around` what was possible, and by how much more blocks that settle can matter.
    pub fn finish(self, heap: Vec<HeapAt>, around: (Vec<AtEdge>, u64)) -> PhasesEnd {
        let mut order: Vec<u32> = (0..self.edges.len() as u32).collect();
        order.sort_by_key(|e| self.edges[*e as usize].t);
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(at, e)| place[*e as usize] = at as u32);
        let mut edges: Vec<Edge> = order.iter().map(|e| self.edges[*e as usize]).collect();
        edges.iter_mut().for_each(|e| e.since = e.since.and_then(|then| place.get(then as usize).copied()));
        let edges = edges;
        let times = || edges.iter().map(|e| e.t);
        let metrics = self.levels.map(|levels| levels.at(times()));
        let trees = std::array::from_fn(|m| metrics[m].tree());
        let mut heap_levels = HeapLevels { position: vec![None; edges.len()], ..HeapLevels::default() };
        for (at, found) in heap.iter().enumerate() {
            heap_levels.at.level.push(found.level);
            heap_levels.at.most.push(found.most);
            heap_levels.settling.push(found.settling);
            if let Some(position) = place.get(found.edge as usize).and_then(|e| heap_levels.position.get_mut(*e as usize)) {
                *position = Some(at as u32);
            }
        }
        heap_levels.tree = heap_levels.at.tree();
        heap_levels.since = edges.iter().map(|e| e.since).collect();
        heap_levels.side_position = vec![None; edges.len()];
        let least: Vec<i64> = around.0.iter().map(|found| found.least.saturating_neg()).collect();
        heap_levels.least_tree = RangeMax::new(&least);
        for (at, found) in around.0.iter().enumerate() {
            for (side, values) in heap_levels.sides.iter_mut().enumerate() {
                values.level.push(found.level[side]);
                values.most.push(found.most[side]);
            }
            if let Some(position) = place.get(found.edge as usize).and_then(|e| heap_levels.side_position.get_mut(*e as usize)) {
                *position = Some(at as u32);
            }
        }
        heap_levels.side_trees = [0, 1].map(|side| heap_levels.sides[side].tree());
        heap_levels.unsettled = i64::try_from(around.1).unwrap_or(i64::MAX);
        let name = |name: Name| match name {
            Name::Number(n) => self.names.get(&n).map_or("(a name without room)".to_owned(), |Named { domain, text, .. }| {
                if domain.is_empty() { text.clone() } else { format!("{domain}: {text}") }
            }),
            Name::Text(n) => self.texts.get(n as usize).cloned().unwrap_or_default(),
        };
        let path = |step: &Step| {
            let mut names = vec![name(step.name)];
            let mut parent = step.parent;
            while let Some(outer) = parent.and_then(|p| self.steps.get(p as usize)) {
                names.push(name(outer.name));
                parent = outer.parent;
            }
            names.reverse();
            Path { names, source: SOURCES.get(step.source as usize).copied().unwrap_or("") }
        };
        let mut instances = self.instances;
        instances.iter_mut().for_each(|i| (i.begin, i.end) = (place[i.begin as usize], place[i.end as usize]));
        instances.sort_by_key(|i| (i.begin, std::cmp::Reverse(i.end)));
        PhasesEnd {
            paths: self.steps.iter().map(path).collect(),
            marks: self.marks.iter().map(|&(t, source, n)| (t, SOURCES.get(source as usize).copied().unwrap_or(""), name(n))).collect(),
            edges,
            instances,
            heap: heap_levels,
            metrics,
            trees,
            snapshots: self.shown.snapshots,
            left_out: self.left_out,
            unknown: self.unknown,
            unmatched: self.unmatched,
        }
    }
}

impl PhasesEnd {
    /// A metric's level at an edge.
    pub fn at(&self, metric: Metric, edge: u32) -> i64 {
        self.metrics[metric as usize].level.get(edge as usize).copied().unwrap_or(0)
    }

    /// The most of a metric from the begin up to an edge.
    pub fn most_until(&self, metric: Metric, edge: u32) -> i64 {
        let levels = &self.metrics[metric as usize];
        let first = levels.most.first().copied().unwrap_or(0);
        first.max(levels.between(&self.trees[metric as usize], 0, edge as usize))
    }

    /// Whether the metric was looked at at an edge itself.
    pub fn is_noted(&self, metric: Metric, edge: u32) -> bool {
        self.metrics[metric as usize].noted.get(edge as usize).copied().unwrap_or(false)
    }

    /// Bytes that the program had read and written at an edge, which tells of them itself where that was cheap; else a look at all layers may.
    pub fn moved(&self, edge: u32) -> [Option<u64>; 2] {
        let told = self.edges.get(edge as usize).and_then(|e| e.moved);
        [(Metric::Read, 0), (Metric::Written, 1)].map(|(metric, at)| {
            let looked = || self.is_noted(metric, edge).then(|| u64::try_from(self.at(metric, edge)).unwrap_or(0));
            told.map(|moved| moved[at]).or_else(looked)
        })
    }

    /// The most that the first look after an edge tells of; part of its stretch is before the edge.
    pub fn next(&self, metric: Metric, edge: u32) -> Option<i64> {
        self.metrics[metric as usize].next.get(edge as usize).copied().flatten()
    }

    /// The most of a metric while an instance was on.
    pub fn most(&self, metric: Metric, of: &Instance) -> i64 {
        self.metrics[metric as usize].between(&self.trees[metric as usize], of.begin as usize, of.end as usize)
    }

    /// The same, without what may have been before: of the first look after an instance began, where it was not looked at then, the level alone.
    /// `None`: nobody looked meanwhile.
    pub fn surely(&self, metric: Metric, of: &Instance) -> Option<i64> {
        self.metrics[metric as usize].surely_between(&self.trees[metric as usize], of.begin as usize, of.end as usize)
    }
}

impl HeapLevels {
    /// The level at an edge; `None` where the replay did not meet it.
    pub fn level(&self, edge: u32) -> Option<i64> {
        let position = self.position.get(edge as usize).copied().flatten()?;
        self.at.level.get(position as usize).copied()
    }

    /// `None` where the replay did not meet its edges.
    pub fn of(&self, i: &Instance) -> Option<HeapOver> {
        let position = |edge: u32| self.position.get(edge as usize).copied().flatten().map(|p| p as usize);
        let (from, to) = (position(i.begin)?, position(i.end)?);
        let level = |at: usize| self.at.level.get(at).copied().unwrap_or(0);
        let settling = self.settling.get(to).copied().unwrap_or(0);
        Some(HeapOver {
            begin: level(from),
            end: level(to) - settling,
            most: self.at.between(&self.tree, from.min(to), to.max(from)),
            bounds: self.bounds(i, settling),
        })
    }

    fn bounds(&self, i: &Instance, settling: i64) -> Option<[[i64; 3]; 2]> {
        let position = |edge: u32| self.side_position.get(edge as usize).copied().flatten().map(|p| p as usize);
        let (from, to) = (position(i.begin)?, position(i.end)?);
        // Edges from outside stand where somebody was told; they can have been before.
        let earliest = |edge: u32, at: usize| {
            let since = self.since.get(edge as usize).copied().flatten();
            since.and_then(position).filter(|then| *then < at).unwrap_or(at)
        };
        let (first, last) = (earliest(i.begin, from), earliest(i.end, to));
        Some([0, 1].map(|side| {
            let (at, tree) = (&self.sides[side], &self.side_trees[side]);
            let between = |a: usize, b: usize| at.between(tree, a.min(b), b.max(a));
            let within = |a: usize, b: usize| match side {
                _ if a == b => at.level[b],
                0 => at.level[a].min(at.level[b]).min(self.least_tree.most(a + 1, b).saturating_neg()),
                _ => between(a, b),
            };
            // It may have been on for less time than its edges say, or for more.
            let most = if side == 0 { between(from, last.max(from)) } else { between(first, to) };
            let more = if side == 0 { -self.unsettled } else { self.unsettled };
            [within(first, from), within(last, to) - settling, most].map(|v| v.saturating_add(more))
        }))
    }
}
