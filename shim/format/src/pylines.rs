//! Lines of Python source from the line tables of code objects, and how a node says its line. A frame is at an instruction, in units of two
//! bytes from the code's first; the table says which line that is. Three formats:
//!
//! - up to 3.9, `co_lnotab`: pairs of bytes. The first says how many bytes of code further, the second (signed) how many lines further. The
//!   line is what has been added up by all pairs that begin at or before the instruction.
//! - 3.10, `co_linetable`: pairs of bytes, a range each. The first is the range's length in bytes of code, the second (signed) its line
//!   less that of the ranges before; −128 a range that has no line.
//! - from 3.11, `co_linetable`: entries of a first byte with the upper bit set and further bytes without it. Three bits are the length less
//!   one in units, four a form: 0–9 the same line, with one byte; 10–12 zero to two lines further, with two bytes; 13 lines as a signed
//!   number, no columns; 14 lines, end lines and columns as numbers; 15 no line. Numbers are groups of six bits, the lowest first, 64 marks
//!   that one follows; signed ones have the sign in the lowest bit.

use crate::v93::{unzigzag, zigzag};

/// How a node says a line: 0 none, else one more than the zigzag of its distance from the code's first line. Below 2^30.
#[inline]
pub fn said(first_line: u32, line: Option<u32>) -> u32 {
    let Some(line) = line else { return 0 };
    match zigzag(line as i64 - first_line as i64) {
        far @ 0..0x3fff_fffe => far as u32 + 1,
        _ => 0,
    }
}

/// The line that [`said`] says.
pub fn line_said(first_line: u32, said: u32) -> Option<u32> {
    let distance = unzigzag(said.checked_sub(1)? as u64);
    u32::try_from(i64::from(first_line) + distance).ok()
}

/// The line of instruction `index` of a code object that begins at `first_line`; `None` where the table has none for it (instructions that
/// the compiler made up).
pub fn line(version: u16, table: &[u8], first_line: u32, index: u32) -> Option<u32> {
    let (mut line, mut found) = (i64::from(first_line), None);
    let wanted = u64::from(index) * if version < 0x030b { 2 } else { 1 };
    match version {
        ..0x030a => {
            let mut at = 0;
            for [bytes, lines] in table.as_chunks().0 {
                at += u64::from(*bytes);
                if at > wanted {
                    break;
                }
                line = line.wrapping_add(i64::from(*lines as i8));
            }
            found = Some(line);
        }
        0x030a => {
            let mut end = 0;
            for [bytes, lines] in table.as_chunks().0 {
                let none = *lines as i8 == -128;
                if !none {
                    line = line.wrapping_add(i64::from(*lines as i8));
                }
                end += u64::from(*bytes);
                if end > wanted {
                    found = (!none).then_some(line);
                    break;
                }
            }
        }
        _ => {
            let mut end = 0;
            let mut rest = table;
            while let Some((entry, tail)) = Entry::read(rest) {
                rest = tail;
                line = line.wrapping_add(entry.lines);
                end += entry.units;
                if end > wanted {
                    found = entry.has_line.then_some(line);
                    break;
                }
            }
        }
    }
    found.and_then(|n| u32::try_from(n).ok())
}

/// An entry of the table from 3.11 on.
struct Entry {
    units: u64,
    /// Lines further than the entry before.
    lines: i64,
    has_line: bool,
}

impl Entry {
    /// The entry at the beginning of `table`, and what follows it; `None` at the end, or where it is no table.
    fn read(table: &[u8]) -> Option<(Entry, &[u8])> {
        let (&head, rest) = table.split_first().filter(|(head, _)| **head & 0x80 != 0)?;
        let form = head >> 3 & 15;
        let lines = match form {
            11 | 12 => i64::from(form) - 10,
            13 | 14 => signed(rest),
            _ => 0,
        };
        Some((Entry { units: u64::from(head & 7) + 1, lines, has_line: form != 15 }, rest.get(besides(rest)..)?))
    }
}

/// Length of whatever an entry has beside its head: bytes without the upper bit.
fn besides(rest: &[u8]) -> usize {
    const UPPER: u64 = 0x8080_8080_8080_8080;
    // Seldom more than a word of them.
    if let Some((eight, _)) = rest.split_first_chunk() {
        let ends = u64::from_le_bytes(*eight) & UPPER;
        if ends != 0 {
            return ends.trailing_zeros() as usize / 8;
        }
    }
    rest.iter().position(|b| b & 0x80 != 0).unwrap_or(rest.len())
}

