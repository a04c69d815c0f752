//! Which processes were started in a phase, and what they needed at once: a compiler that a pipeline runs belongs to the stage that ran it. And
//! the children of a process by the name of their program, as phases of its own.

use std::collections::{BTreeMap, HashMap};

use super::phases::latency;
use super::report::{Phase, Run};
use crate::model::units::Bytes;
use memshim_format::phase::{SOURCES, Source};

/// One process, all its images together.
struct Process {
    parent: Option<usize>,
    start: f64,
    end: f64,
    high: Bytes,
    /// The program that it was last.
    name: String,
}

/// Programs of children told apart in one process; those that took longest are kept.
const PROGRAMS: usize = 200;
/// Times of one of which it is remembered when they were.
const SPANS: usize = 10_000;

/// Generations looked up from a process.
const DEEP: usize = 64;

/// Fills `children_peak_bytes` of every phase of runs that have children here. `high`: the most resident of a run.
pub fn in_phases(runs: &mut [Run], high: impl Fn(&Run) -> Bytes) {
    let (processes, of_run) = processes(runs, high);
    // Children, their children, … of each process, by start.
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); processes.len()];
    for child in 0..processes.len() {
        let mut above = processes[child].parent;
        // A damaged trace can make a circle, or a chain of any length.
        for _ in 0..DEEP {
            let Some(parent) = above.filter(|&parent| parent != child) else { break };
            below[parent].push(child);
            above = processes[parent].parent;
        }
    }
    for all in &mut below {
        all.sort_by(|a, b| processes[*a].start.total_cmp(&processes[*b].start));
    }
    for (run, &process) in runs.iter_mut().zip(&of_run) {
        let all = &below[process];
        if all.is_empty() {
            continue;
        }
        let own = children(run, process, &processes, &below);
        for phase in &mut run.phases {
            let peaks = phase.spans.iter().map(|(begin, end)| {
                let (begin, end) = (run.start_unix_s + begin, run.start_unix_s + end);
                let from = all.partition_point(|p| processes[*p].start < begin);
                let to = all.partition_point(|p| processes[*p].start <= end);
                together(all[from..to.max(from)].iter().map(|p| &processes[*p]), end)
            });
            phase.children_peak_bytes = peaks.max();
        }
        run.phases.extend(own);
    }
}

/// Children that an image started, by the name of their program, as phases: when they ran, how many, the most of them and theirs at once.
fn children(run: &Run, process: usize, processes: &[Process], below: &[Vec<usize>]) -> Vec<Phase> {
    let (begin, end) = (run.start_unix_s, run.start_unix_s + run.wall_s);
    // A child can be recorded from after its parent's end on; which image it is of matters where there is another.
    let end = if end >= processes[process].end { f64::MAX } else { end };
    let is_its = |c: &&usize| processes[**c].parent == Some(process) && (begin..=end).contains(&processes[**c].start);
    let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for &child in below[process].iter().filter(is_its) {
        by_name.entry(&processes[child].name).or_default().push(child);
    }
    let mut all: Vec<Phase> = by_name
        .into_iter()
        .map(|(name, which)| {
            let spans: Vec<(f64, f64)> = which.iter().map(|c| (processes[*c].start - begin, processes[*c].end - begin)).collect();
            let with_theirs = which.iter().flat_map(|c| std::iter::once(c).chain(&below[*c])).map(|p| &processes[*p]);
            let walls: Vec<f64> = spans.iter().map(|(begin, end)| end - begin).collect();
            let (name, wall_s) = (format!("child {name}"), walls.iter().sum());
            Phase {
                path: vec![name.clone()],
                name,
                source: SOURCES[Source::Process as usize],
                count: which.len() as u64,
                begin_s: spans.iter().map(|s| s.0).fold(f64::MAX, f64::min),
                end_s: spans.iter().map(|s| s.1).fold(0.0, f64::max),
                wall_s,
                self_wall_s: wall_s,
                latency: latency(walls),
                children_peak_bytes: Some(together(with_theirs, f64::MAX)),
                spans: spans.into_iter().take(SPANS).collect(),
                ..Phase::default()
            }
        })
        .collect();
    if all.len() > PROGRAMS {
        all.sort_by(|a, b| b.wall_s.total_cmp(&a.wall_s));
        all.truncate(PROGRAMS);
    }
    all.sort_by(|a, b| a.begin_s.total_cmp(&b.begin_s));
    all
}

