//! Peak, heap and mappings of one run.

use super::{Page, peak_resident};
use crate::analyze::heap::is_by_counts;
use crate::analyze::report::{AtPeak, EndKind, Job, Mode, Python, Run};
use crate::model::units::Bytes;
use crate::output::table::Table;
use crate::output::units::{count, iec, iec_signed, percent, seconds};

/// Figures from inside and from outside further apart than this share are pointed out (and 1 MiB, the grain of small programs).
const AGREE_WITHIN: f64 = 0.05;
const FUNCTIONS_SHOWN: usize = 4;
/// Of resident memory: arenas that are less say little.
const ARENAS_SHARE: f64 = 0.1;

/// `job`: where the run is all of it.
pub fn all(page: &mut Page, run: &Run, job: Option<&Job>) {
    resident(page, run, job);
    heap(page, run);
    python(page, run);
    maps(page, run);
}

fn resident(page: &mut Page, run: &Run, job: Option<&Job>) {
    let r = &run.rss;
    let top = peak_resident(run);
    if top == 0 {
        let most =
            r.at_most_bytes.map(|b| format!("; at most {}, the kernel says of it and what it waited for", iec(b.0))).unwrap_or_default();
        page.say("RESIDENT", format!("not known: nobody could look (is /proc there?){most}"));
        return page.gap();
    }
    // The time is that of the largest sample: it says when only where that is (nearly) the peak.
    let sampled = top as f64 * (1.0 - AGREE_WITHIN) <= r.peak_bytes.0 as f64;
    let at = r.peak_at_s.filter(|_| sampled).map(|t| format!(" at {}", seconds(t))).unwrap_or_default();
    let least = if r.lower_bound { " at least" } else { "" };
    page.say("RESIDENT", format!("peak {}{least}{at}", iec(top)));
    if r.lower_bound {
        let when = r.end_at_s.map(|t| format!(" after {}", seconds(t))).unwrap_or_default();
        let most = r.at_most_bytes.map(|b| format!("; at most {}, the kernel says of it and what it waited for", iec(b.0)));
        page.warn("", format!("nobody looked{when}: it may have had more at its end{}", most.unwrap_or_default()));
    }
    if let Some(p) = &r.at_peak {
        page.block("", composition(p, &Context::of(run, p)));
    }
    growth(page, run);
    cross_check(page, run);
    limits(page, run, top);
    if let Some(job) = job.filter(|job| job.request_mem_bytes.0 > 0) {
        let least = if job.request_lower_bound { " at least" } else { "" };
        let of = if job.request_mem_bytes.0 > top.saturating_add(top / 5).saturating_add(2 << 20) {
            "the most that it can have had"
        } else {
            "the peak"
        };
        let line = format!("ask for {}{least} to run it in a job: {of} and 10 %", iec(job.request_mem_bytes.0));
        page.say("", line + &own(run, top));
    }
    page.gap();
}

/// How much of so much is memshim's own, where that is more than a tenth: a job without it needs so much less. Memory of ours that was not touched is in it.
fn own(run: &Run, top: u64) -> String {
    let bytes = |key: &str| run.own.as_ref().and_then(|own| own[key].as_u64());
    let table = bytes("table_resident").or(bytes("table"));
    let own = [bytes("spool"), bytes("private"), table].into_iter().flatten().fold(0u64, u64::saturating_add).min(top);
    if own > top / 10 { format!("; of the peak {} at most are memshim's own", iec(own)) } else { String::new() }
}

/// From the first look to the last; where these were not at the start and at the end, it says when.
fn growth(page: &mut Page, run: &Run) {
    let r = &run.rss;
    let (Some(first), Some(from), Some(last), Some(to)) = (r.start_bytes, r.start_at_s, r.end_bytes, r.end_at_s) else { return };
    let at = |which: &str, t: f64| format!("at the {which} look ({})", seconds(t));
    let (from, to) = match r.growth_bytes {
        Some(_) => ("at the start".into(), "at the end".into()),
        None if to > from => (at("first", from), at("last", to)),
        None => {
            let once = format!("resident memory was looked at once, at {} ({})", seconds(from), iec(first.0));
            return page.say("", format!("growth not known: {once}; a shorter MEMSHIM_INTERVAL looks more often"));
        }
    };
    let growth = last.0 as i64 - first.0 as i64;
    let sign = if growth >= 0 { "+" } else { "" };
    page.say("", format!("growth {} {from} → {} {to} ({sign}{})", iec(first.0), iec(last.0), iec_signed(growth)));
}

