//! Promises about several devices in one process: what is of which, whichever is current.

use super::*;

/// Direction, device, the other device where there are two: copies and bytes, by the trace's rows.
fn copies(g: &Gpu) -> BTreeMap<(&'static str, u64, Option<u64>), (u64, u64)> {
    let names = ["H2D", "D2H", "D2D", "P2P", "H2H", "memset"];
    let mut sums = BTreeMap::<_, (u64, u64)>::new();
    for row in g.rows().iter().filter(|row| row[0] == "copy") {
        let n = |i: usize| row[i].as_u64().expect("a number");
        let (device, flags, bytes, count) = (n(6), n(8), n(9), n(13));
        let sum = sums.entry((names[flags as usize & 15], device, (flags >> 16 & 0xff).checked_sub(1))).or_default();
        *sum = (sum.0 + count, sum.1 + bytes);
    }
    sums
}

/// Kind and device of each stream, with the figures of these names.
fn streams<const N: usize>(g: &Gpu, keys: [&str; N]) -> Vec<(String, u64, [Value; N])> {
    let all = g.at("/streams").as_array().expect("a list");
    let row =
        |s: &Value| (s["kind"].as_str().expect("text").to_owned(), s["device"].as_u64().expect("a device"), keys.map(|key| s[key].clone()));
    let mut rows: Vec<_> = all.iter().map(row).collect();
    rows.sort_by_key(|r| (r.1, r.0.clone()));
    rows
}

#[test]
fn a_look_at_memory_is_booked_on_the_device_that_the_driver_speaks_of() {
    if skipped("a_look_at_memory_is_booked_on_the_device_that_the_driver_speaks_of") {
        return;
    }
    for way in WAYS {
        let g = gpu_with("devices", "looks", way, Mode::Full, &[("MEMSHIM_INTERVAL", "20ms")]);
        let totals = [80u64, 24, 16].map(|gib| gib << 30);
        let looks: Vec<_> = g.rows().into_iter().filter(|row| row[0] == "state" && row[8] == 0).collect();
        for row in &looks {
            assert_eq!(row[10], totals[row[6].as_u64().expect("a device") as usize], "{way}: {row}");
        }
        // One at each of ten turns, all of the current one's device.
        let of_first = looks.iter().filter(|row| row[6] == 0).count();
        assert!(of_first > 10 && looks.len() <= of_first + 4, "{way}: {of_first} of {}", looks.len());
        for (device, total) in totals.iter().enumerate() {
            assert_eq!(g.number(&format!("/devices/{device}/total_bytes")), *total, "{way}");
        }
        // A context's own 300 MiB, and a block of 1.
        assert_eq!([0, 2].map(|d| g.number(&format!("/devices/{d}/used_peak_bytes"))), [301 * MIB, 300 * MIB], "{way}");
        let of = |key: &str| g.number(&format!("/devices/1/{key}"));
        assert_eq!((of("peak_bytes"), of("used_peak_bytes")), (301 * MIB, 300 * MIB), "{way}: as it was when it was last looked at");
        let moved = BTreeMap::from([(("memset", 1, None), (10, 10_000)), (("D2D", 1, None), (10, 20_000))]);
        assert_eq!(copies(&g), moved, "{way}");
    }
}

#[test]
fn a_stream_is_one_and_of_its_contexts_device_whichever_memory_it_moves_and_whichever_is_current() {
    if skipped("a_stream_is_one_and_of_its_contexts_device_whichever_memory_it_moves_and_whichever_is_current") {
        return;
    }
    for way in WAYS {
        let g = gpu("devices", "of_streams", way);
        let ns = |s: &Value| (s.as_f64().expect("a time") * 1e9).round() as u64;
        let all: Vec<_> = streams(&g, ["copies", "busy_s"]).into_iter().map(|(kind, device, [n, s])| (kind, device, n, ns(&s))).collect();
        let of = |kind: &str, device, copies: u64, ns: u64| (kind.to_owned(), device, json!(copies), ns);
        // Each takes 2 µs, and a microsecond for 1.5 MB; of the second device's stream one is timed.
        let idle = |device| of("made", device, 0, 0);
        let expected = [of("default", 0, 2, 4003), idle(0), of("default", 1, 1, 2003), of("made", 1, 2, 2006), idle(2)];
        assert_eq!(all, expected, "{way}");
        assert_eq!(g.number("/untimed"), 1, "{way}");
        assert_eq!(copies(&g), BTreeMap::from([(("memset", 0, None), (2, 7500)), (("memset", 1, None), (3, 16_500))]), "{way}");
    }
}

#[test]
fn kernels_of_a_launch_on_several_devices_are_of_their_streams_devices() {
    if skipped("kernels_of_a_launch_on_several_devices_are_of_their_streams_devices") {
        return;
    }
    for way in WAYS {
        for timing in ["events", "wall"] {
            let g = gpu_with("devices", "kernels", way, Mode::Full, &[("MEMSHIM_GPU_TIMING", timing)]);
            let expected = [(0, 1), (1, 3), (2, 3)].map(|(device, n)| ("made".to_owned(), device, [json!(n)]));
            assert_eq!(streams(&g, ["kernels"]), expected, "{way}");
            let busy = g.rows().into_iter().filter(|row| row[0] == "busy");
            let of_streams: BTreeSet<_> = busy.map(|row| (row[9].as_u64(), row[6].as_u64(), row[7].as_u64())).collect();
            assert_eq!(of_streams.len(), 3, "{way}: each stream has one context: {of_streams:?}");
        }
    }
}

#[test]
fn copies_between_contexts_are_of_the_devices_that_have_a_part_in_them() {
    if skipped("copies_between_contexts_are_of_the_devices_that_have_a_part_in_them") {
        return;
    }
    for way in WAYS {
        let g = gpu("devices", "peers", way);
        let expected = [
            (("D2D", 1, None), (3, 7000)),
            (("P2P", 0, Some(1)), (1, 32_000)),
            (("P2P", 1, Some(2)), (1, 16_000)),
            (("P2P", 2, Some(1)), (2, 72_000)),
        ];
        assert_eq!(copies(&g), BTreeMap::from(expected), "{way}");
    }
}

#[test]
fn copies_of_a_batch_are_each_of_the_device_that_has_the_memory() {
    if skipped("copies_of_a_batch_are_each_of_the_device_that_has_the_memory") {
        return;
    }
    for way in WAYS {
        let g = gpu("devices", "batches", way);
        let mut expected = BTreeMap::from([
            (("H2D", 0, None), (1, 1000)),
            (("H2D", 1, None), (1, 2000)),
            (("D2D", 1, None), (3, 13_000)),
            (("D2H", 1, None), (1, 8000)),
            (("P2P", 2, Some(1)), (1, 16_000)),
            (("D2D", 0, None), (1, 5000)),
        ]);
        let is = |g: &Gpu| {
            let mut is = copies(g);
            is.retain(|_, sum| *sum != (0, 0));
            is
        };
        assert_eq!(is(&g), expected, "{way}");
        assert_eq!(g.transfers()["D2D device"].2, 2004, "{way}: of several together the time of each is not known");
        let g = gpu("devices", "prefetches", way);
        expected = BTreeMap::from([(("H2D", 2, None), (2, 1100)), (("H2D", 1, None), (3, 4600)), (("D2H", 1, None), (3, 10_800))]);
        assert_eq!(is(&g), expected, "{way}");
    }
}
