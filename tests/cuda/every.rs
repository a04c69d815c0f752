//! Promises about the table of hooked functions as a whole: each is called by a program, is recorded once, and is passed on when it fails.

use super::*;
use std::collections::BTreeSet;

/// A line of the table.
struct Hooked {
    symbol: String,
    base: String,
    version: u32,
    shape: String,
}

fn table() -> Vec<Hooked> {
    let text = std::fs::read_to_string(support::root().join("shim/src/cuda/table.rs")).expect("the table");
    let rows = text.lines().filter_map(|l| l.strip_prefix("    cu")?.strip_suffix(';')?.split_once(": "));
    rows.map(|(symbol, rest)| {
        let words: Vec<&str> = rest.split(' ').collect();
        let shape = words[4].split('(').next().expect("a shape");
        let version = words[1].parse().expect("a version");
        Hooked { symbol: format!("cu{symbol}"), base: words[0].to_owned(), version, shape: shape.to_owned() }
    })
    .collect()
}

/// What the program said of a hooked symbol: its base name, how often it was called to succeed (and as often to fail), with which code.
struct Said {
    base: String,
    calls: u64,
    code: u64,
}

fn called(g: &Gpu) -> BTreeMap<String, Said> {
    let rows = g.stdout.lines().filter_map(|l| l.strip_prefix("CALLED "));
    rows.map(|l| {
        let w: Vec<&str> = l.split(' ').collect();
        (w[0].to_owned(), Said { base: w[1].to_owned(), calls: w[2].parse().expect("a number"), code: w[3].parse().expect("a number") })
    })
    .collect()
}

/// Rows of each call in the trace: that went well, that failed.
fn rows(g: &Gpu) -> BTreeMap<String, (u64, u64)> {
    let mut sums = BTreeMap::<String, (u64, u64)>::new();
    for row in g.rows().iter().filter(|row| row[0] != "name" && row[1] != "") {
        let sum = sums.entry(row[1].as_str().expect("a call").to_owned()).or_default();
        if row[5] == 0 { sum.0 += 1 } else { sum.1 += 1 }
    }
    sums
}

/// What a driver of a version is called for and leaves of graphs: calls that succeed; captures, failed ones, instantiations, updates, launches; bytes
/// copied by launches.
type Figures = (u64, [u64; 5], u64);

/// Holds a run of the schedule against the table, as far as the driver's version has it, and against what the program says.
fn holds(g: &Gpu, version: u32, (calls, graphs, copied): Figures, way: &str) {
    // Shapes of which there is a row only where they fail.
    let failures_alone = [
        "Start",
        "PrimaryRetain",
        "PrimaryRelease",
        "PrimaryReset",
        "CtxCreate",
        "CtxDestroy",
        "CtxAttach",
        "CtxDetach",
        "GreenContext",
        "GreenDestroy",
        "MemGetInfo",
        "PoolCreate",
        "PoolDestroy",
        "PoolChange",
    ];
    let launches = ["Kernel", "Kernels", "KernelEx"];
    let called = called(g);
    let table: Vec<_> = table().into_iter().filter(|t| t.shape != "Cupti" && t.version <= version).collect();
    let missing: Vec<_> = table.iter().filter(|t| called.get(&t.symbol).is_none_or(|said| said.calls == 0)).map(|t| &t.symbol).collect();
    assert!(missing.is_empty(), "no program calls {missing:?}");
    assert_eq!(called.keys().collect::<BTreeSet<_>>(), table.iter().map(|t| &t.symbol).collect(), "{way}");
    assert_eq!(called.values().map(|said| said.calls).sum::<u64>(), calls, "{way}: each made twice");
    let mut expected = BTreeMap::<String, (u64, u64)>::new();
    for t in &table {
        let said = &called[&t.symbol];
        assert_eq!(said.base, t.base);
        let rows = match t.shape.as_str() {
            "Lookup" => (0, 0),
            s if failures_alone.contains(&s) || launches.contains(&s) => (0, said.calls),
            _ => (said.calls, said.calls),
        };
        let sum = expected.entry(t.base.clone()).or_default();
        *sum = (sum.0 + rows.0, sum.1 + rows.1);
    }
    expected.retain(|_, rows| *rows != (0, 0));
    assert_eq!(rows(g), expected, "{way}");
    let codes: BTreeSet<u64> = called.values().filter(|said| expected.contains_key(&said.base)).map(|said| said.code).collect();
    let failed = g.at("/failed").as_array().expect("a list");
    assert_eq!(failed.iter().map(|f| f["code"].as_u64().expect("a code")).collect::<BTreeSet<_>>(), codes, "{way}");
    assert_eq!(
        failed.iter().map(|f| f["count"].as_u64().expect("a count")).sum::<u64>(),
        expected.values().map(|rows| rows.1).sum::<u64>()
    );

    let held: Vec<Vec<u64>> = g.stdout.lines().filter_map(|l| l.strip_prefix("HELD ")).map(numbers).collect();
    for device in [0, 1] {
        let of = ["peak_bytes", "live_bytes", "allocs", "frees"].map(|key| g.number(&format!("/devices/{device}/{key}")));
        assert_eq!(of.to_vec(), held[device], "{way}: device {device}");
    }
    assert_eq!([g.number("/pinned_peak_bytes"), g.number("/pinned/live_bytes"), 0, 0].to_vec(), held[2], "{way}");
    assert_eq!((g.transfers(), g.number("/untimed"), g.number("/unknown_frees")), (g.expected(), 0, 0), "{way}");
    for t in g.at("/transfers").as_array().expect("a list") {
        let ns = (t["device_s"].as_f64().expect("a time") * 1e9).round();
        assert_eq!(t["gb_per_s"].as_f64(), Some(t["bytes"].as_f64().expect("bytes") / ns), "{way}: {t}");
    }
    let of = ["captures", "failed_captures", "instantiations", "updates", "launches"].map(|key| g.number(&format!("/graphs_total/{key}")));
    assert_eq!((of, g.at("/graphs_total/bytes")), (graphs, &json!({"H2D": copied, "memset": 1024})), "{way}");
    let kernels = g.at("/streams").as_array().expect("a list").iter().map(|s| s["kernels"].as_u64().expect("a number"));
    assert_eq!(kernels.sum::<u64>(), 11, "{way}");
}

