//! What a copy is by its two ends: which way it goes, of what memory on the host's side, and which device's it is. Not for: calls, their streams and their
//! times (see [`super::transfers`]).

use super::call::Call;
use super::contexts::{self, Place};
use super::libcuda::own;
use super::ranges;
use crate::sys;
use memshim_format::gpu::{NO_DEVICE, class, direction, memory};

/// One end of a copy.
#[derive(Clone, Copy)]
pub struct Side {
    /// PAGEABLE, PINNED, MANAGED or DEVICE.
    pub memory: u64,
    pub device: u64,
}

impl Side {
    pub const fn device(device: u64) -> Side {
        Side { memory: memory::DEVICE, device }
    }

    pub fn is_host(self) -> bool {
        matches!(self.memory, memory::PAGEABLE | memory::PINNED)
    }
}

/// A copy as a whole.
#[derive(Clone, Copy)]
pub struct Copy {
    pub direction: u64,
    pub memory: u64,
    /// That has the memory, whichever the stream's is.
    pub device: u64,
    /// Device at the other end where there are two, + 1.
    pub peer: u64,
    pub bytes: u64,
    pub count: u64,
}

impl Copy {
    pub const NOTHING: Copy = Copy { direction: 0, memory: 0, device: NO_DEVICE, peer: 0, bytes: 0, count: 0 };

    /// What moves nothing on a device CUPTI has no record of.
    pub fn has_records(&self) -> bool {
        self.bytes > 0 && self.direction != direction::H2H
    }
}

const MEMORY_TYPE: i32 = 2;
const IS_MANAGED: i32 = 8;
const ORDINAL: i32 = 9;

/// What an address is of: by what is known, else by asking the driver, which refuses ordinary host memory.
pub fn side(c: &Call, address: u64) -> Side {
    // SAFETY: this thread's hot.
    if let Some(known) = unsafe { ranges::find(c.hot, address) } {
        return match known.class {
            class::PINNED | class::REGISTERED => Side { memory: memory::PINNED, device: NO_DEVICE },
            class::MANAGED => Side { memory: memory::MANAGED, device: known.device },
            _ => Side::device(known.device),
        };
    }
    let ask = |what: i32| {
        let mut v = 0u64;
        sys::keep_errno(|| match own().pointer_attribute {
            // SAFETY: each of these attributes is at most eight bytes.
            Some(f) if unsafe { f((&raw mut v).cast(), what, address) } == 0 => Some(v & 0xffff_ffff),
            _ => None,
        })
    };
    match ask(MEMORY_TYPE) {
        Some(1) => Side { memory: memory::PINNED, device: NO_DEVICE },
        Some(2) => {
            let device = ask(ORDINAL).unwrap_or(NO_DEVICE) & 0xff;
            let managed = ask(IS_MANAGED).is_some_and(|v| v & 0xff != 0);
            Side { memory: if managed { memory::MANAGED } else { memory::DEVICE }, device }
        }
        _ => Side { memory: memory::PAGEABLE, device: NO_DEVICE },
    }
}

/// The device that a copy is of: an end's, where the current context's has no part in it.
pub fn on_device(here: Place, ends: [Side; 2]) -> u64 {
    let known = || ends.iter().map(|s| s.device).filter(|d| *d != NO_DEVICE);
    if known().any(|d| d == here.device) { here.device } else { known().next().unwrap_or(here.device) }
}

/// A copy between two ends.
pub fn between(to: Side, from: Side, bytes: u64, here: Place) -> Copy {
    let (direction, memory) = match (to.is_host(), from.is_host()) {
        (true, true) => (direction::H2H, from.memory.min(to.memory)),
        (true, false) => (direction::D2H, to.memory),
        (false, true) => (direction::H2D, from.memory),
        (false, false) => {
            let two = from.device != to.device && from.device != NO_DEVICE && to.device != NO_DEVICE;
            let managed = from.memory == memory::MANAGED || to.memory == memory::MANAGED;
            (if two { direction::P2P } else { direction::D2D }, if managed { memory::MANAGED } else { memory::DEVICE })
        }
    };
    let device = on_device(here, [to, from]);
    let other = if to.device == device { from.device } else { to.device };
    let peer = if direction == direction::P2P { other + 1 } else { 0 };
    Copy { direction, memory, device, peer, bytes, count: 1 }
}

/// An end that is said to be a device's, in this context.
pub fn in_context(c: &Call, here: Place, address: u64, context: u64) -> Side {
    let by_address = || Some(side(c, address).device).filter(|d| *d != NO_DEVICE);
    Side::device(contexts::device_of(context).or_else(by_address).unwrap_or(here.device))
}

/// An end of a 2D or 3D copy: kind of memory, host address, device address, context of a peer copy.
pub fn end(c: &Call, here: Place, kind: u64, host: u64, device: u64, context: u64) -> Side {
    match kind & 0xffff_ffff {
        1 => side(c, host),
        4 => side(c, device),
        2 if context != 0 || contexts::are_on_several_devices() => in_context(c, here, device, context),
        _ => Side::device(contexts::device_of(context).unwrap_or(here.device)),
    }
}

/// Copies of one call put together by direction, memory and devices.
pub struct Groups {
    of: [Copy; 8],
    len: usize,
}

impl Groups {
    pub fn new() -> Groups {
        Groups { of: [Copy::NOTHING; 8], len: 0 }
    }

    pub fn of(k: Copy) -> Groups {
        let mut groups = Groups::new();
        groups.add(k);
        groups
    }

    pub fn add(&mut self, k: Copy) {
        let same = |g: &&mut Copy| (g.direction, g.memory, g.device, g.peer) == (k.direction, k.memory, k.device, k.peer);
        let len = self.len;
        let full = len == self.of.len();
        let join = |g: &mut Copy| (g.bytes, g.count) = (g.bytes.wrapping_add(k.bytes), g.count + k.count);
        // Of more kinds than there are places the rest is counted with the last.
        if let Some(g) = self.of.iter_mut().take(len).find(same) {
            join(g);
        } else if full {
            self.of.last_mut().map(join);
        } else if let Some(g) = self.of.get_mut(len) {
            *g = k;
            self.len += 1;
        }
    }

    pub fn all(&self) -> &[Copy] {
        self.of.get(..self.len).unwrap_or(&[])
    }
}
