//! The levels above the pages: blocks of pages that have few, and how they come to nodes of their own and back.

use super::nodes::Nodes;
use super::rows::Row;
use super::{EMPTIED, Inserted, MANY, PAGE, Slot, TOP, Table, class_of};
use core::sync::atomic::{Ordering::Release, compiler_fence};
use memshim_format::live::{self, ENOUGH, Entry, FEW, Found, Span, class_for};

/// Entries that go from one level to another, and their addresses >> 3. More than [`ENOUGH`] stand together only where memory was short.
struct Moving {
    entries: [(u64, Entry); 2 * ENOUGH as usize],
    n: usize,
}

impl Moving {
    /// Those of `from` within `span`; `None` where they are too many.
    ///
    /// # Safety
    /// The row names a node.
    unsafe fn of(nodes: &Nodes, from: Row, span: Span) -> Option<Moving> {
        let mut moving = Moving { entries: [(0, Entry(0)); 2 * ENOUGH as usize], n: 0 };
        let begin = from.span().addr3();
        // SAFETY: the caller's promise.
        unsafe {
            live::each_within(from.span().level(), from.places(), nodes.at(from.node), span, |key, e| {
                if let Some(to) = moving.entries.get_mut(moving.n) {
                    *to = (begin | key, e);
                }
                moving.n += 1;
            });
        }
        if moving.n > moving.entries.len() { None } else { Some(moving) }
    }

    fn iter(&self) -> impl Iterator<Item = (u64, Entry)> {
        self.entries.iter().take(self.n).copied()
    }

    /// Puts them into a node that has room.
    ///
    /// # Safety
    /// A node of that level and so many places begins there.
    unsafe fn put(&self, level: u32, places: u32, node: *mut u64) {
        for (addr3, e) in self.iter() {
            // SAFETY: the caller's promise.
            unsafe {
                if let Found::Place(place) = live::find(level, places, node, addr3) {
                    live::put(level, places, node, place, addr3, e);
                }
            }
        }
        // A reader of a dead process's spool finds them twice rather than not at all.
        compiler_fence(Release);
    }
}

impl Table {
    /// The row of the first span above a level that has one, null where none has.
    pub(super) fn row_above(&self, level: u32, addr3: u64) -> *mut Row {
        for level in level + 1..=TOP {
            let row = self.rows.find(Span::of(level, addr3));
            if !row.is_null() {
                return row;
            }
        }
        core::ptr::null_mut()
    }

    /// Puts a block in whose page has no node.
    #[inline(never)]
    pub(super) fn insert_above(&mut self, addr3: u64, e: Entry) -> Inserted {
        let row = self.row_above(PAGE, addr3);
        if row.is_null() {
            return self.insert_first(addr3, e);
        }
        // SAFETY: rows that are found name nodes.
        unsafe {
            match row.read().span().level() {
                1 => self.insert_above_at::<1>(row, addr3, e),
                _ => self.insert_above_at::<TOP>(row, addr3, e),
            }
        }
    }

    #[inline(always)]
    unsafe fn insert_above_at<const LEVEL: u32>(&mut self, row: *mut Row, addr3: u64, e: Entry) -> Inserted {
        // SAFETY: the row is of that level, and names a node.
        unsafe {
            let r = row.read();
            let node = self.nodes.at(r.node);
            let place = match live::find(LEVEL, r.places(), node, addr3) {
                Found::Entry(entry) => return Inserted::Taken(Slot { entry, row }),
                Found::Place(place) => place,
                Found::Full => return self.insert_where_full(row, addr3, e),
            };
            let page = Span::of(PAGE, addr3);
            let count = |span| {
                let mut n = 0;
                live::each_within(LEVEL, r.places(), node, span, |_, _| n += 1);
                n
            };
            let of_page = count(page);
            if of_page == 0 && self.keeps_node(page) {
                return self.insert_into_new(page, addr3, e);
            }
            if of_page + 1 >= ENOUGH {
                return self.insert_gathered(row, page, addr3, e);
            }
            let below = Span::of(LEVEL - 1, addr3);
            if LEVEL - 1 > PAGE && count(below) + 1 >= ENOUGH {
                return self.insert_gathered(row, below, addr3, e);
            }
            if r.used() >= live::most(LEVEL, r.places()) {
                return self.insert_where_full(row, addr3, e);
            }
            live::put(LEVEL, r.places(), node, place, addr3, e);
            row.write(r.plus());
            self.used += 1;
        }
        Inserted::Yes
    }

