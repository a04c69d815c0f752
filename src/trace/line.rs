//! The lines of a trace as types: one struct a line type, keys as in `docs/trace-format.md`. What they mean is the model's matter.
//!
//! Keys that are absent read as zero; keys and types that are not known are skipped, so that a newer trace stays readable.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::column::Column;
use super::gpurow::GpuRow;
use super::maprow::MapRow;
use super::phase::PhaseRow;
use super::stacks::{Codes, Modules, Nodes};

/// One line, parsed.
#[derive(Debug)]
pub enum Line<'a> {
    Ev(Ev<'a>),
    Header(Box<Header>),
    Process(Process),
    /// Of Python's own blocks; so are the next two.
    PyEv(Ev<'a>),
    PyCalls(Calls),
    PyThread(Thread),
    Kinds(Kinds),
    Calls(Calls),
    Maps(Rows<MapRow>),
    Gpu(Rows<GpuRow>),
    Phase(Rows<PhaseRow>),
    Modules(Modules),
    Nodes(Nodes<'a>),
    PyNodes(Nodes<'a>),
    Codes(Codes),
    Python(Python),
    Thread(Thread),
    Rss(Rss),
    Snap(Value),
    Child(Child),
    Lost(Lost),
    Note(String),
    Mode(Lowered),
    End(End),
    Outside(Value),
    /// A type this version does not know.
    Unknown,
}

/// Recording was lowered: from `t` on it is `fast`, or `count` (totals only).
#[derive(Clone, Debug, Deserialize)]
pub struct Lowered {
    #[serde(default)]
    pub t: u64,
    pub mode: String,
    #[serde(default)]
    pub why: Text,
    /// Of the write that failed, where that was why; else the trace reached its cap.
    #[serde(default)]
    pub errno: Option<i32>,
    /// Where what was read since could not be written: every event before is in the trace.
    #[serde(default)]
    pub whole: Option<u64>,
}

impl Lowered {
    /// What was recorded before is in the trace.
    pub fn told_until(&self) -> u64 {
        if self.mode == "fast" { self.t } else { self.whole.unwrap_or(0) }
    }
}

/// A string, or its bytes where they are not UTF-8 (`{"hex":…}`); such bytes are shown replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(pub String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Plain(String),
            Hex { hex: String },
            Other(serde::de::IgnoredAny),
        }
        Ok(Text(match Form::deserialize(d)? {
            Form::Plain(s) => s,
            Form::Hex { hex } => String::from_utf8_lossy(&bytes_of_hex(&hex)).into_owned(),
            Form::Other(_) => String::new(),
        }))
    }
}

