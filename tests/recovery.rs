//! A spool built by hand, as a killed process leaves it: `analyze` finds in it exactly what the trace lacks.

use std::mem::offset_of;
use std::path::Path;

use memshim::analyze::report::{EndKind, Report};
use memshim::analyze::{Options, analyze};
use memshim::model::load::Progress;
use memshim::trace::column::push_v93;
use memshim::trace::recover;
use memshim_format::live::{self, Entry, Found};
use memshim_format::record::{self, func, op, start};
use memshim_format::spool::{
    self as layout, BLOCK, BLOCK_WORDS, BLOCKS_OFF, Commit, Header, Kind, LANE, LANES_OFF, Lane, Pending, TABLE_OFF,
};

struct Spool(Vec<u8>);

impl Spool {
    fn new() -> Spool {
        let mut s = Spool(vec![0; TABLE_OFF + 4096]);
        s.u64(offset_of!(Header, magic), layout::MAGIC);
        s.u32(offset_of!(Header, version), layout::VERSION);
        s.u32(offset_of!(Header, pid), 7);
        s.u64(offset_of!(Header, start_ticks), 77);
        s.u32(offset_of!(Header, mode), 2);
        s.u64(offset_of!(Header, group), 1);
        s.u32(offset_of!(Header, lanes), 2);
        s.u32(offset_of!(Header, blocks), 8);
        s.u64(offset_of!(Header, table_bytes), 4096);
        s
    }

    fn u32(&mut self, at: usize, v: u32) {
        self.0[at..at + 4].copy_from_slice(&v.to_le_bytes());
    }

    fn u64(&mut self, at: usize, v: u64) {
        self.0[at..at + 8].copy_from_slice(&v.to_le_bytes());
    }

    fn kind(&mut self, number: usize, size: i64, slack: u32, func: u8, flags: u8) {
        let at = layout::KINDS_OFF + (number - 1) * size_of::<Kind>();
        self.u64(at + offset_of!(Kind, size), size as u64);
        self.u32(at + offset_of!(Kind, slack), slack);
        self.0[at + offset_of!(Kind, func)] = func;
        self.0[at + offset_of!(Kind, flags)] = flags;
        self.u32(offset_of!(Header, kinds), number as u32);
    }

    fn lane(&self, lane: usize, field: usize) -> usize {
        LANES_OFF + lane * LANE + field
    }

    /// Into the first half of the commit, which holds.
    fn commit(&mut self, lane: usize, field: usize, v: u64) {
        let at = self.lane(lane, offset_of!(Lane, commit) + field);
        self.u64(at, v);
    }

    fn commit32(&mut self, lane: usize, field: usize, v: u32) {
        let at = self.lane(lane, offset_of!(Lane, commit) + field);
        self.u32(at, v);
    }

    fn column(&mut self, lane: usize, at: usize, len: usize, values: &[u64]) {
        let mut text = Vec::new();
        values.iter().for_each(|&v| push_v93(&mut text, v));
        let at = self.lane(lane, at);
        self.0[at..at + text.len()].copy_from_slice(&text);
        self.commit32(lane, len, text.len() as u32);
    }

    fn count(&mut self, lane: usize, func: u8, calls: u64, bytes: u64) {
        let at = self.lane(lane, offset_of!(Lane, counts) + func as usize * 16);
        self.u64(at, calls);
        self.u64(at + 8, bytes);
    }

    /// Words of a lane in block `index`.
    fn block(&mut self, index: usize, lane: u32, t: u64, words: &[u64]) {
        let at = BLOCKS_OFF + index * BLOCK;
        self.u32(at + offset_of!(layout::Block, lane), lane);
        self.u64(at + offset_of!(layout::Block, t_ns), t);
        words.iter().enumerate().for_each(|(i, &w)| self.u64(at + BLOCK_WORDS + i * 8, w));
    }

