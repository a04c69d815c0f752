//! Promises about calls that the driver refuses: what it has not looked at, nobody has.

use super::*;

#[test]
fn pointers_to_nowhere_are_passed_on_and_not_followed_where_the_driver_refuses() {
    if skipped("pointers_to_nowhere_are_passed_on_and_not_followed_where_the_driver_refuses") {
        return;
    }
    for (way, timing) in WAYS.into_iter().zip(["events", "cupti", "wall", "off"]) {
        let g = gpu_with("refused", "all", way, Mode::Full, &[("MEMSHIM_GPU_TIMING", timing)]);
        let mut refused = BTreeMap::<String, u64>::new();
        for name in g.stdout.lines().filter_map(|l| l.strip_prefix("REFUSED ")) {
            *refused.entry(name.to_owned()).or_default() += 1;
        }
        let mut failed = BTreeMap::<String, u64>::new();
        for f in g.at("/failed").as_array().expect("a list") {
            *failed.entry(f["call"].as_str().expect("a name").to_owned()).or_default() += f["count"].as_u64().expect("a number");
        }
        assert!(refused.len() > 120, "{refused:?}");
        assert_eq!(failed, refused, "{way}: each refused call is counted once");
        assert_eq!((g.at("/transfers"), g.number("/unknown_frees"), g.number("/untimed")), (&json!([]), 0, 0), "{way}");
    }
}

#[test]
fn lists_of_nothing_and_of_no_stream_are_not_read() {
    if skipped("lists_of_nothing_and_of_no_stream_are_not_read") {
        return;
    }
    for way in WAYS {
        for timing in ["events", "wall"] {
            let g = gpu_with("refused", "by_itself", way, Mode::Fast, &[("MEMSHIM_GPU_TIMING", timing)]);
            let failed =
                g.at("/failed").as_array().expect("a list").iter().map(|f| (f["call"].as_str().expect("a name"), f["count"].as_u64()));
            let expected = [
                "cuArrayCreate",
                "cuLaunchCooperativeKernelMultiDevice",
                "cuLaunchKernelEx",
                "cuMemPrefetchBatchAsync",
                "cuMemcpy3DBatchAsync",
                "cuMemcpyBatchAsync",
                "cuMipmappedArrayCreate",
            ];
            assert_eq!(failed.collect::<BTreeSet<_>>(), expected.map(|name| (name, Some(1))).into(), "{way} {timing}");
            assert_eq!((g.at("/transfers"), g.number("/untimed")), (&json!([]), 0), "{way} {timing}");
        }
    }
}
