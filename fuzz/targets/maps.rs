//! Rows of map calls, as they stand in a line.
#![no_main]
use libfuzzer_sys::fuzz_target;
use memshim::model::mapfeed::MapFeed;
use memshim::model::timeline::Timeline;
use memshim::trace::maprow::{MapRow, MapWhat};

const WHAT: [MapWhat; 9] = [
    MapWhat::Mmap,
    MapWhat::Munmap,
    MapWhat::Mremap,
    MapWhat::Mprotect,
    MapWhat::Madvise,
    MapWhat::Brk,
    MapWhat::Shmat,
    MapWhat::Shmdt,
    MapWhat::Undo,
];

// A name, nine numbers, each a byte that is a small number or a wild one.
fuzz_target!(|bytes: &[u8]| {
    let number = |b: u8| match b {
        0xff => u64::MAX,
        0xfe => 1 << 63,
        0xfd => u64::MAX - 4095,
        b if b >= 128 => u64::from(b - 128) << 12,
        b => u64::from(b),
    };
    let mut timeline = Timeline::new(0, 16);
    let mut feed = MapFeed::new(4096);
    for row in bytes.chunks_exact(10) {
        let what = WHAT[row[0] as usize % WHAT.len()];
        feed.add(MapRow { what, n: std::array::from_fn(|i| number(row[i + 1])), site: u32::from(row[0] >> 4) }, &mut timeline);
    }
    let end = feed.finish(&mut timeline);
    assert!(end.calls.iter().all(|c| c.unmaps <= c.maps));
});
