//! Promises about other preloaded libraries between programs and the driver, before us and behind us.

use super::*;

/// One that stands in front of the driver's functions by name, and one that gives its own out where the driver's are looked up.
fn others() -> [(&'static str, String); 2] {
    [("in_front", "-DIN_FRONT"), ("gives_out", "-DGIVES_OUT")].map(|(name, how)| {
        let made = support::build("cuda/other.c", &format!("libother_{name}.so"), &["-shared", "-fPIC", "-fvisibility=hidden", "-O2", how]);
        (name, made.to_str().expect("a path in UTF-8").to_owned())
    })
}

/// The same with it alone (which is what must come of it) and with us before and behind it.
fn in_both_orders(source: &str, mode: &str, way: &str, more: Variables, holds: impl Fn(&Gpu, &str)) {
    let (shim, program, driver) = (support::shim(), program(source, way), driver_of(13050));
    let shim = shim.to_str().expect("a path in UTF-8");
    for (name, other) in others() {
        for (order, both) in [("behind", format!("{shim}:{other}")), ("before", format!("{other}:{shim}"))] {
            let what = format!("{mode} {way}, {name} {order}");
            let run = format!("cuda_other_{source}_{mode}_{way}_{name}_{order}_{}", more.len());
            let without = [&[("LD_PRELOAD", other.as_str()), ("CUDA_DRIVER", &driver)], more].concat();
            holds(&gpu_of(&program, &run, &[mode, way], Mode::Full, (&[("LD_PRELOAD", &both)], &without)), &what);
        }
    }
}

#[test]
fn another_library_before_us_or_behind_us_sees_what_it_saw_and_each_call_counts_once() {
    if skipped("another_library_before_us_or_behind_us_sees_what_it_saw_and_each_call_counts_once") {
        return;
    }
    for way in WAYS {
        in_both_orders("copies", "all", way, &[], |g, what| {
            assert_eq!((g.transfers(), g.number("/untimed"), g.number("/unknown_frees")), (g.expected(), 0, 0), "{what}");
            let of = ["peak_bytes", "allocs"].map(|key| g.number(&format!("/devices/0/{key}")));
            assert_eq!(of, [16 * MIB, 4], "{what}: two blocks, one managed, an array");
            assert_eq!(g.number("/devices/1/peak_bytes"), 4 * MIB, "{what}");
            // In front of linked calls, or given out: it has seen what it has seen without us (its counts are said by the program's run).
            let seen = g.stdout.lines().find_map(|l| l.strip_prefix("OTHER ")).expect("its counts").to_owned();
            let any = if (way == "linked") == what.contains("in_front") { "3 0 2 2 3" } else { "0 0 0 0 0" };
            assert_eq!(seen, any, "{what}");
        });
    }
}

/// Two copies are made in halves: a latency more, and the nanosecond that is lost where both are rounded down.
#[test]
fn a_driver_that_calls_itself_by_its_name_is_counted_once_and_seen_by_others_as_without_us() {
    if skipped("a_driver_that_calls_itself_by_its_name_is_counted_once_and_seen_by_others_as_without_us") {
        return;
    }
    let splits = [("FAKE_SPLITS", "4096")];
    let one_in_halves = |g: &Gpu, what: &str| {
        let mut of = g.expected();
        for key in ["H2D pageable", "H2D pinned"] {
            of.get_mut(key).expect("copies").2 += 2000 - 1;
        }
        assert_eq!((g.transfers(), g.number("/untimed")), (of, 0), "{what}");
    };
    for way in WAYS {
        let run = format!("cuda_splits_{way}");
        one_in_halves(&gpu_of(&program("copies", way), &run, &["all", way], Mode::Full, (&[], &splits)), way);
    }
    in_both_orders("copies", "all", "linked", &splits, |g, what| {
        one_in_halves(g, what);
        let seen = g.stdout.lines().find_map(|l| l.strip_prefix("OTHER ")).expect("its counts").to_owned();
        assert_eq!(seen, if what.contains("in_front") { "3 0 6 2 3" } else { "0 0 0 0 0" }, "{what}");
    });
}

#[test]
fn dlsym_stays_right_with_another_library_there() {
    if skipped("dlsym_stays_right_with_another_library_there") {
        return;
    }
    for mode in ["without_driver", "others", "with_driver"] {
        in_both_orders("lookups", mode, "dlsym", &[], |g, what| {
            assert_eq!(g.run["gpu"].is_null(), mode != "with_driver", "{what}: {}", g.run["gpu"]);
            assert!(mode != "with_driver" || g.number("/devices/0/live_bytes") == 2 * MIB, "{what}");
        });
    }
}

#[test]
fn a_folder_that_is_called_as_a_framework_makes_none_of_what_lies_in_it() {
    let test = "a_folder_that_is_called_as_a_framework_makes_none_of_what_lies_in_it";
    if skipped(test) {
        return;
    }
    let put = |file: &str| {
        std::fs::create_dir_all(support::out_dir().join(file).parent().expect("a folder")).expect("a folder");
        support::build("cuda/plugin.c", file, &["-shared", "-fPIC"]);
    };
    ["cupy-free", "cupy", "xla_cuda_env", "xla_extension-src", "librmm-dev"]
        .iter()
        .for_each(|folder| put(&format!("{folder}/libplain.so")));
    ["cupy/cuda/memory.so", "cupy_backends/cuda/driver.so", "rmm/pylibrmm/memory_resource.so"]
        .iter()
        .for_each(|file| put(&format!("packages/{file}")));
    for (mode, pools) in [("folders", json!([])), ("packages", json!(["CuPy", "RMM"]))] {
        let g = gpu("frameworks", mode, "proc");
        assert_eq!((g.at("/own_pools"), g.number("/devices/0/peak_bytes")), (&pools, 20 * MIB), "{mode}");
    }
}
