//! Map rows of an image, put in order and fed to the range tracker.

use super::tickets::Tickets;
use super::timeline::Timeline;
use crate::trace::maprow::MapRow;

/// See the module.
pub struct MapFeed {
    tickets: Tickets,
}

/// The mappings at the end.
#[derive(Default)]
pub struct MapsEnd {
    pub late: u64,
}

impl MapFeed {
    pub fn new(_page: u64) -> Self {
        MapFeed { tickets: Tickets::default() }
    }

    /// A row as it stands in the trace.
    pub fn add(&mut self, row: MapRow, timeline: &mut Timeline) {
        self.tickets.add(row);
        while let Some(row) = self.tickets.next(false) {
            self.apply(row, timeline);
        }
    }

    fn apply(&mut self, _row: MapRow, _timeline: &mut Timeline) {}

    /// All rows have come.
    pub fn finish(mut self, timeline: &mut Timeline) -> MapsEnd {
        while let Some(row) = self.tickets.next(true) {
            self.apply(row, timeline);
        }
        MapsEnd { late: self.tickets.late }
    }
}
