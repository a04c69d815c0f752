//! Phases of programs that know what they did in each: what the report says of them, in both modes, after a kill, by every source.

mod support;

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::{Need, Ran, Session, lossy};

fn run(command: &mut Command, dir: &Path, settings: &[(&str, &str)]) -> Ran {
    command.current_dir(dir).env("LD_PRELOAD", support::shim()).envs(settings.iter().copied());
    Session::start(command, dir).finish(Duration::from_secs(60))
}

/// All runs of the trace in `dir`.
fn report(dir: &Path) -> Value {
    let text = support::analyze(&dir.join("trace.jsonl")).expect("a report");
    serde_json::from_str(&text).expect("JSON")
}

/// The phase of a path.
fn phase<'a>(run: &'a Value, path: &str) -> &'a Value {
    let is =
        |p: &&Value| p["path"].as_array().is_some_and(|names| names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("/") == path);
    run["phases"].as_array().and_then(|all| all.iter().find(is)).unwrap_or_else(|| panic!("no phase {path} in {}", run["phases"]))
}

fn number(of: &Value, key: &str) -> i64 {
    of[key].as_i64().unwrap_or_else(|| panic!("no {key}: {of}"))
}

/// What the program said of its phases, one object a line.
fn truth(ran: &Ran) -> Vec<Value> {
    let said: Vec<Value> = lossy(&ran.stdout).lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    assert!(!said.is_empty() && ran.stderr.is_empty(), "{}", lossy(&ran.stderr));
    said
}

fn program() -> Command {
    let header = support::root().join("include/memshim.h");
    assert!(header.exists());
    Command::new(support::build("phases.c", "phases", &["-Wno-all"]))
}

#[test]
fn every_number_of_a_phase_is_what_its_program_knows() {
    let test = "every_number_of_a_phase_is_what_its_program_knows";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    for (mode, big) in [("full", "1KiB"), ("fast", "1KiB"), ("fast", "64KiB")] {
        let dir = support::fresh_dir(test);
        // The last is what nobody sets.
        let ran = run(program().arg("child"), &dir, &[("MEMSHIM_MODE", mode), ("MEMSHIM_BIG", big)]);
        let report = report(&dir);
        let first = &report["runs"][0];
        for said in truth(&ran) {
            let path = said["path"].as_str().expect("a path");
            let p = phase(first, path);
            assert_eq!((number(p, "count"), number(p, "open"), p["source"].as_str()), (number(&said, "count"), 0, Some("api")), "{path}");
            let got = [
                number(p, "heap_peak_bytes") - number(p, "heap_begin_bytes"),
                number(p, "heap_persistent_bytes"),
                number(p, "heap_transient_bytes"),
            ];
            let known = ["above", "persistent", "transient"].map(|key| match mode {
                "full" => (number(&said, key), 0),
                _ => {
                    let of = if key == "above" { "peak" } else { key };
                    (number(&said, &format!("usable_{key}")), number(p, &format!("heap_{of}_bound_bytes")))
                }
            });
            assert!(big != "1KiB" || 2 * number(p, "heap_peak_bound_bytes") < 400_000, "{p}");
            for (got, (known, slack)) in got.iter().zip(known) {
                assert!((got - known).abs() <= slack, "{mode} {big} {path}: {got} is not {known} within {slack}: {p}");
            }
            let between = |key: &str| said[key].as_f64().expect("a time");
            let (wall, inner, outer) = (p["wall_s"].as_f64().expect("wall"), between("inner"), between("outer"));
            assert!(inner <= wall + 1e-9 && wall <= outer + 1e-9, "{mode} {path}: {wall} s is not in {inner}..{outer}");
        }
        let steps = phase(first, "step");
        assert_eq!(steps["steps"]["leaks"], true, "{steps}");
        assert_eq!(steps["steps"]["outliers"][0]["index"], 30, "{steps}");
        if mode == "full" {
            assert_eq!(steps["growth_per_count_bytes"], 2048.0);
        }
        assert_eq!(phase(first, "build")["steps"], Value::Null);
        assert_eq!(number(phase(first, "map"), "map_persistent_bytes"), 4 << 20, "{mode}");
        assert!(number(phase(first, "map"), "map_peak_bytes") >= 8 << 20);
        let child = phase(first, "child");
        let resident = number(child, "children_peak_bytes");
        assert!((24 << 20..64 << 20).contains(&resident), "{mode}: {child}");
        let inside = report["runs"].as_array().expect("runs").iter().find(|r| r["ppid"] == first["pid"]).expect("the child");
        assert_eq!(number(phase(inside, "in the child"), "count"), 1);
        let marks: Vec<&str> = first["marks"].as_array().expect("marks").iter().filter_map(|m| m["name"].as_str()).collect();
        assert_eq!(marks, ["halfway", "inside"]);
        assert!(
            number(child, "read_bytes") >= 0 && child["cpu_s"].as_f64().is_some_and(|s| s >= 0.0) && child["snapshots"][1]["hwm"].is_u64()
        );
    }
}

