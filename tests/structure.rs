//! Promises about what a process does as such: its start-up, its imports, its end and its children are phases that nobody told of, and what
//! others tell is not changed by them.

mod support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use support::{Need, Ran, Session, lossy};

fn run(command: &mut Command, dir: &Path, mode: &str) -> Ran {
    command.current_dir(dir).env("LD_PRELOAD", support::shim()).env("MEMSHIM_MODE", mode).env("PYTHONDONTWRITEBYTECODE", "1");
    Session::start(command, dir).finish(Duration::from_secs(60))
}

fn report(dir: &Path) -> Value {
    serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).expect("a report")).expect("JSON")
}

fn text(dir: &Path) -> String {
    let out = Command::new(support::memshim())
        .args(["analyze", "--no-color"])
        .arg(dir.join("trace.jsonl"))
        .env("LC_ALL", "C.UTF-8")
        .output()
        .expect("memshim");
    assert!(out.status.success(), "{}", lossy(&out.stderr));
    lossy(&out.stdout)
}

/// The process's own phases, by name.
fn own(run: &Value) -> Vec<&Value> {
    run["phases"].as_array().expect("phases").iter().filter(|p| p["source"] == "process").collect()
}

fn named<'a>(run: &'a Value, name: &str) -> &'a Value {
    own(run).into_iter().find(|p| p["name"] == name).unwrap_or_else(|| panic!("no {name}: {}", run["phases"]))
}

fn names(run: &Value) -> Vec<&str> {
    own(run).into_iter().filter_map(|p| p["name"].as_str()).collect()
}

fn number(of: &Value, key: &str) -> i64 {
    of[key].as_i64().unwrap_or_else(|| panic!("no {key}: {of}"))
}

/// Monotonic nanoseconds of a phase's time.
fn instant(dir: &Path, phase: &Value, key: &str) -> i64 {
    let header: Value = serde_json::from_str(lossy(&std::fs::read(dir.join("trace.jsonl")).unwrap()).lines().next().unwrap()).unwrap();
    number(&header, "mono_ns") + (phase[key].as_f64().expect("a time") * 1e9) as i64
}

fn starts() -> PathBuf {
    support::build("starts.c", "starts", &[])
}

#[test]
fn nothing_of_ours_lies_under_main() {
    let test = "nothing_of_ours_lies_under_main";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    let ran = run(Command::new(starts()).arg("frames"), &dir, "full");
    assert_eq!((ran.end(), lossy(&ran.stdout)), ("exit 0".into(), "0\n".into()));
    assert_eq!(names(&report(&dir)["runs"][0]), ["start-up", "exit handlers"], "and yet its begin and its end are known");
}

#[test]
fn what_comes_before_main_and_after_exit_is_told_to_the_byte() {
    let test = "what_comes_before_main_and_after_exit_is_told_to_the_byte";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    for (mode, way) in [("full", "x"), ("fast", "x"), ("full", "return"), ("fast", "return")] {
        let dir = support::fresh_dir(test);
        let ran = run(Command::new(starts()).arg(way), &dir, mode);
        let truth: Value = serde_json::from_str(&lossy(&ran.stdout)).expect("what it says");
        let report = report(&dir);
        let first = &report["runs"][0];
        assert_eq!(names(first), ["start-up", "exit handlers"]);
        let (before, after) = (named(first, "start-up"), named(first, "exit handlers"));
        assert!(first["marks"].as_array().expect("marks").is_empty());
        let heap = |p: &Value| ["heap_begin_bytes", "heap_persistent_bytes", "heap_transient_bytes"].map(|key| number(p, key));
        // What was there at the begin, what stays, what was needed meanwhile.
        let in_main = 8_000_000 + way.len() as i64;
        let want = [[0, 3_000_000, 1_000_000], [in_main, -1_000_000, 2_000_000]];
        for (p, want) in [before, after].into_iter().zip(want) {
            assert_eq!((number(p, "count"), number(p, "open"), p["path"].as_array().map(Vec::len)), (1, 0, Some(1)));
            let bound = if mode == "full" { 0 } else { number(p, "heap_peak_bound_bytes") + 5 * 4096 };
            for (got, want) in heap(p).into_iter().zip(want) {
                assert!((got - want).abs() <= bound, "{mode}: {got} is not {want} within {bound}: {p}");
            }
            assert!(p["snapshots"][1]["rss"].as_u64().is_some() || p["name"] == "exit handlers", "{p}");
        }
        assert!(instant(&dir, before, "end_s") <= number(&truth, "main") && instant(&dir, before, "begin_s") > 0);
        assert!(instant(&dir, after, "begin_s") + 1 >= number(&truth, "exit"), "{after} {truth}");
        // It is worth a line: a third of the peak.
        let text = text(&dir);
        assert!(
            text.contains("PHASES    told by the process itself") && text.contains("start-up") && text.contains("exit handlers"),
            "{text}"
        );
    }
}

