//! What an image did with GPUs: its rows put in order and handed to the books on memory, transfers, streams and graphs.

pub mod calls;
pub mod graphs;
pub mod intervals;
pub mod memory;
pub mod sites;
pub mod streams;
pub mod transfers;
pub mod work;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use memshim_format::gpu::{context, graph, kind, name, state, stream};

use super::phases::{Metric, PhaseBook};
use super::sites::Instant;
use crate::trace::gpurow::{Event, GpuRow};
use graphs::Graphs;
use memory::Memory;
use streams::Streams;
use transfers::Transfers;
use work::Work;

/// Rows held back until those with lower tickets have come: they can stay in other lanes' rings.
const HELD: usize = 8192;
/// Tickets remembered that have not come yet.
const GAPS: usize = 1 << 16;
/// Names kept at most, and pieces of long ones.
const NAMES: usize = 1000;
const PIECES: usize = 1 << 18;

/// See the module.
#[derive(Default)]
pub struct Gpu {
    held: BTreeMap<u64, Event>,
    /// The highest ticket given out, and those below it that have not come.
    done: u64,
    gaps: BTreeSet<u64>,
    seen: u64,
    unknown: u64,
    end: GpuEnd,
    /// Which thread uses a lane: rows of a lane come in the order in which its threads left them.
    threads: HashMap<u32, u32>,
    /// Names, by kind and number.
    names: BTreeMap<(u64, u64), String>,
    /// Of names in pieces, likewise.
    pieces: BTreeMap<(u64, u64), String>,
}

/// What it amounts to.
#[derive(Default)]
pub struct GpuEnd {
    pub memory: Memory,
    pub transfers: Transfers,
    pub streams: Streams,
    pub graphs: Graphs,
    pub work: Work,
    /// Names of kernels by their numbers, as the compiler wrote them.
    pub kernels: BTreeMap<u64, String>,
    /// Why CUPTI does not time, or no longer.
    pub reason: String,
    /// CUPTI's library.
    pub cupti: String,
    /// Names of devices by their numbers.
    pub devices: BTreeMap<u64, String>,
    /// Frameworks with pools of their own that were loaded.
    pub pools: Vec<String>,
    /// Their links, as the kernel named them.
    pub links: BTreeMap<u64, String>,
    /// Their UUIDs, as `nvidia-smi` writes them, and where they are on the PCI bus, as the driver writes it.
    pub uuids: BTreeMap<u64, String>,
    pub buses: BTreeMap<u64, String>,
    /// Driver calls that the shim did not know.
    pub unknown_calls: Vec<String>,
    /// `events`, `cupti`, `wall`, `off`.
    pub timing: String,
    /// Calls that failed: by name and code, how often.
    pub failed: BTreeMap<(String, u32), u64>,
    /// Tickets without a row.
    pub lost: u64,
    /// Rows of a kind that is not known, or too short.
    pub unknown: u64,
    pub rows: u64,
    /// Copies and launches that the shim could not time.
    pub untimed: u64,
    /// Functions looked for by `dlsym`, by `cuGetProcAddress`, and those of both that are hooked. Said once at the end of an image.
    pub lookups: Option<[u64; 3]>,
    lookup_rows: u64,
}

impl Gpu {
    /// Of which instant call sites are to say what was live.
    pub fn new(instant: Instant) -> Self {
        let mut gpu = Gpu::default();
        gpu.end.memory.sites = sites::GpuSites::new(instant);
        gpu
    }

    /// A thread uses a lane from here on.
    pub fn thread(&mut self, lane: u32, tid: u32) {
        self.threads.insert(lane, tid);
    }

    /// A row as it stands in the trace.
    pub fn add(&mut self, mut row: GpuRow, phases: &mut PhaseBook) {
        if let GpuRow::Event(e) = &mut row {
            e.lane = self.threads.get(&e.lane).copied().unwrap_or(e.lane);
        }
        match row {
            GpuRow::Other => self.unknown += 1,
            GpuRow::Name { what: what @ (name::KERNEL | name::REASON | name::CUPTI), number, text } => {
                if self.pieces.len() < PIECES {
                    self.pieces.insert((what, number), text);
                }
            }
            GpuRow::Name { what, number, text } => {
                if self.names.len() < NAMES {
                    self.names.insert((what, number), text);
                }
            }
            // Its ticket is that of the row it is about.
            GpuRow::Event(e) if e.kind == kind::TIME => {
                self.end.transfers.time(&e, &mut self.end.streams, &mut self.end.graphs);
            }
            GpuRow::Event(e) => self.order(e, phases),
        }
    }

