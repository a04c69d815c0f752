//! `memshim watch`: a running process and what it starts, seen from outside alone, as traces of the usual form.
//!
//! Nothing is put into the process and nothing is asked of it: resident memory, its layers, the kernel's high-water marks, the cgroup,
//! processor time, children. Heap, maps, stacks and GPU calls are not to be seen from here; the header says `watch`, and the report so.

mod look;
mod record;

use super::cgroup::Cgroup;
use super::{descriptors, job, outside, proc, side};
use crate::trace::recover::own_host;
use look::Look;
use record::{Loss, Record};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Processes watched at one time; further ones are counted.
const PROCESSES_MAX: usize = 512;
/// Snapshots take at most one part in so many of the time, and this much at first: the process waits for its own map meanwhile.
const SNAPSHOT_SHARE: u64 = 200;
const SNAPSHOTS_FREE_NS: u64 = 20_000_000;
/// A peak is worth a snapshot from so much above the last.
const HIGHER: u64 = 1 << 20;
const WRITTEN_EVERY: Duration = Duration::from_secs(1);

/// What to watch, and where to write.
#[derive(Debug, Clone)]
pub struct Plan {
    pub pid: i32,
    pub out: PathBuf,
    pub interval: Duration,
    /// The watch ends then, whether the process has or not.
    pub at_most: Option<Duration>,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    pub ended: bool,
    pub hwm: u64,
    /// Other processes that it started and that were seen.
    pub others: usize,
    /// What was not allowed.
    pub denied: Vec<String>,
    /// What is not in the traces, all together, and why.
    pub lost: Option<(u64, String)>,
}

/// Why a trace cannot be made.
fn unwritable(why: &io::Error) -> String {
    match why.kind() {
        io::ErrorKind::AlreadyExists => "it is there already, and is not written over".to_owned(),
        _ => descriptors::said(why),
    }
}

/// Why nothing is watched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("process {0}: {why}", why = proc::why_none())]
    NoProcess(i32),
    #[error("process {0} has no memory to look at: it has ended, or it is a thread of the kernel")]
    NoMemory(i32),
    // Not called the source: whoever prints an error prints its source behind it.
    #[error("{}: {}; -o names another file", path.display(), unwritable(.why))]
    CannotWrite { path: PathBuf, why: io::Error },
}

/// Watches until the process ends, `stop` is set, or its time is over.
pub fn watch(plan: &Plan, stop: &AtomicBool) -> Result<Outcome, Error> {
    let began = Instant::now();
    let stat = proc::stat(plan.pid).ok_or(Error::NoProcess(plan.pid))?;
    let settings = Settings::new(plan.interval);
    let mut first = Watched::open(plan.pid, stat, plan.out.clone(), &settings)?;
    let end = Pid::from_raw(plan.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let mut others = Others {
        folder: crate::trace::family::folder_of(&plan.out),
        zst: is_packed(&plan.out),
        by: HashMap::new(),
        seen: 0,
        left_out: HashSet::new(),
        losses: Vec::new(),
    };
    let mut written = Instant::now();
    loop {
        let alive = first.look(&settings);
        if alive {
            others.look(plan.pid, &mut first, &settings);
        }
        let over = !alive || stop.load(Relaxed) || plan.at_most.is_some_and(|most| began.elapsed() >= most);
        if over || written.elapsed() >= WRITTEN_EVERY {
            written = Instant::now();
            first.write();
            others.by.values_mut().for_each(Watched::write);
        }
        if over {
            if !others.left_out.is_empty() {
                first.note(&format!(
                    "{} processes that it started were not watched: more than {PROCESSES_MAX} at one time",
                    others.left_out.len()
                ));
            }
            let (hwm, denied) = (first.hwm, first.denied.clone());
            let losses = others.by.into_values().map(Watched::finish).chain([first.finish()]).flatten();
            let lost = others.losses.into_iter().chain(losses).reduce(|all, one| Loss { lines: all.lines + one.lines, ..one });
            let lost = lost.map(|l| (l.lines, l.why));
            return Ok(Outcome { ended: !alive, hwm, others: others.seen, denied, lost });
        }
        wait(end.as_ref(), plan.interval);
    }
}

/// Until the process ends, or the next look is due.
fn wait(end: Option<&OwnedFd>, interval: Duration) {
    let Some(end) = end else { return std::thread::sleep(interval) };
    let time = rustix::time::Timespec { tv_sec: interval.as_secs() as i64, tv_nsec: i64::from(interval.subsec_nanos()) };
    // Of an ended one that nobody waits for the descriptor stays readable: the look then finds no memory.
    let _ = poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&time));
}

