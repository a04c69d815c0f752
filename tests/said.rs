//! What the command says of wrong arguments, odd names and output that cannot be written.
mod support;

use serde_json::Value;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::{Need, fresh_dir, lossy, memshim, shim};

fn ask(dir: &Path, args: &[&OsStr]) -> Output {
    Command::new(memshim()).args(args).current_dir(dir).output().expect("memshim")
}

fn words<'a>(args: &[&'a str]) -> Vec<&'a OsStr> {
    args.iter().map(|a| OsStr::new(*a)).collect()
}

#[test]
fn help_that_cannot_be_printed_is_an_error() {
    for (args, code) in [(&["--help"][..], 4), (&["analyze", "--help"], 4), (&["run", "--help"], 125), (&["--version"], 4)] {
        unprinted(args, code);
        assert_eq!(Command::new(memshim()).args(args).output().expect("memshim").status.code(), Some(0), "{args:?}");
    }
}

/// Where there is no room for what is to be printed.
fn unprinted(args: &[&str], code: i32) {
    let full = File::options().write(true).open("/dev/full").expect("/dev/full");
    let out = Command::new(memshim()).args(args).stdout(full).stderr(Stdio::piped()).output().expect("memshim");
    let said = lossy(&out.stderr);
    assert_eq!((out.status.code(), &*said), (Some(code), "memshim: cannot print: no space left on device\n"), "{args:?}");
}

#[test]
fn a_verb_that_can_end_with_4_says_so_in_its_help() {
    for verb in ["env", "doctor"] {
        unprinted(&[verb], 4);
        let help = Command::new(memshim()).args([verb, "--help"]).output().expect("memshim");
        let words = lossy(&help.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("4 no room for the output"), "{verb}: {words}");
    }
}

#[test]
fn a_placeholder_that_is_none_is_refused() {
    let dir = fresh_dir("said_placeholder");
    let refused = |command: &mut Command, from: &str| {
        let out = command.args(["--", "/bin/sh", "-c", "echo ran"]).current_dir(&dir).output().expect("memshim");
        let said = lossy(&out.stderr);
        assert_eq!((out.status.code(), lossy(&out.stdout)), (Some(125), String::new()), "{said}");
        assert!(
            said.contains(from) && said.contains("no placeholder, there are %h host") && said.contains("Nothing was started"),
            "{said}"
        );
    };
    refused(Command::new(memshim()).args(["run", "-o", "t.%q.jsonl"]), "-o t.%q.jsonl is not understood: `%q` is");
    refused(Command::new(memshim()).args(["run", "-o", "t.%%%"]), "`%` is");
    refused(Command::new(memshim()).arg("run").env("MEMSHIM_OUT", "t.%x.jsonl"), "MEMSHIM_OUT=t.%x.jsonl is not understood: `%x` is");
    std::fs::write(dir.join("m.toml"), "out = '%d.jsonl'\n").expect("a file");
    refused(Command::new(memshim()).arg("run").env("MEMSHIM_CONFIG", "m.toml"), "m.toml, out = %d.jsonl is not understood: `%d` is");
    // Without `run` the program goes on, and is told.
    if support::lacks("a_placeholder_that_is_none_is_refused", &[Need::Preload]) {
        return;
    }
    let out =
        Command::new("/bin/true").env("LD_PRELOAD", shim()).env("MEMSHIM_OUT", "t.%q.100%%.jsonl").current_dir(&dir).output().unwrap();
    let said =
        "memshim: MEMSHIM_OUT=t.%q.100%%.jsonl is not understood; give %h, %p, %e, %j, %r, %t or %% and not %q, which stands for q.\n";
    assert_eq!((out.status.code(), &*lossy(&out.stderr)), (Some(0), said));
    assert!(dir.join("t.q.100%.jsonl").exists());
}

