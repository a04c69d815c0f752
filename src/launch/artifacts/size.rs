//! How much is in a file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Bytes and line ends, as `wc` counts them.
pub fn count(path: &Path) -> Option<(u64, u64)> {
    let mut file = crate::trace::read::open_file(path).ok()?;
    let mut buffer = vec![0; 256 << 10];
    let (mut bytes, mut lines) = (0, 0);
    loop {
        let n = read(&mut file, &mut buffer)?;
        if n == 0 {
            return Some((bytes, lines));
        }
        bytes += n as u64;
        lines += memchr::memchr_iter(b'\n', &buffer[..n]).count() as u64;
    }
}

fn read(file: &mut File, buffer: &mut [u8]) -> Option<usize> {
    loop {
        match file.read(buffer) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other.ok(),
        }
    }
}
