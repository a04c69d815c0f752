//! Who allocated: a short section of owners, and the pages of call sites.

use super::Page;
use crate::analyze::report::{Frame, Run, Site, SiteSums, TreeNode, View};
use crate::analyze::views::label;
use crate::output::table::{Table, cut};
use crate::output::units::{count, iec, percent, seconds};

const OWNERS_SHOWN: usize = 5;
const LEAKS_SHOWN: usize = 3;
/// Smaller ones are not worth a line of the short section.
const SHARE_SHOWN: f64 = 0.01;
/// Frames of a site beyond its owner's.
const FRAMES_SHOWN: usize = 24;

/// The short section: whose the live bytes at the peak were, who leaked most.
pub fn owners(page: &mut Page, run: &Run) {
    let sums = &run.sites_total;
    if run.owners.is_empty() {
        return;
    }
    let all = sums.live_at_peak_bytes.0;
    page.say("OWNERS", format!("of {} live at {}, by who asked for it", iec(all), instant(run)));
    let mut t = Table::with_text_last();
    let worth = |bytes: u64| bytes as f64 > all as f64 * SHARE_SHOWN;
    let shown: Vec<_> = run.owners.iter().take(OWNERS_SHOWN).filter(|o| worth(o.live_at_peak_bytes.0)).collect();
    for o in &shown {
        let error = if o.stderr_bytes > 0.5 { format!("± {}", iec(o.stderr_bytes.round() as u64)) } else { String::new() };
        let through = o.through.as_ref().map(|f| format!(" through {}", label(f))).unwrap_or_default();
        let who = format!("{}{through}", name(&o.frame));
        t.row([iec(o.live_at_peak_bytes.0), percent(o.live_at_peak_bytes.0 as f64, all as f64), error, who]);
    }
    page.rows(t);
    let named: u64 = shown.iter().map(|o| o.live_at_peak_bytes.0).sum();
    if all > named && shown.len() < run.owners.len() {
        page.say("", format!("{} of others (memshim analyze --sites)", iec(all - named)));
    }
    let mut leaks: Vec<_> = run.owners.iter().filter(|o| o.leaked_bytes.0 > 0).collect();
    leaks.sort_by_key(|o| std::cmp::Reverse(o.leaked_bytes));
    let leaked = sums.leaked_bytes.less(sums.suppressed_bytes);
    if !leaks.is_empty() {
        let who: Vec<String> = leaks.iter().take(LEAKS_SHOWN).map(|o| format!("{} by {}", iec(o.leaked_bytes.0), name(&o.frame))).collect();
        page.say("", format!("live at the end {}: {}", iec(leaked.0), who.join(", ")));
    }
    shares(page, sums);
    page.gap();
}

fn instant(run: &Run) -> String {
    let asked = run.sites.first().is_some_and(|s| s.live_at_peak_bytes.is_none());
    let at = seconds(run.sites_total.at_s);
    if asked { at } else { format!("the peak ({at})") }
}

fn name(frame: &Frame) -> String {
    if *frame == Frame::default() { "allocations without a stack".into() } else { label(frame) }
}

/// What can't be told, where it is more than nothing.
fn shares(page: &mut Page, s: &SiteSums) {
    let total = s.total_bytes.0 as f64;
    let parts = [
        ("without a stack", s.without_stack_bytes),
        ("from code without names", s.unresolved_bytes),
        ("with a stack that goes on beyond what is known", s.truncated_bytes),
        ("known leaks", s.suppressed_bytes),
    ];
    let shown: Vec<String> = parts
        .iter()
        .filter(|(_, b)| b.0 as f64 > total * SHARE_SHOWN / 10.0)
        .map(|(what, b)| format!("{} {what}", if *what == "known leaks" { iec(b.0) } else { percent(b.0 as f64, total) }))
        .collect();
    if !shown.is_empty() {
        page.say("", format!("of all bytes allocated: {}", shown.join(", ")));
    }
}

/// The page of `--sites`.
pub fn all(page: &mut Page, run: &Run) {
    let s = &run.sites_total;
    if s.sites == 0 {
        let why = match &*s.recorded {
            "" | "off" => "no stacks were recorded (MEMSHIM_STACKS=off, or a trace of an earlier version)",
            _ => "no allocation is left by the filters, or none was recorded",
        };
        return page.warn("SITES", why);
    }
    let view = run.sites_view.clone().unwrap_or_default();
    page.say(
        "SITES",
        format!(
            "{}; live at {}: {}; live at the end: {}; total: {}",
            count(s.sites),
            instant(run),
            iec(s.live_at_peak_bytes.0),
            iec(s.leaked_bytes.0),
            iec(s.total_bytes.0)
        ),
    );
    shares(page, s);
    for p in &s.problems {
        page.warn("names", format!("{}: {}", p.what, p.why));
    }
    page.gap();
    if !view.tree.is_empty() {
        page.say("CALLS", format!("{} of {}, outermost first", what(&view), amount(&view, view.total)));
        let mut lines = Vec::new();
        view.tree.iter().for_each(|n| branch(n, 0, &view, &mut lines));
        let room = page.room();
        page.block("", lines.iter().map(|l| cut(l, room)));
    } else if !view.rows.is_empty() {
        rows(page, &view);
    } else {
        sites(page, run, &view);
    }
}