fn is_packed(out: &Path) -> bool {
    out.extension().is_some_and(|e| e == "zst")
}

struct Settings {
    run: String,
    host: String,
    interval: Duration,
    tick_ns: u64,
}

impl Settings {
    fn new(interval: Duration) -> Self {
        let ticks = rustix::param::clock_ticks_per_second().max(1);
        let run = outside::monotonic_ns() ^ u64::from(std::process::id()) << 40;
        Self { run: format!("{run:016x}"), host: own_host(), interval, tick_ns: 1_000_000_000 / ticks }
    }
}

/// A process that is watched, and its trace.
struct Watched {
    pid: i32,
    start_ticks: u64,
    exec: u32,
    exe: PathBuf,
    record: Record,
    cgroup: Option<Cgroup>,
    last: Option<Look>,
    peak: u64,
    hwm: u64,
    began: u64,
    snapshots_ns: u64,
    alive: bool,
    denied: Vec<String>,
}

impl Watched {
    fn open(pid: i32, stat: proc::Stat, path: PathBuf, settings: &Settings) -> Result<Self, Error> {
        let t = outside::monotonic_ns();
        let look = look::look(pid, t, settings.tick_ns).ok_or(Error::NoMemory(pid))?;
        let record = Record::create(&path, is_packed(&path), t).map_err(|why| Error::CannotWrite { path, why })?;
        let mut new = Self {
            pid,
            start_ticks: stat.start_ticks,
            exec: 0,
            exe: exe(pid),
            record,
            cgroup: Cgroup::of(&pid.to_string()),
            last: None,
            peak: 0,
            hwm: 0,
            began: t,
            snapshots_ns: 0,
            alive: true,
            denied: Vec::new(),
        };
        new.say(&header(pid, &stat, 0, t, settings));
        for what in ["smaps_rollup", "io"] {
            if let Err(e) = fs::read(format!("/proc/{pid}/{what}")) {
                new.denied.push(what.to_owned());
                new.note(&format!("/proc/{pid}/{what} cannot be read: {e}; watch as its user or root"));
            }
        }
        new.take(look, "start");
        // A full disk may have no room for it later, and without it nothing can be read.
        new.write();
        Ok(new)
    }

    fn say(&mut self, line: &Value) {
        self.record.say(line);
    }

    fn note(&mut self, what: &str) {
        self.say(&json!({"type": "note", "t": outside::monotonic_ns(), "what": what}));
    }

    /// Whether it is still there.
    fn look(&mut self, settings: &Settings) -> bool {
        let stat = proc::stat(self.pid).filter(|s| s.start_ticks == self.start_ticks && !matches!(s.state, 'Z' | 'X'));
        let t = outside::monotonic_ns();
        let Some((stat, look)) = stat.and_then(|s| Some((s, look::look(self.pid, t, settings.tick_ns)?))) else {
            self.alive = false;
            return false;
        };
        let exe = exe(self.pid);
        if exe != self.exe {
            self.exe = exe;
            self.exec += 1;
            (self.peak, self.began, self.snapshots_ns) = (0, t, 0);
            let header = header(self.pid, &stat, self.exec, t, settings);
            self.say(&header);
        }
        let higher = look.rss >= self.peak + HIGHER || look.rss > self.peak + self.peak / 100;
        let affordable = self.snapshots_ns.saturating_sub(SNAPSHOTS_FREE_NS) * SNAPSHOT_SHARE <= t.saturating_sub(self.began);
        let why = if higher && affordable { "peak" } else { "" };
        self.take(look, why);
        true
    }

    fn take(&mut self, look: Look, why: &str) {
        self.hwm = self.hwm.max(look.layers.get("hwm").and_then(Value::as_u64).unwrap_or(0));
        if why.is_empty() {
            self.say(&look.rss_line());
        } else {
            let before = outside::monotonic_ns();
            let mut line = look.snapshot(self.pid, why, self.cgroup.as_ref(), true);
            let cost = outside::monotonic_ns() - before;
            line["cost_ns"] = cost.into();
            self.snapshots_ns += cost;
            self.peak = self.peak.max(look.rss);
            self.say(&line);
        }
        self.last = Some(look);
    }

    fn write(&mut self) {
        self.record.write();
    }

    /// The last line says how it ended, as far as one sees that from outside. Gives what is not in the trace.
    fn finish(mut self) -> Option<Loss> {
        if let Some(last) = self.last.take() {
            let line = last.snapshot(self.pid, "exit", self.cgroup.as_ref(), false);
            self.say(&line);
        }
        let how = if self.alive { "left" } else { "gone" };
        self.record.finish(&json!({"type": "end", "t": outside::monotonic_ns(), "how": how, "code": null}))
    }
}

