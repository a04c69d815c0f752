//! Lines about the recording itself: lowered, ended, exec, end.

use super::{flush_side, live_names, stage, totals};
use crate::config::{CONFIG, COUNT, FAST, FULL};
use crate::follow::Next;
use crate::lane::LANES;
use crate::python_alloc;
use crate::sink::{self, SINK};
use crate::spool;
use crate::sys;
use crate::text::Text;
use core::sync::atomic::Ordering::*;
use memshim_format::spool::{Header, NO_BLOCK, ROWS, no_room};

/// Says what threads without a lane have in the totals only.
fn crowd() {
    let Some(i) = spool::crowd() else { return };
    // SAFETY: the crowd's lane exists.
    let (calls, lost) = unsafe {
        let lane = &*spool::lane(i);
        (lane.counts.iter().map(|c| c[0].load(Relaxed)).sum::<u64>(), lane.lost.load(Relaxed))
    };
    let mut b = [0u8; 640];
    let mut t = Text::over(&mut b);
    if lost > 0 {
        t.str("{\"type\":\"lost\"").field("t", sys::now()).field("lane", i as u64).field("n", lost);
        t.str(",\"why\":\"").str(spool::crowded(i)).str("\"}\n");
    }
    if calls > 0 {
        t.str("{\"type\":\"note\"").field("t", sys::now()).str(",\"what\":\"").str(spool::crowded(i)).str(": ").num(calls);
        t.str(" calls are in the totals only\"}\n");
    }
    sink::write(t.as_bytes());
}

/// Says which losses are of a disk that had no room, and how many records of no heap call had none.
fn without_room() {
    let (mut calls, mut rows) = (0, 0);
    for i in (0..LANES.load(Acquire)).filter(|i| !spool::is_python(*i) && Some(*i) != spool::crowd()) {
        // SAFETY: lanes below LANES exist.
        let lane = unsafe { &*spool::lane(i) };
        calls += lane.lost_by_disk.load(Relaxed);
        rows += lane.rows_lost.load(Relaxed);
    }
    // SAFETY: the header is there.
    let refused = unsafe { (*spool::header()).refused.load(Relaxed) };
    for (n, of) in [(calls, ""), (rows, ROWS)] {
        if n > 0 {
            let mut b = [0u8; 640];
            let mut t = Text::over(&mut b);
            t.str("{\"type\":\"lost\"").field("t", sys::now()).field("n", n);
            if !of.is_empty() {
                t.str(",\"what\":\"").str(of).str("\"");
            }
            t.str(",\"why\":\"").str(if refused == 0 { NO_BLOCK } else { no_room(refused) }).str("\"}\n");
            sink::write(t.as_bytes());
        }
    }
}

/// Says how many phases are not in the trace.
fn phases_left_out() {
    let n = crate::phases::left_out();
    if n > 0 {
        let mut b = [0u8; 256];
        let mut t = Text::over(&mut b);
        t.str("{\"type\":\"note\"").field("t", sys::now()).str(",\"what\":\"").num(n);
        t.str(" phases and marks came faster than 2,000 a second: they are not in the trace; MEMSHIM_MODE=full records all\"}\n");
        sink::write(t.as_bytes());
    }
}

/// Says what became of no rule for functions.
fn rules_of_functions() {
    let mut say = |rule: &[u8], what: &'static str| {
        let mut b = [0u8; 1024];
        let mut t = Text::over(&mut b);
        let mut text = [0u8; 512];
        let mut whole = Text::over(&mut text);
        whole.bytes(rule.get(..rule.len().min(256)).unwrap_or(b"")).str(what);
        t.str("{\"type\":\"note\"").field("t", sys::now()).str(",\"what\":").quoted(whole.as_bytes()).str("}\n");
        sink::write(t.as_bytes());
    };
    crate::phases::python::trouble(&mut say);
    crate::phases::symbol::trouble(&mut say);
}