/// What the machine or the batch system allowed.
fn limits(page: &mut Page, run: &Run, peak: u64) {
    let Some(outside) = &run.outside else { return };
    let slurm = outside["slurm"]["from"].as_str().unwrap_or("SLURM");
    for (from, limit) in [("memory cgroup", &outside["cgroup"]["limit"]), (slurm, &outside["slurm"]["limit"])] {
        if let Some(limit) = limit.as_u64().filter(|&l| l > 0) {
            page.say("", format!("limit {} ({from}): the peak is {} of it", iec(limit), percent(peak as f64, limit as f64)));
        }
    }
}

/// What else is known of the process whose peak it is.
struct Context {
    /// It is a forked child, and has blocks of its parent.
    forked: bool,
    /// Committed maps of its parent's; `None`: not known.
    maps: Option<Bytes>,
    /// Blocks that were live before take more than half of what is in none.
    freed: bool,
}

impl Context {
    fn of(run: &Run, p: &AtPeak) -> Context {
        let most = run.samples.iter().filter_map(|s| s.heap).fold(run.heap.peak_bytes, Bytes::max);
        let rest = u64::try_from(p.unaccounted.unwrap_or(0)).unwrap_or(0);
        Context {
            forked: run.heap.inherited_bytes.0 > 0,
            maps: run.maps.get().filter(|_| run.kin.forked).map_or(Some(Bytes(0)), |m| m.inherited_bytes),
            freed: most.less(p.heap.unwrap_or(most)).0 > rest / 2,
        }
    }
}

/// The peak taken apart. What is resident is the kernel's and adds up; what was asked for by then may be touched or not, so it has no share of that.
fn composition(p: &AtPeak, of: &Context) -> Vec<String> {
    let mut t = Table::with_text_last();
    let share = |n: u64| percent(n as f64, p.rss.0 as f64);
    t.row([format!("at {}", seconds(p.t_s)), iec(p.rss.0), "100 %".into(), "resident".into()]);
    let private = if p.unaccounted.is_some() { "heap, maps, stacks, libraries' data" } else { "heap, maps, stacks: not told apart" };
    let resident =
        [("private", p.anon.0, private), ("file", p.file.0, "programs, libraries, mapped files"), ("shared", p.shmem.0, "shared memory")];
    for (name, bytes, what) in resident.into_iter().filter(|(_, b, _)| *b > 0) {
        t.row([format!("  {name}"), iec(bytes), share(bytes), what.into()]);
    }
    if let Some(rest) = p.unaccounted {
        asked_for(&mut t, p, rest, of);
    }
    if p.hugetlb.0 > 0 {
        t.row(["hugetlb".into(), iec(p.hugetlb.0), String::new(), "huge pages, not part of resident".into()]);
    }
    t.lines()
}