fn what(view: &View) -> &'static str {
    match view.measure {
        "leaked" => "live at the end",
        "temporary" => "temporary allocations",
        "total" => "allocated in all",
        _ => "live at the peak",
    }
}

fn amount(view: &View, n: u64) -> String {
    if view.unit == "bytes" { iec(n) } else { count(n) }
}

/// A line a node; calls that only one thing leads to stand under each other without going further right.
fn branch(node: &TreeNode, depth: usize, view: &View, lines: &mut Vec<String>) {
    let who = node.frame.as_ref().map_or("smaller ones".into(), label);
    let share = percent(node.inclusive as f64, view.total as f64);
    lines.push(format!("{:>10} {share:>6} {:width$}{who}", amount(view, node.inclusive), "", width = 1 + 2 * depth.min(20)));
    let deeper = depth + (node.calls.len() > 1 || node.exclusive > 0) as usize;
    node.calls.iter().for_each(|n| branch(n, deeper, view, lines));
}

fn rows(page: &mut Page, view: &View) {
    page.say("BY", format!("{}; own: allocated by itself, all: by what it calls too", what(view)));
    let mut t = Table::with_text_last();
    t.row(["all", "share", "own", "share", "allocations", "who"]);
    for r in &view.rows {
        let share = |n: u64| percent(n as f64, view.total as f64);
        t.row([
            amount(view, r.inclusive),
            share(r.inclusive),
            amount(view, r.exclusive),
            share(r.exclusive),
            count(r.inclusive_allocs),
            r.label(),
        ]);
    }
    page.rows(t);
    if view.rows_total > view.rows.len() as u64 {
        page.say("", format!("and {} more (--top N)", count(view.rows_total - view.rows.len() as u64)));
    }
}

/// One paragraph a site: its figures, then its frames.
fn sites(page: &mut Page, run: &Run, view: &View) {
    let top = if view.top == 0 { usize::MAX } else { view.top };
    let heap: Vec<&Site> = run.sites.iter().filter(|s| s.kind == "heap").collect();
    for (i, s) in heap.iter().take(top).enumerate() {
        figures(page, i + 1, s);
        for (at, f) in s.frames.iter().take(FRAMES_SHOWN.max(s.owner.unwrap_or(0) + 1)).enumerate() {
            let mark = if s.owner == Some(at) { "→" } else { " " };
            let inlined = if f.inlined { " (inlined)" } else { "" };
            let room = page.room();
            page.block("", [cut(&format!("{mark} {}{inlined}", label(f)), room)]);
        }
        let hidden = s.frames.len().saturating_sub(FRAMES_SHOWN.max(s.owner.unwrap_or(0) + 1));
        if hidden > 0 || s.truncated {
            let more = if s.truncated { "; the stack goes on beyond what is known" } else { "" };
            page.say("", format!("  and {hidden} frames more{more}"));
        }
        page.gap();
    }
    let rest = run.sites_total.sites.saturating_sub(heap.len().min(top) as u64);
    if rest > 0 {
        page.say("", format!("and {} sites more (--top N, --by function, --tree)", count(rest)));
    }
}

fn figures(page: &mut Page, number: usize, s: &Site) {
    let live = s.live_at_peak_bytes.or(s.live_at_bytes).unwrap_or_default();
    let blocks = s.live_at_peak_allocs.or(s.live_at_allocs).unwrap_or(0);
    let error = if s.stderr_bytes > 0.5 { format!(" ± {}", iec(s.stderr_bytes.round() as u64)) } else { String::new() };
    let bound = if s.peak_bound_bytes.0 > 0 { format!(" to {}", iec(s.peak_bytes.0 + s.peak_bound_bytes.0)) } else { String::new() };
    let known = s.suppressed.as_ref().map(|p| format!(" (a known leak: {p})")).unwrap_or_default();
    page.say(
        &format!("{number}"),
        format!(
            "live {}{error} in {} blocks; own peak {}{bound}; total {} in {} allocations, {} temporary; live at the end {} in {}{known}",
            iec(live.0),
            count(blocks),
            iec(s.peak_bytes.0),
            iec(s.total_bytes.0),
            count(s.allocs),
            count(s.temporary_allocs),
            iec(s.leaked_bytes.0),
            count(s.leaked_allocs)
        ),
    );
}
