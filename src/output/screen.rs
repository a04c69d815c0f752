//! How wide the screen is, and text fitted to it.

const DEFAULT_WIDTH: usize = 100;

/// Columns: what `COLUMNS` says, else the terminal; [`DEFAULT_WIDTH`] where there is none.
pub fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok()).filter(|&c| c > 0);
    columns.or_else(|| terminal_size::terminal_size().map(|(w, _)| usize::from(w.0))).unwrap_or(DEFAULT_WIDTH)
}

/// `text` broken between words into lines of at most `width` characters; a longer word has a line to itself. Numbers stay with their units
/// (`5.47 MiB`) and their groups of digits (`12 000`).
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in words(text) {
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
        line.push_str(&word);
        used += n;
    }
    lines
}

/// What no line may end in.
fn words(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match all.last_mut().filter(|before| before.ends_with(|c: char| c.is_ascii_digit())) {
            Some(number) => {
                number.push(' ');
                number.push_str(word);
            }
            None => all.push(word.into()),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("a bb ccc", 4), ["a bb", "ccc"]);
        assert_eq!(wrapped("abcdef gh", 3), ["abcdef", "gh"]);
        assert_eq!(wrapped("", 3), [""]);
        assert_eq!(wrapped("all of 12 000 blocks, 5.5 MiB", 15), ["all of", "12 000 blocks,", "5.5 MiB"]);
    }
}
