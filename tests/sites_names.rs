//! Frames of made traces: functions, lines and what was inlined, from wherever the symbols are.

#[path = "support/made.rs"]
mod made;
mod support;
#[path = "support/writer.rs"]
#[allow(dead_code)]
mod writer;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use made::{analyze_with, run_of};
use memshim::analyze::Options;
use memshim::analyze::report::{Frame, Run};
use memshim::symbols::{Search, Time};
use writer::Writer;

/// The program, and where its labels are.
fn program(name: &str, flags: &[&str]) -> (PathBuf, HashMap<String, u64>) {
    let path = support::build("sites.cc", name, flags);
    let out = Command::new("nm").arg(&path).output().expect("nm");
    let row = |l: &str| {
        let mut words = l.split_whitespace();
        let (at, _, name) = (words.next()?, words.next()?, words.next()?);
        Some((name.to_owned(), u64::from_str_radix(at, 16).ok()?))
    };
    let labels = String::from_utf8_lossy(&out.stdout).lines().filter_map(row).collect();
    (path, labels)
}

fn build_id(path: &Path) -> String {
    let out = Command::new("readelf").args(["-n"]).arg(path).output().expect("readelf");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.lines().find_map(|l| l.trim().strip_prefix("Build ID: ")).map(str::to_owned).expect("a build id")
}

const BIAS: u64 = 0x5555_0000_0000;

