//! Processes that are not recorded are said, with what is known of their memory; and what a job is to ask for.
mod support;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::{Need, Ran, Session, lossy};

const HELD: u64 = 52 << 20;

fn program() -> std::path::PathBuf {
    support::build("bare.c", "bare", &[])
}

/// With the library preloaded.
fn preloaded(dir: &Path, args: &[&str]) -> Ran {
    let mut command = Command::new(program());
    command.args(args).env("LD_PRELOAD", support::shim()).env("MEMSHIM_OUT", dir.join("t.jsonl"));
    ended(&mut command, dir)
}

/// Under `memshim run`.
fn watched(dir: &Path, args: &[&str]) -> Ran {
    let mut command = Command::new(support::memshim());
    command.args(["run", "-q", "-o"]).arg(dir.join("t.jsonl")).arg("--").arg(program()).args(args);
    ended(&mut command, dir)
}

fn ended(command: &mut Command, dir: &Path) -> Ran {
    let ran = Session::start(command, dir).finish(Duration::from_secs(20));
    assert_eq!((ran.end(), lossy(&ran.stderr)), ("exit 0".into(), String::new()), "{}", lossy(&ran.stdout));
    ran
}

fn report(dir: &Path) -> Value {
    serde_json::from_str(&support::analyze(&dir.join("t.jsonl")).expect("a report")).expect("JSON")
}

