//! Phases of one image: edges to instances, and what each metric was at the edges and at most between them.
//!
//! An edge of a thread's own has its place among the thread's heap events ([`super::heap`] plays it there). One from outside (a mark, a line of
//! output) has its time only. Phases of a thread nest; an end closes the innermost open phase of its source and domain, whatever else is
//! open. Names can come after their edges, so paths are made of numbers until the [`end`].

mod end;
mod metrics;
mod shown;
mod structure;

pub use end::{HeapLevels, HeapOver, Path, PhasesEnd};
use metrics::METRICS;
pub use metrics::Metric;

use std::collections::{BTreeMap, HashMap};

use memshim_format::phase::SOURCES;
use serde_json::Value;

use super::left::Turn;
use super::levels::{AtEdges, Levels, RangeMax};
use crate::trace::glance::Seen;
use crate::trace::phase::{EdgeRow, PhaseRow, What};

/// Edges kept at most; later ones are counted.
const EDGES: usize = 1 << 22;
/// Phases open inside each other; deeper ones are counted.
const DEEP: usize = 256;
/// No machine has more.
const BYTES_MAX: i64 = 1 << 48;
/// Names kept, and bytes of one.
const NAMES: usize = 1 << 16;
const NAME_LEN: usize = 4096;

/// An edge of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    pub t: u64,
    /// Usable bytes live; `None` where only the time is known.
    pub live: Option<i64>,
    pub usage: Option<[u64; 5]>,
    pub moved: Option<[u64; 2]>,
    /// Of one from outside: it was so many ns earlier at most, and at which edge that is.
    pub late: Option<u64>,
    pub since: Option<u32>,
}

/// What is known of an edge from outside beside its time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Told<'a> {
    /// What was live then (fast mode).
    pub seen: Option<&'a Seen>,
    /// It was so many ns earlier at most, and the edge that stands there ([`PhaseBook::look_back_to`]).
    pub late: Option<u64>,
    pub since: Option<u32>,
}

impl Edge {
    /// Of which only the time is known.
    fn at(t: u64) -> Self {
        Edge { t, ..Edge::default() }
    }
}

/// What the heap's replay is to find at an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapEdge {
    pub edge: u32,
    pub t: u64,
    /// Lane, group and step, where it has a place among a lane's events.
    pub place: Option<(u32, u64, u64)>,
    /// Of the end of a function: number of the lane's first allocation in the phase.
    pub since: Option<u64>,
}

impl AsRef<HeapEdge> for HeapEdge {
    fn as_ref(&self) -> &HeapEdge {
        self
    }
}

/// What it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapAt {
    pub edge: u32,
    /// Requested bytes live.
    pub level: i64,
    /// The most since the edge before.
    pub most: i64,
    /// Allocated in the phase and freed by its thread straight after the end: what the frame that returned had held.
    pub settling: i64,
}

/// One time that a phase was on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    pub path: u32,
    pub begin: u32,
    pub end: u32,
    /// Time of phases straight inside it, same thread.
    pub inner_ns: u64,
    /// It was seen to end.
    pub ended: bool,
}

/// A phase by its name and those that it was in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Step {
    parent: Option<u32>,
    name: Name,
    source: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Name {
    /// The shim's number.
    Number(u32),
    /// Of a name from outside.
    Text(u32),
}

#[derive(Clone, Copy)]
struct Open {
    path: u32,
    begin: u32,
    seq: u64,
    /// It is told apart by these.
    source: u8,
    name: Name,
    inner_ns: u64,
}

/// Who has phases open: a thread by its lane, or somebody outside by source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Who {
    Lane(u32),
    Outside(u8),
}

/// A name on its way: domain and text, and the piece of each that comes next.
#[derive(Default)]
struct Named {
    domain: String,
    text: String,
    next: [u64; 2],
}

/// See the module.
#[derive(Default)]
pub struct PhaseBook {
    /// Usable bytes that were live at the fork: edges know of what this process allocated itself.
    inherited: i64,
    names: HashMap<u32, Named>,
    texts: Vec<String>,
    text_of: HashMap<String, u32>,
    steps: Vec<Step>,
    paths: HashMap<Step, u32>,
    edges: Vec<Edge>,
    instances: Vec<Instance>,
    open: HashMap<Who, Vec<Open>>,
    /// Open phases that are nested too deep to be kept, by source.
    too_deep: HashMap<(Who, u8), u32>,
    ranges: HashMap<u64, Open>,
    marks: Vec<(u64, u8, Name)>,
    /// Latest edge of a lane.
    latest: HashMap<u32, u64>,
    /// For the heap, which takes them group by group.
    pub due: Vec<HeapEdge>,
    pub turns: Vec<Turn>,
    levels: [Levels; METRICS],
    /// The last look from outside since the latest line of counts.
    look: Option<Seen>,
    /// The last line of counts.
    counted_at: u64,
    /// Latest note in order.
    in_order: [u64; METRICS],
    shown: shown::Shown,
    /// Edges will be told of later than levels.
    late_edges: bool,
    /// Where edges stand that are of no phase, by time.
    looked_back: BTreeMap<u64, u32>,
    structure: structure::Structure,
    left_out: u64,
    unknown: u64,
    /// Ends without a begin.
    unmatched: u64,
}

