//! Contexts, and which of them a thread is in.

use crate::arguments::{Out, variable};
use crate::call::{Call, Driver, answered, driver, driver_functions};
use crate::code::{INVALID_CONTEXT, INVALID_DEVICE, INVALID_HANDLE, NOT_INITIALIZED};
use crate::list::Listed;
use crate::memory::Kind;
use crate::streams::Stream;
use crate::{Answer, DEVICES};
use std::cell::Cell;

pub struct Context {
    pub device: usize,
    live: bool,
    uses: i32,
    /// The stream that calls without one are for.
    pub legacy: u64,
}

impl Listed for Context {
    const KIND: u64 = 0x5c01;
}

/// Some of a device's processors: a context of its own, which holds the primary one.
pub struct Green {
    context: u64,
    device: usize,
}

impl Listed for Green {
    const KIND: u64 = 0x5c0a;
}

thread_local! {
    static CURRENT: Cell<u64> = const { Cell::new(0) };
    /// What is below the current one on the thread's stack, and how much.
    static BELOW: Cell<([u64; 16], usize)> = const { Cell::new(([0; 16], 0)) };
}

/// The thread's context, 0 for none.
pub fn current() -> u64 {
    CURRENT.get()
}

impl Driver {
    fn new_context(&mut self, device: usize) -> u64 {
        let legacy = self.streams.add(Stream { number: 7, listed: false, ..Stream::new(0, true) });
        let context = self.contexts.add(Context { device, live: true, uses: 1, legacy });
        self.streams[legacy].context = context;
        context
    }

    fn end_context(&mut self, context: u64) {
        self.drop_blocks(|b| b.context == context && !matches!(b.kind, Kind::Pooled | Kind::Mapped));
        for a in self.arrays.iter_mut().filter(|a| a.context == context) {
            self.used[a.device] -= a.len;
            a.len = 0;
        }
        let mut captures = Vec::new();
        for s in self.streams.iter_mut().filter(|s| s.listed && s.context == context) {
            captures.push(s.capture);
            s.live = false;
        }
        captures.into_iter().for_each(|c| self.close_capture(c));
    }

    fn destroy(&mut self, context: u64) -> Answer {
        if !self.contexts.get(context).is_some_and(|of| of.live) {
            return Err(INVALID_CONTEXT);
        }
        self.end_context(context);
        self.contexts[context].live = false;
        if current() == context {
            CURRENT.set(0);
        }
        Ok(())
    }

    /// The primary context of a device, held once more.
    fn retain(&mut self, d: usize) -> u64 {
        if self.primary[d] == 0 {
            self.primary[d] = self.new_context(d);
        }
        self.primary_uses[d] += 1;
        self.primary[d]
    }

    fn release(&mut self, d: usize) {
        self.primary_uses[d] -= 1;
        if self.primary_uses[d] == 0 {
            self.end_context(self.primary[d]);
            self.contexts[self.primary[d]].live = false;
            self.primary[d] = 0;
        }
    }
}

fn device(d: i32) -> Result<usize, i32> {
    Some(d as usize).filter(|d| *d < DEVICES).ok_or(INVALID_DEVICE)
}

fn create(call: &Call, c: Out<u64>, d: i32) -> Answer {
    call.make(|driver| {
        let made = driver.new_context(device(d)?);
        CURRENT.set(made);
        c.set(made);
        Ok(())
    })
}

