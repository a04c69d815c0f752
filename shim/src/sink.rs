//! Writing to the trace file: whole lines, up to the cap. Which file it is: `family`; when it can't be written any more: `words`.
//!
//! Before every write the descriptor is checked to be still our file: programs close and reuse numbers that are not theirs. A lost
//! file is opened again by name and used only if it is the same.

mod aside;
mod family;
mod head;
mod tally;
mod words;

pub use family::{Opened, open, open_child};
pub use tally::{EXPECTED, PRIVATE};
pub use words::end_in_trouble;
use words::{keep_cut, last_words};

use crate::config::{CONFIG, COUNT, FAST, FULL};
use crate::spool::{self, SPOOL};
use crate::sys::{self, sys};
use crate::text::Text;
use crate::{lane, lines, share, writer, zst};
use libc::c_int;

const PATH: usize = 4200;

/// Of the cap, so much is kept back for the lines that come after it: counts, the last snapshot, the end.
const LAST_LINES: u64 = 8 << 10;

/// The trace of this process.
pub struct Sink {
    pub fd: c_int,
    id: (u64, u64),
    pub path: [u8; PATH],
    /// A regular file (else a device: written, never renamed or truncated).
    regular: bool,
    /// Keeps the run's lock.
    lock: c_int,
    /// The file is another process's: lines go between `process` lines.
    foreign: bool,
    owner: (u32, u64),
    pub me: (u32, u64),
    pub run: u64,
    pub exec: u32,
    /// First process of the run.
    pub first: bool,
    pub written: u64,
    /// Ends in `.zst`: zstd frames.
    packed: bool,
    /// What the cap has lowered recording to, 0 nothing.
    lowered: u32,
    /// Three quarters of the cap are reached in full mode.
    near_cap: bool,
    /// The cap is reached: lines are left out.
    capped: bool,
    /// But for the last ones, which are being written.
    last: bool,
    /// errno that ended the writing, 0 while all is well.
    pub trouble: i32,
    /// Where this image's header ends: never cut below.
    begin: u64,
    /// To where the file may be cut for last words, the later one first.
    cuts: [Cut; 2],
    /// Where last words go, once writing has failed; 0 there is no place for any.
    words_at: u64,
    /// Last words are being written.
    speaking: bool,
    /// Where fd 2 pointed at the start.
    stderr: (u64, u64),
}

/// The end of a whole write.
#[derive(Clone, Copy)]
struct Cut {
    at: u64,
    /// A compressed frame is open there.
    open: bool,
    /// Events in the trace up to there.
    recorded: u64,
    /// [`memshim_format::spool::Header::whole_ns`] then.
    whole_ns: u64,
}

impl Sink {
    /// Whether a spool may stand beside it: a regular file that is this process's own.
    pub fn is_regular_own(&self) -> bool {
        self.regular && !self.foreign
    }
}

pub static mut SINK: Sink = Sink {
    fd: -1,
    id: (0, 0),
    path: [0; PATH],
    regular: true,
    lock: -1,
    foreign: false,
    owner: (0, 0),
    me: (0, 0),
    run: 0,
    exec: 0,
    first: false,
    written: 0,
    packed: false,
    lowered: 0,
    near_cap: false,
    capped: false,
    last: false,
    trouble: 0,
    begin: 0,
    cuts: [Cut { at: 0, open: false, recorded: 0, whole_ns: 0 }; 2],
    words_at: 0,
    speaking: false,
    stderr: (0, 0),
};

/// Notes where stderr points at the start.
pub fn note_stderr() {
    // SAFETY: one thread (start of the process).
    unsafe { SINK.stderr = sys::identity(2) };
}

/// Says one line on the program's stderr, if that is still what it was at the start. Signals are blocked.
pub fn complain(line: &[u8]) {
    // SAFETY: one write to fd 2 of bytes we own.
    unsafe {
        if SINK.stderr != (0, 0) && sys::identity(2) == SINK.stderr {
            sys::write(2, line.as_ptr(), line.len());
            sys::swallow(libc::SIGPIPE);
        }
    }
}

/// `len` bytes of a zero-terminated path.
fn length(path: &[u8]) -> usize {
    path.iter().position(|c| *c == 0).unwrap_or(path.len())
}

