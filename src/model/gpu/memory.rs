//! Device and page-locked memory: what is live, on which device, and the most there was.
//!
//! Counted on a device: blocks of every class that has memory of its own there, physical allocations (by their handles, while they are held
//! or mapped), arrays. *Reserved* is the same with what pools keep instead of the blocks that came from them. Not counted: reserved
//! addresses, mappings of physical memory, memory of other processes and interfaces.

use std::collections::{BTreeMap, HashMap};

use memshim_format::gpu::{NO_DEVICE, class, map, state};

use super::sites::{GpuSites, Place};
use crate::trace::gpurow::Event;

/// A level and its maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    pub live: i64,
    pub peak: i64,
    pub peak_at: u64,
}

impl Level {
    /// Whether it was never so high.
    fn add(&mut self, bytes: i64, t: u64) -> bool {
        self.live = self.live.saturating_add(bytes);
        let higher = self.live > self.peak;
        if higher {
            (self.peak, self.peak_at) = (self.live, t);
        }
        higher
    }
}

/// Memory of another process or interface that was opened here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imports {
    pub opened: u64,
    pub closed: u64,
    /// Of those whose size is known.
    pub bytes: Level,
}

/// What is known of a device.
#[derive(Clone, Debug, Default)]
pub struct Device {
    pub live: Level,
    pub reserved: Level,
    /// By class, as numbered in the format.
    pub classes: [Level; 12],
    pub allocs: u64,
    pub frees: u64,
    pub total: u64,
    /// Most bytes in use by anybody, as the driver said, and how much of that was not ours.
    pub used_peak: u64,
    pub unattributed: Option<i64>,
    /// Free at the last look.
    pub free: Option<u64>,
    /// Of each pool: reserved now, and the most used and reserved.
    pub pools: BTreeMap<u64, Pool>,
    /// PyTorch's own figures: most allocated to tensors, most reserved.
    pub torch: Option<(u64, u64)>,
    /// By class; counted by its owner alone.
    pub imports: BTreeMap<u64, Imports>,
    /// CuPy's pool: most in arrays and in blocks at a look, and how many looks.
    pub cupy: Option<(u64, u64, u64)>,
    pool_blocks: i64,
    pool_reserved: i64,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Pool {
    pub reserved: u64,
    pub used_high: u64,
    pub reserved_high: u64,
}

#[derive(Clone, Copy)]
struct Block {
    bytes: u64,
    class: u64,
    device: u8,
    context: u32,
    site: u32,
    /// Times that it was opened: memory of another process has one address here, however often that is.
    opened: u64,
}

#[derive(Clone, Copy)]
struct Handle {
    bytes: u64,
    /// HANDLE, PINNED where it lies on the host, IMPORTED_HANDLE.
    class: u64,
    device: u8,
    refs: u64,
    maps: u64,
    site: u32,
}

/// See the module.
#[derive(Default)]
pub struct Memory {
    pub devices: BTreeMap<u8, Device>,
    /// Pinned by the driver, registered from the program's own, and both.
    pub pinned: Level,
    pub pinned_allocated: Level,
    pub registered: Level,
    pub unknown_frees: u64,
    pub sites: GpuSites,
    blocks: HashMap<(u8, u64), Block>,
    handles: HashMap<u64, Handle>,
    /// Mapped ranges: start, length, handle.
    maps: BTreeMap<u64, (u64, u64)>,
}

/// Addresses, handles, arrays… have numbers of their own.
fn space(class: u64) -> u8 {
    match class {
        class::HANDLE | class::IMPORTED_HANDLE => 1,
        class::ARRAY => 2,
        class::MIPMAP => 3,
        class::EXTERNAL => 4,
        _ => 0,
    }
}

/// Whether a block of this class is named by its address.
pub fn is_of_addresses(class: u64) -> bool {
    space(class) == 0
}

impl Memory {
    pub fn alloc(&mut self, e: &Event) {
        let [address, bytes, _, ..] = e.words;
        if e.code != 0 {
            return;
        }
        let class = e.flags & 0xff;
        if space(class) == 1 {
            let class = if class == class::HANDLE && e.device as u64 == NO_DEVICE { class::PINNED } else { class };
            self.handles.insert(address, Handle { bytes, class, device: e.device, refs: 1, maps: 0, site: e.site });
            if is_import(class) {
                self.import(e.device, class, bytes, e.t);
            } else if counts(class) {
                self.device(e.device).allocs += 1;
            }
            self.count(e.device, class, e.site, bytes as i64, e.t);
            return;
        }
        if class == class::IPC
            && let Some(block) = self.blocks.get_mut(&(space(class), address)).filter(|b| b.class == class)
        {
            block.opened += 1;
            let device = block.device;
            return self.import(device, class, 0, e.t);
        }
        let block = Block { bytes, class, device: e.device, context: e.context, site: e.site, opened: 1 };
        if let Some(old) = self.blocks.insert((space(class), address), block) {
            // Its end went past us: the address is given out again.
            self.uncount(old, e.t);
        }
        if counts(class) {
            self.device(e.device).allocs += 1;
        } else if is_import(class) {
            self.import(e.device, class, bytes, e.t);
        }
        self.count(e.device, class, e.site, bytes as i64, e.t);
    }

