//! Promises about the shim's walk along Python frames (`shim/src/python`), for each interpreter that is installed: the layouts it knows are
//! the headers', it sees what `sys._getframe()` sees, and it survives being made at any allocation.
//!
//! Interpreters are those of pyenv (`PYENV_ROOT`, else `~/.pyenv`), and the one that other tests use.
#![allow(clippy::duplicate_mod)]
mod support;

#[allow(dead_code)]
#[path = "../shim/src/python"]
mod python {
    pub mod layout;
    pub mod offsets;
}

use python::layout::{self, Layout, NONE};
use python::offsets;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use support::{Session, pyenv as interpreter, root};

const MINORS: std::ops::RangeInclusive<u32> = 7..=14;
/// Builds without a global lock.
const FREE_THREADED: std::ops::RangeInclusive<u32> = 13..=14;

/// Runs `test` with each interpreter, in threads; those that are missing are said.
fn with_each(name: &str, test: impl Fn(&Path, &str) + Sync) {
    std::thread::scope(|s| {
        for minor in MINORS {
            match interpreter(minor) {
                None => support::skip(&format!("{name} (3.{minor})"), "needs pyenv's"),
                Some(python) => {
                    let test = &test;
                    s.spawn(move || test(&python, &format!("3.{minor}")));
                }
            }
        }
        for minor in FREE_THREADED {
            match support::pyenv_free_threaded(minor) {
                None => support::skip(&format!("{name} (3.{minor}t)"), "needs pyenv's"),
                Some(python) => {
                    let test = &test;
                    s.spawn(move || test(&python, &format!("3.{minor}t")));
                }
            }
        }
        if let Some(python) = support::python() {
            test(Path::new(python), "default");
        }
    });
}

/// Builds a C program of `tests/pyframes` with an interpreter's headers and library.
fn build(python: &Path, source: &str, made: &Path) {
    let ask = "import sysconfig as s; print(s.get_path('include'), s.get_config_var('LIBDIR'), s.get_config_var('LDVERSION'))";
    let out = Command::new(python).args(["-c", ask]).output().expect("run Python");
    let said = support::lossy(&out.stdout);
    let [include, lib, version] = said.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{said}") };
    let mut gcc = Command::new("gcc");
    gcc.args(["-w", "-pthread", "-I", include, "-I", &format!("{include}/internal"), "-o"]).arg(made);
    gcc.arg(root().join("tests/pyframes").join(source)).args(["-L", lib, &format!("-Wl,-rpath,{lib}"), &format!("-lpython{version}")]);
    let out = gcc.output().expect("run gcc");
    assert!(out.status.success(), "{}: {}", python.display(), support::lossy(&out.stderr));
}

/// The walk as a library of its own.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = support::release();
        let target = target.parent().expect("a folder above release");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--release", "--quiet", "--package", "memshim-pyframes", "--target-dir"]).arg(target).current_dir(root());
        let out = build.output().expect("run cargo");
        assert!(out.status.success(), "{}", support::lossy(&out.stderr));
        target.join("release/libpyframes.so")
    })
}

#[test]
fn the_layouts_are_those_of_the_headers() {
    let dir = support::fresh_dir("the_layouts_are_those_of_the_headers");
    for minor in MINORS {
        let name = format!("the_layouts_are_those_of_the_headers (3.{minor})");
        let Some(python) = interpreter(minor) else {
            support::skip(&name, "needs pyenv's");
            continue;
        };
        let made = dir.join(format!("layout{minor}"));
        build(&python, "layout.c", &made);
        let out = Command::new(&made).output().expect("run the built program");
        assert!(out.status.success(), "3.{minor}");
        let (mut fields, mut words) = (BTreeMap::new(), Vec::new());
        for line in support::lossy(&out.stdout).lines() {
            let (name, value) = line.rsplit_once(' ').expect("a name and a number");
            let value: u64 = value.parse().expect("a number");
            if name == "word" { words.push(value) } else { assert_eq!(fields.insert(name.to_owned(), value), None) }
        }
        let number = 0x0300 | minor as u16;
        assert_eq!(fields.remove("version"), Some(u64::from(number)));
        let ours = match layout::of(number) {
            Some(layout) => layout,
            // SAFETY: as many words as it reads.
            None => unsafe { offsets::read(words.as_ptr(), number) }.expect("a layout that is known").0,
        };
        let Layout { unicode_kind_bit, shim_owner, .. } = ours;
        let kind = fields.remove("unicode_kind_bit");
        assert_eq!(kind, Some(u64::from(unicode_kind_bit)), "3.{minor}");
        if let Some(owner) = fields.remove("shim_owner") {
            assert_eq!(owner, u64::from(shim_owner), "3.{minor}");
        }
        assert_eq!(named(&ours), fields, "3.{minor}");
    }
}

