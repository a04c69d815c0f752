//! Who held it, in programs of real libraries: an array that is known is its own line's, and next to nothing has no name, no owner or no stack.

mod support;

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::{Need, Session, lossy, python, root, skip};

/// A script's run in the report, and the bytes that it says its marked line holds.
fn seen(test: &str, script: &Path, mode: &str) -> Option<(Value, u64)> {
    let Some(python) = python() else {
        skip(test, "needs python3");
        return None;
    };
    let dir = support::fresh_dir(&format!("{test}/{mode}"));
    let mut command = Command::new(python);
    // Samples are dense enough for a hundredth of the bytes to be many of them.
    let settings = [("MEMSHIM_MODE", mode), ("MEMSHIM_STACKS", "mixed"), ("MEMSHIM_SAMPLE", "64KiB"), ("OPENBLAS_NUM_THREADS", "1")];
    command.arg(script).current_dir(&dir).env("LD_PRELOAD", support::shim()).envs(settings);
    let ran = Session::start(&mut command, &dir).finish(Duration::from_secs(120));
    assert_eq!(ran.end(), "exit 0", "{}", lossy(&ran.stderr));
    let said = lossy(&ran.stdout);
    let held = said.strip_prefix("held ").and_then(|rest| rest.split(',').next()?.parse().ok()).expect("what is held");
    let mut report: Value = serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).expect("a report")).expect("JSON");
    Some((report["runs"][0].take(), held))
}

fn line_of(script: &Path) -> u64 {
    let text = std::fs::read_to_string(script).expect("the script");
    text.lines().position(|l| l.contains("<HELD>")).expect("a marked line") as u64 + 1
}

fn is_at(frame: &Value, script: &Path) -> bool {
    frame["file"].as_str().is_some_and(|file| Path::new(file) == script) && frame["line"] == line_of(script)
}

/// In both modes; at the peak a library may have made up to so many of the array.
fn is_held_by_its_line(test: &str, script: &str, module: &'static str, most: u64) {
    if support::lacks(test, &[Need::Preload, Need::Module(module)]) {
        return;
    }
    let script = root().join("tests/programs").join(script);
    for mode in ["full", "fast"] {
        let Some((run, held)) = seen(test, &script, mode) else { return };
        let top = &run["owners"][0];
        assert!(is_at(&top["frame"], &script), "{mode}: {top}");
        let live = top["live_at_peak_bytes"].as_u64().expect("bytes");
        assert!((held..most * held + held / 20).contains(&live), "{mode}: {live} of {held} bytes: {top}");
        let sums = &run["sites_total"];
        let of = |key: &str| sums[key].as_u64().unwrap_or_else(|| panic!("no {key}: {sums}"));
        for share in ["unresolved_bytes", "without_owner_bytes", "without_stack_bytes"] {
            assert!(of(share) * 100 <= of("total_bytes"), "{mode}: {share} of {sums}");
        }
    }
}

#[test]
fn frames_that_pandas_puts_together() {
    is_held_by_its_line("frames_that_pandas_puts_together", "real_pandas.py", "pandas", 1);
}

#[test]
fn integrals_of_pyscf() {
    is_held_by_its_line("integrals_of_pyscf", "real_pyscf.py", "pyscf", 1);
}

#[test]
fn a_matrix_of_pennylane() {
    is_held_by_its_line("a_matrix_of_pennylane", "real_pennylane.py", "pennylane", 4);
}

#[test]
fn an_array_of_jax() {
    is_held_by_its_line("an_array_of_jax", "real_jax.py", "jax", 1);
}

/// From the script's line through NumPy's own functions to the allocation, and nothing else in between.
#[test]
fn a_stack_goes_from_the_script_through_numpy_to_the_allocation() {
    let test = "a_stack_goes_from_the_script_through_numpy_to_the_allocation";
    if support::lacks(test, &[Need::Preload, Need::Module("numpy")]) {
        return;
    }
    let script = root().join("tests/programs/real_numpy.py");
    for mode in ["full", "fast"] {
        let Some((run, held)) = seen(test, &script, mode) else { return };
        let mut sites = run["sites"].as_array().expect("sites").iter();
        let own = |s: &&Value| {
            s["kind"] == "heap"
                && s["live_at_peak_bytes"] == held
                && s["frames"].as_array().is_some_and(|f| is_at(&f[f.len() - 1], &script))
        };
        let site = sites.find(own).unwrap_or_else(|| panic!("{mode}: no site of the marked line"));
        let frames = site["frames"].as_array().expect("frames");
        let (outer, inner) = frames.split_last().expect("frames");
        assert!(outer["function"] == "<module>" && outer["python"] == true, "{site}");
        let of_numpy = |f: &Value| f["python"] == false && f["module"].as_str().is_some_and(|m| m.contains("/_multiarray_umath."));
        assert!(inner.len() >= 3 && inner.iter().all(of_numpy), "{mode}: {site}");
        let named = |name: &str| inner.iter().position(|f| f["function"].as_str().is_some_and(|n| n.contains(name)));
        // The innermost asks for memory, the outermost is what Python called.
        assert!(named("malloc") == Some(0) && named("ufunc").is_some_and(|at| at > 0), "{mode}: {site}");
    }
}
