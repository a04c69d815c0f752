//! What tests of Python functions as phases share: runs of the scripts in `tests/pyrules` with rules, and what the report says of them.

use super::{Need, Ran, Session, analyze, lacks, pyenv, root, shim, skip};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Minor versions of CPython that are tested.
pub const MINORS: std::ops::RangeInclusive<u32> = 7..=14;

/// Runs `test` with each interpreter; those that are missing are said.
pub fn with_each(name: &str, minors: impl Iterator<Item = u32>, test: impl Fn(&Path, &str)) {
    if lacks(name, &[Need::Preload]) {
        return;
    }
    for minor in minors {
        match pyenv(minor) {
            None => skip(&format!("{name} (3.{minor})"), "needs pyenv's"),
            Some(python) => test(&python, &format!("3.{minor}")),
        }
    }
    // A system's interpreter has all in the program.
    let system = Path::new("/usr/bin/python3");
    if system.exists() {
        test(system, "system");
    }
}

pub fn script(name: &str) -> PathBuf {
    root().join("tests/pyrules").join(name)
}

/// Runs a program with rules; none: without memshim.
pub fn run(command: &mut Command, dir: &Path, rules: &str) -> Ran {
    command.current_dir(dir).env("PYTHONHASHSEED", "0").env("PYTHONDONTWRITEBYTECODE", "1");
    if !rules.is_empty() {
        command.env("LD_PRELOAD", shim()).env("MEMSHIM_MODE", "full").env("MEMSHIM_PHASE_PY", rules);
    }
    Session::start(command, dir).finish(Duration::from_secs(60))
}

/// The first run of the trace in `dir`.
pub fn report(dir: &Path) -> Value {
    let text = analyze(&dir.join("trace.jsonl")).expect("a report");
    let mut report: Value = serde_json::from_str(&text).expect("JSON");
    report["runs"][0].take()
}

/// A number of all phases but the process's own by name, summed over where they stand; all of them have ended and are Python functions.
pub fn by_name(run: &Value, key: &str) -> BTreeMap<String, i64> {
    let mut all = BTreeMap::new();
    for p in run["phases"].as_array().expect("phases").iter().filter(|p| p["source"] != "process") {
        assert_eq!((&p["source"], &p["open"]), (&Value::from("python"), &Value::from(0)), "{p}");
        *all.entry(p["name"].as_str().expect("a name").to_owned()).or_default() += p[key].as_i64().expect("a number");
    }
    all
}

/// What 3.11 does to calls once it has gone the old way.
pub const KEEPS: &str = "Python 3.11 keeps the arguments of calls alive";

pub fn notes(run: &Value) -> Vec<&str> {
    run["notes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .filter(|n| (n.contains("Python") || n.contains("PHASE_PY")) && !n.starts_with(KEEPS))
        .collect()
}
