//! Values of flags: sizes and times, by the same grammar as in the variables that the shim reads.

use memshim_format::value;

/// A number of bytes: `65536`, `64KiB`, `64k`, `1.5GiB`, `2MB`.
pub fn bytes(text: &str) -> Result<u64, String> {
    value::bytes(text.as_bytes()).ok_or_else(|| format!("`{text}` is not a size: write a number of bytes or 64KiB, 2MiB, 1.5GiB"))
}

/// A sampling interval in nanoseconds, within what the shim takes.
pub fn interval(text: &str) -> Result<u64, String> {
    match value::nanoseconds(text.as_bytes()) {
        None => Err(format!("`{text}` is not a time: write 100ms, 1s or 250us")),
        Some(_) => value::interval(text.as_bytes()).ok_or_else(|| format!("`{text}` is not between 1ms and 1h")),
    }
}
