//! Promises about phases of programs that use a GPU.

use super::*;

#[test]
fn a_phase_has_its_own_device_memory_and_transfers() {
    if skipped("a_phase_has_its_own_device_memory_and_transfers") {
        return;
    }
    for mode in [Mode::Full, Mode::Fast] {
        let g = gpu_with("phases", "stages", "proc", mode, &[]);
        let phases = g.run["phases"].as_array().expect("phases");
        let of = |name: &str| {
            let p = phases.iter().find(|p| p["name"] == name).expect("the phase");
            let mib = |key: &str| p[key].as_f64().expect("a number") / MIB as f64;
            ["gpu_peak_bytes", "gpu_persistent_bytes", "pinned_peak_bytes", "h2d_bytes", "d2h_bytes"].map(mib)
        };
        assert_eq!(of("load"), [4.0, 4.0, 0.0, 3.0, 0.0]);
        assert_eq!(of("compute"), [15.0, 0.0, 2.0, 2.0, 4.0]);
        assert_eq!(of("store"), [4.0, -4.0, 0.0, 0.0, 4.0]);
        // What was there at the edges, beside what the kernel knows.
        let load = phases.iter().find(|p| p["name"] == "load").expect("the phase");
        let layers = |at: usize| ["gpu_bytes", "pinned_bytes"].map(|key| load["snapshots"][at][key].as_u64());
        assert_eq!((layers(0), layers(1)), ([Some(0); 2], [Some(4 * MIB), Some(0)]), "{mode:?}: {load}");
        // The driver's own start, and that of its first context.
        let start = phases.iter().find(|p| p["name"] == "CUDA start").expect("the phase");
        assert_eq!((&start["source"], &start["count"], &start["open"]), (&"process".into(), &2.into(), &0.into()));
        assert!(start["end_s"].as_f64() <= phases[0]["begin_s"].as_f64() && phases[0]["name"] == "load", "{start}");
    }
}

#[test]
fn a_job_on_two_devices_has_each_once_and_phases_have_what_they_did_on_both() {
    let test = "a_job_on_two_devices_has_each_once_and_phases_have_what_they_did_on_both";
    if skipped(test) {
        return;
    }
    let program = program("phases", "proc");
    let ranks = [("0", Mode::Full), ("1", Mode::Fast)].map(|(rank, mode)| {
        let (own, both) = ([("MEMSHIM_OUT", "trace.jsonl")], [("SLURM_PROCID", rank)]);
        gpu_of(&program, &format!("cuda_{test}_{rank}"), &["devices", "proc"], mode, (&own, &both))
    });
    for (g, part) in ranks.iter().zip([MIB, 2 * MIB]) {
        assert_eq!(g.run["rank"], part / MIB - 1);
        let phases = g.run["phases"].as_array().expect("phases");
        let of = |name: &str| {
            let p = phases.iter().find(|p| p["name"] == name).expect("the phase");
            ["gpu_peak_bytes", "gpu_persistent_bytes", "pinned_peak_bytes", "h2d_bytes", "d2h_bytes"].map(|key| p[key].as_u64())
        };
        // What there is on both together.
        let parts = |all: [u64; 5]| all.map(|n| Some(n * part));
        assert_eq!([of("first"), of("second"), of("both")], [[6, 4, 5, 3, 0], [12, 8, 5, 5, 2], [15, 0, 5, 0, 1]].map(parts));
        let peaks = [0, 1].map(|i| ["peak_bytes", "live_bytes"].map(|key| g.number(&format!("/devices/{i}/{key}"))));
        assert_eq!(peaks, [[7 * part, 4 * part], [9 * part, 8 * part]]);
    }
    let read = |json: &[&str]| {
        let out =
            Command::new(support::memshim()).arg("analyze").args(json).args(ranks.iter().map(|g| &g.trace)).env("COLUMNS", "200").output();
        support::lossy(&out.expect("a report").stdout)
    };
    let job = serde_json::from_str::<Value>(&read(&["--json"])).expect("JSON")["job"].take();
    assert_eq!((&job["processes"], &job["ranks"], &job["hosts"]), (&json!(2), &json!(2), &json!(1)));
    let mut gpus = job["gpus"].as_array().expect("a list").clone();
    // What was in use at looks is theirs at some instant.
    let used: Vec<u64> = gpus.iter_mut().map(|g| g["used_peak_bytes"].take().as_u64().expect("bytes")).collect();
    assert!(used.iter().all(|b| (300 * MIB..=(300 + 18) * MIB).contains(b)), "{used:?}");
    let of = |i: u64, gib: u64, [peaks, down, up]: [u64; 3]| {
        json!({
            "host": ranks[0].run["host"], "index": i, "name": format!("Fake GPU {i}"), "total_bytes": gib << 30, "processes": 2, "ranks": [0, 1],
            "uuid": format!("GPU-00000000-0000-0000-0000-{:012}", i + 1), "pci_bus_id": null,
            "peak_sum_bytes": peaks * MIB, "reserved_peak_sum_bytes": peaks * MIB, "used_peak_bytes": null, "h2d_bytes": down * MIB, "d2h_bytes": up * MIB
        })
    };
    assert_eq!(gpus, [of(0, 80, [21, 9, 3]), of(1, 24, [27, 15, 6])]);
    let text = read(&[]);
    let cells = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let table: Vec<_> = text.lines().skip_while(|l| !l.contains("peaks, summed")).skip(1).take(2).map(cells).collect();
    let row = |t: &[String]| [&t[..6], &t[8..]].concat().join(" ");
    let wanted = ["0 2 21.0 MiB 21.0 MiB 9.00 MiB 3.00 MiB Fake GPU 0", "1 2 27.0 MiB 27.0 MiB 15.0 MiB 6.00 MiB Fake GPU 1"];
    assert_eq!(table.iter().map(|t| row(t)).collect::<Vec<_>>(), wanted, "{text}");
    for g in &ranks {
        let line = format!("{} ", g.run["pid"]);
        assert!(text.lines().any(|l| l.contains(&line) && l.contains(&format!(" rank {} ", g.run["rank"]))), "{line}: {text}");
    }
}

