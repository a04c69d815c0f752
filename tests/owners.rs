//! Who held it: programs that say at which of their lines they hold, leak and pass memory and hold more with each step, and the reports about them.

mod support;

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use support::{Need, Session, lossy};

/// Blocks and their size at each marked line.
const PEAK: (u64, u64) = (50, 100_008);
const LEAK: (u64, u64) = (3000, 1000);
/// More calls than a sampled block of one byte stands for where a sample is taken each 4 KiB.
const TEMPORARY: (u64, u64) = (5000, 1200);
/// Freed one after the other, when all were there, by `main` itself.
const OTHERS: (u64, u64) = (2000, 24);
/// Three in each of sixty steps.
const GROWTH: (u64, u64) = (180, 4008);
const STEPS: u64 = 60;

/// A program and its source.
struct Planted {
    source: &'static str,
    command: Vec<PathBuf>,
}

impl Planted {
    fn line(&self, mark: &str) -> u64 {
        let text = std::fs::read_to_string(support::root().join("tests/programs").join(self.source)).expect("the source");
        let at = text.lines().position(|l| l.contains(&format!("<{mark}>"))).expect("a marked line");
        at as u64 + 1
    }

    /// Runs it in `dir` with these settings.
    fn record(&self, dir: &Path, trace: &Path, settings: &[(&str, &str)]) {
        let mut c = Command::new(&self.command[0]);
        c.args(&self.command[1..]).current_dir(dir).env("LD_PRELOAD", support::shim()).env("MEMSHIM_OUT", trace);
        c.env("MEMSHIM_STACKS", "mixed").env("MEMSHIM_PHASE_PY", "__main__:step").envs(settings.iter().copied());
        let ran = Session::start(&mut c, dir).finish(Duration::from_secs(60));
        assert!(ran.status.is_some_and(|s| s.success()) && ran.stderr.is_empty(), "{}: {}", self.source, lossy(&ran.stderr));
    }

    /// Runs it in `dir` with these settings and gives its run in the report.
    fn run(&self, dir: &Path, settings: &[(&str, &str)]) -> Value {
        self.runs(dir, 1, settings, &[]).remove(0)
    }

    /// Runs it so often, and reads all traces at once, with these flags.
    fn runs(&self, dir: &Path, times: usize, settings: &[(&str, &str)], flags: &[&str]) -> Vec<Value> {
        let traces = dir.join("traces");
        std::fs::create_dir(&traces).expect("a folder for the traces");
        for n in 0..times {
            self.record(dir, &traces.join(format!("{n}.jsonl")), settings);
        }
        let runs = asked(&traces, flags);
        std::fs::remove_dir_all(&traces).expect("traces");
        assert_eq!(runs.len(), times, "{}", self.source);
        runs
    }

    /// Line of the innermost frame that is in the source, 0 where there is none.
    fn own_line(&self, site: &Value) -> u64 {
        let frames = site["frames"].as_array().expect("frames");
        // What C++ inlines stands in a line of its own; whoever calls it counts.
        let own = |f: &&Value| {
            f["file"].as_str().is_some_and(|p| Path::new(p).file_name().is_some_and(|n| n == self.source))
                && !f["function"].as_str().is_some_and(|n| n.contains("made"))
        };
        frames.iter().find(own).and_then(|f| f["line"].as_u64()).unwrap_or(0)
    }

    /// Sum of a figure over the sites of a line.
    fn sum(&self, run: &Value, mark: &str, figure: &str) -> u64 {
        self.estimate(&run["sites"], mark, figure, None).0.round() as u64
    }

    /// The same of an estimate, with its standard error.
    fn estimate(&self, sites: &Value, mark: &str, figure: &str, error: Option<&str>) -> (f64, f64) {
        let line = self.line(mark);
        let number = |s: &Value, key: &str| s[key].as_f64().unwrap_or_else(|| panic!("no {key}: {s}"));
        let of = sites.as_array().expect("sites").iter().filter(|s| self.own_line(s) == line);
        let sum = |(all, variance), s| (all + number(s, figure), variance + error.map_or(0.0, |key| number(s, key).powi(2)));
        let (all, variance) = of.fold((0.0, 0.0), sum);
        (all, variance.sqrt())
    }

