//! mremap: a release and a mapping in one call. Other threads' calls can take effect in between, and may get the addresses released.

use super::MapTable;
use super::Mapped;
use super::ranges::Piece;

const MREMAP_DONTUNMAP: u64 = 4;

/// The call; lengths as the program asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remap {
    pub old: u64,
    pub old_len: u64,
    pub new: u64,
    pub new_len: u64,
    pub flags: u64,
}

/// How much of the call has its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it: nothing else took effect in between.
    Whole,
    /// What it releases. The number is the call's own, the same in both parts.
    Release(u64),
    /// What it maps.
    Map(u64),
}

impl Part {
    /// Whether the call is complete after it.
    pub fn completes(self) -> bool {
        !matches!(self, Part::Release(_))
    }
}

impl MapTable {
    pub(super) fn remap(&mut self, r: Remap, part: Part) {
        let (old_end, new_end) = (self.end(r.old, r.old_len), self.end(r.new, r.new_len));
        if r.new >= new_end {
            return;
        }
        if r.old_len == 0 || r.flags & MREMAP_DONTUNMAP != 0 {
            if part.completes() {
                self.copy(r.old, r.new, new_end);
            }
        } else if r.new == r.old {
            self.resize(r.old, old_end, new_end, part);
        } else {
            self.move_range(r, old_end, new_end, part);
        }
    }

    fn move_range(&mut self, r: Remap, old_end: u64, new_end: u64, part: Part) {
        let mut moved = Vec::new();
        match part {
            Part::Whole => {
                self.take(r.old, old_end, &mut moved);
                self.unmap(r.new, new_end);
                self.regions.moved(r.old, old_end, r.new, new_end);
            }
            Part::Release(call) => {
                self.take(r.old, old_end, &mut moved);
                // On its way it is still what its call mapped.
                moved.iter().for_each(|p| self.calls.gained(p.value.origin, p.end - p.start));
                self.under_way.insert(call, moved);
                return;
            }
            Part::Map(call) => {
                moved = self.under_way.remove(&call).unwrap_or_default();
                self.unmap(r.new, new_end);
                // Whose the old addresses are by now is not known: a region of its own.
                self.regions.mapped(r.new, new_end, false);
            }
        }
        self.put_moved(&moved, r.old, r.new, new_end);
        if let Part::Map(_) = part {
            moved.iter().for_each(|p| self.calls.lost(p.value.origin, p.end - p.start));
        }
    }

    /// Puts pieces that lay from `old` on at `new`; the last one fills up what is new.
    fn put_moved(&mut self, moved: &[Piece<Mapped>], old: u64, new: u64, new_end: u64) {
        for (i, p) in moved.iter().enumerate() {
            let (Some(from), Some(to)) = (p.start.checked_sub(old), p.end.checked_sub(old)) else { continue };
            let start = new.saturating_add(from);
            let whole = new.saturating_add(to);
            let end = if i + 1 == moved.len() { new_end } else { whole.min(new_end) };
            if start < end {
                self.grew(&p.value, (end - start).saturating_sub(p.end - p.start));
                self.add(start, end, p.value);
            }
        }
    }

    fn resize(&mut self, start: u64, old_end: u64, new_end: u64, part: Part) {
        if new_end <= old_end {
            if !matches!(part, Part::Map(_)) {
                self.unmap(new_end, old_end);
            }
            return;
        }
        if !part.completes() {
            return;
        }
        let last = self.ranges.overlapping(old_end.saturating_sub(1).max(start), old_end).next().map(|p| p.value);
        self.unmap(old_end, new_end);
        if let Some(value) = last {
            self.regions.extended(old_end, new_end);
            self.grew(&value, new_end - old_end);
            self.add(old_end, new_end, value);
        }
    }

    /// In the sums of its call's site a mapping is what it has grown to.
    fn grew(&mut self, value: &Mapped, bytes: u64) {
        if let Some(site) = self.calls.site_of(value.origin).filter(|_| bytes > 0) {
            self.sites.grew(site, value.kind.class(), bytes);
        }
    }

    /// The old range stays: a second view of shared memory (old length 0), or MREMAP_DONTUNMAP.
    fn copy(&mut self, old: u64, new: u64, new_end: u64) {
        let Some(first) = self.ranges.overlapping(old, old.saturating_add(1)).next() else { return };
        let origin = self.calls.unlisted(self.site);
        self.sites.called(self.site, first.value.kind.class(), new_end - new);
        self.unmap(new, new_end);
        self.regions.mapped(new, new_end, false);
        self.add(new, new_end, Mapped { origin, ..first.value });
    }
}