#[test]
fn whatever_a_program_does_its_phases_are_within_the_bound() {
    let test = "whatever_a_program_does_its_phases_are_within_the_bound";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    for (mode, seed) in (1..=10).flat_map(|seed| [("full", seed), ("fast", seed)]) {
        let dir = support::fresh_dir(test);
        let ran = run(program().args(["drawn", &seed.to_string()]), &dir, &[("MEMSHIM_MODE", mode)]);
        let report = report(&dir);
        let said = truth(&ran);
        assert!(said.len() > 20, "{}", said.len());
        for said in &said {
            let path = said["path"].as_str().expect("a path");
            let p = phase(&report["runs"][0], path);
            assert_eq!((number(p, "count"), number(p, "open")), (number(said, "count"), 0), "{mode} {seed} {path}");
            let above = number(p, "heap_peak_bytes") - number(p, "heap_begin_bytes");
            for (got, key, of) in [
                (above, "above", "peak"),
                (number(p, "heap_persistent_bytes"), "persistent", "persistent"),
                (number(p, "heap_transient_bytes"), "transient", "transient"),
            ] {
                let bound = number(p, &format!("heap_{of}_bound_bytes"));
                let known = number(said, &if mode == "full" { key.to_owned() } else { format!("usable_{key}") });
                assert!((got - known).abs() <= bound, "{mode} {seed} {path} {key}: {got} is not {known} ± {bound}: {p}");
                // Of a peak of some 11 MB (2.6 MB at most with these seeds), and of what stayed, for each time.
                let most = if of == "persistent" { 100_000 * number(said, "count") } else { 4_000_000 };
                assert!(bound <= if mode == "full" { 0 } else { most }, "{mode} {seed} {path}: a bound that says nothing: {bound}");
            }
        }
    }
}

#[test]
fn what_other_threads_do_meanwhile_is_within_the_bound() {
    let test = "what_other_threads_do_meanwhile_is_within_the_bound";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let program = support::build("abreast.c", "abreast", &["-pthread", "-Wno-all"]);
    for (mode, seed) in [("full", 0), ("fast", 0), ("fast", 1), ("fast", 2), ("fast", 3), ("fast", 4), ("fast", 5)] {
        let dir = support::fresh_dir(test);
        let ran = run(Command::new(&program).arg(seed.to_string()), &dir, &[("MEMSHIM_MODE", mode)]);
        assert_eq!(ran.end(), "exit 0");
        let report = report(&dir);
        let first = &report["runs"][0];
        // In fast mode figures are by usable size.
        let from = if mode == "full" { 1 } else { 4 };
        let said: Vec<(String, [i64; 3])> = lossy(&ran.stdout)
            .lines()
            .map(|l| {
                let words: Vec<&str> = l.split('/').collect();
                (words[0].to_owned(), [0, 1, 2].map(|i| words[from + i].parse().expect("a number")))
            })
            .collect();
        // What the C library holds for threads and output is not the program's.
        let alone = phase(first, "alone");
        let base = number(alone, "heap_begin_bytes") - said[said.len() - 2].1[0];
        for (name, [begin, end, most]) in &said {
            let p = phase(first, name);
            let [off, stays] = ["heap_peak_bound_bytes", "heap_persistent_bound_bytes"].map(|key| number(p, key));
            assert!((number(p, "heap_peak_bytes") - base - most).abs() <= off, "{mode} {base} {most}: {p}");
            assert!((number(p, "heap_persistent_bytes") - (end - begin)).abs() <= stays, "{mode} {begin} {end}: {p}");
            // All that the others can hold.
            assert!(off < 3 * 200 * 2100 && stays < 2 * 3 * 200 * 2100, "{mode} a bound that says nothing: {p}");
        }
        if mode == "full" {
            let of = [
                "heap_peak_bound_bytes",
                "heap_persistent_bound_bytes",
                "heap_persistent_bytes",
                "heap_transient_bytes",
                "heap_transient_bound_bytes",
            ];
            assert_eq!(of.map(|key| number(alone, key)), [0, 0, 12345, 0, 0], "nobody else did anything: {alone}");
        }
    }
}

