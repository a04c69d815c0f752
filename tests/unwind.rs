//! Promises about native stacks: inside real programs the walker finds what libunwind finds, whatever the stack.
mod support;

use std::collections::HashMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Need, lossy};

/// The library that compares, None (said) where libunwind is missing.
fn checker(test: &str) -> Option<PathBuf> {
    if !["/usr/include", "/usr/include/x86_64-linux-gnu", "/usr/local/include"].iter().any(|d| Path::new(d).join("libunwind.h").exists()) {
        support::skip(test, "needs libunwind's headers (libunwind-dev)");
        return None;
    }
    let library = support::release().join("libmemshim_unwind_check.a");
    assert!(library.exists(), "{} is not there: `cargo build --release --workspace` makes it", library.display());
    // A new name for each state of the walker: it is built anew only when its own source is newer.
    let age = fs::metadata(&library).and_then(|m| m.modified()).expect("age").duration_since(std::time::UNIX_EPOCH).expect("age");
    let name = format!("libunwind_check.{}.so", age.as_millis());
    let flags = ["-O2", "-fPIC", "-shared", library.to_str().expect("a path"), "-lunwind", "-lpthread", "-Wl,-Bsymbolic"];
    Some(support::build("unwind_check.c", &name, &flags))
}

/// What the comparisons in all processes of a run came to.
#[derive(Default, Debug)]
struct Tally {
    same: u64,
    differ: u64,
    shorter: u64,
    cut: u64,
    short: u64,
    nested: u64,
    text: String,
}

/// Runs a program under the checker; it must end well.
fn compare(checker: &Path, test: &str, command: &mut Command, more: &[(&str, &str)]) -> (Tally, String) {
    let dir = support::fresh_dir(test);
    let told = dir.join("told.txt");
    command.env("LD_PRELOAD", checker).env("UNWIND_CHECK", &told).current_dir(&dir).envs(more.iter().copied());
    let out = command.output().expect("start");
    let said = lossy(&out.stdout);
    assert!(out.status.success(), "{test}: {:?} signal {:?}\n{said}\n{}", out.status, out.status.signal(), lossy(&out.stderr));
    let text = fs::read_to_string(&told).unwrap_or_default();
    let mut t = Tally::default();
    for line in text.lines().filter(|l| l.starts_with("same ")) {
        let words: HashMap<&str, u64> =
            line.split_whitespace().collect::<Vec<_>>().chunks(2).filter_map(|w| Some((*w.first()?, w.get(1)?.parse().ok()?))).collect();
        for (name, sum) in [
            ("same", &mut t.same),
            ("differ", &mut t.differ),
            ("shorter", &mut t.shorter),
            ("cut", &mut t.cut),
            ("short", &mut t.short),
            ("nested", &mut t.nested),
        ] {
            *sum += words.get(name).copied().unwrap_or(0);
        }
    }
    t.text = text;
    (t, said)
}

/// At least 999 of 1,000 stacks are the same.
fn agree(what: &str, t: &Tally) {
    assert!(t.same > 0 && t.differ + t.shorter <= t.same / 1000, "{what}:\n{}", t.text);
    eprintln!("{what}: {} same, {} differ, {} shorter, {} cut, {} short, {} nested", t.same, t.differ, t.shorter, t.cut, t.short, t.nested);
}

/// The last one's code is in six segments, at fixed places.
const BUILDS: [(&str, &[&str]); 4] = [
    ("o2", &["-O2", "-fomit-frame-pointer"]),
    ("o0", &["-O0"]),
    ("fp", &["-O3", "-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer"]),
    (
        "far",
        &[
            "-O2",
            "-no-pie",
            "-fno-pie",
            "-DFAR",
            "-Wl,--section-start=.far1=0x100000,--section-start=.far2=0x200000,--section-start=.far3=0x300000",
        ],
    ),
];

/// Runs a mode of the corpus in each build.
fn corpus(test: &str, mode: &str, more: &[(&str, &str)], check: impl Fn(&str, &Tally)) {
    let Some(checker) = checker(test) else { return };
    support::build("unwind_part.c", "libunwind_part0.so", &["-O2", "-fPIC", "-shared", "-DSIZE=200"]);
    support::build("unwind_part.c", "libunwind_part1.so", &["-O2", "-fPIC", "-shared", "-DSIZE=232"]);
    support::build("unwind_resolver.c", "libunwind_resolver.so", &["-O2", "-fPIC", "-shared", "-Wl,-z,lazy"]);
    for (build, flags) in BUILDS {
        let program = support::build("unwind_corpus.cc", &format!("unwind_corpus_{build}"), flags);
        let what = format!("{test}-{build}");
        let (t, said) = compare(&checker, &what, Command::new(&program).arg(mode).arg(support::out_dir()), more);
        assert!(said.ends_with(&format!("done {mode}\n")), "{what}: {said}");
        check(&what, &t);
    }
}

