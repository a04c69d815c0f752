//! Promises about the address space: ranges, kinds, what is committed and what only reserved.
mod support;
use support::{Mode, Program};

promises! {
    partial_unmaps_leave_the_rest: "maps.c" ["holes"];
    mremap_is_followed_in_all_its_forms: "maps.c" ["remap"];
    a_fixed_map_replaces_what_was_there: "maps.c" ["fixed-over"];
    pages_given_back_stay_mapped: "maps.c" ["given-back"];
    kinds_of_mappings_are_told_apart: "maps.c" ["kinds"];
    reserved_is_not_committed: "maps.c" ["reserve"];
    the_programs_own_break_is_followed: "maps.c" ["break"];
}

#[test]
fn the_resident_peak_is_seen_from_inside_and_outside() {
    const TOUCHED: u64 = 64 << 20;
    let program = Program::new("the_resident_peak", "maps.c").arg("resident");
    let Some(report) = program.report(Mode::Run) else {
        return;
    };
    let run = &report["runs"][0];
    let rss = |key: &str| run["rss"][key].as_u64().unwrap_or_else(|| panic!("no rss.{key}: {}", run["rss"]));
    let (peak, inside, outside) = (rss("peak_bytes"), rss("hwm_bytes"), rss("outside_hwm_bytes"));
    assert!(peak >= TOUCHED && inside >= peak && outside >= peak, "{}", run["rss"]);
    assert!(outside.abs_diff(inside) < 4 << 20, "inside {inside}, outside {outside}");
    let at = run["rss"]["peak_at_s"].as_f64().expect("rss.peak_at_s");
    assert!((0.1..0.6).contains(&at), "the peak was at {at} s");
    assert!(run["maps"]["anon"]["peak_bytes"].as_u64().is_some_and(|b| (TOUCHED..TOUCHED + (8 << 20)).contains(&b)), "{}", run["maps"]);
}

/// What is asked for is not resident: the kernel's parts add up to what is, and beside them stands what had been asked for at that instant.
#[test]
fn the_resident_peak_is_made_of_what_was_touched_and_says_what_was_asked_for() {
    const MIB: i64 = 1 << 20;
    for mode in [Mode::Full, Mode::Fast] {
        let test = format!("the_resident_peak_is_made_of_what_was_touched-{mode:?}");
        let Some((trace, _)) = Program::new(&test, "asked.c").env("MEMSHIM_INTERVAL", "10ms").trace_and_truth(mode) else { return };
        let report: serde_json::Value = serde_json::from_str(&support::analyze(&trace).expect("a report")).expect("JSON");
        let at = &report["runs"][0]["rss"]["at_peak"];
        let of = |key: &str| at[key].as_i64().unwrap_or_else(|| panic!("no {key}: {at}"));
        assert_eq!(of("anon") + of("file") + of("shmem"), of("rss"), "{at}");
        assert!((40 * MIB..42 * MIB).contains(&of("anon")) && (60 * MIB..61 * MIB).contains(&of("heap")), "{at}");
        assert_eq!((of("maps_anon"), of("brk")), (100 * MIB, 0), "what was mapped after it is not of it: {at}");
        assert_eq!(of("unaccounted"), of("anon") - of("heap") - of("maps_anon") - of("stack"), "{at}");
        let text = std::process::Command::new(support::memshim()).args(["analyze", "--no-color"]).arg(&trace).output().expect("memshim");
        let text = support::lossy(&text.stdout);
        let row = |name: &str| {
            let mut rows = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "));
            rows.find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("no {name}: {text}"))
        };
        let mib = |bytes: i64| format!("{:.1} MiB", bytes as f64 / MIB as f64);
        let share = |key: &str| format!("{:.0} %", 100.0 * of(key).abs() as f64 / of("rss") as f64);
        row(&format!("private {} {} heap, maps, stacks", mib(of("anon")), share("anon")));
        // Of what was asked for nothing says that it was resident.
        let asked = ["asked for 160 MiB of private memory, touched or not", "heap 60.0 MiB live blocks", "anon maps 100 MiB committed"];
        asked.iter().for_each(|wanted| _ = row(wanted));
        let untouched = format!("−{:.0} MiB", -of("unaccounted") as f64 / MIB as f64);
        row(&format!("unaccounted {untouched} −{} at least so much was never touched", share("unaccounted")));
    }
}

