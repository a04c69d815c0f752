//! Begins and ends of native functions that are phases, and which of them a thread is in.
//!
//! A function may be left without returning: by `longjmp`, by an exception, with its thread. So each thread has a list of the thunks' frames
//! that are open, by address. A frame further in than one that begins, on the same stack, is gone; when one ends, so are those begun
//! after it. Exceptions and cancellation tell of each frame they pass ([`unwinds`]).

use super::arguments::{self, Rows};
use super::thunk::{self, Frame};
use super::{patch, rules};
use crate::elf::Dynamic;
use crate::hooks::heap::ready;
use crate::lane::Hot;
use crate::phases::{Source, begin, end};
use crate::sys;
use crate::thread_stacks;
use crate::unwind::{modules, reach};
use core::ffi::c_void;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use memshim_format::spool::LANES_MAX;

/// Phases inside each other that are told of; further in there are none.
const DEEPEST: usize = 1 << 16;
/// Stack that must be left: what tells of an edge needs some of it, and the program the rest.
const LEAST_STACK: u64 = 48 << 10;
/// The first thread's stack is taken to be no larger.
const FARTHEST: u64 = 128 << 20;

/// What a thread knows of its own. All zero but for the stack is a thread that is in no phase.
#[repr(C)]
pub struct Track {
    /// How many frames are open.
    open: u64,
    /// The frame whose edge is being told, 0 for none.
    edge: u64,
    /// The thread's own stack; empty: not known.
    low: u64,
    high: u64,
    rows: Rows,
    frames: [u64; DEEPEST],
}

/// The lanes' tracks, kept over the threads that use the lane.
static TRACKS: [AtomicPtr<Track>; LANES_MAX] = [const { AtomicPtr::new(core::ptr::null_mut()) }; LANES_MAX];

/// How many there are.
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// Calls that were no phases because little was left of their stacks, or because they were too deep inside each other.
static TOO_DEEP: AtomicU32 = AtomicU32::new(0);

/// Calls that were no phases because their callers may have put more on the stack than is copied.
static TOO_LARGE: AtomicU32 = AtomicU32::new(0);

/// Whether there were such calls.
pub fn were_too_large() -> bool {
    TOO_LARGE.load(Relaxed) != 0
}

/// Whether there were calls for which the stack was too deep.
pub fn were_too_deep() -> bool {
    TOO_DEEP.load(Relaxed) != 0
}

/// Private memory of all tracks, in bytes, and a page of frames of each.
pub fn private() -> usize {
    TAKEN.load(Relaxed) as usize * (core::mem::offset_of!(Track, frames) + 4096)
}

/// The track of the thread of this lane, which has been in no phase yet.
#[cold]
#[inline(never)]
unsafe fn take(hot: *mut Hot, here: u64) -> *mut Track {
    // SAFETY: the caller's hot; the lane is its thread's alone.
    unsafe {
        let Some(place) = TRACKS.get((*hot).index as usize) else { return core::ptr::null_mut() };
        let mut track = place.load(Acquire);
        if track.is_null() {
            track = sys::map_anon(size_of::<Track>()).cast();
            if track.is_null() {
                return track;
            }
            TAKEN.fetch_add(1, Relaxed);
            place.store(track, Release);
        }
        let (high, room) = (reach::anchor(), thread_stacks::room_below(here));
        let known = room > 0 && here < high;
        (*track).open = 0;
        (*track).edge = 0;
        (*track).high = if known { high } else { 0 };
        (*track).low = if known { (here - room).max(high.saturating_sub(FARTHEST)) } else { 0 };
        (*hot).track = track;
        track
    }
}

/// A function that is a phase is being called: 0 where nothing is to be told of it, and it is to be called as if there were no thunk.
///
/// # Safety
/// Called by the body of the thunks, with its frame and the number of the thunk.
pub unsafe extern "C" fn begins(frame: *mut Frame, number: u32) -> u32 {
    let Some(thunk) = thunk::get(number) else { return 0 };
    // SAFETY: the body's frame.
    unsafe {
        (*frame).target = thunk.target.load(Relaxed);
        (*frame).copied = 0;
        sys::keep_errno(|| {
            patch::look_if_changed();
            begins_here(frame, thunk) as u32
        })
    }
}

unsafe fn begins_here(frame: *mut Frame, thunk: &thunk::Thunk) -> bool {
    let (hot, here) = (ready(), frame as u64);
    // SAFETY: hot is null or this thread's, and so is its track.
    unsafe {
        if hot.is_null() {
            return false;
        }
        let track = if (*hot).track.is_null() { take(hot, here) } else { (*hot).track };
        if track.is_null() || !(*track).enters(here) {
            return false;
        }
        (*track).close_gone(here);
        let shallow = here.wrapping_sub((*track).low) >= LEAST_STACK || !(*track).is_own(here);
        let place = (&raw mut (*track).frames).cast::<u64>().add(((*track).open as usize).min(DEEPEST - 1));
        let own = (*track).is_own(here);
        let copied = if shallow { arguments::bytes(&raw mut (*track).rows, frame, own) } else { Some(0) };
        let told = shallow && ((*track).open as usize) < DEEPEST && copied.is_some();
        if copied.is_none() {
            TOO_LARGE.store(1, Relaxed);
        }
        if let Some(copied) = copied.filter(|_| told) {
            rules::meet(thunk.rules.load(Relaxed));
            (*frame).copied = copied;
            begin(Source::Symbol, thunk.name.load(Relaxed));
            place.write_volatile(here);
            (&raw mut (*track).open).write_volatile((*track).open + 1);
        } else if copied.is_some() {
            TOO_DEEP.store(1, Relaxed);
        }
        (*track).leaves();
        told
    }
}

