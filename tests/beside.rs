//! Promises about runs beside each other, and about what is seen of a run from outside: whose it is, and how much.
mod support;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};
use support::{Ran, Session, lossy};

const LIMIT: Duration = Duration::from_secs(30);
const MIB: u64 = 1 << 20;

/// A program that holds memory until the file `go` is there.
struct Holder {
    session: Session,
    dir: PathBuf,
}

impl Holder {
    /// Under `memshim run -o trace`, or with the library alone; `close`: it closes all descriptors.
    fn start(dir: PathBuf, mib: u64, trace: &Path, run: bool, close: bool) -> Holder {
        fs::create_dir_all(&dir).expect("a folder");
        let program = support::build("beside.c", "beside", &[]);
        let mut command = if run { Command::new(support::memshim()) } else { Command::new(&program) };
        if run {
            command.args(["run", "-o"]).arg(trace).arg("--").arg(&program);
        } else {
            command.env("LD_PRELOAD", support::shim()).env("MEMSHIM_OUT", trace);
        }
        command.arg(mib.to_string()).args([dir.join("ready"), dir.join("go")]).env("MEMSHIM_INTERVAL", "30s");
        if close {
            command.arg("close");
        }
        Holder { session: Session::start(&mut command, &dir), dir }
    }

    fn is_ready(&self) -> bool {
        self.dir.join("ready").exists()
    }

    fn let_go(self) -> Ran {
        fs::write(self.dir.join("go"), "").expect("go");
        self.session.finish(LIMIT)
    }
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < LIMIT, "{what} in time");
        sleep(Duration::from_millis(2));
    }
}

fn runs(trace: &Path) -> Vec<Value> {
    let report: Value = serde_json::from_str(&support::analyze(trace).unwrap()).unwrap();
    report["runs"].as_array().unwrap().clone()
}

#[test]
fn two_runs_of_one_name_have_a_trace_each_with_their_own_peak() {
    let dir = support::fresh_dir("beside_two");
    let trace = dir.join("t.jsonl");
    let both = [Holder::start(dir.join("a"), 96, &trace, true, false), Holder::start(dir.join("b"), 16, &trace, true, false)];
    wait_until("both", || both.iter().all(Holder::is_ready));
    let said: Vec<String> = both.into_iter().map(|h| lossy(&h.let_go().stderr)).collect();
    let moved =
        |s: &&String| s.contains("is being written by a run that goes on") && s.contains("this one writes") && s.contains("t.2.jsonl");
    assert_eq!(said.iter().filter(moved).count(), 1, "{said:?}");
    let mut peaks = Vec::new();
    for name in ["t.jsonl", "t.2.jsonl"] {
        let [run] = &runs(&dir.join(name))[..] else { panic!("one process in {name}") };
        let (inside, outside) = (run["rss"]["hwm_bytes"].as_u64().unwrap(), run["rss"]["outside_hwm_bytes"].as_u64().unwrap());
        assert!(inside.abs_diff(outside) < 4 * MIB, "{name}: {inside} from inside, {outside} from outside");
        assert_eq!(run["end"]["code"], 0);
        peaks.push(inside / MIB);
    }
    peaks.sort();
    assert!((16..32).contains(&peaks[0]) && (96..112).contains(&peaks[1]), "{peaks:?}");
}

#[test]
fn a_name_whose_run_is_over_is_given_out_again() {
    let dir = support::fresh_dir("beside_over");
    let trace = dir.join("t.jsonl");
    for (name, kept) in [("a", 1), ("b", 2)] {
        let said = Holder::start(dir.join(name), 1, &trace, true, false).let_go();
        assert!(!lossy(&said.stderr).contains("goes on"), "{}", lossy(&said.stderr));
        let traces = fs::read_dir(&dir).unwrap().flatten().filter(|e| e.file_name().to_string_lossy().ends_with(".jsonl")).count();
        assert_eq!((traces, trace.exists()), (kept, true));
    }
}

