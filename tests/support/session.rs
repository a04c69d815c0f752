//! A started process with all that it starts: its output, its end, and nothing of it left alive.

use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

unsafe extern "C" {
    fn setsid() -> i32;
    fn kill(pid: i32, signal: i32) -> i32;
}

const SIGKILL: i32 = 9;

/// What one run left behind.
pub struct Ran {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// None: it did not end in time and was killed.
    pub status: Option<ExitStatus>,
    pub wall: Duration,
}

impl Ran {
    pub fn end(&self) -> String {
        match self.status {
            None => "no end in time".to_owned(),
            Some(s) => s.signal().map_or_else(|| format!("exit {}", s.code().unwrap_or(-1)), |n| format!("signal {n}")),
        }
    }

    pub fn truth(&self) -> Vec<u8> {
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

/// Sends a signal to a process that a test started.
pub fn signal(pid: i32, signal: i32) {
    // SAFETY: a plain system call; the caller knows the process as its own descendant.
    unsafe { kill(pid, signal) };
}
