//! The memory cgroup of a process: the limit that applies, the peak and the kills counted there. Version 1, version 2 and hybrid.
//!
//! The limit often sits on an ancestor (a SLURM job above its steps, a pod above its containers), so every level up to the root is
//! read and the smallest limit counts. Peak and kills are those of the level that limits, else of the process's own group. Version 1 counts a
//! kill where its victim was and nowhere above.

use super::proc;
use std::fs;
use std::path::{Path, PathBuf};

/// From this size up a v1 limit means "none" (it is the largest multiple of the page size in an i64).
const NO_LIMIT: u64 = 1 << 62;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    version: u8,
    /// The process's own group first, then its ancestors.
    levels: Vec<PathBuf>,
}

/// What the files said at one moment. `None` where the system does not give the figure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Smallest limit on the way to the root, and the folder that has it.
    pub limit: Option<(u64, PathBuf)>,
    pub current: Option<u64>,
    pub peak: Option<u64>,
    pub oom_kills: Option<u64>,
}

impl Cgroup {
    /// The memory cgroup of `pid` ("self" or a number).
    pub fn of(pid: &str) -> Option<Self> {
        let membership = proc::text(format!("/proc/{pid}/cgroup")).ok()?;
        let mounts = proc::text("/proc/self/mountinfo").ok()?;
        Self::find(&membership, &mounts)
    }

    fn find(membership: &str, mountinfo: &str) -> Option<Self> {
        let entry = |wanted: &dyn Fn(&str, &str) -> bool| {
            membership.lines().find_map(|l| {
                let mut f = l.splitn(3, ':');
                let (id, controllers, path) = (f.next()?, f.next()?, f.next()?);
                wanted(id, controllers).then_some(path)
            })
        };
        // In a hybrid system the memory controller is on one side only; the v1 line names it.
        if let Some(path) = entry(&|_, c| c.split(',').any(|c| c == "memory")) {
            let mount = mounts(mountinfo).find(|m| m.kind == "cgroup" && m.options.split(',').any(|o| o == "memory"))?;
            return Some(Self { version: 1, levels: levels(&mount, path) });
        }
        let path = entry(&|id, c| id == "0" && c.is_empty())?;
        let mount = mounts(mountinfo).find(|m| m.kind == "cgroup2")?;
        Some(Self { version: 2, levels: levels(&mount, path) })
    }

    pub fn version(&self) -> u8 {
        self.version
    }

    /// The process's own group.
    pub fn folder(&self) -> Option<&Path> {
        self.levels.first().map(PathBuf::as_path)
    }

    pub fn read(&self) -> Reading {
        let (limit, current, peak) = match self.version {
            1 => ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.max_usage_in_bytes"),
            _ => ("memory.max", "memory.current", "memory.peak"),
        };
        let limited = self.levels.iter().filter_map(|dir| {
            let n = number(&dir.join(limit))?;
            (n < NO_LIMIT).then(|| (n, dir.clone()))
        });
        let limit = limited.min_by_key(|(n, _)| *n);
        let at = limit.as_ref().map(|(_, dir)| dir).or(self.levels.first());
        Reading {
            current: at.and_then(|dir| number(&dir.join(current))),
            peak: at.and_then(|dir| number(&dir.join(peak))),
            oom_kills: at.and_then(|dir| self.oom_kills_up_to(dir)),
            limit,
        }
    }

    /// Kills in the process's own group and those above it, up to `top`. Version 2 counts those below a group in it, unless it is mounted so
    /// that each counts its own.
    fn oom_kills_up_to(&self, top: &Path) -> Option<u64> {
        let counted = self.levels.iter().take_while(|dir| dir.starts_with(top)).filter_map(|dir| self.oom_kills(dir));
        if self.version == 1 { counted.reduce(|sum, n| sum.saturating_add(n)) } else { counted.max() }
    }

    fn oom_kills(&self, dir: &Path) -> Option<u64> {
        let file = if self.version == 1 { "memory.oom_control" } else { "memory.events" };
        let text = fs::read_to_string(dir.join(file)).ok()?;
        text.lines().find_map(|l| l.strip_prefix("oom_kill ")).and_then(|n| n.trim().parse().ok())
    }
}

struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

/// Lines of mountinfo(5): `id parent dev root point opts [fields] - type source superopts`.
fn mounts(mountinfo: &str) -> impl Iterator<Item = Mount<'_>> {
    mountinfo.lines().filter_map(|l| {
        let (left, right) = l.split_once(" - ")?;
        let mut l = left.split(' ').skip(3);
        let (root, point) = (l.next()?, l.next()?);
        let mut r = right.split(' ');
        let (kind, _, options) = (r.next()?, r.next(), r.next().unwrap_or(""));
        Some(Mount { root, point, kind, options })
    })
}

