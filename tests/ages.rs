//! How old blocks become, in allocations of their thread, where only a sample of the calls is recorded: right for what is recorded, an estimate with
//! its error for all, and nothing where nobody knows.

#[path = "support/made.rs"]
mod made;
mod support;
#[path = "support/writer.rs"]
#[allow(dead_code)]
mod writer;

use made::{analyze_with, run_of};
use memshim::analyze::Options;
use memshim::analyze::report::Run;
use memshim::analyze::views::{By, Measure, Request};
use proptest::prelude::*;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use support::{Need, Session, lossy};
use writer::{Old, Token, Writer};

/// A call of the schedule: which lane, whether it is recorded, what it does.
#[derive(Clone, Debug)]
struct Call {
    lane: u32,
    recorded: bool,
    what: What,
    flush: bool,
}

#[derive(Clone, Debug)]
enum What {
    Alloc,
    /// Index into the live blocks, from the newest.
    Free(usize),
    Realloc(usize),
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let back = || prop_oneof![3 => 0..2usize, 1 => 0..300usize];
    let what = prop_oneof![5 => Just(What::Alloc), 4 => back().prop_map(What::Free), 2 => back().prop_map(What::Realloc)];
    let call = (0..3u32, prop::bool::weighted(0.3), what, prop::bool::weighted(0.03));
    proptest::collection::vec(call.prop_map(|(lane, recorded, what, flush)| Call { lane, recorded, what, flush }), 0..600)
}

/// A live block: its lane, when it came by the lane's count, and its event.
struct Block {
    lane: u32,
    born: u64,
    event: Option<Token>,
}

