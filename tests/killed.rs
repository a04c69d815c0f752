//! Promises about sudden death: whatever was complete ten milliseconds before a SIGKILL is in the trace, and the trace can be read.
mod support;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::{Mode, Need, Session};

const THREADS: usize = 3;
const SIGKILL: i32 = 9;
/// What the contract allows to be missing.
const GRACE: Duration = Duration::from_millis(10);

/// A small generator: the instants only have to differ from each other and from run to run.
struct Instants(u64);

impl Instants {
    fn new() -> Instants {
        Instants(SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64) | 1)
    }
    fn next(&mut self) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Duration::from_micros(self.0 % 70_000)
    }
}

/// The counters a `counter` program keeps in its file: finished pairs by thread, and its process number.
fn counters(file: &Path) -> ([u64; THREADS], i32) {
    let bytes = fs::read(file).unwrap_or_default();
    let word = |i: usize| bytes.get(i * 8..i * 8 + 8).map_or(0, |b| u64::from_ne_bytes(b.try_into().expect("eight bytes")));
    (std::array::from_fn(|k| word(k * 8)), word(511) as i32)
}

struct Try {
    dir: PathBuf,
    done: [u64; THREADS],
    after: Duration,
}

/// Starts the endless program, kills it at a random instant, and returns what it had done [`GRACE`] before.
fn kill_one(mode: Mode, test: &str, number: usize, instants: &mut Instants) -> Try {
    let dir = support::fresh_dir(&format!("{test}/{number}"));
    let (file, trace) = (dir.join("counters"), dir.join("trace.jsonl"));
    let program = support::build("counter.c", "counter", &[]);
    let mut command = if mode == Mode::Run { Command::new(support::memshim()) } else { Command::new(&program) };
    match mode {
        Mode::Run => {
            command.arg("run").arg("-o").arg(&trace).arg("--").arg(&program).env("MEMSHIM_MODE", "full");
        }
        Mode::Fast => {
            command.env("LD_PRELOAD", support::shim()).env("MEMSHIM_OUT", &trace).env("MEMSHIM_MODE", "fast");
        }
        Mode::Full | Mode::Bare => {
            command.env("LD_PRELOAD", support::shim()).env("MEMSHIM_OUT", &trace).env("MEMSHIM_MODE", "full");
        }
    }
    command.arg(&file).arg(THREADS.to_string()).current_dir(&dir);
    let session = Session::start(&mut command, &dir);
    let after = instants.next();
    sleep(after);
    let (mut done, mut pid) = counters(&file);
    sleep(GRACE);
    if mode == Mode::Run {
        let limit = Instant::now() + Duration::from_secs(10);
        while pid == 0 {
            assert!(Instant::now() < limit, "{}: the target does not start", dir.display());
            sleep(Duration::from_millis(1));
            (done, pid) = ([0; THREADS], counters(&file).1);
        }
        support::signal(pid, SIGKILL);
    } else {
        session.signal(SIGKILL);
    }
    let ran = session.finish(Duration::from_secs(20));
    let status = ran.status.unwrap_or_else(|| panic!("{}: no end after SIGKILL", dir.display()));
    if mode == Mode::Run {
        assert_eq!(status.code(), Some(128 + SIGKILL), "exit status of memshim run");
    }
    Try { dir, done, after }
}

fn read(a_try: &Try) -> Option<Value> {
    let trace = a_try.dir.join("trace.jsonl");
    if !trace.exists() {
        assert_eq!(
            a_try.done,
            [0; THREADS],
            "{}: killed after {:?}, work was done, but there is no trace",
            a_try.dir.display(),
            a_try.after
        );
        return None;
    }
    let text =
        support::analyze(&trace).unwrap_or_else(|why| panic!("{}: analyze fails on a killed process's trace: {why}", a_try.dir.display()));
    Some(serde_json::from_str(&text).expect("analyze --json prints JSON"))
}

