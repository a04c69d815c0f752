//! `--artifacts`: files that were written while the target ran: when, how large, how many lines, and whether they are gone again.
//!
//! `inotify` tells of writes as they end; what it missed (its queue overflowed, a folder came and was filled at once, another host wrote) a
//! look at the end finds by what is another than before the start. Not for: which phase a file fell into (`analyze::artifacts`).

mod glob;

pub use glob::Glob;

use super::{outside, side};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// Files and folders beyond these are not looked at.
const FILES_MAX: usize = 100_000;
const FOLDERS_MAX: usize = 10_000;
/// Lines of larger files are counted at the end only.
const COUNTED_AT_ONCE: u64 = 16 << 20;
/// Larger ones are counted again after a second at the soonest.
const SMALL: u64 = 64 << 10;
const AGAIN_NS: u64 = 1_000_000_000;
/// Lines are counted of so many bytes at the end, all files together: a run does not go on for hours over its checkpoints.
const COUNTED_AT_END: u64 = 1 << 30;

/// What tells whether a file was written to.
type Identity = (u64, u64, i64, i64, i64, i64);

fn identity(m: &Metadata) -> Identity {
    (m.ino(), m.len(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec())
}

/// What is known of a file.
struct Seen {
    t: u64,
    bytes: u64,
    lines: Option<u64>,
    /// As it was when it was looked at.
    identity: Identity,
}

/// Watches folders from before the start of the target.
pub struct Artifacts {
    globs: Vec<Glob>,
    /// The trace's own files are none of the target's.
    trace: PathBuf,
    here: PathBuf,
    queue: OwnedFd,
    folders: HashMap<i32, PathBuf>,
    before: HashMap<PathBuf, Identity>,
    seen: BTreeMap<PathBuf, Seen>,
    /// What CLOCK_REALTIME is ahead of CLOCK_MONOTONIC.
    ahead: i64,
}

impl Artifacts {
    /// To be called before the target starts; starts no thread.
    pub fn watch(globs: Vec<Glob>, trace: &Path) -> io::Result<Self> {
        let queue = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let real = outside::wall_ns() as i64;
        let mut all = Self {
            trace: trace.to_path_buf(),
            here: std::env::current_dir().unwrap_or_default(),
            queue,
            folders: HashMap::new(),
            before: HashMap::new(),
            seen: BTreeMap::new(),
            ahead: real - outside::monotonic_ns() as i64,
            globs,
        };
        let mut found = Vec::new();
        let bases: Vec<PathBuf> = all.globs.iter().map(|g| existing(&g.base)).collect();
        bases.iter().for_each(|b| all.enter(b, &mut found));
        all.before = found.into_iter().map(|(path, m)| (path, identity(&m))).collect();
        Ok(all)
    }

    /// Listens until told to finish; to be called after the target was started. `None`: no descriptor or thread is to be had.
    pub fn listen(mut self) -> Option<Listening> {
        let (stop, end) = io::pipe().ok()?;
        let listen = move || {
            loop {
                let mut both =
                    [PollFd::from_borrowed_fd(self.queue.as_fd(), PollFlags::IN), PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
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
        let mut reader = inotify::Reader::new(&self.queue, &mut buffer);
        while let Ok(e) = reader.next() {
            let name = e.file_name().map(|n| OsStr::from_bytes(n.to_bytes()).to_owned());
            events.push((e.wd(), e.events(), name));
        }
        let t = outside::monotonic_ns();
        for (folder, what, name) in events {
            let Some(path) = self.folders.get(&folder).zip(name).map(|(f, n)| f.join(n)) else { continue };
            if what.contains(ReadFlags::ISDIR) {
                let mut found = Vec::new();
                self.enter(&path, &mut found);
                found.into_iter().for_each(|(path, m)| self.look(path, &m, t));
            } else if self.is_wanted(&path)
                && let Ok(m) = fs::symlink_metadata(&path)
                && m.is_file()
            {
                self.look(path, &m, t);
            } else if what.intersects(ReadFlags::CREATE | ReadFlags::CLOSE_WRITE) && self.seen.len() < FILES_MAX && self.is_wanted(&path) {
                // Gone before anybody could look.
                self.seen.entry(path).or_insert(Seen { t, bytes: 0, lines: None, identity: Identity::default() });
            }
        }
    }

    /// Takes a look at a file that was written to, or may have been.
    fn look(&mut self, path: PathBuf, m: &Metadata, t: u64) {
        let identity = identity(m);
        let unchanged = self.seen.get(&path).is_some_and(|s| s.identity == identity) || self.before.get(&path) == Some(&identity);
        if !unchanged && (self.seen.len() < FILES_MAX || self.seen.contains_key(&path)) {
            // A log that is opened for each line is not read whole each time.
            let again = m.len() > SMALL && self.seen.get(&path).is_some_and(|s| t < s.t.saturating_add(AGAIN_NS));
            let counted = (m.len() <= COUNTED_AT_ONCE && !again).then(|| count(&path)).flatten();
            let (bytes, lines) = counted.map_or((m.len(), None), |(bytes, lines)| (bytes, Some(lines)));
            self.seen.insert(path, Seen { t, bytes, lines, identity });
        }
    }

    /// Watches a folder and those in it, as far as what is wanted may lie there, and gives the files wanted.
    fn enter(&mut self, folder: &Path, found: &mut Vec<(PathBuf, Metadata)>) {
        let leads_there = |g: &Glob| folder.starts_with(&g.base) || g.base.starts_with(folder);
        if self.folders.len() >= FOLDERS_MAX || self.is_own(folder) || !self.globs.iter().any(leads_there) {
            return;
        }
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::DONT_FOLLOW | WatchFlags::ONLYDIR;
        // Where there are no more watches to be had, the look at the end is all.
        if let Ok(number) = inotify::add_watch(&self.queue, folder, flags) {
            self.folders.insert(number, folder.to_path_buf());
        }
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type());
            if kind.as_ref().is_ok_and(|k| k.is_dir()) {
                self.enter(&path, found);
            } else if kind.is_ok_and(|k| k.is_file())
                && self.is_wanted(&path)
                && found.len() < FILES_MAX
                && let Ok(m) = fs::symlink_metadata(&path)
            {
                found.push((path, m));
            }
        }
    }

    fn is_wanted(&self, path: &Path) -> bool {
        self.globs.iter().any(|g| g.fits(path)) && !self.is_own(path)
    }

    /// Of the trace's own family.
    fn is_own(&self, path: &Path) -> bool {
        let name = |p: &Path| p.file_name().map(|n| n.as_bytes().to_vec()).unwrap_or_default();
        let folder = crate::trace::family::folder_of(&self.trace);
        path.starts_with(&folder)
            || path.parent() == self.trace.parent() && {
                let trace = name(&self.trace);
                let plain = trace.strip_suffix(b".zst").unwrap_or(&trace);
                name(path).starts_with(plain)
            }
    }

    /// What was written, in order, as lines of the side file.
    fn finish(mut self) -> Vec<Value> {
        self.take_events();
        let mut found = Vec::new();
        self.folders.clear();
        let bases: Vec<PathBuf> = self.globs.iter().map(|g| existing(&g.base)).collect();
        bases.iter().for_each(|b| self.enter(b, &mut found));
        for (path, m) in found {
            // When it was written is known by the file itself.
            let t = (m.mtime() * 1_000_000_000 + m.mtime_nsec() - self.ahead).max(0) as u64;
            self.look(path, &m, t);
        }
        let mut all: Vec<(PathBuf, Seen)> = std::mem::take(&mut self.seen).into_iter().collect();
        all.sort_by_key(|(_, s)| s.t);
        let mut left = COUNTED_AT_END;
        all.into_iter().map(|(path, seen)| self.line(&path, &seen, &mut left)).collect()
    }

    /// `left`: bytes that may still be read to count lines.
    fn line(&self, path: &Path, seen: &Seen, left: &mut u64) -> Value {
        let now = fs::symlink_metadata(path).ok().filter(Metadata::is_file);
        let (bytes, lines, deleted) = match &now {
            None => (seen.bytes, seen.lines, !path.exists()),
            Some(m) if seen.lines.is_some() && identity(m) == seen.identity => (seen.bytes, seen.lines, false),
            Some(m) => match m.len() <= *left {
                true => {
                    *left -= m.len();
                    count(path).map_or((m.len(), None, false), |(bytes, lines)| (bytes, Some(lines), false))
                }
                false => (m.len(), None, false),
            },
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

/// The nearest folder above that is there.
fn existing(folder: &Path) -> PathBuf {
    folder.ancestors().find(|a| a.is_dir()).unwrap_or(Path::new("/")).to_path_buf()
}

/// Bytes and line ends, as `wc` counts them.
fn count(path: &Path) -> Option<(u64, u64)> {
    let mut file = crate::trace::read::open_file(path).ok()?;
    let mut buffer = vec![0; 256 << 10];
    let (mut bytes, mut lines) = (0, 0);
    loop {
        let n = read(&mut file, &mut buffer)?;
        if n == 0 {
            return Some((bytes, lines));
        }
        bytes += n as u64;
        lines += memchr::memchr_iter(b'\n', &buffer[..n]).count() as u64;
    }
}

fn read(file: &mut File, buffer: &mut [u8]) -> Option<usize> {
    loop {
        match file.read(buffer) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other.ok(),
        }
    }
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
            artifacts.look(log.clone(), &fs::symlink_metadata(&log).unwrap(), n);
        }
        assert_eq!(artifacts.seen[&log].lines, None, "not read again within a second");
        artifacts.look(log.clone(), &fs::symlink_metadata(&log).unwrap(), 201);
        assert_eq!(facts(&artifacts.finish()), [("log.txt".to_owned(), 200_000, Some(200), false)]);
    }

    #[test]
    fn a_look_at_the_end_finds_what_nobody_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let mut artifacts = watch(dir.path(), "later/out");
        artifacts.queue = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        fs::create_dir_all(dir.path().join("later/out/x")).unwrap();
        fs::write(dir.path().join("later/out/x/f"), "a\n").unwrap();
        let all = artifacts.finish();
        assert_eq!(facts(&all), [("later/out/x/f".to_owned(), 2, Some(1), false)]);
        assert!(all[0]["t"].as_u64().unwrap().abs_diff(outside::monotonic_ns()) < 5_000_000_000);
    }
}