/// A signed number in groups of six bits.
fn signed(bytes: &[u8]) -> i64 {
    let mut n = 0u64;
    for (i, b) in bytes.iter().take(10).enumerate() {
        n |= u64::from(b & 63) << (6 * i);
        if b & 64 == 0 {
            break;
        }
    }
    let size = (n >> 1) as i64;
    if n & 1 == 1 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Every code object of some modules of the interpreter's library and of source made for it: version, first line, table, then the lines
    /// of its instructions as the interpreter says them.
    const SAY: &str = r#"
import sys, dis, types, os
sources = []
lib = os.path.dirname(os.__file__)
for name in ("os", "ast", "argparse", "typing", "dataclasses", "contextlib", "asyncio/base_events", "asyncio/tasks", "json/decoder", "enum", "inspect"):
    sources.append(open(os.path.join(lib, name + ".py"), encoding="utf-8").read())
sources.append("\n" * 300 + "x = (1 +\n" + "\n" * 500 + "  2)\n\ndef f(a, b):\n  return [i\n" + "\n" * 200 + "   for i in a if\n     b]\n")
sources.append("def g():\n  yield 1\n" + "".join("  y = %d; z = y\n" % i for i in range(3000)) + "  try:\n    h()\n  finally:\n    with k() as m: pass\n")
sources.append("(\n a\n  .b(1)\n" + "\n" * 40 + ".c(\n2))\n")
def say(code):
    n = len(code.co_code) // 2
    lines = [None] * n
    if hasattr(code, "co_lines"):
        for start, end, line in code.co_lines():
            for i in range(start // 2, min(end // 2, n)): lines[i] = line
        table = code.co_linetable
    else:
        starts = dict(dis.findlinestarts(code))
        line = code.co_firstlineno
        for i in range(n):
            line = starts.get(2 * i, line)
            lines[i] = line
        table = code.co_lnotab
    print(sys.version_info[0] << 8 | sys.version_info[1], code.co_firstlineno, table.hex() or "-", ",".join("-" if l is None else str(l) for l in lines))
    for c in code.co_consts:
        if isinstance(c, types.CodeType): say(c)
for s in sources: say(compile(s, "x.py", "exec"))
"#;

    #[test]
    fn lines_are_what_each_interpreter_says() {
        for minor in 7..=14 {
            let root = std::env::var("PYENV_ROOT").or_else(|_| std::env::var("HOME").map(|h| h + "/.pyenv")).unwrap_or_default();
            let prefix = format!("3.{minor}.");
            let versions = std::fs::read_dir(root + "/versions").into_iter().flatten().flatten();
            let Some(dir) = versions.map(|e| e.path()).find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&prefix)))
            else {
                println!("skipped: no Python 3.{minor}");
                continue;
            };
            let out = Command::new(dir.join("bin/python3")).args(["-c", SAY]).output().expect("run Python");
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            let mut compared = 0;
            for code in String::from_utf8(out.stdout).expect("text").lines() {
                let words: Vec<&str> = code.split(' ').collect();
                let [version, first, table, lines] = words[..] else { panic!("{code}") };
                let table: Vec<u8> = (0..table.len() / 2).map(|i| u8::from_str_radix(&table[2 * i..2 * i + 2], 16).expect("hex")).collect();
                for (i, said) in lines.split(',').enumerate() {
                    let ours = line(version.parse().expect("a number"), &table, first.parse().expect("a number"), i as u32);
                    assert_eq!(ours, said.parse().ok(), "3.{minor}, instruction {i} of the code at line {first}");
                    compared += 1;
                }
            }
            assert!(compared > 10_000, "3.{minor}: {compared}");
        }
    }

    #[test]
    fn broken_tables_give_no_line_and_no_panic() {
        for version in [0x0307, 0x030a, 0x030b] {
            for table in [
                &[][..],
                &[1],
                &[0x80],
                &[0xff; 9],
                &[0xf0, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f],
                &[0, 0x80, 1, 1],
            ] {
                for index in [0, 1, 7, u32::MAX] {
                    line(version, table, 1, index);
                }
            }
        }
        assert_eq!(line(0x030b, &[], 5, 0), None);
        assert_eq!(line(0x0309, &[], 5, 3), Some(5));
    }

    #[test]
    fn a_node_says_its_line() {
        for (first, line) in [(10, Some(10)), (10, Some(12)), (10, Some(3)), (1, Some(9_999_999)), (0, Some(0)), (10, None)] {
            assert_eq!(line_said(first, said(first, line)), line);
        }
        assert_eq!((said(7, Some(7)), said(7, None), said(0, Some(u32::MAX))), (1, 0, 0));
    }
}
