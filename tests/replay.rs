//! What `analyze` says of a trace is what a naive model of the same calls says: any schedule, any number of lanes, exact.

#[path = "support/writer.rs"]
#[allow(dead_code)]
mod writer;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use memshim::analyze::report::{Report, Run};
use memshim::analyze::{Options, analyze};
use memshim::model::load::Progress;
use proptest::prelude::*;
use writer::{Old, Token, Writer};

fn analyze_bytes(name: &str, bytes: &[u8], sizes: &[u64]) -> Option<Report> {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    analyze(&[path], &Options { sizes: sizes.to_vec(), parallel: 1, ..Options::default() }, &Progress::default()).ok()
}

/// One call of the schedule.
#[derive(Clone, Debug)]
struct Call {
    lane: u32,
    dt: u64,
    what: What,
    stamp: bool,
    flush: bool,
}

#[derive(Clone, Debug)]
enum What {
    Alloc {
        size: usize,
        wide: bool,
    },
    /// Index into the live blocks, from the newest.
    Free(usize),
    Realloc(usize, usize),
    Unknown(u64),
    /// A free written as unknown, then the allocation that it was of.
    Settled(usize),
}

const SIZES: [(u64, u64); 6] = [(1, 23), (24, 0), (100, 4), (4096, 8), (70_001, 15), (0, 24)];

fn calls(lanes: u32) -> impl Strategy<Value = Vec<Call>> {
    let what = prop_oneof![
        6 => (0..SIZES.len(), any::<bool>()).prop_map(|(size, wide)| What::Alloc { size, wide }),
        6 => prop_oneof![0..3usize, 0..200usize].prop_map(What::Free),
        2 => (0..40usize, 0..SIZES.len()).prop_map(|(b, s)| What::Realloc(b, s)),
        1 => (0u64..5000).prop_map(What::Unknown),
        1 => (0..SIZES.len()).prop_map(What::Settled),
    ];
    let call = (0..lanes, 0u64..5, what, prop::bool::weighted(0.2), prop::bool::weighted(0.03));
    proptest::collection::vec(call.prop_map(|(lane, dt, what, stamp, flush)| Call { lane, dt, what, stamp, flush }), 0..400)
}

/// What must come out.
#[derive(Default, Debug)]
struct Naive {
    live: i64,
    peak: i64,
    usable: i64,
    usable_peak: i64,
    allocs: u64,
    frees: u64,
    temporary: u64,
    unknown: u64,
    sizes: BTreeMap<u64, [u64; 2]>,
    /// Bytes of size 100 and 24.
    selected: i64,
    selected_peak: i64,
}

impl Naive {
    fn add(&mut self, size: u64, slack: u64) {
        self.allocs += 1;
        self.live += size as i64;
        self.usable += (size + slack) as i64;
        self.sizes.entry(size).or_default()[0] += 1;
        if [24, 100].contains(&size) {
            self.selected += size as i64;
        }
    }

    fn remove(&mut self, size: u64, slack: u64) {
        self.frees += 1;
        self.live -= size as i64;
        self.usable -= (size + slack) as i64;
        self.sizes.entry(size).or_default()[1] += 1;
        if [24, 100].contains(&size) {
            self.selected -= size as i64;
        }
    }

    fn note(&mut self) {
        self.peak = self.peak.max(self.live);
        self.usable_peak = self.usable_peak.max(self.usable);
        self.selected_peak = self.selected_peak.max(self.selected);
    }
}

