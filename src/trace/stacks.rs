//! Lines that call stacks are made of: loaded modules, nodes of the two trees of frames, code objects of Python.
//!
//! A node is a frame and the node of its caller. Nodes are numbered by lane; what a number means is the model's matter.

use memshim_format::{pylines, v93::unzigzag};
use serde::Deserialize;

use super::column::Column;
use super::line::{Text, bytes_of_hex};

/// Modules that came and went.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Modules {
    pub t: u64,
    pub load: Vec<Module>,
    pub unload: Vec<u64>,
}

/// A program or library in memory.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "ModuleRow")]
pub struct Module {
    pub id: u64,
    /// Address in the file = address in memory − bias.
    pub bias: u64,
    pub path: String,
    /// Empty where it has none.
    pub build_id: Vec<u8>,
    /// Executable ranges in memory.
    pub ranges: Vec<(u64, u64)>,
}

#[derive(Deserialize)]
struct ModuleRow(u64, u64, Text, String, Vec<(u64, u64)>);

impl From<ModuleRow> for Module {
    fn from(ModuleRow(id, bias, path, build_id, ranges): ModuleRow) -> Self {
        Module { id, bias, path: path.0, build_id: bytes_of_hex(&build_id), ranges }
    }
}

/// Native nodes `from`, `from` + 1, … of a lane.
#[derive(Debug, Deserialize)]
pub struct Nodes<'a> {
    pub lane: u32,
    pub from: u32,
    #[serde(default)]
    pub n: u64,
    #[serde(borrow, default)]
    pub nodes: Column<'a>,
}

/// A native node as its line has it: caller's number (0: none), program counter, and whether a signal interrupted it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativeNode {
    pub parent: u32,
    pub frame: u64,
}

/// A node of Python: caller's number, code object, line or instruction ([`Code::line`]) and whether C called into the interpreter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonNode {
    pub parent: u32,
    pub code: u32,
    pub at: u32,
    pub entry: bool,
}

impl Nodes<'_> {
    /// The nodes of a `nodes` line with their numbers, as far as they can be read, and how many can't.
    pub fn native(&self) -> (Vec<(u32, NativeNode)>, u64) {
        let mut frame = 0u64;
        self.rows::<2, _>(|n, [back, delta]| {
            frame = frame.wrapping_add(unzigzag(delta) as u64);
            Some(NativeNode { parent: parent(n, back)?, frame })
        })
    }

    /// The same of a `pynodes` line.
    pub fn python(&self) -> (Vec<(u32, PythonNode)>, u64) {
        self.rows::<3, _>(|n, [back, code, at]| {
            Some(PythonNode {
                parent: parent(n, back)?,
                code: u32::try_from(code).ok()?,
                at: u32::try_from(at >> 1).ok()?,
                entry: at & 1 == 1,
            })
        })
    }

    fn rows<const N: usize, T>(&self, mut each: impl FnMut(u32, [u64; N]) -> Option<T>) -> (Vec<(u32, T)>, u64) {
        let Some(values) = self.nodes.values() else { return (Vec::new(), self.n.max(1)) };
        let (rows, rest) = values.as_chunks::<N>();
        let mut all = Vec::with_capacity(rows.len());
        let mut bad = !rest.is_empty() as u64 + (rows.len() as u64).abs_diff(self.n).min(1);
        for (i, row) in rows.iter().enumerate() {
            match u32::try_from(i).ok().and_then(|i| self.from.checked_add(i)).filter(|n| *n > 0) {
                Some(n) => match each(n, *row) {
                    Some(node) => all.push((n, node)),
                    None => bad += 1,
                },
                None => bad += 1,
            }
        }
        (all, bad)
    }
}

/// Callers come before those they call.
fn parent(n: u32, back: u64) -> Option<u32> {
    let back = u32::try_from(back).ok().filter(|b| *b > 0)?;
    n.checked_sub(back)
}

#[derive(Debug, Deserialize)]
pub struct Codes {
    pub codes: Vec<Code>,
}

/// A code object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "CodeRow")]
pub struct Code {
    pub number: u32,
    pub file: String,
    /// Qualified where the interpreter knows that.
    pub name: String,
    pub first_line: u32,
    /// 0x030b is 3.11.
    pub version: u32,
    /// `co_lnotab` up to 3.9, `co_linetable` from 3.10 on, in a trace whose nodes say instructions. `None`: they say lines.
    pub lines: Option<Vec<u8>>,
}

