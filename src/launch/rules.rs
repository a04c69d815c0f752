//! Rules by which lines that a program prints are edges of phases: `--phase-on`.
//!
//! A rule is a regular expression over the bytes of a line, with what it means in front: `start:`, `end:`, `next:` (the default) or `mark:`.
//! Not for: cutting output into lines (`relay::lines`), what edges amount to (the model).

use crate::trace::marks::What;
use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

/// Longer names are cut.
const NAME_MAX: usize = 1000;

/// One rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// As it was given.
    pub text: String,
    what: What,
    regex: Regex,
}

impl std::str::FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = [("start:", What::Begin), ("end:", What::End), ("next:", What::Next), ("mark:", What::Mark)];
        let (what, pattern) = words.iter().find_map(|(w, what)| Some((*what, text.strip_prefix(w)?))).unwrap_or((What::Next, text));
        if pattern.is_empty() {
            return Err("an empty expression fits every line; give what the line says, such as 'SCF cycle (\\d+)'".into());
        }
        let regex = RegexBuilder::new(pattern).size_limit(16 << 20).build().map_err(|e| in_one_line(&e.to_string()))?;
        Ok(Rule { text: text.into(), what, regex })
    }
}

/// What is wrong with an expression, without the drawing of where, and what to write.
fn in_one_line(error: &str) -> String {
    let last = error.lines().last().unwrap_or(error).trim();
    let why = last.strip_prefix("error: ").unwrap_or(last);
    format!(
        "{why}; write a regular expression such as 'SCF cycle (\\d+)', and a backslash in front of a sign that means itself: \\( \\[ \\* \\."
    )
}

/// What a rule found in a line.
#[derive(Debug, PartialEq, Eq)]
pub struct Found<'a> {
    /// Which rule of all.
    pub rule: usize,
    pub what: What,
    /// The first group that took part, else the match; of an `end:` without groups nothing, which means the innermost.
    pub name: &'a [u8],
    /// Where the match ends in the line.
    pub end: usize,
}

/// All rules of a run.
#[derive(Debug, Clone, Default)]
pub struct Rules(pub Vec<Rule>);

impl Rules {
    /// What the rules say of a line, each at most once, in their order.
    pub fn of<'a>(&self, line: &'a [u8]) -> impl Iterator<Item = Found<'a>> {
        self.0.iter().enumerate().filter_map(move |(at, rule)| {
            let found = rule.regex.captures(line)?;
            let group = found.iter().skip(1).flatten().next();
            let whole = found.get_match();
            let name = match (group, rule.what) {
                (Some(group), _) => group.as_bytes(),
                (None, What::End) => b"",
                (None, _) => whole.as_bytes(),
            };
            let name = name.trim_ascii();
            Some(Found { rule: at, what: rule.what, name: &name[..name.len().min(NAME_MAX)], end: whole.end() })
        })
    }

    /// Answers for many lines at once whether any of them can be of interest to a rule or hold one of `words`. `None`: every line has to
    /// be looked at.
    pub fn sieve(&self, words: &[&str]) -> Option<RegexSet> {
        let patterns: Vec<&str> = self.0.iter().map(|r| r.regex.as_str()).collect();
        // Ends of the text are not ends of lines, and what is said below must not be taken back.
        if patterns.iter().any(|p| p.contains("\\A") || p.contains("\\z") || takes_flags_back(p)) {
            return None;
        }
        let words = words.iter().map(|w| regex::escape(w));
        let all = patterns.iter().map(|p| p.to_string()).chain(words);
        RegexSetBuilder::new(all).multi_line(true).crlf(true).size_limit(64 << 20).build().ok()
    }
}

/// Whether an expression has flags like `(?-m)` or `(?i-u:…)`.
fn takes_flags_back(pattern: &str) -> bool {
    let groups = pattern.split("(?").skip(1);
    groups.map(|g| g.trim_start_matches(|c: char| c.is_ascii_alphabetic())).any(|g| g.starts_with('-'))
}

/// Without the escape sequences that colour a line; `at` gives for a position in the result the one in the line.
pub struct Plain {
    pub text: Vec<u8>,
    at: Vec<(usize, usize)>,
}