fn write(calls: &[Call], arrays: bool, inherited: i64) -> (Vec<u8>, Naive) {
    let mut w = Writer::new(7, "full", &format!(r#","inherited":{{"live":{inherited},"blocks":9,"from":1}}"#));
    w.arrays = arrays;
    let mut naive = Naive { live: inherited, usable: inherited, peak: inherited, usable_peak: inherited, ..Naive::default() };
    let mut live: Vec<Token> = Vec::new();
    let mut of: HashMap<Token, usize> = HashMap::new();
    let mut newest: HashMap<u32, Token> = HashMap::new();
    let mut t = 2000;
    for c in calls {
        t += c.dt * writer::TICK;
        w.at(c.lane, t, c.stamp);
        match c.what {
            What::Alloc { size, wide } => {
                let (bytes, slack) = SIZES[size];
                let token = match wide {
                    true => {
                        let kind = w.kind(1, -1, 0, 0);
                        w.alloc(c.lane, kind, Some((bytes, slack)), None)
                    }
                    false => {
                        let kind = w.kind(0, bytes as i64, slack as u32, 0);
                        w.alloc(c.lane, kind, None, None)
                    }
                };
                naive.add(bytes, slack);
                live.push(token);
                of.insert(token, size);
                newest.insert(c.lane, token);
            }
            What::Free(back) | What::Realloc(back, _) if !live.is_empty() => {
                let token = live.remove(live.len() - 1 - back % live.len());
                let (bytes, slack) = SIZES[of[&token]];
                naive.temporary += (token.lane == c.lane && newest.get(&c.lane) == Some(&token)) as u64;
                naive.remove(bytes, slack);
                if let What::Realloc(_, size) = c.what {
                    let (bytes, slack) = SIZES[size];
                    let kind = w.kind(2, bytes as i64, slack as u32, 1);
                    let new = w.alloc(c.lane, kind, None, Some(Old::Block(token)));
                    naive.add(bytes, slack);
                    live.push(new);
                    of.insert(new, size);
                    newest.insert(c.lane, new);
                } else {
                    w.free(c.lane, Old::Block(token));
                }
            }
            What::Free(_) | What::Realloc(..) => {}
            What::Unknown(usable) => {
                w.free(c.lane, Old::Unknown { addr3: 77, usable });
                naive.frees += 1;
                naive.unknown += 1;
                naive.live -= usable as i64;
                naive.usable -= usable as i64;
            }
            What::Settled(size) => {
                let (bytes, slack) = SIZES[size];
                w.free(c.lane, Old::Unknown { addr3: 99, usable: bytes + slack });
                let kind = w.kind(0, bytes as i64, slack as u32, 0);
                newest.insert(c.lane, w.alloc(c.lane, kind, None, None));
                w.settle(c.lane);
                // It lived for a moment, which the trace shows too late.
                naive.add(bytes, slack);
                naive.note();
                naive.remove(bytes, slack);
            }
        }
        naive.note();
        if c.flush {
            w.flush();
        }
    }
    w.flush();
    w.exit(t);
    (w.out, naive)
}

/// What was true of a phase.
#[derive(Clone, Copy, Debug)]
struct Spell {
    begin: i64,
    end: i64,
    most: i64,
}

/// The same with a phase that begins or ends on its lane before each of the calls at `edges`; what was true of each, by name.
fn write_phases(calls: &[Call], edges: &[usize]) -> (Vec<u8>, Vec<Spell>) {
    let mut w = Writer::new(7, "full", "");
    let mut naive = Naive::default();
    let (mut live, mut of) = (Vec::new(), HashMap::new());
    let mut open: HashMap<u32, usize> = HashMap::new();
    let mut all: Vec<Spell> = Vec::new();
    let mut t = 2000;
    for (i, c) in calls.iter().enumerate() {
        t += c.dt * writer::TICK;
        if edges.contains(&i) {
            // Not where stamps are.
            let at = t + 37;
            t += writer::TICK;
            match open.remove(&c.lane) {
                None => {
                    open.insert(c.lane, all.len());
                    all.push(Spell { begin: naive.live, end: 0, most: naive.live });
                    w.edge(c.lane, at, "begin", all.len() as u32);
                }
                Some(which) => {
                    all[which].end = naive.live;
                    w.edge(c.lane, at, "end", 0);
                }
            }
        }
        w.at(c.lane, t, c.stamp);
        match c.what {
            What::Free(back) if !live.is_empty() => {
                let token: Token = live.remove(live.len() - 1 - back % live.len());
                naive.remove(of[&token], 0);
                w.free(c.lane, Old::Block(token));
            }
            What::Alloc { size, .. } => {
                let bytes = SIZES[size].0;
                let kind = w.kind(0, bytes as i64, 0, 0);
                let token = w.alloc(c.lane, kind, None, None);
                naive.add(bytes, 0);
                live.push(token);
                of.insert(token, bytes);
            }
            _ => {}
        }
        open.values().for_each(|which| all[*which].most = all[*which].most.max(naive.live));
        if c.flush {
            w.flush();
        }
    }
    w.flush();
    open.values().for_each(|which| all[*which].end = naive.live);
    (w.out, all)
}

/// Each phase's figures are as far from the truth as they say at most. How many of them say that they are exact.
fn hold_phases(run: &Run, all: &[Spell]) -> Result<usize, TestCaseError> {
    let mut exact = 0;
    for p in run.phases.iter().filter(|p| p.source == "api") {
        let truth = all[p.name[1..].parse::<usize>().unwrap() - 1];
        let [most, stays] = [p.heap_peak_bound_bytes, p.heap_persistent_bound_bytes].map(|bound| bound.expect("a bound").0);
        let of = (p, truth);
        prop_assert!(p.heap_peak_bytes.unwrap().0.abs_diff(truth.most.max(0) as u64) <= most, "{:?}", of);
        prop_assert!(p.heap_persistent_bytes.unwrap().abs_diff(truth.end - truth.begin) <= stays, "{:?}", of);
        exact += (most == 0 && stays == 0) as usize;
    }
    Ok(exact)
}

fn hold(run: &Run, naive: &Naive, lanes: u32) -> Result<(), TestCaseError> {
    prop_assert!(run.missing.is_empty(), "{:?}", run.missing);
    let h = &run.heap;
    prop_assert_eq!((h.allocs, h.frees, run.events.unknown_frees), (naive.allocs, naive.frees, naive.unknown));
    prop_assert_eq!(h.temporary_allocs, Some(naive.temporary));
    prop_assert_eq!(h.live_bytes.0, naive.live.max(0) as u64);
    prop_assert_eq!(h.usable.live_bytes.0, naive.usable.max(0) as u64);
    let sizes: Vec<[u64; 3]> = naive.sizes.iter().map(|(s, [a, f])| [*s, *a, *f]).collect();
    prop_assert_eq!(&h.sizes, &sizes);
    let leaked: u64 = sizes.iter().map(|[s, a, f]| s * (a - f)).sum();
    prop_assert_eq!(h.leaked_bytes.unwrap().0, leaked);
    let bound = h.peak_bound_bytes.unwrap().0;
    prop_assert!(h.peak_bytes.0.abs_diff(naive.peak as u64) <= bound, "{} {} {}", h.peak_bytes.0, naive.peak, bound);
    let selected = h.selected.as_ref().unwrap();
    prop_assert!(selected.peak_bytes.0.abs_diff(naive.selected_peak as u64) <= selected.peak_bound_bytes.0);
    if lanes == 1 {
        prop_assert_eq!(bound, 0);
        prop_assert_eq!(h.usable.peak_bytes.0, naive.usable_peak as u64);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    // A settled block's bytes are gone in the trace before they come: without such peaks are exact.
    #[test]
    fn one_lane_is_exact(calls in calls(1).prop_map(|c| c.into_iter().filter(|c| !matches!(c.what, What::Settled(_))).collect::<Vec<_>>()), arrays: bool) {
        let (bytes, naive) = write(&calls, arrays, 0);
        let report = analyze_bytes("trace.jsonl", &bytes, &[24, 100]).unwrap();
        hold(&report.runs[0], &naive, 1)?;
    }

    #[test]
    fn several_lanes_are_exact_but_for_the_peak_which_is_within_its_bound(calls in calls(5), zst: bool) {
        let (bytes, naive) = write(&calls, false, 100_000);
        let report = match zst {
            true => analyze_bytes("trace.jsonl.zst", &zstd::encode_all(&bytes[..], 1).unwrap(), &[24, 100]),
            false => analyze_bytes("trace.jsonl", &bytes, &[24, 100]),
        };
        hold(&report.unwrap().runs[0], &naive, 5)?;
    }

    #[test]
    fn phases_of_several_lanes_are_within_their_bounds(
        calls in calls(4), edges in proptest::collection::vec(any::<prop::sample::Index>(), 0..30)
    ) {
        let edges: Vec<usize> = edges.iter().map(|i| i.index(calls.len().max(1))).collect();
        let (bytes, all) = write_phases(&calls, &edges);
        let report = analyze_bytes("trace.jsonl", &bytes, &[]).unwrap();
        hold_phases(&report.runs[0], &all)?;
    }

    #[test]
    fn phases_of_one_lane_are_exact(calls in calls(1), edges in proptest::collection::vec(any::<prop::sample::Index>(), 0..30)) {
        let edges: Vec<usize> = edges.iter().map(|i| i.index(calls.len().max(1))).collect();
        let (bytes, all) = write_phases(&calls, &edges);
        let report = analyze_bytes("trace.jsonl", &bytes, &[]).unwrap();
        prop_assert_eq!(hold_phases(&report.runs[0], &all)?, all.len());
    }

    #[test]
    fn damage_is_counted_and_never_a_panic(calls in calls(3), at in any::<prop::sample::Index>(), bit in 0u8..8, cut: bool) {
        let (mut bytes, naive) = write(&calls, false, 0);
        let i = at.index(bytes.len());
        if cut { bytes.truncate(i) } else { bytes[i] ^= 1 << bit }
        if let Some(report) = analyze_bytes("trace.jsonl", &bytes, &[24]) {
            prop_assert!(report.runs[0].heap.allocs <= naive.allocs + 10_000_000);
        }
    }
}

#[test]
fn a_trace_cut_anywhere_gives_all_whole_lines() {
    let calls: Vec<Call> = (0..120)
        .map(|i| Call {
            lane: i % 2,
            dt: 1,
            what: if i % 3 == 2 { What::Free(0) } else { What::Alloc { size: i as usize % 6, wide: false } },
            stamp: i % 9 == 0,
            flush: i % 20 == 19,
        })
        .collect();
    let (bytes, _) = write(&calls, false, 0);
    let header = bytes.iter().position(|c| *c == b'\n').unwrap();
    let mut last = 0;
    for cut in header + 1..=bytes.len() {
        let report = analyze_bytes("trace.jsonl", &bytes[..cut], &[]).unwrap();
        let events = report.runs[0].events.recorded;
        assert!(events >= last, "at {cut}");
        last = events;
    }
    assert_eq!(last, 120);
}

#[test]
fn a_line_that_cannot_be_read_costs_only_itself() {
    let calls: Vec<Call> =
        (0..100).map(|i| Call { lane: 0, dt: 1, what: What::Alloc { size: 2, wide: false }, stamp: false, flush: i % 10 == 9 }).collect();
    let (bytes, _) = write(&calls, false, 0);
    let text = String::from_utf8(bytes).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    let (broken, rest) = lines[5].split_at(40);
    assert!(!rest.is_empty());
    lines[5] = broken;
    let run = &analyze_bytes("trace.jsonl", format!("{}\n", lines.join("\n")).as_bytes(), &[]).unwrap().runs[0];
    assert_eq!(run.events.recorded, 90);
    assert!(run.missing.iter().any(|m| m.what == "allocations" && m.count == 10), "{:?}", run.missing);
    assert!(run.missing.iter().any(|m| m.what == "lines" && m.count == 1 && m.why.contains("line 6")), "{:?}", run.missing);
}

#[test]
fn threads_have_the_calls_from_their_first_number_on() {
    let mut w = Writer::new(7, "full", "");
    let kind = w.kind(0, 100, 4, 0);
    w.line(r#"{"type":"thread","t":2000,"lane":0,"tid":7,"seq":0,"what":"start"}"#);
    w.at(0, 2000, false);
    let a: Vec<Token> = (0..3).map(|_| w.alloc(0, kind, None, None)).collect();
    w.line(r#"{"type":"thread","t":2500,"lane":0,"tid":8,"seq":3,"what":"start"}"#);
    w.free(0, Old::Block(a[0]));
    for _ in 0..5 {
        w.alloc(0, kind, None, None);
    }
    w.line(r#"{"type":"thread","t":2600,"lane":0,"tid":8,"what":"end","name":"worker"}"#);
    w.flush();
    let run = &analyze_bytes("trace.jsonl", &w.out, &[]).unwrap().runs[0];
    let rows: Vec<(u32, &str, u64, u64)> = run.threads.iter().map(|t| (t.tid, t.name.as_str(), t.allocs, t.bytes.0)).collect();
    assert_eq!(rows, [(8, "worker", 5, 500), (7, "", 3, 300)]);
    assert_eq!(run.threads[1].peak_bytes.0, 300);
}

/// A batch of frees was lost with the write that ended the recording; what its thread did after it is in the trace.
#[test]
fn what_came_after_a_lost_batch_is_no_peak() {
    let mut w = Writer::new(7, "full", "");
    let kind = w.kind(0, 100, 4, 0);
    w.at(0, 2000, true);
    let blocks: Vec<Token> = (0..10).map(|_| w.alloc(0, kind, None, None)).collect();
    w.flush();
    let written = w.out.len();
    w.at(0, 3000, true);
    blocks.iter().for_each(|block| w.free(0, Old::Block(*block)));
    w.flush();
    w.out.truncate(written);
    w.line(r#"{"type":"mode","t":3500,"mode":"count","why":"no space","errno":28,"whole":3000}"#);
    w.at(0, 3200, true);
    (0..5).for_each(|_| _ = w.alloc(0, kind, None, None));
    w.flush();
    w.line(
        r#"{"type":"calls","t":3600,"fns":[[0,15,1500],[11,10,0]],"live":520,"blocks":5,"failed":0,"lost":0,"lanes":[[0,15,1500,10,520,1040]],"hi_blocks":[10]}"#,
    );
    w.line(r#"{"type":"end","t":3700,"how":"exit","code":0,"counted":25,"recorded":15,"lost":10}"#);
    let run = &analyze_bytes("trace.jsonl", &w.out, &[]).unwrap().runs[0];
    let (peak, bound) = (run.heap.peak_bytes.0, run.heap.peak_bound_bytes.expect("a bound").0);
    assert!(peak <= 1040 && peak.abs_diff(1000) <= bound, "{peak} ± {bound}");
    assert_eq!((run.heap.live_bytes.0, run.heap.live_allocs), (520, 5));
}
