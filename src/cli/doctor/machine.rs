//! What the machine allows: kernel, limits, memory group, batch system, and what confines processes here.

use super::{Findings, Verdict};
use crate::launch::cgroup::Cgroup;
use crate::launch::{job, place, proc};
use crate::output::units::iec;
use memshim_format::proc::fields;
use nix::sys::resource::Resource;
use std::path::Path;

/// A process image of this program needs about so much address space beside the target's.
const LITTLE_ADDRESS_SPACE: u64 = 256 << 20;
/// Strict accounting with less than this left is pointed out: the library's private memory and a spool in private memory count in it.
const LITTLE_COMMIT: u64 = 128 << 20;

pub fn system(found: &mut Findings) {
    let glibc = place::glibc().unwrap_or_else(|| "no glibc found: only programs of glibc 2.17 or newer are seen".into());
    found.add(Verdict::Good, "system", format!("kernel {}, {glibc}", place::kernel()));
}

pub fn all(found: &mut Findings) {
    shared_memory(found);
    limits(found);
    memory_group(found);
    overcommit(found);
    confinement(found);
    gpus(found);
    not_needed(found);
    batch_system(found);
}

fn shared_memory(found: &mut Findings) {
    let folder = Path::new("/dev/shm");
    match place::free_bytes(folder).filter(|_| folder.is_dir()) {
        Some(free) => {
            found.add(Verdict::Good, "shm", format!("/dev/shm has {} free: a place for traces where the disk is remote", iec(free)))
        }
        None => found.add(Verdict::Note, "shm", "no /dev/shm: where the disk is remote, take another local folder for traces"),
    }
}

fn limits(found: &mut Findings) {
    let all = [
        (
            Resource::RLIMIT_AS,
            "address space (ulimit -v)",
            LITTLE_ADDRESS_SPACE,
            "memshim's own memory counts in it, about 43 MiB a process",
        ),
        (
            Resource::RLIMIT_FSIZE,
            "file size (ulimit -f)",
            u64::MAX,
            "the trace stops there; the program does not notice. Raise it, or set --max below it",
        ),
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
        return found.add(
            Verdict::Note,
            "cgroup",
            "no memory cgroup: limits are not seen and kills for want of memory not counted; nothing to do about it from here",
        );
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

/// Strict accounting refuses memory that nobody has touched yet.
fn overcommit(found: &mut Findings) {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    if text("/proc/sys/vm/overcommit_memory").trim() != "2" {
        return;
    }
    let meminfo = text("/proc/meminfo");
    let [limit, committed] = fields(meminfo.as_bytes(), [b"CommitLimit", b"Committed_AS"]).map(|n| n.unwrap_or(0));
    let left = limit.saturating_sub(committed);
    let verdict = if left < LITTLE_COMMIT { Verdict::Note } else { Verdict::Good };
    let what = "memshim's private memory (about 1 MiB a process, 43 MiB where the spool is private) counts in it";
    found.add(verdict, "commit", format!("vm.overcommit_memory is 2, {} left: {what}", iec(left)));
}

/// What this process was put under its children will be under, too.
fn confinement(found: &mut Findings) {
    let status = proc::text("/proc/self/status").unwrap_or_default();
    let field = |key: &str| status.lines().find_map(|l| l.strip_prefix(key)).map(str::trim).unwrap_or_default();
    if status.is_empty() {
        found.add(Verdict::Note, "proc", "no /proc here: no resident sizes, no thread names; mount it to have them");
    }
    if field("Seccomp:") == "2" {
        let n = field("Seccomp_filters:");
        let text = format!(
            "{} seccomp filter(s) in force; the trial above ran under them. A program that sets a stricter one itself may end its recording: \
             --exclude it, or MEMSHIM_MODE=off",
            if n.is_empty() { "1" } else { n }
        );
        found.add(Verdict::Good, "filter", text);
    }
    if !matches!(field("TracerPid:"), "" | "0") {
        let text = "this process is being traced (strace, gdb): programs run slower and signals may be held; run without for figures";
        found.add(Verdict::Note, "traced", text);
    }
}

/// Settings that people look at for other profilers.
fn not_needed(found: &mut Findings) {
    let setting = |path: &str| std::fs::read_to_string(path).ok().map(|t| t.trim().to_owned());
    let of = |name: &str, path: &str| setting(path).map_or_else(|| format!("{name} not restricted"), |v| format!("{name} {v}"));
    let all = [of("ptrace scope", "/proc/sys/kernel/yama/ptrace_scope"), of("perf paranoia", "/proc/sys/kernel/perf_event_paranoid")];
    found.add(
        Verdict::Good,
        "rights",
        format!("no root, ptrace or perf events needed: the library reads its own process only ({})", all.join(", ")),
    );
}

/// NVIDIA's driver is what can be seen into; whether a card is there is the kernel's to say.
fn gpus(found: &mut Findings) {
    let version = std::fs::read_to_string("/proc/driver/nvidia/version").ok();
    let first = version.as_deref().and_then(|v| v.lines().next()).and_then(|l| l.split_once(':')).map(|(_, v)| v.trim().to_owned());
    let cards = std::fs::read_dir("/proc/driver/nvidia/gpus").map_or(0, Iterator::count);
    match first {
        Some(driver) => found.add(Verdict::Good, "GPU", format!("{cards} of NVIDIA; calls of CUDA are recorded ({driver})")),
        None if Path::new("/dev/kfd").exists() => {
            found.add(Verdict::Note, "GPU", "of AMD: what programs do there is not seen (only CUDA is)");
        }
        None => found.add(Verdict::Good, "GPU", "none with a driver of NVIDIA's here"),
    }
}
