//! Memory of the live table's nodes: taken from the end of the spool as needed, given back to lists by size. It moves when it grows.
//! Where the disk has no room it goes on in private memory.

use crate::spool::{self, SPOOL};
use crate::sys::{self, sys};
use core::sync::atomic::Ordering::Relaxed;
use memshim_format::live::{CLASSES, Header, words};
use memshim_format::spool::TABLE_OFF;

/// The nodes. A node is known by its offset in units of 16 bytes.
pub struct Nodes {
    base: *mut u64,
    /// Units ever handed out.
    end: u32,
    /// Bytes mapped, and of these, from the start, those that have been given pages at once.
    mapped: usize,
    populated: usize,
    private: bool,
    /// First of the free nodes of each class, plus one; the word after a free node's header names the next.
    free: [u32; CLASSES],
}

const FIRST: usize = 64 << 10;
/// Nodes are taken from the end in pieces of at least a cache line.
const LINE_CLASS: usize = 2;
/// Pages that are about to be used are asked for together.
const POPULATE: usize = 256 << 10;
/// Units of 16 bytes at most: what the offsets and the address space of a mapping take.
const UNITS_MAX: u64 = u32::MAX as u64 - 1024;

impl Nodes {
    /// Without memory.
    pub const fn new() -> Nodes {
        Nodes { base: core::ptr::null_mut(), end: 0, mapped: 0, populated: 0, private: false, free: [0; CLASSES] }
    }

    /// Bytes mapped.
    pub fn bytes(&self) -> usize {
        self.mapped
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
        self.base.wrapping_add(node as usize * 2)
    }

    /// An empty node for a page. It may move all others.
    pub fn take(&mut self, page: u64, class: u32) -> Option<u32> {
        let node = match self.pop(class as usize) {
            Some(node) => node,
            None => self.cut(class as usize)?,
        };
        let p = self.at(node);
        // SAFETY: the node is mapped and nobody's. Its header goes live last: a reader of a dead process's spool finds it empty or not at all.
        unsafe {
            core::ptr::write_bytes(p.add(1), 0, words(class) as usize - 1);
            core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::Release);
            p.write_volatile(Header::of(page, class).0);
        }
        Some(node)
    }

    /// Gives a node back.
    pub fn give(&mut self, node: u32, class: u32) {
        let Some(first) = self.free.get_mut(class as usize) else { return };
        let p = self.base.wrapping_add(node as usize * 2);
        // SAFETY: the node is mapped. It is no page's before its first word becomes a link.
        unsafe {
            p.write_volatile(Header::free(class).0);
            p.add(1).write(*first as u64);
        }
        *first = node + 1;
    }

    #[inline(always)]
    fn pop(&mut self, class: usize) -> Option<u32> {
        let first = self.free.get_mut(class)?;
        let node = first.checked_sub(1)?;
        // SAFETY: free nodes are mapped; the word after the header is the link.
        *first = unsafe { self.base.wrapping_add(node as usize * 2).add(1).read() } as u32;
        Some(node)
    }

    /// Where no node of a class is free: one cut from a larger free one, else from the end.
    #[cold]
    #[inline(never)]
    fn cut(&mut self, class: usize) -> Option<u32> {
        for larger in class + 1..CLASSES {
            if let Some(node) = self.pop(larger) {
                self.split(node, larger, class);
                return Some(node);
            }
        }
        let most = class.max(LINE_CLASS);
        let node = self.extend(most)?;
        self.split(node, most, class);
        Some(node)
    }

    /// Gives back what of a node of class `from` is beyond one of class `to`.
    fn split(&mut self, node: u32, from: usize, to: usize) {
        for class in (to..from).rev() {
            // The later half first: whoever walks over the nodes finds the whole, or both.
            self.give(node + (1 << class), class as u32);
            // SAFETY: the node is mapped and free.
            unsafe { self.at(node).write_volatile(Header::free(class as u32).0) };
        }
    }

    fn extend(&mut self, class: usize) -> Option<u32> {
        let node = self.end;
        let end = node as u64 + (1 << class);
        if end > UNITS_MAX {
            return None;
        }
        let bytes = end as usize * 16;
        if bytes > self.mapped {
            // A quarter more.
            let len = (self.mapped + self.mapped / 4).max(bytes).max(FIRST);
            if !self.remap((len + 4095) & !4095) {
                return None;
            }
        }
        if bytes > self.populated && bytes > FIRST / 2 {
            let len = POPULATE.min(self.mapped - self.populated);
            // SAFETY: within the mapping. Where the kernel cannot, pages come one by one.
            unsafe { sys!(libc::SYS_madvise, self.base.cast::<u8>().add(self.populated), len, libc::MADV_POPULATE_WRITE) };
            self.populated += len;
        }
        self.end = end as u32;
        // SAFETY: the node is mapped; the header page is there.
        unsafe {
            self.at(node).write_volatile(Header::free(class as u32).0);
            (*spool::header()).table_bytes.store(bytes as u64, Relaxed);
        }
        Some(node)
    }

    fn remap(&mut self, len: usize) -> bool {
        // SAFETY: only the drain uses the mapping; the spool's fd is checked before each use.
        unsafe {
            if SPOOL.in_file && !self.private {
                let grown = spool::is_open()
                    && sys!(libc::SYS_ftruncate, SPOOL.fd, TABLE_OFF + len) == 0
                    && spool::back(TABLE_OFF + self.mapped, len - self.mapped)
                    && spool::is_open();
                let at = match (grown, self.mapped) {
                    (false, _) => -1,
                    (true, 0) => {
                        sys!(libc::SYS_mmap, 0, len, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, SPOOL.fd, TABLE_OFF)
                    }
                    (true, old) => sys!(libc::SYS_mremap, self.base, old, len, libc::MREMAP_MAYMOVE),
                };
                spool::rest();
                if at > 0 {
                    sys!(libc::SYS_madvise, at, len, libc::MADV_RANDOM);
                    (self.base, self.mapped) = (at as *mut u64, len);
                    return true;
                }
                // No room on the disk: go on in private memory.
                sys::swallow(libc::SIGXFSZ);
                let p = sys::map_anon(len);
                if p.is_null() {
                    return false;
                }
                if self.mapped > 0 {
                    core::ptr::copy_nonoverlapping(self.base.cast::<u8>(), p, self.mapped);
                    sys::unmap(self.base.cast(), self.mapped);
                }
                (*spool::header()).table_private.store(1, Relaxed);
                (self.base, self.mapped, self.private) = (p.cast(), len, true);
                return true;
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
}
