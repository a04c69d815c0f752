//! Who held it: programs that say at which of their lines they hold, leak and pass memory, and the reports about them.

mod support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use support::{Need, Session, lossy};

/// Blocks and their size at each marked line.
const PEAK: (u64, u64) = (50, 100_008);
const LEAK: (u64, u64) = (3000, 1000);
const TEMPORARY: (u64, u64) = (1000, 5000);

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

    /// Runs it in `dir` with these settings and gives its run in the report.
    fn run(&self, dir: &Path, settings: &[(&str, &str)]) -> Value {
        let mut c = Command::new(&self.command[0]);
        c.args(&self.command[1..]).current_dir(dir).env("LD_PRELOAD", support::shim()).env("MEMSHIM_STACKS", "mixed");
        c.envs(settings.iter().copied());
        let ran = Session::start(&mut c, dir).finish(Duration::from_secs(60));
        assert!(ran.status.is_some_and(|s| s.success()) && ran.stderr.is_empty(), "{}: {}", self.source, lossy(&ran.stderr));
        let text = support::analyze(&dir.join("trace.jsonl")).unwrap_or_else(|why| panic!("{}: {why}", self.source));
        std::fs::remove_file(dir.join("trace.jsonl")).expect("a trace");
        let mut report: Value = serde_json::from_str(&text).expect("JSON");
        report["runs"][0].take()
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
        let line = self.line(mark);
        let of = run["sites"].as_array().expect("sites").iter().filter(|s| self.own_line(s) == line);
        of.map(|s| s[figure].as_f64().unwrap_or_else(|| panic!("no {figure}: {s}")).round() as u64).sum()
    }

    /// Line of the site with the largest figure.
    fn top(&self, run: &Value, figure: &str) -> u64 {
        let all = run["sites"].as_array().expect("sites").iter();
        all.max_by_key(|s| s[figure].as_u64().unwrap_or(0)).map_or(0, |s| self.own_line(s))
    }
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
            let out = Command::new("rustc").args(["-O", "-g", "-o"]).arg(&made).arg(source).output().expect("rustc");
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
        assert_eq!(program.top(&run, "live_at_peak_bytes"), program.line("PEAK"), "{name}: the peak");
        assert_eq!(program.top(&run, "leaked_bytes"), program.line("LEAK"), "{name}: what leaked");
        assert_eq!(program.top(&run, "temporary_allocs"), program.line("TEMPORARY"), "{name}: temporaries");
    }
}

#[test]
fn estimates_of_lines_lie_within_their_standard_errors() {
    let test = "estimates_of_lines_lie_within_their_standard_errors";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let program = &planted(test)[0];
    let dir = support::fresh_dir(test);
    let (mut far, mut sum) = (0, 0.0);
    const RUNS: u32 = 100;
    for _ in 0..RUNS {
        // Each run samples anew.
        let run = program.run(&dir, &[("MEMSHIM_MODE", "fast"), ("MEMSHIM_SAMPLE", "16KiB")]);
        assert_eq!(program.sum(&run, "PEAK", "live_at_peak_bytes"), PEAK.0 * PEAK.1, "big blocks are recorded by themselves");
        let (estimate, error) = (program.sum(&run, "LEAK", "leaked_bytes") as f64, program.sum(&run, "LEAK", "stderr_bytes") as f64);
        let truth = (LEAK.0 * LEAK.1) as f64;
        assert!(error > truth * 0.02 && error < truth * 0.3, "{error}");
        far += ((estimate - truth).abs() > 3.0 * error) as u32;
        sum += estimate / truth;
    }
    // Of a normal law's 100 values fewer than one lies beyond three standard errors; the mean of 100 within 3 % of 7.5 %.
    assert!(far <= 3, "{far} of {RUNS} beyond three standard errors");
    assert!((sum / f64::from(RUNS) - 1.0).abs() < 0.03, "biased: {}", sum / f64::from(RUNS));
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