/// The bytes of hexadecimal digits; others count as 0.
pub(super) fn bytes_of_hex(hex: &str) -> Vec<u8> {
    let digit = |c: u8| (c as char).to_digit(16).unwrap_or(0) as u8;
    hex.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

#[derive(Debug, Deserialize)]
pub struct Ev<'a> {
    pub g: u64,
    pub lane: u32,
    pub n: u64,
    pub seq: u64,
    pub t0: u64,
    pub t1: u64,
    /// What happened before, in whichever lane, is in this group or an earlier one; the group's first line says so where there are several lanes.
    #[serde(default)]
    pub whole: Option<u64>,
    #[serde(borrow, default)]
    pub t: Column<'a>,
    #[serde(borrow, default)]
    pub k: Column<'a>,
    #[serde(borrow, default)]
    pub x: Column<'a>,
    #[serde(borrow, default)]
    pub z: Column<'a>,
    /// Native stacks of the allocations.
    #[serde(borrow, default)]
    pub s: Column<'a>,
    /// Python stacks of the allocations.
    #[serde(borrow, default)]
    pub p: Column<'a>,
    #[serde(default)]
    pub allocs: u64,
    #[serde(default)]
    pub frees: u64,
    #[serde(default)]
    pub bytes: u64,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub struct Header {
    pub v: u32,
    pub run: String,
    pub pid: u32,
    pub ppid: u32,
    pub start_ticks: u64,
    pub pid_ns: u64,
    pub exec: u32,
    pub mode: String,
    pub tick_ns: u64,
    pub mono_ns: u64,
    pub wall_ns: u64,
    pub host: Text,
    pub exe: Text,
    pub argv: Vec<Text>,
    pub cwd: Text,
    pub rank: Value,
    pub job: Value,
    /// `skip`: processes that it starts are not recorded, as was asked.
    pub children: String,
    /// Column `x` says how often its lane had allocated at each event.
    pub ages: bool,
    /// Between two looks, lines of counts among them, ns.
    pub interval_ns: u64,
    pub big: u64,
    pub sample: u64,
    pub page: u64,
    pub allocator: Text,
    pub slack: Option<u64>,
    /// False: the program's heap calls do not come to the shim.
    pub heap_seen: Option<bool>,
    pub fns: Vec<String>,
    /// Functions of Python's allocators, where their blocks are recorded.
    pub python_fns: Option<Vec<String>>,
    pub inherited: Option<Inherited>,
    pub spool: Text,
    pub python: Option<Text>,
    /// Whether its frames can be read; not said where they can.
    pub python_known: Option<bool>,
    /// Which stacks are recorded: `off`, `native`, `python`, `mixed`; empty in traces that know of none.
    pub stacks: String,
}

/// Which interpreter was found, and whether its frames can be read.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub struct Python {
    pub t: u64,
    pub version: Option<Text>,
    pub known: bool,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub struct Inherited {
    pub live: i64,
    pub blocks: i64,
    pub from: u32,
    pub python_live: i64,
    pub python_blocks: i64,
    /// Place of the first map call after the fork, in the parent's order of them; not said by older versions.
    pub map_ticket: Option<u64>,
}

/// The lines that follow are of this process (and, where it says so, of an earlier image of it).
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct Process {
    pub pid: u32,
    #[serde(default)]
    pub start_ticks: u64,
    #[serde(default)]
    pub exec: Option<u32>,
    /// They were read from its spool when it was gone.
    #[serde(default)]
    pub recovered: bool,
}

#[derive(Debug, Deserialize)]
pub struct Kinds {
    pub from: u32,
    pub kinds: Vec<(u32, i64, u32, u32)>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Calls {
    pub t: u64,
    /// fn, calls, bytes
    pub fns: Vec<(usize, u64, u64)>,
    pub live: i64,
    pub blocks: i64,
    pub failed: u64,
    pub lost: u64,
    /// Records that were never finished or can't be read: each may be of a counted call, or of none.
    pub broken: u64,
    /// lane, allocs, bytes, frees, live, hi
    pub lanes: Vec<(u32, u64, u64, u64, i64, i64)>,
    /// For each row of `lanes`: live blocks when the lane's bytes were highest.
    pub hi_blocks: Vec<i64>,
}

/// Rows, one a call.
#[derive(Debug, Deserialize)]
pub struct Rows<T> {
    pub ev: Vec<T>,
    /// Native and Python node of each row's stack; empty where there are none.
    #[serde(default = "Vec::new")]
    pub s: Vec<u64>,
}

#[derive(Debug, Deserialize)]
pub struct Thread {
    #[serde(default)]
    pub t: u64,
    pub lane: u32,
    pub tid: u32,
    #[serde(default)]
    pub seq: u64,
    pub what: String,
    #[serde(default)]
    pub name: Text,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
pub struct Rss {
    pub t: u64,
    pub rss: u64,
    pub hwm: u64,
    pub anon: u64,
    pub file: u64,
    pub shmem: u64,
    pub hugetlb: u64,
    pub stk: u64,
    /// Processor time of the process so far, ns.
    pub cpu: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub struct Child {
    #[serde(default)]
    pub t: u64,
    pub how: String,
    #[serde(default)]
    pub pid: u32,
    /// Name of the program's file, where it is known.
    #[serde(default)]
    pub program: Option<Text>,
    /// Of one that ended: by which signal.
    #[serde(default)]
    pub signal: Option<i32>,
    /// False: its environment does not bring it the library.
    #[serde(default)]
    pub preload: Option<bool>,
}

#[derive(Debug, Deserialize)]
pub struct Lost {
    #[serde(default)]
    pub lane: u32,
    pub n: u64,
    /// What they are, where they are no heap calls.
    pub what: Option<Text>,
    #[serde(default)]
    pub why: Text,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default)]
pub struct End {
    pub t: u64,
    pub how: String,
    pub code: Option<i32>,
    pub counted: Option<u64>,
    pub recorded: Option<u64>,
    pub lost: Option<u64>,
    pub own: Option<Value>,
    pub python: Option<PythonEnd>,
}

/// What the end line says of Python's blocks.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
pub struct PythonEnd {
    /// The program had an interpreter from its start on.
    pub wrapped: bool,
    pub counted: u64,
    pub lost: u64,
}

/// Reads one line. The error text says what was wrong; nothing of such a line can be used.
pub fn parse(line: &[u8]) -> Result<Line<'_>, serde_json::Error> {
    // Nearly all bytes are in these; the others first have their type looked up.
    if line.starts_with(br#"{"type":"ev","#) {
        return serde_json::from_slice(line).map(Line::Ev);
    }
    if line.starts_with(br#"{"type":"pyev","#) {
        return serde_json::from_slice(line).map(Line::PyEv);
    }
    #[derive(Deserialize)]
    struct TypeOnly<'a> {
        #[serde(borrow, default)]
        r#type: Cow<'a, str>,
    }
    #[derive(Deserialize)]
    struct What {
        #[serde(default)]
        what: Text,
    }
    let kind: TypeOnly = serde_json::from_slice(line)?;
    Ok(match &*kind.r#type {
        "ev" => Line::Ev(serde_json::from_slice(line)?),
        "pyev" => Line::PyEv(serde_json::from_slice(line)?),
        "pycalls" => Line::PyCalls(serde_json::from_slice(line)?),
        "pythread" => Line::PyThread(serde_json::from_slice(line)?),
        "header" => Line::Header(serde_json::from_slice(line)?),
        "process" => Line::Process(serde_json::from_slice(line)?),
        "kinds" => Line::Kinds(serde_json::from_slice(line)?),
        "calls" => Line::Calls(serde_json::from_slice(line)?),
        "maps" => Line::Maps(serde_json::from_slice(line)?),
        "gpu" => Line::Gpu(serde_json::from_slice(line)?),
        "phase" => Line::Phase(serde_json::from_slice(line)?),
        "modules" => Line::Modules(serde_json::from_slice(line)?),
        "nodes" => Line::Nodes(serde_json::from_slice(line)?),
        "pynodes" => Line::PyNodes(serde_json::from_slice(line)?),
        "code" => Line::Codes(serde_json::from_slice(line)?),
        "python" => Line::Python(serde_json::from_slice(line)?),
        "thread" => Line::Thread(serde_json::from_slice(line)?),
        "rss" => Line::Rss(serde_json::from_slice(line)?),
        "snap" => Line::Snap(serde_json::from_slice(line)?),
        "child" => Line::Child(serde_json::from_slice(line)?),
        "lost" => Line::Lost(serde_json::from_slice(line)?),
        "mode" => Line::Mode(serde_json::from_slice(line)?),
        "note" => Line::Note(serde_json::from_slice::<What>(line)?.what.0),
        "end" => Line::End(serde_json::from_slice(line)?),
        "outside" => Line::Outside(serde_json::from_slice(line)?),
        _ => Line::Unknown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_lines_are_read() {
        let docs = include_str!("../../docs/trace-format.md").replace("…16 hex", "").replace("{…same…}", "{}").replace("{…}", "{}");
        // What stands in quotes or after a colon is left out there, and so are ends of lists.
        let docs = docs.replace("\"…\"", "\"\"").replace(":…", ":0").replace(",…", "").replace("…", "");
        let mut read = 0;
        for line in docs.lines().map(str::trim).filter(|l| l.starts_with("{\"type\"")) {
            let Some(end) = line.rfind('}') else { continue };
            if let Err(e) = parse(&line.as_bytes()[..=end]) {
                // Some are broken over two lines in the document.
                assert!(e.is_eof() || line.contains(",\n"), "{e}: {line}");
                continue;
            }
            read += 1;
        }
        assert!(read >= 6, "{read}");
    }

    #[test]
    fn a_string_that_is_not_utf8_comes_as_hex() {
        let t: Text = serde_json::from_str(r#"{"hex":"61ff"}"#).unwrap();
        assert_eq!(t.0, "a\u{fffd}");
    }

    #[test]
    fn keys_in_another_order_and_unknown_types_are_fine() {
        assert!(matches!(parse(br#"{"g":1,"lane":0,"n":0,"seq":0,"t0":0,"t1":0,"new":{"a":[1]},"type":"ev"}"#), Ok(Line::Ev(_))));
        assert!(matches!(parse(br#"{"type":"tomorrow","x":1}"#), Ok(Line::Unknown)));
        assert!(parse(br#"{"type":"ev","g":1"#).is_err());
    }
}