/// A program's name as people call it: that of its file.
fn name_of(run: &Run) -> &str {
    let path = if run.exe.is_empty() { run.command.first().map_or("", |c| c) } else { &run.exe };
    path.trim_end_matches(" (deleted)").rsplit('/').next().unwrap_or(path)
}

/// The processes, and which of them each run is of.
fn processes(runs: &[Run], high: impl Fn(&Run) -> Bytes) -> (Vec<Process>, Vec<usize>) {
    let mut all: Vec<Process> = Vec::new();
    // By host and pid, the latest last.
    let mut known: HashMap<(&str, u32), Vec<usize>> = HashMap::new();
    let mut of_run = Vec::with_capacity(runs.len());
    for run in runs {
        let end = run.start_unix_s + run.wall_s;
        let same = known.entry((&run.host, run.pid)).or_default();
        let at = match same.last() {
            Some(&at) if run.exec > 0 => at,
            _ => {
                all.push(Process { parent: None, start: run.start_unix_s, end, high: Bytes(0), name: String::new() });
                same.push(all.len() - 1);
                all.len() - 1
            }
        };
        all[at].end = all[at].end.max(end);
        all[at].high = all[at].high.max(high(run));
        all[at].name = name_of(run).to_owned();
        of_run.push(at);
    }
    for (run, &at) in runs.iter().zip(&of_run) {
        let parents = known.get(&(run.host.as_str(), run.ppid)).into_iter().flatten();
        let parent =
            parents.filter(|p| **p != at && all[**p].start <= all[at].start).max_by(|a, b| all[**a].start.total_cmp(&all[**b].start));
        if all[at].parent.is_none() {
            all[at].parent = parent.copied();
        }
    }
    (all, of_run)
}

/// The most of them at once until `end`: each for as long as it lives, with its peak.
fn together<'a>(processes: impl Iterator<Item = &'a Process>, end: f64) -> Bytes {
    let mut steps: BTreeMap<u64, i128> = BTreeMap::new();
    for p in processes {
        // Times after 1970: their bits are in their order.
        *steps.entry(p.start.max(0.0).to_bits()).or_default() += p.high.0 as i128;
        if p.end < end {
            *steps.entry(p.end.max(0.0).to_bits()).or_default() -= p.high.0 as i128;
        }
    }
    let (mut now, mut most) = (0, 0);
    for change in steps.values() {
        now += change;
        most = most.max(now);
    }
    Bytes(u64::try_from(most).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::report::Phase;
    use super::*;

    fn run(pid: u32, ppid: u32, start: f64, wall_s: f64) -> Run {
        Run { pid, ppid, host: "h".into(), start_unix_s: start, wall_s, ..Run::default() }
    }

    #[test]
    fn a_phase_has_the_children_that_were_started_in_it() {
        let phase = |spans: &[(f64, f64)]| Phase { spans: spans.to_vec(), ..Phase::default() };
        let mut parent = run(1, 0, 100.0, 50.0);
        parent.phases = vec![phase(&[(0.0, 10.0)]), phase(&[(10.0, 20.0), (30.0, 31.0)]), phase(&[(40.0, 41.0)])];
        // Two children after each other in the first; in the second one with a grandchild, at once.
        let mut runs = vec![parent, run(2, 1, 101.0, 2.0), run(3, 1, 104.0, 2.0), run(4, 1, 112.0, 5.0), run(5, 4, 113.0, 1.0)];
        let high = |r: &Run| Bytes([0, 900, 50, 70, 300, 40][r.pid as usize]);
        runs.iter_mut().for_each(|r| r.exe = format!("/bin/{}", ["", "sh", "cc1", "cc1", "ld", "cat"][r.pid as usize]));
        in_phases(&mut runs, high);
        let got: Vec<_> = runs[0].phases.iter().take(3).map(|p| p.children_peak_bytes.map(|b| b.0)).collect();
        assert_eq!(got, [Some(70), Some(340), Some(0)]);
        // The grandchild is in what its parent needed, and by itself a child of that.
        let children: Vec<_> = runs[0].phases[3..]
            .iter()
            .map(|p| (p.name.as_str(), p.source, p.count, p.begin_s, p.wall_s, p.children_peak_bytes.map(|b| b.0)))
            .collect();
        assert_eq!(children, [("child cc1", "process", 2, 1.0, 4.0, Some(70)), ("child ld", "process", 1, 12.0, 5.0, Some(340))]);
        assert_eq!((runs[3].phases[0].name.as_str(), runs[3].phases[0].heap_peak_bytes), ("child cat", None));
    }
}
