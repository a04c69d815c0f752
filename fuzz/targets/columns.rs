//! One column: what can be read of it is read again after it was written.
#![no_main]
use libfuzzer_sys::fuzz_target;
use memshim::trace::column::push_v93;
use memshim_format::v93::Decoder;

fuzz_target!(|bytes: &[u8]| {
    let values: Vec<u64> = Decoder::new(bytes).collect();
    let mut written = Vec::new();
    values.iter().for_each(|&v| push_v93(&mut written, v));
    assert_eq!(Decoder::new(&written).collect::<Vec<_>>(), values);
});
