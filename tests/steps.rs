//! Promises about phases that repeat: what is called a leak.

mod support;

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::{Need, Session, fresh_dir, lacks, lossy, python, root};

/// Phase `step` of `py_steady.py NAME …`, and what is advised; `None` where a package is missing.
fn step_of(name: &str, more: &[&str], mode: &str) -> Option<(Value, Value)> {
    let dir = fresh_dir(&format!("steps-{name}-{mode}-{}", more.concat()));
    let mut command = Command::new(python()?);
    command.arg(root().join("tests/programs/py_steady.py")).arg(name).args(more).current_dir(&dir);
    command.env("LD_PRELOAD", support::shim()).env("MEMSHIM_MODE", mode).env("MEMSHIM_STACKS", "off").env("PYTHONDONTWRITEBYTECODE", "1");
    // OpenMP's threads wait in a loop: on a busy machine that is nearly all of the time.
    command.env("MEMSHIM_PHASE_PY", "__main__:main.<locals>.step").env("JAX_PLATFORMS", "cpu").env("OMP_NUM_THREADS", "1");
    let ran = Session::start(&mut command, &dir).finish(Duration::from_secs(120));
    if ran.end() == "exit 77" {
        return None;
    }
    assert_eq!(ran.end(), "exit 0", "{name}: {}", lossy(&ran.stderr));
    let report: Value = serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).expect("a report")).expect("JSON");
    let phases = report["runs"][0]["phases"].as_array().expect("phases");
    let step =
        phases.iter().find(|p| p["name"].as_str().is_some_and(|n| n.ends_with(".step"))).unwrap_or_else(|| panic!("{name}: {report}"));
    assert_eq!(step["count"], 120, "{name}");
    Some((step.clone(), report["runs"][0]["advice"].clone()))
}

#[test]
fn real_programs_that_keep_nothing_are_not_called_leaking() {
    let test = "real_programs_that_keep_nothing_are_not_called_leaking";
    if lacks(test, &[Need::Preload, Need::Module("sqlite3")]) {
        return;
    }
    let list = Command::new(python().unwrap()).arg(root().join("tests/programs/py_steady.py")).output().unwrap();
    let names = lossy(&list.stdout);
    let mut seen = 0;
    for (name, mode) in names.lines().flat_map(|name| [(name, "full"), (name, "fast")]) {
        match step_of(name, &[], mode) {
            Some((step, advice)) => {
                assert_eq!(step["steps"]["leaks"], false, "{name} {mode}: {step}");
                let leaks = advice.as_array().expect("advice").iter().any(|a| a["what"].as_str().is_some_and(|w| w.contains(" leaks")));
                assert!(!leaks, "{name} {mode}: {advice}");
            }
            None => {
                support::skip(&format!("{test} ({name}, {mode})"), "needs a package");
                continue;
            }
        }
        seen += 1;
    }
    assert!(seen >= 2 * 18, "of Python's own library: {seen}");
}

#[test]
fn the_same_programs_with_a_kilobyte_kept_are() {
    if lacks("the_same_programs_with_a_kilobyte_kept_are", &[Need::Preload, Need::Module("sqlite3")]) {
        return;
    }
    let names = ["json_round_trip", "threads", "event_loop", "sqlite_memory"];
    for (name, mode) in names.into_iter().flat_map(|name| [(name, "full"), (name, "fast")]) {
        let (step, _) = step_of(name, &["keep"], mode).expect("needs Python's own library");
        let steps = &step["steps"];
        let growth = step["growth_per_count_bytes"].as_f64().unwrap();
        assert!(steps["leaks"] == true && (980.0..1_100.0).contains(&growth), "{name} {mode}: {step}");
    }
}

