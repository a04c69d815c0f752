//! Runs the programs of `tests/programs` bare and under memshim, and holds the two against each other.
//!
//! A [`Program`] is built once, run bare, with the shim preloaded in full and in fast mode, and under `memshim run`. Every run must
//! print the same, end the same way and leave the same files; the TRUTH lines it printed about itself are then checked against its
//! trace by `scripts/check-truth`. Not for unit tests: everything here is about real processes.
//!
//! Environment: `MEMSHIM_TARGET_DIR` (where `release/libmemshim.so` and `release/memshim` are), `MEMSHIM_TEST_MODES` (comma-separated
//! subset of `bare,full,fast,run`), `MEMSHIM_TEST_KEEP` (leave the folders of passed tests), `MEMSHIM_PYTHON` (the interpreter).
#![allow(dead_code)] // each test binary uses its own part

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

unsafe extern "C" {
    fn setsid() -> i32;
    fn kill(pid: i32, signal: i32) -> i32;
    fn geteuid() -> u32;
}
const SIGKILL: i32 = 9;

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
    const WRAPPED: [Mode; 3] = [Mode::Full, Mode::Fast, Mode::Run];

    fn name(self) -> &'static str {
        match self {
            Mode::Bare => "bare",
            Mode::Full => "full",
            Mode::Fast => "fast",
            Mode::Run => "run",
        }
    }

    fn wanted(self) -> bool {
        std::env::var("MEMSHIM_TEST_MODES").map_or(true, |modes| modes.split(',').any(|m| m == self.name()))
    }
}

/// What a test needs from the machine; without it the test is skipped, visibly.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    Root,
    Command(&'static str),
    /// A shared library by its full soname.
    Library(&'static str),
    /// A module of the Python interpreter used.
    Module(&'static str),
    StaticLink,
    Preload,
}

impl Need {
    fn missing(self) -> Option<String> {
        let (there, what) = match self {
            // SAFETY: takes nothing, cannot fail.
            Need::Root => (unsafe { geteuid() } == 0, "root".to_owned()),
            Need::Command(name) => (find_command(name).is_some(), format!("the command {name}")),
            Need::Library(name) => (find_library(name).is_some(), name.to_owned()),
            Need::Module(name) => (
                python().is_some_and(|p| quiet(Command::new(p).args(["-c", &format!("import {name}")]))),
                format!("the Python module {name}"),
            ),
            Need::StaticLink => (links_static(), "a static C library".to_owned()),
            Need::Preload => (Mode::WRAPPED.iter().any(|m| m.wanted()), "a wrapped mode in MEMSHIM_TEST_MODES".to_owned()),
        };
        (!there).then(|| format!("needs {what}"))
    }
}

/// Says on stderr, past the capture of the test harness, that a test did not run.
pub fn skip(test: &str, why: &str) {
    let _ = std::io::stderr().write_all(format!("skip {test}: {why}\n").as_bytes());
}

/// Skips the calling test when one of `needs` is not met.
pub fn lacks(test: &str, needs: &[Need]) -> bool {
    match needs.iter().find_map(|n| n.missing()) {
        Some(why) => {
            skip(test, &why);
            true
        }
        None => false,
    }
}

fn quiet(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

pub fn find_command(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|d| d.join(name)).find(|p| p.is_file())
}

pub fn find_library(name: &str) -> Option<PathBuf> {
    let machine = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    [machine.as_str(), "/usr/lib64", "/usr/local/lib", "/usr/lib", "/lib64", "/lib"]
        .iter()
        .map(|d| Path::new(d).join(name))
        .find(|p| p.exists())
}

fn links_static() -> bool {
    static DONE: OnceLock<bool> = OnceLock::new();
    *DONE.get_or_init(|| {
        let source = out_dir().join("static-probe.c");
        fs::write(&source, "int main(void) { return 0; }").is_ok()
            && quiet(Command::new("gcc").args(["-static", "-o", "/dev/null"]).arg(source))
    })
}

/// The real interpreter, not a script that stands in front of it.
pub fn python() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOUND
        .get_or_init(|| {
            let asked = std::env::var("MEMSHIM_PYTHON").unwrap_or_else(|_| "python3".to_owned());
            let said = Command::new(asked).args(["-c", "import sys; print(sys.executable)"]).stdin(Stdio::null()).output().ok()?;
            let path = PathBuf::from(String::from_utf8(said.stdout).ok()?.trim());
            path.is_file().then_some(path)
        })
        .as_deref()
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Folder of the release artifacts.
pub fn release() -> PathBuf {
    let target = std::env::var_os("MEMSHIM_TARGET_DIR")
        .or_else(|| std::env::var_os("CARGO_TARGET_DIR"))
        .map_or_else(|| root().join("target"), PathBuf::from);
    root().join(target).join("release")
}

fn artifact(name: &str) -> PathBuf {
    let path = release().join(name);
    assert!(
        path.exists(),
        "{} is not there: `cargo build --release --workspace` makes it, MEMSHIM_TARGET_DIR says where to look",
        path.display()
    );
    path
}

pub fn shim() -> PathBuf {
    artifact("libmemshim.so")
}

pub fn memshim() -> PathBuf {
    artifact("memshim")
}

/// Where programs are built, one folder for all test binaries.
pub fn out_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
        fs::create_dir_all(&dir).expect("folder for the programs");
        open_path_to(&dir);
        dir
    })
}

