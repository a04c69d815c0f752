//! Where a living process is being recorded: by what it holds open, so that no variable of its environment and no present folder matters.
//!
//! A recorded process maps its spool and keeps its trace open; where there is no shared spool, the open trace alone says so.

use super::outside;
use super::proc;
use super::side::Whose;
use crate::trace::family;
use crate::trace::glance::{self, Seen};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A recorded process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// By its number as its trace has it, which in a container is not ours.
    pub whose: Whose,
    /// The trace of the first process of its run.
    pub first: PathBuf,
    /// Its spool, where that is shared.
    pub spool: Option<PathBuf>,
}

impl Found {
    /// What is live in it now, where that can be seen.
    pub fn look(&self) -> Option<Seen> {
        glance::at(self.spool.as_deref()?, u32::try_from(self.whose.pid).ok()?)
    }
}

/// Why there is nothing to write to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("process {0}: {why}", why = proc::why_none())]
    NoProcess(i32),
    #[error("process {0} has ended: it is a zombie, nobody waited for it yet")]
    Zombie(i32),
    #[error("process {0} is of another user: its open files cannot be seen; be that user, or root")]
    NotOurs(i32),
    #[error(
        "process {0} is not recorded: it holds no trace open. It has to be started by `memshim run` or with LD_PRELOAD \
         (`memshim doctor -- PROGRAM` says whether a program can be); give its own number, not that of a shell around it"
    )]
    NotRecorded(i32),
    #[error("process 1 is not recorded, and every process is below it: give the number of the program, or that of its `memshim run`")]
    Everybodys,
    #[error("process {pid}: its trace {} was deleted", path.display())]
    Deleted { pid: i32, path: PathBuf },
    #[error("process {pid}: its trace {} cannot be reached from here (another mount namespace?)", path.display())]
    OutOfReach { pid: i32, path: PathBuf },
    #[error("process {pid} is not recorded, and of those that it started several are: name one of {}", numbers(.among))]
    Several { pid: i32, among: Vec<i32> },
}

fn numbers(pids: &[i32]) -> String {
    pids.iter().map(i32::to_string).collect::<Vec<_>>().join(", ")
}

/// Finds the trace of `pid`.
pub fn of(pid: i32) -> Result<Found, Error> {
    let stat = proc::stat(pid).ok_or(Error::NoProcess(pid))?;
    if stat.state == 'Z' {
        return Err(Error::Zombie(pid));
    }
    let denied = |e: io::Error| match e.kind() {
        io::ErrorKind::PermissionDenied => Error::NotOurs(pid),
        _ => Error::NoProcess(pid),
    };
    let maps = fs::read(format!("/proc/{pid}/maps")).map_err(denied)?;
    let mut spools: Vec<Open> = String::from_utf8_lossy(&maps).lines().filter_map(mapped).filter(|m| is_spool(&m.path)).collect();
    // Images that went before leave theirs mapped no longer: one is enough.
    spools.dedup_by(|a, b| a.path == b.path);
    let whose = Whose { pid: innermost_number(pid), start_ticks: stat.start_ticks };
    let open = match spools.into_iter().next() {
        Some(spool) => spool,
        None => open_trace(pid, whose).ok_or(Error::NotRecorded(pid))?,
    };
    let there = reachable(pid, &open)?;
    let of_spool = family::trace_of(&there);
    let spool = of_spool.is_some().then(|| there.clone());
    let trace = of_spool.unwrap_or(there);
    let first = family::first_of(&trace).unwrap_or(trace);
    Ok(Found { whose, first, spool })
}

/// Finds the trace of `pid`, else that of the one process below it that is recorded and nearest to it: `memshim run` itself and a shell
/// around a program are asked for in its place.
pub fn of_or_below(pid: i32) -> Result<(i32, Found), Error> {
    let mut why = match of(pid) {
        Ok(found) => return Ok((pid, found)),
        Err(why) if !Path::new("/proc/self").exists() => return Err(why),
        // Below the first process is everything, whoever started it; in a container it may be ourselves.
        Err(_) if pid == 1 && !is_memshim(pid) => return Err(Error::Everybodys),
        Err(why @ Error::NotRecorded(_)) => why,
        Err(other) => return Err(other),
    };
    let mut level = proc::children(pid);
    for _ in 0..8 {
        let mut found: Vec<(i32, Found)> = Vec::new();
        for &child in &level {
            match of(child) {
                Ok(f) => found.push((child, f)),
                Err(e @ (Error::Deleted { .. } | Error::OutOfReach { .. })) => why = e,
                Err(_) => {}
            }
        }
        if found.len() > 1 {
            return Err(Error::Several { pid, among: found.iter().map(|f| f.0).collect() });
        }
        if let Some(one) = found.pop() {
            return Ok(one);
        }
        level = level.into_iter().flat_map(proc::children).collect();
    }
    Err(why)
}

