//! The programs of `cases/` as event sequences, with the sums they state about themselves; and a page-by-page model beside the table.

use super::*;
use proptest::prelude::*;

const RW: u64 = 3;
const NONE: u64 = 0;
const ANON: u64 = 0x22;
const FIXED: u64 = 0x32;
const AT: u64 = 0x7000_0000_0000;

fn mmap(addr: u64, len: u64, prot: u64, flags: u64, kind: u64) -> MapEvent {
    MapEvent::Mmap { t: 1, addr, len, prot, flags, kind }
}

fn munmap(addr: u64, len: u64) -> MapEvent {
    MapEvent::Munmap { t: 1, addr, len }
}

fn mremap(old: u64, old_len: u64, new: u64, new_len: u64, flags: u64) -> MapEvent {
    MapEvent::Mremap { t: 1, remap: Remap { old, old_len, new, new_len, flags }, part: Part::Whole }
}

fn after(events: impl IntoIterator<Item = MapEvent>) -> MapTable {
    let mut table = MapTable::new(4096);
    events.into_iter().for_each(|e| table.apply(&e));
    table
}

fn history(table: &MapTable, addr: u64) -> Vec<u64> {
    table.regions().into_iter().find(|r| r.addr == addr).map(|r| r.anon_bytes).unwrap_or_default()
}

/// What the checker of the cases does: the values in order, others between them allowed.
fn goes_through(history: &[u64], wanted: &[u64]) -> bool {
    let mut rest = history.iter();
    wanted.iter().all(|w| rest.any(|h| h == w))
}

fn unmaps(table: &MapTable, len: u64) -> (u64, u64) {
    let rows = table.calls().into_iter().filter(|c| c.len == len);
    rows.fold((0, 0), |sum, c| (sum.0 + c.maps, sum.1 + c.unmaps))
}

#[test]
fn case_munmap_holes() {
    let q = AT + (1 << 30);
    let holes = (0..100).step_by(2).map(|i| munmap(AT + i * 4096, 4096));
    let joined = (0..3).map(|i| mmap(q + i * 12288, 12288, RW, FIXED, 0));
    let t = after(
        [mmap(AT, 409_600, RW, ANON, 0)]
            .into_iter()
            .chain(holes)
            .chain([munmap(AT, 409_600), mmap(q, 36864, NONE, ANON, 0), munmap(q, 36864)])
            .chain(joined)
            .chain([munmap(q, 36864 - 100)]),
    );
    assert!(goes_through(&history(&t, AT), &[409_600, 204_800, 0]), "{:?}", history(&t, AT));
    assert!(goes_through(&history(&t, q), &[36864, 0]), "{:?}", history(&t, q));
    assert_eq!((unmaps(&t, 409_600), unmaps(&t, 12288), unmaps(&t, 36864)), ((1, 1), (3, 3), (1, 1)));
    assert_eq!((t.totals().committed(), t.peaks().anon.bytes), (0, 409_600));
}

#[test]
fn case_map_fixed_over() {
    let t = after([
        mmap(AT, 131_072, RW, ANON, 0),
        mmap(AT + 32768, 16384, RW, 0x12, 2),
        mmap(AT + 65536, 32768, RW, FIXED, 0),
        mmap(AT + 32768, 16384, RW, FIXED, 0),
        munmap(AT, 131_072),
    ]);
    assert_eq!(history(&t, AT), [131_072, 114_688, 114_688, 131_072, 0]);
    assert_eq!((t.peaks().file.bytes, t.peaks().anon.bytes, t.totals()), (16384, 131_072, MapTotals::default()));
}

#[test]
fn case_mremap_all_forms() {
    let (p, q, hole, sh, dup) = (AT, AT + (1 << 20), AT + (2 << 20), AT + (3 << 20), AT + (4 << 20));
    let mut t = after([
        mmap(p, 40960, RW, ANON, 0),
        mmap(p + 40960, 4096, NONE, ANON, 0),
        mremap(p, 40960, q, 81920, 1),
        mremap(q, 81920, q, 20480, 0),
        mmap(hole, 65536, NONE, ANON, 0),
        mremap(q, 20480, hole + 8192, 20480, 3),
        mmap(sh, 8192, RW, 0x21, 1),
        mremap(sh, 0, dup, 8192, 1),
    ]);
    let totals = t.totals();
    assert_eq!((totals.shared.committed, totals.anon.committed, totals.anon.reserved), (16384, 20480, 65536 - 20480 + 4096));
    for e in [munmap(dup, 8192), munmap(sh, 8192), munmap(hole, 65536), munmap(p + 40960, 4096)] {
        t.apply(&e);
    }
    assert_eq!(history(&t, p), [40960, 81920, 20480, 20480, 0]);
    assert_eq!((t.totals().committed(), unmaps(&t, 40960), unmaps(&t, 65536), unmaps(&t, 8192)), (0, (1, 1), (1, 1), (1, 1)));
}

