//! The call stacks of an image: nodes of all lanes merged into two trees, and *sites*, the pairs of a native and a Python stack.
//!
//! A lane's node numbers are its own, and it may define the same stack again; here equal nodes are one. Frames are addresses in files, so that
//! one function is one frame wherever its library was loaded. Names are not looked up here (see `symbols`).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash};

use super::heap::LANE_MAX;
use super::live::SpreadHash;
use super::modules::ModuleTable;
use crate::trace::line::Ev;
use crate::trace::stacks::{Code, Codes, Modules, Nodes};

/// A native frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NativeFrame {
    /// Index in [`ModuleTable::files`], or one of the constants below.
    pub module: u32,
    /// Address in the file; in memory where it is of none.
    pub addr: u64,
    /// The instruction itself, not the one after a call.
    pub exact: bool,
}

/// Of no file: code made at run time, or a module of which there is no line.
pub const NO_MODULE: u32 = u32::MAX;
/// Not a frame: what the stack has beyond is not known. `addr` says why: [`DEEPER`], or there was no rule to go on.
pub const BEYOND: u32 = u32::MAX - 1;
/// The stack was deeper than is recorded.
pub const DEEPER: u64 = 0;

/// A Python frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PythonFrame {
    /// Number of the code object.
    pub code: u32,
    pub at: u32,
    /// C called into the interpreter here.
    pub entry: bool,
}

/// A tree of frames; node 0 is the root, which is none.
#[derive(Debug)]
pub struct Tree<F> {
    nodes: Vec<(u32, F)>,
    index: HashMap<(u32, F), u32>,
}

impl<F> Default for Tree<F> {
    fn default() -> Self {
        Tree { nodes: Vec::new(), index: HashMap::new() }
    }
}

/// Nodes beyond are not kept; no program has so many.
const NODES_MAX: usize = 1 << 23;
/// Frames of one stack beyond are a damaged line's.
const DEPTH_MAX: usize = 4096;

impl<F: Copy + Eq + Hash> Tree<F> {
    fn intern(&mut self, parent: u32, frame: F) -> Option<u32> {
        if self.nodes.len() >= NODES_MAX {
            return self.index.get(&(parent, frame)).copied();
        }
        let next = self.nodes.len() as u32 + 1;
        Some(*self.index.entry((parent, frame)).or_insert_with(|| {
            self.nodes.push((parent, frame));
            next
        }))
    }

    /// Frames of a node, outermost first.
    pub fn stack(&self, node: u32) -> Vec<F> {
        let mut all = Vec::new();
        let mut at = node;
        while let Some(&(parent, frame)) = (at as usize).checked_sub(1).and_then(|i| self.nodes.get(i))
            && all.len() < DEPTH_MAX
        {
            all.push(frame);
            at = parent;
        }
        all.reverse();
        all
    }

