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

/// A link that the kernel says it has, at a place that is no device's: `/sys/bus/pci/devices/` and the name of this folder.
struct Link(tempfile::TempDir);

impl Link {
    fn new(speed: &str, width: &str) -> Link {
        // A bus has 31 characters at most, and is looked for in small letters.
        let made = || tempfile::Builder::new().prefix("link").rand_bytes(4).tempdir_in("/tmp").expect("a folder");
        let is_small = |dir: &tempfile::TempDir| !dir.path().to_string_lossy().contains(char::is_uppercase);
        let folder = std::iter::repeat_with(made).find(is_small).expect("one of them");
        std::fs::write(folder.path().join("max_link_speed"), format!("{speed}\n")).expect("a file");
        std::fs::write(folder.path().join("current_link_width"), format!("{width}\n")).expect("a file");
        Link(folder)
    }

    fn bus(&self) -> String {
        format!("../../../..{}", self.0.path().display())
    }
}

/// A transfer of device 0.
fn transfer<'a>(g: &'a Gpu, direction: &str, memory: &str) -> &'a Value {
    let all = g.at("/transfers").as_array().expect("a list");
    all.iter().find(|t| t["direction"] == direction && t["memory"] == memory && t["device"] == 0).unwrap_or_else(|| panic!("{all:?}"))
}

#[test]
fn rates_are_those_of_the_copies_and_a_share_of_what_the_link_can_do() {
    let test = "rates_are_those_of_the_copies_and_a_share_of_what_the_link_can_do";
    if skipped(test) {
        return;
    }
    if !Path::new("/sys/bus/pci/devices").exists() {
        return support::skip(test, "needs /sys/bus/pci");
    }
    let link = Link::new("16.0 GT/s PCIe", "16");
    let both = [("FAKE_BUS", link.bus())];
    let both = both.each_ref().map(|(k, v)| (*k, v.as_str()));
    for memshim in [Mode::Full, Mode::Fast] {
        let g = gpu_of(&program("copies", "proc"), &format!("cuda_{test}_{memshim:?}"), &["rates", "proc"], memshim, (&[], &both));
        // 128 of 130 bits are the program's.
        let carries = 16.0 * 16.0 * 128.0 / 130.0 / 8.0;
        assert_eq!(g.at("/devices/0/link_gb_per_s").as_f64(), Some(carries));
        for (direction, memory, per_us) in [("H2D", "pinned", 25_000), ("D2H", "pageable", 5000)] {
            let t = transfer(&g, direction, memory);
            let took = |i: u64| 2000 + i * 65536 * 1000 / per_us;
            let rate = |i: u64| i as f64 * 65536.0 / took(i) as f64;
            let (bytes, ns) = (231 * 65536, (1..=21).map(took).sum::<u64>());
            assert_eq!((&t["count"], &t["bytes"], &t["timed_count"]), (&json!(21), &json!(bytes), &json!(21)));
            // The copies in order of their rates: the second of twenty-one, the middle one, the last but one.
            for (key, wanted) in [
                ("gb_per_s", bytes as f64 / ns as f64),
                ("p5_gb_per_s", rate(2)),
                ("p50_gb_per_s", rate(11)),
                ("p95_gb_per_s", rate(20)),
                ("max_gb_per_s", rate(21)),
                ("link_share", bytes as f64 / ns as f64 / carries),
            ] {
                let is = t[key].as_f64().unwrap_or_else(|| panic!("no {key}: {t}"));
                assert!((is - wanted).abs() < 1e-12 * wanted, "{direction} {key}: {is}, not {wanted}");
            }
        }
        let text = g.text();
        let cells =
            |name: &str| text.lines().find(|l| l.trim_start().starts_with(name)).map(|l| l.split_whitespace().skip(7).collect::<Vec<_>>());
        assert_eq!(cells("H2D pinned"), Some(vec!["µs", "23.4", "23.4", "18.1–24.1", "24.1", "74", "%"]), "{text}");
        assert_eq!(cells("D2H pageable"), Some(vec!["ms", "4.93", "4.93", "4.65–4.96", "4.96", "16", "%"]), "{text}");
    }
    // Where no link is to be seen nothing is said of it.
    let g = gpu("copies", "rates", "proc");
    assert_eq!((g.at("/devices/0/link_gb_per_s"), &transfer(&g, "H2D", "pinned")["link_share"]), (&Value::Null, &Value::Null));
}