/// The only phase called `name` of the trace in `dir`, with everything else of its run.
fn phase_of(dir: &Path, name: &str) -> (Value, Value) {
    let report: Value = serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).expect("a report")).expect("JSON");
    let run = report["runs"][0].clone();
    let of = run["phases"].as_array().expect("phases").iter().find(|p| p["name"] == name);
    (of.unwrap_or_else(|| panic!("no {name}: {run}")).clone(), run)
}

fn record(command: &mut Command, dir: &Path, settings: &[(&str, &str)]) {
    command.current_dir(dir).env("LD_PRELOAD", support::shim()).env("PYTHONDONTWRITEBYTECODE", "1").envs(settings.iter().copied());
    let ran = Session::start(command, dir).finish(Duration::from_secs(120));
    assert_eq!(ran.end(), "exit 0", "{}", lossy(&ran.stderr));
}

fn steps_c(args: &[&str]) -> Command {
    let mut command = Command::new(support::build("steps.c", "steps", &["-Wno-all"]));
    command.args(args);
    command
}

/// Owner and line of a call site.
fn owner(site: &Value) -> (&str, i64) {
    let frame = &site["frames"][site["owner"].as_u64().expect("an owner") as usize];
    (frame["function"].as_str().expect("a function"), frame["line"].as_i64().expect("a line"))
}

/// The line of a source in `tests/programs` that has this text.
fn line_of(source: &str, text: &str) -> i64 {
    let source = std::fs::read_to_string(root().join("tests/programs").join(source)).expect("a source");
    1 + source.lines().position(|l| l.contains(text)).expect("the line") as i64
}

/// The leak of a kilobyte a step in a thousand has this owner alone, and what it has grown by is what the steps since then kept.
fn keeps_a_kilobyte(dir: &Path, name: &str, wanted: (&str, i64), exact: bool) {
    let (step, run) = phase_of(dir, name);
    let steps = &step["steps"];
    assert_eq!((step["count"].as_u64(), steps["leaks"].as_bool()), (Some(1000), Some(true)), "{step}");
    let sites = steps["sites"].as_array().expect("sites");
    let owners: Vec<(&str, i64)> = sites.iter().map(owner).collect();
    let from = steps["sites_from"].as_i64().expect("from where on");
    assert!((100..=116).contains(&from), "{steps}");
    let (bytes, about) = (sites[0]["bytes"].as_f64().expect("bytes"), sites[0]["stderr_bytes"].as_f64().expect("an error"));
    let truth = (999 - from) as f64 * 1024.0;
    if exact {
        // Python's list of them grows by the same line.
        assert!(owners.iter().all(|o| *o == wanted), "{steps}");
        assert_eq!((bytes, about), (truth, 0.0), "{steps}");
    } else {
        assert_eq!(owners[0], wanted, "{steps}");
        assert!((bytes - truth).abs() <= 3.0 * about && about < truth / 3.0, "{bytes} is not {truth} ± {about}: {steps}");
        assert!(owners.iter().all(|(name, _)| !["fill_cache", "remember", "load_late"].contains(name)), "{steps}");
    }
    let advice = run["advice"].as_array().expect("advice").iter().find(|a| a["what"].as_str().is_some_and(|w| w.contains(" leaks: ")));
    let evidence = advice.and_then(|a| a["evidence"].as_str()).unwrap_or_else(|| panic!("no advice: {}", run["advice"]));
    let kept = format!("kept since number {from}: ");
    assert!(evidence.contains(&kept) && evidence.contains(wanted.0), "{evidence}");
    let text = Command::new(support::memshim()).arg("analyze").arg(dir.join("trace.jsonl")).output().expect("memshim");
    let words = lossy(&text.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(&kept) && words.contains("STEPS"), "{words}");
}

/// Samples enough to tell.
const FAST: &[(&str, &str)] = &[("MEMSHIM_MODE", "fast"), ("MEMSHIM_SAMPLE", "8KiB")];
const FULL: &[(&str, &str)] = &[("MEMSHIM_MODE", "full")];

