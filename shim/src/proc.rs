//! What the kernel says of this process: names, times, and the files below `/proc`.

use crate::config::number;
use crate::sys::{self, Path, sys};
use crate::text::Text;

/// Reads a small file whole into `buf`; the bytes read.
///
/// # Safety
/// `path` is zero-terminated.
pub unsafe fn read_file(path: Path, buf: &mut [u8]) -> usize {
    // SAFETY: the caller's path; buf is ours.
    unsafe {
        let fd = sys::openat(libc::AT_FDCWD, path, libc::O_RDONLY, 0);
        if fd < 0 {
            return 0;
        }
        let n = sys::pread(fd, buf.as_mut_ptr(), buf.len(), 0);
        sys::close(fd);
        n.max(0) as usize
    }
}

/// Writes the current folder at `at`; its length, or of "." where it is gone.
pub fn cwd(at: *mut u8, room: usize) -> usize {
    // SAFETY: the caller gives room bytes.
    unsafe {
        let n = sys!(libc::SYS_getcwd, at, room);
        if n > 1 && *at == b'/' {
            return n as usize - 1;
        }
        if room > 0 {
            *at = b'.';
        }
        room.min(1)
    }
}

/// Writes the node's name at `at`.
pub fn host(at: *mut u8, room: usize) -> usize {
    // SAFETY: utsname is plain bytes; the caller gives room bytes.
    unsafe {
        let mut u: libc::utsname = core::mem::zeroed();
        sys!(libc::SYS_uname, &raw mut u);
        let name = &u.nodename;
        let n = name.iter().position(|c| *c == 0).unwrap_or(0).min(room);
        core::ptr::copy_nonoverlapping(name.as_ptr().cast(), at, n);
        n
    }
}

/// Writes this thread's name (the program's, in the first thread at the start) at `at`.
pub fn comm(at: *mut u8, room: usize) -> usize {
    let name = thread_name();
    let n = name.iter().position(|c| *c == 0).unwrap_or(16).min(room);
    // SAFETY: the caller gives room bytes.
    unsafe { core::ptr::copy_nonoverlapping(name.as_ptr(), at, n) };
    n
}

/// This thread's name, zero-padded.
pub fn thread_name() -> [u8; 16] {
    let mut name = [0u8; 16];
    // SAFETY: PR_GET_NAME writes 16 bytes.
    unsafe { sys!(libc::SYS_prctl, libc::PR_GET_NAME, name.as_mut_ptr()) };
    name
}

/// Writes the target of a link at `at`.
///
/// # Safety
/// `path` is zero-terminated; `at` is valid for `room` bytes.
pub unsafe fn link(path: Path, at: *mut u8, room: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { sys!(libc::SYS_readlinkat, libc::AT_FDCWD, path, at, room) }.max(0) as usize
}

/// The program's file.
pub fn exe(at: *mut u8, room: usize) -> usize {
    // SAFETY: the caller gives room bytes.
    unsafe { link(c"/proc/self/exe".as_ptr().cast(), at, room) }
}

/// Inode number of the pid namespace, 0 where `/proc` is not there.
pub fn pid_namespace() -> u64 {
    let mut b = [0u8; 64];
    // SAFETY: b is 64 bytes.
    let n = unsafe { link(c"/proc/self/ns/pid".as_ptr().cast(), b.as_mut_ptr(), 64) };
    let s = b.get(..n).unwrap_or(b"");
    let from = s.iter().position(|c| *c == b'[').map_or(0, |p| p + 1);
    let to = s.iter().position(|c| *c == b']').unwrap_or(from);
    s.get(from..to).and_then(number).unwrap_or(0)
}

/// Parent and start time (fields 4 and 22 of `/proc/self/stat`).
pub fn parent_and_start() -> (u32, u64) {
    let mut b = [0u8; 1024];
    // SAFETY: the path is zero-terminated.
    let n = unsafe { read_file(c"/proc/self/stat".as_ptr().cast(), &mut b) };
    let s = b.get(..n).unwrap_or(b"");
    // The name may hold spaces and parentheses: the fields follow its last parenthesis.
    let after = s.iter().rposition(|c| *c == b')').map_or(0, |p| p + 2);
    let mut fields = s.get(after..).unwrap_or(b"").split(|c| *c == b' ');
    let parent = fields.nth(1).and_then(number).unwrap_or(0);
    let start = fields.nth(17).and_then(number).unwrap_or(0);
    if n == 0 {
        // SAFETY: no arguments.
        return (unsafe { sys!(libc::SYS_getppid) } as u32, 0);
    }
    (parent as u32, start)
}

/// Whether the process of this number that started then is there: not a zombie, but a first thread that has left the others.
pub fn lives(pid: u64, start: u64) -> bool {
    let mut path = [0u8; 48];
    let mut t = Text::over(&mut path);
    t.str("/proc/").num(pid).str("/stat\0");
    let mut b = [0u8; 1024];
    // SAFETY: the path is zero-terminated.
    let n = unsafe { read_file(path.as_ptr(), &mut b) };
    let s = b.get(..n).unwrap_or(b"");
    let Some(after) = s.iter().rposition(|c| *c == b')') else { return false };
    let mut fields = s.get(after + 2..).unwrap_or(b"").split(|c| *c == b' ');
    let state = fields.next();
    let threads = fields.nth(16).and_then(number).unwrap_or(0);
    let began = fields.nth(1).and_then(number);
    (state != Some(b"Z") || threads > 1) && state != Some(b"X") && began == Some(start)
}

/// Exit code of the first thread, when it has ended (field 52 of `/proc/self/stat`).
pub fn first_thread_code() -> i32 {
    let mut b = [0u8; 1024];
    // SAFETY: the path is zero-terminated.
    let n = unsafe { read_file(c"/proc/self/stat".as_ptr().cast(), &mut b) };
    let s = b.get(..n).unwrap_or(b"");
    let status = s.trim_ascii_end().rsplit(|c| *c == b' ').next().and_then(number).unwrap_or(0);
    (status >> 8 & 0xff) as i32
}