/// A job's GPUs in JSON, and the first cells of their table.
fn gpus_of_job(ranks: &[Gpu]) -> (Vec<Value>, Vec<String>) {
    let read = |json: &[&str]| {
        let mut c = Command::new(support::memshim());
        c.arg("analyze").args(json).args(ranks.iter().map(|g| &g.trace)).env("COLUMNS", "200");
        support::lossy(&c.output().expect("a report").stdout)
    };
    let report: Value = serde_json::from_str(&read(&["--json"])).expect("JSON");
    let text = read(&[]);
    let lines = text.lines().skip_while(|l| !l.contains("peaks, summed")).skip(1).take_while(|l| l.contains("Fake GPU"));
    let first = |l: &str| l.trim_start().split("  ").next().unwrap_or_default().to_owned();
    (report["job"]["gpus"].as_array().expect("a list").clone(), lines.map(first).collect())
}

#[test]
fn cards_of_a_job_are_told_apart_by_what_they_are_and_not_by_what_each_rank_calls_them() {
    let test = "cards_of_a_job_are_told_apart_by_what_they_are_and_not_by_what_each_rank_calls_them";
    if skipped(test) {
        return;
    }
    let program = program("phases", "proc");
    let rank = |rank: &str, mode: &str, card: Variables| {
        let both = [&[("SLURM_PROCID", rank)], card].concat();
        let at = format!("cuda_{test}_{rank}_{mode}_{}", card.iter().map(|(_, v)| v.replace(':', "_")).collect::<Vec<_>>().join("_"));
        gpu_of(&program, &at, &[mode, "proc"], Mode::Fast, (&[("MEMSHIM_OUT", "trace.jsonl")], &both))
    };
    let of = |g: &Value| {
        let mib = g["peak_sum_bytes"].as_u64().expect("bytes") / MIB;
        (g["index"].as_u64(), g["processes"].as_u64(), mib, ["uuid", "pci_bus_id"].map(|key| g[key].as_str().map(str::to_owned)))
    };
    let text = |t: &str| Some(t.to_owned());

    // Each rank has one for itself, and it is its first.
    let uuids = [
        "1a2b3c4d00000000000000000000abcd",
        "2a2b3c4d00000000000000000000abcd",
        "0a2b3c4d00000000000000000000abcd",
        "1a2b3c4e00000000000000000000abcd",
    ];
    let own: Vec<Gpu> = (0..4).map(|i| rank(&i.to_string(), "stages", &[("FAKE_UUID", uuids[i])])).collect();
    let (gpus, table) = gpus_of_job(&own);
    let name = |i: usize| format!("GPU-{}-0000-0000-0000-00000000abcd", &uuids[i][..8]);
    assert_eq!(gpus.iter().map(of).collect::<Vec<_>>(), [0, 1, 2, 3].map(|i| (Some(0), Some(1), 15, [Some(name(i)), None])));
    assert_eq!(gpus.iter().map(|g| g["ranks"].clone()).collect::<Vec<_>>(), [0, 1, 2, 3].map(|i| json!([i])));
    assert_eq!(table, ["0 (GPU-1a2b3c4d)", "0 (GPU-2a2b3c4d)", "0 (GPU-0a2b3c4d)", "0 (GPU-1a2b3c4e)"]);
    assert_eq!(own[0].at("/devices/0/uuid"), &json!(name(0)));

    // Two share one, which is the second of a rank that sees two.
    let second = "2";
    let shared = [rank("0", "stages", &[("FAKE_UUID", second)]), rank("1", "stages", &[("FAKE_UUID", second)])];
    let uuid = |i: u8| text(&format!("GPU-00000000-0000-0000-0000-00000000000{i}"));
    let (gpus, table) = gpus_of_job(&shared);
    assert_eq!((of(&gpus[0]), gpus.len()), ((Some(0), Some(2), 30, [uuid(2), None]), 1));
    assert_eq!(table, ["0"]);
    let [one, _] = shared;
    let (gpus, table) = gpus_of_job(&[one, rank("1", "devices", &[])]);
    let expected = [(Some(0), Some(1), 14, [uuid(1), None]), (None, Some(2), 15 + 18, [uuid(2), None])];
    assert_eq!(gpus.iter().map(of).collect::<Vec<_>>(), expected);
    assert_eq!(table, ["0 (GPU-00000000)", "GPU-00000000"]);

    // A driver that does not say has them at places of the bus.
    let places = ["0000:3B:00.0", "0000:AF:00.0"];
    let placed = [0, 1].map(|i| rank(&i.to_string(), "stages", &[("FAKE_UUID", "none"), ("FAKE_BUS", places[i])]));
    let (gpus, table) = gpus_of_job(&placed);
    assert_eq!(gpus.iter().map(of).collect::<Vec<_>>(), places.map(|at| (Some(0), Some(1), 15, [None, text(at)])));
    assert_eq!(table, ["0 (0000:3B:00.0)", "0 (0000:AF:00.0)"]);

    // One knows both, one the place alone, one neither: it is one card, as there is no other that it could be.
    let moods: [&[_]; 3] = [&[("FAKE_BUS", places[0])], &[("FAKE_UUID", "none"), ("FAKE_BUS", places[0])], &[("FAKE_UUID", "none")]];
    let some: Vec<Gpu> = (0..3).map(|i| rank(&i.to_string(), "stages", moods[i])).collect();
    let (gpus, table) = gpus_of_job(&some);
    assert_eq!(gpus.iter().map(of).collect::<Vec<_>>(), [(Some(0), Some(3), 45, [uuid(1), text(places[0])])]);
    assert_eq!((&gpus[0]["ranks"], table), (&json!([0, 1, 2]), vec!["0".to_owned()]));
    let [_, placed] = placed;
    let (gpus, _) = gpus_of_job(&some.into_iter().chain([placed]).collect::<Vec<_>>());
    assert_eq!(
        gpus.iter().map(|g| g["processes"].as_u64()).collect::<Vec<_>>(),
        [Some(2), Some(1), Some(1)],
        "two could be that of the third"
    );
}

