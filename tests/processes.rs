//! Promises about processes: their ends, their children, their descriptors, and what they may not do.
mod support;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use support::{Mode, Need, Program, Session};

promises! {
    _exit_keeps_every_event: "ends.c" ["_exit"].exits(41).with_late_library();
    _capital_exit_keeps_every_event: "ends.c" ["_Exit"].exits(42).with_late_library();
    abort_keeps_every_event: "ends.c" ["abort"].dies_of(6).with_late_library();
    a_wild_write_kills_as_ever: "ends.c" ["segv"].dies_of(11).with_late_library();
    sigkill_keeps_every_event: "ends.c" ["sigkill"].dies_of(9).with_late_library();
    sigterm_kills_as_ever: "ends.c" ["sigterm"].dies_of(15).with_late_library();
    the_bare_exit_call_keeps_every_event: "ends.c" ["exit_group"].exits(43).with_late_library();
    quick_exit_runs_only_its_own_handlers: "ends.c" ["quick_exit"].exits(44).with_late_library();
    late_destructors_are_still_counted: "ends.c" ["late"].exits(45).with_late_library();
    exit_does_not_hang_while_others_allocate: "ends.c" ["busy"].cut_short().exits(46).with_late_library();

    three_hundred_forks_from_allocating_threads_never_hang: "forks.c" ["storm"];
    the_programs_own_fork_handlers_may_allocate: "forks.c" ["handlers"];
    children_of_the_raw_system_call_are_traced: "forks.c" ["raw"];
    children_of_clone_are_traced: "forks.c" ["clone"];
    children_of_children_free_what_they_inherited: "forks.c" ["nested"];

    waits_are_told_what_they_are_told_without: "waits.c" ["all"];
    a_thread_is_cancelled_while_it_waits: "waits.c" ["cancel"];

    vfork_leaves_the_parent_untouched: "execs.c" ["vfork"];
    posix_spawn_behaves_as_ever: "execs.c" ["spawn"];
    exec_from_a_thread_keeps_both_images: "execs.c" ["from-thread"].cut_short();
    six_images_of_one_process_are_one_trace: "execs.c" ["relay"];
    a_failed_exec_changes_nothing: "execs.c" ["failing"];
    a_cleared_environment_is_survived: "execs.c" ["no-environment"];
    a_removed_folder_is_survived: "execs.c" ["no-folder"];
    odd_names_leave_the_trace_valid: "execs.c" ["odd-names"].with("plugin.c", "grab-one.so", &["-shared", "-fPIC"]);
    ranks_do_not_overwrite_each_other: "execs.c" ["ranks"];

    descriptor_numbers_are_unchanged: "descriptors.c" ["numbers"];
    a_daemon_that_closes_everything_has_clean_files: "descriptors.c" ["daemon"];
    descriptors_taken_over_one_by_one_stay_clean: "descriptors.c" ["dup-over"];
    the_shims_own_descriptors_taken_over_stay_clean: "descriptors.c" ["dup-over-open"].trouble();
    closed_ranges_are_the_programs_again: "descriptors.c" ["ranges"];
    no_free_descriptor_is_survived: "descriptors.c" ["at-limit"];
    closed_standard_descriptors_stay_closed: "descriptors.c" ["std-closed"];

    a_limit_on_address_space_is_not_eaten_up: "confined.c" ["address-space"];
    no_room_for_a_thread_is_survived: "confined.c" ["no-threads"].need(Need::Root);
    a_sandbox_after_start_is_survived: "confined.c" ["sandbox"];
    another_root_is_survived: "confined.c" ["other-root"].need(Need::Root);
    another_user_is_followed_by_every_thread: "confined.c" ["other-user"].need(Need::Root);
    process_one_of_three_namespaces_has_three_traces: "confined.c" ["namespaces"].need(Need::Root);
    static_and_setuid_children_run_as_ever: "confined.c" ["out-of-reach"].need(Need::Root).need(Need::StaticLink)
        .with("plain_child.c", "static-child", &["-static"]).with("plain_child.c", "setuid-child", &[]);
}