#[test]
fn a_phase_that_its_process_did_not_survive_is_there() {
    let test = "a_phase_that_its_process_did_not_survive_is_there";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    let ran = run(program().arg("kill"), &dir, &[("MEMSHIM_MODE", "full")]);
    assert_eq!(ran.end(), "signal 9");
    let report = report(&dir);
    let first = &report["runs"][0];
    let last = phase(first, "never ends");
    assert_eq!((number(last, "count"), number(last, "open"), number(last, "heap_persistent_bytes")), (1, 1, 123_456));
    for said in truth(&ran).iter().filter(|said| said["path"] != "never ends") {
        let p = phase(first, said["path"].as_str().expect("a path"));
        let got = (number(p, "count"), number(p, "heap_persistent_bytes"), number(p, "heap_transient_bytes"));
        assert_eq!(got, (number(said, "count"), number(said, "persistent"), number(said, "transient")), "{p}");
    }
}

/// What the program of NVTX did, by the report.
fn nvtx_phases(run: &Value) {
    let of = |path: &str| {
        let p = phase(run, path);
        assert_eq!((p["source"].as_str(), number(p, "count"), number(p, "open")), (Some("nvtx"), 1, 0), "{p}");
        (number(p, "heap_persistent_bytes"), number(p, "heap_transient_bytes"))
    };
    assert_eq!(of("outer"), (1_000_000, 200_000));
    assert_eq!(of("outer/plain event"), (0, 200_000));
    assert_eq!(of("outer/breit ü"), (0, 0));
    assert_eq!(of("around"), (3_000_000, 0));
    assert_eq!(of("around/solver: registered"), (0, 3_000_000));
    assert_eq!(of("range one"), (400_000, 0));
    assert_eq!(of("solver: plain event"), (0, 400_000));
    assert_eq!(run["marks"][0]["name"], "a mark");
}

#[test]
fn ranges_of_nvtx_are_phases() {
    let test = "ranges_of_nvtx_are_phases";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let client = support::build("nvtx.c", "nvtx", &[]);
    let bare = Session::start(Command::new(&client).current_dir(support::fresh_dir(test)).env("PLAIN", "x"), &support::run_dir(test));
    let bare = bare.finish(Duration::from_secs(20));
    assert_eq!(lossy(&bare.stderr), "ready 0, in the environment 0, plain x\n");
    let dir = support::fresh_dir(test);
    let ran = run(Command::new(&client).arg("print").env("PLAIN", "x"), &dir, &[("MEMSHIM_MODE", "full")]);
    assert_eq!(lossy(&ran.stderr), "ready 1, in the environment 0, plain x\n");
    assert_eq!(lossy(&ran.stdout), "push -2 pop -2 ranges 1\n", "as where nobody counts levels");
    nvtx_phases(&report(&dir)["runs"][0]);
}

