//! Promises about CUPTI, held on one of our own (`tests/fakecuda`) over the driver of our own: what it tells is exact, and where it cannot
//! be had, or the program wants it, events go on and the trace says why.

use super::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

fn library() -> PathBuf {
    fake("libcupti.so.13", &[])
}

/// A link to the library in a folder of its own.
fn library_at(path: &Path) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    let _ = fs::remove_file(path);
    symlink(library(), path).expect("a link");
}

/// A toolkit that has CUPTI.
fn toolkit(test: &str) -> String {
    let root = support::fresh_dir(&format!("cuda_toolkit_{test}"));
    library_at(&root.join("extras/CUPTI/lib64/libcupti.so.13"));
    let dir = support::out_dir().to_str().expect("a path in UTF-8").to_owned();
    support::build(
        "cuda/cupti_user.c",
        "libcupti_user.so",
        &["-shared", "-fPIC", &format!("-L{dir}"), "-l:libcupti.so.13", &format!("-Wl,-rpath,{dir}")],
    );
    root.to_str().expect("a path in UTF-8").to_owned()
}

/// Runs a mode of a program with `MEMSHIM_GPU_TIMING=cupti`; `more` goes to both CUPTI and memshim.
fn asked(test: &str, (source, mode, way): (&str, &str, &str), more: &[(&str, &str)]) -> Gpu {
    let home = toolkit(test);
    let env: Vec<(&str, &str)> = [("MEMSHIM_GPU_TIMING", "cupti"), ("CUDA_HOME", &home)].into_iter().chain(more.iter().copied()).collect();
    gpu_with(source, mode, way, Mode::Full, &env)
}

/// The same, where CUPTI is to be had: the program waits until it is switched on.
pub fn told(test: &str, program: (&str, &str, &str), more: &[(&str, &str)]) -> Gpu {
    let more: Vec<(&str, &str)> = more.iter().copied().chain([("FAKE_CUPTI_EXPECTED", "1")]).collect();
    let g = asked(test, program, &more);
    assert!(!g.at("/cupti").is_null(), "{}", g.run["gpu"]);
    // Copies from host to host are not asked about: most are done by the processor.
    let by_host = g.transfers().iter().filter(|(key, _)| key.starts_with("H2H")).map(|(_, t)| t.0).sum::<u64>();
    // Faster than any driver is, calls can be forgotten before their records come: that is said too.
    assert!(g.number("/cupti/unknown_records") == by_host || program.1 == "many", "{}", g.at("/cupti"));
    g
}

fn ns(v: &Value) -> u64 {
    (v.as_f64().unwrap_or_else(|| panic!("no number: {v}")) * 1e9).round() as u64
}

/// A time of the first device's work, in nanoseconds.
fn device_ns(g: &Gpu, key: &str) -> u64 {
    ns(&g.at("/devices/0")["work"][key])
}

/// Name, count and nanoseconds of the kernels.
fn kernels(g: &Gpu) -> Vec<(String, u64, u64)> {
    let rows = g.at("/kernels/by_name").as_array().expect("a list").iter();
    rows.map(|k| (k["name"].as_str().expect("text").to_owned(), k["count"].as_u64().expect("count"), ns(&k["device_s"]))).collect()
}

