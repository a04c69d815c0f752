//! Promises about limits on descriptors: the program has the numbers that it would have, and what is in the way of a run is said.
mod support;

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use support::{Need, fresh_dir, lossy, memshim};

/// Opens files until there are no more; prints the limits, the first number it got, and how many it got.
const OPENS: &str = "import os, resource\n\
                     got = []\n\
                     try:\n\
                     \x20   while True: got.append(os.open('/dev/null', os.O_RDONLY))\n\
                     except OSError: pass\n\
                     print(*resource.getrlimit(resource.RLIMIT_NOFILE), got[0] if got else None, len(got))\n";

/// Runs a command of the shell under limits.
fn under(limits: &str, command: &str, dir: &Path, set: &[(&str, &str)]) -> Output {
    let mut shell = Command::new("/bin/bash");
    shell.arg("-c").arg(format!("{limits}; {command}")).current_dir(dir).env("MEMSHIM", memshim()).env("OPENS", OPENS);
    shell.env("PYTHON", support::python().expect("asked for")).envs(set.iter().copied()).output().expect("a shell")
}

fn report(dir: &Path) -> Value {
    serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).expect("a report")).expect("JSON")
}

#[test]
fn the_numbers_that_a_program_gets_and_how_many_are_what_they_are_without_memshim() {
    let test = "the_numbers_that_a_program_gets_and_how_many_are_what_they_are_without_memshim";
    if support::lacks(test, &[Need::Preload, Need::Command("bash"), Need::Command("python3")]) {
        return;
    }
    let (_, hard) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).expect("a limit");
    // Soft and hard, and by how many fewer files than there were.
    for (limits, room, fewer) in
        [("ulimit -Sn 40", 2000, 0), ("ulimit -Sn 1024", 2000, 0), ("ulimit -n 40", 40, 1), ("ulimit -n 12", 12, 1)]
    {
        if hard < room {
            support::skip(test, &format!("`{limits}` with a hard limit of {hard}"));
            continue;
        }
        let bare = lossy(&under(limits, r#""$PYTHON" -c "$OPENS""#, &fresh_dir(test), &[]).stdout);
        for command in [r#"LD_PRELOAD="$SHIM" "$PYTHON" -c "$OPENS""#, r#""$MEMSHIM" run -q -- "$PYTHON" -c "$OPENS""#] {
            let dir = fresh_dir(test);
            let shim = support::shim();
            let out = under(limits, command, &dir, &[("SHIM", shim.to_str().expect("UTF-8"))]);
            let numbers = |text: &str| text.split_whitespace().map(|n| n.parse().expect("a number")).collect::<Vec<u64>>();
            let (got, want) = (numbers(&lossy(&out.stdout)), numbers(&bare));
            let at = format!("{limits}, {command}: {}", lossy(&out.stderr));
            assert_eq!((&got[..3], got[3] + fewer), (&want[..3], want[3]), "{at}");
            let report = report(&dir);
            let run = &report["runs"][0];
            // What has to be opened at the end, when the program has taken them all, cannot be.
            assert!(
                run["heap"]["allocs"].as_u64() > Some(100) && (fewer > 0 || run["rss"]["growth_bytes"].is_i64()),
                "{at} {}",
                run["rss"]
            );
            assert!(run["events"]["lost"] == 0 || fewer > 0, "{at}");
        }
    }
}

#[test]
fn run_gets_along_with_eight_descriptors_and_else_says_what_to_raise() {
    let test = "run_gets_along_with_eight_descriptors_and_else_says_what_to_raise";
    if support::lacks(test, &[Need::Preload, Need::Command("bash"), Need::Command("python3")]) {
        return;
    }
    let dir = fresh_dir(test);
    let script = r#""$MEMSHIM" run -q -- /bin/sh -c 'exec 3</dev/null; echo a | cat; ulimit -n; exit 7'"#;
    let out = under("ulimit -n 8", script, &dir, &[]);
    assert_eq!((lossy(&out.stdout), out.status.code()), ("a\n8\n".into(), Some(7)), "{}", lossy(&out.stderr));
    assert_eq!(report(&dir)["runs"][0]["end"]["code"], 7);
    let out = under("ulimit -n 5", r#""$MEMSHIM" run -q -- /bin/true"#, &fresh_dir(test), &[]);
    let said = lossy(&out.stderr);
    assert!(out.status.code() == Some(125) && said.contains("raise `ulimit -n` (it is 5)"), "{said}");
}
