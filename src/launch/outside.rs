//! The `outside` line: what was seen of a target from outside, appended to its trace.

use super::cgroup::Reading;
use super::job;
use super::watch::{Ended, Seen};
use crate::trace::{read, recover};
use nix::libc;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A header line is short; more than this without a newline is not a trace of ours.
const LONGEST_HEADER: u64 = 16 << 20;

/// CLOCK_MONOTONIC, nanoseconds.
pub fn monotonic_ns() -> u64 {
    clock(ClockId::CLOCK_MONOTONIC)
}

/// Wall-clock time, ns since 1970.
pub fn wall_ns() -> u64 {
    clock(ClockId::CLOCK_REALTIME)
}

fn clock(id: ClockId) -> u64 {
    clock_gettime(id).map_or(0, |t| t.num_nanoseconds() as u64)
}

/// The line of `docs/trace-format.md`. To be made right after the target was waited for: its rusage is that of our only waited child.
pub fn line(pid: i32, began_ns: u64, seen: &Seen, cgroup: Option<(u8, &Reading, &Reading)>) -> Value {
    let now = monotonic_ns();
    let status = match seen.ended {
        Ended::Exited(code) => json!({"kind": "exited", "code": code}),
        Ended::Signaled { signal, core } => json!({"kind": "signaled", "signal": signal, "core": core}),
        Ended::Unknown => json!({"kind": "unknown"}),
    };
    let cgroup = cgroup.map(|(version, before, after)| {
        let kills = after.oom_kills.map(|n| n.saturating_sub(before.oom_kills.unwrap_or(0)));
        json!({"v": version, "peak": after.peak, "peak_before": before.peak, "limit": after.limit.as_ref().map(|l| l.0), "oom_kills": kills})
    });
    let slurm = job::slurm_memory(&job::real_environment).map(|(name, bytes)| json!({"from": name, "limit": bytes}));
    json!({
        "type": "outside", "pid": pid, "t": now, "wall_ns": wall_ns(), "elapsed_ns": now.saturating_sub(began_ns),
        "hwm": seen.hwm, "status": status, "rusage": rusage(), "cgroup": cgroup, "slurm": slurm, "children_hwm": seen.below.hwm(),
        "children": seen.below.told(), "waited_cpu_ns": seen.waited_cpu_ns,
    })
}

/// Of the target and of what it waited for. `maxrss` is an upper bound of the target's own: see `watch`.
fn rusage() -> Option<Value> {
    let u = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
    Some(json!({
        "maxrss": (u.max_rss() as u64) * 1024, "utime_ns": u.user_time().num_microseconds() * 1000, "stime_ns": u.system_time().num_microseconds() * 1000,
        "minflt": u.minor_page_faults(), "majflt": u.major_page_faults(), "inblock": u.block_reads(), "oublock": u.block_writes(),
        "nvcsw": u.voluntary_context_switches(), "nivcsw": u.involuntary_context_switches(),
    }))
}

/// The header of a trace's first line, if it has one.
pub fn header(trace: &Path) -> Option<Value> {
    first_line(trace, libc::O_NOFOLLOW)
}

/// The same of a link in /proc/PID/fd.
pub fn header_of_link(link: &Path) -> Option<Value> {
    first_line(link, 0)
}

fn first_line(trace: &Path, flags: i32) -> Option<Value> {
    let file = OpenOptions::new().read(true).custom_flags(flags | libc::O_NONBLOCK).open(trace).ok()?;
    file.metadata().ok().filter(|m| m.is_file())?;
    let source: Box<dyn Read> =
        if read::is_compressed(trace, &file).ok()? { Box::new(zstd::stream::read::Decoder::new(file).ok()?) } else { Box::new(file) };
    let mut first = Vec::new();
    BufReader::new(source.take(LONGEST_HEADER)).read_until(b'\n', &mut first).ok()?;
    serde_json::from_slice(&first).ok().filter(|v: &Value| v["type"] == "header")
}

/// What a trace says at its end of its last program.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct LastWords {
    /// Heap calls that the trace has no events of, and all that there were.
    pub missing: Option<(u64, u64)>,
    /// Its high-water mark, and whether no program of this process before it had more.
    pub hwm: Option<(u64, bool)>,
}