#[test]
fn kernels_copies_and_their_overlap_are_exact_by_cupti() {
    let test = "kernels_copies_and_their_overlap_are_exact_by_cupti";
    if skipped(test) {
        return;
    }
    for way in WAYS {
        let g = told(test, ("cupti", "work", way), &[]);
        assert_eq!((g.at("/timing"), g.at("/timing_reason"), g.number("/untimed")), (&json!("cupti"), &Value::Null, 0), "{way}");
        let spin = |n: u64, count: u64| (format!("void spin<(long){n}>()"), count, n * count);
        assert_eq!(kernels(&g), [spin(1_000_000, 3), spin(250_000, 4), spin(500_000, 2), spin(100_000, 1)], "{way}");
        assert_eq!((g.number("/kernels/count"), ns(g.at("/kernels/device_s")), g.number("/kernels/names")), (10, 5_100_000, 4), "{way}");
        let device = |key: &str| device_ns(&g, key);
        assert_eq!(["busy_s", "kernel_s", "copy_s", "overlap_s"].map(device), [4_302_000, 4_100_000, 604_000, 402_000], "{way}");
        let all = g.at("/streams").as_array().expect("a list").iter();
        let mut seen: Vec<_> = all
            .map(|s| {
                let times = ["busy_s", "kernel_s", "copy_s", "overlap_s"].map(|k| ns(&s[k]));
                (s["kind"].as_str().expect("text"), s["kernels"].as_u64(), s["copies"].as_u64(), times)
            })
            .collect();
        seen.sort();
        let own = ("per thread", Some(2), Some(0), [500_000, 500_000, 0, 0]);
        assert_eq!(
            seen,
            [
                ("default", Some(1), Some(0), [100_000, 100_000, 0, 0]),
                ("made", Some(0), Some(1), [402_000, 0, 402_000, 402_000]),
                ("made", Some(2), Some(0), [1_000_000, 1_000_000, 0, 1_000_000]),
                ("made", Some(3), Some(1), [3_202_000, 3_000_000, 202_000, 1_000_000]),
                own,
                own,
            ],
            "{way}"
        );
    }
}

#[test]
fn copies_take_as_long_by_cupti_as_by_events() {
    let test = "copies_take_as_long_by_cupti_as_by_events";
    if skipped(test) {
        return;
    }
    for way in ["proc", "linked"] {
        let g = told(test, ("copies", "all", way), &[]);
        assert_eq!(g.transfers(), g.expected(), "{way}");
        assert_eq!(g.number("/untimed"), 0, "{way}");
        for t in g.at("/transfers").as_array().expect("a list") {
            let rate = t["timed_bytes"].as_f64().unwrap_or(0.0) / t["device_s"].as_f64().unwrap_or(1.0) / 1e9;
            // Prefetches, and copies from host to host, are no work that CUPTI tells of.
            let by = if t["memory"] == "managed" || t["direction"] == "H2H" { ["events", "cupti"] } else { ["cupti"; 2] };
            assert!((t["gb_per_s"].as_f64().expect("a rate") - rate).abs() < 1e-9 && by.iter().any(|by| t["timing"] == *by), "{t}");
        }
    }
    let g = told(test, ("streams", "overlap", "proc"), &[]);
    let made: Vec<&Value> = g.at("/streams").as_array().expect("a list").iter().filter(|s| s["kind"] == "made").collect();
    assert_eq!(made.iter().map(|s| ns(&s["busy_s"])).collect::<Vec<_>>(), [604_000, 502_000]);
    assert_eq!(made.iter().map(|s| ns(&s["overlap_s"])).collect::<Vec<_>>(), [402_000, 402_000]);
}

/// 6 µs down and 12 up, in one call.
#[test]
fn a_batch_of_both_directions_keeps_its_stream_busy_and_each_has_no_time_of_its_own() {
    let test = "a_batch_of_both_directions_keeps_its_stream_busy_and_each_has_no_time_of_its_own";
    if skipped(test) {
        return;
    }
    for way in WAYS {
        let g = told(test, ("copies", "mixed", way), &[]);
        let expected = [("D2H pinned", (1, 200_000, 0)), ("H2D pinned", (1, 100_000, 0))].map(|(k, v)| (k.to_owned(), v));
        assert_eq!((g.transfers(), g.number("/untimed")), (BTreeMap::from(expected), 0), "{way}");
        let all = g.at("/streams").as_array().expect("a list").iter();
        assert_eq!(all.map(|s| (s["copies"].as_u64(), ns(&s["copy_s"]))).collect::<Vec<_>>(), [(Some(2), 18_000)], "{way}");
    }
}

