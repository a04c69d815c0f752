//! Lines of Python frames, found when a node is told: the code object is alive then, and its line table need not travel.

use crate::python::Spot;

/// Lines found last, by frame: the frames of an import, of a loop over calls, come under many callers. All zero is a good beginning.
#[repr(C)]
pub struct Lines([(u64, u32); PLACES]);

const PLACES: usize = 256;

impl Lines {
    /// A frame (`code << 32 | instruction << 1 | entry`, of a code object with a number) with its line in the place of the instruction.
    ///
    /// # Safety
    /// As [`Spot::line_said`].
    pub unsafe fn said(&mut self, frame: u64, spot: &Spot) -> u64 {
        let (key, entry) = (frame & !1, frame & 1);
        let place = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % PLACES;
        let Some(known) = self.0.get_mut(place) else { return entry };
        if known.0 != key {
            // SAFETY: the caller's promise.
            *known = (key, unsafe { spot.line_said() });
        }
        frame >> 32 << 32 | (known.1 as u64) << 1 | entry
    }
}
