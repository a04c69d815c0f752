//! What this machine and this folder allow: glibc, kernel, limits, and whether a spool can be shared memory here.

use super::proc;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statfs::statfs;
use nix::sys::statvfs::statvfs;
use std::fs;
use std::path::Path;

/// A limit of the process, in its unit; `None`: unlimited or unknown.
pub fn limit(resource: Resource) -> Option<u64> {
    getrlimit(resource).ok().map(|(soft, _)| soft).filter(|&soft| soft < nix::libc::RLIM_INFINITY)
}

/// Free bytes for us in the file system of `folder`.
pub fn free_bytes(folder: &Path) -> Option<u64> {
    statvfs(folder).ok().map(|s| s.blocks_available() * s.fragment_size())
}

/// The file system that holds `folder`: its mount point and type, by the longest mount point that is above it.
pub fn file_system(folder: &Path) -> Option<(String, String)> {
    let folder = folder.canonicalize().ok()?;
    let mounts = proc::text("/proc/self/mountinfo").ok()?;
    let parsed = mounts.lines().filter_map(|l| {
        let (left, right) = l.split_once(" - ")?;
        let point = left.split(' ').nth(4)?.replace("\\040", " ");
        Some((point, right.split(' ').next()?.to_owned()))
    });
    // Of two on the same point the later one covers the earlier: `max_by_key` gives the last of equals.
    parsed.filter(|(point, _)| folder.starts_with(point)).max_by_key(|(point, _)| point.len())
}

/// Whether the shim makes no shared memory in files of `folder`.
pub fn is_remote(folder: &Path) -> bool {
    statfs(folder).is_ok_and(|s| memshim_format::remote::is_remote(s.filesystem_type().0))
}

/// Whether a file of ours can be made, sized and removed in `folder`.
pub fn writable(folder: &Path) -> std::io::Result<()> {
    let path = folder.join(format!(".memshim-doctor-{}", std::process::id()));
    let file = fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
    let sized = file.set_len(1 << 16);
    fs::remove_file(&path)?;
    sized
}

/// Version of the C library that ordinary programs here run with.
pub fn glibc() -> Option<String> {
    let out = std::process::Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout).trim().to_owned();
    text.starts_with("glibc ").then_some(text)
}

pub fn kernel() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_its_own_file_system() {
        assert_eq!(file_system(Path::new("/proc/self")).unwrap().1, "proc");
        assert!(!is_remote(Path::new("/proc")) && !is_remote(&std::env::temp_dir()));
    }

    #[test]
    fn a_folder_that_takes_files_is_writable_and_left_clean() {
        let dir = tempfile::tempdir().unwrap();
        writable(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(writable(Path::new("/proc")).is_err());
    }
}
