//! Physical memory by handles, mapped at reserved addresses. A handle lives until it is neither held nor mapped.

use crate::arguments::{In, Out};
use crate::call::{Driver, driver_functions};
use crate::code::{INVALID_VALUE, OUT_OF_MEMORY};
use crate::layouts::{Location, ON_DEVICE, ON_NODE};
use crate::list::Listed;
use crate::memory::{self, Kind, Where, room};

pub struct Physical {
    len: u64,
    device: usize,
    pub of_host: bool,
    refs: i32,
    maps: i32,
    imported: bool,
}

impl Listed for Physical {
    const KIND: u64 = 0x5c06;
}

/// Memory of another API's.
pub struct External {
    pub len: u64,
}

impl Listed for External {
    const KIND: u64 = 0x5c07;
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Properties {
    kind: i32,
    handles: i32,
    at: Location,
    security: u64,
    flags: u64,
}

impl Driver {
    fn let_go(&mut self, handle: u64) {
        let h = &self.physical[handle];
        if h.refs == 0 && h.maps == 0 && !h.imported && !h.of_host {
            self.used[h.device] -= h.len;
        }
    }
}

driver_functions! { call;
    cuMemCreate(h: Out<u64>, n: usize, properties: In<Properties>, flags: u64) => call.make(|driver| {
        let at = properties.get().at;
        let of_host = at.kind != ON_DEVICE;
        let device = if of_host { 0 } else { at.id as usize };
        if !of_host {
            if !driver.fits(device, n as u64) {
                return Err(OUT_OF_MEMORY);
            }
            driver.used[device] += n as u64;
        }
        h.set(driver.physical.add(Physical { len: n as u64, device, of_host, refs: 1, maps: 0, imported: false }));
        Ok(())
    });
    cuMemRelease(h: u64) => call.make(|driver| {
        driver.physical.get_mut(h).filter(|h| h.refs != 0).ok_or(INVALID_VALUE)?.refs -= 1;
        driver.let_go(h);
        Ok(())
    });
    cuMemAddressReserve(p: Out<u64>, n: usize, align: usize, at: u64, flags: u64) => {
        p.set(room(n as u64, Where::Anywhere));
        Ok(())
    };
    cuMemAddressFree(p: u64, n: usize) => {
        memory::give_back(p, n as u64);
        Ok(())
    };
    cuMemSetAccess(p: u64, n: usize, access: usize, count: usize) => Ok(());
    cuMemMap(p: u64, n: usize, offset: usize, h: u64, flags: u64) => call.make(|driver| {
        let of = driver.physical.get_mut(h).ok_or(INVALID_VALUE)?;
        of.maps += 1;
        let device = of.device;
        let block = driver.add_block(p, n as u64, Kind::Mapped);
        (block.of, block.device) = (h, device);
        Ok(())
    });
    cuMemUnmap(p: u64, n: usize) => call.make(|driver| {
        let end = p + n as u64;
        let mut p = p;
        while let Some((handle, len)) = driver.block(p).filter(|b| b.kind == Kind::Mapped && p < end).map(|b| (b.of, b.len)) {
            driver.drop_block(p);
            p += len;
            driver.physical[handle].maps -= 1;
            driver.let_go(handle);
        }
        Ok(())
    });
    cuMemRetainAllocationHandle(h: Out<u64>, p: u64) => call.make(|driver| {
        let of = driver.block(p).filter(|b| b.kind == Kind::Mapped).ok_or(INVALID_VALUE)?.of;
        driver.physical[of].refs += 1;
        h.set(of);
        Ok(())
    });
    cuMemGetAllocationPropertiesFromHandle(p: Out<Properties>, h: u64) => call.make(|driver| {
        let of = driver.physical.get(h).ok_or(INVALID_VALUE)?;
        let at = Location { kind: if of.of_host { ON_NODE } else { ON_DEVICE }, id: of.device as i32 };
        p.set(Properties { kind: 1, handles: 1, at, security: 0, flags: 0 });
        Ok(())
    });
    cuMemImportFromShareableHandle(h: Out<u64>, of_system: usize, kind: i32) => call.make(|driver| {
        h.set(driver.physical.add(Physical { len: 0, device: 0, of_host: false, refs: 1, maps: 0, imported: true }));
        Ok(())
    });
    // A name for memory of several devices.
    cuMulticastCreate(h: Out<u64>, properties: usize) => call.make(|driver| {
        h.set(driver.physical.add(Physical { len: 0, device: 0, of_host: false, refs: 1, maps: 0, imported: true }));
        Ok(())
    });
    cuMemGetAllocationGranularity(n: Out<u64>, properties: usize, option: i32) => {
        n.set(2 << 20);
        Ok(())
    };
}
