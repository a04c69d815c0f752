//! Lines written by the command itself: what the records of a lane's ring would have become, and its pending batch.

use std::collections::HashMap;

use memshim_format::record::{self, op};
use memshim_format::spool::{Kind, Pending};
use memshim_format::v93::{self, zigzag};

use super::callers::{self, Callers};
use super::column::push_v93;
use super::recover::{push_line, push_pair};
use super::ring::Record;
use super::spool::Lane;

/// Blocks do not get older; a spool that says so is damaged.
const AGE_MAX: u64 = 1 << 48;

/// Which block a free is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// Of this lane.
    Own(u64),
    /// Lane, number.
    Foreign(u32, u64),
    /// Address >> 3.
    Unknown(u64),
    /// Fast mode: of a block that was never to be an event.
    Unrecorded,
}

/// The dictionary, with what was added to it.
pub struct KindRows {
    by_row: HashMap<(i64, u32, u8, u8), u64>,
    rows: Vec<Kind>,
    written: usize,
}

impl KindRows {
    /// The spool's kinds, of which the trace has the first `written`.
    pub fn new(kinds: &[Kind], written: u32) -> Self {
        let by_row = kinds.iter().zip(1..).map(|(k, number)| ((k.size, k.slack, k.func, k.flags), number)).collect();
        KindRows { by_row, rows: kinds.to_vec(), written: (written as usize).min(kinds.len()) }
    }

    fn number(&mut self, size: i64, slack: u32, func: u8, flags: u8) -> u64 {
        let next = self.rows.len() as u64 + 1;
        let rows = &mut self.rows;
        *self.by_row.entry((size, slack, func, flags)).or_insert_with(|| {
            rows.push(Kind { size, slack, func, flags, pad: 0 });
            next
        })
    }

