//! Promises about watched output (`--phase-on`): not a byte, an order, a terminal or a signal is another; and the edges are right.
#[path = "../support/mod.rs"]
mod support;
mod terminals;

use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::{fresh_dir, lossy, memshim, python};

const RULE: &str = "^Phase (\\w+)";

/// `memshim run --phase-on RULE -- command…`
fn watched(dir: &Path, rules: &[&str], command: &[&str]) -> Command {
    let mut c = Command::new(memshim());
    c.current_dir(dir).args(["run", "-q", "-o", "t.jsonl"]);
    c.args(rules.iter().flat_map(|r| ["--phase-on", *r])).arg("--").args(command);
    c
}

fn output(dir: &Path, rules: &[&str], command: &[&str]) -> Output {
    watched(dir, rules, command).output().unwrap()
}

fn edges(dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(dir.join("t.jsonl.marks")).unwrap_or_default();
    text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()).filter(|l| l["type"] == "edge").collect()
}

fn said(dir: &Path) -> Vec<(String, String)> {
    let word = |v: &Value| v.as_str().unwrap().to_owned();
    edges(dir).iter().map(|e| (word(&e["what"]), word(&e["name"]))).collect()
}

fn said_names(dir: &Path) -> Vec<String> {
    said(dir).into_iter().map(|e| e.1).collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect()
}