fn hold(mode: Mode, test: &str, tries: usize) {
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let mut instants = Instants::new();
    for number in 0..tries {
        let a_try = kill_one(mode, test, number, &mut instants);
        let Some(report) = read(&a_try) else { continue };
        let at = format!("{} killed after {:?}", a_try.dir.display(), a_try.after);
        if mode == Mode::Fast {
            let counted: u64 = report["runs"].as_array().expect("runs").iter().filter_map(|r| r["heap"]["allocs"].as_u64()).sum();
            let done: u64 = a_try.done.iter().sum();
            assert!(counted >= done, "{at}: {done} allocations were complete, {counted} are counted");
        } else {
            for (k, done) in a_try.done.iter().enumerate() {
                let (allocs, frees) = support::counted(&report, 9973 + 2 * k as u64);
                assert!(
                    allocs >= *done && frees >= *done,
                    "{at}: thread {k} had done {done} pairs, the trace has {allocs} allocations and {frees} frees"
                );
            }
        }
        let kind = report["runs"][0]["end"]["kind"].as_str().unwrap_or("missing").to_owned();
        assert!(["killed", "signaled"].contains(&kind.as_str()), "{at}: the report says the process {kind}");
        let _ = fs::remove_dir_all(&a_try.dir);
    }
}

#[test]
fn killed_at_any_instant_full_mode_has_all_but_the_last_ten_milliseconds() {
    hold(Mode::Full, "killed_full", 120);
}

#[test]
fn killed_at_any_instant_fast_mode_has_all_but_the_last_ten_milliseconds() {
    hold(Mode::Fast, "killed_fast", 50);
}

#[test]
fn killed_at_any_instant_under_run_has_all_but_the_last_ten_milliseconds() {
    hold(Mode::Run, "killed_run", 30);
}

/// Which block a free ends stays known whatever the drain was doing at the end: between two chunks, at the end of a block, in a chunk.
#[test]
fn an_abort_at_any_step_of_the_drain_leaves_every_free_its_block() {
    let test = "an_abort_at_any_step_of_the_drain";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let program = support::build("loop.c", "loop", &[]);
    for number in 0..100 {
        let times = 4000 + 37 * number;
        let dir = support::fresh_dir(&format!("{test}/{number}"));
        let trace = dir.join("trace.jsonl");
        let mut command = Command::new(&program);
        command.args(["malloc+free", &times.to_string(), "abort"]).current_dir(&dir);
        command.env("LD_PRELOAD", support::shim()).env("MEMSHIM_OUT", &trace).env("MEMSHIM_MODE", "full");
        let ran = Session::start(&mut command, &dir).finish(Duration::from_secs(20));
        assert!(ran.status.is_some_and(|s| !s.success()), "{}: it does not abort", dir.display());
        let report: Value = serde_json::from_str(&support::analyze(&trace).expect("a report")).expect("JSON");
        assert_eq!(support::counted(&report, 48), (times, times), "{}", dir.display());
        assert_eq!(report["runs"][0]["missing"], serde_json::json!([]), "{}", dir.display());
        let _ = fs::remove_dir_all(&dir);
    }
}

/// The last frees are in the ring, their blocks in the table: in nodes of pages, of MiB and of 256 MiB, some of which have just moved.
#[test]
fn blocks_of_all_sizes_are_found_in_the_spool_of_a_killed_process() {
    let test = "blocks_of_all_sizes_are_found_in_the_spool_of_a_killed_process";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let program = support::build("populations.c", "populations", &["-lm"]);
    for number in 0..60u64 {
        let count = 500 + 97 * number;
        let dir = support::fresh_dir(&format!("{test}/{number}"));
        let mut command = Command::new(&program);
        command.args([&count.to_string()[..], "16", if number % 3 == 0 { "300" } else { "400000" }, "log-left", "9"]).current_dir(&dir);
        command.env("LD_PRELOAD", support::shim()).env("MEMSHIM_MODE", "full").env("MEMSHIM_STACKS", "off");
        assert_eq!(Session::start(&mut command, &dir).finish(Duration::from_secs(20)).end(), "signal 9");
        let report: Value = serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).expect("a report")).expect("JSON");
        let (run, left) = (&report["runs"][0], count.div_ceil(40) + 1);
        assert_eq!(run["recovered"], true, "{}", dir.display());
        let (heap, events) = (&run["heap"], &run["events"]);
        assert_eq!(
            (&heap["allocs"], &heap["frees"], &events["unknown_frees"]),
            (&(count + 1).into(), &(count + 1 - left).into(), &0.into())
        );
        assert_eq!((&heap["leaked_allocs"], &run["missing"]), (&left.into(), &serde_json::json!([])), "{}", dir.display());
        let _ = fs::remove_dir_all(&dir);
    }
}