    /// The node of a span of that level around address 0, or one that is nobody's, at an offset of the table, with these blocks by address >> 3.
    fn node(&mut self, at: usize, level: u32, class: u32, free: bool, blocks: &[(u64, Entry)]) {
        let mut node = vec![0u64; live::bytes(class) / 8];
        node[0] = if free { live::Header::free(class) } else { live::Header::of(live::Span::of(level, 0), class) }.0;
        let places = live::places(level, class);
        for &(addr3, e) in blocks {
            // SAFETY: the vector is a node of that class; the place is of a search for this key.
            unsafe {
                match live::find(level, places, node.as_mut_ptr(), addr3) {
                    Found::Place(p) => live::put(level, places, node.as_mut_ptr(), p, addr3, e),
                    _ => panic!("no room in the node"),
                }
            }
        }
        node.iter().enumerate().for_each(|(i, &w)| self.u64(TABLE_OFF + at + i * 8, w));
    }
}

const HEADER: &str = r#"{"type":"header","v":1,"run":"00","pid":7,"ppid":1,"start_ticks":77,"pid_ns":1,"exec":0,"mode":"full","cols":"v93","tick_ns":100,"mono_ns":1000,"wall_ns":1764289999000000000,"host":"nowhere","exe":"/bin/x","argv":["x"],"cwd":"/","rank":null,"job":null,"big":65536,"sample":524288,"page":4096,"allocator":"glibc","slack":24}"#;

/// Two blocks of 100 bytes by lane 0, numbers 0 and 1: group 0, which the trace holds.
fn trace() -> String {
    format!(
        "{HEADER}\n{}\n{}\n",
        r#"{"type":"kinds","from":1,"kinds":[[0,100,4,0]]}"#,
        r#"{"type":"ev","g":0,"lane":0,"n":2,"seq":0,"t0":2000,"t1":3000,"t":[],"k":[3,3],"x":[],"z":[]}"#
    )
}

fn alloc(func: u8, addr3: u64, flags: u64, size: u64, slack: u64) -> [u64; 2] {
    [start(op::ALLOC + func, flags, addr3), size | slack << 40]
}

/// Lane 0: pending [allocation of 300 = number 2, free of number 0]; in its ring a 500 = number 3, a free of number 1 (dead in the table),
/// a realloc of number 2 to 777 = number 4 in a new kind, and a failed realloc of number 3. Lane 1: frees number 3; a free of a block of
/// nobody; maps, a thread, a child.
fn spool() -> Spool {
    let mut s = Spool::new();
    s.kind(1, 100, 4, 0, 0);
    s.kind(2, 300, 8, 0, 0);
    s.u32(offset_of!(Header, kinds_written), 1);
    s.column(0, offset_of!(Lane, k), offset_of!(Commit, k_len), &[2 * 3, 3 * 3 + 1]);
    for (field, v) in [
        (offset_of!(Commit, events), 2),
        (offset_of!(Commit, allocs), 1),
        (offset_of!(Commit, frees), 1),
        (offset_of!(Commit, block), 1),
        (offset_of!(Commit, pos), BLOCK_WORDS as u32),
    ] {
        s.commit32(0, field, v);
    }
    for (field, v) in
        [(offset_of!(Commit, seq), 3), (offset_of!(Commit, seq0), 2), (offset_of!(Commit, t0), 4000), (offset_of!(Commit, stamp_ns), 4000)]
    {
        s.commit(0, field, v);
    }
    let moved = (0x30, Entry::new(0, 2, 308));
    s.u32(offset_of!(Header, killer), 1);
    s.u32(offset_of!(Header, killed_len), 1);
    s.u64(offset_of!(Header, killed), 0x20);
    s.u64(offset_of!(Header, killed) + 8, Entry::new(0, 1, 104).0);
    s.node(0, 0, 1, true, &[(0x20, Entry::new(0, 0, 104))]); // nobody's
    s.node(64, 0, 3, false, &[(0x99, Entry::new(0, 3, 512))]); // of a record after the commit
    s.node(192, 1, 2, false, &[moved]); // was being moved from one level to another
    s.node(288, 2, 0, false, &[moved]);
    let words = [
        &alloc(func::MALLOC, 0x40, 0, 500, 12)[..],
        &[0, start(op::FREE, (104 + 8) / 16, 0x20)],
        &[start(op::REALLOC_FREE, 0, 0x30), 308],
        &alloc(func::REALLOC, 0x30, record::REPLACES | record::IN_PLACE, 777, 7),
        &[start(op::REALLOC_FREE, 0, 0x40), 512, start(op::UNFREE, 0, 0x40)],
    ]
    .concat();
    s.block(0, 0, 5000, &words);
    let first = s.lane(1, offset_of!(Lane, first));
    s.u32(first, 3);
    let words = [
        &[start(op::THREAD_START, 0, 4250), 5100][..],
        &[start(op::FREE, 0, 0x40), 512, start(op::FREE, 0, 0x5000), 48],
        &[start(op::MMAP, 0, 1), 5200, 65536, 8192, 3 << 32 | 34, 0, start(op::CHILD, 0, 4243), 5300],
        &[start(op::STARTED, 1 | record::BARE, 4244), 5310],
        &memshim_format::phase::words(b"cc1")[..6],
        &[start(op::ENDED, 9, 4244), 5320],
        &[start(op::THREAD_END, 0, 4250), 5400, u64::from_le_bytes(*b"worker\0\0"), 0, 0],
        &[0, 0, 12345],
    ]
    .concat();
    s.block(2, 1, 5050, &words);
    s.count(0, func::MALLOC, 4, 1000);
    s.count(0, func::REALLOC, 1, 777);
    s.count(0, func::FREE, 2, 0);
    s.count(1, func::FREE, 2, 0);
    for (lane, blocks) in [(0, 2), (1, -2i64)] {
        let at = s.lane(lane, offset_of!(Lane, blocks));
        s.u64(at, blocks as u64);
    }
    s
}

