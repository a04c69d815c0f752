//! What a test needs from the machine; without it the test is skipped, visibly.

use super::artifacts::out_dir;
use super::program::Mode;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

unsafe extern "C" {
    fn geteuid() -> u32;
}

/// What a test needs from the machine; without it the test is skipped, visibly.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    Root,
    Command(&'static str),
    /// A shared library by its full soname.
    Library(&'static str),
    /// A module of the Python interpreter used.
    Module(&'static str),
    StaticLink,
    Preload,
}

impl Need {
    fn missing(self) -> Option<String> {
        let (there, what) = match self {
            // SAFETY: takes nothing, cannot fail.
            Need::Root => (unsafe { geteuid() } == 0, "root".to_owned()),
            Need::Command(name) => (find_command(name).is_some(), format!("the command {name}")),
            Need::Library(name) => (find_library(name).is_some(), name.to_owned()),
            Need::Module(name) => (
                python().is_some_and(|p| quiet(Command::new(p).args(["-c", &format!("import {name}")]))),
                format!("the Python module {name}"),
            ),
            Need::StaticLink => (links_static(), "a static C library".to_owned()),
            Need::Preload => (Mode::WRAPPED.iter().any(|m| m.wanted()), "a wrapped mode in MEMSHIM_TEST_MODES".to_owned()),
        };
        (!there).then(|| format!("needs {what}"))
    }
}

/// Says on stderr, past the capture of the test harness, that a test did not run.
pub fn skip(test: &str, why: &str) {
    let _ = std::io::stderr().write_all(format!("skip {test}: {why}\n").as_bytes());
}

/// Skips the calling test when one of `needs` is not met.
pub fn lacks(test: &str, needs: &[Need]) -> bool {
    match needs.iter().find_map(|n| n.missing()) {
        Some(why) => {
            skip(test, &why);
            true
        }
        None => false,
    }
}

/// What a compiler finds NVIDIA's own headers by, where PyPI's package of them is installed.
pub fn nvtx_headers(test: &str) -> Option<String> {
    if lacks(test, &[Need::Preload, Need::Module("nvidia.nvtx"), Need::Command("g++")]) {
        return None;
    }
    let script = "import nvidia.nvtx, os; print(os.path.join(list(nvidia.nvtx.__path__)[0], 'include'))";
    let said = Command::new(python()?).args(["-c", script]).output().expect("python");
    Some(format!("-I{}", String::from_utf8_lossy(&said.stdout).trim()))
}

fn quiet(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

pub fn find_command(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|d| d.join(name)).find(|p| p.is_file())
}

pub fn find_library(name: &str) -> Option<PathBuf> {
    let machine = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    [machine.as_str(), "/usr/lib64", "/usr/local/lib", "/usr/lib", "/lib64", "/lib"]
        .iter()
        .map(|d| Path::new(d).join(name))
        .find(|p| p.exists())
}

fn links_static() -> bool {
    static DONE: OnceLock<bool> = OnceLock::new();
    *DONE.get_or_init(|| {
        let source = out_dir().join("static-probe.c");
        fs::write(&source, "int main(void) { return 0; }").is_ok()
            && quiet(Command::new("gcc").args(["-static", "-o", "/dev/null"]).arg(source))
    })
}

/// The real interpreter, not a script that stands in front of it.
pub fn python() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOUND
        .get_or_init(|| {
            let asked = std::env::var("MEMSHIM_PYTHON").unwrap_or_else(|_| "python3".to_owned());
            let said = Command::new(asked).args(["-c", "import sys; print(sys.executable)"]).stdin(Stdio::null()).output().ok()?;
            let path = PathBuf::from(String::from_utf8(said.stdout).ok()?.trim());
            path.is_file().then_some(path)
        })
        .as_deref()
}

/// An interpreter that has PennyLane Catalyst.
pub fn catalyst() -> Option<PathBuf> {
    let asked = std::env::var_os("MEMSHIM_CATALYST_PYTHON").map(PathBuf::from).or_else(|| python().map(Path::to_path_buf))?;
    quiet(Command::new(&asked).args(["-c", "import catalyst"])).then_some(asked)
}

/// Whether an interpreter is a free-threaded build: its allocator is mimalloc, under other names, and its garbage collector another.
pub fn is_free_threaded(python: &Path) -> bool {
    quiet(Command::new(python).args(["-c", "import sysconfig as s, sys; sys.exit(not s.get_config_var('Py_GIL_DISABLED'))"]))
}

/// pyenv's interpreter of a minor version (`PYENV_ROOT`, else `~/.pyenv`).
pub fn pyenv(minor: u32) -> Option<PathBuf> {
    of_pyenv(minor, "")
}

/// The same of its builds without a global lock, `3.14.0t`.
pub fn pyenv_free_threaded(minor: u32) -> Option<PathBuf> {
    of_pyenv(minor, "t")
}

fn of_pyenv(minor: u32, kind: &str) -> Option<PathBuf> {
    let pyenv = std::env::var("PYENV_ROOT").or_else(|_| std::env::var("HOME").map(|home| home + "/.pyenv")).ok()?;
    let prefix = format!("3.{minor}.");
    let versions = std::fs::read_dir(pyenv + "/versions").ok()?.flatten();
    let of_minor = |name: &std::ffi::OsStr| {
        let patch = name.to_string_lossy().strip_prefix(&prefix).and_then(|rest| Some(rest.strip_suffix(kind)?.to_owned()));
        patch.is_some_and(|patch| !patch.is_empty() && patch.bytes().all(|c| c.is_ascii_digit()))
    };
    let dir = versions.filter(|e| of_minor(&e.file_name())).map(|e| e.path()).max()?;
    Some(dir.join("bin/python3")).filter(|p| p.exists())
}