impl Code {
    /// The line of a node that says `at`; one that has none is at the first.
    pub fn line(&self, at: u32) -> Option<u32> {
        let line = match &self.lines {
            Some(table) => pylines::line(u16::try_from(self.version).unwrap_or(u16::MAX), table, self.first_line, at),
            None => pylines::line_said(self.first_line, at),
        };
        line.or((self.first_line > 0).then_some(self.first_line))
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum CodeRow {
    Bare(u32, Text, Text, u32, u32),
    WithTable(u32, Text, Text, u32, u32, String),
}

impl From<CodeRow> for Code {
    fn from(row: CodeRow) -> Self {
        let (number, file, name, first_line, version, lines) = match row {
            CodeRow::Bare(number, file, name, first_line, version) => (number, file, name, first_line, version, None),
            CodeRow::WithTable(number, file, name, first_line, version, lines) => {
                (number, file, name, first_line, version, Some(bytes_of_hex(&lines)))
            }
        };
        Code { number, file: file.0, name: name.0, first_line, version, lines }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_come_with_their_numbers_and_callers() {
        let line: Nodes = serde_json::from_str(r#"{"lane":3,"from":5,"n":2,"nodes":[5,8192,1,3]}"#).unwrap();
        let (nodes, bad) = line.native();
        assert_eq!(nodes, [(5, NativeNode { parent: 0, frame: 4096 }), (6, NativeNode { parent: 5, frame: 4094 })]);
        assert_eq!(bad, 0);
        let line: Nodes = serde_json::from_str(r#"{"lane":3,"from":1,"n":2,"nodes":[1,7,21,1,8,4]}"#).unwrap();
        let (nodes, bad) = line.python();
        let (a, b) = (PythonNode { parent: 0, code: 7, at: 10, entry: true }, PythonNode { parent: 1, code: 8, at: 2, entry: false });
        assert_eq!((nodes, bad), (vec![(1, a), (2, b)], 0));
    }

    #[test]
    fn what_cannot_be_a_node_is_counted() {
        let bad = |text: &str| serde_json::from_str::<Nodes>(text).unwrap().native().1;
        assert_eq!(bad(r#"{"lane":0,"from":1,"n":1,"nodes":[0,2]}"#), 1, "its own caller");
        assert_eq!(bad(r#"{"lane":0,"from":1,"n":1,"nodes":[2,2]}"#), 1, "a caller before the first");
        assert_eq!(bad(r#"{"lane":0,"from":0,"n":1,"nodes":[1,2]}"#), 1, "number 0");
        assert_eq!(bad(r#"{"lane":0,"from":4294967295,"n":2,"nodes":[1,2,1,2]}"#), 1, "beyond all numbers");
        assert_eq!(bad(r#"{"lane":0,"from":1,"n":1,"nodes":[1,2,3]}"#), 1, "half a node");
        assert_eq!(bad(r#"{"lane":0,"from":1,"n":9,"nodes":[1,2]}"#), 1, "fewer than it says");
        assert_eq!(bad(r#"{"lane":0,"from":1,"n":9,"nodes":"~"}"#), 9, "a column that breaks off");
    }

    #[test]
    fn modules_and_code_are_rows() {
        let m: Modules = serde_json::from_str(r#"{"t":1,"load":[[2,4096,"/lib/x.so","0aff",[[4096,8192]]]],"unload":[1]}"#).unwrap();
        let x = Module { id: 2, bias: 4096, path: "/lib/x.so".into(), build_id: vec![10, 255], ranges: vec![(4096, 8192)] };
        assert_eq!((&m.load[0], m.unload), (&x, vec![1]));
        let c: Codes = serde_json::from_str(r#"{"codes":[[1,"a.py","f.<locals>.g",7,779,"0001"]]}"#).unwrap();
        assert_eq!((c.codes[0].first_line, c.codes[0].version, c.codes[0].lines.as_deref()), (7, 0x30b, Some(&[0, 1][..])));
    }

    #[test]
    fn lines_are_of_nodes_or_of_a_table() {
        let c: Codes =
            serde_json::from_str(r#"{"codes":[[1,"a.py","f",7,779],[2,{"hex":"ff"},"g",7,775,"00010401"],[3,"a.py","h",0,779]]}"#).unwrap();
        let lines = |n: usize, at: [u32; 3]| at.map(|at| c.codes[n].line(at));
        assert_eq!(lines(0, [0, 1, 1 + 2 * 5]), [Some(7), Some(7), Some(12)], "said by the node; 0 is none: the first");
        assert_eq!(lines(1, [0, 1, 2]), [Some(8), Some(8), Some(9)], "of instructions by the table");
        assert_eq!(lines(2, [0, 1, 2]), [None, Some(0), None]);
    }
}
