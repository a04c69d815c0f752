//! Lines about phases: edges with their place among the events of their lane, and names.

use super::side;
use crate::spool;
use core::sync::atomic::Ordering::*;
use memshim_format::phase::{self, OF_DOMAIN, SOURCES, WHATS};
use memshim_format::record::{self, op};
use memshim_format::v93;

/// A PHASE or PHASE_NAME record of lane `i`, before event `at` of its batch and allocation `seq` of the lane.
///
/// # Safety
/// The record is whole; the lock is held.
pub unsafe fn phase(i: u32, at: u32, seq: u64, w: u64, words: *const u64) {
    let (arg, low) = (record::arg_of(w), record::low_of(w));
    // SAFETY: the record is whole: its op says how many words it has.
    let word = |n: usize| unsafe { *words.add(n) };
    if record::op_of(w) == op::PHASE_NAME {
        let (mut text, all) = ([0u8; 49], [1, 2, 3, 4, 5, 6, 7].map(word));
        let n = memshim_format::gpu::text(&all, &mut text);
        return side(|t| {
            t.str(if arg & OF_DOMAIN != 0 { "{\"type\":\"phase\",\"ev\":[[\"domain\"," } else { "{\"type\":\"phase\",\"ev\":[[\"name\"," });
            t.num(low).str(",").num(arg & (OF_DOMAIN - 1)).str(",").quoted(text.get(..n).unwrap_or(b"")).str("]]}\n");
        });
    }
    let (what, source, moved) = phase::parts(arg);
    // SAFETY: the lock is held.
    let group = unsafe { (*spool::header()).group.load(Relaxed) };
    let text = |of: &[&'static str], n: u64| of.get(n as usize).copied().unwrap_or("");
    side(|t| {
        t.str("{\"type\":\"phase\",\"ev\":[[\"").str(text(&WHATS, what)).str("\",").num(word(1)).str(",").num(i as u64);
        t.str(",").num(group).str(",").num(at as u64).str(",").num(seq).str(",\"").str(text(&SOURCES, source)).str("\"");
        t.str(",").num(low).str(",").num(word(2)).str(",").int(v93::unzigzag(word(3)));
        let (faults, switches) = (word(5), word(6));
        for n in [word(4), faults >> 32, faults & 0xffff_ffff, switches >> 32, switches & 0xffff_ffff] {
            t.str(",").num(n);
        }
        if moved {
            t.str(",").num(word(7)).str(",").num(word(8));
        }
        t.str("]]}\n");
    });
}
