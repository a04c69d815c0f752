use super::*;
use crate::model::sweep::AtEdge;

fn row(what: What, t: u64, source: u8, name: u32) -> EdgeRow {
    EdgeRow { what, t, lane: 0, group: 0, at: 0, seq: 0, source, name, range: 0, live: 0, usage: None, moved: None }
}

fn name(number: u32, domain: &str, name: &str) -> [PhaseRow; 2] {
    [(true, domain), (false, name)].map(|(of_domain, text)| PhaseRow::Name { of_domain, number, piece: 0, text: text.into() })
}

fn shown(book: PhaseBook) -> Vec<(String, u64, u64, u64, bool)> {
    let end = book.finish(Vec::new(), Default::default());
    let t = |e: u32| end.edges[e as usize].t;
    end.instances.iter().map(|i| (end.paths[i.path as usize].names.join("/"), t(i.begin), t(i.end), i.inner_ns, i.ended)).collect()
}

#[test]
fn phases_nest_by_thread_and_ends_find_their_own_source_and_domain() {
    let mut book = PhaseBook::default();
    name(1, "", "a").into_iter().chain(name(2, "lib", "b")).chain(name(9, "", "lib")).for_each(|n| book.add(n, false));
    for e in [
        row(What::Begin, 10, 0, 1),
        row(What::Begin, 20, 0, 2),
        row(What::Begin, 30, 5, 1),
        row(What::End, 40, 0, 0), // of no domain: the outermost
        row(What::End, 50, 5, 0),
        row(What::End, 70, 0, 9),
        row(What::End, 80, 0, 9),
    ] {
        book.add(PhaseRow::Edge(e), false);
    }
    assert_eq!(book.unmatched, 1);
    assert_eq!(shown(book), [("a".into(), 10, 40, 0, true), ("a/lib: b".into(), 20, 70, 20, true), ("a/lib: b/a".into(), 30, 50, 0, true)]);
}

#[test]
fn what_is_open_ends_with_the_image_and_is_marked() {
    let mut book = PhaseBook::default();
    book.outside(5, What::Begin, "output", "load", &Told::default());
    book.add(PhaseRow::Edge(EdgeRow { range: 7, ..row(What::Begin, 6, 0, 3) }), false);
    book.close_open(90);
    assert_eq!(shown(book), [("load".into(), 5, 90, 0, false), ("(a name without room)".into(), 6, 90, 0, false)]);
}

#[test]
fn phases_that_never_end_take_no_more_than_a_bounded_depth() {
    let mut book = PhaseBook::default();
    for t in 0..100_000 {
        book.add(PhaseRow::Edge(row(What::Begin, t, 0, 1)), false);
    }
    (100_000..200_000).for_each(|t| book.add(PhaseRow::Edge(row(What::End, t, 0, 0)), false));
    assert_eq!((book.unmatched, book.left_out), (0, 100_000 - DEEP as u64));
    let all = shown(book);
    assert_eq!((all.len(), all[0].1, all[0].2), (DEEP, 0, 199_999));
}

#[test]
fn of_any_number_of_steps_the_first_and_the_last_layers_are_kept() {
    let mut book = PhaseBook::default();
    let looked = |book: &mut PhaseBook, e: EdgeRow| {
        book.snapshot(e.t, Value::from(e.t));
        book.add(PhaseRow::Edge(e), false);
    };
    looked(&mut book, row(What::Begin, 1, 0, 1));
    // At the first step and the last one nobody looks; one before the last tenth is alone of its name.
    for step in 0..20_000 {
        let t = 10 * step + 10;
        let name = if step == 9000 { 3 } else { 2 };
        let edges = [row(What::Begin, t, 0, name), row(What::End, t + 5, 0, 0)];
        let is_seen = step != 0 && step != 19_999;
        for e in edges {
            if is_seen { looked(&mut book, e) } else { book.add(PhaseRow::Edge(e), false) }
        }
    }
    looked(&mut book, row(What::End, 300_000, 0, 0));
    let kept = book.finish(Vec::new(), Default::default()).snapshots;
    assert!([1, 20, 90_010, 90_015, 199_995, 300_000].iter().all(|t| kept.contains_key(t)), "{:?}", kept.keys().next());
    assert!(kept.len() < 5000);
}

