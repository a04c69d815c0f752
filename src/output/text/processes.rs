//! The job as a tree of processes, and the threads of one run.

use super::{Page, ended, peak_resident};
use crate::analyze::report::{Job, JobGpu, NotRecorded, Report, Run};
use crate::analyze::unrecorded::SKIPPED;
use crate::output::table::{Table, cut};
use crate::output::units::{count, iec, percent};
use std::collections::{BTreeMap, HashSet};

const PROCESSES_SHOWN: usize = 8;
const THREADS_SHOWN: usize = 5;
const NAMES_SHOWN: usize = 4;
const COMMAND_WIDTH: usize = 44;
/// Forked with so many bytes, all together, processes are no sum any more.
const SHARED: u64 = 16 << 20;
/// About what stands in front of the command.
const OTHER_COLUMNS: usize = 48;

pub fn job(page: &mut Page, report: &Report, shown: Option<&Run>) {
    let j = &report.job;
    let ranks = if j.ranks > 0 { format!(", {} ranks", j.ranks) } else { String::new() };
    let hosts = if j.hosts > 1 { format!(" on {} hosts", j.hosts) } else { String::new() };
    let shared = shares_pages(report);
    let least = if j.request_lower_bound && !shared { " at least" } else { "" };
    let line = format!(
        "{}{ranks}{hosts}; {}{}",
        some(j.processes, "process", "processes"),
        if j.peak_bytes.0 > 0 { format!("peak {} resident at once", iec(j.peak_bytes.0)) } else { "resident memory not known".into() },
        if j.request_mem_bytes.0 > 0 { format!("; ask for {}{least}", iec(j.request_mem_bytes.0)) } else { String::new() }
    );
    page.say("JOB", line);
    if j.groups > 1 {
        page.say(
            "",
            format!("{} groups of runs, one after another: the peak and what to ask for are those of the highest", count(j.groups)),
        );
    }
    if shared {
        let less = "processes that were forked share pages with their parent, and each counts them as its own: less may do for them";
        let more = if j.request_lower_bound { "; those whose memory nobody saw to the end may need more" } else { "" };
        page.say("", format!("{less}{more}"));
    }
    if let (Some(imbalance), Some(worst)) = (j.imbalance, j.worst_rank) {
        page.say("", format!("rank {worst} has the highest peak, {imbalance:.2} times the mean"));
    }
    let tree = tree(report, shown, page.room());
    page.block("", tree);
    not_recorded(page, j);
    page.block("", gpus(report));
    page.gap();
}

/// Whether the sum over all processes counts many pages more than once: what children had when they were forked is their parent's.
fn shares_pages(report: &Report) -> bool {
    let forked = report.runs.iter().filter(|r| r.kin.forked && r.exec == 0);
    let theirs: u64 = forked.map(|r| r.rss.start_bytes.unwrap_or_default().max(r.heap.inherited_bytes).0).sum();
    let highest = report.runs.iter().map(peak_resident).max().unwrap_or(0);
    theirs > SHARED && report.job.peak_bytes.0 > highest
}

fn some(n: u64, one: &str, more: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { more })
}

/// Who ran without a trace, and what is known of it.
fn not_recorded(page: &mut Page, job: &Job) {
    let all = &job.not_recorded;
    let cleared = "started with an environment without LD_PRELOAD";
    let absent = "without a trace here: static, set-user-id or excluded programs, those that could not make one (and said so), or in a file that was not given";
    let skipped = "as was asked (--children skip)";
    for (why, said) in [("environment", cleared), ("no trace", absent), (SKIPPED, skipped)] {
        let of: Vec<&NotRecorded> = all.iter().filter(|n| n.why == why).collect();
        if !of.is_empty() {
            let n = some(of.len() as u64, "process was", "processes were");
            let line = format!("{n} not recorded, {said}: {}", names(&of));
            if why == SKIPPED { page.say("", line) } else { page.warn("missing", line) }
        }
    }
    let more = job.not_recorded_total.saturating_sub(all.len() as u64);
    if more > 0 {
        page.warn("missing", format!("{} more were not recorded", count(more)));
    }
    let unknown: Vec<&NotRecorded> = all.iter().filter(|n| n.peak_bytes.is_none()).collect();
    if unknown.len() < all.len() {
        page.say("", "what was seen from outside is in what to ask for");
    }
    if !unknown.is_empty() {
        let most = unknown.iter().map(|n| n.at_most_bytes).collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().max());
        let most = most.map_or("`memshim run` sees it".into(), |b| format!("none had more than {}, by what was waited for", iec(b.0)));
        page.say("", format!("nobody saw the memory of {} from outside: {most}", some(unknown.len() as u64, "process", "processes")));
    }
}

