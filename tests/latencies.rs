//! How long phases took, held against what their programs measured themselves around and within each: every statistic, in both modes.

mod support;

use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use support::{Need, Session, lossy};

/// So far a figure may be from the program's own clock, in seconds.
const NEAR: f64 = 100e-6;

/// Seconds of each time of a phase: from after its begin to before its end, and from before its begin to after its end. Sorted.
fn measured(said: &str, name: &str) -> [Vec<f64>; 2] {
    let rows = said.lines().filter_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
    let rows: Vec<Vec<f64>> = rows.map(|l| l.split(' ').map(|n| n.parse::<f64>().expect("a number") / 1e9).collect()).collect();
    [0, 1].map(|which| {
        let mut all: Vec<f64> = rows.iter().map(|r| r[which]).collect();
        all.sort_by(f64::total_cmp);
        all
    })
}

/// Statistics that are no less where each time is no less.
fn statistics(walls: &[f64]) -> [(&'static str, f64); 6] {
    let at = |q: f64| {
        let at = q * (walls.len() - 1) as f64;
        let (low, high) = (walls[at.floor() as usize], walls[at.ceil() as usize]);
        low + (high - low) * at.fract()
    };
    let mean = walls.iter().sum::<f64>() / walls.len() as f64;
    [("mean", mean), ("median", at(0.5)), ("p95", at(0.95)), ("p99", at(0.99)), ("min", walls[0]), ("max", walls[walls.len() - 1])]
}

fn variation(walls: &[f64]) -> f64 {
    let n = walls.len() as f64;
    let mean = walls.iter().sum::<f64>() / n;
    (walls.iter().map(|w| (w - mean).powi(2)).sum::<f64>() / n).sqrt() / mean
}

/// Phases `work` and, within it, `rest` of a program, in both modes.
fn are_what_the_program_measured(test: &str, command: impl Fn() -> Command, prefix: &str) {
    for mode in ["full", "fast"] {
        let dir = support::fresh_dir(&format!("{test}/{mode}"));
        let mut command = command();
        command.current_dir(&dir).env("LD_PRELOAD", support::shim()).env("MEMSHIM_MODE", mode);
        let ran = Session::start(&mut command, &dir).finish(Duration::from_secs(60));
        assert_eq!((ran.end(), lossy(&ran.stderr)), ("exit 0".into(), String::new()));
        let said = lossy(&ran.stdout);
        let report: Value = serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).expect("a report")).expect("JSON");
        let phases = report["runs"][0]["phases"].as_array().expect("phases");
        let sums = ["work", "rest"].map(|name| {
            let full = format!("{prefix}{name}");
            let phase = phases.iter().find(|p| p["name"] == full).unwrap_or_else(|| panic!("no phase {full} in {phases:?}"));
            let [inner, outer] = measured(&said, name);
            assert_eq!((phase["count"].as_u64(), inner.len()), (Some(400), 400), "{mode} {name}");
            let of = |key: &str| phase["latency"][key].as_f64().unwrap_or_else(|| panic!("no {key}: {phase}"));
            // What the scheduler did between two clocks is in neither's power: it stands in the difference of the two truths.
            for ((key, least), (_, most)) in statistics(&inner).into_iter().zip(statistics(&outer)) {
                let got = of(key);
                assert!(least - NEAR < got && got < most + NEAR, "{mode} {name} {key}: {got} is not in {least}..{most}");
            }
            for (key, least) in statistics(&inner).into_iter().filter(|(key, _)| ["median", "min"].contains(key)) {
                assert!((of(key) - least).abs() < NEAR, "{mode} {name} {key}: {} is not {least}", of(key));
            }
            let [least, most] = [variation(&inner), variation(&outer)];
            let slack = 2.0 * NEAR / of("mean");
            assert!(
                least.min(most) - slack < of("cv") && of("cv") < least.max(most) + slack,
                "{mode} {name}: {} in {least}..{most}",
                of("cv")
            );
            let [wall, own] = ["wall_s", "self_wall_s"].map(|key| phase[key].as_f64().expect(key));
            (wall, own, inner.iter().sum::<f64>(), outer.iter().sum::<f64>())
        });
        let [(wall, own, inner, outer), (rest, rest_own, rest_inner, rest_outer)] = sums;
        assert!((own - (wall - rest)).abs() < 1e-6 && (rest_own - rest).abs() < 1e-6, "{mode}: {own} of {wall} without {rest}");
        let slack = 400.0 * NEAR;
        assert!(inner - rest_outer - slack < own && own < outer - rest_inner + slack, "{mode}: {own} s by itself");
    }
}

#[test]
fn how_long_phases_of_c_took_is_what_their_program_measured() {
    let test = "how_long_phases_of_c_took_is_what_their_program_measured";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let program = support::build("latencies.c", "latencies", &["-pthread"]);
    are_what_the_program_measured(test, || Command::new(&program), "");
}

#[test]
fn how_long_ranges_of_nvtx_took_is_what_their_program_measured() {
    let test = "how_long_ranges_of_nvtx_took_is_what_their_program_measured";
    let Some(headers) = support::nvtx_headers(test) else { return };
    let program = support::build("latencies.c", "latencies_by_nvtx", &["-pthread", "-DBY_NVTX", &headers]);
    are_what_the_program_measured(test, || Command::new(&program), "");
}

#[test]
fn how_long_native_functions_took_is_what_their_program_measured() {
    let test = "how_long_native_functions_took_is_what_their_program_measured";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    support::build("latencies.c", "latencies_part.so", &["-DBY_SYMBOLS", "-DPART", "-shared", "-fPIC", "-fsemantic-interposition"]);
    let here = format!("-L{}", support::out_dir().display());
    let flags = ["-pthread", "-DBY_SYMBOLS", "-DAPART", &here, "-Wl,-rpath,$ORIGIN", "-l:latencies_part.so"];
    let program = support::build("latencies.c", "latencies_by_symbols", &flags);
    let command = || {
        let mut command = Command::new(&program);
        command.env("MEMSHIM_PHASE_SYM", "latencies_part.so:work,latencies_part.so:rest");
        command
    };
    are_what_the_program_measured(test, command, "latencies_part.so:");
}

#[test]
fn how_long_functions_of_python_took_is_what_their_program_measured() {
    let test = "how_long_functions_of_python_took_is_what_their_program_measured";
    let Some(python) = support::python() else { return support::skip(test, "needs python3") };
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let script = support::root().join("tests/programs/latencies.py");
    let command = || {
        let mut command = Command::new(python);
        command.arg(&script).env("MEMSHIM_PHASE_PY", "__main__:work,__main__:rest");
        command
    };
    are_what_the_program_measured(test, command, "__main__:");
}
