use super::*;
use std::collections::HashMap;

/// Kinds of 100 bytes at sites 1 to 4, by site.
fn kinds() -> (KindTable, Vec<KindId>) {
    let mut k = KindTable::new(&[], 1000);
    assert!(k.define(1, 0, 100, 0, 0));
    let base = k.id(1);
    let ids = (0..5).map(|site| k.at_site(base, site)).collect();
    (k, ids)
}

#[test]
fn the_set_at_the_peak_is_that_of_a_naive_model() {
    let (kinds, ids) = kinds();
    let mut random = 88172645463325252u64;
    let mut below = |n: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % n
    };
    for _ in 0..200 {
        let (mut got, mut ended, mut requested) = (Vec::new(), Vec::new(), Vec::new());
        let mut now: HashMap<usize, i64> = HashMap::new();
        let mut own_peak: HashMap<usize, i64> = HashMap::new();
        let (mut level, mut peak, mut then) = (0i64, 0i64, HashMap::new());
        for _ in 0..below(60) {
            let (site, free) = (below(5) as usize, below(5) as usize);
            let frees = now.get(&free).is_some_and(|n| *n > 0) && below(2) == 0;
            let allocs = !frees || below(4) == 0;
            got.push(if allocs { ids[site] } else { 0 });
            ended.push(if frees { ids[free] } else { 0 });
            if allocs {
                *now.entry(site).or_default() += 100;
            }
            if frees {
                *now.entry(free).or_default() -= 100;
            }
            if allocs {
                let p = own_peak.entry(site).or_default();
                *p = (*p).max(now[&site]);
            }
            let change = 100 * (allocs as i64 - frees as i64);
            requested.push(change);
            level += change;
            if level > peak {
                (peak, then) = (level, now.clone());
            }
        }
        let mut book = SiteBook::new(0, Instant::Peak);
        for at in 0..got.len() {
            let one = at..at + 1;
            let steps =
                Steps { requested: &requested[one.clone()], got: &got[one.clone()], ended: &ended[one], t0: at as u64, t1: at as u64 };
            book.play(&steps, &kinds, &Numbers { count: 5, by_thread: None }, true);
        }
        let end = book.finish(None);
        assert_eq!(end.peak, peak);
        for (site, held) in end.held.iter().enumerate() {
            assert_eq!(held.then.bytes, then.get(&site).copied().unwrap_or(0));
            assert_eq!(held.now.bytes, now.get(&site).copied().unwrap_or(0));
            assert_eq!(held.peak, own_peak.get(&site).copied().unwrap_or(0));
        }
    }
}

#[test]
fn any_instant_can_be_asked_for() {
    let (kinds, ids) = kinds();
    for (t, expected) in [(0, 0), (999, 0), (1000, 100), (1005, 200), (1999, 400), (5000, 400)] {
        let mut book = SiteBook::new(0, Instant::At(t));
        let got = [ids[1]; 4];
        // At 1000, 1002, 1005, 1007.
        book.play(
            &Steps { requested: &[100; 4], got: &got, ended: &[0; 4], t0: 1000, t1: 1010 },
            &kinds,
            &Numbers { count: 5, by_thread: None },
            true,
        );
        let end = book.finish(None);
        let held = end.held[1].then.bytes;
        assert_eq!(held, if t == 1005 { 300 } else { expected }, "{t}");
    }
}

#[test]
fn samples_stand_for_what_was_not_sampled() {
    let mut k = KindTable::new(&[], 1000);
    k.define(1, 0, 100, 0, memshim_format::record::SAMPLED as u32);
    let base = k.id(1);
    let id = k.at_site(base, 1);
    let mut book = SiteBook::new(0, Instant::Peak);
    book.play(&Steps { requested: &[100], got: &[id], ended: &[0], t0: 0, t1: 0 }, &k, &Numbers { count: 2, by_thread: None }, false);
    book.play_waiting(&k, &Numbers { count: 2, by_thread: None });
    let end = book.finish(None);
    let p = 1.0 - (-0.1f64).exp();
    assert_eq!(end.held[1].then.bytes, (100.0 / p).round() as i64);
    assert!((end.held[1].then.blocks - 1.0 / p).abs() < 1e-9);
    assert!((end.held[1].then.variance - 1e4 * (1.0 - p) / (p * p)).abs() < 1e-6);
}

