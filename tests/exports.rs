//! Promises about the library itself: what it exports, what its variables do, where its trace goes.
mod support;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::{Need, Ran, Session};

/// The exported names in the list of hooked driver functions.
fn driver_table() -> BTreeSet<String> {
    let text = fs::read_to_string(support::root().join("shim/src/cuda/table.rs")).expect("the table of driver functions");
    let rows = text.lines().filter(|l| l.starts_with("    cu") && l.ends_with(';'));
    rows.filter_map(|l| Some(l.trim().split_once(": ")?.0.to_owned())).collect()
}

/// The names in the one list of hooked functions.
fn table() -> BTreeSet<String> {
    let text = fs::read_to_string(support::root().join("shim/src/hooks/table.rs")).expect("the hook table");
    let name = |line: &str| -> Option<String> {
        let (name, rest) = line.trim().split_once('(')?;
        let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        (plain && rest.contains("->") && rest.ends_with(';')).then(|| name.to_owned())
    };
    text.lines().filter_map(name).collect()
}

fn reach(dir: &Path, variables: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(support::build("reach.c", "reach", &[]));
    command.args(table()).current_dir(dir).env("LD_PRELOAD", support::shim()).envs(variables.iter().copied());
    Session::start(&mut command, &dir.with_extension("output")).finish(Duration::from_secs(20))
}

/// A fresh folder to run in, and one for output beside it.
fn place(test: &str) -> std::path::PathBuf {
    let dir = support::fresh_dir(test).join("here");
    fs::create_dir_all(&dir).expect("folder to run in");
    fs::create_dir_all(dir.with_extension("output")).expect("folder for output");
    dir
}

fn names_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir).expect("a folder").flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn exports_are_exactly_the_hook_table() {
    if support::lacks("exports_are_exactly_the_hook_table", &[Need::Preload, Need::Command("nm")]) {
        return;
    }
    let out = Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(support::shim()).output().expect("nm");
    let text = support::lossy(&out.stdout);
    let exported: BTreeSet<String> = text.lines().filter_map(|l| l.split([' ', '@']).next()).map(str::to_owned).collect();
    let wanted: BTreeSet<String> = table().into_iter().chain(driver_table()).collect();
    let more: Vec<_> = exported.difference(&wanted).filter(|n| !support::hidden_export(n)).collect();
    let less: Vec<_> = wanted.difference(&exported).collect();
    assert!(
        !wanted.is_empty() && less.is_empty() && more.is_empty(),
        "in the table but not exported: {less:?}; exported but not in the table: {more:?}"
    );
}

#[test]
fn every_hooked_function_is_found_in_the_shim() {
    if support::lacks("every_hooked_function_is_found_in_the_shim", &[Need::Preload]) {
        return;
    }
    let ran = reach(&place("reach"), &[]);
    let out = support::lossy(&ran.stdout);
    let elsewhere: Vec<_> = out.lines().filter(|l| !l.ends_with(" libmemshim.so")).collect();
    assert!(!out.is_empty() && elsewhere.is_empty(), "found elsewhere: {elsewhere:?}");
}

#[test]
fn with_nothing_set_the_trace_is_trace_jsonl_here() {
    if support::lacks("with_nothing_set_the_trace_is_trace_jsonl_here", &[Need::Preload]) {
        return;
    }
    let dir = place("nothing_set");
    let ran = reach(&dir, &[]);
    assert_eq!(support::lossy(&ran.stderr), "");
    assert_eq!(names_in(&dir), ["trace.jsonl"]);
}

#[test]
fn a_trace_of_an_earlier_run_is_kept() {
    if support::lacks("a_trace_of_an_earlier_run_is_kept", &[Need::Preload]) {
        return;
    }
    let dir = place("earlier");
    reach(&dir, &[]);
    let first = fs::read(dir.join("trace.jsonl")).expect("the first trace");
    reach(&dir, &[]);
    let names = names_in(&dir);
    let older: Vec<_> = names.iter().filter(|n| *n != "trace.jsonl" && n.starts_with("trace.") && n.ends_with(".jsonl")).collect();
    assert_eq!((names.len(), older.len()), (2, 1), "{names:?}");
    assert!(fs::read(dir.join(older[0])).expect("the older trace") == first, "the older trace was changed");
}

#[test]
fn a_trace_is_readable_by_its_owner_only() {
    use std::os::unix::fs::MetadataExt;
    if support::lacks("a_trace_is_readable_by_its_owner_only", &[Need::Preload]) {
        return;
    }
    let dir = place("owner");
    reach(&dir, &[]);
    assert_eq!(fs::metadata(dir.join("trace.jsonl")).expect("a trace").mode() & 0o777, 0o600);
}

#[test]
fn switched_off_it_leaves_no_trace() {
    if support::lacks("switched_off_it_leaves_no_trace", &[Need::Preload]) {
        return;
    }
    let dir = place("off");
    let ran = reach(&dir, &[("MEMSHIM_MODE", "off")]);
    assert!(ran.status.is_some_and(|s| s.success()) && ran.stderr.is_empty(), "stderr: {}", support::lossy(&ran.stderr));
    let with_header_only = names_in(&dir);
    assert!(with_header_only.is_empty(), "{with_header_only:?}");
}

/// A flag of `run` and the variable of its name take the same.
#[test]
fn variables_take_what_flags_take() {
    let test = "variables_take_what_flags_take";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let values = [("MEMSHIM_INTERVAL", "0.1s"), ("MEMSHIM_BIG", "1.5 kib"), ("MEMSHIM_SAMPLE", "2MB"), ("MEMSHIM_MAX", "1.5g")];
    let by_variable = place(test);
    let ran = reach(&by_variable, &values);
    assert_eq!(support::lossy(&ran.stderr), "");
    let by_flag = place("variables_take_what_flags_take-run");
    let mut run = std::process::Command::new(support::memshim());
    run.arg("run").arg("-q").arg("-o").arg(by_flag.join("trace.jsonl"));
    for (variable, value) in values {
        run.arg(variable.replace("MEMSHIM_", "--").to_lowercase()).arg(value);
    }
    assert!(run.args(["--", "/bin/true"]).status().expect("run").success());
    for dir in [by_variable, by_flag] {
        let text = fs::read_to_string(dir.join("trace.jsonl")).expect("a trace");
        assert!(text.contains(r#""interval_ns":100000000,"big":1536,"sample":2000000,"#), "{text}");
    }
}

#[test]
fn a_value_that_does_not_parse_is_named_in_one_line() {
    if support::lacks("a_value_that_does_not_parse_is_named_in_one_line", &[Need::Preload]) {
        return;
    }
    for (variable, value) in [("MEMSHIM_MODE", "quick"), ("MEMSHIM_INTERVAL", "soon"), ("MEMSHIM_BIG", "huge"), ("MEMSHIM_SAMPLE", "-3q")] {
        let dir = place(&format!("value_{}", variable.to_lowercase()));
        let ran = reach(&dir, &[(variable, value)]);
        let said = support::lossy(&ran.stderr);
        assert!(ran.status.is_some_and(|s| s.success()), "{variable}={value} stops the target: {said}");
        assert!(said.lines().count() == 1 && said.contains(variable) && said.contains(value), "{variable}={value}: {said:?}");
        assert_eq!(names_in(&dir), ["trace.jsonl"], "{variable}={value}");
    }
}
