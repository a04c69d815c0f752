//! Edges of phases among the steps of a group: where the replay is cut, which phases are on in a line, and what a function that has returned
//! still held.

use super::*;

impl Heap {
    /// The edges that belong to the group being ended, by time; the windows of the batches that they have a place in are split there.
    pub(super) fn cuts(&mut self, batches: &mut [Batch], end: u64) -> Vec<Cut> {
        let group = self.group.unwrap_or(0);
        let mut cuts = Vec::new();
        for e in self.edges.take_until(group, end) {
            let place = place_in(batches, group, &e);
            if let Some(place) = place {
                windows_at(batches, &place).into_iter().for_each(|w| merge::pin_at_step(w, place.step, e.t));
                self.after.insert(place.lane, e.t);
            }
            cuts.push(Cut { edge: e.edge, t: e.t, place });
        }
        cuts
    }

    /// Which phases are on in a line: from step, number of their set.
    pub(super) fn on_in(&mut self, ev: &Ev, stamps: &[u64]) -> Vec<(u32, u32)> {
        let Some(left) = &mut self.left else { return Vec::new() };
        let steps = usize::try_from(ev.n).unwrap_or(usize::MAX);
        let mut windows = None;
        let mut due: Vec<(usize, &Turn)> = Vec::new();
        for turn in self.turns.until(ev.g, ev.t1) {
            match turn.at.place {
                Some((lane, group, at)) if (lane, group) == (ev.lane, ev.g) => due.push((usize::try_from(at).unwrap_or(usize::MAX), turn)),
                _ if turn.at.t > ev.t1 => {}
                _ => {
                    let windows = windows.get_or_insert_with(|| merge::windows(stamps, self.tick_ns, steps, ev.t0, ev.t1));
                    due.push((merge::steps_until(windows, turn.at.t), turn));
                }
            }
        }
        due.sort_by_key(|(step, _)| *step);
        let mut on = self.on.clone();
        let mut all = vec![(0, left.set(&on))];
        for (step, turn) in due {
            on.turn(turn);
            all.push((u32::try_from(step).unwrap_or(u32::MAX), left.set(&on)));
        }
        all
    }

    /// Begins and ends of phases in the group being ended, by time; runs are cut there.
    pub(super) fn due_turns(&mut self, batches: &mut [Batch], end: u64) -> Vec<(Cut, Turn)> {
        let group = self.group.unwrap_or(0);
        let mut all = Vec::new();
        for turn in self.turns.take_until(group, end) {
            self.on.turn(&turn);
            let HeapEdge { edge, t, .. } = turn.at;
            let place = place_in(batches, group, &turn.at);
            if let Some(place) = place {
                windows_at(batches, &place).into_iter().for_each(|w| merge::split_at_step(w, place.step, t));
            }
            all.push((Cut { edge, t, place }, turn));
        }
        all
    }
}

/// Where an edge stands among the batches of the group. One whose lane has none in its group stands before what comes next of the lane.
fn place_in(batches: &[Batch], group: u64, e: &HeapEdge) -> Option<Place> {
    let (lane, of, at) = e.place.filter(|(lane, ..)| *lane <= LANE_MAX)?;
    if of != group {
        return Some(Place { lane, batch: 0, step: 0 });
    }
    let Some(batch) = batches.iter().position(|b| b.lane == lane) else { return Some(Place { lane, batch: batches.len(), step: 0 }) };
    Some(Place { lane, batch, step: usize::try_from(at).unwrap_or(usize::MAX).min(batches[batch].steps.len()) })
}

/// The windows of the batch that a place is in, if it is in one of the group's.
fn windows_at<'a>(batches: &'a mut [Batch], place: &Place) -> Option<&'a mut Vec<Window>> {
    batches.get_mut(place.batch).filter(|b| b.lane == place.lane).map(|b| &mut b.windows)
}

/// Bytes of the blocks allocated since `since` that the lane frees straight after step `at`, before it does anything else, and how many they
/// are: what the frame of a function that has just returned still held.
pub(super) fn settling(own: &[Ending], steps: &Steps, at: u64, since: u64) -> (i64, u64) {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    let first = own.partition_point(|e| (e.step as usize) < at);
    let (mut bytes, mut blocks) = (0, 0);
    // Beyond the last step there is none.
    for (step, e) in (at..steps.requested.len()).zip(own[first..].iter().take_while(|e| e.seq >= since)) {
        match steps.requested.get(step) {
            Some(change) if e.step as usize == step && *change < 0 => (bytes, blocks) = (bytes - change, blocks + 1),
            _ => break,
        }
    }
    (bytes, blocks)
}
