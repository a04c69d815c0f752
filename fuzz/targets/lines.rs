//! One line.
#![no_main]
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = memshim::trace::line::parse(bytes);
});
