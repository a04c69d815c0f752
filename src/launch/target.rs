//! One target from start to end: spawn, watch, find its trace, write what was seen from outside.

use super::artifacts::{Artifacts, Glob, Listening};
use super::bystander::Bystander;
use super::cgroup::{Cgroup, Reading};
use super::claim::{self, Claim};
use super::elf::Program;
use super::listed::Listed;
use super::pattern::{self, Names};
use super::relay::{Relay, Watch};
use super::side::{SideFile, Whose};
use super::signals::Signals;
use super::watch::{self, Ended, Seen};
use super::{descriptors, job, outside, preload, proc, spawn};
use crate::trace::{family, recover};
use nix::libc;
use serde_json::Value;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// What to run, and how.
#[derive(Debug, Clone)]
pub struct Plan {
    pub argv: Vec<OsString>,
    /// Pattern of the trace's path; relative to the present folder.
    pub out: PathBuf,
    /// Further variables for the shim.
    pub variables: Vec<(&'static str, OsString)>,
    /// The mode is off: there will be no trace.
    pub off: bool,
    /// Programs that are recorded, and not.
    pub listed: Listed,
    pub library: PathBuf,
    /// What of its output is looked for.
    pub watch: Watch,
    /// Files that are noted when they are written.
    pub artifacts: Vec<Glob>,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    pub ended: Ended,
    /// Largest VmHWM of the target itself: what it said itself at its end, or what was seen.
    pub hwm: Option<u64>,
    /// It had no more at any time.
    pub is_exact: bool,
    /// No process of it had more at once (`ru_maxrss`: includes what it waited for, and us between fork and exec).
    pub at_most: Option<u64>,
    /// Largest VmHWM seen of a process that it started.
    pub children_hwm: Option<u64>,
    /// The trace, or why there is none.
    pub trace: Result<PathBuf, String>,
    /// Trouble with the trace that is there.
    pub trouble: Option<String>,
    /// Heap calls that the trace has no events of, and all there were; of a trace that says so.
    pub missing: Option<(u64, u64)>,
    pub oom_kills: u64,
    pub limit: Option<u64>,
}

/// The target could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{0}: command not found")]
    NotFound(String),
    #[error("{0}: cannot be run: {why}", why = descriptors::said(.1))]
    NotRunnable(String, io::Error),
    #[error("cannot watch signals: {why}", why = descriptors::said(.0))]
    Signals(io::Error),
}

impl StartError {
    /// As shells and `env` have it.
    pub fn exit_code(&self) -> u8 {
        match self {
            StartError::NotFound(_) => 127,
            StartError::NotRunnable(..) => 126,
            StartError::Signals(_) => 125,
        }
    }
}