/// A trace with one allocation of 1000 bytes in `inlined`, its program loaded at [`BIAS`].
fn one_stack(path: &str, build_id: &str, labels: &HashMap<String, u64>) -> Vec<u8> {
    let mut w = Writer::new(7, "full", r#","stacks":"native""#);
    w.line(&format!(
        r#"{{"type":"modules","t":1,"load":[[1,{BIAS},"{path}","{build_id}",[[{},{}]]]],"unload":[]}}"#,
        BIAS,
        BIAS + 0x10_0000
    ));
    let frame = |label: &str| (BIAS + labels[label]) << 1;
    w.nodes(0, 1, &[(0, frame("in_main")), (1, frame("in_hidden")), (2, frame("in_inlined"))]);
    w.at(0, 2000, false);
    w.site(0, 3, 0);
    let kind = w.kind(0, 1000, 8, 0);
    w.alloc(0, kind, None, None);
    w.flush();
    w.out
}

fn shown(frame: &Frame) -> (Option<&str>, Option<u32>, bool) {
    (frame.function.as_deref(), frame.line, frame.inlined)
}

#[test]
fn frames_have_functions_lines_and_what_was_inlined() {
    let (path, labels) = program("sites", &[]);
    let run = run_of(&one_stack(path.to_str().unwrap(), &build_id(&path), &labels));
    let site = &run.sites[0];
    let frames: Vec<_> = site.frames.iter().map(shown).collect();
    assert_eq!(
        frames,
        [
            (Some("inlined"), Some(13), true),
            (Some("deep::Box::fill(int)"), Some(19), false),
            (Some("hidden"), Some(25), false),
            (Some("main"), Some(31), false)
        ],
        "{:?}",
        run.sites_total.problems
    );
    assert!(site.frames[0].file.as_deref().unwrap().ends_with("tests/programs/sites.cc"));
    assert_eq!((site.live_at_peak_bytes.unwrap().0, site.total_bytes.0, site.leaked_bytes.0, site.allocs), (1000, 1000, 1000, 1));
    assert_eq!((site.kind, site.owner, run.sites_total.sites), ("heap", Some(0), 1));
}

#[test]
fn names_come_from_where_the_symbols_are() {
    let (path, labels) = program("sites", &[]);
    let dir = tempfile::tempdir().unwrap();
    let run = |program: &[&str]| {
        let out = Command::new(program[0]).args(&program[1..]).current_dir(dir.path()).output().unwrap();
        assert!(out.status.success(), "{program:?}: {}", support::lossy(&out.stderr));
    };
    let original = path.to_str().unwrap();
    let id = build_id(&path);
    run(&["objcopy", "--only-keep-debug", original, "sites.debug"]);
    run(&["objcopy", "--strip-all", "--add-gnu-debuglink=sites.debug", original, "linked"]);
    run(&["objcopy", "--strip-all", original, "stripped"]);
    let named = |file: &str, search: &Search| {
        let trace = one_stack(file, &id, &labels);
        let mut report = analyze_with(&trace, &Options { symbols: search.clone(), ..Options::default() });
        let run = report.runs.remove(0);
        let lines: Vec<_> = run.sites[0].frames.iter().filter_map(|f| f.line).collect();
        (lines, run.sites_total.problems.iter().map(|p| p.why.clone()).collect::<Vec<_>>().join("; "))
    };
    let nowhere = Search::default();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    assert_eq!(named(&at("linked"), &nowhere).0, [13, 19, 25, 31], ".gnu_debuglink");
    assert!(named(&at("stripped"), &nowhere).0.is_empty());

    // A folder of debug files by build id, without the program itself.
    let folder = dir.path().join("symbols");
    let of_id = folder.join(".build-id").join(&id[..2]);
    std::fs::create_dir_all(&of_id).unwrap();
    std::fs::copy(dir.path().join("sites.debug"), of_id.join(format!("{}.debug", &id[2..]))).unwrap();
    let search = Search { folders: vec![folder], ..Search::default() };
    assert_eq!(named("/not/here/sites", &search).0, [13, 19, 25, 31], "--symbols with .build-id");
    assert_eq!(named(&at("stripped"), &search).0, [13, 19, 25, 31], "the file is here without debug information");

    // What is packed has the debug file that is linked to, and tells the names when all else is gone.
    let (trace, packed) = (at("t.jsonl"), dir.path().join("packed"));
    std::fs::write(&trace, one_stack(&at("linked"), &id, &labels)).unwrap();
    run(&[support::memshim().to_str().unwrap(), "pack", "-o", packed.to_str().unwrap(), &trace]);
    let linked = at("linked");
    for name in ["linked", "sites.debug"] {
        std::fs::rename(at(name), at(&format!("gone-{name}"))).unwrap();
    }
    let search = Search { folders: vec![packed.join("symbols")], ..Search::default() };
    assert_eq!(named(&linked, &search).0, [13, 19, 25, 31], "packed");

    // A folder with the program under its own name.
    let folder = dir.path().join("copies");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(&path, folder.join("sites")).unwrap();
    let search = Search { folders: vec![folder], ..Search::default() };
    assert_eq!(named("/not/here/sites", &search).0, [13, 19, 25, 31], "--symbols with the file");
    let (lines, why) = named("/not/here/sites", &nowhere);
    assert!(lines.is_empty() && why.contains("--symbols"), "{why}");
}

/// Where the time for lines is over, functions have names; where all of it is, what is left is counted as without one.
#[test]
fn what_there_was_no_time_for_is_said_and_counted() {
    let (path, labels) = program("sites", &[]);
    let trace = one_stack(path.to_str().unwrap(), &build_id(&path), &labels);
    let hour = Duration::from_secs(3600);
    let within = |lines, all| {
        let search = Search { time: Time { lines, all }, ..Search::default() };
        let run = analyze_with(&trace, &Options { symbols: search, ..Options::default() }).runs.remove(0);
        let frames: Vec<_> = run.sites[0].frames.iter().map(|f| (f.function.clone(), f.line)).collect();
        let why: Vec<_> = run.sites_total.problems.iter().map(|p| p.why.clone()).collect();
        (frames, why, run.sites_total.unresolved_bytes.0)
    };
    let (frames, why, unresolved) = within(hour, hour);
    assert_eq!((frames.len(), frames[3].1, why.len(), unresolved), (4, Some(31), 0, 0));

    let (frames, why, unresolved) = within(Duration::ZERO, hour);
    let functions: Vec<_> = ["deep::Box::fill(int)", "hidden(int)", "main"].map(|f| (Some(f.to_owned()), None)).into();
    assert_eq!((frames, unresolved), (functions, 0), "what was inlined is not known without its tables");
    assert_eq!(why, ["no time was left for the source lines of 3 of 3 places in it: --symbols-time gives more"]);

    let (frames, why, unresolved) = within(Duration::ZERO, Duration::ZERO);
    assert!(frames.len() == 3 && frames.iter().all(|f| *f == (None, None)), "{frames:?}");
    assert_eq!(why, ["no time was left for the names of 3 of 3 places in it: --symbols-time gives more"]);
    assert_eq!(unresolved, 1000);
}

#[test]
fn a_file_that_was_built_anew_is_not_used() {
    let (path, labels) = program("sites", &[]);
    let run = run_of(&one_stack(path.to_str().unwrap(), "00112233445566778899", &labels));
    assert!(run.sites[0].frames.iter().all(|f| f.function.is_none() && f.addr.is_some() && f.module.is_some()));
    let problems = &run.sites_total.problems;
    assert!(problems.len() == 1 && problems[0].why.contains("another build"), "{problems:?}");
    assert_eq!((run.sites_total.unresolved_bytes.0, run.sites_total.without_owner_bytes.0), (1000, 1000));
}

#[test]
fn a_stripped_library_has_the_names_that_it_exports() {
    let (path, labels) = program("sites-shared", &["-shared", "-fPIC", "-Wl,--strip-all"]);
    // Labels are exported; the function of that name begins there.
    let _ = labels;
    let out = Command::new("nm").args(["-D", "--defined-only"]).arg(&path).output().unwrap();
    let text = support::lossy(&out.stdout);
    let fill = text.lines().find(|l| l.contains("Box4fill")).and_then(|l| u64::from_str_radix(l.split(' ').next()?, 16).ok()).unwrap();
    let labels = ["in_main", "in_hidden", "in_inlined"].map(|l| (l.to_owned(), fill + 1)).into();
    let run = run_of(&one_stack(path.to_str().unwrap(), &build_id(&path), &labels));
    assert_eq!(run.sites[0].frames[0].function.as_deref(), Some("deep::Box::fill(int)"));
}

#[test]
fn how_the_interpreter_calls_itself_is_left_out() {
    // The program is called python here: its frames are the interpreter's.
    let (path, labels) = program("python-sites", &[]);
    let trace = |nodes: &[&str]| {
        let mut w = Writer::new(7, "full", r#","stacks":"mixed""#);
        let range = format!("[[{},{}]]", BIAS, BIAS + 0x10_0000);
        w.line(&format!(r#"{{"type":"modules","t":1,"load":[[1,{BIAS},"{}","{}",{range}]]}}"#, path.to_str().unwrap(), build_id(&path)));
        w.line(r#"{"type":"code","codes":[[1,"run.py","f",10,775,""]]}"#);
        let rows: Vec<(u32, u64)> = (0..).zip(nodes).map(|(caller, l)| (caller, (BIAS + labels[*l]) << 1)).collect();
        w.nodes(0, 1, &rows);
        w.pynodes(0, 1, &[(0, 1, 1)]);
        w.at(0, 2000, false);
        w.site(0, nodes.len() as u32, 1);
        let kind = w.kind(0, 100, 0, 0);
        w.alloc(0, kind, None, None);
        w.flush();
        w.out
    };
    let names = |run: &Run| run.sites[0].frames.iter().map(|f| f.function.clone().unwrap()).collect::<Vec<_>>();
    // No evaluation loop is among them: the Python frame is outermost, and what it calls stays.
    let bytes = trace(&["in_main", "in_hidden"]);
    assert_eq!(names(&run_of(&bytes)), ["hidden", "main", "f"]);
    let all = analyze_with(&trace(&["in_main", "in_eval", "in_hidden"]), &Options { interpreter: true, ..Options::default() });
    assert_eq!(names(&all.runs[0]), ["hidden", "f", "main"]);
    assert_eq!(names(&run_of(&trace(&["in_main", "in_eval", "in_hidden"]))), ["hidden", "f"]);
}

#[test]
fn a_packed_trace_is_read_without_the_program() {
    let (path, labels) = program("sites", &[]);
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("gone");
    std::fs::copy(&path, &own).unwrap();
    std::fs::write(dir.path().join("trace.jsonl"), one_stack(own.to_str().unwrap(), &build_id(&path), &labels)).unwrap();
    let memshim = |args: &[&str]| {
        let out = Command::new(assert_cmd::cargo::cargo_bin!("memshim")).args(args).current_dir(dir.path()).output().unwrap();
        assert!(out.status.success(), "{}", support::lossy(&out.stderr));
        support::lossy(&out.stdout)
    };
    assert!(memshim(&["pack", "-o", "packed", "trace.jsonl"]).contains("1 traces and spools, 1 files"));
    std::fs::remove_file(&own).unwrap();
    let text = memshim(&["analyze", "packed/trace.jsonl", "--symbols", "packed/symbols", "--sites"]);
    assert!(text.contains("inlined (sites.cc:13) (inlined)"), "{text}");
    assert!(!memshim(&["analyze", "packed/trace.jsonl", "--sites"]).contains("sites.cc"));
    let text = memshim(&["analyze", "packed/trace.jsonl", "--symbols", "packed/symbols", "--sites", "--symbols-time", "1ns"]);
    assert!(!text.contains("sites.cc:13") && text.contains("no time was left for the names of 3 of 3 places"), "{text}");
}
