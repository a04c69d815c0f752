//! Copies and memsets by direction, memory and device; and how long the device took, where a TIME row came for them.

use std::collections::{BTreeMap, HashMap};

use memshim_format::gpu::copy;

use super::calls::{Calls, Moved};
use super::graphs::Graphs;
use super::streams::{Streams, Work};
use super::work::{self, About};
use crate::trace::gpurow::Event;

/// Direction, memory, device.
pub type Key = (u8, u8, u8);

/// Copies of a kind.
#[derive(Clone, Debug, Default)]
pub struct Group {
    pub count: u64,
    pub bytes: u64,
    pub wall_ns: u64,
    /// Of these, timed on the device.
    pub timed: u64,
    pub timed_bytes: u64,
    /// Of those timed, by CUPTI.
    pub by_cupti: u64,
    pub device_ns: u64,
    /// Smaller than [`RATE_FROM`].
    pub small: u64,
    pub small_wall_ns: u64,
    /// Bytes a second of copies from [`RATE_FROM`] on, in no order; at most [`RATES`], then every second of them.
    pub rates: Vec<f64>,
    pub keep_every: u64,
    pub skipped: u64,
    /// Prefetches among them: how much of their bytes moved is not known.
    pub prefetches: u64,
    /// Calls that waited for the copy.
    pub synchronous: u64,
}

/// Smaller copies are mostly latency: their rates say nothing of the link.
pub const RATE_FROM: u64 = 64 << 10;
/// Rates kept of a group.
const RATES: usize = 1 << 16;
/// Times and copies that wait for each other.
const WAITING: usize = 1 << 20;

/// A copy that is to be timed.
#[derive(Clone, Copy)]
pub struct Copied {
    pub key: Key,
    pub bytes: u64,
    /// Its number among the calls of its direction.
    pub call: Option<u32>,
}

enum Waiting {
    Copy(Copied, usize),
    Launch(usize, usize),
}

/// See the module.
#[derive(Default)]
pub struct Transfers {
    pub groups: BTreeMap<Key, Group>,
    /// To the device, and back.
    pub calls: [Calls; 2],
    /// Latest copy in order.
    latest: u64,
    waiting: HashMap<u64, Waiting>,
    early: HashMap<u64, (u64, u64)>,
    /// Timed, but no time came.
    pub without_time: u64,
}

impl Transfers {
    /// Bytes of a direction so far.
    pub fn bytes(&self, direction: u8) -> u64 {
        self.groups.iter().filter(|(key, _)| key.0 == direction).fold(0, |sum, (_, g)| sum.saturating_add(g.bytes))
    }

    pub fn copy(&mut self, e: &Event, streams: &mut Streams, graphs: &mut Graphs, told: &mut work::Work) {
        let [bytes, wall, stream, capture, count] = e.words;
        self.latest = self.latest.max(e.t);
        // An empty batch leaves a row too.
        if e.code != 0 || (bytes, count) == (0, 0) {
            return;
        }
        let direction = (e.flags & 15) as u8;
        if e.flags & copy::CAPTURED != 0 {
            return graphs.captured(capture, direction, bytes);
        }
        let key = (direction, (e.flags >> 4 & 15) as u8, e.device);
        let g = self.groups.entry(key).or_default();
        g.count = g.count.saturating_add(count.max(1));
        g.bytes = g.bytes.saturating_add(bytes);
        g.wall_ns = g.wall_ns.saturating_add(wall);
        g.prefetches += (e.flags & copy::PREFETCH != 0) as u64;
        g.synchronous += (e.flags & copy::ASYNC == 0) as u64;
        if bytes < RATE_FROM {
            g.small = g.small.saturating_add(count.max(1));
            g.small_wall_ns = g.small_wall_ns.saturating_add(wall);
        }
        let synchronous = (e.flags & copy::ASYNC == 0) as u64;
        let call = Moved { count: 1, bytes, wall_ns: wall, synchronous, ..Moved::default() };
        let call = self.calls.get_mut(direction as usize).and_then(|calls| calls.add(self.latest, call));
        let (copied, at) = (Copied { key, bytes, call }, streams.used(e, stream, Work::Copy));
        if e.flags & copy::TIMED != 0 {
            self.expect(e.ticket, Waiting::Copy(copied, at), streams, graphs);
        } else if e.flags & copy::WATCHED != 0 {
            let about = if e.flags & copy::SEVERAL != 0 { About::Stream(at) } else { About::Copy(copied, at) };
            told.watch(e.ticket, about, self, graphs);
        }
    }

