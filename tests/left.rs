//! Promises about whose the memory is that a phase left behind, and that it needed only meanwhile: by call site, to the byte in full mode.

mod support;

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::{Need, Session, lossy};

fn record(dir: &Path, args: &[&str], settings: &[(&str, &str)]) {
    let mut command = Command::new(support::build("left.c", "left", &["-Wno-all"]));
    command.args(args).current_dir(dir).env("LD_PRELOAD", support::shim()).envs(settings.iter().copied());
    assert_eq!(Session::start(&mut command, dir).finish(Duration::from_secs(60)).end(), "exit 0");
}

fn ask(dir: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let out = Command::new(support::memshim()).arg("analyze").args(args).arg(dir.join("trace.jsonl")).output().expect("memshim");
    (out.status.code(), lossy(&out.stdout), lossy(&out.stderr))
}

fn run(dir: &Path, args: &[&str]) -> Value {
    let (code, text, said) = ask(dir, &[&["--json"], args].concat());
    assert_eq!(code, Some(0), "{said}");
    serde_json::from_str::<Value>(&text).expect("JSON")["runs"][0].take()
}

fn phase<'a>(run: &'a Value, path: &str) -> &'a Value {
    let is =
        |p: &&Value| p["path"].as_array().is_some_and(|all| all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("/") == path);
    run["phases"].as_array().and_then(|all| all.iter().find(is)).unwrap_or_else(|| panic!("no phase {path}: {}", run["phases"]))
}

/// Bytes by the function of the program that asked for them.
fn by_function(sites: &Value) -> BTreeMap<String, i64> {
    let owner = |s: &Value| s["frames"][s["owner"].as_u64().unwrap_or(0) as usize]["function"].as_str().unwrap_or("?").to_owned();
    let mut all = BTreeMap::new();
    for s in sites.as_array().expect("sites").iter().filter(|s| s["kind"].is_null() || s["kind"] == "heap") {
        let bytes = ["bytes", "live_at_bytes"].iter().find_map(|key| s[*key].as_i64()).expect("bytes");
        // What a thread needs to begin is the C library's.
        if bytes < 2_000 {
            continue;
        }
        *all.entry(owner(s)).or_default() += bytes;
    }
    all
}

