//! Which processes were started in a phase, and what they needed at once: a compiler that a pipeline runs belongs to the stage that ran it.

use std::collections::{BTreeMap, HashMap};

use super::report::Run;
use crate::model::units::Bytes;

/// One process, all its images together.
struct Process {
    parent: Option<usize>,
    start: f64,
    end: f64,
    high: Bytes,
}

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
        for phase in &mut run.phases {
            let peaks = phase.spans.iter().map(|(begin, end)| {
                let (begin, end) = (run.start_unix_s + begin, run.start_unix_s + end);
                let from = all.partition_point(|p| processes[*p].start < begin);
                let to = all.partition_point(|p| processes[*p].start <= end);
                together(all[from..to.max(from)].iter().map(|p| &processes[*p]), end)
            });
            phase.children_peak_bytes = peaks.max();
        }
    }
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
                all.push(Process { parent: None, start: run.start_unix_s, end, high: Bytes(0) });
                same.push(all.len() - 1);
                all.len() - 1
            }
        };
        all[at].end = all[at].end.max(end);
        all[at].high = all[at].high.max(high(run));
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
        in_phases(&mut runs, high);
        let got: Vec<_> = runs[0].phases.iter().map(|p| p.children_peak_bytes.map(|b| b.0)).collect();
        assert_eq!(got, [Some(70), Some(340), Some(0)]);
    }
}