/// Whether a process is a `memshim` itself.
fn is_memshim(pid: i32) -> bool {
    let exe = |who: &str| fs::read_link(format!("/proc/{who}/exe")).ok();
    exe("self").is_some_and(|own| exe(&pid.to_string()) == Some(own))
}

/// A file that a process holds.
struct Open {
    path: PathBuf,
    dev: u64,
    inode: u64,
}

/// Of a line of maps: `range rights offset major:minor inode   path`.
fn mapped(line: &str) -> Option<Open> {
    let mut fields = line.splitn(6, ' ');
    let (_, _, _, dev, inode, path) =
        (fields.next()?, fields.next()?, fields.next()?, fields.next()?, fields.next()?, fields.next()?.trim_start());
    let (major, minor) = dev.split_once(':')?;
    let of_hex = |s: &str| u64::from_str_radix(s, 16).ok();
    let dev = nix::sys::stat::makedev(of_hex(major)?, of_hex(minor)?);
    path.starts_with('/').then(|| Open { path: path.replace("\\012", "\n").into(), dev, inode: inode.parse().unwrap_or(0) })
}

fn is_spool(path: &Path) -> bool {
    family::trace_of(&without_deleted(path).0).is_some()
}

/// The kernel says so behind the name of a file that is gone.
fn without_deleted(path: &Path) -> (PathBuf, bool) {
    match path.to_string_lossy().strip_suffix(" (deleted)") {
        Some(name) => (name.into(), true),
        None => (path.to_path_buf(), false),
    }
}

/// The open file that is this process's trace by its header.
fn open_trace(pid: i32, whose: Whose) -> Option<Open> {
    let mut links: Vec<PathBuf> = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten().map(|e| e.path()).collect();
    links.sort();
    links.into_iter().find_map(|link| {
        let meta = fs::metadata(&link).ok().filter(|m| m.is_file())?;
        let header = outside::header_of_link(&link)?;
        (header["pid"] == whose.pid && header["start_ticks"] == whose.start_ticks).then(|| fs::read_link(&link).ok())?.map(|path| Open {
            path,
            dev: meta.dev(),
            inode: meta.ino(),
        })
    })
}

/// The path by which we reach the same file: as the process has it, or through its root.
fn reachable(pid: i32, open: &Open) -> Result<PathBuf, Error> {
    let (path, deleted) = without_deleted(&open.path);
    let inside = Path::new(&format!("/proc/{pid}/root")).join(path.strip_prefix("/").unwrap_or(&path));
    // Of some file systems (btrfs, overlays) maps show another device than stat does.
    let same = |p: &PathBuf| fs::metadata(p).is_ok_and(|m| m.ino() == open.inode && (m.dev() == open.dev || m.is_file()));
    match [path.clone(), inside].into_iter().find(same) {
        Some(there) => Ok(there),
        None if deleted => Err(Error::Deleted { pid, path: family::trace_of(&path).unwrap_or(path) }),
        None => Err(Error::OutOfReach { pid, path: family::trace_of(&path).unwrap_or(path) }),
    }
}

/// The process's number in its own pid namespace.
fn innermost_number(pid: i32) -> i32 {
    let status = proc::text(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("NSpid:"));
    line.and_then(|l| l.split_ascii_whitespace().last()?.parse().ok()).unwrap_or(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_the_library_is_said_to_be_none_of_ours() {
        let own = std::process::id() as i32;
        assert!(matches!(of(own), Err(Error::NotRecorded(pid)) if pid == own));
        assert!(matches!(of(i32::MAX - 1), Err(Error::NoProcess(_))));
    }

    #[test]
    fn a_line_of_maps_may_have_spaces_in_its_path() {
        let open = mapped("7f00-7f10 rw-s 00000000 08:01 42                  /a b/t.jsonl.spool (deleted)").unwrap();
        assert_eq!((open.inode, without_deleted(&open.path)), (42, ("/a b/t.jsonl.spool".into(), true)));
        assert!(is_spool(&open.path) && mapped("7f00-7f10 rw-p 00000000 00:00 0 ").is_none());
        assert!(mapped("7f00-7f10 rw-p 00000000 00:00 0   [heap]").is_none());
    }
}
