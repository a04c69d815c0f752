//! Blocks that a batch's codes end: known by number first, looked up in the live tables later, many at a time.
//!
//! With millions of live blocks each look-up is a cache miss, and what happens next depends on what it gives. So the lines of a
//! chunk are asked for first and used then: their misses go on side by side instead of one after another.

use super::batch::{Change, LaneState, Steps, Totals};
use super::kinds::KindTable;
use super::live::KindId;

/// A block ended at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    pub step: u32,
    /// Lane of the block.
    pub owner: u16,
    /// See `kinds::age_class`; of another lane's block [`OLD`].
    pub age: u8,
    pub seq: u64,
}

/// Of no age that is told apart.
pub const OLD: u8 = u8::MAX;

/// Look-ups under way at once: more than a core has misses open, few enough to be still in its first cache when they are used.
const AHEAD: usize = 64;

/// Looks the blocks up, in order, and adds what their end changes to their steps.
pub fn resolve(endings: &[Ending], lanes: &mut [LaneState], steps: &mut Steps, kinds: &mut KindTable, totals: &mut Totals) {
    for chunk in endings.chunks(AHEAD) {
        let touched = chunk.iter().fold(0, |all, e| all | lanes.get(e.owner as usize).map_or(0, |lane| lane.table.look(e.seq)));
        std::hint::black_box(touched);
        for e in chunk {
            let kind = lanes.get_mut(e.owner as usize).map_or(0, |lane| {
                if !lane.born.is_empty() {
                    lane.born.remove(&e.seq);
                }
                lane.table.take(e.seq)
            });
            steps.end(e.step as usize, kind, end(kind, e.age, kinds, totals));
        }
    }
}

/// What became of a block that a code ends.
fn end(kind: KindId, age: u8, kinds: &mut KindTable, totals: &mut Totals) -> Change {
    totals.frees += 1;
    if kind == 0 {
        totals.unmatched += 1;
        return Change::default();
    }
    let k = kinds.get_mut(kind);
    k.frees += 1;
    if let Some(n) = k.ages.get_mut(age as usize) {
        *n = n.saturating_add(1);
    }
    Change {
        requested: -(k.size as i64),
        usable: -(k.usable as i64),
        selected: if k.selected { -(k.size as i64) } else { 0 },
        selected_count: -(k.selected as i64),
    }
}
