//! Promises about calls of Python functions while there are rules for phases: functions that no rule is for cost what they cost without,
//! arguments live as long, and who is called sees nothing.

mod support;

use std::path::Path;
use std::process::Command;
use support::pyrules::{KEEPS, MINORS, by_name, report, run, script, with_each};
use support::{Need, Ran, lossy, pyenv, python, root};

/// Runs a program with rules, none of them if there are none, and with memshim in any case; its report.
fn reported(command: &mut Command, dir: &Path, rules: &str) -> (Ran, serde_json::Value) {
    let rules = if rules.is_empty() { "nosuch:thing" } else { rules };
    let ran = run(command, dir, rules);
    assert_eq!(ran.end(), "exit 0", "{}", lossy(&ran.stderr));
    (ran, report(dir))
}

fn went_the_old_way(run: &serde_json::Value) -> bool {
    run["notes"].as_array().into_iter().flatten().any(|n| n.as_str().is_some_and(|n| n.starts_with(KEEPS)))
}

#[test]
fn functions_of_every_kind_are_called_as_without_rules() {
    let name = "functions_of_every_kind_are_called_as_without_rules";
    // Arguments by place only came with 3.8.
    with_each(name, *MINORS.start() + 1..=*MINORS.end(), |python, version| {
        let dir = support::fresh_dir(&format!("{name}/{version}"));
        let [bare, with] = ["", "plain:*"].map(|rules| run(Command::new(python).arg(script("plain.py")), &dir, rules));
        assert_eq!((bare.end(), with.end()), ("exit 0".into(), "exit 0".into()), "{version}: {}", lossy(&with.stderr));
        assert_eq!((lossy(&bare.stdout), lossy(&bare.stderr)), (lossy(&with.stdout), lossy(&with.stderr)), "{version}");
        let run = report(&dir);
        let counts = by_name(&run, "count");
        let said = lossy(&with.stdout);
        let truth: Vec<(&str, i64)> = said
            .split("--\n")
            .nth(1)
            .expect("counts")
            .lines()
            .filter_map(|l| l.rsplit_once(' '))
            .map(|(n, v)| (n, v.parse().expect("a number")))
            .collect();
        assert!(truth.len() >= 15, "{said}");
        for (function, n) in truth {
            assert_eq!(counts.get(&format!("plain:{function}")), Some(&n), "{version} {function}");
        }
        assert!(!went_the_old_way(&run), "{version}");
    });
}

/// A frame hands its arguments over; with a function that evaluates frames 3.11 holds them in the caller too.
#[test]
fn a_rule_keeps_no_argument_alive() {
    let name = "a_rule_keeps_no_argument_alive";
    const BLOCK: i64 = 20_000_000;
    let program = "def block(n): return bytearray(n)\n\
                   def used(data):\n data = None\n return len(block(20_000_000))\n\
                   def other(data):\n data = None\n return len(block(20_000_000))\n\
                   used(block(20_000_000))\nother(block(20_000_000))\nused(data=block(20_000_000))\nlist(map(len, [b'']))";
    with_each(name, MINORS, |python, version| {
        let dir = support::fresh_dir(&format!("{name}/{version}"));
        let peaks = ["", "__main__:used", "__main__:*", "__main__:<module>,__main__:used"].map(|rules| {
            let (_, run) = reported(Command::new(python).args(["-c", program]), &dir, rules);
            assert!(!went_the_old_way(&run), "{version} {rules}");
            run["heap"]["peak_bytes"].as_i64().expect("a number")
        });
        // Up to 3.10 callers hold them always.
        let said = report(&dir)["python"]["version"].as_str().expect("a version").to_owned();
        let minor: u32 = said.split('.').nth(1).expect("a minor version").parse().expect("a number");
        let blocks = if minor < 11 { 2 } else { 1 };
        for peak in peaks {
            assert!((blocks * BLOCK..blocks * BLOCK + BLOCK / 4).contains(&peak), "{version}: {peaks:?}");
        }
    });
}