/// Kills what does not end in time.
fn ends(mut child: Child, limit: Duration) -> i32 {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap_or(-1);
        }
        if began.elapsed() > limit {
            let _ = child.kill();
            panic!("no end in {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn where_no_thread_can_be_had_the_program_keeps_its_output() {
    let dir = fresh_dir("output-no-thread");
    // Stacks of a size that no address space has.
    let mut command = watched(&dir, &[RULE], &["sh", "-c", "echo Phase one; echo two >&2; exit 3"]);
    let o = command.env("RUST_MIN_STACK", (1u64 << 47).to_string()).output().unwrap();
    let said = lossy(&o.stderr);
    assert_eq!((lossy(&o.stdout).as_str(), o.status.code()), ("Phase one\n", Some(3)), "{said}");
    assert!(said.contains("two\n") && said.contains("no thread can be had"), "{said}");
    assert!(dir.join("t.jsonl").exists(), "recorded all the same");
}

#[test]
fn every_byte_arrives_where_it_belongs() {
    let dir = fresh_dir("output-bytes");
    let bytes: Vec<u8> = (0..3_000_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    std::fs::write(dir.join("in"), &bytes).unwrap();
    let o = output(&dir, &[RULE], &["sh", "-c", "cat in; echo Phase err >&2; echo; echo Phase out; printf 'Phase partial'; exit 5"]);
    assert!(o.stdout == [&bytes[..], b"\nPhase out\nPhase partial"].concat(), "{} bytes", o.stdout.len());
    assert_eq!((o.stderr, o.status.code()), (b"Phase err\n".to_vec(), Some(5)));
    let mut names = said_names(&dir);
    names.sort();
    assert_eq!(names, ["err", "out", "partial"]);
}

/// What is printed to stdout and stderr, which are one pipe, and how it ends.
fn through_one_pipe(mut command: Command) -> (String, i32) {
    let (mut read, write) = std::io::pipe().unwrap();
    command.stdout(write.try_clone().unwrap()).stderr(write);
    let child = command.spawn().unwrap();
    drop(command);
    let mut text = String::new();
    read.read_to_string(&mut text).unwrap();
    (text, ends(child, Duration::from_secs(20)))
}

#[test]
fn stdout_and_stderr_that_are_one_pipe_keep_their_order() {
    let dir = fresh_dir("output-order");
    let script = "i=0; while [ $i -lt 2000 ]; do echo out $i; echo Phase p$i >&2; i=$((i+1)); done";
    let (text, code) = through_one_pipe(watched(&dir, &[RULE], &["sh", "-c", script]));
    assert_eq!(code, 0);
    let want: String = (0..2000).map(|i| format!("out {i}\nPhase p{i}\n")).collect();
    assert!(text == want);
    assert_eq!(said(&dir), (0..2000).map(|i| ("next".to_owned(), format!("p{i}"))).collect::<Vec<_>>());
}

/// The names that the rule finds in the lines of a text.
fn named(text: &str) -> Vec<String> {
    let names = text.lines().filter_map(|l| l.strip_prefix("Phase "));
    names.map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()).collect()
}

/// Each writer's pieces arrive whole and in its order, and the edges are those of the lines that came of them.
fn arrived(text: &str, pieces: &[(&str, usize)], dir: &Path, what: &str) {
    for (writer, n) in pieces {
        let own: Vec<usize> = text.match_indices(&format!("<{writer} ")).map(|(at, _)| at).collect();
        let want: Vec<String> = (0..*n).map(|i| format!("<{writer} {i}>")).collect();
        let got: Vec<&str> = own.iter().map(|at| &text[*at..*at + text[*at..].find('>').expect("whole") + 1]).collect();
        assert!(got == want, "{what}: {writer} wrote {got:?}");
    }
    let names = said_names(dir);
    assert!(names == named(text) && names.len() > 100, "{what}: {} edges of {} lines", names.len(), named(text).len());
}

#[test]
fn two_processes_that_write_at_once_keep_every_piece_and_its_order() {
    let dir = fresh_dir("output-writers");
    // Whole lines, and lines in two pieces, to stdout and stderr, which are one pipe here.
    let script = "w() { i=0; while [ $i -lt 200 ]; do echo \"Phase $1$i <$1 $i>\" >&$2; printf 'Phase '; printf \"x$1$i <x$1 $i>\\n\"; \
                  i=$((i+1)); done; }; w a 1 & w b 2 & w c 1; wait";
    let (text, code) = through_one_pipe(watched(&dir, &[RULE], &["sh", "-c", script]));
    assert_eq!(code, 0);
    let pieces = ["a", "b", "c", "xa", "xb", "xc"].map(|writer| (writer, 200));
    arrived(&text, &pieces, &dir, "processes");
    assert_eq!(text.matches("Phase ").count(), 6 * 200);
}

#[test]
fn a_program_in_a_pipe_keeps_back_what_it_would_keep_back() {
    let Some(python) = python().and_then(Path::to_str) else { return };
    let dir = fresh_dir("output-buffers");
    let script = "import ctypes, os, sys\nc = ctypes.CDLL(None)\nprint('a'); os.write(2, b'b\\n'); print(sys.stdout.line_buffering)\n\
                  sys.stdout.flush(); c.printf(b'e\\n'); os.write(2, b'f\\n'); os.write(1, b'g\\n')\n";
    let mut alone = Command::new(python);
    alone.args(["-c", script]);
    let kept_back = ("b\na\nFalse\nf\ng\ne\n".to_owned(), 0);
    for mut command in [alone, watched(&dir, &[RULE], &[python, "-c", script])] {
        command.env_remove("PYTHONUNBUFFERED");
        assert_eq!(through_one_pipe(command), kept_back);
    }
}

#[test]
fn threads_that_write_at_once_keep_every_piece_and_its_order() {
    let Some(python) = python() else { return };
    let dir = fresh_dir("output-threads");
    let script = "import os, threading\n\
                  def w(n):\n  for i in range(150):\n    os.write(1, b'Phase %s%d <%s %d>\\n' % (n, i, n, i)); os.write(1, b'Pha'); \
                  os.write(1, b'se y <y%s %d>\\n' % (n, i))\n\
                  t = [threading.Thread(target=w, args=(n,)) for n in (b'a', b'b', b'c')]\n[x.start() for x in t]; [x.join() for x in t]\n";
    let o = output(&dir, &[RULE], &[python.to_str().unwrap(), "-c", script]);
    assert_eq!((o.status.code(), lossy(&o.stderr)), (Some(0), String::new()));
    arrived(&lossy(&o.stdout), &["a", "b", "c", "ya", "yb", "yc"].map(|writer| (writer, 150)), &dir, "threads");
}

#[test]
fn a_file_is_written_by_the_program_itself() {
    let dir = fresh_dir("output-file");
    std::fs::write(dir.join("log"), "Phase before\n").unwrap();
    let log = File::options().append(true).open(dir.join("log")).unwrap();
    let script =
        "stat -L -c '%i %F' /proc/self/fd/1 /proc/self/fd/2 log; echo Phase one; echo Phase two >&2; sleep 0.1; printf 'Phase three'";
    let mut command = watched(&dir, &[RULE], &["sh", "-c", script]);
    command.stdout(log.try_clone().unwrap()).stderr(log);
    assert_eq!(ends(command.spawn().unwrap(), Duration::from_secs(20)), 0);
    let text = std::fs::read_to_string(dir.join("log")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[1], lines[2]), (lines[3], lines[3]), "descriptors 1 and 2 are the file");
    assert_eq!(lines[4..], ["Phase one", "Phase two", "Phase three"]);
    assert_eq!(said(&dir), pairs(&[("next", "one"), ("next", "two"), ("next", "three")]));
}