#[test]
fn device_memory_kept_each_step_is_a_leak_of_the_step_that_keeps_it() {
    if skipped("device_memory_kept_each_step_is_a_leak_of_the_step_that_keeps_it") {
        return;
    }
    for mode in [Mode::Full, Mode::Fast] {
        let g = gpu_with("phases", "leaky", "proc", mode, &[]);
        let growth = |name: &str, class: &str| {
            let p = g.run["phases"].as_array().expect("phases").iter().find(|p| p["name"] == name).expect("the phase");
            let of = &p["steps"]["growth"][class];
            (["per_count_bytes", "low_bytes", "high_bytes"].map(|key| of[key].as_f64().expect("a number")), of["leaks"] == true)
        };
        assert_eq!(growth("keeps", "gpu"), ([2.0 * MIB as f64; 3], true), "{mode:?}");
        assert_eq!(growth("keeps", "pinned"), ([65536.0; 3], true), "{mode:?}");
        assert_eq!((growth("frees", "gpu"), growth("frees", "pinned")), (([0.0; 3], false), ([0.0; 3], false)), "{mode:?}");
    }
}

/// Bytes a nanosecond to the device, and back.
fn rates(g: &Gpu, name: &str) -> [Option<f64>; 2] {
    let all = g.run["phases"].as_array().expect("phases");
    let p = all.iter().find(|p| p["name"] == name).unwrap_or_else(|| panic!("no {name}: {all:?}"));
    ["h2d_gb_per_s", "d2h_gb_per_s"].map(|key| p[key].as_f64())
}