#[test]
fn pointers_to_nowhere_are_not_followed_with_cupti_either() {
    let test = "pointers_to_nowhere_are_not_followed_with_cupti_either";
    if skipped(test) {
        return;
    }
    for mode in ["all", "by_itself"] {
        let g = told(test, ("refused", mode, "proc"), &[]);
        let failed = g.at("/failed").as_array().expect("a list").iter().map(|f| f["count"].as_u64().expect("a number"));
        let refused = g.stdout.lines().filter(|l| l.starts_with("REFUSED ")).count() as u64;
        assert_eq!((failed.sum::<u64>(), g.number("/untimed")), (if mode == "all" { refused } else { 7 }, 0), "{mode}");
    }
}

#[test]
fn a_graph_has_the_times_of_its_nodes() {
    let test = "a_graph_has_the_times_of_its_nodes";
    if skipped(test) {
        return;
    }
    let g = told(test, ("streams", "graphs", "proc"), &[]);
    let all = g.at("/graphs");
    // As by events: copies at the rate of the device, one of half a MiB, a memset, and a kernel of 5 µs.
    let nodes = |copies: u64| copies * 3048 + 2524 + 2002 + 5000;
    let took = 16 * nodes(2) + 4 * nodes(3);
    assert_eq!((ns(&all[0]["device_s"]), ns(&all[0]["node_s"]), &all[0]["timed_launches"]), (took, took, &json!(20)));
    // The update has made it another graph: its nodes are others.
    assert_eq!((&all[0]["node_runs"], all[0]["nodes"].as_array().expect("a list").len()), (&json!(16 * 5 + 4 * 6), 11));
    let of_kernel = |n: &&Value| n["kind"] == "kernel";
    let kernels: Vec<_> =
        all[0]["nodes"].as_array().expect("a list").iter().filter(of_kernel).map(|n| (n["count"].as_u64(), ns(&n["device_s"]))).collect();
    assert_eq!(kernels, [(Some(16), 80_000), (Some(4), 20_000)]);
    assert_eq!(all[0]["bytes_per_launch"], json!({"H2D": 3 * MIB, "D2H": MIB / 2, "memset": 4096}), "bytes are those of the calls");
    assert_eq!(g.at("/kernels/by_name/0/in_graphs"), 24);
}

#[test]
fn records_of_every_known_version_are_read() {
    let test = "records_of_every_known_version_are_read";
    if skipped(test) {
        return;
    }
    for version in ["17", "18", "24", "28", "130001", "130301", "130500", "130900"] {
        let g = told(test, ("cupti", "work", "proc"), &[("FAKE_CUPTI_VERSION", version)]);
        assert_eq!((g.number("/cupti/version").to_string(), ns(g.at("/kernels/device_s"))), (version.to_owned(), 5_100_000));
        assert_eq!(device_ns(&g, "busy_s"), 4_302_000, "{version}");
    }
}

#[test]
fn work_has_its_time_also_when_somebody_sets_the_clock() {
    let test = "work_has_its_time_also_when_somebody_sets_the_clock";
    if skipped(test) {
        return;
    }
    for step in ["0", "3600", "-3600"] {
        let g = told(test, ("cupti", "work", "proc"), &[("FAKE_CUPTI_STEPS", step)]);
        let lines: Vec<Value> =
            fs::read_to_string(&g.trace).expect("a trace").lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
        let rows = lines.iter().filter(|l| l["type"] == "gpu").flat_map(|l| l["ev"].as_array().expect("rows"));
        let times: Vec<u64> = rows.filter(|row| row[0] == "work").map(|row| row[3].as_u64().expect("a time")).collect();
        let (from, to) =
            (lines[0]["mono_ns"].as_u64().expect("the start"), lines.iter().rev().find_map(|l| l["t"].as_u64()).expect("the end"));
        // The driver's clock is not the machine's: by milliseconds at most.
        let within = |t: &u64| (from..to + 1_000_000_000).contains(t);
        assert!(times.len() == 10 + 2 && times.iter().all(within), "{step}: {times:?} of {from}..{to}");
        assert_eq!(device_ns(&g, "busy_s"), 4_302_000, "{step}");
    }
}

