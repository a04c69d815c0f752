//! How wide the screen is, and text fitted to it.

const DEFAULT_WIDTH: usize = 100;

/// Columns: what `COLUMNS` says, else the terminal; [`DEFAULT_WIDTH`] where there is none.
pub fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok()).filter(|&c| c > 0);
    columns.or_else(|| terminal_size::terminal_size().map(|(w, _)| usize::from(w.0))).unwrap_or(DEFAULT_WIDTH)
}

/// `text` broken between words into lines of at most `width` characters; a longer word has a line to itself.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ') {
        let n = word.chars().count();
        if used > 0 && used + 1 + n > width {
            lines.push(String::new());
            used = 0;
        }
        let line = lines.last_mut().expect("starts with one");
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += n;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("a bb ccc", 4), ["a bb", "ccc"]);
        assert_eq!(wrapped("abcdef gh", 3), ["abcdef", "gh"]);
        assert_eq!(wrapped("", 3), [""]);
    }
}
