//! Promises of `memshim check`: steps of a real program against targets, met and missed.

mod support;

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use support::{Need, Session, lossy};

/// Records `steps.c` with these arguments; the mean time of a step as the program knows it.
fn record(dir: &Path, args: &[&str], mode: &str) -> f64 {
    let mut command = Command::new(support::build("steps.c", "steps", &["-Wno-all"]));
    command.args(args).current_dir(dir).env("LD_PRELOAD", support::shim()).env("MEMSHIM_MODE", mode);
    let ran = Session::start(&mut command, dir).finish(Duration::from_secs(60));
    assert_eq!(ran.end(), "exit 0");
    let said: Value = serde_json::from_str(&lossy(&ran.stdout)).expect("JSON");
    said["mean"].as_f64().expect("a mean")
}

fn check(dir: &Path, args: &[&str]) -> Output {
    Command::new(support::memshim()).arg("check").args(args).current_dir(dir).output().expect("memshim")
}

/// What was found of the one phase there is, by target, and the exit status.
fn found(dir: &Path, args: &[&str]) -> (i32, Value) {
    let out = check(dir, &[&["trace.jsonl", "--json"], args].concat());
    let code = out.status.code().expect("an exit status");
    let all: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", lossy(&out.stderr)));
    assert_eq!(all["passed"], code == 0, "{all}");
    let checked = all["checked"].as_array().expect("phases");
    assert_eq!((checked.len(), checked[0]["path"][0].as_str()), (1, Some("step")), "{all}");
    (code, checked[0].clone())
}

fn of<'a>(checked: &'a Value, what: &str) -> &'a Value {
    let all = checked["checks"].as_array().expect("checks");
    all.iter().find(|c| c["what"] == what).unwrap_or_else(|| panic!("no {what}: {checked}"))
}

/// Everything about time off.
const STILL: [&str; 4] = ["--mean=off", "--p95=off", "--p99=off", "--cv=off"];

#[test]
fn each_target_of_time_is_met_and_missed() {
    let test = "each_target_of_time_is_met_and_missed";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    let mean = record(&dir, &["200", "us=500"], "full");
    let (_, checked) = found(&dir, &["--units", "64 atoms"]);
    assert_eq!((checked["count"].as_u64(), checked["checks"].as_array().map(Vec::len)), (Some(200), Some(7)), "{checked}");
    let measured = |what: &str| of(&checked, what)["measured"].as_f64().expect("a figure");
    assert!((measured("mean") - mean).abs() < 1e-4, "{} is not {mean}", measured("mean"));
    for (what, times) in [("p95", 2.0), ("p99", 3.0)] {
        let c = of(&checked, what);
        assert_eq!((c["times_mean"].as_f64(), c["allowed"].as_f64()), (Some(times), Some(times * measured("mean"))), "{c}");
    }
    let defaults = ["mean", "cv", "per_unit", "memory"].map(|what| of(&checked, what)["allowed"].as_f64());
    assert_eq!(defaults, [Some(1e-3), Some(0.2), Some(10e-6), Some(10e6)]);
    for what in ["mean", "p95", "p99", "cv", "per_unit"] {
        let option = what.replace('_', "-");
        let flag = |value: f64| {
            if what == "cv" { format!("--{option}={:.7}%", value * 100.0) } else { format!("--{option}={}ns", (value * 1e9) as u64) }
        };
        for (flag, passes) in [(flag(measured(what) * 1.01), true), (flag(measured(what) * 0.99), false)] {
            let others = STILL.into_iter().filter(|o| !o.starts_with(&format!("--{option}=")));
            let rest = if what == "per_unit" { None } else { Some("--per-unit=off") };
            let args: Vec<&str> = ["--units", "64 atoms", &flag].into_iter().chain(others).chain(rest).collect();
            let (code, checked) = found(&dir, &args);
            assert_eq!((code, of(&checked, what)["passed"].as_bool()), (!passes as i32, Some(passes)), "{flag}: {checked}");
            assert_eq!(checked["checks"].as_array().map(Vec::len), Some(3), "{checked}");
            assert!(of(&checked, "memory")["passed"] == true && of(&checked, "leak")["passed"] == true, "{checked}");
        }
    }
    let text = check(&dir, &["trace.jsonl", "--mean=1ns"]);
    let said = lossy(&text.stdout);
    assert_eq!(text.status.code(), Some(1));
    for wanted in ["step`, 200 times, process ", "FAIL  mean", "pass  leak", "below 9.54 MiB, last end against first begin, "] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
}

