//! Promises about Python functions that are phases by rule, for each interpreter that is installed (pyenv's, and the one that other tests
//! use): each time counted, nothing that a function's locals held is left behind, and nothing that looks at frames sees anything else.

mod support;

#[allow(dead_code)]
#[path = "../shim/src/phases/python/fields.rs"]
mod fields;

use fields::{Fields, NONE};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::pyrules::{KEEPS, MINORS, by_name, notes, report, run, script, with_each};
use support::{lossy, pyenv, root};

const INLINED: [(&str, u16); 8] = {
    let i = fields::INLINED;
    [
        ("function", i.function),
        ("first_local", i.first_local),
        ("function_code", i.function_code),
        ("arguments", i.arguments),
        ("named_arguments", i.named_arguments),
        ("all_locals", i.all_locals),
        ("exceptions", i.exceptions),
        ("traces", i.traces),
    ]
};

#[test]
fn the_offsets_are_those_of_the_headers() {
    let dir = support::fresh_dir("the_offsets_are_those_of_the_headers");
    for minor in MINORS {
        let Some(python) = pyenv(minor) else {
            support::skip(&format!("the_offsets_are_those_of_the_headers (3.{minor})"), "needs pyenv's");
            continue;
        };
        let made = dir.join(format!("layout{minor}"));
        let includes = includes(&python);
        let out = Command::new("gcc").args(["-w", "-o"]).arg(&made).args(&includes).arg(script("layout.c")).output().expect("run gcc");
        assert!(out.status.success(), "3.{minor}: {}", lossy(&out.stderr));
        let out = Command::new(&made).output().expect("run the built program");
        let said = lossy(&out.stdout);
        let mut said: BTreeMap<&str, i64> =
            said.lines().filter_map(|l| l.split_once(' ')).map(|(n, v)| (n, v.parse().expect("a number"))).collect();
        let version = said.remove("version").expect("a version") as u16;
        let Fields {
            code,
            globals,
            locals,
            frame_object,
            owner,
            stack_top,
            state,
            flags,
            constants,
            name,
            filename,
            first_line,
            eval_frame,
            calls_left,
            calls,
            monitoring,
            return_tools,
        } = fields::of(version).expect("a version that is known");
        let generator = if owner == NONE { None } else { Some(fields::GENERATOR_STATE as i64) };
        assert_eq!(said.remove("generator_state"), generator, "3.{minor}");
        let inlined = said.keys().filter(|n| n.starts_with("inlined_")).count();
        assert_eq!(inlined, if minor == 11 { INLINED.len() } else { 0 }, "3.{minor}");
        for (name, offset) in INLINED.iter().filter(|_| minor == 11) {
            assert_eq!(said.remove(format!("inlined_{name}").as_str()), Some(*offset as i64), "{name}");
        }
        assert!(said.remove("type").is_some_and(|size| size <= fields::TYPE as i64), "3.{minor}");
        let ours: BTreeMap<&str, i64> = [
            ("code", code),
            ("globals", globals),
            ("locals", locals),
            ("frame_object", frame_object),
            ("owner", owner),
            ("stack_top", stack_top),
            ("state", state),
            ("flags", flags),
            ("constants", constants),
            ("name", name),
            ("filename", filename),
            ("first_line", first_line),
            ("eval_frame", eval_frame),
            ("calls_left", calls_left),
            ("calls", calls),
            ("monitoring", monitoring),
            ("return_tools", return_tools),
            ("interpreter", fields::INTERPRETER),
            ("items", if minor > 13 { fields::ITEMS + 8 } else { fields::ITEMS }),
            ("type_name", fields::TYPE_NAME as u16),
            ("type_size", fields::TYPE_SIZE as u16),
            ("type_dealloc", fields::TYPE_DEALLOC as u16),
        ]
        .into_iter()
        .filter(|(_, v)| *v != NONE)
        .map(|(n, v)| (n, v.into()))
        .collect();
        assert_eq!(ours, said, "3.{minor}");
    }
}

