//! `memshim pack`: a trace with the files that its names come from, in one folder.

use super::analyze::with_progress;
use super::sites::Symbols;
use super::{Usage, bail_usage, cause, exit};
use crate::analyze::{self, Options};
use crate::symbols::carry;
use crate::trace::family;
use anyhow::Context;
use clap::Args;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
EXAMPLES
  memshim pack -o run7 trace.jsonl && tar czf run7.tar.gz run7
  memshim analyze run7/trace.jsonl --symbols run7/symbols      on any machine

EXIT STATUS 0 done, 2 usage, 3 a trace cannot be read, 4 no room for the copies.";

/// Copy traces and the programs, libraries and debug files that their names come from into a folder
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Pack {
    /// Traces, or folders of traces
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// The folder; it must not be there yet
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,

    #[command(flatten)]
    symbols: Symbols,
}

impl Pack {
    pub fn execute(self) -> anyhow::Result<u8> {
        let mut options = Options::default();
        self.symbols.apply(&mut options)?;
        if self.output.exists() {
            bail_usage!("-o {}: it is there already: name a folder that is not there yet", self.output.display());
        }
        let modules = with_progress(&self.traces, |progress| analyze::modules(&self.traces, &options, progress))?;
        fs::create_dir(&self.output).map_err(|e| {
            Usage(format!("-o {}: {}: name a folder that is not there yet, where one can be made", self.output.display(), cause(&e)))
        })?;
        let mut traces = 0;
        for member in family::discover(&self.traces)? {
            // Further processes lie in their trace's folder, whose name they keep.
            let folder = member.path.parent().and_then(Path::file_name).filter(|n| n.to_string_lossy().ends_with(".d"));
            let to = folder.map_or(self.output.clone(), |f| self.output.join(f));
            for file in std::iter::once(&member.path).chain(&member.spools).filter(|p| p.exists()) {
                let to = to.join(file.file_name().unwrap_or_default());
                anyhow::ensure!(!to.exists(), "{}: another trace of that name is packed already; pack the two one by one", file.display());
                copy(file, &to)?;
                traces += 1;
            }
        }
        let (mut files, mut missing) = (BTreeSet::new(), 0);
        for module in &modules {
            match carry::files(module, &options.symbols.folders) {
                Ok(all) => {
                    for file in all.into_iter().filter(|f| files.insert(f.to.clone())).collect::<Vec<_>>() {
                        copy(&file.from, &self.output.join("symbols").join(&file.to))?;
                    }
                }
                Err(why) => {
                    missing += 1;
                    eprintln!("memshim: {}: not packed: {why}", module.path);
                }
            }
        }
        let mut out = io::stdout().lock();
        writeln!(out, "{traces} traces and spools, {} files with symbols in {}; {missing} not found", files.len(), self.output.display())?;
        Ok(exit::DONE)
    }
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::copy(from, to).with_context(|| format!("{} to {}", from.display(), to.display()))?;
    Ok(())
}
