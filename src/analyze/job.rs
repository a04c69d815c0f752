//! The job as a whole: what all processes needed at once, and which rank needed most.

use std::collections::{BTreeMap, BTreeSet};

use super::report::{EndKind, NOT_RECORDED_SHOWN, NotRecorded, Report, Run, Sample};
use super::{cards, offspring, rules, unrecorded};
use crate::model::units::Bytes;

/// Orders the runs (parents before children), relates them to each other and fills in the job.
pub fn complete(report: &mut Report) {
    order(&mut report.runs);
    unrecorded::add_seen(&mut report.runs);
    signals(&mut report.runs);
    children_peaks(&mut report.runs);
    offspring::in_phases(&mut report.runs, high);
    rules::say_once(&mut report.runs);
    let runs = &report.runs;
    let job = &mut report.job;
    job.processes =
        runs.iter().map(|r| (&r.host, r.pid, process_start(runs, r))).map(|(h, p, s)| (h, p, s.to_bits())).collect::<BTreeSet<_>>().len()
            as u64;
    job.hosts = runs.iter().map(|r| &r.host).collect::<BTreeSet<_>>().len() as u64;
    let ranks: BTreeSet<i64> = runs.iter().filter_map(|r| r.rank).collect();
    job.ranks = ranks.len() as u64;
    job.groups = groups(runs);
    job.events_read = runs.iter().fold(0, |sum, r| sum.saturating_add(r.events.recorded));

    let first = runs.iter().map(|r| r.start_unix_s).fold(f64::INFINITY, f64::min);
    let hosts: BTreeSet<&str> = runs.iter().map(|r| r.host.as_str()).collect();
    let mut not_recorded = unrecorded::of(runs);
    for host in hosts {
        let (peak, at) = together(runs.iter().filter(|r| r.host == host), not_recorded.iter().filter(|n| n.host == host));
        if peak > job.peak_bytes {
            (job.peak_bytes, job.peak_at_s) = (peak, Some(at - first));
        }
    }
    // Between two samples the kernel's high-water mark of each process still knows better.
    let highest = runs.iter().map(high).chain(not_recorded.iter().filter_map(|n| n.peak_bytes)).max().unwrap_or_default();
    if highest > job.peak_bytes {
        job.peak_bytes = highest;
    }
    let peaks: BTreeMap<i64, Bytes> =
        ranks.iter().map(|&rank| (rank, together(runs.iter().filter(|r| r.rank == Some(rank)), std::iter::empty()).0)).collect();
    job.worst_rank = peaks.iter().max_by_key(|(rank, peak)| (**peak, std::cmp::Reverse(**rank))).map(|(rank, _)| *rank);
    let mean = peaks.values().map(|b| b.0 as f64).sum::<f64>() / peaks.len().max(1) as f64;
    job.imbalance = job.worst_rank.and_then(|r| peaks.get(&r)).filter(|_| mean > 0.0).map(|worst| worst.0 as f64 / mean);
    job.gpus = cards::gpus(runs);
    let unseen = unrecorded::unseen(&not_recorded, highest);
    // Who was killed can have had more than anybody saw.
    let killed = runs.iter().filter(|r| r.rss.lower_bound);
    let needed = killed.clone().filter_map(|r| r.rss.at_most_bytes).fold(job.peak_bytes, Bytes::max);
    job.request_mem_bytes = request(unseen.iter().fold(needed.0, |sum, b| sum.saturating_add(b.0)));
    // Of those that were not to be recorded nobody asks.
    let unknown = not_recorded.iter().filter(|n| n.peak_bytes.is_none() && n.why != unrecorded::SKIPPED).count();
    job.request_lower_bound = unknown > unseen.len() || killed.into_iter().any(|r| r.rss.at_most_bytes.is_none());
    job.request_lower_bound |= runs.iter().any(|r| r.end.kind == EndKind::Running);
    job.not_recorded_total = not_recorded.len() as u64;
    not_recorded.truncate(NOT_RECORDED_SHOWN);
    job.not_recorded = not_recorded;
}

/// Groups of runs between which nothing ran. A run is there from the begin of its first process to the end of its last.
fn groups(runs: &[Run]) -> u64 {
    let mut spans: BTreeMap<(&str, &str), (f64, f64)> = BTreeMap::new();
    for r in runs {
        // Without a name of its own each file is one.
        let file = if r.kin.run.is_empty() { r.file.as_str() } else { "" };
        let span = spans.entry((&r.kin.run, file)).or_insert((f64::INFINITY, f64::NEG_INFINITY));
        *span = (span.0.min(r.start_unix_s), span.1.max(r.start_unix_s + r.wall_s));
    }
    let mut spans: Vec<(f64, f64)> = spans.into_values().collect();
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut until = f64::NEG_INFINITY;
    let mut begins = 0;
    for (from, to) in spans {
        begins += (begins == 0 || from > until) as u64;
        until = until.max(to);
    }
    begins
}