    /// Where no span around has a node.
    #[cold]
    fn insert_first(&mut self, addr3: u64, e: Entry) -> Inserted {
        let page = Span::of(PAGE, addr3);
        let span = if self.keeps_node(page) { page } else { Span::of(TOP, addr3) };
        self.insert_into_new(span, addr3, e)
    }

    /// With a node for a span, none of whose blocks stand in another one.
    #[inline(never)]
    fn insert_into_new(&mut self, span: Span, addr3: u64, e: Entry) -> Inserted {
        let expected = if span.level() == PAGE { self.before(span) / 4 } else { 1 };
        let row = self.begin(span, class_for(span.level(), expected));
        // SAFETY: rows that are found name nodes.
        if row.is_null() { Inserted::NoMemory } else { unsafe { self.insert_at(span.level(), row, addr3, e) } }
    }

    /// Where a span's node has all that it takes: into a larger one, and where there is none, with a node for the page.
    #[inline(never)]
    unsafe fn insert_where_full(&mut self, row: *mut Row, addr3: u64, e: Entry) -> Inserted {
        // SAFETY: the row names a node; it is found anew.
        unsafe {
            let span = row.read().span();
            if !self.enlarge(row) {
                return self.insert_gathered(row, Span::of(PAGE, addr3), addr3, e);
            }
            let row = self.rows.find(span);
            self.insert_at(span.level(), row, addr3, e)
        }
    }

    /// With a node for a span that has enough blocks with this one; where there is no memory for that, as before.
    #[inline(never)]
    unsafe fn insert_gathered(&mut self, row: *mut Row, span: Span, addr3: u64, e: Entry) -> Inserted {
        // SAFETY: the row names a node; others are found anew.
        unsafe {
            let above = row.read().span();
            let to = if self.gather(row, span) { span } else { above };
            let row = self.rows.find(to);
            self.insert_at(to.level(), row, addr3, e)
        }
    }

    /// Whether a page has a node of its own however few its blocks: because it will have more, or because there is memory enough.
    pub(super) fn keeps_node(&self, page: Span) -> bool {
        self.nodes.is_small() || self.before(page) >= MANY
    }

    /// Blocks in the node of the page before a page.
    pub(super) fn before(&self, page: Span) -> u32 {
        let row = self.rows.find(Span::of(PAGE, page.addr3().wrapping_sub(1)));
        // SAFETY: the row was found.
        if row.is_null() { 0 } else { unsafe { row.read() }.used() }
    }

    /// Gives a span a node of its own, with what stands of it in the node of `row`, and room for one more. Rows found before are good no more.
    unsafe fn gather(&mut self, row: *mut Row, span: Span) -> bool {
        // SAFETY: the row names a node, and so do those found after rows have moved.
        unsafe {
            let above = row.read().span();
            let Some(moving) = Moving::of(&self.nodes, row.read(), span) else { return false };
            let class = class_for(span.level(), moving.n as u32 + 1);
            let new = self.begin(span, class);
            let row = self.rows.find(above);
            if new.is_null() {
                return false;
            }
            let mut r = new.read();
            moving.put(span.level(), r.places(), self.nodes.at(r.node));
            for _ in moving.iter() {
                r = r.plus();
            }
            new.write(r);
            let mut r = row.read();
            for (addr3, _) in moving.iter() {
                if let Found::Entry(entry) = live::find(above.level(), r.places(), self.nodes.at(r.node), addr3) {
                    live::take_out(above.level(), r.places(), self.nodes.at(r.node), entry);
                    r = r.minus();
                }
            }
            row.write(r);
            self.shrink_if_few(row);
        }
        true
    }

