//! Promises about memory of devices and page-locked memory.

use super::*;
use std::collections::BTreeSet;

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
fn what_a_pool_gives_back_while_the_host_waits_is_not_reserved_beside_what_takes_its_place() {
    if skipped("what_a_pool_gives_back_while_the_host_waits_is_not_reserved_beside_what_takes_its_place") {
        return;
    }
    for way in WAYS {
        let g = gpu("memory", "shrinking_pool", way);
        let of = ["peak_bytes", "reserved_peak_bytes", "pools/0/reserved_peak_bytes"].map(|key| g.number(&format!("/devices/0/{key}")));
        assert_eq!(of, [320 * MIB; 3], "{way}");
    }
}

#[test]
fn what_a_pool_gives_back_after_an_ordinary_free_is_not_reserved_either() {
    if skipped("what_a_pool_gives_back_after_an_ordinary_free_is_not_reserved_either") {
        return;
    }
    for way in WAYS {
        let g = gpu("memory", "freed_plainly", way);
        let of = |key: &str| g.number(&format!("/devices/0/{key}"));
        let pool = ["used_peak_bytes", "reserved_bytes", "reserved_peak_bytes"].map(|key| of(&format!("pools/0/{key}")));
        assert_eq!(pool, [64 * MIB, 0, 64 * MIB], "{way}");
        assert_eq!(["reserved_bytes", "reserved_peak_bytes", "live_bytes"].map(of), [96 * MIB; 3], "{way}");
    }
}

