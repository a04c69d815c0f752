//! A GPU record as a row of a `gpu` line.

use crate::text::Text;
use memshim_format::gpu::{self, CALLS, KINDS};
use memshim_format::record::{self, op};

/// Whether the record is one.
pub fn is_gpu(w: u64) -> bool {
    (op::GPU..=op::GPU_LAST).contains(&record::op_of(w))
}

/// Writes the line, up to the end of its row.
///
/// # Safety
/// The record is whole.
pub unsafe fn write(t: &mut Text, lane: u32, w: u64, words: *const u64) {
    let number = (record::op_of(w) - op::GPU) as usize;
    let Some(kind) = KINDS.get(number) else { return };
    // SAFETY: the record is whole: its kind says how many words it has.
    let word = |i: usize| unsafe { *words.add(i) };
    t.str("{\"type\":\"gpu\",\"ev\":[[\"").str(kind.name).str("\",");
    if number == gpu::kind::NAME as usize {
        let (mut text, all) = ([0u8; 49], [1, 2, 3, 4, 5, 6, 7].map(word));
        let n = gpu::text(&all, &mut text);
        t.num(record::arg_of(w)).str(",").num(record::low_of(w)).str(",").quoted(text.get(..n).unwrap_or(b""));
    } else {
        let call = CALLS.get(record::arg_of(w) as usize).copied().unwrap_or("");
        t.str("\"").str(call).str("\",").num(record::low_of(w)).str(",").num(word(1)).str(",").num(lane as u64);
        for part in gpu::parts(word(2)) {
            t.str(",").num(part);
        }
        for i in 0..kind.words {
            t.str(",").num(word(3 + i));
        }
    }
}
