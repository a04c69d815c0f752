//! How many bytes of arguments a caller may have put on the stack. Nothing says so; but they lie in its own frame, whose end its unwind
//! rule tells. Where there is no such rule, a fixed number, as far as the stack is readable.

use super::thunk::Frame;
use crate::sys::PAGE;
use crate::unwind::cache::Cache;
use crate::unwind::eh_frame;
use crate::unwind::modules;
use crate::unwind::reach::readable;
use crate::unwind::row::Scratch;
use crate::unwind::rule::{Kind, Rule};
use core::mem::MaybeUninit;

/// Most that are copied; on a stack of which it is not known how much is left less than a page, so that its guard is not stepped over.
const MOST: u64 = 16 << 10;
const MOST_THERE: u64 = 3840;
/// Of a caller of whose frame nothing is known.
const UNKNOWN: u64 = 512;

/// What a thread knows of callers. All zero is ready.
pub struct Rows {
    /// Of loaded objects that the cache is of, plus one.
    generation: u64,
    cache: Cache,
    scratch: MaybeUninit<Scratch>,
}

/// Bytes to be copied for a call, a multiple of 16; None: more than may be. `own`: on the thread's own stack.
///
/// # Safety
/// `rows` are this thread's; the frame is a body's.
pub unsafe fn bytes(rows: *mut Rows, frame: *const Frame, own: bool) -> Option<u64> {
    // SAFETY: the caller's promise.
    unsafe {
        let from = &raw const (*frame).arguments as u64;
        let (bp, place) = ((*frame).bp, (*frame).back.wrapping_sub(1));
        let rule = (*rows).rule(place);
        let end = match rule.kind() {
            Kind::Sp => Some(from.wrapping_add(rule.cfa() as u64)),
            Kind::Bp => Some(bp.wrapping_add(rule.cfa() as u64)),
            Kind::Deref => {
                let at = bp.wrapping_add(rule.cfa() as u64);
                readable(at).then(|| (at as *const u64).read_unaligned())
            }
            _ => None,
        };
        // The last word of a frame is where its function returns to.
        match end.map(|end| end.wrapping_sub(8)).filter(|end| *end >= from && end & 7 == 0) {
            Some(end) if end - from <= if own { MOST } else { MOST_THERE } => Some((end - from + 15) & !15),
            Some(_) => None,
            None => Some(unknown(from)),
        }
    }
}

/// As much of a stack as can be read.
#[cold]
#[inline(never)]
fn unknown(from: u64) -> u64 {
    let behind = (from & !(PAGE - 1)) + PAGE;
    let all = from + UNKNOWN <= behind || readable(behind);
    if !readable(from) {
        0
    } else if all {
        UNKNOWN
    } else {
        (behind - from) & !15
    }
}

impl Rows {
    fn rule(&mut self, place: u64) -> Rule {
        let generation = modules::generation().wrapping_add(1);
        if self.generation != generation {
            self.cache.clear();
            self.generation = generation;
        }
        match self.cache.get(place) {
            Some(rule) => rule,
            None => self.make(place),
        }
    }

    #[cold]
    #[inline(never)]
    fn make(&mut self, place: u64) -> Rule {
        let Some(tables) = modules::find(place) else { return Rule::NONE };
        // SAFETY: memory for rows, which are written before they are read.
        let scratch = unsafe { self.scratch.assume_init_mut() };
        let rule = eh_frame::find(&tables, place as usize, scratch).map_or(Rule::NONE, |(row, signal)| Rule::of(row, signal));
        self.cache.put(place, rule);
        rule
    }
}
