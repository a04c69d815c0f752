//! Memory of the live table's nodes: taken from the end of the spool as needed, given back to lists by size. It moves when it grows.
//! Where the disk has no room it goes on in private memory.

use crate::spool::{self, SPOOL};
use crate::sys::{self, sys};
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::compiler_fence;
use memshim_format::live::{CLASSES, Header, Span, UNIT, bytes, units};
use memshim_format::spool::TABLE_OFF;

/// The nodes. A node is known by its offset in units.
pub struct Nodes {
    base: *mut u64,
    /// Units ever handed out.
    end: u32,
    /// Bytes of addresses, and of these, from the start, those that there is memory for.
    mapped: usize,
    backed: usize,
    private: bool,
    /// First of the free nodes of each class, plus one; the word after a free node's header names the next.
    free: [u32; CLASSES],
}

const FIRST: usize = 64 << 10;
/// Nodes are taken from the end in pieces of at least this class: three cache lines.
const PIECE_CLASS: usize = 4;
/// Memory is asked for in pieces: a thirty-second of what there is, and not less or more than this.
const BACK_LEAST: usize = 8 << 10;
const BACK_MOST: usize = 1 << 20;
/// Below this every page has a node of its own, however few its blocks: that is quicker, and the memory is hardly worth saving.
const SMALL: usize = 128 << 10;
/// Units at most: what the offsets and the address space of a mapping take.
const UNITS_MAX: u64 = u32::MAX as u64 - 1024;

const fn whole_pages(bytes: usize) -> usize {
    (bytes + 4095) & !4095
}

impl Nodes {
    /// Without memory.
    pub const fn new() -> Nodes {
        Nodes { base: core::ptr::null_mut(), end: 0, mapped: 0, backed: 0, private: false, free: [0; CLASSES] }
    }

    /// Bytes that there is memory for.
    pub fn bytes(&self) -> usize {
        self.backed
    }

    /// Where they lie.
    pub fn memory(&self) -> (*const u8, usize) {
        (self.base.cast(), self.backed)
    }

    /// Whether there are few: see [`SMALL`].
    #[inline(always)]
    pub fn is_small(&self) -> bool {
        (self.end as usize) < SMALL / UNIT
    }

    /// Forgets all nodes; the memory, if any, is let go of by whoever knows that it is there (`release`).
    pub fn clear(&mut self) {
        *self = Nodes::new();
    }

    /// Lets go of the mapping.
    ///
    /// # Safety
    /// Nothing points into it.
    pub unsafe fn release(&mut self) {
        if self.mapped > 0 {
            // SAFETY: the mapping is ours.
            unsafe { sys::unmap(self.base.cast(), self.mapped) };
        }
        self.clear();
    }

    /// The words of a node.
    #[inline(always)]
    pub fn at(&self, node: u32) -> *mut u64 {
        self.base.wrapping_add(node as usize * (UNIT / 8))
    }

    /// An empty node for a span. It may move all others.
    pub fn take(&mut self, span: Span, class: u32) -> Option<u32> {
        let node = match self.pop(class as usize) {
            Some(node) => node,
            None => self.cut(class as usize)?,
        };
        let p = self.at(node);
        // SAFETY: the node is mapped and nobody's. Its header goes live last: a reader of a dead process's spool finds it empty or not at all.
        unsafe {
            core::ptr::write_bytes(p.add(1), 0, bytes(class) / 8 - 1);
            compiler_fence(Release);
            p.write_volatile(Header::of(span, class).0);
        }
        Some(node)
    }

    /// Gives a node back. What stands in it has been written elsewhere.
    pub fn give(&mut self, node: u32, class: u32) {
        let Some(first) = self.free.get_mut(class as usize) else { return };
        let p = self.base.wrapping_add(node as usize * (UNIT / 8));
        // SAFETY: the node is mapped. It is no span's before its first word becomes a link.
        unsafe {
            compiler_fence(Release);
            p.write_volatile(Header::free(class).0);
            p.add(1).write_volatile(*first as u64);
        }
        *first = node + 1;
    }

    #[inline(always)]
    fn pop(&mut self, class: usize) -> Option<u32> {
        let first = self.free.get_mut(class)?;
        let node = first.checked_sub(1)?;
        // SAFETY: free nodes are mapped; the word after the header is the link.
        *first = unsafe { self.base.wrapping_add(node as usize * (UNIT / 8)).add(1).read() } as u32;
        Some(node)
    }

