//! Promises about `memshim watch`: a process is seen from outside as it is, and what is not to be seen is said.
mod support;

use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use support::{Need, fresh_dir, lossy, memshim, python, root};

fn watch(dir: &Path, pid: u32, flags: &[&str]) -> Child {
    let mut c = Command::new(memshim());
    c.current_dir(dir).arg("watch").arg(pid.to_string()).args(flags).stdout(Stdio::piped()).stderr(Stdio::piped());
    c.spawn().unwrap()
}

fn report(trace: &Path) -> Value {
    serde_json::from_str(&support::analyze(trace).unwrap()).unwrap()
}

fn end(child: Child) -> Output {
    child.wait_with_output().unwrap()
}

#[test]
fn a_process_and_what_it_starts_are_seen_as_the_kernel_sees_them() {
    let Some(python) = python() else { return };
    let dir = fresh_dir("watch");
    let program = Command::new(python).arg(root().join("tests/programs/watched.py")).stdout(Stdio::piped()).spawn().unwrap();
    let pid = program.id();
    let watching = watch(&dir, pid, &["-o", "w.jsonl.zst", "--interval", "10ms"]);
    let hwm: u64 = lossy(&end(program).stdout).trim().parse().unwrap();
    let said = end(watching);
    assert!(said.status.success() && lossy(&said.stderr).contains("has ended: peak resident at least "), "{}", lossy(&said.stderr));
    let report = report(&dir.join("w.jsonl.zst"));
    let runs = report["runs"].as_array().unwrap();
    let run = &runs[0];
    assert_eq!((&run["pid"], &run["mode"], run["heap"]["seen"].as_bool()), (&pid.into(), &"watch".into(), Some(false)));
    // The kernel's own figure moves by some pages with the processor that asks for it.
    assert!(run["rss"]["hwm_bytes"].as_u64().unwrap().abs_diff(hwm) < 1 << 20, "{} {hwm}", run["rss"]["hwm_bytes"]);
    let peak = run["rss"]["peak_bytes"].as_u64().unwrap();
    assert!(peak.abs_diff(hwm) < 1 << 20 && peak > 60 << 20, "{peak} {hwm}");
    assert_eq!((&run["end"]["kind"], &run["end"]["code"], &run["end"]["unseen"]), (&"exited".into(), &Value::Null, &true.into()));
    assert!(run["command"][1].as_str().unwrap().ends_with("watched.py"));
    let peaks: Vec<&Value> = run["snapshots"].as_array().unwrap().iter().filter(|s| s["why"] == "peak").collect();
    assert!(peaks.iter().any(|s| s["rollup"]["pss"].as_u64().unwrap() > 60 << 20), "layers at the peak");
    let samples = run["samples"].as_array().unwrap();
    let last = samples.last().unwrap()["rss"].as_u64().unwrap();
    assert!(last + (50 << 20) < peak, "given back: {last} of {peak}");
    assert!(run["cpu_s"].as_f64().unwrap() > 0.0 && run["wall_s"].as_f64().unwrap() > 1.2);
    assert_eq!((run["children"]["count"].as_u64(), runs.len()), (Some(1), 2));
    assert_eq!(runs[1]["ppid"], pid);
    let child = runs[1]["rss"]["peak_bytes"].as_u64().unwrap();
    assert!(child > 30 << 20 && run["children"]["rss_peak_bytes"].as_u64() >= Some(child), "{child}");
    let screen =
        Command::new(memshim()).args(["analyze", "--no-color"]).arg(dir.join("w.jsonl.zst")).env("LC_ALL", "C.UTF-8").output().unwrap();
    let screen = lossy(&screen.stdout);
    for words in ["watched from outside", "HEAP      not seen", "how is not seen from outside", "RESIDENT  peak"] {
        assert!(screen.contains(words), "{words}: {screen}");
    }
    assert!(!screen.contains("EVENTS"), "{screen}");
    // What is not seen from outside is not 0.
    for run in runs {
        for at in [
            "/heap/peak_bytes",
            "/heap/live_bytes",
            "/heap/allocs",
            "/heap/temporary_allocs",
            "/heap/leaked_bytes",
            "/heap/usable/peak_bytes",
            "/maps/anon/peak_bytes",
            "/maps/peak_bytes",
            "/events/counted",
            "/sites_total/live_at_peak_bytes",
            "/threads_total",
            "/rss/at_peak/heap",
            "/rss/at_peak/maps_anon",
            "/rss/at_peak/unaccounted",
            "/samples/0/heap",
            "/samples/0/maps",
        ] {
            assert_eq!(run.pointer(at), Some(&Value::Null), "{at}");
        }
        assert!(run["rss"]["at_peak"]["anon"].as_u64() > Some(0) && run["samples"][0]["rss"].as_u64() > Some(0));
        for phase in run["phases"].as_array().unwrap() {
            assert!(["heap_peak_bytes", "heap_persistent_bytes", "map_peak_bytes"].iter().all(|key| phase[*key].is_null()), "{phase}");
        }
    }
    assert!(!screen.contains(" 0 B") && screen.contains("private") && !screen.contains("unaccounted"), "{screen}");
    let line = screen.lines().find(|l| l.contains(&format!("{pid} "))).unwrap();
    assert!(line.contains(" – "), "no heap in the list of processes: {line}");
}

