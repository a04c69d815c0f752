//! Work of the devices as CUPTI told it: kernels by name, and how long each device ran kernels, copies, and both at once.

use std::collections::{BTreeMap, HashMap, VecDeque};

use memshim_format::gpu::work;

use super::graphs::Graphs;
use super::intervals::{in_both, length};
use super::streams::{Intervals, Streams};
use super::transfers::{Copied, Transfers};
use crate::trace::gpurow::Event;

/// Rows whose work may still come; older ones are done with.
const OPEN: usize = 1 << 16;

/// Kernels of one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    pub count: u64,
    pub ns: u64,
    pub least: u64,
    pub most: u64,
    /// Of `count`, those that ran in graphs.
    pub in_graphs: u64,
}

/// What a device did.
#[derive(Debug, Default)]
pub struct Device {
    kernels: Intervals,
    copies: Intervals,
    /// Time in which kernels ran, copies and memsets ran, either, both. Set by [`Work::finish`].
    pub kernel_ns: u64,
    pub copy_ns: u64,
    pub busy_ns: u64,
    pub both_ns: u64,
}

/// What a watched row is about.
#[derive(Clone, Copy)]
pub enum About {
    /// Of which kind, and the stream.
    Copy(Copied, usize),
    /// Graph and stream.
    Launch(usize, usize),
    /// Several copies of a call: of each it is not known which records are its own.
    Stream(usize),
}

struct Watched {
    about: About,
    /// Begin of the first record and end of the last; none has come where they are the wrong way round.
    span: (u64, u64),
}

/// See the module.
#[derive(Default)]
pub struct Work {
    /// By the number of the name.
    pub kernels: BTreeMap<u64, Kernel>,
    pub devices: BTreeMap<u8, Device>,
    pub records: u64,
    /// Records that belong to no call that was seen.
    pub strange: u64,
    /// Records that CUPTI had no room for, that have no times, and buffers that could not be read to their ends.
    pub dropped: u64,
    pub untimed: u64,
    pub torn: u64,
    pub version: u64,
    /// From when to when CUPTI told.
    pub spans: Vec<(u64, u64)>,
    /// The program took CUPTI for itself.
    pub gave_way: bool,
    watched: HashMap<u64, Watched>,
    order: VecDeque<u64>,
    /// By device and CUPTI's number: the stream of ours.
    streams: HashMap<(u8, u64), usize>,
}

impl Work {
    /// CUPTI was there from here on, or up to here.
    pub fn switched(&mut self, e: &Event) {
        let [on, more, ..] = e.words;
        if on != 0 {
            self.version = more;
            self.spans.push((e.t, u64::MAX));
        } else {
            self.gave_way = more != 0;
            if let Some(last) = self.spans.last_mut() {
                last.1 = e.t;
            }
        }
    }

    pub fn dropped(&mut self, e: &Event) {
        let [dropped, untimed, torn, ..] = e.words;
        self.dropped = self.dropped.saturating_add(dropped);
        self.untimed = self.untimed.saturating_add(untimed);
        self.torn = self.torn.saturating_add(torn);
    }

    /// Records will tell of a row.
    pub fn watch(&mut self, ticket: u64, about: About, transfers: &mut Transfers, graphs: &mut Graphs) {
        self.watched.insert(ticket, Watched { about, span: (u64::MAX, 0) });
        self.order.push_back(ticket);
        if self.order.len() > OPEN {
            self.settle(transfers, graphs);
        }
    }

    /// What has waited longest is whole, or lost.
    fn settle(&mut self, transfers: &mut Transfers, graphs: &mut Graphs) -> bool {
        let Some(ticket) = self.order.pop_front() else { return false };
        if let Some(Watched { about, span: (from, to) }) = self.watched.remove(&ticket) {
            let took = to.checked_sub(from);
            match (about, took) {
                (About::Copy(copied, _), Some(took)) => transfers.told(copied, took),
                (About::Launch(graph, _), Some(took)) => graphs.timed(graph, took),
                (About::Stream(_), _) => {}
                (_, None) => transfers.without_time += 1,
            }
        }
        true
    }

