//! Groups of batches: what is pending in all lanes, written together, with the kinds it needs.

use super::{flush_side, stage};
use crate::lane::LANES;
use crate::sink;
use crate::spool;
use crate::text::Text;
use crate::{drain, kinds, share, sys, writer};
use core::sync::atomic::Ordering::*;
use memshim_format::spool::{Commit, Header, LANE, Lane};

/// Writes everything that is pending: kinds, side lines, and the batches of all lanes as one group.
pub fn flush_group() {
    // SAFETY: the lock is held.
    unsafe {
        let h = spool::header();
        flush_kinds(h);
        pending_nodes();
        flush_side();
        let group = (*h).group.load(Relaxed);
        let mut t = stage();
        let mut staged_from = 0;
        let mut any = false;
        let mut good = sink::is_writing();
        let now = sys::now();
        let mut whole = Whole { until: drain::read_before(now), told: [LANES.load(Acquire) < 2; 2] };
        for i in 0..LANES.load(Acquire) {
            let lane = spool::lane(i);
            let c = &spool::committed(lane);
            if c.events == 0 {
                continue;
            }
            if t.room() < LANE + 1024 {
                good &= written(&mut t, staged_from, i);
                staged_from = i;
            }
            batch(&mut t, group, i, lane, c, now, &mut whole);
            any = true;
        }
        if any {
            good &= written(&mut t, staged_from, LANES.load(Acquire));
            (*h).group.store(group + 1, Release);
        }
        if good {
            (*h).whole_ns.store(whole.until, Relaxed);
        }
        // One that is busy does not sleep, and is interrupted meanwhile.
        if any && writer::alive() && drain::LOCK.load(Relaxed) == writer::tid() {
            share::writer_notes(false);
        }
        sink::lower_near_cap();
    }
}

/// Before which instant the trace has everything, with a group; of one lane that goes without saying.
struct Whole {
    until: u64,
    /// Whether a line of the group says so already: of the heap, and of Python's blocks.
    told: [bool; 2],
}

/// Nodes go before the batches that use them.
unsafe fn pending_nodes() {
    for i in 0..LANES.load(Acquire) {
        // SAFETY: the lane is below LANES; the lock is held.
        unsafe {
            let lane = spool::lane(i);
            let mut c = spool::committed(lane);
            if c.stacks.nodes[0].count | c.stacks.nodes[1].count != 0 {
                super::nodes(i, lane, &mut c, 0);
                super::nodes(i, lane, &mut c, 1);
                drain::commit(lane, &c);
            }
        }
    }
}

/// Writes the staged batches of lanes `from..to` and starts these anew. False: they are not in the trace.
unsafe fn written(t: &mut Text, from: u32, to: u32) -> bool {
    // What the cap leaves out is no failure, and not recorded.
    let good = sink::is_writing() && sink::write(t.as_bytes()) && sink::is_writing();
    t.clear();
    for i in from..to {
        if good {
            // SAFETY: the lane is below LANES; the lock is held.
            unsafe {
                let lane = spool::lane(i);
                let events = spool::committed(lane).events;
                super::recorded(lane).fetch_add(events as u64, Relaxed);
            }
        }
        drain::restart_batch(i);
    }
    good
}

/// Forgets what is pending: it is of what a cap leaves out, and would stand after a gap.
pub fn drop_pending() {
    // SAFETY: the lock is held.
    unsafe { (*spool::header()).side_len.store(0, Release) };
}

unsafe fn batch(t: &mut Text, group: u64, i: u32, lane: *mut Lane, c: &Commit, now: u64, whole: &mut Whole) {
    // SAFETY: the columns hold the bytes that the commit says.
    let column = |p: *const u8, n: u32| unsafe { core::slice::from_raw_parts(p, n as usize) };
    // SAFETY: as above.
    let (k, x, z, ts) = unsafe {
        (
            column((&raw const (*lane).k).cast(), c.k_len),
            column((&raw const (*lane).x).cast(), c.x_len),
            column((&raw const (*lane).z).cast(), c.z_len),
            column((&raw const (*lane).t).cast(), c.t_len),
        )
    };
    t.str(if spool::is_python(i) { "{\"type\":\"pyev\"" } else { "{\"type\":\"ev\"" })
        .field("g", group)
        .field("lane", i as u64)
        .field("n", c.events as u64)
        .field("seq", c.seq0);
    t.field("t0", c.t0).field("t1", drain::read_until(i, now).max(c.stamp_ns));
    if let Some(told) = whole.told.get_mut(spool::is_python(i) as usize)
        && !core::mem::replace(told, true)
    {
        t.field("whole", whole.until);
    }
    t.str(",\"t\":\"").bytes(ts).str("\",\"k\":\"").bytes(k).str("\"");
    // SAFETY: as above.
    let (s, p) = unsafe { (column((&raw const (*lane).s).cast(), c.stacks.s_len), column((&raw const (*lane).p).cast(), c.stacks.p_len)) };
    for (name, column) in [("x", x), ("s", s), ("p", p)] {
        if !column.is_empty() {
            t.str(",\"").str(name).str("\":\"").bytes(column).str("\"");
        }
    }
    if !z.is_empty() {
        t.str(",\"z\":\"").bytes(z).str("\"");
    }
    t.field("allocs", c.allocs as u64).field("frees", c.frees as u64).field("bytes", c.bytes).signed("live", c.live).signed("peak", c.peak);
    t.str("}\n");
}

unsafe fn flush_kinds(h: *mut Header) {
    // SAFETY: rows below count exist; the lock is held.
    unsafe {
        let count = kinds::KINDS.count();
        let mut from = (*h).kinds_written.load(Relaxed);
        while from < count {
            let mut t = stage();
            let upto = count.min(from + 4000);
            t.str("{\"type\":\"kinds\"").field("from", from as u64 + 1).str(",\"kinds\":[");
            for i in from..upto {
                let k = spool::kind(i as usize).read();
                t.str(if i > from { ",[" } else { "[" }).num(k.func as u64).str(",").int(k.size).str(",").num(k.slack as u64);
                t.str(",").num(k.flags as u64).str("]");
            }
            t.str("]}\n");
            sink::write(t.as_bytes());
            from = upto;
            (*h).kinds_written.store(from, Release);
        }
    }
}