#[test]
fn whichever_way_a_program_ends_its_handlers_are_one_phase() {
    let test = "whichever_way_a_program_ends_its_handlers_are_one_phase";
    if support::lacks(test, &[Need::Preload, Need::Command("g++")]) {
        return;
    }
    let program = support::build("returns.cc", "returns", &["-pthread"]);
    // What stays of what was there, and what is needed meanwhile. Objects of the thread come first: they are in it where the program calls `exit`,
    // their note of 32 bytes as well.
    let (stays, most) = (-1_000_000 + 500_000, 3_000_000 - 1_000_000);
    let ways = [
        ("return", "exit 0", Some([stays, most])),
        ("exit", "exit 0", Some([stays - 32, 7_000_000])),
        ("quick_exit", "exit 0", Some([0, 6_000_000])),
        ("thread", "exit 0", Some([stays, most])),
        ("fork", "exit 0", None),
        ("throw", "signal 6", None),
        ("pthread_exit", "exit 0", None),
    ];
    for (way, end, want) in ways {
        let dir = support::fresh_dir(test);
        let ran = run(Command::new(&program).arg(way), &dir, "full");
        assert_eq!(ran.end(), end, "{way}: {}", lossy(&ran.stderr));
        let report = report(&dir);
        let first = &report["runs"][0];
        assert_eq!(names(first).contains(&"exit handlers"), want.is_some(), "{way}");
        if let Some(want) = want {
            let phase = named(first, "exit handlers");
            // Of the thread that made the one that ends it all, small blocks around that instant.
            let bound = number(phase, "heap_peak_bound_bytes") + number(phase, "heap_persistent_bound_bytes");
            assert!(if way == "thread" { bound < 10_000 } else { bound == 0 }, "{way}: {phase}");
            for (got, want) in ["heap_persistent_bytes", "heap_transient_bytes"].map(|key| number(phase, key)).into_iter().zip(want) {
                assert!((got - want).abs() <= bound, "{way}: {got} is not {want} within {bound}: {phase}");
            }
            assert_eq!(number(phase, "count"), 1, "{way}");
        }
        // What glibc notes of ours is nobody's block.
        assert_eq!(number(&first["events"], "unknown_frees"), 0, "{way}");
        if way == "fork" {
            // What it inherited: the block that is kept, and the note of the program's own object.
            assert_eq!(number(&report["runs"][1]["events"], "unknown_frees"), 2);
            assert_eq!((names(&report["runs"][1]), &report["runs"][1]["end"]["code"]), (vec!["exit handlers"], &5.into()));
        }
    }
}

#[test]
fn a_forked_child_has_the_end_that_it_makes() {
    let test = "a_forked_child_has_the_end_that_it_makes";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    assert_eq!(run(Command::new(starts()).arg("fork"), &dir, "full").end(), "exit 0");
    let report = report(&dir);
    assert_eq!(names(&report["runs"][0]), ["start-up", "exit handlers", "child starts"]);
    assert_eq!((names(&report["runs"][1]), &report["runs"][1]["end"]["code"]), (vec!["exit handlers"], &3.into()));
}

#[test]
fn what_is_not_worth_a_line_has_none() {
    let test = "what_is_not_worth_a_line_has_none";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    run(&mut Command::new("/bin/true"), &dir, "full");
    assert!(!text(&dir).contains("PHASES"), "{}", text(&dir));
    assert_eq!(names(&report(&dir)["runs"][0])[0], "start-up");
}

