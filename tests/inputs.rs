//! Whatever is given to `analyze` in place of a trace: an answer or one clear line, soon, and in bounded memory.

use memshim_format::spool::{Header, MAGIC, VERSION};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const HEADER: &str = r#"{"type":"header","v":1,"run":"00","pid":42,"ppid":1,"start_ticks":1,"pid_ns":1,"exec":0,"mode":"full","cols":"v93","tick_ns":100,"mono_ns":1000,"wall_ns":1764289999000000000,"host":"elsewhere","exe":"/bin/x","argv":["x"],"cwd":"/"}"#;
const END: &str = r#"{"type":"end","t":2000000000,"how":"exit","code":3,"counted":0,"recorded":0,"lost":0,"failed":0}"#;

/// Under a limit on memory that no file may reach, whatever it says of itself.
fn analyze(path: &Path) -> Output {
    let began = Instant::now();
    let script = "ulimit -v 700000; exec \"$0\" analyze \"$1\"";
    let command = assert_cmd::cargo::cargo_bin!("memshim");
    let o = Command::new("timeout").args(["60", "sh", "-c", script]).arg(command).arg(path).env("LANG", "C.UTF-8").output().unwrap();
    assert!(began.elapsed() < Duration::from_secs(50), "{path:?}: no end");
    o
}

fn said(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

/// Refused with one line that holds these words.
fn refused(path: &Path, words: &[&str]) {
    let o = analyze(path);
    let text = said(&o);
    assert_eq!(o.status.code(), Some(3), "{path:?}: {text}{}", String::from_utf8_lossy(&o.stdout));
    assert_eq!(text.lines().count(), 1, "{path:?}: {text}");
    assert!(text.starts_with("memshim: ") && words.iter().all(|w| text.contains(w)), "{path:?}: {text}");
}

/// Answered, with these words on the screen.
fn answered(path: &Path, words: &[&str]) {
    let o = analyze(path);
    let text = String::from_utf8_lossy(&o.stdout).into_owned();
    assert_eq!(o.status.code(), Some(0), "{path:?}: {}", said(&o));
    assert!(words.iter().all(|w| text.contains(w)), "{path:?}: {text}");
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    refused(&path("missing.jsonl"), &["missing.jsonl", "not there"]);
    fifo(&path("fifo.jsonl"));
    refused(&path("fifo.jsonl"), &["a pipe or a device", "name the trace file itself"]);
    refused(Path::new("/dev/zero"), &["a pipe or a device"]);
    std::fs::create_dir(path("empty")).unwrap();
    refused(&path("empty"), &["no trace in it", ".jsonl"]);
    std::fs::create_dir(path("folder.jsonl")).unwrap();
    std::os::unix::fs::symlink(path("folder.jsonl"), path("link.jsonl")).unwrap();
    refused(&path("link.jsonl"), &["no trace in it"]);
    std::os::unix::fs::symlink(path("loop.jsonl"), path("loop.jsonl")).unwrap();
    refused(&path("loop.jsonl"), &["loop.jsonl"]);
}

#[test]
fn what_is_no_trace_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    std::fs::write(&path, "").unwrap();
    refused(&path, &["an empty file", "the disk was full", "run it again"]);
    for foreign in ["{\"level\":\"info\",\"msg\":\"x\"}\n{\"level\":\"warn\"}\n", "PK\x03\x04", "\u{0}\u{0}\n", "[1,2,3]\n", "\n\n\n"] {
        std::fs::write(&path, foreign).unwrap();
        refused(&path, &["not a memshim trace", "memshim run -- PROGRAM"]);
    }
    std::fs::write(&path, [&b"{\"type\":\"note\",\"what\":\""[..], &[0xff; 50], b"\"}\n"].concat()).unwrap();
    refused(&path, &["not a memshim trace"]);
    std::fs::write(&path, format!("{}\n", "[".repeat(1 << 20))).unwrap();
    refused(&path, &["not a memshim trace"]);
}

