//! `memshim analyze`: traces in, one screen (or JSON) out.

use super::exit;
use clap::Args;
use std::path::PathBuf;

const EXAMPLES: &str = "\
EXAMPLES
  memshim analyze trace.jsonl                     the whole family: trace.jsonl and trace.d/
  memshim analyze out/                            all traces of a folder: all ranks of a job
  memshim analyze trace.jsonl --json | jq '.runs[0].heap.peak_bytes'

EXIT STATUS 0 done, 2 usage, 3 a trace cannot be read.";

/// Say how much memory a program needed, when, of which class, and who held it
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Analyze {
    /// Traces, or folders of traces; together they are one job
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
}

impl Analyze {
    pub fn execute(self) -> anyhow::Result<u8> {
        anyhow::bail!("not built yet")
    }
}