#[test]
fn work_of_a_stream_that_is_gone_is_still_its_own() {
    let test = "work_of_a_stream_that_is_gone_is_still_its_own";
    if skipped(test) {
        return;
    }
    let g = told(test, ("cupti", "short_streams", "proc"), &[]);
    let made = g.at("/streams").as_array().expect("a list").iter().filter(|s| s["kind"] == "made" && s["kernels"] == 1);
    let mut times: Vec<u64> = made.map(|s| ns(&s["kernel_s"])).collect();
    times.sort_unstable();
    assert_eq!(times, (1..=20).map(|i| i * 10_000).collect::<Vec<_>>());
}

#[test]
fn where_cupti_is_not_to_be_had_events_time_and_the_report_says_why() {
    let test = "where_cupti_is_not_to_be_had_events_time_and_the_report_says_why";
    if skipped(test) {
        return;
    }
    let cases = [
        (("FAKE_CUPTI_HELD", "1"), "another tool holds CUPTI: nsys, ncu, a debugger or a profiler in the program (39)"),
        (("FAKE_CUPTI_REFUSES", "35"), "insufficient privileges (the driver's NVreg_RestrictProfilingToAdminUsers) (35)"),
        (("FAKE_CUPTI_VERSION", "140000"), "is of version 140000, whose records are not known"),
        (("FAKE_CUPTI_VERSION", "16"), "is of version 16, whose records are not known"),
        (("CUDA_HOME", "/nowhere"), "no libcupti: not loaded, not beside libcudart"),
    ];
    for (mood, why) in cases {
        if why.starts_with("no libcupti") && support::find_library("libcupti.so.13").is_some() {
            support::skip(test, "there is a CUPTI on the loader's path");
            continue;
        }
        let g = asked(test, ("cupti", "work", "proc"), &[mood]);
        let reason = g.at("/timing_reason").as_str().expect("a reason");
        assert!(reason.contains(why) && g.at("/timing") == "events", "{mood:?}: {reason}");
        assert!(g.at("/cupti").is_null() && g.at("/kernels").is_null(), "{mood:?}");
        assert_eq!(g.transfers(), BTreeMap::from([("H2D pinned".to_owned(), (2, 15_000_000, 604_000))]), "{mood:?}");
    }
}

#[test]
fn a_program_that_takes_cupti_for_itself_gets_it() {
    let test = "a_program_that_takes_cupti_for_itself_gets_it";
    if skipped(test) {
        return;
    }
    let both = BTreeMap::from([("H2D pinned".to_owned(), (2, 15_000_000, 604_000))]);
    for (mode, way) in [("takes", "dlsym"), ("takes_linked", "proc")] {
        let g = told(test, ("cupti", mode, way), &[]);
        assert!(g.stdout.contains("it answers 0"), "{mode}: {}", g.stdout);
        assert_eq!((g.at("/timing"), g.at("/timing_reason")), (&json!("events"), &json!("the program uses CUPTI itself")), "{mode}");
        // What ran before is known by CUPTI, the copy after it by events.
        assert_eq!((kernels(&g), g.transfers()), (vec![("void spin<(long)1000000>()".to_owned(), 4, 4_000_000)], both.clone()), "{mode}");
    }
    let g = asked(test, ("cupti", "took", "dlsym"), &[]);
    assert!(g.stdout.contains("it answers 0"), "{}", g.stdout);
    assert_eq!((g.at("/timing"), g.at("/timing_reason")), (&json!("events"), &json!("the program uses CUPTI itself")));
    assert_eq!(g.transfers(), BTreeMap::from([("H2D pinned".to_owned(), (1, 10_000_000, 402_000))]));
}

