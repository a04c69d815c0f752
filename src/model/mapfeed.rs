//! Map rows of an image, put in order and fed to the range tracker.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::forks::{Fork, Forks, RANGES_KEPT};
use super::maps::{MapCall, MapEvent, MapPeaks, MapSite, MapTable, MapTotals, MapsHeld, Part, RegionHistory, Remap};
use super::phases::{Metric, PhaseBook};
use super::tickets::Tickets;
use super::timeline::{Series, Timeline};
use crate::trace::line::Header;
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
    /// Committed at the fork that made this process; `None`: it is no forked child, or nobody knows.
    inherited: Option<u64>,
    /// Of its own forks those that are still to come, and what those before have found mapped.
    forks: VecDeque<Fork>,
    forked: Vec<(Fork, Arc<MapsHeld>)>,
    /// Ranges in `forked`.
    ranges: usize,
    /// Nothing has changed since the last of them.
    same: bool,
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
    /// By call site; what was inherited is of none.
    pub sites: Vec<MapSite>,
    /// Committed at the fork that made this process, counted in the rest; `None`: it is no forked child, or nobody knows.
    pub inherited: Option<u64>,
    /// What its own forks found mapped.
    pub forked: Vec<(Fork, Arc<MapsHeld>)>,
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
            inherited: None,
            forks: VecDeque::new(),
            forked: Vec::new(),
            ranges: 0,
            same: false,
        }
    }

    /// Before any row: an image begins, and finds mapped what its parent had.
    pub fn begin(&mut self, header: &Header, forks: &Forks, timeline: &mut Timeline, phases: &mut PhaseBook) {
        self.forks = forks.by(header).into();
        let Some(held) = forks.inherited_by(header) else { return };
        self.table.inherit(&held, header.mono_ns);
        let totals = self.table.totals();
        self.inherited = Some(totals.committed());
        if !held.is_empty() {
            tell(header.mono_ns, totals, timeline, phases);
        }
    }

    /// Forks before the call of this place.
    fn fork_until(&mut self, ticket: u64) {
        while self.forks.front().is_some_and(|f| f.ticket <= ticket)
            && let Some(fork) = self.forks.pop_front()
        {
            let before = self.forked.last().filter(|_| self.same).map(|(_, held)| held.clone());
            let held = before.unwrap_or_else(|| {
                let held = self.table.held();
                self.ranges += held.len();
                Arc::new(held)
            });
            self.same = true;
            if self.ranges <= RANGES_KEPT {
                self.forked.push((fork, held));
            }
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
        self.fork_until(row.n[0]);
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
        self.same = false;
        if t <= self.then.0 {
            self.then.1 = self.committed();
        }
        let totals = self.table.totals();
        tell(t, totals, timeline, phases);
    }

    /// All rows have come.
    pub fn finish(mut self, timeline: &mut Timeline, phases: &mut PhaseBook) -> MapsEnd {
        while let Some(row) = self.tickets.next(true) {
            self.apply(row, timeline, phases);
        }
        for (call, remap) in std::mem::take(&mut self.remaps) {
            self.note(remap.at(Part::Map(call)), remap.2, timeline, phases);
        }
        self.fork_until(u64::MAX);
        MapsEnd {
            inherited: self.inherited,
            forked: self.forked,
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

fn tell(t: u64, totals: MapTotals, timeline: &mut Timeline, phases: &mut PhaseBook) {
    timeline.note(t, Series::Maps, totals.committed());
    timeline.note(t, Series::Anon, totals.anon.committed.saturating_add(totals.brk.committed));
    phases.note_in_order(Metric::Maps, t, totals.committed());
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
    use crate::trace::family::Member;

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

    /// A forked child finds mapped what its parent's calls before the fork have left, and what it does with that is its own.
    #[test]
    fn a_forked_child_has_its_parents_maps() {
        let header = |text: &str| serde_json::from_str::<Header>(text).unwrap();
        let parent = header(r#"{"pid":1,"mono_ns":0,"page":4096}"#);
        let forked = |pid: u32, ticket: u64| {
            let inherited = format!(r#""inherited":{{"from":1,"map_ticket":{ticket}}}"#);
            header(&format!(r#"{{"pid":{pid},"mono_ns":{pid}0,"page":4096,{inherited}}}"#))
        };
        let children = [forked(2, 1), forked(3, 4), forked(4, 4), forked(5, 9)];
        let dir = tempfile::tempdir().unwrap();
        let members: Vec<Member> = children
            .iter()
            .map(|h| {
                let path = dir.path().join(format!("{}.jsonl", h.pid));
                let inherited = format!(r#""inherited":{{"from":1,"map_ticket":{}}}"#, h.inherited.as_ref().unwrap().map_ticket.unwrap());
                let line = format!(r#"{{"type":"header","pid":{},"mono_ns":{},"page":4096,{inherited}}}"#, h.pid, h.mono_ns);
                std::fs::write(&path, line + "\n").unwrap();
                Member { path, spools: Vec::new() }
            })
            .collect();
        let (forks, _) = Forks::of(&members);
        let read = |header: &Header, rows: &str| {
            let rows: Vec<MapRow> = serde_json::from_str(rows).unwrap();
            let (mut feed, mut timeline, mut phases) = (MapFeed::new(4096), Timeline::new(0, 8), PhaseBook::default());
            feed.begin(header, &forks, &mut timeline, &mut phases);
            rows.into_iter().for_each(|row| feed.add(row, &mut timeline, &mut phases));
            let mut end = feed.finish(&mut timeline, &mut phases);
            end.forked.drain(..).for_each(|(fork, held)| forks.keep(fork, held));
            (end, timeline)
        };
        // Four pages and a stack of a thread, then a shared one; then half of the first are unmapped, and the break moves.
        read(
            &parent,
            r#"[["mmap",1,5,0,65536,16384,3,34,0],["mmap",2,5,0,1048576,8192,3,34,8],["mmap",3,6,0,131072,4096,3,33,1],
               ["munmap",4,7,0,65536,8192],["brk",6,8,0,1000000,1004096]]"#,
        );
        // None of it, all of it but the stack, and what was left later.
        let (none, _) = read(&children[0], "[]");
        assert_eq!((none.inherited, none.peaks.total.bytes), (Some(0), 0));
        let (own, timeline) = read(&children[1], r#"[["munmap",4,40,0,65536,4096],["mmap",5,41,0,524288,4096,3,34,0]]"#);
        assert_eq!((own.inherited, own.peaks.total.bytes, own.totals.anon.committed), (Some(5 * 4096), 5 * 4096, 4 * 4096));
        assert_eq!((own.totals.shared.committed, own.totals.stack.committed), (4096, 0));
        let last = timeline.points().last().map(|p| p.last).unwrap();
        assert_eq!([last[2], last[3]], [5 * 4096, 4 * 4096], "maps of all classes, and the private ones");
        let sites: Vec<_> = own.sites.iter().map(|s| (s.now, s.total)).collect();
        assert_eq!((sites, own.calls.len()), (vec![(4096, 4096)], 1), "no call of its own made the rest");
        let (same, _) = read(&children[2], "[]");
        assert_eq!(same.inherited, Some(5 * 4096));
        let (late, _) = read(&children[3], r#"[["brk",9,60,0,1004096,1000000]]"#);
        assert_eq!((late.inherited, late.totals.brk.committed), (Some(4 * 4096), 0));
        let unknown = header(r#"{"pid":9,"inherited":{"from":1}}"#);
        assert_eq!(read(&unknown, "[]").0.inherited, None);
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
