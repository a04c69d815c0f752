//! Whose trace is this? Read from its first line, without a reader of JSON: the keys are our own and stand in our own order.

use super::SINK;
use crate::text::Text;
use crate::{proc, sys, zst};
use core::ffi::c_int;

/// What the first line of a trace says of its process.
pub(super) struct Head {
    pub pid: u64,
    pub start: u64,
    /// Its pid namespace, 0 where it could not tell.
    pub ns: u64,
    pub run: u64,
    pub wall: u64,
    /// It ran on this host.
    pub here: bool,
}

fn number_after(text: &[u8], key: &[u8]) -> u64 {
    let Some(at) = text.windows(key.len()).position(|w| w == key) else { return 0 };
    let rest = text.get(at + key.len()..).unwrap_or(b"");
    let n = rest.iter().position(|c| !c.is_ascii_digit()).unwrap_or(rest.len());
    crate::config::number(rest.get(..n).unwrap_or(b"")).unwrap_or(0)
}

/// The head of the trace that is open as `fd`; nothing where it begins otherwise.
pub(super) fn read_head(fd: c_int) -> Option<Head> {
    let mut b = [0u8; 512];
    // SAFETY: b is 512 bytes.
    let n = unsafe { sys::pread(fd, b.as_mut_ptr(), 512, 0) };
    let s = b.get(..n.max(0) as usize).unwrap_or(b"");
    // Of a compressed trace the header's frame is a raw one.
    let s = if s.starts_with(&zst::MAGIC) { s.get(zst::RAW_HEAD..).unwrap_or(b"") } else { s };
    if !s.starts_with(HEAD) {
        return None;
    }
    let at = s.windows(7).position(|w| w == b"\"run\":\"")? + 7;
    let mut run = 0u64;
    for c in s.get(at..at + 16)? {
        run = run << 4 | (if c.is_ascii_digit() { c - b'0' } else { c.wrapping_sub(b'a' - 10) & 15 }) as u64;
    }
    Some(Head {
        pid: number_after(s, b"\"pid\":"),
        start: number_after(s, b"\"start_ticks\":"),
        ns: number_after(s, b"\"pid_ns\":"),
        run,
        wall: number_after(s, b"\"wall_ns\":"),
        here: is_here(s),
    })
}

const HEAD: &[u8] = b"{\"type\":\"header\"";

/// Where a line of a file begins that is a header, byte by byte.
trait Lines {
    /// Takes a byte; true: with it a header's beginning is complete.
    fn ends_head(&mut self, c: u8) -> bool;
}

/// Of a plain file.
struct Plain {
    line_start: bool,
    matched: usize,
}

impl Lines for Plain {
    fn ends_head(&mut self, c: u8) -> bool {
        if self.line_start {
            self.matched = 0;
        }
        self.line_start = c == b'\n';
        let fits = HEAD.get(self.matched) == Some(&c);
        self.matched = if fits { self.matched + 1 } else { usize::MAX };
        fits && self.matched == HEAD.len()
    }
}

/// Of a compressed one, where a header is a frame of its own that is not compressed: its image has no writer thread yet.
struct Packed {
    matched: usize,
}

impl Lines for Packed {
    fn ends_head(&mut self, c: u8) -> bool {
        let i = self.matched;
        let fits = match i.checked_sub(zst::RAW_HEAD) {
            Some(of_text) => HEAD.get(of_text) == Some(&c),
            None => zst::RAW_BEGIN.get(i).is_none_or(|b| *b == c),
        };
        // The first byte of a frame is no other of those that tell its beginning.
        self.matched = if fits { i + 1 } else { (zst::RAW_BEGIN.first() == Some(&c)) as usize };
        let whole = self.matched == zst::RAW_HEAD + HEAD.len();
        if whole {
            self.matched = 0;
        }
        whole
    }
}

/// How many headers a process's file holds: the number of images before this one. `packed`: it is compressed.
pub(super) fn count_headers(fd: c_int, packed: bool) -> u32 {
    if packed { count(fd, Packed { matched: 0 }) } else { count(fd, Plain { line_start: true, matched: 0 }) }
}

fn count(fd: c_int, mut lines: impl Lines) -> u32 {
    let mut b = [0u8; 4096];
    let (mut at, mut n) = (0u64, 0u32);
    loop {
        // SAFETY: b is 4096 bytes.
        let got = unsafe { sys::pread(fd, b.as_mut_ptr(), b.len(), at) };
        if got <= 0 {
            return n;
        }
        for &c in b.get(..got as usize).unwrap_or(b"") {
            n += lines.ends_head(c) as u32;
        }
        at += got as u64;
    }
}

/// Whether the head names this host.
fn is_here(head: &[u8]) -> bool {
    let mut name = [0u8; 65];
    let n = proc::host(name.as_mut_ptr(), name.len());
    let mut b = [0u8; 512];
    let mut t = Text::over(&mut b);
    t.str("\"host\":").quoted(name.get(..n).unwrap_or(b""));
    // (`windows` would panic of nothing.)
    let key = t.as_bytes();
    (0..head.len()).any(|i| head.get(i..i + key.len()) == Some(key))
}

/// Whether it is of this process, `ns` being its pid namespace.
pub(super) fn mine(h: &Head, ns: u64) -> bool {
    // SAFETY: set at the start.
    unsafe { h.pid == SINK.me.0 as u64 && h.start == SINK.me.1 && h.ns == ns }
}

/// Whether its process is still there, as far as can be seen from here, `ns` being our pid namespace.
pub(super) fn lives(h: &Head, ns: u64) -> bool {
    h.here && h.ns == ns && h.start != 0 && proc::lives(h.pid, h.start)
}
