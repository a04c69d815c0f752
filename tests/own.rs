//! The promise about memshim's own memory: what it states is what the kernel counts, held against the same program without it.
mod support;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use support::{Session, python, skip};

/// What the allocator of a program does differently from run to run.
const NOISE: u64 = 256 << 10;
/// Tables that are stated whole and not yet filled.
const UNTOUCHED: u64 = 5 << 20;

#[test]
fn own_memory_is_stated_as_the_kernel_counts_it() {
    let Some(python) = python() else { return skip("own_memory_is_stated_as_the_kernel_counts_it", "needs python3") };
    for (mode, threads, stacks) in [("fast", 1, "mixed"), ("full", 1, "mixed"), ("full", 40, "mixed"), ("full", 1, "off")] {
        let dir = support::fresh_dir("own");
        let said = |name: &str, under: bool| -> Value {
            let mut command = Command::new(python);
            command.arg(support::root().join("tests/programs/py_own.py")).arg(dir.join(name)).arg(threads.to_string());
            command.env("PYTHONHASHSEED", "0").env("MALLOC_ARENA_MAX", "1");
            if under {
                command.env("LD_PRELOAD", support::shim()).env("MEMSHIM_OUT", dir.join("t.jsonl"));
                command.env("MEMSHIM_MODE", mode).env("MEMSHIM_STACKS", stacks);
            }
            assert_eq!(Session::start(&mut command, &dir).finish(Duration::from_secs(60)).end(), "exit 0");
            serde_json::from_slice(&std::fs::read(dir.join(name)).unwrap()).unwrap()
        };
        let (bare, under) = (said("bare", false), said("under", true));
        let report: Value = serde_json::from_str(&support::analyze(&dir.join("t.jsonl")).unwrap()).unwrap();
        let own = |key: &str| report["runs"][0]["own"][key].as_u64().unwrap();
        let kernel = |of: &Value, key: &str| of[key].as_u64().unwrap();
        let more = kernel(&under, "anonymous").saturating_sub(kernel(&bare, "anonymous"));
        let state = format!("{mode}, {threads} threads, stacks {stacks}: {more} more, {under}, {}", report["runs"][0]["own"]);
        assert!(own("private") + NOISE >= more, "private memory: {state}");
        assert!(own("private") <= more + UNTOUCHED, "private memory that is none: {state}");
        assert!(kernel(&under, "spool") <= own("spool") + own("table"), "spool: {state}");
        assert!(kernel(&under, "library") <= own("code") + own("private"), "library: {state}");
    }
}
