//! What a phase took is the program's alone: bytes read and written, processor time, page faults and context switches, of long phases and of thousands
//! of short ones; and the layers of memory at their edges.

mod support;

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::{Need, Session, lossy};

/// Steps of a millisecond or so.
const STEPS: i64 = 2000;

/// Runs a command in `dir` with a writer that works a thousand times a second; what it printed, and its first process.
fn run(command: &mut Command, dir: &Path, settings: &[(&str, &str)]) -> (String, Value) {
    command.current_dir(dir).env("LD_PRELOAD", support::shim()).env("MEMSHIM_INTERVAL", "1ms").envs(settings.iter().copied());
    let ran = Session::start(command, dir).finish(Duration::from_secs(120));
    assert_eq!((ran.end(), lossy(&ran.stderr)), ("exit 0".into(), String::new()));
    let report: Value = serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).expect("a report")).expect("JSON");
    (lossy(&ran.stdout), report["runs"][0].clone())
}

fn phase<'a>(run: &'a Value, name: &str) -> &'a Value {
    let is = |p: &&Value| p["name"] == name && p["source"] != "process";
    run["phases"].as_array().and_then(|all| all.iter().find(is)).unwrap_or_else(|| panic!("no {name} in {}", run["phases"]))
}

fn number(of: &Value, key: &str) -> i64 {
    of[key].as_i64().unwrap_or_else(|| panic!("no {key}: {of}"))
}

/// Runs `usage.c`: what it knows of its phases, and what the report says of them.
fn usage(test: &str, mode: &str, steps: i64) -> (Vec<Value>, Value) {
    let program = support::build("usage.c", "usage", &[]);
    let dir = support::fresh_dir(&format!("{test}/{mode}"));
    let (said, run) = run(Command::new(program).arg(steps.to_string()), &dir, &[("MEMSHIM_MODE", mode)]);
    (said.lines().map(|l| serde_json::from_str(l).expect("JSON")).collect(), run)
}

/// Whether what was counted is between what the thread was counted without the edges and with them, and so much beside it.
fn is_within(got: f64, said: &Value, off: f64) -> bool {
    let of = |at: usize| said[at].as_f64().expect("a number");
    (of(0) - off..=of(1) + off).contains(&got)
}

#[test]
fn what_a_phase_took_is_the_programs_alone() {
    let test = "what_a_phase_took_is_the_programs_alone";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    for mode in ["full", "fast"] {
        let (said, run) = usage(test, mode, 0);
        for said in said.iter().filter(|said| said["name"] != "steps") {
            let p = phase(&run, said["name"].as_str().expect("a name"));
            let moved = ["read", "written"].map(|key| number(said, key));
            assert_eq!([number(p, "read_bytes"), number(p, "written_bytes")], moved, "{mode} to the byte: {p}");
            let cpu = p["cpu_s"].as_f64().expect("a time");
            assert!(is_within(cpu, &said["cpu"], 0.003) && cpu >= said["burnt"].as_f64().expect("a time"), "{mode}: {p} beside {said}");
            let counted = |key: &str| number(p, key) as f64;
            assert!(is_within(counted("minor_faults"), &said["faults"], 12.0), "{mode}: {p} beside {said}");
            assert!(number(p, "minor_faults") >= number(said, "pages") - 12, "{mode}: {p} beside {said}");
            assert!(is_within(counted("voluntary_switches"), &said["slept"], 5.0), "{mode}: {p} beside {said}");
            assert!(number(p, "voluntary_switches") >= number(said, "sleeps") - 5, "{mode}: {p} beside {said}");
            assert!(is_within(counted("involuntary_switches"), &said["other"], 20.0), "{mode}: {p} beside {said}");
        }
    }
}

