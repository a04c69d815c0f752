//! Promises about programs of musl: the library of glibc programs starts in them too, and their calls are counted once each.
mod support;
use serde_json::Value;
use std::process::Command;
use support::Need;

#[test]
fn a_musl_program_runs_as_ever_and_is_counted() {
    let test = "a_musl_program_runs_as_ever_and_is_counted";
    if support::lacks(test, &[Need::Command("musl-gcc"), Need::Preload]) {
        return;
    }
    let program = support::out_dir().join("musl");
    let source = support::root().join("tests/programs/musl.c");
    let built = Command::new("musl-gcc").args(["-O1", "-w", "-fno-builtin", "-pthread", "-o"]).arg(&program).arg(source).status();
    assert!(built.expect("musl-gcc").success());
    for mode in ["full", "fast", "off"] {
        let dir = support::fresh_dir(&format!("{test}-{mode}"));
        let trace = dir.join("trace.jsonl");
        let mut command = Command::new(&program);
        command.env("LD_PRELOAD", support::shim()).env("MEMSHIM_OUT", &trace).env("MEMSHIM_MODE", mode).current_dir(&dir);
        let out = command.output().expect("start");
        let (said, complaint) = (support::lossy(&out.stdout), support::lossy(&out.stderr));
        assert_eq!((said.as_str(), complaint.as_str(), out.status.code()), ("alive\n", "", Some(8)), "{mode}");
        if mode == "off" {
            assert!(!trace.exists());
            continue;
        }
        let report: Value = serde_json::from_str(&support::analyze(&trace).expect("a report")).expect("JSON");
        let runs = report["runs"].as_array().expect("runs");
        assert_eq!((runs.len(), &runs[0]["end"]["kind"], &runs[1]["end"]["code"]), (2, &"exited".into(), &9.into()), "{report}");
        let calls = |function: &str| runs[0]["heap"]["by_function"][function]["allocs"].as_u64();
        for (function, n) in [("calloc", 101), ("posix_memalign", 100), ("aligned_alloc", 100), ("memalign", 100), ("realloc", 100)] {
            assert_eq!(calls(function), Some(n), "{mode}: {function}");
        }
        if mode == "full" {
            for (size, n) in
                [(1010, 100), (333, 100), (352, 100), (444, 100), (555, 100), (666, 100), (256 << 20, 1), (777, 500), (888, 50)]
            {
                assert_eq!(support::counted(&report, size), (n, n), "blocks of {size}");
            }
            support::conserved(&report, false).unwrap();
        }
    }
}