fn includes(python: &Path) -> Vec<String> {
    let ask = "import sysconfig as s; print(s.get_path('include'))";
    let out = Command::new(python).args(["-c", ask]).output().expect("run Python");
    let include = lossy(&out.stdout).trim().to_owned();
    vec!["-I".into(), include.clone(), "-I".into(), include + "/internal"]
}

#[test]
fn each_time_that_a_function_runs_is_a_phase() {
    let name = "each_time_that_a_function_runs_is_a_phase";
    with_each(name, MINORS, |python, version| {
        let dir = support::fresh_dir(&format!("{name}/{version}"));
        let rules = "counts:solve\n counts:SCF*,__main__:numbers,counts:[!x],counts:catches,counts:delegates,count?:fails,\
                     *:recursive,counts:leaf,counts:work,nosuch:thing,counts:never";
        let ran = run(Command::new(python).arg(script("counts.py")), &dir, rules);
        let said = lossy(&ran.stdout);
        assert_eq!((ran.end(), ran.stderr.is_empty()), ("exit 0".into(), true), "{version}: {}", lossy(&ran.stderr));
        let by_main = ["numbers", "recursive"];
        let truth: BTreeMap<String, i64> = said
            .lines()
            .filter_map(|l| l.rsplit_once(' '))
            .map(|(n, v)| (format!("{}:{n}", if by_main.contains(&n) { "__main__" } else { "counts" }), v.parse().expect("a number")))
            .collect();
        let run = report(&dir);
        assert_eq!(by_name(&run, "count"), truth, "{version}");
        let unmet: Vec<&str> = notes(&run).iter().filter_map(|n| n.split_once(' ')).map(|n| n.0).collect();
        assert_eq!(unmet, ["counts:[!x]", "nosuch:thing", "counts:never"], "{version}");
        let all = run["notes"].as_array().expect("notes");
        let keeps = all.iter().any(|n| n.as_str().is_some_and(|n| n.starts_with(KEEPS)));
        assert_eq!(keeps, run["python"]["version"].as_str().is_some_and(|v| v.starts_with("3.11.")), "{version}");
    });
}

#[test]
fn what_locals_held_is_not_left_behind() {
    let name = "what_locals_held_is_not_left_behind";
    with_each(name, MINORS, |python, version| {
        let dir = support::fresh_dir(&format!("{name}/{version}"));
        let ran = run(Command::new(python).arg(script("locals.py")), &dir, "locals:*");
        assert_eq!(ran.end(), "exit 0", "{version}: {}", lossy(&ran.stderr));
        let mut left = by_name(&report(&dir), "heap_persistent_bytes");
        // The list of what is kept grew, by an array of pointers.
        let stage = left.remove("locals:stage").expect("a phase");
        assert!((1_500_000..1_501_000).contains(&stage), "{version}: {stage}");
        // A traceback holds the frame. What was allocated for it may be more.
        let raises = left.remove("locals:raises").expect("a phase");
        assert!((400_000..402_000).contains(&raises), "{version}: {raises}");
        let expected = [
            ("locals:Noisy.__del__", 0),
            // Three stages of 1 + 2 + ½ MB, and what the others asked for.
            ("locals:block", 3 * 3_500_000 + 2_000_000 + 100_000 + 300_000 + 2 * 500_000 + 700_000 + 400_000),
            ("locals:gives", 2_000_000),
            ("locals:inner", 0),
            ("locals:noisy", 0),
            // What a generator holds from one time to the next is gone at its end.
            ("locals:numbers", 0),
            ("locals:waits", 0),
        ];
        assert_eq!(left, expected.map(|(n, v)| (n.to_owned(), v)).into(), "{version}");
    });
}

/// Another tool may be told of a return after us: then the end comes before the locals go, and the reader leaves out what goes at once.
#[test]
fn what_locals_held_is_not_left_behind_beside_another_tool() {
    let name = "what_locals_held_is_not_left_behind_beside_another_tool";
    let program = "import runpy, sys\nsys.monitoring.use_tool_id(0, 'test')\nrunpy.run_path(sys.argv[1], run_name='locals')";
    for minor in 12..=14 {
        let Some(python) = pyenv(minor) else {
            support::skip(&format!("{name} (3.{minor})"), "needs pyenv's");
            continue;
        };
        let dir = support::fresh_dir(&format!("{name}/3.{minor}"));
        let ran = run(Command::new(python).args(["-c", program]).arg(script("locals.py")), &dir, "locals:stage,locals:waits");
        assert_eq!(ran.end(), "exit 0", "3.{minor}: {}", lossy(&ran.stderr));
        let left = by_name(&report(&dir), "heap_persistent_bytes");
        assert!((1_500_000..1_501_000).contains(&left["locals:stage"]) && left["locals:waits"] == 0, "3.{minor}: {left:?}");
    }
}

