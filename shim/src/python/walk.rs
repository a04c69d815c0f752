//! The walk along this thread's frames, and what is remembered of the last one.
//!
//! Why reusing is sound: nothing is taken on trust. The chain is followed from the innermost frame by the interpreter's own pointers every
//! time, and of each frame its address, code object, instruction and stamp (and from where it was entered) are compared with what was
//! remembered at that place; only a remembered *node* is reused, and only while everything outside of the frame, up to the end of the
//! chain, was the same. An address that another frame has now, or a frame that went on, differs in one of these. Remembered addresses are
//! never followed.
//!
//! The stamp is there because a code object can have its predecessor's address, and a loop that compiles and runs source puts it there,
//! with its frame, every time. From 3.12 on a code object has a version number, given once. Before, the stamp is only where the line table
//! lies, which may be the same, too; so code of the kinds that come and go is looked up by content at every walk.

use super::codes::{self, Definition, Text};
use super::frame::*;
use super::interpreter::Interpreter;
use super::layout::{Layout, NONE};
use super::thread::{Ground, plausible, read};

/// Frames that are remembered. From 3.12 on the shim frames of C calls count as well.
pub const DEPTH: usize = 256;
/// Deeper stacks lose outer frames by so many at once, so that the next call does not shift all others.
const STEP: usize = 64;
/// Frames are not counted beyond.
const COUNTED: usize = 1 << 14;

/// Node of code 0: outer frames beyond the depth limit, or beyond a frame that made no sense; a frame whose code object has no number; a run of
/// the loop that runs no frame of the program's.
const TRUNCATED: u32 = 0;
const BROKEN: u32 = 2;
const NUMBERLESS: u32 = 4;
const RUNS_NONE: u32 = 6;

/// Who is told of a walk: see [`super`].
pub trait Told {
    fn node(&mut self, parent: u32, code: u32, at: u32, spot: &Spot) -> u32;
    fn define(&mut self, definition: &Definition) -> bool;
}

impl<N: FnMut(u32, u32, u32, &Spot) -> u32, D: FnMut(&Definition) -> bool> Told for (N, D) {
    #[inline(always)]
    fn node(&mut self, parent: u32, code: u32, at: u32, spot: &Spot) -> u32 {
        (self.0)(parent, code, at, spot)
    }

    #[inline(always)]
    fn define(&mut self, definition: &Definition) -> bool {
        (self.1)(definition)
    }
}

/// Where a frame is: for the one who has to say its line.
pub struct Spot<'a> {
    i: &'a Interpreter,
    code: u64,
    index: u32,
}

impl Spot<'_> {
    /// Its line, as a node says it.
    ///
    /// # Safety
    /// The walk that gave it is under way, and its code object has a number.
    pub unsafe fn line_said(&self) -> u32 {
        // SAFETY: the caller's promise: a frame keeps the code object alive.
        unsafe { codes::line_said(self.i, self.code, self.index) }
    }
}

/// What is remembered of a thread's Python stack. All zero is a good beginning.
#[repr(C)]
pub struct Python {
    /// Stands before the first frame and is like none.
    outside: Frame,
    /// Outermost first.
    frames: [Frame; DEPTH],
    len: usize,
    /// First frame that is not among them, 0: the chain ended. Only compared.
    beyond: u64,
    /// How many frames were left out there.
    dropped: usize,
    /// Which of the frames run code that comes and goes, a bit each.
    passing: [u64; DEPTH / 64],
    /// Node of the mark for those left out, 0 none.
    root: u32,
    /// Innermost first, while a walk is under way.
    fresh: [Frame; DEPTH],
    /// Code object of the last shim frame.
    shim: u64,
    pub(super) ground: Ground,
    text: Text,
}

impl Python {
    /// Forgets all: nodes that were given are no longer known.
    pub fn forget(&mut self) {
        self.len = 0;
        self.beyond = 0;
        self.dropped = 0;
    }

    /// Walks from the frame `top`.
    ///
    /// # Safety
    /// `top` is this thread's innermost frame, or 0.
    #[inline(always)]
    pub(super) unsafe fn walk<const KIND: u8>(&mut self, i: &Interpreter, top: u64, told: &mut impl Told) -> u32 {
        if top == 0 {
            return 0;
        }
        // SAFETY: the thread's own chain; indices stay below the lengths.
        unsafe {
            let frames = (&raw mut self.frames).cast::<Frame>();
            let last = frames.add(self.len).sub(1);
            let (r, f) = same::<KIND>(&i.layout, last, top);
            if r < frames && f == self.beyond && self.len > 0 && (KIND >= FRAMES || self.passing_is_there(i, self.len, told)) {
                return (*last).node;
            }
            self.rejoin::<KIND>(i, top, told)
        }
    }