/// What to ask for where so much is needed: 10 % more, in whole MiB.
fn request(needed: u64) -> Bytes {
    const MIB: u64 = 1 << 20;
    Bytes(needed.saturating_add(needed / 10).div_ceil(MIB).saturating_mul(MIB))
}

/// The most that a process is known to have had resident, by its samples, its own high-water mark, and the one seen from outside.
fn high(r: &Run) -> Bytes {
    r.rss.hwm_bytes.unwrap_or_default().max(r.rss.peak_bytes).max(r.rss.outside_hwm_bytes.unwrap_or_default())
}

/// Start of the process's first image: tells apart processes that had the same pid one after another.
fn process_start(runs: &[Run], run: &Run) -> f64 {
    let same = |r: &&Run| r.host == run.host && r.pid == run.pid && r.file == run.file && r.exec <= run.exec;
    runs.iter().filter(same).map(|r| r.start_unix_s).fold(run.start_unix_s, f64::min)
}

/// Most resident memory at once, and when (Unix time): every process holds each of its samples until the next, and nothing after its end; who was not
/// recorded holds its peak as long as it was seen. Images of a process follow one another, those without a trace too.
fn together<'a>(runs: impl Iterator<Item = &'a Run>, others: impl Iterator<Item = &'a NotRecorded>) -> (Bytes, f64) {
    let runs: Vec<&Run> = runs.collect();
    let mut processes: BTreeMap<Process, (usize, u32)> = BTreeMap::new();
    for run in &runs {
        let number = processes.len();
        let of = processes.entry(process(run)).or_insert((number, run.exec));
        of.1 = of.1.max(run.exec);
    }
    let forked: BTreeMap<(&str, u32), f64> =
        runs.iter().flat_map(|r| r.kin.children.iter().map(|c| ((r.host.as_str(), c.pid), c.at_unix_s))).collect();
    let mut steps = Vec::new();
    let mut went_on: BTreeMap<(&str, u32), (usize, f64)> = BTreeMap::new();
    for run in &runs {
        let Some(&(number, last)) = processes.get(&process(run)) else { continue };
        let next = run.kin.went_on.as_ref().map(|next| next.at_unix_s);
        let until = next.unwrap_or(f64::INFINITY);
        let before = steps.len();
        let made = forked.get(&(run.host.as_str(), run.pid)).copied().filter(|_| run.kin.forked);
        steps.extend(looks(run, made).into_iter().filter(|look| look.0 < until).map(|(t, rss)| (t, number, rss)));
        if steps.len() == before && run.rss.peak_bytes.0 > 0 {
            steps.push((run.start_unix_s, number, run.rss.peak_bytes.0));
        }
        if let Some(at) = next {
            went_on.insert((&run.host, run.pid), (number, at));
            steps.push((at, number, 0));
        } else if run.end.kind != EndKind::Running && run.exec == last {
            // A sample of the last instant counts.
            let least = steps[before..].iter().fold(f64::NEG_INFINITY, |t, s| s.0.max(t)).next_up();
            steps.push(((run.start_unix_s + run.wall_s).max(least), number, 0));
        }
    }
    for (i, other) in others.enumerate() {
        if let (Some(peak), Some((from, to))) = (other.peak_bytes, other.seen_unix_s) {
            let (number, since) = went_on.get(&(other.host.as_str(), other.pid)).copied().unwrap_or((usize::MAX - i, from));
            let from = from.max(since);
            steps.extend([(from, number, peak.0), (to.max(from), number, 0)]);
        }
    }
    // Who is gone at an instant is not there with who comes.
    steps.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.2.cmp(&b.2)));
    let mut now = BTreeMap::new();
    let (mut sum, mut most, mut at) = (0u64, 0u64, 0.0);
    for (t, i, rss) in steps {
        // No machine has more; damaged numbers stay numbers.
        let rss = rss.min(1 << 48);
        let before = now.insert(i, rss).unwrap_or(0);
        sum = sum - before + rss;
        if sum > most {
            (most, at) = (sum, t);
        }
    }
    (Bytes(most), at)
}