/// The last words of a trace; none of one that ended without them, or behind which other processes have written.
pub fn last_words(trace: &Path) -> LastWords {
    last_bytes(trace).map_or(LastWords::default(), |(last, is_whole)| words_of(&last, is_whole))
}

/// The end of a file, and whether it is all of it.
fn last_bytes(trace: &Path) -> Option<(Vec<u8>, bool)> {
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(trace).ok()?;
    let len = file.metadata().ok().filter(|m| m.is_file())?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(LAST_WORDS))).ok()?;
    let mut last = Vec::new();
    file.take(LAST_WORDS).read_to_end(&mut last).ok()?;
    Some((last, len <= LAST_WORDS))
}

fn words_of(last: &[u8], is_whole: bool) -> LastWords {
    // In a compressed trace the last lines are in frames that are not: what is before them in the same line is none of theirs, whatever it holds.
    let lines = last.split(|b| *b == b'\n').filter_map(|line| {
        let mut begins = memchr::memmem::rfind_iter(line, TYPE);
        begins.find_map(|at| serde_json::from_slice::<Value>(&line[at..]).ok())
    });
    let (mut missing, mut at_end, mut highest, mut images, mut ended) = (None, None, None, 0, 0);
    for line in lines {
        match line["type"].as_str() {
            Some("process") => return LastWords::default(),
            Some("header") => {
                images += 1;
                (missing, at_end) = (None, None);
            }
            Some("snap") if line["why"] == "exit" || line["why"] == "exec" => {
                let hwm = line["hwm"].as_u64();
                ended += hwm.is_some() as u64;
                highest = highest.max(hwm);
                at_end = if line["why"] == "exit" { hwm.map(|hwm| (hwm, line["self"]["maxrss"].as_u64())) } else { None };
            }
            Some("end") => missing = line["lost"].as_u64().zip(line["counted"].as_u64()),
            _ => {}
        }
    }
    // The kernel's figure of the process covers all its programs, and ours before the first of them.
    let hwm = at_end.zip(highest).map(|((own, of_process), highest)| {
        let is_all = of_process.is_some_and(|all| all <= own) || is_whole && images > 0 && images == ended;
        (highest, is_all)
    });
    LastWords { missing, hwm }
}

/// How a line begins.
const TYPE: &[u8] = br#"{"type":""#;
/// The last lines of a program, and what may stand after them.
const LAST_WORDS: u64 = 64 << 10;

/// Whether this is the trace of the process `pid` that started at `start_ticks` (when known).
pub fn is_of(header: &Value, pid: i32, start_ticks: Option<u64>) -> bool {
    header["pid"] == pid && (start_ticks.is_none() || header["start_ticks"].as_u64() == start_ticks)
}