#[test]
fn imports_end_where_a_python_script_begins() {
    let test = "imports_end_where_a_python_script_begins";
    if support::lacks(test, &[Need::Preload, Need::Command("python3")]) {
        return;
    }
    let python = support::python().expect("asked for");
    let script = "import time\nkept = bytearray(5_000_000)\nprint(time.monotonic_ns())\n";
    for (way, mode) in [("file", "full"), ("-c", "full"), ("-m", "full"), ("file", "fast")] {
        let dir = support::fresh_dir(test);
        std::fs::write(dir.join("script.py"), script).expect("a script");
        let mut command = Command::new(python);
        match way {
            "file" => command.arg("script.py"),
            "-c" => command.args(["-c", script]),
            _ => command.args(["-m", "script"]),
        };
        let ran = run(&mut command, &dir, mode);
        let said: i64 = lossy(&ran.stdout).trim().parse().unwrap_or_else(|_| panic!("{}", lossy(&ran.stderr)));
        let report = report(&dir);
        let first = &report["runs"][0];
        assert_eq!(names(first)[..2], ["start-up", "imports"], "{way}");
        let (start, imports) = (named(first, "start-up"), named(first, "imports"));
        let end = instant(&dir, imports, "end_s");
        assert!(instant(&dir, start, "end_s") == instant(&dir, imports, "begin_s") && end < said, "{way}");
        // What the script keeps is not the imports'; what the interpreter keeps is.
        let persistent = number(imports, "heap_persistent_bytes");
        assert!((10_000..4_000_000).contains(&persistent), "{way} {mode}: {imports}");
        assert!(number(&first["heap"], "peak_bytes") >= 5_000_000 + number(imports, "heap_begin_bytes"));
    }
}

#[test]
fn what_python_does_at_its_end_is_a_phase() {
    let test = "what_python_does_at_its_end_is_a_phase";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    const KEPT: i64 = 3_000_000;
    const HANDLED: i64 = 9_000_000;
    const PASSED: i64 = 50_000_000;
    let script = format!(
        "import atexit, os, sys\nkept = bytearray({KEPT})\npassed = bytearray({PASSED})\ndel passed\ndef bye():\n    b = bytearray({HANDLED})\natexit.register(bye)\n\
         if sys.argv[1] == 'fork' and os.fork() == 0:\n    os._exit(0)\nif sys.argv[1] == 'exit': sys.exit(3)\n"
    );
    let mut interpreters: Vec<PathBuf> = (7..=14).filter_map(support::pyenv).collect();
    interpreters.extend(support::python().map(Path::to_owned));
    for python in interpreters {
        for (way, mode) in [("return", "full"), ("exit", "full"), ("fork", "full"), ("return", "fast")] {
            let at = format!("{} {way} {mode}", python.display());
            let dir = support::fresh_dir(test);
            // No look in between tells how high the script was.
            let ran = run(Command::new(&python).args(["-c", &script, way]).env("MEMSHIM_INTERVAL", "30s"), &dir, mode);
            assert_eq!(ran.end(), if way == "exit" { "exit 3" } else { "exit 0" }, "{at}");
            let report = report(&dir);
            let first = &report["runs"][0];
            let end = named(first, "exit handlers");
            let figures = ["heap_begin_bytes", "heap_transient_bytes", "heap_persistent_bytes"].map(|key| number(end, key));
            let slack = if mode == "full" { 1000 } else { 20_000 };
            // What the script kept is given back, and the handler's block was over and above what there was.
            assert!(figures[0] > KEPT && figures[2] < -KEPT + slack && (figures[1] - HANDLED).abs() < slack, "{at}: {figures:?}");
            // What had passed before is not the end's.
            let peaks = [&first["heap"], end].map(|of| number(of, if of == end { "heap_peak_bytes" } else { "peak_bytes" }));
            assert!(peaks[0] > KEPT + PASSED && (peaks[1] - figures[0] - HANDLED).abs() < slack, "{at}: {peaks:?} {figures:?}");
            assert!(instant(&dir, end, "begin_s") > instant(&dir, named(first, "imports"), "end_s"), "{at}");
        }
    }
}

