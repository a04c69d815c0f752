//! Promises about GPUs, held on a driver of our own (`tests/programs/cuda/fake.c`), whose clock is moved by waiting alone: so bytes, counts
//! and device times are known to the digit.
mod support;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use support::{Mode, Need, Session};

/// How a program finds the driver's functions.
const WAYS: [&str; 4] = ["dlsym", "proc", "proc1", "linked"];

struct Gpu {
    stdout: String,
    run: Value,
}

fn driver() -> PathBuf {
    support::build("cuda/fake.c", "libcuda.so.1", &["-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-soname,libcuda.so.1"])
}

fn program(source: &str, way: &str) -> PathBuf {
    driver();
    for (source, made) in [("plugin", "libcuda_plugin.so"), ("c10", "libc10.so"), ("plugin", "cupy_runtime.so")] {
        support::build(&format!("cuda/{source}.c"), made, &["-shared", "-fPIC"]);
    }
    let dir = support::out_dir().to_str().expect("a path in UTF-8");
    let (built, flags) = match way {
        "linked" => ("linked", vec!["-DBY_LINK".to_owned(), format!("-L{dir}"), "-l:libcuda.so.1".to_owned(), format!("-Wl,-rpath,{dir}")]),
        _ => ("looked_up", vec![]),
    };
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    support::build(&format!("cuda/{source}.c"), &format!("cuda_{source}_{built}"), &flags)
}

/// Runs a mode of a program bare and preloaded: it must say and do the same; then its report.
fn gpu_with(source: &str, mode: &str, way: &str, memshim: Mode, env: &[(&str, &str)]) -> Gpu {
    let name = format!("cuda_{source}_{mode}_{way}_{memshim:?}_{}", env.iter().map(|(_, v)| *v).collect::<Vec<_>>().join("_"));
    let dir = support::fresh_dir(&name);
    driver();
    let go = |preload: bool| {
        let at = dir.join(if preload { "with" } else { "bare" });
        std::fs::create_dir_all(&at).expect("a folder");
        let mut c = match source.strip_suffix(".py") {
            Some(_) => {
                let mut c = Command::new(support::python().expect("checked before"));
                c.arg(support::root().join("tests/programs/cuda").join(source));
                c
            }
            None => Command::new(program(source, way)),
        };
        c.args([mode, way]).current_dir(&at).env("PROGRAM_DIR", support::out_dir());
        if preload {
            let level = if memshim == Mode::Fast { "fast" } else { "full" };
            c.env("LD_PRELOAD", support::shim()).env("MEMSHIM_MODE", level).envs(env.iter().copied());
        }
        Session::start(&mut c, &at).finish(Duration::from_secs(60))
    };
    let (bare, with) = (go(false), go(true));
    let ended = |r: &support::Ran| r.status.map(|s| s.code());
    assert_eq!(support::lossy(&with.stdout), support::lossy(&bare.stdout), "{name}: stdout; stderr: {}", support::lossy(&with.stderr));
    assert_eq!((ended(&with), &with.stderr), (ended(&bare), &bare.stderr), "{name}");
    assert!(bare.status.is_some_and(|s| s.success()), "{name}: {}", support::lossy(&bare.stdout));
    let text = support::analyze(&dir.join("with/trace.jsonl")).unwrap_or_else(|why| panic!("{name}: {why}"));
    let mut report: Value = serde_json::from_str(&text).expect("JSON");
    let run = report["runs"][0].take();
    support::conserved(&json!({"runs": [run]}), false).unwrap_or_else(|why| panic!("{name}: {why}"));
    assert!(run["gpu"].is_null() || run["gpu"]["lost"] == 0, "{name}");
    Gpu { stdout: support::lossy(&with.stdout), run }
}

fn gpu(source: &str, mode: &str, way: &str) -> Gpu {
    gpu_with(source, mode, way, Mode::Full, &[])
}

fn skipped(test: &str) -> bool {
    support::lacks(test, &[Need::Preload])
}

impl Gpu {
    fn at(&self, pointer: &str) -> &Value {
        self.run["gpu"].pointer(pointer).unwrap_or_else(|| panic!("no {pointer}: {}", self.run["gpu"]))
    }

    fn number(&self, pointer: &str) -> u64 {
        self.at(pointer).as_u64().unwrap_or_else(|| panic!("{pointer} is no number: {}", self.at(pointer)))
    }