fn write(dir: &Path, trace: &str, spool: &Spool) -> std::path::PathBuf {
    let path = dir.join("trace.jsonl");
    std::fs::write(&path, trace).unwrap();
    std::fs::write(dir.join("trace.jsonl.spool"), &spool.0).unwrap();
    path
}

fn report(path: &Path) -> Report {
    analyze(&[path.to_path_buf()], &Options::default(), &Progress::default()).unwrap()
}

fn hold(report: &Report) {
    let run = &report.runs[0];
    let h = &run.heap;
    assert_eq!(h.sizes, [[100, 2, 2], [300, 1, 1], [500, 1, 1], [777, 1, 0]]);
    assert_eq!((h.allocs, h.frees, h.leaked_bytes.unwrap().0, run.events.unknown_frees), (5, 5, 777, 1));
    assert_eq!((run.events.counted, run.events.recorded, run.events.lost), (9, 9, 0));
    assert_eq!(h.by_function["malloc"].allocs, 4);
    assert_eq!((run.maps.anon.committed_bytes.0, run.children.count), (8192, 2));
    assert_eq!(run.threads.iter().map(|t| (t.tid, t.name.as_str())).collect::<Vec<_>>(), [(4250, "worker")]);
    assert_eq!(run.end.kind, EndKind::Killed);
    let said = report.job.not_recorded.iter().map(|n| (n.pid, n.program.as_deref(), n.why));
    assert_eq!(said.collect::<Vec<_>>(), [(4243, None, "no trace"), (4244, Some("cc1"), "environment")]);
    assert_eq!(run.kin.killed.iter().map(|k| (k.0, k.2)).collect::<Vec<_>>(), [(4244, 9)]);
}

#[test]
fn a_killed_process_has_all_its_events() {
    let dir = tempfile::tempdir().unwrap();
    let report = report(&write(dir.path(), &trace(), &spool()));
    hold(&report);
    assert!(report.runs[0].recovered);
}

