//! Promises about storage trouble: the target does not notice.
mod support;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use support::{Mode, Need, Program};

promises! {
    a_full_disk_is_survived: "confined.c" ["storage"].trace_at("/dev/full").trouble();
    a_missing_folder_is_survived: "confined.c" ["storage"].trace_at("/no/such/folder/trace.jsonl").trouble();
    a_file_size_limit_is_survived: "confined.c" ["file-size"].trouble();
    a_removed_trace_folder_is_survived: "confined.c" ["folder-removed", "{traces}"].trouble();
    a_compressed_trace_holds_the_same: "heap_edges.c" ["chain"].trace_named("trace.jsonl.zst");
}

#[test]
fn a_capped_trace_says_what_it_left_out() {
    let program = Program::new("a_capped_trace_says_what_it_left_out", "heap_threads.c").arg("exchange").env("MEMSHIM_MAX", "256KiB");
    let Some(report) = program.report(Mode::Full) else {
        return;
    };
    let events = &report["runs"][0]["events"];
    let number = |key: &str| events[key].as_u64().unwrap_or_else(|| panic!("no events.{key}"));
    assert!(number("counted") >= 360_000, "all are counted: {events}");
    assert_eq!(number("counted"), number("recorded") + number("lost"), "{events}");
    let trace = support::run_dir("a_capped_trace_says_what_it_left_out").join("full/trace/trace.jsonl");
    let bytes = std::fs::metadata(&trace).expect("a trace").len();
    assert!(bytes < 1 << 20, "the trace is {bytes} bytes long");
    // It says that the cap lowered recording, and when; that the trace then has parts of blocks only goes without saying.
    let missing = report["runs"][0]["missing"].as_array().expect("missing");
    let (lowered, others): (Vec<&Value>, Vec<&Value>) =
        missing.iter().partition(|m| m["why"].as_str().unwrap_or("").contains("MEMSHIM_MAX"));
    assert!(!lowered.is_empty() && lowered.iter().all(|m| m["what"].as_str().unwrap_or("").contains(" s on")), "{missing:?}");
    assert!(others.is_empty() && number("unknown_frees") == 0, "{others:?} {events}");
}

/// Runs `script` in a shell with `$SHIM`, `$LOOP` (malloc and free, `$TIMES` times), `$MEMSHIM` and a folder `$DIR`; gives what it printed.
fn in_shell(test: &str, script: &str, mode: &str, times: u64) -> String {
    let dir = support::fresh_dir(&format!("{test}-{mode}"));
    let program = support::build("loop.c", "loop", &[]);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).env("SHIM", support::shim()).env("LOOP", program).env("MEMSHIM", support::memshim());
    let out = command.env("DIR", &dir).env("MEMSHIM_MODE", mode).env("TIMES", times.to_string()).output().expect("a shell");
    assert!(out.status.success(), "{test}: {}: {}", out.status, support::lossy(&out.stderr));
    support::lossy(&out.stdout)
}

/// Every call is counted, a write that failed is why some are lost, and the end is known.
fn hold_what_could_not_be_written(test: &str, mode: &str, report: &Value, times: u64) {
    let run = &report["runs"][0];
    let number = |key: &str| run["events"][key].as_u64().unwrap_or_else(|| panic!("no events.{key}: {run}"));
    let (counted, recorded, lost) = (number("counted"), number("recorded"), number("lost"));
    assert_eq!((counted, run["heap"]["allocs"].as_u64()), (2 * times, Some(times)), "{test} {mode}: {}", run["events"]);
    assert_eq!(counted, recorded + lost, "{test} {mode}");
    assert_eq!((&run["end"]["kind"], &run["end"]["code"]), (&"exited".into(), &0.into()), "{test} {mode}: {}", run["missing"]);
    if mode == "full" {
        let says = |m: &Value| m["why"].as_str().unwrap_or("").contains("could not be written any more");
        let missing = run["missing"].as_array().expect("missing");
        assert!(lost > counted / 2 && missing.iter().any(says) && missing.iter().all(says), "{test} {mode}: {lost} lost, {missing:?}");
    }
}

