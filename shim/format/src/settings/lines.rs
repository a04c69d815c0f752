//! The lines of a file of settings: which text is a value, and what to do about one that is none. See the module above.

use super::{Key, Keys, NO_SUCH};

/// What stands in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A setting.
    Set {
        /// From 1 on.
        line: u32,
        /// See [`Key`].
        key: Key,
        /// What it is set to.
        value: Value<'a>,
    },
    /// A line that counts for nothing.
    Wrong {
        /// From 1 on.
        line: u32,
        /// The line, without space around it.
        text: &'a [u8],
        /// What to do about it, as an imperative.
        fix: &'static str,
    },
}

/// A value, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Between double quotes: with escapes.
    Escaped(&'a [u8]),
    /// Between single quotes: as it stands.
    Plain(&'a [u8]),
    /// A number.
    Number(&'a [u8]),
    /// `true` or `false`.
    Truth(bool),
    /// Between brackets: values and commas, read by [`Value::parts`].
    List(&'a [u8]),
}

pub(super) const NO_TABLE: &str = "let the settings stand above all [tables]: there are none here";

/// The lines of a file that set something or try to.
pub fn items(text: &[u8]) -> Items<'_> {
    Items { text: text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text), at: 0, line: 1, seen: Keys(0), in_table: false }
}

/// See [`items`].
#[derive(Clone, Debug)]
pub struct Items<'a> {
    text: &'a [u8],
    at: usize,
    /// Of `at`.
    line: u32,
    seen: Keys,
    /// Below a table nothing is ours.
    in_table: bool,
}

impl<'a> Iterator for Items<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        loop {
            self.pass(|c| c.is_ascii_whitespace());
            match self.peek()? {
                b'#' => self.leave_line(),
                _ if self.in_table => self.leave_line(),
                _ => return Some(self.item()),
            }
        }
    }
}

impl<'a> Items<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn step(&mut self) {
        self.line += (self.peek() == Some(b'\n')) as u32;
        self.at += 1;
    }

    fn pass(&mut self, what: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&what) {
            self.step();
        }
    }

    fn leave_line(&mut self) {
        self.pass(|c| c != b'\n');
        self.step();
    }

    fn slice(&self, from: usize, to: usize) -> &'a [u8] {
        self.text.get(from..to).unwrap_or(b"")
    }

    /// The line that `at` is in, trimmed.
    fn line_at(&self, at: usize) -> &'a [u8] {
        let (before, after) = self.text.split_at_checked(at).unwrap_or((self.text, b""));
        let from = before.iter().rposition(|c| *c == b'\n').map_or(0, |n| n + 1);
        let to = at + after.iter().position(|c| *c == b'\n').unwrap_or(after.len());
        self.slice(from, to).trim_ascii()
    }

    fn item(&mut self) -> Item<'a> {
        let (begin, line) = (self.at, self.line);
        let read = self.setting();
        let end = self.line;
        let wrong = |items: &Self, fix| Item::Wrong { line, text: items.line_at(begin), fix };
        match read {
            Ok((name, value)) => match self.judge(name) {
                Ok(key) => Item::Set { line, key, value },
                Err(fix) => wrong(self, fix),
            },
            Err(fix) => {
                // A value over several lines may have run into a line that is good by itself: that one is read again.
                if end > line {
                    let before = self.text.get(..self.at).unwrap_or(self.text);
                    self.at = before.iter().rposition(|c| *c == b'\n').map_or(0, |n| n + 1);
                } else {
                    self.leave_line();
                }
                wrong(self, fix)
            }
        }
    }

    /// Whether a setting that is well written counts.
    fn judge(&mut self, name: &[u8]) -> Result<Key, &'static str> {
        let key = Key::of(name).ok_or(NO_SUCH)?;
        if self.seen.add(key) { Ok(key) } else { Err("set it once: what stands first counts") }
    }

    fn setting(&mut self) -> Result<(&'a [u8], Value<'a>), &'static str> {
        if self.peek() == Some(b'[') {
            self.in_table = true;
            return Err(NO_TABLE);
        }
        let name = self.key()?;
        self.pass(|c| matches!(c, b' ' | b'\t'));
        if self.peek() != Some(b'=') {
            return Err("write `key = value`");
        }
        self.step();
        self.pass(|c| matches!(c, b' ' | b'\t'));
        let value = self.value(0)?;
        self.pass(|c| matches!(c, b' ' | b'\t' | b'\r'));
        match self.peek() {
            None | Some(b'\n') => Ok((name, value)),
            Some(b'#') => {
                self.pass(|c| c != b'\n');
                Ok((name, value))
            }
            _ => Err("let nothing but a # comment follow the value"),
        }
    }

    fn key(&mut self) -> Result<&'a [u8], &'static str> {
        if let Some(quote @ (b'"' | b'\'')) = self.peek() {
            return self.quoted(quote);
        }
        let from = self.at;
        self.pass(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.'));
        if self.at == from { Err("write `key = value`") } else { Ok(self.slice(from, self.at)) }
    }

    fn value(&mut self, depth: u32) -> Result<Value<'a>, &'static str> {
        match self.peek() {
            Some(quote @ (b'"' | b'\'')) => {
                let from = self.at;
                let text = self.quoted(quote)?;
                if text.is_empty() && self.peek() == Some(quote) {
                    return Err("write the text in one line, between single quotes");
                }
                let value = if quote == b'"' { Value::Escaped(text) } else { Value::Plain(text) };
                if value.unescaped(|_| ()) {
                    return Ok(value);
                }
                self.at = from;
                Err("write \\\\ for a backslash, or put the text between single quotes")
            }
            Some(b'[') if depth == 0 => self.list(),
            Some(b'[' | b'{') => Err("give a string, a number, true, false or a list of them"),
            _ => {
                let from = self.at;
                self.pass(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'+' | b'.' | b':'));
                match self.slice(from, self.at) {
                    b"" => Err("give a value after the ="),
                    b"true" => Ok(Value::Truth(true)),
                    b"false" => Ok(Value::Truth(false)),
                    word if is_number(word) => Ok(Value::Number(word)),
                    _ => Err("put the text between quotes"),
                }
            }
        }
    }

    fn quoted(&mut self, quote: u8) -> Result<&'a [u8], &'static str> {
        self.step();
        let from = self.at;
        loop {
            match self.peek() {
                None | Some(b'\n') => return Err("end the text with the quote that it began with"),
                Some(b'\\') if quote == b'"' => {
                    self.step();
                    self.pass_one();
                }
                Some(c) if c == quote => break,
                Some(_) => self.step(),
            }
        }
        let text = self.slice(from, self.at);
        self.step();
        Ok(text)
    }

    fn pass_one(&mut self) {
        if self.peek().is_some_and(|c| c != b'\n') {
            self.step();
        }
    }

    fn list(&mut self) -> Result<Value<'a>, &'static str> {
        const OPEN: &str = "end the list with ]";
        let begin = self.line;
        self.step();
        let from = self.at;
        let mut due = true;
        loop {
            self.pass(|c| c.is_ascii_whitespace());
            match self.peek() {
                None => return Err(OPEN),
                Some(b'#') => self.pass(|c| c != b'\n'),
                Some(b']') => {
                    let inside = self.slice(from, self.at);
                    self.step();
                    return Ok(Value::List(inside));
                }
                Some(b',') if !due => {
                    due = true;
                    self.step();
                }
                Some(b',') => return Err("put a value between two commas"),
                Some(_) if due => {
                    due = false;
                    // `key = …` of a line below is not a text without quotes.
                    let (at, line) = (self.at, self.line);
                    if let Err(fix) = self.value(1) {
                        let is_another = line > begin && self.line_at(at).contains(&b'=');
                        return Err(if is_another { OPEN } else { fix });
                    }
                }
                Some(_) => return Err("put a comma between the values, and ] after the last"),
            }
        }
    }
}

