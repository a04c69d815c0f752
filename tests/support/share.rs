//! In the place of the shim's: nobody counts here what is read and written.

pub fn reads(call: impl FnOnce() -> i64) -> i64 {
    call()
}

pub fn writes(call: impl FnOnce() -> i64) -> i64 {
    call()
}
