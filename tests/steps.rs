//! Promises about phases that repeat: what is called a leak.

mod support;

use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use support::{Need, Session, fresh_dir, lacks, lossy, python, root};

/// Phase `step` of `py_steady.py NAME …`; `None` where a package is missing.
fn step_of(name: &str, more: &[&str]) -> Option<Value> {
    let dir = fresh_dir(&format!("steps-{name}-{}", more.concat()));
    let mut command = Command::new(python()?);
    command.arg(root().join("tests/programs/py_steady.py")).arg(name).args(more).current_dir(&dir);
    command.env("LD_PRELOAD", support::shim()).env("MEMSHIM_MODE", "full").env("MEMSHIM_STACKS", "off").env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("MEMSHIM_PHASE_PY", "__main__:main.<locals>.step").env("JAX_PLATFORMS", "cpu");
    let ran = Session::start(&mut command, &dir).finish(Duration::from_secs(120));
    if ran.end() == "exit 77" {
        return None;
    }
    assert_eq!(ran.end(), "exit 0", "{name}: {}", lossy(&ran.stderr));
    let report: Value = serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).expect("a report")).expect("JSON");
    let phases = report["runs"][0]["phases"].as_array().expect("phases");
    let step =
        phases.iter().find(|p| p["name"].as_str().is_some_and(|n| n.ends_with(".step"))).unwrap_or_else(|| panic!("{name}: {report}"));
    assert_eq!(step["count"], 120, "{name}");
    Some(step.clone())
}

#[test]
fn real_programs_that_keep_nothing_are_not_called_leaking() {
    let test = "real_programs_that_keep_nothing_are_not_called_leaking";
    if lacks(test, &[Need::Preload, Need::Module("sqlite3")]) {
        return;
    }
    let list = Command::new(python().unwrap()).arg(root().join("tests/programs/py_steady.py")).output().unwrap();
    let names = lossy(&list.stdout);
    let mut seen = 0;
    for name in names.lines() {
        match step_of(name, &[]) {
            Some(step) => assert_eq!(step["steps"]["leaks"], false, "{name}: {step}"),
            None => {
                support::skip(&format!("{test} ({name})"), "needs a package");
                continue;
            }
        }
        seen += 1;
    }
    assert!(seen >= 18, "of Python's own library: {seen}");
}

#[test]
fn the_same_programs_with_a_kilobyte_kept_are() {
    if lacks("the_same_programs_with_a_kilobyte_kept_are", &[Need::Preload, Need::Module("sqlite3")]) {
        return;
    }
    for name in ["json_round_trip", "threads", "event_loop", "sqlite_memory"] {
        let step = step_of(name, &["keep"]).expect("needs Python's own library");
        let steps = &step["steps"];
        let growth = step["growth_per_count_bytes"].as_f64().unwrap();
        assert!(steps["leaks"] == true && (980.0..1_100.0).contains(&growth), "{name}: {step}");
    }
}
