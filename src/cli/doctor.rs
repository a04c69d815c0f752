//! `memshim doctor`: what will be seen here, what won't, and why.

use super::exit;
use crate::launch::cgroup::Cgroup;
use crate::launch::elf::{Image, Program};
use crate::launch::{job, pattern, place, preload, spawn};
use crate::output::table::Table;
use crate::output::units::iec;
use clap::Args;
use nix::sys::resource::Resource;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const EXAMPLES: &str = "\
EXAMPLES
  memshim doctor                       this machine, this folder
  memshim doctor -o out/t.jsonl        the folder in which traces will lie
  memshim doctor -- ./solver           and whether this program can be seen into

EXIT STATUS 0 everything will be seen, 3 something will not.";

/// Less free disk than this is pointed out.
const LITTLE_DISK: u64 = 1 << 30;
/// A process image of this program needs about so much address space beside the target's.
const LITTLE_ADDRESS_SPACE: u64 = 256 << 20;

/// Say what memshim will see here and what it won't, and why
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Doctor {
    /// Where traces will go, as for `run`
    #[arg(short, long, value_name = "PATTERN")]
    out: Option<PathBuf>,

    /// A program to look at as well
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// How a finding is to be taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    /// Works, with less.
    Note,
    Bad,
}

/// The findings, in the order in which they were made.
#[derive(Default)]
struct Findings(Vec<(Verdict, &'static str, String)>);

impl Findings {
    fn add(&mut self, verdict: Verdict, what: &'static str, text: impl Into<String>) {
        self.0.push((verdict, what, text.into()));
    }

    fn table(&self) -> Vec<String> {
        let mut t = Table::with_text_last();
        for (verdict, what, text) in &self.0 {
            let sign = match verdict {
                Verdict::Good => "ok",
                Verdict::Note => "note",
                Verdict::Bad => "NO",
            };
            t.row([format!("{sign:<4}  {what}"), text.clone()]);
        }
        t.lines()
    }
}

impl Doctor {
    pub fn execute(self) -> anyhow::Result<u8> {
        let mut found = Findings::default();
        library(&mut found);
        found.add(
            Verdict::Good,
            "system",
            format!("kernel {}, {}", place::kernel(), place::glibc().unwrap_or_else(|| "no glibc found".into())),
        );
        self.trace_folder(&mut found);
        shared_memory(&mut found);
        limits(&mut found);
        memory_group(&mut found);
        batch_system(&mut found);
        if let Some(name) = self.command.first() {
            program(&mut found, name);
        }
        let mut out = std::io::stdout().lock();
        for line in found.table() {
            writeln!(out, "{line}")?;
        }
        Ok(if found.0.iter().any(|f| f.0 == Verdict::Bad) { exit::UNREADABLE } else { exit::DONE })
    }

    fn trace_folder(&self, found: &mut Findings) {
        let set = std::env::var_os("MEMSHIM_OUT").filter(|v| !v.is_empty()).map(PathBuf::from);
        let out = self.out.clone().or(set).unwrap_or_else(|| pattern::default_pattern(&job::real_environment).into());
        let wanted = pattern::fixed_folder(&std::path::absolute(&out).unwrap_or(out));
        // `run` makes what is missing: what counts is the folder it will be made in.
        let Some(folder) = wanted.ancestors().find(|f| f.is_dir()) else { return };
        if let Err(e) = place::writable(folder) {
            found.add(Verdict::Bad, "folder", format!("{}: {e}: no trace can be written there; choose another with -o", folder.display()));
            return;
        }
        let kind = place::file_system(folder).map_or_else(|| "unknown".into(), |(_, kind)| kind);
        if place::is_remote(&kind) {
            let text = format!(
                "{} is on {kind}: no shared memory in files there, so a kill may lose the last events; put -o on a local disk or /dev/shm",
                folder.display()
            );
            found.add(Verdict::Note, "folder", text);
        } else {
            found.add(Verdict::Good, "folder", format!("{} ({kind}): a killed process loses nothing", folder.display()));
        }
        if let Some(free) = place::free_bytes(folder) {
            let verdict = if free < LITTLE_DISK { Verdict::Note } else { Verdict::Good };
            found.add(verdict, "disk", format!("{} free; a trace takes 2 GiB at most (--max)", iec(free)));
        }
    }
}

fn library(found: &mut Findings) {
    let library = match preload::find_library() {
        Ok(library) => library,
        Err(e) => return found.add(Verdict::Bad, "library", e.to_string()),
    };
    if let Some(why) = preload::unusable_path(&library) {
        return found.add(Verdict::Bad, "library", format!("{}: {why}", library.display()));
    }
    match loads(&library) {
        Ok(()) => found.add(Verdict::Good, "library", format!("{} loads", library.display())),
        Err(why) => found.add(Verdict::Bad, "library", format!("{} does not load: {why}", library.display())),
    }
}

/// Starts a small program with it; the loader complains on stderr where it can't.
fn loads(library: &Path) -> Result<(), String> {
    let run = Command::new("/bin/true").env("LD_PRELOAD", library).env("MEMSHIM_MODE", "off").output();
    let out = run.map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    if out.status.success() && said.is_empty() { Ok(()) } else { Err(if said.is_empty() { out.status.to_string() } else { said }) }
}

fn shared_memory(found: &mut Findings) {
    let folder = Path::new("/dev/shm");
    match place::free_bytes(folder).filter(|_| folder.is_dir()) {
        Some(free) => {
            found.add(Verdict::Good, "shm", format!("/dev/shm has {} free: a place for traces where the disk is remote", iec(free)))
        }
        None => found.add(Verdict::Note, "shm", "no /dev/shm"),
    }
}

fn limits(found: &mut Findings) {
    let all = [
        (Resource::RLIMIT_AS, "address space (ulimit -v)", LITTLE_ADDRESS_SPACE, "memshim's own memory counts in it"),
        (Resource::RLIMIT_FSIZE, "file size (ulimit -f)", u64::MAX, "the trace stops there; the program does not notice"),
        (Resource::RLIMIT_NPROC, "processes (ulimit -u)", 64, "without room for one more thread, events are written by the program's own"),
    ];
    for (resource, name, low, meaning) in all {
        let Some(value) = place::limit(resource) else { continue };
        let text = if resource == Resource::RLIMIT_NPROC { value.to_string() } else { iec(value) };
        let verdict = if value < low { Verdict::Note } else { Verdict::Good };
        found.add(verdict, "limit", format!("{name} {text}: {meaning}"));
    }
}

fn memory_group(found: &mut Findings) {
    let Some(cgroup) = Cgroup::of("self") else {
        return found.add(Verdict::Note, "cgroup", "no memory cgroup: kills for want of memory are not counted");
    };
    let read = cgroup.read();
    let limit = match &read.limit {
        Some((bytes, folder)) => format!("limit {} at {}", iec(*bytes), folder.display()),
        None => "no limit".into(),
    };
    let now = read.current.map(|n| format!(", {} in use", iec(n))).unwrap_or_default();
    let peak = if read.peak.is_none() { ", peak not given by this kernel" } else { "" };
    found.add(Verdict::Good, "cgroup", format!("version {}: {limit}{now}{peak}", cgroup.version()));
}

fn batch_system(found: &mut Findings) {
    let env = &job::real_environment;
    if let Some((name, rank)) = job::rank(env) {
        found.add(Verdict::Good, "rank", format!("{rank} ({name}): the default trace is trace.r{rank}.jsonl"));
    }
    if let Some((name, id)) = job::job_id(env) {
        found.add(Verdict::Good, "job", format!("{id} ({name})"));
    }
    if let Some((name, bytes)) = job::slurm_memory(env) {
        found.add(Verdict::Good, "granted", format!("{} on this node ({name})", iec(bytes)));
    }
}

fn program(found: &mut Findings, name: &OsString) {
    let env: Vec<_> = std::env::vars_os().collect();
    let Some(path) = spawn::find_program(name, &env) else {
        return found.add(Verdict::Bad, "program", format!("{}: command not found", name.display()));
    };
    let program = Program::look(&path);
    if let Some(why) = program.obstacle() {
        return found.add(Verdict::Bad, "program", why);
    }
    let chain: Vec<String> = program.chain.iter().map(|p| p.display().to_string()).collect();
    found.add(Verdict::Good, "program", format!("{}: dynamically linked, will be seen", chain.join(" → ")));
    let Image::Dynamic { needed, own_malloc, .. } = program.image else { return };
    let allocators = ["jemalloc", "tcmalloc", "mimalloc", "tbbmalloc", "hoard", "snmalloc"];
    if let Some(lib) = needed.iter().find(|n| allocators.iter().any(|a| n.contains(a))) {
        found.add(Verdict::Good, "allocator", format!("{lib} stays in use; calls to it are seen"));
    }
    if !own_malloc.is_empty() {
        let text = format!(
            "the program defines {} itself: calls from inside it that do not go through the loader's tables are not seen",
            own_malloc.join(", ")
        );
        found.add(Verdict::Note, "allocator", text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(f: impl FnOnce(&mut Findings)) -> String {
        let mut found = Findings::default();
        f(&mut found);
        found.table().join("\n")
    }

    #[test]
    fn a_dynamic_program_will_be_seen_and_a_missing_one_not() {
        assert!(text(|f| program(f, &"sh".into())).starts_with("ok    program  "));
        assert!(text(|f| program(f, &"no-such-program".into())).contains("NO    program  no-such-program: command not found"));
    }

    #[test]
    fn a_folder_without_leave_to_write_is_said_with_the_flag_that_helps() {
        let doctor = Doctor { out: Some("/proc/x/t.jsonl".into()), command: Vec::new() };
        assert!(text(|f| doctor.trace_folder(f)).contains("choose another with -o"));
    }
}
