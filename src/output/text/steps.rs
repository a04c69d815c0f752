//! Phases that repeat: how long a time takes, what it leaves behind, and which times stand out.

use super::{Page, Whose};
use crate::analyze::left::who;
use crate::analyze::phases::is_of_process;
use crate::analyze::report::{Difference, Outlier, Phase, PhaseSite, Run, Steps};
use crate::analyze::steps::{LEAK_STEP, in_words};
use crate::output::table::{Table, cut};
use crate::output::units::{about, count, iec, iec_signed, percent, seconds};

/// Phases of the table, and those that have a line about the time that took longest.
const SHOWN: usize = 5;
const OUTLIERS_SHOWN: usize = 3;
/// Call sites named as leaking.
const SITES_SHOWN: usize = 3;
const NAME_WIDTH: usize = 28;
const LEAST_TIMES: u64 = crate::analyze::steps::LEAK_STEPS_MIN as u64;

/// A column: its title, what stands in it, and how soon it goes where there is no room; 0: never.
type Column = (&'static str, fn(&Phase, &Steps) -> String, u8);

const COLUMNS: [Column; 9] = [
    ("times", |p, _| count(p.count), 0),
    ("min", |p, _| seconds(p.latency.min), 4),
    ("median", |p, _| seconds(p.latency.median), 0),
    ("mean", |p, _| seconds(p.latency.mean), 3),
    ("p95", |p, _| seconds(p.latency.p95), 0),
    ("p99", |p, _| seconds(p.latency.p99), 1),
    ("max", |p, _| seconds(p.latency.max), 0),
    ("CV", |p, _| percent(p.latency.cv, 1.0), 2),
    ("growth", |p, _| p.growth_per_count_bytes.map_or("–".into(), |g| iec_signed(g as i64)), 0),
];

pub fn all(page: &mut Page, whose: &Whose) {
    let run = whose.run;
    let shown = chosen(run);
    if shown.is_empty() {
        return;
    }
    let title = format!("times of phases that repeat, and what one leaves behind{}", whose.said());
    page.block("STEPS", [title]);
    let mut columns = COLUMNS.to_vec();
    let mut t = table(&shown, &columns);
    while t.lines().iter().any(|l| l.chars().count() > page.room()) && columns.iter().any(|c| c.2 > 0) {
        let soonest = columns.iter().map(|c| c.2).max();
        columns.retain(|c| Some(c.2) != soonest);
        t = table(&shown, &columns);
    }
    page.rows(t);
    let more = repeat(run).count() - shown.len();
    if more > 0 {
        let phases = if more == 1 { "phase that repeats and" } else { "phases that repeat and" };
        page.say("", format!("and {} more {phases} took less time (all in --json)", count(more as u64)));
    }
    growth(page, run, &shown);
    outliers(page, &shown);
    page.gap();
}

/// Those that took longest, and those that leak, in the order in which they began.
fn chosen(run: &Run) -> Vec<(&Phase, &Steps)> {
    let all: Vec<(&Phase, &Steps)> = repeat(run).collect();
    let mut longest: Vec<usize> = (0..all.len()).collect();
    longest.sort_by(|a, b| {
        let key = |at: usize| (leaks(all[at].1), all[at].0.wall_s);
        let ((leak_a, wall_a), (leak_b, wall_b)) = (key(*a), key(*b));
        leak_b.cmp(&leak_a).then(wall_b.total_cmp(&wall_a))
    });
    longest.truncate(SHOWN);
    longest.sort_unstable();
    longest.into_iter().map(|at| all[at]).collect()
}

/// All of which there is something to say.
fn repeat(run: &Run) -> impl Iterator<Item = (&Phase, &Steps)> {
    let told = run.phases.iter().filter(|p| !is_of_process(p) && p.source != "auto");
    told.filter_map(|p| Some((p, p.steps.as_ref()?)))
}

fn leaks(s: &Steps) -> bool {
    s.leaks || s.growth.leaking().is_some()
}

fn table(shown: &[(&Phase, &Steps)], columns: &[Column]) -> Table {
    let mut t = Table::new();
    t.row(["phase"].into_iter().chain(columns.iter().map(|c| c.0)));
    for (p, s) in shown {
        t.row([cut(&p.path.join(" › "), NAME_WIDTH)].into_iter().chain(columns.iter().map(|c| (c.1)(p, s))));
    }
    t
}

/// What is called a leak, and of the others how sure it is that they do not.
fn growth(page: &mut Page, run: &Run, shown: &[(&Phase, &Steps)]) {
    let many = run.phases.iter().filter_map(|p| Some((p, p.steps.as_ref()?)));
    for (p, s) in many.filter(|(_, s)| leaks(s)) {
        if s.leaks {
            page.warn("", of_heap(p, s));
        }
        for (class, of) in s.growth.known().filter(|(class, of)| of.leaks && *class != "heap") {
            let line = format!(
                "`{}` grows by {} of {} each time ({} to {} with 95 % confidence), {} in {} times: a leak{}",
                p.name,
                iec_signed(of.per_count_bytes as i64),
                in_words(class),
                iec_signed(of.low_bytes as i64),
                iec_signed(of.high_bytes as i64),
                iec_signed(of.total_bytes as i64),
                count(p.count),
                match class {
                    "maps" => mapped_by(s),
                    "python" => "; whose, by `memshim analyze --sites --memory python`".into(),
                    _ => String::new(),
                }
            );
            page.warn("", line);
        }
    }
    let judged = shown.iter().filter(|(p, s)| !leaks(s) && p.count >= LEAST_TIMES);
    let (mut steady, mut open) = (Vec::new(), Vec::new());
    for (p, s) in judged {
        let (low, high) = (iec_signed(s.growth_low_bytes as i64), iec_signed(s.growth_high_bytes as i64));
        let said =
            if low == high { format!("`{}` ({low} each time)", p.name) } else { format!("`{}` ({low} to {high} each time)", p.name) };
        if s.growth_high_bytes < LEAK_STEP { steady.push(said) } else { open.push(said) }
    }
    // Small objects of Python lie in its arenas, which grow by a mebibyte at a time.
    let unseen =
        if run.python.as_ref().is_some_and(|p| p.live_bytes.is_none()) { " (small objects of Python: --python-alloc)" } else { "" };
    let verdicts = [
        ("no leak of the heap was found, though with 95 % confidence there is room for one", open),
        ("no leak of the heap, with 95 % confidence", steady),
    ];
    for (verdict, which) in verdicts.into_iter().filter(|(_, which)| !which.is_empty()) {
        page.say("", format!("{verdict}: {}{unseen}", which.join(", ")));
    }
}

fn of_heap(p: &Phase, s: &Steps) -> String {
    let growth = p.growth_per_count_bytes.unwrap_or(0.0);
    format!(
        "`{}` grows by {} each time ({} to {} with 95 % confidence), {} in {} times: a leak, though its end may free it; \
         then it is in nothing that is live at the end{}",
        p.name,
        iec_signed(growth as i64),
        iec_signed(s.growth_low_bytes as i64),
        iec_signed(s.growth_high_bytes as i64),
        iec_signed(s.growth_total_bytes as i64),
        count(p.count),
        kept_by(s)
    )
}

/// Who holds what a leak has come to, the first few.
fn kept_by(s: &Steps) -> String {
    let Some(from) = s.sites_from else { return String::new() };
    format!("; kept since number {}: {}", count(from), by_owner(&s.sites))
}

/// Who has mapped what a leak of maps has come to.
fn mapped_by(s: &Steps) -> String {
    if s.map_sites.is_empty() { String::new() } else { format!("; mapped still at the end: {}", by_owner(&s.map_sites)) }
}

/// The first few of those whose call sites these are, each with all of them.
fn by_owner(sites: &[PhaseSite]) -> String {
    let mut all: Vec<(String, u64, f64)> = Vec::new();
    for of in sites {
        let name = who(of);
        let variance = of.stderr_bytes * of.stderr_bytes;
        match all.iter_mut().find(|(other, ..)| *other == name) {
            Some(known) => (known.1, known.2) = (known.1 + of.bytes.0, known.2 + variance),
            None => all.push((name, of.bytes.0, variance)),
        }
    }
    let said = all.iter().take(SITES_SHOWN).map(|(name, bytes, variance)| format!("{}{} by {name}", iec(*bytes), about(variance.sqrt())));
    said.collect::<Vec<_>>().join(", ")
}

/// Of each phase the time that took longest, and what it did differently.
fn outliers(page: &mut Page, shown: &[(&Phase, &Steps)]) {
    let mut far: Vec<(&Phase, &Steps, &Outlier)> = shown.iter().filter_map(|(p, s)| Some((*p, *s, s.outliers.first()?))).collect();
    far.sort_by(|a, b| b.2.wall_s.total_cmp(&a.2.wall_s));
    for (p, s, o) in far.into_iter().take(OUTLIERS_SHOWN) {
        let l = &p.latency;
        let mut line = format!(
            "`{}` takes {} (median; 95 % below {}), but number {} took {} at {}",
            p.name,
            seconds(l.median),
            seconds(l.p95),
            o.index,
            seconds(o.wall_s),
            seconds(o.begin_s)
        );
        line += &why(p, o);
        let more = s.outliers.len() - 1;
        if more > 0 {
            line += &format!(" ({more} more {} out: `steps.outliers` of --json)", if more == 1 { "stands" } else { "stand" });
        }
        page.say("", line);
    }
}

/// What the time that it took longer went into, and what it did more or less of.
fn why(p: &Phase, o: &Outlier) -> String {
    let cpu = o.differs.iter().find(|d| d.what == "cpu_s");
    let longer = o.wall_s - p.latency.median;
    let computed = cpu.map_or(0.0, |d| d.value - d.median);
    let waited = match o.waited {
        Some(true) if computed > 0.0 => Some(format!(
            "of {} more it waited {} and computed {}",
            seconds(longer),
            seconds((longer - computed).max(0.0)),
            seconds(computed)
        )),
        Some(true) => Some(format!("it waited {} longer", seconds(longer))),
        _ => None,
    };
    // How much more it computed is said already.
    let others = o.differs.iter().filter(|d| waited.is_none() || computed <= 0.0 || d.what != "cpu_s").map(difference);
    let others = others.collect::<Vec<_>>().join(", ");
    match (waited, others.is_empty()) {
        (Some(waited), true) => format!("; {waited}"),
        (Some(waited), false) => format!("; {waited}, and had {others}"),
        (None, true) => String::new(),
        (None, false) => format!("; it had {others}"),
    }
}

/// A figure beside the usual one: `minor faults 5 000 (3)`.
fn difference(d: &Difference) -> String {
    let figure = |value: f64| match d.what {
        what if what.ends_with("_s") => seconds(value),
        what if what.ends_with("_bytes") => iec_signed(value as i64),
        _ => count(value.max(0.0) as u64),
    };
    let what = match d.what {
        "cpu_s" => "CPU time",
        "minor_faults" => "minor faults",
        "major_faults" => "major faults",
        "voluntary_switches" => "voluntary switches",
        "involuntary_switches" => "involuntary switches",
        "read_bytes" => "read",
        "written_bytes" => "written",
        "heap_transient_bytes" => "heap needed meanwhile",
        "heap_persistent_bytes" => "heap left behind",
        other => other,
    };
    format!("{what} {} (usually {})", figure(d.value), figure(d.median))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::report::Latency;

    /// Of a step that took 102 ms and usually 2: what is said of why.
    fn said(waited: Option<bool>, cpu: Option<f64>, others: &[Difference]) -> String {
        let p = Phase { latency: Latency { median: 0.002, ..Latency::default() }, ..Phase::default() };
        let cpu = cpu.map(|value| Difference { what: "cpu_s", value, median: 0.002 });
        let differs = cpu.into_iter().chain(others.iter().copied()).collect();
        why(&p, &Outlier { wall_s: 0.102, waited, differs, ..Outlier::default() })
    }

    #[test]
    fn what_a_slow_step_did_differently_is_one_clause_that_does_not_contradict_itself() {
        let faults = [Difference { what: "minor_faults", value: 900.0, median: 3.0 }];
        assert_eq!(said(Some(true), None, &[]), "; it waited 100 ms longer");
        assert_eq!(said(Some(true), Some(0.017), &[]), "; of 100 ms more it waited 85.0 ms and computed 15.0 ms");
        assert_eq!(said(Some(true), None, &faults), "; it waited 100 ms longer, and had minor faults 900 (usually 3)");
        assert_eq!(
            said(Some(true), Some(0.017), &faults),
            "; of 100 ms more it waited 85.0 ms and computed 15.0 ms, and had minor faults 900 (usually 3)"
        );
        assert_eq!(said(Some(true), Some(0.0005), &[]), "; it waited 100 ms longer, and had CPU time 500 µs (usually 2.00 ms)");
        assert_eq!(said(Some(false), Some(0.099), &faults), "; it had CPU time 99.0 ms (usually 2.00 ms), minor faults 900 (usually 3)");
        assert_eq!((said(None, None, &[]), said(Some(false), None, &[])), (String::new(), String::new()));
    }
}
