//! Promises about Python programs: interpreter, modules in C, children by every start method.
mod support;
use std::process::Command;
use support::{Need, Session};

promises! {
    ctypes_calls_are_exact: "py_ctypes.py";
    the_mmap_module_is_seen: "py_mmap.py";
    multiprocessing_works_by_every_start_method: "py_multiprocessing.py".limit(120);
    subprocesses_see_no_more_and_no_less: "py_subprocess.py";
    faulthandler_timers_and_exit_codes_are_as_ever: "py_faults.py".exits(19);
    forks_under_native_threads_never_hang: "py_fork_threads.py";
    a_daemons_log_is_clean: "py_daemon.py";
    a_fork_is_of_one_thread_to_those_who_count: "py_fork_counted.py";
    numpy_computes_the_same: "py_arrays.py".need(Need::Module("numpy"));
}

/// The program holds 64 MiB for 400 ms a while after its forks, and has given them back when it ends.
#[test]
fn memory_is_watched_again_after_a_fork() {
    let Some(python) = support::python() else { return support::skip("memory_is_watched_again_after_a_fork", "needs Python") };
    for mode in ["fast", "full"] {
        let dir = support::fresh_dir(&format!("memory_is_watched_again_after_a_fork/{mode}"));
        let trace = dir.join("trace.jsonl");
        let mut command = Command::new(python);
        command.arg(support::root().join("tests/programs/py_fork_counted.py")).current_dir(&dir);
        command.env("LD_PRELOAD", support::shim()).env("MEMSHIM_OUT", &trace).env("MEMSHIM_MODE", mode);
        let ran = Session::start(&mut command, &dir).finish(std::time::Duration::from_secs(60));
        assert_eq!(ran.end(), "exit 0", "{}", String::from_utf8_lossy(&ran.stderr));
        let text = std::fs::read_to_string(&trace).expect("the trace");
        let lines = text.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
        let seen = lines.filter(|l| l["type"] == "rss").filter_map(|l| l["rss"].as_u64()).max();
        assert!(seen >= Some(64 << 20), "{mode}: the most that was sampled is {seen:?}");
    }
}