/// Runs a target to its end.
pub fn run(plan: &Plan) -> Result<Outcome, StartError> {
    let out = std::path::absolute(&plan.out).unwrap_or_else(|_| plan.out.clone());
    // The target runs anyway, and the shim says that there is no such folder; only here it is known why.
    let folder = pattern::fixed_folder(&out);
    if let Err(e) = std::fs::create_dir_all(&folder)
        && !folder.exists()
        && e.kind() != io::ErrorKind::NotADirectory
    {
        eprintln!("memshim: cannot make the folder {}: {}", shortest(&folder).display(), descriptors::said(&e));
    }

    let given = descriptors::raise();
    let cgroup = Cgroup::of("self");
    let before = cgroup.as_ref().map(Cgroup::read).unwrap_or_default();
    let mut relay = (!plan.watch.is_idle()).then(|| Relay::start(&plan.watch)).transpose().unwrap_or_else(|e| {
        eprintln!("memshim: cannot stand between the program and its output: {}; it runs unwatched", descriptors::said(&e));
        None
    });
    let mut artifacts =
        (!plan.artifacts.is_empty()).then(|| Artifacts::watch(plan.artifacts.clone(), &out)).transpose().unwrap_or_else(|e| {
            eprintln!("memshim: cannot watch files: {}; none will be noted", descriptors::said(&e));
            None
        });
    // Reaped at the very end: what was waited for counts in our rusage.
    let mut bystander = if descriptors::are_few() { None } else { Bystander::start() };
    let names = Names::of_child(0, &plan.argv[0], &job::real_environment);
    let mut claim = Claim::settle(&out, &names, recorded_in(&plan.library).as_deref());
    if let Some((path, writer)) = &claim.taken {
        let (path, instead) = (shortest(path), shortest(&claim.out));
        eprintln!(
            "memshim: {} is being written by a run that goes on (process {writer}): this one writes {}",
            path.display(),
            instead.display()
        );
    }
    let out = claim.out.clone();
    let mut set = plan.variables.clone();
    set.push(("MEMSHIM_OUT", out.clone().into_os_string()));
    let env = preload::target_environment(std::env::vars_os(), &plan.library, &set);
    let signals = Signals::install().map_err(StartError::Signals)?;
    let began = outside::monotonic_ns();
    let ends = spawn::Output { stdout: relay.as_ref().and_then(|r| r.end_for(1)), stderr: relay.as_ref().and_then(|r| r.end_for(2)) };
    let mut child = spawn::spawn(&plan.argv, &env, ends, given).map_err(|e| start_error(&plan.argv, &env, e))?;
    let pid = child.id() as i32;
    let mut start_ticks = None;
    let over = Arc::new(AtomicBool::new(false));
    let names = Names { pid, ..names };
    let candidates = move || pattern::candidates(&out, &names);
    if why_unrecorded(plan, &env).is_some() {
        claim.release();
    }
    let mut listening = None;
    let seen = watch::until_end(&mut child, bystander.as_mut(), || {
        start_ticks = proc::stat(pid).map(|s| s.start_ticks);
        let candidates = candidates.clone();
        let its = move |h: &Value| outside::is_of(h, pid, start_ticks);
        claim.release_when(move || claim::trace_of(&candidates(), pid, its).is_some(), &over);
        if let Some(relay) = &mut relay {
            relay.started(Whose { pid, start_ticks: start_ticks.unwrap_or(0) });
        }
        listening = artifacts.take().and_then(Artifacts::listen);
        signals.listen()
    });
    over.store(true, Relaxed);
    let written = listening.map(Listening::finish).unwrap_or_default();

    if let Some(relay) = &mut relay {
        relay.drain();
    }
    let after = cgroup.as_ref().map(Cgroup::read).unwrap_or_default();
    let line = outside::line(pid, began, &seen, cgroup.as_ref().map(|c| (c.version(), &before, &after)));
    let trace = claim::trace_of(&candidates(), pid, |h| outside::is_of(h, pid, start_ticks));
    // The target itself may have left none and its children may have: theirs is then the run's.
    let of_run = |p: &PathBuf| !claim.joined && outside::header(p).is_some_and(|h| h["mono_ns"].as_u64().is_some_and(|t| t >= began));
    let trace = trace.or_else(|| candidates().into_iter().find(of_run));
    let first = trace.as_ref().map(|t| family::first_of(t).unwrap_or_else(|| t.clone()));
    if let Some(relay) = relay {
        relay.finish(first.as_deref());
    }
    if let Some(first) = first.as_deref().filter(|_| !written.is_empty()) {
        let whose = Whose { pid, start_ticks: start_ticks.unwrap_or(0) };
        if let Err(e) = SideFile::beside(first).and_then(|mut f| f.append(whose, written)) {
            eprintln!("memshim: cannot note the files beside {}: {e}", first.display());
        }
    }
    let words = trace.as_deref().map(outside::last_words).unwrap_or_default();
    let trouble = trace.as_deref().and_then(|t| finish(t, &line).err()).map(|e| e.to_string());
    let trace = trace.map(|t| shortest(&t)).ok_or_else(|| why_no_trace(plan, &env));
    let kills = |r: &Reading| r.oom_kills.unwrap_or(0);
    let Seen { ended, hwm, below, .. } = seen;
    let at_most = line["rusage"]["maxrss"].as_u64();
    Ok(Outcome {
        ended,
        hwm: hwm.max(words.hwm.map(|(hwm, _)| hwm)),
        is_exact: words.hwm.is_some_and(|(own, is_all)| is_all && hwm.is_none_or(|seen| seen <= own)),
        at_most,
        children_hwm: below.hwm(),
        trace,
        trouble,
        missing: words.missing,
        oom_kills: kills(&after).saturating_sub(kills(&before)),
        limit: after.limit.map(|l| l.0),
    })
}