#[test]
fn what_a_private_spool_could_not_write_is_lost_and_said() {
    for trace in ["t.jsonl", "t.jsonl.zst"] {
        for mode in ["full", "fast"] {
            // The limit leaves no room for a shared spool; compressed, a trace of so few kinds needs more calls to reach it.
            let times = if trace.ends_with("zst") { 3_000_000 } else { 300_000 };
            let script =
                format!(r#"ulimit -f 40; LD_PRELOAD="$SHIM" MEMSHIM_OUT="$DIR/{trace}" "$LOOP" malloc+free $TIMES 2> "$DIR/said""#);
            let test = format!("what_a_private_spool_could_not_write-{trace}");
            in_shell(&test, &script, mode, times);
            let dir = support::run_dir(&format!("{test}-{mode}"));
            let report = serde_json::from_str(&support::analyze(&dir.join(trace)).expect("a report")).expect("JSON");
            hold_what_could_not_be_written(&test, mode, &report, times);
            let said = std::fs::read_to_string(dir.join("said")).expect("stderr");
            assert_eq!(said.lines().count(), (mode == "full") as usize, "{said}");
        }
    }
}

/// What was over before recording was lowered is as exact as ever; of what was live then nobody claims that it leaked.
#[test]
fn what_was_before_recording_was_lowered_is_exact() {
    let test = "what_was_before_recording_was_lowered_is_exact";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let program = support::build("lowered.c", "lowered", &["-Wno-all"]);
    let cap = "MEMSHIM_MAX=256KiB exec \"$0\" $1";
    // A file that can be no larger: 512 blocks of 512 bytes.
    let limit = "ulimit -f 512; exec \"$0\" $1";
    for (name, script, later) in [("cap", cap, 2_000_000), ("cap-early-peak", cap, 500_000), ("limit", limit, 500_000)] {
        let dir = support::fresh_dir(&format!("{test}-{name}"));
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", &format!("export LD_PRELOAD=\"$SHIM\"; {script}")])
            .arg(&program)
            .arg(later.to_string())
            .env("SHIM", support::shim());
        let out = command.current_dir(&dir).env("MEMSHIM_MODE", "full").output().expect("a shell");
        assert!(out.status.success(), "{name}: {} {}", out.status, support::lossy(&out.stderr));
        let report: Value = serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).expect("a report")).expect("JSON");
        let run = report["runs"].as_array().and_then(|runs| runs.last()).expect("a run");
        let private = "spool private: the limit on the size of files (ulimit -f) is below the 78 MiB of its file";
        assert_eq!(run["notes"].to_string().contains(private), name == "limit", "{name}: {}", run["notes"]);
        assert!(run["full_until_s"].is_f64() && run["mode"] == "fast", "{name}: {} {}", run["mode"], run["full_until_s"]);
        let phase = |name: &str| run["phases"].as_array().expect("phases").iter().find(|p| p["name"] == name);
        let early = phase("early").expect("the early phase");
        let number = |key: &str| early[key].as_i64().unwrap_or_else(|| panic!("{name}: no {key}: {early}"));
        let keys = ["heap_peak_bound_bytes", "heap_persistent_bound_bytes", "heap_persistent_bytes"];
        let got = (number("heap_peak_bytes") - number("heap_begin_bytes"), keys.map(number));
        assert_eq!(got, (1_300_001, [0, 0, 300_000]), "{name}: {early}");
        let heap = &run["heap"];
        let peak = heap["peak_bytes"].as_i64().unwrap_or(0) - number("heap_begin_bytes");
        let bound = heap["peak_bound_bytes"].as_i64().expect("a bound");
        if later < 1_000_000 {
            assert_eq!((peak, bound), (1_300_001, 0), "{name}: {heap}");
        } else {
            assert!((peak - later - 300_000).abs() <= bound, "{name}: {heap}");
        }
        // What is known of the later one are the counts.
        if let Some(late) = phase("late") {
            let bound = late["heap_peak_bound_bytes"].as_i64().expect("a bound");
            let above = late["heap_peak_bytes"].as_i64().expect("a peak") - late["heap_begin_bytes"].as_i64().expect("a begin");
            assert!((above - later).abs() <= 2 * bound, "{name}: {late}");
        }
        let sites = &run["sites_total"];
        // What the rings hold when recording is lowered can fill the rest.
        let totals = run["missing"].to_string().contains("totals only");
        assert_eq!(sites["leaked_bytes"], if totals { 0 } else { 700_000 }, "{name}: {sites}");
        assert!(sites["live_at_peak_bytes"].as_u64().is_some_and(|b| (1_300_001..1_600_000).contains(&b)), "{name}: {sites}");
        let problems = sites["problems"].to_string();
        assert!(problems.contains("recording was lowered at"), "{name}: {problems}");
    }
}