    pub fn free(&mut self, e: &Event) {
        let address = e.words[0];
        if e.code != 0 || address == 0 {
            return;
        }
        let class = e.flags & 0xff;
        if space(class) == 1 {
            match self.handles.get_mut(&address) {
                Some(h) => h.refs = h.refs.saturating_sub(1),
                None => self.unknown_frees += 1,
            }
            self.let_go(address, e.t);
            return;
        }
        if let Some(block) = self.blocks.get_mut(&(space(class), address)).filter(|b| b.opened > 1) {
            block.opened -= 1;
            let (device, class) = (block.device, block.class);
            return self.end_import(device, class, 0, e.t);
        }
        match self.blocks.remove(&(space(class), address)) {
            Some(block) => {
                if counts(block.class) {
                    self.device(block.device).frees += 1;
                }
                self.uncount(block, e.t);
            }
            None => self.unknown_frees += 1,
        }
    }

    pub fn map(&mut self, e: &Event) {
        let [handle, address, bytes, ..] = e.words;
        if e.code != 0 {
            return;
        }
        match e.flags & 0xff {
            map::MAP => {
                if let Some(h) = self.handles.get_mut(&handle) {
                    h.maps += 1;
                }
                self.maps.insert(address, (bytes, handle));
            }
            map::UNMAP => {
                let gone: Vec<u64> = self.maps.range(address..address.saturating_add(bytes)).map(|(at, _)| *at).collect();
                for at in gone {
                    let Some((_, handle)) = self.maps.remove(&at) else { continue };
                    if let Some(h) = self.handles.get_mut(&handle) {
                        h.maps = h.maps.saturating_sub(1);
                    }
                    self.let_go(handle, e.t);
                }
            }
            _ => {
                if let Some(h) = self.handles.get_mut(&handle) {
                    h.refs += 1;
                }
            }
        }
    }

    /// A physical allocation ends when it is neither held nor mapped.
    fn let_go(&mut self, handle: u64, t: u64) {
        let Some(h) = self.handles.get(&handle).copied() else { return };
        if h.refs == 0 && h.maps == 0 {
            self.handles.remove(&handle);
            if is_import(h.class) {
                self.end_import(h.device, h.class, h.bytes, t);
            } else if counts(h.class) {
                self.device(h.device).frees += 1;
            }
            self.count(h.device, h.class, h.site, (h.bytes as i64).saturating_neg(), t);
        }
    }

    fn import(&mut self, device: u8, class: u64, bytes: u64, t: u64) {
        let of = self.device(device).imports.entry(class).or_default();
        of.opened += 1;
        of.bytes.add(bytes as i64, t);
    }

    fn end_import(&mut self, device: u8, class: u64, bytes: u64, t: u64) {
        let of = self.device(device).imports.entry(class).or_default();
        of.closed += 1;
        of.bytes.add((bytes as i64).saturating_neg(), t);
    }