#[test]
fn a_name_that_two_threads_tell_at_once_is_one() {
    let mut book = PhaseBook::default();
    let piece = |piece, text: &str| PhaseRow::Name { of_domain: false, number: 1, piece, text: text.into() };
    for (n, text) in [(0, "long "), (0, "long "), (1, "name"), (1, "name")] {
        book.add(piece(n, text), false);
    }
    book.add(PhaseRow::Edge(row(What::Begin, 1, 0, 1)), false);
    book.add(PhaseRow::Edge(row(What::End, 2, 0, 0)), false);
    assert_eq!(shown(book)[0].0, "long name");
}

#[test]
fn a_range_is_on_nobodys_thread() {
    let mut book = PhaseBook::default();
    for e in [
        row(What::Begin, 10, 5, 1),
        EdgeRow { range: 7, ..row(What::Begin, 20, 0, 2) },
        EdgeRow { range: 7, ..row(What::End, 60, 0, 0) },
        row(What::End, 90, 5, 0),
    ] {
        book.add(PhaseRow::Edge(e), false);
    }
    assert!(shown(book).iter().all(|p| p.3 == 0), "the whole time is its own");
}

#[test]
fn what_a_spool_says_again_counts_once() {
    let mut book = PhaseBook::default();
    for again in [false, true] {
        book.add(PhaseRow::Edge(row(What::Begin, 10, 5, 1)), again);
        book.add(PhaseRow::Edge(row(What::End, 20, 5, 0)), again);
        name(1, "", "a").into_iter().for_each(|n| book.add(n, again));
    }
    assert_eq!(shown(book), [("a".into(), 10, 20, 0, true)]);
}

#[test]
fn what_a_process_does_as_such_is_nobodys_inner_phase() {
    const PROCESS: u8 = 6;
    let mut book = PhaseBook::default();
    for (number, text) in [(1, "main"), (2, "script"), (3, "exit"), (4, "solve"), (5, "tomorrow's")] {
        name(number, "", text).into_iter().for_each(|n| book.add(n, false));
    }
    book.process_begins(5);
    for e in [
        row(What::Mark, 10, PROCESS, 1),
        row(What::Begin, 20, 5, 4),
        row(What::Mark, 30, PROCESS, 2),
        row(What::Mark, 31, PROCESS, 2),
        row(What::Mark, 32, PROCESS, 5),
        row(What::Mark, 33, 5, 1),
        row(What::End, 40, 5, 0),
        row(What::Mark, 50, PROCESS, 3),
    ] {
        book.add(PhaseRow::Edge(e), false);
    }
    book.close_open(70);
    let marks: Vec<u64> = book.marks.iter().map(|m| m.0).collect();
    assert_eq!(marks, [32, 33], "those that are not known here, and those of others");
    let want = [("start-up", 5, 10, 0), ("imports", 10, 30, 0), ("solve", 20, 40, 0), ("exit handlers", 50, 70, 0)];
    assert_eq!(shown(book), want.map(|(name, begin, end, inner)| (name.to_owned(), begin, end, inner, true)));
}

#[test]
fn a_look_from_outside_cuts_the_stretch_between_two_lines_of_counts() {
    let mut book = PhaseBook::new(1000);
    let seen = |live, sure, most, bytes| Seen { live, sure, most, allocs: 0, bytes };
    book.counted(100, &seen(10, 10, 10, 10), true);
    // 900 were live for a while before the edge; after it 50 more are allocated.
    book.outside(150, What::Begin, "output", "a", &Told { seen: Some(&seen(20, 900, 900, 910)), ..Told::default() });
    book.counted(200, &seen(60, 900, 900, 960), true);
    // Nothing was live before the next edge that was more than after it: it is the edge's own stretch that rose.
    book.outside(250, What::End, "output", "a", &Told { seen: Some(&seen(70, 400, 400, 1300)), ..Told::default() });
    book.counted(300, &seen(80, 5000, 5000, 6300), true);
    let end = book.finish(Vec::new(), Default::default());
    let i = &end.instances[0];
    let live = |e: u32| end.edges[e as usize].live;
    assert_eq!((live(i.begin), live(i.end)), (Some(1020), Some(1070)));
    assert_eq!((end.most(Metric::HeapLower, i), end.most(Metric::HeapUpper, i)), (1400, 1400));
    assert!(end.is_noted(Metric::HeapUpper, i.begin) && end.is_noted(Metric::HeapUpper, i.end));
}

