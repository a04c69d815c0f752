//! Rows of a `phase` line: `["begin", t, lane, g, at, seq, "nvtx", name, range, live, …]`, and pieces of names.

use std::fmt;

use memshim_format::phase::{SOURCES, WHATS};
use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};

use super::line::Text;

/// What happens at an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Begin,
    End,
    Mark,
    /// The end of a function that has yet to let go of what is in its variables.
    Return,
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub enum PhaseRow {
    Edge(EdgeRow),
    /// A piece of a name's text, or of its domain's.
    Name {
        of_domain: bool,
        number: u32,
        /// Which, from 0 on.
        piece: u64,
        text: String,
    },
    /// Of a kind that this version does not know, or too short.
    Other,
}

/// An edge, as its thread told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeRow {
    pub what: What,
    pub t: u64,
    pub lane: u32,
    /// It stands before event `at` of the lane's batch in this group.
    pub group: u64,
    pub at: u64,
    /// Number that the lane's next allocation gets.
    pub seq: u64,
    /// Index in [`SOURCES`].
    pub source: u8,
    /// Of an end: the domain's, 0 for none.
    pub name: u32,
    /// Number of a phase that any thread may end; 0: nested by thread.
    pub range: u64,
    /// Usable bytes live in the process.
    pub live: i64,
    /// CPU ns, minor and major faults, voluntary and other switches of the program so far.
    pub usage: Option<[u64; 5]>,
    /// Bytes that it has read and written so far; not looked at for each edge.
    pub moved: Option<[u64; 2]>,
}

impl<'de> Deserialize<'de> for PhaseRow {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_seq(RowVisitor)
    }
}

struct RowVisitor;

impl<'de> Visitor<'de> for RowVisitor {
    type Value = PhaseRow;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("what happens, and numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<PhaseRow, A::Error> {
        let name: String = seq.next_element()?.unwrap_or_default();
        let row = match (&*name, WHATS.iter().position(|w| *w == name)) {
            ("name" | "domain", _) => {
                let (number, piece): (Option<u32>, Option<u64>) = (seq.next_element()?, seq.next_element()?);
                let text: Option<Text> = seq.next_element()?;
                let of_domain = name == "domain";
                number.zip(piece).zip(text).map(|((number, piece), text)| PhaseRow::Name { of_domain, number, piece, text: text.0 })
            }
            (_, Some(what)) => edge(&mut seq, [What::Begin, What::End, What::Mark, What::Return][what])?.map(PhaseRow::Edge),
            _ => None,
        };
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(row.unwrap_or(PhaseRow::Other))
    }
}

fn edge<'de, A: SeqAccess<'de>>(seq: &mut A, what: What) -> Result<Option<EdgeRow>, A::Error> {
    let mut number = || seq.next_element::<u64>();
    let (t, lane, group, at, next) = (number()?, number()?, number()?, number()?, number()?);
    let source: Option<String> = seq.next_element()?;
    let mut number = || seq.next_element::<u64>();
    let (name, range) = (number()?, number()?);
    let live = seq.next_element::<i64>()?;
    let (usage, moved) = (numbers(seq)?, numbers(seq)?);
    let (Some(t), Some(lane), Some(group), Some(at), Some(next), Some(source)) = (t, lane, group, at, next, source) else {
        return Ok(None);
    };
    let Some(source) = SOURCES.iter().position(|s| *s == source) else { return Ok(None) };
    Ok(Some(EdgeRow {
        what,
        t,
        lane: u32::try_from(lane).unwrap_or(u32::MAX),
        group,
        at,
        seq: next,
        source: source as u8,
        name: name.and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
        range: range.unwrap_or(0),
        live: live.unwrap_or(0),
        usage,
        moved,
    }))
}

/// The next `N` numbers, where they are there.
fn numbers<'de, A: SeqAccess<'de>, const N: usize>(seq: &mut A) -> Result<Option<[u64; N]>, A::Error> {
    let mut all = [0; N];
    for slot in &mut all {
        let Some(n) = seq.next_element()? else { return Ok(None) };
        *slot = n;
    }
    Ok(Some(all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_mean_what_the_format_says() {
        let rows: Vec<PhaseRow> = serde_json::from_str(
            r#"[["begin",9,2,7,3,40,"nvtx",5,0,1000,1,2,3,4,5,6,7],["end",10,2,7,3,40,"api",0,8,900],["name",5,0,"so"],["tomorrow",1],["mark",1]]"#,
        )
        .unwrap();
        let begin = EdgeRow {
            what: What::Begin,
            t: 9,
            lane: 2,
            group: 7,
            at: 3,
            seq: 40,
            source: 0,
            name: 5,
            range: 0,
            live: 1000,
            usage: Some([1, 2, 3, 4, 5]),
            moved: Some([6, 7]),
        };
        assert_eq!(rows[0], PhaseRow::Edge(begin));
        assert!(
            matches!(&rows[1], PhaseRow::Edge(e) if e.source == 5 && e.range == 8 && (e.usage, e.moved) == (None, None) && e.what == What::End)
        );
        assert_eq!(rows[2], PhaseRow::Name { of_domain: false, number: 5, piece: 0, text: "so".into() });
        assert_eq!(rows[3..], [PhaseRow::Other, PhaseRow::Other]);
    }
}