/// A fast trace of the schedule, and how many recorded blocks ended at which age.
fn write(calls: &[Call]) -> (Vec<u8>, [u64; 5]) {
    let mut w = Writer::new(7, "fast", r#","ages":true,"stacks":"native""#);
    w.ages = true;
    let (plain, replacing) = (w.kind(0, 70_000, 0, 0), w.kind(2, 70_000, 0, 1));
    // Beyond the low bits that a record has of it.
    let mut counts = [0u64, (1 << 44) - 100, 5000];
    let mut live: Vec<Block> = Vec::new();
    let mut ages = [0; 5];
    for (call, t) in calls.iter().zip(2000..) {
        let lane = call.lane;
        let count = &mut counts[lane as usize];
        w.at(lane, t * writer::TICK, false);
        let old = match call.what {
            What::Alloc => None,
            What::Free(_) | What::Realloc(_) if live.is_empty() => continue,
            What::Free(back) | What::Realloc(back) => Some(live.remove(live.len() - 1 - back % live.len())),
        };
        let ended = old.as_ref().and_then(|b| b.event);
        if let Some(block) = old.filter(|b| b.event.is_some()) {
            let age = count.wrapping_sub(block.born);
            let class = [0, 15, 255, 4095].iter().filter(|most| age > **most).count();
            ages[if block.lane == lane { class } else { 4 }] += 1;
        }
        if let What::Free(_) = call.what {
            if let Some(token) = ended {
                w.count(lane, *count);
                w.free(lane, Old::Block(token));
            }
        } else {
            // Of a realloc whose new block is not recorded the old one's end stands alone.
            if let Some(token) = ended.filter(|_| !call.recorded) {
                w.count(lane, *count);
                w.free(lane, Old::Block(token));
            }
            *count += 1;
            w.count(lane, *count);
            let kind = if ended.is_some() { replacing } else { plain };
            let event = call.recorded.then(|| w.alloc(lane, kind, None, ended.map(Old::Block)));
            live.push(Block { lane, born: *count, event });
        }
        if call.flush {
            w.flush();
        }
    }
    w.flush();
    (w.out, ages)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_recorded_of_a_fast_run_has_the_ages_that_it_had(calls in calls()) {
        let (bytes, ages) = write(&calls);
        let run = run_of(&bytes);
        prop_assert_eq!(run.heap.temporary_estimated.map(|e| (e.allocs, e.allocs_stderr)), Some((ages[0] as f64, 0.0)));
        let found = run.sites.first().map(|s| (s.lifetimes, s.temporary_allocs));
        let any = run.events.single > 0;
        prop_assert_eq!(found, any.then_some((Some(ages), Some(ages[0]))));
        let unflawed = run.missing.iter().all(|m| m.what == "the end");
        prop_assert!(unflawed, "{:?}", run.missing);
    }

    #[test]
    fn damaged_counts_are_no_panic_and_end_no_more_blocks_than_there_were(calls in calls(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let (mut bytes, _) = write(&calls);
        let i = at.index(bytes.len());
        bytes[i] ^= 1 << bit;
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("trace.jsonl"), bytes).unwrap();
        if let Ok(report) = memshim::analyze::analyze(&[dir.path().join("trace.jsonl")], &Options::default(), &Default::default()) {
            let sites = report.runs.iter().flat_map(|r| &r.sites);
            sites.for_each(|s| assert!(s.lifetimes.is_none_or(|l| l.iter().sum::<u64>() <= s.allocs + 5), "{s:?}"));
        }
    }
}

/// A site that passes blocks and one that keeps them, as an earlier version recorded it.
fn ageless(mode: &str) -> Vec<u8> {
    let mut w = Writer::new(7, mode, r#","stacks":"native""#);
    w.nodes(0, 1, &[(0, 0x1000 << 1), (0, 0x2000 << 1)]);
    let kind = w.kind(0, 1000, 0, if mode == "fast" { 4 } else { 0 });
    w.at(0, 2000, false);
    w.site(0, 1, 0);
    for _ in 0..20 {
        let block = w.alloc(0, kind, None, None);
        w.free(0, Old::Block(block));
    }
    w.site(0, 2, 0);
    w.alloc(0, kind, None, None);
    w.flush();
    w.out
}

fn memshim(trace: &[u8], args: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("trace.jsonl"), trace).unwrap();
    Command::new(assert_cmd::cargo::cargo_bin!("memshim")).current_dir(dir.path()).args(args).arg("trace.jsonl").output().unwrap()
}

/// Of an earlier version's trace, and of one that was lowered.
#[test]
fn where_a_trace_does_not_tell_ages_there_is_no_figure_of_them_but_what_to_do() {
    let mut lowered = ageless("full");
    lowered.extend(br#"{"type":"mode","t":9000,"mode":"fast","why":"the trace reached MEMSHIM_MAX","max":100}"#);
    lowered.push(b'\n');
    for trace in [ageless("fast"), lowered] {
        let run = run_of(&trace);
        assert_eq!((run.heap.temporary_allocs, run.heap.temporary_estimated), (None, None));
        assert_eq!(run.sites.len(), 2);
        for s in &run.sites {
            assert_eq!((s.temporary_allocs, s.temporary_stderr_allocs, s.temporary_bytes, s.lifetimes), (None, None, None, None));
        }
        assert!(run.owners.iter().all(|o| o.temporary_allocs.is_none()));
        let page = memshim(&trace, &["analyze", "--sites"]);
        let page = lossy(&page.stdout);
        assert!(page.contains("own peak") && !page.contains("temporary"), "{page}");
        for view in ["--sites", "--tree", "--by=function"] {
            let page = memshim(&trace, &["analyze", "--sort", "temporary", view]);
            let text = lossy(&page.stdout);
            assert!(page.status.success() && text.contains("MEMSHIM_MODE=full"), "{view}: {text}");
            assert!(["own peak", "CALLS", "BY", "more (--top"].iter().all(|figures| !text.contains(figures)), "{view}: {text}");
        }
        let refused = memshim(&trace, &["export", "--to", "collapsed", "--of", "temporary"]);
        assert!(!refused.status.success() && lossy(&refused.stderr).contains("MEMSHIM_MODE=full"), "{}", lossy(&refused.stderr));
        let all: Value = serde_json::from_slice(&memshim(&trace, &["export", "--to", "speedscope"]).stdout).unwrap();
        assert_eq!(all["profiles"].as_array().map(Vec::len), Some(3));
        let pprof = memshim(&trace, &["export", "--to", "pprof"]).stdout;
        assert!(!lossy(&pprof).contains("temporary_objects") && lossy(&pprof).contains("alloc_space"));
    }
    let view = Request { by: By::Function, measure: Measure::Temporary, top: 5 };
    let asked = |trace: &[u8]| analyze_with(trace, &Options { view: Some(view.clone()), ..Options::default() }).runs.remove(0);
    assert_eq!(asked(&ageless("full")).sites_view.map(|v| (v.total, v.rows.len())), Some((Some(20), 1)));
    assert_eq!(asked(&ageless("fast")).sites_view.map(|v| (v.total, v.rows.len())), Some((None, 0)));
}

/// Rounds of `ages.c`.
const ROUNDS: u64 = 10_000;
const SAMPLE: u64 = 4096;

/// Where it asks for memory, how often, the bytes, and how old blocks become: of those that end alone, the class that all have.
const SITES: [(&str, u64, u64, Option<usize>); 9] = [
    ("TEMPORARY", 3 * ROUNDS, 200, Some(0)),
    ("GROWN", ROUNDS, 200, Some(0)),
    ("REALLOC", ROUNDS, 400, Some(0)),
    ("GROWN LATE", ROUNDS, 200, Some(1)),
    ("REALLOC LATE", ROUNDS, 400, Some(1)),
    ("21", ROUNDS, 200, Some(2)),
    ("307", ROUNDS, 200, Some(3)),
    ("5004", ROUNDS, 200, Some(4)),
    ("RANDOM", ROUNDS, 200, None),
];

/// Runs a program in fast mode; its run in the report.
fn run(command: &mut Command, dir: &Path, settings: &[(&str, &str)], end: &str) -> Value {
    command.current_dir(dir).env("LD_PRELOAD", support::shim()).envs(settings.iter().copied());
    let ran = Session::start(command, dir).finish(Duration::from_secs(60));
    assert_eq!((ran.end().as_str(), lossy(&ran.stderr).as_str()), (end, ""));
    let text = support::analyze(&dir.join("trace.jsonl")).unwrap_or_else(|why| panic!("{why}"));
    for name in ["trace.jsonl", "trace.jsonl.spool"] {
        let _ = std::fs::remove_file(dir.join(name));
    }
    let mut report: Value = serde_json::from_str(&text).expect("JSON");
    report["runs"][0].take()
}

/// Figures of the sites of a marked line: allocations, temporary ones, their variance, lifetimes.
fn figures(run: &Value, mark: &str) -> (f64, f64, f64, [f64; 5]) {
    let source = std::fs::read_to_string(support::root().join("tests/programs/ages.c")).expect("the source");
    let line = source.lines().position(|l| l.contains(&format!("<{mark}>"))).expect("a marked line") as u64 + 1;
    let is_there = |s: &&Value| {
        let frames = s["frames"].as_array().expect("frames");
        frames.iter().find(|f| f["file"].as_str().is_some_and(|p| p.ends_with("ages.c"))).is_some_and(|f| f["line"] == line)
    };
    let mut sum = (0.0, 0.0, 0.0, [0.0; 5]);
    for s in run["sites"].as_array().expect("sites").iter().filter(is_there) {
        let of = |v: &Value| v.as_f64().unwrap_or_else(|| panic!("no figure: {s}"));
        sum.0 += of(&s["allocs"]);
        sum.1 += of(&s["temporary_allocs"]);
        sum.2 += of(&s["temporary_stderr_allocs"]).powi(2);
        sum.3.iter_mut().zip(s["lifetimes"].as_array().expect("lifetimes")).for_each(|(sum, n)| *sum += of(n));
    }
    sum
}

/// Each run samples anew.
fn hold_ages(test: &str, runs: u32, more: &[&str], end: &str) {
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let (program, dir) = (support::build("ages.c", "ages", &[]), support::fresh_dir(test));
    let sample = SAMPLE.to_string();
    let settings = [("MEMSHIM_MODE", "fast"), ("MEMSHIM_SAMPLE", sample.as_str()), ("MEMSHIM_STACKS", "native")];
    let (mut far, mut estimates, mut sums) = (0, 0, [0.0; SITES.len()]);
    for _ in 0..runs {
        let run = run(Command::new(&program).arg(ROUNDS.to_string()).args(more), &dir, &settings, end);
        for ((mark, calls, size, class), sum) in SITES.iter().zip(&mut sums) {
            let (allocs, temporary, variance, lifetimes) = figures(&run, mark);
            let ended: f64 = lifetimes.iter().sum();
            assert!(allocs > *calls as f64 * 0.7 && ended > *calls as f64 * 0.65, "{mark}: {allocs} {ended}");
            assert_eq!(temporary, lifetimes[0], "{mark}");
            match class {
                Some(class) => assert!((lifetimes[*class] - ended).abs() < 0.5, "{mark}: {lifetimes:?}"),
                None => assert_eq!(temporary, 0.0, "{mark}: never freed before the next allocation"),
            }
            if *class != Some(0) {
                assert_eq!(variance, 0.0, "{mark}");
                continue;
            }
            // A call of s bytes is taken with probability 1 − exp(−s/mean).
            let weight = -1.0 / (-(*size as f64) / SAMPLE as f64).exp_m1();
            let error = variance.sqrt();
            assert!((error / (temporary * (weight - 1.0)).sqrt() - 1.0).abs() < 0.01, "{mark}: {error}");
            far += ((temporary - *calls as f64).abs() > 3.0 * error) as u32;
            estimates += 1;
            *sum += temporary / *calls as f64;
        }
        let (_, temporary, _, lifetimes) = figures(&run, "HANDED");
        assert!(temporary == 0.0 && lifetimes[4] > 2000.0 && lifetimes[..4] == [0.0; 4], "freed by another thread: {lifetimes:?}");
        let heap = &run["heap"]["temporary_estimated"];
        let [all, error] = ["allocs", "allocs_stderr"].map(|key| heap[key].as_f64().unwrap_or_else(|| panic!("no {key}: {heap}")));
        assert!(error > 100.0 && (all - 5.0 * ROUNDS as f64).abs() < 5.0 * error && run["heap"]["temporary_allocs"].is_null(), "{heap}");
    }
    // Of a normal law's hundred values fewer than one lies beyond three standard errors.
    assert!(far <= 1 + estimates / 50, "{far} of {estimates} beyond three standard errors");
    for ((mark, calls, size, _), sum) in SITES.iter().zip(sums).filter(|(site, _)| site.3 == Some(0)) {
        let mean = sum / f64::from(runs);
        let error = (SAMPLE as f64 / *size as f64 / *calls as f64 / f64::from(runs)).sqrt();
        assert!((mean - 1.0).abs() < 4.0 * error, "{mark} biased: {mean} ± {error}");
    }
}

#[test]
fn estimates_of_temporary_allocations_lie_within_their_standard_errors() {
    hold_ages("estimates_of_temporary_allocations_lie_within_their_standard_errors", 40, &[], "exit 0");
}

#[test]
fn a_killed_process_tells_the_ages_of_its_blocks_too() {
    hold_ages("a_killed_process_tells_the_ages_of_its_blocks_too", 20, &["kill"], "signal 9");
}

/// The same script in both modes.
#[test]
fn python_blocks_have_ages_in_fast_mode() {
    let test = "python_blocks_have_ages_in_fast_mode";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let Some(python) = support::python() else { return };
    let dir = support::fresh_dir(test);
    let script = "
def passed(n):
    for i in range(n):
        bytes(i % 300 + 100)

def kept(n):
    all = [None] * 50
    for i in range(n):
        all[i % 50] = bytearray(200)

passed(60000)
kept(20000)
";
    let of = |settings: &[(&str, &str)]| {
        let mut c = Command::new(python);
        c.args(["-S", "-E", "-c", script]).env("PYTHONHASHSEED", "0");
        let settings = [&[("MEMSHIM_PYTHON_ALLOC", "1")], settings].concat();
        run(&mut c, &dir, &settings, "exit 0")
    };
    let full = of(&[("MEMSHIM_MODE", "full"), ("MEMSHIM_STACKS", "off")]);
    let exact = full["python"]["temporary_allocs"].as_f64().unwrap_or_else(|| panic!("no figure: {}", full["python"]));
    assert!(exact > 60_000.0 && full["python"]["temporary_estimated"].is_null(), "{exact}");
    for _ in 0..5 {
        let fast = of(&[("MEMSHIM_MODE", "fast"), ("MEMSHIM_SAMPLE", "2KiB")]);
        let of = &fast["python"]["temporary_estimated"];
        let [all, error] = ["allocs", "allocs_stderr"].map(|key| of[key].as_f64().unwrap_or_else(|| panic!("no {key}: {of}")));
        assert!(error > 100.0 && error < 0.1 * exact && (all - exact).abs() < 4.0 * error, "{all} ± {error} of {exact}");
    }
}

/// A full trace counts, a fast one estimates.
#[test]
fn the_figure_that_is_exact_and_the_one_that_is_estimated_have_keys_of_their_own() {
    let temporary = |run: &Run| (run.heap.temporary_allocs, run.heap.temporary_estimated.map(|e| e.allocs));
    assert_eq!(temporary(&run_of(&ageless("full"))), (Some(20), None));
    let (trace, _) = write(&[What::Alloc, What::Free(0)].map(|what| Call { lane: 0, recorded: true, what, flush: false }));
    assert_eq!(temporary(&run_of(&trace)), (None, Some(1.0)));
}