    /// Gives up a span's node; the few that stand in it go to the level above.
    pub(super) unsafe fn scatter(&mut self, row: *mut Row) -> bool {
        // SAFETY: the row names a node, and so do those found after rows have moved.
        unsafe {
            let span = row.read().span();
            let mut above = self.row_above(span.level(), span.addr3());
            if above.is_null() {
                above = self.begin(Span::of(TOP, span.addr3()), class_for(TOP, 1));
            } else {
                above = self.gathered_above(span, above);
            }
            let row = self.rows.find(span);
            if above.is_null() {
                return false;
            }
            let r = row.read();
            let Some(moving) = Moving::of(&self.nodes, r, span) else { return false };
            let mut to = above.read();
            let level = to.span().level();
            if to.used() + moving.n as u32 > live::most(level, to.places()) {
                if !self.enlarge(above) {
                    return false;
                }
                to = above.read();
            }
            moving.put(level, to.places(), self.nodes.at(to.node));
            for _ in moving.iter() {
                to = to.plus();
            }
            above.write(to);
            self.nodes.give(r.node, class_of(r));
            self.rows.remove(row);
        }
        true
    }

    /// The row that the blocks of a span go to when it gives its node up, `above` being the first that has one: that of the span between, where they
    /// make enough there with those that stand above it already.
    unsafe fn gathered_above(&mut self, span: Span, above: *mut Row) -> *mut Row {
        // SAFETY: the row names a node; rows are found anew.
        unsafe {
            let r = above.read();
            if span.level() + 1 >= r.span().level() {
                return above;
            }
            let between = Span::of(span.level() + 1, span.addr3());
            let mut n = FEW;
            live::each_within(r.span().level(), r.places(), self.nodes.at(r.node), between, |_, _| n += 1);
            let to = if n >= ENOUGH && self.gather(above, between) { between } else { r.span() };
            self.rows.find(to)
        }
    }

    #[inline(never)]
    pub(super) fn find_above(&self, addr3: u64) -> Option<Slot> {
        let row = self.row_above(PAGE, addr3);
        if row.is_null() {
            return None;
        }
        // SAFETY: rows that are found name nodes.
        unsafe {
            match row.read().span().level() {
                1 => self.find_at(1, row, addr3),
                _ => self.find_at(TOP, row, addr3),
            }
        }
    }

    #[inline(never)]
    pub(super) unsafe fn take_above(&mut self, slot: Slot) {
        // SAFETY: as for take.
        unsafe {
            let r = slot.row.read();
            match r.span().level() {
                1 => live::take_out(1, r.places(), self.nodes.at(r.node), slot.entry),
                _ => live::take_out(TOP, r.places(), self.nodes.at(r.node), slot.entry),
            }
            slot.row.write(r.minus());
            self.shrink_if_few(slot.row);
        }
    }

    /// A page has lost its last block: its node is given back after those of some others that did.
    pub(super) fn retire(&mut self, page: Span) {
        if self.emptied.contains(&page) {
            return;
        }
        let Some(place) = self.emptied.get_mut(self.oldest) else { return };
        let before = core::mem::replace(place, page);
        self.oldest = (self.oldest + 1) % EMPTIED;
        let row = if before.bits() == 0 { core::ptr::null_mut() } else { self.rows.find(before) };
        if row.is_null() {
            return;
        }
        // SAFETY: the row was found.
        unsafe {
            let r = row.read();
            if r.used() == 0 {
                self.nodes.give(r.node, class_of(r));
                self.rows.remove(row);
            }
        }
    }
}