#[test]
fn a_look_at_an_edge_behind_a_later_line_of_counts_does_not_cut_that_lines_stretch() {
    let seen = |live, most| Seen { live, sure: most, most, allocs: 0, bytes: 0 };
    let (before, after) = ([row(What::Begin, 20, 5, 1), row(What::End, 80, 5, 0)], [row(What::Begin, 85, 5, 1), row(What::End, 110, 5, 0)]);
    let mut book = PhaseBook::default();
    book.counted(10, &seen(0, 0), true);
    for e in [before, after].concat() {
        book.add(PhaseRow::Edge(e), false);
    }
    // 500 were live at some time up to 100; the look at the edge of 80 comes behind, and has no rows left.
    assert_eq!(book.counted(100, &seen(50, 500), true), Some(100));
    assert_eq!(book.counted(80, &seen(50, 50), false), None);
    assert_eq!(book.counted(110, &seen(60, 70), true), Some(110));
    let end = book.finish(Vec::new(), Default::default());
    let [first, second] = [0, 1].map(|i| &end.instances[i]);
    assert_eq!(
        (end.surely(Metric::HeapLower, first), end.next(Metric::HeapUpper, first.end)),
        (None, Some(500)),
        "it may have been before the edge"
    );
    assert_eq!(end.surely(Metric::HeapLower, second), Some(70), "or before the next phase began");
    assert_eq!(end.most(Metric::HeapUpper, second), 500);
    // Rows of lanes are newer than the line before, whatever their time.
    let mut book = PhaseBook::default();
    book.counted(100, &seen(50, 500), true);
    assert_eq!(book.counted(80, &seen(70, 90), true), Some(100));
}

/// Phases one after another told from outside, each edge read so long after the first of all; what was live at each is what `level` says, and at
/// least 10 less before it.
fn told_late(steps: u32, late: u64, level: impl Fn(u32) -> i64) -> PhasesEnd {
    let mut book = PhaseBook::default();
    book.look_back_to(0);
    let told = Told { late: Some(late), since: book.looked_back_to(0), ..Told::default() };
    for step in 0..u64::from(steps) {
        book.outside(2 * step + 1, What::Begin, "output", "step", &told);
        book.outside(2 * step + 2, What::End, "output", "", &told);
    }
    let edges = 0..2 * steps + 1;
    let heap = edges.clone().map(|edge| HeapAt { edge, level: level(edge), most: level(edge), settling: 0 });
    let around = edges.map(|edge| AtEdge { edge, level: [level(edge); 2], most: [level(edge); 2], least: level(edge) - 10 });
    book.finish(heap.collect(), (around.collect(), 0))
}

#[test]
fn what_was_live_at_an_edge_can_be_the_least_and_the_most_since_it_may_have_been() {
    let levels = [50, 30, 70, 20, 90, 40, 60];
    let end = told_late(3, 10, |edge| levels[edge as usize]);
    for i in &end.instances {
        let (begin, last) = (i.begin as usize, i.end as usize);
        let of = end.heap.of(i).expect("both edges were met");
        let least = |upto: usize| levels[1..=upto].iter().map(|l| l - 10).chain([levels[0]]).min();
        let most = |upto: usize| levels[..=upto].iter().copied().max();
        let bounds = of.bounds.expect("what was possible is known");
        assert_eq!((Some(bounds[0][0]), Some(bounds[0][1])), (least(begin), least(last)), "{i:?}");
        assert_eq!((Some(bounds[1][0]), Some(bounds[1][1])), (most(begin), most(last)), "{i:?}");
    }
    assert_eq!(end.instances.len(), 3);
}

#[test]
fn edges_that_can_all_be_of_the_begin_have_the_least_of_all_that_came_before() {
    let end = told_late(200_000, u64::MAX, |edge| i64::from(edge % 1000));
    let lows = end.instances.iter().filter_map(|i| end.heap.of(i)?.bounds).map(|bounds| bounds[0][1]);
    assert_eq!((lows.clone().count(), lows.min()), (200_000, Some(-10)));
}
