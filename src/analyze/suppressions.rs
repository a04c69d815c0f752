//! Known leaks, by patterns as LeakSanitizer has them: `leak:PATTERN` a line, held against every frame's function, file and module.

use std::path::Path;

use super::report::Frame;

/// Patterns of known leaks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suppressions(Vec<String>);

/// Why a file of suppressions can't be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    // The cause is in the text: whoever prints the chain would print it again.
    #[error("{path}: {cause}: name a file of `leak:PATTERN` lines")]
    Unreadable { path: String, cause: std::io::Error },
    #[error(
        "{path}:{line}: `{text}` is not `leak:PATTERN` (a part of a function's, file's or module's name; `*` for anything, `^` and `$` for its ends)"
    )]
    Line { path: String, line: usize, text: String },
}

impl Suppressions {
    pub fn read(path: &Path) -> Result<Suppressions, Error> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|cause| Error::Unreadable { path: shown.clone(), cause })?;
        Self::parse(&text).map_err(|(line, text)| Error::Line { path: shown, line, text })
    }

    fn parse(text: &str) -> Result<Suppressions, (usize, String)> {
        let mut all = Vec::new();
        for (number, line) in text.lines().map(str::trim).enumerate().filter(|(_, l)| !l.is_empty() && !l.starts_with('#')) {
            match line.strip_prefix("leak:").map(str::trim).filter(|p| !p.is_empty()) {
                Some(pattern) => all.push(pattern.to_owned()),
                None => return Err((number + 1, line.to_owned())),
            }
        }
        Ok(Suppressions(all))
    }

    /// The first pattern that one of the frames fits.
    pub fn of<'a>(&self, frames: impl Iterator<Item = &'a Frame> + Clone) -> Option<&str> {
        let fits = |pattern: &&String| {
            frames.clone().any(|f| [&f.function, &f.file, &f.module].into_iter().flatten().any(|text| matches(pattern, text)))
        };
        self.0.iter().find(fits).map(String::as_str)
    }
}

/// Whether a text has a part that the pattern describes.
fn matches(pattern: &str, text: &str) -> bool {
    let (from_start, pattern) = pattern.strip_prefix('^').map_or((false, pattern), |p| (true, p));
    let (to_end, pattern) = pattern.strip_suffix('$').map_or((false, pattern), |p| (true, p));
    let mut parts = pattern.split('*');
    let mut rest = text;
    let first = parts.next().unwrap_or_default();
    if from_start {
        let Some(after) = rest.strip_prefix(first) else { return false };
        rest = after;
    } else {
        let Some(at) = rest.find(first) else { return false };
        // Anchored at the end, the last occurrence of a lone part is the one.
        rest = if to_end && !pattern.contains('*') {
            if rest.ends_with(first) { "" } else { return false }
        } else {
            &rest[at + first.len()..]
        };
    }
    let parts: Vec<&str> = parts.collect();
    for (i, part) in parts.iter().enumerate() {
        if to_end && i + 1 == parts.len() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    !to_end || !parts.is_empty() || rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_parts_with_wildcards_and_ends() {
        for (pattern, text, expected) in [
            ("foo", "a_foo_b", true),
            ("foo*bar", "xfoo1barx", true),
            ("foo*bar", "barfoo", false),
            ("^foo", "foobar", true),
            ("^foo", "a foo", false),
            ("bar$", "foobar bar", true),
            ("bar$", "bar foo", false),
            ("^a*z$", "abcz", true),
            ("^a*z$", "abzc", false),
            ("^a$", "a", true),
            ("^a$", "ab", false),
            ("*", "x", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        assert_eq!(Suppressions::parse("# known\n\nleak:foo\n").unwrap(), Suppressions(vec!["foo".into()]));
        assert_eq!(Suppressions::parse("leak:a\nrace:foo"), Err((2, "race:foo".into())));
        assert_eq!(Suppressions::parse("leak:"), Err((1, "leak:".into())));
    }

    #[test]
    fn any_frame_and_any_name_of_it_counts() {
        let s = Suppressions::parse("leak:nothing\nleak:libfoo.so").unwrap();
        let frames = [Frame::default(), Frame { module: Some("/usr/lib/libfoo.so.1".into()), ..Frame::default() }];
        assert_eq!(s.of(frames.iter()), Some("libfoo.so"));
        assert_eq!(s.of(frames[..1].iter()), None);
    }
}