#[test]
fn a_batch_that_was_written_just_before_the_kill_counts_once() {
    let dir = tempfile::tempdir().unwrap();
    let kinds = r#"{"type":"kinds","from":2,"kinds":[[0,300,8,0]]}"#;
    let written = format!(
        "{}{kinds}\n{}\n",
        trace(),
        r#"{"type":"ev","g":1,"lane":0,"n":2,"seq":2,"t0":4000,"t1":4500,"t":[],"k":[6,10],"x":[],"z":[]}"#
    );
    hold(&report(&write(dir.path(), &written, &spool())));
}

#[test]
fn finalising_puts_the_same_into_the_trace() {
    let dir = tempfile::tempdir().unwrap();
    let torn = format!("{}{}", trace(), r#"{"type":"ev","g":1,"lane":0,"n":2,"s"#);
    let path = write(dir.path(), &torn, &spool());
    let spool = dir.path().join("trace.jsonl.spool");
    let (done, problems) = recover::finalise(&path, std::slice::from_ref(&spool), 100).unwrap();
    assert_eq!(done, std::slice::from_ref(&spool));
    assert!(problems.iter().all(|p| p.contains("1 words")), "{problems:?}");
    std::fs::remove_file(spool).unwrap();
    let report = report(&path);
    hold(&report);
    assert!(report.runs[0].missing.iter().any(|m| m.what == "lines" && m.count == 1), "the torn line is in the middle now");
}

#[test]
fn a_process_that_wrote_into_anothers_file_finds_its_spool() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), &trace(), &spool());
    std::fs::create_dir(dir.path().join("trace.d")).unwrap();
    std::fs::rename(dir.path().join("trace.jsonl.spool"), dir.path().join("trace.d/7.jsonl.spool")).unwrap();
    hold(&report(&path));
}

/// What threads without a lane of their own counted was in memory of the process where the disk had no room: then no bound holds.
#[test]
fn counts_that_went_with_the_process_are_said_and_leave_no_bound() {
    let dir = tempfile::tempdir().unwrap();
    let mut s = spool();
    s.u32(offset_of!(Header, crowd_private), 1);
    let run = &report(&write(dir.path(), &trace(), &s)).runs[0];
    assert_eq!((run.heap.peak_bound_bytes, run.heap.live_bound_bytes), (None, None));
    assert!(run.missing.iter().any(|m| m.what == layout::CROWD_GONE[0] && m.why.contains("make room")), "{:?}", run.missing);
    let run = &report(&write(dir.path(), &trace(), &spool())).runs[0];
    assert!(run.heap.peak_bound_bytes.is_some());
}

#[test]
fn a_realloc_cut_between_its_halves_leaves_the_old_block() {
    let dir = tempfile::tempdir().unwrap();
    let mut s = spool();
    let pend = offset_of!(Commit, pend);
    s.commit32(0, pend + offset_of!(Pending, what), 1);
    s.commit(0, pend + offset_of!(Pending, seq), 1);
    s.commit(0, pend + offset_of!(Pending, usable), 104);
    s.block(0, 0, 5000, &[0; 64]);
    let run = &report(&write(dir.path(), &trace(), &s)).runs[0];
    assert!(run.heap.sizes.contains(&[100, 2, 1]), "{:?}", run.heap.sizes);
}

#[test]
fn no_damage_to_a_spool_is_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let mut whole = spool();
    let used: Vec<usize> = (0..whole.0.len()).filter(|&i| whole.0[i] != 0).collect();
    let path = write(dir.path(), &trace(), &whole);
    let file = dir.path().join("trace.jsonl.spool");
    let mut random = 1u64;
    for &at in &used {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let was = std::mem::replace(&mut whole.0[at], (random >> 56) as u8);
        std::fs::write(&file, &whole.0[..]).unwrap();
        report(&path);
        whole.0[at] = was;
    }
    for cut in [0, 7, 4096, LANES_OFF + 10, TABLE_OFF + 70] {
        std::fs::write(&file, &whole.0[..cut]).unwrap();
        report(&path);
    }
}