#[test]
fn advice_says_what_pageable_and_small_copies_cost() {
    if skipped("advice_says_what_pageable_and_small_copies_cost") {
        return;
    }
    for memshim in [Mode::Full, Mode::Fast] {
        let g = gpu_with("copies", "advice", "proc", memshim, &[]);
        let all = g.at("/advice").as_array().expect("a list");
        let of = |what: &str| {
            let found: Vec<_> = all.iter().filter(|a| a["what"] == what).collect();
            assert_eq!(found.len(), 1, "{what}: {all:?}");
            (found[0]["gain_s"].as_f64().expect("seconds"), found[0]["evidence"].as_str().expect("text").to_owned())
        };
        // Ten copies of 502 µs that would have taken 122.
        let (gain, why) = of("copy H2D from or to page-locked memory");
        assert!((gain - 3.8e-3).abs() < 1e-12, "{gain}");
        assert_eq!(why, "3.000e7 bytes from or to pageable memory at 6.0 GB/s; pinned ones ran at 24.6 GB/s");
        // Their calls took what the trace's rows say; 99 of 100 would not have been made.
        let text = std::fs::read_to_string(&g.trace).expect("a trace");
        let lines = text.lines().filter(|l| l.starts_with("{\"type\":\"gpu\"")).map(|l| serde_json::from_str::<Value>(l).expect("JSON"));
        let rows: Vec<Value> = lines.flat_map(|l| l["ev"].as_array().expect("rows").clone()).collect();
        let small: Vec<u64> = rows.iter().filter(|r| r[0] == "copy" && r[9] == 60_000).map(|r| r[10].as_u64().expect("a time")).collect();
        let took = small.iter().sum::<u64>() as f64 / 1e9;
        let (gain, why) = of("put small D2H copies together");
        assert!(small.len() == 2500 && (gain - 0.99 * took).abs() < 1e-12, "{gain} of {took}, {}", small.len());
        assert_eq!(why, format!("2500 copies below 64 KiB; their calls took {took:.3} s"));
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(g.text().contains("advice: copy H2D from or to page-locked memory: up to 3.80 ms less (3.000e7 bytes"), "{}", g.text());
    }
}

#[test]
fn where_nothing_is_pinned_the_link_says_what_could_be_saved_or_nobody_does() {
    let test = "where_nothing_is_pinned_the_link_says_what_could_be_saved_or_nobody_does";
    if skipped(test) {
        return;
    }
    let advice = |g: &Gpu| {
        let all = g.at("/advice").as_array().expect("a list");
        assert_eq!((all.len(), &all[0]["what"]), (1, &json!("copy H2D from or to page-locked memory")), "{all:?}");
        (all[0]["gain_s"].as_f64(), all[0]["evidence"].as_str().expect("text").to_owned())
    };
    // Thirty copies of 502 µs.
    let slow = "9.000e7 bytes from or to pageable memory at 6.0 GB/s; ";
    let g = gpu("copies", "pageable", "proc");
    let (gain, why) = advice(&g);
    assert_eq!(
        (gain, why.as_str()),
        (None, (slow.to_owned() + "0.015 s in all, and none were pinned: what that would save is not known").as_str())
    );
    let run = &g.run["advice"].as_array().expect("a list")[0];
    assert_eq!((&run["gain_s"], &run["gain_bytes"], &run["evidence"]), (&Value::Null, &Value::Null, &json!(why)));
    assert!(g.text().contains(&format!("advice: copy H2D from or to page-locked memory ({why})")), "{}", g.text());
    if !Path::new("/sys/bus/pci/devices").exists() {
        return support::skip(&format!("{test} (link)"), "needs /sys/bus/pci");
    }
    let link = Link::new("16.0 GT/s PCIe", "16");
    let bus = link.bus();
    let with = (&[][..], &[("FAKE_BUS", bus.as_str())][..]);
    let g = gpu_of(&program("copies", "proc"), &format!("cuda_{test}"), &["pageable", "proc"], Mode::Full, with);
    let (gain, why) = advice(&g);
    let carries = 16.0 * 16.0 * 128.0 / 130.0 / 8.0;
    let wanted = 30.0 * 502e-6 - 90e6 / carries / 1e9;
    assert!(gain.is_some_and(|s| (s - wanted).abs() < 1e-12), "{gain:?}, not {wanted}");
    assert_eq!(why, slow.to_owned() + "none were pinned, and the link can carry 31.5 GB/s");
    assert!(g.text().contains("advice: copy H2D from or to page-locked memory: up to 12.2 ms less (9.000e7 bytes"), "{}", g.text());
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