    /// `direction memory` → count, bytes, nanoseconds on the device.
    fn transfers(&self) -> BTreeMap<String, (u64, u64, u64)> {
        let rows = self.at("/transfers").as_array().expect("a list").iter();
        let mut sums = BTreeMap::<String, (u64, u64, u64)>::new();
        for t in rows {
            let key = format!("{} {}", t["direction"].as_str().expect("text"), t["memory"].as_str().expect("text"));
            let ns = (t["device_s"].as_f64().unwrap_or(0.0) * 1e9).round() as u64;
            let sum = sums.entry(key).or_default();
            *sum = (sum.0 + t["count"].as_u64().expect("count"), sum.1 + t["bytes"].as_u64().expect("bytes"), sum.2 + ns);
        }
        sums
    }

    /// What the program says that it should be.
    fn expected(&self) -> BTreeMap<String, (u64, u64, u64)> {
        let rows = self.stdout.lines().filter_map(|l| l.strip_prefix("EXPECT "));
        rows.map(|l| {
            let w: Vec<&str> = l.split(' ').collect();
            let n = |i: usize| w[i].parse().expect("a number");
            (format!("{} {}", w[0], w[1]), (n(2), n(3), n(4)))
        })
        .collect()
    }
}

const MIB: u64 = 1 << 20;

#[test]
fn device_memory_is_counted_whichever_way_the_driver_is_found() {
    if skipped("device_memory_is_counted_whichever_way_the_driver_is_found") {
        return;
    }
    for way in WAYS {
        for mode in [Mode::Full, Mode::Fast] {
            let g = gpu_with("memory", "plain", way, mode, &[]);
            assert_eq!(g.number("/devices/0/peak_bytes"), 7 * MIB, "{way}");
            assert_eq!((g.number("/devices/0/live_bytes"), g.number("/devices/0/live_allocs")), (MIB, 1), "{way}");
            assert_eq!((g.number("/devices/0/allocs"), g.number("/devices/0/frees")), (3, 2), "{way}");
            assert_eq!(g.number("/devices/0/classes/managed/peak_bytes"), 2 * MIB);
            assert_eq!((g.number("/devices/0/total_bytes"), g.number("/devices/0/unattributed_bytes")), (80 << 30, 300 * MIB));
            assert_eq!(g.at("/devices/0/name"), "Fake GPU 0");
            assert_eq!(
                *g.at("/failed"),
                json!([{"call": "cuMemAlloc", "code": 2, "count": 1}, {"call": "cuMemFree", "code": 1, "count": 1}])
            );
            assert_eq!(g.number("/calls"), 10);
        }
    }
}

#[test]
fn the_first_abi_of_32_bits_is_read_as_such() {
    if skipped("the_first_abi_of_32_bits_is_read_as_such") {
        return;
    }
    for way in WAYS {
        let g = gpu("memory", "narrow", way);
        assert_eq!((g.number("/devices/0/peak_bytes"), g.number("/devices/0/live_bytes")), (3 * MIB, 0), "{way}");
        let t = g.transfers();
        assert_eq!((t["memset device"].1, t["D2H pageable"].1), (MIB, MIB), "{way}");
        let g = gpu("copies", "narrow", way);
        assert_eq!(g.transfers(), g.expected(), "{way}");
    }
}

#[test]
fn pinned_memory_is_a_class_of_its_own() {
    if skipped("pinned_memory_is_a_class_of_its_own") {
        return;
    }
    let g = gpu("memory", "host", "proc");
    assert_eq!((g.number("/pinned_peak_bytes"), g.number("/pinned/live_bytes")), (13 * MIB, 5 * MIB));
    assert_eq!((g.number("/pinned/allocated_peak_bytes"), g.number("/pinned/registered_peak_bytes")), (8 * MIB, 8 * MIB));
    assert_eq!(g.number("/devices/0/peak_bytes"), 0);
}

#[test]
fn pools_are_known_by_their_blocks_and_by_what_they_reserve() {
    if skipped("pools_are_known_by_their_blocks_and_by_what_they_reserve") {
        return;
    }
    let g = gpu("memory", "pools", "proc");
    assert_eq!((g.number("/devices/0/peak_bytes"), g.number("/devices/0/live_bytes")), (50 * MIB, 0));
    assert_eq!((g.number("/devices/0/reserved_peak_bytes"), g.number("/devices/0/reserved_bytes")), (96 * MIB, 0));
    assert_eq!(g.number("/devices/0/pools/0/used_peak_bytes"), 40 * MIB);
    assert_eq!(g.number("/devices/0/pools/1/reserved_peak_bytes"), 32 * MIB);
}