    /// Blocks of each size that a line allocated, and those of them that were freed.
    fn sizes(&self, run: &Value, mark: &str) -> BTreeMap<u64, (u64, u64)> {
        let mut all: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        let sites = run["sites"].as_array().expect("sites").iter().filter(|s| self.own_line(s) == self.line(mark));
        for row in sites.flat_map(|s| s["sizes"].as_array().expect("sizes")) {
            let [size, allocs, frees] = [0, 1, 2].map(|at| row[at].as_f64().expect("a figure") as u64);
            let of = all.entry(size).or_default();
            *of = (of.0 + allocs, of.1 + frees);
        }
        all
    }

    /// Line of the site with the largest figure.
    fn top(&self, sites: &Value, figure: &str) -> u64 {
        let all = sites.as_array().expect("sites").iter();
        all.max_by_key(|s| s[figure].as_u64().unwrap_or(0)).map_or(0, |s| self.own_line(s))
    }

    /// The right line is on top, whatever is asked.
    fn has_its_lines_on_top(&self, run: &Value) {
        let (sites, grown) = (&run["sites"], &steps(run)["sites"]);
        for (sites, figure, mark) in [
            (sites, "live_at_peak_bytes", "PEAK"),
            (sites, "leaked_bytes", "LEAK"),
            (sites, "temporary_allocs", "TEMPORARY"),
            (grown, "bytes", "GROWTH"),
        ] {
            assert_eq!(self.top(sites, figure), self.line(mark), "{}: {mark}", self.source);
        }
    }
}

/// What is said of the steps, which leak.
fn steps(run: &Value) -> &Value {
    let phases = run["phases"].as_array().expect("phases");
    let step = phases.iter().find(|p| p["name"].as_str().is_some_and(|n| n == "step" || n == "__main__:step"));
    let step = step.unwrap_or_else(|| panic!("no step: {phases:?}"));
    assert_eq!((step["count"].as_u64(), step["steps"]["leaks"].as_bool()), (Some(STEPS), Some(true)), "{step}");
    &step["steps"]
}

/// Blocks that steps are told to have kept: those behind the first steps, in which a program warms up.
fn judged(run: &Value) -> u64 {
    let from = steps(run)["sites_from"].as_u64().expect("from where on");
    assert_eq!(from, STEPS / 10);
    (STEPS - 1 - from) * (GROWTH.0 / STEPS)
}

fn planted(test: &str) -> Vec<Planted> {
    let build = |source: &str, name: &str| support::build(source, name, &["-O2"]);
    let mut all = vec![
        Planted { source: "owners.c", command: vec![build("owners.c", "owners_c")] },
        Planted { source: "owners.cc", command: vec![build("owners.cc", "owners_cc")] },
    ];
    if !support::lacks(test, &[Need::Command("rustc")]) {
        let made = support::out_dir().join("owners_rs");
        let source = support::root().join("tests/programs/owners.rs");
        // Once: two tests that build one file at a time are in each other's way.
        static BUILT: OnceLock<()> = OnceLock::new();
        BUILT.get_or_init(|| {
            let out = Command::new("rustc").args(["--edition=2024", "-O", "-g", "-o"]).arg(&made).arg(source).output().expect("rustc");
            assert!(out.status.success(), "{}", lossy(&out.stderr));
        });
        all.push(Planted { source: "owners.rs", command: vec![made] });
    }
    if let Some(python) = support::python() {
        let script = support::root().join("tests/programs/owners.py");
        all.push(Planted { source: "owners.py", command: vec![python.into(), script] });
    }
    all
}

#[test]
fn the_line_that_held_leaked_or_passed_memory_is_on_top_with_its_bytes() {
    let test = "the_line_that_held_leaked_or_passed_memory_is_on_top_with_its_bytes";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    for program in planted(test) {
        let run = program.run(&support::fresh_dir(test), &[("MEMSHIM_MODE", "full")]);
        let of = |mark, figure| program.sum(&run, mark, figure);
        let name = program.source;
        assert_eq!(of("PEAK", "live_at_peak_bytes"), PEAK.0 * PEAK.1, "{name}");
        assert_eq!((of("PEAK", "leaked_bytes"), of("PEAK", "allocs")), (0, PEAK.0), "{name}");
        assert_eq!((of("LEAK", "leaked_bytes"), of("LEAK", "leaked_allocs")), (LEAK.0 * LEAK.1, LEAK.0), "{name}");
        assert_eq!(of("TEMPORARY", "temporary_allocs"), TEMPORARY.0, "{name}");
        assert_eq!(of("TEMPORARY", "total_bytes"), TEMPORARY.0 * TEMPORARY.1, "{name}");
        for (mark, (blocks, size), freed) in [("PEAK", PEAK, PEAK.0), ("LEAK", LEAK, 0), ("TEMPORARY", TEMPORARY, TEMPORARY.0)] {
            assert_eq!(program.sizes(&run, mark), BTreeMap::from([(size, (blocks, freed))]), "{name}: {mark}");
        }
        let grown = |figure| program.estimate(&steps(&run)["sites"], "GROWTH", figure, Some("stderr_bytes"));
        let kept = judged(&run);
        assert_eq!((grown("bytes"), grown("allocs").0), (((kept * GROWTH.1) as f64, 0.0), kept as f64), "{name}");
        assert_eq!(steps(&run)["sites"].as_array().map(Vec::len), Some(1), "{name}: nobody else grows");
        program.has_its_lines_on_top(&run);
    }
}

