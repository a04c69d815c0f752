//! Columns of text, lined up. The first column is flush left, the others flush right, the last flush left if it is asked for.

/// Between two columns.
const GAP: &str = "  ";
/// Text is not cut to less.
const LEAST: usize = 12;

#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    last_left: bool,
}

impl Table {
    pub fn new() -> Self {
        Self::default()
    }

    /// The last column is text, not numbers.
    pub fn with_text_last() -> Self {
        Self { last_left: true, ..Self::default() }
    }

    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// One line a row, without spaces at the end.
    pub fn lines(&self) -> Vec<String> {
        self.lines_within(usize::MAX)
    }

    /// The same, no wider than `room`: the first and the last column are cut, as far as they are text. Numbers never are.
    pub fn lines_within(&self, room: usize) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| self.rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max().unwrap_or(0);
        let mut widths: Vec<usize> = (0..columns).map(width).collect();
        let mut over = (widths.iter().sum::<usize>() + GAP.len() * columns.saturating_sub(1)).saturating_sub(room);
        let text = [Some(0), self.last_left.then(|| columns.saturating_sub(1))];
        while let Some(&widest) =
            text.iter().flatten().max_by_key(|c| widths.get(**c)).filter(|c| over > 0 && widths.get(**c) > Some(&LEAST))
        {
            widths[widest] -= 1;
            over -= 1;
        }
        let cell = |c: usize, s: &String| {
            let s = cut(s, widths[c]);
            let left = c == 0 || self.last_left && c + 1 == columns;
            let gap = " ".repeat(widths[c].saturating_sub(s.chars().count()));
            if left { format!("{s}{gap}") } else { format!("{gap}{s}") }
        };
        let line = |r: &Vec<String>| r.iter().enumerate().map(|(c, s)| cell(c, s)).collect::<Vec<_>>().join(GAP).trim_end().to_owned();
        self.rows.iter().map(line).collect()
    }
}

/// `text`, cut in the middle to `width` characters.
pub fn cut(text: &str, width: usize) -> String {
    let n = text.chars().count();
    if n <= width {
        return text.to_owned();
    }
    let keep = width.saturating_sub(1);
    let (head, tail) = (keep - keep / 3, keep / 3);
    text.chars().take(head).chain(['…']).chain(text.chars().skip(n - tail)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_flush_right_and_text_at_the_end_flush_left() {
        let mut t = Table::with_text_last();
        t.row(["a", "1", "xx"]);
        t.row(["bbb", "100", "y"]);
        assert_eq!(t.lines(), ["a      1  xx", "bbb  100  y"]);
    }

    #[test]
    fn text_is_cut_to_make_room_and_numbers_are_not() {
        let mut t = Table::with_text_last();
        t.row(["a name that is long", "1 053", "and words that are longer"]);
        let long = "a name that is long  1 053  and words that are longer";
        assert_eq!((t.lines(), t.lines_within(long.len())), (vec![long.to_owned()], vec![long.to_owned()]));
        for room in [33, 40, 50] {
            let line = &t.lines_within(room)[0];
            assert!(line.chars().count() <= room && line.contains("  1 053  "), "{line}");
        }
        assert!(t.lines_within(0)[0].contains("  1 053  "));
    }

    #[test]
    fn long_words_lose_their_middle() {
        assert_eq!(cut("abcdefghij", 7), "abcd…ij");
        assert_eq!((cut("abc", 3), cut("abcd", 1)), ("abc".into(), "…".into()));
    }
}
