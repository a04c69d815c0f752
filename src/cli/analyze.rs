//! `memshim analyze`: traces in, one screen (or JSON) out.

use super::sites::Sites;
use super::{Usage, bail_usage, exit, value};
use crate::analyze::report::{Report, Run};
use crate::analyze::{self, Options, Units, there};
use crate::model::load::Progress;
use crate::output::text::{self, Style};
use crate::output::{json, screen};
use anstream::{AutoStream, ColorChoice};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

const EXAMPLES: &str = "\
EXAMPLES
  memshim analyze trace.jsonl                     the whole family: trace.jsonl and trace.d/
  memshim analyze out/                            all traces of a folder: all ranks of a job
  memshim analyze trace.jsonl --pid 4243          another process of the family on the screen
  memshim analyze trace.jsonl --sites             who held it at the peak, with whole stacks
  memshim analyze trace.jsonl --tree --sort total the tree of calls by all bytes allocated
  memshim analyze trace.jsonl --by line           Python lines, with and without what they call
  memshim analyze trace.jsonl --sites --sort leaked --suppressions known.supp
  memshim analyze trace.jsonl --sites --at 1.5    what was live 1.5 s after the start
  memshim analyze trace.jsonl --sites --phase solve      who held it at the peak of that phase
  memshim analyze trace.jsonl --sites --phase solve --left      who allocated what that phase left behind
  memshim analyze trace.jsonl --units '64 atoms'  steps: the time for one atom
  memshim analyze trace.jsonl --json | jq '.runs[0].heap.peak_bytes'

EXIT STATUS 0 done, 2 usage, 3 a trace cannot be read, 4 no room for the output; 141 who read the output went away.";

const FIRST_SHOWN_AFTER: Duration = Duration::from_secs(1);
const REDRAWN_EVERY: Duration = Duration::from_millis(100);

/// Say how much memory a program needed, when, of which class, and who held it
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Analyze {
    /// Traces, or folders of traces; together they are one job
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// Everything, as JSON; its keys do not change
    #[arg(long)]
    json: bool,

    /// Follow the live bytes of these requested sizes on their own (`heap.selected` of the JSON)
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = value::bytes)]
    sizes: Vec<u64>,

    /// How many units a step works on, '64 atoms' for example: phases that repeat get their time for one
    #[arg(long, value_name = "N UNIT", value_parser = value::units)]
    units: Option<Units>,

    /// The process to show on the screen [default: the one with the highest peak]
    #[arg(long, value_name = "PID", conflicts_with = "json")]
    pid: Option<u32>,

    #[command(flatten)]
    sites: Sites,

    /// No colours (NO_COLOR does the same)
    #[arg(long)]
    no_color: bool,
}

impl Analyze {
    pub fn execute(self) -> anyhow::Result<u8> {
        let mut options = Options { sizes: self.sizes.clone(), units: self.units.clone(), ..Options::default() };
        self.sites.apply(self.json, &mut options)?;
        self.sizes_are_shown()?;
        self.sites.apply_phase(&self.traces, self.pid, &mut options)?;
        let report = with_progress(&self.traces, |progress| analyze::analyze(&self.traces, &options, progress))?;
        is_there(&report, self.pid)?;
        let pid = self.sites.process_of_left(&report, self.pid)?;
        let pid = self.sites.chosen.process_of_thread(&report, pid)?;
        let repeated = |r: &Run| r.phases.iter().any(|p| p.per_unit.is_some());
        if self.units.is_some() && !report.runs.iter().any(repeated) {
            eprintln!("memshim: --units: no phase was on three times or more, so nothing has a time for one");
        }
        if self.json {
            let mut out = BufWriter::new(io::stdout().lock());
            json::write(&report, &mut out)?;
            out.flush()?;
        } else {
            let choice = if self.no_color { ColorChoice::Never } else { ColorChoice::Auto };
            let style = Style { width: screen::width(), unicode: is_unicode(), pid, traces: self.traces.clone() };
            let mut out = AutoStream::new(io::stdout(), choice);
            let page = if options.view.is_some() { text::render_sites(&report, &style) } else { text::render(&report, &style) };
            out.write_all(page.as_bytes())?;
            out.flush()?;
        }
        Ok(exit::DONE)
    }

    /// What they come to is in the JSON alone.
    fn sizes_are_shown(&self) -> anyhow::Result<()> {
        if !self.sizes.is_empty() && !self.json {
            bail_usage!("--sizes: what blocks of these sizes come to is in the JSON (`heap.selected`); add --json");
        }
        Ok(())
    }
}

/// Whether the process that is asked for, if one is, has a run.
pub fn is_there(report: &Report, pid: Option<u32>) -> anyhow::Result<()> {
    if let Some(pid) = pid.filter(|&pid| report.runs.iter().all(|r| r.pid != pid)) {
        return Err(Usage(there::no_process(pid, report.runs.iter().map(|r| r.pid))).into());
    }
    Ok(())
}

/// Runs `work` with a bar on stderr once it has taken a second, where stderr is a terminal.
pub fn with_progress<T: Send>(traces: &[PathBuf], work: impl FnOnce(&Progress) -> T + Send) -> T {
    let progress = Progress::default();
    if !io::stderr().is_terminal() {
        return work(&progress);
    }
    let (done, is_done) = channel::<()>();
    std::thread::scope(|scope| {
        let progress = &progress;
        scope.spawn(move || {
            if is_done.recv_timeout(FIRST_SHOWN_AFTER) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let bar = bar(traces);
            while is_done.recv_timeout(REDRAWN_EVERY) == Err(RecvTimeoutError::Timeout) {
                bar.set_position(progress.read.load(Relaxed));
            }
            bar.finish_and_clear();
        });
        let result = work(progress);
        drop(done);
        result
    })
}

/// With an end where it is known: compressed traces are counted as read, decompressed.
fn bar(traces: &[PathBuf]) -> ProgressBar {
    let plain = |p: &Path| p.extension().is_some_and(|e| e == "jsonl");
    let total: u64 = traces.iter().filter_map(|t| t.metadata().ok()).map(|m| m.len()).sum();
    let style = |template: &str| ProgressStyle::with_template(template).expect("a template of ours");
    if traces.iter().all(|t| plain(t)) {
        ProgressBar::new(total).with_style(style("reading {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}"))
    } else {
        ProgressBar::new_spinner().with_style(style("{spinner} reading {bytes} {bytes_per_sec}"))
    }
}

/// Whether signs outside ASCII can be shown.
pub fn is_unicode() -> bool {
    utf8_locale(&|n| std::env::var(n).ok())
}

/// As the C library decides: the first of these that is set and not empty.
fn utf8_locale(env: &dyn Fn(&str) -> Option<String>) -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|n| env(n).filter(|v| !v.is_empty()));
    set.is_some_and(|v| {
        let v = v.to_ascii_lowercase();
        v.contains("utf-8") || v.contains("utf8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_decides_about_blocks() {
        assert!(utf8_locale(&|n| (n == "LANG").then(|| "de_DE.UTF-8".into())));
        assert!(!utf8_locale(&|n| Some(if n == "LC_ALL" { "C" } else { "C.UTF-8" }.into())));
        assert!(!utf8_locale(&|_| None));
    }
}