#[test]
fn rules_say_what_a_line_means_and_what_it_is_called() {
    let dir = fresh_dir("output-rules");
    let script =
        r"printf 'begin scf now\n  begin not\ncycle 1\rcycle 2\r\n\033[32mbegin\033[0m mp2\nfinished mp2\nfinished\nsaved x.chk\n'";
    let rules = ["start:^begin (\\w+)", "cycle \\d+", "end:^finished *(\\w+)?", "mark:saved (.*)"];
    output(&dir, &rules, &["sh", "-c", script]);
    let want =
        [("begin", "scf"), ("next", "cycle 1"), ("next", "cycle 2"), ("begin", "mp2"), ("end", "mp2"), ("end", ""), ("mark", "x.chk")];
    assert_eq!(said(&dir), pairs(&want));
    assert!(edges(&dir).iter().all(|e| e["source"] == "output"));
}

/// Python's `say`, which prints a line that ends with the time, and notes when that was done.
const SAY: &str = "import os, time\nafter = open('after', 'w', 1)\ndef say(name):\n  \
                   os.write(1, b'Phase %s_%d\\n' % (name, time.monotonic_ns())); print(time.monotonic_ns(), file=after)\n";

/// Each line of `say` was printed in the time that its edge says. How long before it was read, ns.
fn printed_when_said(dir: &Path) -> Vec<(String, u64)> {
    let after = std::fs::read_to_string(dir.join("after")).unwrap();
    let of = |(e, after): (&Value, &str)| {
        let (name, before) = e["name"].as_str().and_then(|n| n.rsplit_once('_')).unwrap_or_else(|| panic!("{e}"));
        let (before, after): (u64, u64) = (before.parse().unwrap(), after.parse().unwrap());
        let (t, late) = (e["t"].as_u64().unwrap(), e["late"].as_u64().unwrap());
        assert!(before < t && t.saturating_sub(late) <= after, "printed from {before} to {after}: {e}");
        (name.to_owned(), t.saturating_sub(after))
    };
    let edges = edges(dir);
    assert_eq!(edges.len(), after.lines().count());
    edges.iter().zip(after.lines()).map(of).collect()
}

#[test]
fn an_edge_has_the_time_at_which_its_line_was_printed() {
    let Some(python) = python() else { return };
    let dir = fresh_dir("output-times");
    let script = format!("{SAY}for i in range(5): say(b'at'); time.sleep(0.05)");
    let o = output(&dir, &[RULE], &[python.to_str().unwrap(), "-c", &script]);
    assert_eq!(o.status.code(), Some(0), "{}", lossy(&o.stderr));
    let mut late: Vec<u64> = printed_when_said(&dir).into_iter().map(|of| of.1).collect();
    late.sort();
    assert!(late.len() == 5 && late[2] < 20_000_000, "nanoseconds late: {late:?}");
}