impl PhaseBook {
    /// Of a process that inherited so many usable bytes.
    pub fn new(inherited: i64) -> Self {
        PhaseBook { inherited, ..PhaseBook::default() }
    }

    /// Whether any edge was seen.
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// A row of the trace; `again`: it may be one that was read already.
    pub fn add(&mut self, row: PhaseRow, again: bool) {
        match row {
            PhaseRow::Other => self.unknown += 1,
            PhaseRow::Name { of_domain, number, piece, text } => {
                if self.names.len() < NAMES || self.names.contains_key(&number) {
                    let name = self.names.entry(number).or_default();
                    let to = if of_domain { &mut name.domain } else { &mut name.text };
                    let next = &mut name.next[of_domain as usize];
                    // Told again, by another thread or a spool, it begins anew.
                    if piece == 0 {
                        to.clear();
                        *next = 0;
                    }
                    if piece == *next && to.len() + text.len() <= NAME_LEN {
                        to.push_str(&text);
                        *next += 1;
                    }
                }
            }
            PhaseRow::Edge(edge) => self.edge(&edge, again),
        }
    }

    fn edge(&mut self, row: &EdgeRow, again: bool) {
        let latest = self.latest.entry(row.lane).or_default();
        if again && row.t <= *latest {
            return;
        }
        *latest = (*latest).max(row.t);
        let place = Some((row.lane, row.group, row.at));
        let live = Some(row.live.clamp(-BYTES_MAX, BYTES_MAX).saturating_add(self.inherited));
        let name = Name::Number(row.name);
        let edge = Edge { t: row.t, live, usage: row.usage, moved: row.moved, ..Edge::default() };
        match row.what {
            What::Mark if self.process_mark(row, edge) => {}
            What::Mark => self.mark(row.t, row.source, name),
            What::Begin => {
                let Some(begin) = self.put(edge, place, None) else { return };
                let who = Who::Lane(row.lane);
                self.begin(who, row.range, Open { path: 0, begin, seq: row.seq, source: row.source, name, inner_ns: 0 });
            }
            What::End | What::Return => {
                if row.range == 0 && self.was_too_deep(Who::Lane(row.lane), row.source) {
                    return;
                }
                let Some(open) = self.take(Who::Lane(row.lane), row.range, row.source, row.name) else {
                    self.unmatched += 1;
                    return;
                };
                let since = (row.what == What::Return).then_some(open.seq);
                if let Some(end) = self.put(edge, place, since) {
                    self.close((row.range == 0).then_some(Who::Lane(row.lane)), &open, end, true);
                }
            }
        }
    }

    /// Whether an end is that of a phase that was left out for its depth: those inside end first.
    fn was_too_deep(&mut self, who: Who, source: u8) -> bool {
        let Some(n) = self.too_deep.get_mut(&(who, source)).filter(|n| **n > 0) else { return false };
        *n -= 1;
        true
    }

    /// Edges from outside may come: levels before the first one are needed.
    pub fn keep_levels(&mut self) {
        self.late_edges = true;
    }

    /// The heap is to be looked at then, for an edge that may have been there.
    pub fn look_back_to(&mut self, t: u64) {
        if let Some(number) = self.put(Edge::at(t), None, None) {
            self.looked_back.insert(t, number);
        }
    }

    /// The edge that stands there.
    pub fn looked_back_to(&self, t: u64) -> Option<u32> {
        self.looked_back.get(&t).copied()
    }

    /// An edge from outside, of which only the time is known, and in fast mode what was live then; its phases nest by source.
    pub fn outside(&mut self, t: u64, what: What, source: &str, name: &str, told: &Told) {
        let source = SOURCES.iter().position(|s| *s == source).unwrap_or(0) as u8;
        let who = Who::Outside(source);
        let text = self.text(name);
        let edge = Edge { live: told.seen.map(|seen| self.looked(t, seen)), late: told.late, since: told.since, ..Edge::at(t) };
        match what {
            What::Mark => self.mark(t, source, text),
            What::Begin => {
                let Some(begin) = self.put(edge, None, None) else { return };
                self.begin(who, 0, Open { path: 0, begin, seq: 0, source, name: text, inner_ns: 0 });
            }
            What::End | What::Return => {
                if self.was_too_deep(who, source) {
                    return;
                }
                let open = self.open.get_mut(&who).and_then(|all| {
                    let at = all.iter().rposition(|o| name.is_empty() || o.name == text)?;
                    Some(all.remove(at))
                });
                let Some(open) = open else {
                    self.unmatched += 1;
                    return;
                };
                if let Some(end) = self.put(edge, None, None) {
                    self.close(Some(who), &open, end, true);
                }
            }
        }
    }

