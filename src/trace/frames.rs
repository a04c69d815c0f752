//! The bytes of a compressed trace: zstd frames one after another, each of whole lines, of which any may be damaged.
//!
//! A frame that breaks off or does not decode ends where it breaks; reading goes on at the next frame's magic number. A line end
//! is put in between so that half a line is not taken for the start of the next.

use std::io::{self, BufRead, Read, Seek, SeekFrom};

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

/// How a frame begins.
pub const MAGIC: [u8; 4] = 0xfd2f_b528u32.to_le_bytes();

/// Reads the decompressed bytes of all frames.
pub struct Frames<R> {
    input: R,
    decoder: Decoder<'static>,
    /// Inside a frame: its decoder has begun.
    inside: bool,
    /// A line end is due.
    broken: bool,
    /// Frames of which a part could not be read.
    pub damaged: u64,
    /// The last of them is one that the input ends in.
    pub open: bool,
}

/// A last frame that was not ended: where it begins, and the whole lines that are in it.
#[derive(Debug, PartialEq, Eq)]
pub struct OpenFrame {
    pub at: u64,
    pub lines: Vec<u8>,
}

/// Looks whether the last frame of a file is one. Frames are passed over by the sizes of their blocks (RFC 8878, 3.1.1); only the last one is read.
pub fn open_frame(mut file: impl Read + Seek) -> io::Result<Option<OpenFrame>> {
    let end = file.seek(SeekFrom::End(0))?;
    let mut at = 0;
    while at < end {
        match frame_end(&mut file, at, end)? {
            Some(next) => at = next,
            None => return last_frame(&mut file, at),
        }
    }
    Ok(None)
}

/// Where the frame that begins at `at` ends. `None`: not before the end of the file.
fn frame_end(file: &mut (impl Read + Seek), at: u64, end: u64) -> io::Result<Option<u64>> {
    let mut bytes = |at: u64, into: &mut [u8]| -> io::Result<bool> {
        if at + into.len() as u64 > end {
            return Ok(false);
        }
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(into).map(|()| true)
    };
    let mut head = [0; 5];
    if !bytes(at, &mut head)? || head[..4] != MAGIC {
        return Ok(None);
    }
    let (single, checksum) = (head[4] >> 5 & 1, head[4] >> 2 & 1);
    let dictionary = [0, 1, 2, 4][head[4] as usize & 3];
    let content = [single as u64, 2, 4, 8][head[4] as usize >> 6];
    let mut next = at + 5 + (1 - single as u64) + dictionary + content;
    let mut last = false;
    while !last {
        let mut block = [0; 4];
        if !bytes(next, &mut block[..3])? {
            return Ok(None);
        }
        let header = u32::from_le_bytes(block);
        last = header & 1 == 1;
        // A block of one byte repeated has that byte only.
        next += 3 + if header >> 1 & 3 == 1 { 1 } else { u64::from(header >> 3) };
    }
    next += 4 * u64::from(checksum);
    Ok((next <= end).then_some(next))
}

fn last_frame(file: &mut (impl Read + Seek), at: u64) -> io::Result<Option<OpenFrame>> {
    file.seek(SeekFrom::Start(at))?;
    let mut lines = Vec::new();
    // Its end is missing, which the decoder says after all that there is.
    let _ = zstd::stream::read::Decoder::new(file)?.read_to_end(&mut lines);
    lines.truncate(lines.iter().rposition(|c| *c == b'\n').map_or(0, |end| end + 1));
    Ok(Some(OpenFrame { at, lines }))
}

impl<R: BufRead> Frames<R> {
    /// Reads from the start of a frame.
    pub fn new(input: R) -> io::Result<Self> {
        Ok(Frames { input, decoder: Decoder::new()?, inside: false, broken: false, damaged: 0, open: false })
    }

    fn leave_broken_frame(&mut self) -> io::Result<()> {
        self.damaged += 1;
        self.broken = true;
        self.inside = false;
        self.decoder.reinit()
    }

