//! The phases of a run: what each needed, what it left behind, what it needed only meanwhile.

pub(super) mod names;

use super::{Page, Whose, gpu, peak_resident};
use crate::analyze::heap::lacks_many;
use crate::analyze::left::who;
use crate::analyze::phases::is_of_process;
use crate::analyze::report::{Mode, Phase, PhaseDevice, PhaseSites, Run};
use crate::model::units::Bytes;
use crate::output::shell;
use crate::output::table::Table;
use crate::output::units::{about, count, iec, iec_signed, percent, seconds};
use std::collections::HashSet;

const PHASES_SHOWN: usize = 12;
const MARKS_SHOWN: usize = 8;
/// Of the process's own (source `process`), and from which share of the run's time or peak on, seconds and bytes at least.
const OWN_SHOWN: usize = 4;
const OWN_SHARE: f64 = 0.05;
const OWN_S: f64 = 0.1;
const OWN_BYTES: u64 = 1 << 20;
const NAME_WIDTH: usize = 34;

/// A column: its title and what stands in it. Of the later ones those are shown that any phase has, and as many as there is room for; what
/// matters most comes first.
type Column = (&'static str, fn(&Phase) -> Option<String>);

fn bytes(b: Option<Bytes>) -> Option<String> {
    b.map(|b| iec(b.0))
}

/// So far a figure can be off, where that is more than its last digits.
fn bound(bound: Option<Bytes>, of: u64) -> String {
    bound.filter(|b| b.0.saturating_mul(100) > of).map_or(String::new(), |b| format!(" ±{}", iec(b.0)))
}

const FIRST: [Column; 4] = [
    ("times", |p| Some(count(p.count))),
    ("wall", |p| Some(seconds(p.wall_s))),
    ("heap peak", |p| {
        let peak = p.heap_peak_bytes?;
        Some(iec(peak.0) + &bound(p.heap_peak_bound_bytes, peak.0))
    }),
    ("left behind", |p| {
        let left = p.heap_persistent_bytes?;
        Some(iec_signed(left) + &bound(p.heap_persistent_bound_bytes, left.unsigned_abs()))
    }),
];

const MORE: [Column; 11] = [
    ("for one", |p| p.per_unit.as_ref().map(|u| format!("{}{}{}", seconds(u.median_s), if u.unit.is_empty() { "" } else { "/" }, u.unit))),
    ("meanwhile", |p| {
        let meanwhile = p.heap_transient_bytes?;
        Some(iec(meanwhile.0) + &bound(p.heap_transient_bound_bytes, meanwhile.0))
    }),
    ("RSS peak", |p| bytes(p.rss_peak_bytes)),
    ("GPU peak", |p| bytes(p.gpu_peak_bytes)),
    ("GPU busy", |p| busiest(p).and_then(gpu::share)),
    // There were none, where they had nothing.
    ("children", |p| bytes(p.children_peak_bytes.filter(|b| b.0 > 0))),
    ("H2D", |p| bytes(p.h2d_bytes)),
    ("D2H", |p| bytes(p.d2h_bytes)),
    ("maps peak", |p| bytes(p.map_peak_bytes)),
    ("self", |p| (p.self_wall_s < p.wall_s * 0.99).then(|| seconds(p.self_wall_s))),
    ("pinned", |p| bytes(p.pinned_peak_bytes)),
];

/// What the device did that was busiest meanwhile, if any was.
pub(super) fn busiest(p: &Phase) -> Option<&PhaseDevice> {
    p.gpu.as_ref()?.devices.iter().filter(|d| d.busy_s > 0.0).max_by(|a, b| a.busy_s.total_cmp(&b.busy_s))
}

/// How many somebody told of.
pub fn told(run: &Run) -> usize {
    run.phases.iter().filter(|p| !is_of_process(p) && p.source != "auto").count()
}

pub fn all(page: &mut Page, whose: &Whose) {
    let run = whose.run;
    let (own, told): (Vec<&Phase>, Vec<&Phase>) = run.phases.iter().partition(|p| is_of_process(p));
    let mut shown = chosen(&told, PHASES_SHOWN);
    let own: Vec<&Phase> = own.into_iter().filter(|p| matters(p, run)).collect();
    let mut rows = names::rows(&shown);
    let own_shown = chosen(&own, OWN_SHOWN);
    rows.extend(names::rows(&own_shown));
    shown.extend(own_shown);
    if shown.is_empty() {
        return;
    }
    let nothing = iec(0);
    let used = |(_, of): &Column| shown.iter().any(|p| of(p).is_some_and(|cell| cell != nothing));
    let mut columns: Vec<Column> = FIRST.into_iter().chain(MORE.into_iter().filter(used)).collect();
    let mut t = table(&rows, &columns);
    while columns.len() > FIRST.len() && t.lines().iter().any(|l| l.chars().count() > page.room()) {
        columns.pop();
        t = table(&rows, &columns);
    }
    page.block("PHASES", [headline(&told) + &whose.said()]);
    page.rows(t);
    if told.len() + own.len() > shown.len() {
        page.say("", format!("and {} that took less time (all in --json)", count((told.len() + own.len() - shown.len()) as u64)));
    }
    late(page, &told, run.mode);
    short_peaks(page, run);
    left(page, &shown, run);
    whose.others(page);
    page.gap();
}

/// Instants that somebody told of.
pub fn marks(page: &mut Page, whose: &Whose) {
    let all = &whose.run.marks;
    if all.is_empty() {
        return;
    }
    let told = all.iter().take(MARKS_SHOWN).map(|m| format!("`{}` at {}", m.name, seconds(m.t_s)));
    let rest = all.len().saturating_sub(MARKS_SHOWN);
    let told: Vec<String> = told.chain((rest > 0).then(|| format!("and {} later ones (all in --json)", count(rest as u64)))).collect();
    let mut sources: Vec<&str> = all.iter().map(|m| m.source).collect();
    sources.sort_unstable();
    sources.dedup();
    page.say("MARKS", format!("{} (told by {}){}: {}", count(all.len() as u64), sources.join(", "), whose.said(), told.join(", ")));
    whose.others(page);
    page.gap();
}

/// Lines of output are edges where somebody read them.
fn late(page: &mut Page, told: &[&Phase], mode: Mode) {
    let late = told.iter().filter_map(|p| p.edges_late_s).fold(0.0, f64::max);
    if late > 0.0 {
        let whose = match mode {
            Mode::Full => "may be of the phase before or of the one after (bounds in --json)",
            _ => "is of the phase before",
        };
        page.say(
            "",
            format!("lines of its output were read up to {} after it printed them: what the heap did meanwhile {whose}", seconds(late)),
        );
    }
}

/// Peaks that no phase of the curve has, with their instants.
fn short_peaks(page: &mut Page, run: &Run) {
    for p in &run.short_peaks {
        let phase = p.phase.and_then(|at| run.phases.get(at));
        let during = phase.map_or(String::new(), |of| format!(" (in `{}`, {} to {})", of.name, seconds(of.begin_s), seconds(of.end_s)));
        let when = match p.at_s {
            Some(t) => format!("at {}{during}", seconds(t)),
            None => "between two looks, nobody knows when".into(),
        };
        let line = format!(
            "not in them: the {} peak of {} {when}, too short for the curve, which shows {} at most; MEMSHIM_INTERVAL looks more often",
            p.of,
            iec(p.peak_bytes.0),
            iec(p.shown_bytes.0)
        );
        page.warn("", line);
    }
}

/// Whether bytes are a part of others that is worth a line.
fn part(bytes: u64, of: u64) -> bool {
    bytes >= OWN_BYTES && bytes as f64 > of as f64 * OWN_SHARE
}

/// Whether a phase of the process's own says something: it takes a part of the run's time or memory that is worth a line. A single child has
/// its line among the processes.
fn matters(p: &Phase, run: &Run) -> bool {
    let is_child = p.name.starts_with("child ");
    let left = |bytes: Option<i64>| bytes.map_or(0, i64::unsigned_abs);
    let heap = [left(p.heap_persistent_bytes), p.heap_transient_bytes.map_or(0, |b| b.0)];
    let resident = [left(p.rss_persistent_bytes), p.children_peak_bytes.filter(|_| is_child).map_or(0, |b| b.0)];
    let long = p.wall_s > run.wall_s * OWN_SHARE && p.wall_s >= OWN_S;
    let large = heap.iter().any(|b| part(*b, run.heap.peak_bytes.0)) || resident.iter().any(|b| part(*b, peak_resident(run)));
    (long || large) && !(is_child && p.count < 2)
}

fn table(rows: &[names::Row], columns: &[Column]) -> Table {
    let mut t = Table::new();
    t.row(["phase"].into_iter().chain(columns.iter().map(|(title, _)| *title)));
    for (row, name) in rows.iter().zip(names::shown(rows, NAME_WIDTH)) {
        t.row([name].into_iter().chain(columns.iter().map(|(_, of)| of(row.phase).unwrap_or_else(|| "–".into()))));
    }
    t
}

/// The phases that took longest, in the order in which they began.
fn chosen<'a>(phases: &[&'a Phase], most: usize) -> Vec<&'a Phase> {
    let mut longest: Vec<usize> = (0..phases.len()).collect();
    longest.sort_by(|a, b| phases[*b].wall_s.total_cmp(&phases[*a].wall_s));
    let kept: HashSet<usize> = longest.into_iter().take(most).collect();
    phases.iter().enumerate().filter(|(i, _)| kept.contains(i)).map(|(_, p)| *p).collect()
}

