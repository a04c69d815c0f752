//! A report as one screen for a person: what ended how, the peak and what it was made of, who allocated, what is missing, what to type
//! next. Every number says whether it is live, peak, total or temporary. Not for machines: that is `json`.

mod advice;
mod gpu;
mod memory;
mod outside;
mod phases;
mod processes;
mod sites;
mod steps;
mod tree;
mod trust;

use super::screen::wrapped;
use super::units::{count, percent, seconds};
use super::{shell, timeline};
use crate::analyze::report::{End, EndKind, Lowered, Mode, Report, Run};
use std::path::PathBuf;

/// How the screen is.
#[derive(Debug, Clone)]
pub struct Style {
    pub width: usize,
    /// Signs outside ASCII can be shown.
    pub unicode: bool,
    /// The run to show; else the one with the most resident memory.
    pub pid: Option<u32>,
    /// What was given to `analyze`, for the command to type next.
    pub traces: Vec<PathBuf>,
}

const BOLD: &str = "\x1b[1m";
const YELLOW: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

/// The width of the words in front of the blocks.
const MARGIN: usize = 10;
/// Of a command in a line about something else.
const COMMAND_WIDTH: usize = 40;
/// Of one to type again.
const TYPED_WIDTH: usize = 100;

/// The whole screen, with ANSI styles; whoever prints it strips them where they don't belong.
pub fn render(report: &Report, style: &Style) -> String {
    let mut page = Page { lines: Vec::new(), width: style.width.clamp(60, 160) };
    let shown = shown_run(report, style.pid);
    let alone = report.runs.len() == 1 && report.job.not_recorded_total == 0;
    if !alone {
        processes::job(&mut page, report, shown);
    }
    if let Some(run) = shown {
        head(&mut page, run);
        memory::all(&mut page, run, Some(&report.job).filter(|_| alone));
        let whose = |count: fn(&Run) -> usize| Whose::of(report, run, style.pid.is_some(), count);
        phases::all(&mut page, &whose(phases::told));
        steps::all(&mut page, &whose(phases::told));
        phases::marks(&mut page, &whose(|r| r.marks.len()));
        outside::compiles(&mut page, &whose(|r| r.compiles.len()));
        outside::artifacts(&mut page, &whose(|r| r.artifacts.len()));
        sites::owners(&mut page, run);
        gpu::all(&mut page, run);
        let chart = timeline::draw(&run.samples, run.wall_s, page.width - MARGIN);
        if !chart.is_empty() {
            page.block("over time", chart);
            let signs = if run.heap.get().is_some() { "█ live heap   ░ rest of the resident memory" } else { "░ resident memory" };
            page.lines.push(format!("{:MARGIN$}         {signs}", ""));
        }
        processes::threads(&mut page, run);
        advice::all(&mut page, run);
        trust::all(&mut page, run);
    }
    trust::problems(&mut page, &report.problems);
    page.next(next_command(report, shown, &style.traces));
    let text = page.lines.join("\n") + "\n";
    if style.unicode { text } else { ascii(&text) }
}

/// The call sites of a run instead of the whole: rows of the view asked for, or the tree of calls.
pub fn render_sites(report: &Report, style: &Style) -> String {
    let mut page = Page { lines: Vec::new(), width: style.width.max(60) };
    if let Some(run) = shown_run(report, style.pid) {
        page.say("command", super::table::cut(&run.command.join(" "), page.room()));
        sites::all(&mut page, run);
    }
    let text = page.lines.join("\n") + "\n";
    if style.unicode { text } else { ascii(&text) }
}

/// The run that a person most likely asks about: the one with the highest resident peak, then heap peak.
fn shown_run(report: &Report, pid: Option<u32>) -> Option<&Run> {
    let wanted = report.runs.iter().filter(|r| pid.is_none_or(|p| r.pid == p));
    // `max_by_key` gives the last of equals; parents come first and are the better answer.
    wanted.rev().max_by_key(|r| (peak_resident(r), r.heap.peak_bytes.0))
}

/// Whose phases, compilations or files are shown: those of the process that has most, unless one was asked for.
struct Whose<'a> {
    run: &'a Run,
    /// It is not the process that the rest of the screen is of.
    other: bool,
    /// How many more processes have some.
    more: usize,
}

