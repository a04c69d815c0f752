//! Output cut into lines, each piece with the time of the read that brought it.
//!
//! A line ends with `\n` or `\r` (a progress bar draws itself anew). It is given out when its end is there; when a part of it was printed
//! is told by the stamps, so that "Solving… " is known to be older than its "done".

use memchr::{memchr2, memrchr2};

/// What follows in a longer line is not looked at.
pub const LINE_MAX: usize = 64 << 10;

/// When a piece was read, and how long before it may have been written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct When {
    pub t: u64,
    pub late: u64,
}

/// A line without its end.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    pub text: &'a [u8],
    stamps: &'a [(usize, When)],
}

impl Line<'_> {
    /// When the byte before `end` was read.
    pub fn time_of(&self, end: usize) -> When {
        let piece = self.stamps.iter().find(|(upto, _)| end <= *upto);
        piece.or(self.stamps.last()).map_or(When::default(), |(_, t)| *t)
    }
}

/// What a channel's output was so far.
#[derive(Default)]
pub struct Lines {
    partial: Vec<u8>,
    /// Up to which byte of `partial` was read when.
    stamps: Vec<(usize, When)>,
}

impl Lines {
    /// Takes a piece of output. `worth` says of many whole lines at once whether any of them is of interest.
    pub fn take(&mut self, bytes: &[u8], t: When, worth: impl Fn(&[u8]) -> bool, mut each: impl FnMut(Line)) {
        let Some(first) = memchr2(b'\n', b'\r', bytes) else {
            self.keep(bytes, t);
            return;
        };
        let last = memrchr2(b'\n', b'\r', bytes).unwrap_or(first);
        self.keep(&bytes[..first], t);
        self.end(&mut each);
        let whole = bytes.get(first + 1..last).unwrap_or(b"");
        if worth(whole) {
            let lines = whole.split(|&c| c == b'\n' || c == b'\r').filter(|l| !l.is_empty());
            for text in lines.map(|l| &l[..l.len().min(LINE_MAX)]) {
                each(Line { text, stamps: &[(text.len(), t)] });
            }
        }
        self.keep(&bytes[last + 1..], t);
    }

    /// The output is at its end: what is left is a line too.
    pub fn end(&mut self, mut each: impl FnMut(Line)) {
        if !self.partial.is_empty() {
            each(Line { text: &self.partial, stamps: &self.stamps });
        }
        self.partial.clear();
        self.stamps.clear();
    }

    fn keep(&mut self, bytes: &[u8], t: When) {
        let room = LINE_MAX - self.partial.len();
        let kept = &bytes[..bytes.len().min(room)];
        if !kept.is_empty() {
            self.partial.extend_from_slice(kept);
            self.stamps.push((self.partial.len(), t));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(t: u64) -> When {
        When { t, late: t / 2 }
    }

    fn cut(pieces: &[&[u8]]) -> Vec<(String, u64)> {
        let mut lines = Lines::default();
        let mut all = Vec::new();
        let mut each = |l: Line| all.push((String::from_utf8_lossy(l.text).into_owned(), l.time_of(l.text.len()).t));
        for (t, piece) in pieces.iter().enumerate() {
            lines.take(piece, at(t as u64), |_| true, &mut each);
        }
        lines.end(&mut each);
        all
    }

    #[test]
    fn lines_are_whole_however_they_arrive() {
        let text = b"one\ntwo\r\n\rthree\r\nfo";
        let want = ["one", "two", "three", "fo"];
        for n in 1..=text.len() {
            let pieces: Vec<&[u8]> = text.chunks(n).collect();
            assert_eq!(cut(&pieces).into_iter().map(|l| l.0).collect::<Vec<_>>(), want, "in pieces of {n}");
        }
    }

    #[test]
    fn a_part_has_the_time_of_its_own_read() {
        let mut lines = Lines::default();
        lines.take(b"Solving... ", at(10), |_| true, |_| panic!("not a line yet"));
        let mut seen = Vec::new();
        lines.take(b"done\n", at(20), |_| true, |l| seen.push((l.time_of(7), l.time_of(11), l.time_of(12), l.time_of(15))));
        assert_eq!(seen, [(at(10), at(10), at(20), at(20))]);
    }

    #[test]
    fn a_line_without_end_is_cut_and_the_next_one_is_whole() {
        let long = vec![b'x'; 3 * LINE_MAX];
        let all = cut(&[b"a\n", &long, &long, b"\nb\n"]);
        assert_eq!(all.iter().map(|l| l.0.len()).collect::<Vec<_>>(), [1, LINE_MAX, 1]);
    }

    #[test]
    fn lines_in_the_middle_are_passed_over_together() {
        let mut seen = Vec::new();
        Lines::default().take(b"a\nb\nc\nd", at(1), |whole| whole == b"x", |l| seen.push(l.text.to_vec()));
        assert_eq!(seen, [b"a"]);
    }
}