/// What the program had asked for beside the private memory that was resident: more than that, or less.
fn asked_for(t: &mut Table, p: &AtPeak, rest: i64, context: &Context) {
    let inherited = context.maps.is_some_and(|b| b.0 > 0);
    let of = |bytes: Option<Bytes>| bytes.map_or(0, |b| b.0);
    let parts = [
        (
            "heap",
            of(p.heap),
            if context.forked { "live blocks, those inherited at the fork too" } else { "live blocks of malloc and its like" },
        ),
        ("anon maps", of(p.maps_anon), if inherited { "by mmap, those inherited too" } else { "committed by the program's own mmap" }),
        ("brk", of(p.brk), "moved by the program itself"),
        ("stack", p.stack.0, "of the first thread"),
    ];
    let all = parts.iter().fold(0u64, |sum, (_, bytes, _)| sum.saturating_add(*bytes));
    t.row(["asked for".into(), iec(all), String::new(), "of private memory, touched or not".into()]);
    for (name, bytes, what) in parts.into_iter().filter(|(_, b, _)| *b > 0) {
        t.row([format!("  {name}"), iec(bytes), String::new(), what.into()]);
    }
    let why = match context {
        _ if rest < 0 => "at least so much was never touched",
        Context { maps: None, .. } => "with its parent's maps: not known here",
        Context { freed: true, .. } => "kept of freed blocks, libraries' data",
        _ => "the allocator's own, libraries' data",
    };
    t.row(["unaccounted".into(), iec_signed(rest), percent_signed(rest, p.rss.0), why.into()]);
}

fn percent_signed(part: i64, whole: u64) -> String {
    format!("{}{}", if part < 0 { "−" } else { "" }, percent(part.unsigned_abs() as f64, whole as f64))
}

/// The process's own high-water mark beside the one seen from outside.
fn cross_check(page: &mut Page, run: &Run) {
    let Some(outside) = run.rss.outside_hwm_bytes else { return };
    let Some(inside) = run.rss.hwm_bytes else {
        page.say("", format!("high-water mark {} seen from outside; none from inside", iec(outside.0)));
        return;
    };
    let line = format!("high-water mark {} from inside, {} from outside", iec(inside.0), iec(outside.0));
    let apart = inside.0.abs_diff(outside.0);
    if apart as f64 <= (inside.0 as f64 * AGREE_WITHIN).max((1 << 20) as f64) {
        page.say("", format!("{line}: they agree"));
    } else if outside.0 < inside.0 {
        page.warn("differs", format!("{line}: the last rise fell between two looks from outside; take the larger"));
    } else {
        page.warn("differs", format!("{line}: memory grew after the last look from inside, or an image was not recorded; take the larger"));
    }
}