/// With little address space a program is recorded all the same, in as little as it takes, or it is said that it is not.
#[test]
fn what_an_address_space_has_no_room_for_is_said() {
    let test = "what_an_address_space_has_no_room_for_is_said";
    let (mut recorded, mut refused) = (0, 0);
    for kib in [4_000, 8_000, 12_000, 16_000, 20_000, 24_000, 32_000, 40_000, 80_000] {
        for mode in ["full", "fast"] {
            // What the loader itself has no room for ends the program with 127, with memshim or without.
            let script = format!(
                r#"ulimit -v {kib}; "$LOOP" malloc+free $TIMES > /dev/null 2>&1; echo $?
                LD_PRELOAD="$SHIM" MEMSHIM_OUT="$DIR/t.jsonl" "$LOOP" malloc+free $TIMES 2> "$DIR/said" > /dev/null; echo $?"#
            );
            let codes = in_shell(&format!("{test}-{kib}"), &script, mode, 1000);
            let dir = support::run_dir(&format!("{test}-{kib}-{mode}"));
            if codes != "0\n0\n" {
                // The library itself was not loaded.
                assert!(kib <= 12_000 && (codes.starts_with("127") || codes.ends_with("127\n")), "{kib} {codes}");
                continue;
            }
            let said = std::fs::read_to_string(dir.join("said")).expect("stderr");
            if said.contains("cannot be preloaded") {
                // Said by the loader.
                continue;
            }
            let Ok(text) = support::analyze(&dir.join("t.jsonl")) else {
                // Not even what a trace begins with.
                assert!(said.contains("not recorded") && said.contains("ulimit -v"), "{kib} {mode}: {said}");
                refused += 1;
                continue;
            };
            let report: Value = serde_json::from_str(&text).expect("JSON");
            let run = &report["runs"][0];
            if run["end"]["kind"] == "exited" {
                assert_eq!((&run["heap"]["allocs"], said.as_str()), (&1000.into(), ""), "{kib} {mode}: {run}");
                recorded += 1;
            } else {
                let missing = run["missing"].to_string();
                assert!(said.contains("not recorded") && missing.contains("ulimit -v"), "{kib} {mode}: {said} {missing}");
                refused += 1;
            }
        }
    }
    assert!(recorded >= 8 && refused >= 2, "{recorded} {refused}");
}

