//! A program of `tests/programs`, run bare and under memshim, and what must be the same.

use super::artifacts::{build, fresh_dir, memshim, open_path_to, out_dir, root, shim};
use super::lossy;
use super::machine::{Need, find_library, lacks, python, skip};
use super::session::{Ran, Session};
use super::truth::{analyze, check_truth, conserved};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How a program is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Without memshim: what everything is compared with.
    Bare,
    /// Preloaded, every call an event.
    Full,
    /// Preloaded, every call counted, a sample of them events.
    Fast,
    /// Under `memshim run`, full mode.
    Run,
}

impl Mode {
    pub const WRAPPED: [Mode; 3] = [Mode::Full, Mode::Fast, Mode::Run];

    fn name(self) -> &'static str {
        match self {
            Mode::Bare => "bare",
            Mode::Full => "full",
            Mode::Fast => "fast",
            Mode::Run => "run",
        }
    }

    pub fn wanted(self) -> bool {
        std::env::var("MEMSHIM_TEST_MODES").map_or(true, |modes| modes.split(',').any(|m| m == self.name()))
    }
}

/// A program of `tests/programs` and what is expected of it.
pub struct Program {
    test: String,
    source: &'static str,
    built_as: String,
    flags: Vec<String>,
    libraries: Vec<(&'static str, &'static str, Vec<&'static str>)>,
    args: Vec<String>,
    env: Vec<(String, String)>,
    needs: Vec<Need>,
    end: String,
    limit: Duration,
    trouble: bool,
    trace: Option<PathBuf>,
    trace_name: &'static str,
    any_files: bool,
    cut_short: bool,
}

impl Program {
    /// `source` is a .c, .cc, .py or .sh file; `test` names the promise.
    pub fn new(test: &str, source: &'static str) -> Program {
        let stem = source.split('.').next().unwrap_or(source);
        Program {
            test: test.to_owned(),
            source,
            built_as: stem.to_owned(),
            flags: vec![],
            libraries: vec![],
            args: vec![],
            env: vec![],
            needs: vec![],
            end: "exit 0".to_owned(),
            limit: Duration::from_secs(60),
            trouble: false,
            trace: None,
            trace_name: "trace.jsonl",
            any_files: false,
            cut_short: false,
        }
    }
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.env.push((key.to_owned(), value.to_owned()));
        self
    }
    pub fn need(mut self, need: Need) -> Self {
        self.needs.push(need);
        self
    }
    /// A library by its full soname that is preloaded in all modes, behind memshim's.
    pub fn preloads(self, soname: &'static str) -> Self {
        let path = find_library(soname).map(|path| path.display().to_string()).unwrap_or_default();
        self.need(Need::Library(soname)).env("LD_PRELOAD", &path)
    }
    /// Another program or library from `source`, built beside this one.
    pub fn with(mut self, source: &'static str, name: &'static str, flags: &[&'static str]) -> Self {
        self.libraries.push((source, name, flags.to_vec()));
        self
    }
    pub fn built_as(mut self, name: &str, flags: &[&str]) -> Self {
        self.built_as = name.to_owned();
        self.flags = flags.iter().map(|f| (*f).to_owned()).collect();
        self
    }
    pub fn exits(mut self, code: i32) -> Self {
        self.end = format!("exit {code}");
        self
    }
    pub fn dies_of(mut self, signal: i32) -> Self {
        self.end = format!("signal {signal}");
        self
    }
    pub fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }
    /// memshim cannot record all of this one: it may say so in one line on stderr, and no trace is checked.
    pub fn trouble(mut self) -> Self {
        self.trouble = true;
        self
    }
    /// For `ends.c`, whose library's destructor runs after everything else.
    pub fn with_late_library(mut self) -> Self {
        let dir = out_dir().to_str().expect("a path in UTF-8");
        self.flags = vec![format!("-L{dir}"), format!("-Wl,-rpath,{dir}"), "-l:liblate.so".to_owned()];
        self.with("late_library.c", "liblate.so", &["-shared", "-fPIC"])
    }
    /// The name of the trace in its folder.
    pub fn trace_named(mut self, name: &'static str) -> Self {
        self.trace_name = name;
        self
    }
    /// A fixed place for the trace.
    pub fn trace_at(mut self, path: &str) -> Self {
        self.trace = Some(path.into());
        self
    }
    /// It ends while its threads are in the middle of calls: the last of them may be lost, but not uncounted.
    pub fn cut_short(mut self) -> Self {
        self.cut_short = true;
        self
    }
    /// The files it leaves differ from run to run.
    pub fn any_files(mut self) -> Self {
        self.any_files = true;
        self
    }

