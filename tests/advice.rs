//! Promises about advice: a program that needs something pointed out gets its line with the figure, one that does not gets none.
mod support;

use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use support::{Need, Session, fresh_dir, lacks, lossy};

const MIB: u64 = 1 << 20;

/// What is advised for a way of `advised.c`, and what the screen says below ADVICE.
fn advised(how: &str) -> (Vec<Value>, String) {
    let dir = fresh_dir(&format!("advice-{how}"));
    let mut command = Command::new(support::build("advised.c", "advised", &[]));
    command.arg(how).current_dir(&dir).env("LD_PRELOAD", support::shim());
    let ran = Session::start(&mut command, &dir).finish(Duration::from_secs(60));
    assert_eq!((ran.end(), lossy(&ran.stdout), lossy(&ran.stderr)), ("exit 0".into(), "done\n".into(), String::new()), "{how}");
    let trace = dir.join("trace.jsonl");
    let report: Value = serde_json::from_str(&support::analyze(&trace).expect("a report")).expect("JSON");
    let screen = Command::new(support::memshim()).args(["analyze", "--no-color"]).arg(&trace).output().expect("memshim");
    let words = lossy(&screen.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    (report["runs"][0]["advice"].as_array().expect("advice").clone(), words)
}

/// The line that begins like this, and how much it says is to be gained.
fn line(how: &str, begins: &str) -> (String, Value) {
    let (all, screen) = advised(how);
    found(how, begins, &all, &screen)
}

/// The same, among what was advised.
fn found(how: &str, begins: &str, all: &[Value], screen: &str) -> (String, Value) {
    let found = all.iter().find(|a| a["what"].as_str().is_some_and(|w| w.starts_with(begins))).unwrap_or_else(|| panic!("{how}: {all:?}"));
    let what = found["what"].as_str().expect("words");
    assert!(screen.contains("ADVICE") && screen.contains(what), "{how}: {screen}");
    (format!("{what}; {}", found["evidence"].as_str().expect("evidence")), found.clone())
}

#[test]
fn a_program_with_nothing_to_point_out_gets_no_advice() {
    if lacks("a_program_with_nothing_to_point_out_gets_no_advice", &[Need::Preload]) {
        return;
    }
    let (all, screen) = advised("clean");
    assert!(all.is_empty() && !screen.contains("ADVICE"), "{all:?}");
}

#[test]
fn memory_held_across_phases_and_the_line_that_holds_it_are_named() {
    if lacks("memory_held_across_phases_and_the_line_that_holds_it_are_named", &[Need::Preload]) {
        return;
    }
    let (said, of) = line("held", "what `build` leaves behind may still be live when `solve` reaches the peak");
    assert!(said.contains("up to 100 MiB of 160 MiB"), "{said}");
    let gain = of["gain_bytes"].as_u64().expect("bytes");
    assert!((100 * MIB..101 * MIB).contains(&gain), "{said}: {gain}");
    let source = std::fs::read_to_string(support::root().join("tests/programs/advised.c")).expect("the source");
    let at = 1 + source.lines().position(|l| l.contains("return malloc(bytes);")).expect("the line");
    let (said, of) = line("held", &format!("`fill` (advised.c:{at}) holds 62 % of the heap at its peak"));
    assert!((100 * MIB..101 * MIB).contains(&of["gain_bytes"].as_u64().expect("bytes")), "{said}");
}

#[test]
fn a_phase_that_takes_most_of_the_time_is_named_and_a_short_one_is_not() {
    if lacks("a_phase_that_takes_most_of_the_time_is_named_and_a_short_one_is_not", &[Need::Preload]) {
        return;
    }
    let (all, screen) = advised("hot");
    let (said, of) = found("hot", "`solve` takes ", &all, &screen);
    let share = |before: &str, after: &str| -> f64 {
        let number = said.split_once(after).and_then(|(head, _)| head.rsplit_once(before)).map(|(_, number)| number.trim_end_matches(" %"));
        number.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{said}"))
    };
    // It sleeps for 600 ms of the 620 that there is something to do.
    assert!(said.contains("in one time, ") && share("takes ", " of the run by itself") > 60.0, "{said}");
    assert!(share("in one time, ", " of it on a processor") < 10.0, "{said}");
    assert!(of["gain_s"].as_f64().is_some_and(|seconds| seconds >= 0.6), "{said}");
    assert!(!all.iter().any(|a| a["what"].as_str().is_some_and(|w| w.contains("assemble"))), "{all:?}");
}

#[test]
fn resident_memory_that_is_in_no_block_has_its_line_by_what_helps() {
    if lacks("resident_memory_that_is_in_no_block_has_its_line_by_what_helps", &[Need::Preload]) {
        return;
    }
    for (how, helps) in [("holes", "MALLOC_TRIM_THRESHOLD_=0 or malloc_trim(0)"), ("arenas", "MALLOC_ARENA_MAX=2")] {
        let (all, screen) = advised(how);
        let of = |a: &&Value| a["what"].as_str().is_some_and(|w| w.contains("of the resident memory is live in no block and no map"));
        let found = all.iter().find(of).unwrap_or_else(|| panic!("{how}: {all:?}"));
        let (what, gain) = (found["what"].as_str().expect("words"), found["gain_bytes"].as_u64().expect("bytes"));
        assert!(what.contains(helps) && screen.contains(helps), "{how}: {what}");
        // 31 of 32 small blocks went, of 80 MiB with their heads.
        assert!((70 * MIB..90 * MIB).contains(&gain), "{how}: {gain}");
    }
}