macro_rules! corpora {
    ($($name:ident: $mode:literal;)*) => {
        $(#[test] fn $name() { corpus(stringify!($name), $mode, &[], agree); })*
    };
}

corpora! {
    frames_of_all_shapes: "shapes";
    recursion_and_trees: "recursion";
    exceptions_and_destructors_on_their_way: "exceptions";
    callbacks_through_the_c_library: "callbacks";
    lazily_bound_functions_with_resolvers: "resolver";
    forked_children: "forks";
}

#[test]
fn a_stack_is_cut_at_256_frames() {
    corpus("a_stack_is_cut_at_256_frames", "deep", &[], |what, t| {
        agree(what, t);
        assert!(t.cut > 0 && t.cut < t.same, "{what}: {} of {} are cut", t.cut, t.same);
    });
}

#[test]
fn handlers_of_signals_at_any_instant() {
    for (mode, again) in [("signals", false), ("altstack", false), ("jumps", false), ("signals", true), ("altstack", true), ("jumps", true)]
    {
        let more: &[(&str, &str)] = if again { &[("UNWIND_AGAIN", "1")] } else { &[] };
        corpus(&format!("handlers_{mode}_{again}"), mode, more, agree);
    }
}

#[test]
fn threads_with_stacks_of_many_sizes() {
    corpus("threads_with_stacks_of_many_sizes", "threads", &[("UNWIND_EVERY", "40")], agree);
}

#[test]
fn libraries_come_and_go_beside_threads_that_allocate() {
    corpus("libraries_come_and_go_beside_threads_that_allocate", "loading", &[("UNWIND_MODULES", "1")], agree);
}

#[test]
fn garbage_on_a_stack_is_survived() {
    corpus("garbage_on_a_stack_is_survived", "garbage", &[("UNWIND_ALONE", "1")], |what, t| assert!(t.same > 18_000, "{what}: {t:?}"));
}

#[test]
fn coroutines_are_walked_to_their_end() {
    corpus("coroutines_are_walked_to_their_end", "coroutines", &[], |what, t| {
        agree(what, t);
        assert_eq!(t.short, 0, "{what}: makecontext's is the outermost frame: {t:?}");
    });
}

#[test]
fn code_made_at_run_time_ends_the_stack_and_is_said_to() {
    corpus("code_made_at_run_time_ends_the_stack_and_is_said_to", "made", &[], |what, t| {
        assert_eq!((t.short, t.differ), (50, 0), "{what}: {t:?}\n{}", t.text);
    });
}

#[test]
fn libraries_come_and_go_in_the_same_place() {
    corpus("libraries_come_and_go_in_the_same_place", "libraries", &[("UNWIND_MODULES", "1")], |what, t| {
        agree(what, t);
        let parts: Vec<&str> = t.text.lines().filter(|l| l.starts_with("module ") && l.contains("libunwind_part")).collect();
        let gone = t.text.lines().filter(|l| l.starts_with("gone ")).count();
        assert!(parts.len() >= 2 && gone >= 2, "{what}:\n{}", t.text);
        let libc = t.text.lines().find(|l| l.contains("/libc.so.6")).expect("the C library");
        let words: Vec<&str> = libc.split(' ').collect();
        let [_, _, bias, start, end, build_id, path] = words[..] else { panic!("{libc}") };
        let notes = Command::new("readelf").args(["-n", path]).output().expect("readelf");
        assert!(lossy(&notes.stdout).contains(&format!("Build ID: {build_id}\n")), "{libc}");
        let number = |hex| u64::from_str_radix(hex, 16).expect("a number");
        let headers = Command::new("readelf").args(["-lW", path]).output().expect("readelf");
        let code = lossy(&headers.stdout);
        let code: Vec<&str> = code.lines().find(|l| l.contains("LOAD") && l.contains(" R E ")).expect("code").split_whitespace().collect();
        assert_eq!(number(start) - number(bias), number(&code[2][2..]), "{libc}");
        assert_eq!(number(end) - number(start), number(&code[5][2..]), "{libc}");
        for wanted in [format!("/unwind_corpus_{}", what.rsplit('-').next().expect("a build")), "[vdso]".to_owned()] {
            assert!(t.text.lines().any(|l| l.starts_with("module ") && l.ends_with(&wanted)), "{wanted}:\n{}", t.text);
        }
    });
}

#[test]
fn real_programs() {
    let test = "real_programs";
    let Some(checker) = checker(test) else { return };
    let source = support::root().join("tests/programs/unwind_corpus.cc");
    let source = source.to_str().expect("a path");
    let programs: [(&str, &[&str]); 5] = [
        ("ls", &["-la", "/usr/lib"]),
        ("g++", &["-O2", "-c", "-w", "-o", "x.o", source]),
        ("perl", &["-e", "@a = map { \"x$_\" } 1 .. 1000; print sort @a"]),
        ("sqlite3", &[":memory:", "create table t(a); insert into t values (1), (2); select * from t order by a"]),
        ("git", &["--version"]),
    ];
    for (program, args) in programs {
        if support::lacks(test, &[Need::Command(program)]) {
            continue;
        }
        let every: &[(&str, &str)] = if program == "g++" { &[("UNWIND_EVERY", "10")] } else { &[] };
        let (t, _) = compare(&checker, &format!("{test}-{program}"), Command::new(program).args(args), every);
        agree(program, &t);
    }
}

#[test]
fn python_with_and_without_numpy() {
    let test = "python_with_and_without_numpy";
    let Some(checker) = checker(test) else { return };
    let Some(python) = support::python() else { return support::skip(test, "needs python3") };
    let plain = "import json, re, threading; t = [threading.Thread(target=json.dumps, args=(list(range(1000)),)) for _ in range(4)]; [x.start() for x in t]; [x.join() for x in t]; print(len(re.findall('a+', 'aab' * 100)))";
    let numpy = "import numpy as np; a = np.random.rand(150, 150); np.linalg.svd(a); np.fft.fft(a); np.sort(a.ravel())";
    for (name, code, needs) in [("plain", plain, &[][..]), ("numpy", numpy, &[Need::Module("numpy")][..])] {
        if support::lacks(test, needs) {
            continue;
        }
        for (how, more) in [("counted", &[][..]), ("uncounted", &[("UNWIND_UNCOUNTED", "1")][..])] {
            let (t, _) = compare(&checker, &format!("{test}-{name}-{how}"), Command::new(python).args(["-c", code]), more);
            agree(&format!("{name}, {how}"), &t);
        }
    }
}