    /// Skips to the next magic number. False at the end of the input.
    fn find_frame(&mut self) -> io::Result<bool> {
        let mut matched = 0;
        loop {
            let have = self.input.fill_buf()?;
            let Some(&c) = have.first() else { return Ok(false) };
            if c == MAGIC[matched] {
                matched += 1;
            } else {
                matched = (c == MAGIC[0]) as usize;
            }
            self.input.consume(1);
            if matched == MAGIC.len() {
                return Ok(true);
            }
        }
    }

    fn decode(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.inside {
                if !self.find_frame()? {
                    return Ok(0);
                }
                self.inside = true;
                let mut magic = InBuffer::around(&MAGIC);
                self.decoder.run(&mut magic, &mut OutBuffer::around(&mut out[..0]))?;
            }
            let input = self.input.fill_buf()?;
            let at_end = input.is_empty();
            let mut from = InBuffer::around(input);
            let mut to = OutBuffer::around(&mut *out);
            let result = self.decoder.run(&mut from, &mut to);
            let (used, made) = (from.pos(), to.pos());
            self.input.consume(used);
            match result {
                Ok(0) => self.inside = false,
                Ok(_) if at_end && made == 0 => {
                    self.open = true;
                    self.leave_broken_frame()?;
                }
                Ok(_) => {}
                Err(_) => self.leave_broken_frame()?,
            }
            if made > 0 {
                return Ok(made);
            }
            if self.broken {
                return Ok(0);
            }
        }
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        let made = if self.broken { 0 } else { self.decode(out)? };
        if made == 0 && self.broken {
            self.broken = false;
            out[0] = b'\n';
            return Ok(1);
        }
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(text: &str) -> Vec<u8> {
        zstd::encode_all(text.as_bytes(), 1).unwrap()
    }

    fn read(bytes: &[u8]) -> (String, u64) {
        let mut f = Frames::new(bytes).unwrap();
        let mut s = Vec::new();
        f.read_to_end(&mut s).unwrap();
        (String::from_utf8_lossy(&s).into_owned(), f.damaged)
    }

    #[test]
    fn frames_follow_one_another() {
        assert_eq!(read(&[frame("a\n"), frame("b\n")].concat()), ("a\nb\n".into(), 0));
    }

    #[test]
    fn a_frame_that_was_not_ended_is_found_with_its_whole_lines() {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        io::Write::write_all(&mut encoder, b"one\ntwo\nthr").unwrap();
        io::Write::flush(&mut encoder).unwrap();
        let open = encoder.get_ref().clone();
        let (first, second) = (frame("a\n"), frame("b\n"));
        let at = (first.len() + second.len()) as u64;
        let all = [first, second, open].concat();
        assert_eq!(open_frame(io::Cursor::new(&all)).unwrap(), Some(OpenFrame { at, lines: b"one\ntwo\n".to_vec() }));
        assert_eq!(open_frame(io::Cursor::new(&all[..at as usize])).unwrap(), None);
        assert_eq!(open_frame(io::Cursor::new(b"")).unwrap(), None);
    }

    #[test]
    fn a_damaged_frame_does_not_take_the_next_with_it() {
        let mut first = frame(&"first line\n".repeat(1000));
        let cut = first.len() - 3;
        first.truncate(cut);
        let (text, damaged) = read(&[first, frame("second\n")].concat());
        assert!(text.ends_with("\nsecond\n"), "{text}");
        assert_eq!(damaged, 1);
    }

    #[test]
    fn what_a_torn_last_frame_holds_is_used() {
        let long: String = (0..40_000).map(|i| format!("line {i} {}\n", i * 7919 % 10_007)).collect();
        let whole = frame(&long);
        let (text, damaged) = read(&whole[..whole.len() / 2]);
        assert_eq!(damaged, 1);
        assert!(text.len() > 100_000 && long.starts_with(text.trim_end_matches('\n').rsplit_once('\n').unwrap().0));
    }

    #[test]
    fn every_cut_and_every_flip_ends() {
        let whole = [frame("one\ntwo\n"), frame("three\n")].concat();
        for i in 0..whole.len() {
            read(&whole[..i]);
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[i] ^= 1 << bit;
                read(&flipped);
            }
        }
    }
}