/// The screen, its lines joined.
fn screen(dir: &Path) -> String {
    let out = Command::new(support::memshim()).arg("analyze").arg(dir.join("t.jsonl")).env("LC_ALL", "C.UTF-8").output().expect("memshim");
    lossy(&out.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The number that the program printed of its child.
fn child(ran: &Ran) -> u64 {
    let text = lossy(&ran.stdout);
    text.trim().strip_prefix("child ").and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{text}"))
}

fn number(of: &Value) -> u64 {
    of.as_u64().unwrap_or_else(|| panic!("no number: {of}"))
}

/// What is to be asked for where so much is needed.
fn request(needed: u64) -> u64 {
    (needed + needed / 10).div_ceil(1 << 20) << 20
}

#[test]
fn a_child_with_a_cleared_environment_is_named_by_its_parent() {
    let test = "a_child_with_a_cleared_environment_is_named_by_its_parent";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    for how in [["cleared", "fork"], ["cleared", "vfork"], ["cleared", "spawn"], ["unset", "fork"], ["unset", "vfork"], ["unset", "spawn"]]
    {
        let dir = support::fresh_dir(&format!("{test}/{}-{}", how[0], how[1]));
        let ran = preloaded(&dir, &how);
        let report = report(&dir);
        let job = &report["job"];
        let all = job["not_recorded"].as_array().expect("a list");
        assert_eq!((all.len(), &job["not_recorded_total"]), (1, &1.into()), "{how:?}: {job}");
        let one = &all[0];
        assert_eq!((number(&one["pid"]), &one["why"]), (child(&ran), &"environment".into()), "{how:?}: {one}");
        assert_eq!((&one["program"], &one["peak_bytes"]), (&"bare".into(), &Value::Null), "{how:?}");
        // Nobody else had so much: what the parent waited for was this child's.
        let bound = number(&one["at_most_bytes"]);
        assert!((HELD..HELD + (8 << 20)).contains(&bound), "{how:?}: {one}");
        let alone = number(&job["peak_bytes"]);
        assert!(alone < 16 << 20, "{how:?}: {job}");
        assert_eq!((number(&job["request_mem_bytes"]), &job["request_lower_bound"]), (request(alone + bound), &false.into()), "{how:?}");
        let text = screen(&dir);
        assert!(text.contains("1 process was not recorded, started with an environment without LD_PRELOAD: bare"), "{text}");
    }
}

#[test]
fn what_is_seen_from_outside_of_a_cleared_child_is_in_what_to_ask_for() {
    let test = "what_is_seen_from_outside_of_a_cleared_child_is_in_what_to_ask_for";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    for how in [["cleared", "fork"], ["cleared", "vfork"], ["cleared", "spawn"], ["cleared", "exec"]] {
        let dir = support::fresh_dir(&format!("{test}/{}", how[1]));
        let ran = watched(&dir, &how);
        let report = report(&dir);
        let job = &report["job"];
        let all = job["not_recorded"].as_array().expect("a list");
        assert_eq!(all.len(), 1, "{how:?}: {job}");
        let pid = if how[1] == "exec" { number(&report["runs"][0]["pid"]) } else { child(&ran) };
        assert_eq!((number(&all[0]["pid"]), &all[0]["why"]), (pid, &"environment".into()), "{how:?}: {}", all[0]);
        let peak = number(&all[0]["peak_bytes"]);
        assert!((HELD..HELD + (8 << 20)).contains(&peak), "{how:?}: {}", all[0]);
        let together = number(&job["peak_bytes"]);
        assert!((peak..peak + (16 << 20)).contains(&together), "{how:?}: {job}");
        assert!(number(&job["request_mem_bytes"]) >= request(peak) && job["request_lower_bound"] == false, "{how:?}: {job}");
        let text = screen(&dir);
        assert!(text.contains("not recorded, started with an environment without LD_PRELOAD") && text.contains("peak 5"), "{text}");
    }
}

#[test]
fn who_is_recorded_is_not_said_to_be_missing() {
    let test = "who_is_recorded_is_not_said_to_be_missing";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    for (args, runs) in [(&["kept", "fork"][..], 2), (&["kept", "vfork"], 2), (&["kept", "spawn"], 2), (&["absent"], 2), (&["hold"], 1)] {
        let dir = support::fresh_dir(&format!("{test}/{}", args.join("-")));
        let _ = if args[0] == "hold" { preloaded(&dir, args) } else { watched(&dir, args) };
        let report = report(&dir);
        let job = &report["job"];
        assert_eq!((&job["not_recorded"], &job["processes"]), (&serde_json::json!([]), &runs.into()), "{args:?}: {job}");
        assert_eq!((number(&job["request_mem_bytes"]), &job["request_lower_bound"]), (request(number(&job["peak_bytes"])), &false.into()));
        let text = screen(&dir);
        assert!(!text.contains("not recorded") && text.contains("ask for "), "{args:?}: {text}");
    }
}

#[test]
fn a_static_program_is_said_to_have_no_trace() {
    let test = "a_static_program_is_said_to_have_no_trace";
    if support::lacks(test, &[Need::Preload, Need::StaticLink]) {
        return;
    }
    let dir = support::fresh_dir(test);
    let inner = support::build("bare.c", "bare-static", &["-static"]);
    let mut command = Command::new(support::memshim());
    // The shell goes on, so that it makes a child for it.
    command.args(["run", "-q", "-o"]).arg(dir.join("t.jsonl")).args(["--", "/bin/sh", "-c", "\"$1\" hold; exit 0", "x"]).arg(&inner);
    ended(&mut command, &dir);
    let report = report(&dir);
    let all = report["job"]["not_recorded"].as_array().expect("a list");
    assert_eq!((all.len(), &all[0]["why"], &all[0]["program"]), (1, &"no trace".into(), &"bare-static".into()), "{all:?}");
    assert!((HELD..HELD + (8 << 20)).contains(&number(&all[0]["peak_bytes"])), "{}", all[0]);
    let text = screen(&dir);
    assert!(text.contains("1 process was not recorded, without a trace here: static, set-user-id"), "{text}");
}

/// Images of one process follow one another, also where the second has no trace.
#[test]
fn a_program_that_goes_on_unrecorded_counts_once() {
    let test = "a_program_that_goes_on_unrecorded_counts_once";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    watched(&dir, &["grown", "exec"]);
    let job = &report(&dir)["job"];
    assert_eq!((number(&job["processes"]), job["not_recorded"].as_array().map(Vec::len)), (1, Some(1)), "{job}");
    let peak = number(&job["peak_bytes"]);
    assert!((HELD..HELD + (8 << 20)).contains(&peak), "{job}");
    assert_eq!(number(&job["request_mem_bytes"]), request(peak), "{job}");
}

/// Whoever asked for it knows; of the program itself all is known.
#[test]
fn children_that_were_not_to_be_recorded_are_said_as_such() {
    let test = "children_that_were_not_to_be_recorded_are_said_as_such";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    for how in ["fork", "spawn"] {
        let dir = support::fresh_dir(&format!("{test}/{how}"));
        let mut command = Command::new(program());
        command.args(["kept", how]).env("LD_PRELOAD", support::shim()).env("MEMSHIM_OUT", dir.join("t.jsonl"));
        ended(command.env("MEMSHIM_CHILDREN", "skip"), &dir);
        let report = report(&dir);
        let job = &report["job"];
        assert_eq!((&job["not_recorded"][0]["why"], &job["request_lower_bound"]), (&"children skip".into(), &false.into()), "{job}");
        let text = screen(&dir);
        assert!(text.contains("1 process was not recorded, as was asked (--children skip): "), "{text}");
        assert!(!text.contains("MiB at least") && !text.contains("static, set-user-id"), "{text}");
    }
}
