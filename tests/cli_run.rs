//! `memshim run` leaves a program as it found it: exit codes, signals, descriptors, environment. With a stand-in for the library, which
//! only writes a header line: what is tested here is the launcher.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const STAND_IN: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
__attribute__((constructor)) static void header(void)
{
    const char *out = getenv("MEMSHIM_OUT");
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int f = out ? open(out, O_CREAT | O_EXCL | O_WRONLY, 0600) : -1;
    if (f < 0) return;
    dprintf(f, "{\"type\":\"header\",\"v\":1,\"pid\":%d,\"mono_ns\":%ld}\n", getpid(), t.tv_sec * 1000000000L + t.tv_nsec);
    close(f);
}
"#;

/// A fresh folder with the stand-in for the library in it.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("s.c");
        std::fs::write(&source, STAND_IN).unwrap();
        let cc = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(dir.path().join("libmemshim.so")).arg(&source).status();
        assert!(cc.unwrap().success());
        Self { dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn memshim(&self) -> Command {
        let mut c = Command::new(assert_cmd::cargo::cargo_bin!("memshim"));
        c.current_dir(self.path()).env("MEMSHIM_SHIM", self.path().join("libmemshim.so"));
        c
    }

    fn run(&self, args: &[&str]) -> Output {
        self.memshim().arg("run").args(args).output().unwrap()
    }

    /// Output of a shell script, bare and under `run`.
    fn both(&self, script: &str, prepare: impl Fn(&mut Command)) -> (String, String) {
        let mut bare = Command::new("/bin/sh");
        bare.args(["-c", script]).current_dir(self.path()).env("MEMSHIM_SHIM", self.path().join("libmemshim.so"));
        let mut under = self.memshim();
        under.args(["run", "-q", "--", "/bin/sh", "-c", script]);
        let out = |c: &mut Command| {
            prepare(c);
            String::from_utf8(c.output().unwrap().stdout).unwrap()
        };
        (out(&mut bare), out(&mut under))
    }
}