impl<'a> Whose<'a> {
    fn of(report: &'a Report, shown: &'a Run, asked: bool, count: fn(&Run) -> usize) -> Whose<'a> {
        if asked {
            return Whose { run: shown, other: false, more: 0 };
        }
        let most = report.runs.iter().rev().max_by_key(|r| count(r)).filter(|r| count(r) > count(shown));
        let run = most.unwrap_or(shown);
        let same = |r: &Run| (&r.host, r.pid) == (&run.host, run.pid);
        let mut others: Vec<(&str, u32)> =
            report.runs.iter().filter(|r| count(r) > 0 && !same(r)).map(|r| (r.host.as_str(), r.pid)).collect();
        others.sort_unstable();
        others.dedup();
        Whose { run, other: (&run.host, run.pid) != (&shown.host, shown.pid), more: others.len() }
    }

    /// Whose they are, behind a headline.
    fn said(&self) -> String {
        let command = super::table::cut(&self.run.command.join(" "), COMMAND_WIDTH);
        if self.other { format!(" · of process {} ({command})", self.run.pid) } else { String::new() }
    }

    /// How to see those of the others.
    fn others(&self, page: &mut Page) {
        if self.more > 0 {
            let who =
                if self.more == 1 { "1 other process has".into() } else { format!("{} other processes have", count(self.more as u64)) };
            page.say("", format!("{who} some too: `--pid PID` shows them, or --json"));
        }
    }
}

/// The largest figure that anyone saw: sampled, the process's own high-water mark, the one from outside.
fn peak_resident(run: &Run) -> u64 {
    let r = &run.rss;
    [r.hwm_bytes, r.outside_hwm_bytes].into_iter().flatten().fold(r.peak_bytes, crate::model::units::Bytes::max).0
}

/// Lines on their way to the screen.
struct Page {
    lines: Vec<String>,
    width: usize,
}

impl Page {
    /// Lines with a word in the margin of the first.
    fn block(&mut self, title: &str, lines: impl IntoIterator<Item = String>) {
        for (i, line) in lines.into_iter().enumerate() {
            let word = if i == 0 { title } else { "" };
            self.lines.push(format!("{BOLD}{word:<MARGIN$}{PLAIN}{}", harmless(&line)));
        }
    }

    /// A sentence, broken into as many lines as it needs, the later ones a little to the right.
    fn say(&mut self, title: &str, text: impl AsRef<str>) {
        let lines = self.fitted(text.as_ref());
        self.block(title, lines);
    }

    fn warn(&mut self, title: &str, text: impl AsRef<str>) {
        let at = self.lines.len();
        self.say(title, text);
        self.lines[at].insert_str(0, YELLOW);
    }

    fn fitted(&self, text: &str) -> Vec<String> {
        let mut lines = wrapped(text, self.room().saturating_sub(2).max(20));
        lines.iter_mut().skip(1).for_each(|l| l.insert_str(0, "  "));
        lines
    }

    /// A table; its lines are cut to the room there is.
    fn rows(&mut self, table: super::table::Table) {
        let room = self.room();
        self.block("", table.lines_within(room).iter().map(|l| super::table::cut(l, room)));
    }

    /// An empty line between two sections, whichever asks for it.
    fn gap(&mut self) {
        if self.lines.last().is_some_and(|line| !line.is_empty()) {
            self.lines.push(String::new());
        }
    }

    fn next(&mut self, command: String) {
        self.gap();
        self.block("next", [command]);
    }

    /// Room right of the margin.
    fn room(&self) -> usize {
        self.width.saturating_sub(MARGIN)
    }
}

fn head(page: &mut Page, run: &Run) {
    page.say("command", super::table::cut(&run.command.join(" "), page.room()));
    let mode = match (run.mode, run.full_until_s) {
        (Mode::Full, _) => "full mode: every call an event",
        (Mode::Fast, Some(until)) => &format!("full mode until {}: see `missing`", seconds(until)),
        (Mode::Fast, None) => "fast mode: big and sampled calls are events, all are counted",
        (Mode::Off, _) => "mode off",
        (Mode::Watch, _) => "watched from outside",
    };
    let python = run.python.as_ref().and_then(|p| p.version.as_ref()).map(|v| format!(" · Python {v}")).unwrap_or_default();
    let allocator = if run.allocator.is_empty() { String::new() } else { format!(" · {}", run.allocator) };
    let rank = run.rank.map(|r| format!(" · rank {r}")).unwrap_or_default();
    page.say("process", format!("pid {} on {}{rank}{python}{allocator} · {mode}", run.pid, run.host));
    let least = if run.cpu_lower_bound { " at least" } else { "" };
    let cpu = run.cpu_s.map(|c| format!(", {} CPU{least} ({})", seconds(c), percent(c, run.wall_s))).unwrap_or_default();
    let line = format!("{} after {} wall{cpu}, started {}", ended(&run.end, run.known_until_s.is_some()), seconds(run.wall_s), run.start);
    match run.end.kind {
        EndKind::Signaled | EndKind::Killed => page.warn("ended", line),
        _ => page.say("ended", line),
    }
    page.gap();
}

