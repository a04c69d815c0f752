//! Promises about streams, kernels and graphs.

use super::*;

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
            // They run until the host, after a nap of at least 50 ms, waits for them; after that it naps for 10 more.
            let of = |key: &str| s[key].as_f64().unwrap_or_else(|| panic!("no {key}: {s}"));
            assert!((0.030..of("life_s")).contains(&of("sampled_busy_s")) && of("sampled_stderr_s") > 0.0, "{way}: {s}");
            assert!(of("utilization") > 0.3, "{s}");
        }
        assert_eq!(*g.at("/failed"), json!([{"call": "cuLaunchKernel", "code": 1, "count": 1}]));
    }
}

#[test]
fn what_looks_missed_of_streams_is_said_and_many_have_their_turns() {
    if skipped("what_looks_missed_of_streams_is_said_and_many_have_their_turns") {
        return;
    }
    for way in WAYS {
        let of = |mode: &str| gpu("streams", mode, way);
        let with_kernels = |g: &Gpu| streams(g, "made").into_iter().filter(|s| s["kernels"] != 0).cloned().collect::<Vec<Value>>();
        let figures = |s: &Value| (s["busy_s"].as_f64().expect("a time"), s["unseen_kernels"].as_u64().expect("a number"));
        let many = with_kernels(&of("many_busy"));
        assert_eq!(many.len(), 100, "{way}");
        for s in &many {
            assert!(figures(s).0 > 0.1, "{way}: {s}");
        }
        // What ran while nobody could look was at least something: what is known is a part of 500 ms.
        let g = of("long_capture");
        let [one] = &with_kernels(&g)[..] else { panic!("{way}: one stream") };
        let (busy, unseen) = figures(one);
        assert!(busy > 0.1 && unseen >= 1, "{way}: {one}");
        assert!(g.text().contains("≥"), "{}", g.text());
        let gone = with_kernels(&of("destroyed_at_work"));
        let mut unseen: Vec<_> = gone.iter().map(|s| (s["kernels"].as_u64(), figures(s).1)).collect();
        unseen.sort_unstable();
        assert_eq!(unseen, [(Some(1), 0), (Some(2), 1)], "{way}");
    }
}

#[test]
fn a_device_is_looked_at_where_there_is_nothing_but_launches_and_waits() {
    if skipped("a_device_is_looked_at_where_there_is_nothing_but_launches_and_waits") {
        return;
    }
    let g = gpu_with("streams", "launches_alone", "proc", Mode::Fast, &[("MEMSHIM_INTERVAL", "20ms")]);
    // Free and total bytes: the second is the device's size.
    let looks = g.rows().iter().filter(|row| row[0] == "state" && row[10] == 80u64 << 30).count();
    assert!(looks >= 10, "{looks} looks in 400 ms");
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
        assert_eq!(all[1]["bytes_per_launch"], json!({"H2D": 2 * MIB + 9000, "D2H": MIB / 2, "D2D": 20_000, "memset": 5120}));
        assert_eq!(g.number("/graphs_total/bytes/H2D"), (16 * 2 + 4 * 3 + 4 * 2) * MIB + 4 * 9000);
        assert_eq!(g.at("/graphs_total/reuse_rate"), &json!(0.875));
        assert!(g.transfers().is_empty(), "what is captured is not a transfer: {:?}", g.transfers());
        // Two copies at the rate of the device, one of half a MiB, a memset, and a kernel of 5 µs: by the driver's own arithmetic.
        let nodes = |copies: u64| copies * 3048 + 2524 + 2002 + 5000;
        assert_eq!(ns(&all[0]["device_s"]), 16 * nodes(2) + 4 * nodes(3), "{way}");
    }
}

