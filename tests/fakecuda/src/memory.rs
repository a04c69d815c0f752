//! Memory of devices and of the host. Device addresses are addresses of the host, so copies really copy.

use crate::arguments::Out;
use crate::call::{Call, Driver, answered, driver_functions};
use crate::code::{CAPTURE_UNSUPPORTED, INVALID_VALUE, NOT_REGISTERED, OUT_OF_MEMORY};
use crate::contexts::current;
use crate::{Answer, DEVICES};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Device,
    Managed,
    Pooled,
    Pinned,
    Registered,
    Mapped,
    Imported,
    OfGraph,
}

pub struct Block {
    pub at: u64,
    pub len: u64,
    pub kind: Kind,
    pub context: u64,
    pub device: usize,
    /// The pool that it is of, or the physical memory behind it.
    pub of: u64,
}

pub const TOTAL: [u64; DEVICES] = [80 << 30, 24 << 30, 16 << 30];
/// What a context takes for itself.
const CONTEXT_BYTES: u64 = 300 << 20;

/// Which addresses there may be: those of the oldest functions have 32 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Where {
    Anywhere,
    Low,
}

/// Addresses of the host, with pages behind them when they are written to; 0 where there are none.
pub fn room(len: u64, place: Where) -> u64 {
    let low = if place == Where::Low { libc::MAP_32BIT } else { 0 };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | low;
    // SAFETY: new pages.
    let p = unsafe { libc::mmap(std::ptr::null_mut(), len as usize, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if p == libc::MAP_FAILED { 0 } else { p as u64 }
}

pub fn give_back(at: u64, len: u64) {
    // SAFETY: pages that came of `room`, and that no program uses any more.
    unsafe { libc::munmap(at as *mut libc::c_void, len as usize) };
}

impl Driver {
    fn position(&self, p: u64) -> Option<usize> {
        self.blocks.iter().rposition(|b| (b.at..b.at + b.len).contains(&p))
    }

    /// The newest block that an address is in.
    pub fn block(&self, p: u64) -> Option<&Block> {
        self.position(p).map(|i| &self.blocks[i])
    }

    pub fn is_of_host(&self, b: &Block) -> bool {
        match b.kind {
            Kind::Pinned | Kind::Registered => true,
            Kind::Pooled => self.pools[b.of].of_host,
            Kind::Mapped => self.physical[b.of].of_host,
            _ => false,
        }
    }

    pub fn fits(&self, device: usize, len: u64) -> bool {
        self.used[device] + len <= TOTAL[device] - CONTEXT_BYTES
    }

    /// A block of the current context.
    pub fn add_block(&mut self, at: u64, len: u64, kind: Kind) -> &mut Block {
        let context = current();
        let device = self.contexts.get(context).map_or(0, |c| c.device);
        self.blocks.push(Block { at, len, kind, context, device, of: 0 });
        self.blocks.last_mut().expect("the one just pushed")
    }

    fn drop_at(&mut self, i: usize) {
        let b = self.blocks.remove(i);
        match b.kind {
            Kind::Device | Kind::Managed => self.used[b.device] -= b.len,
            Kind::Pooled => self.pools[b.of].used -= b.len,
            _ => {}
        }
        if !matches!(b.kind, Kind::Registered | Kind::Mapped | Kind::Imported) {
            give_back(b.at, b.len);
        }
    }

    /// Drops the newest block that an address is in.
    pub fn drop_block(&mut self, p: u64) {
        if let Some(i) = self.position(p) {
            self.drop_at(i);
        }
    }

    pub fn drop_blocks(&mut self, goes: impl Fn(&Block) -> bool) {
        for i in (0..self.blocks.len()).rev() {
            if goes(&self.blocks[i]) {
                self.drop_at(i);
            }
        }
    }

    fn get(&mut self, out: Out<u64>, len: u64, kind: Kind, place: Where) -> Answer {
        let (_, device) = self.current()?;
        if len == 0 || out.is_null() {
            return Err(INVALID_VALUE);
        }
        if self.is_unsafe_now() {
            return Err(CAPTURE_UNSUPPORTED);
        }
        let on_device = matches!(kind, Kind::Device | Kind::Managed);
        if on_device && !self.fits(device, len) {
            return Err(OUT_OF_MEMORY);
        }
        let p = room(len, place);
        if p == 0 {
            return Err(OUT_OF_MEMORY);
        }
        if on_device {
            self.used[device] += len;
        }
        self.add_block(p, len, kind);
        out.set(p);
        Ok(())
    }

    fn drop(&mut self, p: u64, of_host: bool) -> Answer {
        if p == 0 {
            return Ok(());
        }
        let b = self.block(p).filter(|b| b.at == p && (b.kind == Kind::Pinned) == of_host && b.kind != Kind::Registered);
        let context = b.ok_or(INVALID_VALUE)?.context;
        if let Some(context) = self.contexts.get(context) {
            self.now = self.now.max(self.streams[context.legacy].ready);
        }
        self.drop_block(p);
        Ok(())
    }
}

fn get(call: &Call, out: Out<u64>, len: usize, kind: Kind) -> Answer {
    call.make(|driver| driver.get(out, len as u64, kind, Where::Anywhere))
}

fn get_low(call: &Call, out: Out<u32>, len: u64) -> Answer {
    let mut wide = 0u64;
    call.make(|driver| driver.get(Out::to(&mut wide), len, Kind::Device, Where::Low))?;
    out.set(wide as u32);
    Ok(())
}

pub fn free(call: &Call, p: u64) -> Answer {
    call.make(|driver| driver.drop(p, false))
}

fn pitch(width: u64) -> u64 {
    width.next_multiple_of(512)
}

driver_functions! { call;
    cuMemAlloc_v2(p: Out<u64>, n: usize) => get(&call, p, n, Kind::Device);
    cuMemAlloc(p: Out<u32>, n: u32) => get_low(&call, p, n as u64);
    cuMemAllocPitch_v2(p: Out<u64>, rows_apart: Out<u64>, w: usize, h: usize, element: u32) => {
        get(&call, p, pitch(w as u64) as usize * h, Kind::Device).map(|()| rows_apart.set(pitch(w as u64)))
    };
    cuMemAllocPitch(p: Out<u32>, rows_apart: Out<u32>, w: u32, h: u32, element: u32) => {
        get_low(&call, p, pitch(w as u64) * h as u64).map(|()| rows_apart.set(pitch(w as u64) as u32))
    };
    cuMemAllocManaged(p: Out<u64>, n: usize, flags: u32) => get(&call, p, n, Kind::Managed);
    cuMemFree_v2(p: u64) => free(&call, p);
    cuMemFree(p: u32) => free(&call, p as u64);
    cuMemAllocHost_v2(p: Out<u64>, n: usize) => get(&call, p, n, Kind::Pinned);
    cuMemAllocHost(p: Out<u64>, n: u32) => get(&call, p, n as usize, Kind::Pinned);
    cuMemHostAlloc(p: Out<u64>, n: usize, flags: u32) => get(&call, p, n, Kind::Pinned);
    cuMemFreeHost(p: u64) => call.make(|driver| driver.drop(p, true));
    cuMemHostRegister_v2(p: u64, n: usize, flags: u32) => call.make(|driver| {
        driver.add_block(p, n as u64, Kind::Registered);
        Ok(())
    });
    cuMemHostRegister(p: u64, n: u32, flags: u32) => answered(cuMemHostRegister_v2(p, n as usize, flags));
    cuMemHostUnregister(p: u64) => call.make(|driver| {
        driver.block(p).filter(|b| b.kind == Kind::Registered).ok_or(NOT_REGISTERED)?;
        driver.drop_block(p);
        Ok(())
    });
    cuMemGetInfo_v2(free: Out<u64>, total: Out<u64>) => call.make(|driver| {
        let (_, device) = driver.current()?;
        free.set(TOTAL[device] - driver.used[device] - CONTEXT_BYTES);
        total.set(TOTAL[device]);
        Ok(())
    });
    cuMemGetInfo(free: Out<u32>, total: Out<u32>) => {
        call.make(|_| {
            free.set(0);
            total.set(0);
            Ok(())
        })
    };
    cuPointerGetAttribute(data: Out<u32>, what: i32, p: u64) => call.make(|driver| {
        const MEMORY_TYPE: i32 = 2;
        const IS_MANAGED: i32 = 8;
        const DEVICE_ORDINAL: i32 = 9;
        let b = driver.block(p).ok_or(INVALID_VALUE)?;
        match what {
            MEMORY_TYPE => data.set(if driver.is_of_host(b) { 1 } else { 2 }),
            IS_MANAGED => data.of::<u8>().set((b.kind == Kind::Managed) as u8),
            DEVICE_ORDINAL => data.set(b.device as u32),
            _ => return Err(INVALID_VALUE),
        }
        Ok(())
    });
    cuMemGetAddressRange_v2(base: Out<u64>, len: Out<u64>, p: u64) => call.make(|driver| {
        let b = driver.block(p).filter(|b| !matches!(b.kind, Kind::Pinned | Kind::Registered)).ok_or(INVALID_VALUE)?;
        base.set(b.at);
        len.set(b.len);
        Ok(())
    });
}