#[test]
fn a_phase_has_the_rates_of_the_copies_called_in_it() {
    let test = "a_phase_has_the_rates_of_the_copies_called_in_it";
    if skipped(test) {
        return;
    }
    for mode in [Mode::Full, Mode::Fast] {
        let g = gpu_with("phases", "copies", "proc", mode, &[]);
        assert_eq!(rates(&g, "both"), [Some(10e6 / 402e3), Some(10e6 / 502e3)], "{mode:?}");
        assert_eq!(rates(&g, "one"), [Some(10e6 / 404e3), None], "{mode:?}: two times");
        assert_eq!(rates(&g, "all"), [Some(20e6 / 806e3), Some(10e6 / 502e3)], "{mode:?}");
        assert_eq!(rates(&g, "none"), [None; 2], "{mode:?}");
        let out = Command::new(support::memshim()).arg("analyze").arg(&g.trace).output().expect("a report");
        let text = support::lossy(&out.stdout);
        let shown = text.lines().skip_while(|l| !l.contains("H2D GB/s  D2H GB/s")).find(|l| l.trim_start().starts_with("both"));
        let cells: Vec<&str> = shown.unwrap_or_else(|| panic!("{text}")).split_whitespace().collect();
        assert_eq!(cells[cells.len() - 2..], ["24.9", "19.9"], "{text}");
    }
    // By the time of calls where nothing else is known, of those that waited.
    let g = gpu_with("phases", "stages", "proc", Mode::Full, &[("MEMSHIM_GPU_TIMING", "wall")]);
    let [to, back] = rates(&g, "load");
    assert!(to.is_some_and(|r| r > 0.0) && back.is_none(), "{to:?} {back:?}");
    let g = gpu_with("phases", "copies", "proc", Mode::Full, &[("MEMSHIM_GPU_TIMING", "wall")]);
    assert_eq!(rates(&g, "all"), [None; 2], "calls that do not wait say nothing");
    let by_cupti = cupti::told(test, ("phases", "work", "proc"), &[]);
    assert_eq!(rates(&by_cupti, "copy")[0], Some(10e6 / 402e3));
}

fn ns(v: &Value) -> u64 {
    (v.as_f64().unwrap_or_else(|| panic!("no number: {v}")) * 1e9).round() as u64
}

/// What devices did in a phase.
fn work<'a>(g: &'a Gpu, name: &str) -> &'a Value {
    let all = g.run["phases"].as_array().expect("phases");
    &all.iter().find(|p| p["name"] == name).unwrap_or_else(|| panic!("no {name}: {all:?}"))["gpu"]
}

/// Busy, copies, other work, both at once, two streams or more: of the first device, in nanoseconds.
fn times(of: &Value) -> [u64; 5] {
    ["busy_s", "copy_s", "compute_s", "overlap_s", "concurrent_s"].map(|key| ns(&of["devices"][0][key]))
}

/// Busy and with another, of each stream.
fn streams(of: &Value) -> Vec<(u64, u64, u64)> {
    let all = of["streams"].as_array().expect("a list").iter();
    let mut all: Vec<_> = all.map(|s| (s["id"].as_u64().expect("a number"), ns(&s["busy_s"]), ns(&s["overlap_s"]))).collect();
    all.sort_unstable();
    all
}