#[test]
fn physical_memory_leaves_when_it_is_neither_held_nor_mapped() {
    if skipped("physical_memory_leaves_when_it_is_neither_held_nor_mapped") {
        return;
    }
    let g = gpu("memory", "physical", "dlsym");
    assert_eq!((g.number("/devices/0/peak_bytes"), g.number("/devices/0/live_bytes")), (5 * MIB, 0));
    assert_eq!((g.number("/devices/1/peak_bytes"), g.number("/devices/1/live_bytes")), (2 * MIB, 0));
    assert_eq!((g.number("/devices/0/allocs"), g.number("/devices/0/frees"), g.number("/unknown_frees")), (2, 2, 0));
    assert_eq!(*g.at("/failed"), json!([{"call": "cuMemRelease", "code": 1, "count": 1}]));
}

#[test]
fn arrays_count_and_what_is_anothers_does_not() {
    if skipped("arrays_count_and_what_is_anothers_does_not") {
        return;
    }
    let g = gpu("memory", "arrays", "proc");
    assert_eq!((g.number("/devices/0/peak_bytes"), g.number("/devices/0/live_bytes")), (2 * MIB + 40960, 0));
    let g = gpu("memory", "others", "proc1");
    assert_eq!((g.number("/devices/0/peak_bytes"), g.number("/unknown_frees")), (0, 0));
    assert_eq!(g.transfers()["memset device"].1, MIB);
}

#[test]
fn a_context_ends_with_all_that_is_in_it() {
    if skipped("a_context_ends_with_all_that_is_in_it") {
        return;
    }
    for way in WAYS {
        let g = gpu("memory", "contexts", way);
        assert_eq!((g.number("/devices/0/peak_bytes"), g.number("/devices/1/peak_bytes")), (8 * MIB, 2 * MIB), "{way}");
        assert_eq!((g.number("/devices/0/live_bytes"), g.number("/devices/1/live_bytes")), (0, 0), "{way}");
        assert_eq!((g.number("/pinned_peak_bytes"), g.number("/pinned/live_bytes")), (4 * MIB, 0), "{way}");
    }
}

#[test]
fn calls_that_nobody_knows_pass_and_are_named_once() {
    if skipped("calls_that_nobody_knows_pass_and_are_named_once") {
        return;
    }
    for way in ["dlsym", "proc"] {
        let g = gpu("memory", "unknown", way);
        assert_eq!(*g.at("/unknown_calls"), json!(["cuMemTeleportAsync"]), "{way}");
    }
}

#[test]
fn every_form_of_copy_is_counted_once_with_its_bytes_and_device_time() {
    if skipped("every_form_of_copy_is_counted_once_with_its_bytes_and_device_time") {
        return;
    }
    for way in WAYS {
        let g = gpu("copies", "all", way);
        let expected = g.expected();
        assert!(expected.values().map(|e| e.0).sum::<u64>() > 150, "{expected:?}");
        assert_eq!(g.transfers(), expected, "{way}");
        assert_eq!(g.number("/untimed"), 0, "{way}");
        for t in g.at("/transfers").as_array().expect("a list") {
            let rate = t["timed_bytes"].as_f64().unwrap_or(0.0) / t["device_s"].as_f64().unwrap_or(1.0) / 1e9;
            assert!((t["gb_per_s"].as_f64().expect("a rate") - rate).abs() < 1e-9 && t["timing"] == "events", "{t}");
        }
    }
}

#[test]
fn a_batch_of_both_directions_is_divided_by_bytes_and_not_by_time() {
    if skipped("a_batch_of_both_directions_is_divided_by_bytes_and_not_by_time") {
        return;
    }
    let g = gpu("copies", "mixed", "proc");
    let expected = [("D2H pinned", (1, 200_000, 0)), ("H2D pinned", (1, 100_000, 0))].map(|(k, v)| (k.to_owned(), v));
    assert_eq!(g.transfers(), BTreeMap::from(expected));
}

#[test]
fn what_the_driver_refuses_comes_through_and_moves_nothing() {
    if skipped("what_the_driver_refuses_comes_through_and_moves_nothing") {
        return;
    }
    let g = gpu("copies", "refused", "dlsym");
    assert_eq!(g.transfers(), BTreeMap::from([("H2D pinned".to_owned(), (2, 200_000, 12_000))]));
    let failed = json!([{"call": "cuMemAlloc", "code": 2, "count": 1}, {"call": "cuMemcpyHtoDAsync", "code": 719, "count": 1}]);
    assert_eq!(*g.at("/failed"), failed);
}

