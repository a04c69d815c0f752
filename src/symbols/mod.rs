//! Names of code: addresses in files become functions, source lines and inlined frames. Not for live processes, and never from the network.
//!
//! A trace says which file (path and build id) an address is of. A file of another build id is another file, however it is called, and is not
//! used: wrong names are worse than none. All this is time-boxed: what there was no time for stays without lines or without a name, and is counted.

pub mod carry;
pub mod detail;
mod elf;
mod files;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::model::modules::ModuleFile;
use crate::parallel::largest_first;
pub use elf::demangled;
pub use files::Source;

/// A function at an address, or one inlined there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Named {
    pub function: String,
    pub file: Option<String>,
    pub line: Option<u32>,
    pub inlined: bool,
}

/// Where symbols are looked for, and for how long.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// Folders of programs, libraries and debug files (`--symbols`), looked at first.
    pub folders: Vec<PathBuf>,
    pub time: Time,
    /// Threads at a time; 0: as many as there are processors.
    pub parallel: usize,
}

/// How long names are looked up: lines and inlined functions of very large programs can take minutes, names of functions alone take much less.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    pub lines: Duration,
    /// Both together.
    pub all: Duration,
}

impl Time {
    /// So much in all, a third of it for functions alone.
    pub fn of(all: Duration) -> Time {
        Time { lines: all * 2 / 3, all }
    }
}

impl Default for Time {
    fn default() -> Time {
        Time::of(Duration::from_secs(30))
    }
}

/// The instants at which that is over.
#[derive(Clone, Copy)]
struct Deadlines {
    lines: Instant,
    all: Instant,
}

/// Names of the addresses of one file.
#[derive(Clone, Debug, Default)]
pub struct ModuleNames {
    /// By address: the function and what is inlined in it, outermost first; nothing where no symbol is known.
    pub at: HashMap<u64, Vec<Named>>,
    /// Why there are no (or not all) names.
    pub problem: Option<String>,
    /// Which file they came from.
    pub source: Option<PathBuf>,
}

/// Addresses of a file, of which the names are wanted: instructions, not return addresses.
pub struct Wanted<'a> {
    pub module: &'a ModuleFile,
    pub addresses: Vec<u64>,
}

/// Looks everything up, file by file, several files at a time. The answers are in the order of the questions.
pub fn names(wanted: &[Wanted], search: &Search) -> Vec<ModuleNames> {
    let now = Instant::now();
    let until = Deadlines { lines: now + search.time.lines, all: now + search.time.all };
    largest_first(wanted, search.parallel, |w| w.addresses.len() as u64, |w| of_module(w, search, until))
}

fn of_module(wanted: &Wanted, search: &Search, until: Deadlines) -> ModuleNames {
    match files::find(wanted.module, &search.folders) {
        Source::File(path) => elf::names(&path, &wanted.addresses, &search.folders, until),
        Source::None(why) => ModuleNames { problem: Some(why), ..ModuleNames::default() },
    }
}
