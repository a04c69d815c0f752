//! Map rows of an image, put in order and fed to the range tracker.

use std::collections::BTreeMap;

use super::maps::{MapCall, MapEvent, MapPeaks, MapSite, MapTable, MapTotals, Part, RegionHistory, Remap};
use super::phases::{Metric, PhaseBook};
use super::tickets::Tickets;
use super::timeline::{Series, Timeline};
use crate::trace::maprow::{MapRow, MapWhat};

/// See the module.
pub struct MapFeed {
    tickets: Tickets,
    table: MapTable,
    /// Those that have released and not mapped yet, by their second tickets.
    remaps: BTreeMap<u64, Remapping>,
    unknown: u64,
    /// When resident memory was highest so far, and what was committed then.
    then: (u64, Committed),
}

/// Private memory that the program had asked for of the kernel, touched or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    pub anon: u64,
    pub brk: u64,
}

/// The mappings at the end.
#[derive(Clone, Debug)]
pub struct MapsEnd {
    pub totals: MapTotals,
    pub peaks: MapPeaks,
    pub calls: Vec<MapCall>,
    pub regions: Vec<RegionHistory>,
    pub regions_left_out: u64,
    /// By call site.
    pub sites: Vec<MapSite>,
    /// When resident memory was highest.
    pub at_rss_peak: Committed,
    /// Rows that came too late to be put in order.
    pub late: u64,
    /// Rows of a name that is not known, or too short.
    pub unknown: u64,
}

impl MapFeed {
    /// `page`: the system's page size.
    pub fn new(page: u64) -> Self {
        MapFeed {
            tickets: Tickets::default(),
            table: MapTable::new(page),
            remaps: BTreeMap::new(),
            unknown: 0,
            then: (0, Committed::default()),
        }
    }

    /// Resident memory is the highest so far. Rows of calls before that may be still to come; of calls after it none has been, but where an edge of a phase
    /// was looked at a little after its time.
    pub fn rss_peak(&mut self, t: u64) {
        self.then = (t, self.committed());
    }

    fn committed(&self) -> Committed {
        let totals = self.table.totals();
        Committed { anon: totals.anon.committed, brk: totals.brk.committed }
    }

    /// A row as it stands in the trace.
    pub fn add(&mut self, row: MapRow, timeline: &mut Timeline, phases: &mut PhaseBook) {
        if row.what == MapWhat::Other {
            self.unknown += 1;
            return;
        }
        self.tickets.add(row);
        while let Some(row) = self.tickets.next(false) {
            self.apply(row, timeline, phases);
        }
    }

    fn apply(&mut self, row: MapRow, timeline: &mut Timeline, phases: &mut PhaseBook) {
        while let Some(first) = self.remaps.first_entry().filter(|e| *e.key() < row.n[0]) {
            let (call, remap) = first.remove_entry();
            self.note(remap.at(Part::Map(call)), remap.2, timeline, phases);
        }
        if row.what == MapWhat::Mremap {
            let (call, remap) = (row.n[1], Remapping::of(&row));
            // Where another call took effect before its second ticket, it has two turns.
            if self.tickets.first().is_some_and(|next| next < call) {
                self.note(remap.at(Part::Release(call)), row.site, timeline, phases);
                self.remaps.insert(call, remap);
            } else {
                self.note(remap.at(Part::Whole), row.site, timeline, phases);
            }
        } else if let Some(event) = event_of(&row) {
            self.note(event, row.site, timeline, phases);
        }
    }

    fn note(&mut self, (t, event): (u64, MapEvent), site: u32, timeline: &mut Timeline, phases: &mut PhaseBook) {
        self.table.apply_at(&event, site);
        if t <= self.then.0 {
            self.then.1 = self.committed();
        }
        let totals = self.table.totals();
        timeline.note(t, Series::Maps, totals.anon.committed);
        phases.note_in_order(Metric::Maps, t, totals.committed());
    }

    /// All rows have come.
    pub fn finish(mut self, timeline: &mut Timeline, phases: &mut PhaseBook) -> MapsEnd {
        while let Some(row) = self.tickets.next(true) {
            self.apply(row, timeline, phases);
        }
        for (call, remap) in std::mem::take(&mut self.remaps) {
            self.note(remap.at(Part::Map(call)), remap.2, timeline, phases);
        }
        MapsEnd {
            totals: self.table.totals(),
            peaks: self.table.peaks(),
            calls: self.table.calls(),
            regions: self.table.regions(),
            sites: self.table.sites(),
            at_rss_peak: self.then.1,
            regions_left_out: self.table.regions_left_out(),
            late: self.tickets.late,
            unknown: self.unknown,
        }
    }
}

/// An mremap, its time and its call site.
#[derive(Clone, Copy)]
struct Remapping(u64, Remap, u32);

