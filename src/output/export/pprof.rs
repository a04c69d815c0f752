//! pprof's protocol buffer (`profile.proto`), written by hand: five messages of integers and strings. Not compressed, which its readers accept.

use std::collections::HashMap;
use std::io::{self, Write};

use crate::analyze::profile::Profile;
use crate::analyze::report::Frame;
use crate::analyze::views::{Measure, label};
use crate::model::units::whole;

/// A type of a sample's values: name, unit, and what is measured; `None`: allocations.
type ValueType = (&'static str, &'static str, Option<Measure>);

/// Those that there are, in their order.
const VALUES: [ValueType; 5] = [
    ("peak_space", "bytes", Some(Measure::Peak)),
    ("leaked_space", "bytes", Some(Measure::Leaked)),
    ("temporary_objects", "count", Some(Measure::Temporary)),
    ("alloc_space", "bytes", Some(Measure::Total)),
    ("alloc_objects", "count", None),
];

/// A message: fields one after another.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    /// Zero is what a field is without being there.
    fn int(&mut self, field: u64, n: u64) {
        if n != 0 {
            self.varint(field << 3);
            self.varint(n);
        }
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn message(&mut self, field: u64, of: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        of(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn packed(&mut self, field: u64, all: impl IntoIterator<Item = u64>) {
        self.message(field, |m| all.into_iter().for_each(|n| m.varint(n)));
    }
}

/// The string table; its first is empty.
struct Strings {
    all: Vec<String>,
    known: HashMap<String, u64>,
}

impl Strings {
    fn number(&mut self, text: &str) -> u64 {
        if let Some(&known) = self.known.get(text) {
            return known;
        }
        self.all.push(text.to_owned());
        self.known.insert(text.to_owned(), self.all.len() as u64 - 1);
        self.all.len() as u64 - 1
    }
}

pub fn write(profile: &Profile, measure: Measure, out: &mut impl Write) -> io::Result<()> {
    let mut strings = Strings { all: vec![String::new()], known: HashMap::from([(String::new(), 0)]) };
    let mut m = Message::default();
    let values: Vec<ValueType> = VALUES.into_iter().filter(|(.., of)| of.is_none_or(|m| profile.tells(m))).collect();
    for (name, unit, _) in &values {
        let (name, unit) = (strings.number(name), strings.number(unit));
        m.message(1, |v| {
            v.int(1, name);
            v.int(2, unit);
        });
    }
    let (pid, command) = (strings.number("pid"), strings.number("command"));
    for p in &profile.processes {
        let of = strings.number(&p.command);
        for (stack, sums) in &p.rows {
            m.message(2, |s| {
                s.packed(1, stack.frames.iter().map(|f| *f as u64 + 1));
                s.packed(2, values.iter().map(|(.., of)| of.map_or(sums.allocs.round() as u64, |m| whole(m.of(sums)))));
                s.message(3, |l| {
                    l.int(1, pid);
                    l.int(3, p.pid as u64);
                });
                s.message(3, |l| {
                    l.int(1, command);
                    l.int(2, of);
                });
            });
        }
    }
    let modules = mappings(profile, &mut strings, &mut m);
    let functions = locations(profile, &modules, &mut strings, &mut m);
    for (id, function) in (1..).zip(&functions) {
        m.message(5, |f| {
            f.int(1, id);
            f.int(2, function.0);
            f.int(3, function.0);
            f.int(4, function.1);
        });
    }
    let shown = values.iter().find(|(.., of)| *of == Some(measure)).map_or("", |(name, ..)| name);
    let shown = strings.number(shown);
    strings.all.iter().for_each(|s| m.bytes(6, s.as_bytes()));
    let start = profile.processes.iter().map(|p| p.start_ns).min().unwrap_or(0);
    m.int(9, start);
    m.int(10, profile.processes.iter().map(|p| p.wall_ns).max().unwrap_or(0));
    m.int(14, shown);
    out.write_all(&m.0)
}

/// Modules by path; gives their numbers.
fn mappings<'a>(profile: &'a Profile, strings: &mut Strings, m: &mut Message) -> HashMap<&'a str, u64> {
    let mut ids = HashMap::new();
    for module in profile.frames.iter().filter_map(|f| f.module.as_deref()) {
        let next = ids.len() as u64 + 1;
        if *ids.entry(module).or_insert(next) == next && ids.len() as u64 == next {
            let file = strings.number(module);
            m.message(3, |v| {
                v.int(1, next);
                v.int(5, file);
                // Names, files, lines and inlined frames are there: nothing is left for the reader to look up.
                [7, 8, 9, 10].iter().for_each(|f| v.int(*f, 1));
            });
        }
    }
    ids
}

/// A location for each frame; gives the functions: name and file.
fn locations(profile: &Profile, modules: &HashMap<&str, u64>, strings: &mut Strings, m: &mut Message) -> Vec<(u64, u64)> {
    let mut ids: HashMap<(u64, u64), u64> = HashMap::new();
    let mut functions = Vec::new();
    for (id, frame) in (1..).zip(&profile.frames) {
        let key = (strings.number(&name(frame)), strings.number(frame.file.as_deref().unwrap_or("")));
        let function = *ids.entry(key).or_insert_with(|| {
            functions.push(key);
            functions.len() as u64
        });
        m.message(4, |l| {
            l.int(1, id);
            l.int(2, frame.module.as_deref().and_then(|p| modules.get(p)).copied().unwrap_or(0));
            l.int(3, frame.addr.unwrap_or(0));
            l.message(4, |line| {
                line.int(1, function);
                line.int(2, frame.line.unwrap_or(0) as u64);
            });
        });
    }
    functions
}

fn name(frame: &Frame) -> String {
    frame.function.clone().unwrap_or_else(|| label(frame))
}
