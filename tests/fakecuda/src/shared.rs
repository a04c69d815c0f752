//! Memory of others: of another process, of another API.

use crate::Answer;
use crate::arguments::{In, Out};
use crate::arrays::Array;
use crate::call::{Call, answered, driver_functions};
use crate::code::INVALID_VALUE;
use crate::memory::{self, Kind, Where, room};
use crate::physical::External;

/// What a process gives another one.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Ipc([u8; 64]);

/// What marks blocks of another process, and how long its memory is.
const OF_PROCESS: u64 = 1;
const SHARED: u64 = 4096;

/// Memory that is another's: its address.
fn import(call: &Call, p: Out<u64>, what: impl FnOnce(&mut crate::call::Driver) -> Result<u64, i32>) -> Answer {
    call.make(|driver| {
        let len = what(driver)?;
        let at = room(len, Where::Anywhere);
        p.set(at);
        driver.add_block(at, len, Kind::Imported);
        Ok(())
    })
}

driver_functions! { call;
    // It has one address here, however often it is opened.
    cuIpcOpenMemHandle_v2(p: Out<u64>, h: Ipc, flags: u32) => call.make(|driver| {
        if !h.0.starts_with(b"shared") || flags != 1 {
            return Err(INVALID_VALUE);
        }
        let open = driver.blocks.iter().find(|b| b.kind == Kind::Imported && b.of == OF_PROCESS).map(|b| b.at);
        let at = open.unwrap_or_else(|| room(SHARED, Where::Anywhere));
        p.set(at);
        driver.add_block(at, SHARED, Kind::Imported).of = OF_PROCESS;
        Ok(())
    });
    cuIpcOpenMemHandle(p: Out<u64>, h: Ipc, flags: u32) => answered(cuIpcOpenMemHandle_v2(p, h, flags));
    cuIpcCloseMemHandle(p: u64) => memory::free(&call, p);
    cuImportExternalMemory(e: Out<u64>, descriptor: In<u64>) => call.make(|driver| {
        e.set(driver.external.add(External { len: descriptor.at(3) }));
        Ok(())
    });
    cuExternalMemoryGetMappedBuffer(p: Out<u64>, e: u64, descriptor: In<u64>) => import(&call, p, |driver| {
        let most = driver.external.get(e).ok_or(INVALID_VALUE)?.len;
        Some(descriptor.at(1)).filter(|len| *len <= most).ok_or(INVALID_VALUE)
    });
    // Its memory is the external one's.
    cuExternalMemoryGetMappedMipmappedArray(a: Out<u64>, e: u64, descriptor: usize) => call.make(|driver| {
        driver.external.get(e).ok_or(INVALID_VALUE)?;
        let (context, device) = driver.current()?;
        a.set(driver.arrays.add(Array { len: 0, context, device }));
        Ok(())
    });
    cuMemPoolImportPointer(p: Out<u64>, pool: u64, of_others: In<u64>) =>
        import(&call, p, |driver| driver.pools.get(pool).map(|_| of_others.get()).ok_or(INVALID_VALUE));
    cuDestroyExternalMemory(e: u64) => call.make(|_| Ok(()));
}