#[test]
fn a_second_injection_library_of_nvtx_has_its_calls_and_its_way() {
    let test = "a_second_injection_library_of_nvtx_has_its_calls_and_its_way";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let client = support::build("nvtx.c", "nvtx", &[]);
    let other = support::build("nvtx_other.c", "nvtx_other.so", &["-shared", "-fPIC"]);
    let dir = support::fresh_dir(test);
    let ran = run(Command::new(&client).arg("print").env("NVTX_INJECTION64_PATH", &other), &dir, &[("MEMSHIM_MODE", "full")]);
    assert_eq!(lossy(&ran.stderr), "ready 1, in the environment 1, plain (none)\n");
    assert_eq!(lossy(&ran.stdout), "push 0 pop 0 ranges 1\nother: pushes 4 pops 4 ranges 2 domains 1\n");
    nvtx_phases(&report(&dir)["runs"][0]);
}

#[test]
fn a_program_of_nvidias_own_headers_is_heard() {
    let test = "a_program_of_nvidias_own_headers_is_heard";
    let Some(headers) = support::nvtx_headers(test) else { return };
    let client = support::build("nvtx_real.cc", "nvtx_real", &[&headers]);
    let other = support::build("nvtx_other.c", "nvtx_other.so", &["-shared", "-fPIC"]);
    // A profiler of its own beside it hears what it asked for: C's functions and ranges in domains.
    for (chained, said) in [(false, "done\n"), (true, "done\nother: pushes 1 pops 1 ranges 2 domains 1\n")] {
        let dir = support::fresh_dir(test);
        let mut command = Command::new(&client);
        if chained {
            command.env("NVTX_INJECTION64_PATH", &other);
        }
        let ran = run(&mut command, &dir, &[("MEMSHIM_MODE", "full")]);
        assert_eq!((ran.end(), lossy(&ran.stderr), lossy(&ran.stdout)), ("exit 0".into(), String::new(), said.into()));
        let report = report(&dir);
        let first = &report["runs"][0];
        let of = |path: &str| {
            let p = phase(first, path);
            assert_eq!((p["source"].as_str(), number(p, "open")), (Some("nvtx"), 0), "{p}");
            (number(p, "count"), number(p, "heap_persistent_bytes"), number(p, "heap_transient_bytes"))
        };
        assert_eq!(of("outer"), (1, 1_000_000, 3_000_000), "chained: {chained}");
        assert_eq!(of("outer/assemble"), (1, 1_000_000, 0));
        assert_eq!(of("outer/solver: matvec"), (2, 0, 3_000_000));
        assert_eq!(of("outer/solver: matvec/solver: multiply"), (2, 0, 700_000));
        assert_eq!(of("breit ü"), (1, 0, 200_000));
        assert_eq!(of("by C"), (1, 0, 400_000));
        // What the C++ library and the C library keep of a thread is small.
        let (count, left, _) = of("handed on");
        assert!(count == 1 && (500_000..502_000).contains(&left), "{left}");
        let marks: Vec<&str> = first["marks"].as_array().expect("marks").iter().filter_map(|m| m["name"].as_str()).collect();
        assert_eq!(marks, ["a mark", "C's mark"]);
    }
}

#[test]
fn the_nvtx_package_of_python_is_heard() {
    let test = "the_nvtx_package_of_python_is_heard";
    if support::lacks(test, &[Need::Preload, Need::Module("nvtx")]) {
        return;
    }
    let dir = support::fresh_dir(test);
    let script = "import nvtx\n\
                  @nvtx.annotate('decorated', domain='mine')\n\
                  def f(n): return bytearray(n)\n\
                  with nvtx.annotate('with'):\n    a = f(3000000)\n\
                  r = nvtx.start_range('range'); del a; nvtx.end_range(r); nvtx.mark('here')\n";
    let ran = run(Command::new(support::python().expect("asked for")).args(["-c", script]), &dir, &[("MEMSHIM_MODE", "full")]);
    assert_eq!((ran.end(), lossy(&ran.stderr)), ("exit 0".into(), String::new()));
    let report = report(&dir);
    let first = &report["runs"][0];
    assert!(number(phase(first, "with"), "heap_persistent_bytes") >= 3_000_000);
    assert!(number(phase(first, "with/mine: decorated"), "heap_persistent_bytes") >= 3_000_000);
    assert!(number(phase(first, "range"), "heap_persistent_bytes") <= -3_000_000);
    assert_eq!(first["marks"][0]["name"], "here");
}

