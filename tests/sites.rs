//! Call sites of made traces: right bytes, whatever the trace says. What they are called is `sites_names`' matter.

#[path = "support/made.rs"]
mod made;
mod support;
#[path = "support/writer.rs"]
#[allow(dead_code)]
mod writer;

use std::collections::HashMap;

use made::{analyze_with, run_of};
use memshim::analyze::Options;
use memshim::analyze::report::{Run, Site};
use memshim::analyze::views::{By, Measure, Request};
use memshim::model::sites::Instant;
use writer::{Old, Writer};

fn by_address(run: &Run) -> HashMap<u64, &Site> {
    run.sites.iter().map(|s| (s.frames.first().and_then(|f| f.addr).map_or(0, |a| a + 1), s)).collect()
}

/// Frames of no module: sites are told apart by address.
fn addresses(w: &mut Writer, lane: u32, all: &[u64]) {
    let rows: Vec<(u32, u64)> = all.iter().map(|a| (0, a << 1)).collect();
    w.nodes(lane, 1, &rows);
}

#[test]
fn a_site_has_what_it_held_at_the_peak_and_what_it_never_gave_back() {
    let mut w = Writer::new(7, "full", r#","stacks":"native""#);
    addresses(&mut w, 0, &[0x1000, 0x2000, 0x3000]);
    let (big, small) = (w.kind(0, 10_000, 0, 0), w.kind(0, 100, 0, 0));
    w.at(0, 2000, false);
    w.site(0, 1, 0);
    let a = w.alloc(0, big, None, None);
    let b = w.alloc(0, big, None, None);
    w.site(0, 2, 0);
    let c = w.alloc(0, small, None, None); // the peak: 20 100
    w.free(0, Old::Block(a));
    w.flush();
    w.at(0, 5000, false);
    w.site(0, 3, 0);
    for _ in 0..5 {
        let t = w.alloc(0, small, None, None);
        w.free(0, Old::Block(t));
    }
    w.free(0, Old::Block(b));
    w.site(0, 1, 0);
    w.alloc(0, small, None, None);
    w.site(0, 0, 0);
    w.alloc(0, small, None, None);
    w.flush();
    w.exit(6000);
    let _ = c;
    let run = run_of(&w.out);
    let sites = by_address(&run);
    let figures = |addr: u64| {
        let s = sites[&addr];
        let live = (s.live_at_peak_bytes.unwrap().0, s.live_at_peak_allocs.unwrap(), s.peak_bytes.0);
        (live, (s.total_bytes.0, s.allocs), s.temporary_allocs.unwrap(), (s.leaked_bytes.0, s.leaked_allocs.unwrap()))
    };
    assert_eq!(figures(0x1000), ((20_000, 2, 20_000), (20_100, 3), 0, (100, 1)));
    assert_eq!(figures(0x2000), ((100, 1, 100), (100, 1), 0, (100, 1)));
    assert_eq!(figures(0x3000), ((0, 0, 100), (500, 5), 5, (0, 0)));
    assert_eq!(figures(0), ((0, 0, 100), (100, 1), 0, (100, 1)), "of no stack");
    assert_eq!(sites[&0x1000].sizes, [[100, 1, 0], [10_000, 2, 2]]);
    assert_eq!(sites[&0x1000].lifetimes, Some([0, 2, 0, 0, 0]));
    let t = &run.sites_total;
    assert_eq!((t.live_at_peak_bytes.0, t.total_bytes.0, t.leaked_bytes.0), (20_100, 20_800, 300));
    assert_eq!(
        (t.live_at_peak_bytes, t.total_bytes, t.leaked_bytes),
        (run.heap.peak_bytes, run.heap.requested_bytes, run.heap.leaked_bytes.unwrap())
    );
    assert_eq!((t.without_stack_bytes.0, t.sites), (100, 4));
}

/// Random numbers below `n`, the same each time.
fn random(state: &mut u64, n: u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) % n
}

/// A run of some lanes whose groups are not in the order of their times.
struct Late {
    out: Vec<u8>,
    /// Of each lane what was live when most was.
    peak: Vec<u64>,
    /// Of phases the level at their begins, at their ends, and the most between.
    phases: Vec<[u64; 3]>,
}