    fn text(&mut self, name: &str) -> Name {
        if let Some(&at) = self.text_of.get(name) {
            return Name::Text(at);
        }
        let at = self.texts.len().min(NAMES) as u32;
        if self.texts.len() < NAMES {
            let name: String = name.chars().take(NAME_LEN).collect();
            self.texts.push(name.clone());
            self.text_of.insert(name, at);
        }
        Name::Text(at)
    }

    fn mark(&mut self, t: u64, source: u8, name: Name) {
        if self.marks.len() < EDGES {
            self.marks.push((t, source, name));
        } else {
            self.left_out += 1;
        }
    }

    fn put(&mut self, edge: Edge, place: Option<(u32, u64, u64)>, since: Option<u64>) -> Option<u32> {
        if self.edges.len() >= EDGES {
            self.left_out += 1;
            return None;
        }
        let number = self.edges.len() as u32;
        self.edges.push(edge);
        self.due.push(HeapEdge { edge: number, t: edge.t, place, since });
        Some(number)
    }

    fn begin(&mut self, who: Who, range: u64, mut open: Open) {
        if range == 0 && self.open.get(&who).is_some_and(|all| all.len() >= DEEP) {
            *self.too_deep.entry((who, open.source)).or_default() += 1;
            self.left_out += 1;
            return;
        }
        let parent = if range == 0 { self.open.get(&who).and_then(|all| all.last()).map(|o| o.path) } else { None };
        open.path = self.path(Step { parent, name: open.name, source: open.source });
        self.turn(open.begin, open.path, true);
        self.shows(open.path, open.begin, 0);
        if range == 0 {
            self.open.entry(who).or_default().push(open);
        } else if let Some(old) = self.ranges.insert(range, open) {
            self.close(None, &old, open.begin, false);
        }
    }

    /// At the latest edge a phase begins or ends.
    fn turn(&mut self, edge: u32, path: u32, begins: bool) {
        if let Some(&at) = self.due.last().filter(|e| e.edge == edge) {
            self.turns.push(Turn { at, path, begins });
        }
    }

    /// The number of a path.
    fn path(&mut self, step: Step) -> u32 {
        let next = self.steps.len() as u32;
        let path = *self.paths.entry(step).or_insert(next);
        if path == next {
            self.steps.push(step);
        }
        path
    }

    fn take(&mut self, who: Who, range: u64, source: u8, domain: u32) -> Option<Open> {
        if range != 0 {
            return self.ranges.remove(&range);
        }
        let all = self.open.get_mut(&who)?;
        let text = |number: u32| self.names.get(&number);
        let wanted = text(domain).map_or("", |name| name.text.as_str());
        let is_in = |o: &Open| match o.name {
            Name::Number(n) => text(n).map_or("", |name| name.domain.as_str()) == wanted,
            Name::Text(_) => wanted.is_empty(),
        };
        let at = all.iter().rposition(|o| o.source == source && is_in(o))?;
        Some(all.remove(at))
    }

    /// `who`: on whose thread it was nested; ranges are on nobody's.
    fn close(&mut self, who: Option<Who>, open: &Open, end: u32, ended: bool) {
        let ns = |edge: u32| self.edges.get(edge as usize).map_or(0, |e| e.t);
        let wall = ns(end).saturating_sub(ns(open.begin));
        self.turn(end, open.path, false);
        self.shows(open.path, end, 1);
        self.instances.push(Instance { path: open.path, begin: open.begin, end, inner_ns: open.inner_ns.min(wall), ended });
        // The time is inside of what was open around it.
        let around = who.and_then(|who| self.open.get_mut(&who));
        if let Some(outer) = around.and_then(|all| all.iter_mut().rev().find(|o| o.begin < open.begin)) {
            outer.inner_ns = outer.inner_ns.saturating_add(wall);
        }
    }

    /// The lane's thread ends, or another uses the lane from here on: what is open goes no further.
    pub fn thread(&mut self, lane: u32, t: u64) {
        self.close_all(Who::Lane(lane), t);
    }

    fn close_all(&mut self, who: Who, t: u64) {
        while let Some(open) = self.open.get_mut(&who).and_then(Vec::pop) {
            let Some(end) = self.put(Edge::at(t), None, None) else { return };
            self.close(Some(who), &open, end, false);
        }
        self.too_deep.retain(|(of, _), _| *of != who);
    }

    /// What is open ends with the image, after everything in it.
    pub fn close_open(&mut self, last: u64) {
        let (first, turn) = (self.due.len(), self.turns.len());
        self.close_all_open(last);
        self.due[first..].iter_mut().for_each(|e| e.t = u64::MAX);
        self.turns[turn..].iter_mut().for_each(|turn| turn.at.t = u64::MAX);
    }

    fn close_all_open(&mut self, last: u64) {
        self.process_ends(last);
        let open: Vec<Who> = self.open.keys().copied().collect();
        open.into_iter().for_each(|who| self.close_all(who, last));
        for (_, open) in std::mem::take(&mut self.ranges) {
            let Some(end) = self.put(Edge::at(last), None, None) else { return };
            self.close(None, &open, end, false);
        }
    }
}

#[cfg(test)]
mod tests;