/// The function has returned.
///
/// # Safety
/// Called by the body of the thunks, with its frame and the number of the thunk.
pub unsafe extern "C" fn ends(frame: *mut Frame, number: u32) {
    // SAFETY: the body's frame.
    sys::keep_errno(|| unsafe { close(frame as u64) });
    if thunk::get(number).is_some_and(|thunk| thunk.stub.load(Relaxed) != 0) {
        sys::keep_errno(patch::look_at_bound);
    }
}

/// An exception or a cancellation passes a body's frame.
///
/// # Safety
/// As the unwinder calls a personality; `unwinder` is where that goes on.
pub unsafe fn unwinds(context: *mut c_void, unwinder: u64) {
    const RBP: i32 = 6;
    // SAFETY: a function of the unwinder that called, on its own context: in a body's frame rbp points behind what is told of it.
    unsafe {
        sys::keep_errno(|| match asked_of(unwinder) {
            Some(ask) => close(ask(context, RBP).wrapping_sub(core::mem::offset_of!(Frame, bp) as u64)),
            None => close_innermost(&raw const context as u64),
        });
    }
}

type Ask = unsafe extern "C" fn(*mut c_void, i32) -> u64;

/// How the unwinder that a place belongs to is asked for a register; None where it does not say.
unsafe fn asked_of(place: u64) -> Option<Ask> {
    static KNOWN: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
    let [from, to, ask] = &KNOWN;
    let mut at = ask.load(Acquire);
    if !(from.load(Relaxed)..to.load(Relaxed)).contains(&place) {
        let (object, [start, end]) = modules::object_of(place)?;
        // SAFETY: an object that is being called.
        at = unsafe { Dynamic::of(&object)?.function(b"_Unwind_GetGR", None) }.map_or(0, |f| f.at);
        // One that several threads write at once may be torn: then it is another's, and is asked for again.
        ask.store(0, Release);
        from.store(start, Relaxed);
        to.store(end, Relaxed);
        ask.store(at, Release);
    }
    // SAFETY: the unwinder's function and its signature.
    (at != 0).then(|| unsafe { core::mem::transmute::<u64, Ask>(at) })
}

/// The phase of a frame ends, and those begun after it with it. A forked child that comes out of what its parent was in has begun none of it.
unsafe fn close(frame: u64) {
    let hot = ready();
    // SAFETY: hot is null or this thread's, and so is its track.
    unsafe {
        if hot.is_null() || (*hot).track.is_null() {
            return;
        }
        let track = (*hot).track;
        (*track).edge = frame;
        if let Some(from) = (*track).innermost(|at| at == frame) {
            (*track).close_from(from);
        }
        (*track).leaves();
    }
}

/// The same of the innermost frame that is outwards of `here`, where it is not known which.
#[cold]
unsafe fn close_innermost(here: u64) {
    let hot = ready();
    // SAFETY: as above.
    unsafe {
        if !hot.is_null() && !(*hot).track.is_null() {
            let track = (*hot).track;
            if let Some(from) = (*track).innermost(|at| at > here || !(*track).is_own(at)) {
                (*track).close_from(from);
            }
        }
    }
}

impl Track {
    fn is_own(&self, at: u64) -> bool {
        (self.low..self.high).contains(&at)
    }

    /// Whether a frame that is open cannot be, as one begins at `here`.
    fn is_gone(&self, at: u64, here: u64) -> bool {
        at == here || at < here && self.is_own(at) && self.is_own(here)
    }

    /// An edge of the frame at `here` is about to be told; false: it comes from a handler that interrupted another. That one was left by a
    /// jump if it was further in.
    fn enters(&mut self, here: u64) -> bool {
        if self.edge != 0 && !self.is_gone(self.edge, here) {
            return false;
        }
        self.edge = here;
        true
    }

    fn leaves(&mut self) {
        // SAFETY: a field of this; a handler may look at it at any instant.
        unsafe { (&raw mut self.edge).write_volatile(0) };
    }

    /// The innermost open frame that fits.
    fn innermost(&self, fits: impl Fn(u64) -> bool) -> Option<usize> {
        self.frames.get(..self.open as usize)?.iter().rposition(|at| fits(*at))
    }

    /// Ends the phases of frames that were left by a jump.
    fn close_gone(&mut self, here: u64) {
        let is_there = |at: &u64| !self.is_gone(*at, here);
        let open = self.frames.get(..self.open as usize).unwrap_or(&[]);
        let from = open.iter().rposition(is_there).map_or(0, |last| last + 1);
        self.close_from(from);
    }

    /// Ends the phases of all frames but the `from` outermost.
    fn close_from(&mut self, from: usize) {
        while self.open as usize > from {
            // SAFETY: as in `leaves`.
            unsafe { (&raw mut self.open).write_volatile(self.open - 1) };
            end(Source::Symbol);
        }
    }
}