#[test]
fn devices_and_streams_are_as_busy_in_a_phase_as_its_copies_take() {
    if skipped("devices_and_streams_are_as_busy_in_a_phase_as_its_copies_take") {
        return;
    }
    for mode in [Mode::Full, Mode::Fast] {
        let g = gpu_with("phases", "copies", "proc", mode, &[]);
        let of = |name: &str| work(&g, name);
        assert_eq!(times(of("both")), [502_000, 904_000 - 402_000, 0, 0, 402_000], "{mode:?}");
        assert_eq!(times(of("one")), [404_000, 404_000, 0, 0, 0], "{mode:?}: two times");
        assert_eq!(times(of("all")), [906_000, 906_000, 0, 0, 402_000], "{mode:?}");
        assert_eq!((times(of("none")), streams(of("none")), ns(&of("none")["host_wait_s"])), ([0; 5], vec![], 0), "{mode:?}");
        let (both, one) = (streams(of("both")), streams(of("one")));
        assert_eq!(both.iter().map(|s| (s.1, s.2)).collect::<Vec<_>>(), [(402_000, 402_000), (502_000, 402_000)], "{mode:?}");
        assert_eq!(one, [(both[0].0, 404_000, 0)], "{mode:?}");
        let waits = ["both", "one", "all", "none"].map(|name| of(name)["host_waits"].as_u64());
        assert_eq!(waits, [Some(2), Some(2), Some(4), Some(0)], "{mode:?}");
        for name in ["both", "one", "all", "none"] {
            let (d, covered) = (&of(name)["devices"][0], of(name)["covered_s"].as_f64().expect("a time"));
            let share = d["busy_s"].as_f64().expect("a time") / covered;
            assert!((d["utilization"].as_f64().expect("a share") - share).abs() < 1e-12 && d["stderr_s"].is_null(), "{name}: {d}");
            let wall = g.run["phases"].as_array().expect("phases").iter().find(|p| p["name"] == name).expect("the phase")["wall_s"].clone();
            assert!((wall.as_f64().expect("a time") - covered).abs() < 1e-9, "{name}");
        }
    }
}

#[test]
fn copies_long_after_the_last_have_their_place() {
    if skipped("copies_long_after_the_last_have_their_place") {
        return;
    }
    let busy = [404_000, 404_000, 0, 0, 0];
    // Asked soon; of a driver that is late with the event which times are counted from; at the end.
    let ways: [Variables; 3] = [&[], &[("FAKE_LAGS", "4")], &[("FAKE_STARVED", "starved")]];
    // Side by side: they rest for seconds.
    std::thread::scope(|scope| {
        for env in ways {
            scope.spawn(move || {
                let g = gpu_with("phases", "days", "proc", Mode::Full, env);
                assert_eq!((times(work(&g, "late")), g.number("/untimed")), (busy, 0), "{env:?}");
            });
        }
    });
}

#[test]
fn by_cupti_a_phase_has_its_kernels_and_what_they_hide_of_copies() {
    let test = "by_cupti_a_phase_has_its_kernels_and_what_they_hide_of_copies";
    if skipped(test) {
        return;
    }
    let g = cupti::told(test, ("phases", "work", "proc"), &[]);
    let mixed = work(&g, "mixed");
    assert_eq!(times(mixed), [3_000_000, 402_000, 3_000_000, 402_000, 1_000_000]);
    let seen: Vec<_> = streams(mixed).iter().map(|s| (s.1, s.2)).collect();
    assert_eq!(seen, [(3_000_000, 1_000_000), (1_000_000, 1_000_000), (402_000, 402_000)]);
    assert_eq!(times(work(&g, "copy")), [402_000, 402_000, 0, 0, 0]);
    assert_eq!(mixed["cupti_s"], mixed["covered_s"]);
}

