//! Stacks of more than 256 frames are cut at their outer end, and said to be: of native code, of Python, and of both together.

mod support;

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::{Need, Session, lossy};

/// Native frames that a cut stack keeps, at least and at most; of Python 193 to 256.
const KEPT: std::ops::RangeInclusive<usize> = 96..=256;
const KEPT_OF_PYTHON: std::ops::RangeInclusive<usize> = 193..=256;

/// Runs a program with these stacks in full mode; its run in the report, and what the screen shows of all call sites.
fn seen(dir: &Path, command: &mut Command, stacks: &str) -> (Value, String) {
    command.current_dir(dir).env("LD_PRELOAD", support::shim()).env("MEMSHIM_MODE", "full").env("MEMSHIM_STACKS", stacks);
    let ran = Session::start(command, dir).finish(Duration::from_secs(60));
    assert_eq!((ran.end(), lossy(&ran.stderr)), ("exit 0".into(), String::new()));
    let trace = dir.join("trace.jsonl");
    let mut report: Value = serde_json::from_str(&support::analyze(&trace).expect("a report")).expect("JSON");
    let page = Command::new(support::memshim()).arg("analyze").arg(&trace).args(["--sites", "--sort=total"]).output().expect("memshim");
    std::fs::remove_file(trace).expect("a trace");
    (report["runs"][0].take(), lossy(&page.stdout))
}

/// A stack: frames of the function, native frames, the outermost one, whether it is cut.
struct Stack {
    calls: usize,
    native: usize,
    outermost: String,
    cut: bool,
}

/// That of the block of so many bytes.
fn stack(run: &Value, bytes: u64, function: &str) -> Stack {
    // What is left of two cut stacks may be the same: then they are one site.
    let has = |s: &&Value| s["sizes"].as_array().expect("sizes").iter().any(|row| row[0] == bytes);
    let site = run["sites"].as_array().expect("sites").iter().find(has).unwrap_or_else(|| panic!("no {bytes}"));
    let frames = site["frames"].as_array().expect("frames");
    let name = |f: &Value| f["function"].as_str().unwrap_or_default().to_owned();
    Stack {
        calls: frames.iter().filter(|f| name(f) == function).count(),
        native: frames.iter().filter(|f| f["python"] != true).count(),
        outermost: frames.last().map(name).expect("a frame"),
        cut: site["truncated"].as_bool().expect("whether it is cut"),
    }
}

/// Bytes whose stack is said to go on, and how often the screen says so.
fn said(run: &Value, page: &str) -> (u64, usize) {
    (run["sites_total"]["truncated_bytes"].as_u64().expect("bytes"), page.matches("the stack goes on beyond what is known").count())
}

#[test]
fn native_stacks_are_cut_and_marked() {
    let test = "native_stacks_are_cut_and_marked";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let program = support::build("deep.c", "deep", &["-fno-optimize-sibling-calls"]);
    let (run, page) = seen(&support::fresh_dir(test), Command::new(program).args(["10", "240", "400", "5000"]), "native");
    for calls in [10, 240] {
        let s = stack(&run, 100_000 + calls, "down");
        assert_eq!((s.calls as u64, s.cut, s.outermost.as_str()), (calls, false, "_start"));
    }
    for calls in [400, 5000] {
        let s = stack(&run, 100_000 + calls, "down");
        assert!(s.cut && KEPT.contains(&s.calls) && s.outermost == "down", "{} of {calls} calls, from {}", s.calls, s.outermost);
    }
    assert_eq!(said(&run, &page), (205_400, 1));
}

#[test]
fn stacks_of_python_are_cut_and_marked() {
    let test = "stacks_of_python_are_cut_and_marked";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let Some(python) = support::python() else { return support::skip(test, "needs python3") };
    let script = support::root().join("tests/programs/deep.py");
    for stacks in ["python", "mixed"] {
        let mut command = Command::new(python);
        let (run, page) = seen(&support::fresh_dir(test), command.arg(&script).args(["20", "180", "400", "5000"]), stacks);
        let mut cut = 0;
        for (function, base) in [("down", 100_000), ("by_c", 200_000)] {
            for calls in [20, 180] {
                let s = stack(&run, base + calls, function);
                assert_eq!(s.calls as u64, calls, "{stacks}: {function}");
                // Each call by way of C has several native frames.
                let of_native = stacks == "mixed" && function == "by_c" && calls == 180;
                assert_eq!(s.cut, of_native, "{stacks}: {function} {calls}");
                cut += if s.cut { base + calls } else { 0 };
            }
            for calls in [400, 5000] {
                let s = stack(&run, base + calls, function);
                assert!(s.cut && KEPT_OF_PYTHON.contains(&s.calls), "{stacks}: {function} {calls}: {} calls", s.calls);
                assert!(s.native <= *KEPT.end(), "{stacks}: {function} {calls}: {} native frames", s.native);
                cut += base + calls;
            }
        }
        let (bytes, times) = said(&run, &page);
        assert!(bytes >= cut && times >= 4, "{stacks}: {bytes} bytes of {cut}, said {times} times");
    }
}