/// Path, source, count, and in bytes: left behind, needed meanwhile, how far off that can be. Of the program `printed.c` by its output.
fn phases_of_printed(name: &str, mode: &str) -> Vec<(String, String, [i64; 3], Option<i64>)> {
    let dir = fresh_dir(name);
    let program = support::build("printed.c", "printed", &[]);
    let rules = ["--phase-on", "start:begin (\\w+)", "--phase-on", "end:done (\\w+)", "--phase-on", "^step"];
    let mut command = Command::new(memshim());
    command.current_dir(&dir).args(["run", "-q", "--mode", mode]).args(rules);
    // In full mode small blocks are placed in time by the writer's looks at them.
    if mode == "full" {
        command.args(["--interval", "2ms"]);
    }
    let o = command.arg("--").arg(program).output().unwrap();
    assert_eq!(o.status.code(), Some(0), "{}", lossy(&o.stderr));
    let report: Value = serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).unwrap()).unwrap();
    let of = |p: &Value| {
        let path: Vec<&str> = p["path"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
        let figures = ["count", "heap_persistent_bytes", "heap_transient_bytes"].map(|key| p[key].as_i64().unwrap());
        (path.join("/"), p["source"].as_str().unwrap().to_owned(), figures, p["heap_peak_bound_bytes"].as_i64())
    };
    report["runs"][0]["phases"].as_array().unwrap().iter().filter(|p| p["source"] != "process").map(of).collect()
}

/// What the program does between its lines.
const PRINTED: [(&str, [i64; 3]); 3] =
    [("setup", [1, 3_002_000, 4_999_000]), ("setup/step", [2, 2_000, 4_999_000]), ("finish", [1, -3_002_000, 0])];

#[test]
fn phases_of_lines_have_their_bytes() {
    let of_output = |(path, figures): (&str, [i64; 3])| (path.to_owned(), "output".to_owned(), figures, Some(0));
    assert_eq!(phases_of_printed("output-phases", "full"), PRINTED.map(of_output));
}

#[test]
fn in_fast_mode_phases_of_lines_have_their_bytes_and_a_bound() {
    let found = phases_of_printed("output-phases-fast", "fast");
    assert_eq!(found.len(), PRINTED.len(), "{found:?}");
    for ((path, _, [count, left, meanwhile], bound), (known, truth)) in found.iter().zip(PRINTED) {
        let bound = bound.unwrap_or_else(|| panic!("{path} has no bound"));
        assert_eq!((path.as_str(), *count), (known, truth[0]));
        // A difference of two figures, each within the bound; small blocks beyond what was asked for.
        assert!(bound < 100_000, "{path}: {bound}");
        let near = |got: i64, truth: i64| (got - truth).abs() <= 2 * bound;
        assert!(near(*left, truth[1]) && near(*meanwhile, truth[2]), "{found:?}");
    }
}

/// What is live at a line is what was live when it was read, however long its reader takes to take it; what is printed meanwhile is read later, and
/// that is said.
#[test]
fn a_reader_that_is_slow_moves_no_edge() {
    let Some(python) = python() else { return };
    let dir = fresh_dir("output-slow");
    // More than the reader's pipe takes; when it has been taken over from the program, whoever hands it on waits.
    let script = "import array, fcntl, sys, termios\nif fcntl.fcntl(1, 1032) < 131072: sys.exit(77)\n\
                  say(b'one'); os.write(1, b'x' * 70000 + b'\\n'); left = array.array('i', [1])\n\
                  while left[0]: time.sleep(0.001); fcntl.ioctl(1, termios.FIONREAD, left)\n\
                  os.read(0, 1); kept = bytearray(50_000_000); say(b'two'); time.sleep(0.03); os.write(2, b'printed\\n'); os.read(0, 1)";
    let mut command = watched(&dir, &[RULE], &[python.to_str().unwrap(), "-c", &format!("{SAY}{script}")]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut out, mut go_on) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    // What comes has been looked through.
    if out.read_exact(&mut [0]).is_err() {
        assert_eq!(ends(child, Duration::from_secs(20)), 77);
        return support::skip("a_reader_that_is_slow_moves_no_edge", "needs pipes of 128 KiB");
    }
    go_on.write_all(b"x").unwrap();
    let mut said = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let lines: Vec<String> = BufReader::new(out).lines().map(Result::unwrap).take(3).collect();
    assert!(said == "printed\n" && lines[1].len() == 70_000 && lines[2].starts_with("Phase two"), "{said}{}", lines[2]);
    drop(go_on);
    assert_eq!(ends(child, Duration::from_secs(20)), 0);
    let live: Vec<i64> = edges(&dir).iter().map(|e| e["seen"]["live"].as_i64().unwrap_or_else(|| panic!("{e}"))).collect();
    // Some hundred KB of before went meanwhile.
    assert!(live.len() == 2 && live[1] - live[0] > 49_000_000, "{live:?}");
    let printed = printed_when_said(&dir);
    assert!(printed[1].0 == "two" && printed[1].1 > 30_000_000, "{printed:?}");
}

