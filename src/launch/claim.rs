//! Which name a run's trace gets: the one that was asked for, or one of its own where another run is writing that.
//!
//! A process that finds a trace of a run that goes on joins that run: so must children. Two runs started by hand with one name are not
//! one run, though, and only who starts them knows. The name is settled under a lock on the folder, which is held until the target's
//! trace is there: of two started at once the later one sees the trace of the earlier.

use super::outside;
use super::pattern::{self, Names};
use crate::trace::recover;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::libc;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

/// A start that takes longer is not waited for by others, and others are not waited for longer.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A settled name.
pub struct Claim {
    /// Pattern of the trace's path.
    pub out: PathBuf,
    /// The trace that has the name that was asked for, and the process that writes it.
    pub taken: Option<(PathBuf, u64)>,
    /// The run that writes it is the one that we are part of.
    pub joined: bool,
    lock: Option<Flock<File>>,
}

impl Claim {
    /// Settles on a name. `part_of`: the pattern of the run that this process is recorded in.
    pub fn settle(out: &Path, names: &Names, part_of: Option<&OsStr>) -> Claim {
        let free = |lock| Claim { out: out.to_path_buf(), taken: None, joined: false, lock };
        if part_of == Some(out.as_os_str()) {
            return Claim { joined: true, ..free(None) };
        }
        let Some(wanted) = pattern::exact(out, names) else { return free(None) };
        let lock = lock_folder(&wanted);
        let Some(writer) = writer_of(&wanted) else { return free(lock) };
        for n in 2..1000 {
            let other = numbered(out, n);
            if pattern::exact(&other, names).is_none_or(|path| writer_of(&path).is_none()) {
                return Claim { out: other, taken: Some((wanted, writer)), joined: false, lock };
            }
        }
        free(lock)
    }

    /// Lets go of the folder once the target's trace is there, its process has no need of one, or it takes too long.
    pub fn release_when(&mut self, there: impl Fn() -> bool + Send + 'static, over: &Arc<AtomicBool>) {
        let Some(lock) = self.lock.take() else { return };
        let (began, over) = (Instant::now(), over.clone());
        // Without a thread the folder is let go of now: only two runs that start at once need it.
        let _ = Builder::new().spawn(move || {
            while began.elapsed() < PATIENCE && !over.load(Ordering::Relaxed) && !there() {
                sleep(LOOK_EVERY);
            }
            drop(lock);
        });
    }

    /// Lets go of the folder.
    pub fn release(&mut self) {
        self.lock = None;
    }
}

/// The folder of `path`, or the nearest above it that is there, locked; nothing where that can't be had.
fn lock_folder(path: &Path) -> Option<Flock<File>> {
    let folder = path.ancestors().skip(1).find(|f| f.is_dir())?;
    let mut file = File::open(folder).ok()?;
    let began = Instant::now();
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Some(lock),
            Err((again, Errno::EWOULDBLOCK)) if began.elapsed() < PATIENCE => file = again,
            Err(_) => return None,
        }
        sleep(LOOK_EVERY);
    }
}

/// The first process of the run that has not ended yet and whose trace this is.
fn writer_of(trace: &Path) -> Option<u64> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(trace).ok()?;
    file.metadata().ok().filter(|m| m.is_file())?;
    let header = outside::header(trace)?;
    let number = |key: &str| header[key].as_u64().unwrap_or(0);
    let host = header["host"].as_str().unwrap_or("");
    let locked = matches!(Flock::lock(file, FlockArg::LockExclusiveNonblock), Err((_, Errno::EWOULDBLOCK)));
    let lives = || recover::alive(host, number("pid_ns"), number("pid") as u32, number("start_ticks"));
    (locked || lives()).then_some(number("pid"))
}

/// `t.jsonl` → `t.2.jsonl`.
fn numbered(out: &Path, n: u32) -> PathBuf {
    let name = out.file_name().map_or(&b""[..], OsStr::as_bytes);
    let endings = [&b".jsonl.zst"[..], b".jsonl", b".zst"];
    let at = endings.into_iter().find(|e| name.ends_with(e)).map_or(name.len(), |e| name.len() - e.len());
    out.with_file_name(OsString::from_vec([&name[..at], format!(".{n}").as_bytes(), &name[at..]].concat()))
}

/// The trace among `candidates` that holds the target's lines: its own, or its file in the folder of the run that it joined.
pub fn trace_of(candidates: &[PathBuf], pid: i32, is_its: impl Fn(&Value) -> bool) -> Option<PathBuf> {
    let fits = |p: &PathBuf| outside::header(p).is_some_and(|h| is_its(&h));
    let own = candidates.iter().find(|p| fits(p)).cloned();
    own.or_else(|| candidates.iter().flat_map(|c| files_of(c, pid)).find(fits))
}

/// Files of a process number in the folder of a trace.
fn files_of(trace: &Path, pid: i32) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(crate::trace::family::folder_of(trace)).into_iter().flatten().flatten();
    let named = |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().split('.').next() == Some(&pid.to_string()));
    listed.map(|e| e.path()).filter(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_goes_before_the_ending() {
        let of = |name: &str| numbered(Path::new(name), 2).display().to_string();
        assert_eq!([of("/a/t.jsonl"), of("t.jsonl.zst"), of("t")], ["/a/t.2.jsonl", "t.2.jsonl.zst", "t.2"]);
    }

    #[test]
    fn the_name_of_a_run_that_goes_on_is_not_given_out_again() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("t.jsonl");
        let taken = || Claim::settle(&out, &Names::default(), None);
        assert!(taken().taken.is_none(), "nothing there");
        std::fs::write(&out, "{\"type\":\"header\",\"pid\":7}\n").unwrap();
        assert!(taken().taken.is_none(), "nobody of it lives");
        let held = Flock::lock(File::open(&out).unwrap(), FlockArg::LockShared).unwrap();
        let claim = taken();
        assert_eq!((claim.out.file_name(), claim.taken), (Some(OsStr::new("t.2.jsonl")), Some((out.clone(), 7))));
        assert!(Claim::settle(&out, &Names::default(), Some(out.as_os_str())).joined, "but to its own processes");
        drop(held);
        let me = std::process::id();
        let stat = super::super::proc::stat(me as i32).unwrap();
        let host = recover::own_host();
        let line = serde_json::json!({"type": "header", "pid": me, "start_ticks": stat.start_ticks, "host": host});
        std::fs::write(&out, format!("{line}\n")).unwrap();
        assert_eq!(taken().taken, Some((out.clone(), me as u64)), "alive, with its lock lost");
    }

    #[test]
    fn of_two_at_once_the_later_waits_for_the_earlier() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("t.jsonl");
        let mut first = Claim::settle(&out, &Names::default(), None);
        let late = out.clone();
        let second = std::thread::spawn(move || Claim::settle(&late, &Names::default(), None).out);
        sleep(Duration::from_millis(50));
        std::fs::write(&out, "{\"type\":\"header\",\"pid\":7}\n").unwrap();
        let _held = Flock::lock(File::open(&out).unwrap(), FlockArg::LockShared).unwrap();
        first.release();
        assert_eq!(second.join().unwrap(), dir.path().join("t.2.jsonl"));
    }
}
