//! Rows of a `gpu` line: `["copy", "cuMemcpyHtoDAsync", tk, t, lane, code, device, context, flags, …]`, and names.

use std::borrow::Cow;
use std::fmt;

use memshim_format::gpu::{CALLS, KINDS, kind};
use serde::de::{Deserialize, Deserializer, IgnoredAny, SeqAccess, Visitor};

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuRow {
    Event(Event),
    Name {
        what: u64,
        number: u64,
        text: String,
    },
    /// Of a kind that this version does not know, or too short.
    Other,
}

/// A row of numbers; what `words` are, its kind says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Index in [`KINDS`].
    pub kind: u8,
    /// The driver's function; empty where it is of none.
    pub call: Cow<'static, str>,
    pub ticket: u64,
    pub t: u64,
    /// The lane; the thread that used it, once the model has taken it in.
    pub lane: u32,
    pub code: u32,
    /// 255: not known.
    pub device: u8,
    pub context: u32,
    pub flags: u64,
    pub words: [u64; 5],
    /// Call site, once the model has taken it in; 0: none known.
    pub site: u32,
}

impl<'de> Deserialize<'de> for GpuRow {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_seq(RowVisitor)
    }
}

struct RowVisitor;

impl<'de> Visitor<'de> for RowVisitor {
    type Value = GpuRow;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a kind, a call, and numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<GpuRow, A::Error> {
        let name: Cow<str> = seq.next_element()?.unwrap_or_default();
        let kind = KINDS.iter().position(|k| k.name == name);
        let row = match kind {
            Some(k) if k == kind::NAME as usize => read_name(&mut seq)?,
            Some(k) => read_event(&mut seq, k)?,
            None => None,
        };
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(row.unwrap_or(GpuRow::Other))
    }
}

fn read_name<'de, A: SeqAccess<'de>>(seq: &mut A) -> Result<Option<GpuRow>, A::Error> {
    let (what, number) = (seq.next_element::<u64>()?, seq.next_element::<u64>()?);
    let text = seq.next_element::<super::line::Text>()?;
    Ok(match (what, number, text) {
        (Some(what), Some(number), Some(text)) => Some(GpuRow::Name { what, number, text: text.0 }),
        _ => None,
    })
}

fn read_event<'de, A: SeqAccess<'de>>(seq: &mut A, kind: usize) -> Result<Option<GpuRow>, A::Error> {
    let Some(call) = seq.next_element::<Cow<str>>()? else { return Ok(None) };
    let call = match CALLS.iter().find(|c| **c == call) {
        Some(known) => Cow::Borrowed(*known),
        None => Cow::Owned(call.into_owned()),
    };
    let mut n = [0u64; 12];
    for slot in n.iter_mut().take(7 + KINDS[kind].words) {
        match seq.next_element::<u64>()? {
            Some(v) => *slot = v,
            None => return Ok(None),
        }
    }
    let [ticket, t, lane, code, device, context, flags, words @ ..] = n;
    Ok(Some(GpuRow::Event(Event {
        kind: kind as u8,
        call,
        ticket,
        t,
        lane: lane as u32,
        code: code as u32,
        device: device.min(255) as u8,
        context: context as u32,
        flags,
        words,
        site: 0,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_all_kinds_are_read_and_unknown_ones_kept_apart() {
        let rows: Vec<GpuRow> = serde_json::from_str(
            r#"[["copy","cuMemcpyHtoD",7,100,0,0,1,2,1025,4096,50,1,0,1],["name",1,0,"A GPU"],["free","cuMemFree",8,1],["later",1,[2]]]"#,
        )
        .unwrap();
        let GpuRow::Event(e) = &rows[0] else { panic!("{:?}", rows[0]) };
        assert_eq!((e.kind, &*e.call, e.ticket, e.device, e.context, e.words), (kind::COPY, "cuMemcpyHtoD", 7, 1, 2, [4096, 50, 1, 0, 1]));
        assert_eq!(rows[1], GpuRow::Name { what: 1, number: 0, text: "A GPU".into() });
        assert_eq!(rows[2..], [GpuRow::Other, GpuRow::Other]);
    }
}