const LANES: u32 = 4;

/// `exact`: each step has a stamp of its own. Else a few have, and lanes are read long after their last.
fn late(seed: u64, exact: bool) -> Late {
    let mut state = seed;
    let mut w = Writer::new(7, "full", r#","stacks":"native""#);
    (0..LANES).for_each(|lane| addresses(&mut w, lane, &[0x1000 * (lane as u64 + 1)]));
    let mut held: Vec<Vec<(writer::Token, u64)>> = vec![Vec::new(); LANES as usize];
    let mut live = vec![0; LANES as usize];
    let (mut peak, mut phases) = (live.clone(), Vec::<[u64; 3]>::new());
    let mut open = false;
    let mut since: Vec<Option<u64>> = vec![None; LANES as usize];
    for step in 0..600 {
        let t = 2000 + 1000 * step;
        let lane = random(&mut state, LANES as u64) as u32;
        let at = lane as usize;
        since[at].get_or_insert(t);
        let sum: u64 = live.iter().sum();
        let stamp = exact || random(&mut state, 9) == 0;
        match (random(&mut state, 10), held[at].len()) {
            (0, _) if lane == 0 => {
                // An edge has its instant to the nanosecond, and what comes straight after it a stamp of whole ticks, which is before that.
                open = !open;
                if open {
                    phases.push([sum; 3]);
                } else {
                    phases.last_mut().unwrap()[1] = sum;
                }
                let (what, name) = if open { ("begin", phases.len() as u32) } else { ("end", 0) };
                w.edge(0, t + 350, what, name);
                let write = |w: &mut Writer, since: &mut [Option<u64>]| {
                    since[0] = None;
                    w.whole = since.iter().flatten().min().copied().or(Some(t));
                    w.flush_of(|lane| lane == 0);
                };
                if random(&mut state, 2) == 0 {
                    write(&mut w, &mut since);
                }
                since[0].get_or_insert(t + 300);
                let kind = w.kind(0, 50_000, 0, 0);
                w.at(0, t + 300, exact);
                w.site(0, 1, 0);
                let token = w.alloc(0, kind, None, None);
                w.at(0, t + 300, exact);
                held[0].push((token, 50_000));
                live[0] += 50_000;
            }
            (1..5, n) if n > 0 => {
                let (token, size) = held[at].remove(random(&mut state, n as u64) as usize);
                w.at(lane, t, stamp);
                w.free(lane, Old::Block(token));
                w.at(lane, t, exact);
                live[at] -= size;
            }
            _ => {
                let size = 1000 + random(&mut state, 9000);
                let kind = w.kind(0, size as i64, 0, 0);
                w.at(lane, t, stamp);
                w.site(lane, 1, 0);
                held[at].push((w.alloc(lane, kind, None, None), size));
                w.at(lane, t, exact);
                live[at] += size;
            }
        }
        let sum: u64 = live.iter().sum();
        if sum > peak.iter().sum() {
            peak = live.clone();
        }
        if let Some(p) = phases.last_mut().filter(|_| open) {
            (p[1], p[2]) = (sum, p[2].max(sum));
        }
        if random(&mut state, 12) == 0 {
            let one = random(&mut state, LANES as u64) as u32;
            if !exact {
                w.at(one, t + 50_000, false);
            }
            // A group has all that is pending of a lane whose edges it has.
            (since[one as usize], since[0]) = (None, None);
            w.whole = since.iter().flatten().min().copied().or(Some(t + 1));
            w.flush_of(|lane| lane == one || lane == 0);
        }
    }
    w.whole = Some(u64::MAX);
    w.flush();
    Late { out: w.out, peak, phases }
}

/// Rings are read one after another: what a lane did can be written long after what others did later.
#[test]
fn lanes_that_are_written_late_are_played_in_their_time() {
    for seed in 0..30 {
        let Late { out, peak, phases } = late(seed, true);
        let run = run_of(&out);
        let sum: u64 = peak.iter().sum();
        assert_eq!((run.heap.peak_bytes.0, run.heap.peak_bound_bytes.unwrap().0), (sum, 0), "seed {seed}");
        let sites = by_address(&run);
        let of = |lane: usize| sites.get(&(0x1000 * (lane as u64 + 1))).map_or(0, |s| s.live_at_peak_bytes.unwrap().0);
        assert_eq!((0..LANES as usize).map(of).collect::<Vec<_>>(), peak, "seed {seed}");
        for p in run.phases.iter().filter(|p| p.source == "api") {
            let [begin, end, most] = phases[p.name[1..].parse::<usize>().unwrap() - 1];
            let said = (p.heap_persistent_bytes, p.heap_peak_bytes.unwrap().0);
            assert_eq!(said, (Some(end as i64 - begin as i64), most), "seed {seed}: {}", p.name);
        }
    }
}

#[test]
fn owners_of_lanes_that_are_written_late_add_up_to_the_peak() {
    for seed in 0..200 {
        let Late { out, peak, .. } = late(seed, false);
        let run = run_of(&out);
        let (said, bound) = (run.heap.peak_bytes.0, run.heap.peak_bound_bytes.unwrap().0);
        assert!(said.abs_diff(peak.iter().sum()) <= bound, "seed {seed}: {said} ± {bound}, {peak:?}");
        assert_eq!(run.sites_total.live_at_peak_bytes.0, said, "seed {seed}");
    }
}

#[test]
fn a_realloc_moves_bytes_to_the_site_that_calls_it() {
    let mut w = Writer::new(7, "full", r#","stacks":"native""#);
    addresses(&mut w, 0, &[0x1000, 0x2000]);
    let (first, grown) = (w.kind(0, 1000, 0, 0), w.kind(2, 1500, 0, 1));
    w.at(0, 2000, false);
    w.site(0, 1, 0);
    let a = w.alloc(0, first, None, None);
    w.site(0, 2, 0);
    w.alloc(0, grown, None, Some(Old::Block(a)));
    w.flush();
    let run = run_of(&w.out);
    let sites = by_address(&run);
    assert_eq!(sites[&0x1000].leaked_bytes.0, 0);
    assert_eq!(
        (sites[&0x2000].leaked_bytes.0, sites[&0x2000].live_at_peak_bytes.unwrap().0, sites[&0x2000].peak_bytes.0),
        (1500, 1500, 1500)
    );
    assert_eq!(run.heap.peak_bytes.0, 1500);
}

#[test]
fn what_was_live_at_any_time_can_be_asked() {
    let mut w = Writer::new(7, "full", r#","stacks":"native""#);
    addresses(&mut w, 0, &[0x1000]);
    let kind = w.kind(0, 100, 0, 0);
    for t in [2000, 3000, 4000] {
        w.at(0, t, false);
        w.site(0, 1, 0);
        w.alloc(0, kind, None, None);
        w.flush();
    }
    // The trace's clock begins at 1000.
    for (at, live) in [(0, 0), (1500, 100), (2500, 200), (9999, 300)] {
        let report = analyze_with(&w.out, &Options { instant: Instant::At(at), ..Options::default() });
        let site = &report.runs[0].sites[0];
        assert_eq!((site.live_at_bytes.unwrap().0, site.live_at_peak_bytes), (live, None), "{at}");
    }
}

/// Allocations of 100 bytes at 2000, 2100, 2200, of which one goes at 2300, then 50 more at 2400.
#[test]
fn the_peak_of_any_window_can_be_asked() {
    let mut w = Writer::new(7, "full", r#","stacks":"native""#);
    addresses(&mut w, 0, &[0x1000, 0x2000]);
    let (large, small) = (w.kind(0, 100, 0, 0), w.kind(0, 50, 0, 0));
    let mut first = None;
    for t in [2000, 2100, 2200] {
        w.at(0, t, false);
        w.site(0, 1, 0);
        first = first.or(Some(w.alloc(0, large, None, None)));
        w.flush();
    }
    w.at(0, 2300, false);
    w.free(0, Old::Block(first.unwrap()));
    w.flush();
    w.at(0, 2400, false);
    w.site(0, 2, 0);
    w.alloc(0, small, None, None);
    w.flush();
    // The trace's clock begins at 1000. Live: 100, 200, 300, 200, 250.
    for (window, live) in
        [((0, 1050), [100, 0]), ((0, 9999), [300, 0]), ((1350, 1500), [200, 50]), ((1250, 1350), [300, 0]), ((9000, 9999), [200, 50])]
    {
        let report = analyze_with(&w.out, &Options { instant: Instant::PeakWithin(window.0, window.1), ..Options::default() });
        let sites = by_address(&report.runs[0]);
        let of = |at: u64| sites[&at].live_at_bytes.unwrap().0;
        assert_eq!([of(0x1000), of(0x2000)], live, "{window:?}");
    }
}

/// Two threads use one lane, one after the other; a third frees what the first allocated.
#[test]
fn sites_are_told_apart_by_thread_and_have_each_threads_own_peak() {
    let mut w = Writer::new(7, "full", r#","stacks":"native""#);
    w.line(r#"{"type":"thread","t":1000,"lane":0,"tid":11,"seq":0,"what":"start"}"#);
    w.line(r#"{"type":"thread","t":1000,"lane":1,"tid":13,"seq":0,"what":"start"}"#);
    addresses(&mut w, 0, &[0x1000, 0x2000]);
    addresses(&mut w, 1, &[0x1000]);
    let kind = w.kind(0, 100, 0, 0);
    w.at(0, 2000, false);
    w.site(0, 1, 0);
    let own: Vec<_> = (0..3).map(|_| w.alloc(0, kind, None, None)).collect();
    w.line(r#"{"type":"thread","t":2050,"lane":0,"tid":12,"seq":3,"what":"start"}"#);
    w.site(0, 2, 0);
    w.alloc(0, kind, None, None);
    w.flush();
    w.at(1, 3000, false);
    own.iter().for_each(|b| w.free(1, Old::Block(*b)));
    w.site(1, 1, 0);
    (0..5).for_each(|_| {
        w.alloc(1, kind, None, None);
    });
    w.flush();
    let request = Request { by: By::Thread, measure: Measure::Peak, top: 9 };
    let report = analyze_with(&w.out, &Options { view: Some(request), ..Options::default() });
    let view = report.runs[0].sites_view.as_ref().unwrap();
    let rows: Vec<_> = view.rows.iter().map(|r| (r.frame.function.as_deref().unwrap(), r.inclusive, r.allocs)).collect();
    // At the peak of all, 600 bytes, the first thread's are gone.
    assert_eq!(rows, [("thread 13", 500, 5), ("thread 12", 100, 1)]);
    for (tid, live, allocs) in [(11, 300, 3), (12, 100, 1), (13, 500, 5)] {
        let options = Options { thread: Some(tid), instant: Instant::PeakOf(tid), ..Options::default() };
        let run = analyze_with(&w.out, &options).runs.remove(0);
        assert_eq!(run.sites.len(), 1, "{tid}");
        let site = &run.sites[0];
        assert_eq!((site.live_at_bytes.unwrap().0, site.allocs, site.thread), (live, allocs, Some(tid)), "{tid}");
        assert_eq!(run.sites_total.instant, format!("the peak of thread {tid}"));
    }
}

#[test]
fn lanes_share_sites_and_their_steps_are_in_the_order_of_time() {
    let mut w = Writer::new(7, "full", r#","stacks":"native""#);
    addresses(&mut w, 0, &[0x1000, 0x2000]);
    addresses(&mut w, 1, &[0x2000, 0x1000]);
    let kind = w.kind(0, 100, 0, 0);
    w.at(0, 2000, false);
    w.site(0, 1, 0);
    let a = w.alloc(0, kind, None, None);
    w.at(1, 2100, false);
    w.site(1, 2, 0);
    let b = w.alloc(1, kind, None, None);
    w.at(0, 2600, true);
    w.free(0, Old::Block(b));
    w.at(1, 2900, true);
    w.free(1, Old::Block(a));
    w.site(1, 1, 0);
    w.alloc(1, kind, None, None);
    w.flush();
    let run = run_of(&w.out);
    let sites = by_address(&run);
    assert_eq!((sites[&0x1000].live_at_peak_bytes.unwrap().0, sites[&0x1000].peak_bytes.0, sites[&0x1000].allocs), (200, 200, 2));
    assert_eq!((sites[&0x2000].live_at_peak_bytes.unwrap().0, sites[&0x2000].leaked_bytes.0), (0, 100));
}

#[test]
fn estimates_stand_for_what_was_not_sampled_and_say_how_far_off_they_can_be() {
    let mut w = Writer::new(7, "fast", r#","stacks":"native""#);
    addresses(&mut w, 0, &[0x1000, 0x2000]);
    let (sampled, big) = (w.kind(0, 1024, 0, 4), w.kind(0, 1 << 20, 0, 0));
    w.at(0, 2000, false);
    w.site(0, 1, 0);
    for _ in 0..50 {
        w.alloc(0, sampled, None, None);
    }
    w.site(0, 2, 0);
    w.alloc(0, big, None, None);
    w.flush();
    w.line(r#"{"type":"end","t":3000,"how":"exit","code":0}"#);
    let run = run_of(&w.out);
    let sites = by_address(&run);
    let p = 1.0 - (-1024.0f64 / 524_288.0).exp();
    let s = sites[&0x1000];
    assert!((s.live_at_peak_bytes.unwrap().0 as f64 - 50.0 * 1024.0 / p).abs() < 50.0);
    assert!((s.stderr_bytes - 1024.0 * (50.0 * (1.0 - p)).sqrt() / p).abs() < 1.0, "{}", s.stderr_bytes);
    assert_eq!(s.allocs, (50.0 / p).round() as u64);
    assert_eq!((sites[&0x2000].live_at_peak_bytes.unwrap().0, sites[&0x2000].stderr_bytes), (1 << 20, 0.0));
    // All of it is live at the end too: by site, by owner, in all, and on the screen.
    let error = s.stderr_bytes;
    let same = |of: f64| (of - error).abs() < 1.0;
    let owner = |address: u64| run.owners.iter().find(|o| o.frame.addr == Some(address - 1)).unwrap();
    assert!(same(s.leaked_stderr_bytes) && same(s.total_stderr_bytes) && same(s.peak_stderr_bytes));
    assert!(same(owner(0x1000).leaked_stderr_bytes) && same(owner(0x1000).total_stderr_bytes), "{:?}", run.owners);
    assert_eq!((owner(0x2000).leaked_stderr_bytes, owner(0x2000).total_stderr_bytes), (0.0, 0.0));
    let all = &run.sites_total;
    assert!([all.leaked_stderr_bytes, all.total_stderr_bytes, all.unsuppressed_stderr_bytes].into_iter().all(same), "{all:?}");
    let report = memshim::analyze::report::Report { runs: vec![run.clone()], ..Default::default() };
    let style = memshim::output::text::Style { width: 160, unicode: true, pid: None, traces: Vec::new() };
    let about = format!("± {}", memshim::output::units::iec(error.round() as u64));
    let screen = memshim::output::text::render(&report, &style);
    let owners = screen.lines().find(|l| l.contains("live at the end 2")).unwrap_or_else(|| panic!("{screen}"));
    assert_eq!(owners.matches(&about).count(), 2, "in all, and by the one that is sampled: {owners}");
    let page = memshim::output::text::render_sites(&report, &style);
    let page = page.replace("\x1b[1m", "").replace("\x1b[0m", "").split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(page.matches(&about).count(), 7, "live, total and live at the end, of all and of the one, and the own peak of that: {page}");
}

#[test]
fn python_frames_stand_between_the_native_ones() {
    let mut w = Writer::new(7, "full", r#","stacks":"mixed""#);
    w.line(r#"{"type":"code","codes":[[1,"/home/u/run.py","solve",10,775,"00010401"],[2,"/usr/lib/python3.7/json/decoder.py","decode",5,775,""]]}"#);
    w.pynodes(0, 1, &[(0, 1, 5), (1, 2, 8)]);
    addresses(&mut w, 0, &[0x1000]);
    w.at(0, 2000, false);
    w.site(0, 1, 2);
    let kind = w.kind(0, 100, 0, 0);
    w.alloc(0, kind, None, None);
    w.flush();
    let run = run_of(&w.out);
    let site = &run.sites[0];
    let names: Vec<_> = site.frames.iter().map(|f| (f.function.as_deref(), f.line, f.python)).collect();
    // Instruction 2 is at byte 4, from which the second line is.
    assert_eq!(names, [(None, None, false), (Some("decode"), Some(5), true), (Some("solve"), Some(12), true)]);
    assert_eq!(site.owner, Some(2));
}

#[test]
fn a_stack_that_goes_on_says_so() {
    let mut w = Writer::new(7, "full", r#","stacks":"native""#);
    w.nodes(0, 1, &[(0, 0), (1, 0x1000 << 1), (0, 2), (3, 0x2000 << 1)]);
    w.at(0, 2000, false);
    let kind = w.kind(0, 100, 0, 0);
    for node in [2, 4] {
        w.site(0, node, 0);
        w.alloc(0, kind, None, None);
    }
    w.flush();
    let run = run_of(&w.out);
    assert!(run.sites.iter().all(|s| s.truncated && s.frames.len() == 1));
    assert_eq!(run.sites_total.truncated_bytes.0, 200);
}

#[test]
fn maps_have_call_sites_of_their_own() {
    let mut w = Writer::new(7, "full", r#","stacks":"native""#);
    addresses(&mut w, 0, &[0x1000, 0x2000]);
    // The peak is 8 + 16 pages; then the first is half unmapped, and the second grows by mremap where it lies.
    w.line(
        r#"{"type":"maps","ev":[["mmap",1,2000,0,1048576,32768,3,34,0],["mmap",2,2100,0,2097152,65536,3,34,0],["munmap",3,2200,0,1048576,16384],["mmap",4,2300,0,4194304,4096,0,34,0]],"s":[1,0,2,0,2,0,2,0]}"#,
    );
    let run = run_of(&w.out);
    let figures: Vec<_> = run
        .sites
        .iter()
        .map(|s| {
            let at = s.frames[0].addr.unwrap() + 1;
            (s.kind, at, s.live_at_peak_bytes.unwrap().0, s.peak_bytes.0, s.total_bytes.0, s.allocs, s.leaked_bytes.0)
        })
        .collect();
    assert_eq!(
        figures,
        [("anon", 0x2000, 65_536, 65_536, 69_632, 2, 65_536), ("anon", 0x1000, 32_768, 32_768, 32_768, 1, 16_384)],
        "what has no access is not committed"
    );
    assert_eq!(run.sites_total.sites, 0, "of the heap there is none");
    let unknown = |s: &Site| s.live_at_peak_allocs.is_none() && s.leaked_allocs.is_none() && s.temporary_allocs.is_none();
    assert!(run.sites.iter().all(unknown), "in how many pieces they are, and for how long, nobody knows");
}

#[test]
fn estimates_are_within_three_standard_errors_over_a_hundred_seeds() {
    // One site allocates 2000 × 3000 bytes, sampled as the shim does; its true figures are known.
    let (n, size, mean) = (2000u64, 3000u64, 524_288.0f64);
    let p = 1.0 - (-(size as f64) / mean).exp();
    let mut outside = 0;
    let mut sum = 0.0;
    for seed in 1..=100u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut chance = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut w = Writer::new(7, "fast", r#","stacks":"native""#);
        addresses(&mut w, 0, &[0x1000]);
        let kind = w.kind(0, size as i64, 0, 4);
        w.at(0, 2000, false);
        w.site(0, 1, 0);
        (0..n).filter(|_| chance() < p).for_each(|_| {
            w.alloc(0, kind, None, None);
        });
        w.flush();
        let run = run_of(&w.out);
        let (estimate, error) = run.sites.first().map_or((0.0, 0.0), |s| (s.total_bytes.0 as f64, s.total_stderr_bytes));
        sum += estimate;
        outside += ((estimate - (n * size) as f64).abs() > 3.0 * error) as u32;
    }
    assert!(outside <= 5, "{outside} of 100 outside");
    let bias = sum / 100.0 / (n * size) as f64 - 1.0;
    assert!(bias.abs() < 0.1, "{bias}");
}
