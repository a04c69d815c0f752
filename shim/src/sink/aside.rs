//! An earlier run's trace in the place of ours: whether that run is over, and putting its files aside.
//!
//! A run that is not over is never renamed. Its lock alone does not tell: it is let go of by an exec until the next image has taken it
//! again, by a program that closes every descriptor until the shim has noticed, and file systems without `flock` have none. So the
//! processes that the files name are looked for too.

use super::head::{Head, lives, read_head};
use super::{PATH, length};
use crate::config::number;
use crate::sys;
use crate::sys::sys;
use crate::text::Text;
use core::ffi::c_int;

/// Whether nobody of the run whose first trace is open as `fd` lives any more. `ns`: our pid namespace. True: it is locked for us alone.
///
/// # Safety
/// `out` is zero-terminated; one thread.
pub(super) unsafe fn is_over(fd: c_int, out: &[u8], head: Option<&Head>, ns: u64) -> bool {
    // SAFETY: a descriptor of ours; the caller's path.
    unsafe {
        let locked = sys!(libc::SYS_flock, fd, libc::LOCK_EX | libc::LOCK_NB);
        // Refused for want of locks, not because somebody has it.
        let no_locks = locked < 0 && locked != -libc::EWOULDBLOCK as i64;
        (locked == 0 || no_locks) && !head.is_some_and(|h| lives(h, ns)) && !a_member_lives(out, ns)
    }
}

/// Whether one of the further processes of the run of `out` lives.
unsafe fn a_member_lives(out: &[u8], ns: u64) -> bool {
    let mut path = [0u8; PATH];
    let mut t = Text::over(&mut path);
    folder(&mut t, out);
    t.str("\0");
    // SAFETY: the path is zero-terminated; the kernel writes whole records into `list`.
    unsafe {
        let dir = sys::openat(libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW, 0);
        if dir < 0 {
            return false;
        }
        let mut list = [0u8; 4096];
        let mut found = false;
        while !found {
            let n = sys!(libc::SYS_getdents64, dir, list.as_mut_ptr(), list.len());
            let Some(mut rest) = usize::try_from(n).ok().filter(|n| *n > 0).and_then(|n| list.get(..n)) else { break };
            // A record: inode, offset, its length (2 bytes), type, name.
            while let (Some(&[low, high]), Some(name)) = (rest.get(16..18), rest.get(19..)) {
                found |= is_of_a_living(dir, name, ns);
                rest = rest.get(u16::from_le_bytes([low, high]) as usize..).unwrap_or(b"");
            }
        }
        sys::close(dir);
        found
    }
}

/// Whether `name` in `dir` is the trace of a process that lives. Most are told by their number: nothing of that number is there.
unsafe fn is_of_a_living(dir: c_int, name: &[u8], ns: u64) -> bool {
    let digits = name.iter().position(|c| !c.is_ascii_digit()).unwrap_or(0);
    let Some(pid) = name.get(..digits).and_then(number) else { return false };
    // SAFETY: signal 0 only asks; names of the kernel are zero-terminated.
    unsafe {
        if sys!(libc::SYS_kill, pid, 0) == -libc::ESRCH as i64 {
            return false;
        }
        let fd = sys::openat(dir, name.as_ptr(), libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY, 0);
        if fd < 0 {
            return false;
        }
        let head = read_head(fd);
        sys::close(fd);
        head.is_some_and(|h| lives(&h, ns))
    }
}

/// Writes the folder of further processes into `t`: `trace.jsonl` → `trace.d`.
pub(super) fn folder(t: &mut Text, out: &[u8]) {
    let name = out.get(..length(out)).unwrap_or(b"");
    let name = name.strip_suffix(b".zst").unwrap_or(name);
    let name = name.strip_suffix(b".jsonl").unwrap_or(name);
    t.bytes(name).str(".d");
}

/// Renames a finished run's files: `trace.jsonl` → `trace.<its start>.jsonl`, with its folder, its spool and its side file. An errno: the trace is
/// still in its place.
pub(super) unsafe fn put_aside(fd: c_int, out: &[u8], wall: u64) -> Result<(), i32> {
    let mut to = [0u8; PATH];
    let mut from = [0u8; PATH];
    // SAFETY: paths are zero-terminated; one thread.
    unsafe {
        // Renamed by somebody else meanwhile?
        let again = sys::openat(libc::AT_FDCWD, out.as_ptr(), libc::O_RDONLY | libc::O_NOFOLLOW, 0);
        let same = again >= 0 && sys::identity(again) == sys::identity(fd);
        sys::close(again);
        if !same {
            return Ok(());
        }
        let name = out.get(..length(out)).unwrap_or(b"");
        let (stem, zst) = name.strip_suffix(b".zst").map_or((name, &b""[..]), |s| (s, b".zst"));
        let (stem, ext) = stem.strip_suffix(b".jsonl").map_or((stem, &b""[..]), |s| (s, b".jsonl"));
        for n in 0..1000u64 {
            let aside = |t: &mut Text| {
                t.bytes(stem).str(".").stamp(if wall == 0 { sys::wall() } else { wall });
                if n > 0 {
                    t.str("-").num(n);
                }
            };
            let mut t = Text::over(&mut to);
            aside(&mut t);
            t.bytes(ext).bytes(zst).str("\0");
            let r = sys!(libc::SYS_renameat2, libc::AT_FDCWD, out.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::RENAME_NOREPLACE);
            if r == -libc::EEXIST as i64 {
                continue;
            }
            let unknown = r == -libc::EINVAL as i64 || r == -libc::ENOSYS as i64;
            let r = if unknown { sys!(libc::SYS_rename, out.as_ptr(), to.as_ptr()) } else { r };
            // Gone: somebody else was quicker.
            if r < 0 && r != -libc::ENOENT as i64 {
                return Err(-r as i32);
            }
            for suffix in [".spool", ".d", ".marks"] {
                let mut f = Text::over(&mut from);
                let mut t = Text::over(&mut to);
                aside(&mut t);
                match suffix {
                    ".d" => {
                        folder(&mut f, out);
                        t.str(".d\0");
                    }
                    // Never compressed: its name is that of the plain trace.
                    ".marks" => {
                        f.bytes(stem).bytes(ext).str(suffix);
                        t.bytes(ext).str(".marks\0");
                    }
                    _ => {
                        f.bytes(name).str(suffix);
                        t.bytes(ext).bytes(zst).str(suffix).str("\0");
                    }
                }
                f.str("\0");
                sys!(libc::SYS_rename, from.as_ptr(), to.as_ptr());
            }
            return Ok(());
        }
        Err(libc::EEXIST)
    }
}
