//! Who watches: CUPTI.

use crate::call::{Driver, driver, driver_functions};
use std::ffi::{CStr, c_char};

/// An operation of a stream.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Work {
    pub what: What,
    pub begins: i64,
    pub ends: i64,
    pub kernel: i64,
    pub bytes: u64,
    pub node: u64,
    pub rate: i32,
    pub device: i32,
    pub stream: i32,
    pub correlation: u32,
}

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum What {
    Kernel,
    Copy,
    Set,
}

/// Told of each call that starts work, from inside it, and of the work.
#[repr(C)]
pub struct Tap {
    pub call: extern "C" fn(*const c_char, u32),
    pub work: extern "C" fn(*const Work),
}

impl Tap {
    pub fn call(&self, symbol: &CStr, correlation: u32) {
        (self.call)(symbol.as_ptr(), correlation);
    }
}

/// What runs, apart from when and where.
#[derive(Clone, Copy)]
pub struct Run {
    pub what: What,
    pub bytes: u64,
    pub rate: i32,
    pub kernel: i64,
    pub node: u64,
}

impl Driver {
    pub fn ran(&self, stream: u64, begins: i64, ends: i64, run: Run) {
        let Some(tap) = self.tap.filter(|_| !self.by_pages) else { return };
        let (of, Run { what, bytes, rate, kernel, node }) = (&self.streams[stream], run);
        let device = self.contexts[of.context].device as i32;
        let work = Work { what, begins, ends, kernel, bytes, node, rate, device, stream: of.number, correlation: self.correlation };
        (tap.work)(&raw const work);
    }
}

driver_functions! { call;
    fake_tap(tap: Option<&'static Tap>) => {
        driver().tap = tap;
        Ok(())
    };
}
