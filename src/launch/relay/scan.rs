//! From the output of a channel to lines of the side file.

use super::lines::{Line, Lines, When};
use crate::launch::locate::{self, Found};
use crate::launch::notices::Notices;
use crate::launch::rules::{Plain, Rules};
use crate::launch::side::{self, SideFile, Whose};
use crate::launch::{outside, proc};
use memchr::memchr;
use regex::bytes::RegexSet;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Facts of a channel beyond these are only counted: a rule that fits every line of a long output is a mistake.
const FACTS_MAX: u64 = 200_000;
const LOCATE_EVERY: Duration = Duration::from_millis(50);

/// What is looked for.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    pub rules: Rules,
    /// Compile notices too.
    pub compiles: bool,
}

impl Watch {
    pub fn is_idle(&self) -> bool {
        self.rules.0.is_empty() && !self.compiles
    }
}

/// The side file of the target, once it is known, and what waits for it.
#[derive(Default)]
pub struct Book {
    whose: Option<Whose>,
    /// It lives: its trace can be found by what it holds open.
    pid: Option<i32>,
    /// The trace of its run's first process.
    first: Option<PathBuf>,
    /// The target itself, once it is known where it is recorded.
    found: Option<Found>,
    file: Option<SideFile>,
    waiting: Vec<Value>,
    next_look: Option<Instant>,
    /// Rules that a line has fitted.
    met: BTreeSet<usize>,
}

impl Book {
    pub fn started(&mut self, whose: Whose) {
        self.pid = Some(whose.pid);
        self.whose = Some(whose);
    }

    /// Looks for its trace, now and then: whoever started us may not live to say where that is.
    pub fn look(&mut self) {
        if self.first.is_none() && self.next_look.is_none_or(|t| t <= Instant::now()) {
            self.next_look = Some(Instant::now() + LOCATE_EVERY);
            if let Some(found) = self.pid.and_then(|pid| locate::of(pid).ok()) {
                self.whose = Some(found.whose);
                self.first = Some(found.first.clone());
                self.found = Some(found);
            }
        }
    }

    /// Notes facts, edges with what was live when they were found.
    fn note(&mut self, facts: Vec<Value>) {
        self.look();
        let edges = facts.iter().any(|f| f["type"] == "edge");
        let seen = self.found.as_ref().filter(|_| edges).and_then(Found::look);
        let resident = self.pid.filter(|_| edges).and_then(proc::resident);
        self.waiting.extend(facts.into_iter().map(|fact| side::with_seen(fact, seen, resident)));
    }

    pub fn look_now(&mut self) {
        self.next_look = None;
        self.look();
    }

    /// Writes what waits, where the trace of the target can be found by now.
    pub fn write(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        self.look();
        if self.file.is_none() {
            self.file = self.first.as_ref().and_then(|f| SideFile::beside(f).ok());
        }
        if let (Some(file), Some(whose)) = (&mut self.file, self.whose) {
            // Nobody is there to be told of a full disk: the report says what the trace itself met.
            let _ = file.append(whose, self.waiting.drain(..));
        }
    }

    /// No more output comes: which rules were for no line of it.
    pub fn say_unmet(&mut self, rules: &Rules) {
        let unmet = rules.0.iter().enumerate().filter(|(at, _)| !self.met.contains(at));
        self.waiting.extend(unmet.map(|(_, rule)| json!({"type": "unmet", "t": outside::monotonic_ns(), "rule": rule.text})));
        self.write();
    }

    /// The target has ended; this is the trace of its run's first process.
    pub fn ended(&mut self, first: Option<&Path>) {
        self.pid = None;
        self.first = self.first.take().or(first.map(Path::to_path_buf));
        self.write();
    }
}

/// A channel's output, looked through.
pub struct Scan {
    watch: Watch,
    sieve: Option<RegexSet>,
    lines: Lines,
    notices: Notices,
    book: Arc<Mutex<Book>>,
    facts: u64,
    unwritten: bool,
    met: BTreeSet<usize>,
}

impl Scan {
    pub fn new(watch: &Watch, book: Arc<Mutex<Book>>) -> Scan {
        let words = if watch.compiles { Notices::WORDS } else { &[] };
        Scan {
            sieve: watch.rules.sieve(words),
            watch: watch.clone(),
            lines: Lines::default(),
            notices: Notices::default(),
            book,
            facts: 0,
            unwritten: false,
            met: BTreeSet::new(),
        }
    }

    /// Takes a piece, and looks at the target's memory where it has edges; [`Scan::write`] writes them.
    pub fn take(&mut self, bytes: &[u8], when: When) {
        let mut found = Vec::new();
        let Scan { watch, sieve, lines, notices, met, .. } = self;
        // Colours can stand within a word.
        let worth = |many: &[u8]| sieve.as_ref().is_none_or(|s| memchr(0x1b, many).is_some() || s.is_match(many));
        lines.take(bytes, when, worth, |line| look(line, watch, notices, met, &mut found));
        self.note(found);
    }

    /// The channel is at its end.
    pub fn end(&mut self) {
        let mut found = Vec::new();
        let Scan { watch, lines, notices, met, .. } = self;
        lines.end(|line| look(line, watch, notices, met, &mut found));
        found.extend(notices.end());
        self.note(found);
        self.write();
        if self.facts > FACTS_MAX {
            let n = self.facts - FACTS_MAX;
            let mut book = self.book();
            book.note(vec![json!({"type": "lost", "t": outside::monotonic_ns(), "n": n})]);
            book.write();
        }
        let met = std::mem::take(&mut self.met);
        self.book().met.extend(met);
    }

    fn note(&mut self, mut found: Vec<Value>) {
        if !found.is_empty() {
            let room = FACTS_MAX.saturating_sub(self.facts);
            self.facts += found.len() as u64;
            found.truncate(room as usize);
            self.book().note(found);
            self.unwritten = true;
        }
    }

    /// Writes what was found.
    pub fn write(&mut self) {
        if std::mem::take(&mut self.unwritten) {
            self.book().write();
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// What a line says.
fn look(line: Line, watch: &Watch, notices: &mut Notices, met: &mut BTreeSet<usize>, found: &mut Vec<Value>) {
    let plain = memchr(0x1b, line.text).map(|_| Plain::of(line.text));
    let text = plain.as_ref().map_or(line.text, |p| &p.text);
    let time_of = |end: usize| line.time_of(plain.as_ref().map_or(end, |p| p.at(end)));
    for f in watch.rules.of(text) {
        met.insert(f.rule);
        let When { t, late } = time_of(f.end);
        found.push(side::with_late(side::edge(t, f.what, f.name, "output"), late));
    }
    if watch.compiles {
        found.extend(notices.read(text, time_of(text.len()).t));
    }
}