    /// A walk of which something is new.
    #[inline(never)]
    unsafe fn rejoin<const KIND: u8>(&mut self, i: &Interpreter, top: u64, told: &mut impl Told) -> u32 {
        let l = &i.layout;
        let frames = (&raw mut self.frames).cast::<Frame>();
        // SAFETY: indices stay below the lengths; frames of the chain are alive, and so are their code objects.
        unsafe {
            // Frames that are new at the inner end.
            let (mut f, mut fresh) = (top, 0);
            let joined = loop {
                if f == 0 || f == self.beyond || fresh == DEPTH || !plausible(f) || !self.ground.bears(f) {
                    return self.afresh(i, top, told);
                }
                if let Some(n) = self.place_of(f, self.len) {
                    break n;
                }
                (*(&raw mut self.fresh).cast::<Frame>().add(fresh)).at = f;
                fresh += 1;
                f = read(f as *const u8, l.previous);
            };
            // Frames that were there, some of them elsewhere in their code.
            let mut changed = joined;
            let mut r = frames.add(joined).sub(1);
            loop {
                (r, f) = apart::<KIND>(l, r, f);
                if r < frames {
                    break;
                }
                let was = *r;
                if was.at != f || !self.look::<KIND>(i, f, r) {
                    return self.afresh(i, top, told);
                }
                changed = r.offset_from(frames) as usize;
                if (*r).code == was.code && (*r).stamp == was.stamp && (KIND >= FRAMES || !self.is_passing(changed)) {
                    (*r).number = was.number;
                }
                f = read(f as *const u8, l.previous);
                r = r.sub(1);
            }
            if f != self.beyond || KIND < FRAMES && !self.passing_is_there(i, joined, told) {
                return self.afresh(i, top, told);
            }
            if joined + fresh > DEPTH || left_out(self.dropped + joined + fresh) != self.dropped {
                return self.afresh(i, top, told);
            }
            self.len = joined + fresh;
            for n in 0..fresh {
                let r = frames.add(joined + fresh - 1 - n);
                if !self.look::<KIND>(i, (*(&raw const self.fresh).cast::<Frame>().add(n)).at, r) {
                    return self.afresh(i, top, told);
                }
            }
            self.name(i, changed, told)
        }
    }

    /// How many frames are remembered up to and with the one at `f`, among the innermost of the first `len`.
    #[inline]
    unsafe fn place_of(&self, f: u64, len: usize) -> Option<usize> {
        let frames = (&raw const self.frames).cast::<Frame>();
        let mut n = len;
        let least = len.saturating_sub(64);
        while n > least {
            // SAFETY: below the length.
            if unsafe { (*frames.add(n - 1)).at } == f {
                return Some(n);
            }
            n -= 1;
        }
        None
    }

    #[inline(always)]
    unsafe fn is_passing(&self, n: usize) -> bool {
        // SAFETY: below the depth.
        unsafe { (&raw const self.passing).cast::<u64>().add(n / 64).read() >> (n % 64) & 1 != 0 }
    }

    /// Whether code that comes and goes is what it was, in the first `len` frames.
    #[inline(always)]
    unsafe fn passing_is_there(&mut self, i: &Interpreter, len: usize, told: &mut impl Told) -> bool {
        let mut first = 0;
        while first < len {
            // SAFETY: a word of 64 frames, of which the first is below the length, and that below the depth; frames that were just seen on
            // the chain.
            unsafe {
                let mut bits = (&raw const self.passing).cast::<u64>().add(first / 64).read();
                while bits != 0 {
                    let n = first + bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    if n >= len {
                        break;
                    }
                    let r = &*(&raw const self.frames).cast::<Frame>().add(n);
                    if r.number != UNNUMBERED
                        && codes::number(i, masked(r.code) as u64, &mut self.text, &mut |d| told.define(d)).0 != r.number
                    {
                        return false;
                    }
                }
            }
            first += 64;
        }
        true
    }

    /// A walk that uses nothing of what was remembered.
    #[cold]
    #[inline(never)]
    unsafe fn afresh(&mut self, i: &Interpreter, top: u64, told: &mut impl Told) -> u32 {
        let l = &i.layout;
        let (frames, fresh) = ((&raw mut self.frames).cast::<Frame>(), (&raw mut self.fresh).cast::<Frame>());
        // SAFETY: as in `walk`.
        unsafe {
            let (mut f, mut n, mut mark) = (top, 0, None);
            while f != 0 && n < DEPTH {
                let good = match (l.start == NONE, l.entry != NONE) {
                    (true, _) => self.look::<OBJECTS>(i, f, fresh.add(n)),
                    (_, true) => self.look::<ENTRIES>(i, f, fresh.add(n)),
                    _ => self.look::<FRAMES>(i, f, fresh.add(n)),
                };
                if !good {
                    mark = Some(BROKEN);
                    break;
                }
                n += 1;
                f = read(f as *const u8, l.previous);
            }
            self.beyond = f;
            self.dropped = 0;
            if mark.is_none() && f != 0 {
                mark = Some(TRUNCATED);
                let mut depth = n;
                while plausible(f) && depth < COUNTED && self.ground.bears(f) {
                    depth += 1;
                    f = read(f as *const u8, l.previous);
                }
                self.dropped = left_out(depth);
                let kept = depth - self.dropped;
                if kept < n {
                    self.beyond = (*fresh.add(kept)).at;
                    n = kept;
                }
            }
            self.len = n;
            self.outside.at = NOWHERE;
            for k in 0..n {
                *frames.add(n - 1 - k) = *fresh.add(k);
            }
            self.root = mark.map_or(0, |m| told.node(0, 0, m, &Spot { i, code: 0, index: 0 }));
            self.name(i, 0, told)
        }
    }

