//! Layered snapshots at edges: of the many that a program of many steps has, each phase needs that of its first begin and that of its last end.

use super::*;
use std::collections::HashSet;

/// The latest ones, which are kept because they may be of edges that are told of later; and paths that keep theirs.
const KEPT: usize = 1 << 11;

/// Snapshots by time.
#[derive(Default)]
pub(super) struct Shown {
    pub snapshots: BTreeMap<u64, Value>,
    /// Of each path, when its first begin and its last end with a snapshot were.
    paths: HashMap<u32, [Option<u64>; 2]>,
    /// As many as were needed when they were thinned last.
    needed: usize,
}

impl PhaseBook {
    /// A layered snapshot at an edge, which is told of later.
    pub fn snapshot(&mut self, t: u64, snapshot: Value) {
        let shown = &mut self.shown;
        shown.snapshots.insert(t, snapshot);
        if shown.snapshots.len() < shown.needed + 2 * KEPT {
            return;
        }
        let needed: HashSet<u64> = shown.paths.values().flatten().copied().flatten().collect();
        let latest = shown.snapshots.keys().rev().nth(KEPT).copied().unwrap_or(0);
        shown.snapshots.retain(|t, _| *t > latest || needed.contains(t));
        shown.needed = needed.len();
    }

    /// A path begins (0) or ends (1) at an edge: whether the snapshot there, if there is one, is to be kept.
    pub(super) fn shows(&mut self, path: u32, edge: u32, which: usize) {
        let shown = &mut self.shown;
        let Some(t) = self.edges.get(edge as usize).map(|e| e.t).filter(|t| shown.snapshots.contains_key(t)) else { return };
        if shown.paths.len() < KEPT || shown.paths.contains_key(&path) {
            let kept = &mut shown.paths.entry(path).or_default()[which];
            *kept = kept.filter(|_| which == 0).or(Some(t));
        }
    }
}
