//! What is in several files counts once; and what a curve shows has the peaks that the trace knows.
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

const MIB: u64 = 1 << 20;

fn header(pid: u32) -> Value {
    json!({
        "type": "header", "v": 1, "run": "00aa", "pid": pid, "ppid": 1, "start_ticks": 5, "pid_ns": 1, "exec": 0, "mode": "fast", "tick_ns": 1,
        "mono_ns": 1_000_000_000u64, "wall_ns": 1_764_289_999_000_000_000u64, "host": "elsewhere", "exe": "/bin/x", "argv": ["x"], "cwd": "/",
        "big": 65536, "sample": 524_288, "page": 4096, "allocator": "glibc", "slack": 24, "fns": ["malloc", "free"], "stacks": "off",
    })
}

/// A look at resident memory, `at` ms after the start.
fn rss(at: u64, mib: u64, hwm: u64) -> Value {
    json!({"type": "rss", "t": (1000 + at) * 1_000_000, "rss": mib * MIB, "hwm": hwm * MIB, "anon": mib * MIB, "stk": 0})
}

fn write(path: &Path, lines: &[Value]) {
    let text: String = lines.iter().map(|l| format!("{l}\n")).collect();
    std::fs::write(path, text).unwrap();
}

fn analyze(args: &[&Path]) -> (Value, String) {
    let ask = |json: bool| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("memshim"));
        command.arg("analyze").args(args).args(json.then_some("--json")).env("LC_ALL", "C.UTF-8");
        let out = command.output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    (serde_json::from_str(&ask(true)).unwrap(), ask(false))
}

fn whole(pid: u32) -> Vec<Value> {
    let end = json!({"type": "end", "t": 3_000_000_000u64, "how": "exit", "code": 0, "counted": 0, "recorded": 0, "lost": 0, "failed": 0});
    vec![header(pid), rss(100, 40, 40), rss(200, 30, 40), end]
}

#[test]
fn a_copy_of_a_trace_counts_once_and_both_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let [t, u, other] = ["t.jsonl", "u.jsonl", "z.jsonl"].map(|name| dir.path().join(name));
    write(&t, &whole(7));
    let (alone, _) = analyze(&[&t]);
    std::fs::copy(&t, &u).unwrap();
    for args in [&[&*t, &*u][..], &[&*u, &*t], &[dir.path()]] {
        let (both, text) = analyze(args);
        assert_eq!((both["runs"].as_array().unwrap().len(), &both["job"]["processes"]), (1, &1.into()), "{args:?}");
        for key in ["peak_bytes", "request_mem_bytes", "trace_bytes"] {
            assert_eq!(both["job"][key], alone["job"][key], "{key} of {args:?}");
        }
        let said = both["problems"][0].to_string();
        assert!(said.contains("t.jsonl") && said.contains("u.jsonl") && said.contains("counted once"), "{said}");
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains("u.jsonl (1): the same as in ") && flat.contains("counted once"), "{text}");
    }
    // A copy that was made while it ran knows less.
    write(&t, &whole(7)[..2]);
    let (both, _) = analyze(&[dir.path()]);
    assert!(both["runs"][0]["file"].as_str().unwrap().ends_with("u.jsonl"), "{}", both["runs"][0]["file"]);
    assert_eq!(both["runs"][0]["end"]["code"], 0);
    // Another process of the run is another one.
    write(&other, &whole(8));
    let (three, _) = analyze(&[dir.path()]);
    assert_eq!((three["runs"].as_array().unwrap().len(), &three["job"]["peak_bytes"]), (2, &json!(80 * MIB)));
}

#[test]
fn the_curve_and_its_phases_have_the_peaks_that_snapshots_and_marks_of_the_kernel_know() {
    let calls = |at: u64, live: u64, hi: u64| {
        json!({"type": "calls", "t": (1000 + at) * 1_000_000, "fns": [[0, at / 1000 + 1, 100 * MIB]], "live": live * MIB, "blocks": 1, "failed": 0, "lost": 0,
               "lanes": [[0, at / 1000 + 1, 100 * MIB, at / 1000, live * MIB, hi * MIB]], "hi_blocks": [2]})
    };
    let mut lines = vec![header(7)];
    for at in (0..4000).step_by(100) {
        // 48 MiB for 300 ms, of which a snapshot tells; then 90 MiB between two looks, of which the kernel does.
        let high = (1200..1500).contains(&at);
        let hwm = if at < 1200 {
            20
        } else if at < 2500 {
            68
        } else {
            110
        };
        lines.push(rss(at, if high { 68 } else { 20 }, hwm));
        if at == 1200 {
            lines.push(json!({"type": "snap", "t": 2_200_000_000u64, "why": "peak", "rss": 68 * MIB, "hwm": 68 * MIB, "live": 53 * MIB, "blocks": 2}));
        }
        if at % 1000 == 900 {
            // In the fourth second 200 MiB that were never touched.
            lines.push(calls(
                at,
                5,
                if at == 1900 {
                    53
                } else if at == 3900 {
                    205
                } else {
                    5
                },
            ));
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    write(&path, &lines);
    let (report, _) = analyze(&[&path]);
    let run = &report["runs"][0];
    let most = |from: f64, to: f64, key: &str| {
        let samples = run["samples"].as_array().unwrap().iter().filter(|s| (from..to).contains(&s["t_s"].as_f64().unwrap()));
        samples.map(|s| s[key].as_u64().unwrap() / MIB).max().unwrap()
    };
    assert_eq!((most(1.15, 1.55, "heap"), most(0.0, 1.15, "heap"), most(2.0, 2.95, "heap")), (53, 5, 5));
    assert_eq!((most(2.45, 2.55, "rss"), most(2.55, 4.0, "rss"), most(3.0, 4.0, "heap")), (110, 20, 205));
    let phases = run["phases"].as_array().unwrap();
    let highest = |key: &str| phases.iter().filter(|p| p["source"] == "auto").map(|p| p[key].as_u64().unwrap() / MIB).max();
    assert_eq!((highest("heap_peak_bytes"), highest("rss_peak_bytes")), (Some(205), Some(110)), "{phases:?}");
    assert_eq!(run["short_peaks"], json!([]));
}
