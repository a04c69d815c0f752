//! The heap of one image, replayed from its `ev` lines group by group.
//!
//! Within a group: every line's codes become steps as it is read (`batch`); when the group is complete, frees of other lanes'
//! blocks are resolved. Steps are put in order (`merge`) and played (`track`) as soon as all that came before has been read (`play`).

mod edges;
mod pending;
mod play;

use edges::settling;
use pending::Pending;
use play::Waiting;
use std::collections::HashMap;

use super::batch::{Decode, Handover, LaneState, Steps, Totals};
use super::by_thread::ThreadSites;
use super::endings::{self, Ending};
use super::kinds::KindTable;
use super::left::{LeftAt, On, PhaseSites, Turn};
use super::merge::{self, Window};
use super::phases::{HeapAt, HeapEdge};
use super::sites::{self, Instant, SiteBook, SitesEnd};
use super::stacks::Stacks;
use super::sweep::AtEdge;
use super::threads::ThreadBook;
use super::track::{self, Cut, Peak, Place, Track};
use crate::trace::column::Column;
use crate::trace::line::{Ev, Kinds};

/// Lanes above are a damaged line's.
pub const LANE_MAX: u32 = 1 << 14;

/// A line of the group that is being read.
#[derive(Default)]
struct Batch {
    lane: u32,
    steps: Steps,
    windows: Vec<Window>,
    /// Usable less requested bytes, where that is followed.
    slack: Vec<i64>,
    /// Steps that are played.
    played: usize,
    /// Number of the lane's batch before.
    before: Option<usize>,
    foreign: Vec<Ending>,
    handed: Vec<Handover>,
    t1: u64,
    /// Edges of phases in it, and what of the phase was freed straight after each.
    settling: Vec<(u32, i64)>,
}

impl Batch {
    /// To be used for another.
    fn clear(&mut self) {
        self.steps.clear();
        self.handed.clear();
        self.slack.clear();
        (self.played, self.before) = (0, None);
    }
}

/// See the module.
pub struct Heap {
    pub kinds: KindTable,
    pub totals: Totals,
    lanes: Vec<LaneState>,
    requested: Track,
    usable: Track,
    /// Usable less requested bytes, where not every block is an event.
    slack: Option<Track>,
    /// Bytes and blocks of the selected sizes.
    selected: Option<(Track, Track)>,
    /// Where allocations have stacks.
    sites: Option<SiteBook>,
    /// Where they are told apart by thread.
    by_thread: Option<ThreadSites>,
    /// Every block is an event.
    exact: bool,
    /// Events say how often their lane had allocated.
    ages: bool,
    /// Where the site changes in the batch that is being read.
    changes: Vec<(u32, u32)>,
    tick_ns: u64,
    group: Option<u64>,
    batches: Vec<Batch>,
    /// Frees of own blocks in the batch that is being read.
    own: Vec<Ending>,
    /// Batches whose memory can be used again.
    spare: Vec<Batch>,
    /// Group of each lane's last batch.
    last: Vec<Option<u64>>,
    /// Batches of a group that their lane had one in already: written twice around a crash.
    pub doubled: u64,
    /// Edges of phases that the replay has not come to, and what of each phase was freed straight after.
    edges: Pending<HeapEdge>,
    settling: HashMap<u32, i64>,
    /// Phases that are on after the last group, begins and ends that the replay has not come to, and what is known of their call sites.
    on: On,
    turns: Pending<Turn>,
    left: Option<PhaseSites>,
    /// When the last edge was that has a place in a lane: what is read of it is after that, also where its stamps, which are rounded, say otherwise.
    after: HashMap<u32, u64>,
    /// What is read and not played yet.
    waiting: Waiting,
    /// What happened before is in the group that is being read or an earlier one; all of it where the trace does not say.
    whole: u64,
    /// Settled bytes before the group that is being read, and the most in one group.
    settled: (u64, u64),
}

/// The heap at the end.
#[derive(Clone, Debug, Default)]
pub struct HeapEnd {
    pub requested: Peak,
    pub usable: Peak,
    /// Fast mode: usable less requested bytes of the blocks that are events.
    pub slack: Option<Peak>,
    pub selected: Option<(Peak, Peak)>,
    pub live_blocks: u64,
    /// Lanes that had events.
    pub lanes: usize,
    /// Where allocations have stacks.
    pub sites: Option<SitesEnd>,
    /// At the edges of phases, in the order of the replay.
    pub phases: Vec<HeapAt>,
    /// What was possible there, in the order of their times, and by how much more blocks whose free was seen before them can matter.
    pub around_edges: (Vec<AtEdge>, u64),
    /// What phases left behind and needed meanwhile, by path and site; where allocations have stacks.
    pub left: Vec<LeftAt>,
    /// Allocations and edges that were too many for that.
    pub left_crowded: u64,
}