fn heap(page: &mut Page, run: &Run) {
    let h = &run.heap;
    if run.mode == Mode::Watch {
        page.warn("HEAP", "not seen: watched from outside. Heap, maps, call stacks, GPU and phases need `memshim run -- PROGRAM`");
        return page.gap();
    }
    if !h.seen {
        page.warn("HEAP", format!("not seen: the allocator is {}", run.allocator.trim_end_matches(", not seen")));
        if h.allocs == 0 {
            return page.gap();
        }
        page.say("", "what follows is of the few calls that came past memshim");
    } else if h.allocs == 0 && h.frees == 0 && h.peak_bytes.0 == 0 {
        page.say("HEAP", "no call of malloc or its like was seen");
        page.gap();
        return;
    }
    let at = h.peak_at_s.map(|t| format!(" at {}", seconds(t))).unwrap_or_default();
    let bound = match (run.mode, h.peak_bound_bytes) {
        (_, Some(b)) => bounded(run, b),
        (_, None) if run.end.kind == EndKind::Running => " (so far: its latest events are in its memory)".into(),
        (Mode::Full, None) if run.events.lost > 0 && !is_by_counts(&run.events, run.mode) => " (of the recorded calls)".into(),
        (_, None) => " (no bound known)".into(),
    };
    page.say(if h.seen { "HEAP" } else { "" }, format!("peak live {}{at}{bound}", iec(h.peak_bytes.0)));
    let mean = h.requested_bytes.0.checked_div(h.allocs).unwrap_or(0);
    let mut lines = vec![format!(
        "total {} in {} allocations of {} on the mean; {} frees",
        iec(h.requested_bytes.0),
        count(h.allocs),
        iec(mean),
        count(h.frees)
    )];
    if let Some(n) = h.temporary_allocs.filter(|_| h.allocs > 0) {
        lines.push(format!(
            "temporary {} allocations ({} of all): freed before the thread's next one",
            count(n),
            percent(n as f64, h.allocs as f64)
        ));
    }
    // Without samples, or of very few, nothing is said of the small ones, which are most.
    if let Some(e) = h.temporary_estimated.filter(|e| h.allocs > 0 && e.allocs_stderr > 0.0 && e.allocs_stderr < e.allocs / 3.0) {
        lines.push(format!(
            "temporary about {} (± {}) allocations ({} of all): freed before the thread's next one",
            count(e.allocs.round() as u64),
            count(e.allocs_stderr.round() as u64),
            percent(e.allocs, h.allocs as f64)
        ));
    }
    let when = latest(run);
    let ended = when == AT_THE_END;
    let blocks = |bytes: u64, n: u64| format!("{} in {} blocks", iec(bytes), count(n));
    if h.inherited_bytes.0 > 0 {
        lines.push(format!("inherited {} at the fork, counted in what is live", blocks(h.inherited_bytes.0, h.inherited_allocs)));
        let own = match (h.leaked_bytes, h.leaked_allocs) {
            (Some(bytes), Some(n)) => format!("{} of them its own{}", blocks(bytes.0, n), if ended { LEAKED } else { "" }),
            _ if run.known_until_s.is_some() => "which of them are its own, a whole trace tells".into(),
            _ => "which of them are its own, full mode tells".into(),
        };
        lines.push(format!("live {when} {}; {own}", blocks(h.live_bytes.0, h.live_allocs)));
    } else {
        let (bytes, n) = (h.leaked_bytes.unwrap_or(h.live_bytes), h.leaked_allocs.unwrap_or(h.live_allocs));
        lines.push(format!("live {when} {}{}", blocks(bytes.0, n), if ended { LEAKED } else { "" }));
    }
    if h.allocs > 0 {
        lines.push(format!("total by function: {}", functions(run)));
    }
    lines.iter().for_each(|line| page.say("", line));
    if let Some(until) = run.known_until_s {
        page.warn(
            "",
            format!("the end is not in the trace: these figures are of the first {}, what came after is in none of them", seconds(until)),
        );
    }
    if is_by_counts(&run.events, run.mode) {
        page.warn("", "by usable size, from the counts that each thread keeps: too many events are missing (see EVENTS)");
    }
    page.gap();
}

/// Of a forked child.
const INHERITED_UNKNOWN: &str = "what it inherited of its parent's maps is not known: read its parent's trace with it";

const AT_THE_END: &str = "at the end";
const LEAKED: &str = " (leaked, unless kept on purpose)";

/// The instant that the latest figures are of, in words.
pub(super) fn latest(run: &Run) -> String {
    match run.known_until_s {
        _ if run.end.kind == EndKind::Running => "now".into(),
        Some(until) => format!("at {}, where the trace breaks off,", seconds(until)),
        // What it would have freed is not known.
        None if matches!(run.end.kind, EndKind::Signaled | EndKind::Killed) => "when it was killed".into(),
        None => AT_THE_END.into(),
    }
}

/// How far a peak can be off, and of what time that is said.
fn bounded(run: &Run, bound: Bytes) -> String {
    let of = run.known_until_s.map_or(String::new(), |until| format!(", up to {}", seconds(until)));
    if bound.0 == 0 { format!(" (exact{of})") } else { format!(" (± {} at most{of})", iec(bound.0)) }
}

fn functions(run: &Run) -> String {
    let mut all: Vec<_> = run.heap.by_function.iter().filter(|(_, f)| f.allocs > 0).collect();
    all.sort_by_key(|(_, f)| std::cmp::Reverse((f.bytes, f.allocs)));
    let named = all.iter().take(FUNCTIONS_SHOWN).map(|(name, f)| format!("{name} {} ({})", iec(f.bytes.0), count(f.allocs)));
    let rest = all.len().saturating_sub(FUNCTIONS_SHOWN);
    let more = (rest > 0).then(|| format!("{rest} more"));
    named.chain(more).collect::<Vec<_>>().join(", ")
}

