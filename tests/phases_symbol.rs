//! Promises about native functions that are phases by rule: each call through the linker is counted, whatever the function takes, gives, or is
//! left by, and the program sees what it sees without.

mod support;

#[allow(dead_code)]
#[path = "../shim/src/phases/symbol/cxx.rs"]
mod cxx;

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use support::{Need, Ran, Session, lossy};

/// How a program can be made to call a library.
const WAYS: [(&str, &[&str]); 4] = [
    ("lazy", &["-Wl,-z,lazy", "-Wl,-z,norelro"]),
    ("now", &["-Wl,-z,now", "-Wl,-z,relro"]),
    ("noplt", &["-fno-plt"]),
    ("nopie", &["-no-pie", "-fno-pie", "-Wl,-z,lazy", "-Wl,-z,relro"]),
];
const ALL: &str = "symbols_*.so:*";

/// A library or a program of `tests/programs/symbols`, which finds the others.
fn made(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let out = support::out_dir().to_string_lossy().into_owned();
    let (search, find) = (format!("-L{out}"), format!("-Wl,-rpath,{out}"));
    support::build(&format!("symbols/{source}"), name, &[&[search.as_str(), &find], flags].concat())
}

fn libraries() {
    let versions = format!("-Wl,--version-script={}", support::root().join("tests/programs/symbols/part.map").display());
    made("part.c", "symbols_part.so", &["-shared", "-fPIC", "-Wl,-z,lazy", &versions]);
    made("plugin.c", "symbols_plugin.so", &["-shared", "-fPIC", "-Wl,-z,lazy", "-l:symbols_part.so"]);
    made("shapes.cc", "symbols_shapes.so", &["-shared", "-fPIC"]);
}

fn program(way: &str, flags: &[&str]) -> PathBuf {
    libraries();
    made("main.c", &format!("symbols_{way}"), &[&["-l:symbols_part.so"], flags].concat())
}

fn run(command: &mut Command, dir: &Path, rules: &str) -> Ran {
    if !rules.is_empty() {
        command.env("LD_PRELOAD", support::shim()).env("MEMSHIM_MODE", "full").env("MEMSHIM_PHASE_SYM", rules);
    }
    Session::start(command.current_dir(dir), dir).finish(Duration::from_secs(60))
}

fn report(dir: &Path) -> Value {
    serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).expect("a report")).expect("JSON")
}

/// Count, bytes left behind and bytes needed meanwhile, by name, of all phases but the process's own: functions, which have all ended.
fn by_name(run: &Value) -> BTreeMap<String, [i64; 3]> {
    let mut all: BTreeMap<String, [i64; 3]> = BTreeMap::new();
    for p in run["phases"].as_array().expect("phases").iter().filter(|p| p["source"] != "process") {
        assert_eq!((&p["source"], &p["open"]), (&Value::from("symbol"), &Value::from(0)), "{p}");
        let [count, left, meanwhile] = all.entry(p["name"].as_str().expect("a name").to_owned()).or_default();
        let number = |key: &str| p[key].as_i64().expect("a number");
        *count += number("count");
        *left += number("heap_persistent_bytes");
        *meanwhile = number("heap_transient_bytes").max(*meanwhile);
    }
    all
}

/// Runs a program bare and with rules; both say the same, and the report says of its functions what it says itself.
fn holds(program: &Path, args: &[&str], rules: &str, test: &str) -> Value {
    let dir = support::fresh_dir(test);
    let bare = run(Command::new(program).args(args), &dir, "");
    let ran = run(Command::new(program).args(args), &dir, rules);
    let said = lossy(&ran.stdout);
    assert_eq!((ran.end(), lossy(&ran.stderr)), ("exit 0".into(), String::new()), "{test}");
    assert_eq!(said, lossy(&bare.stdout), "{test}");
    let report = report(&dir);
    let got = by_name(&report["runs"][0]);
    for truth in said.lines().filter_map(|l| l.strip_prefix("TRUTH ")) {
        let mut words = truth.rsplitn(4, ' ');
        let [meanwhile, left, count, name] = std::array::from_fn(|_| words.next().expect("four words"));
        let name = if name.contains(':') { name.to_owned() } else { format!("symbols_part.so:{name}") };
        let of = got.get(&name).unwrap_or_else(|| panic!("{test}: no {name} among {got:?}"));
        for (got, known) in of.iter().zip([count, left, meanwhile]) {
            assert!(known == "-" || known.parse() == Ok(*got), "{test}: {name} is {of:?}, not {truth}");
        }
    }
    report
}

