//! Words as they can be typed into a shell.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `word`, in quotes where a shell would take it apart.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@,%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// A path; one that is not UTF-8 as bash, ksh and zsh take it.
pub fn quoted_path(path: &Path) -> String {
    if let Some(text) = path.to_str() {
        return quoted(text);
    }
    let byte = |c: &u8| match c {
        b'\'' | b'\\' => format!("\\{}", *c as char),
        b' '..=b'~' => (*c as char).to_string(),
        other => format!("\\x{other:02x}"),
    };
    format!("$'{}'", path.as_os_str().as_bytes().iter().map(byte).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_command_can_be_typed_as_it_stands() {
        assert_eq!(quoted("out/t.jsonl"), "out/t.jsonl");
        assert_eq!(quoted("my trace's"), r"'my trace'\''s'");
        assert_eq!(quoted(""), "''");
        let path = Path::new(std::ffi::OsStr::from_bytes(b"a'\xff\\1.jsonl"));
        assert_eq!((&*quoted_path(path), &*quoted_path(Path::new("a b"))), (r"$'a\'\xff\\1.jsonl'", "'a b'"));
    }
}
