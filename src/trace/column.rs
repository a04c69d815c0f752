//! Columns of unsigned integers in a line: V93 text or an array of the same integers.

use std::borrow::Cow;
use std::fmt;

use memshim_format::v93;
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// A column as it stands in the line; the text is borrowed from it where it holds no JSON escape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column<'a> {
    Text(Cow<'a, str>),
    Ints(Vec<u64>),
}

impl Default for Column<'_> {
    fn default() -> Self {
        Column::Text(Cow::Borrowed(""))
    }
}

/// A column's values one after another, and whether it ended where it should.
pub trait Values: Iterator<Item = u64> {
    /// Everything up to here could be read and nothing is left.
    fn at_end(&self) -> bool;
}

impl Values for v93::Decoder<'_> {
    fn at_end(&self) -> bool {
        self.rest().is_empty()
    }
}

impl Values for std::iter::Copied<std::slice::Iter<'_, u64>> {
    fn at_end(&self) -> bool {
        self.len() == 0
    }
}

impl Column<'_> {
    /// All values; `None` where the column is damaged. For short columns; the long one is matched on and decoded in place.
    pub fn values(&self) -> Option<Cow<'_, [u64]>> {
        match self {
            Column::Text(text) => {
                let mut decoder = v93::Decoder::new(text.as_bytes());
                let all: Vec<u64> = decoder.by_ref().collect();
                decoder.at_end().then_some(Cow::Owned(all))
            }
            Column::Ints(all) => Some(Cow::Borrowed(all)),
        }
    }
}

/// Appends the V93 form of a value, for lines that the command itself writes.
pub fn push_v93(out: &mut Vec<u8>, v: u64) {
    let (lead, mut rest, n) = match v {
        0..60 => (v, 0, 0),
        60..2292 => (60 + (v - 60) / 93, (v - 60) % 93, 1),
        2292..54186 => (84 + (v - 2292) / 8649, (v - 2292) % 8649, 2),
        54186..858_543 => (90, v - 54186, 3),
        858_543..6_957_742_236 => (91, v - 858_543, 5),
        _ => (92, v - 6_957_742_236, 10),
    };
    let at = out.len();
    out.resize(at + n + 1, v93_char(lead));
    for slot in out[at + 1..].iter_mut().rev() {
        *slot = v93_char(rest % 93);
        rest /= 93;
    }
}

fn v93_char(digit: u64) -> u8 {
    let c = digit as u8 + 0x20;
    let c = c + (c >= 0x22) as u8;
    c + (c >= 0x5c) as u8
}

impl<'de: 'a, 'a> Deserialize<'de> for Column<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(ColumnVisitor)
    }
}

struct ColumnVisitor;

impl<'de> Visitor<'de> for ColumnVisitor {
    type Value = Column<'de>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a V93 string or an array of unsigned integers")
    }

    fn visit_borrowed_str<E: Error>(self, v: &'de str) -> Result<Column<'de>, E> {
        Ok(Column::Text(Cow::Borrowed(v)))
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<Column<'de>, E> {
        Ok(Column::Text(Cow::Owned(v.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Column<'de>, A::Error> {
        let mut all = Vec::new();
        while let Some(v) = seq.next_element()? {
            all.push(v);
        }
        Ok(Column::Ints(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_borrowed_and_arrays_mean_the_same() {
        let a: Column = serde_json::from_str("\" !#\"").unwrap();
        assert!(matches!(a, Column::Text(Cow::Borrowed(_))));
        let b: Column = serde_json::from_str("[0,1,2]").unwrap();
        assert_eq!(a.values(), b.values());
    }

    #[test]
    fn an_escaped_character_is_what_it_stands_for() {
        let a: Column = serde_json::from_str(r#""\u0020!""#).unwrap();
        assert_eq!(a.values().as_deref(), Some(&[0, 1][..]));
    }

    #[test]
    fn what_is_written_is_read_back() {
        for edge in [0, 59, 60, 2291, 2292, 54185, 54186, 858_542, 858_543, 6_957_742_235, 6_957_742_236, u64::MAX] {
            for v in [edge, edge.saturating_sub(1), edge / 3] {
                let mut out = Vec::new();
                push_v93(&mut out, v);
                assert_eq!(v93::Decoder::new(&out).collect::<Vec<_>>(), [v]);
            }
        }
    }

    #[test]
    fn a_cut_value_damages_the_column() {
        let a: Column = serde_json::from_str("\" ~\"").unwrap();
        assert_eq!(a.values(), None);
    }
}
