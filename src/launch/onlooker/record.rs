//! The trace of a watched process as a file: whole lines, what a full disk leaves out counted, and room for the last words.
//!
//! What cannot be written waits for the next time. A disk that stays full loses what waits, and the latest of what stands in the file makes room
//! for a line that says how much that is, and for the end.

use crate::launch::outside;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Lines that wait for room take no more than this.
const WAITING_MAX: usize = 64 << 20;
/// Bytes taken off the end of a trace on a full disk: file systems give back whole blocks.
const ROOM: u64 = 16 << 10;

/// See the module.
pub struct Record {
    file: File,
    path: PathBuf,
    packed: bool,
    /// Lines that are not in the file yet, and how many.
    lines: Vec<u8>,
    waiting: u64,
    /// Bytes in the file that are whole lines.
    written: u64,
    /// The latest writes, the header's not among them.
    writes: VecDeque<Written>,
    began: u64,
    /// Of the last write that succeeded.
    written_at: u64,
    trouble: Option<Trouble>,
    /// What the first loss was for.
    cause: Option<Trouble>,
    lost: u64,
}

/// A write: where in the file it begins, how many lines it is, and from when on they say what was seen.
#[derive(Debug, Clone, Copy)]
struct Written {
    at: u64,
    lines: u64,
    from: u64,
}

/// A write that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Trouble {
    t: u64,
    why: String,
}

/// What is not in a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    pub lines: u64,
    pub why: String,
}

impl Record {
    /// Of a watch that began at `began`; a file that is there is not overwritten.
    pub fn create(path: &Path, packed: bool, began: u64) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
        Ok(Self {
            file,
            path: path.to_path_buf(),
            packed,
            lines: Vec::new(),
            waiting: 0,
            written: 0,
            writes: VecDeque::new(),
            began,
            written_at: began,
            trouble: None,
            cause: None,
            lost: 0,
        })
    }

    pub fn say(&mut self, line: &Value) {
        // Writing to memory does not fail.
        let _ = writeln!(self.lines, "{line}");
        self.waiting += 1;
    }

    /// What is pending goes into the file; what cannot be written is kept for the next time. The first time that it can't be is said on stderr.
    pub fn write(&mut self) {
        if self.lines.is_empty() {
            return;
        }
        match self.append() {
            Ok(()) => {
                if self.trouble.take().is_some() && self.lost == 0 {
                    eprintln!("memshim: {} can be written again; nothing is lost", self.path.display());
                }
            }
            Err(e) => {
                if self.trouble.is_none() {
                    let (path, folder) =
                        (self.path.display(), self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")));
                    eprintln!("memshim: {path} cannot be written: {e}; make room in {}: what is seen meanwhile waits", folder.display());
                    self.trouble = Some(Trouble { t: outside::monotonic_ns(), why: e.to_string() });
                }
                if self.lines.len() > WAITING_MAX {
                    self.lose();
                }
            }
        }
    }

    fn append(&mut self) -> io::Result<()> {
        let packed = if self.packed { zstd::bulk::compress(&self.lines, 1).ok() } else { None };
        let text = packed.as_ref().unwrap_or(&self.lines);
        if let Err(e) = self.file.write_all(text) {
            // A part of it may be there: it comes whole the next time.
            let _ = self.file.set_len(self.written);
            return Err(e);
        }
        // The header stays whatever happens.
        if self.written > 0 {
            self.writes.push_back(Written { at: self.written, lines: self.waiting, from: self.written_at });
            while self.writes.get(1).is_some_and(|w| self.written - w.at > ROOM) {
                self.writes.pop_front();
            }
        }
        self.written += text.len() as u64;
        self.written_at = outside::monotonic_ns();
        self.lines.clear();
        self.waiting = 0;
        Ok(())
    }

    fn lose(&mut self) {
        self.cause = self.cause.take().or_else(|| self.trouble.clone());
        self.lost += self.waiting;
        self.lines.clear();
        self.waiting = 0;
    }

    /// Writes what waits and then `end`; gives what is not in the trace.
    pub fn finish(mut self, end: &Value) -> Option<Loss> {
        if self.lost == 0 {
            self.say(end);
            self.write();
            if self.lines.is_empty() {
                return None;
            }
            // The end itself is not lost: it is written below.
            self.waiting -= 1;
            self.lose();
        } else {
            self.write();
            if !self.lines.is_empty() {
                self.lose();
            }
        }
        let mut of = self.cause.take()?;
        of.t = of.t.min(self.written_at);
        self.say_last(&of, end);
        // Without a header nobody could read it.
        while self.written > 0 && self.append().is_err() {
            let Some(last) = self.writes.pop_back() else { break };
            self.lost += last.lines;
            (self.written, of.t) = (last.at, last.from);
            let _ = self.file.set_len(last.at);
            self.say_last(&of, end);
        }
        Some(Loss { lines: self.lost, why: self.why(&of) })
    }

    fn why(&self, of: &Trouble) -> String {
        let from = of.t.saturating_sub(self.began) as f64 / 1e9;
        format!("the trace could not be written from {from:.1} s on: {}", of.why)
    }

    fn say_last(&mut self, of: &Trouble, end: &Value) {
        let why = self.why(of);
        self.lines.clear();
        self.waiting = 0;
        self.say(&json!({"type": "lost", "t": outside::monotonic_ns(), "n": self.lost, "why": why}));
        self.say(end);
    }
}