/// Phase, what it left, what it needed meanwhile.
type Truth = (&'static str, &'static [(&'static str, i64)], &'static [(&'static str, i64)]);
const TRUTH: [Truth; 5] = [
    ("load", &[("keep_load", 300_000)], &[("scratch_load", 1_000_000)]),
    ("solve", &[("main", 800_001), ("keep_inner", 50_000), ("other_thread", 123_456)], &[("scratch_solve", 1_000_000)]),
    ("solve/inner", &[("main", 800_001), ("keep_inner", 50_000)], &[]),
    ("step", &[("keep_step", 630_000)], &[("scratch_step", 900_000)]),
    ("many", &[("keep_many", 4_000_000)], &[]),
];

#[test]
fn every_call_site_of_a_phase_has_what_its_program_knows() {
    let test = "every_call_site_of_a_phase_has_what_its_program_knows";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let of = |all: &[(&str, i64)]| all.iter().map(|(name, bytes)| (name.to_string(), *bytes)).collect::<BTreeMap<_, _>>();
    for (mode, big) in [("full", "64KiB"), ("fast", "1")] {
        let dir = support::fresh_dir(test);
        record(&dir, &[], &[("MEMSHIM_MODE", mode), ("MEMSHIM_BIG", big)]);
        let first = run(&dir, &[]);
        for (path, left, meanwhile) in TRUTH {
            let p = phase(&first, path);
            for (key, want) in [("left", left), ("meanwhile", meanwhile)] {
                assert_eq!(by_function(&p[key]["top"]), of(want), "{mode} {path} {key}: {}", p[key]);
                assert_eq!(p[key]["stderr_bytes"], 0.0);
            }
            let all = p["left"]["bytes"].as_i64().expect("bytes");
            // Nothing older was freed in it; in fast mode levels are by usable size.
            if path == "load" && mode == "full" {
                assert_eq!((p["heap_persistent_bytes"].as_i64(), p["left"]["top"][0]["allocs"].as_i64()), (Some(all), Some(3)));
            }
            // The page says the same.
            let page = run(&dir, &["--sites", "--phase", path, "--left"]);
            assert_eq!(page["sites_total"]["live_at_peak_bytes"].as_i64(), Some(all), "{mode} {path}");
            assert_eq!(by_function(&page["sites"]), of(left), "{mode} {path}");
        }
        let (_, text, _) = ask(&dir, &["--sites", "--phase", "load", "--left", "--no-color"]);
        assert!(text.contains("live at the end of `load` of what was allocated in it") && text.contains("keep_load"), "{text}");
        assert!(!text.contains("keep_solve"), "{text}");
    }
}

#[test]
fn what_is_estimated_is_as_near_as_it_says() {
    let test = "what_is_estimated_is_as_near_as_it_says";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    record(&dir, &[], &[("MEMSHIM_SAMPLE", "64KiB")]);
    let first = run(&dir, &[]);
    let left = &phase(&first, "many")["left"];
    let (bytes, error) = (left["bytes"].as_f64().expect("bytes"), left["stderr_bytes"].as_f64().expect("an error"));
    assert!(error > 100_000.0 && error < 1_500_000.0 && (bytes - 4e6).abs() < 5.0 * error, "{bytes} ± {error}");
    let large = phase(&first, "load");
    assert_eq!(
        (large["left"]["bytes"].as_i64(), large["left"]["stderr_bytes"].as_f64()),
        (Some(300_000), Some(0.0)),
        "blocks from 64 KiB on are events"
    );
}

#[test]
fn a_ramp_that_nobody_told_of_has_the_sites_that_made_it() {
    let test = "a_ramp_that_nobody_told_of_has_the_sites_that_made_it";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    for mode in ["full", "fast"] {
        let dir = support::fresh_dir(test);
        record(&dir, &["ramp"], &[("MEMSHIM_MODE", mode), ("MEMSHIM_INTERVAL", "20ms")]);
        let first = run(&dir, &[]);
        let ramp = phase(&first, "ramp");
        let got = by_function(&ramp["left"]["top"]);
        // Where a ramp ends is as exact as the curve is drawn: within 6 % of its range.
        let bytes = got.get("fill").copied().unwrap_or(0);
        assert!((90_000_000..=100_000_000).contains(&bytes) && bytes % 1_000_000 == 0, "{mode}: {ramp}");
        assert_eq!((got.len(), ramp["source"].as_str()), (1, Some("auto")), "what was freed at once is not in it: {ramp}");
        assert!(phase(&first, "plateau")["left"].is_null());
        let (_, text, _) = ask(&dir, &["--sites", "--phase", "ramp", "--left", "--no-color"]);
        assert!(text.contains("live at the end of the ramp and not at its begin") && text.contains("fill"), "{text}");
    }
}

#[test]
fn a_phase_that_is_not_there_is_said_with_those_that_are() {
    let test = "a_phase_that_is_not_there_is_said_with_those_that_are";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    record(&dir, &[], &[("MEMSHIM_MODE", "full")]);
    for (args, why) in [
        (&["--sites", "--phase", "lode", "--left"][..], "--phase lode: no such phase in these traces; there are load, solve"),
        (&["--sites", "--left"], "--phase"),
        (&["--sites", "--phase", "load", "--left", "--memory", "maps"], "--left: of phases only blocks of the heap"),
    ] {
        let (code, _, said) = ask(&dir, args);
        assert!(code == Some(2) && said.contains(why), "{said}");
    }
    let dir = support::fresh_dir(test);
    record(&dir, &[], &[("MEMSHIM_MODE", "full"), ("MEMSHIM_STACKS", "off")]);
    assert!(phase(&run(&dir, &[]), "load")["left"].is_null(), "without stacks it is not known");
}
