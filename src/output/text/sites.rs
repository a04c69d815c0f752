//! Who allocated: a short section of owners, and the pages of call sites.

use super::memory::latest;
use super::{Page, tree};
use crate::analyze::heap;
use crate::analyze::report::{Frame, Owner, Run, Site, SiteSums, View};
use crate::analyze::views::label;
use crate::output::table::{Table, cut};
use crate::output::units::{count, iec, percent, seconds};

const OWNERS_SHOWN: usize = 5;
const LEAKS_SHOWN: usize = 3;
/// Smaller ones are not worth a line of the short section.
const SHARE_SHOWN: f64 = 0.01;
/// Problems shown with the owners.
const PROBLEMS_SHOWN: usize = 2;
/// Frames of a site beyond its owner's.
const FRAMES_SHOWN: usize = 24;

/// The short section: whose the live bytes at the peak were, who leaked most.
pub fn owners(page: &mut Page, run: &Run) {
    let sums = &run.sites_total;
    if run.owners.is_empty() {
        if !sums.absent.is_empty() {
            page.warn("OWNERS", &sums.absent);
            page.gap();
        }
        return;
    }
    let all = sums.live_at_peak_bytes.0;
    // What samples tell has a peak of its own: near to that of the heap, whose figures are exact.
    let (about, estimate) = match sums.stderr_bytes {
        e if e > 0.5 => (format!("about {} (± {})", iec(all), iec(e.round() as u64)), " by the samples"),
        _ => (iec(all), ""),
    };
    let own = if sums.memory == "heap" && run.heap.inherited_bytes.0 > 0 { " of its own" } else { "" };
    page.say("OWNERS", format!("of {about}{own} live at {}{estimate}, by who asked for it{}", instant(run), memory(run)));
    let mut t = Table::with_text_last();
    let worth = |bytes: u64| bytes as f64 > all as f64 * SHARE_SHOWN;
    let shown: Vec<_> = run.owners.iter().take(OWNERS_SHOWN).filter(|o| worth(o.live_at_peak_bytes.0)).collect();
    for o in &shown {
        let error = plus_minus(o.stderr_bytes, iec);
        let through = o.through.as_ref().map(|f| format!(" through {}", label(f))).unwrap_or_default();
        let who = format!("{}{through}", name(&o.frame));
        t.row([iec(o.live_at_peak_bytes.0), percent(o.live_at_peak_bytes.0 as f64, all as f64), error, who]);
    }
    page.rows(t);
    let named: u64 = shown.iter().map(|o| o.live_at_peak_bytes.0).sum();
    if all > named && (shown.len() as u64) < sums.owners {
        let rest = sums.owners - shown.len() as u64;
        page.say("", format!("{} of {} others (memshim analyze --sites)", iec(all - named), count(rest)));
    }
    let mut leaks: Vec<_> = run.owners.iter().filter(|o| o.leaked_bytes.0 > 0).collect();
    leaks.sort_by_key(|o| std::cmp::Reverse(o.leaked_bytes));
    let leaked = sums.leaked_bytes.less(sums.suppressed_bytes);
    if !leaks.is_empty() {
        let one = |o: &&Owner| format!("{} by {}", estimated(o.leaked_bytes.0, o.leaked_stderr_bytes), name(&o.frame));
        let who: Vec<String> = leaks.iter().take(LEAKS_SHOWN).map(one).collect();
        let end = estimated(leaked.0, sums.unsuppressed_stderr_bytes);
        page.say("", format!("live {} {end}{}: {}", latest(run), beside_heap(run, leaked.0), who.join(", ")));
    }
    shares(page, sums);
    problems(page, sums);
    if sums.memory == "heap" && heap::lacks_many(&run.events) {
        page.warn("", format!("of the recorded calls alone: {} of {} have no event", count(run.events.lost), count(run.events.counted)));
    }
    page.gap();
}

/// Why what call sites have live at the end is not what HEAP says, where it is not.
fn beside_heap(run: &Run, leaked: u64) -> String {
    let (sums, heap) = (&run.sites_total, &run.heap);
    let whole = heap.leaked_bytes.unwrap_or(heap.live_bytes).0;
    if sums.memory != "heap" || iec(whole) == iec(leaked) {
        String::new()
    } else if sums.suppressed_bytes.0 > 0 {
        format!(" without known leaks, of {} in HEAP", iec(whole))
    } else {
        format!(" by the recorded calls (HEAP counts {})", iec(whole))
    }
}

