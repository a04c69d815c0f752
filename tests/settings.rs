//! Promises about settings: one that can't be used is said in one line with what can be, and the program runs.
mod support;
use std::process::Command;

/// What a program says on stderr with these variables beside the library.
fn said(test: &str, set: &[(&str, &str)]) -> String {
    let dir = support::fresh_dir(test);
    let mut command = Command::new("/bin/true");
    command.current_dir(&dir).env("LD_PRELOAD", support::shim()).envs(set.iter().copied());
    let out = command.output().expect("/bin/true");
    assert!(out.status.success() && out.stdout.is_empty());
    support::lossy(&out.stderr)
}

#[test]
fn a_value_that_cannot_be_used_is_said_with_one_that_can() {
    for (name, value, form) in [
        ("MEMSHIM_MODE", "quick", "fast, full or off"),
        ("MEMSHIM_INTERVAL", "250us", "a time from 1ms to 1h, such as 100ms"),
        ("MEMSHIM_SAMPLE", "0", "a size of 1 or more, such as 512KiB"),
        ("MEMSHIM_BIG", "x", "a size such as 64KiB"),
        ("MEMSHIM_MAX", "0", "a size of 1 or more, such as 2GiB"),
        ("MEMSHIM_INCLUDE", ",", "names of programs, such as python*,solver"),
        ("MEMSHIM_EXCLUDE", ",,", "names of programs, such as python*,solver"),
    ] {
        let want = format!("memshim: {name}={value} is not understood; give {form}. The default is used.\n");
        assert_eq!(said("settings_values", &[(name, value)]), want);
        assert!(support::run_dir("settings_values").join("trace.jsonl").exists(), "{name}: the default is used");
    }
}

#[test]
fn what_is_set_to_nothing_is_not_set() {
    for name in ["MEMSHIM_MODE", "MEMSHIM_INTERVAL", "MEMSHIM_SAMPLE", "MEMSHIM_MAX", "MEMSHIM_INCLUDE", "MEMSHIM_STACKS", "MEMSHIM_OUT"] {
        assert_eq!(said("settings_empty", &[(name, "")]), "", "{name}");
    }
}

#[test]
fn where_no_trace_can_be_made_it_is_said_why() {
    for (out, why) in [
        ("/proc/x", "cannot create the trace /proc/x: no file can be made in that folder;"),
        ("/proc/x/y", "cannot create the trace /proc/x/y: no such folder;"),
        ("/bin/true/y", "cannot open the trace /bin/true/y: a part of its path is a file and no folder;"),
        ("/", "cannot open the trace /: it is a folder;"),
    ] {
        let line = said("settings_place", &[("MEMSHIM_OUT", out)]);
        let want = format!("memshim: {why} the program runs on, not recorded. Set MEMSHIM_OUT to a path that can be written.\n");
        assert_eq!(line, want);
    }
}
