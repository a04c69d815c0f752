//! What a process did as such, as phases (source `process`): its start-up until `main`, Python's imports until the script begins, what comes
//! after `exit` was called. They are of nobody's nesting: what a program tells of has the paths and own times that it has without them.

use super::*;
use memshim_format::phase::{EXIT, MAIN, SCRIPT, Source};

/// Edges of a process's own phases, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct Structure {
    /// The first look at it.
    start: Option<u32>,
    main: Option<u32>,
    script: Option<u32>,
    exit: Option<u32>,
}

/// Whether an edge says what the process did as such.
fn is_of_process(source: u8) -> bool {
    source == Source::Process as u8
}

impl PhaseBook {
    /// The process is looked at for the first time.
    pub fn process_begins(&mut self, t: u64) {
        if self.structure.start.is_none() {
            self.structure.start = self.put(Edge { live: Some(self.inherited), ..Edge::at(t) }, None, None);
        }
    }

    /// A mark of the process's own. False: it is another's, or one that this version does not know.
    pub(super) fn process_mark(&mut self, row: &EdgeRow, edge: Edge) -> bool {
        if !is_of_process(row.source) {
            return false;
        }
        let name = self.names.get(&row.name).map(|n| n.text.clone()).unwrap_or_default();
        // What was before it, where that has a name.
        let before = match name.as_str() {
            MAIN => self.structure.start.map(|start| ("start-up", start)),
            SCRIPT => self.structure.main.map(|main| ("imports", main)),
            EXIT => None,
            _ => return false,
        };
        let seen = match name.as_str() {
            MAIN => &mut self.structure.main,
            SCRIPT => &mut self.structure.script,
            _ => &mut self.structure.exit,
        };
        if seen.is_some() {
            return true;
        }
        // Where there is no room for an edge, none is made of it.
        let next = self.edges.len() as u32;
        *seen = Some(next);
        let here = self.put(edge, Some((row.lane, row.group, row.at)), None);
        if let (Some((name, begin)), Some(end)) = (before, here) {
            self.own_phase(name, begin, end);
        }
        true
    }

    /// The process has ended, or nothing more is known of it.
    pub(super) fn process_ends(&mut self, last: u64) {
        if let Some(exit) = self.structure.exit.take()
            && let Some(end) = self.put(Edge::at(last), None, None)
        {
            self.own_phase("exit handlers", exit, end);
        }
    }

    fn own_phase(&mut self, name: &str, begin: u32, end: u32) {
        let step = Step { parent: None, name: self.text(name), source: Source::Process as u8 };
        let path = self.path(step);
        self.shows(path, begin, 0);
        self.shows(path, end, 1);
        self.instances.push(Instance { path, begin, end, inner_ns: 0, ended: true });
    }
}
