//! Where CUPTI's library may lie when the program has not loaded it: beside the runtime, in Python's packages, where the loader looks, in a toolkit.

use crate::config::CONFIG;
use crate::loaded;
use crate::sys::sys;
use crate::text::Text;
use core::ffi::{CStr, c_char};

/// By the driver's major version, the newest first; those before 12 carry the minor one too.
const NAMES: [(u64, &str); 5] =
    [(13, "libcupti.so.13"), (12, "libcupti.so.12"), (11, "libcupti.so.11.8"), (11, "libcupti.so.11.7"), (11, "libcupti.so.11.6")];
/// From the folder of the runtime's library: of a toolkit or of CUDA 13's packages, of older packages, of a toolkit again.
const BESIDE_RUNTIME: [&str; 3] = ["", "../../cuda_cupti/lib/", "../extras/CUPTI/lib64/"];
/// From a folder of Python packages.
const IN_PACKAGES: [&str; 2] = ["nvidia/cu13/lib/", "nvidia/cuda_cupti/lib/"];
/// From a toolkit's root.
const IN_TOOLKIT: [&str; 2] = ["extras/CUPTI/lib64/", "lib64/"];
/// Folders of Python packages have one of these names.
const PACKAGES: [&[u8]; 2] = [b"/site-packages/", b"/dist-packages/"];

/// Offers the files that are there to `open` until it takes one. `newest`: the driver's major version, which a library must not be ahead of.
pub fn each(newest: u64, mut open: impl FnMut(&CStr) -> bool) -> bool {
    let mut offer = |folder: &[u8], below: &[&str]| below.iter().any(|part| in_folder(newest, folder, part, &mut open));
    let mut room = [0u8; 1024];
    if let Some(n) = loaded::find(b"libcudart.so").and_then(|l| folder_of(l.name(), &mut room))
        && offer(room.get(..n).unwrap_or(b""), &BESIDE_RUNTIME)
    {
        return true;
    }
    for word in PACKAGES {
        let n = loaded::path_up_to(word, &mut room);
        if n > 0 && offer(room.get(..n).unwrap_or(b""), &IN_PACKAGES) {
            return true;
        }
    }
    // SAFETY: zero-terminated values of the initial environment, read-only since the start.
    let [python, home, path] = unsafe { [text(CONFIG.python_path), text(CONFIG.cuda_home), text(CONFIG.cuda_path)] };
    python.split(|c| *c == b':').any(|folder| offer(folder, &IN_PACKAGES))
        || offer(b"", &[""])
        || [home, path, b"/usr/local/cuda"].iter().any(|root| !root.is_empty() && offer(root, &IN_TOOLKIT))
}

/// # Safety
/// Null or zero-terminated.
unsafe fn text(p: *const c_char) -> &'static [u8] {
    // SAFETY: the caller's promise.
    if p.is_null() { b"" } else { unsafe { CStr::from_ptr(p).to_bytes() } }
}

/// The libraries of one folder; of none (empty): those that the loader finds by name.
fn in_folder(newest: u64, folder: &[u8], below: &str, open: &mut impl FnMut(&CStr) -> bool) -> bool {
    NAMES.iter().filter(|(major, _)| *major <= newest).any(|(_, name)| {
        let mut path = [0u8; 1280];
        let mut t = Text::over(path.get_mut(..1279).unwrap_or(&mut []));
        if !folder.is_empty() {
            t.bytes(folder.strip_suffix(b"/").unwrap_or(folder)).str("/").str(below);
        }
        t.str(name);
        let Ok(path) = CStr::from_bytes_until_nul(&path) else { return false };
        (folder.is_empty() || is_there(path)) && open(path)
    })
}

fn is_there(path: &CStr) -> bool {
    // SAFETY: a zero-terminated path.
    unsafe { sys!(libc::SYS_faccessat, libc::AT_FDCWD, path.as_ptr(), libc::R_OK) == 0 }
}

/// The folder of a file, copied: how long it is.
fn folder_of(file: *const c_char, into: &mut [u8]) -> Option<usize> {
    // SAFETY: null or the loader's name of a loaded object.
    let file = unsafe { text(file) };
    let n = file.iter().rposition(|c| *c == b'/')?;
    into.get_mut(..n)?.copy_from_slice(file.get(..n)?);
    Some(n)
}