    /// A WORK row.
    pub fn add(&mut self, e: &Event, streams: &mut Streams, graphs: &mut Graphs) {
        let [ns, about, number, what_of, node] = e.words;
        let (start, end) = (e.t, e.t.saturating_add(ns));
        let is_kernel = e.flags & 3 == work::KERNEL;
        self.records += 1;
        let device = self.devices.entry(e.device).or_default();
        if is_kernel { &mut device.kernels } else { &mut device.copies }.add(start, end);
        if is_kernel {
            let k = self.kernels.entry(what_of).or_insert(Kernel { least: u64::MAX, ..Kernel::default() });
            k.count += 1;
            k.ns = k.ns.saturating_add(ns);
            (k.least, k.most) = (k.least.min(ns), k.most.max(ns));
            k.in_graphs += (e.flags & work::NODE != 0) as u64;
        }
        let stream = if e.flags & work::BY_STREAM == 0 {
            self.watched.get_mut(&about).map(|w| {
                w.span = (w.span.0.min(start), w.span.1.max(end));
                match w.about {
                    About::Copy(_, stream) | About::Stream(stream) => stream,
                    About::Launch(graph, stream) => {
                        graphs.ran(graph, node, e.flags, what_of, ns);
                        stream
                    }
                }
            })
        } else if about & 0xff == 2 {
            Some(streams.at_time(&Event { lane: (about >> work::THREAD) as u32, ..e.clone() }, 2))
        } else if about != 0 {
            Some(streams.at_time(e, about))
        } else {
            None
        };
        self.strange += stream.is_none() as u64;
        let key = (e.device, number);
        let known = match stream {
            Some(at) => {
                self.streams.insert(key, at);
                Some(at)
            }
            None => self.streams.get(&key).copied(),
        };
        match known {
            Some(at) => streams.told(at, start, ns, is_kernel, is_kernel && e.flags & work::NODE == 0),
            None => streams.told_of_device(e.device, start, ns, is_kernel),
        }
    }

    /// All rows have come; the last was at `last`.
    pub fn finish(&mut self, last: u64, transfers: &mut Transfers, graphs: &mut Graphs) {
        while self.settle(transfers, graphs) {}
        for span in &mut self.spans {
            span.1 = span.1.min(last.max(span.0));
        }
        for d in self.devices.values_mut() {
            let (kernels, kernels_beyond) = d.kernels.take();
            let (copies, copies_beyond) = d.copies.take();
            d.both_ns = length(&in_both(&kernels, &copies));
            d.kernel_ns = length(&kernels).saturating_add(kernels_beyond);
            d.copy_ns = length(&copies).saturating_add(copies_beyond);
            d.busy_ns = d.kernel_ns.saturating_add(d.copy_ns).saturating_sub(d.both_ns);
        }
    }

    /// How long CUPTI told of work, in ns.
    pub fn told_ns(&self) -> u64 {
        self.spans.iter().fold(0, |sum: u64, (from, to)| sum.saturating_add(to.saturating_sub(*from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(t: u64, flags: u64, words: [u64; 5]) -> Event {
        let call = std::borrow::Cow::Borrowed("");
        Event { kind: memshim_format::gpu::kind::WORK, call, ticket: 0, t, lane: 0, code: 0, device: 0, context: 1, flags, words, site: 0 }
    }

    #[test]
    fn a_device_is_busy_with_kernels_with_copies_and_with_both() {
        let (mut w, mut streams, mut graphs, mut transfers) = <(Work, Streams, Graphs, Transfers)>::default();
        for (t, flags, ns) in [(100, work::KERNEL, 50), (120, work::KERNEL, 50), (160, work::COPY, 40), (300, work::MEMSET, 10)] {
            w.add(&work(t, flags | work::BY_STREAM, [ns, 0x1000, 7, 1, 0]), &mut streams, &mut graphs);
        }
        w.finish(1000, &mut transfers, &mut graphs);
        let d = &w.devices[&0];
        assert_eq!((d.kernel_ns, d.copy_ns, d.both_ns, d.busy_ns), (70, 50, 10, 110));
        assert_eq!(w.kernels[&1], Kernel { count: 2, ns: 100, least: 50, most: 50, in_graphs: 0 });
        streams.finish(1000);
        assert_eq!((streams.all.len(), streams.all[0].timed_ns, streams.all[0].kernel_ns), (1, 110, 100));
    }

    #[test]
    fn a_copy_in_two_records_is_one_copy_from_the_first_to_the_last() {
        let (mut w, mut streams, mut graphs, mut transfers) = <(Work, Streams, Graphs, Transfers)>::default();
        let key = (0, 1, 0);
        transfers.groups.entry(key).or_default().count = 1;
        let at = streams.at_time(&work(10, 0, [0; 5]), 0x1000);
        let copied = Copied { key, bytes: 1 << 20, call: None };
        w.watch(5, About::Copy(copied, at), &mut transfers, &mut graphs);
        w.watch(6, About::Copy(copied, at), &mut transfers, &mut graphs);
        w.add(&work(100, work::COPY, [10, 5, 7, 1 << 19, 0]), &mut streams, &mut graphs);
        w.add(&work(120, work::COPY, [10, 5, 7, 1 << 19, 0]), &mut streams, &mut graphs);
        w.finish(1000, &mut transfers, &mut graphs);
        let g = &transfers.groups[&key];
        assert_eq!((g.timed, g.by_cupti, g.device_ns, transfers.without_time), (1, 1, 30, 1));
    }
}