/// Stacks that the C library maps for threads are a class of their own; those that the program provides are its maps, once.
#[test]
fn stacks_of_threads_are_known_by_size_while_the_threads_live() {
    const LIVING: u64 = 20 * (1 << 20) + 10 * (256 << 10);
    for mode in [Mode::Full, Mode::Fast] {
        let test = format!("stacks_of_threads_are_known_by_size_while_the_threads_live-{mode:?}");
        let Some(report) = Program::new(&test, "thread_stacks.c").report(mode) else { return };
        let maps = &report["runs"][0]["maps"];
        let number = |class: &str, key: &str| maps[class][key].as_u64().unwrap_or_else(|| panic!("no maps.{class}.{key}: {maps}"));
        // The first thread's is what the kernel says, some 130 KiB.
        let near = |value: u64, wanted: u64| (wanted + 4096..wanted + (1 << 20)).contains(&value);
        assert!(near(number("stack", "peak_bytes"), LIVING), "{mode:?}: {}", maps["stack"]);
        assert!(near(number("stack", "committed_bytes"), 2 << 20), "{mode:?}: {}", maps["stack"]);
        assert_eq!(number("stack", "reserved_bytes"), 4096, "{mode:?}: the guard of the thread that stays: {}", maps["stack"]);
        assert_eq!(number("anon", "peak_bytes"), 5 * (128 << 10), "{mode:?}: {}", maps["anon"]);
        assert_eq!(report["runs"][0]["missing"], serde_json::json!([]), "{mode:?}");
    }
}

/// A forked child has what its parent had mapped, and does with it what it wants: none of it is the allocator's.
#[test]
fn a_forked_child_has_its_parents_maps() {
    const MIB: u64 = 1 << 20;
    for mode in [Mode::Full, Mode::Fast] {
        let test = format!("a_forked_child_has_its_parents_maps-{mode:?}");
        let Some((trace, _)) = Program::new(&test, "inherited_maps.c").trace_and_truth(mode) else { return };
        let report: serde_json::Value = serde_json::from_str(&support::analyze(&trace).expect("a report")).expect("JSON");
        let runs = report["runs"].as_array().expect("runs");
        assert_eq!(runs.len(), 3, "{mode:?}");
        // Parent, child and grandchild: inherited, peak, at the end.
        for (run, [inherited, peak, end, shared]) in runs.iter().zip([[0, 160, 160, 16], [160, 176, 80, 16], [80, 112, 112, 16]]) {
            let (maps, at) = (&run["maps"], &run["rss"]["at_peak"]);
            let mib = |of: &serde_json::Value| of.as_u64().unwrap_or_else(|| panic!("no number: {of} {maps}")) / MIB;
            let got = [&maps["inherited_bytes"], &maps["peak_bytes"], &maps["anon"]["committed_bytes"]].map(mib);
            assert_eq!(got, [inherited, peak, end - shared], "{mode:?}: {maps}");
            assert_eq!(mib(&maps["shared"]["committed_bytes"]), shared, "{mode:?}: {maps}");
            let rest = at["unaccounted"].as_i64().unwrap_or_else(|| panic!("{at}"));
            assert!(rest.unsigned_abs() < 8 * MIB, "{mode:?}: {at}");
            let trim = |a: &serde_json::Value| a["what"].as_str().is_some_and(|what| what.contains("no map"));
            assert!(!run["advice"].as_array().expect("advice").iter().any(trim), "{mode:?}: {}", run["advice"]);
        }
        // By itself nobody knows what it had.
        let child = trace.with_extension("d").join(format!("{}.jsonl", runs[1]["pid"]));
        let report: serde_json::Value = serde_json::from_str(&support::analyze(&child).expect("a report")).expect("JSON");
        let run = &report["runs"][0];
        assert_eq!((&run["maps"]["inherited_bytes"], &run["advice"]), (&serde_json::Value::Null, &serde_json::json!([])), "{mode:?}");
    }
}