#[test]
fn the_example_has_the_peak_that_it_has_without_rules() {
    let name = "the_example_has_the_peak_that_it_has_without_rules";
    let example = root().join("examples/covariance.py");
    // One without numpy, and the one that may have it.
    for (which, python) in [("3.11", pyenv(11)), ("MEMSHIM_PYTHON", python().map(Path::to_owned))] {
        let Some(python) = python.filter(|_| !support::lacks(name, &[Need::Preload])) else {
            support::skip(&format!("{name} ({which})"), "needs it");
            continue;
        };
        let dir = support::fresh_dir(&format!("{name}/{which}"));
        let [without, with] = ["", "covariance:*"].map(|rules| {
            let (_, run) = reported(Command::new(&python).arg(&example).env("MEMSHIM_BIG", "64"), &dir, rules);
            if !rules.is_empty() {
                assert_eq!(by_name(&run, "count")["covariance:smoothed"], 1, "{which}");
            }
            run["heap"]["peak_bytes"].as_f64().expect("a number")
        });
        assert!((with / without - 1.0).abs() < 0.01, "{which}: {without} {with}");
    }
}

/// In 3.11 a generator that is a phase, or a tracer, makes calls go the old way, and only from where it runs.
#[test]
fn calls_go_the_old_way_only_for_what_needs_it() {
    let name = "calls_go_the_old_way_only_for_what_needs_it";
    let Some(python) = pyenv(11).filter(|_| !support::lacks(name, &[Need::Preload])) else {
        return support::skip(name, "needs pyenv's 3.11");
    };
    let dir = support::fresh_dir(name);
    let program = "import sys\ndef plain(n): return n\ndef numbers(n):\n for i in range(n): yield plain(i)\n\
                   def work():\n plain(1)\n if 'numbers' in sys.argv: return list(numbers(3))\n if 'trace' in sys.argv: sys.settrace(lambda *a: None)\n\
                   \x20if 'profile' in sys.argv: sys.setprofile(lambda *a: None)\n plain(2)\n return [plain(3)]\nwork()\nplain(4)";
    for (how, old, plain, numbers) in [("", false, 4, 0), ("numbers", true, 5, 4), ("trace", true, 4, 0), ("profile", true, 4, 0)] {
        let (_, run) = reported(Command::new(&python).args(["-c", program, how]), &dir, "__main__:*");
        let counts = by_name(&run, "count");
        let count = |function: &str| counts.get(&format!("__main__:{function}")).copied().unwrap_or(0);
        assert_eq!((count("plain"), count("numbers"), count("work")), (plain, numbers, 1), "{how}");
        assert_eq!(went_the_old_way(&run), old, "{how}");
    }
}

/// What calls of a function took, with all that it called; `None` where there were none. `said`: a profile of callgrind, which has a function's name
/// with the first mention of its number only.
fn inclusive(said: &str, function: &str) -> Option<f64> {
    let mut number = None;
    let mut lines = said.lines();
    let mut sum = None;
    while let Some(line) = lines.next() {
        let Some((kind, of)) = line.split_once("fn=") else { continue };
        let (id, name) = of.split_once(')').unwrap_or((of, ""));
        if name.trim() == function {
            number = Some(id.to_owned());
        }
        if kind == "c" && number.as_deref() == Some(id) {
            let cost = lines.by_ref().skip_while(|l| l.starts_with("c") && !l.starts_with("calls=")).nth(1).expect("a cost");
            let cost = cost.rsplit(' ').next().and_then(|n| n.parse::<f64>().ok()).expect("a number");
            sum = Some(sum.unwrap_or(0.0) + cost);
        }
    }
    sum
}