#[test]
fn an_exit_with_a_full_disk_is_an_exit() {
    let test = "an_exit_with_a_full_disk_is_an_exit";
    if support::lacks(test, &[Need::Root, Need::Command("unshare")]) {
        return;
    }
    let disk = r#"mount -t tmpfs -o size=500k none "$DIR" || exit 77;"#;
    for (how, run) in [
        ("alone", r#"LD_PRELOAD="$SHIM" MEMSHIM_OUT="$DIR/t.jsonl" "$LOOP" malloc+free $TIMES 2> /dev/null"#),
        ("run", r#""$MEMSHIM" run -q -o "$DIR/t.jsonl" -- "$LOOP" malloc+free $TIMES 2> /dev/null"#),
    ] {
        for mode in ["full", "fast"] {
            let script = format!(r#"unshare -m /bin/sh -c '{disk} {run}; "$MEMSHIM" analyze --json "$DIR/t.jsonl"'"#);
            let text = in_shell(&format!("{test}-{how}"), &script, mode, 600_000);
            let report = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
            hold_what_could_not_be_written(&format!("{test}-{how}"), mode, &report, 600_000);
        }
    }
}

/// A number of other calls must not pass for the program's: what is not seen is said, and has no bound.
#[test]
fn a_heap_that_is_not_seen_is_said_to_be_so() {
    let test = "a_heap_that_is_not_seen_is_said_to_be_so";
    let report = |trace: &Path| -> Value { serde_json::from_str(&support::analyze(trace).expect("a report")).expect("JSON") };
    let own = support::build("heap_own.c", "heap_own", &[]);
    let mut commands = vec![("own", Command::new(own))];
    if !support::lacks(test, &[Need::Command("valgrind")]) {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["-q", "--tool=memcheck"]).arg(support::build("loop.c", "loop", &[])).args(["malloc+free", "1000"]);
        commands.push(("valgrind", valgrind));
    }
    for (name, mut command) in commands {
        let dir = support::fresh_dir(&format!("{test}-{name}"));
        let trace = dir.join("trace.jsonl");
        let out =
            command.env("LD_PRELOAD", support::shim()).env("MEMSHIM_OUT", &trace).env("MEMSHIM_MODE", "full").output().expect("start");
        assert!(out.status.success(), "{name}: {}", support::lossy(&out.stderr));
        // valgrind starts its tool by exec: the last image is the program.
        let report = report(&trace);
        let heap = &report["runs"].as_array().and_then(|runs| runs.last()).expect("a run")["heap"];
        assert_eq!((&heap["seen"], &heap["peak_bound_bytes"]), (&false.into(), &Value::Null), "{name}: {heap}");
        let text = Command::new(support::memshim()).arg("analyze").arg(&trace).output().expect("analyze");
        assert!(support::lossy(&text.stdout).contains("not seen: the allocator is "), "{}", support::lossy(&text.stdout));
    }
}

/// Bytes of all traces of a family, and how many images wrote them.
fn family(trace: &Path) -> (u64, u64) {
    let beside = std::fs::read_dir(trace.with_extension("d")).into_iter().flatten().flatten().map(|e| e.path());
    let traces = beside.filter(|p| p.extension().is_some_and(|e| e == "jsonl")).chain([trace.to_path_buf()]);
    let texts: Vec<String> = traces.map(|p| std::fs::read_to_string(p).expect("a trace")).collect();
    let images = texts.iter().flat_map(|t| t.lines()).filter(|l| l.starts_with("{\"type\":\"header\"")).count();
    (texts.iter().map(|t| t.len() as u64).sum(), images as u64)
}

/// What an image's own header and last lines may take, beyond the cap where that is reached.
const AN_IMAGE: u64 = 8 << 10;

#[test]
fn a_cap_holds_for_all_processes_of_a_run_together() {
    for (mode, children, cap) in [("full", 0, 256 << 10), ("full", 8, 1 << 20), ("fast", 8, 256 << 10), ("full", 40, 512 << 10)] {
        let dir = support::fresh_dir("storage_family");
        let trace = dir.join("t.jsonl");
        let program = support::build("brood.c", "brood", &[]);
        let mut command = Command::new(program);
        command.args([children.to_string(), "30000".into()]).env("MEMSHIM_MODE", mode).env("MEMSHIM_MAX", cap.to_string());
        command.env("LD_PRELOAD", support::shim()).env("MEMSHIM_OUT", &trace).env("MEMSHIM_SAMPLE", "4KiB");
        let ran = support::Session::start(&mut command, &dir).finish(std::time::Duration::from_secs(60));
        assert_eq!(ran.end(), "exit 0", "{}", support::lossy(&ran.stderr));
        let (bytes, images) = family(&trace);
        assert!(images > children && bytes > cap / 2, "{mode}: {bytes} bytes by {images} images");
        assert!(bytes <= cap + (images - 1) * AN_IMAGE, "{mode}: {bytes} bytes by {images} images, more than {cap}");
        let report: Value = serde_json::from_str(&support::analyze(&trace).unwrap()).unwrap();
        for run in report["runs"].as_array().unwrap() {
            let number = |key: &str| run["events"][key].as_u64().unwrap();
            assert_eq!(number("counted"), number("recorded") + number("lost"), "{mode}: {}", run["events"]);
            // The images that exec leave at once; all others allocate.
            assert!(run["end"]["kind"] == "exec" || run["heap"]["allocs"].as_u64() >= Some(30_000), "{mode}: {}", run["heap"]);
        }
    }
}

/// Who begins when the cap has been reached has none of its own, and says what it leaves out.
#[test]
fn a_child_that_begins_when_the_cap_is_reached_is_within_it() {
    let test = "a_child_that_begins_when_the_cap_is_reached_is_within_it";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    const CAP: u64 = 256 << 10;
    const TIMES: u64 = 400_000;
    let dir = support::fresh_dir(test);
    let trace = dir.join("t.jsonl");
    let mut command = Command::new(support::build("after_cap.c", "after_cap", &[]));
    command.arg(TIMES.to_string()).env("MEMSHIM_MODE", "full").env("MEMSHIM_MAX", CAP.to_string());
    command.env("LD_PRELOAD", support::shim()).env("MEMSHIM_OUT", &trace);
    let ran = support::Session::start(&mut command, &dir).finish(std::time::Duration::from_secs(60));
    assert_eq!(ran.end(), "exit 0", "{}", support::lossy(&ran.stderr));
    let (bytes, images) = family(&trace);
    assert!(images == 2 && bytes > CAP / 2 && bytes <= CAP + (images - 1) * AN_IMAGE, "{bytes} bytes by {images} images");
    let report: Value = serde_json::from_str(&support::analyze(&trace).expect("a report")).expect("JSON");
    for run in report["runs"].as_array().expect("runs") {
        let number = |part: &str, key: &str| run[part][key].as_u64().unwrap_or_else(|| panic!("no {part}.{key}: {run}"));
        assert!(number("heap", "allocs") >= TIMES, "{}", run["heap"]);
        assert_eq!(number("events", "counted"), number("events", "recorded") + number("events", "lost"), "{}", run["events"]);
        let says = |m: &Value| m["what"].to_string().contains("totals only") && m["why"].to_string().contains("MEMSHIM_MAX");
        assert!(run["missing"].as_array().expect("missing").iter().any(says), "{}", run["missing"]);
    }
}

/// Whatever part of it a tiny disk has no room for: no more is lost than was counted, the disk is why, and what to do is said.
#[test]
fn what_a_tiny_disk_has_no_room_for_adds_up() {
    let test = "what_a_tiny_disk_has_no_room_for_adds_up";
    if support::lacks(test, &[Need::Root, Need::Command("unshare")]) {
        return;
    }
    const TIMES: u64 = 20_000;
    let mut without_ring = 0;
    for mode in ["full", "fast"] {
        for size in [64, 128, 160, 192, 224, 256, 288, 320, 384, 512] {
            let script = format!(
                r#"unshare -m /bin/sh -c 'mount -t tmpfs -o size={size}k none "$DIR" || exit 77
                LD_PRELOAD="$SHIM" MEMSHIM_OUT="$DIR/t.jsonl" MEMSHIM_SAMPLE=1KiB "$LOOP" malloc+realloc+free $TIMES 2> /dev/null
                "$MEMSHIM" analyze "$DIR/t.jsonl"; echo; "$MEMSHIM" analyze --json "$DIR/t.jsonl"'"#
            );
            let text = in_shell(&format!("{test}-{size}"), &script, mode, TIMES);
            let (screen, json) = text.split_once("\n{").expect("a report");
            let report: Value = serde_json::from_str(&format!("{{{json}")).expect("JSON");
            let run = &report["runs"][0];
            let number = |key: &str| run["events"][key].as_u64().unwrap_or_else(|| panic!("{mode} {size}: no events.{key}: {run}"));
            let (counted, lost) = (number("counted"), number("lost"));
            assert_eq!((counted, number("recorded") + lost), (3 * TIMES, 3 * TIMES), "{mode} {size}: {}", run["missing"]);
            if lost == 0 {
                continue;
            }
            let missing = run["missing"].as_array().expect("missing");
            let calls =
                |m: &&Value| ["events", "single calls"].iter().any(|of| m["what"].as_str().is_some_and(|what| what.starts_with(of)));
            let said: u64 = missing.iter().filter(calls).map(|m| m["count"].as_u64().unwrap_or(0)).sum();
            assert_eq!(said, lost, "{mode} {size}: {missing:?}");
            let of_disk = |m: &Value| ["disk", "No space left"].iter().any(|word| m["why"].as_str().unwrap_or("").contains(word));
            assert!(missing.iter().filter(calls).all(of_disk), "{mode} {size}: {missing:?}");
            without_ring += missing.iter().any(|m| m["why"].as_str().unwrap_or("").starts_with("the disk of the trace was full")) as u32;
            let words = screen.split_whitespace().collect::<Vec<_>>().join(" ");
            let advice = ["MEMSHIM_OUT to a path on another disk", "TRACE where there is room for it", "no space left on the device"];
            assert!(advice.iter().any(|a| words.contains(a)), "{mode} {size}: {screen}");
        }
    }
    assert!(without_ring >= 3, "{without_ring}");
}

/// A compressed trace keeps the images of a process that execs apart as a plain one does.
#[test]
fn a_compressed_trace_numbers_its_images() {
    let test = "a_compressed_trace_numbers_its_images";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let seen = ["t.jsonl", "t.jsonl.zst"].map(|name| {
        let dir = support::fresh_dir(test);
        for _ in 0..2 {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "exec /bin/sh -c 'exec /bin/sh -c \"exec env true\"'"]);
            let ended = command.env("LD_PRELOAD", support::shim()).env("MEMSHIM_OUT", dir.join(name)).output().expect("a shell");
            assert!(ended.status.success());
        }
        // The trace of the first run was put aside.
        let traces =
            std::fs::read_dir(&dir).expect("a folder").flatten().filter(|e| e.file_name().to_string_lossy().contains(".jsonl")).count();
        let report: Value = serde_json::from_str(&support::analyze(&dir.join(name)).expect("a report")).expect("JSON");
        let runs = report["runs"].as_array().expect("runs");
        let of = |r: &Value| (r["exec"].clone(), r["command"].clone(), r["end"]["kind"].clone(), r["events"]["counted"].clone());
        (traces, report["job"]["processes"].clone(), runs.iter().map(of).collect::<Vec<_>>())
    });
    let [plain, compressed] = &seen;
    assert_eq!(plain, compressed);
    assert_eq!((plain.0, plain.2.len()), (2, 5), "{plain:?}");
}

