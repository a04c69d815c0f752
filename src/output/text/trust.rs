//! How far the numbers can be trusted: conservation of counts, what is missing and why, and what memshim itself took.

use super::Page;
use crate::analyze::report::{Missing, Mode, Run};
use crate::output::units::{count, iec};

const LINES_SHOWN: usize = 6;

pub fn all(page: &mut Page, run: &Run) {
    let e = &run.events;
    page.gap();
    let by_design = if e.single < e.recorded { format!(" ({} one by one, the others in totals)", count(e.single)) } else { String::new() };
    let line = format!("{} counted = {} recorded{by_design} + {} lost", count(e.counted), count(e.recorded), count(e.lost));
    let unknown = if e.unknown_frees > 0 { format!("; frees of blocks from before: {}", count(e.unknown_frees)) } else { String::new() };
    let failed = if e.failed > 0 { format!("; calls that failed: {}", count(e.failed)) } else { String::new() };
    if run.mode == Mode::Watch {
        // Nothing was counted.
    } else if e.lost > 0 {
        page.warn("EVENTS", format!("{line}{unknown}{failed}"));
    } else {
        page.say("EVENTS", format!("{line}{unknown}{failed}"));
    }
    if run.recovered {
        page.say("", "the last part was recovered from the spool of the dead process");
    }
    problems(page, &run.missing);
    oom(page, run);
    for note in run.notes.iter().take(LINES_SHOWN) {
        page.say("note", note.clone());
    }
    more(page, run.notes.len(), "notes");
    own(page, run);
}

pub fn problems(page: &mut Page, missing: &[Missing]) {
    for m in missing.iter().take(LINES_SHOWN) {
        let n = if m.count > 0 { format!(" ({})", count(m.count)) } else { String::new() };
        page.warn("missing", format!("{}{n}: {}", m.what, m.why));
    }
    more(page, missing.len(), "things are missing");
}

fn more(page: &mut Page, n: usize, what: &str) {
    if n > LINES_SHOWN {
        page.say("", format!("and {} more {what} (all in --json)", n - LINES_SHOWN));
    }
}

fn oom(page: &mut Page, run: &Run) {
    let Some(cgroup) = run.outside.as_ref().map(|o| &o["cgroup"]) else { return };
    let limit = cgroup["limit"].as_u64().map(|l| format!(" of {}", iec(l))).unwrap_or_default();
    if let Some(kills) = cgroup["oom_kills"].as_u64().filter(|&k| k > 0) {
        page.warn("killed", format!("the kernel killed {kills} process(es) here for want of memory: the group reached its limit{limit}"));
    }
}

/// memshim's own memory in the target, as it states it.
fn own(page: &mut Page, run: &Run) {
    let Some(own) = &run.own else { return };
    let bytes = |key: &str| own[key].as_u64().unwrap_or(0);
    let sum = ["spool", "private", "table", "code"].iter().fold(0u64, |sum, key| sum.saturating_add(bytes(key)));
    if sum > 0 {
        let resident = own["table_resident"].as_u64().filter(|r| *r < bytes("table")).map(|r| format!(", of which {} in memory", iec(r)));
        let table = format!("{} for the table of live blocks{}", iec(bytes("table")), resident.unwrap_or_default());
        page.say("own", format!("memshim itself used {} in the process ({table})", iec(sum)));
    }
}
