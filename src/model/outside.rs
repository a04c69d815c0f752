//! Edges from outside on their way to the phases: in their order, each before the heap's replay has gone past it, and nested.
//!
//! What one printed or was told is one sequence: an end ends what was begun inside of it too, and *next* ends what the last *next* began.
//! So `start:` and `end:` can stand around the steps of a plain rule.

use std::collections::{HashMap, VecDeque};

use memshim_format::phase::SOURCES;

use super::phases::{PhaseBook, Told};
use crate::trace::marks::{Edge, What};
use crate::trace::phase;

/// A phase begun and not ended.
struct Open {
    name: String,
    by_next: bool,
}

impl Open {
    fn by(edge: &Edge) -> Open {
        Open { name: edge.name.clone(), by_next: edge.what == What::Next }
    }
}

/// The earliest that an edge can be.
fn earliest(edge: &Edge) -> Option<u64> {
    Some(edge.t.saturating_sub(edge.late?))
}

/// See the module.
#[derive(Default)]
pub struct OutsideEdges {
    waiting: VecDeque<Edge>,
    /// Earliest times that they can be of, in order; those before are with the phases.
    earliest: VecDeque<u64>,
    open: HashMap<u8, Vec<Open>>,
}

impl OutsideEdges {
    /// In the order of their times; `looks_back`: to the earliest time that each can be of.
    pub fn new(edges: Vec<Edge>, looks_back: bool) -> Self {
        let mut earliest: Vec<u64> = edges.iter().filter(|_| looks_back).filter_map(earliest).collect();
        earliest.sort_unstable();
        earliest.dedup();
        Self { waiting: edges.into(), earliest: earliest.into(), open: HashMap::new() }
    }

    /// Those from `t` on are of another image.
    pub fn cut_at(&mut self, t: u64) {
        self.waiting.retain(|e| e.t < t);
        self.earliest.retain(|then| *then < t);
    }

    /// Time of the last.
    pub fn last(&self) -> Option<u64> {
        self.waiting.back().map(|e| e.t)
    }

    /// Hands on what was up to `t`.
    pub fn feed(&mut self, t: u64, book: &mut PhaseBook) {
        while let Some(&then) = self.earliest.front().filter(|then| **then <= t) {
            self.earliest.pop_front();
            book.look_back_to(then);
        }
        while self.waiting.front().is_some_and(|e| e.t <= t) {
            if let Some(edge) = self.waiting.pop_front() {
                self.edge(&edge, book);
            }
        }
    }

    fn edge(&mut self, edge: &Edge, book: &mut PhaseBook) {
        let source = SOURCES[edge.source as usize];
        if let Some(resident) = &edge.resident {
            book.resident(edge.t, resident);
        }
        let told = Told { seen: edge.seen.as_ref(), late: edge.late, since: earliest(edge).and_then(|then| book.looked_back_to(then)) };
        let mut say = |what: phase::What, name: &str| book.outside(edge.t, what, source, name, &told);
        let open = self.open.entry(edge.source as u8).or_default();
        if edge.what == What::Mark {
            return say(phase::What::Mark, &edge.name);
        }
        let from = ends(open, edge);
        if edge.what == What::End && from.is_none() {
            // It is counted there.
            say(phase::What::End, &edge.name);
        }
        for ended in from.map(|at| open.split_off(at)).into_iter().flatten().rev() {
            say(phase::What::End, &ended.name);
        }
        if edge.what != What::End {
            say(phase::What::Begin, &edge.name);
            open.push(Open::by(edge));
        }
    }
}

/// The outermost of the open phases of its source that an edge ends; those inside go with it. `None`: it ends none.
fn ends(open: &[Open], edge: &Edge) -> Option<usize> {
    match edge.what {
        What::Mark | What::Begin => None,
        What::Next => open.iter().rposition(|o| o.by_next),
        // Without a name it is of what was begun by itself.
        What::End if edge.name.is_empty() => open.iter().rposition(|o| !o.by_next).or(open.len().checked_sub(1)),
        What::End => open.iter().rposition(|o| o.name == edge.name),
    }
}

/// Names of the phases that are open after edges of one source, in the order of their times; outermost first.
pub fn open_after<'a>(edges: impl Iterator<Item = &'a Edge>) -> Vec<String> {
    let mut open = Vec::new();
    for edge in edges.filter(|e| e.what != What::Mark) {
        open.truncate(ends(&open, edge).unwrap_or(open.len()));
        if edge.what != What::End {
            open.push(Open::by(edge));
        }
    }
    open.into_iter().map(|o| o.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::marks::Source;

    #[test]
    fn steps_go_on_inside_of_what_is_around_them_and_end_with_it() {
        let edges_of = |all: &[(u64, What, &str)]| {
            let edge = |&(t, what, name): &(u64, What, &str)| Edge {
                t,
                what,
                name: name.into(),
                source: Source::Output,
                seen: None,
                resident: None,
                late: None,
            };
            OutsideEdges::new(all.iter().map(edge).collect(), false)
        };
        let mut edges = edges_of(&[
            (1, What::Begin, "scf"),
            (2, What::Next, "cycle"),
            (3, What::Next, "cycle"),
            (4, What::Mark, "saved"),
            (5, What::End, "scf"),
            (6, What::End, ""),
            (7, What::Next, "mp2"),
            (9, What::Next, "late"),
        ]);
        let mut book = PhaseBook::default();
        let unnamed = [(1, What::Begin, "scf"), (2, What::Next, "cycle"), (3, What::End, ""), (4, What::Next, "mp2"), (5, What::End, "")];
        let mut unnamed = edges_of(&unnamed);
        let mut of_unnamed = PhaseBook::default();
        unnamed.feed(9, &mut of_unnamed);
        let end = of_unnamed.finish(Vec::new(), Default::default());
        let ended: Vec<_> =
            end.instances.iter().map(|i| (end.paths[i.path as usize].names.join("/"), end.edges[i.end as usize].t)).collect();
        assert_eq!(ended, [("scf".to_owned(), 3), ("scf/cycle".to_owned(), 3), ("mp2".to_owned(), 5)]);
        let open = |t: u64| open_after(edges.waiting.iter().filter(|e| e.t <= t));
        assert_eq!((open(4), open(5), open(6), open(7)), (vec!["scf".into(), "cycle".into()], vec![], vec![], vec!["mp2".to_owned()]));
        edges.feed(8, &mut book);
        edges.cut_at(9);
        assert_eq!(edges.last(), None);
        book.close_open(8);
        let end = book.finish(Vec::new(), Default::default());
        let t = |e: u32| end.edges[e as usize].t;
        let all: Vec<_> =
            end.instances.iter().map(|i| (end.paths[i.path as usize].names.join("/"), t(i.begin), t(i.end), i.ended)).collect();
        let want = [("scf", 1, 5, true), ("scf/cycle", 2, 3, true), ("scf/cycle", 3, 5, true), ("mp2", 7, 8, false)];
        assert_eq!(all, want.map(|(n, a, b, e)| (n.to_owned(), a, b, e)));
        assert_eq!((end.marks.len(), end.unmatched), (1, 1));
    }
}