#[test]
fn case_mremap_in_place_keeps_one_region() {
    let t = after([mmap(AT, 40960, RW, ANON, 0), mremap(AT, 40960, AT, 81920, 1), mremap(AT, 81920, AT, 20480, 0), munmap(AT, 20480)]);
    assert_eq!(history(&t, AT), [40960, 81920, 20480, 0]);
    assert_eq!(unmaps(&t, 40960), (1, 1));
}

#[test]
fn case_huge_reserve() {
    let r = 64 << 30;
    let t = after([mmap(AT, r, NONE, 0x4022, 0), MapEvent::Mprotect { t: 5, addr: AT + (8 << 30), len: 4 << 20, prot: RW }, munmap(AT, r)]);
    let region = &t.regions()[0];
    assert_eq!((region.peak_bytes, region.end_bytes, region.len), (4 << 20, 0, r));
    assert_eq!(t.peaks().anon, Peak { bytes: 4 << 20, t: 5 });
    assert_eq!(t.calls(), [MapCall { len: r, kind: MapKind::AnonPrivate, maps: 1, unmaps: 1, prot_none: 1 }]);
}

#[test]
fn case_brk_allocator() {
    let steps = [(0, 262_144), (262_144, 1_048_576), (1_048_576, 524_288), (524_288, 0)];
    let t = after(steps.map(|(old, new)| MapEvent::Brk { t: 1, old: AT + old, new: AT + new }));
    let totals = t.totals();
    assert_eq!((totals.brk_up, totals.brk_down, totals.brk.committed, t.peaks().brk.bytes), (1_048_576, 1_048_576, 0, 1_048_576));
}

#[test]
fn case_file_anon_shm_kinds() {
    let each = [(24576, 0), (28672, 1), (36864, 2), (45056, 3), (53248, 5), (61440, 6)];
    let mut t = after(each.iter().flat_map(|&(len, kind)| [mmap(AT, len, RW, 0, kind), munmap(AT, len)]));
    let calls: Vec<_> = t.calls().into_iter().map(|c| (c.len, c.kind.name(), c.maps, c.unmaps)).collect();
    let names = ["anon_private", "anon_shared", "file_private", "file_shared", "memfd_shared", "dev_zero_private"];
    let wanted: Vec<_> = each.iter().zip(names).map(|(&(len, _), name)| (len, name, 1, 1)).collect();
    assert_eq!(calls, wanted);
    t.apply(&MapEvent::Shmat { t: 1, addr: AT, len: 69632 });
    assert_eq!(t.totals().shared.committed, 69632);
    t.apply(&MapEvent::Shmdt { t: 1, addr: AT });
    assert_eq!(t.totals().shared.committed, 0);
}

#[test]
fn given_back_bytes_stay_mapped() {
    let t = after([mmap(AT, 16 << 20, RW, ANON, 0), MapEvent::Madvise { t: 1, addr: AT, len: 16 << 20, advice: MADV_DONTNEED }]);
    assert_eq!((t.totals().anon.committed, t.totals().given_back), (16 << 20, 16 << 20));
}

#[test]
fn an_unknown_range_changes_nothing() {
    let t = after([
        munmap(AT, 4096),
        mremap(AT, 4096, AT + 8192, 8192, 1),
        MapEvent::Mprotect { t: 1, addr: AT, len: u64::MAX, prot: RW },
        MapEvent::Shmdt { t: 1, addr: AT },
        munmap(u64::MAX - 1, u64::MAX),
    ]);
    assert_eq!((t.totals(), t.regions().len()), (MapTotals::default(), 0));
}

