//! Promises about copies and memsets.

use super::*;

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
        assert_eq!((g.at("/concurrent_streams"), g.at("/concurrent_s")), (&Value::Null, &Value::Null), "not known, which is not 0");
        for t in g.at("/transfers").as_array().expect("a list") {
            assert_eq!((t["device_s"].is_null(), t["wall_s"].is_null()), (true, how == "off"), "{t}");
        }
    }
}

#[test]
fn the_documented_jq_lines_about_gpus_answer() {
    let test = "the_documented_jq_lines_about_gpus_answer";
    if support::lacks(test, &[Need::Command("jq"), Need::Preload]) {
        return;
    }
    let g = gpu("copies", "all", "dlsym");
    let folder = support::fresh_dir(test);
    std::fs::write(folder.join("a.json"), json!({"runs": [g.run]}).to_string()).expect("a file");
    let all: Vec<_> = support::jq::questions("docs/guide.md").into_iter().filter(|q| q.contains(".gpu")).collect();
    let answers: Vec<_> = all.iter().map(|q| support::jq::ask(q, &folder)).collect();
    assert!(all.len() >= 3 && answers.iter().all(|a| !a.trim().is_empty()), "{all:#?} {answers:#?}");
    let rows: u64 = g.at("/transfers").as_array().expect("a list").iter().map(|t| t["bytes"].as_u64().expect("bytes")).sum();
    let table = &answers[all.iter().position(|q| q.contains("transfers")).expect("a line about transfers")];
    let column = table.lines().map(|l| l.split('\t').nth(3).expect("a column").parse::<u64>().expect("a number"));
    assert_eq!(column.sum::<u64>(), rows, "{table}");
}
