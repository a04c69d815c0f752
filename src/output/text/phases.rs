//! The phases of a run: what each needed, what it left behind, what it needed only meanwhile.

use super::Page;
use crate::analyze::report::{Phase, Run};
use crate::model::units::Bytes;
use crate::output::table::{Table, cut};
use crate::output::units::{count, iec, iec_signed, seconds};
use std::collections::HashSet;

const PHASES_SHOWN: usize = 12;
const NAME_WIDTH: usize = 34;

/// A column beyond those that are always there: its title and what stands in it. It is shown where any phase has it.
type Column = (&'static str, fn(&Phase) -> Option<Bytes>);

const MORE: [Column; 7] = [
    ("maps peak", |p| Some(p.map_peak_bytes)),
    ("children", |p| p.children_peak_bytes),
    ("GPU peak", |p| p.gpu_peak_bytes),
    ("pinned", |p| p.pinned_peak_bytes),
    ("H2D", |p| p.h2d_bytes),
    ("D2H", |p| p.d2h_bytes),
    ("RSS peak", |p| p.rss_peak_bytes),
];

pub fn all(page: &mut Page, run: &Run) {
    if run.phases.is_empty() {
        return;
    }
    let shown = chosen(&run.phases);
    let columns: Vec<Column> = MORE.into_iter().filter(|(_, of)| shown.iter().any(|p| of(p).is_some_and(|b| b.0 > 0))).collect();
    let mut t = Table::new();
    let titles = ["phase", "times", "wall", "self", "heap peak", "left behind", "only meanwhile"];
    t.row(titles.into_iter().chain(columns.iter().map(|(title, _)| *title)));
    for p in &shown {
        let bound = p.heap_peak_bound_bytes.filter(|b| b.0.saturating_mul(100) > p.heap_peak_bytes.0);
        let peak = format!("{}{}", iec(p.heap_peak_bytes.0), bound.map_or(String::new(), |b| format!(" ±{}", iec(b.0))));
        let name = format!("{}{}", "  ".repeat((p.path.len() - 1).min(6)), p.name);
        let cells = [
            cut(&name, NAME_WIDTH),
            count(p.count),
            seconds(p.wall_s),
            seconds(p.self_wall_s),
            peak,
            iec_signed(p.heap_persistent_bytes),
            iec(p.heap_transient_bytes.0),
        ];
        t.row(cells.into_iter().chain(columns.iter().map(|(_, of)| of(p).map_or("–".into(), |b| iec(b.0)))));
    }
    page.block("PHASES", [headline(&run.phases)]);
    page.rows(t);
    if run.phases.len() > shown.len() {
        page.say("", format!("and {} that took less time (all in --json)", count((run.phases.len() - shown.len()) as u64)));
    }
    steps(page, run);
    page.gap();
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