/// Some programs become another user in mid-run; what they execute must stay in reach.
fn open_path_to(dir: &Path) {
    for d in dir.ancestors().take_while(|d| *d != Path::new("/")) {
        if let Ok(meta) = fs::metadata(d) {
            let mode = meta.permissions().mode();
            if mode & 0o011 != 0o011 {
                let _ = fs::set_permissions(d, fs::Permissions::from_mode(mode | 0o011));
            }
        }
    }
}

/// Builds `tests/programs/<source>` with `flags` as `name`, once a process, anew only when it is older than its source.
pub fn build(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    type Once = Arc<OnceLock<()>>;
    static BUILT: OnceLock<Mutex<HashMap<String, Once>>> = OnceLock::new();
    let once = BUILT.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner()).entry(name.to_owned()).or_default().clone();
    let made = out_dir().join(name);
    once.get_or_init(|| compile(&root().join("tests/programs").join(source), &made, flags));
    made
}

fn compile(source: &Path, made: &Path, flags: &[&str]) {
    let age = |p: &Path| fs::metadata(p).and_then(|m| m.modified()).ok();
    let newest = age(source).max(age(&source.with_file_name("facts.h"))).max(age(&root().join("tests/support/mod.rs")));
    if age(made) > newest {
        return;
    }
    let (compiler, standard) = if source.extension().is_some_and(|e| e == "cc") { ("g++", "-std=c++17") } else { ("gcc", "-std=gnu11") };
    let unfinished = made.with_extension(format!("new{}", std::process::id()));
    let out = Command::new(compiler)
        .args([standard, "-O1", "-g", "-w", "-fno-builtin", "-pthread", "-o"])
        .arg(&unfinished)
        .arg(source)
        .args(flags)
        .arg("-ldl")
        .output()
        .unwrap_or_else(|e| panic!("{compiler}: {e}"));
    assert!(out.status.success(), "{} does not build:\n{}", source.display(), String::from_utf8_lossy(&out.stderr));
    fs::rename(&unfinished, made).expect("put the built program in its place");
}

/// What one run left behind.
pub struct Ran {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// None: it did not end in time and was killed.
    pub status: Option<ExitStatus>,
    pub wall: Duration,
}

impl Ran {
    fn end(&self) -> String {
        match self.status {
            None => "no end in time".to_owned(),
            Some(s) => s.signal().map_or_else(|| format!("exit {}", s.code().unwrap_or(-1)), |n| format!("signal {n}")),
        }
    }

