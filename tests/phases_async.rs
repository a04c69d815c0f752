//! Promises about coroutines that are phases by rule, for each interpreter that is installed: many tasks in a known order, what each holds while it
//! waits, what it needs meanwhile, and what it leaves behind, to the byte.

mod support;

use std::collections::BTreeMap;
use std::process::Command;
use support::lossy;
use support::pyrules::{MINORS, by_name, report, run, script, with_each};

const UNIT: i64 = 1_000_000;

#[test]
fn tasks_are_on_while_they_run_and_own_what_they_hold() {
    let name = "tasks_are_on_while_they_run_and_own_what_they_hold";
    with_each(name, MINORS, |python, version| {
        let dir = support::fresh_dir(&format!("{name}/{version}"));
        let ran = run(Command::new(python).arg(script("tasks.py")), &dir, "tasks:*");
        assert_eq!((ran.end(), ran.stderr.is_empty()), ("exit 0".into(), true), "{version}: {}", lossy(&ran.stderr));
        let report = report(&dir);
        let of = |key: &str| {
            let mut all = by_name(&report, key);
            // Those that only hold the others together.
            ["main", "block", "group", "holds_lock"].iter().for_each(|f| _ = all.remove(&format!("tasks:{f}")));
            all
        };
        let said = lossy(&ran.stdout);
        let truth: BTreeMap<String, i64> =
            said.lines().filter_map(|l| l.rsplit_once(' ')).map(|(n, v)| (format!("tasks:{n}"), v.parse().expect("a number"))).collect();
        assert_eq!(of("count"), truth, "{version}");

        let left = of("heap_persistent_bytes");
        // Nothing but blocks is asked of malloc in these. A generator that is closed is left by an exception, and its locals go after it.
        let exact = [
            ("holds", 0),
            ("keeps", 24 * 5000),
            ("inner", 0),
            ("outer", 0),
            ("gives_up", 30_000),
            ("goes_on", 0),
            ("fails", 20_000),
            ("numbers", UNIT),
            ("adds", 0),
            ("stops_early", 0),
            ("Lock.__aexit__", -UNIT),
        ];
        for (function, bytes) in exact {
            assert_eq!(left[&format!("tasks:{function}")], bytes, "{version} {function}");
        }
        // These call asyncio, which keeps a few objects, or grow a dictionary.
        for (function, bytes) in [("Lock.__aenter__", UNIT), ("at_once", 40_000), ("never_ends", 0), ("sibling", 0), ("breaks", 0)] {
            let Some(got) = left.get(&format!("tasks:{function}")) else { continue };
            assert!((got - bytes).abs() < 2000, "{version} {function}: {got} is not {bytes}");
        }

        let phases = report["phases"].as_array().expect("phases");
        let path = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|n| format!("tasks:{n}")).collect();
            let is =
                |p: &&serde_json::Value| p["path"].as_array().is_some_and(|all| all.iter().map(|n| n.as_str().unwrap_or("")).eq(&names));
            phases.iter().find(is).unwrap_or_else(|| panic!("{version}: no {names:?}"))
        };
        let number = |p: &serde_json::Value, key: &str| p[key].as_i64().unwrap_or_else(|| panic!("{version} {key}: {p}"));
        let holds = path(&["holds"]);
        // While one is on the others hold theirs.
        let above = number(holds, "heap_peak_bytes") - number(holds, "heap_begin_bytes");
        assert!((above - (4 * UNIT + UNIT / 2)).abs() < 10_000, "{version}: {above}");
        // One of them gives its block back where it took it.
        assert_eq!(number(holds, "heap_transient_bytes"), UNIT, "{version}");
        assert_eq!(number(path(&["goes_on"]), "heap_transient_bytes"), UNIT, "{version}");
        assert_eq!(path(&["keeps"])["growth_per_count_bytes"], 5000.0, "{version}");
        // What a coroutine waits for runs inside of it, each time that it goes on.
        let [outer, inner] = [path(&["outer"]), path(&["outer", "inner"])];
        assert_eq!((number(outer, "count"), number(inner, "count")), (4, 4), "{version}");
    });
}