fn headline(told: &[&Phase]) -> String {
    let mut sources: Vec<&str> = told.iter().map(|p| p.source).collect();
    sources.sort_unstable();
    sources.dedup();
    let by = if sources.is_empty() { "the process itself".to_owned() } else { sources.join(", ") };
    // Of equals the first.
    let highest =
        |of: fn(&Phase) -> Option<Bytes>| told.iter().rev().filter_map(|p| Some((of(p)?, p))).max_by_key(|(peak, p)| (*peak, p.path.len()));
    let (what, found) = match highest(|p| p.heap_peak_bytes) {
        None => ("resident", highest(|p| p.rss_peak_bytes)),
        heap => ("heap", heap),
    };
    match found {
        Some((peak, p)) => format!("highest {what} peak {} in `{}` (told by {by})", iec(peak.0), p.path.join(" › ")),
        None => format!("told by {by}"),
    }
}

/// Whose most of what a phase left behind is, of the phase that left most; of a ramp, what made it.
fn left(page: &mut Page, shown: &[&Phase], run: &Run) {
    let most = shown.iter().filter_map(|p| Some((p.left.as_ref()?, p))).max_by_key(|(left, _)| left.bytes);
    let Some((left, p)) = most.filter(|(left, _)| part(left.bytes.0, run.heap.peak_bytes.0)) else { return };
    let Some(top) = left.top.first() else { return };
    let who = who(top);
    let about = about(left.stderr_bytes);
    let name = p.path.join("/");
    let line = format!(
        "`{name}` left {}{about}{}, {} of it by {who} (--sites --phase {} --left){}",
        iec(left.bytes.0),
        if p.source == "auto" { "" } else { " of what it allocated itself" },
        percent(top.bytes.0 as f64, left.bytes.0 as f64),
        shell::quoted(&name),
        gone_meanwhile(run, p, left).map_or(String::new(), |gone| format!("; {} of what was there before went meanwhile", iec(gone.0)))
    );
    page.say("", line);
}

/// What was there before it and went while it was on: the table has what both come to. Known of one that was on once.
fn gone_meanwhile(run: &Run, p: &Phase, left: &PhaseSites) -> Option<Bytes> {
    // Of edges told from outside what is live and what are events are known at two instants.
    let exact = !matches!(p.source, "auto" | "output" | "mark");
    let made = p.heap_persistent_bytes.filter(|_| p.count == 1 && exact && !lacks_many(&run.events))?;
    let gone = Bytes::of_balance(i64::try_from(left.bytes.0).ok()?.saturating_sub(made));
    (part(gone.0, left.bytes.0) && gone.0 as f64 > 3.0 * left.stderr_bytes).then_some(gone)
}