    fn truth(&self) -> Vec<u8> {
        self.stdout.split_inclusive(|b| *b == b'\n').filter(|l| l.starts_with(b"TRUTH ")).flatten().copied().collect()
    }
}

/// A started process in a session of its own, its output in files; dropping it leaves nothing of the session alive.
pub struct Session {
    pub child: Child,
    mark: String,
    dir: PathBuf,
    began: Instant,
    over: bool,
}

impl Session {
    /// Starts `command` with output to `dir/out` and `dir/err`.
    pub fn start(command: &mut Command, dir: &Path) -> Session {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let file = |name: &str| File::create(dir.join(name)).expect("file for output");
        command.stdin(Stdio::null()).stdout(file("out")).stderr(file("err")).env("MEMSHIM_TEST_SESSION", &mark);
        // SAFETY: setsid is async-signal-safe and touches no memory.
        unsafe {
            command.pre_exec(|| {
                setsid();
                Ok(())
            })
        };
        let child = command.spawn().unwrap_or_else(|e| panic!("start {command:?}: {e}"));
        Session { child, mark, dir: dir.to_owned(), began: Instant::now(), over: false }
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: a plain system call; the child is not waited for yet, so the number is its own.
        unsafe { kill(self.child.id() as i32, signal) };
    }

    /// Waits until it ends or `limit` has passed, then ends what is left of the session.
    pub fn finish(mut self, limit: Duration) -> Ran {
        let mut status = None;
        let mut pause = Duration::from_micros(200);
        while self.began.elapsed() < limit {
            status = self.child.try_wait().expect("wait");
            if status.is_some() {
                break;
            }
            sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
        let wall = self.began.elapsed();
        self.end_all(status.is_none());
        let read = |name: &str| fs::read(self.dir.join(name)).unwrap_or_default();
        Ran { stdout: read("out"), stderr: read("err"), status, wall }
    }

    fn end_all(&mut self, thorough: bool) {
        self.over = true;
        // SAFETY: the group is the session's own; its number stays taken while any process is in it.
        unsafe { kill(-(self.child.id() as i32), SIGKILL) };
        if thorough {
            for pid in marked(&self.mark) {
                // SAFETY: a process that carries this session's mark in its environment.
                unsafe { kill(pid, SIGKILL) };
            }
        }
        let _ = self.child.wait();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.over {
            self.end_all(true);
        }
    }
}

/// Processes that carry `mark` in their environment, wherever they moved to.
fn marked(mark: &str) -> Vec<i32> {
    let want = format!("MEMSHIM_TEST_SESSION={mark}").into_bytes();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let environ = fs::read(entry.path().join("environ")).ok()?;
        environ.split(|b| *b == 0).any(|v| v == want).then_some(pid)
    })
    .collect()
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
        let text = analyze(&self.trace_of(mode, &dir)).unwrap_or_else(|why| panic!("{}: analyze: {why}", self.test));
        Some(serde_json::from_str(&text).expect("analyze --json prints JSON"))
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
                command.env("LD_PRELOAD", shim()).env("MEMSHIM_OUT", &trace).env("MEMSHIM_MODE", mode.name());
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

/// The folder of a test.
pub fn run_dir(test: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("runs").join(test)
}

/// An empty folder for a test, in reach of other users.
pub fn fresh_dir(test: &str) -> PathBuf {
    let dir = run_dir(test);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("folder for a test");
    open_path_to(&dir);
    dir
}

pub fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
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

/// Holds TRUTH lines against a trace; the error is the last line of what `check-truth` said.
pub fn check_truth(trace: &Path, truth: &[u8]) -> Result<(), String> {
    let script = root().join("scripts/check-truth");
    let mut command = Command::new(&script);
    command.arg(trace).env("TRACE", trace).env("MEMSHIM_BIN", memshim()).env("MEMSHIM_TARGET_DIR", release().parent().expect("a parent"));
    let out = bounded(&mut command, truth)?;
    if out.status.success() {
        return Ok(());
    }
    let said = lossy(&out.stdout) + &lossy(&out.stderr);
    Err(format!("truth: {}", said.trim().lines().last().unwrap_or("no reason given")))
}