impl Remapping {
    /// tk0, tk1, t, lane, old, oldlen, new, newlen, flags
    fn of(row: &MapRow) -> Self {
        let [_, _, t, _, old, old_len, new, new_len, flags] = row.n;
        Remapping(t, Remap { old, old_len, new, new_len, flags }, row.site)
    }

    fn at(self, part: Part) -> (u64, MapEvent) {
        let Remapping(t, remap, _) = self;
        (t, MapEvent::Mremap { t, remap, part })
    }
}

/// Time and event of a row, but for an mremap.
fn event_of(row: &MapRow) -> Option<(u64, MapEvent)> {
    let [_, t, _, a, b, c, d, e, _] = row.n;
    Some(match row.what {
        MapWhat::Mmap => (t, MapEvent::Mmap { t, addr: a, len: b, prot: c, flags: d, kind: e }),
        MapWhat::Munmap => (t, MapEvent::Munmap { t, addr: a, len: b }),
        MapWhat::Mprotect => (t, MapEvent::Mprotect { t, addr: a, len: b, prot: c }),
        MapWhat::Madvise => (t, MapEvent::Madvise { t, addr: a, len: b, advice: c }),
        MapWhat::Brk => (t, MapEvent::Brk { t, old: a, new: b }),
        MapWhat::Shmat => (t, MapEvent::Shmat { t, addr: a, len: b }),
        MapWhat::Shmdt => (t, MapEvent::Shmdt { t, addr: a }),
        MapWhat::Mremap | MapWhat::Undo | MapWhat::Other => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(rows: &str) -> MapsEnd {
        let rows: Vec<MapRow> = serde_json::from_str(rows).unwrap();
        let mut timeline = Timeline::new(0, 8);
        let mut feed = MapFeed::new(4096);
        let mut phases = PhaseBook::default();
        rows.into_iter().for_each(|row| feed.add(row, &mut timeline, &mut phases));
        feed.finish(&mut timeline, &mut phases)
    }

    #[test]
    fn what_an_mremap_released_can_be_mapped_anew_before_it_has_mapped() {
        // Two pages move from 65536 to 131072; another thread gets the released ones (tickets 2 … 4), then moves them in turn.
        let end = feed(
            r#"[["mmap",1,5,0,65536,8192,3,34,0],["mremap",2,5,9,0,65536,8192,131072,8192,1],["mmap",3,6,1,65536,8192,3,34,0],
               ["mremap",4,6,9,1,65536,8192,262144,12288,1]]"#,
        );
        assert_eq!(end.totals.anon.committed, 8192 + 12288);
        let calls: Vec<_> = end.calls.iter().map(|c| (c.len, c.maps, c.unmaps)).collect();
        assert_eq!(calls, [(8192, 2, 0)], "what moves is still mapped");
        assert_eq!(end.regions.iter().map(|r| r.end_bytes).sum::<u64>(), 8192 + 12288);

        // A map shrunk in place whose end another thread gets; one grown in place into what another thread has just unmapped.
        let end = feed(
            r#"[["mmap",1,5,0,65536,8192,3,34,0],["mremap",2,4,9,0,65536,8192,65536,4096,0],["mmap",3,6,1,69632,4096,3,34,0],
               ["mremap",5,7,9,0,65536,4096,65536,8192,0],["munmap",6,9,1,69632,4096]]"#,
        );
        assert_eq!(end.totals.anon.committed, 8192);
        assert_eq!(end.peaks.anon.bytes, 8192);
        assert_eq!(end.late, 0);
    }

    #[test]
    fn what_was_committed_at_the_resident_peak_is_of_that_instant() {
        let rows = |text: &str| serde_json::from_str::<Vec<MapRow>>(text).unwrap();
        let (mut feed, mut timeline, mut phases) = (MapFeed::new(4096), Timeline::new(0, 8), PhaseBook::default());
        for row in rows(r#"[["mmap",1,5,0,65536,8192,3,34,0],["brk",2,6,0,1000000,1004096]]"#) {
            feed.add(row, &mut timeline, &mut phases);
        }
        feed.rss_peak(10);
        // One of before comes late; after it more is mapped, and the break moves.
        for row in rows(r#"[["mmap",3,9,1,262144,4096,3,34,0],["mmap",4,11,0,524288,65536,3,34,0],["brk",5,12,0,1004096,1012288]]"#) {
            feed.add(row, &mut timeline, &mut phases);
        }
        let end = feed.finish(&mut timeline, &mut phases);
        assert_eq!(end.at_rss_peak, Committed { anon: 8192 + 4096, brk: 4096 });
        assert_eq!((end.totals.anon.committed, end.peaks.brk.bytes), (8192 + 4096 + 65536, 12288));
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