    /// What the trace does not have.
    pub fn lines(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let new = &self.rows[self.written..];
        if !new.is_empty() {
            let rows: Vec<String> = new.iter().map(|k| format!("[{},{},{},{}]", k.func, k.size, k.slack, k.flags)).collect();
            push_line(&mut out, format_args!(r#"{{"type":"kinds","from":{},"kinds":[{}]}}"#, self.written + 1, rows.join(",")));
        }
        out
    }
}

/// The batch made of a lane's records.
pub struct LaneLines {
    lane: u32,
    /// Type of its line.
    kind: &'static str,
    seq0: u64,
    seq: u64,
    events: u64,
    k: Vec<u8>,
    x: Vec<u8>,
    z: Vec<u8>,
    t: Vec<u8>,
    t0: u64,
    stamp_events: u64,
    stamp_ns: u64,
    tick_ns: u64,
    /// By owner modulo 8.
    last_of: [u64; 8],
    /// Allocations of the lane by its last COUNT record, and those that column `x` has told of; `None` where it tells of none.
    count: u64,
    counted: Option<u64>,
    allocs: u64,
    frees: u64,
    bytes: u64,
    live: i64,
    peak: i64,
    /// The old block of a realloc whose new one has not come, and its usable size.
    realloc: Option<(Address, u64)>,
    /// The latest instant that the lane knows of.
    pub latest: u64,
    pub callers: Callers,
}

impl LaneLines {
    /// Continues after what the drain has taken over. `ages`: column `x` says how often the lane had allocated.
    pub fn after(lane: u32, of: &Lane, tick_ns: u64, ages: bool) -> Self {
        let c = &of.commit;
        let realloc = match c.pend {
            Pending { what: 1, seq, usable, .. } => Some((Address::Own(seq), usable)),
            Pending { what: 2, lane, seq, usable } => Some((Address::Foreign(lane, seq), usable)),
            Pending { what: 3, seq, usable, .. } => Some((Address::Unknown(seq), usable)),
            _ => None,
        };
        let t0 = c.t0.max(c.stamp_ns);
        LaneLines {
            lane,
            kind: kind_of(of),
            seq0: c.seq,
            seq: c.seq,
            events: 0,
            k: Vec::new(),
            x: Vec::new(),
            z: Vec::new(),
            t: Vec::new(),
            t0,
            stamp_events: 0,
            stamp_ns: t0,
            tick_ns: tick_ns.max(1),
            last_of: [0; 8],
            count: c.count,
            counted: ages.then_some(0),
            allocs: 0,
            frees: 0,
            bytes: 0,
            live: c.live,
            peak: c.live,
            realloc,
            latest: t0,
            callers: Callers::after(lane, of),
        }
    }

    /// Number that the next allocation gets.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// What follows happened at or after `t`.
    pub fn stamp(&mut self, t: u64) {
        self.latest = self.latest.max(t);
        if self.events == 0 {
            self.t0 = self.t0.max(t);
            self.stamp_ns = self.t0;
            return;
        }
        let ticks = t.saturating_sub(self.stamp_ns) / self.tick_ns;
        if ticks > 0 {
            push_pair(&mut self.t, self.events - self.stamp_events.min(self.events), ticks);
            self.stamp_events = self.events;
            self.stamp_ns += ticks * self.tick_ns;
        }
    }

    /// The event before happened at the last stamp.
    pub fn stamped(&mut self) {
        if self.events > self.stamp_events {
            push_pair(&mut self.t, self.events - self.stamp_events, 0);
            self.stamp_events = self.events;
        }
    }

    /// A COUNT record.
    pub fn count(&mut self, low: u64) {
        self.count = record::allocs_of_count(low, self.count);
    }

    /// How often the lane had allocated, since the event before that said so.
    fn push_count(&mut self) {
        if let Some(counted) = &mut self.counted {
            push_v93(&mut self.x, self.count.wrapping_sub(*counted));
            *counted = self.count;
        }
    }

    /// An ALLOC record. Gives the block's number.
    pub fn allocate(&mut self, r: &Record, kinds: &mut KindRows) -> u64 {
        let func = r.op - op::ALLOC;
        let wide = r.arg & record::WIDE != 0;
        let (size, slack) = match wide {
            true => (r.args[0], r.args[1].saturating_sub(r.args[0])),
            false => (r.args[0] & ((1 << 40) - 1), r.args[0] >> 40),
        };
        let mut flags = (r.arg & record::KIND_FLAGS) as u8;
        let old = self.realloc.take();
        let replaces = flags as u64 & record::REPLACES != 0;
        // Of a realloc whose old block is no event only the new block is one.
        if replaces && matches!(old, None | Some((Address::Unrecorded, _))) {
            flags &= !(record::REPLACES as u8);
        }
        let number = match u32::try_from(slack) {
            Ok(slack) if size <= i64::MAX as u64 && !wide => kinds.number(size as i64, slack, func, flags),
            _ => {
                push_pair(&mut self.z, size, slack);
                kinds.number(-1, 0, func, flags)
            }
        };
        self.callers.note(self.events);
        push_v93(&mut self.k, number * 3);
        self.push_count();
        let seq = self.seq;
        self.seq = self.seq.wrapping_add(1);
        self.events += 1;
        self.allocs += 1;
        self.bytes = self.bytes.saturating_add(size);
        self.live = self.live.saturating_add_unsigned(size.saturating_add(slack));
        if flags as u64 & record::REPLACES != 0
            && let Some((address, usable)) = old
        {
            self.push_free(address, usable, false);
        }
        self.peak = self.peak.max(self.live);
        seq
    }

    /// A FREE record.
    pub fn free(&mut self, address: Address, usable: u64) {
        if address != Address::Unrecorded {
            self.events += 1;
            self.push_free(address, usable, true);
        }
    }

    /// `alone`: it follows no new block of a realloc, which tells how often the lane had allocated.
    fn push_free(&mut self, address: Address, usable: u64, alone: bool) {
        self.frees += 1;
        self.live = self.live.saturating_sub_unsigned(usable);
        match address {
            Address::Own(seq) if seq < self.seq && self.seq - seq < AGE_MAX => {
                push_v93(&mut self.k, (self.seq - seq) * 3 + 1);
                if alone {
                    self.push_count();
                }
            }
            Address::Foreign(owner, seq) => {
                push_v93(&mut self.k, 1);
                let last = &mut self.last_of[owner as usize % 8];
                push_pair(&mut self.x, owner as u64 + 1, zigzag(seq.wrapping_sub(*last) as i64));
                *last = seq;
            }
            Address::Own(_) | Address::Unknown(_) | Address::Unrecorded => {
                push_v93(&mut self.k, 1);
                push_v93(&mut self.x, 0);
                push_pair(&mut self.x, if let Address::Unknown(a) = address { a } else { 0 }, usable);
            }
        }
    }

    /// A REALLOC_FREE record: the old block ends if its new one follows, or a REALLOC_DONE. One begun before and left by a handler
    /// that jumped out ended its block, as far as one can tell.
    pub fn begin_realloc(&mut self, address: Address, usable: u64) {
        self.end_realloc();
        self.realloc = Some((address, usable));
    }

    /// A REALLOC_DONE record.
    pub fn end_realloc(&mut self) {
        if let Some((address, usable)) = self.realloc.take() {
            self.free(address, usable);
        }
    }

    /// An UNFREE record. Gives the block that stays.
    pub fn undo_realloc(&mut self) -> Option<(u32, u64)> {
        match self.realloc.take()? {
            (Address::Own(seq), _) => Some((self.lane, seq)),
            (Address::Foreign(owner, seq), _) => Some((owner, seq)),
            _ => None,
        }
    }

    /// The batch as a line, nothing where it is empty.
    pub fn write(&self, group: u64, end: u64, out: &mut Vec<u8>) {
        if self.events == 0 {
            return;
        }
        let text = |column: &[u8]| String::from_utf8_lossy(column).into_owned();
        push_line(
            out,
            format_args!(
                r#"{{"type":"{}","g":{group},"lane":{},"n":{},"seq":{},"t0":{},"t1":{},"t":"{}","k":"{}","x":"{}","z":"{}"{},"allocs":{},"frees":{},"bytes":{},"live":{},"peak":{}}}"#,
                self.kind,
                self.lane,
                self.events,
                self.seq0,
                self.t0,
                end.max(self.stamp_ns),
                text(&self.t),
                text(&self.k),
                text(&self.x),
                text(&self.z),
                self.callers.columns(),
                self.allocs,
                self.frees,
                self.bytes,
                self.live,
                self.peak
            ),
        );
    }
}

/// Type of a lane's batches.
fn kind_of(lane: &Lane) -> &'static str {
    if lane.python { "pyev" } else { "ev" }
}

/// The batch that the drain had built and not written, as a line; false where its columns can't be one.
pub fn write_pending(lane: u32, of: &Lane, group: u64, end: u64, out: &mut Vec<u8>) -> bool {
    let c = &of.commit;
    if c.events == 0 {
        return true;
    }
    let columns = [&of.t, &of.k, &of.x, &of.z, &of.s, &of.p];
    let whole = columns.iter().all(|column| {
        let mut decoder = v93::Decoder::new(column);
        decoder.by_ref().for_each(drop);
        decoder.rest().is_empty()
    });
    if !whole {
        return false;
    }
    let stacks = callers::keys(&of.s, &of.p);
    let [t, k, x, z, ..] = columns.map(|column| String::from_utf8_lossy(column));
    push_line(
        out,
        format_args!(
            r#"{{"type":"{}","g":{group},"lane":{lane},"n":{},"seq":{},"t0":{},"t1":{},"t":"{t}","k":"{k}","x":"{x}","z":"{z}"{stacks},"allocs":{},"frees":{},"bytes":{},"live":{},"peak":{}}}"#,
            kind_of(of),
            c.events,
            c.seq0,
            c.t0,
            end.max(c.stamp_ns),
            c.allocs,
            c.frees,
            c.bytes,
            c.live,
            c.peak
        ),
    );
    true
}