#[test]
fn a_watch_that_ends_first_leaves_the_process_alone() {
    let dir = fresh_dir("watch-left");
    let mut program = Command::new("sleep").arg("30").spawn().unwrap();
    let said = end(watch(&dir, program.id(), &["--for", "300ms"]));
    assert!(lossy(&said.stderr).contains("goes on"), "{}", lossy(&said.stderr));
    let watching = watch(&dir, program.id(), &["-q"]);
    std::thread::sleep(std::time::Duration::from_millis(300));
    support::signal(watching.id() as i32, 2);
    let said = end(watching);
    assert!(said.status.success() && said.stderr.is_empty());
    assert!(program.try_wait().unwrap().is_none());
    program.kill().unwrap();
    program.wait().unwrap();
    for name in [format!("watch.{}.jsonl", program.id()), format!("watch.{}.2.jsonl", program.id())] {
        assert_eq!(report(&dir.join(name))["runs"][0]["end"]["kind"], "running");
    }
}

#[test]
fn another_program_in_the_same_process_is_another_image() {
    let dir = fresh_dir("watch-exec");
    let mut program = Command::new("sh").args(["-c", "read go; exec sleep 0.4"]).stdin(Stdio::piped()).spawn().unwrap();
    let watching = watch(&dir, program.id(), &["-o", "w.jsonl", "--interval", "5ms"]);
    std::thread::sleep(std::time::Duration::from_millis(200));
    drop(program.stdin.take());
    program.wait().unwrap();
    assert!(end(watching).status.success());
    let report = report(&dir.join("w.jsonl"));
    let runs = report["runs"].as_array().unwrap();
    let of =
        |i: usize| (runs[i]["exec"].as_u64().unwrap(), runs[i]["end"]["kind"].as_str().unwrap(), runs[i]["command"][0].as_str().unwrap());
    assert_eq!((of(0), of(1)), ((0, "exec", "sh"), (1, "exited", "sleep")));
}

#[test]
fn what_is_wrong_is_said() {
    let dir = fresh_dir("watch-wrong");
    let fails = |pid: u32, flags: &[&str], words: &str| {
        let o = end(watch(&dir, pid, flags));
        assert!(o.status.code() == Some(3) && lossy(&o.stderr).contains(words), "{:?} {}", o.status, lossy(&o.stderr));
    };
    fails(2147483646, &[], "none of this number");
    fails(2, &[], "a thread of the kernel");
    std::fs::write(dir.join("w.jsonl"), "mine").unwrap();
    fails(std::process::id(), &["-o", "w.jsonl"], "-o names another file");
    assert_eq!(std::fs::read(dir.join("w.jsonl")).unwrap(), b"mine");
}

