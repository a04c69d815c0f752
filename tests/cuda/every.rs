//! Promises about the table of hooked functions as a whole: each is called by a program, is recorded once, and is passed on when it fails.

use super::*;
use std::collections::BTreeSet;

/// Lines of the table: symbol, base name, shape.
fn table() -> Vec<(String, String, String)> {
    let text = std::fs::read_to_string(support::root().join("shim/src/cuda/table.rs")).expect("the table");
    let rows = text.lines().filter_map(|l| l.strip_prefix("    cu")?.strip_suffix(';')?.split_once(": "));
    rows.map(|(symbol, rest)| {
        let words: Vec<&str> = rest.split(' ').collect();
        let shape = words[4].split('(').next().expect("a shape");
        (format!("cu{symbol}"), words[0].to_owned(), shape.to_owned())
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
    let text = std::fs::read_to_string(&g.trace).expect("a trace");
    let mut sums = BTreeMap::<String, (u64, u64)>::new();
    for line in text.lines().filter(|l| l.starts_with("{\"type\":\"gpu\"")) {
        let line: Value = serde_json::from_str(line).expect("JSON");
        for row in line["ev"].as_array().expect("rows").iter().filter(|row| row[0] != "name" && row[1] != "") {
            let sum = sums.entry(row[1].as_str().expect("a call").to_owned()).or_default();
            if row[5] == 0 { sum.0 += 1 } else { sum.1 += 1 }
        }
    }
    sums
}

#[test]
fn every_hooked_function_is_called_and_leaves_what_it_should_whether_it_fails_or_not() {
    if skipped("every_hooked_function_is_called_and_leaves_what_it_should_whether_it_fails_or_not") {
        return;
    }
    // Shapes of no row, and of none but where they fail.
    let none = ["Start", "PrimaryRetain", "PrimaryRelease", "PrimaryReset", "CtxCreate", "CtxDestroy", "Lookup", "Pass", "MemGetInfo"];
    let of_pools = ["PoolCreate", "PoolDestroy", "PoolChange"];
    let launches = ["Kernel", "KernelEx"];
    for (way, memshim) in WAYS.into_iter().zip([Mode::Full, Mode::Fast, Mode::Full, Mode::Fast]) {
        let g = gpu_with("every", "all", way, memshim, &[]);
        let called = called(&g);
        let table: Vec<_> = table().into_iter().filter(|(_, _, shape)| shape != "Cupti").collect();
        let missing: Vec<_> = table.iter().filter(|(symbol, ..)| called.get(symbol).is_none_or(|said| said.calls == 0)).collect();
        assert!(missing.is_empty(), "no program calls {missing:?}");
        assert_eq!(called.keys().collect::<BTreeSet<_>>(), table.iter().map(|t| &t.0).collect(), "{way}");
        assert!(called.values().map(|said| said.calls).sum::<u64>() > 350, "each made twice");
        let mut expected = BTreeMap::<String, (u64, u64)>::new();
        for (symbol, base, shape) in &table {
            let said = &called[symbol];
            assert_eq!(&said.base, base);
            let rows = match shape.as_str() {
                s if none.contains(&s) || of_pools.contains(&s) || symbol == "cuExternalMemoryGetMappedBuffer" => (0, 0),
                s if launches.contains(&s) => (0, said.calls),
                _ => (said.calls, said.calls),
            };
            let sum = expected.entry(base.clone()).or_default();
            *sum = (sum.0 + rows.0, sum.1 + rows.1);
        }
        expected.retain(|_, rows| *rows != (0, 0));
        assert_eq!(rows(&g), expected, "{way}");
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
        let graphs =
            ["captures", "failed_captures", "instantiations", "updates", "launches"].map(|key| g.number(&format!("/graphs_total/{key}")));
        assert_eq!(graphs, [8, 10, 5, 2, 3], "{way}");
        assert_eq!(*g.at("/graphs_total/bytes"), json!({"H2D": 63_000, "memset": 1024}), "{way}");
        let kernels = g.at("/streams").as_array().expect("a list").iter().map(|s| s["kernels"].as_u64().expect("a number"));
        assert_eq!(kernels.sum::<u64>(), 6, "{way}");
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
        assert_eq!(called, table.iter().filter(|t| t.2 == "Cupti").map(|t| t.0.as_str()).collect(), "{timing}");
    }
}