    fn order(&mut self, e: Event, phases: &mut PhaseBook) {
        if e.ticket <= self.done {
            // Late, or once more from a spool.
            if self.gaps.remove(&e.ticket) {
                self.apply(e, phases);
            }
            return;
        }
        self.held.insert(e.ticket, e);
        if self.held.len() > HELD {
            self.next(phases);
        }
    }

    fn next(&mut self, phases: &mut PhaseBook) -> bool {
        let Some((ticket, e)) = self.held.pop_first() else { return false };
        let missing = (self.done.saturating_add(1)..ticket).take(GAPS.saturating_sub(self.gaps.len()));
        self.gaps.extend(missing);
        self.done = ticket;
        self.apply(e, phases);
        true
    }

    fn apply(&mut self, e: Event, phases: &mut PhaseBook) {
        self.seen += 1;
        self.play(&e);
        let memory = &self.end.memory;
        match e.kind {
            kind::ALLOC | kind::FREE | kind::MAP | kind::GRAPH | kind::CONTEXT => {
                let live: i64 = memory.devices.values().map(|d| d.live.live).sum();
                phases.note_in_order(Metric::Gpu, e.t, live.max(0) as u64);
                phases.note_in_order(Metric::Pinned, e.t, memory.pinned.live.max(0) as u64);
            }
            kind::COPY => {
                phases.note_in_order(Metric::H2d, e.t, self.end.transfers.bytes(0));
                phases.note_in_order(Metric::D2h, e.t, self.end.transfers.bytes(1));
            }
            _ => {}
        }
    }

    fn play(&mut self, e: &Event) {
        let end = &mut self.end;
        if e.code != 0 {
            *end.failed.entry((e.call.to_string(), e.code)).or_default() += 1;
        }
        match e.kind {
            kind::ALLOC => {
                if e.code == 0 && memory::is_of_addresses(e.flags & 0xff) {
                    end.graphs.given_out(e.words[0]);
                }
                end.memory.alloc(e);
            }
            kind::FREE if e.code == 0 && memory::is_of_addresses(e.flags & 0xff) && end.graphs.frees(e.words[0]) => {}
            kind::FREE => end.memory.free(e),
            kind::MAP => end.memory.map(e),
            kind::COPY => end.transfers.copy(e, &mut end.streams, &mut end.graphs, &mut end.work),
            kind::WORK => end.work.add(e, &mut end.streams, &mut end.graphs),
            kind::STREAM => match e.flags {
                stream::CREATE => end.streams.create(e),
                stream::DESTROY => end.streams.destroy(e),
                stream::WAIT => end.streams.wait(e),
                _ => {}
            },
            kind::BUSY => end.streams.busy(e),
            kind::SPELL => end.streams.spell(e),
            kind::GRAPH if e.flags & 0xff == graph::LAUNCH => end.transfers.launch(e, &mut end.streams, &mut end.graphs, &mut end.work),
            kind::GRAPH => {
                if let Some((device, bytes)) = end.graphs.event(e).filter(|(_, bytes)| *bytes != 0) {
                    end.memory.graph(device, bytes, e.t);
                }
            }
            kind::STATE if e.flags & 0xff == state::UNTIMED => end.untimed = end.untimed.saturating_add(e.words[0]),
            kind::STATE if e.flags & 0xff == state::LOOKUPS => {
                end.lookups = Some([0, 1, 2].map(|i| e.words[i]));
                end.lookup_rows += 1;
            }
            kind::STATE if e.flags & 0xff == state::DROPPED => end.work.dropped(e),
            kind::STATE if e.flags & 0xff == state::CUPTI => end.work.switched(e),
            kind::STATE => end.memory.state(e),
            kind::CONTEXT if e.flags == context::SEEN => end.streams.context(e),
            kind::CONTEXT if e.flags == context::END => {
                end.memory.context_ends(e);
                for (device, bytes) in end.graphs.context_ends(e.context) {
                    end.memory.graph(device, bytes, e.t);
                }
                end.streams.context_ends(e);
            }
            _ => {}
        }
    }

