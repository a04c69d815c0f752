//! The stack of a thread's last event, and what must still stand in memory for its outer part to be unchanged.
//!
//! State (pc, sp, rbp) determines the rule, and the rule where the caller's pc, sp and rbp are found. So when a frame of the new walk
//! equals a remembered one, and every slot that the walk outwards of it read still holds what it held, then by induction everything
//! outwards is as it was. The slots are [`Check`]s: independent loads, each of a word that the walk itself would read. rbp is
//! compared only where an outer CFA is made of it: between two calls of a function it is often just a variable.
//!
//! Both lists grow towards their beginning, so that what is outwards stays where it is; indices count from there.

use super::rule::{Kind, Rule, context};

/// The most frames of a stack.
pub const LIMIT: usize = 256;
/// What is kept of a longer one: enough to be told, and room to go deeper before it is cut again, as each cut gives all nodes new parents.
pub const KEPT: usize = 192;
/// A cut stack that has come back up to so few frames is walked anew.
pub const FEWEST: usize = 96;

/// A frame as a walk finds it.
#[derive(Clone, Copy)]
pub struct Fresh {
    pub sp: u64,
    pub bp: u64,
    /// Its pc << 1 | whether that is exact.
    pub at: u64,
    pub rule: Rule,
}

/// A remembered frame.
#[derive(Clone, Copy)]
pub struct Frame {
    pub is: Fresh,
    pub node: u32,
    /// How many checks there are of all that is outwards of it.
    checks: u16,
    /// An outer CFA is made of this rbp.
    bp_matters: bool,
}

impl Frame {
    /// Outwards of all stacks: nothing is like it, and nothing outwards of it.
    const END: Frame = Frame { is: Fresh { sp: u64::MAX, bp: 0, at: 0, rule: Rule::NONE }, node: 0, checks: 0, bp_matters: false };

    /// Whether a walk that has come to `f` has come to this frame.
    #[inline(always)]
    pub fn is_like(&self, f: &Fresh) -> bool {
        self.is.sp == f.sp && self.is.at == f.at && (self.is.bp == f.bp || !self.bp_matters)
    }
}

/// A word that a walk read.
#[derive(Clone, Copy)]
struct Check {
    at: u64,
    value: u64,
}

/// The most checks of a frame: a signal's.
const MOST: usize = 3;
const CHECKS: usize = MOST * LIMIT + 1;

/// A list of checks that is being written, from its end on.
struct Checks<'a> {
    held: &'a mut [Check; CHECKS],
    count: usize,
}

impl Checks<'_> {
    #[inline(always)]
    fn put(&mut self, at: u64, value: u64) {
        self.count += 1;
        // SAFETY: there is room for MOST of each frame, and one that is the stop's; frames are at most LIMIT.
        unsafe { *self.held.get_unchecked_mut(CHECKS.wrapping_sub(self.count)) = Check { at, value } };
    }
}

/// The word at which a walk ended beyond its outermost frame: where, and what stood there. At 0: there was none.
pub type Stop = (u64, u64);

/// To be begun with [`Memory::forget`].
pub struct Memory {
    frames: [Frame; LIMIT + 1],
    checks: [Check; CHECKS],
    /// Index of the innermost frame; [`LIMIT`] where there is none.
    first: usize,
    /// The remembered stack was cut at the limit.
    pub cut: bool,
    /// A word that never holds what is expected of it.
    never: u64,
}

impl Memory {
    pub fn forget(&mut self) {
        let [.., end] = &mut self.frames;
        *end = Frame::END;
        (self.first, self.cut) = (LIMIT, false);
    }

    /// Index of the innermost frame.
    #[inline(always)]
    pub fn first(&self) -> usize {
        self.first
    }

    /// The frame at an index; one outwards of all others at [`LIMIT`], where indices end.
    #[inline(always)]
    pub fn get(&self, i: usize) -> &Frame {
        debug_assert!(i <= LIMIT);
        // SAFETY: there is one more than LIMIT. Indices begin with `first`, which is never more, and are counted up only to a frame that is
        // outwards of another, which the last is not of any.
        unsafe { self.frames.get_unchecked(i) }
    }