    pub fn state(&mut self, e: &Event) {
        let [a, b, c, ..] = e.words;
        if e.flags & 0xff == state::POOL {
            let d = self.device(e.device);
            let pool = d.pools.entry(e.flags >> 8).or_default();
            let before = pool.reserved;
            pool.reserved = c;
            pool.used_high = pool.used_high.max(a);
            pool.reserved_high = pool.reserved_high.max(b);
            d.pool_reserved = d.pool_reserved.saturating_add((c as i64).saturating_sub(before as i64));
            d.settle_reserved(e.t);
        } else if e.flags & 0xff == state::TORCH {
            let torch = self.device(e.device).torch.get_or_insert_default();
            *torch = (torch.0.max(a), torch.1.max(b));
        } else if e.flags & 0xff == state::CUPY {
            let cupy = self.device(e.device).cupy.get_or_insert_default();
            *cupy = (cupy.0.max(a), cupy.1.max(b), cupy.2 + 1);
        } else if e.flags & 0xff == state::VRAM {
            let d = self.device(e.device);
            let used = b.saturating_sub(a);
            d.total = b;
            d.free = Some(a);
            if used >= d.used_peak {
                d.used_peak = used;
                d.unattributed = Some((used as i64).saturating_sub(d.reserved.live));
            }
        }
    }

    /// An executable graph takes memory, or gives it back.
    pub fn graph(&mut self, device: u8, bytes: i64, t: u64) {
        self.count(device, class::GRAPH, 0, bytes, t);
    }

    /// All that is in a context goes with it; physical allocations are of no context.
    pub fn context_ends(&mut self, e: &Event) {
        let gone: Vec<(u8, u64)> = self.blocks.iter().filter(|(_, b)| b.context == e.context).map(|(k, _)| *k).collect();
        for key in gone {
            if let Some(block) = self.blocks.remove(&key) {
                self.uncount(block, e.t);
            }
        }
    }

    fn device(&mut self, device: u8) -> &mut Device {
        self.devices.entry(device).or_default()
    }

    fn uncount(&mut self, block: Block, t: u64) {
        if is_import(block.class) {
            self.end_import(block.device, block.class, block.bytes, t);
        }
        self.count(block.device, block.class, block.site, (block.bytes as i64).saturating_neg(), t);
    }

    fn count(&mut self, device: u8, class: u64, site: u32, bytes: i64, t: u64) {
        match class {
            class::PINNED | class::REGISTERED => {
                self.sites.change(Place::Pinned, site, bytes, t);
                let highest = self.pinned.add(bytes, t);
                self.sites.reached(Place::Pinned, self.pinned.live, highest, t);
                if class == class::PINNED { &mut self.pinned_allocated } else { &mut self.registered }.add(bytes, t);
            }
            class if counts(class) => {
                self.sites.change(Place::Device(device), site, bytes, t);
                let d = self.devices.entry(device).or_default();
                let highest = d.live.add(bytes, t);
                self.sites.reached(Place::Device(device), d.live.live, highest, t);
                if let Some(level) = d.classes.get_mut(class as usize) {
                    level.add(bytes, t);
                }
                if class == class::POOL {
                    d.pool_blocks = d.pool_blocks.saturating_add(bytes);
                }
                d.settle_reserved(t);
            }
            _ => {}
        }
    }

    /// Blocks that are live at the end.
    pub fn live_blocks(&self, device: u8) -> u64 {
        let blocks = self.blocks.values().filter(|b| b.device == device && counts(b.class)).count();
        (blocks + self.handles.values().filter(|h| h.device == device && counts(h.class)).count()) as u64
    }
}

impl Device {
    /// Everything but the blocks of pools, and what pools keep.
    fn settle_reserved(&mut self, t: u64) {
        let pools = self.pool_reserved.max(self.pool_blocks);
        let now = self.live.live.saturating_sub(self.pool_blocks).saturating_add(pools);
        self.reserved.add(now.saturating_sub(self.reserved.live), t);
    }
}

/// Whether a class is another's memory, opened here.
fn is_import(class: u64) -> bool {
    matches!(class, class::IPC | class::EXTERNAL | class::IMPORTED_HANDLE)
}

/// Whether a class is memory of a device.
fn counts(class: u64) -> bool {
    matches!(class, class::DEVICE | class::MANAGED | class::POOL | class::HANDLE | class::ARRAY | class::MIPMAP | class::GRAPH)
}
