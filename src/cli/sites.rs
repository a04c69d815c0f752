//! Flags about call sites, common to the verbs that read traces.

use super::analyze::with_progress;
use super::{Usage, bail_usage, value};
use crate::analyze::left;
use crate::analyze::report::{Phase, Report, Run};
use crate::analyze::sources::Memory;
use crate::analyze::suppressions::Suppressions;
use crate::analyze::views::{By, Measure, Request};
use crate::analyze::{self, Options, there};
use crate::model::sites::Instant;
use crate::model::units::Nanos;
use crate::symbols::Time;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
#[command(next_help_heading = "Call sites")]
pub struct Sites {
    /// Show who allocated: a list of call sites with their stacks, instead of the report
    #[arg(long)]
    sites: bool,

    /// Show functions, source lines (of Python, where there is some) or modules, each with and without what it calls; or threads
    #[arg(long, value_enum, value_name = "VIEW")]
    by: Option<ByFlag>,

    /// Show the tree of calls, outermost first, Python's and native ones; calls of less than 1 % are summed up
    #[arg(long, conflicts_with = "by")]
    tree: bool,

    /// With --phase: what it left behind instead, by call site: allocated in it and live at its last end; of a `ramp`, what made it
    #[arg(long, requires = "phase")]
    left: bool,

    /// With --sites, --by or --tree: what to sort by and take shares of [default: peak]
    #[arg(long, value_enum, value_name = "MEASURE")]
    sort: Option<MeasureFlag>,

    /// With --sites, --by or --tree: rows shown; of a tree its leaves [default: 20]
    #[arg(long, value_name = "N", value_parser = value::rows)]
    top: Option<usize>,

    #[command(flatten)]
    pub chosen: Chosen,

    #[command(flatten)]
    names: Names,
}

/// Which sites, and of which instant.
#[derive(Args)]
pub struct Chosen {
    /// Only sites with a frame of which this is part of the function's, file's or module's name; `!TEXT`: without one; all that are given hold
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,

    /// Whose call sites
    #[arg(long, value_enum, default_value = "heap", value_name = "MEMORY")]
    memory: MemoryFlag,

    /// Say what was live so many seconds after the start, instead of at the peak; `1.5..3`: at the peak between these times
    #[arg(long, value_name = "SECONDS", value_parser = instant, allow_negative_numbers = true)]
    at: Option<Instant>,

    /// Say what was live at the peak of this phase: its name, or `outer/inner`; of one that repeats, of the time that needed most
    #[arg(long, value_name = "NAME", conflicts_with_all = ["at", "thread"])]
    phase: Option<String>,

    /// Only what this thread allocated (of the heap or Python's blocks), at its own peak unless --at says another instant
    #[arg(long, value_name = "TID")]
    thread: Option<u32>,

    /// Show how the interpreter calls itself too, in stacks: its own frames between and outside of Python's
    #[arg(long)]
    interpreter: bool,

    /// Known leaks: `leak:PATTERN` lines, as LeakSanitizer has them
    #[arg(long, value_name = "FILE")]
    suppressions: Option<PathBuf>,
}

#[derive(Args)]
pub struct Symbols {
    /// Look for programs, libraries and debug files here first: by path, by name, or by `.build-id`
    #[arg(long, value_name = "DIR")]
    symbols: Vec<PathBuf>,
}

/// How names of code are looked up.
#[derive(Args)]
pub struct Names {
    #[command(flatten)]
    symbols: Symbols,

