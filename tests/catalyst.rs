//! What is promised of a real program of PennyLane Catalyst, whose compiler is a process of its own and whose code is a library that it builds,
//! loads and removes. Runs where `MEMSHIM_CATALYST_PYTHON` names an interpreter that has `pennylane-catalyst` (or the tests' own has it).
mod support;

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Command;
use support::{Need, fresh_dir, lacks, lossy, memshim, root, skip};

const NAME: &str = "a_catalyst_program_is_seen_as_it_is";

/// What the program itself says, without the compiler's words: names of temporary files are in them.
fn own(stdout: &str) -> Vec<&str> {
    stdout.lines().filter(|l| ["branching", "slope", "outer_sum", "held"].iter().any(|w| l.starts_with(w))).collect()
}

/// What it says on stderr, without times: what the simulator did, in order.
fn steps(stderr: &[u8]) -> Vec<String> {
    lossy(stderr).lines().map(|l| l.split("walltime").next().unwrap_or("").to_owned()).collect()
}

/// Milliseconds that the compiler says its stages took, of compilations that are announced.
fn stages_ms(stdout: &str) -> f64 {
    let (mut open, mut sum) = (false, 0.0);
    for line in stdout.lines() {
        open = open && !line.contains("linking successful") || line.contains(" --module-name ");
        if let Some((_, rest)) = line.split_once("walltime: ").filter(|_| open) {
            sum += rest.split(" ms").next().unwrap().parse::<f64>().unwrap();
        }
    }
    sum
}

#[test]
fn a_catalyst_program_is_seen_as_it_is() {
    let Some(python) = support::catalyst() else { return skip(NAME, "needs Catalyst (MEMSHIM_CATALYST_PYTHON)") };
    if lacks(NAME, &[Need::Preload, Need::Command("gcc")]) {
        return;
    }
    let program = root().join("tests/programs/catalyst_circuits.py");
    let bare =
        Command::new(&python).arg(&program).current_dir(fresh_dir("catalyst-bare")).env("ENABLE_DIAGNOSTICS", "ON").output().unwrap();
    assert_eq!(bare.status.code(), Some(3), "{}", lossy(&bare.stderr));
    for mode in ["full", "fast"] {
        let dir = fresh_dir(&format!("catalyst-{mode}"));
        let mut c = Command::new(memshim());
        c.current_dir(&dir).env("ENABLE_DIAGNOSTICS", "ON").args([
            "run",
            "-q",
            "--mode",
            mode,
            "--compiles",
            "--artifacts",
            "outer_sum*/**",
            "--",
        ]);
        let o = c.arg(&python).arg(&program).output().unwrap();
        let (said, plain) = (lossy(&o.stdout), lossy(&bare.stdout));
        assert_eq!((own(&said), o.status.code(), steps(&o.stderr)), (own(&plain), Some(3), steps(&bare.stderr)), "{mode}");
        let report: Value = serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).unwrap()).unwrap();
        let is_first = |r: &&Value| r["command"].as_array().unwrap().last().unwrap() == program.to_str().unwrap();
        let run = report["runs"].as_array().unwrap().iter().find(is_first).unwrap();
        assert_eq!(run["end"]["code"], 3);
        assert_eq!(run["events"]["lost"], 0);
        memory(run, &said, mode);
        files(run, &said);
        let of = run["compiles"].as_array().unwrap().iter().find(|c| c["by"] == "catalyst").unwrap();
        assert_eq!((&of["function"], &of["count"], &of["recompiles"]), (&json!("outer_sum"), &json!(3), &json!(2)));
        assert!((of["wall_s"].as_f64().unwrap() * 1e3 - stages_ms(&said)).abs() < 1e-3, "{of} {}", stages_ms(&said));
        let compilers = report["runs"].as_array().unwrap().iter().filter(|r| r["command"][0].as_str().unwrap().ends_with("/catalyst"));
        // Five compilations, and three times the text of what is kept.
        assert_eq!(compilers.count(), 8);
    }
}

/// The array that the program holds is its own line's, and nearly all bytes have names.
fn memory(run: &Value, said: &str, mode: &str) {
    let line: u64 = said.split("by line ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
    let top = &run["owners"][0];
    assert!(top["frame"]["file"].as_str().unwrap().ends_with("/catalyst_circuits.py") && top["frame"]["line"] == line, "{top}");
    assert!(top["live_at_peak_bytes"].as_u64() >= Some(64 << 20), "{top}");
    let sums = &run["sites_total"];
    let of = |key: &str| sums[key].as_u64().unwrap();
    assert!(of("unresolved_bytes") * 100 <= of("total_bytes") && of("without_owner_bytes") * 100 <= of("total_bytes"), "{sums}");
    if mode == "full" {
        // 1000 × 1000 doubles, by code of a library that is still there.
        let by_compiled = run["sites"].as_array().unwrap().iter().any(|s| {
            let named = |f: &Value| f["function"] == "jit_outer_sum" && f["module"].as_str().is_some_and(|m| m.ends_with("/outer_sum.so"));
            s["total_bytes"].as_u64() >= Some(8_000_000) && s["frames"].as_array().unwrap().iter().any(named)
        });
        assert!(by_compiled);
    }
}

/// What the program counted itself is what is listed as kept.
fn files(run: &Value, said: &str) {
    let kept = said.lines().filter_map(|l| l.strip_prefix("kept ")).map(|l| {
        let mut words = l.split(' ');
        let path = words.next().unwrap().to_owned();
        let mut number = || words.next().unwrap().parse::<u64>().unwrap();
        (path, (number(), number()))
    });
    let kept: BTreeMap<String, (u64, u64)> = kept.collect();
    assert_eq!(kept.len(), 27);
    let (gone, there): (Vec<_>, Vec<_>) = run["artifacts"].as_array().unwrap().iter().partition(|a| a["deleted"] == true);
    let number = |a: &Value, key: &str| a[key].as_u64().unwrap_or_else(|| panic!("{a}"));
    let listed = there.iter().map(|a| (a["path"].as_str().unwrap().to_owned(), (number(a, "bytes"), number(a, "lines"))));
    assert_eq!(listed.collect::<BTreeMap<_, _>>(), kept);
    // What the compiler read and wrote meanwhile.
    let ends = |end: &str| gone.iter().filter(|a| a["path"].as_str().unwrap().ends_with(end)).count();
    assert_eq!((ends(".mlir"), ends(".ll"), gone.len()), (3, 3, 6), "{gone:?}");
}