    /// Where no node of a class is free: one cut from a larger free one, else from the end.
    #[cold]
    #[inline(never)]
    fn cut(&mut self, class: usize) -> Option<u32> {
        for larger in class + 1..CLASSES {
            if let Some(node) = self.pop(larger) {
                self.split(node, larger as u32, class as u32);
                return Some(node);
            }
        }
        let most = class.max(PIECE_CLASS);
        let node = self.extend(most as u32)?;
        self.split(node, most as u32, class as u32);
        Some(node)
    }

    /// Gives back what of a node of class `from` is beyond one of class `to`.
    fn split(&mut self, node: u32, from: u32, to: u32) {
        let mut end = node + units(from);
        let rest = node + units(to);
        while end > rest {
            let mut class = CLASSES as u32 - 1;
            while units(class) > end - rest {
                class -= 1;
            }
            end -= units(class);
            self.give(end, class);
        }
        // Whoever walks over the nodes finds the whole, or the pieces.
        compiler_fence(Release);
        // SAFETY: the node is mapped and free.
        unsafe { self.at(node).write_volatile(Header::free(to).0) };
    }

    fn extend(&mut self, class: u32) -> Option<u32> {
        let node = self.end;
        let end = node as u64 + units(class) as u64;
        if end > UNITS_MAX {
            return None;
        }
        let bytes = end as usize * UNIT;
        if bytes > self.backed {
            let piece = (self.backed / 32).clamp(BACK_LEAST, BACK_MOST);
            let backed = whole_pages((self.backed + piece).max(bytes));
            if !self.back(backed) {
                return None;
            }
        }
        self.end = end as u32;
        // SAFETY: the node is mapped; the header page is there.
        unsafe {
            self.at(node).write_volatile(Header::free(class).0);
            (*spool::header()).table_bytes.store(bytes as u64, Relaxed);
        }
        Some(node)
    }

    /// Gets memory for the first `len` bytes.
    fn back(&mut self, len: usize) -> bool {
        if len > self.mapped {
            // Addresses for a quarter more: to move costs more than to have them.
            let mapped = whole_pages((self.mapped + self.mapped / 4).max(len).max(FIRST));
            if !self.remap(mapped) {
                return false;
            }
        }
        // SAFETY: the lock is held.
        if unsafe { SPOOL.in_file } && !self.private && !spool::back(TABLE_OFF + self.backed, len - self.backed) && !self.go_private() {
            return false;
        }
        if self.backed > 0 {
            // Pages that are about to be used are asked for together.
            // SAFETY: within the mapping. Where the kernel cannot, they come one by one.
            unsafe { sys!(libc::SYS_madvise, self.base.cast::<u8>().add(self.backed), len - self.backed, libc::MADV_POPULATE_WRITE) };
        }
        self.backed = len;
        true
    }

    fn remap(&mut self, len: usize) -> bool {
        // SAFETY: only the drain uses the mapping; the spool's fd is checked before each use.
        unsafe {
            if SPOOL.in_file && !self.private {
                let at = spool::with_fd(|fd| match self.mapped {
                    _ if sys!(libc::SYS_ftruncate, fd, TABLE_OFF + len) != 0 => -1,
                    0 => sys!(libc::SYS_mmap, 0, len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, TABLE_OFF),
                    old => sys!(libc::SYS_mremap, self.base, old, len, libc::MREMAP_MAYMOVE),
                });
                if let Some(at) = at.filter(|at| *at > 0) {
                    sys!(libc::SYS_madvise, at, len, libc::MADV_RANDOM);
                    (self.base, self.mapped) = (at as *mut u64, len);
                    return true;
                }
                sys::swallow(libc::SIGXFSZ);
                if !self.go_private() {
                    return false;
                }
            }
            let at = if self.mapped == 0 {
                sys::map_anon(len) as i64
            } else {
                sys!(libc::SYS_mremap, self.base, self.mapped, len, libc::MREMAP_MAYMOVE)
            };
            if at <= 0 {
                return false;
            }
            (self.base, self.mapped, self.private) = (at as *mut u64, len, true);
            true
        }
    }

    /// No room on the disk: goes on in private memory.
    #[cold]
    fn go_private(&mut self) -> bool {
        // SAFETY: only the drain uses the mapping; the header page is there.
        unsafe {
            if self.mapped > 0 {
                let p = sys::map_anon(self.mapped);
                if p.is_null() {
                    return false;
                }
                core::ptr::copy_nonoverlapping(self.base.cast::<u8>(), p, self.backed);
                sys::unmap(self.base.cast(), self.mapped);
                self.base = p.cast();
            }
            (*spool::header()).table_private.store(1, Relaxed);
        }
        self.private = true;
        true
    }
}