#[test]
fn by_looking_a_phase_is_as_busy_as_it_was_within_the_error() {
    if skipped("by_looking_a_phase_is_as_busy_as_it_was_within_the_error") {
        return;
    }
    for mode in [Mode::Full, Mode::Fast] {
        let g = gpu_with("phases", "spells", "proc", mode, &[]);
        let was: f64 = std::fs::read_to_string(g.trace.with_file_name("busy_ns")).expect("a file").parse().expect("a number");
        let (d, idle) = (&work(&g, "spells")["devices"][0], &work(&g, "idle")["devices"][0]);
        let of = |key: &str| d[key].as_f64().unwrap_or_else(|| panic!("no {key}: {d}"));
        // Each of five spells ended at most half a gap beside where it is put: 5 · gap / 2 is √15 times √(5 · gap² / 12).
        let off = (of("busy_s") - was / 1e9).abs();
        assert!(off <= 15f64.sqrt() * of("stderr_s") + 0.004, "{mode:?}: {off} s of {} beside {d}", was / 1e9);
        assert!(of("stderr_s") > 0.0 && of("compute_s") == of("busy_s") && of("copy_s") == 0.0, "{d}");
        assert_eq!(ns(&idle["busy_s"]), 0, "{mode:?}: {idle}");
        let stream = g.at("/streams").as_array().expect("a list").iter().find(|s| s["kernels"] == 5).expect("the stream");
        assert_eq!((ns(&stream["busy_s"]), ns(&stream["sampled_busy_s"])), (ns(&d["busy_s"]), ns(&d["busy_s"])), "{mode:?}");
    }
}

#[test]
fn kernels_before_cupti_are_known_by_looking_or_said_not_to_be() {
    let test = "kernels_before_cupti_are_known_by_looking_or_said_not_to_be";
    if skipped(test) {
        return;
    }
    let g = cupti::told(test, ("phases", "early", "proc"), &[("FAKE_CUPTI_LATE", "1")]);
    assert_eq!((g.number("/cupti/untold_kernels"), g.number("/cupti/unseen_kernels"), g.number("/kernels/count")), (6, 4, 1));
    let was: f64 = std::fs::read_to_string(g.trace.with_file_name("busy_ns")).expect("a file").parse().expect("a number");
    let of = |name: &str, key: &str| work(&g, name)["devices"][0][key].as_f64().unwrap_or_else(|| panic!("no {key}: {}", g.run["phases"]));
    let off = (of("before", "busy_s") - was / 1e9).abs();
    assert!(off <= 3f64.sqrt() * of("before", "stderr_s") + 0.004, "{off} of {was}: {}", work(&g, "before"));
    assert_eq!((ns(&work(&g, "after")["devices"][0]["busy_s"]), &work(&g, "after")["devices"][0]["at_least"]), (250_000, &json!(true)));
    let told = |name: &str| ["cupti_s", "covered_s"].map(|key| ns(&work(&g, name)[key]));
    assert!(told("before")[0] < told("before")[1] && told("after")[0] == told("after")[1], "{:?} {:?}", told("before"), told("after"));
    let streams = g.at("/streams").as_array().expect("a list");
    let mut seen: Vec<_> = streams.iter().map(|s| (s["kernels"].as_u64(), s["unseen_kernels"].as_u64(), s["busy_s"].is_null())).collect();
    seen.sort_unstable();
    // The second is busy for what CUPTI told at least.
    assert_eq!(seen, [(Some(2), Some(0), false), (Some(2), Some(1), false), (Some(3), Some(3), true)], "{streams:?}");
    let out = Command::new(support::memshim()).arg("analyze").arg(&g.trace).output().expect("a report");
    let text = support::lossy(&out.stdout);
    assert!(text.contains("not by CUPTI: 6 kernels") && text.contains("4 of them nobody saw"), "{text}");
}

/// A trace of a process that two threads work in: when its phases were on, and what its streams did, in µs.
const MADE: &str = r#"{"type":"header","v":1,"run":"00","pid":7,"ppid":1,"start_ticks":77,"pid_ns":1,"exec":0,"mode":"fast","cols":"v93","tick_ns":100,"mono_ns":1000,"wall_ns":1764289999000000000,"host":"nowhere","exe":"/bin/x","argv":["x"],"cwd":"/","rank":null,"job":null,"big":65536,"sample":524288,"page":4096,"allocator":"glibc","slack":24}
{"type":"phase","ev":[["name",1,0,"outer"],["name",2,0,"inner"],["begin",100000,0,1,0,0,"api",1,0,0],["begin",200000,0,1,0,0,"api",2,0,0],["end",300000,0,1,0,0,"api",0,0,0],["begin",150000,1,1,0,0,"api",1,0,0],["end",500000,1,1,0,0,"api",0,0,0],["end",400000,0,1,0,0,"api",0,0,0]]}
{"type":"gpu","ev":[["name",3,0,"events"],["copy","cuMemcpyHtoDAsync",1,140000,0,0,0,1,1296,100000,5,64,0,1],["time","",1,150000,0,0,0,1,0,100000],["spell","",2,180000,0,0,0,1,0,128,70000,60,12000],["spell","",3,480000,0,0,0,1,0,128,40000,30,0],["busy","",4,490000,0,0,0,1,0,128,92,90,7,110000],["stream","cuStreamSynchronize",5,290000,0,0,0,1,2,64,0,20000]]}
{"type":"end","t":600000,"how":"exit","code":0,"counted":0,"recorded":0,"lost":0,"failed":0}
"#;

