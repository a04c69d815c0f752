//! Which files belong together: a trace, those of its further processes in `<name>.d/`, the spools beside them, and its side file.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// One trace file and its spools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub path: PathBuf,
    pub spools: Vec<PathBuf>,
}

/// An argument that can't be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: not there: name a trace, or a folder of traces (`memshim run -- PROGRAM` writes trace.jsonl)", .0.display())]
    Missing(PathBuf),
    // The cause follows in the chain: whoever prints it prints that too.
    #[error("{}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{}: no trace in it (a trace's name ends in .jsonl or .jsonl.zst)", .0.display())]
    Empty(PathBuf),
}

/// All members of all arguments, each once: a file brings its family, a folder all that is in it.
pub fn discover(inputs: &[PathBuf]) -> Result<Vec<Member>, Error> {
    let mut found = BTreeMap::new();
    for input in inputs {
        let before = found.len();
        let unreadable = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => Error::Missing(input.clone()),
            _ => Error::Unreadable { path: input.clone(), source },
        };
        let meta = fs::metadata(input);
        if meta.as_ref().is_ok_and(|m| m.is_dir()) {
            add_folder(input, &mut found, 3).map_err(unreadable)?;
            if found.len() == before && !inputs.iter().any(|i| i != input && i.starts_with(input)) {
                return Err(Error::Empty(input.clone()));
            }
            continue;
        }
        let file = trace_of(input).or_else(|| trace_of_side_file(input)).unwrap_or_else(|| input.clone());
        let spools = spools_of(&file);
        if let (Err(e), true) = (meta, spools.is_empty()) {
            return Err(unreadable(e));
        }
        add(file.clone(), spools, &mut found);
        let folder = folder_of(&file);
        if folder.is_dir() {
            add_folder(&folder, &mut found, 0).map_err(|source| Error::Unreadable { path: folder.clone(), source })?;
        }
    }
    Ok(found.into_values().collect())
}

/// The folder of a trace's further processes: `trace.d` of `trace.jsonl` and of `trace.jsonl.zst`.
pub fn folder_of(trace: &Path) -> PathBuf {
    let stem = without(name_of(trace), b".zst");
    beside(trace, &[without(stem, b".jsonl"), b".d"])
}

/// A file's name, which need not be UTF-8.
fn name_of(path: &Path) -> &[u8] {
    path.file_name().map_or(b"", OsStr::as_bytes)
}

/// A file in the same folder.
fn beside(path: &Path, name: &[&[u8]]) -> PathBuf {
    path.with_file_name(OsString::from_vec(name.concat()))
}

fn without<'a>(name: &'a [u8], ending: &[u8]) -> &'a [u8] {
    name.strip_suffix(ending).unwrap_or(name)
}

/// The side file of a run, by the trace of its first process: `trace.jsonl.marks`, of `trace.jsonl.zst` too.
pub fn side_file_of_first(trace: &Path) -> PathBuf {
    beside(trace, &[without(name_of(trace), b".zst"), b".marks"])
}

/// The trace of a run's first process that a file in a `.d` folder is a further one of.
pub fn first_of(member: &Path) -> Option<PathBuf> {
    let folder = member.parent()?;
    let stem = name_of(folder).strip_suffix(b".d")?;
    let number = member.file_name()?.to_str()?.split('.').next()?;
    let is_pid = !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit());
    let names = [".jsonl", ".jsonl.zst", "", ".zst"].map(|ext| beside(folder, &[stem, ext.as_bytes()]));
    names.into_iter().find(|first| is_pid && first.is_file())
}

/// The side file of the run that a trace is of, where there is one.
pub fn side_file(member: &Path) -> Option<PathBuf> {
    let first = first_of(member);
    let path = side_file_of_first(first.as_deref().unwrap_or(member));
    path.is_file().then_some(path)
}

fn trace_of_side_file(path: &Path) -> Option<PathBuf> {
    let plain = name_of(path).strip_suffix(b".marks")?;
    ["", ".zst"].map(|ext| beside(path, &[plain, ext.as_bytes()])).into_iter().find(|p| p.is_file())
}

fn is_trace(name: &[u8]) -> bool {
    name.ends_with(b".jsonl") || name.ends_with(b".jsonl.zst")
}

/// `x.spool` and `x.spool.2` are of trace `x`.
pub fn trace_of(path: &Path) -> Option<PathBuf> {
    const ENDING: &[u8] = b".spool";
    let name = name_of(path);
    let at = name.windows(ENDING.len()).rposition(|part| part == ENDING)?;
    let rest = &name[at + ENDING.len()..];
    let numbered = rest.strip_prefix(b".").is_some_and(|n| !n.is_empty() && n.iter().all(u8::is_ascii_digit));
    (at > 0 && (rest.is_empty() || numbered)).then(|| beside(path, &[&name[..at]]))
}