#[test]
fn a_long_life_is_cut_but_keeps_its_peak_and_its_end() {
    let grow = (0..200u64).map(|i| mremap(AT, (i + 1) * 4096, AT, (i + 2) * 4096, 1));
    let t = after([mmap(AT, 4096, RW, ANON, 0)].into_iter().chain(grow).chain([munmap(AT + 4096, 200 * 4096)]));
    let r = &t.regions()[0];
    assert_eq!((r.peak_bytes, r.end_bytes, r.cut, r.anon_bytes.len(), *r.anon_bytes.last().unwrap()), (201 * 4096, 4096, true, 64, 4096));
}

#[test]
fn the_table_stays_small_when_mappings_come_and_go() {
    let events = (0..100_000u64).flat_map(|i| {
        let at = AT + (i % 5000) * (1 << 20);
        [mmap(at, 4096 * (1 + i % 7), RW, ANON, 0), munmap(at, 4096 * (1 + i % 7))]
    });
    let t = after(events);
    assert_eq!((t.totals().committed(), t.regions().len()), (0, 512));
    assert_eq!(t.regions_left_out(), 100_000 - 512);
}

/// A page-by-page model: (kind, committed) of each of 64 pages.
#[derive(Default)]
struct Pages(std::collections::BTreeMap<u64, (u64, bool)>);

impl Pages {
    fn apply(&mut self, e: &MapEvent) {
        let range = |addr: u64, len: u64| addr / 4096..addr / 4096 + len.div_ceil(4096);
        match *e {
            MapEvent::Mmap { addr, len, prot, kind, .. } => range(addr, len).for_each(|p| {
                self.0.insert(p, (kind, prot != 0));
            }),
            MapEvent::Munmap { addr, len, .. } => range(addr, len).for_each(|p| {
                self.0.remove(&p);
            }),
            MapEvent::Mprotect { addr, len, prot, .. } => range(addr, len).for_each(|p| {
                self.0.entry(p).and_modify(|v| v.1 = prot != 0);
            }),
            MapEvent::Mremap { remap: Remap { old, old_len, new, new_len, .. }, .. } => {
                let (from, to) = (range(old, old_len), range(new, new_len));
                let mut taken: Vec<Option<(u64, bool)>> = from.map(|p| self.0.remove(&p)).collect();
                let last = taken.iter().flatten().next_back().copied();
                to.clone().for_each(|p| {
                    self.0.remove(&p);
                });
                if old == new {
                    // In place, only a mapped last page is extended.
                    let grows = taken.last().copied().flatten();
                    taken.resize(new_len.div_ceil(4096) as usize, grows);
                } else if let Some(end) = taken.iter().rposition(Option::is_some) {
                    taken.truncate(end + 1);
                    taken.resize(new_len.div_ceil(4096) as usize, last);
                }
                to.zip(taken).for_each(|(p, v)| {
                    if let Some(v) = v {
                        self.0.insert(p, v);
                    }
                });
            }
            _ => {}
        }
    }

    fn sum(&self, class: &[u64], committed: bool) -> u64 {
        self.0.values().filter(|(k, c)| class.contains(k) && *c == committed).count() as u64 * 4096
    }
}

fn any_event() -> impl Strategy<Value = MapEvent> {
    let page = 0..60u64;
    let len = 1..6u64;
    let prot = prop_oneof![Just(RW), Just(NONE)];
    prop_oneof![
        (page.clone(), 1..24_000u64, prot.clone(), 0..9u64, any::<bool>()).prop_map(|(p, len, prot, kind, fixed)| mmap(
            AT + p * 4096,
            len,
            prot,
            if fixed { FIXED } else { ANON },
            kind
        )),
        (page.clone(), 1..24_000u64).prop_map(|(p, len)| munmap(AT + p * 4096, len)),
        (page.clone(), len.clone(), prot).prop_map(|(p, n, prot)| MapEvent::Mprotect { t: 1, addr: AT + p * 4096, len: n * 4096, prot }),
        (page.clone(), len.clone(), page, len, any::<bool>()).prop_filter_map("mremap never overlaps", |(p, n, q, m, stay)| {
            let q = if stay { p } else { q };
            let apart = p == q || p + n <= q || q + m <= p;
            apart.then(|| mremap(AT + p * 4096, n * 4096, AT + q * 4096, m * 4096, 1))
        }),
    ]
}

/// An mremap as its two parts, one after the other.
fn in_parts(e: &MapEvent) -> impl Iterator<Item = MapEvent> {
    let parts = match *e {
        MapEvent::Mremap { t, remap, .. } => [Part::Release(1), Part::Map(1)].map(|part| Some(MapEvent::Mremap { t, remap, part })),
        other => [Some(other), None],
    };
    parts.into_iter().flatten()
}