    /// Takes down what stands in frame `f`; false: it is no frame.
    unsafe fn look<const KIND: u8>(&mut self, i: &Interpreter, f: u64, r: *mut Frame) -> bool {
        let l = &i.layout;
        let p = f as *const u8;
        // SAFETY: a frame of the chain, and its code object, as far as can be told.
        unsafe {
            if !plausible(f) || !self.ground.bears(f) {
                return false;
            }
            let code = read(p, l.code);
            let at = masked(code);
            let shim = l.owner != NONE && p.add(l.owner as usize).read() >= l.shim_owner;
            if shim {
                // In 3.12 it has a code object of the interpreter's, then it has none.
                if code != self.shim
                    && !(i.version == 0x030c && self.ground.has_code(i, code) || i.version > 0x030c && plausible(at as u64))
                {
                    return false;
                }
                self.shim = code;
            } else if !self.ground.has_code(i, at as u64) {
                return false;
            }
            let kind = if KIND == ENTRIES { p.add(l.entry as usize).cast::<u16>().read() } else { 0 };
            *r = Frame {
                at: f,
                code,
                instr: if KIND == OBJECTS { p.add(l.instr as usize).cast::<u32>().read() as u64 } else { read(p, l.instr) },
                stamp: at.add(l.stamp as usize).cast::<u32>().read(),
                number: if shim { SHIM } else { UNNUMBERED },
                node: 0,
                kind,
                entry: match KIND {
                    OBJECTS => 1,
                    ENTRIES => kind & 1 | twice(l, p, at) << 1,
                    _ => kind & 1,
                },
            };
            true
        }
    }

    /// Gives the frames from `from` on their nodes; the innermost one's.
    unsafe fn name(&mut self, i: &Interpreter, from: usize, told: &mut impl Told) -> u32 {
        let frames = (&raw mut self.frames).cast::<Frame>();
        // SAFETY: indices below the length; code objects of live frames.
        unsafe {
            let (mut parent, mut from_c) = match from {
                0 => (self.root, false),
                n => ((*frames.add(n - 1)).node, (*frames.add(n - 1)).number == SHIM),
            };
            for n in from..self.len.min(DEPTH) {
                let r = &mut *frames.add(n);
                if r.number == SHIM {
                    from_c = true;
                } else {
                    if r.number == UNNUMBERED {
                        let (number, passing) = codes::number(i, masked(r.code) as u64, &mut self.text, &mut |d| told.define(d));
                        r.number = number;
                        let word = &mut *(&raw mut self.passing).cast::<u64>().add(n / 64);
                        let bit = 1 << (n % 64);
                        // What runs at the outer end is the program.
                        *word = if n > 0 && passing { *word | bit } else { *word & !bit };
                    }
                    if r.entry & 2 != 0 {
                        parent = told.node(parent, 0, RUNS_NONE | 1, &Spot { i, code: 0, index: 0 });
                    }
                    let entry = r.entry & 1 | from_c as u16;
                    let spot = Spot { i, code: masked(r.code) as u64, index: if r.number == 0 { NUMBERLESS / 2 } else { index(i, r) } };
                    parent = told.node(parent, r.number, spot.index << 1 | entry as u32, &spot);
                    from_c = false;
                }
                r.node = parent;
            }
            parent
        }
    }
}

/// 1 for a frame that two runs of the loop are for (see [`TWICE`]).
unsafe fn twice(l: &Layout, frame: *const u8, code: *const u8) -> u16 {
    // SAFETY: the caller's frame of 3.11, and its code object.
    unsafe {
        let mark = frame.add((l.entry + TWICE_AT) as usize).cast::<u16>().read();
        (mark == TWICE && OURS.contains(&code.add(l.start as usize).read())) as u16
    }
}

/// How many of `depth` frames are left out.
fn left_out(depth: usize) -> usize {
    if depth <= DEPTH { 0 } else { (depth - DEPTH).div_ceil(STEP) * STEP }
}