#[test]
fn blocks_and_copies_are_of_the_device_that_has_the_memory_whichever_is_current() {
    if skipped("blocks_and_copies_are_of_the_device_that_has_the_memory_whichever_is_current") {
        return;
    }
    for way in WAYS {
        let g = gpu("memory", "of_other_device", way);
        assert_eq!([0, 1].map(|d| g.number(&format!("/devices/{d}/peak_bytes"))), [MIB, 12 * MIB], "{way}");
        let all = g.at("/transfers").as_array().expect("a list");
        let row = |t: &Value| (t["device"].as_u64(), t["direction"].as_str().expect("a way").to_owned(), t["bytes"].as_u64());
        let expected = [(0, "H2D", 300_000), (0, "P2P", 7000), (1, "D2H", 20_000), (1, "H2D", 1000), (1, "memset", 5000)];
        let expected = expected.map(|(device, way, bytes)| (Some(device), way.to_owned(), Some(bytes)));
        assert_eq!(all.iter().map(row).collect::<BTreeSet<_>>(), expected.into_iter().collect(), "{way}");
    }
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
fn memory_of_another_device_is_booked_there_and_copies_of_it_pass_between_two() {
    if skipped("memory_of_another_device_is_booked_there_and_copies_of_it_pass_between_two") {
        return;
    }
    for way in WAYS {
        let g = gpu("memory", "elsewhere", way);
        let of = |device: usize, key: &str| g.number(&format!("/devices/{device}/{key}"));
        assert_eq!((of(0, "peak_bytes"), of(1, "peak_bytes"), of(1, "live_bytes")), (MIB, 10 * MIB, 2 * MIB), "{way}");
        assert_eq!((of(0, "reserved_peak_bytes"), of(1, "reserved_peak_bytes")), (MIB, 66 * MIB), "{way}");
        assert_eq!(g.transfers(), BTreeMap::from([("P2P device".to_owned(), (3, 321_000, 14_025))]), "{way}");
    }
}

#[test]
fn pools_and_physical_memory_of_the_host_are_pinned_memory_of_no_device() {
    if skipped("pools_and_physical_memory_of_the_host_are_pinned_memory_of_no_device") {
        return;
    }
    for way in WAYS {
        let g = gpu("memory", "on_host", way);
        assert_eq!((g.number("/pinned_peak_bytes"), g.number("/pinned/live_bytes")), (15 * MIB, 5 * MIB), "{way}");
        assert_eq!((g.number("/devices/0/peak_bytes"), g.number("/devices/0/reserved_peak_bytes")), (MIB, MIB), "{way}");
        let devices = g.at("/devices").as_array().expect("a list");
        assert_eq!((devices.len(), &devices[0]["pools"], g.number("/unknown_frees")), (1, &json!([]), 0), "{way}");
        assert_eq!(g.transfers().into_iter().map(|(k, t)| (k, t.1)).collect::<Vec<_>>(), [("H2D pinned".to_owned(), 7000)], "{way}");
    }
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
fn what_is_imported_is_said_to_be_and_counted_by_its_owner_alone() {
    if skipped("what_is_imported_is_said_to_be_and_counted_by_its_owner_alone") {
        return;
    }
    for way in WAYS {
        let g = gpu("memory", "imports", way);
        let of = ["peak_bytes", "live_bytes", "reserved_peak_bytes", "allocs", "frees"].map(|key| g.number(&format!("/devices/0/{key}")));
        // Of these views of external memory and a name for memory of several devices, which have none of their own.
        assert_eq!(of, [2 * MIB, 2 * MIB, 2 * MIB, 4, 3], "{way}");
        let imports = json!({
            "external": {"opened": 2, "live": 1, "live_bytes": 4 * MIB, "peak_bytes": 20 * MIB},
            "imported handle": {"opened": 2, "live": 1, "live_bytes": 0, "peak_bytes": 0},
            "ipc": {"opened": 4, "live": 2, "live_bytes": 4096 + MIB, "peak_bytes": 4096 + 2 * MIB},
        });
        assert_eq!(*g.at("/devices/0/imports"), imports, "{way}");
        assert_eq!((g.transfers()["D2D device"].1, g.number("/unknown_frees")), (21_000, 0), "{way}");
        let line = "imported on device 0, counted by its owners alone: external 2 (1 open at the end, peak 20.0 MiB), \
                    imported handle 2 (1 open at the end, of unknown size), ipc 4 (2 open at the end, peak 2.00 MiB)";
        assert!(g.text().contains(line), "{}", g.text());
    }
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
fn pytorchs_own_figures_and_pools_by_name() {
    if skipped("pytorchs_own_figures_and_pools_by_name") {
        return;
    }
    for mode in ["torch", "whole"] {
        torch_is_known(&gpu("frameworks", mode, "proc"));
    }
}

#[test]
fn pytorchs_figures_are_told_at_new_maxima_alone() {
    if skipped("pytorchs_figures_are_told_at_new_maxima_alone") {
        return;
    }
    for way in WAYS {
        let g = gpu_with("frameworks", "maxima", way, Mode::Full, &[("MEMSHIM_INTERVAL", "1h")]);
        let told = g.rows().into_iter().filter(|row| row[0] == "state" && row[8] == 2);
        let figures: Vec<_> = told.map(|row| [row[9].as_u64(), row[10].as_u64()].map(|n| n.expect("bytes") / MIB)).collect();
        assert_eq!(figures, [[5, 20], [7, 20], [3, 30]], "{way}");
    }
}

#[test]
fn frameworks_with_pools_are_each_named_once() {
    if skipped("frameworks_with_pools_are_each_named_once") {
        return;
    }
    for mode in [Mode::Full, Mode::Fast] {
        let g = gpu_with("frameworks", "pools", "proc", mode, &[]);
        assert_eq!((g.at("/own_pools"), g.number("/devices/0/peak_bytes")), (&json!(["CuPy", "XLA", "RMM"]), 20 * MIB), "{mode:?}");
        assert!(
            g.text().contains("CuPy, XLA, RMM have pools of their own: what they hand out of their blocks is not known"),
            "{}",
            g.text()
        );
    }
}

#[test]
fn frameworks_that_are_loaded_late_are_named_too() {
    if skipped("frameworks_that_are_loaded_late_are_named_too") {
        return;
    }
    for mode in [Mode::Full, Mode::Fast] {
        let g = gpu_with("frameworks", "late", "proc", mode, &[]);
        assert_eq!(*g.at("/own_pools"), json!(["CuPy", "RMM"]), "{mode:?}");
        let text = std::fs::read_to_string(&g.trace).expect("a trace");
        let (cupy, rmm) = (text.find("\"CuPy\"").expect("a row"), text.find("\"RMM\"").expect("a row"));
        let between = text.find("\"cuMemFree\"").expect("a row");
        assert!(text.matches("\"CuPy\"").count() == 1 && cupy < between && between < rmm, "{mode:?}: {cupy} {between} {rmm}");
    }
}

#[test]
fn two_copies_of_pytorch_keep_their_own_functions_and_count_together() {
    if skipped("two_copies_of_pytorch_keep_their_own_functions_and_count_together") {
        return;
    }
    let second = support::out_dir().join("second");
    std::fs::create_dir_all(&second).expect("a folder");
    support::build("cuda/c10.c", "second/libc10.so", &["-shared", "-fPIC"]);
    let to_first = [&format!("-L{}", second.display()), "-l:libc10.so", "-Wl,-rpath,$ORIGIN"];
    support::build("cuda/c10.c", "second/libc10_cuda.so", &[&["-shared", "-fPIC", "-DCALLS_BESIDE"], &to_first[..]].concat());
    for way in WAYS {
        let g = gpu("frameworks", "twice", way);
        assert!(g.stdout.contains("3 calls, ") && g.stdout.contains("2 calls, "), "{}", g.stdout);
        let torch = |key: &str| g.number(&format!("/devices/0/framework/torch/{key}"));
        assert_eq!((torch("allocated_peak_bytes"), torch("reserved_peak_bytes")), (13 * MIB, 30 * MIB), "{way}");
    }
}

/// Its function is called on, too: the program says what that was told.
fn torch_is_known(g: &Gpu) {
    assert!(g.stdout.contains("5 calls, "), "{}", g.stdout);
    let torch = |i: usize, key: &str| g.number(&format!("/devices/{i}/framework/torch/{key}"));
    assert_eq!((torch(0, "allocated_peak_bytes"), torch(0, "reserved_peak_bytes")), (12 * MIB, 20 * MIB));
    assert_eq!((torch(1, "allocated_peak_bytes"), torch(1, "reserved_peak_bytes")), (MIB, 2 * MIB));
    assert_eq!(g.number("/devices/0/peak_bytes"), 20 * MIB);
    assert_eq!(*g.at("/own_pools"), json!(["CuPy"]));
}

#[test]
fn cupys_pool_is_asked_what_it_has_in_use() {
    let test = "cupys_pool_is_asked_what_it_has_in_use";
    if support::lacks(test, &[Need::Preload, Need::Module("ctypes")]) {
        return;
    }
    let asked = [("MEMSHIM_CUPY", "1"), ("MEMSHIM_INTERVAL", "10ms")];
    let peaks = |g: &Gpu, device: usize| {
        let of = g.at(&format!("/devices/{device}/framework/cupy"));
        ["allocated_peak_bytes", "reserved_peak_bytes"].map(|key| of[key].as_u64().unwrap_or_else(|| panic!("{of}")))
    };
    for (memshim, timing) in [(Mode::Full, "events"), (Mode::Fast, "off")] {
        let g = gpu_with("pool.py", "pool", "", memshim, &[asked[0], asked[1], ("MEMSHIM_GPU_TIMING", timing)]);
        assert_eq!((peaks(&g, 0), peaks(&g, 1)), ([7 * MIB, 8 * MIB], [2 * MIB, 2 * MIB]), "{memshim:?}");
        // What it has in blocks is what the driver gave, with the program's own 64 bytes.
        assert_eq!(g.number("/devices/0/peak_bytes"), 8 * MIB + 64, "{memshim:?}");
        assert_eq!(g.at("/own_pools"), &json!([]), "{memshim:?}: it is known");
        let g = gpu_with("pool.py", "threads", "", memshim, &asked);
        assert_eq!(peaks(&g, 0), [5 * MIB, 5 * MIB], "{memshim:?}");
        for mode in ["own_allocator", "forks"] {
            let g = gpu_with("pool.py", mode, "", memshim, &asked);
            let cupy = &g.at("/devices/0")["framework"]["cupy"]["allocated_peak_bytes"];
            assert_eq!(cupy, &if mode == "forks" { json!(3 * MIB) } else { Value::Null }, "{memshim:?} {mode}");
        }
    }
    // Nobody asks where that is not wanted.
    let g = gpu_with("pool.py", "pool", "", Mode::Full, &[]);
    assert_eq!(g.at("/devices/0/framework"), &json!({}));
}

#[test]
fn each_interpreter_asks_cupys_pool_or_the_report_says_that_it_cannot() {
    let test = "each_interpreter_asks_cupys_pool_or_the_report_says_that_it_cannot";
    if skipped(test) {
        return;
    }
    driver();
    for minor in 7..=14 {
        let Some(python) = support::pyenv(minor) else {
            support::skip(&format!("{test} (3.{minor})"), "needs pyenv's");
            continue;
        };
        let dir = support::fresh_dir(&format!("cuda_cupy_3_{minor}"));
        let mut c = Command::new(python);
        c.arg(support::root().join("tests/programs/cuda/pool.py")).args(["pool"]).current_dir(&dir);
        c.env("PROGRAM_DIR", support::out_dir()).env("PYTHONDONTWRITEBYTECODE", "1").env("LD_PRELOAD", support::shim());
        c.env("MEMSHIM_CUPY", "1").env("MEMSHIM_INTERVAL", "10ms");
        let ran = Session::start(&mut c, &dir).finish(Duration::from_secs(60));
        assert_eq!(
            (support::lossy(&ran.stdout), support::lossy(&ran.stderr)),
            ("in use 4194304 of 8388608\n".into(), String::new()),
            "3.{minor}"
        );
        let text = support::analyze(&dir.join("trace.jsonl")).unwrap_or_else(|why| panic!("3.{minor}: {why}"));
        let report: Value = serde_json::from_str(&text).expect("JSON");
        let run = &report["runs"][0];
        let cupy = &run["gpu"]["devices"][0]["framework"]["cupy"]["allocated_peak_bytes"];
        let said = run["notes"].to_string().contains("CuPy's pool was not asked");
        let wanted = if minor < 9 { (Value::Null, true) } else { (json!(7 * MIB), false) };
        assert_eq!((cupy.clone(), said), wanted, "3.{minor}: {}", run["notes"]);
    }
}