    /// Whether all outwards of frame `i` is as it was; else the frame up to which it is.
    ///
    /// # Safety
    /// The words of the checks can be read.
    #[inline(always)]
    pub unsafe fn verify(&self, i: usize) -> Result<(), usize> {
        let mut left = self.get(i).checks as usize;
        // SAFETY: so many are written, at the end of the list; the caller's promise.
        let differs = |left: usize| unsafe {
            let c = self.checks.get_unchecked(CHECKS - left);
            (c.at as *const u64).read_volatile() != c.value
        };
        while left >= 8 {
            let some = |left: usize| differs(left) || differs(left - 1) || differs(left - 2) || differs(left - 3);
            if some(left) || some(left - 4) {
                break;
            }
            left -= 8;
        }
        while left > 0 {
            if differs(left) {
                return Err(self.frame_of(i, left));
            }
            left -= 1;
        }
        Ok(())
    }

    /// The frame whose step outwards reads the check that is number `left` from the outermost: those of a step come behind those of the
    /// frames outwards of it.
    #[cold]
    #[inline(never)]
    fn frame_of(&self, mut i: usize, left: usize) -> usize {
        while i < LIMIT && self.get(i + 1).checks as usize >= left {
            i += 1;
        }
        i
    }

    /// Replaces what is inside of frame `outer` by `fresh` frames, the last of which is called by it; `node` tells their nodes, from
    /// `parent` on. Returns the node of the first. `stop`: the word at which the walk ended, where nothing is outwards.
    ///
    /// # Safety
    /// `outer` ≤ [`LIMIT`], and there is room: not more than `outer` frames are fresh.
    #[inline(always)]
    pub unsafe fn renew(
        &mut self,
        mut outer: usize,
        fresh: &[Fresh],
        mut parent: u32,
        stop: Stop,
        mut node: impl FnMut(u32, u64) -> u32,
    ) -> u32 {
        let never = &raw const self.never as u64;
        let Memory { frames, checks, .. } = self;
        // SAFETY: the caller's promise.
        let mut o = unsafe { *frames.get_unchecked(outer) };
        let mut c = Checks { held: checks, count: o.checks as usize };
        if outer == LIMIT && stop.0 != 0 {
            c.put(stop.0, stop.1);
        }
        for f in fresh.iter().rev() {
            let rule = f.rule;
            let matters;
            if rule.is_plain() {
                matters = rule.is_by_bp() || !rule.saves_bp() && o.bp_matters;
                if outer < LIMIT {
                    c.put(o.is.sp.wrapping_sub(8), o.is.at >> 1);
                    if o.bp_matters && rule.saves_bp() {
                        c.put(o.is.sp.wrapping_add(rule.bp() as u64), o.is.bp);
                    }
                }
            } else {
                let kind = rule.kind();
                matters = matches!(kind, Kind::Deref | Kind::Slow);
                match kind {
                    _ if outer == LIMIT => {}
                    Kind::Deref => {
                        c.put(o.is.sp.wrapping_sub(8), o.is.at >> 1);
                        c.put(f.bp.wrapping_add(rule.cfa() as u64), o.is.sp);
                        if rule.saves_bp() && o.bp_matters {
                            c.put(f.bp.wrapping_add(rule.bp() as u64), o.is.bp);
                        }
                    }
                    Kind::Signal => {
                        c.put(f.sp.wrapping_add(context::RSP), o.is.sp);
                        c.put(f.sp.wrapping_add(context::RIP), o.is.at >> 1);
                        if o.bp_matters {
                            c.put(f.sp.wrapping_add(context::RBP), o.is.bp);
                        }
                    }
                    // By registers that are not remembered.
                    _ => c.put(never, 1),
                }
            }
            parent = node(parent, f.at);
            o = Frame { is: *f, node: parent, checks: c.count as u16, bp_matters: matters };
            outer = outer.wrapping_sub(1);
            // SAFETY: there is room, by the caller's promise.
            unsafe { *frames.get_unchecked_mut(outer) = o };
        }
        self.first = outer;
        parent
    }
}