#[test]
fn two_runs_and_things_that_are_none_lie_in_one_folder() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    std::fs::write(path("trace.jsonl"), format!("{HEADER}\n{END}\n")).unwrap();
    std::fs::write(path("trace.20260101T000000.jsonl"), format!("{}\n{END}\n", HEADER.replace("42", "43"))).unwrap();
    std::fs::write(path("log.jsonl"), "{\"level\":\"info\"}\n").unwrap();
    std::os::unix::fs::symlink(path("trace.jsonl"), path("again.jsonl")).unwrap();
    fifo(&path("pipe.jsonl"));
    fifo(&path("pipe2.jsonl.spool"));
    answered(dir.path(), &["2 processes", "log.jsonl", "no header line in it", "pipe.jsonl", "pipe or a device"]);
}

#[test]
fn deep_json_and_bytes_that_are_no_text_cost_their_line_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let deep = format!(r#"{{"type":"snap","t":5,"x":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let bad = [&b"{\"type\":\"note\",\"what\":\"\xff\xfe\"}"[..]].concat();
    let unknown = format!(r#"{{"type":"tomorrow","x":{}{}}}"#, "{\"a\":".repeat(5000), "1".to_owned() + &"}".repeat(5000));
    let text = [HEADER.as_bytes(), deep.as_bytes(), &bad, unknown.as_bytes(), END.as_bytes(), b""].join(&b'\n');
    std::fs::write(&path, text).unwrap();
    answered(&path, &["exit code 3", "lines (2)", "recursion limit", "lines (1): of a type this version does not know"]);
}

#[test]
fn every_beginning_of_a_trace_is_read_as_far_as_it_goes() {
    use memshim::analyze::{Options, analyze};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let ev = r#"{"type":"ev","g":0,"lane":0,"n":2,"seq":0,"t0":2000,"t1":3000,"t":"","k":"#.to_owned() + "\"$%\",\"x\":\"\",\"z\":\"\"}";
    let whole = format!("{HEADER}\n{{\"type\":\"kinds\",\"from\":1,\"kinds\":[[0,100,4,0]]}}\n{ev}\n{END}\n");
    for cut in 0..=whole.len() {
        std::fs::write(&path, &whole.as_bytes()[..cut]).unwrap();
        let report = analyze(std::slice::from_ref(&path), &Options::default(), &Default::default());
        assert_eq!(report.is_ok(), cut >= HEADER.len(), "{cut}");
        let Ok(report) = report else { continue };
        let lines = whole[..cut].matches('\n').count();
        // A line that only lacks its end is a whole one.
        let events = if cut >= whole.find(END).unwrap() - 1 { 2 } else { 0 };
        assert_eq!(report.runs[0].events.recorded, events, "{cut}: {lines} lines");
        let torn = report.runs[0].missing.iter().any(|m| m.what.contains("last line"));
        let between = whole.as_bytes()[cut.saturating_sub(1)] == b'\n' || cut == whole.len() || whole.as_bytes()[cut] == b'\n';
        assert_eq!(torn, !between, "{cut}: {:?}", report.runs[0].missing);
    }
}

#[test]
fn a_sparse_file_is_not_read_into_memory() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("t.jsonl");
    std::fs::write(&trace, format!("{HEADER}\n{END}\n")).unwrap();
    // A spool of 10 GB that claims a table as large as that, all of it a hole but for the header.
    let spool = std::fs::File::create(dir.path().join("t.jsonl.spool")).unwrap();
    spool.set_len(10 << 30).unwrap();
    answered(&trace, &["not a spool"]);
    for (at, v) in [(offset_of!(Header, magic), MAGIC), (offset_of!(Header, start_ticks), 1), (offset_of!(Header, table_bytes), u64::MAX)] {
        spool.write_all_at(&v.to_le_bytes(), at as u64).unwrap();
    }
    for (at, v) in [
        (offset_of!(Header, version), VERSION),
        (offset_of!(Header, pid), 42),
        (offset_of!(Header, lanes), u32::MAX),
        (offset_of!(Header, blocks), u32::MAX),
        (offset_of!(Header, kinds), u32::MAX),
    ] {
        spool.write_all_at(&v.to_le_bytes(), at as u64).unwrap();
    }
    answered(&trace, &["exit code 3"]);
    // A trace that is one line of zeros, longer than any line may be.
    let zeros = std::fs::OpenOptions::new().append(true).open(&trace).unwrap();
    zeros.set_len(1 << 30).unwrap();
    answered(&trace, &["exit code 3", "lines (1)"]);
}