/// Instructions that a call-heavy program needs for each turn, by callgrind, which counts the same each time.
#[test]
fn functions_that_match_nothing_cost_nothing() {
    let name = "functions_that_match_nothing_cost_nothing";
    if support::lacks(name, &[Need::Preload, Need::Command("valgrind")]) {
        return;
    }
    let program = "import sys\nfrom itertools import repeat\ndef f(a): return a\nclass K:\n def m(self, a, b=None): return f(a)\nk = K()\n\
                   def work(n):\n for _ in repeat(None, n):\n  f(None); k.m(None)\nwork(int(sys.argv[1]))";
    for minor in 11..=13 {
        let Some(python) = pyenv(minor) else {
            support::skip(&format!("{name} (3.{minor})"), "needs pyenv's");
            continue;
        };
        let dir = support::fresh_dir(&format!("{name}/3.{minor}"));
        let needs = |rules: &str| {
            let [few, many] = ["5000", "25000"].map(|n| {
                let out = dir.join("callgrind");
                let mut command = Command::new("valgrind");
                command.args(["-q", "--tool=callgrind", "--separate-threads=yes"]).arg(format!("--callgrind-out-file={}", out.display()));
                let ran = run(command.arg(&python).args(["-S", "-c", program, n]), &dir, rules);
                assert_eq!(ran.end(), "exit 0", "3.{minor}: {}", lossy(&ran.stderr));
                // The program's own thread, and of that not the end: memshim's writer works by the clock, and what it has not read is read there.
                let said = std::fs::read_to_string(dir.join("callgrind-01")).expect("counts");
                let total = said.lines().find_map(|l| l.strip_prefix("totals: ")).expect("a total");
                let end = inclusive(&said, "memshim::init::ends::finish");
                assert_eq!(end.is_some(), !rules.is_empty(), "the recorded program's end is in it");
                total.trim().parse::<f64>().expect("a number") - end.unwrap_or(0.0)
            });
            (many - few) / 20_000.0
        };
        let bare = needs("");
        for rules in ["nosuch:thing", "__main__:work"] {
            let with = needs(rules);
            assert!(with < 1.01 * bare, "3.{minor} {rules}: {bare} {with}");
        }
    }
}

/// In 3.11 a call of a phase takes two runs of the interpreter's loop, of which stacks show one.
#[test]
fn stacks_are_those_without_rules() {
    let name = "stacks_are_those_without_rules";
    let program = "import functools\nkept = []\ndef leaf(n):\n kept.append(bytearray(n))\n return n\ndef mid(n): return list(map(leaf, [n]))[0]\n\
                   class K:\n def __init__(self, n): self.b = bytearray(n)\n\
                   def top():\n mid(1000001)\n leaf(1000002)\n kept.append(K(1000003))\n functools.reduce(lambda a, b: leaf(b), [1, 1000004])\n\
                   \x20return sorted([1000005], key=lambda n: mid(n))\ntop()";
    with_each(name, 10..=12, |python, version| {
        let dir = support::fresh_dir(&format!("{name}/{version}"));
        let stacks = |rules: &str| {
            let mut command = Command::new(python);
            let (_, run) = reported(command.args(["-c", program]).env("MEMSHIM_STACKS", "mixed"), &dir, rules);
            let sites = run["sites"].as_array().expect("sites").iter();
            let big = sites.filter(|s| s["total_bytes"].as_u64().is_some_and(|n| (1_000_000..1_000_100).contains(&n)));
            let words = |f: &serde_json::Value| format!("{} {} {}", f["function"], f["line"], f["python"]);
            big.map(|s| s["frames"].as_array().expect("frames").iter().map(words).collect::<Vec<_>>()).collect::<Vec<_>>()
        };
        let without = stacks("");
        assert_eq!(without.len(), 5, "{version}");
        for rules in [
            "__main__:leaf",
            "__main__:leaf,__main__:mid,__main__:top,__main__:K.__init__",
            "__main__:*,__main__:<lambda>,__main__:<module>",
        ] {
            assert_eq!(stacks(rules), without, "{version} {rules}");
        }
    });
}
