//! The clock, and how long operations take.

use crate::call::{driver, driver_functions};

/// Bytes a microsecond.
pub const H2D_PINNED: i32 = 25000;
pub const H2D_PAGEABLE: i32 = 6000;
pub const D2H_PINNED: i32 = 20000;
pub const D2H_PAGEABLE: i32 = 5000;
pub const D2D: i32 = 1_000_000;
pub const P2P: i32 = 40000;
pub const H2H: i32 = 10000;
pub const SET: i32 = 1_500_000;
/// Which every operation has.
const LATENCY: i64 = 2000;

pub fn took(bytes: u64, rate: i32) -> i64 {
    LATENCY + (bytes * 1000 / rate as u64) as i64
}

pub fn clock_of(clock: libc::clockid_t) -> i64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a variable of the right type.
    unsafe { libc::clock_gettime(clock, &raw mut t) };
    t.tv_sec * 1_000_000_000 + t.tv_nsec
}

/// Not an answer, but a time.
#[unsafe(no_mangle)]
pub extern "C" fn fake_now() -> i64 {
    driver().now
}

/// The clock goes on to where the machine's is since the first of these calls (made by a program that says so), by whole eighths of a
/// millisecond, which a float has exactly: what is begun then lies on both clocks at the same time, and is as long as ever.
#[unsafe(no_mangle)]
pub extern "C" fn fake_follow(begin: i32) -> i64 {
    let mut driver = driver();
    let machine = clock_of(libc::CLOCK_MONOTONIC);
    if begin != 0 && driver.followed_from.is_none() {
        driver.followed_from = Some(machine - driver.now);
    }
    if let Some(from) = driver.followed_from {
        driver.now = driver.now.max((machine - from) / 125_000 * 125_000);
    }
    driver.now
}

driver_functions! { call;
    fake_sleep(ns: i64) => {
        driver().now += ns;
        Ok(())
    };
}
