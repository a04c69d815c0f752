//! Where the trace of a process lies: the patterns of `MEMSHIM_OUT`. The shim expands them in each process; this is the same
//! expansion for the one who looks for the file afterwards.
//!
//! `%h` host, `%p` pid, `%e` program, `%j` job id, `%r` rank, `%t` start time, `%%` a `%`; before anything else `%` stands for that, and `run`
//! refuses it ([`unknown`]).

use super::job::{self, Lookup};
use crate::trace::recover::own_host;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a pattern is expanded with.
#[derive(Debug, Clone, Default)]
pub struct Names {
    pub host: String,
    pub pid: i32,
    pub program: String,
    pub job: Option<String>,
    pub rank: Option<String>,
}

impl Names {
    pub fn of_child(pid: i32, program: &OsStr, env: Lookup<'_>) -> Self {
        let program = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self { host: own_host(), pid, program, job: job::job_id(env).map(|j| j.1), rank: job::rank(env).map(|r| r.1) }
    }
}

/// The pattern used when none is given.
pub fn default_pattern(env: Lookup<'_>) -> &'static str {
    if job::rank(env).is_some() { "trace.r%r.jsonl" } else { "trace.jsonl" }
}

/// What may stand behind a `%`.
pub const PLACEHOLDERS: &str = "%h host, %p pid, %e program, %j job id, %r rank, %t start time, %% a %";

/// The first placeholder of a pattern that is none; alone, a `%` at its end.
pub fn unknown(pattern: &Path) -> Option<String> {
    let mut rest = pattern.as_os_str().as_bytes();
    while let Some(at) = rest.iter().position(|c| *c == b'%') {
        match rest.get(at + 1) {
            Some(b'h' | b'p' | b'e' | b'j' | b'r' | b't' | b'%') => rest = &rest[at + 2..],
            _ => return Some(String::from_utf8_lossy(&rest[at..]).chars().take(2).collect()),
        }
    }
    None
}

/// One piece of an expanded pattern.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    /// `%t`, and `%e` (an exec changes it): any run of characters without a slash.
    Any,
}

fn pieces(pattern: &Path, names: &Names) -> Vec<Piece> {
    let mut out = Vec::new();
    let mut text = Vec::new();
    let mut bytes = pattern.as_os_str().as_bytes().iter().copied();
    while let Some(c) = bytes.next() {
        if c != b'%' {
            text.push(c);
            continue;
        }
        let mut put = |word: &str| text.extend_from_slice(word.as_bytes());
        match bytes.next() {
            Some(b'h') => put(&names.host),
            Some(b'p') => put(&names.pid.to_string()),
            Some(b'j') => put(names.job.as_deref().unwrap_or("0")),
            Some(b'r') => put(names.rank.as_deref().unwrap_or("0")),
            Some(b't' | b'e') => {
                out.push(Piece::Text(std::mem::take(&mut text)));
                out.push(Piece::Any);
            }
            Some(other) => text.push(other),
            None => {}
        }
    }
    out.push(Piece::Text(text));
    out
}