/// Whether a word is a number as TOML has them, but for infinities.
fn is_number(word: &[u8]) -> bool {
    let word = word.strip_prefix(b"+").or(word.strip_prefix(b"-")).unwrap_or(word);
    let digits = |text: &[u8]| {
        let ends = |c: Option<&u8>| c.is_some_and(u8::is_ascii_digit);
        let doubled = text.windows(2).any(|two| two == b"__");
        ends(text.first()) && ends(text.last()) && !doubled && text.iter().all(|c| c.is_ascii_digit() || *c == b'_')
    };
    let mut parts = word.splitn(2, |c| *c == b'.');
    let (whole, fraction) = (parts.next().unwrap_or(b""), parts.next());
    let leading = whole.len() > 1 && whole.first() == Some(&b'0');
    digits(whole) && !leading && fraction.is_none_or(digits)
}

impl<'a> Value<'a> {
    /// The values of a list; of another, itself.
    pub fn parts(self) -> Parts<'a> {
        match self {
            Value::List(inside) => Parts { items: items(inside), one: None },
            one => Parts { items: items(b""), one: Some(one) },
        }
    }

    /// Gives the bytes of it as a variable has them: a list with commas, `1` for true, numbers as they are written without `_`.
    pub fn write(self, mut each: impl FnMut(u8)) {
        for (i, part) in self.parts().enumerate() {
            if i > 0 {
                each(b',');
            }
            part.unescaped(&mut each);
        }
    }

    /// Bytes of one that is no list. False: an escape that is none.
    fn unescaped(self, mut each: impl FnMut(u8)) -> bool {
        let text = match self {
            Value::Escaped(text) => text,
            Value::Plain(text) => {
                text.iter().for_each(|c| each(*c));
                return true;
            }
            Value::Number(text) => {
                text.iter().filter(|c| **c != b'_').for_each(|c| each(*c));
                return true;
            }
            Value::Truth(yes) => {
                each(b'0' + yes as u8);
                return true;
            }
            Value::List(_) => return true,
        };
        let mut rest = text;
        while let Some((&c, after)) = rest.split_first() {
            rest = after;
            if c != b'\\' {
                each(c);
                continue;
            }
            let Some((&what, after)) = rest.split_first() else { return false };
            rest = after;
            let plain = match what {
                b'b' => 8,
                b't' => b'\t',
                b'n' => b'\n',
                b'f' => 12,
                b'r' => b'\r',
                b'e' => 27,
                b'"' | b'\\' => what,
                b'x' | b'u' | b'U' => 0,
                _ => return false,
            };
            if plain > 0 {
                each(plain);
                continue;
            }
            let n = match what {
                b'x' => 2,
                b'u' => 4,
                _ => 8,
            };
            let Some((code, after)) = rest.split_at_checked(n) else { return false };
            rest = after;
            let value = code.iter().try_fold(0u32, |v, c| Some(v << 4 | (*c as char).to_digit(16)?));
            let Some(letter) = value.and_then(char::from_u32) else { return false };
            letter.encode_utf8(&mut [0; 4]).bytes().for_each(&mut each);
        }
        true
    }
}

/// See [`Value::parts`].
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    items: Items<'a>,
    one: Option<Value<'a>>,
}

impl<'a> Iterator for Parts<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        if let Some(one) = self.one.take() {
            return Some(one);
        }
        loop {
            self.items.pass(|c| c.is_ascii_whitespace() || c == b',');
            match self.items.peek()? {
                b'#' => self.items.leave_line(),
                _ => return self.items.value(1).ok(),
            }
        }
    }
}
