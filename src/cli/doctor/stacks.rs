//! What call stacks will be worth here: whether they lead to where a program began, which names their code has, which Pythons can be read.

use super::{Findings, Verdict};
use crate::analyze::report::Report;
use crate::analyze::{self, Options};
use crate::launch::spawn;
use crate::model::load::Progress;
use crate::symbols::detail::{self, Detail};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Asks the interpreter for its file and version, and allocates from a line of Python.
const PYTHON: &str = "import sys; blocks = [bytearray(200000) for _ in range(4)]; print(sys.executable); print(sys.version.split()[0])";

/// What a trace of `program` says of stacks.
pub fn of_trial(found: &mut Findings, trace: &Path, program: &Path) {
    let Some(report) = report(trace) else { return };
    let sites: Vec<_> = report.runs.iter().flat_map(|r| &r.sites).filter(|s| !s.frames.is_empty()).collect();
    if sites.is_empty() {
        let text = "no call stack came with the recording: MEMSHIM_STACKS is off, or a filter forbids process_vm_readv; sizes and times are seen all the same";
        return found.add(Verdict::Note, "stacks", text);
    }
    let is_program = |module: &String| Path::new(module).file_name() == program.file_name();
    let whole = sites.iter().filter(|s| s.frames.last().is_some_and(|f| f.module.as_ref().is_some_and(is_program))).count();
    let share = format!("{whole} of {} stacks of {} lead to its start", sites.len(), program.display());
    if whole * 10 >= sites.len() * 9 {
        found.add(Verdict::Good, "stacks", share);
    } else {
        let text = format!("{share}: a library here has no unwind tables for some of its functions; the frames inside of them are right");
        found.add(Verdict::Note, "stacks", text);
    }
    let modules: BTreeSet<PathBuf> = sites.iter().flat_map(|s| &s.frames).filter_map(|f| f.module.as_ref().map(PathBuf::from)).collect();
    if let Some(libc) = modules.iter().find(|m| m.file_name().is_some_and(|n| n.to_string_lossy().starts_with("libc."))) {
        names(found, libc);
    }
}

/// Which names the code of a file has.
pub fn names(found: &mut Findings, file: &Path) {
    let shown = file.display();
    let (verdict, text) = match detail::of(file) {
        Some((Detail::Lines, Some(from))) => {
            (Verdict::Good, format!("{shown}: functions, source lines and inlined calls, from {}", from.display()))
        }
        Some((Detail::Lines, None)) => (Verdict::Good, format!("{shown}: functions, source lines and inlined calls")),
        Some((Detail::Functions, _)) => {
            (Verdict::Good, format!("{shown}: functions; no source lines (built without -g, no debug file here)"))
        }
        Some((Detail::Exports, _)) => {
            let fix = "install its debug symbols for others and for lines (-dbg, -dbgsym or -debuginfo packages), or name a folder with --symbols";
            (Verdict::Good, format!("{shown}: exported functions only; {fix}"))
        }
        None => (Verdict::Note, format!("{shown}: cannot be read, its code has no names")),
    };
    found.add(verdict, "names", text);
}

/// The Pythons that a shell would find here, and `program` if it is one.
pub fn pythons(found: &mut Findings, folder: &Path, library: &Path, program: Option<&OsStr>) {
    let env: Vec<_> = std::env::vars_os().collect();
    let is_python = |p: &&OsStr| Path::new(p).file_name().is_some_and(|n| n.to_string_lossy().starts_with("python"));
    let mut seen = BTreeSet::new();
    for name in [OsStr::new("python3"), OsStr::new("python")].into_iter().chain(program.filter(is_python)) {
        let Some((file, version)) = spawn::find_program(name, &env).and_then(|path| ask(Command::new(path))) else { continue };
        if !seen.insert(file.clone()) {
            continue;
        }
        let trace = folder.join(format!("python-{}.jsonl", seen.len()));
        let mut command = Command::new(&file);
        command
            .env("LD_PRELOAD", library)
            .env("MEMSHIM_MODE", "fast")
            .env("MEMSHIM_OUT", &trace)
            .env("MEMSHIM_INCLUDE", "")
            .env("MEMSHIM_EXCLUDE", "")
            .env("MEMSHIM_CONFIG", "");
        let ran = ask(command).is_some();
        let frames = report(&trace).is_some_and(|r| r.runs.iter().flat_map(|r| &r.sites).any(|s| s.frames.iter().any(|f| f.python)));
        let what = format!("{} ({version})", file.display());
        if ran && frames {
            found.add(Verdict::Good, "Python", format!("{what}: its lines are seen"));
        } else {
            let text = format!("{what}: its frames cannot be read, stacks are native; CPython 3.7 to 3.14 can be");
            found.add(Verdict::Note, "Python", text);
        }
    }
    if seen.is_empty() {
        found.add(Verdict::Good, "Python", "none in PATH; CPython 3.7 to 3.14 can be read");
    }
}

/// Runs an interpreter; its file and its version.
fn ask(mut command: Command) -> Option<(PathBuf, String)> {
    let out = command.args(["-I", "-S", "-c", PYTHON]).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(out.stdout).ok().filter(|_| out.status.success())?;
    let mut lines = text.lines();
    Some((PathBuf::from(lines.next()?), lines.next()?.to_owned()))
}

fn report(trace: &Path) -> Option<Report> {
    analyze::analyze(&[trace.to_path_buf()], &Options::default(), &Progress::default()).ok()
}

#[cfg(test)]
mod tests {
    use super::super::tests::text;
    use super::*;

    #[test]
    fn names_are_those_that_the_file_has() {
        // This test has its symbols with it.
        let own = std::env::current_exe().unwrap();
        assert!(text(|f| names(f, &own)).contains(": functions"));
        assert!(text(|f| names(f, Path::new("/etc/passwd"))).starts_with("note  names  /etc/passwd: cannot be read"));
    }
}