/// The one name that a pattern gives before its process has a number: none with `%p` or `%t`, whose names are nobody else's.
pub fn exact(pattern: &Path, names: &Names) -> Option<PathBuf> {
    let mut bytes = pattern.as_os_str().as_bytes().iter();
    while let Some(c) = bytes.next() {
        if *c == b'%' && matches!(bytes.next(), Some(b'p' | b't')) {
            return None;
        }
    }
    let fixed = |p: Piece| if let Piece::Text(t) = p { t } else { names.program.clone().into_bytes() };
    Some(path(&pieces(pattern, names).into_iter().map(fixed).collect::<Vec<_>>().concat()))
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// The files that a process with these names may have written, newest first. With neither `%t` nor `%e` that is one name, which may
/// not exist.
pub fn candidates(pattern: &Path, names: &Names) -> Vec<PathBuf> {
    let pieces = pieces(pattern, names);
    if let [Piece::Text(t)] = pieces.as_slice() {
        return vec![path(t)];
    }
    let mut found = expand_any(&pieces);
    found.sort_by_key(|p| std::cmp::Reverse(p.metadata().and_then(|m| m.modified()).ok()));
    found
}

/// Walks folder by folder, since `%t` may stand in any component.
fn expand_any(pieces: &[Piece]) -> Vec<PathBuf> {
    let mut components: Vec<Vec<Piece>> = vec![Vec::new()];
    for piece in pieces {
        let Piece::Text(t) = piece else {
            components.last_mut().expect("never empty").push(Piece::Any);
            continue;
        };
        for (i, part) in t.split(|c| *c == b'/').enumerate() {
            if i > 0 {
                components.push(Vec::new());
            }
            components.last_mut().expect("never empty").push(Piece::Text(part.to_owned()));
        }
    }
    let absolute = matches!(pieces.first(), Some(Piece::Text(t)) if t.starts_with(b"/"));
    let mut bases = vec![PathBuf::from(if absolute { "/" } else { "." })];
    for component in &components {
        bases = bases.iter().flat_map(|base| step(base, component)).collect();
    }
    bases
}

fn step(base: &Path, component: &[Piece]) -> Vec<PathBuf> {
    if !component.contains(&Piece::Any) {
        let name = component.iter().map(|p| if let Piece::Text(t) = p { t.as_slice() } else { b"" }).collect::<Vec<_>>().concat();
        return vec![if name.is_empty() { base.to_path_buf() } else { base.join(path(&name)) }];
    }
    let Ok(entries) = std::fs::read_dir(base) else { return Vec::new() };
    let names = entries.flatten().map(|e| e.file_name());
    names.filter(|n| fits(n.as_bytes(), component)).map(|n| base.join(n)).collect()
}

fn fits(name: &[u8], component: &[Piece]) -> bool {
    match component {
        [] => name.is_empty(),
        [Piece::Text(t), rest @ ..] => name.strip_prefix(t.as_slice()).is_some_and(|n| fits(n, rest)),
        [Piece::Any, rest @ ..] => (0..=name.len()).any(|i| fits(&name[i..], rest)),
    }
}

/// The folder of a pattern up to its first `%`, which can be made before the target starts.
pub fn fixed_folder(pattern: &Path) -> PathBuf {
    let mut folder = PathBuf::new();
    for c in pattern.parent().into_iter().flat_map(Path::components) {
        if c.as_os_str().to_string_lossy().contains('%') {
            break;
        }
        folder.push(c);
    }
    folder
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names { host: "node7".into(), pid: 42, program: "py".into(), job: Some("981".into()), rank: Some("3".into()) }
    }

    #[test]
    fn fixed_letters_expand_to_one_name() {
        let one = candidates(Path::new("/o/%j/%h.%r.%p.100%%.%x.jsonl%"), &names());
        assert_eq!(one, [PathBuf::from("/o/981/node7.3.42.100%.x.jsonl")]);
    }

    #[test]
    fn a_name_is_exact_unless_each_process_has_another() {
        let exact = |p: &str| exact(Path::new(p), &names()).map(|p| p.display().to_string());
        assert_eq!(exact("/o/%h.%r.%e.%%t.jsonl").as_deref(), Some("/o/node7.3.py.%t.jsonl"));
        assert_eq!((exact("/o/%p.jsonl"), exact("/o/%t/x")), (None, None));
    }

    #[test]
    fn start_times_are_found_on_disk_newest_first() {
        let dir = tempfile::tempdir().unwrap();
        for f in ["t.111.42.jsonl", "t.222.42.jsonl", "t.333.43.jsonl"] {
            std::fs::write(dir.path().join(f), b"").unwrap();
            std::thread::sleep(std::time::Duration::from_millis(15));
        }
        let found = candidates(&dir.path().join("t.%t.%p.jsonl"), &names());
        let found: Vec<_> = found.iter().map(|p| p.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(found, ["t.222.42.jsonl", "t.111.42.jsonl"]);
    }

    #[test]
    fn the_default_has_the_rank_when_there_is_one() {
        assert_eq!(default_pattern(&|_| None), "trace.jsonl");
        assert_eq!(default_pattern(&|n| (n == "OMPI_COMM_WORLD_RANK").then(|| "1".into())), "trace.r%r.jsonl");
    }

    #[test]
    fn folders_are_made_only_up_to_the_first_letter() {
        assert_eq!(fixed_folder(Path::new("/a/b/%j/c/t.jsonl")), PathBuf::from("/a/b"));
        assert_eq!(fixed_folder(Path::new("/a/t.%p")), PathBuf::from("/a"));
    }
}
