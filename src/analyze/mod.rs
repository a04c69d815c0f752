//! From model to answer: one question a file, and the report that holds the answers. [`analyze`] is the way in.

pub mod advice;
pub mod artifacts;
pub mod auto;
pub mod cards;
pub mod check;
pub mod clock;
pub mod compiles;
pub mod cpu;
pub mod ending;
pub mod gpu;
pub mod heap;
mod instants;
pub mod job;
pub mod left;
pub mod maps;
pub mod missing;
pub mod offspring;
pub mod owner;
pub mod phases;
pub mod profile;
pub mod python;
pub mod report;
pub mod rss;
pub mod rules;
pub mod run;
pub mod runtime;
pub mod sites;
pub mod sources;
pub mod stacks;
pub mod steps;
pub mod suppressions;
pub mod there;
pub mod unrecorded;
pub mod views;

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::model::forks::Forks;
use crate::model::image::Interest;
use crate::model::load::{Homeless, Loaded, Progress, Reading, load};
use crate::model::modules::ModuleFile;
use crate::model::sites::Instant;
use crate::model::twice::{self, Twice};
use crate::parallel::largest_first;
use crate::symbols::Search;
use crate::trace::family::{self, Member};
use crate::trace::marks::SideFiles;
use report::{Missing, Report, SAMPLES_SHOWN, SCHEMA, SNAPSHOTS_SHOWN};
use suppressions::Suppressions;

/// What is asked beyond the usual.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Requested sizes whose live bytes are followed on their own (`--sizes`).
    pub sizes: Vec<u64>,
    /// Files read at a time; 0: as many as there are processors.
    pub parallel: usize,
    /// Of which instant call sites are to say what was live.
    pub instant: Instant,
    /// Where names of code are looked for.
    pub symbols: Search,
    /// Show the interpreter's own frames between and outside of Python's.
    pub interpreter: bool,
    /// Only call sites that pass all of these.
    pub filters: Vec<String>,
    /// Leaks that are known.
    pub suppressions: Suppressions,
    /// Of call sites what this phase left behind, instead of what was live at an instant: its name, or names with `/`.
    pub left: Option<String>,
    /// Whose call sites.
    pub memory: sources::Memory,
    /// Only what this thread allocated.
    pub thread: Option<u32>,
    /// Into how many units the work of a step goes.
    pub units: Option<Units>,
    /// A view of all call sites.
    pub view: Option<views::Request>,
}

/// Units of work: `64 atoms`.
#[derive(Clone, Debug, PartialEq)]
pub struct Units {
    pub count: f64,
    /// One of them, `atom`; empty: not said.
    pub unit: String,
}

/// Why there is no report at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Family(#[from] family::Error),
    #[error("{path}: {why}")]
    NoTrace { path: String, why: String },
    #[error("no call stacks are in these traces: record with MEMSHIM_STACKS=mixed")]
    NoStacks,
    #[error("nothing to export: {why}", why = .0.absent())]
    NoMemory(sources::Memory),
    #[error("no allocation with a call stack is left: loosen --filter, or record every call (MEMSHIM_MODE=full), not a sample of them")]
    NoSites,
    /// A process or a thread that was asked for, in words.
    #[error("{0}")]
    NotThere(String),
    #[error("temporary allocations of process {pid} are not known: {ageless}", ageless = sites::AGELESS)]
    NoAges { pid: u32 },
}

