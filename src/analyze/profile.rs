//! All call sites of all processes, for other tools: stacks and what each holds.

use super::instants;
use super::report::{Frame, Missing};
use super::sites::Sums;
use super::sources;
use super::stacks::{FrameTable, Names, Stack};
use super::views::{Measure, label};
use super::{Error, Options, there};
use crate::model::image::ImageEnd;
use crate::model::load::{Loaded, Progress};
use crate::model::units::{Nanos, whole};
use std::path::PathBuf;

/// See the module.
#[derive(Debug, Default)]
pub struct Profile {
    pub frames: Vec<Frame>,
    pub processes: Vec<ProcessSites>,
    /// The instant of [`Measure::Peak`], in words.
    pub instant: String,
    /// What is to be known of it: an instant after the end, ends of blocks that nobody knows.
    pub problems: Vec<Missing>,
}

/// One image of one process.
#[derive(Debug, Default)]
pub struct ProcessSites {
    pub pid: u32,
    pub command: String,
    /// Wall-clock start, and how long it took.
    pub start_ns: u64,
    pub wall_ns: u64,
    pub rows: Vec<(Stack, Sums)>,
}

/// Whether one of them has the thread that is asked for, if one is.
fn is_there<'a>(thread: Option<u32>, images: impl Iterator<Item = &'a ImageEnd> + Clone) -> Result<(), Error> {
    let Some(tid) = thread else { return Ok(()) };
    let all = || images.clone().flat_map(|i| &i.threads);
    // Of more threads than are kept it may be another.
    if all().any(|t| t.tid == tid) || images.clone().any(|i| i.threads_total > i.threads.len() as u64) {
        return Ok(());
    }
    Err(Error::NotThere(there::no_thread(tid, all().map(|t| (t.tid, t.name.as_str())))))
}

impl Profile {
    /// Reads the traces; an error where nothing can be read, or nothing has stacks.
    pub fn read(inputs: &[PathBuf], options: &Options, pid: Option<u32>, progress: &Progress) -> Result<Profile, Error> {
        let loaded = super::load_inputs(inputs, options, progress)?.files;
        let names = Names::of(loaded.iter().flat_map(|l| &l.images), &options.symbols);
        let mut table = FrameTable::default();
        let (mut processes, mut instant, mut problems) = (Vec::new(), String::new(), Vec::new());
        let images = || loaded.iter().flat_map(|l: &Loaded| &l.images).filter(|i| pid.is_none_or(|p| i.header.pid == p));
        if let Some(pid) = pid.filter(|_| images().next().is_none()) {
            let all = loaded.iter().flat_map(|l: &Loaded| &l.images).map(|i| i.header.pid);
            return Err(Error::NotThere(there::no_process(pid, all)));
        }
        is_there(options.thread, images())?;
        for image in images() {
            let mut rows = sources::rows(image, options.memory, &mut sources::resolver(image, &names, options), &mut table, options);
            rows.sort_by(|a, b| a.0.frames.iter().rev().cmp(b.0.frames.iter().rev()));
            if rows.is_empty() {
                continue;
            }
            if let Some((_, of)) = options.memory.instant(image) {
                instant = instants::said(of, Nanos(image.header.mono_ns));
                problems.extend(instants::of_instant(image, of));
            }
            let command = image.header.argv.iter().map(|a| a.0.as_str()).collect::<Vec<_>>().join(" ");
            let wall_ns = image.seen.last_t.0.saturating_sub(image.header.mono_ns);
            processes.push(ProcessSites { pid: image.header.pid, command, start_ns: image.header.wall_ns, wall_ns, rows });
        }
        if processes.is_empty() {
            let absent = images().all(|i| options.memory.instant(i).is_none());
            return Err(if images().all(|i| i.heap.sites.is_none()) {
                Error::NoStacks
            } else if absent {
                Error::NoMemory(options.memory)
            } else {
                Error::NoSites
            });
        }
        Ok(Profile { frames: table.all, processes, instant, problems })
    }

    /// Whether it is known of all stacks.
    pub fn tells(&self, measure: Measure) -> bool {
        self.processes.iter().flat_map(|p| &p.rows).all(|(_, sums)| measure.is_known(sums))
    }

    /// The same, or an error that says of which process it is not.
    pub fn must_tell(&self, measure: Measure) -> Result<(), Error> {
        let untold = |p: &&ProcessSites| !p.rows.iter().all(|(_, sums)| measure.is_known(sums));
        self.processes.iter().find(untold).map_or(Ok(()), |p| Err(Error::NoAges { pid: p.pid }))
    }

    /// Every stack that holds something by the measure: names outermost first, the process in front where there are several.
    pub fn stacks(&self, measure: Measure) -> Vec<(Vec<String>, u64)> {
        let mut all = Vec::new();
        for p in &self.processes {
            let process = (self.processes.len() > 1).then(|| format!("{} (pid {})", p.command, p.pid));
            for (stack, sums) in &p.rows {
                let value = whole(measure.of(sums));
                if value > 0 {
                    let frames = stack.frames.iter().rev().map(|f| label(&self.frames[*f as usize]));
                    let beyond = stack.truncated.then(|| "…".to_owned());
                    let mut names: Vec<String> = process.iter().cloned().chain(beyond).chain(frames).collect();
                    if stack.frames.is_empty() {
                        names.push("(no stack)".into());
                    }
                    all.push((names, value));
                }
            }
        }
        all
    }
}
