//! Where libmemshim.so is, and what LD_PRELOAD becomes.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

pub const LIBRARY: &str = "libmemshim.so";

/// Why no library could be found: each place looked at.
#[derive(Debug, thiserror::Error)]
#[error("no {LIBRARY} found; {}; set MEMSHIM_SHIM to its path", where_from(.looked_at))]
pub struct NotFound {
    pub looked_at: Vec<PathBuf>,
}

fn where_from(looked_at: &[PathBuf]) -> String {
    let all: Vec<String> = looked_at.iter().map(|p| p.display().to_string()).collect();
    // Where this program itself lies the kernel says there.
    if all.is_empty() {
        "/proc is not mounted, which says where memshim itself lies".into()
    } else {
        format!("looked at {}", all.join(", "))
    }
}

/// The library to preload: `$MEMSHIM_SHIM`, else beside the executable, `../lib/memshim/`, `../lib/`. Absolute.
pub fn find_library() -> Result<PathBuf, NotFound> {
    let exe = std::env::current_exe().ok();
    find_in(std::env::var_os("MEMSHIM_SHIM").filter(|v| !v.is_empty()), exe.as_deref())
}

fn find_in(set: Option<OsString>, exe: Option<&Path>) -> Result<PathBuf, NotFound> {
    let candidates: Vec<PathBuf> = match (set, exe.and_then(Path::parent)) {
        (Some(path), _) => vec![PathBuf::from(path)],
        (None, Some(dir)) => ["", "../lib/memshim", "../lib"].iter().map(|sub| dir.join(sub).join(LIBRARY)).collect(),
        (None, None) => Vec::new(),
    };
    let found = candidates.iter().find(|p| p.is_file()).and_then(|p| p.canonicalize().ok());
    found.ok_or(NotFound { looked_at: candidates })
}

/// The value of LD_PRELOAD: ours first, then the entries that were there, without another memshim.
pub fn preload_value(library: &Path, before: Option<&OsStr>) -> OsString {
    let mut value = library.as_os_str().as_bytes().to_vec();
    let entries = before.map_or(&[][..], OsStrExt::as_bytes);
    // ld.so splits at colons and spaces.
    for entry in entries.split(|&b| b == b':' || b == b' ').filter(|e| !e.is_empty()) {
        let ours = Path::new(OsStr::from_bytes(entry)).file_name() == Some(OsStr::new(LIBRARY));
        if !ours {
            value.push(b':');
            value.extend_from_slice(entry);
        }
    }
    OsString::from_vec(value)
}

/// Why ld.so would not take this path out of LD_PRELOAD, if so: it splits at spaces and colons and has no way to quote them.
pub fn unusable_path(library: &Path) -> Option<&'static str> {
    let bytes = library.as_os_str().as_bytes();
    bytes.iter().any(|&b| b == b':' || b == b' ').then_some(
        "its path has a space or a colon, at which ld.so splits LD_PRELOAD: put a link to it elsewhere and name that in MEMSHIM_SHIM",
    )
}

/// The environment of a target: `base` in its order, LD_PRELOAD and `set` replaced in place or appended.
pub fn target_environment(
    base: impl IntoIterator<Item = (OsString, OsString)>,
    library: &Path,
    set: &[(&str, OsString)],
) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> = base.into_iter().collect();
    let before = env.iter().find(|(k, _)| k == "LD_PRELOAD").map(|(_, v)| v.clone());
    let preload = preload_value(library, before.as_deref());
    for (key, value) in std::iter::once(("LD_PRELOAD", preload)).chain(set.iter().cloned()) {
        match env.iter_mut().find(|(k, _)| k == key) {
            Some(entry) => entry.1 = value,
            None => env.push((OsString::from(key), value)),
        }
    }
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_is_first_and_the_users_entries_stay() {
        let v = preload_value(Path::new("/opt/m/libmemshim.so"), Some(OsStr::new("/a/libjemalloc.so /b/x.so:/old/libmemshim.so")));
        assert_eq!(v, "/opt/m/libmemshim.so:/a/libjemalloc.so:/b/x.so");
        assert_eq!(preload_value(Path::new("/l.so"), None), "/l.so");
    }

    #[test]
    fn the_environment_keeps_its_order() {
        let base = [("Z", "1"), ("LD_PRELOAD", "/x.so"), ("A", "2")].map(|(k, v)| (k.into(), v.into()));
        let env = target_environment(base, Path::new("/l.so"), &[("MEMSHIM_OUT", "/t".into()), ("A", "3".into())]);
        let flat: Vec<_> = env.iter().map(|(k, v)| format!("{}={}", k.display(), v.display())).collect();
        assert_eq!(flat, ["Z=1", "LD_PRELOAD=/l.so:/x.so", "A=3", "MEMSHIM_OUT=/t"]);
    }

    #[test]
    fn the_library_is_found_beside_the_executable_or_in_lib() {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        assert_eq!(find_in(None, Some(&bin.join("memshim"))).unwrap_err().looked_at.len(), 3);
        std::fs::create_dir_all(dir.path().join("lib/memshim")).unwrap();
        let so = dir.path().join("lib/memshim").join(LIBRARY);
        std::fs::write(&so, b"").unwrap();
        assert_eq!(find_in(None, Some(&bin.join("memshim"))).unwrap(), so.canonicalize().unwrap());
        assert!(find_in(Some("/nowhere.so".into()), Some(&bin.join("memshim"))).is_err());
        let said = find_in(None, None).unwrap_err().to_string();
        assert_eq!(
            said,
            "no libmemshim.so found; /proc is not mounted, which says where memshim itself lies; set MEMSHIM_SHIM to its path"
        );
    }
}