/// Python's own blocks: beside the heap, not part of it.
fn python(page: &mut Page, run: &Run) {
    let Some(p) = &run.python else { return };
    let (Some(allocs), Some(frees)) = (p.allocs, p.frees) else { return unseen(page, run, p) };
    let at = p.peak_at_s.map(|t| format!(" at {}", seconds(t))).unwrap_or_default();
    let bound = match p.peak_bound_bytes {
        Some(b) => bounded(run, b),
        None => " (no bound known)".into(),
    };
    match (p.peak_bytes, p.live_bytes) {
        (Some(peak), Some(live)) => {
            page.say("PYTHON", format!("peak of its own blocks {}{at}{bound}; live {} {}", iec(peak.0), latest(run), iec(live.0)));
        }
        _ => page.say("PYTHON", "this build does not say how large its blocks are: full mode knows their bytes"),
    }
    let domain = |prefix: &str| -> u64 { p.by_function.iter().filter(|(f, _)| f.starts_with(prefix)).map(|(_, f)| f.bytes.0).sum() };
    let (raw, obj) = (domain("PyMem_Raw"), domain("PyObject_"));
    let mem = domain("PyMem_").saturating_sub(raw);
    page.say(
        "",
        format!(
            "{} allocations, {} frees; asked for: objects {}, mem {}, raw {}",
            count(allocs),
            count(frees),
            iec(obj),
            iec(mem),
            iec(raw)
        ),
    );
    if p.unknown_frees > 0 {
        page.say("", format!("{} frees of blocks that were not seen allocated", count(p.unknown_frees)));
    }
    if p.lost > 0 {
        page.warn("lost", format!("{} calls of its allocators are not in it", count(p.lost)));
    }
    page.gap();
}

/// Small objects that nobody sees one by one, where they are a part of the memory that is worth it.
fn unseen(page: &mut Page, run: &Run, p: &Python) {
    if let Some(arenas) = p.arenas_bytes.filter(|a| a.0 as f64 > peak_resident(run) as f64 * ARENAS_SHARE) {
        let line = format!(
            "{} of the maps are arenas of its small objects, which are in no block here: run again with --python-alloc (MEMSHIM_PYTHON_ALLOC=1)",
            iec(arenas.0)
        );
        page.say("PYTHON", line);
        page.gap();
    }
}

fn maps(page: &mut Page, run: &Run) {
    let Some(m) = run.maps.get() else { return };
    let mut t = Table::new();
    let end = run.known_until_s.map_or(AT_THE_END.to_owned(), |until| format!("at {}", seconds(until)));
    t.row(["maps", "peak committed", end.as_str(), "reserved"]);
    let b = &m.brk;
    let classes = [("anon", &m.anon), ("file", &m.file), ("shared", &m.shared), ("stack, first thread's too", &m.stack)];
    let rows = classes.map(|(n, c)| (n, c.peak_bytes, c.committed_bytes, c.reserved_bytes));
    let all = rows.into_iter().chain([("brk", b.peak_bytes, b.committed_bytes, b.reserved_bytes)]);
    let mut any = false;
    for (name, peak, end, reserved) in all.filter(|(_, p, e, r)| p.0 | e.0 | r.0 > 0) {
        any = true;
        t.row([name.to_owned(), iec(peak.0), iec(end.0), iec(reserved.0)]);
    }
    if any {
        let at = m.peak_at_s.map(|s| format!(" at {}", seconds(s))).unwrap_or_default();
        page.say("MAPS", format!("peak committed {}{at}, by the program's own calls and for the threads it starts", iec(m.peak_bytes.0)));
        page.block("", t.lines());
        match m.inherited_bytes {
            _ if !run.kin.forked => {}
            Some(Bytes(0)) => {}
            Some(inherited) => page.say("", format!("inherited {} at the fork, counted in what is committed", iec(inherited.0))),
            None => page.warn("", INHERITED_UNKNOWN),
        }
        if run.lowered.is_some() {
            page.warn("", "what the program mapped after the trace had no more room may not be in it (see `missing`)");
        }
        page.gap();
    }
}