#[test]
fn who_looks_at_frames_sees_what_he_saw() {
    let name = "who_looks_at_frames_sees_what_he_saw";
    with_each(name, MINORS, |python, version| {
        let dir = support::fresh_dir(&format!("{name}/{version}"));
        let mut said = ["", "traced:solve,traced:run,traced:gen,traced:fails"].map(|rules| {
            let ran = run(Command::new(python).arg(script("traced.py")), &dir, rules);
            assert_eq!(ran.end(), "exit 0", "{version}: {}", lossy(&ran.stderr));
            lossy(&ran.stdout) + &lossy(&ran.stderr)
        });
        let [bare, with] = &mut said;
        assert!(bare.len() > 1500 && bare == with, "{version}:\n{bare}\n{with}");
        let times = by_name(&report(&dir), "count");
        // From 3.12 on once for each of four tools.
        let runs = if with.contains("\n5 solve") { 7 } else { 3 };
        let expected = [("traced:fails", runs + 1), ("traced:gen", 3 * runs), ("traced:run", runs), ("traced:solve", runs)];
        assert_eq!(times, expected.map(|(n, v)| (n.to_owned(), v)).into(), "{version}");
    });
}

const COVERAGE: &str = "import coverage, runpy, sys; c = coverage.Coverage(branch=True, data_file=None); c.start(); \
                        runpy.run_path(sys.argv[1], run_name='__main__'); c.stop(); c.report(file=sys.stdout, show_missing=True)";

/// Tools that programs are looked at with, as arguments of Python, and the module that has to be there.
const TOOLS: [(&str, &[&str]); 6] = [
    (
        "pdb",
        &[
            "-m",
            "pdb",
            "-c",
            "b looked_at.solve",
            "-c",
            "c",
            "-c",
            "p n",
            "-c",
            "w",
            "-c",
            "n",
            "-c",
            "p x",
            "-c",
            "r",
            "-c",
            "up",
            "-c",
            "l",
            "-c",
            "cl 1",
            "-c",
            "c",
            "-c",
            "q",
        ],
    ),
    ("cProfile", &["-m", "cProfile", "-s", "name"]),
    ("trace", &["-m", "trace", "--trace"]),
    ("trace", &["-m", "trace", "--count", "--summary", "--missing", "-C", "counts"]),
    ("pytest", &["-m", "pytest", "-p", "no:cacheprovider"]),
    ("coverage", &["-c", COVERAGE]),
];

/// What an interpreter prints, if it ends well.
fn asked(python: &Path, code: &str, path: &OsString) -> Option<String> {
    let said = Command::new(python).args(["-c", code]).env("PYTHONPATH", path).stdin(Stdio::null()).output().ok()?;
    said.status.success().then(|| lossy(&said.stdout).trim().to_owned())
}

