//! Promises about bad moments: forks, resets, exits, kills.

use super::*;

#[test]
fn rough_programs_end_as_they_would_and_lose_no_copy() {
    if skipped("rough_programs_end_as_they_would_and_lose_no_copy") {
        return;
    }
    // mode, copies, of which timed at least
    for (mode, copies, timed) in [
        ("forks", 20, 20),
        ("forks_again", 40, 1),
        ("reset_in_flight", 55, 5),
        ("destroyed_in_flight", 35, 5),
        ("green_in_flight", 35, 5),
        ("exit_with_work", 50, 0),
        ("exit_with_kernels", 10, 0),
        ("reset_in_capture", 5, 5),
        ("threads_leave_captures", 10, 10),
        ("many", 100_000, 1000),
        ("main_leaves", 2, 2),
        ("shared_primary", 30, 30),
    ] {
        for memshim in [Mode::Full, Mode::Fast] {
            let g = gpu_with("rough", mode, "proc", memshim, &[]);
            let t = g.at("/transfers/0");
            assert_eq!(t["count"], copies, "{mode}: {t}");
            let seen = t["timed_count"].as_u64().expect("timed_count");
            assert!(seen >= timed && seen + g.number("/untimed") == copies, "{mode}: {seen} timed, {} not", g.number("/untimed"));
        }
    }
}

#[test]
fn no_child_inherits_the_loaders_lock() {
    if skipped("no_child_inherits_the_loaders_lock") {
        return;
    }
    gpu_with("rough", "forks_beside", "proc", Mode::Fast, &[("MEMSHIM_INTERVAL", "1ms"), ("MEMSHIM_CHILDREN", "skip")]);
}

#[test]
fn a_green_context_and_the_last_use_of_one_end_as_contexts_do_but_green_ones_without_their_memory() {
    if skipped("a_green_context_and_the_last_use_of_one_end_as_contexts_do_but_green_ones_without_their_memory") {
        return;
    }
    for way in WAYS {
        let g = gpu("rough", "green_in_flight", way);
        assert!(g.stdout.contains("0 times in a context that was gone"), "{way}: {}", g.stdout);
        // 16 MiB of the primary context, 4 of the green one, 2 of the one that is used by two, and 1.
        assert_eq!((g.number("/devices/0/peak_bytes"), g.number("/devices/0/live_bytes")), (22 * MIB, 21 * MIB), "{way}");
    }
}

#[test]
fn what_nobody_came_to_ask_after_is_asked_after_at_the_end() {
    if skipped("what_nobody_came_to_ask_after_is_asked_after_at_the_end") {
        return;
    }
    let g = gpu_with("memory", "elsewhere", "proc", Mode::Full, &[("FAKE_STARVED", "starved")]);
    assert_eq!(g.transfers(), BTreeMap::from([("P2P device".to_owned(), (3, 321_000, 14_025))]));
}

#[test]
fn a_kill_loses_no_call() {
    if skipped("a_kill_loses_no_call") {
        return;
    }
    let dir = support::fresh_dir("cuda_killed");
    let mut c = Command::new(program("rough", "proc"));
    c.args(["killed", "proc"]).current_dir(&dir).env("PROGRAM_DIR", support::out_dir()).env("LD_PRELOAD", support::shim());
    let ran = Session::start(&mut c, &dir).finish(Duration::from_secs(60));
    assert!(ran.status.is_some_and(|s| s.code().is_none()), "{}", support::lossy(&ran.stdout));
    let text = support::analyze(&dir.join("trace.jsonl")).expect("a report");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let g = &report["runs"][0]["gpu"];
    assert_eq!((&g["devices"][0]["live_bytes"], &g["devices"][0]["peak_bytes"]), (&json!(2 * MIB), &json!(16 * MIB)), "{g}");
    assert_eq!((&g["transfers"][0]["count"], &g["transfers"][0]["bytes"]), (&json!(35), &json!(35 * MIB)), "{g}");
    assert_eq!((&g["pinned"]["live_bytes"], &g["lost"]), (&json!(16 * MIB), &json!(0)), "{g}");
}

/// Kernels launched, by what the trace has of each stream.
fn launched(g: &Gpu) -> u64 {
    let text = std::fs::read_to_string(&g.trace).expect("a trace");
    let lines = text.lines().filter(|l| l.contains("\"busy\"")).map(|l| serde_json::from_str::<Value>(l).expect("JSON"));
    let of = |line: Value| -> u64 {
        let rows = line["ev"].as_array().expect("rows").clone();
        rows.iter().filter(|row| row[0] == "busy").map(|row| row[12].as_u64().expect("a number")).sum()
    };
    lines.map(of).sum()
}

#[test]
fn kernels_are_counted_and_seen_also_where_work_is_left_behind() {
    if skipped("kernels_are_counted_and_seen_also_where_work_is_left_behind") {
        return;
    }
    for (mode, kernels, seen) in [("forks_again", 20, false), ("exit_with_kernels", 20, true), ("reset_in_capture", 8, true)] {
        // In a folder of its own.
        let g = gpu_with("rough", mode, "proc", Mode::Full, &[("MEMSHIM_GPU_TIMING", "events")]);
        assert_eq!(launched(&g), kernels, "{mode}");
        // The last stream that ran any has been looked at: 20 ms of work under way when the process ended, 40 in the second context.
        let streams = g.at("/streams").as_array().expect("a list").iter().filter(|s| s["kernels"].as_u64() > Some(0));
        let last = streams.max_by(|a, b| a["from_s"].as_f64().partial_cmp(&b["from_s"].as_f64()).expect("times")).expect("a stream");
        assert!(!seen || last["busy_s"].as_f64() > Some(0.01), "{mode}: {last}");
    }
}

#[test]
fn streams_and_contexts_may_come_and_go_and_copies_by_the_million() {
    if skipped("streams_and_contexts_may_come_and_go_and_copies_by_the_million") {
        return;
    }
    let g = gpu_with("rough", "comings_and_goings", "proc", Mode::Fast, &[]);
    assert_eq!((launched(&g), g.number("/streams_total")), (3000, 3000 + 301));
    let t = g.at("/transfers/0");
    assert_eq!((&t["count"], &t["timed_count"], g.number("/untimed")), (&json!(15_000), &json!(15_000), 0));
    let g = gpu_with("rough", "million", "proc", Mode::Fast, &[]);
    let t = g.at("/transfers/0");
    let timed = t["timed_count"].as_u64().expect("a number");
    assert_eq!((&t["count"], &t["bytes"], timed + g.number("/untimed")), (&json!(1_000_000), &json!(16_000_000), 1_000_000));
}
