//! What is known of addresses: device, managed and page-locked memory that the program got through hooked calls. It says on which side of a
//! copy an address lies without asking the driver. A treap by start address in memory of our own.

use super::lock;
use crate::lane::Hot;
use crate::sys;

/// Ranges at most; what is beyond is asked of the driver.
const MOST: usize = 1 << 20;

#[derive(Clone, Copy)]
struct Node {
    base: u64,
    end: u64,
    /// Left out of the tree when 0 (a slot given back).
    weight: u32,
    left: u32,
    right: u32,
    context: u16,
    class: u8,
    device: u8,
}

/// What an address is of.
#[derive(Clone, Copy, Default)]
pub struct Known {
    pub class: u64,
    pub device: u64,
}

struct Tree {
    nodes: *mut Node,
    used: u32,
    free: u32,
    root: u32,
    seed: u32,
}

static mut TREE: Tree = Tree { nodes: core::ptr::null_mut(), used: 0, free: 0, root: 0, seed: 0x9e37_79b9 };

impl Tree {
    /// # Safety
    /// `i` is a slot handed out, not 0.
    unsafe fn at(&self, i: u32) -> *mut Node {
        // SAFETY: the caller's promise; the mapping has MOST nodes.
        unsafe { self.nodes.add(i as usize) }
    }

    /// # Safety
    /// The lock is held.
    unsafe fn slot(&mut self) -> Option<u32> {
        if self.nodes.is_null() {
            self.nodes = sys::map_anon(MOST * size_of::<Node>()).cast();
            self.used = 1;
        }
        if self.nodes.is_null() {
            return None;
        }
        if self.free != 0 {
            let i = self.free;
            // SAFETY: a slot given back.
            self.free = unsafe { (*self.at(i)).left };
            return Some(i);
        }
        if self.used as usize >= MOST {
            return None;
        }
        self.used += 1;
        Some(self.used - 1)
    }

    /// # Safety
    /// The lock is held.
    unsafe fn insert(&mut self, mut node: Node) {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 17;
        self.seed ^= self.seed << 5;
        node.weight = self.seed | 1;
        // SAFETY: links lead to slots of the tree.
        unsafe {
            let Some(new) = self.slot() else { return };
            let mut link = &raw mut self.root;
            while *link != 0 && (*self.at(*link)).weight >= node.weight {
                let n = self.at(*link);
                link = if node.base < (*n).base { &raw mut (*n).left } else { &raw mut (*n).right };
            }
            // The subtree that hung here is split by the new key.
            let mut t = *link;
            *self.at(new) = node;
            let mut left = &raw mut (*self.at(new)).left;
            let mut right = &raw mut (*self.at(new)).right;
            while t != 0 {
                let n = self.at(t);
                if (*n).base < node.base {
                    *left = t;
                    left = &raw mut (*n).right;
                } else {
                    *right = t;
                    right = &raw mut (*n).left;
                }
                t = if (*n).base < node.base { *left } else { *right };
            }
            *left = 0;
            *right = 0;
            *link = new;
        }
    }

    /// Takes the node that begins here out: its class, where there was one.
    ///
    /// # Safety
    /// The lock is held.
    unsafe fn remove(&mut self, base: u64) -> Option<u8> {
        // SAFETY: links lead to slots of the tree.
        unsafe {
            let mut link = &raw mut self.root;
            while *link != 0 && (*self.at(*link)).base != base {
                let n = self.at(*link);
                link = if base < (*n).base { &raw mut (*n).left } else { &raw mut (*n).right };
            }
            let gone = *link;
            if gone == 0 {
                return None;
            }
            let class = (*self.at(gone)).class;
            let (mut a, mut b) = ((*self.at(gone)).left, (*self.at(gone)).right);
            while a != 0 && b != 0 {
                if (*self.at(a)).weight >= (*self.at(b)).weight {
                    *link = a;
                    link = &raw mut (*self.at(a)).right;
                    a = *link;
                } else {
                    *link = b;
                    link = &raw mut (*self.at(b)).left;
                    b = *link;
                }
            }
            *link = a | b;
            (*self.at(gone)).weight = 0;
            (*self.at(gone)).left = self.free;
            self.free = gone;
            Some(class)
        }
    }

    /// The last node that begins at or before `address`.
    ///
    /// # Safety
    /// The lock is held.
    unsafe fn before(&self, address: u64) -> Option<Node> {
        let mut t = self.root;
        let mut best = None;
        // SAFETY: links lead to slots of the tree.
        unsafe {
            while t != 0 {
                let n = *self.at(t);
                if n.base <= address {
                    best = Some(n);
                    t = n.right;
                } else {
                    t = n.left;
                }
            }
        }
        best
    }
}

/// Private memory taken, in bytes, as far as it is used.
pub fn private() -> usize {
    // SAFETY: a word that is written whole; one that is a little old does no harm.
    unsafe { (&raw const TREE.used).read_volatile() as usize * size_of::<Node>() }
}

fn tree() -> &'static mut Tree {
    // SAFETY: only used under the lock.
    unsafe { &mut *(&raw mut TREE) }
}

/// Notes a range.
///
/// # Safety
/// `hot` is this thread's.
pub unsafe fn add(hot: *mut Hot, base: u64, bytes: u64, class: u64, device: u64, context: u64) {
    let node =
        Node { base, end: base + bytes, weight: 0, left: 0, right: 0, context: context as u16, class: class as u8, device: device as u8 };
    // SAFETY: the caller's hot; under the lock.
    unsafe {
        lock::with(hot, || {
            tree().remove(base);
            tree().insert(node);
        })
    };
}

/// Forgets the range that begins here: its class, where there was one.
///
/// # Safety
/// `hot` is this thread's.
pub unsafe fn remove(hot: *mut Hot, base: u64) -> Option<u64> {
    // SAFETY: the caller's hot; under the lock.
    unsafe { lock::with(hot, || tree().remove(base)) }.flatten().map(u64::from)
}

/// Forgets all that begin within `[base, base + bytes)`.
///
/// # Safety
/// `hot` is this thread's.
pub unsafe fn remove_within(hot: *mut Hot, base: u64, bytes: u64) {
    // SAFETY: the caller's hot; under the lock.
    unsafe {
        lock::with(hot, || {
            while let Some(n) = tree().before(base + bytes.saturating_sub(1)).filter(|n| n.base >= base) {
                tree().remove(n.base);
            }
        })
    };
}

/// Forgets all of a context.
///
/// # Safety
/// `hot` is this thread's.
pub unsafe fn remove_context(hot: *mut Hot, context: u64) {
    // SAFETY: the caller's hot; under the lock.
    unsafe {
        lock::with(hot, || {
            for i in 1..tree().used {
                let n = *tree().at(i);
                if n.weight != 0 && n.context as u64 == context {
                    tree().remove(n.base);
                }
            }
        })
    };
}

/// What an address is of.
///
/// # Safety
/// `hot` is this thread's.
pub unsafe fn find(hot: *mut Hot, address: u64) -> Option<Known> {
    // SAFETY: the caller's hot; under the lock.
    let n = unsafe { lock::with(hot, || tree().before(address)) }??;
    (address < n.end).then_some(Known { class: n.class as u64, device: n.device as u64 })
}

/// A forked child has none of them.
pub fn forget() {
    let t = tree();
    (t.used, t.free, t.root) = (1, 0, 0);
}
