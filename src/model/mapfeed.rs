//! Map rows of an image, put in order and fed to the range tracker.

use super::maps::{MapCall, MapEvent, MapPeaks, MapTable, MapTotals, RegionHistory};
use super::tickets::Tickets;
use super::timeline::{Series, Timeline};
use crate::trace::maprow::{MapRow, MapWhat};

/// See the module.
pub struct MapFeed {
    tickets: Tickets,
    table: MapTable,
    unknown: u64,
}

/// The mappings at the end.
#[derive(Clone, Debug)]
pub struct MapsEnd {
    pub totals: MapTotals,
    pub peaks: MapPeaks,
    pub calls: Vec<MapCall>,
    pub regions: Vec<RegionHistory>,
    pub regions_left_out: u64,
    /// Rows that came too late to be put in order.
    pub late: u64,
    /// Rows of a name that is not known, or too short.
    pub unknown: u64,
}

impl MapFeed {
    /// `page`: the system's page size.
    pub fn new(page: u64) -> Self {
        MapFeed { tickets: Tickets::default(), table: MapTable::new(page), unknown: 0 }
    }

    /// A row as it stands in the trace.
    pub fn add(&mut self, row: MapRow, timeline: &mut Timeline) {
        if row.what == MapWhat::Other {
            self.unknown += 1;
            return;
        }
        self.tickets.add(row);
        while let Some(row) = self.tickets.next(false) {
            self.apply(row, timeline);
        }
    }

    fn apply(&mut self, row: MapRow, timeline: &mut Timeline) {
        let Some((t, event)) = event_of(&row) else { return };
        self.table.apply(&event);
        timeline.note(t, Series::Maps, self.table.totals().anon.committed);
    }

    /// All rows have come.
    pub fn finish(mut self, timeline: &mut Timeline) -> MapsEnd {
        while let Some(row) = self.tickets.next(true) {
            self.apply(row, timeline);
        }
        MapsEnd {
            totals: self.table.totals(),
            peaks: self.table.peaks(),
            calls: self.table.calls(),
            regions: self.table.regions(),
            regions_left_out: self.table.regions_left_out(),
            late: self.tickets.late,
            unknown: self.unknown,
        }
    }
}

/// Time and event of a row. An mremap releases at its first ticket and maps at its second; here it does both at the first.
fn event_of(row: &MapRow) -> Option<(u64, MapEvent)> {
    let [_, t, _, a, b, c, d, e, f] = row.n;
    Some(match row.what {
        MapWhat::Mmap => (t, MapEvent::Mmap { t, addr: a, len: b, prot: c, flags: d, kind: e }),
        MapWhat::Munmap => (t, MapEvent::Munmap { t, addr: a, len: b }),
        // tk0, tk1, t, lane, old, oldlen, new, newlen, flags
        MapWhat::Mremap => {
            let t = row.n[2];
            (t, MapEvent::Mremap { t, old: b, old_len: c, new: d, new_len: e, flags: f })
        }
        MapWhat::Mprotect => (t, MapEvent::Mprotect { t, addr: a, len: b, prot: c }),
        MapWhat::Madvise => (t, MapEvent::Madvise { t, addr: a, len: b, advice: c }),
        MapWhat::Brk => (t, MapEvent::Brk { t, old: a, new: b }),
        MapWhat::Shmat => (t, MapEvent::Shmat { t, addr: a, len: b }),
        MapWhat::Shmdt => (t, MapEvent::Shmdt { t, addr: a }),
        MapWhat::Undo | MapWhat::Other => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(rows: &str) -> MapsEnd {
        let rows: Vec<MapRow> = serde_json::from_str(rows).unwrap();
        let mut timeline = Timeline::new(0, 8);
        let mut feed = MapFeed::new(4096);
        rows.into_iter().for_each(|row| feed.add(row, &mut timeline));
        feed.finish(&mut timeline)
    }

    #[test]
    fn rows_mean_what_the_format_says() {
        let end = feed(
            r#"[["mremap",2,3,7,0,65536,4096,131072,8192,1],["mmap",1,5,0,65536,4096,3,34,0],["munmap",4,8,0,131072,4096],["undo",9],
               ["brk",5,9,0,1000000,1004096],["brk",6,9,0,1004096,1000000],["munmap",9,9,0,0,99999999],["mmap",10,10,0,9999998976,12288,0,34,0]]"#,
        );
        assert_eq!((end.totals.anon.committed, end.totals.anon.reserved), (4096, 12288));
        assert_eq!(end.peaks.anon.bytes, 8192);
        assert_eq!((end.totals.brk_up, end.totals.brk_down, end.totals.brk.committed), (4096, 4096, 0));
        assert_eq!(end.late, 0);
    }
}