/// A program that closes all descriptors has let go of the lock too, until the shim writes next.
#[test]
fn a_trace_whose_process_lives_is_never_renamed() {
    for run in [false, true] {
        let dir = support::fresh_dir(&format!("beside_live_{run}"));
        let trace = dir.join("t.jsonl");
        let first = Holder::start(dir.join("a"), 64, &trace, false, true);
        wait_until("the first", || first.is_ready());
        let inode = fs::metadata(&trace).unwrap().ino();
        let second = Holder::start(dir.join("b"), 4, &trace, run, false);
        wait_until("the second", || second.is_ready());
        assert_eq!(fs::metadata(&trace).unwrap().ino(), inode, "the trace is where it was");
        let said = lossy(&second.let_go().stderr);
        first.let_go();
        assert_eq!(said.contains("this one writes"), run, "{said}");
        let of = |name: &str| runs(&dir.join(name)).len();
        // Without `run` nobody can tell a second start from a child: it joins.
        assert_eq!((of("t.jsonl"), dir.join("t.2.jsonl").exists()), if run { (1, true) } else { (2, false) });
        assert!(runs(&trace).iter().any(|r| r["heap"]["peak_bytes"].as_u64().unwrap() >= 64 * MIB));
    }
}

/// Runs `burns`; the trace's runs and the milliseconds that each image said.
fn burn(test: &str, run: bool, args: [&str; 3]) -> (Vec<Value>, Vec<f64>) {
    let dir = support::fresh_dir(test);
    let trace = dir.join("t.jsonl");
    let program = support::build("burns.c", "burns", &[]);
    let mut command = if run { Command::new(support::memshim()) } else { Command::new(&program) };
    if run {
        command.args(["run", "-o"]).arg(&trace).arg("--").arg(&program);
    } else {
        command.env("LD_PRELOAD", support::shim()).env("MEMSHIM_OUT", &trace);
    }
    let ran = Session::start(command.args(args), &dir).finish(LIMIT);
    (runs(&trace), lossy(&ran.stdout).lines().map(|l| l.parse().unwrap()).collect())
}

/// Milliseconds of processor time of a run, against what the program itself counted between its first line and its last.
fn near(run: &Value, ms: f64) {
    let got = run["cpu_s"].as_f64().unwrap() * 1e3;
    assert!(got > ms - 12.0 && got < ms + 30.0, "{got} ms of {ms}: {}", run["end"]);
}

#[test]
fn the_processor_time_of_a_killed_process_is_its_own_and_whole() {
    let (runs, said) = burn("beside_cpu_killed", true, ["400", "0", "kill"]);
    assert_eq!((runs.len(), &runs[0]["end"]["signal"]), (1, &9.into()));
    near(&runs[0], said[0]);
    let (runs, said) = burn("beside_cpu_child", true, ["300", "250", "kill"]);
    let own = runs.iter().find(|r| r["end"]["kind"] == "signaled").unwrap();
    let child = runs.iter().find(|r| r["end"]["kind"] == "exited").unwrap();
    near(own, said[0]);
    near(child, 250.0);
}

#[test]
fn without_anybody_outside_it_is_that_of_the_last_look() {
    let (runs, said) = burn("beside_cpu_alone", false, ["450", "0", "kill"]);
    let got = runs[0]["cpu_s"].as_f64().unwrap() * 1e3;
    assert!(got > said[0] - 200.0 && got < said[0] + 30.0, "{got} ms of {}", said[0]);
}

#[test]
fn images_of_a_process_share_its_processor_time_out() {
    let (runs, said) = burn("beside_cpu_exec", true, ["250", "0", "exec"]);
    assert_eq!((runs.len(), said.len()), (2, 2));
    for (run, ms) in runs.iter().zip([250.0, 250.0]) {
        near(run, ms);
    }
}

#[test]
fn nothing_is_exact_of_a_process_that_is_running() {
    let dir = support::fresh_dir("beside_running");
    let trace = dir.join("t.jsonl");
    let holder = Holder::start(dir.join("a"), 4, &trace, false, false);
    wait_until("it", || holder.is_ready());
    let heap = runs(&trace)[0]["heap"].clone();
    assert_eq!((&heap["peak_bound_bytes"], &heap["live_bound_bytes"]), (&Value::Null, &Value::Null));
    let text = lossy(&Command::new(support::memshim()).arg("analyze").arg(&trace).output().unwrap().stdout);
    assert!(!text.contains("exact)") && !text.contains("leaked,"), "{text}");
    assert_eq!(holder.let_go().end(), "exit 0");
    let heap = runs(&trace)[0]["heap"].clone();
    assert!(heap["peak_bound_bytes"].is_u64());
}