/// `memshim analyze --json` of a trace; the error is what it printed and how it ended.
pub fn analyze(trace: &Path) -> Result<String, String> {
    let out = bounded(Command::new(memshim()).args(["analyze", "--json"]).arg(trace), &[])?;
    if out.status.success() { Ok(lossy(&out.stdout)) } else { Err(format!("{}: {}", out.status, lossy(&out.stderr))) }
}

/// Runs a command of the project's own with `input`, two minutes at most.
fn bounded(command: &mut Command, input: &[u8]) -> Result<Output, String> {
    fn reader(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
        thread::spawn(move || {
            let mut bytes = vec![];
            let _ = pipe.read_to_end(&mut bytes);
            bytes
        })
    }
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().map_err(|e| format!("{command:?}: {e}"))?;
    let (stdout, stderr) = (child.stdout.take().map(reader), child.stderr.take().map(reader));
    let _ = child.stdin.take().expect("piped").write_all(input);
    let limit = Instant::now() + Duration::from_secs(120);
    let status = loop {
        match child.try_wait().map_err(|e| e.to_string())? {
            Some(status) => break status,
            None if Instant::now() < limit => sleep(Duration::from_millis(2)),
            None => {
                let _ = child.kill();
                return Err(format!("{command:?}: no end in two minutes"));
            }
        }
    };
    let collect = |handle: Option<thread::JoinHandle<Vec<u8>>>| handle.and_then(|h| h.join().ok()).unwrap_or_default();
    Ok(Output { status, stdout: collect(stdout), stderr: collect(stderr) })
}

/// Allocations and frees of exactly `size` bytes in the `sizes` tables of `analyze --json`, over all processes.
pub fn counted(report: &serde_json::Value, size: u64) -> (u64, u64) {
    let runs = report["runs"].as_array().map_or(&[][..], Vec::as_slice);
    let rows = runs.iter().filter_map(|run| run["heap"]["sizes"].as_array()).flatten().filter(|row| row[0] == size);
    rows.fold((0, 0), |(a, f), row| (a + row[1].as_u64().unwrap_or(0), f + row[2].as_u64().unwrap_or(0)))
}

/// In full mode every process's counted events are recorded or lost; none is lost unless `may_lose`.
pub fn conserved(report: &serde_json::Value, may_lose: bool) -> Result<(), String> {
    let runs = report["runs"].as_array().ok_or("no runs")?;
    for run in runs {
        let number = |key: &str| run["events"][key].as_u64().ok_or(format!("no events.{key} for process {}", run["pid"]));
        let (counted, recorded, lost) = (number("counted")?, number("recorded")?, number("lost")?);
        if counted != recorded + lost || (lost != 0 && !may_lose) {
            return Err(format!("process {} counted {counted} events, recorded {recorded}, lost {lost}", run["pid"]));
        }
    }
    Ok(())
}

/// Names that a linker puts among the exports of any library.
pub fn hidden_export(name: &str) -> bool {
    ["_init", "_fini", "_edata", "_end", "__bss_start"].contains(&name)
}

/// Sends a signal to a process that a test started.
pub fn signal(pid: i32, signal: i32) {
    // SAFETY: a plain system call; the caller knows the process as its own descendant.
    unsafe { kill(pid, signal) };
}

/// A test with the name of its promise: builds, runs and compares a program.
#[macro_export]
macro_rules! promises {
    ($($(#[$doc:meta])* $name:ident: $source:literal $([$($arg:literal),*])? $(.$method:ident($($value:expr),*))*;)*) => {
        $($(#[$doc])* #[test] fn $name() {
            support::Program::new(stringify!($name), $source)$($(.arg($arg))*)?$(.$method($($value),*))*.holds();
        })*
    };
}
