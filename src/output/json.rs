//! The report as JSON: the contract's keys, one object.

use std::io::{self, Write};

use crate::analyze::report::Report;

/// Writes the report and a line end.
pub fn write(report: &Report, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, report)?;
    out.write_all(b"\n")
}
