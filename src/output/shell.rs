//! Words as they can be typed into a shell.

/// `word`, in quotes where a shell would take it apart.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@,%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_command_can_be_typed_as_it_stands() {
        assert_eq!(quoted("out/t.jsonl"), "out/t.jsonl");
        assert_eq!(quoted("my trace's"), r"'my trace'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
