//! The phases of a run: what each needed, what it left behind, what it needed only meanwhile.

use super::Page;
use crate::analyze::report::{Phase, Run};
use crate::model::units::Bytes;
use crate::output::table::{Table, cut};
use crate::output::units::{count, iec, iec_signed, seconds};
use std::collections::HashSet;

const PHASES_SHOWN: usize = 12;
const NAME_WIDTH: usize = 34;

/// A column: its title and what stands in it. Of the later ones those are shown that any phase has, and as many as there is room for; what
/// matters most comes first.
type Column = (&'static str, fn(&Phase) -> Option<String>);

fn bytes(b: Option<Bytes>) -> Option<String> {
    b.filter(|b| b.0 > 0).map(|b| iec(b.0))
}

const FIRST: [Column; 4] = [
    ("times", |p| Some(count(p.count))),
    ("wall", |p| Some(seconds(p.wall_s))),
    ("heap peak", |p| {
        let bound = p.heap_peak_bound_bytes.filter(|b| b.0.saturating_mul(100) > p.heap_peak_bytes.0);
        Some(format!("{}{}", iec(p.heap_peak_bytes.0), bound.map_or(String::new(), |b| format!(" ±{}", iec(b.0)))))
    }),
    ("left behind", |p| Some(iec_signed(p.heap_persistent_bytes))),
];

const MORE: [Column; 9] = [
    ("meanwhile", |p| bytes(Some(p.heap_transient_bytes))),
    ("RSS peak", |p| bytes(p.rss_peak_bytes)),
    ("GPU peak", |p| bytes(p.gpu_peak_bytes)),
    ("children", |p| bytes(p.children_peak_bytes)),
    ("H2D", |p| bytes(p.h2d_bytes)),
    ("D2H", |p| bytes(p.d2h_bytes)),
    ("maps peak", |p| bytes(Some(p.map_peak_bytes))),
    ("self", |p| (p.self_wall_s < p.wall_s * 0.99).then(|| seconds(p.self_wall_s))),
    ("pinned", |p| bytes(p.pinned_peak_bytes)),
];

pub fn all(page: &mut Page, run: &Run) {
    if run.phases.is_empty() {
        return;
    }
    let shown = chosen(&run.phases);
    let used = |(_, of): &Column| shown.iter().any(|p| of(p).is_some());
    let mut columns: Vec<Column> = FIRST.into_iter().chain(MORE.into_iter().filter(used)).collect();
    let mut t = table(&shown, &columns);
    while columns.len() > FIRST.len() && t.lines().iter().any(|l| l.chars().count() > page.room()) {
        columns.pop();
        t = table(&shown, &columns);
    }
    page.block("PHASES", [headline(&run.phases)]);
    page.rows(t);
    if run.phases.len() > shown.len() {
        page.say("", format!("and {} that took less time (all in --json)", count((run.phases.len() - shown.len()) as u64)));
    }
    steps(page, run);
    page.gap();
}

fn table(shown: &[&Phase], columns: &[Column]) -> Table {
    let mut t = Table::new();
    t.row(["phase"].into_iter().chain(columns.iter().map(|(title, _)| *title)));
    for p in shown {
        let name = format!("{}{}", "  ".repeat((p.path.len() - 1).min(6)), p.name);
        t.row([cut(&name, NAME_WIDTH)].into_iter().chain(columns.iter().map(|(_, of)| of(p).unwrap_or_else(|| "–".into()))));
    }
    t
}

/// The phases that took longest, in the order in which they began.
fn chosen(phases: &[Phase]) -> Vec<&Phase> {
    let mut longest: Vec<usize> = (0..phases.len()).collect();
    longest.sort_by(|a, b| phases[*b].wall_s.total_cmp(&phases[*a].wall_s));
    let kept: HashSet<usize> = longest.into_iter().take(PHASES_SHOWN).collect();
    phases.iter().enumerate().filter(|(i, _)| kept.contains(i)).map(|(_, p)| p).collect()
}

fn headline(phases: &[Phase]) -> String {
    let mut sources: Vec<&str> = phases.iter().map(|p| p.source).collect();
    sources.sort_unstable();
    sources.dedup();
    let Some(highest) = phases.iter().max_by_key(|p| (p.heap_peak_bytes, p.path.len())) else { return String::new() };
    format!("highest heap peak {} in `{}` (told by {})", iec(highest.heap_peak_bytes.0), highest.path.join(" › "), sources.join(", "))
}

/// What is to be said of those that repeat: leaks, and times that stand out.
fn steps(page: &mut Page, run: &Run) {
    for p in &run.phases {
        let Some(s) = &p.steps else { continue };
        if s.leaks {
            let growth = p.growth_per_count_bytes.unwrap_or(0.0);
            let line = format!(
                "`{}` grows by {} each time ({} to {} with 95 % confidence), {} in {} times: a leak, though its end may free it",
                p.name,
                iec_signed(growth as i64),
                iec_signed(s.growth_low_bytes as i64),
                iec_signed(s.growth_high_bytes as i64),
                iec_signed(s.growth_total_bytes as i64),
                count(p.count)
            );
            page.warn("", line);
        }
    }
    if let Some((p, o)) =
        run.phases.iter().filter_map(|p| Some((p, p.steps.as_ref()?.outliers.first()?))).max_by(|a, b| a.1.wall_s.total_cmp(&b.1.wall_s))
    {
        let l = &p.latency;
        let line = format!(
            "`{}` takes {} (median; 95 % below {}), but number {} took {} at {}",
            p.name,
            seconds(l.median),
            seconds(l.p95),
            o.index,
            seconds(o.wall_s),
            seconds(o.begin_s)
        );
        page.say("", line);
    }
}