impl Plain {
    pub fn of(line: &[u8]) -> Plain {
        let mut plain = Plain { text: Vec::with_capacity(line.len()), at: Vec::new() };
        let mut i = 0;
        while let Some(&c) = line.get(i) {
            if c == 0x1b {
                i += escape_length(&line[i..]);
                plain.at.push((plain.text.len(), i));
            } else {
                plain.text.push(c);
                i += 1;
            }
        }
        plain
    }

    pub fn at(&self, position: usize) -> usize {
        // Of what stands where an escape was, the end of a match is before it.
        let before = self.at.iter().rev().find(|(plain, _)| *plain < position);
        before.map_or(position, |(plain, raw)| raw + (position - plain))
    }
}

/// Of `ESC [ … letter` (colours, movements), `ESC ] … BEL` (titles), and `ESC x`.
fn escape_length(text: &[u8]) -> usize {
    let upto = |is_end: &dyn Fn(u8) -> bool| text.iter().skip(2).position(|&c| is_end(c)).map_or(text.len(), |n| n + 3);
    match text.get(1) {
        Some(b'[') => upto(&|c| (0x40..=0x7e).contains(&c)),
        Some(b']') => upto(&|c| c == 7),
        _ => text.len().min(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(all: &[&str]) -> Rules {
        Rules(all.iter().map(|r| r.parse().unwrap()).collect())
    }

    fn found(rule: &str, line: &str) -> Vec<(What, String, usize)> {
        rules(&[rule]).of(line.as_bytes()).map(|f| (f.what, String::from_utf8_lossy(f.name).into_owned(), f.end)).collect()
    }

    #[test]
    fn a_name_is_the_first_group_else_the_match() {
        assert_eq!(found(r"phase (\w+)", "-- phase scf begins"), [(What::Next, "scf".into(), 12)]);
        assert_eq!(found("phase .*", "-- phase scf "), [(What::Next, "phase scf".into(), 13)]);
        assert_eq!(found("start:(?:a(x)|b(y))", "by"), [(What::Begin, "y".into(), 2)]);
        assert_eq!(found("end:done", "all done"), [(What::End, "".into(), 8)]);
        assert_eq!(found("end:done (.*)", "done scf"), [(What::End, "scf".into(), 8)]);
        assert_eq!(found("mark:ckpt", "ckpt 1"), [(What::Mark, "ckpt".into(), 4)]);
        assert_eq!(found("next:start:x", "start:x"), [(What::Next, "start:x".into(), 7)], "a word in front of the expression itself");
        assert_eq!(found("^a$", "ab"), []);
    }

    #[test]
    fn what_is_no_expression_is_said() {
        assert!("start:".parse::<Rule>().unwrap_err().contains("empty"));
        assert!("a(".parse::<Rule>().unwrap_err().contains("unclosed group"));
    }

    #[test]
    fn the_sieve_lets_through_whatever_a_line_could_match() {
        let r = rules(&["^Step (\\d+)$", "end:finished"]);
        let sieve = r.sieve(&["Compiling "]).unwrap();
        for text in ["x\nStep 4\ny", "x\rStep 4\ry", "x\r\nStep 4\r\ny", "it finished", "Compiling f"] {
            assert!(sieve.is_match(text.as_bytes()), "{text:?}");
        }
        assert!(!sieve.is_match(b"x\nmy Step 4\nStep 4 of\nCompile"));
        assert!(rules(&["(?i)(?:step|x) \\d"]).sieve(&[]).unwrap().is_match(b"a\nSTEP 4"));
        assert!(rules(&["\\Afoo"]).sieve(&[]).is_none() && rules(&["(?-m)^foo"]).sieve(&[]).is_none());
    }

    #[test]
    fn colours_do_not_hide_a_line() {
        let line = b"\x1b]0;title\x07\x1b[1;32mStep\x1b[0m 4\x1b[K";
        let plain = Plain::of(line);
        assert_eq!(plain.text, b"Step 4");
        assert_eq!(plain.at(4), line.iter().position(|&c| c == b'p').unwrap() + 1);
        assert_eq!(plain.at(6), line.iter().rposition(|&c| c == b'4').unwrap() + 1);
        assert_eq!(Plain::of(b"ab").at(2), 2);
        assert_eq!(Plain::of(b"\x1b[").text, b"");
    }
}
