//! Kernels. A kernel's function is the number of nanoseconds that it takes.

use crate::Answer;
use crate::arguments::{In, Out};
use crate::call::{Call, Driver, driver_functions};
use crate::code::{INVALID_HANDLE, INVALID_VALUE};
use crate::layouts::Config;
use crate::streams::Default::{self, Legacy, Own};
use crate::tap::{Run, What};

fn run(driver: &mut Driver, length: i64, s: u64, default: Default) -> Answer {
    let stream = driver.stream_or(s, default, INVALID_HANDLE)?;
    if let Some(graph) = driver.capture(driver.streams[stream].capture).map(|c| c.graph) {
        return driver.add_step(graph, What::Kernel, length, 0);
    }
    let ends = driver.schedule(stream, length);
    driver.ran(stream, ends - length, ends, Run { what: What::Kernel, bytes: 0, rate: 0, kernel: length, node: 0 });
    Ok(())
}

fn launch(call: &Call, length: i64, s: u64, default: Default) -> Answer {
    call.start(|driver| run(driver, length, s, default))
}

/// The last argument is checked: it comes by the stack.
fn launch_checked(call: &Call, length: i64, s: u64, default: Default, extra: In<u64>) -> Answer {
    call.start(|driver| match extra.is_null() || extra.get() == 0x5eed {
        true => run(driver, length, s, default),
        false => Err(INVALID_VALUE),
    })
}

fn launch_configured(call: &Call, c: In<Config>, length: i64, default: Default) -> Answer {
    call.start(|driver| run(driver, length, if c.is_null() { Err(INVALID_VALUE)? } else { c.get().stream }, default))
}

/// One launch of several.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct OnDevice {
    function: i64,
    dimensions: [u32; 6],
    shared: u32,
    stream: u64,
    params: usize,
}

driver_functions! { call;
    cuLaunchKernel(f: i64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, s: u64, params: usize, extra: In<u64>) =>
        launch_checked(&call, f, s, Legacy, extra);
    cuLaunchKernel_ptsz(f: i64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, s: u64, params: usize, extra: In<u64>) =>
        launch_checked(&call, f, s, Own, extra);
    cuLaunchCooperativeKernel(f: i64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, s: u64, params: usize) =>
        launch(&call, f, s, Legacy);
    cuLaunchCooperativeKernel_ptsz(f: i64, gx: u32, gy: u32, gz: u32, bx: u32, by: u32, bz: u32, shared: u32, s: u64, params: usize) =>
        launch(&call, f, s, Own);
    cuLaunch(f: i64) => launch(&call, f, 0, Legacy);
    cuLaunchGrid(f: i64, w: i32, h: i32) => launch(&call, f, 0, Legacy);
    cuLaunchGridAsync(f: i64, w: i32, h: i32, s: u64) => launch(&call, f, s, Legacy);
    cuLaunchCooperativeKernelMultiDevice(list: In<OnDevice>, count: u32, flags: u32) => call.start(|driver| match count {
        0 => Err(INVALID_VALUE),
        n => (0..n as usize).map(|i| list.at(i)).try_for_each(|of| run(driver, of.function, of.stream, Legacy)),
    });
    cuLaunchKernelEx(c: In<Config>, f: i64, params: usize, extra: usize) => launch_configured(&call, c, f, Legacy);
    cuLaunchKernelEx_ptsz(c: In<Config>, f: i64, params: usize, extra: usize) => launch_configured(&call, c, f, Own);
    cuModuleLoadData(module: Out<u64>, image: usize) => {
        module.set(1);
        Ok(())
    };
    // A tenth of a millisecond.
    cuModuleGetFunction(f: Out<i64>, module: u64, name: usize) => {
        f.set(100_000);
        Ok(())
    };
}