/// The spools beside a trace, those of earlier images first.
pub fn spools_of(trace: &Path) -> Vec<PathBuf> {
    let Some(folder) = trace.parent().map(|p| if p.as_os_str().is_empty() { Path::new(".") } else { p }) else { return Vec::new() };
    let listed = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    let same = |p: &PathBuf| trace_of(p).is_some_and(|t| t.file_name() == trace.file_name());
    let mut all: Vec<PathBuf> = listed.filter(same).map(|p| trace.with_file_name(p.file_name().unwrap_or_default())).collect();
    all.sort_by_key(|p| (p.extension().is_some_and(|e| e == "spool"), p.clone()));
    all
}

fn add(path: PathBuf, spools: Vec<PathBuf>, found: &mut BTreeMap<PathBuf, Member>) {
    let key = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
    found.entry(key).or_insert(Member { path, spools });
}

/// Adds the traces of a folder and, `deeper` levels down, of the folders in it (`.d` folders count as none).
fn add_folder(folder: &Path, found: &mut BTreeMap<PathBuf, Member>, deeper: usize) -> io::Result<()> {
    let mut spools: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
    let mut traces = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name().into_vec();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let family = name.ends_with(b".d");
            if deeper > 0 || family {
                // One folder that can't be listed does not hide the others.
                let _ = add_folder(&path, found, if family { 0 } else { deeper - 1 });
            }
        } else if let Some(trace) = trace_of(&path) {
            spools.entry(trace).or_default().push(path);
        } else if is_trace(&name) {
            traces.push(path);
        }
    }
    for trace in traces {
        let mut own = spools.remove(&trace).unwrap_or_default();
        own.sort_by_key(|p| (p.extension().is_some_and(|e| e == "spool"), p.clone()));
        add(trace, own, found);
    }
    for (trace, own) in spools {
        add(trace, own, found);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_brings_its_family_and_a_folder_everything() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("trace.d")).unwrap();
        for name in [
            "trace.jsonl",
            "trace.jsonl.spool",
            "trace.jsonl.spool.2",
            "trace.d/7.jsonl",
            "trace.d/8.jsonl.zst",
            "trace.d/9.jsonl.spool",
            "other.jsonl",
            "notes.txt",
        ] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let names = |all: Vec<Member>| -> Vec<(String, usize)> {
            all.iter().map(|m| (m.path.strip_prefix(dir.path()).unwrap().display().to_string(), m.spools.len())).collect()
        };
        let want =
            [("trace.d/7.jsonl".into(), 0), ("trace.d/8.jsonl.zst".into(), 0), ("trace.d/9.jsonl".into(), 1), ("trace.jsonl".into(), 2)];
        assert_eq!(names(discover(&[dir.path().join("trace.jsonl")]).unwrap()), want);
        assert_eq!(names(discover(&[dir.path().into()]).unwrap()).len(), 5);
        assert_eq!(names(discover(&[dir.path().into(), dir.path().join("trace.jsonl")]).unwrap()).len(), 5, "each once");
    }

    #[test]
    fn a_side_file_belongs_to_the_whole_family_and_is_no_trace() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("trace.d")).unwrap();
        for name in ["trace.jsonl.zst", "trace.d/7.2.jsonl.zst", "trace.jsonl.marks", "other.jsonl", "trace.d/odd.jsonl"] {
            fs::write(at(name), "").unwrap();
        }
        let side = Some(at("trace.jsonl.marks"));
        assert_eq!(side_file(&at("trace.jsonl.zst")), side);
        assert_eq!(side_file(&at("trace.d/7.2.jsonl.zst")), side);
        assert_eq!((side_file(&at("other.jsonl")), side_file(&at("trace.d/odd.jsonl"))), (None, None));
        assert_eq!(discover(&[dir.path().into()]).unwrap().len(), 4);
        assert!(
            discover(&[at("trace.jsonl.marks")]).unwrap().iter().any(|m| m.path == at("trace.jsonl.zst")),
            "by itself it means its run"
        );
    }

    #[test]
    fn names_need_not_be_utf8() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &[u8]| dir.path().join(OsStr::from_bytes(name));
        fs::create_dir(at(b"t\xff.d")).unwrap();
        for name in [&b"t\xff.jsonl"[..], b"t\xff.jsonl.spool.2", b"t\xff.jsonl.marks", b"t\xff.d/7.jsonl"] {
            fs::write(at(name), "").unwrap();
        }
        let all = discover(&[at(b"t\xff.jsonl")]).unwrap();
        assert_eq!(all.iter().map(|m| m.path.clone()).collect::<Vec<_>>(), [at(b"t\xff.d/7.jsonl"), at(b"t\xff.jsonl")]);
        assert_eq!((all[1].spools.len(), side_file(&all[0].path)), (1, Some(at(b"t\xff.jsonl.marks"))));
    }

    #[test]
    fn what_is_not_there_is_said() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(discover(&[dir.path().into()]), Err(Error::Empty(_))));
        assert!(matches!(discover(&[dir.path().join("no.jsonl")]), Err(Error::Missing(_))));
    }
}