/// The offsets of a layout by name, without those that the version does not have.
fn named(l: &Layout) -> BTreeMap<String, u64> {
    macro_rules! all {
        ($($field:ident)*) => { [$((stringify!($field), l.$field)),*] };
    }
    let all = all!(thread_id top cframe_current cframe_previous stack_chunk stack_top previous code instr entry owner filename name qualname firstlineno lines start stamp finalizing object_type
        unicode_length unicode_state unicode_ascii unicode_compact bytes_size bytes_data code_size);
    all.into_iter().filter(|(_, at)| *at != NONE).map(|(name, at)| (name.to_owned(), u64::from(at))).collect()
}

#[test]
fn the_walk_sees_what_python_sees() {
    let library = library();
    with_each("the_walk_sees_what_python_sees", |python, version| {
        let dir = support::fresh_dir(&format!("the_walk_sees_what_python_sees/{version}"));
        let mut command = Command::new(python);
        command.arg(root().join("tests/pyframes/frames.py")).arg(library).current_dir(&dir);
        let ran = Session::start(&mut command, &dir).finish(Duration::from_secs(60));
        let said = support::lossy(&ran.stdout);
        assert_eq!(ran.end(), "exit 0", "{version}: {said}{}", support::lossy(&ran.stderr));
        let compared: u32 = said.lines().last().and_then(|l| l.strip_suffix(" compared")?.parse().ok()).expect("how many were compared");
        assert!(compared > 5000 && !said.contains("subinterpreter:"), "{version}: {said}");
        if said.contains("skipped: no greenlet") {
            support::skip(&format!("the_walk_sees_what_python_sees ({version}, greenlet)"), "needs that module");
        }
    });
}

#[test]
fn a_walk_at_any_allocation_is_harmless() {
    let library = library();
    with_each("a_walk_at_any_allocation_is_harmless", |python, version| {
        let free_threaded = support::is_free_threaded(python);
        for heap in if free_threaded { ["mimalloc", "mimalloc_debug"] } else { ["pymalloc", "malloc"] } {
            let dir = support::fresh_dir(&format!("a_walk_at_any_allocation_is_harmless/{version}-{heap}"));
            let mut command = Command::new(python);
            command.arg("-Wignore").arg(root().join("tests/pyframes/storm.py")).current_dir(&dir);
            // Freed memory is overwritten at once: a stale pointer would lead to nonsense.
            command.env("PYFRAMES_STORM", "1").env("PYTHONMALLOC", heap).env("MALLOC_PERTURB_", "165").env("LD_PRELOAD", library);
            let ran = Session::start(&mut command, &dir).finish(Duration::from_secs(60));
            let (out, told) = (support::lossy(&ran.stdout), support::lossy(&ran.stderr));
            assert_eq!((ran.end().as_str(), out.as_str()), ("exit 0", "done\n"), "{version}: {told}");
            let counts = counts(&told);
            assert_eq!(counts.len(), 2, "{version}: {told}");
            // mimalloc does not ask malloc: what does is less, and a half of it the collector's own at the end, when no frame is left.
            let (share, many) = if free_threaded { (2, 100) } else { (3, 500) };
            for [walks, deep, codes, broken] in counts {
                assert!(walks > 5000 && deep > walks * share / 4 && codes > many && broken == 0, "{version}: {told}");
            }
        }
    });
}

/// Also those of frames that are being made and left: what a handler sees of them is a stack, or a short one.
#[test]
fn a_walk_at_any_instruction_is_harmless() {
    let library = library();
    with_each("a_walk_at_any_instruction_is_harmless", |python, version| {
        let dir = support::fresh_dir(&format!("a_walk_at_any_instruction_is_harmless/{version}"));
        let mut command = Command::new(python);
        command.arg(root().join("tests/pyframes/signals.py")).current_dir(&dir);
        command.env("PYFRAMES_STORM", "signals").env("MALLOC_PERTURB_", "165").env("LD_PRELOAD", library);
        let ran = Session::start(&mut command, &dir).finish(Duration::from_secs(60));
        let (out, told) = (support::lossy(&ran.stdout), support::lossy(&ran.stderr));
        assert_eq!((ran.end().as_str(), out.as_str()), ("exit 0", "done\n"), "{version}: {told}");
        let counts = counts(&told);
        let [[walks, deep, _, broken]] = counts[..] else { panic!("{version}: {told}") };
        // See above: a free-threaded interpreter takes longer to end.
        let share = if support::is_free_threaded(python) { 3 } else { 2 };
        assert!(walks > 2000 && deep > walks / share && broken < walks / 100, "{version}: {told}");
    });
}