    /// All rows have come. `None`: the image never called a driver.
    pub fn finish(mut self, last: u64, phases: &mut PhaseBook) -> Option<GpuEnd> {
        while self.next(phases) {}
        if self.seen == 0 && self.names.is_empty() && self.unknown == 0 {
            return None;
        }
        let mut end = self.end;
        end.rows = self.seen.saturating_sub(end.work.records).saturating_sub(end.lookup_rows);
        end.unknown = self.unknown;
        end.lost = self.done.saturating_sub(self.seen);
        for ((what, number), text) in self.names {
            match what {
                name::DEVICE => {
                    end.devices.insert(number, text);
                }
                name::LINK => {
                    end.links.insert(number, text);
                }
                name::UUID => {
                    end.uuids.insert(number, text);
                }
                name::BUS => {
                    end.buses.insert(number, text);
                }
                name::POOL if !end.pools.contains(&text) => end.pools.push(text),
                name::UNKNOWN_CALL => end.unknown_calls.push(text),
                name::TIMING => end.timing = text,
                _ => {}
            }
        }
        for ((what, number), text) in self.pieces {
            match what {
                name::KERNEL => end.kernels.entry(number >> 8).or_default(),
                name::REASON => &mut end.reason,
                _ => &mut end.cupti,
            }
            .push_str(&text);
        }
        if !end.work.spans.is_empty() && !end.work.gave_way {
            end.timing = "cupti".into();
        }
        end.work.finish(last, &mut end.transfers, &mut end.graphs);
        end.streams.finish(last);
        end.graphs.finish();
        end.transfers.finish();
        Some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(rows: &str) -> GpuEnd {
        let rows: Vec<GpuRow> = serde_json::from_str(rows).unwrap();
        let mut gpu = Gpu::default();
        let mut phases = PhaseBook::default();
        rows.into_iter().for_each(|row| gpu.add(row, &mut phases));
        gpu.finish(1000, &mut phases).unwrap()
    }

    #[test]
    fn rows_count_once_in_the_order_of_their_tickets_and_gaps_are_lost() {
        let end = feed(
            r#"[["free","cuMemFree",3,30,0,0,0,1,0,4096,0],["alloc","cuMemAlloc",1,10,0,0,0,1,0,4096,100,0],
               ["alloc","cuMemAlloc",1,10,0,0,0,1,0,4096,100,0],["alloc","cuMemAlloc",4,40,0,0,0,1,0,4096,50,0],["later","cuMemAlloc",9]]"#,
        );
        let d = &end.memory.devices[&0];
        assert_eq!((d.live.live, d.live.peak, d.live.peak_at), (50, 100, 10));
        assert_eq!((end.rows, end.lost, end.unknown, end.memory.unknown_frees), (3, 1, 1, 0));
    }