/// Appends whole lines. False: they could not be written, and nothing will be any more. What comes after the cap is left out.
pub fn write(text: &[u8]) -> bool {
    // SAFETY: the drain's lock is held or only one thread exists.
    unsafe {
        if SINK.trouble != 0 || text.is_empty() || SINK.capped && !SINK.last {
            return SINK.trouble == 0;
        }
        let is_within = SINK.begin != 0 && SINK.lowered != COUNT && !SINK.last;
        if is_within && !tally::reserve(text.len() as u64) {
            lower(COUNT);
            SINK.capped = true;
            return true;
        }
        let mut head = [0u8; 128];
        let mut tail = [0u8; 128];
        let (mut h, mut t) = (Text::over(&mut head), Text::over(&mut tail));
        if SINK.foreign {
            lines::process_mark(&mut h, SINK.me);
            lines::process_mark(&mut t, SINK.owner);
        }
        keep_cut();
        let good = if !SINK.packed {
            put([h.as_bytes(), text, t.as_bytes()])
        } else if SINK.foreign || !writer::is_current() {
            let whole = |part: &[u8]| part.is_empty() || zst::raw(part, |b| put([b, b"", b""]));
            whole(h.as_bytes()) && whole(text) && whole(t.as_bytes())
        } else {
            zst::pack(text, |b| put([b, b"", b""]))
        };
        tally::settle();
        SINK.near_cap |= good && SINK.begin != 0 && CONFIG.mode == FULL && tally::total() >= CONFIG.max / 4 * 3;
        good
    }
}

/// Goes over to fast mode where the cap is near. What was live at most until then is told first, so that nobody takes it for later.
pub fn lower_near_cap() {
    // SAFETY: the lock is held, and no lines are being made.
    unsafe {
        if SINK.near_cap && SINK.lowered == 0 && is_writing() {
            lines::calls(sys::now(), true);
            // Writing that may have been the end of it.
            if SINK.lowered == 0 && is_writing() {
                lower(FAST);
            }
        }
    }
}

/// Lowers what is recorded, as the run nears its cap: full → fast at three quarters, then totals only.
unsafe fn lower(mode: u32) {
    // SAFETY: the lock is held.
    unsafe {
        SINK.lowered = mode;
        CONFIG.mode = mode;
        lines::mode_lowered(mode);
        lane::switch_mode(mode);
    }
}

/// Writes the last lines of an image, whatever the cap.
pub fn beyond_cap(what: impl FnOnce()) {
    // SAFETY: the lock is held.
    unsafe {
        SINK.last = true;
        what();
        SINK.last = false;
    }
}

/// Whether the cap is reached: what is pending is of what is left out.
pub fn is_capped() -> bool {
    // SAFETY: the lock is held.
    unsafe { SINK.capped }
}

/// Whether lines get into the file.
pub fn is_writing() -> bool {
    // SAFETY: the lock is held.
    unsafe { SINK.trouble == 0 && !SINK.capped }
}

/// Writes bytes, all of them or none as far as that can be.
unsafe fn put(parts: [&[u8]; 3]) -> bool {
    // SAFETY: the lock is held or only one thread exists.
    unsafe {
        if sys::identity(SINK.fd) != SINK.id && !reopen() {
            return fail(libc::EBADF);
        }
        let total: usize = parts.iter().map(|p| p.len()).sum();
        let mut done = 0usize;
        while done < total {
            // What is left of the parts.
            let mut iov = [(core::ptr::null::<u8>(), 0usize); 3];
            let mut skip = done;
            for (slot, part) in iov.iter_mut().zip(parts) {
                let s = skip.min(part.len());
                *slot = (part.as_ptr().add(s), part.len() - s);
                skip -= s;
            }
            let r = share::writes(|| sys!(libc::SYS_writev, SINK.fd, iov.as_ptr(), 3));
            if r <= 0 {
                if r == -libc::EINTR as i64 {
                    continue;
                }
                sys::swallow(libc::SIGXFSZ);
                sys::swallow(libc::SIGPIPE);
                if done > 0 && SINK.regular && !SINK.foreign {
                    // No torn line in the middle of what may be appended later.
                    sys!(libc::SYS_ftruncate, SINK.fd, SINK.written);
                }
                return fail(if r == 0 { libc::ENOSPC } else { -r as i32 });
            }
            done += r as usize;
        }
        SINK.written += total as u64;
        tally::add(total as u64);
        if !SPOOL.base.is_null() {
            // Of another process's file nobody knows how much is whole.
            (*spool::header()).trace_len.store(if SINK.foreign { u64::MAX } else { SINK.written }, core::sync::atomic::Ordering::Release);
        }
        true
    }
}