/// What a run had resident from which instant on (Unix time), in order; `made`: the fork that made it. After a fork nobody looks until something is
/// allocated: a child is there from the fork on, and what stands longer without a look than looks are apart counts as what it was found to be.
fn looks(run: &Run, made: Option<f64>) -> Vec<(f64, u64)> {
    let at = |s: &Sample| (run.start_unix_s + s.t_s, s.rss.0);
    let mut all: Vec<(f64, u64)> =
        run.samples.first().map(at).and_then(|(t, rss)| Some((made.filter(|made| *made < t)?, rss))).into_iter().collect();
    let has_forks = run.kin.interval_s > 0.0 && (run.kin.forked || !run.kin.children.is_empty());
    for (t, rss) in run.samples.iter().map(at) {
        if let Some(&(since, had)) = all.last().filter(|_| has_forks)
            && t - since > 2.0 * run.kin.interval_s
            && rss > had
        {
            all.push((since.next_up(), rss));
        }
        all.push((t, rss));
    }
    all
}

/// Names a process among those of a job: host, space of numbers, number, start; where that is not known, the file.
type Process<'a> = (&'a str, u64, u32, u64, &'a str);

fn process(run: &Run) -> Process<'_> {
    let file = if run.kin.start_ticks == 0 { run.file.as_str() } else { "" };
    (&run.host, run.kin.pid_ns, run.pid, run.kin.start_ticks, file)
}

/// Parents before their children, siblings by start, images of a process in order.
fn order(runs: &mut [Run]) {
    runs.sort_by(|a, b| (&a.host, a.start_unix_s).partial_cmp(&(&b.host, b.start_unix_s)).unwrap_or(std::cmp::Ordering::Equal));
    runs.sort_by_key(|r| r.rank);
}

/// Of those that died without a word, the signal by which they did, where their parent was told.
fn signals(runs: &mut [Run]) {
    // A number is of a space of numbers, and can be given out again.
    let mut told: BTreeMap<(String, u64, u32), Vec<(f64, i32)>> = BTreeMap::new();
    let mut starts: BTreeMap<(String, u64, u32), Vec<f64>> = BTreeMap::new();
    for r in runs.iter() {
        starts.entry((r.host.clone(), r.kin.pid_ns, r.pid)).or_default().push(r.start_unix_s);
        for &(pid, t, signal) in &r.kin.killed {
            told.entry((r.host.clone(), r.kin.pid_ns, pid)).or_default().push((t, signal));
        }
    }
    for r in runs.iter_mut().filter(|r| r.end.kind == EndKind::Killed && !r.end.unseen) {
        let key = (r.host.clone(), r.kin.pid_ns, r.pid);
        let next = starts.get(&key).into_iter().flatten().filter(|start| **start > r.start_unix_s).fold(f64::INFINITY, |a, b| a.min(*b));
        let of = told.get(&key).into_iter().flatten();
        if let Some((_, signal)) = of.filter(|(t, _)| (r.start_unix_s..next).contains(t)).min_by(|a, b| a.0.total_cmp(&b.0)) {
            (r.end.kind, r.end.signal) = (EndKind::Signaled, Some(*signal));
        }
    }
}