    #[test]
    fn an_address_that_was_a_graphs_and_is_given_out_again_is_a_blocks() {
        // A node takes 4096 at 8192, the graph goes, and an ordinary block of 100 comes to lie there and is freed.
        let end = feed(
            r#"[["graph","cuGraphAddMemAllocNode",1,10,0,0,0,1,15,7,4096,8192,0],["graph","cuGraphDestroy",2,20,0,0,0,1,3,7,0,0,0],
               ["alloc","cuMemAlloc",3,30,0,0,0,1,0,8192,100,0],["free","cuMemFree",4,40,0,0,0,1,0,8192,0]]"#,
        );
        let d = &end.memory.devices[&0];
        assert_eq!((d.live.live, d.live.peak, d.frees, end.memory.unknown_frees), (0, 100, 1, 0));
    }

    #[test]
    fn a_capture_that_replaces_a_graph_leaves_what_it_copies_as_it_is() {
        let copy = r#"["copy","cuMemcpyHtoDAsync",2,20,0,0,0,1,768,1000,5,16,9,1]"#;
        let again = copy.replace(",2,20,", ",5,50,").replace(",9,1]", ",10,1]");
        let end = feed(&format!(
            r#"[["graph","cuStreamBeginCapture",1,10,0,0,0,1,0,16,0,0,0],{copy},["graph","cuStreamEndCapture",3,30,0,0,0,1,1,7,9,16,0],
               ["graph","cuStreamBeginRecaptureToGraph",4,40,0,0,0,1,0,16,7,1,0],{again},["graph","cuStreamEndCapture",6,60,0,0,0,1,1,7,10,16,0],
               ["graph","cuStreamEndCaptureToCig",7,70,0,0,0,1,1,0,11,16,0]]"#
        ));
        let all: Vec<_> = end.graphs.all.iter().map(|g| (g.captures, g.per_launch)).collect();
        assert_eq!(all, [(2, [1000, 0, 0, 0, 0, 0])]);
    }

    #[test]
    fn a_time_may_come_before_its_copy() {
        let end = feed(
            r#"[["time","",2,500,1,0,0,1,0,1000],["copy","cuMemcpyHtoD",2,490,0,0,0,1,1040,100000,5,1,0,1],["copy","cuMemcpyHtoD",1,400,0,0,0,1,1040,70000,5,1,0,1]]"#,
        );
        let g = &end.transfers.groups[&(0, 1, 0)];
        assert_eq!((g.count, g.bytes, g.timed, g.timed_bytes, g.device_ns), (2, 170_000, 1, 100_000, 1000));
        assert_eq!(end.transfers.without_time, 1);
        assert_eq!(g.rate(0.5), Some(1e11));
    }

    #[test]
    fn a_stream_is_of_its_contexts_device_and_a_copy_of_the_memorys() {
        // Context 1 is on device 0, 2 on device 1; 16 is made in 2 and used from 1 too; memory is device 1's.
        let copy = |ticket: u64, context: u64, stream: u64| {
            format!(r#"["copy","cuMemsetD8Async",{ticket},{ticket}0,0,0,1,{context},53,1000,5,{stream},0,1]"#)
        };
        let (a, b, c, d) = (copy(4, 1, 1), copy(5, 1, 16), copy(6, 2, 16), copy(7, 2, 1));
        let end = feed(&format!(
            r#"[["context","",1,1,0,0,0,1,0,7],["context","",2,2,0,0,1,2,0,8],["stream","cuStreamCreate",3,3,0,0,1,2,0,16,0,0],{a},{b},{c},{d}]"#
        ));
        let all: Vec<_> = end.streams.all.iter().map(|s| (s.handle, s.device, s.copies)).collect();
        assert_eq!(all, [(16, 1, 2), (1, 0, 1), (1, 1, 1)]);
        assert_eq!(end.transfers.groups.iter().map(|(key, g)| (*key, g.count)).collect::<Vec<_>>(), [((5, 3, 1), 4)]);
    }

    #[test]
    fn what_cupti_tells_of_several_copies_of_a_call_is_their_streams_alone() {
        // 4432: of pinned memory, asynchronous, watched; 12624: with further rows.
        let row =
            |ticket: u64, flags: u64, bytes: u64| format!(r#"["copy","cuMemcpyBatchAsync",{ticket},10,0,0,0,1,{flags},{bytes},5,16,0,1]"#);
        let end = feed(&format!(
            r#"[{},{},["work","",3,100,0,0,0,0,1,30,1,9,1000,0],["work","",4,200,0,0,0,0,1,50,1,9,2000,0]]"#,
            row(1, 12_624, 1000),
            row(2, 272 | 1, 2000)
        ));
        let g = &end.transfers.groups;
        assert_eq!((g.len(), g.values().map(|g| g.timed).sum::<u64>(), end.transfers.without_time), (2, 0, 0));
        assert_eq!((end.streams.all.len(), end.streams.all[0].copy_ns, end.work.strange), (1, 80, 0));
    }

    #[test]
    fn numbers_from_anywhere_break_nothing() {
        let max = u64::MAX;
        let mut rows = String::from("[");
        for (kind, words) in [
            ("alloc", 3),
            ("free", 2),
            ("copy", 5),
            ("time", 1),
            ("stream", 3),
            ("graph", 4),
            ("state", 3),
            ("busy", 5),
            ("context", 1),
            ("map", 3),
            ("work", 5),
            ("spell", 4),
        ] {
            for flags in (0..16).chain([max]) {
                for n in [1, max] {
                    let numbers = vec![n.to_string(); words].join(",");
                    rows += &format!(r#"["{kind}","",{n},{n},{n},0,{n},{n},{flags},{numbers}],"#);
                }
            }
        }
        feed(&(rows.trim_end_matches(',').to_owned() + "]"));
    }
}
