//! Promises about Python's own blocks (`MEMSHIM_PYTHON_ALLOC=1`): a layer beside the heap, for each interpreter that is installed.

mod support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use support::{Need, Session, lossy};

/// What `plant` in `py_objects.py` allocates: blocks, and a bytes object's size with its head.
const PLANTED: (u64, u64) = (1000, 7033);
/// The same in free-threaded builds, whose objects have larger heads.
const PLANTED_FREE_THREADED: u64 = 7049;

fn script() -> PathBuf {
    support::root().join("tests/programs/py_objects.py")
}

/// Bytes of a node of the interpreter's map of arenas (2^14 entries of 8 bytes).
const ARENA_MAP_NODE: u64 = 131_072;

/// Line of a mark in the script.
fn line(mark: &str) -> u64 {
    let text = std::fs::read_to_string(script()).expect("the script");
    text.lines().position(|l| l.contains(&format!("<{mark}>"))).expect("a marked line") as u64 + 1
}

/// The interpreters of pyenv, and the one that other tests use.
fn interpreters() -> Vec<PathBuf> {
    let pyenv = std::env::var("PYENV_ROOT").or_else(|_| std::env::var("HOME").map(|home| home + "/.pyenv")).unwrap_or_default();
    let versions = std::fs::read_dir(pyenv + "/versions").into_iter().flatten().flatten();
    let known = |p: &PathBuf| {
        let minor = p.file_name().and_then(|n| n.to_str()?.strip_prefix("3.")?.split('.').next()?.parse::<u32>().ok());
        minor.is_some_and(|m| (7..=14).contains(&m))
    };
    let mut all: Vec<PathBuf> = versions.map(|e| e.path()).filter(known).map(|p| p.join("bin/python3")).filter(|p| p.exists()).collect();
    all.extend(support::python().map(Path::to_owned));
    all
}

/// Runs the script; gives its output and the report.
fn run(python: &Path, dir: &Path, settings: &[(&str, &str)], args: &[&str], end: &str) -> (String, Value) {
    for old in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let _ = std::fs::remove_file(old.path()).or_else(|_| std::fs::remove_dir_all(old.path()));
    }
    let mut c = Command::new(python);
    c.arg("-Wignore").arg(script()).args(args).current_dir(dir);
    c.env("LD_PRELOAD", support::shim()).env("PYTHONHASHSEED", "0").env("PYTHONDONTWRITEBYTECODE", "1").envs(settings.iter().copied());
    let ran = Session::start(&mut c, dir).finish(Duration::from_secs(60));
    assert_eq!((ran.end().as_str(), lossy(&ran.stderr).as_str()), (end, ""), "{} {args:?}", python.display());
    let text = support::analyze(&dir.join("trace.jsonl")).unwrap_or_else(|why| panic!("{args:?}: {why}"));
    (lossy(&ran.stdout), serde_json::from_str(&text).expect("JSON"))
}

const FULL: [(&str, &str); 2] = [("MEMSHIM_MODE", "full"), ("MEMSHIM_PYTHON_ALLOC", "1")];
const FAST: [(&str, &str); 2] = [("MEMSHIM_MODE", "fast"), ("MEMSHIM_PYTHON_ALLOC", "1")];

fn number(run: &Value, key: &str) -> u64 {
    run["python"][key].as_u64().unwrap_or_else(|| panic!("no python.{key}: {}", run["python"]))
}

/// Allocations and frees of the planted size at the planting line.
fn planted(run: &Value) -> (u64, u64) {
    let own = |s: &&Value| {
        s["kind"] == "python"
            && s["frames"][0]["line"] == line("PLANT")
            && s["frames"][0]["file"].as_str().is_some_and(|f| f.ends_with("py_objects.py"))
    };
    let rows = run["sites"].as_array().expect("sites").iter().filter(own).flat_map(|s| s["sizes"].as_array().expect("sizes"));
    let of_size = rows.filter(|row| row[0] == PLANTED.1 || row[0] == PLANTED_FREE_THREADED);
    of_size.fold((0, 0), |sum, row| (sum.0 + row[1].as_u64().unwrap_or(0), sum.1 + row[2].as_u64().unwrap_or(0)))
}

#[test]
fn objects_are_at_their_line_with_their_bytes() {
    let test = "objects_are_at_their_line_with_their_bytes";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    for python in interpreters() {
        let at = python.display();
        let (_, report) = run(&python, &dir, &FULL, &["plain"], "exit 0");
        let run_of = &report["runs"][0];
        assert_eq!(planted(run_of), (PLANTED.0, PLANTED.0), "{at}");
        assert!(number(run_of, "peak_bytes") > PLANTED.0 * PLANTED.1, "{at}");
        assert_eq!((number(run_of, "lost"), number(run_of, "unknown_frees"), number(run_of, "peak_bound_bytes")), (0, 0, 0), "{at}");
        let (allocs, frees, live) = (number(run_of, "allocs"), number(run_of, "frees"), number(run_of, "live_allocs"));
        assert_eq!(allocs, frees + live, "{at}");
        let (_, report) = run(&python, &dir, &FULL, &["exit"], "exit 0");
        assert_eq!(planted(&report["runs"][0]), (PLANTED.0, 0), "{at}: killed before it freed anything");
        assert!(number(&report["runs"][0], "live_bytes") > PLANTED.0 * PLANTED.1, "{at}");
    }
}

