//! Rows of a `maps` line: `["mmap", tk, t, lane, …]`, a name and numbers.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};

/// What a row says happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapWhat {
    Mmap,
    Munmap,
    Mremap,
    Mprotect,
    Madvise,
    Brk,
    Shmat,
    Shmdt,
    Undo,
    /// A name that this version does not know.
    Other,
}

impl MapWhat {
    fn of_name(name: &str) -> MapWhat {
        match name {
            "mmap" => MapWhat::Mmap,
            "munmap" => MapWhat::Munmap,
            "mremap" => MapWhat::Mremap,
            "mprotect" => MapWhat::Mprotect,
            "madvise" => MapWhat::Madvise,
            "brk" => MapWhat::Brk,
            "shmat" => MapWhat::Shmat,
            "shmdt" => MapWhat::Shmdt,
            "undo" => MapWhat::Undo,
            _ => MapWhat::Other,
        }
    }

    /// Numbers that follow the name.
    fn numbers(self) -> usize {
        match self {
            MapWhat::Mmap => 8,
            MapWhat::Munmap | MapWhat::Shmat | MapWhat::Shmdt => 5,
            MapWhat::Mremap => 9,
            MapWhat::Mprotect | MapWhat::Madvise => 6,
            MapWhat::Brk => 5,
            MapWhat::Undo => 1,
            MapWhat::Other => 0,
        }
    }
}

/// A row: its numbers in the order of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRow {
    pub what: MapWhat,
    pub n: [u64; 9],
    /// Call site; the model gives it (0: none).
    pub site: u32,
}

impl MapRow {
    /// The lane that called.
    pub fn lane(&self) -> u64 {
        self.n[if self.what == MapWhat::Mremap { 3 } else { 2 }]
    }
}

impl<'de> Deserialize<'de> for MapRow {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_seq(RowVisitor)
    }
}

struct RowVisitor;

impl<'de> Visitor<'de> for RowVisitor {
    type Value = MapRow;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a name and its numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<MapRow, A::Error> {
        let name: std::borrow::Cow<str> = seq.next_element()?.unwrap_or_default();
        let mut what = MapWhat::of_name(&name);
        let mut n = [0; 9];
        for slot in n.iter_mut().take(what.numbers()) {
            match seq.next_element::<Number>()? {
                Some(Number(v)) => *slot = v,
                None => what = MapWhat::Other, // a short row says nothing that can be used
            }
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(MapRow { what, n, site: 0 })
    }
}

/// An unsigned number, or a negative one as its two's complement (prot −1 and the like).
struct Number(u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl Visitor<'_> for V {
            type Value = Number;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an integer")
            }
            fn visit_u64<E>(self, v: u64) -> Result<Number, E> {
                Ok(Number(v))
            }
            fn visit_i64<E>(self, v: i64) -> Result<Number, E> {
                Ok(Number(v as u64))
            }
        }
        d.deserialize_any(V)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_all_lengths_are_read_and_unknown_ones_kept_apart() {
        let rows: Vec<MapRow> =
            serde_json::from_str(r#"[["mmap",1,2,0,4096,8192,3,34,0],["undo",7],["future",1,{"a":2}],["brk",1]]"#).unwrap();
        assert_eq!(rows[0].n[4], 8192);
        assert_eq!((rows[1].what, rows[1].n[0]), (MapWhat::Undo, 7));
        assert_eq!(rows[2].what, MapWhat::Other);
        assert_eq!(rows[3].what, MapWhat::Other, "too short to be used");
    }
}