#[test]
fn what_cupti_drops_or_never_tells_is_counted() {
    let test = "what_cupti_drops_or_never_tells_is_counted";
    if skipped(test) {
        return;
    }
    let g = told(test, ("cupti", "work", "proc"), &[("FAKE_CUPTI_DROPS", "3")]);
    assert_eq!((g.number("/cupti/dropped_records"), g.number("/kernels/count"), g.number("/untimed")), (3, 7, 0));
    // A flush that never returns: the program ends all the same.
    let g = told(test, ("cupti", "work", "proc"), &[("FAKE_CUPTI_HANGS", "1")]);
    assert_eq!((g.number("/untimed"), g.at("/transfers/0/count")), (2, &json!(2)));
}

#[test]
fn rough_programs_end_as_they_would_beside_cupti() {
    let test = "rough_programs_end_as_they_would_beside_cupti";
    if skipped(test) {
        return;
    }
    // mode, copies, of which timed at least
    for (mode, copies, timed) in [
        ("forks", 20, 20),
        ("forks_again", 40, 40),
        ("reset_in_flight", 55, 5),
        ("exit_with_work", 50, 0),
        ("threads_leave_captures", 10, 10),
        ("many", 100_000, 1000),
        ("main_leaves", 2, 2),
    ] {
        let g = told(test, ("rough", mode, "proc"), &[]);
        let t = g.at("/transfers/0");
        assert_eq!(t["count"], copies, "{mode}: {t}");
        let seen = t["timed_count"].as_u64().expect("timed_count");
        assert!(seen >= timed && seen + g.number("/untimed") == copies, "{mode}: {seen} timed, {} not", g.number("/untimed"));
    }
    let g = told(test, ("streams", "captures", "proc"), &[]);
    assert_eq!((g.number("/graphs_total/captures"), g.number("/graphs_total/failed_captures"), g.number("/untimed")), (40, 2, 0));
}

#[test]
fn cupti_is_found_where_programs_have_it() {
    let test = "cupti_is_found_where_programs_have_it";
    if skipped(test) {
        return;
    }
    let root = support::fresh_dir("cuda_places");
    let at = |path: &str| root.join(path).to_str().expect("a path in UTF-8").to_owned();
    program("cupti", "proc");
    let lib = |path: &str| {
        fs::create_dir_all(root.join(path).parent().expect("a folder")).expect("a folder");
        fs::copy(support::out_dir().join("libcuda_plugin.so"), root.join(path)).expect("a library");
        at(path)
    };
    let opened = library().to_str().expect("a path in UTF-8").to_owned();
    let (runtime, package) = (lib("runtime/cuda_runtime/lib/libcudart.so.13"), lib("python/site-packages/thing/thing.so"));
    for path in [
        "home/extras/CUPTI/lib64/libcupti.so.13",
        "path/lib64/libcupti.so.12",
        "packages/nvidia/cu13/lib/libcupti.so.13",
        "python/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12",
        "runtime/cuda_cupti/lib/libcupti.so.13",
        "loader/libcupti.so.13",
    ] {
        library_at(&root.join(path));
    }
    let packages = format!("/nowhere:{}", at("packages"));
    for (env, found) in [
        (("CUDA_HOME", at("home")), "home/extras/CUPTI/lib64/libcupti.so.13"),
        (("CUDA_PATH", at("path")), "path/lib64/libcupti.so.12"),
        (("PYTHONPATH", packages), "packages/nvidia/cu13/lib/libcupti.so.13"),
        (("LD_LIBRARY_PATH", at("loader")), "loader/libcupti.so.13"),
        (("PROGRAM_OPENS", package), "python/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12"),
        (("PROGRAM_OPENS", runtime), "cuda_cupti/lib/libcupti.so.13"),
        (("PROGRAM_OPENS", opened), "libcupti.so.13"),
    ] {
        let env = [("MEMSHIM_GPU_TIMING", "cupti"), ("FAKE_CUPTI_EXPECTED", "1"), (env.0, env.1.as_str())];
        let g = gpu_with("cupti", "opens", "proc", Mode::Full, &env);
        let library = g.at("/cupti/library").as_str().expect("a path");
        assert!(library.ends_with(found), "{env:?}: {library}");
        assert_eq!(device_ns(&g, "busy_s"), 4_302_000, "{env:?}");
    }
}