fn instant(run: &Run) -> String {
    let s = &run.sites_total;
    match &*s.instant {
        at if at.ends_with(" s") && !at.starts_with("the ") => seconds(s.at_s),
        peak => format!("{peak} ({})", seconds(s.at_s)),
    }
}

/// Of which memory, where it is not the heap.
fn memory(run: &Run) -> &'static str {
    match run.sites_total.memory {
        "python" => ": Python's own blocks",
        "maps" => ": mappings",
        "gpu" => ": memory of GPUs",
        _ => "",
    }
}

/// Why names are missing, and what else is to be known of the sites.
fn problems(page: &mut Page, s: &SiteSums) {
    for p in s.problems.iter().take(PROBLEMS_SHOWN) {
        page.warn("note", format!("{}: {}", p.what, p.why));
    }
    if s.problems.len() > PROBLEMS_SHOWN {
        page.warn("note", format!("and {} more (memshim analyze --sites)", s.problems.len() - PROBLEMS_SHOWN));
    }
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
        ("without an owner", s.without_owner_bytes),
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
            _ if !s.absent.is_empty() => &s.absent,
            _ => "no allocation was recorded",
        };
        return page.warn("SITES", why);
    }
    let view = run.sites_view.clone().unwrap_or_default();
    page.say(
        "SITES",
        format!(
            "{}{}; live at {}: {}; live {}: {}; total: {}",
            count(s.sites),
            memory(run),
            instant(run),
            estimated(s.live_at_peak_bytes.0, s.stderr_bytes),
            latest(run).trim_end_matches(','),
            estimated(s.leaked_bytes.0, s.leaked_stderr_bytes),
            estimated(s.total_bytes.0, s.total_stderr_bytes)
        ),
    );
    shares(page, s);
    for p in &s.problems {
        page.warn("note", format!("{}: {}", p.what, p.why));
    }
    page.gap();
    if run.sites_view.as_ref().is_some_and(|view| view.total.is_none()) {
        return page.warn("", format!("{}: not known, see above", what(&view, run)));
    }
    if !view.tree.is_empty() {
        tree::calls(page, run, &view);
    } else if !view.rows.is_empty() {
        rows(page, &view, run);
    } else {
        sites(page, run, &view);
    }
}

pub(super) fn what(view: &View, run: &Run) -> String {
    match view.measure {
        "leaked" => format!("live {}", latest(run).trim_end_matches(',')),
        "temporary" => "temporary allocations".into(),
        "total" => "allocated in all".into(),
        _ => format!("live at {}", instant(run)),
    }
}

pub(super) fn amount(view: &View, n: u64) -> String {
    if view.unit == "bytes" { iec(n) } else { count(n) }
}

/// Of all.
pub(super) fn share(n: u64, view: &View) -> String {
    percent(n as f64, view.total.unwrap_or(0) as f64)
}

fn rows(page: &mut Page, view: &View, run: &Run) {
    if view.rows.iter().any(|r| r.peak_bytes.is_some()) {
        return threads(page, view, run);
    }
    page.say("BY", format!("{}; own: allocated by itself, all: by what it calls too", what(view, run)));
    let mut t = Table::with_text_last();
    let estimated = view.rows.iter().any(|r| r.stderr > 0.5);
    let with = |mut cells: Vec<String>, error: String| {
        if estimated {
            cells.insert(2, error);
        }
        cells
    };
    t.row(with(["all", "share", "own", "share", "allocations", "who"].map(str::to_owned).to_vec(), String::new()));
    for r in &view.rows {
        let share = |n: u64| share(n, view);
        let cells = [
            amount(view, r.inclusive),
            share(r.inclusive),
            amount(view, r.exclusive),
            share(r.exclusive),
            count(r.inclusive_allocs),
            r.label(),
        ];
        t.row(with(cells.to_vec(), plus_minus(r.stderr, |n| amount(view, n))));
    }
    page.rows(t);
    if view.rows_total > view.rows.len() as u64 {
        page.say("", format!("and {} more (--top N)", count(view.rows_total - view.rows.len() as u64)));
    }
}