/// What a parent has is in what its child had by RUSAGE_CHILDREN, and before the exec by its own high-water mark: neither is the child's.
#[test]
fn a_small_child_of_a_large_parent_is_small() {
    let test = "a_small_child_of_a_large_parent_is_small";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let program = support::build("touches.c", "touches", &[]);
    const MIB: u64 = 1 << 20;
    for how in ["fork", "vfork", "spawn"] {
        let dir = support::fresh_dir(&format!("{test}-{how}"));
        let mut command = Command::new(support::memshim());
        command.args(["run", "-o", "t.jsonl", "--"]).arg(&program).args(["300", how, "20"]).current_dir(&dir);
        let ran = Session::start(&mut command, &dir).finish(Duration::from_secs(20));
        let said = support::lossy(&ran.stderr);
        assert_eq!(ran.end(), "exit 0", "{said}");
        let report: Value = serde_json::from_str(&support::analyze(&dir.join("t.jsonl")).expect("a report")).expect("JSON");
        let run = &report["runs"][0];
        let number = |of: &Value, key: &str| of[key].as_u64().unwrap_or_else(|| panic!("{how}: no {key}: {of}"));
        let (own, child) = (number(&run["rss"], "hwm_bytes"), number(&run["children"], "rss_peak_bytes"));
        assert!((300 * MIB..320 * MIB).contains(&own), "{how}: {own}");
        assert!((20 * MIB..40 * MIB).contains(&child) && run["children"]["count"] == 1, "{how}: {}", run["children"]);
        let inherited = number(&run["children"], "rusage_maxrss_bytes");
        assert!(inherited > child || how != "fork", "{how}: {inherited}: the kernel's figure is no trap here");
        let image = report["runs"].as_array().and_then(|runs| runs.last()).expect("the child");
        assert!((20 * MIB..40 * MIB).contains(&number(&image["rss"], "hwm_bytes")), "{how}: {}", image["rss"]);
        let together = number(&report["job"], "peak_bytes");
        assert!((300 * MIB..360 * MIB).contains(&together), "{how}: {together}");
        assert!(said.contains("peak resident 30") && !said.contains("a process it started"), "{how}: {said}");
    }
}

/// The closing line has the high-water mark that the kernel kept, of a rise in the last instant too; of a killed program it is a bound.
#[test]
fn the_peak_said_at_the_end_is_what_the_kernel_kept() {
    let test = "the_peak_said_at_the_end_is_what_the_kernel_kept";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let program = support::build("touches.c", "touches", &[]);
    let dir = support::fresh_dir(test);
    let run = |trace: &str, args: &[&str]| {
        let mut command = Command::new(support::memshim());
        command.args(["run", "-o", trace, "--"]).args(args).current_dir(&dir);
        support::lossy(&Session::start(&mut command, &dir).finish(Duration::from_secs(20)).stderr)
    };
    for trace in ["t.jsonl", "t.jsonl.zst"] {
        let said = run(trace, &[program.to_str().expect("a path"), "96"]);
        let report: Value = serde_json::from_str(&support::analyze(&dir.join(trace)).expect("a report")).expect("JSON");
        let hwm = report["runs"][0]["rss"]["hwm_bytes"].as_u64().expect("a mark");
        assert!(hwm > 96 << 20, "{hwm}");
        let line = format!("memshim: peak resident {}", memshim::figures::iec(hwm));
        assert!(said.lines().any(|l| l == line || l.starts_with(&format!("{line} (limit "))), "{line}: {said}");
    }
    // It grows up to its last instant: where nobody saw that the kernel's figure is more.
    let killed = support::build("killed_late.c", "killed_late", &["-O0"]);
    let said = run("k.jsonl", &[killed.to_str().expect("a path")]);
    assert!(said.contains("peak resident between ") || said.contains("peak resident at least "), "{said}");
}

/// Pids and parents of the runs in a report.
fn lineage(report: &Value) -> Vec<(u64, u64)> {
    let runs = report["runs"].as_array().expect("runs");
    runs.iter().map(|r| (r["pid"].as_u64().expect("pid"), r["ppid"].as_u64().expect("ppid"))).collect()
}

/// A program that cannot be seen has nobody who would remove the spool of the one before it.
#[test]
fn an_exec_leaves_no_spool_behind() {
    let test = "an_exec_leaves_no_spool_behind";
    if support::lacks(test, &[Need::Preload, Need::Command("env")]) {
        return;
    }
    let unseen = "exec env -u LD_PRELOAD /bin/true";
    for (name, script) in [
        ("first", unseen.to_owned()),
        ("child", format!("({unseen}); ({unseen}); true")),
        ("failed", format!("exec /no/such/program || {unseen}")),
    ] {
        let dir = support::fresh_dir(&format!("{test}-{name}"));
        let trace = dir.join("trace.jsonl");
        let mut command = std::process::Command::new("/bin/bash");
        command.args(["-c", "shopt -s execfail; eval \"$1\"", "x", &script]).env("MEMSHIM_OUT", &trace).env("MEMSHIM_MODE", "full");
        let out = command.env("LD_PRELOAD", support::shim()).output().expect("bash");
        assert!(out.status.success(), "{name}: {}", support::lossy(&out.stderr));
        let names = |dir: &std::path::Path| -> Vec<String> {
            std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect()
        };
        let left: Vec<String> = names(&dir).into_iter().chain(names(&dir.join("trace.d"))).filter(|n| n.contains("spool")).collect();
        assert!(left.is_empty(), "{name}: {left:?}");
        let report: Value = serde_json::from_str(&support::analyze(&trace).expect("a report")).expect("JSON");
        support::conserved(&report, false).unwrap();
        for run in report["runs"].as_array().expect("runs") {
            assert!(["exec", "exited"].contains(&run["end"]["kind"].as_str().unwrap_or("")), "{name}: {run}");
            assert_eq!(run["missing"], serde_json::json!([]), "{name}");
        }
    }
}

