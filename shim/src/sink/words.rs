//! Last words: what is still said in a trace that could not be written any more, and has no spool beside it.

use super::{Cut, SINK, put, reopen};
use crate::spool::{self, SPOOL};
use crate::sys::sys;
use crate::{lines, sys, zst};
use core::sync::atomic::Ordering::*;

/// Room for last words: the line that says what happened, counts, the last snapshot and the end.
const WORDS: u64 = 16 << 10;

/// Notes where the file could be cut, should this write fail.
pub(super) unsafe fn keep_cut() {
    // SAFETY: the lock is held or only one thread exists.
    unsafe {
        if SINK.begin == 0 || SPOOL.base.is_null() {
            return;
        }
        let [latest, _] = SINK.cuts;
        let h = spool::header();
        let (recorded, whole_ns) = ((*h).recorded.load(Relaxed), (*h).whole_ns.load(Relaxed));
        let here = Cut { at: SINK.written, open: zst::is_open(), recorded, whole_ns };
        if latest.at < SINK.begin {
            SINK.cuts = [here, here];
        } else if here.at >= latest.at + WORDS {
            SINK.cuts = [here, latest];
        }
    }
}

/// Writing has failed and nobody will find a spool: the end of the file makes room for what happened and for the counts. What stood
/// there is lost, as is what would have come; a reader sees both in the counts.
pub(super) unsafe fn last_words(errno: i32) {
    // SAFETY: the lock is held; the descriptor was checked by who failed.
    unsafe {
        if !SINK.regular || SINK.foreign || SPOOL.shared || SINK.begin == 0 || errno == libc::EBADF {
            return;
        }
        let [latest, before] = SINK.cuts;
        let cut = if SINK.written >= latest.at + WORDS { latest } else { before };
        if cut.at < SINK.begin || sys!(libc::SYS_ftruncate, SINK.fd, cut.at) != 0 {
            return;
        }
        (*spool::header()).recorded.store(cut.recorded, Relaxed);
        (*spool::header()).whole_ns.store(cut.whole_ns, Relaxed);
        SINK.written = cut.at;
        zst::cut(cut.open);
        say(errno, || {
            end_frame();
            lines::writing_ended(errno);
            end_frame();
            SINK.words_at = SINK.written;
            lines::calls(sys::now(), true);
        });
    }
}

/// In a compressed trace: what comes next is a frame of its own.
unsafe fn end_frame() {
    // SAFETY: the lock is held.
    unsafe {
        if SINK.packed {
            zst::raw(b"", |b| put([b, b"", b""]));
        }
    }
}

/// Writes as if nothing had failed, within the room that was made for it.
unsafe fn say(errno: i32, what: impl FnOnce()) {
    // SAFETY: the lock is held.
    unsafe {
        SINK.trouble = 0;
        SINK.speaking = true;
        what();
        SINK.speaking = false;
        SINK.trouble = errno;
    }
}

/// The image ends after its writing had failed: its last lines take the place of those written then.
pub fn end_in_trouble(errno: i32, what: impl FnOnce()) {
    // SAFETY: the lock is held.
    unsafe {
        if SINK.words_at == 0 || sys::identity(SINK.fd) != SINK.id && !reopen() {
            return;
        }
        if sys!(libc::SYS_ftruncate, SINK.fd, SINK.words_at) == 0 {
            SINK.written = SINK.words_at;
            zst::cut(false);
            say(errno, what);
        }
    }
}