#[test]
fn how_long_after_its_printing_a_line_was_read_is_said_and_bounds_what_it_tells() {
    let dir = fresh_dir("output-late");
    let program = support::build("printed.c", "printed", &[]);
    let rules = ["--phase-on", "start:begin (\\w+)", "--phase-on", "end:done (\\w+)", "--phase-on", "mark:never (\\w+)"];
    let mut command = Command::new(memshim());
    command.current_dir(&dir).args(["run", "-q", "--mode", "full", "--interval", "2ms"]).args(rules).arg("--").arg(&program);
    let o = command.output().unwrap();
    assert_eq!(o.status.code(), Some(0), "{}", lossy(&o.stderr));
    let report: Value = serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).unwrap()).unwrap();
    let run = &report["runs"][0];
    let setup = run["phases"].as_array().unwrap().iter().find(|p| p["name"] == "setup").unwrap_or_else(|| panic!("{run}"));
    let late = setup["edges_late_s"].as_f64().unwrap_or_else(|| panic!("{setup}"));
    assert!(late >= 0.001, "{late}");
    let bounds = ["heap_peak_bound_bytes", "heap_persistent_bound_bytes", "heap_transient_bound_bytes"].map(|key| setup[key].as_i64());
    // It sleeps for longer around each line. Large blocks have stamps, so that none was allocated around a line; of small ones, of which there are
    // two, it is not known to the millisecond.
    if late < 0.05 {
        assert!(bounds[0] == Some(0) && bounds[1..].iter().all(|b| b.is_some_and(|b| b <= 2_000)), "{setup}");
    } else {
        support::skip("how_long_after_its_printing_a_line_was_read_is_said_and_bounds_what_it_tells (bounds)", "the machine is too busy");
    }
    assert_eq!(run["notes"], serde_json::json!(["mark:never (\\w+) (MEMSHIM_PHASE_ON): no line of the output fits it"]));
    let screen = Command::new(memshim()).args(["analyze", "--no-color"]).arg(dir.join("trace.jsonl")).output().unwrap();
    let words = lossy(&screen.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("no line of the output fits it") && words.contains("lines of its output were read up to "), "{words}");
}

#[test]
fn what_is_allocated_right_after_a_line_is_within_the_bound() {
    let dir = fresh_dir("output-at-once");
    let mut command = Command::new(memshim());
    command.current_dir(&dir).args(["run", "-q", "--mode", "full", "--phase-on", "^at once", "--"]);
    let o = command.arg(support::build("printed.c", "printed", &[])).arg("now").output().unwrap();
    assert_eq!(o.status.code(), Some(0), "{}", lossy(&o.stderr));
    let report: Value = serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).unwrap()).unwrap();
    let all = report["runs"][0]["phases"].as_array().unwrap();
    let step = all.iter().find(|p| p["source"] == "output").unwrap_or_else(|| panic!("{all:?}"));
    let number = |key: &str| step[key].as_i64().unwrap_or_else(|| panic!("{key}: {step}"));
    // Which of its 20 blocks are of the step before is not known of each.
    let (left, bound) = (number("heap_persistent_bytes"), number("heap_persistent_bound_bytes"));
    assert_eq!(number("count"), 20);
    assert!((left - 2_000_000).abs() <= bound && bound >= 100_000, "{left} ± {bound}");
    assert!((number("heap_peak_bytes") - 2_000_000).abs() <= number("heap_peak_bound_bytes"), "{step}");
}