/// CuPy's own way to NVTX, which needs no GPU.
#[test]
fn the_ranges_of_cupy_are_heard() {
    let test = "the_ranges_of_cupy_are_heard";
    if support::lacks(test, &[Need::Preload, Need::Module("cupy.cuda.nvtx")]) {
        return;
    }
    let dir = support::fresh_dir(test);
    let script = "import cupy.cuda.nvtx as nvtx\n\
                  nvtx.RangePush('outer'); nvtx.RangePushC('inner', 7); kept = bytearray(3000000); nvtx.RangePop(); nvtx.RangePop()\n\
                  nvtx.Mark('here')\n";
    let ran = run(Command::new(support::python().expect("asked for")).args(["-Wignore", "-c", script]), &dir, &[("MEMSHIM_MODE", "full")]);
    assert_eq!((ran.end(), lossy(&ran.stderr)), ("exit 0".into(), String::new()));
    let report = report(&dir);
    let first = &report["runs"][0];
    assert!((3_000_000..3_100_000).contains(&number(phase(first, "outer/inner"), "heap_persistent_bytes")), "{}", first["phases"]);
    assert_eq!(first["marks"][0]["name"], "here");
}

#[test]
fn the_python_package_says_phases_and_does_nothing_without_the_shim() {
    let test = "the_python_package_says_phases_and_does_nothing_without_the_shim";
    if support::lacks(test, &[Need::Preload, Need::Command("python3")]) {
        return;
    }
    let script = "from memshim import active, phase, step, mark\n\
                  @phase('made')\n\
                  def made(n):\n    '''doc'''\n    return bytearray(n)\n\
                  kept = []\n\
                  with phase('outer \u{e9}'):\n    kept.append(made(1000000))\n\
                  for i in step('turn', range(5)):\n    kept.append(made(200000))\n    made(300000)\n\
                  try:\n    with phase('raises'):\n        1 / 0\n\
                  except ZeroDivisionError:\n    mark('caught')\n\
                  print(active, made.__name__, made.__doc__, len(kept))\n";
    let package = support::root().join("python");
    let dir = support::fresh_dir(test);
    let python = support::python().expect("asked for");
    let mut bare = Command::new(python);
    bare.args(["-c", script]).current_dir(&dir).env("PYTHONPATH", &package).env("PYTHONDONTWRITEBYTECODE", "1");
    let bare = Session::start(&mut bare, &dir).finish(Duration::from_secs(20));
    assert_eq!(lossy(&bare.stdout), "False made doc 6\n");
    let mut command = Command::new(python);
    command.args(["-c", script]).env("PYTHONPATH", &package).env("PYTHONDONTWRITEBYTECODE", "1");
    let ran = run(&mut command, &dir, &[("MEMSHIM_MODE", "full")]);
    assert_eq!((lossy(&ran.stdout), lossy(&ran.stderr)), ("True made doc 6\n".into(), String::new()));
    let report = report(&dir);
    let first = &report["runs"][0];
    // A byte array has one byte more than asked for; what else Python allocates is small.
    let near = |bytes: i64, truth: i64| (truth..truth + 20_000).contains(&bytes);
    assert!(near(number(phase(first, "outer \u{e9}/made"), "heap_persistent_bytes"), 1_000_000));
    let turn = phase(first, "turn");
    assert_eq!((number(turn, "count"), number(phase(first, "turn/made"), "count")), (5, 10));
    assert!(near(number(turn, "heap_persistent_bytes"), 5 * 200_000) && near(number(turn, "heap_transient_bytes"), 300_000), "{turn}");
    assert_eq!((number(phase(first, "raises"), "open"), first["marks"][0]["name"].as_str()), (0, Some("caught")));
}

