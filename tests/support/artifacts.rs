//! What tests run, and where: the release artifacts, the programs built from `tests/programs`, the folders of tests.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Folder of the release artifacts.
pub fn release() -> PathBuf {
    let target = std::env::var_os("MEMSHIM_TARGET_DIR")
        .or_else(|| std::env::var_os("CARGO_TARGET_DIR"))
        .map_or_else(|| root().join("target"), PathBuf::from);
    root().join(target).join("release")
}

fn artifact(name: &str) -> PathBuf {
    let path = release().join(name);
    assert!(
        path.exists(),
        "{} is not there: `cargo build --release --workspace` makes it, MEMSHIM_TARGET_DIR says where to look",
        path.display()
    );
    path
}

pub fn shim() -> PathBuf {
    artifact("libmemshim.so")
}

pub fn memshim() -> PathBuf {
    artifact("memshim")
}

/// Where programs are built, one folder for all test binaries.
pub fn out_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
        fs::create_dir_all(&dir).expect("folder for the programs");
        open_path_to(&dir);
        dir
    })
}

/// Some programs become another user in mid-run; what they execute must stay in reach.
pub fn open_path_to(dir: &Path) {
    for d in dir.ancestors().take_while(|d| *d != Path::new("/")) {
        if let Ok(meta) = fs::metadata(d) {
            let mode = meta.permissions().mode();
            if mode & 0o011 != 0o011 {
                let _ = fs::set_permissions(d, fs::Permissions::from_mode(mode | 0o011));
            }
        }
    }
}

/// Builds `tests/programs/<source>` with `flags` as `name`, once a process, anew only when it is older than its source.
pub fn build(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    type Once = Arc<OnceLock<()>>;
    static BUILT: OnceLock<Mutex<HashMap<String, Once>>> = OnceLock::new();
    let once = BUILT.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner()).entry(name.to_owned()).or_default().clone();
    let made = out_dir().join(name);
    once.get_or_init(|| compile(&root().join("tests/programs").join(source), &made, flags));
    made
}

fn compile(source: &Path, made: &Path, flags: &[&str]) {
    let age = |p: &Path| fs::metadata(p).and_then(|m| m.modified()).ok();
    // Sources include each other: of those in a folder of their own the newest counts.
    let folder = source.parent().expect("a folder");
    let beside = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    let kin = beside.filter(|_| folder != root().join("tests/programs")).map(|p| age(&p)).max().flatten();
    let newest = age(source).max(kin).max(age(&root().join("tests/programs/facts.h"))).max(age(&root().join("tests/support/artifacts.rs")));
    if age(made) > newest {
        return;
    }
    let (compiler, standard) = if source.extension().is_some_and(|e| e == "cc") { ("g++", "-std=c++17") } else { ("gcc", "-std=gnu11") };
    let unfinished = made.with_extension(format!("new{}", std::process::id()));
    let out = Command::new(compiler)
        .args([standard, "-O1", "-g", "-w", "-fno-builtin", "-pthread", "-o"])
        .arg(&unfinished)
        .arg(source)
        .args(flags)
        .arg("-ldl")
        .output()
        .unwrap_or_else(|e| panic!("{compiler}: {e}"));
    assert!(out.status.success(), "{} does not build:\n{}", source.display(), String::from_utf8_lossy(&out.stderr));
    fs::rename(&unfinished, made).expect("put the built program in its place");
}

/// The folder of a test.
pub fn run_dir(test: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("runs").join(test)
}

/// An empty folder for a test, in reach of other users.
pub fn fresh_dir(test: &str) -> PathBuf {
    let dir = run_dir(test);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("folder for a test");
    open_path_to(&dir);
    dir
}
