//! One image of one process: every line it wrote, taken in one after another, then what they amount to ([`end`]).

mod children;
mod end;

pub use end::{Ended, ImageEnd};

use std::collections::BTreeMap;

use memshim_format::record;
use serde_json::Value;

use super::batch::Totals;
use super::counts::Counts;
use super::forks::Forks;
use super::gpu::{Gpu, GpuEnd};
use super::heap::{self, Heap, HeapEnd};
use super::kinds::KindTable;
use super::mapfeed::{MapFeed, MapsEnd};
use super::outside::OutsideEdges;
use super::phases::{Metric, PhaseBook, PhasesEnd};
use super::python::{PythonEnd, PythonHeap};
use super::sites::Instant;
use super::stacks::Stacks;
use super::threads::{ThreadBook, ThreadUse};
use super::timeline::{Series, Timeline};
use super::units::{Bytes, Nanos};
use crate::trace::gpurow::GpuRow;
use crate::trace::line::{End, Header, Line, Lowered, Python, Rss, Thread};
use crate::trace::marks::Facts;
use crate::trace::recover;

/// What a reader of images wants to know beyond the usual.
#[derive(Clone, Debug, Default)]
pub struct Interest {
    /// Requested sizes whose live bytes are followed on their own.
    pub sizes: Vec<u64>,
    /// Points of the timeline at most (rounded up to an even number).
    pub samples: usize,
    /// Snapshots kept at most.
    pub snapshots: usize,
    /// Whose live set call sites are asked for; a time is nanoseconds since the image's start.
    pub instant: Instant,
    /// Call sites are told apart by thread.
    pub by_thread: bool,
}

/// See the module.
pub struct Image {
    pub header: Header,
    /// What the side file says of it, but for edges.
    marks: Facts,
    edges: OutsideEdges,
    heap: Heap,
    counts: Counts,
    threads: ThreadBook,
    maps: MapFeed,
    gpu: Gpu,
    phases: PhaseBook,
    /// Where Python's own blocks are recorded.
    python: Option<Box<PythonHeap>>,
    stacks: Stacks,
    timeline: Timeline,
    /// The highest level of the heap in it since the last line of counts.
    shown: Bytes,
    snapshots_max: usize,
    /// Usable bytes that were live at the fork: the shim's own sums begin with the process.
    inherited: i64,
    /// What was known when recording was lowered: after that the trace has no more than a part of each block's life.
    before: Option<Totals>,
    end: Ended,
}

/// Children and notes remembered one by one.
const LISTED: usize = 10_000;

impl Image {
    /// Begins with its header.
    pub fn new(header: Header, interest: &Interest, forks: &Forks) -> Self {
        let inherited = header.inherited.as_ref().map_or(0, |i| i.live.clamp(-(1 << 48), 1 << 48));
        let mut timeline = Timeline::new(header.mono_ns, interest.samples.max(2).next_multiple_of(2));
        if inherited > 0 {
            timeline.note(header.mono_ns, Series::Heap, Bytes::of_balance(inherited).0);
        }
        let instant = interest.instant.on_the_clock(header.mono_ns);
        let sites = (!matches!(&*header.stacks, "" | "off")).then_some(instant);
        let inherited_blocks = header.inherited.as_ref().map_or(0, |i| i.blocks);
        let (mut maps, mut phases) = (MapFeed::new(header.page), PhaseBook::new(inherited));
        maps.begin(&header, forks, &mut timeline, &mut phases);
        Image {
            heap: Heap::new(&heap::Settings {
                tick_ns: header.tick_ns,
                inherited,
                selected: &interest.sizes,
                fast: header.mode == "fast",
                ages: header.ages,
                sample: header.sample,
                sites,
                by_thread: interest.by_thread,
            }),
            stacks: Stacks::default(),
            counts: Counts::new(inherited, inherited_blocks),
            threads: ThreadBook::default(),
            maps,
            gpu: Gpu::new(instant),
            phases,
            python: header.python_fns.is_some().then(|| Box::new(PythonHeap::new(&header, sites, interest.by_thread))),
            timeline,
            shown: Bytes::of_balance(inherited),
            snapshots_max: interest.snapshots.max(3),
            inherited,
            before: None,
            end: Ended { last_t: Nanos(header.mono_ns), python_unread: header.python_known == Some(false), ..Ended::default() },
            header,
            marks: Facts::default(),
            edges: OutsideEdges::default(),
        }
    }