#[test]
fn every_hooked_function_is_called_and_leaves_what_it_should_whether_it_fails_or_not() {
    if skipped("every_hooked_function_is_called_and_leaves_what_it_should_whether_it_fails_or_not") {
        return;
    }
    for (way, memshim) in WAYS.into_iter().zip([Mode::Full, Mode::Fast, Mode::Full, Mode::Fast]) {
        holds(&gpu_with("every", "all", way, memshim, &[]), 13050, (384, [8, 10, 5, 2, 3], 83_000), way);
    }
}

#[test]
fn drivers_of_all_versions_are_seen_as_far_as_they_go() {
    if skipped("drivers_of_all_versions_are_seen_as_far_as_they_go") {
        return;
    }
    let versions = [
        (11080, &["dlsym", "proc1"][..], (323, [4, 4, 4, 1, 3], 23_000)),
        (12000, &["proc", "proc1"], (327, [4, 4, 5, 2, 3], 23_000)),
        (12040, &["dlsym"], (346, [6, 6, 5, 2, 3], 63_000)),
        (12080, &["proc"], (355, [6, 6, 5, 2, 3], 63_000)),
        (13000, &["proc"], (364, [6, 6, 5, 2, 3], 63_000)),
    ];
    for (version, ways, figures) in versions {
        let driver = driver_of(version);
        for way in ways {
            let name = format!("cuda_every_{version}_{way}");
            let g = gpu_of(&program("every", way), &name, &["all", way], Mode::Full, (&[], &[("CUDA_DRIVER", &driver)]));
            holds(&g, version, figures, &name);
        }
    }
}

#[test]
fn a_driver_that_is_asked_for_more_than_it_has_is_read_as_what_it_gave() {
    if skipped("a_driver_that_is_asked_for_more_than_it_has_is_read_as_what_it_gave") {
        return;
    }
    for (version, batch) in [(11080, None), (12080, Some((2, 70_000, 6800)))] {
        let driver = driver_of(version);
        let name = format!("cuda_lookups_older_{version}");
        let program = program("lookups", "proc1");
        let g = gpu_of(&program, &name, &["older_driver", "proc1"], Mode::Full, (&[], &[("CUDA_DRIVER", &driver)]));
        let managed = [("D2H managed", (1, 200_000, 12_000)), ("H2D managed", (1, 100_000, 6000))];
        let all = managed.into_iter().chain(batch.map(|of| ("H2D pinned", of)));
        assert_eq!(g.transfers(), all.map(|(k, v)| (k.to_owned(), v)).collect(), "{version}");
        let streams: Vec<_> = g.at("/streams").as_array().expect("a list").iter().map(|s| s["kind"].clone()).collect();
        assert_eq!(streams, ["made"], "{version}");
    }
}

fn numbers(line: &str) -> Vec<u64> {
    line.split(' ').map(|n| n.parse().expect("a number")).collect()
}

#[test]
fn what_takes_cupti_is_called_and_passed_on_too() {
    if skipped("what_takes_cupti_is_called_and_passed_on_too") {
        return;
    }
    support::build("cuda/cupti_every.c", "libcupti_every.so", &["-shared", "-fPIC"]);
    for timing in ["events", "cupti"] {
        let g = gpu_with("every", "cupti", "dlsym", Mode::Full, &[("MEMSHIM_GPU_TIMING", timing)]);
        let called: BTreeSet<&str> = g.stdout.lines().filter_map(|l| l.strip_prefix("CALLED ")).collect();
        let table = table();
        assert_eq!(called, table.iter().filter(|t| t.shape == "Cupti").map(|t| t.symbol.as_str()).collect(), "{timing}");
    }
}