/// Appends one line.
pub fn append(trace: &Path, line: &Value) -> io::Result<()> {
    recover::append(trace, format!("{line}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::below::Below;
    use super::*;

    fn seen() -> Seen {
        Seen { ended: Ended::Signaled { signal: 9, core: false }, hwm: Some(5), below: Below::default(), waited_cpu_ns: Some(20) }
    }

    #[test]
    fn the_line_has_the_keys_of_the_format() {
        let (before, after) =
            (Reading { oom_kills: Some(2), ..Reading::default() }, Reading { oom_kills: Some(3), peak: Some(9), ..Reading::default() });
        let v = line(7, 0, &seen(), Some((2, &before, &after)));
        assert_eq!((&v["type"], &v["pid"], &v["hwm"], &v["status"]["signal"]), (&json!("outside"), &json!(7), &json!(5), &json!(9)));
        assert_eq!((&v["cgroup"]["oom_kills"], &v["cgroup"]["peak"], &v["cgroup"]["limit"]), (&json!(1), &json!(9), &Value::Null));
        assert!(v["rusage"]["maxrss"].is_u64());
    }

    #[test]
    fn the_last_word_says_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("t.jsonl");
        let write = |text: &str| std::fs::write(&trace, text).unwrap();
        write(
            "{\"type\":\"header\"}\n{\"type\":\"end\",\"counted\":70,\"lost\":3}\n{\"type\":\"end\",\"counted\":90,\"lost\":5}\n{\"type\":\"outside\"}\n",
        );
        assert_eq!(last_words(&trace).missing, Some((5, 90)));
        write(&format!("{{\"type\":\"end\",\"counted\":70,\"lost\":3}}\n{}\n{{\"type\":\"end", "x".repeat(70_000)));
        assert_eq!(last_words(&trace).missing, None);
    }

    #[test]
    fn a_torn_last_line_is_closed_before_ours() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("t.jsonl");
        std::fs::write(&trace, "{\"type\":\"header\",\"pid\":7}\n{\"type\":\"ev\",\"g").unwrap();
        append(&trace, &json!({"type": "outside"})).unwrap();
        let text = std::fs::read_to_string(&trace).unwrap();
        assert!(text.ends_with("\"g\n{\"type\":\"outside\"}\n"), "{text}");
        assert_eq!(header(&trace).unwrap()["pid"], 7);
    }

    #[test]
    fn a_compressed_trace_gets_a_frame_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("t.jsonl.zst");
        std::fs::write(&trace, zstd::bulk::compress(b"{\"type\":\"header\",\"pid\":7}\n", 3).unwrap()).unwrap();
        append(&trace, &json!({"type": "outside"})).unwrap();
        let all = zstd::stream::decode_all(std::fs::File::open(&trace).unwrap()).unwrap();
        assert_eq!(String::from_utf8(all).unwrap(), "{\"type\":\"header\",\"pid\":7}\n{\"type\":\"outside\"}\n");
        assert!(is_of(&header(&trace).unwrap(), 7, None));
        // One in which nothing was written yet is compressed by its name.
        std::fs::write(&trace, "").unwrap();
        append(&trace, &json!({"type": "outside"})).unwrap();
        assert_eq!(zstd::stream::decode_all(std::fs::File::open(&trace).unwrap()).unwrap(), b"{\"type\":\"outside\"}\n");
    }

    #[test]
    fn a_link_in_the_traces_place_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("t.jsonl"));
        std::fs::write(&real, "{\"type\":\"header\"}\n").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(header(&link).is_none());
        assert!(append(&link, &json!({})).is_err());
    }

    #[test]
    fn the_high_water_mark_of_a_trace_is_exact_where_no_program_before_can_have_had_more() {
        let header = r#"{"type":"header","pid":7}"#;
        let snap =
            |why: &str, hwm: u64, maxrss: u64| format!(r#"{{"type":"snap","why":"{why}","hwm":{hwm},"self":{{"maxrss":{maxrss}}}}}"#);
        let end = r#"{"type":"end","counted":9,"lost":2}"#;
        let of = |lines: &[&str], is_whole| words_of((lines.join("\n") + "\n").as_bytes(), is_whole);
        let (first, last) = (snap("exec", 40, 40), snap("exit", 30, 40));
        // All of the trace is there: the larger one of two programs.
        let both = of(&[header, &first, header, &last, end], true);
        assert_eq!(both, LastWords { missing: Some((2, 9)), hwm: Some((40, true)) });
        // Its beginning is not, and the kernel counted more before, or did not.
        assert_eq!(of(&["torn", &last, end], false).hwm, Some((30, false)));
        assert_eq!(of(&["torn", &snap("exit", 41, 40), end], false).hwm, Some((41, true)));
        // Killed: what the program before had is no word of this one's.
        assert_eq!(of(&[header, &first, header], true), LastWords::default());
        // Of a compressed trace: the head of a frame before its line.
        for within in [&b""[..], br#"{"type":"x"#] {
            let packed = [&[0x28, 0xb5, 0x2f, 0xfd, 0xa0, 1, 0, 0, 0, 9, 0, 0][..], within, last.as_bytes()].concat();
            assert_eq!(words_of(&packed, false).hwm, Some((30, false)));
        }
        // Another process writes into the same file.
        assert_eq!(of(&[header, &last, end, r#"{"type":"process","pid":8}"#, end], true), LastWords::default());
    }
}
