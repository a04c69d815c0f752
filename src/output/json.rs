//! The report as JSON: the contract's keys, one object. Its outer levels are laid out for the eye, what lies deeper (rows of numbers)
//! takes a line each.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

use crate::analyze::report::Report;

/// Levels that are laid out: report, runs, run, its parts, and the lists in them.
const DEEP: usize = 5;

/// Writes the report and a line end.
pub fn write(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let mut json = serde_json::Serializer::with_formatter(&mut *out, Layered::default());
    report.serialize(&mut json)?;
    out.write_all(b"\n")
}

#[derive(Default)]
struct Layered {
    depth: usize,
    pretty: PrettyFormatter<'static>,
}

/// Hands a call on to the formatter of the level.
macro_rules! by_depth {
    ($self:ident, $depth:expr, $call:ident($($arg:expr),*)) => {
        if $depth <= DEEP { $self.pretty.$call($($arg),*) } else { CompactFormatter.$call($($arg),*) }
    };
}

impl Formatter for Layered {
    fn begin_array<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.depth += 1;
        by_depth!(self, self.depth, begin_array(w))
    }
    fn end_array<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        let depth = self.depth;
        self.depth -= 1;
        by_depth!(self, depth, end_array(w))
    }
    fn begin_array_value<W: ?Sized + Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        by_depth!(self, self.depth, begin_array_value(w, first))
    }
    fn end_array_value<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        by_depth!(self, self.depth, end_array_value(w))
    }
    fn begin_object<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        self.depth += 1;
        by_depth!(self, self.depth, begin_object(w))
    }
    fn end_object<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        let depth = self.depth;
        self.depth -= 1;
        by_depth!(self, depth, end_object(w))
    }
    fn begin_object_key<W: ?Sized + Write>(&mut self, w: &mut W, first: bool) -> io::Result<()> {
        by_depth!(self, self.depth, begin_object_key(w, first))
    }
    fn begin_object_value<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        by_depth!(self, self.depth, begin_object_value(w))
    }
    fn end_object_value<W: ?Sized + Write>(&mut self, w: &mut W) -> io::Result<()> {
        by_depth!(self, self.depth, end_object_value(w))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::report::Run;

    #[test]
    fn it_is_json_and_rows_take_a_line_each() {
        let mut run = Run::default();
        run.heap.sizes = vec![[1, 2, 3], [4, 5, 6]];
        let report = Report { runs: vec![run], ..Report::default() };
        let mut out = Vec::new();
        write(&report, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("[1,2,3],\n") && text.contains("[4,5,6]\n"), "{text}");
        let back: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back, serde_json::to_value(&report).unwrap());
    }
}
