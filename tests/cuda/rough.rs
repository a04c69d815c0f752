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
        ("exit_with_work", 50, 0),
        ("threads_leave_captures", 10, 10),
        ("many", 100_000, 1000),
        ("main_leaves", 2, 2),
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
