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
        let from = match edge.what {
            What::Mark => return say(phase::What::Mark, &edge.name),
            What::Begin => None,
            What::Next => open.iter().rposition(|o| o.by_next),
            What::End => {
                // Without a name it is of what was begun by itself; steps inside go with it.
                let at = match edge.name.is_empty() {
                    true => open.iter().rposition(|o| !o.by_next).or(open.len().checked_sub(1)),
                    false => open.iter().rposition(|o| o.name == edge.name),
                };
                if at.is_none() {
                    // It is counted there.
                    say(phase::What::End, &edge.name);
                }
                at
            }
        };
        for ended in from.map(|at| open.split_off(at)).into_iter().flatten().rev() {
            say(phase::What::End, &ended.name);
        }
        if edge.what != What::End {
            say(phase::What::Begin, &edge.name);
            open.push(Open { name: edge.name.clone(), by_next: edge.what == What::Next });
        }
    }
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