/// From 3.12 on interpreters in one process have locks of their own.
#[test]
fn interpreters_run_at_the_same_time() {
    let (library, name) = (library(), "interpreters_run_at_the_same_time");
    for minor in 12..=14 {
        let Some(python) = interpreter(minor) else {
            support::skip(&format!("{name} (3.{minor})"), "needs pyenv's");
            continue;
        };
        let dir = support::fresh_dir(&format!("{name}/3.{minor}"));
        let mut command = Command::new(python);
        command.arg("-Wignore").arg(root().join("tests/pyframes/inner.py")).current_dir(&dir);
        command.env("PYFRAMES_STORM", "1").env("PYTHONMALLOC", "malloc").env("MALLOC_PERTURB_", "165").env("LD_PRELOAD", library);
        let ran = Session::start(&mut command, &dir).finish(Duration::from_secs(60));
        let (out, told) = (support::lossy(&ran.stdout), support::lossy(&ran.stderr));
        assert_eq!((ran.end().as_str(), out.as_str()), ("exit 0", "done\n"), "3.{minor}: {told}");
        let counts = counts(&told);
        let [[walks, deep, _, broken]] = counts[..] else { panic!("3.{minor}: {told}") };
        assert!(walks > 100_000 && deep > walks / 2 && broken == 0, "3.{minor}: {told}");
    }
}

/// What processes said at their ends: walks, of them with frames, code objects, stacks that broke off.
fn counts(told: &str) -> Vec<[u64; 4]> {
    let number = |line: &str| line.split(|c: char| !c.is_ascii_digit()).filter_map(|w| w.parse().ok()).collect::<Vec<u64>>();
    told.lines().filter(|l| l.starts_with("storm: ")).map(|l| number(l).try_into().expect("four numbers")).collect()
}

#[test]
fn an_interpreter_may_come_and_go() {
    let (library, name) = (library(), "an_interpreter_may_come_and_go");
    for minor in MINORS {
        let Some(python) = interpreter(minor) else {
            support::skip(&format!("{name} (3.{minor})"), "needs pyenv's");
            continue;
        };
        let dir = support::fresh_dir(&format!("{name}/3.{minor}"));
        build(&python, "embed.c", &dir.join("embed"));
        let mut command = Command::new(dir.join("embed"));
        command.env("PYFRAMES_STORM", "1").env("PYTHONMALLOC", "malloc").env("MALLOC_PERTURB_", "165").env("LD_PRELOAD", library);
        command.env("PYTHONHOME", python.parent().and_then(Path::parent).expect("a prefix"));
        let ran = Session::start(&mut command, &dir).finish(Duration::from_secs(60));
        let (out, told) = (support::lossy(&ran.stdout), support::lossy(&ran.stderr));
        assert_eq!((ran.end().as_str(), out.as_str()), ("exit 0", "done\n"), "3.{minor}: {told}");
        let counts = counts(&told);
        let [[walks, deep, codes, broken]] = counts[..] else { panic!("3.{minor}: {told}") };
        assert!(walks > 50_000 && deep > walks / 4 && codes > 200 && broken == 0, "3.{minor}: {told}");
    }
}

/// Versions before 3.7 are named and left alone.
#[test]
fn an_unknown_interpreter_is_named_and_not_walked() {
    let (library, name) = (library(), "an_unknown_interpreter_is_named_and_not_walked");
    let ask = "import ctypes,sys\nl=ctypes.CDLL(sys.argv[1])\nb=ctypes.create_string_buffer(32)\nr=(ctypes.c_char*4800)()\n\
               print('%d %d' % (l.frames_seek(), l.frames_walk(r, 300, 0)))\nl.frames_version(b)\nprint(b.value.decode() == sys.version.split()[0])";
    match interpreter(6) {
        None => support::skip(name, "needs pyenv's 3.6"),
        Some(python) => {
            let out = Command::new(python).args(["-c", ask]).arg(library).output().expect("run Python");
            assert_eq!(support::lossy(&out.stdout), "0 0\nTrue\n", "{}", support::lossy(&out.stderr));
        }
    }
}

