//! Python stacks: which code objects and instructions this thread's interpreter frames are at, read from the frames themselves on the
//! thread that they belong to. No GIL, no profiling callback, no call of the interpreter that may lock or allocate, nothing written to its
//! memory. CPython 3.7 to 3.14.
//!
//! How to use it:
//! - [`seek`] once at the start, with the loader's list at rest; [`notice`] on the writer for each library that is loaded later. Then
//!   [`state`] says what was found.
//! - a zeroed [`Python`] for each lane; [`Python::update`] in a hook gives the node of the calling thread's innermost frame.
//!   [`Python::forget`] when the lane's nodes are numbered anew, [`forget`] once in a forked child.
//!
//! What is told by `update`:
//! - `node(parent, code, at)` for each frame that is new or stands elsewhere, from the outermost such frame to the innermost; the number it
//!   returns is remembered. `parent` 0 is the root. `at` is the instruction's index in units of two bytes, times two, plus one where C code
//!   entered the frame (it is the outermost Python frame of one run of the interpreter's loop). `code` 0 with `at` 0: outer frames were
//!   left out (a stack keeps 193 to 256 frames at its inner end, cut at multiples of 64); `code` 0 with `at` 2: beyond this nothing made
//!   sense; `at` 4 or 5: a frame for whose code object no number was left; 7: a run of the
//!   interpreter's loop that runs no frame of the program's (3.11).
//! - `define(&Definition)`, which says whether that could be told, before the first node with that code number, on the thread that meets it first. Another thread may use the
//!   number as soon as `define` has returned, in a lane that is drained earlier: so readers must not expect definitions before uses across
//!   lanes. The slices are good during the call only.
//!
//! Not for: merging with native frames and lines of source, which the reader does. What is where: [`interpreter`] finds, [`layout`] and
//! [`offsets`] know the fields, [`thread`] has the way to the innermost frame, [`walk`] follows the chain of [`frame`]s, [`codes`] numbers
//! code objects, [`strings`] reads their names.

mod codes;
mod frame;
pub mod interpreter;
mod layout;
mod offsets;
pub mod strings;
mod thread;
mod walk;

pub use codes::{Definition, forget, private};
pub use frame::{OURS, TWICE, TWICE_AT};
pub use interpreter::{notice, seek, seek_in, state};
pub use layout::NONE;
pub use walk::{Python, Spot};

impl Python {
    /// The node of this thread's innermost Python frame, 0: it runs no Python.
    ///
    /// # Safety
    /// Called on the thread whose stack is wanted, which no one else's call of `update` on this `Python` overlaps.
    #[inline]
    pub unsafe fn update(
        &mut self,
        node: &mut impl FnMut(u32, u32, u32, &Spot) -> u32,
        define: &mut impl FnMut(&Definition) -> bool,
    ) -> u32 {
        let Some(i) = interpreter::get() else { return 0 };
        let top = thread::top(i, &mut self.ground);
        let told = &mut (node, define);
        // SAFETY: this thread's innermost frame.
        unsafe {
            match i.version {
                ..0x030b => self.walk::<{ frame::OBJECTS }>(i, top, told),
                0x030b => self.walk::<{ frame::ENTRIES }>(i, top, told),
                0x030c | 0x030d => self.walk::<{ frame::FRAMES }>(i, top, told),
                _ => self.walk::<{ frame::TAGGED }>(i, top, told),
            }
        }
    }
}