/// What a heap is told before its first event.
#[derive(Clone, Debug, Default)]
pub struct Settings<'a> {
    pub tick_ns: u64,
    /// Usable bytes that were live at the fork.
    pub inherited: i64,
    /// Sizes to follow on their own.
    pub selected: &'a [u64],
    pub fast: bool,
    /// Events say how often their lane had allocated.
    pub ages: bool,
    /// Mean bytes between samples.
    pub sample: u64,
    /// Allocations have stacks: which instant's live set is asked for.
    pub sites: Option<Instant>,
    /// Sites are told apart by thread.
    pub by_thread: bool,
}

impl Heap {
    pub fn new(settings: &Settings) -> Self {
        let &Settings { tick_ns, inherited, selected, fast, ages, sample, sites, by_thread } = settings;
        let tick = Some(tick_ns.max(1));
        Heap {
            kinds: KindTable::new(selected, sample),
            sites: sites.map(|instant| SiteBook::new(inherited, instant)),
            by_thread: (by_thread && sites.is_some()).then(ThreadSites::default),
            exact: !fast,
            ages,
            changes: Vec::new(),
            totals: Totals::default(),
            lanes: Vec::new(),
            requested: Track::new(inherited, tick),
            usable: Track::new(inherited, None),
            slack: fast.then(|| Track::new(0, tick)),
            selected: (!selected.is_empty()).then(|| (Track::new(0, tick), Track::new(0, tick))),
            tick_ns: tick_ns.max(1),
            group: None,
            batches: Vec::new(),
            own: Vec::new(),
            spare: Vec::new(),
            last: Vec::new(),
            doubled: 0,
            settled: (0, 0),
            edges: Pending::default(),
            settling: HashMap::new(),
            on: On::default(),
            turns: Pending::default(),
            left: None,
            after: HashMap::new(),
            waiting: Waiting::default(),
            whole: u64::MAX,
        }
    }

    /// Edges of phases, before the lines of the groups that they are in, and which phases begin and end there.
    pub fn expect(&mut self, edges: &mut Vec<HeapEdge>, turns: &mut Vec<Turn>) {
        self.edges.append(edges);
        if self.sites.is_some() && !turns.is_empty() {
            self.left.get_or_insert_default();
            self.turns.append(turns);
            // The curve is for runs that nobody tells of.
            self.sites.iter_mut().for_each(|book| book.curve.forget());
        }
        turns.clear();
    }

    /// Since the time before no more than these bytes were live, until `t`.
    pub fn at_most(&mut self, t: u64, bytes: i64) {
        if let Some(book) = self.sites.as_mut().filter(|_| !self.exact) {
            book.at_most(t, bytes);
        }
    }

    /// Recording is lowered at `t`: blocks of `big` bytes and more are events from there on, others where they are samples.
    pub fn lower(&mut self, t: u64, big: u64) {
        if self.exact {
            self.requested.end_at(t);
        }
        self.sites.iter_mut().for_each(|book| book.lower(t, big));
    }

    /// Adds rows to the dictionary; the number of rows that can't be.
    pub fn define(&mut self, line: &Kinds) -> u64 {
        let mut bad = 0;
        for (number, &(func, size, slack, flags)) in (line.from as u64..).zip(&line.kinds) {
            let number = u32::try_from(number).unwrap_or(0);
            bad += !self.kinds.define(number, func, size, slack, flags) as u64;
        }
        bad
    }

    /// This thread uses the lane from now on.
    pub fn used_by(&mut self, lane: u32, tid: u32) {
        if let Some(lane) = self.lane(lane) {
            lane.tid = tid;
        }
    }

    /// From allocation `seq` of this lane on, another thread uses it. False where that is in the past already.
    pub fn hand_over(&mut self, lane: u32, seq: u64, tid: u32) -> bool {
        let Some(lane) = self.lane(lane) else { return false };
        if lane.started && seq < lane.next_seq || !lane.started && seq == 0 {
            return false;
        }
        lane.handovers.insert(0, (seq, tid));
        true
    }

