//! What an image says of others: whom it started, who ended, what it becomes.

use super::{Image, LISTED};
use crate::trace::line::Child;

/// Between the announcement of an exec and the end of the image, ns, at most: the new program is read from wherever it lies. And how long other
/// threads have events after it.
const EXEC_TAKES: u64 = 2_000_000_000;
const OTHERS_GO_ON: u64 = 50_000_000;

impl Image {
    /// It was seen at `t`: an exec before failed. One that succeeds can have a look between its announcement and the end of the other threads.
    pub(super) fn lives_at(&mut self, t: u64) {
        if self.end.exec_announced.as_ref().is_some_and(|exec| t > exec.t.saturating_add(EXEC_TAKES)) {
            self.end.exec_announced = None;
        }
    }

    /// It had an event at `t`.
    pub(super) fn acts_at(&mut self, t: u64) {
        if self.end.exec_announced.as_ref().is_some_and(|exec| t > exec.t.saturating_add(OTHERS_GO_ON)) {
            self.end.exec_announced = None;
        }
    }

    pub(super) fn read_child(&mut self, child: Child) {
        self.at(child.t);
        if child.how == "exec" {
            self.end.exec_announced = Some(child);
            return;
        }
        if child.how == "ended" {
            if self.end.killed_children.len() < LISTED {
                self.end.killed_children.extend(child.signal.map(|signal| (child.pid, child.t, signal)));
            }
            return;
        }
        let known = |c: &Child| (&c.how, c.pid) == (&child.how, child.pid);
        // A spool can say again what the trace holds.
        if self.end.recovered && self.end.children.iter().rev().take(1000).any(known) {
            return;
        }
        // It tried one program after another.
        if let Some(last) = self.end.children.last_mut().filter(|c| child.how == "vfork" && known(c)) {
            *last = child;
            return;
        }
        self.end.child_count += 1;
        if self.end.children.len() < LISTED {
            self.end.children.push(child);
        }
    }
}