    /// Runs it in all modes and panics at the first difference.
    pub fn holds(self) {
        if lacks(&self.test, &self.needs) || (self.is_python() && lacks_python(&self.test)) {
            return;
        }
        for (source, name, flags) in &self.libraries {
            build(source, name, flags);
        }
        let dir = fresh_dir(&self.test);
        let bare = self.run(Mode::Bare, &dir);
        assert_eq!(bare.end(), self.end, "bare {}: {}{}", self.test, lossy(&bare.stdout), lossy(&bare.stderr));
        for mode in Mode::WRAPPED.into_iter().filter(|m| m.wanted()) {
            self.same(mode, &dir, &bare);
        }
        if std::env::var_os("MEMSHIM_TEST_KEEP").is_none() {
            let _ = fs::remove_dir_all(&dir);
        }
    }

    /// Runs it in one mode only and returns the report on it; None where that mode is not asked for.
    pub fn report(self, mode: Mode) -> Option<serde_json::Value> {
        self.traced(mode).map(|(_, report)| report)
    }

    /// The same, with the trace.
    pub fn traced(self, mode: Mode) -> Option<(PathBuf, serde_json::Value)> {
        let (trace, _) = self.trace_and_truth(mode)?;
        let text = analyze(&trace).unwrap_or_else(|why| panic!("{}: analyze: {why}", self.test));
        Some((trace, serde_json::from_str(&text).expect("analyze --json prints JSON")))
    }

    /// The trace, and the TRUTH lines that it printed.
    pub fn trace_and_truth(&self, mode: Mode) -> Option<(PathBuf, Vec<u8>)> {
        if lacks(&self.test, &self.needs) {
            return None;
        }
        if !mode.wanted() {
            skip(&self.test, "its mode is not in MEMSHIM_TEST_MODES");
            return None;
        }
        for (source, name, flags) in &self.libraries {
            build(source, name, flags);
        }
        let dir = fresh_dir(&self.test);
        let ran = self.run(mode, &dir);
        assert!(ran.status.is_some(), "{}: no end in time", self.test);
        Some((self.trace_of(mode, &dir), ran.truth()))
    }

    fn is_python(&self) -> bool {
        self.source.ends_with(".py")
    }

    fn same(&self, mode: Mode, dir: &Path, bare: &Ran) {
        let ran = self.run(mode, dir);
        let at = format!("{} in {} mode ({})", self.test, mode.name(), dir.display());
        assert_eq!(lossy(&ran.stdout), lossy(&bare.stdout), "{at}: stdout is not what it is bare; stderr: {}", lossy(&ran.stderr));
        assert_eq!(ran.end(), self.end_under(mode), "{at}: stderr: {}", lossy(&ran.stderr));
        assert_eq!(self.stderr_of(&ran.stderr), lossy(&bare.stderr), "{at}: stderr is not what it is bare");
        if !self.any_files {
            assert_eq!(files(&dir.join(mode.name()).join("cwd")), files(&dir.join("bare/cwd")), "{at}: the files it left");
        }
        if self.trouble {
            return;
        }
        let trace = self.trace_of(mode, dir);
        let truth = ran.truth();
        if !truth.is_empty() {
            check_truth(&trace, &truth).unwrap_or_else(|why| panic!("{at}: {why}"));
        }
        if mode == Mode::Full {
            let text = analyze(&trace).unwrap_or_else(|why| panic!("{at}: analyze: {why}"));
            conserved(&serde_json::from_str(&text).expect("analyze --json prints JSON"), self.cut_short)
                .unwrap_or_else(|why| panic!("{at}: {why}"));
        }
    }

    /// A launcher reports death by signal n as 128 + n.
    fn end_under(&self, mode: Mode) -> String {
        match self.end.strip_prefix("signal ") {
            Some(n) if mode == Mode::Run => {
                format!("exit {}", 128 + n.parse::<i32>().expect("a signal number"))
            }
            _ => self.end.clone(),
        }
    }

