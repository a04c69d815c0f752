//! What the driver says of itself and of its devices.

use crate::DEVICES;
use crate::arguments::{Out, variable};
use crate::call::driver_functions;
use crate::code::{INVALID_DEVICE, INVALID_VALUE, NOT_FOUND};
use crate::lookup::version;
use crate::memory::TOTAL;

/// Device 0 has that of FAKE_UUID, where that is set; the others have their number and one.
fn uuid(d: i32) -> Result<[u8; 16], i32> {
    let number = match variable(c"FAKE_UUID").filter(|_| d == 0) {
        Some(digits) => std::str::from_utf8(digits).ok().and_then(|digits| u128::from_str_radix(digits, 16).ok()),
        None => Some(d as u128 + 1),
    };
    number.map(u128::to_be_bytes).ok_or(INVALID_VALUE)
}

driver_functions! { call;
    cuInit(flags: u32) => call.make(|driver| {
        driver.initialised = true;
        if flags == 0 { Ok(()) } else { Err(INVALID_VALUE) }
    });
    cuDriverGetVersion(v: Out<i32>) => {
        v.set(version());
        Ok(())
    };
    cuDeviceGetCount(n: Out<i32>) => {
        n.set(DEVICES as i32);
        Ok(())
    };
    cuDeviceGet(d: Out<i32>, i: i32) => {
        d.set(i);
        if (i as usize) < DEVICES { Ok(()) } else { Err(INVALID_DEVICE) }
    };
    cuDeviceGetName(name: Out<u8>, len: i32, d: i32) => {
        let mut text = *b"Fake GPU 0";
        text[9] += d as u8;
        name.text(len, &text);
        Ok(())
    };
    cuDeviceTotalMem_v2(bytes: Out<u64>, d: i32) => TOTAL.get(d as usize).map(|n| bytes.set(*n)).ok_or(INVALID_DEVICE);
    // Compute capability 9.0, pools of memory; of the rest, that it is there.
    cuDeviceGetAttribute(v: Out<i32>, what: i32, d: i32) => {
        const MAJOR: i32 = 75;
        const MINOR: i32 = 76;
        v.set(match what {
            MAJOR => 9,
            MINOR => 0,
            _ => 1,
        });
        Ok(())
    };
    cuDeviceGetUuid(id: Out<[u8; 16]>, d: i32) => uuid(d).map(|of| id.set(of));
    cuDeviceGetUuid_v2(id: Out<[u8; 16]>, d: i32) => uuid(d).map(|of| id.set(of));
    // Where device 0 is on the bus, where FAKE_BUS says so; the others are nowhere.
    cuDeviceGetPCIBusId(text: Out<u8>, len: i32, d: i32) => {
        let at = variable(c"FAKE_BUS").filter(|_| d == 0);
        at.map(|at| text.text(len, at)).ok_or(INVALID_VALUE)
    };
    cuGetExportTable(table: Out<u64>, id: usize) => {
        table.set(0);
        Err(NOT_FOUND)
    };
    // A call that no list has heard of.
    cuMemTeleportAsync(p: u64, s: u64) => Ok(());
}
