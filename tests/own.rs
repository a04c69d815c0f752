//! The promise about memshim's own memory: what it states is what the kernel counts, held against the same program without it.
mod support;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use support::{Need, Session, python, skip};

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

/// What memshim states of its own memory in a program, in bytes but for the last: spool, private memory, table; lanes.
fn stated(program: &str, args: &[&str], mode: &str) -> [u64; 4] {
    let dir = support::fresh_dir(&format!("own_stated_{program}"));
    let mut command = Command::new(support::build(&format!("{program}.c"), program, &[]));
    command.args(args).current_dir(&dir);
    command.env("LD_PRELOAD", support::shim()).env("MEMSHIM_MODE", mode);
    let ran = Session::start(&mut command, &dir).finish(Duration::from_secs(60));
    assert_eq!((ran.end(), support::lossy(&ran.stderr)), ("exit 0".into(), String::new()));
    let report: Value = serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).unwrap()).unwrap();
    let run = &report["runs"][0];
    assert_eq!(run["events"]["lost"], 0, "{program} {args:?} {mode}: {}", run["missing"]);
    ["spool", "private", "table", "lanes"].map(|key| run["own"][key].as_u64().unwrap_or_else(|| panic!("no own.{key}: {run}")))
}

/// What rings take beyond the first blocks of their threads where the writer comes late, at most; in fast mode hardly a block is filled.
fn rings(mode: &str) -> u64 {
    if mode == "full" { 4 << 20 } else { 256 << 10 }
}

#[test]
fn own_memory_does_not_grow_with_the_number_of_calls() {
    if support::lacks("own_memory_does_not_grow_with_the_number_of_calls", &[Need::Preload]) {
        return;
    }
    for (mode, few, many) in [("fast", "300000", "3000000"), ("full", "300000", "3000000")] {
        let [few, many] = [few, many].map(|times| stated("loop", &["malloc+free", times], mode));
        assert!(many[0] <= few[0] + rings(mode) && many[1] <= few[1] + (32 << 10), "{mode}: {few:?} {many:?}");
        assert_eq!((many[2], many[3]), (few[2], few[3]), "{mode}: the table and lanes");
    }
}

/// What a thread of few call sites takes, beside the 32 KiB of its lane and its ring.
#[test]
fn a_thread_of_few_call_sites_takes_less_than_one_of_many() {
    if support::lacks("a_thread_of_few_call_sites_takes_less_than_one_of_many", &[Need::Preload]) {
        return;
    }
    for mode in ["fast", "full"] {
        let [few, many] = ["20", "320"].map(|threads| stated("crowd", &[threads], mode));
        let lanes = many[3] - few[3];
        assert!(lanes >= 300 && many[1] - few[1] <= lanes * (96 << 10), "{mode}: {few:?} {many:?}");
    }
}

#[test]
fn own_memory_does_not_grow_with_threads_that_come_and_go() {
    if support::lacks("own_memory_does_not_grow_with_threads_that_come_and_go", &[Need::Preload]) {
        return;
    }
    for mode in ["fast", "full"] {
        let [few, many] = ["1000", "20000"].map(|threads| stated("one_by_one", &[threads], mode));
        // One lives while the one before it ends.
        assert!(many[3] <= 4 && few[3] <= 4, "{mode}: {few:?} {many:?}");
        // 210 bytes a thread would be more. A lane has 144 KiB for stacks.
        let lanes = (many[3] - many[3].min(few[3])) * (144 << 10);
        assert!(many[0] <= few[0] + rings(mode) && many[1] <= few[1] + lanes && many[2] <= few[2] + (64 << 10), "{mode}: {few:?} {many:?}");
    }
}

/// By COUNT, LOW, HIGH and HOW of `populations`.
#[test]
fn a_live_block_takes_at_most_twenty_bytes_whatever_its_size() {
    if support::lacks("a_live_block_takes_at_most_twenty_bytes_whatever_its_size", &[Need::Preload]) {
        return;
    }
    let program = support::build("populations.c", "populations", &["-lm"]);
    for population in [
        "100000 16 16 even",
        "1000000 16 64 even",
        "1000000 64 512 even",
        "200000 512 4096 even",
        "50000 4096 16384 even",
        "500000 144 144 even",
        "500000 128 128 even",
        "200000 270 270 even",
        "200000 300 300 even",
        "200000 500 500 even",
        "200000 600 600 even",
        "200000 1100 1100 even",
        "100000 2000 2000 even",
        "5000 65536 1048576 even",
        "10000 16384 262144 even",
        "200000 16 65536 log",
        "100000 24 6000 two",
        "200000 24 1200 two",
    ] {
        let dir = support::fresh_dir("populations");
        let mut command = Command::new(&program);
        command.args(population.split(' ')).current_dir(&dir);
        command.env("LD_PRELOAD", support::shim()).env("MEMSHIM_MODE", "full").env("MEMSHIM_STACKS", "off");
        assert_eq!(Session::start(&mut command, &dir).finish(Duration::from_secs(60)).end(), "exit 0");
        let report: Value = serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).unwrap()).unwrap();
        let own = |key: &str| report["runs"][0]["own"][key].as_u64().unwrap();
        let count: u64 = population.split(' ').next().unwrap().parse().unwrap();
        assert!(own("table_blocks") >= count, "{population}: {}", report["runs"][0]["own"]);
        // A small table is not worth saving at: it takes what it might for this number of blocks.
        let least = 20_000;
        assert!(own("table") <= 20 * own("table_blocks").max(least), "{population}: {}", report["runs"][0]["own"]);
        // Each block's entry lies somewhere in it.
        assert!((8 * own("table_blocks")..=own("table")).contains(&own("table_resident")), "{population}: {}", report["runs"][0]["own"]);
        let _ = std::fs::remove_dir_all(&dir);
    }
}
