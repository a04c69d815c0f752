//! Pools of memory in stream order: they reserve in steps, and keep what they have until the host waits, or as much as they are told to until trimmed.

use crate::arguments::{In, Out};
use crate::call::{Call, Driver, driver, driver_functions};
use crate::code::{INVALID_DEVICE, INVALID_HANDLE, INVALID_VALUE, OUT_OF_MEMORY};
use crate::layouts::{Location, ON_DEVICE};
use crate::list::Listed;
use crate::memory::{self, Kind, Where, room};
use crate::streams::Default;
use crate::{Answer, DEVICES};

pub struct Pool {
    device: usize,
    /// Its memory is the host's.
    pub of_host: bool,
    pub used: u64,
    used_high: u64,
    reserved: u64,
    reserved_high: u64,
    /// What is reserved beyond it and not used goes when the host waits.
    threshold: u64,
}

impl Listed for Pool {
    const KIND: u64 = 0x5c05;
}

const STEP: u64 = 32 << 20;

impl Pool {
    fn new(device: usize) -> Pool {
        Pool { device, of_host: false, used: 0, used_high: 0, reserved: 0, reserved_high: 0, threshold: 0 }
    }
}

impl Driver {
    fn default_pool(&mut self, device: usize) -> u64 {
        if self.default_pools[device] == 0 {
            self.default_pools[device] = self.pools.add(Pool::new(device));
        }
        self.default_pools[device]
    }

    fn take(&mut self, len: u64, pool: u64, s: u64) -> Result<u64, i32> {
        let of = &self.streams[s];
        if of.capture != 0 {
            let graph = self.capture(of.capture).ok_or(INVALID_HANDLE)?.graph;
            return self.add_memory(graph, len);
        }
        let pool = match pool {
            0 => self.default_pool(self.contexts[of.context].device),
            pool => pool,
        };
        let of = self.pools.get(pool).ok_or(INVALID_VALUE)?;
        let (device, needs) = (of.device, (of.used + len).saturating_sub(of.reserved).next_multiple_of(STEP));
        if !of.of_host {
            if !self.fits(device, needs) {
                return Err(OUT_OF_MEMORY);
            }
            self.used[device] += needs;
        }
        let of = &mut self.pools[pool];
        of.reserved += needs;
        of.used += len;
        of.reserved_high = of.reserved_high.max(of.reserved);
        of.used_high = of.used_high.max(of.used);
        let p = room(len, Where::Anywhere);
        let block = self.add_block(p, len, Kind::Pooled);
        (block.of, block.device) = (pool, device);
        self.schedule(s, 0);
        Ok(p)
    }

    /// The host has waited.
    pub fn release_pools(&mut self) {
        for pool in self.pools.handles() {
            let of = &self.pools[pool];
            let keep = of.used.max(of.threshold).checked_next_multiple_of(STEP);
            let _ = self.trim(pool, keep.unwrap_or(u64::MAX));
        }
    }

    /// What is reserved beyond `keep` goes.
    fn trim(&mut self, pool: u64, keep: u64) -> Answer {
        let of = self.pools.get_mut(pool).ok_or(INVALID_VALUE)?;
        let goes = of.reserved.saturating_sub(keep);
        of.reserved -= goes;
        if !of.of_host {
            self.used[of.device] -= goes;
        }
        Ok(())
    }
}

fn from_pool(call: &Call, p: Out<u64>, n: usize, pool: u64, s: u64, default: Default) -> Answer {
    call.make(|driver| {
        let s = driver.stream_or(s, default, INVALID_HANDLE)?;
        p.set(driver.take(n as u64, pool, s)?);
        Ok(())
    })
}

fn free_in_order(call: &Call, p: u64, s: u64, default: Default) -> Answer {
    let captured = {
        let mut driver = driver();
        let s = driver.stream(s, default);
        s.is_some_and(|s| driver.streams[s].capture != 0).then(|| driver.block(p).is_some_and(|b| b.kind == Kind::OfGraph))
    };
    match captured {
        Some(true) => Ok(()),
        Some(false) => Err(INVALID_VALUE),
        None => memory::free(call, p),
    }
}

const RESERVED_CURRENT: i32 = 5;
const RESERVED_HIGH: i32 = 6;
const RELEASE_THRESHOLD: i32 = 4;
const USED_CURRENT: i32 = 7;
const USED_HIGH: i32 = 8;

driver_functions! { call;
    cuMemAllocAsync(p: Out<u64>, n: usize, s: u64) => from_pool(&call, p, n, 0, s, Default::Legacy);
    cuMemAllocAsync_ptsz(p: Out<u64>, n: usize, s: u64) => from_pool(&call, p, n, 0, s, Default::Own);
    cuMemAllocFromPoolAsync(p: Out<u64>, n: usize, pool: u64, s: u64) => from_pool(&call, p, n, pool, s, Default::Legacy);
    cuMemAllocFromPoolAsync_ptsz(p: Out<u64>, n: usize, pool: u64, s: u64) => from_pool(&call, p, n, pool, s, Default::Own);
    cuMemFreeAsync(p: u64, s: u64) => free_in_order(&call, p, s, Default::Legacy);
    cuMemFreeAsync_ptsz(p: u64, s: u64) => free_in_order(&call, p, s, Default::Own);
    cuDeviceGetMemPool(pool: Out<u64>, d: i32) => match d as usize {
        d if d < DEVICES => {
            pool.set(driver().default_pool(d));
            Ok(())
        }
        _ => Err(INVALID_DEVICE),
    };
    cuMemPoolCreate(pool: Out<u64>, properties: In<i32>) => call.make(|driver| {
        let of_host = properties.at(2) != ON_DEVICE;
        let device = if of_host { 0 } else { properties.at(3) as usize };
        pool.set(driver.pools.add(Pool { of_host, ..Pool::new(device) }));
        Ok(())
    });
    cuMemGetDefaultMemPool(pool: Out<u64>, at: In<Location>, kind: i32) => {
        let mut driver = driver();
        let found = match at.get() {
            Location { kind: ON_DEVICE, id } => driver.default_pool(id as usize),
            _ => driver.pools.add(Pool { of_host: true, ..Pool::new(0) }),
        };
        pool.set(found);
        Ok(())
    };
    cuMemPoolTrimTo(pool: u64, keep: usize) => call.make(|driver| {
        let used = driver.pools.get(pool).ok_or(INVALID_VALUE)?.used;
        driver.trim(pool, used.max(keep as u64).next_multiple_of(STEP))
    });
    cuMemPoolDestroy(pool: u64) => call.make(|driver| driver.trim(pool, 0));
    cuMemPoolGetAttribute(pool: u64, what: i32, v: Out<u64>) => {
        let driver = driver();
        let of = driver.pools.get(pool).ok_or(INVALID_VALUE);
        let value = of.and_then(|of| match what {
            RESERVED_CURRENT => Ok(of.reserved),
            RESERVED_HIGH => Ok(of.reserved_high),
            USED_CURRENT => Ok(of.used),
            USED_HIGH => Ok(of.used_high),
            _ => Err(INVALID_VALUE),
        });
        v.set(value.unwrap_or(0));
        value.map(|_| ())
    };
    cuMemPoolSetAttribute(pool: u64, what: i32, v: In<u64>) => call.make(|driver| {
        let of = driver.pools.get_mut(pool).ok_or(INVALID_VALUE)?;
        match what {
            RESERVED_HIGH => of.reserved_high = of.reserved,
            USED_HIGH => of.used_high = of.used,
            RELEASE_THRESHOLD => of.threshold = v.get(),
            _ => {}
        }
        Ok(())
    });
}
