//! Records about stacks: nodes and definitions become lines of their own, the stack of each allocation a pair of a column where it changes.

use crate::lines;
use memshim_format::record::{self, TEXT_BYTES, op};
use memshim_format::spool::*;
use memshim_format::v93;

/// Takes a record about stacks.
///
/// # Safety
/// The record is whole; the lock is held.
pub(super) unsafe fn take(i: u32, lane: *mut Lane, c: &mut Commit, w: u64, words: *const u64) {
    // SAFETY: the caller's record and lane.
    unsafe {
        let arg = |i: usize| *words.add(i);
        match record::op_of(w) {
            op::STACK => c.stacks.now = w,
            op::NODE => {
                put_node(i, lane, c, 0, record::low_of(w) as u32, arg(1) as u32, |of| {
                    let delta = v93::zigzag(arg(2).wrapping_sub(of.last) as i64);
                    of.last = arg(2);
                    [delta, u64::MAX]
                });
            }
            op::PYNODE => {
                put_node(i, lane, c, 1, record::low_of(w) as u32, arg(1) as u32, |_| [arg(2) >> 32, arg(2) & 0xffff_ffff]);
            }
            op::CODE => {
                let s = &mut c.stacks;
                (s.d_len, s.d_version, s.d_number, s.d_parts) = (0, record::arg_of(w) as u32, record::low_of(w), arg(1));
                end_definition(lane, c);
            }
            _ => {
                let n = (record::low_of(w) as usize).min(TEXT_BYTES);
                let texts = &mut (*lane).d;
                for k in 0..n {
                    let Some(place) = texts.get_mut(c.stacks.d_len as usize) else { break };
                    *place = (arg(1 + k / 7) >> (8 * (k % 7))) as u8;
                    c.stacks.d_len += 1;
                }
                end_definition(lane, c);
            }
        }
    }
}

/// Adds a node to those pending: n − parent, then what the frame is (`u64::MAX`: no number).
unsafe fn put_node(
    i: u32,
    lane: *mut Lane,
    c: &mut Commit,
    which: usize,
    number: u32,
    parent: u32,
    frame: impl FnOnce(&mut Nodes) -> [u64; 2],
) {
    // SAFETY: which is 0 or 1; the lock is held.
    unsafe {
        let of = &mut c.stacks.nodes[which & 1];
        if of.count > 0 && number != of.from.wrapping_add(of.count) || of.len as usize + 3 * v93::MAX_LEN > N_CAP {
            lines::nodes(i, lane, c, which & 1);
        }
        let of = &mut c.stacks.nodes[which & 1];
        if of.count == 0 {
            (of.from, of.last) = (number, 0);
        }
        of.count += 1;
        let frame = frame(of);
        let column = (&raw mut (*lane).nodes[which & 1]).cast::<u8>();
        for v in [number.wrapping_sub(parent) as u64].into_iter().chain(frame) {
            if v != u64::MAX {
                of.len += v93::put(column.add(of.len as usize), v) as u32;
            }
        }
    }
}

/// Writes the definition being read if all of it is there.
unsafe fn end_definition(lane: *mut Lane, c: &mut Commit) {
    let s = &mut c.stacks;
    let (first_line, lens) = record::parts_of_code(s.d_parts);
    if s.d_number != 0 && s.d_len as usize >= lens.iter().sum() {
        // SAFETY: so many bytes of the lane's are the texts; the lock is held.
        unsafe { lines::code(&(*lane).d, s.d_number, s.d_version, first_line, lens) };
        (s.d_len, s.d_number) = (0, 0);
    }
}

/// Notes in the columns that the stack is another one than before. Before an allocation is put into the batch.
///
/// # Safety
/// The lock is held; the columns have room.
#[cold]
#[inline(never)]
pub(super) unsafe fn note(lane: *mut Lane, c: &mut Commit) {
    let s = &mut c.stacks;
    let (now, was) = (record::nodes_of(s.now), record::nodes_of(s.written));
    s.written = s.now;
    // SAFETY: room was left.
    unsafe {
        if now.0 != was.0 {
            let column = (&raw mut (*lane).s).cast::<u8>();
            s.s_len += v93::put(column.add(s.s_len as usize), (c.events - s.s_events) as u64) as u32;
            s.s_len += v93::put(column.add(s.s_len as usize), now.0 as u64) as u32;
            s.s_events = c.events;
        }
        if now.1 != was.1 {
            let column = (&raw mut (*lane).p).cast::<u8>();
            s.p_len += v93::put(column.add(s.p_len as usize), (c.events - s.p_events) as u64) as u32;
            s.p_len += v93::put(column.add(s.p_len as usize), now.1 as u64) as u32;
            s.p_events = c.events;
        }
    }
}
