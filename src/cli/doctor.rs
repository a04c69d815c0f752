//! `memshim doctor`: what will be seen here, what won't, and why.

mod machine;
mod program;
mod recording;
mod stacks;

use super::exit;
use crate::launch::{job, pattern};
use crate::output::screen::{self, wrapped};
use clap::Args;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

const EXAMPLES: &str = "\
EXAMPLES
  memshim doctor                       this machine, this folder
  memshim doctor -o out/t.jsonl        the folder in which traces will lie
  memshim doctor -- ./solver           and whether this program can be seen into

EXIT STATUS 0 everything will be seen, 2 usage, 3 something will not, 4 no room for the output.";

/// Say what memshim will see here and what it won't, and why
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Doctor {
    /// Where traces will go, as for `run`
    #[arg(short, long, value_name = "PATTERN")]
    out: Option<PathBuf>,

    /// A program to look at as well
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

const NO_FOLDER: &str =
    "the present folder is gone: no trace can be written here; change to one that is there, or give -o with a full path";

/// How a finding is to be taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    /// Works, with less.
    Note,
    Bad,
}

/// The findings, in the order in which they were made.
#[derive(Default)]
struct Findings(Vec<(Verdict, &'static str, String)>);

impl Findings {
    fn add(&mut self, verdict: Verdict, what: &'static str, text: impl Into<String>) {
        self.0.push((verdict, what, text.into()));
    }

    /// Rows of at most `width` characters where words allow.
    fn table(&self, width: usize) -> Vec<String> {
        let named = self.0.iter().map(|(_, what, _)| what.len()).max().unwrap_or(0);
        let indent = 6 + named + 2;
        let mut lines = Vec::new();
        for (verdict, what, text) in &self.0 {
            let sign = match verdict {
                Verdict::Good => "ok",
                Verdict::Note => "note",
                Verdict::Bad => "NO",
            };
            let mut start = format!("{sign:<4}  {what:<named$}  ");
            for line in wrapped(text, width.saturating_sub(indent).max(20)) {
                lines.push(start + &line);
                start = " ".repeat(indent);
            }
        }
        lines
    }
}

impl Doctor {
    pub fn execute(self) -> anyhow::Result<u8> {
        let mut found = Findings::default();
        let library = recording::library(&mut found);
        machine::system(&mut found);
        match self.folder() {
            Some(folder) => recording::folder(&mut found, &folder, library.as_deref(), self.command.first().map(|c| c.as_os_str())),
            None => found.add(Verdict::Bad, "folder", NO_FOLDER),
        }
        machine::all(&mut found);
        if let Some(name) = self.command.first() {
            program::look(&mut found, name);
        }
        let mut out = std::io::stdout().lock();
        for line in found.table(screen::width()) {
            writeln!(out, "{line}")?;
        }
        Ok(if found.0.iter().any(|f| f.0 == Verdict::Bad) { exit::UNREADABLE } else { exit::DONE })
    }

    /// Where traces will lie. `run` makes what is missing: what counts is the folder it will be made in.
    fn folder(&self) -> Option<PathBuf> {
        let set = std::env::var_os("MEMSHIM_OUT").filter(|v| !v.is_empty()).map(PathBuf::from);
        let out = self.out.clone().or(set).unwrap_or_else(|| pattern::default_pattern(&job::real_environment).into());
        let wanted = pattern::fixed_folder(&std::path::absolute(&out).unwrap_or(out));
        wanted.ancestors().find(|f| f.is_dir()).map(PathBuf::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn text(f: impl FnOnce(&mut Findings)) -> String {
        let mut found = Findings::default();
        f(&mut found);
        found.table(usize::MAX).join("\n")
    }

    #[test]
    fn long_findings_go_on_below_themselves() {
        let mut found = Findings::default();
        found.add(Verdict::Note, "x", "one two three four five");
        assert_eq!(found.table(29), ["note  x  one two three four", "         five"]);
        found.add(Verdict::Good, "y", "averyveryverylongwordwithoutend");
        assert!(found.table(29).last().unwrap().ends_with("withoutend"));
    }
}
