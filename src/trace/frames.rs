//! The bytes of a compressed trace: zstd frames one after another, each of whole lines, of which any may be damaged.
//!
//! A frame that breaks off or does not decode ends where it breaks; reading goes on at the next frame's magic number. A line end
//! is put in between so that half a line is not taken for the start of the next.

use std::io::{self, BufRead, Read};

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
}

impl<R: BufRead> Frames<R> {
    /// Reads from the start of a frame.
    pub fn new(input: R) -> io::Result<Self> {
        Ok(Frames { input, decoder: Decoder::new()?, inside: false, broken: false, damaged: 0 })
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
                Ok(_) if at_end && made == 0 => self.leave_broken_frame()?,
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