#[test]
fn work_is_cut_at_the_edges_of_phases_and_threads_in_one_phase_count_once() {
    let run = serde_json::to_value(made::run_of(MADE.as_bytes())).expect("JSON");
    let of = |name: &str| {
        let all = run["phases"].as_array().expect("phases").iter();
        let p: Vec<&Value> = all.filter(|p| p["name"] == name && p["source"] == "api").collect();
        assert_eq!(p.len(), 1, "{name}: {run}");
        p[0]["gpu"].clone()
    };
    // On from 100 to 500: the copy from 150 to 250, work from 180 to 250 and, cut, from 480 on.
    let outer = of("outer");
    assert_eq!((ns(&outer["covered_s"]), times(&outer)), (400_000, [120_000, 100_000, 90_000, 70_000, 70_000]));
    // From 200 to 300, with half of the copy.
    let inner = of("inner");
    assert_eq!((ns(&inner["covered_s"]), times(&inner)), (100_000, [50_000, 50_000, 50_000, 50_000, 50_000]));
    assert_eq!((ns(&inner["host_wait_s"]), ns(&outer["host_wait_s"]), &outer["host_waits"]), (10_000, 20_000, &json!(1)));
    assert_eq!(streams(&inner).iter().map(|s| (s.1, s.2)).collect::<Vec<_>>(), [(50_000, 50_000), (50_000, 50_000)]);
    // The first spell ended between two looks 12 µs apart; one look found it idle and one more did not.
    let error = 12_000.0 / 12f64.sqrt();
    let stderr = inner["streams"].as_array().expect("a list").iter().find_map(|s| s["stderr_s"].as_f64()).expect("an error") * 1e9;
    assert!(stderr >= error && stderr < 1.1 * error, "{stderr} beside {error}");
}

#[test]
fn stretches_of_the_curve_have_their_work_where_nobody_tells_of_phases() {
    let header = MADE.lines().next().expect("a line").to_owned();
    let mut trace = header + "\n";
    for (ms, mib) in [(0, 10u64), (200, 10), (400, 10), (600, 100), (800, 100), (1000, 100)] {
        let (t, rss) = (1000 + ms * 1_000_000, mib << 20);
        trace += &format!(
            "{{\"type\":\"rss\",\"t\":{t},\"rss\":{rss},\"hwm\":{rss},\"anon\":0,\"file\":0,\"shmem\":0,\"swap\":0,\"size\":0,\"stk\":0,\"threads\":1}}\n"
        );
    }
    trace += "{\"type\":\"gpu\",\"ev\":[[\"name\",3,0,\"events\"],[\"copy\",\"cuMemcpyHtoDAsync\",1,140000,0,0,0,1,1296,100000,5,64,0,1],[\"time\",\"\",1,300001000,0,0,0,1,0,200000000]]}\n";
    trace += "{\"type\":\"end\",\"t\":1000001000,\"how\":\"exit\",\"code\":0,\"counted\":0,\"recorded\":0,\"lost\":0,\"failed\":0}\n";
    let run = serde_json::to_value(made::run_of(trace.as_bytes())).expect("JSON");
    let all: Vec<(String, [u64; 2])> = run["phases"]
        .as_array()
        .expect("phases")
        .iter()
        .map(|p| {
            (
                format!("{} {}", p["source"].as_str().expect("text"), p["name"].as_str().expect("text")),
                [ns(&p["gpu"]["covered_s"]), times(&p["gpu"])[0]],
            )
        })
        .collect();
    // The copy from 300 to 500 ms.
    let part = |name: &str, ms: u64, busy: u64| (format!("auto {name}"), [ms * 1_000_000, busy * 1_000_000]);
    assert_eq!(all, [part("plateau", 400, 100), part("ramp", 200, 100), part("plateau", 400, 0)]);
}