#[test]
fn tools_see_what_they_saw() {
    let name = "tools_see_what_they_saw";
    // Those that are not Python's own are lent to later interpreters by the one that may have them: what they need of theirs is Python alone.
    let lent = support::python().and_then(|p| asked(p, "print(__import__('sysconfig').get_path('purelib'))", &"".into()));
    let tools = |python: &Path, version: &str| {
        let is_later = asked(python, "print(__import__('sys').version_info >= (3, 11))", &"".into()).is_some_and(|said| said == "True");
        let folders = [Some(root().join("tests/pyrules")), lent.as_ref().filter(|_| is_later).map(PathBuf::from)];
        let path = std::env::join_paths(folders.iter().flatten()).expect("folders");
        for (tool, words) in TOOLS {
            if asked(python, &format!("import {tool}"), &path).is_none() {
                support::skip(&format!("{name} ({version}, {tool})"), "needs that module");
                continue;
            }
            let dir = support::fresh_dir(&format!("{name}/{version}"));
            let said = ["", "__main__:*,looked_at:*"].map(|rules| {
                let mut command = Command::new(python);
                command.args(words).arg(script("looked_at.py")).env("PYTHONPATH", &path).env("COLUMNS", "100");
                let ran = run(&mut command, &dir, rules);
                (ran.end(), timeless(&(lossy(&ran.stdout) + &lossy(&ran.stderr))))
            });
            assert!(said[0].1.len() > 60 && said[0] == said[1], "{version} {words:?}:\n{}\n{}", said[0].1, said[1].1);
        }
    };
    with_each(name, MINORS, tools);
    // The one that may have what is not Python's own.
    if let Some(python) = support::python().filter(|_| !support::lacks(name, &[support::Need::Preload])) {
        tools(python, "default");
    }
}

/// A text without what differs from run to run: times, addresses.
fn timeless(text: &str) -> String {
    let word = |w: &str| {
        let number = w.trim_end_matches(['s', ',', ')', '=']).trim_start_matches('(');
        let time = number.contains('.') && number.parse::<f64>().is_ok();
        if time || w.contains("0x") { "·" } else { w }.to_owned()
    };
    text.lines().map(|l| l.split_whitespace().map(word).collect::<Vec<_>>().join(" ") + "\n").collect()
}

#[test]
fn children_tell_of_their_own_phases() {
    let name = "children_tell_of_their_own_phases";
    with_each(name, MINORS, |python, version| {
        let dir = support::fresh_dir(&format!("{name}/{version}"));
        let ran = run(Command::new(python).arg(script("children.py")), &dir, "children:*,no:such");
        assert_eq!((ran.end(), ran.stderr.is_empty()), ("exit 0".into(), true), "{version}: {}", lossy(&ran.stderr));
        let text = support::analyze(&dir.join("trace.jsonl")).expect("a report");
        let report: Value = serde_json::from_str(&text).expect("JSON");
        let runs = report["runs"].as_array().expect("runs");
        // Helpers of multiprocessing's have none; what stands there is seen from memory alone.
        let has_some = |r: &&Value| r["phases"].as_array().is_some_and(|all| all.iter().any(|p| p["source"] == "python"));
        let mut all: Vec<_> = runs.iter().filter(has_some).map(|r| by_name(r, "count").into_iter().collect::<Vec<_>>()).collect();
        all.sort();
        let named = |all: &[(&str, i64)]| all.iter().map(|(n, v)| (format!("children:{n}"), *v)).collect::<Vec<_>>();
        let worker = named(&[("solve", 3), ("work", 1)]);
        assert_eq!(all, [named(&[("forks", 1)]), named(&[("solve", 1)]), worker.clone(), worker], "{version}");
        // A helper of multiprocessing's may still run, but nobody ends what he did not begin.
        let missing: Vec<_> = runs.iter().flat_map(|r| r["missing"].as_array().into_iter().flatten()).map(|m| &m["what"]).collect();
        assert!(!missing.iter().any(|m| **m == "ends of phases"), "{version}: {missing:?}");
        // Once, not by each process, and not of the rule that others met.
        let said: Vec<&str> = runs.iter().flat_map(notes).collect();
        assert_eq!(said, ["no:such (MEMSHIM_PHASE_PY): no function of that name ran"], "{version}");
    });
}

/// 3.11 calls from Python to Python without the C stack; with another function that evaluates frames it needs it.
#[test]
fn a_recursion_goes_as_deep_as_before() {
    let name = "a_recursion_goes_as_deep_as_before";
    with_each(name, MINORS, |python, version| {
        for (rules, all) in [("depth:solve", true), ("depth:*", false)] {
            let dir = support::fresh_dir(&format!("{name}/{version}"));
            let ran = run(Command::new(python).arg(script("depth.py")), &dir, rules);
            assert_eq!((ran.end(), lossy(&ran.stdout).as_str()), ("exit 0".into(), "0\n"), "{version}: {}", lossy(&ran.stderr));
            if all {
                assert_eq!(by_name(&report(&dir), "count")["depth:solve"], 7, "{version}");
            }
        }
    });
}