#[test]
fn children_are_phases_of_their_parent_by_program() {
    let test = "children_are_phases_of_their_parent_by_program";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    // One `wc` alone has its line among the processes.
    let big = "head -c 30000000 /dev/zero | sort -z >/dev/null";
    let ran = run(Command::new("/bin/sh").args(["-c", &format!("for i in 1 2 3; do /bin/true; done; {big}; {big} | wc -c")]), &dir, "full");
    assert_eq!(ran.end(), "exit 0");
    let report = report(&dir);
    let runs = report["runs"].as_array().expect("runs");
    let first = &runs[0];
    let (idle, sort) = (named(first, "child true"), named(first, "child sort"));
    assert_eq!((number(idle, "count"), number(sort, "count")), (3, 2));
    assert!(idle["heap_peak_bytes"].is_null() && idle["rss_peak_bytes"].is_null() && idle["map_peak_bytes"].is_null(), "not known: {idle}");
    // As much as the larger of them, and never more than all of them.
    let peak = |r: &Value| r["rss"]["hwm_bytes"].as_i64().unwrap_or(0).max(number(&r["rss"], "peak_bytes"));
    let sorts: Vec<i64> = runs.iter().filter(|r| r["exe"].as_str().is_some_and(|e| e.ends_with("/sort"))).map(peak).collect();
    let most = number(sort, "children_peak_bytes");
    assert!(sorts.len() == 2 && (*sorts.iter().max().unwrap()..=sorts.iter().sum()).contains(&most), "{most} {sorts:?}");
    let walls: f64 =
        runs.iter().filter(|r| r["exe"].as_str().is_some_and(|e| e.ends_with("/true"))).map(|r| r["wall_s"].as_f64().unwrap()).sum();
    assert!(idle["wall_s"].as_f64().unwrap() + 1e-6 >= walls, "{idle} {walls}");
    let text = Command::new(support::memshim())
        .args(["analyze", "--no-color", "--pid", &first["pid"].to_string()])
        .arg(dir.join("trace.jsonl"))
        .output()
        .expect("memshim");
    let text = lossy(&text.stdout);
    assert!(text.contains("child sort") && !text.contains("child wc"), "a small one has no line: {text}");
}

#[test]
fn phases_that_are_told_of_come_first_and_are_as_they_were() {
    let test = "phases_that_are_told_of_come_first_and_are_as_they_were";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    run(Command::new(support::build("phases.c", "phases", &["-Wno-all"])).arg("child"), &dir, "full");
    let report = report(&dir);
    let sources: Vec<&str> = report["runs"][0]["phases"].as_array().expect("phases").iter().filter_map(|p| p["source"].as_str()).collect();
    let told = sources.iter().filter(|s| **s == "api").count();
    assert!(told > 4 && sources[..told].iter().all(|s| *s == "api") && sources[told..].iter().all(|s| *s == "process"), "{sources:?}");
    let said = text(&dir);
    assert!(said.contains("(told by api)"), "{said}");
}

#[test]
fn the_screen_of_a_job_has_the_phases_of_the_process_with_most() {
    let test = "the_screen_of_a_job_has_the_phases_of_the_process_with_most";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    let (many, few) = (support::build("phases.c", "phases", &["-Wno-all"]), support::build("left.c", "left", &["-Wno-all"]));
    // The one shown is the one that needed most.
    let script = "dd if=/dev/zero of=/dev/null bs=64M count=1 2>/dev/null; \"$0\"; \"$1\"";
    let ran = run(Command::new("/bin/sh").args(["-c", script]).args([&many, &few]), &dir, "full");
    assert_eq!(ran.end(), "exit 0");
    let report = report(&dir);
    let told = |r: &&Value| r["phases"].as_array().is_some_and(|all| all.iter().any(|p| p["source"] == "api"));
    let all: Vec<&Value> = report["runs"].as_array().expect("runs").iter().filter(told).collect();
    assert_eq!(all.len(), 2);
    let has = |r: &Value| r["phases"].as_array().map_or(0, |p| p.iter().filter(|p| p["source"] == "api").count());
    let (most, other) = if has(all[0]) > has(all[1]) { (all[0], all[1]) } else { (all[1], all[0]) };
    let said = text(&dir);
    assert!(said.contains(&format!("(told by api) · of process {} (", most["pid"])), "{said}");
    assert!(said.contains("1 other process has some too: `--pid PID` shows them, or --json"), "{said}");
    let asked = Command::new(support::memshim())
        .args(["analyze", "--no-color", "--pid", &other["pid"].to_string()])
        .arg(dir.join("trace.jsonl"))
        .output()
        .expect("memshim");
    let asked = lossy(&asked.stdout);
    assert!(asked.contains("(told by api)\n") && !asked.contains("of process") && !asked.contains("some too"), "{asked}");
}
