//! Promises about threads, signals, stacks and libraries: whatever the instant, whatever the stack.
mod support;
use support::{Mode, Program};

promises! {
    five_hundred_threads_at_once_are_exact: "heap_threads.c" ["crowd"];
    thread_churn_leaks_nothing: "heap_threads.c" ["churn"].limit(120);
    the_smallest_stacks_suffice: "heap_threads.c" ["small-stacks"];
    cancelled_threads_hold_nothing: "heap_threads.c" ["cancel"];
    the_process_outlives_its_main_thread: "heap_threads.c" ["main-leaves"];
    thread_exit_destructors_are_counted: "thread_exit.cc";

    fibers_are_threads_like_others: "stacks.c" ["fibers"];
    garbage_frame_pointers_are_not_followed: "stacks.c" ["frame-pointers"];
    deep_stacks_and_the_last_bytes_of_a_stack_suffice: "stacks.c" ["deep"];

    handlers_inside_hooks_are_recorded: "signals.c" ["inside-hooks"];
    handlers_on_small_stacks_may_allocate: "signals.c" ["small-stack"];
    jumps_out_of_hooks_leave_nothing_stuck: "signals.c" ["jump-out"];
    blocked_signals_reach_only_who_waits_for_them: "signals.c" ["waited-for"];
    masks_handlers_timers_and_stacks_are_untouched: "signals.c" ["untouched"];
    the_programs_fault_handlers_stay_its_own: "signals.c" ["own-faults"];

    a_library_constructor_may_wait_for_a_thread: "plugins.c" ["constructor"].with("plugin.c", "constructor.so", &["-shared", "-fPIC", "-DCONSTRUCTOR"]);
    libraries_with_thread_storage_are_safe: "plugins.c" ["storage"].with("plugin.c", "storage.so", &["-shared", "-fPIC", "-DSTORAGE"]);
    deeply_bound_libraries_exchange_blocks: "plugins.c" ["deep-binding"].with("plugin.c", "grab-one.so", &["-shared", "-fPIC"]);
    unloaded_libraries_leave_their_blocks: "plugins.c" ["unloading"].with("plugin.c", "grab-one.so", &["-shared", "-fPIC"]).with("plugin.c", "grab-two.so", &["-shared", "-fPIC", "-DSIZE=18013"]);
    another_interposer_works_before_and_after: "plugins.c" ["rival"].with("plugin.c", "rival.so", &["-shared", "-fPIC", "-DRIVAL"]);
}

#[test]
fn threads_are_reported_by_their_names() {
    let program = Program::new("threads_are_reported_by_their_names", "heap_threads.c").arg("named");
    let Some(report) = program.report(Mode::Full) else {
        return;
    };
    let threads = report["runs"][0]["threads"].as_array().expect("threads");
    for (name, allocs) in [("packer", 250), ("sorter", 350)] {
        let found = threads.iter().find(|t| t["name"] == name).unwrap_or_else(|| panic!("no thread {name}: {threads:?}"));
        let number = |key: &str| found[key].as_u64().unwrap_or(0);
        assert!(number("allocs") >= allocs && number("bytes") >= allocs * 9973, "{found}");
    }
}

/// Of more threads at once than there are lanes every call is counted; what could not be an event is lost, and said.
#[test]
fn threads_beyond_the_lanes_are_counted_exactly() {
    const THREADS: u64 = 2500;
    for mode in [Mode::Full, Mode::Fast] {
        let test = format!("threads_beyond_the_lanes_are_counted_exactly-{mode:?}");
        let Some(report) = Program::new(&test, "crowd.c").arg(&THREADS.to_string()).limit(120).report(mode) else { return };
        let run = &report["runs"][0];
        if run["end"]["code"] == 77 {
            support::skip(&test, "this machine does not allow 2,500 threads at once");
            return;
        }
        assert_eq!((&run["end"]["kind"], &run["end"]["code"]), (&"exited".into(), &0.into()));
        let number = |group: &str, key: &str| run[group][key].as_u64().unwrap_or_else(|| panic!("no {group}.{key}: {}", run[group]));
        // 40 pairs, one grown block and one kept; beside them what main and the C library do.
        let mallocs = run["heap"]["by_function"]["malloc"]["allocs"].as_u64().expect("mallocs");
        assert!((42 * THREADS..42 * THREADS + 10).contains(&mallocs), "{mode:?}: {mallocs} calls of malloc");
        assert_eq!(run["heap"]["by_function"]["realloc"]["allocs"], THREADS, "{mode:?}");
        // What the loader made for a thread is freed with stacks that are not kept.
        let frees = run["heap"]["by_function"]["free"]["frees"].as_u64().expect("frees");
        assert!((42 * THREADS..43 * THREADS + 10).contains(&frees), "{mode:?}: {frees} calls of free");
        assert_eq!(number("events", "counted"), number("events", "recorded") + number("events", "lost"));
        let notes = run["notes"].to_string();
        assert!(notes.contains("more threads ran at once"), "{mode:?}: {notes}");
        if mode == Mode::Full {
            // Threads beyond 2,047, main's own lane and those that get a lane late among them.
            let lost = number("events", "lost");
            assert!(((THREADS - 2047) * 80..=(THREADS - 2000) * 85).contains(&lost), "{lost} lost");
            assert!(run["missing"].to_string().contains("more threads ran at once"), "{}", run["missing"]);
        } else {
            let (peak, bound) = (number("heap", "peak_bytes"), number("heap", "peak_bound_bytes"));
            assert!(peak + bound >= THREADS * 2000 && bound < THREADS * 4000, "{}", run["heap"]);
            assert!(number("heap", "live_bytes") < 1 << 20, "{}", run["heap"]);
        }
        assert_eq!(report["runs"][1]["heap"]["by_function"]["malloc"]["allocs"], 10, "the child: {}", report["runs"][1]["heap"]);
    }
}
