//! The reading verbs from outside: exit codes, errors that name the fix, JSON that parses, no colours where they don't belong.

use std::process::{Command, Output};

const TRACE: &str = concat!(
    r#"{"type":"header","v":1,"run":"00","pid":42,"ppid":1,"start_ticks":1,"pid_ns":1,"exec":0,"mode":"full","cols":"array","tick_ns":100,"#,
    r#""mono_ns":1000000000,"wall_ns":1764289999000000000,"host":"elsewhere","exe":"/bin/x","argv":["x","\u001b[2J"],"cwd":"/","rank":null,"job":null,"#,
    r#""interval_ns":100000000,"big":65536,"sample":524288,"page":4096,"allocator":"glibc","slack":24,"fns":["malloc","free"],"spool":"shared"}"#,
    "\n",
    r#"{"type":"rss","t":1500000000,"rss":4194304,"hwm":4194304,"anon":1048576,"file":3145728,"shmem":0,"swap":0,"size":8388608,"stk":135168,"threads":1}"#,
    "\n",
    r#"{"type":"maps","ev":[["mmap",1,1100000000,0,140000000000000,1048576,3,34,0],["munmap",2,1200000000,0,140000000000000,1048576]]}"#,
    "\n",
    r#"{"type":"end","t":2000000000,"how":"exit","code":3,"counted":0,"recorded":0,"lost":0,"failed":0}"#,
    "\n",
);

fn memshim(args: &[&str]) -> Output {
    Command::new(assert_cmd::cargo::cargo_bin!("memshim")).args(args).env_remove("LC_ALL").env("LANG", "C.UTF-8").output().unwrap()
}

fn with_trace(text: &str, then: impl FnOnce(&str)) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.jsonl");
    std::fs::write(&path, text).unwrap();
    then(path.to_str().unwrap());
}

fn err(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

#[test]
fn a_trace_is_told_on_one_screen() {
    with_trace(TRACE, |path| {
        let o = memshim(&["analyze", path]);
        let text = String::from_utf8(o.stdout.clone()).unwrap();
        assert_eq!(o.status.code(), Some(0), "{}", err(&o));
        for wanted in ["exit code 3", "peak 4.00 MiB", "peak committed 1.00 MiB", "next"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert!(!text.contains('\x1b'), "no colours into a pipe, no escapes out of a trace: {text}");
        assert!(text.lines().count() <= 40, "{text}");
    });
}

#[test]
fn json_has_the_contracts_keys() {
    with_trace(TRACE, |path| {
        let o = memshim(&["analyze", "--json", path]);
        let v: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
        let run = &v["runs"][0];
        assert_eq!((&run["pid"], &run["end"]["code"], &run["maps"]["anon"]["peak_bytes"]), (&42.into(), &3.into(), &(1 << 20).into()));
        assert_eq!(run["maps"]["regions"][0]["anon_bytes"], serde_json::json!([1 << 20, 0]));
    });
}

#[test]
fn a_forked_childs_heap_at_its_peak_holds_what_it_inherited() {
    let (header, rest) = TRACE.split_once('\n').unwrap();
    let header = header.replace(r#""fns""#, r#""inherited":{"live":1048576,"blocks":9,"from":1},"fns""#);
    let snap =
        r#"{"type":"snap","t":1600000000,"why":"peak","rss":5242880,"hwm":5242880,"anon":2097152,"file":3145728,"live":-4096,"blocks":-1}"#;
    // Without a word about the heap, as where the child only waits; then with its own balance, below zero by what it freed.
    for (rest, wanted) in [(rest.to_owned(), 1 << 20), (format!("{snap}\n{rest}"), (1 << 20) - 4096)] {
        with_trace(&format!("{header}\n{rest}"), |path| {
            let v: serde_json::Value = serde_json::from_slice(&memshim(&["analyze", "--json", path]).stdout).unwrap();
            let run = &v["runs"][0];
            assert_eq!(run["rss"]["at_peak"]["heap"], wanted, "{rest}");
            assert_eq!(run["samples"][0]["heap"], 1 << 20);
            let text = String::from_utf8(memshim(&["analyze", path]).stdout).unwrap();
            assert!(text.contains("those inherited at the fork too"), "{text}");
        });
    }
}

#[test]
fn a_trace_that_cannot_be_read_is_exit_3_and_says_why() {
    let o = memshim(&["analyze", "/no/such/trace.jsonl"]);
    assert_eq!(o.status.code(), Some(3));
    assert_eq!(err(&o), "memshim: /no/such/trace.jsonl: No such file or directory (os error 2)\n", "the cause once");
    with_trace("hello\n", |path| {
        let o = memshim(&["analyze", path]);
        assert_eq!(o.status.code(), Some(3));
        assert!(err(&o).contains("not a memshim trace"), "{}", err(&o));
    });
}

#[test]
fn a_wrong_command_line_is_exit_2() {
    for args in [&["analyze"][..], &["analyze", "--sizes", "many", "t"], &["no-such-verb"], &[]] {
        assert_eq!(memshim(args).status.code(), Some(2), "{args:?}");
    }
    assert_eq!(memshim(&["--help"]).status.code(), Some(0));
    with_trace(TRACE, |path| {
        let o = memshim(&["analyze", "--pid", "7", path]);
        assert!(err(&o).contains("--pid 7"), "{}", err(&o));
    });
}

#[test]
fn every_verb_has_examples() {
    for verb in ["run", "analyze", "env", "doctor"] {
        let help = String::from_utf8(memshim(&[verb, "--help"]).stdout).unwrap();
        assert!(help.contains("EXAMPLES"), "{verb}: {help}");
    }
}

#[test]
fn env_prints_an_assignment_that_sh_takes() {
    let dir = tempfile::tempdir().unwrap();
    let library = dir.path().join("libmemshim.so");
    std::fs::write(&library, "").unwrap();
    let mut c = Command::new(assert_cmd::cargo::cargo_bin!("memshim"));
    let o = c.arg("env").env("MEMSHIM_SHIM", &library).env("LD_PRELOAD", "").output().unwrap();
    let wanted = format!("LD_PRELOAD={}\n", library.canonicalize().unwrap().display());
    assert_eq!(String::from_utf8(o.stdout).unwrap(), wanted);
}
