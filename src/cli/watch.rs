//! `memshim watch`: a process that is running already, from outside.

use super::{exit, value};
use crate::launch::onlooker::{self, Plan};
use crate::output::{shell, units::iec};
use clap::Args;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

const EXAMPLES: &str = "\
EXAMPLES
  memshim watch 4242                       until it ends, or Ctrl-C
  memshim watch 4242 -o w.jsonl --interval 10ms
  memshim watch $(pgrep -n solver) --for 5m

Seen: resident memory and its layers, the kernel's high-water mark (also from before the watch), the memory cgroup, processor time, page faults,
and the same of every process that it starts (OUT.d/). Not seen: heap, maps, call stacks, GPU, phases: those need `memshim run`.

EXIT STATUS 0 done, 2 usage, 3 there is no such process, or the trace cannot be written to its end.";

/// Watch a running process from outside, without the library in it
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Watch {
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: i32,

    /// Where the trace goes [default: watch.PID.jsonl]; ends in .zst: compressed. A file that is there is not overwritten
    #[arg(short, long, value_name = "OUT")]
    out: Option<PathBuf>,

    /// Time between two looks
    #[arg(long, value_name = "TIME", value_parser = value::interval, default_value = "100ms")]
    interval: u64,

    /// Watch no longer than this
    #[arg(long = "for", value_name = "TIME", value_parser = value::interval)]
    at_most: Option<u64>,

    /// Say nothing
    #[arg(short, long)]
    quiet: bool,
}

impl Watch {
    pub fn execute(self) -> anyhow::Result<u8> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [nix::libc::SIGINT, nix::libc::SIGTERM, nix::libc::SIGHUP] {
            signal_hook::flag::register(signal, stop.clone())?;
        }
        let out = self.out.clone().unwrap_or_else(|| onlooker::default_out(self.pid));
        let plan = Plan {
            pid: self.pid,
            out: out.clone(),
            interval: Duration::from_nanos(self.interval),
            at_most: self.at_most.map(Duration::from_nanos),
        };
        let outcome = onlooker::watch(&plan, &stop)?;
        if !self.quiet {
            let others = match outcome.others {
                0 => String::new(),
                n => format!(", and {n} that it started"),
            };
            // Of who has ended nobody knows what it had after the last look.
            let (how, least) = if outcome.ended { ("has ended", " at least") } else { ("goes on", "") };
            eprintln!("memshim: process {} {how}: peak resident{least} {}{others}", self.pid, iec(outcome.hwm));
            if !outcome.denied.is_empty() {
                eprintln!("memshim: not allowed to see its {}: watch as its user or root", outcome.denied.join(" and "));
            }
            if let Some((lines, why)) = &outcome.lost {
                eprintln!("memshim: {lines} looks are not in the trace: {why}");
            }
            eprintln!("memshim: next: memshim analyze {}", shell::quoted_path(&out));
        }
        Ok(if outcome.lost.is_some() { exit::UNREADABLE } else { exit::DONE })
    }
}