/// Why calls of a forked child are lost on a full disk is said in words of the reader's, whichever part of it had no room.
#[test]
fn a_forked_child_on_a_full_disk_says_what_to_do() {
    let test = "a_forked_child_on_a_full_disk_says_what_to_do";
    if support::lacks(test, &[Need::Root, Need::Command("unshare")]) {
        return;
    }
    let program = support::build("brood.c", "brood", &[]);
    let mut of_threads = 0;
    // What is left for the child is from nothing to enough for all.
    for size in (300..900).step_by(50) {
        let dir = support::fresh_dir(test);
        let script = format!(
            r#"mount -t tmpfs -o size={size}k none "$DIR" || exit 77; LD_PRELOAD="$SHIM" MEMSHIM_OUT="$DIR/t.jsonl" "$BROOD" 1 3000 2> /dev/null
            "$MEMSHIM" analyze --json "$DIR/t.jsonl""#
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "/bin/sh", "-c", &script]).env("DIR", &dir).env("SHIM", support::shim()).env("BROOD", &program);
        let out = command.env("MEMSHIM", support::memshim()).env("MEMSHIM_MODE", "full").output().expect("unshare");
        let report: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", support::lossy(&out.stderr)));
        for run in report["runs"].as_array().expect("runs") {
            let said: Vec<String> = ["missing", "notes"].iter().map(|key| run[*key].to_string()).collect();
            let said = said.concat();
            assert!(!said.split(|c: char| !c.is_alphabetic()).any(|word| word == "lane" || word == "lanes"), "{said}");
            let of_disk = said.contains("there was no room to record the calls of a further thread, on the disk of the trace");
            of_threads += of_disk as u32;
        }
    }
    assert!(of_threads > 0, "no size left room for a header and none for a thread");
}