/// Reads all traces that the arguments name and answers. What can't be read of them is in the report; an error only where nothing can.
pub fn analyze(inputs: &[PathBuf], options: &Options, progress: &Progress) -> Result<Report, Error> {
    let Inputs { files: loaded, homeless, twice } = load_inputs(inputs, options, progress)?;
    let mut report = Report { schema: SCHEMA, ..Report::default() };
    for copy in twice {
        let why = format!("the same as in {}: counted once", copy.other.display());
        let what = format!("processes of trace {}", copy.file.display());
        report.problems.push(Missing { what, count: copy.images, why });
    }
    for spool in homeless {
        let why = "no trace here holds lines of its process".to_string();
        report.problems.push(Missing { what: format!("spool {}", spool.display()), count: 1, why });
    }
    let names = stacks::Names::of(loaded.iter().flat_map(|l| &l.images), &options.symbols);
    let mut frames = stacks::FrameTable::default();
    for file in loaded {
        report.job.trace_bytes += crate::model::units::Bytes(file.bytes);
        if file.images.is_empty() {
            let why = not_a_trace(&file);
            report.problems.push(Missing { what: format!("trace {}", file.path.display()), count: 1, why });
        }
        report.runs.extend(run::runs_of(file, options, &names, &mut frames));
    }
    job::complete(&mut report);
    for run in &mut report.runs {
        run.advice = advice::advice(run);
    }
    Ok(report)
}

/// The files that the arguments name, read.
struct Inputs {
    files: Vec<Loaded>,
    /// Spools of no process of theirs.
    homeless: Vec<PathBuf>,
    /// What was taken out of them because others hold it.
    twice: Vec<Twice>,
}

/// See [`Inputs`]; an error where no file holds an image.
fn load_inputs(inputs: &[PathBuf], options: &Options, progress: &Progress) -> Result<Inputs, Error> {
    let mut members = family::discover(inputs)?;
    let homeless = Homeless::take_from(&mut members);
    let mut loaded = load_all(&members, &homeless, options, progress);
    if loaded.iter().all(|l| l.images.is_empty()) {
        let first = loaded.first();
        let why = first.map_or_else(String::new, not_a_trace);
        let path = first
            .map_or_else(|| inputs.first().map(|p| p.display().to_string()), |l| Some(l.path.display().to_string()))
            .unwrap_or_default();
        return Err(Error::NoTrace { path, why });
    }
    let twice = twice::take_out(&mut loaded);
    Ok(Inputs { files: loaded, homeless: homeless.left(), twice })
}

/// The programs and libraries that stacks of the traces lead through.
pub fn modules(inputs: &[PathBuf], options: &Options, progress: &Progress) -> Result<Vec<ModuleFile>, Error> {
    let loaded = load_inputs(inputs, options, progress)?.files;
    let mut all = BTreeSet::new();
    for image in loaded.iter().flat_map(|l| &l.images) {
        let used = image.stacks.native.frames().filter_map(|f| image.stacks.modules.files.get(f.module as usize));
        all.extend(used.cloned());
    }
    Ok(all.into_iter().collect())
}

/// Why a file holds no run.
fn not_a_trace(file: &Loaded) -> String {
    match &file.damage.error {
        Some(error) => error.clone(),
        None if file.bytes == 0 => "an empty file: the disk was full (the program was told on its stderr), or the process was stopped before it wrote anything; run it again where there is room".into(),
        None => "not a memshim trace: no header line in it (`memshim run -- PROGRAM` writes trace.jsonl)".into(),
    }
}

/// Reads the files side by side, those of parents before those of their forked children.
fn load_all(members: &[Member], homeless: &Homeless, options: &Options, progress: &Progress) -> Vec<Loaded> {
    let by_thread = options.thread.is_some() || options.view.as_ref().is_some_and(|v| v.by == views::By::Thread);
    let interest =
        Interest { sizes: options.sizes.clone(), samples: SAMPLES_SHOWN, snapshots: SNAPSHOTS_SHOWN, instant: options.instant, by_thread };
    let len = |m: &Member| std::fs::metadata(&m.path).map_or(0, |m| m.len());
    let side = SideFiles::of(members);
    let (forks, generations) = Forks::of(members);
    let reading = Reading { homeless, side: &side, forks: &forks, interest: &interest, progress };
    let mut loaded: Vec<Option<Loaded>> = members.iter().map(|_| None).collect();
    for files in &generations {
        let read = largest_first(files, options.parallel, |&i| len(&members[i]), |&i| load(&members[i], &reading));
        files.iter().zip(read).for_each(|(&i, file)| loaded[i] = Some(file));
    }
    loaded.into_iter().flatten().collect()
}