/// What grows is of the call that mapped it, also in its sums; a second view of shared memory is a call of its own.
#[test]
fn a_site_has_asked_for_what_its_maps_have_grown_to() {
    const PAGE: u64 = 4096;
    for whole in [true, false] {
        let mut table = MapTable::new(PAGE);
        let mut at = |event: MapEvent, site: u32| {
            let parts: Vec<MapEvent> = if whole { vec![event] } else { in_parts(&event).collect() };
            parts.iter().for_each(|e| table.apply_at(e, site));
        };
        let remap = |old, old_len, new, new_len| MapEvent::Mremap {
            t: 1,
            remap: Remap { old, old_len, new, new_len, flags: 1 },
            part: Part::Whole,
        };
        at(mmap(AT, 4 * PAGE, 3, 0x22, 0), 1);
        at(remap(AT, 4 * PAGE, AT, 6 * PAGE), 2);
        at(remap(AT, 6 * PAGE, AT + 64 * PAGE, 7 * PAGE), 3);
        at(remap(AT + 64 * PAGE, 7 * PAGE, AT + 64 * PAGE, 5 * PAGE), 3);
        at(mmap(AT + 128 * PAGE, PAGE, 3, 0x21, 1), 4);
        at(remap(AT + 128 * PAGE, 0, AT + 130 * PAGE, PAGE), 5);
        let mut rows: Vec<_> = table.sites().iter().map(|s| (s.site, s.now as u64 / PAGE, s.total / PAGE, s.calls)).collect();
        rows.sort_unstable();
        assert_eq!(rows, [(1, 5, 7, 1), (4, 1, 1, 1), (5, 1, 1, 1)], "{whole}");
    }
}

proptest! {
    #[test]
    fn the_table_agrees_with_a_page_by_page_model(events in proptest::collection::vec(any_event(), 1..60)) {
        let mut table = MapTable::new(4096);
        let mut halves = MapTable::new(4096);
        let mut pages = Pages::default();
        for e in &events {
            table.apply(e);
            in_parts(e).for_each(|part| halves.apply(&part));
            pages.apply(e);
            let t = table.totals();
            prop_assert_eq!(t, halves.totals());
            for (class, kinds) in [(t.anon, &[0, 6][..]), (t.file, &[2, 3]), (t.shared, &[1, 4, 5, 7]), (t.stack, &[8])] {
                prop_assert_eq!(class.committed, pages.sum(kinds, true));
                prop_assert_eq!(class.reserved, pages.sum(kinds, false));
            }
            let regions: u64 = table.regions().iter().map(|r| r.end_bytes).sum();
            prop_assert_eq!(regions, pages.sum(&[0, 6, 8], true));
        }
        let end = AT + 200 * 4096;
        table.apply(&munmap(AT, end - AT));
        prop_assert!(table.calls().iter().all(|c| c.maps == c.unmaps), "{:?}", table.calls());
        halves.apply(&munmap(AT, end - AT));
        prop_assert_eq!(table.calls(), halves.calls());
        prop_assert_eq!(table.totals(), MapTotals::default());
    }

    #[test]
    fn wild_numbers_do_no_harm(rows in proptest::collection::vec((0..8u8, any::<[u64; 5]>()), 1..40)) {
        let mut table = MapTable::new(rows[0].1[0]);
        for (what, [a, b, c, d, e]) in rows {
            table.apply(&match what {
                0 => mmap(a, b, c, d, e % 12),
                1 => munmap(a, b),
                2 => {
                    let part = [Part::Whole, Part::Release(d % 3), Part::Map(d % 3)][(c % 3) as usize];
                    MapEvent::Mremap { t: 1, remap: Remap { old: a, old_len: b, new: c, new_len: d, flags: e }, part }
                }
                3 => MapEvent::Mprotect { t: e, addr: a, len: b, prot: c },
                4 => MapEvent::Madvise { t: e, addr: a, len: b, advice: c % 10 },
                5 => MapEvent::Brk { t: e, old: a, new: b },
                6 => MapEvent::Shmat { t: e, addr: a, len: b },
                _ => MapEvent::Shmdt { t: e, addr: a },
            });
        }
    }
}