/// `children.rss_peak_bytes`: the children's own high-water marks, not RUSAGE_CHILDREN, which keeps what a fork inherited.
fn children_peaks(runs: &mut [Run]) {
    let mut peaks: BTreeMap<(String, u32), (Bytes, BTreeSet<u32>)> = BTreeMap::new();
    for r in runs.iter() {
        let of = peaks.entry((r.host.clone(), r.ppid)).or_default();
        of.0 = of.0.max(high(r));
        of.1.insert(r.pid);
    }
    for r in runs.iter_mut() {
        if let Some((peak, pids)) = peaks.get(&(r.host.clone(), r.pid)) {
            r.children.rss_peak_bytes = Some(*peak).filter(|peak| peak.0 > 0);
            r.children.count = r.children.count.max(pids.len() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::{Rss, SeenOutside};
    use super::*;

    fn run(pid: u32, rank: i64, start: f64, samples: &[(f64, u64)]) -> Run {
        Run {
            pid,
            rank: Some(rank),
            host: "h".into(),
            start_unix_s: start,
            wall_s: 10.0,
            samples: samples.iter().map(|&(t_s, rss)| Sample { t_s, rss: Bytes(rss), ..Sample::default() }).collect(),
            rss: Rss { peak_bytes: Bytes(samples.iter().map(|s| s.1).max().unwrap()), ..Rss::default() },
            ..Run::default()
        }
    }

    #[test]
    fn the_peak_of_a_job_is_that_of_processes_at_the_same_time() {
        let mut report = Report {
            runs: vec![run(1, 0, 100.0, &[(0.0, 50), (5.0, 200)]), run(2, 1, 102.0, &[(0.0, 100), (2.0, 10)])],
            ..Report::default()
        };
        complete(&mut report);
        assert_eq!(report.job.peak_bytes, Bytes(210));
        assert_eq!(report.job.peak_at_s, Some(5.0));
        assert_eq!((report.job.worst_rank, report.job.ranks, report.job.processes), (Some(0), 2, 2));
        assert_eq!(report.job.imbalance, Some(200.0 / 150.0));
    }

    #[test]
    fn runs_one_after_another_are_told_from_those_at_the_same_time() {
        let of = |names: [&str; 3], starts: [f64; 3]| {
            let runs = [0, 1, 2].map(|i| Run {
                kin: super::super::report::Kin { run: names[i].into(), ..Default::default() },
                ..run(i as u32, 0, starts[i], &[(0.0, 1)])
            });
            let mut report = Report { runs: runs.to_vec(), ..Report::default() };
            complete(&mut report);
            report.job.groups
        };
        assert_eq!(of(["a", "b", "c"], [100.0, 105.0, 114.0]), 1);
        assert_eq!(of(["a", "b", "c"], [100.0, 111.0, 130.0]), 3);
        assert_eq!(of(["a", "b", "a"], [100.0, 111.0, 130.0]), 1, "a run is one whatever happens in it");
        assert_eq!(of(["a", "a", "b"], [100.0, 109.0, 120.0]), 2);
    }

    /// After a fork nobody looks until something is allocated.
    #[test]
    fn what_nobody_looked_at_after_a_fork_counts_as_what_it_was_found_to_be() {
        use super::super::report::{Kin, Started};
        let child = Started { pid: 2, at_unix_s: 101.0, ..Started::default() };
        let mut parent = run(1, 0, 100.0, &[(0.0, 10), (5.0, 200)]);
        parent.kin = Kin { interval_s: 0.1, children: vec![child], ..Kin::default() };
        let mut late = run(2, 1, 104.0, &[(0.0, 150)]);
        (late.kin, late.wall_s) = (Kin { interval_s: 0.1, forked: true, ..Kin::default() }, 0.0);
        let mut report = Report { runs: vec![parent.clone(), late.clone()], ..Report::default() };
        complete(&mut report);
        assert_eq!(report.job.peak_bytes, Bytes(350));
        // Looks that are as near as they are to be say what was between them.
        parent.kin.interval_s = 4.0;
        let mut report = Report { runs: vec![parent, late], ..Report::default() };
        complete(&mut report);
        assert_eq!(report.job.peak_bytes, Bytes(200), "10 and 150, then 200");
    }

    /// A process that became a program without a trace is one process: what it was, and then what it is.
    #[test]
    fn images_of_a_process_follow_one_another() {
        use super::super::report::{Kin, Started};
        let next = Started { pid: 1, at_unix_s: 105.0, program: Some("hog".into()), bare: true };
        let mut first = run(1, 0, 100.0, &[(0.0, 10), (4.99, 200), (5.0, 200)]);
        first.kin = Kin { start_ticks: 7, went_on: Some(next), ..Kin::default() };
        first.rss.outside_hwm_bytes = Some(Bytes(190));
        let beside = run(2, 1, 104.0, &[(0.0, 30)]);
        let peak = |runs: &[&Run]| {
            let mut report = Report { runs: runs.iter().map(|r| (*r).clone()).collect(), ..Report::default() };
            complete(&mut report);
            (report.job.peak_bytes.0, report.job.peak_at_s.map(|t| (t * 100.0).round()))
        };
        assert_eq!(peak(&[&first]), (200, Some(499.0)));
        assert_eq!(peak(&[&first, &beside]), (230, Some(499.0)));
        // Seen from outside also before it went on.
        let seen = SeenOutside { pid: 1, start_ticks: 7, hwm: Bytes(190), from_unix_s: 101.0, to_unix_s: 108.0, ..SeenOutside::default() };
        let parent = Run { kin: Kin { seen_outside: vec![seen], ..Kin::default() }, ..beside };
        assert_eq!(peak(&[&first, &parent]), (230, Some(499.0)));
        // Images that all have a trace: the last look at the first is not beside the first at the second.
        let image = |exec: u32, start: f64, samples: &[(f64, u64)]| Run {
            exec,
            kin: Kin { start_ticks: 7, ..Kin::default() },
            wall_s: 5.1,
            ..run(1, 0, start, samples)
        };
        let images = [image(0, 100.0, &[(0.0, 10), (4.9, 200)]), image(1, 105.0, &[(0.0, 150), (5.1, 150)])];
        assert_eq!(peak(&[&images[0], &images[1]]), (200, Some(490.0)));
    }

    #[test]
    fn nothing_is_held_after_the_end() {
        let mut report = Report { runs: vec![run(1, 0, 100.0, &[(0.0, 50)]), run(2, 1, 111.0, &[(0.0, 60)])], ..Report::default() };
        complete(&mut report);
        assert_eq!(report.job.peak_bytes, Bytes(60));
    }
}
