//! Which file of the run is this process's: opening it, joining a run, putting an earlier one aside.
//!
//! The first process of a run creates `trace.jsonl`; every process of the run holds a shared lock (`flock`) on it while it lives, also
//! after the first has ended. So a newcomer knows: a file that can be locked exclusively is of an earlier run and is renamed (`aside`);
//! else it joins, with a file of its own in `trace.d`. This needs no variable in anybody's environment and works across pid namespaces.

use super::aside::{folder, is_over, put_aside};
use super::head::{Head, count_headers, mine, read_head};
use super::{PATH, SINK, length};
use crate::config::CONFIG;
use crate::sys::sys;
use crate::text::Text;
use crate::{lines, proc, sys, zst};
use core::ffi::c_int;

/// What came of opening.
pub enum Opened {
    /// Written to; the header line is due (false: it is in the file already).
    Ready { header_due: bool },
    /// Nothing can be written anywhere.
    Failed(&'static str, i32),
}

/// Opens the trace of the first image of a process, or of an exec'd one.
pub fn open() -> Opened {
    // SAFETY: one thread (start of the process).
    unsafe {
        super::note_stderr();
        let (_, start) = proc::parent_and_start();
        SINK.me = (sys::getpid(), start);
        let me_ns = proc::pid_namespace();
        let out = &raw const CONFIG.out;
        let out = &*out;
        for _ in 0..16 {
            let fd = sys::openat(
                libc::AT_FDCWD,
                out.as_ptr(),
                libc::O_RDWR | libc::O_APPEND | libc::O_NOFOLLOW | libc::O_NOCTTY | libc::O_NONBLOCK,
                0,
            );
            if fd == -libc::ENOENT {
                match create_first(out) {
                    Ok(()) => return Opened::Ready { header_due: false },
                    Err(libc::EEXIST) => continue,
                    Err(e) => return Opened::Failed("cannot create the trace", e),
                }
            }
            let fd = if fd == -libc::EACCES || fd == -libc::EINVAL {
                let fd = sys::openat(
                    libc::AT_FDCWD,
                    out.as_ptr(),
                    libc::O_WRONLY | libc::O_APPEND | libc::O_NOFOLLOW | libc::O_NOCTTY | libc::O_NONBLOCK,
                    0,
                );
                if fd == -libc::EACCES && (open_own_again(out, me_ns) || create_member(out).is_ok()) {
                    // Another user's file (rights were given up before an exec): a member of that run, as far as one can see.
                    return Opened::Ready { header_due: true };
                }
                fd
            } else {
                fd
            };
            if fd < 0 {
                return Opened::Failed("cannot open the trace", -fd);
            }
            let fd = sys::move_high(fd);
            if !is_regular(fd) {
                set_file(fd, out, false);
                SINK.first = true;
                SINK.run = new_run();
                return Opened::Ready { header_due: true };
            }
            let head = read_head(fd);
            if let Some(h) = &head
                && mine(h, me_ns)
            {
                // An exec'd image of the run's first process.
                sys!(libc::SYS_flock, fd, libc::LOCK_SH | libc::LOCK_NB);
                go_on(fd, out, h);
                SINK.lock = fd;
                SINK.first = true;
                return Opened::Ready { header_due: true };
            }
            let run = head.as_ref().map_or(0, |h| h.run);
            if open_own_again(out, me_ns) {
                sys!(libc::SYS_flock, fd, libc::LOCK_SH | libc::LOCK_NB);
                SINK.lock = fd;
                return Opened::Ready { header_due: true };
            }
            if is_over(fd, out, head.as_ref(), me_ns) {
                let aside = put_aside(fd, out, head.map_or(0, |h| h.wall));
                sys::close(fd);
                match aside {
                    Ok(()) => continue,
                    Err(e) => return Opened::Failed("cannot rename the earlier trace", e),
                }
            }
            sys!(libc::SYS_flock, fd, libc::LOCK_SH | libc::LOCK_NB);
            SINK.lock = fd;
            SINK.run = run;
            return match create_member(out) {
                Ok(()) => Opened::Ready { header_due: true },
                Err(e) => Opened::Failed("cannot create a file beside the trace", e),
            };
        }
        Opened::Failed("cannot settle which trace is whose", libc::EAGAIN)
    }
}

/// Opens the trace of a forked child: a file of its own, else the one inherited.
pub fn open_child() -> Opened {
    // SAFETY: one thread (a fresh child).
    unsafe {
        let parent = SINK.me;
        let (_, start) = proc::parent_and_start();
        SINK.me = (sys::getpid(), start);
        SINK.exec = 0;
        SINK.first = false;
        SINK.written = 0;
        super::tally::forget();
        SINK.lowered = 0;
        SINK.near_cap = false;
        SINK.capped = false;
        SINK.begin = 0;
        SINK.words_at = 0;
        if SINK.trouble != 0 {
            return Opened::Failed("", SINK.trouble);
        }
        let (old, old_id, was_foreign) = (SINK.fd, SINK.id, SINK.foreign);
        let out = &*(&raw const CONFIG.out);
        if SINK.regular {
            match create_member(out) {
                Ok(()) => {
                    // The first process's descriptor is the lock; another's is not needed.
                    if old != SINK.lock && sys::identity(old) == old_id {
                        sys::close(old);
                    }
                    return Opened::Ready { header_due: true };
                }
                Err(_) => SINK.fd = old,
            }
        }
        // No file of its own to be had (no descriptor, another root, other rights): lines go into the parent's file.
        if sys::identity(old) != old_id {
            return Opened::Failed("", libc::EBADF);
        }
        SINK.id = old_id;
        if !was_foreign {
            SINK.owner = parent;
        }
        SINK.foreign = true;
        Opened::Ready { header_due: true }
    }
}

/// Takes the run's lock again, after the program has closed it.
///
/// # Safety
/// The lock of the drain is held.
pub(super) unsafe fn lock_again() {
    // SAFETY: the path is zero-terminated; descriptors are ours.
    unsafe {
        let out = &*(&raw const CONFIG.out);
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NOCTTY | libc::O_NONBLOCK;
        let fd = sys::move_high(sys::openat(libc::AT_FDCWD, out.as_ptr(), flags, 0));
        if fd >= 0 && read_head(fd).is_some_and(|h| h.run == SINK.run) {
            sys!(libc::SYS_flock, fd, libc::LOCK_SH | libc::LOCK_NB);
            SINK.lock = fd;
        } else {
            sys::close(fd);
        }
    }
}

fn new_run() -> u64 {
    let mut v = 0u64;
    // SAFETY: 8 bytes of a variable.
    unsafe { sys!(libc::SYS_getrandom, &raw mut v, 8, 1) };
    v ^ sys::wall()
}

fn is_regular(fd: c_int) -> bool {
    // SAFETY: stat is plain data.
    unsafe {
        let mut st: libc::stat = core::mem::zeroed();
        sys!(libc::SYS_fstat, fd, &raw mut st) == 0 && st.st_mode & libc::S_IFMT == libc::S_IFREG
    }
}

unsafe fn set_file(fd: c_int, path: &[u8], regular: bool) {
    // SAFETY: one thread.
    unsafe {
        SINK.fd = fd;
        SINK.id = sys::identity(fd);
        SINK.regular = regular;
        SINK.foreign = false;
        SINK.begin = 0;
        SINK.words_at = 0;
        SINK.path = [0; PATH];
        let n = length(path).min(PATH - 1);
        SINK.packed = path.get(..n).is_some_and(|p| p.ends_with(b".zst"));
        zst::reset();
        core::ptr::copy_nonoverlapping(path.as_ptr(), (&raw mut SINK.path).cast(), n);
    }
}

/// Goes on in the file of an earlier image of this process.
unsafe fn go_on(fd: c_int, path: &[u8], h: &Head) {
    // SAFETY: one thread.
    unsafe {
        set_file(fd, path, true);
        end_torn_line(fd);
        SINK.run = h.run;
        SINK.exec = count_headers(fd, SINK.packed).max(1);
    }
}

/// An exec ends the image's other threads at any instant, the writer in the middle of a write too: our header must not be the rest of its line.
/// What that line said is in the spool that the image left.
unsafe fn end_torn_line(fd: c_int) {
    // SAFETY: stat is plain data; a byte is read, and one appended, at the end of our own file.
    unsafe {
        let mut st: libc::stat = core::mem::zeroed();
        let mut last = [b'\n'];
        if SINK.packed || sys!(libc::SYS_fstat, fd, &raw mut st) < 0 || st.st_size <= 0 {
            return;
        }
        if sys::pread(fd, last.as_mut_ptr(), 1, st.st_size as u64 - 1) == 1 && last[0] != b'\n' {
            sys::write(fd, b"\n".as_ptr(), 1);
        }
    }
}

/// Creates the run's first file, complete with its header before anybody sees it.
unsafe fn create_first(out: &[u8]) -> Result<(), i32> {
    let mut tmp = [0u8; PATH];
    let mut t = Text::over(&mut tmp);
    t.bytes(out.get(..length(out)).unwrap_or(b"")).str(".").num(sys::getpid() as u64).str(".tmp\0");
    // SAFETY: paths are zero-terminated; one thread.
    unsafe {
        let fd = sys::openat(
            libc::AT_FDCWD,
            tmp.as_ptr(),
            libc::O_RDWR | libc::O_APPEND | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW,
            0o600,
        );
        if fd < 0 {
            return Err(-fd);
        }
        let fd = sys::move_high(fd);
        sys!(libc::SYS_flock, fd, libc::LOCK_SH | libc::LOCK_NB);
        set_file(fd, out, true);
        SINK.run = new_run();
        SINK.exec = 0;
        lines::header_now();
        let r = sys!(libc::SYS_linkat, libc::AT_FDCWD, tmp.as_ptr(), libc::AT_FDCWD, out.as_ptr(), 0);
        // A file system without hard links: rename without replacing.
        let r = if r == -libc::EPERM as i64 || r == -libc::EOPNOTSUPP as i64 {
            sys!(libc::SYS_renameat2, libc::AT_FDCWD, tmp.as_ptr(), libc::AT_FDCWD, out.as_ptr(), libc::RENAME_NOREPLACE)
        } else {
            r
        };
        sys!(libc::SYS_unlink, tmp.as_ptr());
        if r < 0 {
            sys::close(fd);
            return Err(-r as i32);
        }
        SINK.lock = fd;
        SINK.first = true;
        Ok(())
    }
}

fn member_path(buf: &mut [u8; PATH], out: &[u8], n: u32) {
    let mut t = Text::over(buf);
    folder(&mut t, out);
    // SAFETY: set at the start.
    t.str("/").num(unsafe { SINK.me.0 } as u64);
    if n > 1 {
        t.str(".").num(n as u64);
    }
    t.str(".jsonl");
    if out.get(..length(out)).is_some_and(|o| o.ends_with(b".zst")) {
        t.str(".zst");
    }
    t.str("\0");
}

unsafe fn create_member(out: &[u8]) -> Result<(), i32> {
    let mut p = [0u8; PATH];
    let mut t = Text::over(&mut p);
    folder(&mut t, out);
    t.str("\0");
    // SAFETY: paths are zero-terminated; one thread.
    unsafe {
        sys!(libc::SYS_mkdir, p.as_ptr(), 0o700);
        for n in 1..1000 {
            member_path(&mut p, out, n);
            let fd = sys::openat(
                libc::AT_FDCWD,
                p.as_ptr(),
                libc::O_RDWR | libc::O_APPEND | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW,
                0o600,
            );
            if fd == -libc::EEXIST {
                continue;
            }
            if fd < 0 {
                return Err(-fd);
            }
            set_file(sys::move_high(fd), &p, true);
            return Ok(());
        }
        Err(libc::EEXIST)
    }
}

/// Whether this process has a file in the folder already, from an earlier image.
unsafe fn open_own_again(out: &[u8], ns: u64) -> bool {
    let mut p = [0u8; PATH];
    // SAFETY: paths are zero-terminated; one thread.
    unsafe {
        for n in 1..1000 {
            member_path(&mut p, out, n);
            let fd = sys::openat(libc::AT_FDCWD, p.as_ptr(), libc::O_RDWR | libc::O_APPEND | libc::O_NOFOLLOW, 0);
            if fd < 0 {
                return false;
            }
            match read_head(fd) {
                Some(h) if mine(&h, ns) => {
                    let fd = sys::move_high(fd);
                    go_on(fd, &p, &h);
                    return true;
                }
                _ => sys::close(fd),
            }
        }
        false
    }
}
