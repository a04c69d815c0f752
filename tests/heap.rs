//! Promises about heap calls: every one counted, once, with its size; none changed in what it does.
mod support;
use support::{Mode, Need, Program};

promises! {
    zero_sizes_overflows_and_failures_are_counted_as_what_they_are: "heap_edges.c" ["zero"];
    aligned_allocations_keep_their_errors_and_their_counts: "heap_edges.c" ["aligned"];
    realloc_chains_have_exact_counts_peak_and_leak: "heap_edges.c" ["chain"];
    big_blocks_are_exact_in_every_mode: "heap_edges.c" ["big"];
    younger_and_older_ways_to_free_are_counted: "heap_edges.c" ["other-frees"];
    errno_is_never_changed: "heap_edges.c" ["errno"];
    blocks_made_before_any_constructor_are_known: "heap_preinit.c";
    cpp_operators_are_counted_once_each: "heap_cpp.cc";
    own_cpp_operators_stay_the_programs: "heap_cpp_own.cc";
    an_allocator_in_the_executable_stays_in_use: "heap_own.c";
    jemalloc_stays_in_use: "heap_linked.c".need(Need::Library("libjemalloc.so.2")).built_as("linked-jemalloc", &["-DJEMALLOC", "-l:libjemalloc.so.2"]);
    tcmalloc_stays_in_use: "heap_linked.c".need(Need::Library("libtcmalloc_minimal.so.4")).built_as("linked-tcmalloc", &["-DTCMALLOC", "-l:libtcmalloc_minimal.so.4"]);
    mimalloc_stays_in_use: "heap_linked.c".need(Need::Library("libmimalloc.so.2")).built_as("linked-mimalloc", &["-DMIMALLOC", "-l:libmimalloc.so.2"]);
    cpp_operators_of_jemalloc_are_counted_once_each: "heap_cpp.cc".need(Need::Library("libjemalloc.so.2")).built_as("cpp-jemalloc", &["-l:libjemalloc.so.2"]);
    cpp_operators_of_tcmalloc_are_counted_once_each: "heap_cpp.cc".need(Need::Library("libtcmalloc_minimal.so.4")).built_as("cpp-tcmalloc", &["-l:libtcmalloc_minimal.so.4"]);
    cpp_operators_of_mimalloc_are_counted_once_each: "heap_cpp.cc" ["no-throw"].need(Need::Library("libmimalloc.so.2")).built_as("cpp-mimalloc", &["-l:libmimalloc.so.2"]);
    cpp_operators_of_a_preloaded_jemalloc_are_counted_once_each: "heap_cpp.cc".preloads("libjemalloc.so.2");
    cpp_operators_of_a_preloaded_tcmalloc_are_counted_once_each: "heap_cpp.cc".preloads("libtcmalloc_minimal.so.4");
    cpp_operators_of_a_preloaded_mimalloc_are_counted_once_each: "heap_cpp.cc" ["no-throw"].preloads("libmimalloc.so.2");
    a_preloaded_jemalloc_serves_threads: "heap_threads.c" ["exchange"].preloads("libjemalloc.so.2");
    a_preloaded_tcmalloc_serves_threads: "heap_threads.c" ["exchange"].preloads("libtcmalloc_minimal.so.4");
    a_preloaded_mimalloc_serves_threads: "heap_threads.c" ["exchange"].preloads("libmimalloc.so.2");
    blocks_freed_by_other_threads_are_exact: "heap_threads.c" ["exchange"];
    address_reuse_across_threads_leaves_no_phantom_leaks: "heap_threads.c" ["reuse"].env("MALLOC_ARENA_MAX", "1").env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");
    of_many_threads_each_keeps_its_own_blocks: "heap_threads.c" ["owners"].env("MALLOC_ARENA_MAX", "1").env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0").limit(120);
    few_blocks_left_on_each_page_are_found_again: "thinned.c".limit(120);
    bursts_lose_nothing_and_do_not_grow_the_process: "heap_threads.c" ["burst"].limit(120);
}