#[test]
fn a_tree_of_processes_is_one_family() {
    let Some(report) = Program::new("a_tree_of_processes_is_one_family", "forks.c").arg("nested").report(Mode::Full) else {
        return;
    };
    let family = lineage(&report);
    assert_eq!(family.len(), 6, "{family:?}");
    let with_parent = family.iter().filter(|(_, parent)| family.iter().any(|(pid, _)| pid == parent)).count();
    assert_eq!(with_parent, 5, "all but the first have their parent in the report: {family:?}");
}

#[test]
fn children_are_left_alone_when_asked() {
    let program = Program::new("children_are_left_alone_when_asked", "forks.c").arg("nested").env("MEMSHIM_CHILDREN", "skip");
    let Some(report) = program.report(Mode::Full) else {
        return;
    };
    assert_eq!(lineage(&report).len(), 1);
}

#[test]
fn the_report_says_how_the_process_ended() {
    for (how, code) in [("_exit", 41), ("_Exit", 42), ("quick_exit", 44), ("late", 45), ("busy", 46)] {
        let program = Program::new(&format!("ended_by_{how}"), "ends.c").arg(how).with_late_library();
        let Some(report) = program.report(Mode::Full) else {
            return;
        };
        let end = &report["runs"][0]["end"];
        assert_eq!((end["kind"].as_str(), end["code"].as_i64()), (Some("exited"), Some(code)), "{how}: {end}");
    }
    for (how, signal) in [("abort", 6), ("segv", 11), ("sigkill", 9), ("sigterm", 15)] {
        let program = Program::new(&format!("ended_by_{how}"), "ends.c").arg(how).with_late_library();
        let Some(report) = program.report(Mode::Run) else {
            return;
        };
        let end = &report["runs"][0]["end"];
        assert_eq!((end["kind"].as_str(), end["signal"].as_i64()), (Some("signaled"), Some(signal)), "{how}: {end}");
    }
}

/// Only the target itself has `memshim run` for a parent.
#[test]
fn a_child_that_a_signal_ended_has_it_named() {
    for mode in [Mode::Full, Mode::Fast] {
        let program = Program::new("a_child_that_a_signal_ended_has_it_named", "waits.c").arg("all");
        let Some(report) = program.report(mode) else { return };
        let runs = report["runs"].as_array().expect("runs");
        let ends: Vec<_> = runs[1..].iter().map(|r| (r["end"]["kind"].as_str().unwrap_or(""), r["end"]["signal"].as_i64())).collect();
        let known = [15, 9, 10, 12].map(|signal| ("signaled", Some(signal)));
        assert_eq!((&ends[..4], &ends[4..]), (&known[..], &[("killed", None); 2][..]));
    }
}

/// What a forked child inherited is live in it, whichever the mode; what it leaked itself is told where it is known.
#[test]
fn a_forked_child_is_shown_alike_in_both_modes() {
    for mode in ["full", "fast"] {
        let dir = support::fresh_dir(&format!("inherits_{mode}"));
        let trace = dir.join("t.jsonl");
        let mut command = std::process::Command::new(support::build("inherits.c", "inherits", &[]));
        command.env("LD_PRELOAD", support::shim()).env("MEMSHIM_OUT", &trace).env("MEMSHIM_MODE", mode);
        assert!(command.status().expect("the program").success());
        let report: serde_json::Value = serde_json::from_str(&support::analyze(&trace).unwrap()).unwrap();
        let child = report["runs"].as_array().unwrap().iter().find(|r| r["heap"]["inherited_allocs"] != 0).expect("a child");
        let heap = &child["heap"];
        let number = |key: &str| heap[key].as_u64().unwrap_or_else(|| panic!("no {key}: {heap}"));
        assert_eq!(number("live_allocs"), number("inherited_allocs") - 40 + 25, "{mode}: {heap}");
        let own = if mode == "full" { (serde_json::json!(25 * 90001), serde_json::json!(25)) } else { Default::default() };
        assert_eq!((&heap["leaked_bytes"], &heap["leaked_allocs"]), (&own.0, &own.1), "{mode}");
        let live = number("inherited_bytes") - 40 * 10008 + 25 * 90001;
        assert!(number("live_bytes").abs_diff(live) < 1000, "{mode}: {live}: {heap}");
        let pid = child["pid"].to_string();
        let text = std::process::Command::new(support::memshim()).arg("analyze").arg(&trace).args(["--pid", &pid]).output().unwrap().stdout;
        let text = support::lossy(&text);
        let says = if mode == "full" { "2.15 MiB in 25 blocks of them its own" } else { "which of them are its own, full mode tells" };
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains("at the fork, counted in what is live") && flat.contains(says), "{text}");
    }
}