#[test]
fn rules_come_from_the_environment_and_a_file_too() {
    let dir = fresh_dir("output-config");
    std::fs::write(dir.join("memshim.toml"), "phase_on = ['^C (\\w+)']\nmode = 'full'\n").unwrap();
    let mut command = watched(&dir, &["^A (\\w+)"], &["sh", "-c", "echo A a; echo B b; echo C c; echo D d"]);
    command.env("MEMSHIM_PHASE_ON", "^B (\\w+)\n").env("MEMSHIM_CONFIG", "memshim.toml");
    let o = command.output().unwrap();
    assert_eq!(said(&dir), pairs(&[("next", "a"), ("next", "b"), ("next", "c")]));
    assert_eq!(lossy(&o.stderr), "");
    let header: Value = serde_json::from_str(std::fs::read_to_string(dir.join("t.jsonl")).unwrap().lines().next().unwrap()).unwrap();
    assert_eq!(header["mode"], "full");
    let wrong = output(&dir, &["("], &["true"]);
    assert_eq!(wrong.status.code(), Some(125));
    assert!(lossy(&wrong.stderr).contains("--phase-on"), "{}", lossy(&wrong.stderr));
}

#[test]
fn a_reader_that_goes_away_ends_the_writer() {
    let dir = fresh_dir("output-reader");
    for (script, code) in [("exec yes Phase", 141), ("trap '' PIPE; while echo x 2>/dev/null; do :; done; exit 9", 9)] {
        let mut child = watched(&dir, &[RULE], &["sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::with_capacity(16, child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(ends(child, Duration::from_secs(20)), code, "{script}");
    }
    // Also one who has been silent for long.
    let mut child = watched(&dir, &[RULE], &["sh", "-c", "read go; echo x; echo y; exit 3"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    std::thread::sleep(Duration::from_millis(200));
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert_eq!(ends(child, Duration::from_secs(20)), 141, "already its first write fails");
}

#[test]
fn a_daemon_goes_on_writing_when_the_program_has_ended() {
    let dir = fresh_dir("output-daemon");
    let began = Instant::now();
    let script = "(sleep 0.7; echo Phase late) & echo Phase early";
    let mut child = watched(&dir, &[RULE], &["sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut text = String::new();
    let mut out = child.stdout.take().unwrap();
    assert_eq!(ends(child, Duration::from_secs(20)), 0);
    assert!(began.elapsed() < Duration::from_millis(650), "it does not wait for the daemon: {:?}", began.elapsed());
    out.read_to_string(&mut text).unwrap();
    assert_eq!(text, "Phase early\nPhase late\n");
    assert_eq!(said(&dir)[0], ("next".into(), "early".into()));
}

#[test]
fn a_killed_memshim_takes_no_output_along() {
    let dir = fresh_dir("output-killed");
    let script = "echo first; read go; i=0; while [ $i -lt 50 ]; do echo Phase p$i; i=$((i+1)); done";
    let mut child = watched(&dir, &[RULE], &["sh", "-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut stdin = child.stdin.take().unwrap();
    let mut text = String::new();
    out.read_line(&mut text).unwrap();
    // It has told the relay by now whom it started.
    std::thread::sleep(Duration::from_millis(200));
    child.kill().unwrap();
    child.wait().unwrap();
    stdin.write_all(b"go\n").unwrap();
    out.read_to_string(&mut text).unwrap();
    assert_eq!(text.lines().count(), 51);
    assert_eq!(said(&dir).len(), 50);
}

#[test]
fn a_program_that_is_not_there_is_said_as_ever() {
    let dir = fresh_dir("output-none");
    let o = output(&dir, &[RULE], &["no-such-program-here"]);
    assert_eq!(o.status.code(), Some(127));
    assert!(lossy(&o.stderr).contains("command not found") && o.stdout.is_empty());
}
