//! Promises about who holds memory of devices.

use super::*;

/// Function at the inner end of a site that is the program's own, its device, and its figures: at the peak, own peak, in all, at the end.
fn row(site: &Value) -> (String, Option<u64>, [u64; 4]) {
    let owner = site["owner"].as_u64().and_then(|at| site["frames"][at as usize]["function"].as_str());
    let figure = |key: &str| site[key].as_u64().unwrap_or_else(|| panic!("no {key}: {site}"));
    let figures = ["live_at_peak_bytes", "peak_bytes", "total_bytes", "leaked_bytes"].map(figure);
    (owner.unwrap_or("?").to_owned(), site["device"].as_u64(), figures.map(|n| n / MIB))
}

#[test]
fn the_call_sites_of_each_device_say_who_held_it_at_its_peak() {
    if skipped("the_call_sites_of_each_device_say_who_held_it_at_its_peak") {
        return;
    }
    for way in WAYS {
        for mode in [Mode::Full, Mode::Fast] {
            let g = gpu_with("memory", "owners", way, mode, &[]);
            assert_eq!((g.number("/devices/0/peak_bytes"), g.number("/devices/1/peak_bytes")), (10 * MIB, 5 * MIB));
            let of = |kind: &str| {
                let mut all: Vec<_> = g.run["sites"].as_array().expect("sites").iter().filter(|s| s["kind"] == kind).map(row).collect();
                all.sort();
                all
            };
            let expected = [
                ("activations", 0, [4, 4, 4, 0]),
                ("mapped", 0, [0, 2, 2, 0]),
                ("results", 0, [0, 3, 3, 3]),
                ("shard", 1, [5, 5, 5, 5]),
                ("weights", 0, [6, 6, 6, 6]),
            ];
            assert_eq!(of("gpu"), expected.map(|(name, device, of)| (name.to_owned(), Some(device), of)), "{way}");
            assert_eq!(of("pinned"), [("staging".to_owned(), None, [2, 2, 2, 2])], "{way}");
        }
    }
}
