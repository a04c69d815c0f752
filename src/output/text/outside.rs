//! What compilers said, and the files that appeared.

use super::{Page, Whose};
use crate::analyze::report::Compile;
use crate::output::table::{Table, cut};
use crate::output::units::{count, iec, seconds};

const SHOWN: usize = 8;
const NAME_WIDTH: usize = 48;

pub fn compiles(page: &mut Page, whose: &Whose) {
    let run = whose.run;
    if run.compiles.is_empty() {
        return;
    }
    let n = |of: fn(&Compile) -> u64| run.compiles.iter().map(of).sum::<u64>();
    // Some compilers do not say how long they took.
    let time = run.compiles.iter().filter_map(|c| c.wall_s).reduce(|a, b| a + b).map_or(String::new(), |s| format!(" in {}", seconds(s)));
    let again = n(|c| c.recompiles);
    let functions = match run.compiles.len() {
        1 => "1 function".to_owned(),
        n => format!("{} functions", count(n as u64)),
    };
    let line = format!("{} compilations of {functions}{time}, {} of them again", count(n(|c| c.count)), count(again));
    page.block("COMPILES", [line + &whose.said()]);
    let mut t = Table::with_text_last();
    t.row(["function", "by", "times", "again", "took", "for"]);
    for c in run.compiles.iter().take(SHOWN) {
        let last = c.signatures.last();
        let why = last.map(|s| s.why.clone().unwrap_or_else(|| s.changed.join(", "))).unwrap_or_default();
        let why = if why.is_empty() { last.map(|s| s.arguments.join(", ")).unwrap_or_default() } else { why };
        let took = c.wall_s.map_or("–".into(), seconds);
        t.row([cut(&c.function, NAME_WIDTH), c.by.clone(), count(c.count), count(c.recompiles), took, why]);
    }
    page.rows(t);
    if run.compiles.len() > SHOWN {
        page.say("", format!("and {} functions that took less (all in --json)", count((run.compiles.len() - SHOWN) as u64)));
    }
    whose.others(page);
    page.gap();
}

pub fn artifacts(page: &mut Page, whose: &Whose) {
    let run = whose.run;
    if run.artifacts.is_empty() {
        return;
    }
    let bytes: u64 = run.artifacts.iter().filter_map(|a| a.bytes).map(|b| b.0).sum();
    let gone = run.artifacts.iter().filter(|a| a.deleted).count() as u64;
    let gone = if gone > 0 { format!(", {} of them gone again", count(gone)) } else { String::new() };
    page.block("FILES", [format!("{} written, {}{gone}{}", count(run.artifacts.len() as u64), iec(bytes), whose.said())]);
    let mut t = Table::with_text_last();
    t.row(["file", "bytes", "lines", "at", "phase"]);
    for a in run.artifacts.iter().take(SHOWN) {
        let name = if a.deleted { format!("{} (gone)", a.path) } else { a.path.clone() };
        let lines = a.lines.map_or("–".into(), count);
        let bytes = a.bytes.map_or("–".into(), |b| iec(b.0));
        t.row([cut(&name, NAME_WIDTH), bytes, lines, seconds(a.t_s), a.phase.clone().unwrap_or_default()]);
    }
    page.rows(t);
    if run.artifacts.len() > SHOWN {
        page.say("", format!("and {} later ones (all in --json)", count((run.artifacts.len() - SHOWN) as u64)));
    }
    whose.others(page);
    page.gap();
}