#[test]
fn who_leaks_is_named_and_a_cache_is_not() {
    if lacks("who_leaks_is_named_and_a_cache_is_not", &[Need::Preload]) {
        return;
    }
    for (settings, exact) in [(FULL, true), (FAST, false)] {
        let dir = fresh_dir("steps-leak-c");
        record(&mut steps_c(&["1000", "leak=1024", "cache=90", "late=500"]), &dir, settings);
        keeps_a_kilobyte(&dir, "step", ("leak", line_of("steps.c", "kept[n_kept++]")), exact);
    }
}

#[test]
fn who_leaks_in_python_is_named_and_a_cache_is_not() {
    if lacks("who_leaks_in_python_is_named_and_a_cache_is_not", &[Need::Preload, Need::Module("json")]) {
        return;
    }
    for (settings, exact) in [(FULL, true), (FAST, false)] {
        let dir = fresh_dir("steps-leak-py");
        let mut command = Command::new(python().unwrap());
        command.arg(root().join("tests/programs/py_leak.py")).env("MEMSHIM_PHASE_PY", "__main__:step");
        record(&mut command, &dir, settings);
        keeps_a_kilobyte(&dir, "__main__:step", ("leak", line_of("py_leak.py", "kept.append(")), exact);
    }
}

/// Small objects lie in Python's arenas, where the heap's verdict does not see them.
#[test]
fn a_kilobyte_of_small_objects_kept_each_step_is_a_leak_of_python_objects() {
    let test = "a_kilobyte_of_small_objects_kept_each_step_is_a_leak_of_python_objects";
    if lacks(test, &[Need::Preload, Need::Module("json")]) {
        return;
    }
    let told = |what: &str, settings: &[(&str, &str)], python_alloc: bool| {
        let dir = fresh_dir(&format!("steps-leak-small-{what}"));
        let mut command = Command::new(python().unwrap());
        command.arg(root().join("tests/programs/py_leak.py")).arg(what).env("MEMSHIM_PHASE_PY", "__main__:step");
        command.env_remove("PYTHONMALLOC").env("MEMSHIM_PYTHON_ALLOC", if python_alloc { "1" } else { "0" });
        record(&mut command, &dir, settings);
        let (step, run) = phase_of(&dir, "__main__:step");
        let text = Command::new(support::memshim()).arg("analyze").arg(dir.join("trace.jsonl")).output().expect("memshim");
        let words = lossy(&text.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        (step["steps"].clone(), run, words)
    };
    for settings in [FULL, FAST] {
        let (steps, run, text) = told("small", settings, true);
        if run["python"]["usable"].is_null() {
            support::skip(test, "Python's allocators are not seen");
            return;
        }
        let of = &steps["growth"]["python"];
        // Sixteen pairs, a number, and the list's items by the way that it grows.
        let kept = of["per_count_bytes"].as_f64().expect("known");
        assert!(of["leaks"] == true && (16.0 * 64.0..16.0 * 100.0).contains(&kept), "{steps}");
        assert_eq!((&steps["leaks"], &steps["growth"]["heap"]["leaks"]), (&Value::from(false), &Value::from(false)), "{steps}");
        assert!(text.contains("of Python objects each time") && text.contains("`__main__:step` leaks Python objects"), "{text}");
        let (steps, _, text) = told("none", settings, true);
        assert_eq!(steps["growth"]["python"]["leaks"], false, "{steps}");
        assert!(text.contains("no leak of the heap") && !text.contains("small objects of Python: "), "{text}");
        let (steps, _, text) = told("small", settings, false);
        // Arenas of 256 KiB, before 3.10, are seen to grow.
        let arenas = steps["growth"]["maps"]["leaks"] == true;
        assert!(steps["growth"]["python"].is_null() && (arenas || text.contains("small objects of Python: --python-alloc")), "{text}");
    }
}

/// Caches that are full after six tenths of the steps grow no more; a leak beside them goes on.
#[test]
fn a_cache_that_fills_late_is_no_leak_and_hides_none() {
    if lacks("a_cache_that_fills_late_is_no_leak_and_hides_none", &[Need::Preload]) {
        return;
    }
    for (settings, exact) in [(FULL, true), (FAST, false)] {
        for steps in [60, 1000] {
            let dir = fresh_dir("steps-cache");
            record(&mut steps_c(&[&steps.to_string(), &format!("cache={}", steps * 6 / 10)]), &dir, settings);
            let (step, run) = phase_of(&dir, "step");
            assert_eq!((&step["steps"]["leaks"], step["growth_per_count_bytes"].as_f64()), (&false.into(), Some(0.0)), "{step}");
            assert_eq!(run["advice"], serde_json::json!([]));
        }
        let dir = fresh_dir("steps-cache-leak");
        record(&mut steps_c(&["1000", "leak=1024", "cache=600"]), &dir, settings);
        keeps_a_kilobyte(&dir, "step", ("leak", line_of("steps.c", "kept[n_kept++]")), exact);
        let (step, _) = phase_of(&dir, "step");
        let growth = step["growth_per_count_bytes"].as_f64().expect("a growth");
        assert!((1024.0..=1040.0).contains(&growth), "{growth}");
    }
    let Some(python) = python() else { return };
    let script = "import functools\n\
                  @functools.lru_cache(maxsize=180)\ndef table(i): return bytearray(4000)\n\
                  def step(i): return len(table(i)) + len(bytearray(5000))\n\
                  for i in range(300): step(i)\n";
    let dir = fresh_dir("steps-cache-py");
    record(Command::new(python).args(["-c", script]).env("MEMSHIM_PHASE_PY", "__main__:step"), &dir, FULL);
    let (step, _) = phase_of(&dir, "__main__:step");
    assert_eq!((step["count"].as_u64(), &step["steps"]["leaks"]), (Some(300), &false.into()), "{step}");
}

#[test]
fn a_map_kept_each_step_is_a_leak_of_maps() {
    if lacks("a_map_kept_each_step_is_a_leak_of_maps", &[Need::Preload]) {
        return;
    }
    for settings in [FULL, FAST] {
        let dir = fresh_dir("steps-leak-map");
        record(&mut steps_c(&["500", "map=65536"]), &dir, settings);
        let (step, run) = phase_of(&dir, "step");
        let growth = &step["steps"]["growth"];
        let maps = &growth["maps"];
        let figures = ["per_count_bytes", "low_bytes", "high_bytes", "total_bytes", "change_bytes"].map(|key| maps[key].as_f64());
        assert_eq!(figures, [65536.0, 65536.0, 65536.0, 500.0 * 65536.0, 500.0 * 65536.0].map(Some), "{growth}");
        assert_eq!((&maps["leaks"], &growth["heap"]["leaks"], &step["steps"]["leaks"]), (&true.into(), &false.into(), &false.into()));
        assert_eq!((&growth["gpu"], &growth["pinned"]), (&Value::Null, &Value::Null), "no driver was called");
        let said = run["advice"].as_array().expect("advice").iter().filter_map(|a| a["what"].as_str()).collect::<Vec<_>>();
        assert!(said.contains(&"`step` leaks committed maps: it keeps 64.0 KiB each time"), "{said:?}");
        let site = &step["steps"]["map_sites"][0];
        let (mapped, maps) = (site["bytes"].as_i64(), site["allocs"].as_i64());
        assert_eq!((owner(site), mapped, maps), (("main", line_of("steps.c", "*(char *)mmap(0")), Some(500 * 65536), Some(500)), "{step}");
        let advice = run["advice"].as_array().expect("advice").iter().find(|a| a["what"].as_str().is_some_and(|w| w.contains("maps")));
        let evidence = advice.and_then(|a| a["evidence"].as_str()).expect("evidence");
        assert!(evidence.contains("mapped still at the end: 31.2 MiB by main (steps.c:"), "{evidence}");
        // One page of each is touched.
        let dir = fresh_dir("steps-steady-map");
        record(&mut steps_c(&["500"]), &dir, settings);
        let (step, _) = phase_of(&dir, "step");
        let growth = &step["steps"]["growth"];
        assert!(
            ["heap", "maps"].iter().all(|class| growth[class]["leaks"] == false && growth[class]["per_count_bytes"] == 0.0),
            "{growth}"
        );
    }
}

#[test]
fn a_step_that_stands_out_says_what_it_did() {
    if lacks("a_step_that_stands_out_says_what_it_did", &[Need::Preload]) {
        return;
    }
    let dir = fresh_dir("steps-outliers");
    record(&mut steps_c(&["60", "us=3000", "sleeps=20", "works=40"]), &dir, FULL);
    let (step, _) = phase_of(&dir, "step");
    let outliers = step["steps"]["outliers"].as_array().expect("outliers");
    let of = |index: u64| outliers.iter().find(|o| o["index"] == index).unwrap_or_else(|| panic!("no {index}: {step}"));
    let differs = |o: &Value, what: &str| o["differs"].as_array().and_then(|all| all.iter().find(|d| d["what"] == what).cloned());
    let (slept, worked) = (of(20), of(40));
    let latency = step["latency"]["median"].as_f64().expect("a median");
    assert_eq!(slept["waited"], true, "{slept}");
    assert_eq!(differs(slept, "cpu_s"), None, "{slept}");
    let cpu = differs(worked, "cpu_s").unwrap_or_else(|| panic!("{worked}"));
    let seconds = |key: &str| cpu[key].as_f64().expect("seconds");
    assert!(seconds("value") >= 0.05 && seconds("median") < 0.003, "{cpu}");
    // On a busy machine it waits for a processor too.
    assert_eq!(worked["waited"], seconds("value") - seconds("median") < 0.2 * (worked["wall_s"].as_f64().unwrap() - latency), "{worked}");
    let faults = differs(worked, "minor_faults").unwrap_or_else(|| panic!("{worked}"));
    assert!(faults["value"].as_f64() >= Some(1000.0) && faults["median"].as_f64() < Some(100.0), "{faults}");
}

#[test]
fn a_kilobyte_kept_in_each_of_a_thousand_steps_of_c_is_found_in_both_modes() {
    let test = "a_kilobyte_kept_in_each_of_a_thousand_steps_of_c_is_found_in_both_modes";
    if lacks(test, &[Need::Preload]) {
        return;
    }
    let program = support::build("leaks.c", "leaks", &[]);
    for (mode, keep) in [("full", true), ("full", false), ("fast", true), ("fast", false)] {
        let dir = fresh_dir(test);
        let mut command = Command::new(&program);
        command.args(keep.then_some("keep")).current_dir(&dir).env("LD_PRELOAD", support::shim()).env("MEMSHIM_MODE", mode);
        let ran = Session::start(&mut command, &dir).finish(Duration::from_secs(60));
        assert_eq!((ran.end(), lossy(&ran.stderr)), ("exit 0".into(), String::new()));
        let report: Value = serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).expect("a report")).expect("JSON");
        let step = &report["runs"][0]["phases"][0];
        assert_eq!(
            (&step["name"], &step["count"], &step["steps"]["leaks"]),
            (&"step".into(), &1000.into(), &keep.into()),
            "{mode}: {step}"
        );
        // By requested size, and in fast mode by usable size, which is up to 16 bytes more.
        let growth = step["growth_per_count_bytes"].as_f64().expect("a growth");
        let least = if keep { 1024.0 } else { 0.0 };
        let most = if keep && mode == "fast" { least + 16.0 } else { least };
        assert!((least..=most).contains(&growth), "{mode} {keep}: {growth} bytes a step");
    }
}