#[test]
fn the_peak_of_samples_is_where_so_much_can_have_been_live() {
    let mut k = KindTable::new(&[], 100);
    // Each stands for 158 bytes.
    k.define(1, 0, 100, 0, memshim_format::record::SAMPLED as u32);
    let base = k.id(1);
    let ids: Vec<KindId> = (0..4).map(|site| k.at_site(base, site)).collect();
    let numbers = Numbers { count: 4, by_thread: None };
    // At site 1 seven samples are live at 10, by the counts 200 bytes at most were until then; at site 2 three, of 500.
    let play = |told: &[(u64, i64)]| {
        let mut book = SiteBook::new(0, Instant::Peak);
        told.iter().for_each(|&(t, most)| book.at_most(t, most));
        for (t, site, live) in [(10, 1, 7), (30, 2, 3)] {
            for (got, ended) in [(ids[site], 0), (0, ids[site])] {
                let (got, ended) = (vec![got; live], vec![ended; live]);
                book.play(&Steps { requested: &vec![0; live], got: &got, ended: &ended, t0: t, t1: t }, &k, &numbers, false);
            }
        }
        book.play_waiting(&k, &numbers);
        let end = book.finish(None);
        (end.peak_at, [1, 2].map(|site| (end.held[site].then.bytes, end.held[site].peak)))
    };
    // Nothing is played before it is told what can have been.
    let mut late = SiteBook::new(0, Instant::Peak);
    let (got, ended) = ([ids[1]; 7], [0; 7]);
    late.play(&Steps { requested: &[0; 7], got: &got, ended: &ended, t0: 10, t1: 10 }, &k, &numbers, false);
    late.at_most(20, 320);
    late.play(&Steps { requested: &[0], got: &[ids[2]], ended: &[0], t0: 20, t1: 20 }, &k, &numbers, false);
    let end = late.finish(None);
    assert_eq!([1, 2].map(|site| end.held[site].then.bytes), [3 * 158, 0]);

    assert_eq!(play(&[]), (10, [(7 * 158, 7 * 158), (0, 3 * 158)]));
    assert_eq!(play(&[(20, 200), (40, 500)]), (30, [(0, 200), (3 * 158, 3 * 158)]));
    // Where it is told that so much was live at 10, it is there; where not much was at any time, where the estimate fits best.
    assert_eq!(play(&[(20, 900), (40, 500)]), (10, [(6 * 158, 900), (0, 3 * 158)]));
    assert_eq!(play(&[(20, 150), (40, 150)]), (10, [(158, 150), (0, 150)]));
    // What was told last holds for what comes after it.
    assert_eq!(play(&[(5, 200)]), (10, [(2 * 158, 200), (0, 200)]));
}

#[test]
fn of_levels_that_cannot_have_been_the_one_with_most_that_is_certain_is_the_peak() {
    let mut k = KindTable::new(&[], 100);
    k.define(1, 0, 100, 0, memshim_format::record::SAMPLED as u32);
    k.define(2, 0, 300, 0, 0);
    let (sampled, own) = (k.id(1), k.id(2));
    let (sampled, own) = (k.at_site(sampled, 1), k.at_site(own, 2));
    let mut book = SiteBook::new(0, Instant::Peak);
    // Samples stand for 790 bytes, where 450 can have been live at most: with the second block of its own the estimate is too high, and with
    // the third more so.
    book.at_most(100, 1350);
    let got = [[sampled; 5].as_slice(), &[own; 3]].concat();
    book.play(&Steps { requested: &[0; 8], got: &got, ended: &[0; 8], t0: 0, t1: 8 }, &k, &Numbers { count: 3, by_thread: None }, false);
    let end = book.finish(None);
    assert_eq!((end.peak_at, end.held[1].then.bytes, end.held[2].then.bytes), (7, 790, 900));
}

