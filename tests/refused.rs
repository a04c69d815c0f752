//! Promises about storage that refuses: whichever call of memshim's it is, and whenever, the target does not notice, all is counted, and it is said.
mod support;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use support::{Need, Ran, Session, lossy};

/// Blocks in each half of the program.
const HALF: u64 = 3000;
const QUOTA: i32 = 122;
const NO_SPACE: i32 = 28;

/// Runs the program with a system that refuses `point`, from `when` on; it does what it would.
fn refused(test: &str, when: &str, point: &str, error: i32, mode: &str, dir: &Path) -> Ran {
    let mut command = Command::new(support::build("refuses.c", "refuses", &[]));
    command.args([when, point, &error.to_string(), &HALF.to_string()]);
    command.env("PRELOAD", support::shim()).env("MEMSHIM_OUT", dir.join("t.jsonl")).env("MEMSHIM_MODE", mode);
    let ran = Session::start(&mut command, dir).finish(Duration::from_secs(20));
    let child = if when == "child" { "child: all there\n" } else { "" };
    assert_eq!(
        (ran.end(), lossy(&ran.stdout)),
        ("exit 0".into(), format!("{child}program: all there\n")),
        "{test}: {}",
        lossy(&ran.stderr)
    );
    let most = if when == "child" { 2 } else { 1 };
    assert!(lossy(&ran.stderr).lines().count() <= most, "{test}: {}", lossy(&ran.stderr));
    ran
}

fn fresh(test: &str, when: &str, point: &str, mode: &str) -> PathBuf {
    support::fresh_dir(&format!("{test}/{when}-{point}-{mode}"))
}

fn report(dir: &Path) -> Value {
    serde_json::from_str(&support::analyze(&dir.join("t.jsonl")).expect("a report")).expect("JSON")
}

/// The program's allocations, and the events lost; all events are counted.
fn allocs_and_lost(run: &Value) -> (u64, u64) {
    let number = |part: &str, key: &str| run[part][key].as_u64().unwrap_or_else(|| panic!("no {part}.{key}: {run}"));
    let lost = number("events", "lost");
    assert_eq!(number("events", "counted"), number("events", "recorded") + lost, "{}", run["events"]);
    (number("heap", "allocs"), lost)
}

#[test]
fn a_trace_that_cannot_be_made_costs_its_program_nothing() {
    let test = "a_trace_that_cannot_be_made_costs_its_program_nothing";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    for (error, why) in [(QUOTA, "disk quota exceeded"), (NO_SPACE, "no space left on the device")] {
        for point in ["trace", "link", "write"] {
            let dir = fresh(test, "before", point, "full");
            let said = lossy(&refused(test, "before", point, error, "full", &dir).stderr);
            assert!(said.contains(why) && said.contains("not recorded"), "{point}: {said}");
            let report = support::analyze(&dir.join("t.jsonl")).expect_err("no trace");
            assert!(report.contains(if point == "write" { "an empty file: the disk was full" } else { "not there" }), "{point}: {report}");
            // A file that nothing can be written to stays, as a sign; what one is linked from does not.
            let tmp = std::fs::read_dir(&dir).unwrap().flatten().filter(|e| lossy(e.file_name().as_encoded_bytes()).ends_with(".tmp"));
            assert_eq!(tmp.count(), 0, "{point}");
        }
    }
}

#[test]
fn an_earlier_trace_that_cannot_be_put_aside_stays_as_it_was() {
    let test = "an_earlier_trace_that_cannot_be_put_aside_stays_as_it_was";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = fresh(test, "before", "aside", "full");
    refused(test, "late", "aside", QUOTA, "full", &dir);
    let earlier = std::fs::read(dir.join("t.jsonl")).unwrap();
    let said = lossy(&refused(test, "before", "aside", QUOTA, "full", &dir).stderr);
    assert!(said.contains("disk quota exceeded") && said.contains("not recorded"), "{said}");
    assert_eq!(std::fs::read(dir.join("t.jsonl")).unwrap(), earlier);
}

