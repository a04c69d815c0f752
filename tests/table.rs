//! The live table's own code, the shim's files, against a map: blocks of all sizes at all densities, while it moves, grows and runs out of disk.
#![allow(static_mut_refs, dead_code)]

#[path = "support/share.rs"]
mod share;
#[path = "../shim/src/sys.rs"]
mod sys;
#[path = "../shim/src/table/mod.rs"]
mod table;

/// As much of the shim's spool as the table asks for: a file of which the disk can be full.
mod spool {
    use memshim_format::spool::Header;
    use std::os::fd::AsRawFd;

    pub struct Spool {
        pub in_file: bool,
        pub fd: i32,
        pub full: bool,
    }

    pub static mut SPOOL: Spool = Spool { in_file: true, fd: -1, full: false };
    // SAFETY: integers only.
    static mut HEADER: Header = unsafe { std::mem::zeroed() };

    pub fn header() -> *mut Header {
        &raw mut HEADER
    }

    pub fn with_fd<R>(work: impl FnOnce(i32) -> R) -> Option<R> {
        // SAFETY: one thread.
        Some(work(unsafe { SPOOL.fd }))
    }

    pub fn back(_: usize, _: usize) -> bool {
        // SAFETY: one test at a time, of one thread.
        unsafe { !SPOOL.full }
    }

    /// A new file; it stays open while what is returned is kept.
    pub fn renew() -> std::fs::File {
        let file = tempfile::tempfile().unwrap();
        // SAFETY: one test at a time, of one thread.
        unsafe { SPOOL = Spool { in_file: true, fd: file.as_raw_fd(), full: false } };
        file
    }
}

use memshim_format::live::{Entry, Header, UNIT, bytes, entries};
use memshim_format::spool::{PYTHON_BLOCK, TABLE_OFF};
use proptest::prelude::RngExt;
use proptest::test_runner::{RngAlgorithm, TestRng};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::Ordering::Relaxed;
use table::{Inserted, Table};

/// What a reader of the file finds: address >> 3 and sequence number.
fn as_read(file: &File) -> BTreeSet<(u64, u64)> {
    // SAFETY: the header is a static.
    let len = unsafe { (*spool::header()).table_bytes.load(Relaxed) } as usize;
    let mut memory = vec![0; len];
    file.read_exact_at(&mut memory, TABLE_OFF as u64).unwrap();
    let (mut at, mut found) = (0, BTreeSet::new());
    while at < len {
        let header = Header(u64::from_le_bytes(memory[at..at + 8].try_into().unwrap()));
        let class = header.class().unwrap_or_else(|| panic!("no node at {}", at / UNIT));
        let node = &memory[at..at + bytes(class)];
        if let Some(span) = header.span() {
            found.extend(entries(span, class, node).map(|(addr3, e)| (addr3, e.low_seq())));
        }
        at += node.len();
    }
    found
}

/// An address >> 3 of one of some heaps: dense and sparse ones, side by side, of Python's and not.
fn some_address(random: &mut TestRng, wide: u64) -> u64 {
    let heap =
        [0x5555_5560_0000 >> 3, 0x7fff_f000_0000 >> 3, 0x7f12_3456_0000 >> 3 | PYTHON_BLOCK, 0x1_0000 >> 3][random.random_range(0..4)];
    heap + random.random_range(0..1 << wide) / 2 * 2
}

/// There is one spool: its tests go one after the other.
static ONE: Mutex<()> = Mutex::new(());

