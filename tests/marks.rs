//! Promises about marks from outside: they land beside the trace of the process, say what is wrong when they can't, and go with the run.
mod support;

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use support::{fresh_dir, lossy, memshim, shim};

/// Says its number, waits for a line, ends.
const WAITS: &str = "echo $$; read line";

struct Waiting {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
    pid: u32,
}

impl Waiting {
    fn start(command: &mut Command, dir: &Path) -> Waiting {
        let mut child = command.current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        Waiting { child, said, pid: line.trim().parse().unwrap() }
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        self.said.read_to_end(&mut Vec::new()).unwrap();
        self.child.wait().unwrap();
    }
}

fn preloaded(out: &str) -> Command {
    let mut c = Command::new("sh");
    c.args(["-c", WAITS]).env("LD_PRELOAD", shim()).env("MEMSHIM_OUT", out);
    c
}

fn mark(args: &[&str]) -> Output {
    Command::new(memshim()).arg("mark").args(args).output().unwrap()
}

fn lines(side: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(side).unwrap_or_else(|e| panic!("{}: {e}", side.display()));
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

fn monotonic_ns() -> u64 {
    let up = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap();
    up.tv_sec() as u64 * 1_000_000_000 + up.tv_nsec() as u64
}

#[test]
fn marks_of_a_process_lie_beside_its_trace_with_their_times() {
    let dir = fresh_dir("marks");
    let target = Waiting::start(&mut preloaded("t.jsonl"), &dir);
    let pid = target.pid.to_string();
    let before = monotonic_ns();
    for args in [&["mesh loaded"][..], &["assembly", "--begin"], &["solve \"π\"\n", "--next"], &["--end"]] {
        let o = mark(&[&[&*pid][..], args].concat());
        assert!(o.status.success() && o.stdout.is_empty() && o.stderr.is_empty(), "{}", lossy(&o.stderr));
    }
    let after = monotonic_ns();
    target.end();
    let all = lines(&dir.join("t.jsonl.marks"));
    let said: Vec<_> = all.iter().map(|l| (l["what"].as_str().unwrap(), l["name"].as_str().unwrap())).collect();
    assert_eq!(said, [("mark", "mesh loaded"), ("begin", "assembly"), ("next", "solve \"π\"\n"), ("end", "")]);
    let times: Vec<u64> = all.iter().map(|l| l["t"].as_u64().unwrap()).collect();
    assert!(times.is_sorted() && times[0] > before && times[3] < after, "{before} {times:?} {after}");
    let header: Value = serde_json::from_str(std::fs::read_to_string(dir.join("t.jsonl")).unwrap().lines().next().unwrap()).unwrap();
    assert!(all.iter().all(|l| l["pid"] == header["pid"] && l["start_ticks"] == header["start_ticks"] && l["source"] == "mark"));
    // What it had resident, and a waiting program's own exact counts; an instant needs none.
    assert!(
        all[1..].iter().all(|l| l["resident"]["rss"].as_u64() > Some(0) && l["resident"]["hwm"].as_u64() >= l["resident"]["rss"].as_u64())
    );
    let screen = Command::new(memshim()).arg("analyze").arg(dir.join("t.jsonl")).env("LC_ALL", "C.UTF-8").output().unwrap();
    let screen = lossy(&screen.stdout);
    let marks = screen.lines().find(|l| l.starts_with("MARKS ")).unwrap_or_else(|| panic!("{screen}"));
    assert!(marks.contains("1 (told by mark): `mesh loaded` at "), "{marks}");
    assert!(all[0]["seen"].is_null());
    let live: Vec<i64> = all[1..].iter().map(|l| l["seen"]["live"].as_i64().unwrap_or_else(|| panic!("{l}"))).collect();
    assert!(live[0] > 0 && live.iter().all(|l| *l == live[0]), "{live:?}");
}

#[test]
fn a_further_process_is_marked_beside_the_first_and_a_process_around_one_stands_for_it() {
    let dir = fresh_dir("marks-family");
    let script = "sh -c 'echo $$; read line; true'; true";
    let mut run = Command::new(memshim());
    run.args(["run", "-q", "-o", "t.jsonl.zst", "--", "sh", "-c", script]);
    let target = Waiting::start(&mut run, &dir);
    let launcher = target.child.id();
    assert!(mark(&[&target.pid.to_string(), "inner"]).status.success());
    let around = mark(&[&launcher.to_string(), "outer"]);
    assert!(around.status.success(), "{}", lossy(&around.stderr));
    let said = lossy(&around.stderr);
    target.end();
    let all = lines(&dir.join("t.jsonl.marks"));
    let outer = all[1]["pid"].as_u64().unwrap();
    assert_eq!((&all[0]["name"], &all[1]["name"]), (&Value::from("inner"), &Value::from("outer")));
    assert!(said.contains(&format!("marked {outer}, which it started")), "{said}");
    assert!(dir.join(format!("t.d/{}.jsonl.zst", all[0]["pid"])).exists(), "the inner one is a further process");
}

#[test]
fn what_is_wrong_is_said() {
    let dir = fresh_dir("marks-wrong");
    let fails = |args: &[&str], words: &str, code: i32| {
        let o = mark(args);
        assert!(o.status.code() == Some(code) && lossy(&o.stderr).contains(words), "{args:?}: {:?} {}", o.status, lossy(&o.stderr));
    };
    fails(&["2147483646", "x"], "none of this number", 3);
    let bare = Waiting::start(Command::new("sh").args(["-c", WAITS]), &dir);
    fails(&[&bare.pid.to_string(), "x"], "not recorded: it holds no trace open", 3);
    bare.end();
    fails(&["0", "x"], "PID", 2);
    fails(&["1"], "NAME", 2);
    fails(&["1", ""], "needs a name", 2);
    fails(&["1", "x"], "every process is below it", 3);
    fails(&["1", "x", "--begin", "--end"], "cannot be used with", 2);
    let target = Waiting::start(&mut preloaded("t.jsonl"), &dir);
    let pid = target.pid.to_string();
    std::fs::create_dir(dir.join("t.jsonl.marks")).unwrap();
    fails(&[&pid, "x"], "cannot write beside", 3);
    std::fs::remove_dir(dir.join("t.jsonl.marks")).unwrap();
    for name in ["t.jsonl", "t.jsonl.spool"] {
        std::fs::remove_file(dir.join(name)).unwrap();
    }
    fails(&[&pid, "x"], "was deleted", 3);
    target.end();
}

#[test]
fn without_shared_memory_the_open_trace_says_whose_it_is() {
    let dir = fresh_dir("marks-private");
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 20000; exec sh -c 'echo $$; read line'"]).env("LD_PRELOAD", shim()).env("MEMSHIM_OUT", "t.out");
    let target = Waiting::start(&mut limited, &dir);
    let o = mark(&[&target.pid.to_string(), "x"]);
    assert!(o.status.success(), "{}", lossy(&o.stderr));
    target.end();
    assert!(!dir.join("t.out.spool").exists());
    assert_eq!(lines(&dir.join("t.out.marks")).len(), 1);
}

#[test]
fn an_earlier_runs_side_file_is_renamed_with_its_trace() {
    for (out, zst) in [("t.jsonl", ""), ("t.jsonl.zst", ".zst"), ("t", "")] {
        let dir = fresh_dir(&format!("marks-renamed-{out}"));
        for name in ["first", "second"] {
            let target = Waiting::start(&mut preloaded(out), &dir);
            assert!(mark(&[&target.pid.to_string(), name]).status.success());
            target.end();
        }
        let plain = out.trim_end_matches(".zst");
        assert_eq!(lines(&dir.join(format!("{plain}.marks")))[0]["name"], "second", "{out}");
        let names: Vec<String> = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        let aside = names.iter().find(|n| n.ends_with(".marks") && **n != format!("{plain}.marks")).unwrap_or_else(|| panic!("{names:?}"));
        assert_eq!(lines(&dir.join(aside))[0]["name"], "first", "{out}");
        assert!(names.contains(&format!("{}{zst}", aside.trim_end_matches(".marks"))), "{names:?}");
        let report = Command::new(memshim()).args(["analyze", "--json"]).arg(dir.join(aside)).output().unwrap();
        let report: Value = serde_json::from_slice(&report.stdout).unwrap();
        assert_eq!(report["problems"], Value::Array(vec![]), "{out}");
        assert_eq!(report["runs"][0]["missing"], Value::Array(vec![]), "{out}");
    }
}

/// A drain that is behind writes at one instant what happened long before, and what happened since in its next group.
#[test]
fn what_a_late_drain_had_not_read_yet_is_before_a_mark_where_its_time_is() {
    let dir = fresh_dir("marks-late-drain");
    let trace = r#"{"type":"header","v":1,"run":"00","pid":7,"ppid":1,"start_ticks":77,"exec":0,"mode":"full","cols":"v93","tick_ns":1,"mono_ns":100,"wall_ns":1764289999000000000,"exe":"/bin/x","argv":["x"],"cwd":"/","big":65536,"page":4096,"fns":["malloc"],"stacks":"off"}
{"type":"kinds","from":1,"kinds":[[0,100,0,0],[0,1000000,0,0]]}
{"type":"ev","g":1,"lane":0,"n":1,"seq":0,"t0":1000,"t1":9000,"t":[],"k":[3],"x":[],"z":[]}
{"type":"ev","g":2,"lane":0,"n":3,"seq":1,"t0":1100,"t1":9500,"t":[0,900,1,0,0,1000,1,0,0,5000],"k":[6,4,3],"x":[],"z":[]}
{"type":"end","t":9600,"how":"exit","code":0,"counted":4,"recorded":4,"lost":0,"failed":0}
"#;
    let mark = |t: u64, what: &str, name: &str| {
        format!(r#"{{"type":"edge","pid":7,"start_ticks":77,"source":"mark","t":{t},"what":"{what}","name":"{name}"}}"#) + "\n"
    };
    std::fs::write(dir.join("t.jsonl"), trace).unwrap();
    std::fs::write(dir.join("t.jsonl.marks"), mark(500, "begin", "stage") + &mark(5000, "end", "")).unwrap();
    let report: Value = serde_json::from_str(&support::analyze(&dir.join("t.jsonl")).unwrap()).unwrap();
    let stage = &report["runs"][0]["phases"][0];
    let of = ["heap_begin_bytes", "heap_peak_bytes", "heap_persistent_bytes", "heap_transient_bytes"].map(|key| stage[key].as_i64());
    assert_eq!(of, [Some(0), Some(1_000_100), Some(100), Some(1_000_000)], "{stage}");
}

#[test]
fn an_end_of_what_no_mark_began_is_an_error() {
    if support::lacks("an_end_of_what_no_mark_began_is_an_error", &[support::Need::Preload]) {
        return;
    }
    let dir = fresh_dir("marks-none-open");
    let target = Waiting::start(&mut preloaded("t.jsonl"), &dir);
    let pid = target.pid.to_string();
    let side = dir.join("t.jsonl.marks");
    let refused = |args: &[&str], words: &str| {
        let before = std::fs::read(&side).ok();
        let o = mark(&[&[&*pid][..], args].concat());
        assert!(o.status.code() == Some(2) && lossy(&o.stderr).contains(words), "{args:?}: {:?} {}", o.status, lossy(&o.stderr));
        assert_eq!(std::fs::read(&side).ok(), before, "nothing is noted");
    };
    let done = |args: &[&str]| assert!(mark(&[&[&*pid][..], args].concat()).status.success(), "{args:?}");
    let none = format!("is open: `memshim mark {pid} NAME --begin` begins one");
    refused(&["--end"], &none);
    refused(&["solve", "--end"], &none);
    done(&["an instant"]);
    refused(&["--end"], &none);
    done(&["outer", "--begin"]);
    done(&["inner", "--begin"]);
    refused(&["solve", "--end"], "open is outer, inner");
    // What is inside ends with it.
    done(&["outer", "--end"]);
    refused(&["inner", "--end"], &none);
    done(&["step", "--next"]);
    done(&["--end"]);
    refused(&["--end"], &none);
    target.end();
}