#[test]
fn a_spool_that_cannot_be_made_or_grow_loses_nothing_that_there_is_room_for() {
    let test = "a_spool_that_cannot_be_made_or_grow_loses_nothing_that_there_is_room_for";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    for mode in ["full", "fast"] {
        for (when, point, is_private) in [
            ("before", "spool", true),
            ("before", "length", true),
            ("before", "room", true),
            ("late", "trace", false),
            ("late", "spool", false),
            ("late", "length", false),
            ("late", "folder", false),
        ] {
            let dir = fresh(test, when, point, mode);
            refused(test, when, point, QUOTA, mode, &dir);
            let run = &report(&dir)["runs"][0];
            let name = format!("{when} {point} {mode}");
            assert_eq!(allocs_and_lost(run), (2 * HALF, 0), "{name}: {}", run["missing"]);
            assert_eq!(run["notes"].to_string().contains("spool private"), is_private, "{name}: {}", run["notes"]);
            assert_eq!(run["end"]["kind"], "exited", "{name}");
        }
        // What there is no memory for is lost, and said.
        let dir = fresh(test, "late", "room", mode);
        refused(test, "late", "room", QUOTA, mode, &dir);
        let run = &report(&dir)["runs"][0];
        let (allocs, lost) = allocs_and_lost(run);
        assert!(
            allocs == 2 * HALF && lost <= 2 * HALF && (lost > 0) == (run["missing"] != serde_json::json!([])),
            "{mode}: {}",
            run["missing"]
        );
        // Not even one thread's lane: all are counted.
        let dir = fresh(test, "before", "more-room", mode);
        refused(test, "before", "more-room", QUOTA, mode, &dir);
        let run = &report(&dir)["runs"][0];
        let (allocs, lost) = allocs_and_lost(run);
        assert!(allocs == 2 * HALF && lost == if mode == "full" { 4 * HALF } else { 0 }, "{mode}: {allocs} {lost}");
        let said = run["notes"].to_string() + &run["missing"].to_string();
        assert!(said.contains("no room to record the calls of a further thread, on the disk of the trace"), "{mode}: {said}");
    }
}

#[test]
fn what_cannot_be_written_is_counted_and_said() {
    let test = "what_cannot_be_written_is_counted_and_said";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    for (error, why) in [(QUOTA, "Disk quota exceeded"), (NO_SPACE, "No space left on device")] {
        let dir = fresh(test, "late", "write", "full");
        refused(test, "late", "write", error, "full", &dir);
        let run = &report(&dir)["runs"][0];
        let (allocs, lost) = allocs_and_lost(run);
        assert!(allocs == 2 * HALF && lost > 0, "{}", run["events"]);
        assert!(run["missing"].to_string().contains(why), "{}", run["missing"]);
        assert_eq!((&run["end"]["kind"], &run["end"]["code"]), (&"exited".into(), &0.into()), "{}", run["missing"]);
    }
}

#[test]
fn a_child_that_is_refused_a_file_of_its_own_is_recorded_all_the_same() {
    let test = "a_child_that_is_refused_a_file_of_its_own_is_recorded_all_the_same";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    for mode in ["full", "fast"] {
        for (point, is_lost) in [
            ("folder", false),
            ("trace", false),
            ("spool", false),
            ("length", false),
            ("room", false),
            ("more-room", true),
            ("write", true),
        ] {
            let dir = fresh(test, "child", point, mode);
            refused(test, "child", point, QUOTA, mode, &dir);
            let all = report(&dir);
            let runs = all["runs"].as_array().expect("runs");
            let name = format!("{point} {mode}");
            assert_eq!(allocs_and_lost(&runs[0]).0, HALF, "{name}: the parent");
            if point == "write" {
                // Nobody could write that there was a child.
                continue;
            }
            assert_eq!(runs.len(), 2, "{name}");
            let (allocs, lost) = allocs_and_lost(&runs[1]);
            let expected = if is_lost && mode == "full" { 2 * HALF } else { 0 };
            assert_eq!((allocs, lost), (HALF, expected), "{name}: {}", runs[1]["missing"]);
            assert_eq!(is_lost && mode == "full", runs[1]["missing"] != serde_json::json!([]), "{name}: {}", runs[1]["missing"]);
        }
    }
}
