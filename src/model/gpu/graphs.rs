//! Graphs: how often each was captured, instantiated, updated and launched, and what a launch copies.

use std::collections::{BTreeMap, HashMap, HashSet};

use memshim_format::gpu::{copy, direction, graph};

use crate::trace::gpurow::Event;

/// Bytes by direction.
pub type Bytes = [u64; 6];

/// An executable graph, or a graph that never became one.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub captures: u64,
    pub instantiations: u64,
    pub updates: u64,
    pub node_updates: u64,
    pub launches: u64,
    pub uploads: u64,
    /// What a launch copies, as it is now, and what all launches copied.
    pub per_launch: Bytes,
    pub copied: Bytes,
    /// Nodes that copy have been changed since, or there are some of which nobody says what they copy: what a launch copies is not
    /// known; and there was a launch of which it was not.
    pub is_changed: bool,
    pub is_launched_changed: bool,
    pub timed: u64,
    pub device_ns: u64,
    pub wall_ns: u64,
    pub instantiate_ns: u64,
    /// By CUPTI: its nodes by their numbers, at most [`NODES`] of them; the time of all.
    pub nodes: BTreeMap<u64, Node>,
    pub node_ns: u64,
    pub node_runs: u64,
    /// What its allocations take from when it is instantiated until it is destroyed, and where.
    pub memory: u64,
    pub device: u8,
    context: u32,
}

/// A node of a graph that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Flags of its WORK rows.
    pub what: u64,
    /// The number of the kernel's name, or bytes.
    pub what_of: u64,
    pub runs: u64,
    pub ns: u64,
}

/// Nodes kept of a graph.
const NODES: usize = 10_000;

#[derive(Clone, Copy, Debug, Default)]
struct Template {
    captures: u64,
    bytes: Bytes,
    /// Nodes that copy have been changed, or it is not known what some copy.
    is_changed: bool,
    /// Of all its allocations: that some are freed before others begin is not told by its nodes alone.
    memory: u64,
}

/// See the module.
#[derive(Default)]
pub struct Graphs {
    pub all: Vec<Graph>,
    graphs: HashMap<u64, Template>,
    execs: HashMap<u64, usize>,
    /// What captures under way have copied so far.
    captures: HashMap<u64, Template>,
    /// Addresses of graphs' allocations: to free one elsewhere gives back nothing but to the graph.
    addresses: HashSet<u64>,
    pub failed_captures: u64,
}

fn add(to: &mut Bytes, from: &Bytes) {
    to.iter_mut().zip(from).for_each(|(a, b)| *a = a.saturating_add(*b));
}

fn signed(bytes: u64) -> i64 {
    bytes.min(1 << 60) as i64
}

impl Graphs {
    /// A copy became a node of the graph that is being captured.
    pub fn captured(&mut self, capture: u64, direction: u8, bytes: u64) {
        if let Some(sum) = self.captures.entry(capture).or_default().bytes.get_mut(direction as usize) {
            *sum = sum.saturating_add(bytes);
        }
    }

    /// Gives what that means for the memory of a device: which, and how many bytes more.
    pub fn event(&mut self, e: &Event) -> Option<(u8, i64)> {
        let [a, b, wall, d, ..] = e.words;
        let what = e.flags & 0xff;
        if e.code != 0 {
            if what == graph::CAPTURE_END {
                // Some failures leave it open: what it has copied so far stays.
                self.failed_captures += 1;
            }
            return None;
        }
        match what {
            graph::CAPTURE_BEGIN if wall != 0 => {
                let of = self.graphs.entry(b).or_default();
                (of.bytes, of.memory, of.is_changed) = (Bytes::default(), 0, false);
            }
            // Into what is no graph.
            graph::CAPTURE_END if a == 0 => {
                self.captures.remove(&b);
            }
            graph::CAPTURE_END => {
                let captured = self.captures.remove(&b).unwrap_or_default();
                let g = self.graphs.entry(a).or_default();
                g.captures += 1;
                add(&mut g.bytes, &captured.bytes);
                g.memory = g.memory.saturating_add(captured.memory);
            }
            graph::CREATE => {
                self.graphs.insert(a, Template::default());
            }
            graph::CLONE => {
                let of = self.graphs.get(&b).copied().unwrap_or_default();
                self.graphs.insert(a, Template { captures: 0, ..of });
            }
            graph::DESTROY => {
                if let Some(g) = self.graphs.remove(&a) {
                    self.unused(g);
                }
            }
            graph::INSTANTIATE => {
                let of = self.take(b);
                let (device, context) = (e.device, e.context);
                let g = Graph { captures: of.captures, instantiations: 1, per_launch: of.bytes, instantiate_ns: wall, ..Graph::default() };
                self.all.push(Graph { memory: of.memory, is_changed: of.is_changed, device, context, ..g });
                self.execs.insert(a, self.all.len() - 1);
                return Some((device, signed(of.memory)));
            }
            graph::UPDATE => {
                let of = self.take(b);
                let g = self.exec(a);
                g.updates += 1;
                g.captures += of.captures;
                (g.per_launch, g.is_changed) = (of.bytes, of.is_changed);
                let more = signed(of.memory).saturating_sub(signed(g.memory));
                g.memory = of.memory;
                return Some((g.device, more));
            }
            graph::NODE_UPDATE => {
                let g = self.exec(a);
                g.node_updates += 1;
                g.is_changed |= b != 0;
            }
            // Of which graph the node is nobody says: it is one that copies.
            graph::NODE_CHANGE if b != 0 => {
                self.graphs.values_mut().filter(|g| g.bytes != Bytes::default()).for_each(|g| g.is_changed = true);
            }
            graph::ADD_UNKNOWN => self.graphs.entry(a).or_default().is_changed = true,
            graph::UPLOAD => self.exec(a).uploads += 1,
            graph::EXEC_DESTROY => {
                let i = self.execs.remove(&a)?;
                return Some((self.all[i].device, -signed(self.all[i].memory)));
            }
            graph::ADD_ALLOC => {
                let of = if d != 0 { self.captures.entry(d) } else { self.graphs.entry(a) }.or_default();
                of.memory = of.memory.saturating_add(b);
                self.addresses.insert(wall);
            }
            graph::ADD_COPY | graph::ADD_SET => {
                let direction = if what == graph::ADD_SET { direction::MEMSET } else { d };
                if let Some(sum) = self.graphs.entry(a).or_default().bytes.get_mut(direction as usize) {
                    *sum = sum.saturating_add(b);
                }
            }
            graph::ADD_CHILD => {
                let child = self.graphs.get(&b).copied().unwrap_or_default();
                let of = self.graphs.entry(a).or_default();
                add(&mut of.bytes, &child.bytes);
                of.is_changed |= child.is_changed;
                of.memory = of.memory.saturating_add(child.memory);
            }
            _ => {}
        }
        None
    }