driver_functions! { call;
    cuCtxGetCurrent(c: Out<u64>) => {
        c.set(current());
        if driver().initialised { Ok(()) } else { Err(NOT_INITIALIZED) }
    };
    cuCtxSetCurrent(c: u64) => {
        // Threads but the first get no processor, as it were.
        // SAFETY: questions of the kernel.
        if variable(c"FAKE_STARVED").is_some() && unsafe { libc::gettid() != libc::getpid() } {
            // SAFETY: a rest.
            unsafe { libc::sleep(10) };
        }
        let mut driver = driver();
        if driver.contexts.get(c).is_some_and(|of| !of.live) {
            driver.entered_dead += 1;
            Err(INVALID_CONTEXT)
        } else {
            CURRENT.set(c);
            Ok(())
        }
    };
    // How often somebody wanted to enter a context that was gone.
    fake_entered_dead() => {
        Err(driver().entered_dead)
    };
    cuCtxPushCurrent_v2(c: u64) => {
        let (mut below, depth) = BELOW.get();
        if c == 0 || depth == below.len() {
            Err(INVALID_CONTEXT)
        } else {
            below[depth] = current();
            BELOW.set((below, depth + 1));
            CURRENT.set(c);
            Ok(())
        }
    };
    cuCtxPopCurrent_v2(c: Out<u64>) => {
        let (below, depth) = BELOW.get();
        if current() == 0 {
            Err(INVALID_CONTEXT)
        } else {
            c.set(current());
            CURRENT.set(depth.checked_sub(1).map_or(0, |top| below[top]));
            BELOW.set((below, depth.saturating_sub(1)));
            Ok(())
        }
    };
    cuCtxGetDevice(d: Out<i32>) => driver().current().map(|(_, device)| d.set(device as i32));
    cuDevicePrimaryCtxRetain(c: Out<u64>, d: i32) => call.make(|driver| {
        let d = device(d)?;
        c.set(driver.retain(d));
        Ok(())
    });
    // Past every hook: somebody takes a device's primary context, as the runtime does by a table of the driver's.
    fake_hold_primary(d: i32) => {
        let mut c = 0u64;
        answered(cuDevicePrimaryCtxRetain(Out::to(&mut c), d))
    };
    cuDevicePrimaryCtxGetState(d: i32, flags: Out<u32>, active: Out<i32>) => {
        flags.set(0);
        device(d).map(|d| active.set((driver().primary_uses[d] > 0) as i32))
    };
    cuCtxCreate(c: Out<u64>, flags: u32, d: i32) => create(&call, c, d);
    cuCtxCreate_v2(c: Out<u64>, flags: u32, d: i32) => create(&call, c, d);
    cuCtxCreate_v3(c: Out<u64>, params: usize, n: i32, flags: u32, d: i32) => create(&call, c, d);
    cuCtxCreate_v4(c: Out<u64>, params: usize, flags: u32, d: i32) => create(&call, c, d);
    cuCtxDestroy_v2(c: u64) => call.make(|driver| driver.destroy(c));
    cuCtxAttach(c: Out<u64>, flags: u32) => call.make(|driver| {
        driver.contexts.get_mut(current()).ok_or(INVALID_CONTEXT)?.uses += 1;
        c.set(current());
        Ok(())
    });
    cuCtxDetach(c: u64) => call.make(|driver| {
        let of = driver.contexts.get_mut(c).filter(|of| of.live).ok_or(INVALID_CONTEXT)?;
        of.uses -= 1;
        if of.uses == 0 { driver.destroy(c) } else { Ok(()) }
    });
    cuGreenCtxCreate(green: Out<u64>, resources: usize, d: i32, flags: u32) => call.make(|driver| {
        let device = device(d)?;
        driver.retain(device);
        let context = driver.new_context(device);
        green.set(driver.greens.add(Green { context, device }));
        Ok(())
    });
    cuCtxFromGreenCtx(c: Out<u64>, green: u64) => call.make(|driver| {
        c.set(driver.greens.get(green).ok_or(INVALID_HANDLE)?.context);
        Ok(())
    });
    cuGreenCtxDestroy(green: u64) => call.make(|driver| {
        let of = driver.greens.get(green).ok_or(INVALID_HANDLE)?;
        let (context, device) = (of.context, of.device);
        // Memory is the primary context's.
        let primary = driver.primary[device];
        driver.blocks.iter_mut().filter(|b| b.context == context).for_each(|b| b.context = primary);
        driver.destroy(context)?;
        driver.release(device);
        Ok(())
    });
    cuCtxDestroy(c: u64) => answered(cuCtxDestroy_v2(c));
    cuDevicePrimaryCtxReset_v2(d: i32) => call.make(|driver| {
        let d = device(d)?;
        if driver.primary[d] != 0 {
            driver.end_context(driver.primary[d]);
        }
        (driver.primary_uses[d], driver.primary[d]) = (0, 0);
        Ok(())
    });
    cuDevicePrimaryCtxReset(d: i32) => answered(cuDevicePrimaryCtxReset_v2(d));
    cuDevicePrimaryCtxRelease_v2(d: i32) => call.make(|driver| {
        driver.release(device(d)?);
        Ok(())
    });
    cuDevicePrimaryCtxRelease(d: i32) => answered(cuDevicePrimaryCtxRelease_v2(d));
}