/// Where the disk has no room for the events, what the counts know is said: no heap is taken for none.
#[test]
fn a_heap_without_room_for_events_is_known_by_its_counts() {
    let test = "a_heap_without_room_for_events_is_known_by_its_counts";
    if support::lacks(test, &[Need::Root, Need::Command("unshare")]) {
        return;
    }
    let program = support::build("peaks.c", "peaks", &[]);
    let mut by_counts = 0;
    for size in [60, 100, 400, 600] {
        let dir = support::fresh_dir(test);
        let script = format!(
            r#"mount -t tmpfs -o size={size}k none "$DIR" || exit 77; "$MEMSHIM" run -o "$DIR/t.jsonl" -- "$PEAKS" 300 2>&1 >/dev/null
            "$MEMSHIM" analyze "$DIR/t.jsonl"; echo; "$MEMSHIM" analyze --json "$DIR/t.jsonl""#
        );
        let mut command = Command::new("unshare");
        command.args(["-m", "/bin/sh", "-c", &script]).env("DIR", &dir).env("PEAKS", &program).env("MEMSHIM_MODE", "full");
        let out = command.env("MEMSHIM", support::memshim()).env("MEMSHIM_STACKS", "off").output().expect("unshare");
        let text = support::lossy(&out.stdout);
        let (screen, json) = text.split_once("\n{").expect("a report");
        let report: Value = serde_json::from_str(&format!("{{{json}")).expect("JSON");
        let (heap, events) = (&report["runs"][0]["heap"], &report["runs"][0]["events"]);
        let number = |of: &Value, key: &str| of[key].as_i64().unwrap_or_else(|| panic!("{size}: no {key}: {of}"));
        let (lost, counted) = (number(events, "lost"), number(events, "counted"));
        if lost * 100 < counted {
            continue;
        }
        by_counts += 1;
        let (true_peak, peak, bound) = (10_000 + 50 * 200_000, number(heap, "peak_bytes"), number(heap, "peak_bound_bytes"));
        assert!((peak - true_peak).abs() <= bound && bound < true_peak / 10, "{size}: {true_peak} is not {peak} ± {bound}");
        assert!(screen.contains("HEAP      peak live"), "{size}: {screen}");
        // Where events were recorded until the disk was full, that was said when it was.
        let said = match report["runs"][0]["mode"].as_str() {
            Some("full") => ["by usable size, from the counts", "heap calls could not be recorded"],
            _ => ["no space left on the device", "could not be written any more"],
        };
        let words = screen.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.iter().all(|part| words.contains(part)), "{size}: {screen}");
    }
    assert!(by_counts >= 2, "{by_counts}");
}