    fn at(&mut self, t: u64) {
        self.end.last_t = self.end.last_t.max(Nanos(t));
        self.end.first_t.get_or_insert(Nanos(t));
    }

    /// Takes one line in.
    pub fn read(&mut self, line: Line) {
        match line {
            Line::Ev(ev) => {
                self.at(ev.t1);
                self.acts_at(ev.t0);
                self.edges.feed(ev.t1, &mut self.phases);
                self.heap.expect(&mut self.phases.due, &mut self.phases.turns);
                // Fast mode's events are a sample: what threads did is in the exact counts of their lanes.
                let mut nobody = ThreadBook::default();
                let threads = if self.header.mode == "full" { &mut self.threads } else { &mut nobody };
                self.end.useless += !self.heap.read(&ev, &mut self.stacks, threads) as u64;
            }
            Line::Kinds(kinds) => {
                self.end.bad_kinds += self.heap.define(&kinds);
                if let Some(python) = &mut self.python {
                    python.define(&kinds);
                }
            }
            Line::PyEv(ev) => {
                self.at(ev.t1);
                self.end.useless += !self.python.as_mut().is_some_and(|python| python.read(&ev, &mut self.stacks)) as u64;
            }
            Line::PyCalls(calls) => {
                self.at(calls.t);
                if let Some([live, most]) = self.python.as_mut().and_then(|python| python.counted(&calls)) {
                    self.phases.note_most(Metric::Python, calls.t, live, most);
                }
            }
            Line::PyThread(thread) => {
                if let Some(python) = &mut self.python {
                    python.begins(&thread);
                }
            }
            Line::Calls(calls) => {
                self.at(calls.t);
                self.edges.feed(calls.t, &mut self.phases);
                let seen = self.counts.read(&calls);
                // Of many lanes not each line has the rows; then the level is that of the last that had.
                let rows = !calls.lanes.is_empty();
                if (rows || seen.live == calls.live)
                    && let Some(until) = self.phases.counted(calls.t, &seen, rows)
                {
                    self.heap.at_most(until, seen.most.saturating_add(self.counts.inherited()));
                }
                let (t, live, sure) = (calls.t.max(self.counts.t), self.with_inherited(self.counts.live), self.with_inherited(seen.sure));
                // What nobody has shown yet of the time since the line before.
                if sure > self.shown.max(live) {
                    self.timeline.note(t, Series::Heap, sure.0);
                }
                self.timeline.note(t, Series::Heap, live.0);
                self.shown = live;
                if self.header.mode != "full" {
                    for &(lane, allocs, bytes, _, live, hi) in &calls.lanes {
                        self.threads.counted(lane, allocs, bytes, live, hi);
                    }
                }
            }
            Line::Maps(rows) => {
                let mut stacks = rows.s.chunks_exact(2);
                for mut row in rows.ev {
                    if let Some(&[native, python]) = stacks.next() {
                        let lane = u32::try_from(row.lane()).unwrap_or(u32::MAX);
                        row.site = self.stacks.of_row(lane, native, python);
                    }
                    self.maps.add(row, &mut self.timeline, &mut self.phases);
                }
            }
            Line::Gpu(rows) => {
                let mut stacks = rows.s.chunks_exact(2);
                for mut row in rows.ev {
                    if let (Some(&[native, python]), GpuRow::Event(e)) = (stacks.next(), &mut row) {
                        e.site = self.stacks.of_row(e.lane, native, python);
                    }
                    self.gpu.add(row, &mut self.phases);
                }
            }
            Line::Phase(rows) => {
                rows.ev.into_iter().for_each(|row| self.phases.add(row, self.end.recovered));
                self.heap.expect(&mut self.phases.due, &mut self.phases.turns);
            }
            Line::Modules(modules) => self.stacks.load(modules, &self.header.cwd.0),
            Line::Nodes(nodes) => self.stacks.define_native(&nodes),
            Line::PyNodes(nodes) => self.stacks.define_python(&nodes),
            Line::Codes(codes) => self.stacks.define_code(codes),
            Line::Python(python) => self.read_python(python),
            Line::Thread(thread) => self.read_thread(&thread),
            Line::Rss(rss) => self.read_rss(rss, None),
            Line::Snap(snap) => self.read_snapshot(snap),
            Line::Child(child) => self.read_child(child),
            Line::Lost(lost) => {
                let n = match lost.what {
                    Some(what) => self.end.lost_others.entry((what.0, lost.why.0)).or_default(),
                    None => self.end.lost.entry(lost.why.0).or_default(),
                };
                *n = n.saturating_add(lost.n).min(1 << 48);
            }
            Line::Note(what) => {
                if self.end.notes.len() < LISTED && !self.end.notes.contains(&what) {
                    self.end.notes.push(what);
                }
            }
            Line::Mode(lowered) => {
                self.at(lowered.t);
                // Which blocks are live is not known any more: results come from the exact counts, as in fast mode.
                self.end.full_before |= self.header.mode == "full";
                self.header.mode = "fast".into();
                self.before.get_or_insert_with(|| self.heap.totals.clone());
                // Of what was lost there with a batch, and came later, the trace can hold a part.
                self.heap.lower(lowered.told_until(), self.header.big);
                if self.end.lowered.is_empty() {
                    self.counts.lowered(lowered.told_until());
                }
                if let Some(python) = &mut self.python {
                    python.lower(lowered.told_until(), self.header.big);
                }
                self.end.lowered.push(lowered);
            }
            Line::End(end) => {
                self.at(end.t);
                if end.own.is_some() {
                    self.end.own.clone_from(&end.own);
                }
                self.end.end = Some(end);
            }
            Line::Outside(outside) => {
                // Who was killed went on until then.
                if self.end.end.is_none() && outside.get("status").is_some_and(Value::is_object) {
                    self.end.told_t.get_or_insert(self.end.last_t);
                    self.at(outside.get("t").and_then(Value::as_u64).unwrap_or(0));
                }
                self.end.outside = Some(outside);
            }
            Line::Header(_) | Line::Process(_) | Line::Unknown => {}
        }
    }