/// Completes the traces of processes that died without warning (their spools are then gone), then appends the view from outside.
fn finish(trace: &Path, line: &Value) -> io::Result<()> {
    let recovered = recover_family(trace);
    outside::append(trace, line)?;
    recovered
}

fn recover_family(trace: &Path) -> io::Result<()> {
    let mut trouble = Vec::new();
    for member in family::discover(&[trace.to_path_buf()]).unwrap_or_default() {
        let Some(header) = outside::header(&member.path) else { continue };
        let dead: Vec<PathBuf> = member.spools.into_iter().filter(|s| is_dead(s, &header)).collect();
        if dead.is_empty() {
            continue;
        }
        let tick_ns = header["tick_ns"].as_u64().unwrap_or(1);
        let (done, problems) = recover::finalise(&member.path, &dead, tick_ns)?;
        trouble.extend(problems);
        for spool in done {
            std::fs::remove_file(spool)?;
        }
    }
    if trouble.is_empty() { Ok(()) } else { Err(io::Error::other(trouble.join("; "))) }
}

/// Whether the process of this spool, a member of the family with this header, is gone. What can't be read is left alone.
fn is_dead(spool: &Path, header: &Value) -> bool {
    let Ok(owner) = recover::identify(spool) else { return false };
    let (host, pid_ns) = (header["host"].as_str().unwrap_or(""), header["pid_ns"].as_u64().unwrap_or(0));
    !recover::alive(host, pid_ns, owner.pid, owner.start_ticks)
}

fn start_error(argv: &[OsString], env: &[(OsString, OsString)], e: io::Error) -> StartError {
    let name = argv[0].to_string_lossy().into_owned();
    let there = spawn::find_program(&argv[0], env).is_some();
    match e.raw_os_error() {
        // ENOENT of a file that is there: its `#!` interpreter or its loader is missing.
        Some(libc::ENOENT) if !there => StartError::NotFound(name),
        _ => StartError::NotRunnable(name, e),
    }
}

/// The pattern of the run that this process itself is recorded in: its children join that run.
fn recorded_in(library: &Path) -> Option<OsString> {
    let loaded = proc::text("/proc/self/maps").is_ok_and(|maps| maps.contains(&*library.to_string_lossy()));
    std::env::var_os("MEMSHIM_OUT").filter(|_| loaded)
}

fn why_no_trace(plan: &Plan, env: &[(OsString, OsString)]) -> String {
    let program = spawn::find_program(&plan.argv[0], env).unwrap_or_default();
    why_unrecorded(plan, env)
        .or_else(|| plan.listed.leaves_out(&program))
        .or_else(|| keeps_nothing(&plan.out))
        .unwrap_or_else(|| "the library wrote none: see its line on stderr, or ask `memshim doctor`".into())
}

/// What is written to a device or a pipe cannot be read again.
fn keeps_nothing(out: &Path) -> Option<String> {
    let kind = std::fs::symlink_metadata(out).ok()?.file_type();
    let of_no_file = !kind.is_file() && !kind.is_dir() && !kind.is_symlink();
    of_no_file.then(|| format!("{} is a device or a pipe, of which nothing is kept: -o names a file", out.display()))
}

/// Why there can be no trace of the target, as far as is known beforehand.
fn why_unrecorded(plan: &Plan, env: &[(OsString, OsString)]) -> Option<String> {
    if plan.off {
        return Some("the mode is off".into());
    }
    let program = spawn::find_program(&plan.argv[0], env).map(|p| Program::look(&p));
    if let Some(why) = program.as_ref().and_then(Program::obstacle) {
        return Some(why);
    }
    preload::unusable_path(&plan.library).map(|why| format!("{}: {why}", plan.library.display()))
}

/// Relative where it lies under the present folder: what a person would type.
fn shortest(path: &Path) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(path).to_path_buf()
}