/// Removes the file of a process that is not recorded after all, if nothing is in it.
pub fn remove_empty() {
    // SAFETY: one thread; path is zero-terminated.
    unsafe {
        note_length();
        if SINK.regular && !SINK.foreign && !SINK.first && SINK.written == 0 {
            sys!(libc::SYS_unlink, SINK.path.as_ptr());
        }
        sys::close(SINK.fd);
        SINK.fd = -1;
    }
}

/// The file's length before this image wrote.
pub fn note_length() {
    // SAFETY: one thread.
    unsafe {
        let mut st: libc::stat = core::mem::zeroed();
        if sys!(libc::SYS_fstat, SINK.fd, &raw mut st) == 0 {
            SINK.written = st.st_size as u64;
        }
    }
}

/// This image's header is in the file.
pub fn header_written() {
    // SAFETY: one thread.
    unsafe {
        SINK.begin = SINK.written;
    }
}

unsafe fn reopen() -> bool {
    // SAFETY: path is zero-terminated; the lock is held.
    unsafe {
        if SINK.foreign {
            return false;
        }
        let fd = sys::move_high(sys::openat(libc::AT_FDCWD, SINK.path.as_ptr(), libc::O_RDWR | libc::O_APPEND | libc::O_NOFOLLOW, 0));
        if fd < 0 {
            return false;
        }
        if sys::identity(fd) != SINK.id {
            sys::close(fd);
            return false;
        }
        sys!(libc::SYS_flock, fd, libc::LOCK_SH | libc::LOCK_NB);
        SINK.fd = fd;
        if SINK.first {
            SINK.lock = fd;
        } else {
            family::lock_again();
        }
        true
    }
}

unsafe fn fail(errno: i32) -> bool {
    // SAFETY: the lock is held.
    unsafe {
        SINK.trouble = errno;
        if SINK.speaking {
            return false;
        }
    }
    let mut b = [0u8; 512];
    let mut t = Text::over(&mut b);
    // SAFETY: the lock is held; path is zero-terminated.
    unsafe {
        let path = &*(&raw const SINK.path);
        t.str("memshim: cannot write ").bytes(path.get(..length(path).min(300)).unwrap_or(b"")).str(": ").str(reason(errno));
        t.str("; the program goes on, its memory is not recorded any more\n");
        complain(t.as_bytes());
    }
    crate::init::writing_failed(errno);
    // SAFETY: the lock is held.
    unsafe { last_words(errno) };
    false
}

/// What an errno of making or opening the file of this name means to a user.
pub fn reason_of(errno: i32, path: &[u8]) -> &'static str {
    let mut folder = [0u8; PATH];
    let slash = path.iter().rposition(|c| *c == b'/').unwrap_or(0);
    let mut t = Text::over(&mut folder);
    t.bytes(path.get(..slash).unwrap_or(b"")).str("/\0");
    // SAFETY: zero-terminated; only asked.
    let there = || unsafe { sys!(libc::SYS_access, folder.as_ptr(), 0) == 0 };
    if errno == libc::ENOENT && there() { "no file can be made in that folder" } else { reason(errno) }
}

/// What an errno of a write or open means to a user.
pub fn reason(errno: i32) -> &'static str {
    match errno {
        libc::ENOSPC => "no space left on the device",
        libc::EDQUOT => "disk quota exceeded",
        libc::EFBIG => "file size limit reached",
        libc::EACCES | libc::EPERM => "permission denied",
        libc::ENOENT => "no such folder",
        libc::EISDIR => "it is a folder",
        libc::ENOTDIR => "a part of its path is a file and no folder",
        libc::ENAMETOOLONG => "its name is too long",
        libc::EROFS => "read-only file system",
        libc::EMFILE | libc::ENFILE => "no file descriptor left",
        libc::EBADF => "the program closed its file and it cannot be opened again",
        libc::EPIPE => "nobody reads it",
        libc::ELOOP => "it is a symbolic link",
        libc::EIO => "input/output error",
        _ => "the system refuses",
    }
}