/// What `memshim analyze --json` says of the runs of a trace or a folder of traces, asked so.
fn asked(trace: &Path, args: &[&str]) -> Vec<Value> {
    let out = Command::new(support::memshim()).args(["analyze", "--json"]).arg(trace).args(args).output().expect("memshim");
    assert!(out.status.success(), "{args:?}: {}", lossy(&out.stderr));
    let mut report: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let Value::Array(runs) = report["runs"].take() else { panic!("{args:?}: no runs") };
    runs
}

/// The same of its one run.
fn asked_one(trace: &Path, args: &[&str]) -> Value {
    asked(trace, args).remove(0)
}

/// What the row of a view with this frame allocated itself, and with what it calls.
fn row(trace: &Path, args: &[&str], is: impl Fn(&Value) -> bool) -> (u64, u64) {
    let run = asked_one(trace, &[args, &["--top", "1000"]].concat());
    let rows = run["sites_view"]["rows"].as_array().expect("rows");
    let row = rows.iter().find(|r| is(&r["frame"])).unwrap_or_else(|| panic!("{args:?}: {rows:?}"));
    (row["exclusive"].as_u64().expect("bytes"), row["inclusive"].as_u64().expect("bytes"))
}

#[test]
fn each_view_filter_and_instant_has_the_bytes_of_the_lines() {
    let test = "each_view_filter_and_instant_has_the_bytes_of_the_lines";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let bytes = |(blocks, size): (u64, u64)| blocks * size;
    let [peak, leak, passed, grown] = [PEAK, LEAK, TEMPORARY, GROWTH].map(bytes);
    for program in planted(test).iter().filter(|p| p.source.ends_with(".c") || p.source.ends_with(".py")) {
        let dir = support::fresh_dir(test);
        let settings = [("MEMSHIM_MODE", "full")];
        program.record(&dir, &dir.join("trace.jsonl"), &settings);
        let trace = dir.join("trace.jsonl");
        let (python, name) = (program.source.ends_with(".py"), program.source);
        let is = |key: &'static str, wanted: &'static str| move |f: &Value| f[key].as_str().is_some_and(|is| is == wanted);
        let line = |mark: &str| {
            let line = program.line(mark);
            move |f: &Value| f["line"] == line && f["file"].as_str().is_some_and(|p| Path::new(p).file_name().is_some_and(|n| n == name))
        };
        // By Python line, or by any where there is no Python.
        assert_eq!(row(&trace, &["--by", "line"], line("PEAK")), (peak, peak), "{name}");
        assert_eq!(row(&trace, &["--by", "line", "--sort", "leaked"], line("LEAK")), (leak, leak), "{name}");
        assert_eq!(row(&trace, &["--by", "line", "--sort", "total"], line("TEMPORARY")), (passed, passed), "{name}");
        assert_eq!(row(&trace, &["--by", "line", "--sort", "temporary"], line("TEMPORARY")), (TEMPORARY.0, TEMPORARY.0), "{name}");
        let run = asked_one(&trace, &["--sites"]);
        if !python {
            let function = |sort, name| row(&trace, &["--by", "function", "--sort", sort], is("function", name));
            assert_eq!((function("leaked", "leak"), function("leaked", "main")), ((leak, leak), (0, leak + grown)));
            assert_eq!(
                (function("total", "pass"), function("total", "main")),
                ((passed, passed), (bytes(OTHERS), peak + leak + passed + grown + bytes(OTHERS)))
            );
            let of_program = |f: &Value| f["module"].as_str().is_some_and(|m| m.ends_with("/owners_c"));
            assert_eq!(row(&trace, &["--by", "module"], of_program), (peak + leak + grown, peak + leak + grown));
            let threads = &asked_one(&trace, &["--by", "thread"])["sites_view"];
            assert_eq!(
                (threads["rows"].as_array().map(Vec::len), threads["rows"][0]["inclusive"].as_u64()),
                (Some(1), Some(peak + leak + grown))
            );
        } else {
            let of_script = |f: &Value| f["module"].as_str().is_some_and(|m| m.ends_with("/owners.py"));
            let (own, all) = row(&trace, &["--by", "module", "--sort", "total"], of_script);
            assert!(own == 0 && all >= peak + leak + passed + grown, "native code of the interpreter asks for its memory: {own} {all}");
        }
        // Filters, and known leaks, are by parts of names.
        let (keeps, holds) = if python { ("Keeper.keep", "hold") } else { ("leak", "hold") };
        let only = asked_one(&trace, &["--sites", "--filter", keeps]);
        assert_eq!((program.sum(&only, "LEAK", "leaked_bytes"), program.sum(&only, "PEAK", "total_bytes")), (leak, 0), "{name}");
        assert_eq!(only["sites_total"]["total_bytes"], leak, "{name}");
        let but = asked_one(&trace, &["--sites", "--filter", &format!("!{keeps}")]);
        assert_eq!((program.sum(&but, "LEAK", "leaked_bytes"), program.sum(&but, "PEAK", "total_bytes")), (0, peak), "{name}");
        let both = asked_one(&trace, &["--sites", "--filter", keeps, "--filter", holds]);
        assert_eq!(both["sites_total"]["sites"], 0, "{name}");
        let known = dir.join("known");
        std::fs::write(&known, format!("leak:{keeps}\n")).expect("a list of known leaks");
        let rest = asked_one(&trace, &["--sites", "--suppressions", known.to_str().expect("a path")]);
        assert_eq!(rest["sites_total"]["suppressed_bytes"], leak, "{name}");
        // At an instant: before anything, at the peak, and at the peak of the steps, which is before it.
        let at = |args: &[&str]| {
            let run = asked_one(&trace, &[&["--sites"], args].concat());
            ["PEAK", "LEAK", "GROWTH"].map(|mark| program.sum(&run, mark, "live_at_bytes"))
        };
        let peak_at = run["heap"]["peak_at_s"].as_f64().expect("an instant").to_string();
        assert_eq!(at(&["--at", "0"]), [0, 0, 0], "{name}");
        assert_eq!(at(&["--at", &peak_at]), [peak, leak, grown], "{name}");
        assert_eq!(at(&["--at", &format!("0..{peak_at}")]), [peak, leak, grown], "{name}");
        assert_eq!(at(&["--at", "9999"]), [0, leak, grown], "{name}");
        assert_eq!(at(&["--phase", if python { "__main__:step" } else { "step" }]), [0, leak, grown], "{name}");
    }
}