/// Threads that hand addresses to each other are read in some order; of each sampled block that was freed the free is there too.
#[test]
fn sampled_blocks_that_other_threads_free_are_no_leaks() {
    let test = "sampled_blocks_that_other_threads_free_are_no_leaks";
    for (soname, runs) in [("", 2), ("libtcmalloc_minimal.so.4", 6), ("libjemalloc.so.2", 2), ("libmimalloc.so.2", 2)] {
        for _ in 0..runs {
            let program = Program::new(test, "heap_threads.c").arg("exchange");
            let program = if soname.is_empty() { program } else { program.preloads(soname) };
            let Some(report) = program.report(Mode::Fast) else { break };
            let estimated = report["runs"][0]["heap"]["sizes_estimated"].as_array().expect("sizes");
            let of = estimated.iter().find(|e| e["size"] == 6007).expect("the program's size");
            assert!(of["samples"].as_u64() > Some(1000) && of["allocs"] == of["frees"], "{soname}: {of}");
        }
    }
}

/// The blocks that were live at the peak are gone at every look of the writer: the bound must hold all the same.
#[test]
fn the_bound_of_a_short_programs_peak_holds_the_true_one() {
    for rounds in ["1", "300"] {
        let test = format!("the_bound_of_a_short_programs_peak_holds_the_true_one-{rounds}");
        let Some(report) = Program::new(&test, "peaks.c").arg(rounds).report(Mode::Fast) else { return };
        let heap = &report["runs"][0]["heap"];
        let number = |key: &str| heap[key].as_i64().unwrap_or_else(|| panic!("no heap.{key}: {heap}"));
        let (true_peak, peak, bound) = (10_000 + 50 * 200_000, number("peak_bytes"), number("peak_bound_bytes"));
        assert!((peak - true_peak).abs() <= bound, "{rounds} rounds: {true_peak} is not {peak} ± {bound}");
        assert!(bound <= 10_050 * 31 + 50 * 4200 + 4096, "{rounds} rounds: ± {bound} says too little");
        let live = number("live_bound_bytes");
        assert!(live <= 4096, "{rounds} rounds: live at the end ± {live}");
    }
}

/// Four threads at once, between two looks: each one's own peak is known, and that they were at once by their events.
#[test]
fn blocks_of_many_threads_that_are_events_are_at_once_in_fast_mode_too() {
    let test = "blocks_of_many_threads_that_are_events_are_at_once_in_fast_mode_too";
    let Some(report) = Program::new(test, "held_together.c").report(Mode::Fast) else { return };
    let heap = &report["runs"][0]["heap"];
    let number = |key: &str| heap[key].as_i64().unwrap_or_else(|| panic!("no heap.{key}: {heap}"));
    let (held, peak, bound) = ((4 * 24) << 20, number("peak_bytes"), number("peak_bound_bytes"));
    // Beside them what the C library holds for threads, and the rest of a page of each block.
    assert!(peak + bound >= held && peak - bound <= held + 4 * 2048, "{held} is not {peak} ± {bound}");
    assert!(bound < held / 100, "{peak} ± {bound} says too little");
}

/// Recorded blocks at one distance from each other: what is noted of where they lie must hold all of them.
#[test]
fn recorded_blocks_of_one_stride_are_all_seen_to_end() {
    let test = "recorded_blocks_of_one_stride_are_all_seen_to_end";
    let program = Program::new(test, "strides.c").env("MEMSHIM_BIG", "64MiB").env("MEMSHIM_SAMPLE", "1KiB");
    let Some(report) = program.report(Mode::Fast) else { return };
    let run = &report["runs"][0];
    let of = run["heap"]["sizes_estimated"].as_array().expect("sizes").iter().find(|e| e["size"] == 1_044_000).expect("the program's size");
    assert_eq!((&of["samples"], &of["allocs"]), (&600.into(), &of["frees"]), "{of}");
    assert!(run["sites_total"]["leaked_bytes"].as_u64() < Some(1 << 20), "{}", run["sites_total"]);
}