/// Processes that the watched one started, each with a trace in the folder.
struct Others {
    folder: PathBuf,
    zst: bool,
    by: HashMap<i32, Watched>,
    seen: usize,
    /// Number and start of those that were too many.
    left_out: HashSet<(i32, u64)>,
    /// Of those that have ended.
    losses: Vec<Loss>,
}

impl Others {
    fn look(&mut self, root: i32, first: &mut Watched, settings: &Settings) {
        let mut queue = vec![root];
        let mut next = 0;
        while let Some(&parent) = queue.get(next).filter(|_| next < PROCESSES_MAX) {
            next += 1;
            for child in proc::children(parent) {
                queue.push(child);
                if self.by.contains_key(&child) {
                    continue;
                }
                let Some(watched) = self.begin(child, settings) else { continue };
                let line = json!({"type": "child", "t": watched.began, "how": "fork", "pid": child});
                self.by.get_mut(&parent).unwrap_or(first).say(&line);
                self.by.insert(child, watched);
                self.seen += 1;
            }
        }
        // Also those whose parent has ended before them.
        let gone: Vec<i32> = self.by.iter_mut().filter_map(|(pid, w)| (!w.look(settings)).then_some(*pid)).collect();
        self.losses.extend(gone.into_iter().filter_map(|pid| self.by.remove(&pid)?.finish()));
    }

    fn begin(&mut self, pid: i32, settings: &Settings) -> Option<Watched> {
        let stat = proc::stat(pid)?;
        if self.by.len() >= PROCESSES_MAX {
            self.left_out.insert((pid, stat.start_ticks));
            return None;
        }
        let _ = fs::create_dir(&self.folder);
        let ext = if self.zst { "jsonl.zst" } else { "jsonl" };
        let names = [format!("{pid}.{ext}")].into_iter().chain((2..100).map(|n| format!("{pid}.{n}.{ext}")));
        names.map(|n| self.folder.join(n)).find_map(|path| match Watched::open(pid, stat, path, settings) {
            Err(Error::CannotWrite { why, .. }) if why.kind() == io::ErrorKind::AlreadyExists => None,
            other => Some(other.ok()),
        })?
    }
}

fn exe(pid: i32) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default()
}

/// The header line of `docs/trace-format.md`: what began is the watch, not the process.
fn header(pid: i32, stat: &proc::Stat, exec: u32, t: u64, settings: &Settings) -> Value {
    let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let list = |bytes: &[u8]| -> Vec<Vec<u8>> { bytes.split(|&c| c == 0).filter(|a| !a.is_empty()).map(<[u8]>::to_vec).collect() };
    let name = String::from_utf8_lossy(&read("comm")).trim().to_owned();
    let argv: Vec<Value> = list(&read("cmdline")).iter().map(|a| side::text(a)).collect();
    let variables = list(&read("environ"));
    let env = |name: &str| -> Option<OsString> {
        let of = |v: &Vec<u8>| v.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(|v| OsString::from_vec(v.to_vec()));
        variables.iter().find_map(of)
    };
    let link = |name: &str| fs::read_link(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let pid_ns: u64 = link("ns/pid").to_string_lossy().split(['[', ']']).nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    json!({
        "type": "header", "v": 1, "run": settings.run, "pid": pid, "ppid": stat.ppid, "start_ticks": stat.start_ticks, "pid_ns": pid_ns, "exec": exec,
        "mode": "watch", "tick_ns": 1, "mono_ns": t, "wall_ns": outside::wall_ns(), "host": settings.host, "exe": side::os_text(link("exe").as_os_str()),
        "argv": if argv.is_empty() { vec![name.into()] } else { argv }, "cwd": side::os_text(link("cwd").as_os_str()),
        "rank": job::rank(&env).and_then(|r| r.1.parse::<i64>().ok()), "job": job::job_id(&env).map(|j| j.1),
        "interval_ns": settings.interval.as_nanos() as u64, "page": rustix::param::page_size(), "allocator": "", "heap_seen": false,
        "fns": [], "stacks": "off", "python": null,
    })
}

/// Where the trace goes when nobody says: `watch.4242.jsonl`, or the next name that is free.
pub fn default_out(pid: i32) -> PathBuf {
    let names = [format!("watch.{pid}.jsonl")].into_iter().chain((2..).map(|n| format!("watch.{pid}.{n}.jsonl")));
    let free = |p: &PathBuf| !p.exists() && !crate::trace::family::folder_of(p).exists();
    names.map(PathBuf::from).find(free).unwrap_or_else(|| OsStr::from_bytes(b"watch.jsonl").into())
}