    /// The frame of every node.
    pub fn frames(&self) -> impl Iterator<Item = &F> {
        self.nodes.iter().map(|(_, frame)| frame)
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

/// What a lane's node numbers mean, in pieces of consecutive numbers: a jump in the numbers costs no memory.
#[derive(Debug, Default)]
struct Numbers(Vec<(u32, Vec<u32>)>);

impl Numbers {
    fn get(&self, number: u32) -> Option<u32> {
        if number == 0 {
            return Some(0);
        }
        let after = self.0.partition_point(|(from, _)| *from <= number);
        let (from, nodes) = &self.0[after.checked_sub(1)?];
        nodes.get((number - from) as usize).copied()
    }

    /// False where that number means something else already.
    fn set(&mut self, number: u32, node: u32) -> bool {
        if let Some(known) = self.get(number) {
            return known == node;
        }
        let after = self.0.partition_point(|(from, _)| *from <= number);
        match after.checked_sub(1).map(|i| &mut self.0[i]) {
            Some((from, nodes)) if *from as usize + nodes.len() == number as usize => nodes.push(node),
            _ => self.0.insert(after, (number, vec![node])),
        }
        true
    }
}

#[derive(Debug, Default)]
struct LaneNumbers {
    native: Numbers,
    python: Numbers,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Stacks {
    pub modules: ModuleTable,
    pub native: Tree<NativeFrame>,
    pub python: Tree<PythonFrame>,
    pub codes: HashMap<u32, Code>,
    lanes: Vec<LaneNumbers>,
    /// Nodes of both trees, by site; the first is that of no stack.
    sites: Vec<(u32, u32)>,
    site_of: HashMap<u64, u32, BuildHasherDefault<SpreadHash>>,
    /// Nodes, ranges and code objects that can't be, node numbers that mean nothing.
    pub bad: u64,
}

/// Sites beyond are counted as of no stack.
const SITES_MAX: usize = 1 << 22;

impl Stacks {
    pub fn load(&mut self, line: Modules, folder: &str) {
        self.bad += self.modules.read(line, folder);
    }

    pub fn define_code(&mut self, line: Codes) {
        for code in line.codes {
            let known = self.codes.entry(code.number).or_insert_with(|| code.clone());
            self.bad += (*known != code) as u64;
        }
    }

    pub fn define_native(&mut self, line: &Nodes) {
        let (nodes, bad) = line.native();
        self.bad += bad;
        let Some(lane) = lane_of(&mut self.lanes, line.lane) else { return self.bad += nodes.len() as u64 };
        for (number, node) in nodes {
            let (pc, exact) = (node.frame >> 1, node.frame & 1 == 1);
            let frame = match pc {
                0 | 1 if node.parent == 0 && !exact => NativeFrame { module: BEYOND, addr: pc, exact },
                _ => match self.modules.find(pc, exact) {
                    Some((module, addr)) => NativeFrame { module, addr, exact },
                    None => NativeFrame { module: NO_MODULE, addr: pc, exact },
                },
            };
            let node = lane.native.get(node.parent).and_then(|parent| self.native.intern(parent, frame));
            self.bad += !node.is_some_and(|node| lane.native.set(number, node)) as u64;
        }
    }

    pub fn define_python(&mut self, line: &Nodes) {
        let (nodes, bad) = line.python();
        self.bad += bad;
        let Some(lane) = lane_of(&mut self.lanes, line.lane) else { return self.bad += nodes.len() as u64 };
        for (number, node) in nodes {
            let frame = PythonFrame { code: node.code, at: node.at, entry: node.entry };
            let node = lane.python.get(node.parent).and_then(|parent| self.python.intern(parent, frame));
            self.bad += !node.is_some_and(|node| lane.python.set(number, node)) as u64;
        }
    }

    /// The site of two node numbers of a lane; 0 where there is no stack.
    fn site(&mut self, lane: u32, native: u32, python: u32) -> u32 {
        let Some(numbers) = lane_of(&mut self.lanes, lane) else { return 0 };
        let (n, p) = (numbers.native.get(native), numbers.python.get(python));
        self.bad += n.is_none() as u64 + p.is_none() as u64;
        let pair = (n.unwrap_or(0), p.unwrap_or(0));
        if pair == (0, 0) {
            return 0;
        }
        if self.sites.is_empty() {
            self.sites.push((0, 0));
        }
        let key = (pair.0 as u64) << 32 | pair.1 as u64;
        let next = self.sites.len() as u32;
        if next as usize >= SITES_MAX {
            return self.site_of.get(&key).copied().unwrap_or(0);
        }
        *self.site_of.entry(key).or_insert_with(|| {
            self.sites.push(pair);
            next
        })
    }

    /// Native and Python node of a site.
    pub fn nodes_of(&self, site: u32) -> (u32, u32) {
        self.sites.get(site as usize).copied().unwrap_or((0, 0))
    }

    /// Sites, that of no stack included.
    pub fn sites(&self) -> usize {
        self.sites.len().max(1)
    }

    /// Where the site changes in a batch: from step, site. Gives whether both columns could be read.
    pub fn changes(&mut self, ev: &Ev, out: &mut Vec<(u32, u32)>) -> bool {
        out.clear();
        let (Some(s), Some(p)) = (ev.s.values(), ev.p.values()) else { return false };
        let (mut s, mut p) = (Pairs::new(&s), Pairs::new(&p));
        let whole = s.left.len().is_multiple_of(2) && p.left.len().is_multiple_of(2);
        let (mut native, mut python) = (0, 0);
        while let Some(step) = [s.next, p.next].into_iter().flatten().min() {
            native = s.take(step).unwrap_or(native);
            python = p.take(step).unwrap_or(python);
            let site = self.site(ev.lane, native, python);
            match u32::try_from(step) {
                Ok(step) => out.push((step, site)),
                Err(_) => return false,
            }
        }
        whole
    }

    /// The site of the two numbers of a row.
    pub fn of_row(&mut self, lane: u32, native: u64, python: u64) -> u32 {
        match (u32::try_from(native), u32::try_from(python)) {
            (Ok(native), Ok(python)) => self.site(lane, native, python),
            _ => {
                self.bad += 1;
                0
            }
        }
    }
}

fn lane_of(lanes: &mut Vec<LaneNumbers>, lane: u32) -> Option<&mut LaneNumbers> {
    if lane > LANE_MAX {
        return None;
    }
    if lanes.len() <= lane as usize {
        lanes.resize_with(lane as usize + 1, LaneNumbers::default);
    }
    lanes.get_mut(lane as usize)
}

/// Pairs `events, node`, the first relative to the pair before.
struct Pairs<'a> {
    left: &'a [u64],
    /// Step from which the first pair left holds.
    next: Option<u64>,
}

impl<'a> Pairs<'a> {
    fn new(left: &'a [u64]) -> Self {
        Pairs { left, next: (left.len() > 1).then(|| left[0]) }
    }

    /// The node that holds from `step` on, where one begins there.
    fn take(&mut self, step: u64) -> Option<u32> {
        let mut node = None;
        while self.next == Some(step) {
            // Numbers beyond are none of the lane's, and are counted when they are looked up.
            node = Some(u32::try_from(self.left[1]).unwrap_or(u32::MAX));
            self.left = &self.left[2..];
            self.next = (self.left.len() > 1).then(|| step.saturating_add(self.left[0]));
        }
        node
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes<'a>(text: &'a str) -> Nodes<'a> {
        serde_json::from_str(text).unwrap()
    }

    /// The column of native nodes (parent, pc) numbered from `from` on.
    fn column(from: u32, rows: &[(u32, u64)]) -> Vec<u64> {
        let mut before = 0i64;
        let mut all = Vec::new();
        for (n, &(parent, pc)) in (from..).zip(rows) {
            let frame = (pc << 1) as i64;
            all.extend([(n - parent) as u64, memshim_format::v93::zigzag(frame - before)]);
            before = frame;
        }
        all
    }

    fn native(lane: u32, from: u32, rows: &[(u32, u64)]) -> String {
        format!(r#"{{"lane":{lane},"from":{from},"n":{},"nodes":{:?}}}"#, rows.len(), column(from, rows))
    }

    #[test]
    fn equal_stacks_of_two_lanes_are_one() {
        let mut s = Stacks::default();
        s.define_native(&nodes(&native(0, 1, &[(0, 0x1000), (1, 0x2000)])));
        s.define_native(&nodes(&native(1, 1, &[(0, 0x9000), (0, 0x1000), (2, 0x2000)])));
        s.define_native(&nodes(&native(1, 4, &[(2, 0x2000)])));
        let site = s.site(0, 2, 0);
        assert_eq!((site, s.site(1, 3, 0), s.site(1, 4, 0), s.bad), (1, 1, 1, 0));
        let addresses: Vec<u64> = s.native.stack(s.nodes_of(site).0).iter().map(|f| f.addr).collect();
        assert_eq!(addresses, [0x1000, 0x2000]);
    }

    #[test]
    fn numbers_that_mean_nothing_cost_neither_memory_nor_the_rest() {
        let mut s = Stacks::default();
        s.define_native(&nodes(&native(0, 4_000_000_000, &[(0, 0x1000), (4_000_000_000, 0x2000), (17, 0x3000)])));
        assert_eq!(s.bad, 1, "a caller that nobody defined");
        assert_eq!(s.site(0, 4_000_000_001, 0), 1);
        assert_eq!((s.site(0, 4_000_000_002, 0), s.bad), (0, 2));
        s.define_native(&nodes(&native(0, 4_000_000_001, &[(4_000_000_000, 0x7000)])));
        assert_eq!(s.bad, 3, "a number that means something else already");
        s.define_native(&nodes(&native(LANE_MAX + 1, 1, &[(0, 1)])));
        assert_eq!(s.bad, 4);
    }

    #[test]
    fn both_columns_say_where_the_site_changes() {
        let mut s = Stacks::default();
        s.define_native(&nodes(&native(0, 1, &[(0, 0x1000), (0, 0x2000)])));
        s.define_python(&nodes(r#"{"lane":0,"from":1,"n":1,"nodes":[1,5,0]}"#));
        let ev = r#"{"g":0,"lane":0,"n":9,"seq":0,"t0":0,"t1":0,"s":[0,1,3,2,2,0],"p":[3,1]}"#;
        let mut out = Vec::new();
        assert!(s.changes(&serde_json::from_str(ev).unwrap(), &mut out));
        let pairs: Vec<_> = out.iter().map(|&(step, site)| (step, s.nodes_of(site))).collect();
        assert_eq!(pairs, [(0, (1, 0)), (3, (2, 1)), (5, (0, 1))]);
        let cut = r#"{"g":0,"lane":0,"n":9,"seq":0,"t0":0,"t1":0,"s":[0,1,3],"p":[18446744073709551615,1]}"#;
        assert!(!s.changes(&serde_json::from_str(cut).unwrap(), &mut out));
    }
}