/// Programs, those with most memory first.
fn names(of: &[&NotRecorded]) -> String {
    let mut all: Vec<(&str, Vec<&NotRecorded>)> = Vec::new();
    for one in of {
        let name = one.program.as_deref().unwrap_or("a program");
        match all.iter_mut().find(|(n, _)| *n == name) {
            Some((_, same)) => same.push(one),
            None => all.push((name, vec![one])),
        }
    }
    let told = all.iter().take(NAMES_SHOWN).map(|(name, same)| {
        let who =
            if let [one] = same[..] { format!("{name} ({}", one.pid) } else { format!("{} times {name} (", count(same.len() as u64)) };
        let most = same.iter().filter_map(|n| n.peak_bytes).max().map(|b| format!("peak {}", iec(b.0)));
        let between = if same.len() == 1 && most.is_some() { ", " } else { "" };
        (who + between + &most.unwrap_or_default() + ")").replace(" ()", "")
    });
    let rest = all.len().saturating_sub(NAMES_SHOWN);
    told.chain((rest > 0).then(|| format!("{rest} more programs"))).collect::<Vec<_>>().join(", ")
}

/// The processes with the highest peaks in the order of the tree; the images of one process are one line, that of its highest.
fn tree(report: &Report, shown: Option<&Run>, room: usize) -> Vec<String> {
    let processes = processes(&report.runs);
    let mut by_peak: Vec<usize> = (0..processes.len()).collect();
    by_peak.sort_by_key(|&i| (std::cmp::Reverse(processes[i].peak), i));
    let kept: HashSet<usize> = by_peak.into_iter().take(PROCESSES_SHOWN).collect();
    let mut t = Table::with_text_last();
    t.row(["", "peak resident", "peak heap", "ended", "command"]);
    for (_, p) in processes.iter().enumerate().filter(|(i, _)| kept.contains(i)) {
        let here = shown.is_some_and(|s| s.pid == p.biggest.pid && s.host == p.biggest.host);
        let rank = p.biggest.rank.map(|r| format!(" rank {r}")).unwrap_or_default();
        let pid = format!("{}{}{rank}{}", "  ".repeat(p.depth.min(8)), p.biggest.pid, if here { " *" } else { "" });
        let command = cut(&p.biggest.command.join(" "), COMMAND_WIDTH.min(room.saturating_sub(OTHER_COLUMNS)));
        let heap = p.biggest.heap.get().map_or("–".into(), |heap| iec(heap.peak_bytes.0));
        let least = if p.least { "≥ " } else { "" };
        let peak = if p.peak > 0 { format!("{least}{}", iec(p.peak)) } else { "–".into() };
        t.row([pid, peak, heap, short_end(p.last), command]);
    }
    let mut lines = t.lines();
    if processes.len() > kept.len() {
        lines.push(format!("and {} with lower peaks (all in --json)", count((processes.len() - kept.len()) as u64)));
    }
    if processes.len() > 1 {
        lines.push("* shown below".into());
    }
    lines
}

const GPUS_SHOWN: usize = 16;

