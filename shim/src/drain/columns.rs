//! The columns of a lane's pending batch: how an event is written ([`memshim_format::v93`]).

use crate::config::tells_ages;
use memshim_format::spool::*;
use memshim_format::v93;

/// Records that the columns of a lane have room for, whatever they are. The longest: a realloc of a raw kind with a foreign old block, in the
/// place of a foreign block whose end was not seen, takes up to six numbers of `k` or `x` and two of `z`, `s` and `p`; a stamp two of `t`.
#[inline(always)]
pub(super) fn room(c: &Commit) -> usize {
    let k = (K_CAP - c.k_len as usize) / (6 * v93::MAX_LEN);
    let x = (X_CAP - c.x_len as usize) / (6 * v93::MAX_LEN);
    let z = (Z_CAP - c.z_len as usize) / (2 * v93::MAX_LEN);
    let s = (S_CAP - c.stacks.s_len as usize) / (2 * v93::MAX_LEN);
    let p = (P_CAP - c.stacks.p_len as usize) / (2 * v93::MAX_LEN);
    let t = (T_CAP - c.t_len as usize) / (2 * v93::MAX_LEN);
    k.min(x).min(z).min(s).min(p).min(t)
}

#[inline(always)]
pub(super) unsafe fn put_k(lane: *mut Lane, c: &mut Commit, code: u64) {
    // SAFETY: lines_full left room.
    unsafe { c.k_len += v93::put((*lane).k.as_mut_ptr().add(c.k_len as usize), code) as u32 };
}

#[inline(always)]
pub(super) unsafe fn put_x(lane: *mut Lane, c: &mut Commit, v: u64) {
    // SAFETY: lines_full left room.
    unsafe { c.x_len += v93::put((*lane).x.as_mut_ptr().add(c.x_len as usize), v) as u32 };
}

/// An allocation of kind `n`; with size and slack of its own where the kind says none.
#[inline(always)]
pub(super) unsafe fn put_alloc(lane: *mut Lane, c: &mut Commit, n: u32, own: Option<(u64, u64)>) {
    // SAFETY: room was left.
    unsafe {
        put_k(lane, c, n as u64 * 3);
        if let Some((size, slack)) = own {
            let z = (*lane).z.as_mut_ptr();
            c.z_len += v93::put(z.add(c.z_len as usize), size) as u32;
            c.z_len += v93::put(z.add(c.z_len as usize), slack) as u32;
        }
    }
}

#[inline(always)]
pub(super) unsafe fn put_own_free(lane: *mut Lane, c: &mut Commit, seq: u64) {
    let age = c.seq - seq;
    let delta = seq as i64 - c.prev as i64;
    let code = if age > 40 && delta != 0 && (-20..=20).contains(&delta) { v93::zigzag(delta) * 3 + 2 } else { age * 3 + 1 };
    c.prev = seq;
    // SAFETY: the lock is held.
    unsafe { put_k(lane, c, code) };
}

/// Fast mode: how often the lane has allocated, since the event before that said so.
#[inline(always)]
pub(super) unsafe fn put_count(lane: *mut Lane, c: &mut Commit) {
    if tells_ages() {
        // SAFETY: room was left.
        unsafe { put_x(lane, c, c.count.wrapping_sub(c.counted)) };
        c.counted = c.count;
    }
}

pub(super) unsafe fn put_foreign_free(lane: *mut Lane, c: &mut Commit, owner: u32, seq: u64) {
    // SAFETY: the lock is held.
    unsafe {
        put_k(lane, c, 1);
        put_x(lane, c, owner as u64 + 1);
        let last = &mut c.x_last[owner as usize & 7];
        let v = v93::zigzag(seq as i64 - *last as i64);
        *last = seq;
        put_x(lane, c, v);
    }
}