#[test]
fn a_level_of_samples_lasts_into_the_time_that_allows_it() {
    let mut k = KindTable::new(&[], 100);
    k.define(1, 0, 1000, 0, 0);
    let base = k.id(1);
    let id = k.at_site(base, 1);
    let numbers = Numbers { count: 2, by_thread: None };
    for (most, at) in [(2000, 20), (10, 15)] {
        let mut book = SiteBook::new(0, Instant::Peak);
        book.at_most(20, 10);
        book.at_most(40, most);
        book.play(&Steps { requested: &[1000], got: &[id], ended: &[0], t0: 15, t1: 15 }, &k, &numbers, false);
        book.play_waiting(&k, &numbers);
        let end = book.finish(None);
        // What is certain was live, also where a look before it says that not so much can have been.
        assert_eq!((end.peak, end.peak_at, end.held[1].then.bytes, end.held[1].peak), (1000, at, 1000, 1000));
    }
    // So whichever instant is asked for.
    let mut book = SiteBook::new(0, Instant::At(18));
    book.at_most(20, 10);
    book.play(&Steps { requested: &[1000], got: &[id], ended: &[0], t0: 15, t1: 15 }, &k, &numbers, false);
    book.play_waiting(&k, &numbers);
    let end = book.finish(None);
    assert_eq!((end.held[1].then.bytes, end.held[1].peak), (1000, 1000));
}

/// What is told of ends stops where recording is lowered.
#[test]
fn levels_after_recording_was_lowered_are_no_peaks_and_old_blocks_no_leaks() {
    let (kinds, ids) = kinds();
    let mut book = SiteBook::new(0, Instant::Peak);
    let play = |t: u64, got: usize, ended: usize, book: &mut SiteBook| {
        let id = |site: usize| if site == 0 { 0 } else { ids[site] };
        let change = 100 * ((got != 0) as i64 - (ended != 0) as i64);
        let steps = Steps { requested: &[change], got: &[id(got)], ended: &[id(ended)], t0: t, t1: t };
        book.play(&steps, &kinds, &Numbers { count: 5, by_thread: None }, true);
    };
    // Two blocks of site 1 and one of site 2 are live at the peak; one of site 1 is freed.
    [1, 1, 2].into_iter().for_each(|site| play(10, site, 0, &mut book));
    play(11, 0, 1, &mut book);
    book.lower(20, 100);
    // Of site 3 four come later, more than there ever were, and one goes; of site 2 another.
    [3, 3, 3, 3, 2].into_iter().for_each(|site| play(30, site, 0, &mut book));
    play(31, 0, 3, &mut book);
    let end = book.finish(None);
    assert_eq!((end.peak, end.peak_at), (300, 10));
    let of = |f: fn(&Held) -> i64| [1, 2, 3].map(|site| f(&end.held[site]));
    assert_eq!(of(|h| h.then.bytes), [200, 100, 0], "at the peak");
    assert_eq!(of(|h| h.now.bytes), [0, 100, 300], "since");
    assert_eq!(of(|h| h.peak), [200, 100, 400], "their own peaks");
}

/// Blocks of 1000 bytes, one of which stands for as many as the sampler leaves out.
#[test]
fn an_estimated_peak_has_the_variance_of_what_was_held_then() {
    let mut kinds = KindTable::new(&[], 1000);
    assert!(kinds.define(1, 0, 1000, 0, memshim_format::record::SAMPLED as u32));
    let base = kinds.id(1);
    let id = kinds.at_site(base, 1);
    let each = kinds.get(id).variance();
    assert!(each > 0.0);
    let peak = |most: i64| {
        let mut book = SiteBook::new(0, Instant::Peak);
        book.at_most(100, most);
        // Two at once, then none, then one.
        let (got, ended) = ([id, id, 0, 0, id], [0, 0, id, id, 0]);
        let steps = Steps { requested: &[0; 5], got: &got, ended: &ended, t0: 1, t1: 9 };
        book.play(&steps, &kinds, &Numbers { count: 2, by_thread: None }, false);
        let end = book.finish(None);
        (end.held[1].peak, end.held[1].peak_variance)
    };
    let both = 2 * kinds.get(id).heft;
    assert_eq!(peak(i64::MAX), (both, 2.0 * each));
    assert_eq!(peak(1200), (1200, f64::min(each, 1200.0 * 1200.0)), "more cannot have been live, nor more be wrong");
}
