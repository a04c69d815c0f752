//! Map calls in the order in which they took effect: by their tickets. Rows come a little out of order and are held back a little.

use std::collections::{BTreeMap, BTreeSet};

use crate::trace::maprow::{MapRow, MapWhat};

/// Rows held back: a call's row can stay in one lane's ring while other lanes' are drained.
const HELD: usize = 8192;

/// See the module.
#[derive(Debug, Default)]
pub struct Tickets {
    held: BTreeMap<u64, MapRow>,
    undone: BTreeSet<u64>,
    /// The highest ticket given out.
    done: u64,
    /// Rows that came too late to be put in order, or twice.
    pub late: u64,
}

impl Tickets {
    /// A row arrives.
    pub fn add(&mut self, row: MapRow) {
        let ticket = row.n[0];
        match row.what {
            MapWhat::Undo => {
                if self.held.remove(&ticket).is_none() {
                    self.undone.insert(ticket);
                    if self.undone.len() > HELD {
                        self.undone.pop_first();
                    }
                }
            }
            _ if self.undone.remove(&ticket) => {}
            _ => {
                if ticket <= self.done && self.done > 0 {
                    self.late += 1;
                    return;
                }
                self.held.insert(ticket, row);
            }
        }
    }

    /// Ticket of the row that comes next.
    pub fn first(&self) -> Option<u64> {
        self.held.first_key_value().map(|(ticket, _)| *ticket)
    }

    /// The next row that can be given out; with `all`, every one that is held.
    pub fn next(&mut self, all: bool) -> Option<MapRow> {
        if !all && self.held.len() <= HELD {
            return None;
        }
        let (ticket, row) = self.held.pop_first()?;
        self.done = ticket;
        Some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(what: MapWhat, ticket: u64) -> MapRow {
        MapRow { what, n: [ticket, 0, 0, 0, 0, 0, 0, 0, 0], site: 0 }
    }

    #[test]
    fn rows_come_out_by_ticket_without_those_undone() {
        let mut t = Tickets::default();
        for (what, ticket) in
            [(MapWhat::Munmap, 3), (MapWhat::Mmap, 1), (MapWhat::Undo, 3), (MapWhat::Undo, 4), (MapWhat::Munmap, 4), (MapWhat::Brk, 2)]
        {
            t.add(row(what, ticket));
        }
        assert_eq!(t.next(false), None, "held back");
        let order: Vec<u64> = std::iter::from_fn(|| t.next(true)).map(|r| r.n[0]).collect();
        assert_eq!(order, [1, 2]);
    }
}