#[test]
fn who_is_left_out_by_its_name_is_said_to_be() {
    if support::lacks("who_is_left_out_by_its_name_is_said_to_be", &[Need::Preload]) {
        return;
    }
    let dir = fresh_dir("said_left_out");
    std::fs::write(dir.join("m.toml"), "exclude = 'tr?e'\n").expect("a file");
    let run = |flags: &[&str], variable: (&str, &str)| {
        let mut command = Command::new(memshim());
        command.arg("run").args(flags).args(["--", "/bin/true"]).env(variable.0, variable.1).current_dir(&dir);
        let out = command.output().expect("memshim");
        assert_eq!(out.status.code(), Some(0));
        lossy(&out.stderr)
    };
    let (no, yes) = ("no trace: `true` is none of those that are recorded: --include (or MEMSHIM_INCLUDE) is ", "next: memshim analyze");
    for (flags, variable, said) in [
        (&["--include", "zzz"][..], ("LANG", "C"), format!("{no}`zzz`")),
        (&[], ("MEMSHIM_INCLUDE", "a*,b*"), format!("{no}`a*,b*`")),
        (
            &["--exclude", "true"],
            ("LANG", "C"),
            "no trace: `true` is one of those that are not recorded: --exclude (or MEMSHIM_EXCLUDE) is `true`".into(),
        ),
        (&[], ("MEMSHIM_CONFIG", "m.toml"), "is one of those that are not recorded: --exclude (or MEMSHIM_EXCLUDE) is `tr?e`".into()),
        (&["--include", "zzz,true"], ("LANG", "C"), yes.into()),
        (&["--include", ""], ("MEMSHIM_INCLUDE", "zzz"), yes.into()),
    ] {
        let text = run(flags, variable);
        assert!(text.contains(&said), "{flags:?} {variable:?}: {text}");
    }
}

#[test]
fn a_setting_that_is_none_is_said() {
    if support::lacks("a_setting_that_is_none_is_said", &[Need::Preload]) {
        return;
    }
    let dir = fresh_dir("said_setting");
    let run = |name: &str| {
        let out = Command::new("/bin/true").env("LD_PRELOAD", shim()).env(name, "full").current_dir(&dir).output().unwrap();
        assert_eq!(out.status.code(), Some(0));
        lossy(&out.stderr)
    };
    let said = run("MEMSHIM_MDOE");
    let listed = ["CONFIG", "OUT", "MODE", "ARTIFACTS."];
    assert!(said.starts_with("memshim: MEMSHIM_MDOE is no setting and has no effect; settings are MEMSHIM_ and one of CONFIG, "), "{said}");
    assert!(listed.iter().all(|name| said.contains(name)) && said.lines().count() == 1, "{said}");
    assert_eq!((run("MEMSHIM_SHIM"), run("MEMSHIMX"), run("MEMSHIM_MODE")), Default::default());
}

#[test]
fn a_file_that_is_there_is_said_once() {
    let dir = fresh_dir("said_watch");
    std::fs::write(dir.join("w.jsonl"), "").expect("a file");
    let out = ask(&dir, &words(&["watch", &std::process::id().to_string(), "-o", "w.jsonl"]));
    let said = "memshim: w.jsonl: it is there already, and is not written over; -o names another file\n";
    assert_eq!((out.status.code(), &*lossy(&out.stderr)), (Some(3), said));
}

#[test]
fn a_trace_may_have_a_name_that_is_not_utf8() {
    if support::lacks("a_trace_may_have_a_name_that_is_not_utf8", &[Need::Preload]) {
        return;
    }
    let dir = fresh_dir("said_name");
    let name = OsStr::from_bytes(b"t\xff.jsonl");
    let run =
        [&words(&["run", "-o"])[..], &[name], &words(&["--phase-on", "^a", "--", "/bin/sh", "-c", "echo a; /bin/true; exit 0"])].concat();
    let out = ask(&dir, &run);
    let said = lossy(&out.stderr);
    assert!(out.status.success() && said.ends_with("next: memshim analyze $'t\\xff.jsonl'\n"), "{said}");
    let report = ask(&dir, &[OsStr::new("analyze"), OsStr::new("--json"), name]);
    let report: Value = serde_json::from_slice(&report.stdout).expect("JSON");
    let runs = report["runs"].as_array().expect("runs");
    assert_eq!((runs.len(), &report["problems"], &report["job"]["not_recorded"]), (2, &serde_json::json!([]), &serde_json::json!([])));
    assert_eq!((&runs[0]["phases"][0]["name"], &runs[0]["end"]["code"]), (&"a".into(), &0.into()));
    assert!(runs[0]["outside"]["hwm"].is_u64(), "what was seen from outside is in it");
}