    fn read_python(&mut self, python: Python) {
        self.at(python.t);
        if let Some(version) = python.version {
            self.end.python_unread = !python.known;
            self.header.python = Some(version);
        }
    }

    fn read_thread(&mut self, thread: &Thread) {
        self.at(thread.t);
        if thread.what == "start" {
            self.gpu.thread(thread.lane, thread.tid);
        }
        match thread.what.as_str() {
            // Said again by a spool.
            "start" if self.threads.knows(thread) => {}
            "start" => {
                self.phases.thread(thread.lane, thread.t);
                let full = self.header.mode == "full";
                let uses = self.threads.uses(thread.lane);
                let handed = uses && self.heap.hand_over(thread.lane, thread.seq, thread.tid);
                if !handed {
                    self.heap.used_by(thread.lane, thread.tid);
                }
                self.threads.start(thread, uses && (!full || handed));
            }
            "name" | "end" => {
                if thread.what == "end" {
                    self.phases.thread(thread.lane, thread.t);
                }
                self.threads.name(thread);
            }
            _ => self.end.useless += 1,
        }
    }

    fn read_rss(&mut self, rss: Rss, heap: Option<Bytes>) {
        self.at(rss.t);
        // There was a peak since the last look, and the kernel says how high.
        let risen = self.end.hwm.0 > 0 && rss.hwm > self.end.hwm.0.max(rss.rss);
        self.end.hwm = self.end.hwm.max(Bytes(rss.hwm));
        self.end.main_stack = self.end.main_stack.max(Bytes(rss.stk));
        self.end.cpu_first = self.end.cpu_first.or(rss.cpu);
        self.end.cpu_last = self.end.cpu_last.max(rss.cpu);
        if rss.rss == 0 {
            return;
        }
        self.lives_at(rss.t);
        if risen {
            self.timeline.note(rss.t, Series::Rss, rss.hwm);
        }
        self.timeline.note(rss.t, Series::Rss, rss.rss);
        self.phases.note(Metric::Rss, rss.t, rss.rss);
        self.phases.note(Metric::Hwm, rss.t, rss.hwm);
        let peak = self.end.rss_peak.get_or_insert_default();
        // A snapshot at the same level knows more (the heap at that instant).
        if rss.rss > peak.rss || rss.rss == peak.rss && heap.is_some() {
            *peak = rss;
            self.end.rss_peak_heap = heap;
            self.maps.rss_peak(rss.t);
        }
        self.end.rss_first.get_or_insert(rss);
        self.end.rss_last = Some(rss);
    }

