//! `memshim mark`: says from outside what a program is doing.

use super::{bail_usage, exit};
use crate::launch::locate::Found;
use crate::launch::{locate, outside, proc, side};
use crate::model::outside as outside_edges;
use crate::trace::family;
use crate::trace::marks::{Marks, Source, What};
use anyhow::Context;
use clap::Args;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

const EXAMPLES: &str = "\
EXAMPLES
  memshim run -- ./solver input.dat &
  memshim mark $! 'mesh loaded'                 an instant
  memshim mark $! assembly --begin              a phase, until
  memshim mark $! assembly --end                … here
  memshim mark $! solve --next                  ends what was begun and begins this
  squeue | watcher | while read step; do memshim mark 4242 \"$step\" --next; done

PID is the recorded process, or one around it (`memshim run`, a shell) where only one below it is recorded. Marks go into the side file
of its trace (trace.jsonl.marks); `memshim analyze` reads them with it.

EXIT STATUS 0 done, 2 usage (--end of what no mark began), 3 the process is not recorded or its side file cannot be written.";

/// Mark an instant or a phase of a running, recorded program from outside
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Mark {
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: i32,

    /// What the instant or the phase is called; with --end it may be left out: the innermost phase ends
    #[arg(value_name = "NAME", required_unless_present = "end")]
    name: Option<OsString>,

    /// A phase of this name begins
    #[arg(long, conflicts_with_all = ["end", "next"])]
    begin: bool,

    /// The phase of this name ends
    #[arg(long, conflicts_with = "next")]
    end: bool,

    /// The phase that the last --next began ends, and this one begins
    #[arg(long)]
    next: bool,
}

impl Mark {
    pub fn execute(self) -> anyhow::Result<u8> {
        // First of all: what follows takes its time.
        let t = outside::monotonic_ns();
        let name = self.name.clone().unwrap_or_default();
        if name.is_empty() && !self.end {
            bail_usage!("a mark needs a name: memshim mark PID NAME");
        }
        let (pid, found) = locate::of_or_below(self.pid)?;
        if self.end {
            self.ends_something(pid, &found)?;
        }
        let line = side::with_seen(side::edge(t, self.what(), name.as_bytes(), "mark"), found.look(), proc::resident(pid));
        let cannot = || format!("cannot write beside {}", found.first.display());
        side::SideFile::beside(&found.first).and_then(|mut f| f.append(found.whose, [line])).with_context(cannot)?;
        if pid != self.pid {
            eprintln!("memshim: {} is not recorded itself; marked {pid}, which it started", self.pid);
        }
        Ok(exit::DONE)
    }

    /// Of the phases of marks all is in the side file, so that an end of none is known.
    fn ends_something(&self, pid: i32, found: &Found) -> anyhow::Result<()> {
        let path = family::side_file_of_first(&found.first);
        let marks = Marks::read(&path);
        // Another user's may be there to be added to and not to be read.
        if marks.damage.error.is_some() && path.exists() {
            return Ok(());
        }
        let edges = marks.of(u32::try_from(found.whose.pid).unwrap_or(0), found.whose.start_ticks, 0).edges;
        let open = outside_edges::open_after(edges.iter().filter(|e| e.source == Source::Mark));
        let name = self.name.as_ref().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        if open.is_empty() {
            bail_usage!("--end: no phase of process {pid} that `memshim mark` began is open: `memshim mark {pid} NAME --begin` begins one");
        }
        if !name.is_empty() && !open.contains(&name) {
            let open = open.join(", ");
            bail_usage!("{name} --end: no phase of process {pid} that `memshim mark` began is open by this name; open is {open}");
        }
        Ok(())
    }

    fn what(&self) -> What {
        match (self.begin, self.end, self.next) {
            (true, ..) => What::Begin,
            (_, true, _) => What::End,
            (.., true) => What::Next,
            _ => What::Mark,
        }
    }
}