#[test]
fn what_a_launch_copies_is_not_known_once_nodes_that_copy_are_changed() {
    if skipped("what_a_launch_copies_is_not_known_once_nodes_that_copy_are_changed") {
        return;
    }
    let once = json!({"H2D": MIB, "D2H": MIB / 2, "memset": 4096});
    let executables = |g: &Gpu| -> Vec<Value> {
        let all = g.at("/graphs").as_array().expect("a list").iter().filter(|g| g["instantiations"] == 1);
        all.map(|g| g["bytes_per_launch"].clone()).collect()
    };
    for way in WAYS {
        let g = gpu("streams", "changed_nodes", way);
        let (none, twice) = (Value::Null, json!({"H2D": 2 * MIB, "D2H": MIB / 2, "memset": 4096}));
        let expected = [&none, &none, &none, &none, &none, &none, &once, &once, &once, &twice].map(Value::clone);
        assert_eq!((executables(&g), g.at("/graphs_total/bytes")), (expected.to_vec(), &once), "{way}");
        let g = gpu("streams", "changed_and_launched", way);
        assert_eq!(g.at("/graphs_total/bytes"), &none, "{way}");
        assert!(g.text().contains("what graphs copied is not known: nodes of theirs that copy were changed"), "{}", g.text());
        let g = gpu("streams", "changed_templates", way);
        let expected = [&none, &none, &none, &none, &none, &once, &once, &none].map(Value::clone);
        assert_eq!(executables(&g), expected, "{way}");
    }
}

#[test]
fn what_a_launch_copies_is_not_known_where_a_conditional_node_may_copy() {
    if skipped("what_a_launch_copies_is_not_known_where_a_conditional_node_may_copy") {
        return;
    }
    for way in WAYS {
        let g = gpu("streams", "conditional", way);
        let all = g.at("/graphs").as_array().expect("a list").iter().filter(|g| g["instantiations"] == 1);
        let copied: Vec<&Value> = all.map(|g| &g["bytes_per_launch"]).collect();
        let (none, known) = (Value::Null, json!({"H2D": MIB, "D2H": MIB / 2, "memset": 4096}));
        assert_eq!((copied, g.at("/graphs_total/bytes")), (vec![&none, &none, &none, &known], &none), "{way}");
        assert!(g.text().contains("what graphs copied is not known: "), "{}", g.text());
    }
}

#[test]
fn memory_of_graphs_counts_while_they_are_instantiated() {
    if skipped("memory_of_graphs_counts_while_they_are_instantiated") {
        return;
    }
    for way in WAYS {
        let g = gpu("streams", "graph_memory", way);
        let class = |name: &str, key: &str| g.at(&format!("/devices/0/classes/{name}/{key}")).as_u64().expect("bytes");
        // At the end one of the graphs is instantiated again.
        assert_eq!((class("graph", "live_bytes"), class("graph", "peak_bytes")), (8 * MIB, 14 * MIB), "{way}");
        assert_eq!((class("pool", "live_bytes"), class("pool", "peak_bytes")), (0, MIB), "{way}: what is captured is none");
        assert_eq!((g.number("/devices/0/live_bytes"), g.number("/devices/0/peak_bytes")), (72 * MIB, 78 * MIB), "{way}");
        let memory: Vec<u64> =
            g.at("/graphs").as_array().expect("a list").iter().map(|g| g["memory_bytes"].as_u64().expect("bytes")).collect();
        assert_eq!((memory, g.number("/unknown_frees")), (vec![8 * MIB, 6 * MIB, 8 * MIB], 0), "{way}");
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
fn captures_that_begin_in_rare_ways_or_unseen_are_not_spoiled() {
    if skipped("captures_that_begin_in_rare_ways_or_unseen_are_not_spoiled") {
        return;
    }
    for way in WAYS {
        let g = gpu("streams", "rare_captures", way);
        assert_eq!((g.number("/graphs_total/captures"), g.number("/graphs_total/failed_captures")), (2, 0), "{way}");
        assert_eq!(*g.at("/graphs_total/bytes"), json!({"H2D": MIB}), "{way}: a capture that replaces a graph adds nothing to it");
        assert_eq!(*g.at("/transfers"), json!([]), "{way}: all went into graphs");
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