#[test]
fn without_events_there_are_bytes_and_no_device_times() {
    if skipped("without_events_there_are_bytes_and_no_device_times") {
        return;
    }
    for how in ["wall", "off"] {
        let g = gpu_with("copies", "all", "proc", Mode::Fast, &[("MEMSHIM_GPU_TIMING", how)]);
        let untimed = |m: BTreeMap<String, (u64, u64, u64)>| m.into_iter().map(|(k, v)| (k, (v.0, v.1))).collect::<BTreeMap<_, _>>();
        assert_eq!(untimed(g.transfers()), untimed(g.expected()), "{how}");
        assert_eq!(g.at("/timing"), how);
        for t in g.at("/transfers").as_array().expect("a list") {
            assert_eq!((t["device_s"].is_null(), t["wall_s"].is_null()), (true, how == "off"), "{t}");
        }
    }
}

/// Streams by what they are called, in order.
fn streams<'a>(g: &'a Gpu, kind: &str) -> Vec<&'a Value> {
    g.at("/streams").as_array().expect("a list").iter().filter(|s| s["kind"] == kind).collect()
}

fn ns(v: &Value) -> u64 {
    (v.as_f64().unwrap_or_else(|| panic!("no number: {v}")) * 1e9).round() as u64
}

#[test]
fn busy_time_and_overlap_of_streams_are_exact() {
    if skipped("busy_time_and_overlap_of_streams_are_exact") {
        return;
    }
    for way in ["proc", "linked"] {
        let g = gpu("streams", "overlap", way);
        let made = streams(&g, "made");
        assert_eq!(made.iter().map(|s| ns(&s["busy_s"])).collect::<Vec<_>>(), [604_000, 502_000], "{way}");
        assert_eq!(made.iter().map(|s| ns(&s["overlap_s"])).collect::<Vec<_>>(), [402_000, 402_000], "{way}");
        assert_eq!((g.number("/concurrent_streams"), ns(g.at("/concurrent_s"))), (2, 402_000));
        assert_eq!(g.number("/host_waits/count"), 3);
        for s in made {
            let share = s["busy_s"].as_f64().expect("busy") / s["life_s"].as_f64().expect("life");
            assert!((s["utilization"].as_f64().expect("a share") - share).abs() < 1e-12, "{s}");
        }
    }
}

#[test]
fn kernels_are_counted_by_stream_and_keep_it_busy() {
    if skipped("kernels_are_counted_by_stream_and_keep_it_busy") {
        return;
    }
    for way in WAYS {
        let g = gpu("streams", "kernels", way);
        let made = streams(&g, "made");
        let mut counts: Vec<_> = made.iter().map(|s| s["kernels"].as_u64().expect("kernels")).collect();
        counts.sort_unstable();
        assert_eq!(counts, [2, 5], "{way}");
        assert_eq!((&streams(&g, "default")[0]["kernels"], &streams(&g, "per thread")[0]["kernels"]), (&json!(1), &json!(1)), "{way}");
        for s in made {
            // They run until the host, after a nap of 50 ms, waits for them.
            let busy = s["sampled_busy_s"].as_f64().expect("sampled");
            assert!((0.040..0.065).contains(&busy) && s["sampled_stderr_s"].as_f64().expect("an error") < 0.003, "{way}: {s}");
            assert!(s["utilization"].as_f64().expect("a share") > 0.5, "{s}");
        }
        assert_eq!(*g.at("/failed"), json!([{"call": "cuLaunchKernel", "code": 1, "count": 1}]));
    }
}

#[test]
fn graphs_are_counted_with_what_a_launch_copies() {
    if skipped("graphs_are_counted_with_what_a_launch_copies") {
        return;
    }
    for way in WAYS {
        let g = gpu("streams", "graphs", way);
        let all = g.at("/graphs");
        let row = |i: usize, keys: [&str; 5]| keys.map(|k| all[i][k].as_u64().expect("a number"));
        let keys = ["captures", "instantiations", "updates", "launches", "uploads"];
        assert_eq!([row(0, keys), row(1, keys), row(2, keys)], [[2, 1, 1, 20, 1], [0, 1, 0, 4, 0], [1, 0, 0, 0, 0]], "{way}");
        assert_eq!((&all[0]["reuse_rate"], &all[1]["reuse_rate"], &all[2]["reuse_rate"]), (&json!(0.9), &json!(0.75), &Value::Null));
        assert_eq!(all[0]["bytes_per_launch"], json!({"H2D": 3 * MIB, "D2H": MIB / 2, "memset": 4096}));
        assert_eq!(all[1]["bytes_per_launch"], json!({"H2D": 2 * MIB + 6000, "D2H": MIB / 2, "D2D": 20_000, "memset": 5120}));
        assert_eq!(g.number("/graphs_total/bytes/H2D"), (16 * 2 + 4 * 3 + 4 * 2) * MIB + 4 * 6000);
        assert_eq!(g.at("/graphs_total/reuse_rate"), &json!(0.875));
        assert!(g.transfers().is_empty(), "what is captured is not a transfer: {:?}", g.transfers());
        // Two copies at the rate of the device, one of half a MiB, a memset, and a kernel of 5 µs: by the driver's own arithmetic.
        let nodes = |copies: u64| copies * 3048 + 2524 + 2002 + 5000;
        assert_eq!(ns(&all[0]["device_s"]), 16 * nodes(2) + 4 * nodes(3), "{way}");
    }
}