#[test]
fn each_call_is_a_phase_however_it_is_linked() {
    let test = "each_call_is_a_phase_however_it_is_linked";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    for (way, flags) in WAYS {
        let program = program(way, flags);
        for what in ["arguments", "heap", "pointers", "jumps", "threads", "children", "sealed", "signals", "coroutines"] {
            holds(&program, &[what], ALL, &format!("{test}/{way}/{what}"));
        }
    }
}

#[test]
fn functions_of_plugins_are_found_each_time_they_are_opened() {
    let test = "functions_of_plugins_are_found_each_time_they_are_opened";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    for (way, flags) in WAYS {
        let program = program(way, flags);
        let plugin = support::out_dir().join("symbols_plugin.so");
        holds(&program, &["plugins", &plugin.to_string_lossy()], ALL, &format!("{test}/{way}"));
    }
}

#[test]
fn libraries_come_and_go_beside_threads_and_forks() {
    let test = "libraries_come_and_go_beside_threads_and_forks";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let plugin = support::out_dir().join("symbols_plugin.so");
    holds(&program(WAYS[0].0, WAYS[0].1), &["storm", &plugin.to_string_lossy()], ALL, test);
}

#[test]
fn exceptions_cancellation_and_virtual_calls_pass() {
    let test = "exceptions_cancellation_and_virtual_calls_pass";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    libraries();
    let links = ["-l:symbols_shapes.so", "-l:symbols_part.so"];
    for (way, flags) in [("pie", &[][..]), ("nopie", &["-no-pie", "-fno-pie", "-static-libgcc", "-Wl,-z,lazy"])] {
        let program = made("exceptions.cc", &format!("symbols_exceptions_{way}"), &[&links, flags].concat());
        let whole = holds(&program, &[], ALL, &format!("{test}/{way}"));
        let got = by_name(&whole["runs"][0]);
        // By the table of virtual functions, of which a program may have a copy.
        assert_eq!(got["symbols_shapes.so:shapes::shape::area(double) const"][0], 2, "{way}: {got:?}");
        let dir = support::fresh_dir(&format!("{test}/{way}/named"));
        run(&mut Command::new(&program), &dir, "symbols_shapes.so:shapes::shape::*,symbols_shapes.so:*fill*");
        let named = report(&dir);
        let names: Vec<String> = by_name(&named["runs"][0]).into_keys().collect();
        assert!(names.iter().all(|n| n.contains("shapes::shape::") || n.contains("fill")) && names.len() >= 5, "{way}: {names:?}");
    }
}

#[test]
fn a_function_that_was_jumped_out_of_has_ended_by_the_next_call() {
    let test = "a_function_that_was_jumped_out_of_has_ended_by_the_next_call";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let report = holds(&program(WAYS[0].0, WAYS[0].1), &["jumps"], ALL, test);
    for p in report["runs"][0]["phases"].as_array().expect("phases") {
        assert_eq!(p["path"].as_array().map(Vec::len), Some(1), "{p}");
    }
}

#[test]
fn a_forked_child_has_begun_none_of_what_its_parent_is_in() {
    let test = "a_forked_child_has_begun_none_of_what_its_parent_is_in";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let report = holds(&program(WAYS[1].0, WAYS[1].1), &["children"], ALL, test);
    let runs = report["runs"].as_array().expect("runs");
    let tells = |r: &&Value| r["phases"].as_array().expect("phases").iter().any(|p| p["source"] == "symbol");
    let child = runs.iter().filter(|r| r["ppid"] == runs[0]["pid"]).find(tells).expect("the child");
    assert_eq!(by_name(child), [("symbols_part.so:keep".to_owned(), [1, 4000, 0])].into());
}

#[test]
fn functions_that_ctypes_finds_are_phases() {
    let test = "functions_that_ctypes_finds_are_phases";
    if support::lacks(test, &[Need::Preload, Need::Command("python3")]) {
        return;
    }
    libraries();
    let script = "import ctypes, sys\n\
                  lib = ctypes.CDLL(sys.argv[1])\n\
                  print([lib.down(3) for _ in range(7)], ctypes.CDLL(None).abs(-3), lib.down is lib.down)\n\
                  print('TRUTH down 14 - -\\nTRUTH up 14 - -')";
    let python = support::python().expect("asked for");
    let library = support::out_dir().join("symbols_part.so");
    let report = holds(python, &["-c", script, &library.to_string_lossy()], "symbols_part.so:*,libc.so*:abs,libc.so:abs", test);
    assert_eq!(by_name(&report["runs"][0])["libc.so:abs"][0], 1);
}