#[test]
fn thousands_of_short_steps_have_what_they_took() {
    let test = "thousands_of_short_steps_have_what_they_took";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    for mode in ["full", "fast"] {
        let (said, run) = usage(test, mode, STEPS);
        let said = said.iter().find(|said| said["name"] == "steps").expect("said");
        for name in ["step", "steps"] {
            let p = phase(&run, name);
            assert_eq!(number(p, "count"), if name == "step" { STEPS } else { 1 });
            assert_eq!([number(p, "read_bytes"), number(p, "written_bytes")], [3 * STEPS, 5 * STEPS], "{mode} to the byte: {p}");
            assert!(is_within(p["cpu_s"].as_f64().expect("a time"), &said["cpu"], 0.02), "{mode}: {p} beside {said}");
            let counted = |key: &str| number(p, key) as f64;
            assert!(is_within(counted("minor_faults"), &said["faults"], 20.0), "{mode}: {p} beside {said}");
            assert!(is_within(counted("voluntary_switches"), &said["slept"], 40.0), "{mode}: {p} beside {said}");
            // The layers as they were first and last, though nobody could look at each.
            let [first, last] = [0, 1].map(|at| p["snapshots"][at]["elapsed_s"].as_f64().unwrap_or_else(|| panic!("{mode} {name}: {p}")));
            let [begin, end] = ["begin_s", "end_s"].map(|key| p[key].as_f64().expect("a time"));
            assert!(begin <= first && first < begin + (end - begin) / 4.0, "{mode} {name}: {first} of {begin} to {end}");
            assert!(last <= end && last > end - (end - begin) / 4.0, "{mode} {name}: {last} of {begin} to {end}");
        }
    }
}

/// A thousand steps, with all that there is to be seen at an edge.
const PYTHON: &str = "import mmap, subprocess, sys, time
from memshim import phase, step
subprocess.run([sys.executable, '-c', 'x = bytes(3 << 20)'])
mapped = mmap.mmap(-1, 8 << 20)
gone = [bytes(400) for i in range(10000)]
del gone
kept = [bytes(300) for i in range(20000)]
with phase('all'):
    for i in step('turn', range(1000)):
        kept.append(bytes(300))
        time.sleep(.0005)
";

#[test]
fn the_layers_at_the_edges_of_a_thousand_steps_are_whole() {
    let test = "the_layers_at_the_edges_of_a_thousand_steps_are_whole";
    let Some(python) = support::python() else { return support::skip(test, "needs python3") };
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    for mode in ["full", "fast"] {
        let dir = support::fresh_dir(&format!("{test}/{mode}"));
        let mut command = Command::new(python);
        command.args(["-c", PYTHON]).env("PYTHONPATH", support::root().join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
        let (_, run) = run(&mut command, &dir, &[("MEMSHIM_MODE", mode), ("MEMSHIM_PYTHON_ALLOC", "1")]);
        for name in ["all", "turn"] {
            let p = phase(&run, name);
            let at = |at: usize, key: &str| p["snapshots"][at].pointer(key).unwrap_or_else(|| panic!("{mode} {name}: no {key}: {p}"));
            for edge in [0, 1] {
                for key in ["/t", "/rss", "/hwm", "/vm_peak", "/anon", "/file", "/io/read", "/io/written", "/live", "/blocks"] {
                    assert!(at(edge, key).is_u64(), "{mode} {name} {key}");
                }
                assert!(at(edge, "/elapsed_s").as_f64().is_some_and(|s| s > 0.0));
                // What a child needed at most, and the process itself.
                let most = ["/children/maxrss", "/self/maxrss"].map(|key| at(edge, key).as_u64().expect("bytes"));
                assert!(most[0] > 3 << 20 && most[1] > 8 << 20, "{mode} {name}: {most:?}");
                let [live, peak] = ["/python/live_bytes", "/python/peak_bytes"].map(|key| at(edge, key).as_u64().expect("bytes"));
                assert!(live >= 20_000 * 333 && peak >= live, "{mode} {name}: {live} of {peak}");
                assert!(at(edge, "/map_bytes").as_u64().is_some_and(|b| b >= 8 << 20) && at(edge, "/heap_live_bytes").is_u64());
            }
            let grown = at(1, "/python/live_bytes").as_i64().expect("bytes") - at(0, "/python/live_bytes").as_i64().expect("bytes");
            // The last look was some milliseconds before the end.
            assert!((700 * 333..500_000).contains(&grown), "{mode} {name}: {grown}");
        }
    }
}