/// Folders from the group `path` up to the mount point. In a container the mount's root is not `/`: the path is relative to it, or,
/// where it lies outside (`/..`), only the mount point itself can be read.
fn levels(mount: &Mount<'_>, path: &str) -> Vec<PathBuf> {
    let point = PathBuf::from(mount.point.replace("\\040", " "));
    let inside = Path::new(path).strip_prefix(mount.root).unwrap_or_else(|_| Path::new(path.trim_start_matches('/')));
    let visible = if path.contains("/..") { Path::new("") } else { inside };
    let own = point.join(visible);
    let own = if own.is_dir() || !point.is_dir() { own } else { point.clone() };
    own.ancestors().take_while(|a| a.starts_with(&point)).map(Path::to_path_buf).collect()
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(version: u8, root: &Path, path: &str) -> Cgroup {
        let mount = Mount { root: "/", point: root.to_str().unwrap(), kind: "", options: "" };
        Cgroup { version, levels: levels(&mount, path) }
    }

    #[test]
    fn the_smallest_limit_up_the_tree_counts_v2() {
        let dir = tempfile::tempdir().unwrap();
        let step = dir.path().join("job/step");
        fs::create_dir_all(&step).unwrap();
        fs::write(step.join("memory.max"), "max\n").unwrap();
        fs::write(dir.path().join("job/memory.max"), "1073741824\n").unwrap();
        fs::write(dir.path().join("job/memory.peak"), "1000\n").unwrap();
        fs::write(dir.path().join("job/memory.events"), "low 0\noom 1\noom_kill 2\n").unwrap();
        let r = group(2, dir.path(), "/job/step").read();
        assert_eq!(r.limit, Some((1 << 30, dir.path().join("job"))));
        assert_eq!((r.peak, r.oom_kills, r.current), (Some(1000), Some(2), None));
    }

    #[test]
    fn an_unlimited_v1_group_has_no_limit_and_its_own_peak() {
        let dir = tempfile::tempdir().unwrap();
        let g = dir.path().join("a");
        fs::create_dir_all(&g).unwrap();
        fs::write(g.join("memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        fs::write(g.join("memory.max_usage_in_bytes"), "77\n").unwrap();
        fs::write(g.join("memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n").unwrap();
        let r = group(1, dir.path(), "/a").read();
        assert_eq!((r.limit, r.peak, r.oom_kills), (None, Some(77), Some(3)));
    }

    /// The counter of version 1 is that of the victim's own group, wherever the limit was.
    #[test]
    fn kills_by_the_limit_of_an_ancestor_are_counted_in_both_versions() {
        let dir = tempfile::tempdir().unwrap();
        let (job, step) = (dir.path().join("job"), dir.path().join("job/step"));
        fs::create_dir_all(&step).unwrap();
        for (at, limit, kills) in [(dir.path(), "max", 9), (&job, "1048576", 1), (&step, "max", 2)] {
            fs::write(at.join("memory.max"), limit).unwrap();
            fs::write(at.join("memory.limit_in_bytes"), limit.replace("max", "9223372036854771712")).unwrap();
            fs::write(at.join("memory.events"), format!("oom_kill {kills}\n")).unwrap();
            fs::write(at.join("memory.oom_control"), format!("oom_kill {kills}\n")).unwrap();
        }
        let read = |version| group(version, dir.path(), "/job/step").read();
        assert_eq!((read(1).limit, read(1).oom_kills), (Some((1 << 20, job.clone())), Some(3)), "each its own");
        assert_eq!((read(2).limit, read(2).oom_kills), (Some((1 << 20, job)), Some(2)), "mounted with local counts");
    }

    #[test]
    fn hybrid_systems_use_the_side_with_the_memory_controller() {
        let mi = "30 25 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n31 25 0:27 /kubepods /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n";
        let v1 = Cgroup::find("4:memory:/kubepods/x\n0::/\n", mi).unwrap();
        assert_eq!((v1.version, v1.levels.last().unwrap().as_path()), (1, Path::new("/sys/fs/cgroup/memory")));
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir(root.join("user")).unwrap();
        let v2 = Cgroup::find("0::/user\n", &format!("30 25 0:26 / {} rw - cgroup2 cgroup2 rw\n", root.display())).unwrap();
        assert_eq!((v2.version, v2.levels.as_slice()), (2, &[root.join("user"), root.to_path_buf()][..]));
    }
}