/// Blocks that the table has no room for are none that stay for ever: they are lost, and nothing else is.
#[test]
fn blocks_without_room_in_the_table_are_lost_and_do_not_leak() {
    let test = "blocks_without_room_in_the_table_are_lost_and_do_not_leak";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let program = support::build("many_live.c", "many_live", &[]);
    let mut lacking = 0;
    for kib in [80_000, 100_000, 120_000] {
        let dir = support::fresh_dir(test);
        let script = format!(r#"ulimit -v {kib}; LD_PRELOAD="$SHIM" MEMSHIM_OUT="$DIR/t.jsonl" "$MANY""#);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script]).env("SHIM", support::shim()).env("DIR", &dir).env("MANY", &program);
        let out = command.env("MEMSHIM_MODE", "full").env("MEMSHIM_STACKS", "off").output().expect("a shell");
        let blocks: u64 = support::lossy(&out.stdout).trim().parse().expect("how many it held");
        let report: Value = serde_json::from_str(&support::analyze(&dir.join("t.jsonl")).expect("a report")).expect("JSON");
        let run = &report["runs"][0];
        let number = |part: &str, key: &str| run[part][key].as_u64().unwrap_or_else(|| panic!("{kib}: no {part}.{key}: {run}"));
        let (counted, recorded, lost) = (number("events", "counted"), number("events", "recorded"), number("events", "lost"));
        assert!(counted == recorded + lost && counted >= 3 * blocks, "{kib}: {}", run["events"]);
        let leaked = number("heap", "leaked_allocs");
        assert!(leaked <= 4, "{kib}: {blocks} freed, {leaked} leaked, {lost} lost: {}", run["heap"]);
        let said = run["missing"].as_array().expect("missing").iter().map(|m| m["count"].as_u64().unwrap_or(0)).sum::<u64>();
        assert_eq!(said, lost, "{kib}: {}", run["missing"]);
        lacking += (lost > 0) as u32;
    }
    assert!(lacking > 0, "there was room in all of them");
}

/// What fast mode writes of a program that goes on as it did; most of its time it allocates, as fast as it can.
#[test]
fn a_steady_program_writes_a_mebibyte_a_minute() {
    let test = "a_steady_program_writes_a_mebibyte_a_minute";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    let program = support::build("steady.c", "steady", &["-O1"]);
    let trace = dir.join("trace.jsonl");
    let mut command = Command::new(&program);
    command.arg("9000").env("LD_PRELOAD", support::shim()).env("MEMSHIM_OUT", &trace).stdout(std::process::Stdio::piped());
    let child = command.spawn().expect("a program");
    let size = || std::fs::metadata(&trace).map_or(0, |m| m.len());
    let at = |ms: u64| std::thread::sleep(std::time::Duration::from_millis(ms));
    at(5000);
    let (from, begin) = (size(), std::time::Instant::now());
    at(3000);
    let (to, seconds) = (size(), begin.elapsed().as_secs_f64());
    let out = child.wait_with_output().expect("its output");
    assert!(out.status.success());
    let said: Vec<f64> = support::lossy(&out.stdout).split_whitespace().map(|n| n.parse().expect("a number")).collect();
    // Groups are written when they are full: what was written in a time may be of a longer one.
    assert!((to - from) as f64 / seconds * 60.0 < 1.25 * 1024.0 * 1024.0, "{} bytes in {seconds} s", to - from);
    let report: Value = serde_json::from_str(&support::analyze(&trace).expect("a report")).expect("JSON");
    let run = &report["runs"][0];
    // What samples of several means say of all sizes together is what was counted.
    let estimated = run["heap"]["sizes_estimated"].as_array().expect("sizes");
    let sum = |key: &str| estimated.iter().map(|e| e[key].as_f64().expect("a number")).sum::<f64>();
    let error = estimated.iter().map(|e| e["allocs_stderr"].as_f64().expect("a number").powi(2)).sum::<f64>().sqrt();
    assert!((sum("allocs") - said[0]).abs() < 4.0 * error && error < said[0] / 20.0, "{} ± {error} of {}", sum("allocs"), said[0]);
    assert!(sum("samples") > 20_000.0, "{}", sum("samples"));
}