    /// The target's part of stderr: a line of memshim's own is allowed in trouble, and nowhere else.
    fn stderr_of(&self, stderr: &[u8]) -> String {
        let text = lossy(stderr);
        let ours = |line: &str| self.trouble && line.starts_with("memshim");
        text.split_inclusive('\n').filter(|l| !ours(l)).collect()
    }

    fn trace_of(&self, mode: Mode, dir: &Path) -> PathBuf {
        self.trace.clone().unwrap_or_else(|| dir.join(mode.name()).join("trace").join(self.trace_name))
    }

    fn run(&self, mode: Mode, dir: &Path) -> Ran {
        let dir = dir.join(mode.name());
        let (cwd, traces) = (dir.join("cwd"), dir.join("trace"));
        for d in [&cwd, &traces] {
            fs::create_dir_all(d).expect("folder for a run");
            fs::set_permissions(d, fs::Permissions::from_mode(0o1777)).expect("folder open to all");
        }
        open_path_to(&traces);
        let trace = self.trace_of(mode, dir.parent().expect("a parent"));
        let words = self.command_line(&traces);
        let mut command = if mode == Mode::Run {
            let mut c = Command::new(memshim());
            c.args(["run", "--quiet", "-o"]).arg(&trace).arg("--").args(&words);
            c
        } else {
            let mut c = Command::new(&words[0]);
            c.args(&words[1..]);
            c
        };
        command.current_dir(&cwd).env_clear().envs(plain_env()).envs(self.env.iter().map(|(k, v)| (k, v)));
        match mode {
            Mode::Bare => {}
            Mode::Run => {
                command.env("MEMSHIM_MODE", "full");
            }
            Mode::Full | Mode::Fast => {
                let theirs = self.env.iter().find(|(key, _)| key == "LD_PRELOAD").map_or("", |(_, value)| value);
                let preload = format!("{} {theirs}", shim().display());
                command.env("LD_PRELOAD", preload.trim_end()).env("MEMSHIM_OUT", &trace).env("MEMSHIM_MODE", mode.name());
            }
        }
        Session::start(&mut command, &dir).finish(self.limit)
    }

    fn command_line(&self, traces: &Path) -> Vec<String> {
        let text = |p: &Path| p.to_str().expect("a path in UTF-8").to_owned();
        let file = text(&root().join("tests/programs").join(self.source));
        let mut words = match self.source.rsplit('.').next() {
            Some("py") => vec![text(python().expect("checked before")), file],
            Some("sh") => vec!["/bin/bash".to_owned(), file],
            _ => vec![text(&build(self.source, &self.built_as, &self.flags.iter().map(String::as_str).collect::<Vec<_>>()))],
        };
        words.extend(self.args.iter().map(|a| if a == "{traces}" { text(traces) } else { a.clone() }));
        words
    }
}

fn lacks_python(test: &str) -> bool {
    if python().is_none() {
        skip(test, "needs python3");
    }
    python().is_none()
}

fn plain_env() -> Vec<(&'static str, String)> {
    let mut env: Vec<_> = ["PATH", "HOME", "TMPDIR", "USER"].into_iter().filter_map(|k| Some((k, std::env::var(k).ok()?))).collect();
    env.push(("LC_ALL", "C.UTF-8".to_owned()));
    env.push(("PROGRAM_DIR", out_dir().to_str().expect("a path in UTF-8").to_owned()));
    env.push(("PYTHONDONTWRITEBYTECODE", "1".to_owned()));
    env.push(("PYTHONHASHSEED", "0".to_owned()));
    env
}

/// Names and contents of the plain files below `dir`.
fn files(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(d) = left.pop() {
        for entry in fs::read_dir(&d).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(meta) = fs::symlink_metadata(&path) else {
                continue;
            };
            if meta.is_dir() {
                left.push(path);
            } else {
                let bytes = fs::read(&path).unwrap_or_default();
                let shown = if bytes.len() < 200 { lossy(&bytes) } else { format!("{} bytes, sum {:x}", bytes.len(), checksum(&bytes)) };
                found.insert(path.strip_prefix(dir).expect("below").to_owned(), shown);
            }
        }
    }
    found
}

fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}