    /// Whether an allocation of a graph is freed here, by its address: from then on it is anybody's.
    pub fn frees(&mut self, address: u64) -> bool {
        self.addresses.remove(&address)
    }

    /// The driver gives an address out: no graph has it any more.
    pub fn given_out(&mut self, address: u64) {
        self.addresses.remove(&address);
    }

    /// All executable graphs of a context go with it: what they give back, by device.
    pub fn context_ends(&mut self, context: u32) -> Vec<(u8, i64)> {
        let all = &self.all;
        self.execs.extract_if(|_, i| all[*i].context == context).map(|(_, i)| (all[i].device, -signed(all[i].memory))).collect()
    }

    /// What an executable graph is made of; its captures are counted with the first.
    fn take(&mut self, graph: u64) -> Template {
        let g = self.graphs.entry(graph).or_default();
        Template { captures: std::mem::take(&mut g.captures), ..*g }
    }

    fn unused(&mut self, g: Template) {
        if g.captures > 0 {
            self.all.push(Graph { captures: g.captures, per_launch: g.bytes, is_changed: g.is_changed, ..Graph::default() });
        }
    }

    fn number(&mut self, handle: u64) -> usize {
        let all = &mut self.all;
        *self.execs.entry(handle).or_insert_with(|| {
            all.push(Graph::default());
            all.len() - 1
        })
    }

    fn exec(&mut self, handle: u64) -> &mut Graph {
        let i = self.number(handle);
        &mut self.all[i]
    }

    /// A launch that went to a stream; the number of its graph.
    pub fn launch(&mut self, e: &Event) -> Option<usize> {
        let [exec, _, wall, ..] = e.words;
        if e.code != 0 || e.flags & copy::CAPTURED != 0 {
            return None;
        }
        let i = self.number(exec);
        let g = &mut self.all[i];
        g.launches += 1;
        g.wall_ns = g.wall_ns.saturating_add(wall);
        let bytes = g.per_launch;
        add(&mut g.copied, &bytes);
        g.is_launched_changed |= g.is_changed;
        Some(i)
    }

    /// A node ran.
    pub fn ran(&mut self, graph: usize, node: u64, what: u64, what_of: u64, ns: u64) {
        let g = &mut self.all[graph];
        g.node_runs += 1;
        g.node_ns = g.node_ns.saturating_add(ns);
        if g.nodes.len() < NODES || g.nodes.contains_key(&node) {
            let n = g.nodes.entry(node).or_insert(Node { what, what_of, ..Node::default() });
            n.runs += 1;
            n.ns = n.ns.saturating_add(ns);
        }
    }

    pub fn timed(&mut self, graph: usize, took: u64) {
        self.all[graph].timed += 1;
        self.all[graph].device_ns = self.all[graph].device_ns.saturating_add(took);
    }

    pub fn finish(&mut self) {
        let mut left: Vec<(u64, Template)> = self.graphs.drain().collect();
        left.sort_unstable_by_key(|(handle, _)| *handle);
        for (_, g) in left {
            self.unused(g);
        }
    }
}