fn stderr(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

#[test]
fn the_exit_code_is_that_of_the_program() {
    let p = Place::new();
    let code = |args: &[&str]| p.run(args).status.code();
    assert_eq!(code(&["--", "true"]), Some(0));
    assert_eq!(code(&["--", "sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["--", "sh", "-c", "kill -KILL $$"]), Some(128 + 9));
    assert_eq!(code(&["--", "sh", "-c", "kill -40 $$"]), Some(128 + 40), "real-time signals too");
    assert_eq!(code(&["--", "no-such-program-here"]), Some(127));
    assert_eq!(code(&["--", "/etc/passwd"]), Some(126));
    assert_eq!(code(&["--no-such-flag", "true"]), Some(125));
    assert_eq!(code(&["--interval", "1parsec", "true"]), Some(125));
    assert_eq!(p.memshim().args(["--", "sh", "-c", "exit 3"]).status().unwrap().code(), Some(3), "bare `--` is run");
}

#[test]
fn nothing_is_said_on_stdout_and_one_block_on_stderr() {
    let p = Place::new();
    let o = p.run(&["-o", "deep/er/t.jsonl", "--", "sh", "-c", "echo out; echo err >&2"]);
    assert_eq!(o.stdout, b"out\n");
    let said = stderr(&o);
    assert!(said.starts_with("err\n") && said.contains("peak resident") && said.contains("memshim analyze deep/er/t.jsonl"), "{said}");
    assert!(said.lines().count() <= 4, "{said}");
    assert_eq!(stderr(&p.run(&["-q", "-o", "u.jsonl", "--", "true"])), "");
}

#[test]
fn the_view_from_outside_ends_the_trace() {
    let p = Place::new();
    p.run(&["-o", "t.jsonl", "--", "sh", "-c", "sleep 0.1; exit 4"]);
    let text = std::fs::read_to_string(p.path().join("t.jsonl")).unwrap();
    let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!((&last["type"], &last["status"]["code"]), (&"outside".into(), &4.into()));
    assert!(last["hwm"].as_u64().unwrap() > 100 << 10 && last["elapsed_ns"].as_u64().unwrap() > 90_000_000, "{last}");
}

#[test]
fn the_environment_is_the_old_one_in_the_old_order_and_ours() {
    let p = Place::new();
    let (bare, under) = p.both("tr '\\0' '\\n' < /proc/$$/environ", |c| {
        c.env("LD_PRELOAD", "").env("ZZ", "1").env("AA", "2");
    });
    let lines = |t: &str| t.lines().filter(|l| !l.starts_with("LD_PRELOAD=")).map(str::to_owned).collect::<Vec<_>>();
    let (bare, mut under) = (lines(&bare), lines(&under));
    assert!(under.pop().unwrap().starts_with("MEMSHIM_OUT=/"));
    assert_eq!(bare, under);
}

#[test]
fn descriptors_signals_and_group_are_those_of_our_parent() {
    let p = Place::new();
    let script =
        "ls /proc/$$/fd; grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; cut -d' ' -f5,6,7,8 /proc/$$/stat | sed 's/^[0-9]*/group/'";
    let (bare, under) = p.both(script, |_| {});
    assert_eq!(bare, under);
    for how in ["trap '' PIPE INT TERM; ", "exec 0<&-; ", "exec 2>&-; ", "ulimit -n 64; exec 60</dev/null; "] {
        let memshim = assert_cmd::cargo::cargo_bin!("memshim");
        let inner = "/bin/sh -c 'ls /proc/$$/fd; grep ^SigIgn /proc/self/status'";
        let shell = |s: String| {
            let mut c = Command::new("/bin/sh");
            c.args(["-c", &s]).current_dir(p.path()).env("MEMSHIM_SHIM", p.path().join("libmemshim.so"));
            String::from_utf8(c.output().unwrap().stdout).unwrap()
        };
        let under = shell(format!("{how}{} run -q -- {inner}", memshim.display()));
        assert_eq!(shell(format!("{how}{inner}")), under, "{how}");
    }
}

#[test]
fn a_script_without_interpreter_line_runs_as_in_a_shell() {
    let p = Place::new();
    let script = p.path().join("s");
    std::fs::write(&script, "echo $1\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(p.run(&["-q", "--", "./s", "x"]).stdout, b"x\n");
}

#[test]
fn a_signal_sent_to_memshim_reaches_the_program_and_is_outlived() {
    let p = Place::new();
    for (signal, name, code) in [(15, "TERM", 40), (1, "HUP", 41), (2, "INT", 42), (10, "USR1", 43)] {
        let script = format!("trap 'echo got {name}; exit {code}' {name}; echo ready; while :; do sleep 0.05; done");
        let mut c = p.memshim();
        c.args(["run", "-q", "--", "sh", "-c", &script]).stdout(Stdio::piped()).process_group(0);
        let child = c.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
        let o = child.wait_with_output().unwrap();
        assert_eq!((o.status.code(), String::from_utf8_lossy(&o.stdout).into_owned()), (Some(code), format!("ready\ngot {name}\n")));
        assert_eq!(o.status.signal(), None);
    }
}

/// Writes the number of each signal it gets, then after a while says how it was.
const COUNTS_SIGNALS: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static void note(int n) { char c = 'A' + n; write(1, &c, 1); }
int main(void)
{
    int all[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGUSR1, SIGUSR2, SIGALRM};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) signal(all[i], note);
    write(1, "ready\n", 6);
    struct timespec end, t;
    clock_gettime(CLOCK_MONOTONIC, &end);
    do {
        usleep(10000);
        clock_gettime(CLOCK_MONOTONIC, &t);
    } while (t.tv_sec * 10 + t.tv_nsec / 100000000 < end.tv_sec * 10 + end.tv_nsec / 100000000 + 12);
    return 7;
}
"#;

#[test]
fn each_signal_reaches_the_program_once_whoever_it_was_sent_to() {
    use std::io::Read as _;
    let p = Place::new();
    let source = p.path().join("count.c");
    std::fs::write(&source, COUNTS_SIGNALS).unwrap();
    assert!(Command::new("cc").arg("-o").arg(p.path().join("count")).arg(&source).status().unwrap().success());
    let signals = ["INT", "TERM", "HUP", "QUIT", "TSTP", "USR1", "USR2", "ALRM"];
    let wanted: String = [2u8, 15, 1, 3, 20, 10, 12, 14].iter().map(|n| (b'A' + n) as char).collect();
    // As `nohup` and a background job of a script start it: the program begins with them ignored, and sets handlers of its own.
    let ignored = "trap '' INT TERM HUP QUIT TSTP USR1 USR2 ALRM; exec \"$0\" \"$@\"";
    for (to_group, before) in [(false, ""), (true, ""), (false, ignored), (true, ignored)] {
        let mut c = p.memshim();
        if !before.is_empty() {
            let memshim = c.get_program().to_owned();
            c = Command::new("/bin/sh");
            c.args(["-c", before]).arg(memshim).current_dir(p.path()).env("MEMSHIM_SHIM", p.path().join("libmemshim.so"));
        }
        c.args(["run", "-q", "--", "./count"]).stdout(Stdio::piped()).process_group(0);
        let mut child = c.spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        let mut ready = [0; 6];
        out.read_exact(&mut ready).unwrap();
        let to = format!("{}{}", if to_group { "-" } else { "" }, child.id());
        for signal in signals {
            assert!(Command::new("kill").args(["-s", signal, "--", &to]).status().unwrap().success());
            std::thread::sleep(Duration::from_millis(60));
        }
        let mut got = String::new();
        out.read_to_string(&mut got).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(7));
        assert_eq!(got, wanted, "to the group: {to_group}, {before}");
    }
}

#[test]
fn a_job_stops_and_goes_on_as_a_whole() {
    let p = Place::new();
    let mut child = p.memshim().args(["run", "-q", "--", "sleep", "5"]).process_group(0).spawn().unwrap();
    let group = child.id() as i32;
    let send = |signal: &str, to: String| {
        std::thread::sleep(Duration::from_millis(100));
        assert!(Command::new("kill").args(["-s", signal, "--", &to]).status().unwrap().success());
    };
    let stopped = || states(group).iter().filter(|(name, state)| ["memshim", "sleep"].contains(&name.as_str()) && state == "T").count();
    // As a terminal does, then as a batch system that knows the first process only.
    for to in [format!("-{group}"), group.to_string()] {
        send("TSTP", to.clone());
        std::thread::sleep(Duration::from_millis(150));
        assert_eq!(stopped(), 2, "{to}");
        send("CONT", to.clone());
        std::thread::sleep(Duration::from_millis(150));
        assert_eq!(stopped(), 0, "{to}");
    }
    send("INT", format!("-{group}"));
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn nothing_of_a_run_outlives_it() {
    let p = Place::new();
    let mut c = p.memshim();
    c.args(["run", "-q", "--", "sleep", "0.3"]).process_group(0);
    let mut child = c.spawn().unwrap();
    let group = child.id() as i32;
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(
        members(group),
        ["memshim", "memshim-group", "sleep"],
        "memshim, the program, and one that sees whether a signal went to the group"
    );
    child.wait().unwrap();
    assert!(members(group).is_empty());

    // Killed itself, it takes the bystander along and leaves the program alone.
    let mut child = p.memshim().args(["run", "-q", "--", "sleep", "1.2"]).process_group(0).spawn().unwrap();
    let group = child.id() as i32;
    std::thread::sleep(Duration::from_millis(150));
    child.kill().unwrap();
    child.wait().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(members(group), ["sleep"]);
}

/// Names of the living processes of a group.
fn members(group: i32) -> Vec<String> {
    let mut all: Vec<String> = states(group).into_iter().filter(|(_, state)| state != "Z").map(|(name, _)| name).collect();
    all.sort();
    all
}

/// Names and states of a group's processes.
fn states(group: i32) -> Vec<(String, String)> {
    let stats = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|e| std::fs::read_to_string(e.path().join("stat")).ok());
    let of_group = stats.filter_map(|s| {
        let (name, rest) = s.split_once('(')?.1.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        let (state, pgrp) = (fields.next()?, fields.nth(1)?);
        (pgrp == group.to_string()).then(|| (name.to_owned(), state.to_owned()))
    });
    of_group.collect()
}

#[test]
fn why_there_is_no_trace_is_said() {
    let p = Place::new();
    let c = p.path().join("static.c");
    std::fs::write(&c, "int main(void) { return 5; }\n").unwrap();
    let built = Command::new("cc").args(["-static", "-o"]).arg(p.path().join("static")).arg(&c).stderr(Stdio::null()).status().unwrap();
    if built.success() {
        let o = p.run(&["--", "./static"]);
        assert_eq!(o.status.code(), Some(5));
        assert!(stderr(&o).contains("statically linked"), "{}", stderr(&o));
    }
    let o = p.memshim().env("MEMSHIM_SHIM", "/no/such.so").args(["run", "--", "true"]).output().unwrap();
    assert_eq!(o.status.code(), Some(125));
    assert!(stderr(&o).contains("/no/such.so") && stderr(&o).contains("MEMSHIM_SHIM"), "{}", stderr(&o));
}

#[test]
fn a_limit_on_file_sizes_costs_the_view_from_outside_and_nothing_else() {
    let p = Place::new();
    let memshim = assert_cmd::cargo::cargo_bin!("memshim");
    let shell = |script: String| {
        let mut c = Command::new("/bin/sh");
        c.args(["-c", &script]).current_dir(p.path()).env("MEMSHIM_SHIM", p.path().join("libmemshim.so")).output().unwrap()
    };
    // The trace is at its limit already when the program ends: the pipe keeps the limit from the output.
    let grow = "head -c 2000 /dev/zero >> t.jsonl; exit 5";
    let o = shell(format!("ulimit -f 4; {} run -o t.jsonl -- /bin/sh -c '{grow}' 2>&1 | cat", memshim.display()));
    let said = String::from_utf8_lossy(&o.stdout).into_owned();
    assert!(said.contains("could not add to t.jsonl") && said.contains("File too large"), "{said}");
    let o = shell(format!("ulimit -f 4; {} doctor 2>&1 | cat", memshim.display()));
    assert!(String::from_utf8_lossy(&o.stdout).contains("file size (ulimit -f)"), "{o:?}");
    // What the program sees of the signal is what it would have seen.
    let (bare, under) = p.both("grep -E '^Sig(Ign|Cgt)' /proc/self/status", |_| {});
    assert_eq!(bare, under);
}

#[test]
fn the_default_name_has_the_rank() {
    let p = Place::new();
    p.memshim().env("PMIX_RANK", "3").args(["run", "-q", "--", "true"]).status().unwrap();
    // The stand-in does not expand patterns: what it was told is what the file is called.
    assert!(p.path().join("trace.r%r.jsonl").exists(), "{:?}", list(p.path()));
}

fn list(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect()
}

#[test]
fn a_present_folder_that_is_gone_is_no_reason_not_to_run() {
    let place = Place::new();
    let script = r#"mkdir "$D/gone" && cd "$D/gone" && rmdir "$D/gone" && exec "$M" run -q -o "$D/t.jsonl" "$@" -- /bin/echo here"#;
    let run = |with: &[&str]| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script, "sh"]).args(with).env("D", place.path()).env("M", assert_cmd::cargo::cargo_bin!("memshim"));
        command.env("MEMSHIM_SHIM", place.path().join("libmemshim.so")).output().unwrap()
    };
    let out = run(&[]);
    assert_eq!((out.status.code(), out.stdout.as_slice()), (Some(0), b"here\n".as_slice()), "{out:?}");
    // Files of a folder that is not there can't be meant.
    let out = run(&["--artifacts", "*.txt"]);
    let said = stderr(&out);
    assert!(!out.status.success() && said.contains("--artifacts *.txt: the present folder is gone: give the path from / on"), "{said}");
}

#[test]
fn doctor_says_that_the_present_folder_is_gone() {
    let p = Place::new();
    let memshim = assert_cmd::cargo::cargo_bin!("memshim");
    let ran = |out: &str| {
        let mut c = Command::new("/bin/sh");
        let script = format!("mkdir gone; cd gone; rmdir ../gone; exec {} doctor {out}", memshim.display());
        c.args(["-c", &script]).current_dir(p.path()).env("MEMSHIM_SHIM", p.path().join("libmemshim.so")).output().unwrap()
    };
    let o = ran("");
    let said = String::from_utf8_lossy(&o.stdout).into_owned();
    assert!(said.contains("NO    folder   the present folder is gone: no trace can be written here"), "{said}");
    assert_eq!(o.status.code(), Some(3));
    let said = String::from_utf8_lossy(&ran("-o /tmp/t.jsonl").stdout).into_owned();
    assert!(said.contains("ok    folder   /tmp "), "{said}");
}