    pub fn launch(&mut self, e: &Event, streams: &mut Streams, graphs: &mut Graphs, told: &mut work::Work) {
        let Some(graph) = graphs.launch(e) else { return };
        let at = streams.used(e, e.words[1], Work::Graph);
        if e.flags & copy::TIMED != 0 {
            self.expect(e.ticket, Waiting::Launch(graph, at), streams, graphs);
        } else if e.flags & copy::WATCHED != 0 {
            told.watch(e.ticket, About::Launch(graph, at), self, graphs);
        }
    }

    /// CUPTI has told how long a copy took.
    pub fn told(&mut self, of: Copied, took: u64) {
        if let Some(g) = self.groups.get_mut(&of.key) {
            g.by_cupti += 1;
        }
        self.took(of, took);
    }

    fn took(&mut self, of: Copied, took: u64) {
        if let Some(g) = self.groups.get_mut(&of.key) {
            g.timed(of.bytes, took);
        }
        if let (Some(calls), Some(call)) = (self.calls.get_mut(of.key.0 as usize), of.call) {
            calls.timed(call, took);
        }
    }

    fn expect(&mut self, ticket: u64, what: Waiting, streams: &mut Streams, graphs: &mut Graphs) {
        match self.early.remove(&ticket) {
            Some((start, took)) => self.timed(what, start, took, streams, graphs),
            None if self.waiting.len() < WAITING => {
                self.waiting.insert(ticket, what);
            }
            None => self.without_time += 1,
        }
    }

    /// A TIME row: may come before the row that it is about.
    pub fn time(&mut self, e: &Event, streams: &mut Streams, graphs: &mut Graphs) {
        match self.waiting.remove(&e.ticket) {
            Some(what) => self.timed(what, e.t, e.words[0], streams, graphs),
            None if self.early.len() < WAITING => {
                self.early.insert(e.ticket, (e.t, e.words[0]));
            }
            None => {}
        }
    }

    fn timed(&mut self, what: Waiting, start: u64, took: u64, streams: &mut Streams, graphs: &mut Graphs) {
        match what {
            Waiting::Copy(of, stream) => {
                streams.worked(stream, start, took, Work::Copy);
                self.took(of, took);
            }
            Waiting::Launch(graph, stream) => {
                streams.worked(stream, start, took, Work::Graph);
                graphs.timed(graph, took);
            }
        }
    }

    pub fn finish(&mut self) {
        self.without_time += self.waiting.len() as u64;
        self.waiting.clear();
        self.early.clear();
        self.calls.iter_mut().for_each(Calls::add_up);
        for g in self.groups.values_mut() {
            g.rates.sort_by(f64::total_cmp);
        }
    }
}

impl Group {
    fn timed(&mut self, bytes: u64, took: u64) {
        self.timed += 1;
        self.timed_bytes = self.timed_bytes.saturating_add(bytes);
        self.device_ns = self.device_ns.saturating_add(took);
        if bytes >= RATE_FROM && took > 0 {
            self.keep(bytes as f64 * 1e9 / took as f64);
        }
    }

    fn keep(&mut self, rate: f64) {
        self.skipped += 1;
        if self.skipped < self.keep_every {
            return;
        }
        self.skipped = 0;
        self.rates.push(rate);
        if self.rates.len() >= RATES {
            let mut i = 0;
            self.rates.retain(|_| {
                i += 1;
                i % 2 == 0
            });
            self.keep_every = self.keep_every.max(1) * 2;
        }
    }

    /// The rate below which a share `q` of them lies, in order after [`Transfers::finish`].
    pub fn rate(&self, q: f64) -> Option<f64> {
        let last = self.rates.len().checked_sub(1)?;
        self.rates.get((q * last as f64).round() as usize).copied()
    }
}