#[test]
fn a_trace_that_stands_still_on_a_full_disk_says_so_at_once_and_in_the_report() {
    let test = "a_trace_that_stands_still_on_a_full_disk_says_so_at_once_and_in_the_report";
    if support::lacks(test, &[Need::Root, Need::Command("unshare")]) {
        return;
    }
    for trace in ["w.jsonl", "w.jsonl.zst"] {
        let dir = fresh_dir(test);
        // Some 250 bytes a look (40 compressed), 1,000 looks a second.
        let size = if trace.ends_with("zst") { "8k" } else { "40k" };
        let script = format!(
            r#"mount -t tmpfs -o size={size} none "$DIR" || exit 77; sleep 9 & pid=$!
            "$MEMSHIM" watch $pid -o "$DIR/{trace}" --interval 1ms --for 4s 2> "$SAID"; echo "exit $?"; kill $pid
            "$MEMSHIM" analyze --json "$DIR/{trace}""#
        );
        let said = dir.with_extension("said");
        let mut command = Command::new("unshare");
        command.args(["-m", "/bin/sh", "-c", &script]).env("DIR", &dir).env("SAID", &said).env("MEMSHIM", memshim());
        let out = command.output().unwrap();
        let text = lossy(&out.stdout);
        let (exit, json) = text.split_once('\n').unwrap();
        let said = std::fs::read_to_string(&said).unwrap();
        assert_eq!(exit, "exit 3", "{said}");
        let lines: Vec<&str> = said.lines().collect();
        let tells = |words: &[&str]| lines.iter().filter(|l| words.iter().all(|w| l.contains(w))).count();
        assert_eq!(tells(&["cannot be written: No space left on device", "make room in"]), 1, "{said}");
        assert_eq!(tells(&["looks are not in the trace", "could not be written from", "No space left on device"]), 1, "{said}");
        let report: Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {json}"));
        let run = &report["runs"][0];
        let missing = run["missing"].as_array().unwrap();
        assert_eq!(missing.len(), 1, "{missing:?}");
        assert!(missing[0]["what"] == "looks from outside" && missing[0]["count"].as_u64() > Some(50), "{missing:?}");
        assert!(missing[0]["why"].as_str().unwrap().contains("No space left on device"), "{missing:?}");
        // The end is known all the same: the watch ended before the process.
        assert!(run["wall_s"].as_f64() > Some(3.9), "{}", run["wall_s"]);
    }
}

/// The kernel's files hold a program's name as it is, whatever its bytes.
#[test]
fn a_program_whose_name_is_no_text_is_watched() {
    use std::os::unix::ffi::OsStrExt;
    let dir = fresh_dir("watch-bytes");
    let named = dir.join(std::ffi::OsStr::from_bytes(b"sl\xe9ep) ("));
    std::fs::copy("/bin/sleep", &named).unwrap();
    let mut program = Command::new(&named).arg("0.7").spawn().unwrap();
    // Until it has its own image.
    while std::fs::read_link(format!("/proc/{}/exe", program.id())).is_ok_and(|exe| exe != named) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let watching = watch(&dir, program.id(), &["-o", "w.jsonl", "--interval", "10ms"]);
    program.wait().unwrap();
    let said = end(watching);
    assert!(said.status.success() && lossy(&said.stderr).contains("has ended: peak resident at least "), "{}", lossy(&said.stderr));
    let run = &report(&dir.join("w.jsonl"))["runs"][0];
    assert!(run["rss"]["hwm_bytes"].as_u64() > Some(100_000), "{run}");
    assert!(run["command"][0].as_str().is_some_and(|name| name.ends_with("sl\u{fffd}ep) (")), "{run}");
}

/// Without /proc nothing of a process can be seen, and memshim does not know where it lies itself: that is said, and not that there is no such process.
#[test]
fn that_proc_is_not_there_is_said() {
    let test = "that_proc_is_not_there_is_said";
    if support::lacks(test, &[Need::Root, Need::Command("unshare")]) {
        return;
    }
    let dir = fresh_dir(test);
    let script = r#"umount -l /proc || exit 77; for verb in "watch $$ -o w.jsonl" "mark $$ x" "run -- true" doctor; do "$MEMSHIM" $verb 2>&1; done; exit 0"#;
    let mut command = Command::new("unshare");
    command.args(["-m", "/bin/sh", "-c", script]).env("MEMSHIM", memshim()).env_remove("MEMSHIM_SHIM").current_dir(&dir);
    let out = command.output().unwrap();
    let said = lossy(&out.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(out.status.success(), "{said} {}", lossy(&out.stderr));
    let times = |words: &str| said.matches(words).count();
    assert_eq!(times("nothing can be seen of it: /proc is not mounted here"), 2, "{said}");
    assert_eq!(times("no libmemshim.so found; /proc is not mounted, which says where memshim itself lies"), 2, "{said}");
    assert_eq!(times("none of this number"), 0, "{said}");
}
