//! Stacks in what a dead process's spool holds: the pending ones, and records about stacks that the drain had not read, as lines.

use super::column::push_v93;
use super::recover::push_line;
use super::ring::Record;
use super::spool::Lane;
use memshim_format::record::{TEXT_BYTES, has_stack, nodes_of, op, parts_of_code, stack, start};
use serde_json::Value;

/// Where a lane is in its stacks while its records are read.
pub struct Callers {
    lane: u32,
    now: u64,
    written: u64,
    /// Columns `s` and `p`, and the events up to the last pair of each.
    columns: [(Vec<u8>, u64); 2],
    /// Version, number and lengths of the definition being read, and its texts so far.
    definition: Option<(u32, u64, u64)>,
    texts: Vec<u8>,
}

impl Callers {
    /// Continues after what the drain has taken over.
    pub fn after(lane: u32, of: &Lane) -> Callers {
        let s = &of.commit.stacks;
        let definition = (s.d_number != 0).then_some((s.d_version, s.d_number, s.d_parts));
        Callers { lane, now: s.now, written: stack(0, 0), columns: Default::default(), definition, texts: of.d.clone() }
    }

    /// A record about stacks.
    pub fn take(&mut self, r: &Record, out: &mut Vec<u8>) {
        let (lane, number) = (self.lane, r.low);
        let node = |kind, frame: String, out: &mut Vec<u8>| {
            let up = number.wrapping_sub(r.args[0]);
            push_line(out, format_args!(r#"{{"type":"{kind}","lane":{lane},"from":{number},"n":1,"nodes":[{up},{frame}]}}"#));
        };
        match r.op {
            op::STACK => self.now = start(r.op, r.arg, r.low),
            op::NODE => node("nodes", memshim_format::v93::zigzag(r.args[1] as i64).to_string(), out),
            op::PYNODE => node("pynodes", format!("{},{}", r.args[1] >> 32, r.args[1] & 0xffff_ffff), out),
            op::CODE => {
                self.definition = Some((r.arg as u32, number, r.args[0]));
                self.texts.clear();
                self.define(out);
            }
            op::TEXT => {
                let bytes = r.args.iter().flat_map(|word| word.to_le_bytes().into_iter().take(7));
                self.texts.extend(bytes.take((r.low as usize).min(TEXT_BYTES)));
                self.define(out);
            }
            _ => {}
        }
    }

    /// Writes the definition if all of it is there.
    fn define(&mut self, out: &mut Vec<u8>) {
        let Some((version, number, parts)) = self.definition else { return };
        let (first_line, [file, name]) = parts_of_code(parts);
        let Some(texts) = self.texts.get(..file + name) else { return };
        let text = |bytes: &[u8]| match std::str::from_utf8(bytes) {
            Ok(text) => Value::from(text),
            Err(_) => serde_json::json!({"hex": hex(bytes)}),
        };
        let (path, function) = (text(&texts[..file]), text(&texts[file..]));
        push_line(out, format_args!(r#"{{"type":"code","codes":[[{number},{path},{function},{first_line},{version}]]}}"#));
        self.definition = None;
    }

    /// An allocation follows, after so many events of the batch.
    pub fn note(&mut self, events: u64) {
        let (now, was) = (nodes_of(self.now), nodes_of(self.written));
        self.written = self.now;
        for (column, (now, was)) in self.columns.iter_mut().zip([(now.0, was.0), (now.1, was.1)]) {
            if now != was {
                push_v93(&mut column.0, events - column.1);
                push_v93(&mut column.0, now.into());
                column.1 = events;
            }
        }
    }

    /// Keys of the batch's line, with a comma in front of each.
    pub fn columns(&self) -> String {
        let [s, p] = &self.columns;
        keys(&s.0, &p.0)
    }

    /// The same for a row that is a line of its own.
    pub fn row(&self, op: u8) -> String {
        match nodes_of(self.now) {
            _ if !has_stack(start(op, 0, 0)) => String::new(),
            (0, 0) => String::new(),
            (native, python) => format!(r#","s":[{native},{python}]"#),
        }
    }
}

/// Columns `s` and `p` as keys of a line, where they are not empty.
pub fn keys(s: &[u8], p: &[u8]) -> String {
    let key = |name, column: &[u8]| match column {
        [] => String::new(),
        _ => format!(r#","{name}":"{}""#, String::from_utf8_lossy(column)),
    };
    key("s", s) + &key("p", p)
}

/// Nodes that the drain had taken over and not written.
pub fn write_nodes(lane: u32, of: &Lane, out: &mut Vec<u8>) {
    for ((kind, nodes), column) in ["nodes", "pynodes"].iter().zip(&of.commit.stacks.nodes).zip(&of.nodes) {
        if nodes.count > 0 {
            let (from, n, column) = (nodes.from, nodes.count, String::from_utf8_lossy(column));
            push_line(out, format_args!(r#"{{"type":"{kind}","lane":{lane},"from":{from},"n":{n},"nodes":"{column}"}}"#));
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
