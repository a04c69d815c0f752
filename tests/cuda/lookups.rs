//! Promises about how the driver is found, by whom, and what everybody else finds.

use super::*;

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
fn a_driver_closed_and_opened_again_is_the_driver() {
    if skipped("a_driver_closed_and_opened_again_is_the_driver") {
        return;
    }
    let g = gpu("lookups", "reopened", "proc");
    assert_eq!(g.number("/devices/0/live_bytes"), 3 * MIB);
}