/// By what lived before tracemalloc began the two differ, and by that alone: a dozen times as many records make no difference.
#[test]
fn the_layer_is_what_tracemalloc_sees() {
    let test = "the_layer_is_what_tracemalloc_sees";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    for python in interpreters() {
        let more = |n: &str| {
            let (_, report) = run(&python, &dir, &FULL, &["records", n], "exit 0");
            let ours = &report["runs"][0];
            let traced = Command::new(&python)
                .args(["-Wignore", "-X", "tracemalloc=1"])
                .arg(script())
                .args(["traced", n])
                .env("PYTHONHASHSEED", "0")
                .env("PYTHONDONTWRITEBYTECODE", "1")
                .output()
                .expect("run Python");
            let theirs: Vec<i64> = lossy(&traced.stdout).split_whitespace().map(|n| n.parse().expect("a number")).collect();
            [number(ours, "live_bytes") as i64 - theirs[0], number(ours, "peak_bytes") as i64 - theirs[1]].map(|d| (d, theirs[1]))
        };
        let (few, many) = (more("1000"), more("12000"));
        for ((few, _), (many, all)) in few.into_iter().zip(many) {
            assert!((0..2_000_000).contains(&few), "{}: {few} more than tracemalloc", python.display());
            assert!((many - few).abs() < all / 100, "{}: {few} more, then {many} of {all}", python.display());
        }
    }
}

#[test]
fn the_heap_is_what_it_is_without_the_layer() {
    let test = "the_heap_is_what_it_is_without_the_layer";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    for python in interpreters() {
        let figures = |settings: &[(&str, &str)]| {
            let (_, report) = run(&python, &dir, settings, &["records", "3000"], "exit 0");
            let heap = report["runs"][0]["heap"].clone();
            let of = |name: &str| heap["by_function"][name]["bytes"].as_u64().expect("bytes") as f64;
            let figure = |key: &str| heap[key].as_u64().expect("a figure") as f64;
            // From 3.10 on the interpreter has a map of its arenas: a node more where one lies across a boundary of what a node covers.
            let sizes = heap["sizes"].as_array().expect("sizes").iter().filter(|row| row[0] == ARENA_MAP_NODE);
            let nodes = sizes.map(|row| row[1].as_f64().expect("allocations") - row[2].as_f64().expect("frees")).sum::<f64>();
            let but_nodes = |key: &str| figure(key) - nodes * ARENA_MAP_NODE as f64;
            [of("malloc"), of("realloc"), figure("frees"), but_nodes("peak_bytes"), but_nodes("live_bytes")]
        };
        // Nearly: where arenas come to lie makes a difference of a block or two besides.
        let without = figures(&[("MEMSHIM_MODE", "full")]);
        for (with, without) in figures(&FULL).into_iter().zip(without) {
            assert!((with - without).abs() <= 10.0 + without / 100.0, "{}: {with}, without {without}", python.display());
        }
    }
}

#[test]
fn fast_mode_counts_all_of_it() {
    let test = "fast_mode_counts_all_of_it";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    for python in interpreters() {
        let at = python.display();
        let (_, full) = run(&python, &dir, &FULL, &["records", "5000"], "exit 0");
        let (_, fast) = run(&python, &dir, &FAST, &["records", "5000"], "exit 0");
        let (full, fast) = (&full["runs"][0], &fast["runs"][0]);
        let sizeless = support::is_free_threaded(&python);
        let counts = |run: &Value| {
            let all = run["python"]["by_function"].as_object().expect("functions").iter();
            let figures = |f: &Value| [f["allocs"].as_u64(), f["bytes"].as_u64()].map(|n| n.expect("a figure"));
            let mut all: Vec<u64> = all.filter(|(name, _)| !name.contains("Raw")).flat_map(|(_, f)| figures(f)).collect();
            all.push(number(run, "live_allocs"));
            all.extend((!sizeless).then(|| run["python"]["usable"]["live_bytes"].as_u64().expect("live")));
            all
        };
        // An interpreter does not allocate quite the same twice.
        for (fast, full) in counts(fast).into_iter().zip(counts(full)) {
            assert!(fast.abs_diff(full) <= 16 + full / 500, "{at}: {fast}, {full}");
        }
        if sizeless {
            // mimalloc does not say how large a block is: full mode knows what was asked for, fast mode nothing of bytes that are live.
            let unknown = |run: &Value, key: &str| assert!(run["python"][key].is_null(), "{at}: {key} {}", run["python"]);
            unknown(full, "usable");
            ["usable", "live_bytes", "peak_bytes", "peak_bound_bytes"].into_iter().for_each(|key| unknown(fast, key));
            continue;
        }
        assert_eq!(fast["python"]["live_bytes"], fast["python"]["usable"]["live_bytes"], "{at}");
        let (peak, bound, truth) = (number(fast, "peak_bytes"), number(fast, "peak_bound_bytes"), number(full, "peak_bytes"));
        assert!(peak.abs_diff(truth) <= bound && bound < truth / 2, "{at}: {peak} ± {bound}, {truth}");
    }
}

