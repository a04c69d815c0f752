//! Promises about advice: a program that needs something pointed out gets its line with the figure, one that does not gets none.
mod support;

use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use support::{Need, Session, fresh_dir, lacks, lossy};

const MIB: u64 = 1 << 20;

/// What is advised for a way of `advised.c`, and what the screen says below ADVICE.
fn advised(how: &str) -> (Vec<Value>, String) {
    advised_with(how, &[])
}

fn advised_with(how: &str, settings: &[(&str, &str)]) -> (Vec<Value>, String) {
    let dir = fresh_dir(&format!("advice-{how}"));
    let mut command = Command::new(support::build("advised.c", "advised", &["-pthread"]));
    command.arg(how).current_dir(&dir).env("LD_PRELOAD", support::shim()).envs(settings.iter().copied());
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
    assert!(said.starts_with("`solve` takes ") && said.contains(" of the run by itself, waiting; "), "{said}");
    assert!(said.ends_with("of it on a processor: what it waits for takes the time, not what it computes"), "{said}");
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
        let (said, gain) = in_no_block(&all).unwrap_or_else(|| panic!("{how}: {all:?}"));
        assert!(said.contains(helps) && screen.contains(helps), "{how}: {said}");
        // 31 of 32 small blocks went, of 80 MiB with their heads.
        assert!((70 * MIB..90 * MIB).contains(&gain), "{how}: {gain}");
    }
}

/// What is in no block, by its beginning.
fn in_no_block(all: &[Value]) -> Option<(String, u64)> {
    let of =
        all.iter().find(|a| a["what"].as_str().is_some_and(|w| w.contains("of the resident memory is live in no block and no map")))?;
    Some((format!("{}; {}", of["what"].as_str()?, of["evidence"].as_str()?), of["gain_bytes"].as_u64()?))
}

/// Whether the kernel gives huge pages to who asks for them, and to nobody else.
fn huge_pages_when_asked_for() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").is_ok_and(|text| text.contains("[madvise]"))
}

#[test]
fn huge_pages_of_which_a_byte_is_touched_are_named_and_arenas_are_not() {
    let test = "huge_pages_of_which_a_byte_is_touched_are_named_and_arenas_are_not";
    if lacks(test, &[Need::Preload]) {
        return;
    }
    if !huge_pages_when_asked_for() {
        return support::skip(test, "needs transparent huge pages by madvise");
    }
    for mode in ["fast", "full"] {
        let (all, screen) = advised_with("huge", &[("MEMSHIM_MODE", mode)]);
        let (said, gain) = in_no_block(&all).unwrap_or_else(|| panic!("{mode}: {all:?}"));
        // 40 threads touched a byte each.
        assert!((76 * MIB..88 * MIB).contains(&gain), "{said}");
        assert!(said.contains("prctl(PR_SET_THP_DISABLE)") && said.contains(" 41 threads, ") && !said.contains("ARENA"), "{said}");
        let pages = said.rsplit_once(" threads, ").and_then(|(_, rest)| rest.strip_suffix(" MiB in transparent huge pages"));
        let pages: f64 = pages.and_then(|mib| mib.parse().ok()).unwrap_or_else(|| panic!("{said}"));
        assert!((76.0..=84.0).contains(&pages) && screen.contains("transparent huge pages"), "{said}");
        let (all, screen) = advised_with("small", &[("MEMSHIM_MODE", mode)]);
        assert!(all.is_empty() && !screen.contains("ADVICE"), "{all:?}");
    }
}

#[test]
fn a_real_program_that_is_compiled_anew_is_told_what_that_takes_and_why() {
    let test = "a_real_program_that_is_compiled_anew_is_told_what_that_takes_and_why";
    if lacks(test, &[Need::Module("jax")]) {
        return;
    }
    for (lengths, again) in [("5 7 9", true), ("5 5 5", false)] {
        let dir = fresh_dir("advice-recompiled");
        let mut command = Command::new(support::memshim());
        command.current_dir(&dir).args(["run", "-q", "--compiles", "--"]).arg(support::python().expect("JAX's"));
        command.arg(support::root().join("tests/programs/jax_recompiled.py")).args(lengths.split(' '));
        let out = command.env("JAX_LOG_COMPILES", "1").env("JAX_PLATFORMS", "cpu").output().expect("memshim");
        assert!(out.status.success(), "{}", lossy(&out.stderr));
        let report: Value = serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).expect("a report")).expect("JSON");
        let all = report["runs"][0]["advice"].as_array().expect("advice");
        let of = all.iter().find(|a| a["what"].as_str().is_some_and(|w| w.contains(" was compiled ")));
        if !again {
            assert_eq!(of, None, "it was compiled once");
            continue;
        }
        let of = of.unwrap_or_else(|| panic!("{all:?}"));
        // JAX's own figures, by compilation.
        let said = lossy(&out.stderr);
        let of_it = |l: &&str| l.contains("jit(unrolled)") || l.contains(" unrolled for ");
        let times = said.lines().filter(|l| l.starts_with("Finished ")).filter(of_it);
        let mut seconds: Vec<f64> =
            times.map(|l| l.rsplit(" in ").next().and_then(|t| t.trim_end_matches(" sec").parse().ok()).expect("seconds")).collect();
        assert_eq!(seconds.len() % 3, 0, "{said}");
        let first: f64 = seconds.drain(..seconds.len() / 3).sum();
        let anew: f64 = seconds.iter().sum();
        assert_eq!(of["what"], "`unrolled` was compiled 3 times by jax");
        assert!((of["gain_s"].as_f64().expect("seconds") - anew).abs() < 1e-6 && anew > 0.1, "{of}: {first} + {seconds:?}");
        let wanted = format!("{:.3} s in all, {anew:.3} s of it anew; the last time for argument 0: float32[7] → float32[9]", first + anew);
        assert_eq!(of["evidence"], wanted.as_str());
    }
}