#[test]
fn an_interpreter_that_comes_late_is_found_each_time() {
    let name = "an_interpreter_that_comes_late_is_found_each_time";
    let dir = support::fresh_dir(name);
    let made = dir.join("embed");
    let out = Command::new("gcc").args(["-w", "-pthread", "-o"]).arg(&made).arg(script("embed.c")).arg("-ldl").output().expect("run gcc");
    assert!(out.status.success(), "{}", lossy(&out.stderr));
    for minor in MINORS {
        let library = pyenv(minor).and_then(|p| {
            let home = p.parent()?.parent()?.to_owned();
            let lib = std::fs::read_dir(home.join("lib")).ok()?.flatten().map(|e| e.path());
            let named = |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&format!("libpython3.{minor}")));
            Some((lib.filter(named).max()?, home))
        });
        let Some((library, home)) = library else {
            support::skip(&format!("{name} (3.{minor})"), "needs pyenv's, with a shared library");
            continue;
        };
        let dir = support::fresh_dir(&format!("{name}.{minor}"));
        let ran = run(Command::new(&made).arg(&library).env("PYTHONHOME", home), &dir, "__main__:solve");
        assert_eq!((ran.end(), lossy(&ran.stdout).as_str()), ("exit 0".into(), "ended 0\nended 0\n"), "3.{minor}: {}", lossy(&ran.stderr));
        assert_eq!(by_name(&report(&dir), "count")["__main__:solve"], 6, "3.{minor}");
    }
}

#[test]
fn another_function_that_evaluates_frames_goes_in_front() {
    let name = "another_function_that_evaluates_frames_goes_in_front";
    for minor in 9..=14 {
        let Some(python) = pyenv(minor) else {
            support::skip(&format!("{name} (3.{minor})"), "needs pyenv's");
            continue;
        };
        let dir = support::fresh_dir(&format!("{name}/3.{minor}"));
        let library = dir.join("libchain.so");
        let mut gcc = Command::new("gcc");
        gcc.args(["-w", "-shared", "-fPIC", "-o"]).arg(&library).args(includes(&python)).arg(script("chain.c"));
        let out = gcc.output().expect("run gcc");
        assert!(out.status.success(), "3.{minor}: {}", lossy(&out.stderr));
        let program = "import ctypes, sys\nl = ctypes.PyDLL(sys.argv[1])\ndef solve(n): return n\nsolve(1)\nl.install()\nfor i in range(10): solve(i)\n\
                       n = l.remove_again()\nsolve(2)\nprint(n >= 10)";
        let ran = run(Command::new(&python).args(["-c", program]).arg(&library), &dir, "__main__:solve");
        assert_eq!((ran.end(), lossy(&ran.stdout).as_str()), ("exit 0".into(), "True\n"), "3.{minor}: {}", lossy(&ran.stderr));
        assert_eq!(by_name(&report(&dir), "count")["__main__:solve"], 12, "3.{minor}");
    }
}

/// Code objects that are watched are written into files as the compiler made them.
#[test]
fn what_is_compiled_is_what_it_was() {
    let name = "what_is_compiled_is_what_it_was";
    let program = "import marshal, sys\ns = open(sys.argv[1]).read()\nc = compile(s, 'x.py', 'exec')\nexec(c, {'__name__': 'x'})\n\
                   sys.stdout.buffer.write(marshal.dumps(c) + marshal.dumps(compile(s, 'x.py', 'exec')))\nassert c == compile(s, 'x.py', 'exec')";
    with_each(name, MINORS, |python, version| {
        let dir = support::fresh_dir(&format!("{name}/{version}"));
        let [bare, with] = ["", "x:*"].map(|rules| run(Command::new(python).args(["-c", program]).arg(script("counts.py")), &dir, rules));
        assert_eq!((bare.end(), with.end()), ("exit 0".into(), "exit 0".into()), "{version}: {}", lossy(&with.stderr));
        assert!(bare.stdout.len() > 2000 && bare.stdout == with.stdout, "{version}");
    });
}