/// The job's GPUs, where more than one process used any.
fn gpus(report: &Report) -> Vec<String> {
    let all = &report.job.gpus;
    if report.runs.iter().filter(|r| r.gpu.is_some()).count() < 2 {
        return Vec::new();
    }
    let mut t = Table::with_text_last();
    t.row(["GPU", "processes", "peaks, summed", "reserved, summed", "most in use", "H2D", "D2H", "name"]);
    // Where the index alone says which it is there is no need for more.
    let numbers: HashSet<_> = all.iter().map(|g| (&g.host, g.index)).collect();
    let by_index = numbers.len() == all.len() && all.iter().all(|g| g.index.is_some());
    for g in all.iter().take(GPUS_SHOWN) {
        let card = card(g, by_index);
        t.row([
            if report.job.hosts > 1 { format!("{}:{card}", g.host) } else { card },
            count(g.processes),
            iec(g.peak_sum_bytes.0),
            iec(g.reserved_peak_sum_bytes.0),
            g.used_peak_bytes.map_or("–".into(), |b| iec(b.0)),
            iec(g.h2d_bytes.0),
            iec(g.d2h_bytes.0),
            g.name.clone().unwrap_or_default(),
        ]);
    }
    let mut lines = t.lines();
    if all.len() > GPUS_SHOWN {
        lines.push(format!("and {} more (all in --json)", all.len() - GPUS_SHOWN));
    }
    lines
}

/// What a GPU is called: the index that it has in all processes, and where that does not tell it from others the beginning of its UUID, or
/// its place on the bus.
fn card(g: &JobGpu, by_index: bool) -> String {
    /// Of a UUID: `GPU-` and the first eight digits.
    const UUID_SHOWN: usize = 12;
    let uuid = g.uuid.as_ref().map(|uuid| uuid.chars().take(UUID_SHOWN).collect());
    match (g.index, uuid.or_else(|| g.pci_bus_id.clone()).filter(|_| !by_index)) {
        (Some(index), Some(card)) => format!("{index} ({card})"),
        (Some(index), None) => index.to_string(),
        (None, card) => card.unwrap_or_default(),
    }
}

struct Process<'a> {
    depth: usize,
    peak: u64,
    /// That is what was seen of it: it went on after the last look.
    least: bool,
    /// The image with the highest peak, and the last one.
    biggest: &'a Run,
    last: &'a Run,
}

/// Parents come before children in a report; a parent that was not recorded counts as none.
fn processes(runs: &[Run]) -> Vec<Process<'_>> {
    let mut place: BTreeMap<(&str, u32), usize> = BTreeMap::new();
    let mut all: Vec<Process> = Vec::new();
    for r in runs {
        if let Some(p) = place.get(&(r.host.as_str(), r.pid)).filter(|_| r.exec > 0).and_then(|&i| all.get_mut(i)) {
            p.last = r;
            p.least |= r.rss.lower_bound;
            if peak_resident(r) > p.peak {
                (p.peak, p.biggest) = (peak_resident(r), r);
            }
            continue;
        }
        let depth = place.get(&(r.host.as_str(), r.ppid)).map_or(0, |&i| all[i].depth + 1);
        place.insert((r.host.as_str(), r.pid), all.len());
        all.push(Process { depth, peak: peak_resident(r), least: r.rss.lower_bound, biggest: r, last: r });
    }
    all
}

fn short_end(r: &Run) -> String {
    use crate::analyze::report::EndKind;
    match (r.end.kind, r.end.code, r.end.signal) {
        (EndKind::Exited, Some(code), _) => format!("exit {code}"),
        (EndKind::Signaled, _, Some(n)) => format!("signal {n}"),
        (EndKind::Exec, ..) => "exec".into(),
        (EndKind::Killed, ..) if r.known_until_s.is_some() => "not known".into(),
        (EndKind::Killed, ..) => "killed".into(),
        (EndKind::Running, ..) => "running".into(),
        _ => ended(&r.end, r.known_until_s.is_some()),
    }
}

pub fn threads(page: &mut Page, run: &Run) {
    if run.threads.len() < 2 {
        return;
    }
    let total = run.threads.iter().fold(0u64, |sum, t| sum.saturating_add(t.bytes.0));
    let mut t = Table::with_text_last();
    t.row(["tid", "total", "share", "peak", "allocations", "name"]);
    for th in run.threads.iter().take(THREADS_SHOWN) {
        let share = percent(th.bytes.0 as f64, total as f64);
        t.row([th.tid.to_string(), iec(th.bytes.0), share, iec(th.peak_bytes.0), count(th.allocs), th.name.clone()]);
    }
    let mut lines = t.lines();
    let rest = run.threads_total.unwrap_or(0).saturating_sub(THREADS_SHOWN as u64);
    if rest > 0 {
        lines.push(format!("and {} more", count(rest)));
    }
    page.gap();
    page.block("THREADS", lines);
}