    /// Look names up no longer than this: source lines for two thirds of it, then functions alone; what is left stays without
    #[arg(long, value_name = "TIME", value_parser = value::time, default_value = "30s")]
    symbols_time: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ByFlag {
    Site,
    Function,
    Line,
    Module,
    Thread,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum MemoryFlag {
    /// Blocks of malloc and its like
    #[default]
    Heap,
    /// Python's own blocks, recorded with MEMSHIM_PYTHON_ALLOC=1
    Python,
    /// Mappings, at the peak of all of them
    Maps,
    /// Memory of GPUs, at each device's peak, and page-locked memory
    Gpu,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum MeasureFlag {
    #[default]
    /// Bytes live at the heap's peak (or --at)
    Peak,
    /// Bytes live at the end
    Leaked,
    /// Allocations freed before the thread's next one
    Temporary,
    /// Bytes in all
    Total,
}

impl From<MeasureFlag> for Measure {
    fn from(flag: MeasureFlag) -> Measure {
        match flag {
            MeasureFlag::Peak => Measure::Peak,
            MeasureFlag::Leaked => Measure::Leaked,
            MeasureFlag::Temporary => Measure::Temporary,
            MeasureFlag::Total => Measure::Total,
        }
    }
}

/// Rows of a view unless --top says otherwise.
const ROWS: usize = 20;
const THREADS_TOLD: &str = "threads are told apart with --memory heap and --memory python only";

impl Sites {
    /// Puts what is asked for into the options. `json`: it is the whole report that is shown, with all stacks.
    pub fn apply(&self, json: bool, options: &mut Options) -> anyhow::Result<()> {
        self.is_of_a_view(json)?;
        let by = match self.by {
            _ if self.tree => By::Tree,
            None | Some(ByFlag::Site) => By::Site,
            Some(ByFlag::Function) => By::Function,
            Some(ByFlag::Line) => By::Line,
            Some(ByFlag::Module) => By::Module,
            Some(ByFlag::Thread) => By::Thread,
        };
        let measure = self.sort.unwrap_or_default();
        if self.has_view() {
            options.view = Some(Request { by, measure: measure.into(), top: self.top.unwrap_or(ROWS) });
        }
        self.chosen.apply(options)?;
        self.chosen.tells(measure, "--sort")?;
        if by == By::Thread && !self.chosen.tells_threads() {
            bail_usage!("--by thread: {THREADS_TOLD}");
        }
        if self.left && options.memory != Memory::Heap {
            bail_usage!("--left: of phases only blocks of the heap are known by who left them; leave --memory out");
        }
        options.left = self.chosen.phase.clone().filter(|_| self.left);
        self.names.apply(options)
    }

    fn has_view(&self) -> bool {
        self.sites || self.tree || self.by.is_some()
    }

    /// An option about what a view shows would have no effect without one.
    fn is_of_a_view(&self, json: bool) -> anyhow::Result<()> {
        let of_view = [("--sort", self.sort.is_some()), ("--top", self.top.is_some()), ("--interpreter", self.chosen.interpreter && !json)];
        match of_view.iter().find(|(_, given)| *given && !self.has_view()) {
            Some((flag, _)) => bail_usage!("{flag}: the report shows no list of call sites; add --sites, --by VIEW or --tree"),
            None => Ok(()),
        }
    }

    /// Finds the phase that is asked for, where its time is what counts.
    pub fn apply_phase(&self, traces: &[PathBuf], pid: Option<u32>, options: &mut Options) -> anyhow::Result<()> {
        if self.left { Ok(()) } else { self.chosen.apply_phase(traces, pid, options) }
    }

    /// The process whose phase left most, of those in the report.
    pub fn process_of_left(&self, report: &Report, pid: Option<u32>) -> anyhow::Result<Option<u32>> {
        let Some(wanted) = self.chosen.phase.as_ref().filter(|_| self.left) else { return Ok(pid) };
        let runs = || report.runs.iter().filter(|r| pid.is_none_or(|p| r.pid == p));
        let found = runs().filter_map(|r| Some((left::chosen(&r.phases, wanted)?.left.as_ref()?.bytes, r.pid)));
        match found.max_by_key(|(bytes, _)| *bytes) {
            Some((_, pid)) => Ok(Some(pid)),
            None => no_phase(wanted, runs().flat_map(|r| &r.phases).filter(|p| p.left.is_some())),
        }
    }
}

impl Chosen {
    /// Puts what is asked for into the options.
    pub fn apply(&self, options: &mut Options) -> anyhow::Result<()> {
        let at_its_peak = self.thread.map_or(Instant::Peak, Instant::PeakOf);
        options.instant = self.at.unwrap_or(at_its_peak);
        options.thread = self.thread;
        options.memory = match self.memory {
            MemoryFlag::Heap => Memory::Heap,
            MemoryFlag::Python => Memory::Python,
            MemoryFlag::Maps => Memory::Maps,
            MemoryFlag::Gpu => Memory::Gpu,
        };
        if options.memory == Memory::Maps && self.at.is_some() {
            bail_usage!("--at: of maps only what was mapped at their peak is known; leave it out with --memory maps");
        }
        if self.thread.is_some() && !self.tells_threads() {
            bail_usage!("--thread: {THREADS_TOLD}");
        }
        options.interpreter = self.interpreter;
        options.filters.clone_from(&self.filter);
        if let Some(file) = &self.suppressions {
            options.suppressions = Suppressions::read(file).map_err(|e| Usage(format!("--suppressions {e}")))?;
        }
        Ok(())
    }

    /// Whether the memory is of blocks, whose threads and ages are known.
    fn tells_threads(&self) -> bool {
        matches!(self.memory, MemoryFlag::Heap | MemoryFlag::Python)
    }

    /// Whether a measure, asked for by `flag`, is known of the memory.
    pub fn tells(&self, measure: MeasureFlag, flag: &str) -> anyhow::Result<()> {
        if measure == MeasureFlag::Temporary && !self.tells_threads() {
            bail_usage!("{flag} temporary: how long blocks live is known with --memory heap and --memory python only");
        }
        Ok(())
    }

    /// Whether known leaks are told.
    pub fn has_suppressions(&self) -> bool {
        self.suppressions.is_some()
    }

    /// The process that has the thread asked for, if one is asked for: of several the one in which it allocated most.
    pub fn process_of_thread(&self, report: &Report, pid: Option<u32>) -> anyhow::Result<Option<u32>> {
        let Some(tid) = self.thread else { return Ok(pid) };
        let runs = || report.runs.iter().filter(|r| pid.is_none_or(|p| r.pid == p));
        let of = |r: &Run| r.threads.iter().find(|t| t.tid == tid).map(|t| (t.bytes, r.pid));
        if let Some((_, pid)) = runs().filter_map(of).max() {
            return Ok(Some(pid));
        }
        // Of more threads than are listed it may be another.
        if runs().any(|r| r.threads_total.is_some_and(|n| n > r.threads.len() as u64)) {
            return Ok(pid);
        }
        Err(Usage(there::no_thread(tid, runs().flat_map(|r| &r.threads).map(|t| (t.tid, t.name.as_str())))).into())
    }

    /// Finds the phase that is asked for, in the traces themselves: its time is the instant. Of several processes' the highest.
    pub fn apply_phase(&self, traces: &[PathBuf], pid: Option<u32>, options: &mut Options) -> anyhow::Result<()> {
        let Some(wanted) = &self.phase else { return Ok(()) };
        if options.memory == Memory::Maps {
            bail_usage!("--phase: of maps only what was mapped at their peak is known; leave it out with --memory maps");
        }
        let report = with_progress(traces, |progress| analyze::analyze(traces, &Options::default(), progress))?;
        let phases = || report.runs.iter().filter(|r| pid.is_none_or(|p| r.pid == p)).flat_map(|r| &r.phases);
        let fits = |p: &&Phase| p.is_called(wanted);
        let known = |p: &&Phase| p.heap_peak_bytes.is_some();
        let Some(phase) = phases().filter(fits).filter(known).max_by_key(|p| p.heap_peak_bytes) else {
            return no_phase(wanted, phases().filter(known));
        };
        // A float's rounding must not leave the edges out.
        let ns = |s: f64| Nanos::of_seconds(s).0;
        options.instant = Instant::PeakWithin(ns(phase.peak_begin_s), ns(phase.peak_end_s).saturating_add(1));
        Ok(())
    }
}

/// There is no such phase; says which ones there are.
fn no_phase<'a, T>(wanted: &str, phases: impl Iterator<Item = &'a Phase>) -> anyhow::Result<T> {
    Err(Usage(which_phases(wanted, phases.map(|p| p.name.as_str()))).into())
}

/// The same as text, of names.
pub fn which_phases<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.collect();
    names.dedup();
    names.truncate(8);
    let there = if names.is_empty() { "there are none".to_owned() } else { format!("there are {}", names.join(", ")) };
    format!("--phase {wanted}: no such phase in these traces; {there}")
}

impl Names {
    /// Puts what is asked for into the options.
    pub fn apply(&self, options: &mut Options) -> anyhow::Result<()> {
        options.symbols.time = Time::of(self.symbols_time);
        self.symbols.apply(options)
    }
}

impl Symbols {
    /// Puts what is asked for into the options.
    pub fn apply(&self, options: &mut Options) -> anyhow::Result<()> {
        if let Some(missing) = self.symbols.iter().find(|d| !d.is_dir()) {
            bail_usage!("--symbols {}: name a folder that holds programs, libraries or debug files", missing.display());
        }
        options.symbols.folders.clone_from(&self.symbols);
        Ok(())
    }
}

/// Seconds since the start, or two of them.
pub fn instant(text: &str) -> Result<Instant, String> {
    let ns = |text: &str| {
        let seconds = text.trim().trim_end_matches('s').trim().parse::<f64>().ok();
        seconds.filter(|s| s.is_finite() && *s >= 0.0).map(|s| Nanos::of_seconds(s).0.min(1 << 60))
    };
    let of = match text.split_once("..") {
        None => ns(text).map(Instant::At),
        Some((from, to)) => ns(from).zip(ns(to)).filter(|(from, to)| from <= to).map(|(from, to)| Instant::PeakWithin(from, to)),
    };
    of.ok_or_else(|| format!("`{text}` is not a time: write seconds since the start, 1.5 for example, or 1.5..3"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_seconds() {
        assert_eq!(instant("1.5"), Ok(Instant::At(1_500_000_000)));
        assert_eq!(instant("2s"), Ok(Instant::At(2_000_000_000)));
        assert_eq!(instant("1..2.5s"), Ok(Instant::PeakWithin(1_000_000_000, 2_500_000_000)));
        assert!(instant("3..2").is_err() && instant("..2").is_err());
        assert!(instant("-1").unwrap_err().contains("seconds since the start"));
        assert!(instant("nan").is_err());
    }
}