fn hold(seed: u64, ops: u64, full_at: u64) {
    let file = spool::renew();
    let mut table = Table::new();
    let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed as u8; 32]);
    let mut model = BTreeMap::new();
    let (mut wide, mut next, mut step, mut grows) = (12, 0x6000_0000, 4, true);
    for seq in 0..ops {
        if seq == full_at {
            // SAFETY: one thread.
            unsafe { spool::SPOOL.full = true };
        }
        if random.random_range(0..ops / 20 + 1) == 0 {
            // Another part of the program: pages of many blocks, of few, or one block in many MiB; with more or fewer than before.
            let order = 1 + random.random_range(0..16);
            (wide, step, grows) = (8 + random.random_range(0..24), 2 + random.random_range(0..1 << order), random.random_range(0..3) > 0);
        }
        let addr3 = match random.random_range(0..4) {
            0 => some_address(&mut random, wide),
            1 if !model.is_empty() => {
                let from = some_address(&mut random, wide);
                *model.range(from..).next().or(model.iter().next()).unwrap().0
            }
            _ => {
                next += step;
                next
            }
        };
        let e = Entry::new(7, seq, 8 + addr3 % 512);
        if grows || random.random_range(0..3) == 0 {
            match table.insert(addr3, e) {
                Inserted::Yes => assert!(model.insert(addr3, seq).is_none(), "{seed}: another block lies at {addr3:#x}"),
                Inserted::Taken(slot) => assert_eq!(model.get(&addr3), Some(&table.get(slot).low_seq()), "{seed}: {addr3:#x}"),
                Inserted::NoMemory => panic!("{seed}: no memory"),
            }
        }
        let addr3 = if grows { addr3 } else { *model.range(addr3..).next().or(model.iter().next()).unwrap_or((&0x999, &0)).0 };
        match table.find(addr3) {
            Some(slot) => {
                assert_eq!(model.get(&addr3), Some(&table.get(slot).low_seq()), "{seed}: {addr3:#x}");
                if !grows || random.random_range(0..4) == 0 {
                    table.take(slot);
                    model.remove(&addr3);
                }
            }
            None => assert!(!model.contains_key(&addr3), "{seed}: {addr3:#x} is gone"),
        }
        assert_eq!(table.size().1, model.len() as u64, "{seed}");
        if seq % (ops / 8) == 0 && seq < full_at {
            assert!(as_read(&file).into_iter().eq(model.iter().map(|(k, v)| (*k, *v))), "{seed}: as a reader of the file finds it");
        }
    }
    for (addr3, seq) in &model {
        let slot = table.find(*addr3).unwrap_or_else(|| panic!("{seed}: {addr3:#x} is gone"));
        assert_eq!(table.get(slot).low_seq(), *seq);
        table.take(slot);
    }
    assert_eq!(table.size().1, 0);
    // SAFETY: it is not used any more.
    unsafe { table.release() };
}

#[test]
fn the_live_table_agrees_with_a_map() {
    let _one = ONE.lock();
    for seed in 0..60 {
        hold(seed, 20_000, u64::MAX);
    }
    for seed in 60..80 {
        hold(seed, 20_000, seed * 137);
    }
}

/// 51 blocks on each of many pages, of which one or two are left; then others, also where nothing was.
#[test]
fn few_blocks_left_on_many_pages_fill_no_node_for_good() {
    let _one = ONE.lock();
    let file = spool::renew();
    let mut table = Table::new();
    let mut model = BTreeMap::new();
    let mut seq = 0;
    let mut put = |table: &mut Table, addr3: u64| {
        seq += 1;
        assert!(matches!(table.insert(addr3, Entry::new(3, seq, 72)), Inserted::Yes), "{addr3:#x}");
        assert!(model.insert(addr3, seq).is_none());
    };
    let of_first = |i: u64| (0x5555_5560_0000 + 80 * i) >> 3;
    let of_later = |i: u64| if i.is_multiple_of(7) { (0x5555_5560_0028 + 9008 * i) >> 3 } else { (0x5555_8000_0000 + 4016 * i) >> 3 };
    (0..400_000).for_each(|i| put(&mut table, of_first(i)));
    let left = |i: &u64| i.is_multiple_of(40);
    for i in (0..400_000).filter(|i| !left(i)) {
        table.take(table.find(of_first(i)).expect("it is there"));
    }
    (0..100_000).for_each(|i| put(&mut table, of_later(i)));
    (0..400_000).filter(|i| !left(i)).for_each(|i| _ = model.remove(&of_first(i)));
    assert!(as_read(&file).into_iter().eq(model.iter().map(|(k, v)| (*k, *v))), "as a reader of the file finds it");
    for (addr3, seq) in model {
        let slot = table.find(addr3).unwrap_or_else(|| panic!("{addr3:#x} is gone"));
        assert_eq!(table.get(slot).low_seq(), seq);
        table.take(slot);
    }
    assert_eq!(table.size().1, 0);
    // SAFETY: it is not used any more.
    unsafe { table.release() };
}
