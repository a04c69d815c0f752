//! Whether a file has capabilities. One of the places of the command with `unsafe` (a plain system call).
#![allow(unsafe_code)]

use nix::libc;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Whether a program run from this file is given capabilities.
pub fn are_given_by(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: two strings that end in zero; a size of 0 asks for the length and writes nothing.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_file_without_has_none_and_one_with_has() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p");
        std::fs::copy("/bin/true", &file).unwrap();
        assert!(!are_given_by(&file));
        let set = Command::new("setcap").arg("cap_net_raw+ep").arg(&file).output();
        match set {
            Ok(o) if o.status.success() => assert!(are_given_by(&file)),
            _ => eprintln!("skip a_file_without_has_none_and_one_with_has: needs setcap and the right to use it"),
        }
    }
}