#[test]
fn an_exec_that_cuts_a_line_costs_nothing_of_either_image() {
    let test = "an_exec_that_cuts_a_line_costs_nothing_of_either_image";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    let mut program = Command::new(support::build("torn_exec.c", "torn_exec", &[]));
    program.current_dir(&dir).env("LD_PRELOAD", support::shim()).env("MEMSHIM_MODE", "full");
    assert_eq!(Session::start(&mut program, &dir).finish(Duration::from_secs(20)).end(), "exit 0");
    let report: Value = serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).expect("a report")).expect("JSON");
    let runs = report["runs"].as_array().expect("runs");
    assert_eq!(runs.iter().map(|r| r["exec"].as_u64()).collect::<Vec<_>>(), [Some(0), Some(1)]);
    assert_eq!(support::counted(&report, 10_007), (5000, 5000));
    let missing: Vec<&Value> = runs.iter().filter_map(|r| r["missing"].as_array()).flatten().collect();
    assert!(missing.iter().all(|m| m["what"] != "lines"), "{missing:?}");
}

/// Threads that keep the drain busy do not keep the one who ends the process from writing the end.
#[test]
fn an_end_among_threads_that_allocate_without_a_pause_is_known() {
    let test = "an_end_among_threads_that_allocate_without_a_pause_is_known";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let program = support::build("hogs.c", "hogs", &["-pthread"]);
    for (how, mode, threads) in
        [("exit", "full", "2"), ("exit", "full", "4"), ("_exit", "full", "4"), ("exec", "full", "4"), ("exit", "fast", "4")]
    {
        let dir = support::fresh_dir(test);
        let mut command = Command::new(&program);
        command
            .args([how, threads])
            .current_dir(&dir)
            .env("LD_PRELOAD", support::shim())
            .env("MEMSHIM_MODE", mode)
            .env("MEMSHIM_STACKS", "off");
        let ran = Session::start(&mut command, &dir).finish(Duration::from_secs(60));
        let report: Value = serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).expect("a report")).expect("JSON");
        let runs = report["runs"].as_array().expect("runs");
        let last = runs.last().expect("a run");
        assert_eq!((ran.end(), &last["end"]["kind"], &last["end"]["code"]), ("exit 5".into(), &"exited".into(), &5.into()), "{how} {mode}");
        assert!(runs.iter().all(|run| run["events"]["lost"] == 0), "{how} {mode}: {}", runs[0]["missing"]);
        assert!(runs[0]["heap"]["allocs"].as_u64() > Some(10_000), "{how} {mode}: {}", runs[0]["heap"]);
        assert!(how == "exec" || !dir.join("trace.jsonl.spool").exists(), "{how} {mode}: a spool stayed");
    }
}

/// What a child freed of its parent's is in none of its own lanes' sums but as less than nothing: its child has what was left.
#[test]
fn a_grandchild_has_what_its_parent_had_left_of_both() {
    let test = "a_grandchild_has_what_its_parent_had_left_of_both";
    for mode in [Mode::Full, Mode::Fast] {
        let Some(report) = Program::new(test, "grandchild.c").report(mode) else { return };
        let last = report["runs"].as_array().and_then(|runs| runs.last()).expect("a run");
        let heap = &last["heap"];
        let number = |key: &str| heap[key].as_u64().unwrap_or_else(|| panic!("no heap.{key}: {heap}"));
        // By usable size; a map of its own has the rest of its last page.
        assert!((200_008..=200_008 + 4096).contains(&number("inherited_bytes")), "{heap}");
        assert_eq!(number("inherited_allocs"), 1, "{heap}");
        let (peak, live) = (number("peak_bytes"), number("live_bytes"));
        assert!((500_016..=500_016 + 2 * 4096).contains(&peak) && peak == live, "{heap}");
        assert_eq!(number("live_allocs"), 2, "{heap}");
    }
}