/// What a killed process leaves open at the end of a compressed trace does not take along what is appended.
#[test]
fn a_compressed_trace_of_an_abort_under_run_is_whole() {
    let test = "a_compressed_trace_of_an_abort_under_run_is_whole";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let program = support::build("loop.c", "loop", &[]);
    for times in [100, 5000, 20_000] {
        let dir = support::fresh_dir(test);
        let trace = dir.join("trace.jsonl.zst");
        let mut command = Command::new(support::memshim());
        command.args(["run", "-q", "--mode", "full", "-o"]).arg(&trace).arg("--").arg(&program);
        command.args(["malloc+free", &times.to_string(), "abort"]).current_dir(&dir);
        let ran = Session::start(&mut command, &dir).finish(Duration::from_secs(20));
        assert_eq!(ran.status.and_then(|s| s.code()), Some(134), "{}", support::lossy(&ran.stderr));
        let report: Value = serde_json::from_str(&support::analyze(&trace).expect("a report")).expect("JSON");
        assert_eq!(support::counted(&report, 48), (times, times), "{times}");
        assert_eq!(report["runs"][0]["missing"], serde_json::json!([]), "{times}");
        let file = fs::File::open(&trace).expect("the trace");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut zstd::Decoder::new(file).expect("zstd"), &mut text).expect("whole frames");
        assert!(text.ends_with('\n') && text.contains("\"outside\""), "{times}");
    }
}

#[test]
fn one_that_dies_young_has_its_time_and_its_names() {
    let test = "one_that_dies_young_has_its_time_and_its_names";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    let program = support::build("dies_young.c", "dies_young", &["-g", "-O0"]);
    let mut command = Command::new(&program);
    command.current_dir(&dir).env("LD_PRELOAD", support::shim()).env("MEMSHIM_MODE", "full");
    assert_eq!(Session::start(&mut command, &dir).finish(Duration::from_secs(20)).end(), "signal 9");
    let report: Value = serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).expect("a report")).expect("JSON");
    let run = &report["runs"][0];
    assert!((0.0..20.0).contains(&run["wall_s"].as_f64().unwrap()), "{}", run["wall_s"]);
    assert_eq!(run["heap"]["peak_bytes"], 100 * 1000 + 100 * 100_000);
    let owner = &run["owners"][0];
    assert_eq!((&owner["frame"]["function"], &owner["live_at_peak_bytes"]), (&"keep".into(), &10_100_000.into()), "{owner}");
}

#[test]
fn growth_is_said_only_between_looks_that_were() {
    let test = "growth_is_said_only_between_looks_that_were";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    for killed in [false, true] {
        let dir = support::fresh_dir(test);
        let mut command = Command::new(support::build("grown.c", "grown", &[]));
        command.args(killed.then_some("kill")).env("LD_PRELOAD", support::shim()).env("MEMSHIM_OUT", dir.join("t.jsonl"));
        // No look but those at the start and at the end.
        let ran = Session::start(command.env("MEMSHIM_INTERVAL", "1h"), &dir).finish(Duration::from_secs(20));
        assert_eq!(ran.end(), if killed { "signal 9" } else { "exit 0" });
        let report: Value = serde_json::from_str(&support::analyze(&dir.join("t.jsonl")).unwrap()).unwrap();
        let rss = &report["runs"][0]["rss"];
        let number = |key: &str| rss[key].as_i64().unwrap_or_else(|| panic!("no {key}: {rss}"));
        let screen = Command::new(support::memshim()).arg("analyze").arg(dir.join("t.jsonl")).env("LC_ALL", "C.UTF-8").output().unwrap();
        let screen = support::lossy(&screen.stdout);
        if killed {
            // Of the memory that was touched nobody saw anything but the kernel.
            assert!(rss["growth_bytes"].is_null() && number("end_bytes") < 16 << 20, "{rss}");
            assert!(!screen.contains("at the end (") && screen.contains("growth "), "{screen}");
            assert_eq!((&rss["lower_bound"], &rss["at_most_bytes"]), (&true.into(), &Value::Null), "{rss}");
            assert_eq!(report["job"]["request_lower_bound"], true);
            assert!(screen.contains("MiB at least") && screen.contains("it may have had more at its end"), "{screen}");
        } else {
            // Both looks lie in one span of the timeline, which keeps the higher.
            assert!(number("start_bytes") < 16 << 20, "{rss}");
            assert_eq!(number("growth_bytes"), number("end_bytes") - number("start_bytes"));
            assert!((32 << 20..40 << 20).contains(&number("growth_bytes")), "{rss}");
            assert!(screen.contains("at the start → ") && screen.contains("at the end (+3"), "{screen}");
            assert_eq!((&rss["lower_bound"], &report["job"]["request_lower_bound"]), (&false.into(), &false.into()), "{rss}");
            assert!(!screen.contains("at least"), "{screen}");
        }
    }
}

