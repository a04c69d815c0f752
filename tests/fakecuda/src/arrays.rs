//! Arrays: they hold nothing here, but their size.

use crate::Answer;
use crate::arguments::{In, Out};
use crate::call::{Call, driver_functions};
use crate::code::INVALID_VALUE;
use crate::layouts::{Descriptor2, Descriptor3, NarrowDescriptor2, NarrowDescriptor3};
use crate::list::Listed;

pub struct Array {
    pub len: u64,
    pub context: u64,
    pub device: usize,
}

impl Listed for Array {
    const KIND: u64 = 0x5c04;
}

fn create(call: &Call, a: Out<u64>, len: impl FnOnce() -> u64) -> Answer {
    call.make(|driver| {
        let (context, device) = driver.current()?;
        let len = len();
        driver.used[device] += len;
        a.set(driver.arrays.add(Array { len, context, device }));
        Ok(())
    })
}

fn destroy(call: &Call, a: u64) -> Answer {
    call.make(|driver| {
        let of = driver.arrays.get_mut(a).ok_or(INVALID_VALUE)?;
        driver.used[of.device] -= std::mem::take(&mut of.len);
        Ok(())
    })
}

fn element(format: i32, channels: u32) -> u64 {
    channels as u64
        * match format {
            3 | 0x20 => 4,
            0x10 => 2,
            _ => 1,
        }
}

fn size([w, h, d]: [u64; 3], format: i32, channels: u32) -> u64 {
    w * h.max(1) * d.max(1) * element(format, channels)
}

driver_functions! { call;
    cuArrayCreate_v2(a: Out<u64>, d: In<Descriptor2>) => {
        create(&call, a, || size([d.get().w, d.get().h, 0], d.get().format, d.get().channels))
    };
    cuArrayCreate(a: Out<u64>, d: In<NarrowDescriptor2>) => {
        create(&call, a, || size([d.get().w, d.get().h, 0].map(u64::from), d.get().format, d.get().channels))
    };
    cuArray3DCreate_v2(a: Out<u64>, d: In<Descriptor3>) => {
        create(&call, a, || size([d.get().w, d.get().h, d.get().d], d.get().format, d.get().channels))
    };
    cuArray3DCreate(a: Out<u64>, d: In<NarrowDescriptor3>) => {
        create(&call, a, || size([d.get().w, d.get().h, d.get().d].map(u64::from), d.get().format, d.get().channels))
    };
    cuArrayDestroy(a: u64) => destroy(&call, a);
    cuMipmappedArrayCreate(a: Out<u64>, d: In<Descriptor3>, levels: u32) => {
        let level = |d: &Descriptor3, i: u32| size([(d.w >> i).max(1), d.h >> i, d.d >> i], d.format, d.channels);
        create(&call, a, || (0..levels).map(|i| level(&d.get(), i)).sum())
    };
    cuMipmappedArrayDestroy(a: u64) => destroy(&call, a);
}