#[test]
fn no_question_of_ours_spoils_a_capture() {
    if skipped("no_question_of_ours_spoils_a_capture") {
        return;
    }
    for how in ["events", "wall"] {
        let g = gpu_with("streams", "captures", "proc", Mode::Full, &[("MEMSHIM_GPU_TIMING", how)]);
        assert_eq!((g.number("/graphs_total/captures"), g.number("/graphs_total/failed_captures")), (40, 2), "{how}");
        let t = &g.transfers()["H2D pinned"];
        assert_eq!(t.1, t.0 * MIB);
        assert_eq!((g.number("/untimed"), t.2 > 0), (0, how == "events"), "copies beside captures are timed");
    }
}

#[test]
fn each_thread_has_a_default_stream_of_its_own() {
    if skipped("each_thread_has_a_default_stream_of_its_own") {
        return;
    }
    for way in WAYS {
        let g = gpu("streams", "per_thread", way);
        assert_eq!(streams(&g, "per thread").iter().map(|s| s["copies"].as_u64()).collect::<Vec<_>>(), [Some(3); 3], "{way}");
        assert_eq!(streams(&g, "default").iter().map(|s| s["copies"].as_u64()).collect::<Vec<_>>(), [Some(1)], "{way}");
    }
}

#[test]
fn rough_programs_end_as_they_would_and_lose_no_copy() {
    if skipped("rough_programs_end_as_they_would_and_lose_no_copy") {
        return;
    }
    // mode, copies, of which timed at least
    for (mode, copies, timed) in [
        ("forks", 20, 20),
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
fn dlsym_stays_right_for_everybody_else() {
    if skipped("dlsym_stays_right_for_everybody_else") {
        return;
    }
    for mode in ["without_driver", "others"] {
        for memshim in [Mode::Full, Mode::Fast] {
            let g = gpu_with("lookups", mode, "dlsym", memshim, &[]);
            assert!(g.run["gpu"].is_null(), "{mode}: a program without a driver has nothing of it: {}", g.run["gpu"]);
            assert!(!g.stdout.contains("libmemshim"), "{}", g.stdout);
        }
    }
}

#[test]
fn a_driver_is_found_as_it_would_be_and_every_way_counts() {
    if skipped("a_driver_is_found_as_it_would_be_and_every_way_counts") {
        return;
    }
    let g = gpu("lookups", "with_driver", "dlsym");
    assert_eq!(g.number("/devices/0/live_bytes"), 2 * MIB);
    let off = gpu_with("lookups", "with_driver", "dlsym", Mode::Fast, &[("MEMSHIM_GPU_TIMING", "off")]);
    assert_eq!(off.number("/devices/0/live_bytes"), 2 * MIB);
}

#[test]
fn ctypes_is_a_way_to_the_driver_as_any_other() {
    if skipped("ctypes_is_a_way_to_the_driver_as_any_other") || support::python().is_none() {
        return;
    }
    let g = gpu("lookups.py", "", "");
    assert_eq!((g.number("/devices/0/peak_bytes"), g.number("/devices/0/live_bytes")), (6 * MIB, 0));
    assert_eq!(g.transfers().values().map(|t| t.1).sum::<u64>(), 2 * MIB);
    assert_eq!(*g.at("/failed"), json!([{"call": "cuMemFree", "code": 1, "count": 1}]));
}

#[test]
fn pytorchs_own_figures_and_pools_by_name() {
    if skipped("pytorchs_own_figures_and_pools_by_name") {
        return;
    }
    let g = gpu("frameworks", "torch", "proc");
    let torch = |i: usize, key: &str| g.number(&format!("/devices/{i}/framework/torch/{key}"));
    assert_eq!((torch(0, "allocated_peak_bytes"), torch(0, "reserved_peak_bytes")), (12 * MIB, 20 * MIB));
    assert_eq!((torch(1, "allocated_peak_bytes"), torch(1, "reserved_peak_bytes")), (MIB, 2 * MIB));
    assert_eq!(g.number("/devices/0/peak_bytes"), 20 * MIB);
    assert_eq!(*g.at("/own_pools"), json!(["CuPy"]));
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