#[test]
fn a_rule_that_nothing_came_of_is_said() {
    let test = "a_rule_that_nothing_came_of_is_said";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let rules =
        "symbols_part.so:never_called,nosuch.so:*,libc.so*:malloc,libc.so.6:_setjmp,symbols_part.so:keep,symbols_part.so:leave,*:down";
    let report = holds(&program(WAYS[0].0, WAYS[0].1), &["jumps"], rules, test);
    let notes: Vec<&str> = report["runs"][0]["notes"].as_array().expect("notes").iter().filter_map(Value::as_str).collect();
    let said: Vec<(&str, bool)> =
        notes.iter().filter_map(|n| n.split_once(" (MEMSHIM_PHASE_SYM)")).map(|(r, w)| (r, w.contains("cannot be"))).collect();
    let known = [
        ("symbols_part.so:never_called", false),
        ("nosuch.so:*", false),
        ("libc.so*:malloc", true),
        ("libc.so.6:_setjmp", true),
        ("*:down", false),
    ];
    assert_eq!(said, known, "{notes:?}");
}

#[test]
fn what_is_no_rule_is_said_with_what_would_be_one() {
    let test = "what_is_no_rule_is_said_with_what_would_be_one";
    if support::lacks(test, &[Need::Preload]) {
        return;
    }
    let dir = support::fresh_dir(test);
    let out = Command::new(support::memshim())
        .current_dir(&dir)
        .args(["run", "--phase-sym", "a:b,dgemm_", "--", "true"])
        .output()
        .expect("memshim");
    let said = lossy(&out.stderr);
    assert!(out.status.code() == Some(125) && said.contains("`dgemm_` is no rule: write object:function"), "{said}");
    let ran = run(&mut Command::new("true"), &dir, "dgemm_");
    let said = "memshim: MEMSHIM_PHASE_SYM=dgemm_ is not understood; give object:function, such as libblas.so*:dgemm_ or plugin.so:*, 64 rules at \
                most. What is no such rule is left out.\n";
    assert_eq!((ran.end().as_str(), lossy(&ran.stderr).as_str()), ("exit 0", said));
    let program = program(WAYS[0].0, WAYS[0].1);
    std::fs::write(dir.join("memshim.toml"), "phase_sym = ['symbols_part.so:keep', 'symbols_part.so:work']\nmode = 'full'\n")
        .expect("a file");
    let mut command = Command::new(support::memshim());
    command
        .current_dir(&dir)
        .env("MEMSHIM_CONFIG", "memshim.toml")
        .args(["run", "-q", "-o", "by_file.jsonl", "--"])
        .arg(program)
        .arg("heap");
    assert!(command.status().expect("memshim").success());
    let report: Value = serde_json::from_str(&support::analyze(&dir.join("by_file.jsonl")).expect("a report")).expect("JSON");
    assert_eq!(by_name(&report["runs"][0]).values().map(|v| v[0]).collect::<Vec<_>>(), [2, 2]);
}

#[test]
fn names_of_cxx_are_what_one_thinks_of_them() {
    let names = [
        ("_ZN6shapes5shape4sizeEv", Some("shapes::shape::size")),
        ("_ZNK6shapes5shape4sizeEv", Some("shapes::shape::size")),
        ("_ZN6shapes5shapeC1Ei", Some("shapes::shape::shape")),
        ("_ZN6shapes5shapeD0Ev", Some("shapes::shape::~shape")),
        ("_Z3runi", Some("run")),
        ("_ZSt9terminatev", Some("std::terminate")),
        ("_ZNSt6vectorIlSaIlEE17_M_default_appendEm", Some("std::vector::_M_default_append")),
        ("_ZN6shapes4fillIlEEmRSt6vectorIT_SaIS2_EEm", Some("shapes::fill")),
        ("_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE6appendEPKc", Some("std::__cxx11::basic_string::append")),
        ("_ZN1aILi3ELb1EE1fEv", Some("a::f")),
        ("_ZN1aIA10_iN1b1cEE1fEv", Some("a::f")),
        ("_ZN1AILN2ns4ModeE0EE3runEv", Some("A::run")),
        ("_ZN1AILN2ns4ModeE1EE3runEv", Some("A::run")),
        ("_ZN1AILN2ns4ModeE2EE3runEv", Some("A::run")),
        ("_ZN1BILN2ns2In1KE2ELin3EE3runEv", Some("B::run")),
        ("_ZN1CIL5Plain2EE3runEv", Some("C::run")),
        ("_ZNSs6appendEPKc", Some("std::string::append")),
        ("_ZN3foo3barB5cxx11Ev", Some("foo::bar")),
        ("_ZN3fooplEi", None),
        ("_ZTVN6shapes5shapeE", None),
        ("_ZN", None),
        ("_ZN99abEv", None),
        ("dgemm_", None),
    ];
    for (mangled, path) in names {
        let mut room = [0; cxx::MOST];
        assert_eq!(cxx::path(mangled.as_bytes(), &mut room).map(lossy), path.map(str::to_owned), "{mangled}");
    }
}