/// Figures of the planted lines that are estimated in fast mode, each with its standard error and the truth.
fn estimated(program: &Planted, run: &Value) -> [(&'static str, (f64, f64), u64); 5] {
    let of = |mark, figure, error| program.estimate(&run["sites"], mark, figure, Some(error));
    let grown = program.estimate(&steps(run)["sites"], "GROWTH", "bytes", Some("stderr_bytes"));
    [
        ("held at the peak", of("LEAK", "live_at_peak_bytes", "stderr_bytes"), LEAK.0 * LEAK.1),
        ("leaked", of("LEAK", "leaked_bytes", "leaked_stderr_bytes"), LEAK.0 * LEAK.1),
        ("temporary", of("TEMPORARY", "temporary_allocs", "temporary_stderr_allocs"), TEMPORARY.0),
        ("total", of("TEMPORARY", "total_bytes", "total_stderr_bytes"), TEMPORARY.0 * TEMPORARY.1),
        ("growth", grown, judged(run) * GROWTH.1),
    ]
}

/// Each run samples anew. How many standard errors an estimate is off follows a normal law, nearly: of a hundred fewer than one is beyond three, their mean
/// lies about 0 and that of their squares about 1. What is allowed here a sound program exceeds less than once in ten thousand times.
#[test]
fn estimates_of_lines_lie_within_their_standard_errors() {
    let test = "estimates_of_lines_lie_within_their_standard_errors";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    const RUNS: usize = 100;
    let settings = [("MEMSHIM_MODE", "fast"), ("MEMSHIM_SAMPLE", "4KiB")];
    let mut far: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for program in planted(test) {
        let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        // Reports have all call sites in a few runs, where the lines must be on top of the interpreter's too, and the program's own in the others.
        let dir = support::fresh_dir(test);
        let few = program.runs(&dir, RUNS / 50, &settings, &[]);
        for run in few.into_iter().chain(program.runs(&dir, RUNS - RUNS / 50, &settings, &["--filter", program.source])) {
            assert_eq!(program.sum(&run, "PEAK", "live_at_peak_bytes"), PEAK.0 * PEAK.1, "big blocks are recorded by themselves");
            program.has_its_lines_on_top(&run);
            for (figure, (estimate, error), truth) in estimated(&program, &run) {
                let truth = truth as f64;
                assert!(error > 0.01 * truth && error < 0.15 * truth, "{}, {figure}: {estimate} ± {error}", program.source);
                let off = (estimate - truth) / error;
                let (sum, of) = (sums.entry(figure).or_default(), far.entry(figure).or_default());
                *sum = (sum.0 + off, sum.1 + off * off);
                *of = (of.0 + u64::from(off.abs() > 3.0), of.1 + 1);
            }
        }
        for (figure, (sum, squares)) in sums {
            let (mean, square) = (sum / RUNS as f64, squares / RUNS as f64);
            let what = format!("{}, {figure}: {mean:.2} standard errors off on the mean, {square:.2} squared", program.source);
            assert!(mean.abs() < 0.45 && (0.4..1.8).contains(&square), "{what}");
        }
    }
    for (figure, (far, all)) in far {
        assert!(far <= 1 + all / 50, "{figure}: {far} of {all} beyond three standard errors");
    }
}

/// The highest of many estimates is one that is too high: what the counts exclude is not shown.
#[test]
fn estimated_owners_hold_no_more_than_can_have_been_live() {
    let test = "estimated_owners_hold_no_more_than_can_have_been_live";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let program =
        Planted { source: "short_blocks.c", command: vec![support::build("short_blocks.c", "short_blocks", &["-O1", "-pthread"])] };
    let run = program.run(&support::fresh_dir(test), &[("MEMSHIM_MODE", "fast")]);
    let number = |of: &str, key: &str| run[of][key].as_f64().unwrap_or_else(|| panic!("no {of}.{key}: {run}"));
    let most = number("heap", "peak_bytes") + number("heap", "peak_bound_bytes");
    let (held, error) = (number("sites_total", "live_at_peak_bytes"), number("sites_total", "stderr_bytes"));
    assert!(most < 1.3e6 && held > 5e5 && held < most + 2.0 * error && error < 1.5e6, "{held} ± {error} of at most {most}");
}

#[test]
fn wrappers_of_malloc_are_nobodys_memory() {
    let test = "wrappers_of_malloc_are_nobodys_memory";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    for debug in [&["-O1", "-g"][..], &["-O1"]] {
        let name = format!("wrappers{}", debug.len());
        let program = Planted { source: "wrappers.c", command: vec![support::build("wrappers.c", &name, debug)] };
        let run = program.run(&support::fresh_dir(test), &[("MEMSHIM_MODE", "full")]);
        let owners: Vec<_> = run["owners"].as_array().expect("owners").iter().take(2).collect();
        let of = |o: &Value| (o["frame"]["function"].as_str().unwrap_or("?").to_owned(), o["live_at_peak_bytes"].as_u64());
        assert_eq!(of(owners[0]), ("load_table".into(), Some(300_000)), "{debug:?}");
        assert_eq!(of(owners[1]), ("load_index".into(), Some(100_000)), "{debug:?}");
    }
}

/// The calls of a tree that lie at a line of the program, and the first that each leads to.
fn at_line(tree: &[Value], line: u64) -> Vec<(&Value, &Value)> {
    let is = |call: &Value| call["frame"]["line"] == line && call["frame"]["file"].as_str().is_some_and(|f| f.ends_with("/owners.py"));
    tree.windows(2).filter(|two| is(&two[0])).map(|two| (&two[0], &two[1])).collect()
}

#[test]
fn the_tree_of_calls_leads_through_python_and_native_code_to_what_was_asked_for() {
    let test = "the_tree_of_calls_leads_through_python_and_native_code_to_what_was_asked_for";
    let Some(python) = support::python().filter(|_| !support::lacks(test, &[Need::Preload])) else { return };
    let dir = support::fresh_dir(test);
    let script = support::root().join("tests/programs/owners.py");
    let program = Planted { source: "owners.py", command: vec![python.into(), script.clone()] };
    let mut c = Command::new(python);
    c.arg(&script).current_dir(&dir).envs([("MEMSHIM_MODE", "full"), ("MEMSHIM_STACKS", "mixed")]).env("LD_PRELOAD", support::shim());
    assert_eq!(Session::start(&mut c, &dir).finish(Duration::from_secs(60)).end(), "exit 0");
    let analyze = |flags: &[&str], env: &[(&str, &str)]| {
        let mut c = Command::new(support::memshim());
        c.arg("analyze").arg(dir.join("trace.jsonl")).args(flags).env("LC_ALL", "C.UTF-8").envs(env.iter().copied());
        let out = c.output().expect("memshim");
        assert!(out.status.success(), "{}", lossy(&out.stderr));
        lossy(&out.stdout)
    };
    // What each line amounts to by the four measures: to the byte, and to the allocation.
    let lines = ["PEAK", "LEAK", "TEMPORARY"];
    let all = [PEAK, LEAK, TEMPORARY].map(|(n, size)| n * size);
    let wanted = [("peak", [all[0], all[1], 0]), ("leaked", [0, all[1], 0]), ("temporary", [0, 0, TEMPORARY.0]), ("total", all)];
    for (measure, wanted) in wanted {
        let json: Value = serde_json::from_str(&analyze(&["--json", "--tree", "--sort", measure], &[])).expect("JSON");
        let view = &json["runs"][0]["sites_view"];
        let tree = view["tree"].as_array().expect("a tree");
        let number = |call: &Value, key: &str| call[key].as_u64().unwrap_or_else(|| panic!("no {key}: {call}"));
        let outermost = tree.iter().filter(|call| call["depth"] == 0);
        assert_eq!(outermost.map(|call| number(call, "inclusive")).sum::<u64>(), number(view, "total"), "{measure}");
        for (mark, wanted) in lines.into_iter().zip(wanted) {
            let found = at_line(tree, program.line(mark));
            assert_eq!(found.iter().map(|(call, _)| number(call, "inclusive")).sum::<u64>(), wanted, "{measure} {mark}");
            // What it leads to is native code.
            for (call, next) in found {
                assert_eq!((number(next, "depth"), &next["frame"]["python"]), (number(call, "depth") + 1, &false.into()), "{next}");
                assert_eq!((number(next, "inclusive"), number(call, "exclusive")), (wanted, 0), "{next}");
            }
        }
    }
    let tree = analyze(&["--tree"], &[]);
    let at = |text: &str, wanted: &str| text.lines().position(|l| l.ends_with(wanted)).unwrap_or_else(|| panic!("no {wanted}: {text}"));
    let (hold, keep) = (format!("owners.py:{} hold", program.line("PEAK")), format!("owners.py:{} Keeper.keep", program.line("LEAK")));
    // One branch each, the larger first, what they call below them; the screen says what share that is.
    assert!(at(&tree, &hold) < at(&tree, &keep), "{tree}");
    let line = tree.lines().nth(at(&tree, &keep)).unwrap();
    assert!(line.contains("2.86 MiB") && line.contains(" % "), "{line}");
    assert!(tree.contains("├─ ") && tree.contains("└─ ") && at(&tree, &keep) > at(&tree, &hold) + 1, "{tree}");
    // Filters take sites away, `--top` branches; sums stay whole.
    let without = analyze(&["--tree", "--filter", "!hold"], &[]);
    assert!(!without.contains(" hold") && without.contains(&keep), "{without}");
    let only = analyze(&["--tree", "--top", "1"], &[]);
    assert!(only.contains(&hold) && !only.contains(&keep) && only.contains("smaller ones"), "{only}");
    // As wide as the screen, in its signs, and in no colour but where there is a screen for it.
    for (columns, locale, sign) in [("60", "C.UTF-8", "├─ "), ("72", "C", "+- "), ("140", "C.UTF-8", "└─ ")] {
        let text = analyze(&["--tree", "--sort", "total"], &[("COLUMNS", columns), ("LC_ALL", locale)]);
        let widest = text.lines().map(|l| l.chars().count()).max();
        assert!(widest <= columns.parse().ok() && text.contains(sign), "{columns}: {widest:?}\n{text}");
        assert_eq!(text.is_ascii(), locale == "C", "{text}");
    }
    let colours = |env: &[(&str, &str)], flags: &[&str]| analyze(&[&["--tree"], flags].concat(), env).contains('\x1b');
    let forced = ("CLICOLOR_FORCE", "1");
    assert!(colours(&[forced], &[]) && !colours(&[forced, ("NO_COLOR", "1")], &[]) && !colours(&[forced], &["--no-color"]));
}
