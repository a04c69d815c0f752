//! The library, the folder for traces, and whether a recording comes out when the two meet.

use super::{Findings, Verdict, stacks};
use crate::launch::{place, preload};
use crate::output::units::iec;
use crate::trace::line::{self, Line};
use crate::trace::read::LineReader;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Less free disk than this is pointed out.
const LITTLE_DISK: u64 = 1 << 30;

/// Where the library is, if it can be used.
pub fn library(found: &mut Findings) -> Option<PathBuf> {
    let library = match preload::find_library() {
        Ok(library) => library,
        Err(e) => {
            found.add(Verdict::Bad, "library", e.to_string());
            return None;
        }
    };
    if let Some(why) = preload::unusable_path(&library) {
        found.add(Verdict::Bad, "library", format!("{}: {why}", library.display()));
        return None;
    }
    match small_program(Path::new("/bin/true"), &library, &[("MEMSHIM_MODE", "off".as_ref())]) {
        Ok(()) => {
            found.add(Verdict::Good, "library", format!("{} loads", library.display()));
            Some(library)
        }
        Err(why) => {
            found.add(Verdict::Bad, "library", format!("{} does not load: {why}", library.display()));
            None
        }
    }
}

/// Runs one with the library; the loader, and the library itself, complain on stderr.
fn small_program(program: &Path, library: &Path, set: &[(&str, &Path)]) -> Result<(), String> {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", library).envs(set.iter().copied());
    let out = command.output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    if out.status.success() && said.is_empty() { Ok(()) } else { Err(if said.is_empty() { out.status.to_string() } else { said }) }
}

/// `program`: what was asked about as well.
pub fn folder(found: &mut Findings, folder: &Path, library: Option<&Path>, program: Option<&OsStr>) {
    if let Err(e) = place::writable(folder) {
        found.add(Verdict::Bad, "folder", format!("{}: {e}: no trace can be written there; choose another with -o", folder.display()));
        return;
    }
    let kind = place::file_system(folder).map_or_else(|| "unknown".into(), |(_, kind)| kind);
    if place::is_remote(folder) {
        let text = format!(
            "{} is on {kind}: no shared memory in files there, so a kill may lose the last events; put -o on a local disk or /dev/shm",
            folder.display()
        );
        found.add(Verdict::Note, "folder", text);
    } else {
        found.add(Verdict::Good, "folder", format!("{} ({kind}): a killed process loses nothing", folder.display()));
    }
    if let Some(free) = place::free_bytes(folder) {
        if free < LITTLE_DISK {
            let text = format!("{} free; a trace takes 2 GiB at most: make room, or say less with --max", iec(free));
            found.add(Verdict::Note, "disk", text);
        } else {
            found.add(Verdict::Good, "disk", format!("{} free; a trace takes 2 GiB at most (--max)", iec(free)));
        }
    }
    if let Some(library) = library {
        trial(found, folder, library, program);
    }
}

/// Records a small program for real: what limits, filters and the file system allow together shows there.
fn trial(found: &mut Findings, folder: &Path, library: &Path, program: Option<&OsStr>) {
    let dir = folder.join(format!(".memshim-doctor-{}", std::process::id()));
    if std::fs::create_dir(&dir).is_err() {
        return;
    }
    let trace = dir.join("trace.jsonl");
    let small = [Path::new("/bin/ls"), Path::new("/bin/true")].into_iter().find(|p| p.exists()).unwrap_or(Path::new("true"));
    let ran = small_program(
        small,
        library,
        &[("MEMSHIM_MODE", "full".as_ref()), ("MEMSHIM_OUT", &trace), ("MEMSHIM_INCLUDE", "".as_ref()), ("MEMSHIM_CONFIG", "".as_ref())],
    );
    let seen = recorded(&trace);
    let name = small.display();
    let whole = ran.is_ok() && seen.is_some();
    match (ran, seen) {
        (Err(why), _) => found.add(Verdict::Bad, "trial", format!("{name} with the library: {why}")),
        (Ok(()), None) => {
            let text =
                format!("{name} left no whole trace: something here stops the library (a seccomp filter? a limit? MEMSHIM_EXCLUDE?)");
            found.add(Verdict::Bad, "trial", text);
        }
        (Ok(()), Some(notes)) if notes.is_empty() => found.add(Verdict::Good, "trial", format!("a recording of {name} is whole")),
        (Ok(()), Some(notes)) => found.add(Verdict::Note, "trial", format!("a recording of {name} says: {}", notes.join("; "))),
    }
    if whole {
        stacks::of_trial(found, &trace, small);
        stacks::pythons(found, &dir, library, program);
    }
    let _ = std::fs::remove_dir_all(&dir);
}

/// The notes of a trace that has an end.
fn recorded(trace: &Path) -> Option<Vec<String>> {
    let mut lines = LineReader::open(trace).ok()?;
    let (mut notes, mut ended) = (Vec::new(), false);
    while let Some(raw) = lines.next_line().ok()? {
        match line::parse(raw.bytes) {
            Ok(Line::Note(note)) => notes.push(note),
            Ok(Line::End(_)) => ended = true,
            _ => {}
        }
    }
    ended.then_some(notes)
}

#[cfg(test)]
mod tests {
    use super::super::tests::text;
    use super::*;

    #[test]
    fn a_folder_without_leave_to_write_is_said_with_the_flag_that_helps() {
        assert!(text(|f| folder(f, Path::new("/proc"), None, None)).contains("choose another with -o"));
    }

    #[test]
    fn a_trace_without_an_end_is_no_recording() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        std::fs::write(&path, "{\"type\":\"note\",\"what\":\"x\"}\n").unwrap();
        assert_eq!(recorded(&path), None);
        std::fs::write(&path, "{\"type\":\"note\",\"what\":\"x\"}\n{\"type\":\"end\"}\n").unwrap();
        assert_eq!(recorded(&path), Some(vec!["x".into()]));
    }
}
