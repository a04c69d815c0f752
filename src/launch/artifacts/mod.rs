//! `--artifacts`: files that were written while the target ran: when, how large, how many lines, and whether they are gone again.
//!
//! `inotify` tells of writes as they end; what it missed (its queue overflowed, a folder came and was filled at once, another host wrote) a
//! look at the end finds by what is another than before the start. Not for: which phase a file fell into (`analyze::artifacts`).

mod folders;
mod glob;
mod size;

pub use glob::Glob;

use folders::Folders;
use size::count;

use super::{outside, side};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, ReadFlags};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// Files beyond these are counted only.
const FILES_MAX: usize = 100_000;
/// Lines of larger files are counted at the end only.
const COUNTED_AT_ONCE: u64 = 16 << 20;
/// Larger ones are counted again after a second at the soonest.
const SMALL: u64 = 64 << 10;
const AGAIN_NS: u64 = 1_000_000_000;
/// Lines are counted of so many bytes at the end, all files together: a run does not go on for hours over its checkpoints.
const COUNTED_AT_END: u64 = 1 << 30;
/// Times of files are those of the kernel's last tick.
const STAMP_NS: i64 = 20_000_000;

/// What tells whether a file was written to.
type Identity = (u64, u64, i64, i64, i64, i64);

fn identity(m: &Metadata) -> Identity {
    (m.ino(), m.len(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec())
}

/// What is known of a file.
struct Seen {
    t: u64,
    /// `None`: gone before anybody could look.
    bytes: Option<u64>,
    lines: Option<u64>,
    /// As it was when it was looked at.
    identity: Identity,
}

/// Watches folders from before the start of the target.
pub struct Artifacts {
    folders: Folders,
    /// The trace's own files are none of the target's.
    trace: PathBuf,
    here: PathBuf,
    before: HashMap<PathBuf, Identity>,
    /// Something that was there before is not in `before`.
    partial: bool,
    seen: BTreeMap<PathBuf, Seen>,
    /// Writes to files beyond those, and times that the kernel's queue ran over.
    beyond: u64,
    overruns: u64,
    /// CLOCK_REALTIME at the start, and what it is ahead of CLOCK_MONOTONIC.
    began: i64,
    ahead: i64,
}

impl Artifacts {
    /// To be called before the target starts; starts no thread.
    pub fn watch(globs: Vec<Glob>, trace: &Path) -> io::Result<Self> {
        let queue = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let began = outside::wall_ns() as i64;
        let mut all = Self {
            folders: Folders::new(globs, queue),
            trace: trace.to_path_buf(),
            here: std::env::current_dir().unwrap_or_default(),
            before: HashMap::new(),
            partial: false,
            seen: BTreeMap::new(),
            beyond: 0,
            overruns: 0,
            began,
            ahead: began - outside::monotonic_ns() as i64,
        };
        let roots = all.folders.roots();
        for (path, m) in all.enter(&roots) {
            all.partial |= all.before.len() >= FILES_MAX;
            if all.before.len() < FILES_MAX {
                all.before.insert(path, identity(&m));
            }
        }
        if let Some(said) = all.folders.left_out.said() {
            all.partial = true;
            eprintln!("memshim: --artifacts {said}");
        }
        Ok(all)
    }

    /// Listens until told to finish; to be called after the target was started. `None`: no descriptor or thread is to be had.
    pub fn listen(mut self) -> Option<Listening> {
        let (stop, end) = io::pipe().ok()?;
        let listen = move || {
            loop {
                let mut both = [
                    PollFd::from_borrowed_fd(self.folders.queue.as_fd(), PollFlags::IN),
                    PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
                ];
                let _ = poll(&mut both, None);
                let stopped = !both[1].revents().is_empty();
                self.take_events();
                if stopped {
                    return self;
                }
            }
        };
        let started = std::thread::Builder::new()
            .spawn(listen)
            .inspect_err(|e| eprintln!("memshim: no thread can be had ({e}): files are not noted; raise `ulimit -u` or `ulimit -v`"));
        let thread = started.ok()?;
        Some(Listening { end, thread })
    }

    fn take_events(&mut self) {
        let mut events = Vec::new();
        let mut buffer = [const { MaybeUninit::uninit() }; 16 << 10];
        let mut reader = inotify::Reader::new(&self.folders.queue, &mut buffer);
        while let Ok(e) = reader.next() {
            let name = e.file_name().map(|n| OsStr::from_bytes(n.to_bytes()).to_owned());
            events.push((e.wd(), e.events(), name));
        }
        let t = outside::monotonic_ns();
        for (folder, what, name) in events {
            self.overruns += what.contains(ReadFlags::QUEUE_OVERFLOW) as u64;
            if what.contains(ReadFlags::IGNORED) {
                self.folders.forget(folder);
            }
            let Some(path) = self.folders.of(folder).zip(name).map(|(f, n)| f.join(n)) else { continue };
            if what.contains(ReadFlags::ISDIR) {
                self.enter(&[path]).into_iter().for_each(|(path, m)| self.look(path, &m, t, true));
            } else if wanted(&self.trace, &path, &self.folders.globs, false) {
                match fs::symlink_metadata(&path) {
                    Ok(m) if m.is_file() => self.look(path, &m, t, true),
                    // Links, pipes, sockets.
                    Ok(_) => {}
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => self.miss(path, t),
                    // It may be there: the look at the end tells.
                    Err(_) => {}
                }
            }
        }
    }

    /// Takes down a file that was gone before anybody could look. One that was seen as it was made only had nothing in it yet.
    fn miss(&mut self, path: PathBuf, t: u64) {
        if !self.has_room(&path) {
            return;
        }
        let unseen = Seen { t, bytes: None, lines: None, identity: Identity::default() };
        if self.seen.get(&path).is_none_or(|s| s.bytes == Some(0)) {
            self.seen.insert(path, unseen);
        }
    }

    /// Whether a file is among those that are kept.
    fn has_room(&mut self, path: &Path) -> bool {
        let has = self.seen.len() < FILES_MAX || self.seen.contains_key(path);
        self.beyond += !has as u64;
        has
    }

    /// Takes a look at a file that was written to, or may have been. `read`: its lines are counted at once, unless it is large.
    fn look(&mut self, path: PathBuf, m: &Metadata, t: u64, read: bool) {
        let identity = identity(m);
        if self.seen.get(&path).is_some_and(|s| s.identity == identity) || self.before.get(&path) == Some(&identity) {
            return;
        }
        if !self.has_room(&path) {
            return;
        }
        // A log that is opened for each line is not read whole each time.
        let again = m.len() > SMALL && self.seen.get(&path).is_some_and(|s| t < s.t.saturating_add(AGAIN_NS));
        let counted = (read && m.len() <= COUNTED_AT_ONCE && !again).then(|| count(&path)).flatten();
        let (bytes, lines) = counted.map_or((m.len(), None), |(bytes, lines)| (bytes, Some(lines)));
        self.seen.insert(path, Seen { t, bytes: Some(bytes), lines, identity });
    }

    /// Watches folders and those in them, and gives the files wanted.
    fn enter(&mut self, folders: &[PathBuf]) -> Vec<(PathBuf, Metadata)> {
        let (mut found, trace) = (Vec::new(), &self.trace);
        self.folders.enter(folders, |path, globs, is_folder| wanted(trace, path, globs, is_folder), |path, m| found.push((path, m)));
        found
    }

    /// What was written, in order, as lines of the side file.
    fn finish(mut self) -> Vec<Value> {
        self.take_events();
        let roots = self.folders.roots();
        for (path, m) in self.folders_again(&roots) {
            // One that was there before is not known where not all were looked at; then its own time says what it is.
            let old = self.partial && !self.before.contains_key(&path) && nanos(m.ctime(), m.ctime_nsec()) < self.began - STAMP_NS;
            if !old {
                // When it was written is known by the file itself.
                let t = (nanos(m.mtime(), m.mtime_nsec()) - self.ahead).max(0) as u64;
                self.look(path, &m, t, false);
            }
        }
        let mut all: Vec<(PathBuf, Seen)> = std::mem::take(&mut self.seen).into_iter().collect();
        all.sort_by_key(|(_, s)| s.t);
        let mut left = COUNTED_AT_END;
        let mut lines: Vec<Value> = all.into_iter().map(|(path, seen)| self.line(&path, &seen, &mut left)).collect();
        lines.extend(self.missing());
        lines
    }

    /// The look at the end; what it leaves out is said with what the one at the start did.
    fn folders_again(&mut self, roots: &[PathBuf]) -> Vec<(PathBuf, Metadata)> {
        let before = std::mem::take(&mut self.folders.left_out);
        self.folders.watching = false;
        let found = self.enter(roots);
        self.folders.left_out = before.with(std::mem::take(&mut self.folders.left_out));
        found
    }

    /// What is not among the files, counted.
    fn missing(&self) -> Vec<Value> {
        let left_out = &self.folders.left_out;
        let why = left_out.said().unwrap_or_default();
        let files = format!("there are more than {FILES_MAX}; name fewer of them");
        let all = [
            ("folders of --artifacts", left_out.folders + left_out.unwatched, &*why),
            ("writes to files of --artifacts", self.beyond, &*files),
            (
                "times that news of --artifacts ran over",
                self.overruns,
                "the kernel keeps no more; files that were gone at the end may be missing",
            ),
        ];
        let t = outside::monotonic_ns();
        let line = |(what, n, why): (&str, u64, &str)| json!({"type": "lost", "t": t, "n": n, "what": what, "why": why});
        all.into_iter().filter(|(_, n, _)| *n > 0).map(line).collect()
    }

    /// `left`: bytes that may still be read to count lines.
    fn line(&self, path: &Path, seen: &Seen, left: &mut u64) -> Value {
        let now = fs::symlink_metadata(path).ok().filter(Metadata::is_file);
        let (bytes, lines, deleted) = match &now {
            None => (seen.bytes, seen.lines, !path.exists()),
            Some(m) if seen.lines.is_some() && identity(m) == seen.identity => (seen.bytes, seen.lines, false),
            Some(m) if m.len() <= *left => {
                *left -= m.len();
                let counted = count(path).map_or((m.len(), None), |(bytes, lines)| (bytes, Some(lines)));
                (Some(counted.0), counted.1, false)
            }
            Some(m) => (Some(m.len()), None, false),
        };
        let shown = path.strip_prefix(&self.here).unwrap_or(path);
        json!({"type": "artifact", "t": seen.t, "path": side::os_text(shown.as_os_str()), "bytes": bytes, "lines": lines, "deleted": deleted})
    }
}

/// A thread that listens.
pub struct Listening {
    end: io::PipeWriter,
    thread: JoinHandle<Artifacts>,
}

impl Listening {
    /// The target has ended: what was written, in order, as lines of the side file.
    pub fn finish(self) -> Vec<Value> {
        drop(self.end);
        self.thread.join().map(Artifacts::finish).unwrap_or_default()
    }
}

/// A file that fits, or a folder on the way to some; but the trace's own.
fn wanted(trace: &Path, path: &Path, globs: &[Glob], is_folder: bool) -> bool {
    globs.iter().any(|g| if is_folder { g.leads_through(path) } else { g.fits(path) }) && !is_own(trace, path)
}

/// Of the trace's own family.
fn is_own(trace: &Path, path: &Path) -> bool {
    let name = |p: &Path| p.file_name().map(|n| n.as_bytes().to_vec()).unwrap_or_default();
    path.starts_with(crate::trace::family::folder_of(trace))
        || path.parent() == trace.parent() && {
            let trace = name(trace);
            let plain = trace.strip_suffix(b".zst").unwrap_or(&trace);
            name(path).starts_with(plain)
        }
}

fn nanos(s: i64, ns: i64) -> i64 {
    s.saturating_mul(1_000_000_000).saturating_add(ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(dir: &Path, glob: &str) -> Artifacts {
        let glob = Glob::new(OsStr::new(glob), dir).unwrap();
        let mut artifacts = Artifacts::watch(vec![glob], &dir.join("t.jsonl")).unwrap();
        artifacts.here = dir.to_path_buf();
        artifacts
    }

    fn facts(all: &[Value]) -> Vec<(String, u64, Option<u64>, bool)> {
        let of = |v: &Value| {
            (v["path"].as_str().unwrap().to_owned(), v["bytes"].as_u64().unwrap(), v["lines"].as_u64(), v["deleted"].as_bool().unwrap())
        };
        all.iter().map(of).collect()
    }

    #[test]
    fn what_is_written_is_told_in_order_with_its_bytes_and_lines() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("old.txt"), "old\n").unwrap();
        fs::write(at("changed.txt"), "old\n").unwrap();
        let listening = watch(dir.path(), "**/*.txt").listen().unwrap();
        let pause = || std::thread::sleep(std::time::Duration::from_millis(30));
        fs::create_dir_all(at("new/deep")).unwrap();
        fs::write(at("new/deep/b.txt"), "1\n2\nno end").unwrap();
        pause();
        fs::write(at("gone.txt"), "x\n").unwrap();
        pause();
        fs::remove_file(at("gone.txt")).unwrap();
        fs::write(at("changed.txt"), "old\nnew\n").unwrap();
        fs::write(at("t.jsonl.marks"), "").unwrap();
        fs::write(at("other.log"), "").unwrap();
        std::os::unix::fs::symlink("old.txt", at("link.txt")).unwrap();
        pause();
        fs::write(at("part"), "").unwrap();
        fs::rename(at("part"), at("a.txt")).unwrap();
        let all = listening.finish();
        let want = [
            ("new/deep/b.txt".to_owned(), 10, Some(2), false),
            ("gone.txt".to_owned(), 2, Some(1), true),
            ("changed.txt".to_owned(), 8, Some(2), false),
            ("a.txt".to_owned(), 0, Some(0), false),
        ];
        assert_eq!(facts(&all), want);
    }

    #[test]
    fn a_log_that_is_opened_for_each_line_has_all_of_them_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log.txt");
        let line = format!("{}\n", "x".repeat(999));
        let mut artifacts = watch(dir.path(), "*.txt");
        for n in 1..=200u64 {
            fs::write(&log, line.repeat(n as usize)).unwrap();
            artifacts.look(log.clone(), &fs::symlink_metadata(&log).unwrap(), n, true);
        }
        assert_eq!(artifacts.seen[&log].lines, None, "not read again within a second");
        artifacts.look(log.clone(), &fs::symlink_metadata(&log).unwrap(), 201, true);
        assert_eq!(facts(&artifacts.finish()), [("log.txt".to_owned(), 200_000, Some(200), false)]);
    }

    #[test]
    fn what_nobody_could_look_into_has_no_size() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let mut artifacts = watch(dir.path(), "*");
        for name in ["a", "made", "kept"] {
            fs::write(at(name), if name == "kept" { "1\n" } else { "" }).unwrap();
        }
        for name in ["made", "kept"] {
            artifacts.look(at(name), &fs::symlink_metadata(at(name)).unwrap(), 1, true);
        }
        for name in ["a", "made", "kept"] {
            fs::remove_file(at(name)).unwrap();
        }
        let all = artifacts.finish();
        let of =
            |name: &str| all.iter().find(|v| v["path"] == name).map(|v| (v["bytes"].as_u64(), v["lines"].as_u64(), v["deleted"].as_bool()));
        assert_eq!((of("a"), of("made")), (Some((None, None, Some(true))), Some((None, None, Some(true)))));
        assert_eq!(of("kept"), Some((Some(2), Some(1), Some(true))), "what was seen last");
    }

    #[test]
    fn a_look_at_the_end_finds_what_nobody_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let mut artifacts = watch(dir.path(), "later/out");
        artifacts.folders.queue = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        fs::create_dir_all(dir.path().join("later/out/x")).unwrap();
        fs::write(dir.path().join("later/out/x/f"), "a\n").unwrap();
        let all = artifacts.finish();
        assert_eq!(facts(&all), [("later/out/x/f".to_owned(), 2, Some(1), false)]);
        assert!(all[0]["t"].as_u64().unwrap().abs_diff(outside::monotonic_ns()) < 5_000_000_000);
    }
}
