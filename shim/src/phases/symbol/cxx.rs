//! The names of which a mangled C++ name (Itanium ABI) is made: `_ZN2ns5ClassIiE3runEi` is `ns::Class::run`. Without parameters, results and what
//! templates are for: enough for a rule to be written as one thinks of the function. What the reader shows is demangled there, in full.
//!
//! Not for: operators, conversions, lambdas, tables. They have no such name; rules can have the mangled one.

/// Longest path; what is longer has none.
pub const MOST: usize = 512;

/// What has been read, and what has been written of it.
struct Reader<'a, 'b> {
    rest: &'a [u8],
    path: &'b mut [u8; MOST],
    len: usize,
    /// The last name, for constructors.
    last: &'a [u8],
}

/// The path of a mangled name.
pub fn path<'b>(mangled: &[u8], room: &'b mut [u8; MOST]) -> Option<&'b [u8]> {
    let rest = mangled.strip_prefix(b"_Z")?;
    let mut reader = Reader { rest, path: room, len: 0, last: b"" };
    reader.function()?;
    let Reader { path, len, .. } = reader;
    path.get(..len)
}

impl<'a> Reader<'a, '_> {
    fn first(&self) -> u8 {
        self.rest.first().copied().unwrap_or(0)
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.rest = self.rest.get(bytes..)?;
        Some(())
    }

    /// Passes over `word` if it comes next.
    fn takes(&mut self, word: &[u8]) -> bool {
        let rest = self.rest.strip_prefix(word);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn function(&mut self) -> Option<()> {
        if self.takes(b"N") {
            while matches!(self.first(), b'r' | b'V' | b'K' | b'R' | b'O') {
                self.skip(1)?;
            }
            while !self.takes(b"E") {
                self.part()?;
            }
        } else {
            if self.takes(b"St") {
                self.add(b"std", b"")?;
            }
            self.part()?;
        }
        (self.len > 0).then_some(())
    }

    /// One name, or what belongs to the one before it.
    fn part(&mut self) -> Option<()> {
        match self.first() {
            b'L' => self.skip(1),
            b'1'..=b'9' => {
                let name = self.name()?;
                self.last = name;
                self.add(name, b"")
            }
            b'I' => self.arguments(),
            // A mark of the ABI (`[abi:cxx11]`).
            b'B' => {
                self.skip(1)?;
                self.name().map(|_| ())
            }
            b'C' if matches!(self.rest.get(1), Some(b'1'..=b'5')) => {
                self.skip(2)?;
                self.add(self.last, b"")
            }
            b'D' if matches!(self.rest.get(1), Some(b'0'..=b'5')) => {
                self.skip(2)?;
                self.add(self.last, b"~")
            }
            b'S' => {
                let known: [(&[u8], &[u8]); 6] = [
                    (b"St", b""),
                    (b"Sa", b"allocator"),
                    (b"Ss", b"string"),
                    (b"Si", b"istream"),
                    (b"So", b"ostream"),
                    (b"Sb", b"basic_string"),
                ];
                let (word, name) = known.into_iter().find(|(word, _)| self.rest.starts_with(word))?;
                self.skip(word.len())?;
                self.add(b"std", b"")?;
                self.last = name;
                if name.is_empty() { Some(()) } else { self.add(name, b"") }
            }
            _ => None,
        }
    }

    /// A name with its length in front.
    fn name(&mut self) -> Option<&'a [u8]> {
        let digits = self.rest.iter().take_while(|c| c.is_ascii_digit()).count();
        let number = self.rest.get(..digits.min(4))?;
        let len = number.iter().fold(0usize, |n, c| n * 10 + (*c - b'0') as usize);
        let (name, rest) = self.rest.get(digits..)?.split_at_checked(len).filter(|(name, _)| !name.is_empty())?;
        self.rest = rest;
        Some(name)
    }

    fn add(&mut self, name: &[u8], before: &[u8]) -> Option<()> {
        let between: &[u8] = if self.len > 0 { b"::" } else { b"" };
        for c in between.iter().chain(before).chain(name) {
            *self.path.get_mut(self.len)? = *c;
            self.len += 1;
        }
        Some(())
    }

    /// Passes over what a template is for. Whatever opens a list of its own ends with an `E`.
    fn arguments(&mut self) -> Option<()> {
        let mut open = 0;
        loop {
            match self.first() {
                b'E' => {
                    open -= 1;
                    self.skip(1)?;
                    if open == 0 {
                        return Some(());
                    }
                }
                // A value: its type (one letter, a name, or a name inside of others) and digits, up to the end; or a whole mangled name.
                b'L' if !self.rest.starts_with(b"L_Z") => {
                    self.skip(1)?;
                    match self.first() {
                        b'N' => self.arguments()?,
                        b'0'..=b'9' => self.name().map(|_| ())?,
                        _ => self.skip(1)?,
                    }
                    let end = self.rest.iter().position(|c| *c == b'E')?;
                    self.skip(end + 1)?;
                }
                b'I' | b'N' | b'X' | b'J' | b'L' | b'F' => {
                    open += 1;
                    self.skip(1)?;
                }
                // Of an array the length, of a substitution its number: no lengths of names.
                b'A' => {
                    let end = self.rest.iter().position(|c| *c == b'_')?;
                    self.skip(end + 1)?;
                }
                b'S' | b'T' => {
                    let is_number = |c: &u8| c.is_ascii_digit() || c.is_ascii_uppercase() || *c == b'_';
                    if self.rest.get(1).is_some_and(is_number) {
                        let end = self.rest.iter().position(|c| *c == b'_')?;
                        self.skip(end + 1)?;
                    } else {
                        self.skip(2)?;
                    }
                }
                b'D' => {
                    open += matches!(self.rest.get(1), Some(b'T' | b't')) as i32;
                    self.skip(2)?;
                }
                b'0'..=b'9' => {
                    self.name()?;
                }
                _ => self.skip(1)?,
            }
        }
    }
}