    fn lane(&mut self, lane: u32) -> Option<&mut LaneState> {
        if lane > LANE_MAX {
            return None;
        }
        if self.lanes.len() <= lane as usize {
            self.lanes.resize_with(lane as usize + 1, LaneState::default);
            self.last.resize(lane as usize + 1, None);
        }
        self.lanes.get_mut(lane as usize)
    }

    /// Reads one line. False where nothing of it can be used.
    pub fn read(&mut self, ev: &Ev, stacks: &mut Stacks, threads: &mut ThreadBook) -> bool {
        if self.group != Some(ev.g) {
            self.end_at_next(ev);
            self.end_group(stacks.sites(), threads);
            (self.group, self.whole) = (Some(ev.g), u64::MAX);
        }
        self.whole = self.whole.min(ev.whole.unwrap_or(u64::MAX));
        if self.lane(ev.lane).is_none() {
            return false;
        }
        // A lane has one batch a group: the second is the spool's, whose process died between writing it and noting that it had.
        if self.last[ev.lane as usize].replace(ev.g) == Some(ev.g) {
            self.doubled += 1;
            return true;
        }
        let (x, z, t) = (ev.x.values(), ev.z.values(), ev.t.values());
        self.totals.bad_codes += [x.is_none(), z.is_none(), t.is_none()].iter().filter(|b| **b).count() as u64;
        let (x, z, t) = (x.unwrap_or_default(), z.unwrap_or_default(), t.unwrap_or_default());

        if self.sites.is_some() {
            self.totals.bad_codes += !stacks.changes(ev, &mut self.changes) as u64;
        }
        let on = self.on_in(ev, &t);
        let lane = &mut self.lanes[ev.lane as usize];
        if !lane.started {
            lane.started = true;
            lane.next_seq = ev.seq;
        } else if ev.seq != lane.next_seq {
            match ev.seq.checked_sub(lane.next_seq) {
                Some(gap) => self.totals.gap_allocs = self.totals.gap_allocs.saturating_add(gap),
                None => self.totals.overlaps += 1,
            }
            lane.next_seq = ev.seq;
        }
        let mut batch = self.spare.pop().unwrap_or_default();
        batch.lane = ev.lane;
        batch.t1 = ev.t1.max(ev.t0);
        let mut decode = Decode {
            lane,
            kinds: &mut self.kinds,
            totals: &mut self.totals,
            steps: &mut batch.steps,
            own: &mut self.own,
            foreign: &mut batch.foreign,
            number: ev.lane as u16,
            handed: &mut batch.handed,
            x: &x,
            z: &z,
            selecting: self.selected.is_some(),
            sites: self.sites.is_some().then_some(&self.changes),
            by_thread: self.by_thread.as_mut(),
            left: self.left.as_mut(),
            phases: &on,
            prev: ev.seq,
            last_of: [0; 8],
            count: self.ages.then_some(0),
        };
        match &ev.k {
            Column::Text(text) => decode.run(memshim_format::v93::Decoder::new(text.as_bytes())),
            Column::Ints(all) => decode.run(all.iter().copied()),
        }
        endings::resolve(&self.own, &mut self.lanes, &mut batch.steps, &mut self.kinds, &mut self.totals);
        for edge in self.edges.of_group(ev.g) {
            if let (Some((lane, _, at)), Some(since)) = (edge.place, edge.since)
                && lane == ev.lane
            {
                batch.settling.push((edge.edge, settling(&self.own, &batch.steps, at, since).0));
            }
        }
        // What a function's frame held is not left behind: of its call sites the end is told after that.
        for turn in self.turns.of_group(ev.g) {
            if let (Some((lane, _, at)), Some(since)) = (&mut turn.at.place, turn.at.since)
                && *lane == ev.lane
            {
                *at += settling(&self.own, &batch.steps, *at, since).1;
                turn.at.since = None;
            }
        }
        self.own.clear();
        self.totals.miscounted += (batch.steps.len() as u64 != ev.n) as u64;
        batch.windows = merge::windows(&t, self.tick_ns, batch.steps.len(), ev.t0, ev.t1);
        if let Some(t) = self.after.get(&ev.lane) {
            merge::begin_at(&mut batch.windows, *t);
        }
        self.batches.push(batch);
        true
    }

