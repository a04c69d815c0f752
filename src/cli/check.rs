//! `memshim check`: steps against targets, and an exit status for scripts.

use super::analyze::{is_there, is_unicode, with_progress};
use super::{Usage, bail_usage, exit, value};
use crate::analyze::check::{self, Checked, Limit, Nothing, Targets};
use crate::analyze::report::Report;
use crate::analyze::{self, Options, Units};
use crate::output::check as output;
use anstream::{AutoStream, ColorChoice};
use clap::{Args, ValueEnum};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

const EXAMPLES: &str = "\
EXAMPLES
  memshim check trace.jsonl                           the phases that repeat, against the defaults
  memshim check trace.jsonl --phase step --units '64 atoms'
  memshim check out/ --mean 2ms --p99 5ms --cv off    other targets, for every rank
  memshim check trace.jsonl --memory 1MB --mean off --p95 off --p99 off --cv off
  memshim check trace.jsonl --json | jq '.checked[].checks[] | select(.passed | not)'

EXIT STATUS 0 all pass, 1 one fails, 2 usage (no such phase, none that repeats), 3 a trace cannot be read, 4 no room for the output.";

/// Hold the steps of a run, a phase that repeats, against targets: pass or fail, with an exit status for scripts
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Check {
    /// Traces, or folders of traces; each process is judged by itself
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// The phase whose times are the steps: its name, or `outer/inner` [default: the outermost ones that repeat most]
    #[arg(long, value_name = "NAME")]
    phase: Option<String>,

    /// How many units a step works on, '64 atoms' for example: the time for one is checked too
    #[arg(long, value_name = "N UNIT", value_parser = value::units)]
    units: Option<Units>,

    /// Only this process
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,

    /// The same as JSON; its keys do not change
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    targets: TargetFlags,
}

/// Each takes `off` too.
#[derive(Args)]
#[command(next_help_heading = "Targets: what is measured is to be less; `off` leaves one out")]
struct TargetFlags {
    /// Mean time of a step
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = value::time_limit)]
    mean: Limit,

    /// Time that 95 % of the steps stay below: `2x` the mean, or a time
    #[arg(long, value_name = "LIMIT", default_value = "2x", value_parser = value::tail_limit)]
    p95: Limit,

    /// Time that 99 % of the steps stay below
    #[arg(long, value_name = "LIMIT", default_value = "3x", value_parser = value::tail_limit)]
    p99: Limit,

    /// Standard deviation of the time, as a share of the mean
    #[arg(long, value_name = "SHARE", default_value = "20%", value_parser = value::share_limit)]
    cv: Limit,

    /// Median time for one of the --units [default: 10us]
    #[arg(long, value_name = "TIME", requires = "units", value_parser = value::time_limit)]
    per_unit: Option<Limit>,

    /// By how much more memory of any class (heap, maps, GPU, pinned) is live at the last step's end than at the first one's begin
    #[arg(long, value_name = "SIZE", default_value = "10MB", value_parser = value::size_limit)]
    memory: Limit,

    /// Whether a step may leave something behind each time, as `analyze` calls it a leak
    #[arg(long, value_enum, value_name = "WHETHER", default_value = "none")]
    leak: LeakFlag,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LeakFlag {
    /// No class of memory may leak
    None,
    /// Leaks are not checked
    Off,
}

impl TargetFlags {
    fn targets(&self) -> Targets {
        let &TargetFlags { mean, p95, p99, cv, per_unit, memory, leak } = self;
        let per_unit = per_unit.unwrap_or(Targets::default().per_unit);
        Targets { mean, p95, p99, cv, per_unit, memory, leak: leak == LeakFlag::None }
    }
}

impl Check {
    pub fn execute(self) -> anyhow::Result<u8> {
        let options = Options { units: self.units.clone(), ..Options::default() };
        let report = with_progress(&self.traces, |progress| analyze::analyze(&self.traces, &options, progress))?;
        let checked = self.checked(&report)?;
        if checked.iter().all(|c| c.checks.is_empty()) {
            bail_usage!("every target is off, so nothing is checked: leave one on");
        }
        if self.json {
            let mut out = BufWriter::new(io::stdout().lock());
            output::write_json(&checked, &mut out)?;
            out.flush()?;
        } else {
            let mut out = AutoStream::new(io::stdout(), ColorChoice::Auto);
            out.write_all(output::render(&checked, is_unicode()).as_bytes())?;
            out.flush()?;
        }
        Ok(if checked.iter().all(Checked::passed) { exit::DONE } else { exit::LIMIT_BROKEN })
    }

    fn checked(&self, report: &Report) -> anyhow::Result<Vec<Checked>> {
        is_there(report, self.pid)?;
        check::check(report, self.pid, self.phase.as_deref(), &self.targets.targets()).map_err(|why| Usage(self.why(why)).into())
    }

    /// What there is instead, and how to get what was asked for.
    fn why(&self, nothing: Nothing) -> String {
        let phase = self.phase.as_deref().unwrap_or_default();
        match nothing {
            Nothing::NoSuchPhase(names) => super::sites::which_phases(phase, names.iter().map(String::as_str)),
            Nothing::TooFew(count) => {
                let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
                format!("--phase {phase}: it was on {times} only, and steps are three or more: name the phase inside it that repeats")
            }
            Nothing::NoneRepeats => {
                "no phase of these traces was on three times or more, so there are no steps: name the function that makes one, \
                 `memshim run --phase-py 'module:step' -- python run.py` for example (docs/phases.md has other ways)"
                    .to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_options_say_by_default_is_what_the_targets_are() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            check: Check,
        }
        let parse =
            |args: &[&str]| <Line as clap::Parser>::try_parse_from([&["check", "t"], args].concat()).map(|l| l.check.targets.targets());
        assert_eq!(parse(&[]).unwrap(), Targets::default());
        let off = ["--mean", "off", "--p95", "3ms", "--leak", "off", "--memory", "1MB"];
        let wanted = Targets { mean: Limit::Off, p95: Limit::Below(3e-3), leak: false, memory: Limit::Below(1e6), ..Targets::default() };
        assert_eq!(parse(&off).unwrap(), wanted);
        assert!(parse(&["--per-unit", "5us"]).is_err_and(|e| e.to_string().contains("--units")), "a unit has to be told");
    }
}