#[test]
fn memory_that_stays_passes_and_memory_that_grows_does_not() {
    let test = "memory_that_stays_passes_and_memory_that_grows_does_not";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    // What a step keeps, of which class, and what that comes to in 300 of them.
    for (mode, kept, class, bytes) in [
        ("full", "leak=0", "heap", 0.0),
        ("full", "leak=1024", "heap", 1024.0),
        ("fast", "leak=2048", "heap", 2048.0),
        ("full", "map=65536", "maps", 65536.0),
        ("fast", "map=65536", "maps", 65536.0),
    ] {
        let dir = support::fresh_dir(test);
        record(&dir, &["300", kept], mode);
        let (code, checked) = found(&dir, &STILL);
        let (leak, memory) = (of(&checked, "leak"), of(&checked, "memory"));
        // Fast mode has usable sizes.
        let slack = if mode == "full" { 0.0 } else { 48.0 };
        let is = |c: &Value, wanted: f64, slack: f64| (c["measured"].as_f64().expect("a figure") - wanted).abs() <= slack;
        assert!(is(leak, bytes, slack), "{mode} {kept}: {checked}");
        if bytes > 0.0 {
            assert!(is(memory, 300.0 * bytes, 300.0 * slack), "{mode} {kept}: {checked}");
            assert_eq!((leak["class"].as_str(), memory["class"].as_str()), (Some(class), Some(class)), "{mode} {kept}: {checked}");
        }
        assert_eq!(leak["passed"], bytes == 0.0, "{mode} {kept}: {checked}");
        assert_eq!(memory["passed"], 300.0 * bytes < 10e6, "{mode} {kept}: {checked}");
        assert_eq!(code, (bytes > 0.0) as i32);
        if bytes == 1024.0 {
            assert_eq!(found(&dir, &[&STILL[..], &["--leak=off"]].concat()).0, 0);
            assert_eq!(found(&dir, &[&STILL[..], &["--leak=off", "--memory=100KiB"]].concat()).0, 1);
        }
    }
}

#[test]
fn what_cannot_be_checked_is_refused_with_what_to_write_instead() {
    let test = "what_cannot_be_checked_is_refused_with_what_to_write_instead";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    record(&dir, &["2"], "full");
    let refused = |args: &[&str], code: i32, said: &str| {
        let out = check(&dir, args);
        let text = lossy(&out.stderr);
        assert_eq!((out.status.code(), out.stdout.len()), (Some(code), 0), "{args:?}: {text}");
        assert!(text.contains(said), "{args:?}: {text}");
    };
    refused(&["trace.jsonl"], 2, "no phase of these traces was on three times or more");
    refused(&["trace.jsonl", "--phase", "step"], 2, "it was on 2 times only, and steps are three or more");
    refused(&["trace.jsonl", "--phase", "stop"], 2, "no such phase in these traces; there are step");
    refused(&["trace.jsonl", "--pid", "1"], 2, "no such process in these traces; there is ");
    refused(&["trace.jsonl", "--mean", "fast"], 2, "write 2ms, 500us or 1s, or off");
    refused(&["trace.jsonl", "--p95", "2"], 2, "write 2x (times the mean) or 5ms, or off");
    refused(&["trace.jsonl", "--per-unit", "2us"], 2, "--units");
    refused(&["none.jsonl"], 3, "none.jsonl");
    record(&dir, &["3"], "full");
    let off = [&["trace.jsonl", "--memory=off", "--leak=off"], &STILL[..]].concat();
    refused(&off, 2, "every target is off");
}