#[test]
fn who_held_the_memory_at_the_peak_of_a_phase_can_be_asked() {
    let test = "who_held_the_memory_at_the_peak_of_a_phase_can_be_asked";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    run(&mut program(), &dir, &[("MEMSHIM_MODE", "full")]);
    let ask = |args: &[&str]| {
        let out =
            Command::new(support::memshim()).args(["analyze", "--json"]).args(args).arg(dir.join("trace.jsonl")).output().expect("memshim");
        (out.status.code(), lossy(&out.stdout), lossy(&out.stderr))
    };
    for path in ["build/part", "step", "free"] {
        let (code, text, _) = ask(&["--phase", path, "--units", "4 atoms"]);
        assert_eq!(code, Some(0));
        let report: Value = serde_json::from_str(&text).expect("JSON");
        let first = &report["runs"][0];
        let p = phase(first, path);
        assert_eq!(number(&first["sites_total"], "live_at_peak_bytes"), number(p, "heap_peak_bytes"), "{path}");
        let each = &p["per_unit"];
        let median = p["latency"]["median"].as_f64().expect("a time");
        match number(p, "count") {
            1 => assert!(each.is_null()),
            _ => assert_eq!((each["unit"].as_str(), each["median_s"].as_f64()), (Some("atom"), Some(median / 4.0))),
        }
    }
    let screen = |unit: &str| {
        let mut command = Command::new(support::memshim());
        let out =
            command.args(["analyze", "--units", unit]).arg(dir.join("trace.jsonl")).env("LC_ALL", "C.UTF-8").output().expect("memshim");
        (lossy(&out.stdout), lossy(&out.stderr))
    };
    let (text, said) = screen("4 atoms");
    assert!(text.contains("for one") && text.contains("s/atom") && said.is_empty(), "{text}{said}");
    let (code, _, said) = ask(&["--phase", "nowhere"]);
    assert!(code == Some(2) && said.contains("there are build, part"), "{said}");
    let (code, _, said) = ask(&["--units", "0 atoms"]);
    assert!(code == Some(2) && said.contains("64 atoms"), "{said}");
}

/// Who tells of a phase looks at what is resident as the process itself does.
#[test]
fn a_span_has_one_resident_peak_whoever_tells_of_it() {
    let test = "a_span_has_one_resident_peak_whoever_tells_of_it";
    let Some(python) = support::python() else { return support::skip(test, "needs python3") };
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    // A peak of 64 MiB that is over long before the end, and no look of the process's own meanwhile.
    let script = "import time\n\
                  def work():\n    a = bytearray(64 << 20)\n    del a\n    time.sleep(.3)\n\
                  print('begin work', flush=True)\ntime.sleep(.2)\nwork()\nprint('end work', flush=True)\ntime.sleep(.2)\n\
                  b = bytearray(96 << 20)\n";
    for mode in ["fast", "full"] {
        let dir = support::fresh_dir(&format!("{test}/{mode}"));
        let mut command = Command::new(support::memshim());
        command.args(["run", "-q", "--interval", "1h", "--mode", mode, "-o"]).arg(dir.join("trace.jsonl"));
        command.args(["--phase-on", "start:begin (\\w+)", "--phase-on", "end:end (\\w+)", "--phase-py", "__main__:work", "--"]);
        let ran = Session::start(command.arg(python).args(["-c", script]), &dir).finish(Duration::from_secs(20));
        assert_eq!(ran.end(), "exit 0", "{}", lossy(&ran.stderr));
        let report = report(&dir);
        let first = &report["runs"][0];
        let [outside, inside] = ["work", "__main__:work"].map(|name| number(phase(first, name), "rss_peak_bytes"));
        assert!((outside - inside).abs() < 1 << 20 && (64 << 20..96 << 20).contains(&inside), "{mode}: {outside} {inside}");
        assert!(phase(first, "work")["rss_persistent_bytes"].is_i64(), "{}", phase(first, "work"));
        // Who looked did not look at what was read and written.
        assert!(phase(first, "work")["read_bytes"].is_null() && phase(first, "__main__:work")["read_bytes"].is_u64());
    }
}
