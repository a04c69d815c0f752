//! The command line: one file per verb, each flag with its text and its test beside it.

mod analyze;
mod check;
mod config;
mod doctor;
mod env;
mod export;
mod mark;
mod pack;
mod run;
mod sites;
mod value;
mod watch;

use crate::launch::inherited;
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// Exit codes of the reading verbs (docs/guide.md). `run` exits as its target did.
pub mod exit {
    pub const DONE: u8 = 0;
    /// A limit of `check` is broken.
    pub const LIMIT_BROKEN: u8 = 1;
    pub const USAGE: u8 = 2;
    pub const UNREADABLE: u8 = 3;
    /// There is no room for the output: disk full, quota, file size limit.
    pub const UNWRITTEN: u8 = 4;
    /// Who read our output went away: as a shell shows the end of any program by SIGPIPE.
    pub const BROKEN_PIPE: u8 = 128 + 13;
    /// Own failures of `run`, told apart from anything a target is likely to return (as `env` and `timeout` do).
    pub const RUN_FAILED: u8 = 125;
}

/// What was asked for cannot be done as it was asked: the text names what can.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

macro_rules! bail_usage {
    ($($text:tt)*) => { return Err(crate::cli::Usage(format!($($text)*)).into()) };
}
use bail_usage;

/// An error of the system in words, without its number.
fn cause(e: &impl std::fmt::Display) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

const EXAMPLES: &str = "\
EXAMPLES
  memshim run -- python run.py            run, watch, write trace.jsonl
  memshim analyze trace.jsonl             what it needed, when, and who held it
  memshim check trace.jsonl --mean 2ms    steps against targets: exit status 1 where one is missed
  memshim export --to svg trace.jsonl     a flame graph of what was live at the peak
  LD_PRELOAD=/path/libmemshim.so prog     the same without `run`
  eval \"$(memshim env --export)\"          for job scripts
  memshim doctor -- python                what will be seen here";

/// How much memory a program needed, when, of which class, and who held it.
#[derive(Parser)]
#[command(name = "memshim", version, after_help = EXAMPLES, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Run(run::Run),
    Analyze(analyze::Analyze),
    Check(check::Check),
    Export(export::Export),
    Mark(mark::Mark),
    Watch(watch::Watch),
    Pack(pack::Pack),
    Env(env::Env),
    Doctor(doctor::Doctor),
}

/// Parses and does what was asked. The one place that prints an error.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    file_size_limits_are_errors();
    let args = with_default_verb(args.into_iter().collect());
    let for_run = args.get(1).is_some_and(|a| a == "run");
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(e) => {
            // Buffered: it is not there before it is flushed.
            let printed = e.print().and_then(|()| std::io::stdout().flush());
            return ExitCode::from(match (e.use_stderr(), for_run, printed) {
                (true, true, _) => exit::RUN_FAILED,
                (true, false, _) => exit::USAGE,
                (false, _, Ok(())) => exit::DONE,
                (false, _, Err(e)) if e.kind() == ErrorKind::BrokenPipe => exit::BROKEN_PIPE,
                (false, _, Err(e)) => {
                    eprintln!("memshim: cannot print: {}", cause(&e));
                    if for_run { exit::RUN_FAILED } else { exit::UNWRITTEN }
                }
            });
        }
    };
    // What others write is a part of their work.
    let prints = !matches!(cli.verb, Verb::Run(_) | Verb::Mark(_) | Verb::Watch(_));
    let (done, failed) = match cli.verb {
        Verb::Run(run) => (run.execute(), exit::RUN_FAILED),
        Verb::Analyze(analyze) => (analyze.execute(), exit::UNREADABLE),
        Verb::Check(check) => (check.execute(), exit::UNREADABLE),
        Verb::Export(export) => (export.execute(), exit::UNREADABLE),
        Verb::Mark(mark) => (mark.execute(), exit::UNREADABLE),
        Verb::Watch(watch) => (watch.execute(), exit::UNREADABLE),
        Verb::Pack(pack) => (pack.execute(), exit::UNREADABLE),
        Verb::Env(env) => (env.execute(), exit::UNREADABLE),
        Verb::Doctor(doctor) => (doctor.execute(), exit::UNREADABLE),
    };
    ExitCode::from(done.unwrap_or_else(|e| match say(&e, prints) {
        Some(code) if !for_run || code == exit::BROKEN_PIPE => code,
        _ => failed,
    }))
}

/// Says what went wrong; its exit code, where it has one of its own. `prints`: what the verb writes is its output.
fn say(e: &anyhow::Error, prints: bool) -> Option<u8> {
    let kind = kind_of(e);
    if kind == Some(ErrorKind::BrokenPipe) {
        return Some(exit::BROKEN_PIPE);
    }
    let unwritten = prints && kind.is_some_and(is_no_room);
    // What comes without a word about where is of our stdout.
    if unwritten && e.chain().count() == 1 {
        eprintln!("memshim: cannot print: {}", cause(e));
    } else {
        eprintln!("memshim: {e:#}");
    }
    if e.is::<Usage>() { Some(exit::USAGE) } else { unwritten.then_some(exit::UNWRITTEN) }
}

/// Under `ulimit -f` a write beyond the limit would end this process by SIGXFSZ. A handler, unlike an ignored signal, is not handed on to
/// a target; one that was ignored stays so.
fn file_size_limits_are_errors() {
    use nix::libc::SIGXFSZ;
    if !inherited::ignored_signals().any(|signal| signal == SIGXFSZ) {
        let _ = signal_hook::flag::register(SIGXFSZ, Default::default());
    }
}

/// A bare `memshim -- cmd` is `memshim run -- cmd`.
fn with_default_verb(mut args: Vec<OsString>) -> Vec<OsString> {
    if args.get(1).is_some_and(|a| a == "--") {
        args.insert(1, "run".into());
    }
    args
}

/// What the system refused, where that is the cause. That the reader of our stdout went away (`memshim analyze … | head`) is not worth a message.
fn kind_of(e: &anyhow::Error) -> Option<ErrorKind> {
    // serde_json's error keeps the kind of what it was made of, but not that itself.
    let kind = |c: &(dyn std::error::Error + 'static)| match c.downcast_ref::<std::io::Error>() {
        Some(io) => Some(io.kind()),
        None => c.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind),
    };
    e.chain().find_map(kind)
}

/// Whether storage has no room: nothing that is read fails so.
fn is_no_room(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn two_dashes_alone_mean_run() {
        let args = with_default_verb(["memshim", "--", "ls", "-l"].map(OsString::from).to_vec());
        assert_eq!(args, ["memshim", "run", "--", "ls", "-l"].map(OsString::from));
        assert_eq!(with_default_verb(vec!["memshim".into(), "ls".into()]).len(), 2);
    }
}