    /// What a lane's batch has of events ended before those of its next one began: where that has a stamp of its own, it says when, and else the
    /// first stamp in it does.
    fn end_at_next(&mut self, next: &Ev) {
        let alone = self.batches.len() == 1;
        let Some(batch) = self.batches.iter_mut().find(|b| b.lane == next.lane) else { return };
        let Some(last) = batch.windows.last_mut() else { return };
        let until = if next.t0 > last.t0 {
            Some(next.t0)
        } else {
            let steps = usize::try_from(next.n).unwrap_or(usize::MAX);
            let stamps = next.t.values().unwrap_or_default();
            merge::windows(&stamps, self.tick_ns, steps, next.t0, next.t1).first().map(|w| w.t1)
        };
        last.t1 = last.t1.min(until.unwrap_or(u64::MAX)).max(last.t0);
        if alone {
            // A drain that is behind looks later than at what it reads: what was told from outside in between falls into the next group.
            batch.t1 = batch.t1.min(last.t1);
        }
    }

    fn end_group(&mut self, sites: usize, threads: &mut ThreadBook) {
        if self.batches.is_empty() {
            return;
        }
        let mut batches = std::mem::take(&mut self.batches);
        for batch in &mut batches {
            endings::resolve(&batch.foreign, &mut self.lanes, &mut batch.steps, &mut self.kinds, &mut self.totals);
            batch.foreign.clear();
        }
        self.settled = (self.totals.settled_bytes, self.settled.1.max(self.totals.settled_bytes - self.settled.0));
        let end = batches.iter().map(|b| b.t1).max().unwrap_or(0);
        let cuts = self.cuts(&mut batches, end);
        for b in &mut batches {
            let lane = &self.lanes[b.lane as usize];
            threads.played(b.lane, self.requested.level_of(b.lane), &b.steps.requested, &b.handed, (lane.allocs, lane.bytes));
            self.settling.extend(b.settling.drain(..));
            if self.slack.is_some() {
                b.slack.extend(b.steps.usable.iter().zip(&b.steps.requested).map(|(u, r)| u.wrapping_sub(*r)));
            }
        }
        let read = |track: &mut Track, changes: fn(&Batch) -> &[i64], cuts: &[Cut]| {
            let edges = cuts.iter().map(|c| (c.edge, c.t, c.place.map(|place| place.lane)));
            let all = batches.iter().map(|b| track::Batch { lane: b.lane, windows: &b.windows, changes: changes(b) });
            track.read(&all.collect::<Vec<_>>(), end, edges);
        };
        read(&mut self.requested, |b| &b.steps.requested, &cuts);
        if let Some(slack) = &mut self.slack {
            read(slack, |b| &b.slack, &[]);
        }
        if let Some((bytes, count)) = &mut self.selected {
            read(bytes, |b| &b.steps.selected, &[]);
            read(count, |b| &b.steps.selected_count, &[]);
        }
        let turns = self.due_turns(&mut batches, end);
        self.waiting.add(batches, cuts, turns);
        self.play_until(self.whole, sites);
    }

    /// Plays what is left.
    pub fn finish(mut self, sites: usize, threads: &mut ThreadBook) -> (HeapEnd, KindTable, Totals) {
        self.end_group(sites, threads);
        self.play_until(u64::MAX, sites);
        self.edges.take_all().iter().for_each(|e| self.requested.cut_here(e.edge));
        if let Some(left) = &mut self.left {
            self.turns.take_all().iter().for_each(|turn| left.turn(turn));
        }
        let settling = |edge: u32| self.settling.get(&edge).copied().unwrap_or(0);
        let phases = self.requested.found.iter().map(|f| HeapAt { edge: f.edge, level: f.level, most: f.most, settling: settling(f.edge) });
        let phases = phases.collect();
        let live_blocks = self.lanes.iter().map(|l| l.table.len()).sum();
        let lanes = self.lanes.iter().filter(|l| l.started).count();
        let selected = self.selected.map(|(bytes, count)| (bytes.finish(), count.finish()));
        let (mut requested, around_edges) = self.requested.finish_with_edges();
        requested.bound = requested.bound.saturating_add_unsigned(self.settled.1);
        let left_crowded = self.left.as_ref().map_or(0, |left| left.crowded);
        let end = HeapEnd {
            left_crowded,
            requested,
            usable: self.usable.finish(),
            slack: self.slack.map(Track::finish),
            selected,
            live_blocks,
            lanes,
            sites: self.sites.map(|mut book| {
                let count = self.by_thread.as_ref().map_or(sites, ThreadSites::len);
                book.play_waiting(&self.kinds, &sites::Numbers { count, by_thread: self.by_thread.as_ref() });
                book.finish(self.by_thread)
            }),
            left: self.left.map(PhaseSites::finish).unwrap_or_default(),
            phases,
            around_edges: (around_edges, self.settled.1),
        };
        (end, self.kinds, self.totals)
    }
}