/// Threads: what each allocated, whoever frees it, and its own balance.
fn threads(page: &mut Page, view: &View, run: &Run) {
    page.say("BY", format!("thread: {}; most: what it allocated more than it freed at its own peak", what(view, run)));
    let mut t = Table::with_text_last();
    t.row(["its own", "share", "", "most", "allocations", "thread"]);
    for r in &view.rows {
        t.row([
            amount(view, r.inclusive),
            share(r.inclusive, view),
            plus_minus(r.stderr, |n| amount(view, n)),
            r.peak_bytes.map_or_else(String::new, |b| iec(b.0)),
            count(r.allocs),
            r.label(),
        ]);
    }
    page.rows(t);
}

/// A standard error, where there is one.
pub(super) fn plus_minus(stderr: f64, amount: impl Fn(u64) -> String) -> String {
    if stderr > 0.5 { format!("± {}", amount(stderr.round() as u64)) } else { String::new() }
}

/// Bytes with their standard error, where there is one.
fn estimated(bytes: u64, stderr: f64) -> String {
    iec(bytes) + &spaced(plus_minus(stderr, iec))
}

pub(super) fn spaced(text: String) -> String {
    if text.is_empty() { text } else { format!(" {text}") }
}

/// One paragraph a site: its figures, then its frames.
fn sites(page: &mut Page, run: &Run, view: &View) {
    let top = if view.top == 0 { usize::MAX } else { view.top };
    let heap: Vec<&Site> = run.sites.iter().filter(|s| memory_of(s) == run.sites_total.memory).collect();
    for (i, s) in heap.iter().take(top).enumerate() {
        figures(page, run, i + 1, s);
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

/// Where the memory is, if that is not told by the page.
fn place(s: &Site) -> String {
    let what = match (s.kind, s.device) {
        ("gpu", Some(n)) => format!("GPU {n}: "),
        ("heap" | "python", _) => String::new(),
        (kind, _) => format!("{}: ", s.name.unwrap_or(kind)),
    };
    let thread = s.thread.map_or_else(String::new, |tid| format!("thread {tid}: "));
    what + &thread
}

/// The memory that a kind is of.
fn memory_of(site: &Site) -> &'static str {
    match site.kind {
        "heap" | "python" => site.kind,
        "gpu" | "pinned" => "gpu",
        _ => "maps",
    }
}

fn figures(page: &mut Page, run: &Run, number: usize, s: &Site) {
    let live = s.live_at_peak_bytes.or(s.live_at_bytes).unwrap_or_default();
    let in_blocks = |n: Option<u64>, what: &str| n.map_or_else(String::new, |n| format!(" in {}{what}", count(n)));
    let blocks = in_blocks(s.live_at_peak_allocs.or(s.live_at_allocs), " blocks");
    let temporary = s.temporary_allocs.map_or_else(String::new, |n| {
        format!(", {}{} temporary", count(n), spaced(plus_minus(s.temporary_stderr_allocs.unwrap_or(0.0), count)))
    });
    let calls = if memory_of(s) == "maps" { "calls" } else { "allocations" };
    let bound = if s.peak_bound_bytes.0 > 0 { format!(" to {}", iec(s.peak_bytes.0 + s.peak_bound_bytes.0)) } else { String::new() };
    let bound = bound + &spaced(plus_minus(s.peak_stderr_bytes, iec));
    let known = s.suppressed.as_ref().map(|p| format!(" (a known leak: {p})")).unwrap_or_default();
    page.say(
        &format!("{number}"),
        format!(
            "{}live {}{}; own peak {}{bound}; total {} in {} {calls}{temporary}; live {} {}{}{known}",
            place(s),
            estimated(live.0, s.stderr_bytes),
            blocks,
            iec(s.peak_bytes.0),
            estimated(s.total_bytes.0, s.total_stderr_bytes),
            count(s.allocs),
            latest(run),
            estimated(s.leaked_bytes.0, s.leaked_stderr_bytes),
            in_blocks(s.leaked_allocs, "")
        ),
    );
}
