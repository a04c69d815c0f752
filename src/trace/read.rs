//! A trace file line by line, in constant memory: the buffer holds the longest line and no more.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use super::frames::{self, Frames};

/// Lines longer than this are skipped and counted: the longest the shim writes is a hundred times shorter.
pub const LINE_MAX: usize = 64 << 20;

/// What of a file could not be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// The last line breaks off.
    pub torn_tail: bool,
    /// Lines in the middle that don't parse.
    pub lines: u64,
    /// Of them, the first: line number and what was wrong.
    pub first: Option<(u64, String)>,
    /// Lines of a type that this version does not know.
    pub unknown_types: u64,
    /// zstd frames that don't decode to their end.
    pub frames: u64,
    /// Reading stopped at an error of the system.
    pub error: Option<String>,
}

enum Bytes {
    Plain(File),
    Zstd(Box<Frames<BufReader<File>>>),
}

impl Read for Bytes {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Bytes::Plain(f) => f.read(out),
            Bytes::Zstd(f) => f.read(out),
        }
    }
}

/// Opens a file and nothing else: a FIFO would keep us waiting, and a device has no end.
pub fn open_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    let what = if kind.is_dir() { "a folder" } else { "a pipe or a device" };
    Err(io::Error::other(format!("{what}, not a file: name the trace file itself (compressed ones are read as they are)")))
}

/// Whether a trace is in zstd frames: its first bytes say so, or its name does and they are not those of a line (an empty one has none).
pub fn is_compressed(path: &Path, file: &File) -> io::Result<bool> {
    let mut first = [0; 4];
    let n = file.read_at(&mut first, 0)?;
    let named = path.extension().is_some_and(|e| e == "zst");
    Ok(first == frames::MAGIC || named && (n == 0 || first[0] != b'{'))
}

/// Whether a file begins as traces do, plain or compressed; nothing that is exported does. False of what cannot be read.
pub fn begins_as_trace(path: &Path) -> bool {
    let mut first = [0; 16];
    let file = path.is_file().then(|| File::open(path).ok()).flatten();
    let n = file.and_then(|f| f.read_at(&mut first, 0).ok()).unwrap_or(0);
    first[..n].starts_with(br#"{"type":"header""#) || first[..n].starts_with(&frames::MAGIC)
}

/// Gives the lines of a file without their line ends.
pub struct LineReader {
    bytes: Bytes,
    buffer: Vec<u8>,
    /// What of `buffer` has not been given out.
    start: usize,
    end: usize,
    /// No line end in `buffer[start..searched]`.
    searched: usize,
    at_end: bool,
    skipping: bool,
    /// Lines that were too long.
    pub too_long: u64,
    /// Bytes read so far (decompressed).
    pub read: u64,
}

/// A line and whether its line end was there.
pub struct RawLine<'a> {
    pub bytes: &'a [u8],
    pub whole: bool,
}

impl LineReader {
    /// Opens a trace, compressed or not.
    pub fn open(path: &Path) -> io::Result<LineReader> {
        let file = open_file(path)?;
        let bytes = if is_compressed(path, &file)? {
            Bytes::Zstd(Box::new(Frames::new(BufReader::with_capacity(256 << 10, file))?))
        } else {
            Bytes::Plain(file)
        };
        Ok(LineReader {
            bytes,
            buffer: vec![0; 256 << 10],
            start: 0,
            end: 0,
            searched: 0,
            at_end: false,
            skipping: false,
            too_long: 0,
            read: 0,
        })
    }

    /// Whether a compressed file ends in a frame without an end.
    pub fn ends_in_a_frame(&self) -> bool {
        matches!(&self.bytes, Bytes::Zstd(f) if f.open)
    }

    /// Frames of a compressed file that were damaged so far.
    pub fn damaged_frames(&self) -> u64 {
        match &self.bytes {
            Bytes::Plain(_) => 0,
            Bytes::Zstd(f) => f.damaged,
        }
    }

    /// The next line; `None` at the end.
    pub fn next_line(&mut self) -> io::Result<Option<RawLine<'_>>> {
        loop {
            if let Some(at) = find_line_end(&self.buffer[self.searched..self.end]) {
                let (from, to) = (self.start, self.searched + at);
                self.start = to + 1;
                self.searched = self.start;
                if std::mem::take(&mut self.skipping) {
                    continue;
                }
                return Ok(Some(RawLine { bytes: &self.buffer[from..to], whole: true }));
            }
            self.searched = self.end;
            if self.at_end {
                let (from, to) = (self.start, self.end);
                self.start = self.end;
                if from == to || self.skipping {
                    return Ok(None);
                }
                return Ok(Some(RawLine { bytes: &self.buffer[from..to], whole: false }));
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.end - self.start > LINE_MAX || self.skipping {
            self.too_long += !self.skipping as u64;
            self.skipping = true;
            self.start = self.end;
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.searched -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        loop {
            match self.bytes.read(&mut self.buffer[self.end..]) {
                Ok(n) => {
                    self.end += n;
                    self.read += n as u64;
                    self.at_end = n == 0;
                    return Ok(());
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// Position of the first line end, eight bytes at a time.
fn find_line_end(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let (words, _) = bytes.as_chunks::<8>();
    for (i, w) in words.iter().enumerate() {
        let x = u64::from_ne_bytes(*w) ^ (ONES * b'\n' as u64);
        if x.wrapping_sub(ONES) & !x & HIGH != 0 {
            return w.iter().position(|&c| c == b'\n').map(|at| i * 8 + at);
        }
    }
    let tail = words.len() * 8;
    bytes[tail..].iter().position(|&c| c == b'\n').map(|at| tail + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(content: &[u8]) -> Vec<(Vec<u8>, bool)> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl");
        std::fs::write(&path, content).unwrap();
        let mut r = LineReader::open(&path).unwrap();
        let mut all = Vec::new();
        while let Some(l) = r.next_line().unwrap() {
            all.push((l.bytes.to_vec(), l.whole));
        }
        all
    }

    #[test]
    fn the_last_line_without_an_end_is_given_as_such() {
        assert_eq!(lines_of(b"a\n\nbc"), [(b"a".to_vec(), true), (b"".to_vec(), true), (b"bc".to_vec(), false)]);
        assert_eq!(lines_of(b""), []);
    }

    #[test]
    fn lines_longer_than_the_buffer_are_whole() {
        let long = vec![b'x'; 1 << 20];
        let all = lines_of(&[&long[..], b"\nshort\n", &long[..300_000], b"\n"].concat());
        assert_eq!(all.iter().map(|l| l.0.len()).collect::<Vec<_>>(), [1 << 20, 5, 300_000]);
    }

    #[test]
    fn what_a_file_holds_counts_and_not_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let frame = zstd::encode_all(&b"{}\n"[..], 1).unwrap();
        for (name, bytes) in [("a.jsonl.zst", &b"{}\n"[..]), ("b.jsonl.zst", &frame), ("c.jsonl", &frame), ("d.jsonl", b"{}\n")] {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(LineReader::open(&path).unwrap().next_line().unwrap().unwrap().bytes, b"{}", "{name}");
        }
    }

    #[test]
    fn the_line_end_is_found_at_every_offset() {
        for n in 0..40 {
            let mut v = vec![0x8a; n];
            assert_eq!(find_line_end(&v), None);
            v.push(b'\n');
            v.extend([b'\n'; 9]);
            assert_eq!(find_line_end(&v), Some(n));
        }
    }
}
