//! Flags about call sites, common to the verbs that read traces.

use crate::analyze::Options;
use crate::analyze::suppressions::Suppressions;
use crate::analyze::views::{By, Measure, Request};
use crate::model::sites::Instant;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Args)]
#[command(next_help_heading = "Call sites")]
pub struct Sites {
    /// Show who allocated: a list of call sites with their stacks, instead of the report
    #[arg(long)]
    sites: bool,

    /// Show functions, source lines (of Python, where there is some) or modules, each with and without what it calls
    #[arg(long, value_enum, value_name = "VIEW")]
    by: Option<ByFlag>,

    /// Show the tree of calls, outermost first
    #[arg(long, conflicts_with = "by")]
    tree: bool,

    /// What to sort by and take shares of
    #[arg(long, value_enum, default_value = "peak", value_name = "MEASURE")]
    sort: MeasureFlag,

    /// Rows shown
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,

    #[command(flatten)]
    chosen: Chosen,

    #[command(flatten)]
    pub symbols: Symbols,
}

/// Which sites, and of which instant.
#[derive(Args)]
pub struct Chosen {
    /// Only sites with a frame of which this is part of the function's, file's or module's name; `!TEXT`: without one; all that are given hold
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,

    /// Say what was live so many seconds after the start, instead of at the peak
    #[arg(long, value_name = "SECONDS", value_parser = instant)]
    at: Option<Instant>,

    /// Show how the interpreter calls itself too: its own frames between and outside of Python's
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

#[derive(Clone, Copy, ValueEnum)]
enum ByFlag {
    Site,
    Function,
    Line,
    Module,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum MeasureFlag {
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

impl Sites {
    /// Puts what is asked for into the options.
    pub fn apply(&self, options: &mut Options) -> anyhow::Result<()> {
        let by = match self.by {
            _ if self.tree => By::Tree,
            None | Some(ByFlag::Site) => By::Site,
            Some(ByFlag::Function) => By::Function,
            Some(ByFlag::Line) => By::Line,
            Some(ByFlag::Module) => By::Module,
        };
        if self.sites || self.tree || self.by.is_some() {
            options.view = Some(Request { by, measure: self.sort.into(), top: self.top });
        }
        self.chosen.apply(options)?;
        self.symbols.apply(options)
    }
}

impl Chosen {
    pub fn apply(&self, options: &mut Options) -> anyhow::Result<()> {
        options.instant = self.at.unwrap_or_default();
        options.interpreter = self.interpreter;
        options.filters.clone_from(&self.filter);
        if let Some(file) = &self.suppressions {
            options.suppressions = Suppressions::read(file)?;
        }
        Ok(())
    }
}

impl Symbols {
    pub fn apply(&self, options: &mut Options) -> anyhow::Result<()> {
        if let Some(missing) = self.symbols.iter().find(|d| !d.is_dir()) {
            anyhow::bail!("--symbols {}: not a folder", missing.display());
        }
        options.symbols.folders.clone_from(&self.symbols);
        Ok(())
    }
}

/// Seconds since the start.
pub fn instant(text: &str) -> Result<Instant, String> {
    let seconds = text.trim_end_matches('s').trim().parse::<f64>().ok().filter(|s| s.is_finite() && *s >= 0.0);
    match seconds {
        Some(s) => Ok(Instant::At((s * 1e9).min(1e18) as u64)),
        None => Err(format!("`{text}` is not a time: write seconds since the start, 1.5 for example")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_seconds() {
        assert_eq!(instant("1.5"), Ok(Instant::At(1_500_000_000)));
        assert_eq!(instant("2s"), Ok(Instant::At(2_000_000_000)));
        assert!(instant("-1").unwrap_err().contains("seconds since the start"));
        assert!(instant("nan").is_err());
    }
}