    fn read_snapshot(&mut self, mut snap: Value) {
        let number = |key: &str| snap.get(key).and_then(Value::as_u64).unwrap_or(0);
        let rss = Rss {
            t: number("t"),
            rss: number("rss"),
            hwm: number("hwm"),
            anon: number("anon"),
            file: number("file"),
            shmem: number("shmem"),
            hugetlb: number("hugetlb"),
            stk: number("stk"),
            cpu: snap.get("self").and_then(cpu_of_usage),
        };
        let heap = snap.get("live").and_then(Value::as_i64).map(|live| self.with_inherited(live));
        if let Some(heap) = heap {
            self.timeline.note(rss.t, Series::Heap, heap.0);
            self.shown = self.shown.max(heap);
        }
        self.read_rss(rss, heap);
        if let Some(live) = snap.get("live").and_then(Value::as_i64) {
            self.counts.saw(live, snap.get("blocks").and_then(Value::as_i64), number("t"));
        }
        if let Some(v) = snap.get("own") {
            self.end.own = Some(v.clone());
        }
        if snap.get("self").is_some() {
            // Absent where no child has been waited for.
            let most = snap.get("children").map_or(Some(0), |usage| usage.get("maxrss")?.as_u64());
            self.end.children_maxrss = most.or(self.end.children_maxrss);
        }
        if let Some(io) = snap.get("io") {
            let bytes = |key: &str| io.get(key).and_then(Value::as_u64).unwrap_or(0);
            self.phases.note(Metric::Read, rss.t, bytes("read"));
            self.phases.note(Metric::Written, rss.t, bytes("written"));
        }
        if let Some(object) = snap.as_object_mut() {
            object.remove("type");
        }
        match snap.get("why").and_then(Value::as_str) {
            Some("phase") => return self.phases.snapshot(rss.t, snap),
            Some("start") => {
                self.phases.process_begins(rss.t);
                self.phases.snapshot(rss.t, snap.clone());
                self.heap.expect(&mut self.phases.due, &mut self.phases.turns);
            }
            _ => {}
        }
        self.end.snapshots.push(snap);
        if self.end.snapshots.len() > 2 * self.snapshots_max {
            self.end.snapshots = end::thinned(std::mem::take(&mut self.end.snapshots), self.snapshots_max);
        }
    }

    /// The live heap, of a balance of this process alone.
    fn with_inherited(&self, live: i64) -> Bytes {
        Bytes::of_balance(live.saturating_add(self.inherited))
    }

    /// Whether its process is still there.
    pub fn is_running(&self) -> bool {
        let h = &self.header;
        self.end.end.is_none() && recover::alive(&h.host.0, h.pid_ns, h.pid, h.start_ticks)
    }

    /// It goes on while it is being read.
    pub fn mark_running(&mut self) {
        self.end.running = true;
    }

    /// What follows was read from a spool.
    pub fn mark_recovered(&mut self) {
        self.end.recovered = true;
    }

    /// What was seen of it from outside; before any of its lines.
    pub fn take_marks(&mut self, mut marks: Facts) {
        if self.header.mode != "fast" {
            // Every call is an event there: what was live is known by its place among them.
            marks.edges.iter_mut().for_each(|e| e.seen = None);
        }
        self.edges = OutsideEdges::new(std::mem::take(&mut marks.edges), self.header.mode == "full");
        if self.edges.last().is_some() {
            self.phases.keep_levels();
        }
        self.marks = marks;
    }

    /// From `t` on it is of the process's next image.
    pub fn cut_marks_at(&mut self, t: u64) {
        self.marks.cut_at(t);
        self.edges.cut_at(t);
    }
}

/// User and system time of a `rusage` object, in nanoseconds.
pub fn cpu_of_usage(usage: &Value) -> Option<u64> {
    let ns = |key: &str| usage.get(key).and_then(Value::as_u64);
    ns("utime_ns")?.checked_add(ns("stime_ns")?)
}

/// Name of a counted function: the header's, else this version's.
pub fn function_name(header: &Header, func: usize) -> String {
    let own = record::FNS.get(func).map(|s| s.to_string());
    header.fns.get(func).cloned().or(own).unwrap_or_else(|| format!("function {func}"))
}

/// Whether the function releases (its calls are frees).
pub fn releases(name: &str) -> bool {
    name.contains("free") || name.contains("delete")
}