/// Of a version that is not known, and of a build of a known one whose types are of other sizes.
#[test]
fn a_report_says_which_interpreter_was_not_walked_and_has_its_native_stacks() {
    let test = "a_report_says_which_interpreter_was_not_walked_and_has_its_native_stacks";
    if support::lacks(test, &[support::Need::Preload]) {
        return;
    }
    for minor in [99, 15, 14, 11] {
        let dir = support::fresh_dir(&format!("{test}/3.{minor}"));
        let program = support::build("py_stand_in.c", &format!("py_stand_in_{minor}"), &["-rdynamic", &format!("-DMINOR={minor}")]);
        for stacks in ["mixed", "python"] {
            let mut command = Command::new(&program);
            command.env("LD_PRELOAD", support::shim()).env("MEMSHIM_MODE", "full").env("MEMSHIM_STACKS", stacks).current_dir(&dir);
            let ran = Session::start(&mut command, &dir).finish(Duration::from_secs(60));
            assert_eq!((ran.end(), support::lossy(&ran.stderr)), ("exit 0".into(), String::new()), "3.{minor}");
            let trace = dir.join("trace.jsonl");
            let report: serde_json::Value = serde_json::from_str(&support::analyze(&trace).expect("a report")).expect("JSON");
            let page = Command::new(support::memshim()).arg("analyze").arg(&trace).output().expect("memshim");
            let page = support::lossy(&page.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
            std::fs::remove_file(&trace).expect("a trace");
            let run = &report["runs"][0];
            assert_eq!(run["python"]["version"], format!("3.{minor}.0"), "{stacks}");
            let missing = run["missing"].as_array().expect("what is missing");
            let of_python = missing.iter().find(|m| m["what"] == "Python's frames").unwrap_or_else(|| panic!("3.{minor}: {missing:?}"));
            assert_eq!(of_python["why"], "memshim does not know this version of the interpreter", "3.{minor}");
            assert!(
                page.contains("memshim does not know this version of the interpreter") && page.contains(&format!("3.{minor}.0")),
                "{page}"
            );
            if stacks == "mixed" {
                let owner = &run["owners"][0];
                let of = (owner["frame"]["function"].as_str(), owner["live_at_peak_bytes"].as_u64());
                assert_eq!(of, (Some("keep"), Some(10_000_000)), "3.{minor}");
            }
        }
    }
}

/// Code objects lie in a table of parts: more than there is room for in the first ones, each has its own name and its own bytes.
#[test]
fn each_of_many_code_objects_has_its_name() {
    const CODES: usize = 6000;
    let test = "each_of_many_code_objects_has_its_name";
    let program = format!(
        "kept = [None] * {CODES}\nmade = {{}}\nfor i in range({CODES}):\n exec('def f%d():\\n kept[%d] = bytearray(70000 + %d)' % (i, i, i), {{'kept': kept}},          made)\nfor f in made.values(): f()"
    );
    if support::lacks(test, &[support::Need::Preload]) {
        return;
    }
    with_each(test, |python, version| {
        let dir = support::fresh_dir(&format!("{test}/{version}"));
        let trace = dir.join("t.jsonl");
        let mut command = Command::new(python);
        command.args(["-c", &program]).env("LD_PRELOAD", support::shim()).env("MEMSHIM_OUT", &trace);
        let status = command.env("MEMSHIM_MODE", "full").env("MEMSHIM_STACKS", "python").status().expect("run Python");
        assert!(status.success(), "{version}");
        let out = Command::new(support::memshim()).args(["export", "--to", "collapsed"]).arg(&trace).output().expect("memshim");
        // Each line ends in `:LINE fN BYTES`; a bytearray has one byte more.
        let sum_of = |line: &str| {
            let (way, bytes) = line.rsplit_once(' ')?;
            let number: u64 = way.rsplit_once(" f")?.1.parse().ok()?;
            Some((number, bytes.parse::<u64>().ok()?))
        };
        let told: BTreeMap<u64, u64> = support::lossy(&out.stdout).lines().filter_map(sum_of).collect();
        // Under a few of them the interpreter's own tables grow.
        let of = |n: &u64| told.get(n).copied().unwrap_or(0);
        let (lacking, more): (Vec<u64>, Vec<u64>) = (0..CODES as u64).filter(|n| of(n) != 70_001 + n).partition(|n| of(n) < 70_001 + n);
        assert!(lacking.is_empty() && more.len() <= 3, "{version}: {lacking:?} have less, {more:?} have more");
    });
}