#[test]
fn forks_threads_interpreters_and_tracemalloc_stay_accounted() {
    let test = "forks_threads_interpreters_and_tracemalloc_stay_accounted";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    for python in interpreters() {
        for what in ["fork", "threads", "interpreters", "tracemalloc"] {
            let at = format!("{} {what}", python.display());
            if what == "interpreters" && at.contains("/3.7.") {
                continue; // has no module for it
            }
            let (_, report) = run(&python, &dir, &FULL, &[what], "exit 0");
            for run in report["runs"].as_array().expect("runs") {
                assert_eq!(number(run, "lost"), 0, "{at}");
                let balance = number(run, "allocs") as i64 - number(run, "frees") as i64 + number(run, "unknown_frees") as i64;
                assert_eq!(balance, number(run, "live_allocs") as i64, "{at}");
            }
            let first = &report["runs"][0];
            let times = if what == "tracemalloc" { 2 } else { 1 };
            assert_eq!(planted(first).0, times * PLANTED.0, "{at}");
            // What 3.13 and 3.14 allocate past their own domains and free by one of them.
            assert!(number(first, "unknown_frees") <= 12, "{at}: {}", number(first, "unknown_frees"));
            if what == "fork" {
                let child = &report["runs"][1];
                assert_eq!(planted(child), (PLANTED.0, 0), "{at}");
                assert!(number(child, "unknown_frees") >= PLANTED.0, "{at}");
                // It frees what it inherited and plants the same once more. Where nobody knows how large that was it is not in what is live.
                let inherited = child["python"]["inherited_bytes"].as_u64();
                assert_eq!(inherited.is_none(), support::is_free_threaded(&python), "{at}");
                assert!(inherited.is_none_or(|bytes| bytes > PLANTED.0 * PLANTED.1), "{at}");
                let live = number(child, "live_bytes") as i64 - inherited.unwrap_or(PLANTED.0 * PLANTED_FREE_THREADED) as i64;
                assert!(live.abs() < 100_000, "{at}: {live} more than inherited");
            }
        }
    }
}

#[test]
fn a_kill_loses_nothing_of_it() {
    let test = "a_kill_loses_nothing_of_it";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    for python in interpreters() {
        for settings in [FULL, FAST] {
            let (_, report) = run(&python, &dir, &settings, &["killed"], "signal 9");
            let run_of = &report["runs"][0];
            assert_eq!((number(run_of, "lost"), number(run_of, "unknown_frees")), (0, 0), "{}", python.display());
            if settings == FULL {
                assert_eq!(planted(run_of), (PLANTED.0, 0), "{}", python.display());
            }
            if settings == FULL || !support::is_free_threaded(&python) {
                assert!(number(run_of, "live_bytes") > PLANTED.0 * PLANTED.1, "{}", python.display());
            }
            assert!(number(run_of, "live_allocs") > PLANTED.0, "{}", python.display());
        }
    }
}

#[test]
fn allocators_that_the_program_sets_are_left_and_said() {
    let test = "allocators_that_the_program_sets_are_left_and_said";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    for python in interpreters() {
        let free_threaded = support::is_free_threaded(&python);
        for heap in if free_threaded { ["mimalloc", "debug"] } else { ["malloc", "debug"] } {
            let settings = [FULL[0], FULL[1], ("PYTHONMALLOC", heap)];
            let (_, report) = run(&python, &dir, &settings, &["plain"], "exit 0");
            let notes = report["runs"][0]["notes"].as_array().expect("notes");
            assert!(notes.iter().any(|n| n.as_str().is_some_and(|n| n.contains("PYTHONMALLOC"))), "{}: {notes:?}", python.display());
        }
        if free_threaded {
            continue; // has no arenas
        }
        // Not asked for: arenas are maps of that name.
        let (_, report) = run(&python, &dir, &[("MEMSHIM_MODE", "full")], &["records", "20000"], "exit 0");
        let run_of = &report["runs"][0];
        assert_eq!(run_of["python"]["peak_bytes"], Value::Null);
        let arenas = run_of["sites"].as_array().expect("sites").iter().filter(|s| s["name"] == "pymalloc arena");
        let bytes: u64 = arenas.map(|s| s["total_bytes"].as_u64().unwrap_or(0)).sum();
        assert!(bytes >= 8 << 20 && bytes.is_multiple_of(256 << 10), "{}: {bytes}", python.display());
    }
}
