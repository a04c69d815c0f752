//! `memshim export`: call sites for other tools.

use super::analyze::with_progress;
use super::sites::{Chosen, MeasureFlag, Names};
use super::{Usage, bail_usage, cause, exit, is_no_room};
use crate::analyze::profile::Profile;
use crate::analyze::{Error, Options};
use crate::output::export::{collapsed, flamegraph, pprof, speedscope};
use crate::trace::read;
use clap::{Args, ValueEnum};
use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;

const EXAMPLES: &str = "\
EXAMPLES
  memshim export --to svg -o peak.svg trace.jsonl              a flame graph of what was live at the peak
  memshim export --to svg --of leaked -o leaks.svg trace.jsonl of what was never freed
  memshim export --to pprof -o heap.pb trace.jsonl             go tool pprof -http : heap.pb
  memshim export --to speedscope -o heap.json trace.jsonl      https://www.speedscope.app
  memshim export --to collapsed trace.jsonl | flamegraph.pl    lines of stacks

EXIT STATUS 0 done, 2 usage, 3 a trace cannot be read, or it has no stacks, 4 no room for the output.";

/// Give call sites to other tools: flame graphs, pprof, speedscope
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Export {
    /// Traces, or folders of traces; their processes come together
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// The format
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Format,

    /// What the amounts are (pprof and speedscope have all, and show this first)
    #[arg(long, value_enum, default_value = "peak", value_name = "MEASURE")]
    of: MeasureFlag,

    /// File to write [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Of one process only
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,

    #[command(flatten)]
    chosen: Chosen,

    #[command(flatten)]
    names: Names,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A stack a line: flamegraph.pl, inferno, hotspot
    Collapsed,
    /// Protocol buffer: go tool pprof, Polar Signals, Grafana
    Pprof,
    /// JSON for speedscope.app
    Speedscope,
    /// Flame graph to look at in a browser
    Svg,
}

impl Export {
    pub fn execute(self) -> anyhow::Result<u8> {
        let mut options = Options::default();
        self.chosen.apply(&mut options)?;
        self.chosen.tells(self.of, "--of")?;
        let all_measures = matches!(self.to, Format::Pprof | Format::Speedscope);
        if self.chosen.has_suppressions() && self.of != MeasureFlag::Leaked && !all_measures {
            bail_usage!("--suppressions: known leaks are left out of what leaked, which is not shown; add --of leaked");
        }
        self.names.apply(&mut options)?;
        self.chosen.apply_phase(&self.traces, self.pid, &mut options)?;
        if self.to == Format::Pprof && self.output.is_none() && io::stdout().is_terminal() {
            bail_usage!("pprof's format is not for a terminal: name a file with -o");
        }
        if let Some(path) = self.output.as_ref().filter(|path| read::begins_as_trace(path)) {
            bail_usage!("-o {}: that is a trace, which would be lost: name another file", path.display());
        }
        let profile = with_progress(&self.traces, |progress| Profile::read(&self.traces, &options, self.pid, progress));
        let profile = profile.map_err(|e| match e {
            Error::NotThere(which) => Usage(which).into(),
            other => anyhow::Error::new(other),
        })?;
        for problem in &profile.problems {
            eprintln!("memshim: {}: {}", problem.what, problem.why);
        }
        profile.must_tell(self.of.into())?;
        match &self.output {
            Some(path) => {
                // What can fail for want of anything to draw fails before the file is touched.
                let mut all = Vec::new();
                self.write(&profile, &mut all)?;
                fs::write(path, all).map_err(|e| match is_no_room(e.kind()) {
                    true => anyhow::Error::new(e).context(format!("-o {}", path.display())),
                    false => Usage(format!("-o {}: {}: name a file that can be written", path.display(), cause(&e))).into(),
                })?;
            }
            None => self.write(&profile, io::stdout().lock())?,
        }
        Ok(exit::DONE)
    }

    fn write(&self, profile: &Profile, out: impl Write) -> io::Result<()> {
        let mut out = BufWriter::new(out);
        let measure = self.of.into();
        match self.to {
            Format::Collapsed => collapsed::write(profile, measure, &mut out)?,
            Format::Pprof => pprof::write(profile, measure, &mut out)?,
            Format::Speedscope => speedscope::write(profile, measure, &mut out)?,
            Format::Svg => flamegraph::write(profile, measure, &mut out)?,
        }
        out.flush()
    }
}