/// Who waits for it is told by the kernel what it had at most: that is what to ask for.
#[test]
fn the_peak_of_a_killed_target_is_between_what_was_seen_and_what_the_kernel_says() {
    let test = "the_peak_of_a_killed_target_is_between_what_was_seen_and_what_the_kernel_says";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    let mut command = Command::new(support::memshim());
    command.args(["run", "-q", "--interval", "1h", "-o"]).arg(dir.join("t.jsonl")).arg("--");
    let ran = Session::start(command.arg(support::build("grown.c", "grown", &[])).arg("kill"), &dir).finish(Duration::from_secs(20));
    assert_eq!(ran.status.and_then(|s| s.code()), Some(137));
    let report: Value = serde_json::from_str(&support::analyze(&dir.join("t.jsonl")).unwrap()).unwrap();
    let rss = &report["runs"][0]["rss"];
    let most = rss["at_most_bytes"].as_u64().unwrap_or_else(|| panic!("{rss}"));
    assert!((32 << 20..64 << 20).contains(&most), "{rss}");
    let seen = ["peak_bytes", "hwm_bytes", "outside_hwm_bytes"].map(|key| rss[key].as_u64().unwrap_or(0)).into_iter().max().unwrap();
    // It may have been looked at from outside at its very end.
    assert_eq!(rss["lower_bound"], most > seen, "{rss}");
    let needed = most.max(seen);
    let ask = report["job"]["request_mem_bytes"].as_u64().unwrap();
    assert_eq!((ask, &report["job"]["request_lower_bound"]), ((needed + needed / 10).div_ceil(1 << 20) << 20, &false.into()));
}

/// That `memshim run` saw how it ended does not make a trace whole: the rest is in the spool, where there is one.
#[test]
fn a_killed_target_whose_rest_is_nowhere_is_known_up_to_then() {
    let test = "a_killed_target_whose_rest_is_nowhere_is_known_up_to_then";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let program = support::build("killed_late.c", "killed_late", &["-O0"]);
    for mode in ["full", "fast"] {
        for (limit, is_whole) in [("20000", false), ("unlimited", true)] {
            let dir = support::fresh_dir(&format!("{test}-{mode}"));
            // Files of less than a spool's size: its memory is private then.
            let mut command = Command::new("sh");
            command.args(["-c", r#"ulimit -f "$0"; exec "$@""#, limit]).arg(support::memshim()).args(["run", "--mode", mode]);
            command.args(["--interval", "50ms", "-o", "t.jsonl", "--"]).arg(&program).current_dir(&dir);
            let ran = Session::start(&mut command, &dir).finish(Duration::from_secs(20));
            assert_eq!(ran.status.and_then(|s| s.code()), Some(128 + 9), "{}", support::lossy(&ran.stderr));
            let report: Value = serde_json::from_str(&support::analyze(&dir.join("t.jsonl")).expect("a report")).expect("JSON");
            let run = &report["runs"][0];
            let number = |of: &Value| of.as_f64().unwrap_or_else(|| panic!("{mode} {limit}: {run}"));
            assert_eq!((&run["end"]["kind"], &run["end"]["signal"]), (&"signaled".into(), &9.into()));
            let lacks_end = run["missing"].as_array().expect("missing").iter().any(|m| m["what"] == "the end");
            assert_eq!((lacks_end, run["recovered"].as_bool()), (!is_whole, Some(is_whole)), "{mode}: {}", run["missing"]);
            let heap = &run["heap"];
            let text = Command::new(support::memshim()).arg("analyze").arg(dir.join("t.jsonl")).output().expect("memshim");
            let text = support::lossy(&text.stdout);
            if is_whole {
                assert_eq!((&run["known_until_s"], &heap["allocs"]), (&Value::Null, &201_000.into()), "{heap}");
                assert!(number(&heap["leaked_bytes"]) >= 21e6 && text.contains("live when it was killed"), "{mode}: {text}");
            } else {
                let until = number(&run["known_until_s"]);
                assert!((0.05..=number(&run["wall_s"])).contains(&until), "{mode}: {run}");
                assert!(
                    (1000..=201_000).contains(&heap["allocs"].as_u64().expect("calls")) && number(&heap["peak_bytes"]) >= 1e6,
                    "{heap}"
                );
                assert!(heap["leaked_bytes"].is_null() && heap["leaked_allocs"].is_null(), "{heap}");
                assert!(!text.contains("leaked") && text.contains("the end is not in the trace"), "{mode}: {text}");
            }
        }
    }
}