/// `cut`: the trace lacks its end.
fn ended(end: &End, cut: bool) -> String {
    match (end.kind, end.code, end.signal) {
        (EndKind::Exited, Some(code), _) => format!("exit code {code}"),
        (EndKind::Exited, None, _) if end.unseen => "ended (how is not seen from outside)".into(),
        (EndKind::Exited, None, _) => "exited".into(),
        (EndKind::Signaled, _, Some(n)) => format!("killed by signal {n}{}", signal_name(n)),
        (EndKind::Signaled, _, None) => "killed by a signal".into(),
        (EndKind::Exec, ..) => "went on as another program (exec)".into(),
        (EndKind::Killed, ..) if end.unseen => "end not seen: recording had ended before".into(),
        (EndKind::Killed, ..) if cut => "end not in the trace (cut, or killed and its spool is not beside it)".into(),
        (EndKind::Killed, ..) => "died without warning (killed, out of memory, or the power went)".into(),
        (EndKind::Running, ..) => "still running".into(),
    }
}

fn signal_name(n: i32) -> String {
    nix::sys::signal::Signal::try_from(n).map(|s| format!(" ({s})")).unwrap_or_default()
}

fn next_command(report: &Report, shown: Option<&Run>, traces: &[PathBuf]) -> String {
    let quoted = traces.iter().map(|t| shell::quoted_path(t)).collect::<Vec<_>>().join(" ");
    match shown {
        Some(run) if run.full_until_s.is_some() => {
            let (how, why) = match run.lowered {
                Some(Lowered::Cap) => ("--max SIZE", "SIZE: more than the cap was"),
                _ => ("-o TRACE", "TRACE where there is room for it"),
            };
            format!("memshim run {how} --mode full -- {}    ({why})", command(&run.command))
        }
        Some(run) if run.lacked_disk => {
            let mode = if run.mode == Mode::Full { "--mode full " } else { "" };
            format!("memshim run -o TRACE {mode}-- {}    (TRACE where there is room for it)", command(&run.command))
        }
        Some(run) if run.events.lost > 0 || run.mode == Mode::Fast && run.heap.peak_bound_bytes.is_some_and(|b| matters(b.0, run)) => {
            format!("memshim run --mode full -- {}    (exact peaks)", command(&run.command))
        }
        _ if report.job.processes > 1 => format!("memshim analyze {quoted} --pid PID    (another process), or --json"),
        _ => format!("memshim analyze {quoted} --json    (everything)"),
    }
}

/// A command as it is typed; of a long one the words that fit, and that there are more.
fn command(words: &[String]) -> String {
    let whole = words.iter().map(|word| shell::quoted(word)).collect::<Vec<_>>();
    let mut shown = whole.join(" ");
    let mut n = whole.len();
    while n > 1 && shown.chars().count() > TYPED_WIDTH {
        n -= 1;
        shown = format!("{} …", whole[..n].join(" "));
    }
    shown
}

/// Whether what is not known of the peak is worth another run: more than a tenth of the heap, and a twentieth of what is resident.
fn matters(bound: u64, run: &Run) -> bool {
    bound.saturating_mul(10) > run.heap.peak_bytes.0 && bound.saturating_mul(20) > peak_resident(run)
}

/// A trace may hold anything, and a terminal obeys control characters.
fn harmless(line: &str) -> String {
    line.chars()
        .map(|c| {
            if c.is_whitespace() {
                ' '
            } else if c.is_control() {
                '?'
            } else {
                c
            }
        })
        .collect()
}

/// For terminals that only know ASCII.
pub(super) fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '█' | '▇' | '▆' | '▅' => out.push('#'),
            '▄' | '▃' | '▂' | '▁' => out.push('_'),
            '░' => out.push(':'),
            '│' | '┤' => out.push('|'),
            '└' | '├' => out.push('+'),
            '─' | '–' | '−' | '·' => out.push('-'),
            '±' => out.push_str("+-"),
            '≤' => out.push_str("<="),
            '≥' => out.push_str(">="),
            '…' => out.push('~'),
            '→' => out.push_str("->"),
            'µ' => out.push('u'),
            c if c.is_ascii() => out.push(c),
            _ => out.push('?'),
        }
    }
    out
}

#[cfg(test)]
mod tests;