/// Says how many edges of phases came when only totals were kept.
fn phases_untold() {
    let n = crate::phases::untold();
    if n > 0 {
        let mut b = [0u8; 256];
        let mut t = Text::over(&mut b);
        t.str("{\"type\":\"note\"").field("t", sys::now()).str(",\"what\":\"").num(n);
        t.str(" begins and ends of phases and marks are not in the trace: they came after its cap (MEMSHIM_MAX)\"}\n");
        sink::write(t.as_bytes());
    }
}

/// Writes the `end` line.
pub fn end(how: &str, code: Option<i32>) {
    live_names();
    flush_side();
    crowd();
    without_room();
    phases_left_out();
    phases_untold();
    rules_of_functions();
    let s = totals(false);
    let mut t = stage();
    t.str("{\"type\":\"end\"").field("t", sys::now()).str(",\"how\":\"").str(how).str("\",\"code\":");
    match code {
        Some(c) => t.int(c as i64),
        None => t.str("null"),
    };
    // SAFETY: the header is there; the lock is held.
    let h = unsafe { &*spool::header() };
    // SAFETY: settings are read-only.
    let recorded = if unsafe { CONFIG.mode } == FULL { h.recorded.load(Relaxed) } else { s.counted - s.lost.min(s.counted) };
    // What could not be written is lost too.
    let lost = if h.trouble.load(Relaxed) != 0 { s.counted - recorded.min(s.counted) } else { s.lost_beside(recorded) };
    t.field("counted", s.counted).field("recorded", recorded).field("lost", lost).field("failed", s.failed);
    t.field("unknown_frees", h.unknown_frees.load(Relaxed));
    // SAFETY: settings are read-only.
    if unsafe { CONFIG.python_alloc } {
        python(&mut t, h);
    }
    crate::snapshot::own(&mut t);
    t.str("}\n");
    sink::write(t.as_bytes());
}

/// What the end line says of Python's blocks.
fn python(t: &mut Text, h: &Header) {
    let s = totals(true);
    // SAFETY: settings are read-only.
    let recorded = if unsafe { CONFIG.mode } == FULL { h.python_recorded.load(Relaxed) } else { s.counted - s.lost.min(s.counted) };
    let lost = s.lost_beside(recorded) + python_alloc::missed();
    t.str(",\"python\":{\"wrapped\":").str(if python_alloc::are_wrapped() { "true" } else { "false" });
    t.field("counted", s.counted).field("recorded", recorded).field("lost", lost).field("failed", s.failed);
    t.field("unknown_frees", h.python_unknown_frees.load(Relaxed)).str("}");
}

/// Writes the line that says that this process is about to become another image.
pub fn exec(now: u64, next: &Next) {
    flush_side();
    let mut t = stage();
    // SAFETY: the lock is held.
    t.str("{\"type\":\"child\"").field("t", now).str(",\"how\":\"exec\"").field("pid", unsafe { SINK.me.0 } as u64);
    super::program(&mut t, next.name(), next.bare);
    t.str("}\n");
    sink::write(t.as_bytes());
}

/// Writes the line that says that recording was lowered, because the trace neared its cap.
pub fn mode_lowered(mode: u32) {
    let mut b = [0u8; 256];
    let mut t = Text::over(&mut b);
    t.str("{\"type\":\"mode\"").field("t", sys::now()).str(",\"mode\":\"").str(if mode == FAST { "fast" } else { "count" });
    t.str("\",\"why\":\"the trace reached ").str(if mode == FAST { "three quarters of " } else { "" }).str("MEMSHIM_MAX\"");
    // SAFETY: settings are read-only.
    t.field("max", unsafe { CONFIG.max });
    if mode == COUNT {
        t.field("whole", whole());
    }
    t.str("}\n");
    sink::write(t.as_bytes());
}

/// Until when every event is in the trace, where what was read since cannot be written.
fn whole() -> u64 {
    // SAFETY: the header is there once anything is recorded.
    unsafe { (*spool::header()).whole_ns.load(Relaxed) }
}

/// Writes the line that says that recording was lowered to totals, because the trace could not be written.
pub fn writing_ended(errno: i32) {
    super::mode("count", &["the trace could not be written any more: ", sink::reason(errno)], errno, Some(whole()));
}
