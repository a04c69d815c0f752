//! How fast a full trace is read, and in how much memory: `cargo bench --bench analyze [-- millions-of-events [live-blocks]]`.
//! On one core: `taskset -c 0 cargo bench …`. One of them alone: its name as a further argument. A trace of more than 5 GB:
//! `-- 1500 5000000 threads`; a folder as a further argument keeps the traces there, for `/usr/bin/time -v memshim analyze`.
//!
//! Three synthetic traces, one lane each but for the last: `churn` (random sizes, live blocks, random victims), `bulk`
//! (build up, tear down in order), `threads` (four lanes, a quarter of the frees by another lane); `stacks`, `manystacks`: `churn` and `threads` with
//! another call stack at each allocation, 20,000 of them. And `maps`: the range tracker alone.

#[path = "../tests/support/writer.rs"]
#[allow(dead_code)]
mod writer;

use memshim::analyze::{Options, analyze};
use memshim::model::load::Progress;
use memshim::model::maps::{MapEvent, MapTable};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;
use writer::{Old, Token, Writer};

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Writes the trace out as it grows, so that the memory measured is the reader's.
struct Sink(std::fs::File);

impl Sink {
    fn flush_when_full(&mut self, w: &mut Writer, lane: u32) {
        if w.pending(lane) >= 4096 {
            self.flush(w);
        }
    }

    fn flush(&mut self, w: &mut Writer) {
        w.flush();
        self.0.write_all(&w.out).unwrap();
        w.out.clear();
    }
}

/// Stacks of the events of `churn`, by lane: a tree in which each node has up to four below it.
const NODES: u32 = 20_000;

fn define_stacks(w: &mut Writer, lanes: u32) {
    for lane in 0..lanes {
        for from in (1..=NODES).step_by(1000) {
            let rows: Vec<(u32, u64)> = (from..from + 1000).map(|n| ((n + 2) / 4, (0x40_0000 + n as u64 * 64) << 1)).collect();
            w.nodes(lane, from, &rows);
        }
    }
}

fn churn(events: u64, lanes: u32, most: usize, stacks: bool, sink: &mut Sink) {
    let mut w = Writer::new(1, "full", if stacks { r#","stacks":"native""# } else { "" });
    if stacks {
        define_stacks(&mut w, lanes);
    }
    let mut random = Random(88172645463325252);
    let kinds: Vec<u64> = (0..200).map(|i| w.kind(i % 3, 16 + 24 * i as i64, 8, 0)).collect();
    let mut live: Vec<Token> = Vec::new();
    for e in 0..events {
        let mut lane = random.below(lanes as u64) as u32;
        if e % 97 == 0 {
            for l in 0..lanes {
                w.at(l, 2000 + e * 50, w.pending(l) > 256);
            }
        }
        w.at(lane, 2000 + e * 50, false);
        if live.len() < most / 2 || live.len() < most && random.below(2) == 0 {
            let mut kind = random.below(200);
            if stacks {
                // Most stacks are seen again and again, and each allocates few sizes.
                let among = if random.below(8) == 0 { NODES } else { 300 };
                let node = 1 + random.below(among as u64);
                w.site(lane, node as u32, 0);
                kind = (node * 7 + kind % 3) % 200;
            }
            live.push(w.alloc(lane, kinds[kind as usize], None, None));
        } else {
            let victim = live.swap_remove(random.below(live.len() as u64) as usize);
            if random.below(4) > 0 {
                lane = victim.lane;
            }
            w.at(lane, 2000 + e * 50, false);
            w.free(lane, Old::Block(victim));
        }
        sink.flush_when_full(&mut w, lane);
    }
    sink.flush(&mut w);
}

fn bulk(events: u64, sink: &mut Sink) {
    let mut w = Writer::new(1, "full", "");
    let kind = w.kind(0, 56, 0, 0);
    let temporary = w.kind(0, 120, 0, 0);
    let mut live = Vec::new();
    for e in 0..events / 4 {
        w.at(0, 2000 + e * 100, e % 256 == 0);
        live.push(w.alloc(0, kind, None, None));
        let t = w.alloc(0, temporary, None, None);
        w.free(0, Old::Block(t));
        if live.len() == 1_000_000 || e + 1 == events / 4 {
            for b in live.drain(..) {
                w.free(0, Old::Block(b));
                sink.flush_when_full(&mut w, 0);
            }
        }
        sink.flush_when_full(&mut w, 0);
    }
    sink.flush(&mut w);
}

/// Maps and partial protections of 20,000 addresses again and again.
fn maps() {
    let began = Instant::now();
    let mut table = MapTable::new(4096);
    for i in 0..500_000u64 {
        let addr = 0x7000_0000_0000 + ((i.wrapping_mul(0x9e37_79b9) % 20_000) << 20);
        table.apply(&MapEvent::Mmap { t: i, addr, len: 1 << 18, prot: 3, flags: 0x22, kind: 0 });
        table.apply(&MapEvent::Mprotect { t: i, addr, len: 4096, prot: 0 });
    }
    let seconds = began.elapsed().as_secs_f64();
    println!("maps     {:>11} events  {:>16.1} M events/s   {} B committed", 1_000_000, 1.0 / seconds, table.totals().anon.committed);
}

fn measure(name: &str, write: impl FnOnce(&mut Sink)) {
    let dir = tempfile::tempdir().unwrap();
    let kept = std::env::args().skip(1).find(|a| a.contains('/'));
    let path = kept.map_or(dir.path().to_path_buf(), PathBuf::from).join(format!("{name}.jsonl"));
    write(&mut Sink(std::fs::File::create(&path).unwrap()));
    let bytes = path.metadata().unwrap().len() as f64;
    let before = status("VmRSS");
    // The high-water mark was the writer's until here.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let times = if bytes > 1e9 { 1 } else { 3 };
    let (seconds, events) = (0..times).map(|_| read(&path)).min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
    let events = events as f64;
    println!(
        "{name:8} {events:>11} events {:>5.2} B/event {:>6.1} M events/s {:>4.0} MB/s   {before} kB before, {} kB at most",
        bytes / events,
        events / seconds / 1e6,
        bytes / seconds / 1e6,
        status("VmHWM")
    );
}

fn read(path: &Path) -> (f64, u64) {
    let start = Instant::now();
    let report = analyze(&[path.to_path_buf()], &Options::default(), &Progress::default()).unwrap();
    let seconds = start.elapsed().as_secs_f64();
    let run = &report.runs[0];
    assert!(run.missing.iter().all(|m| m.what == "the end"), "{:?}", run.missing);
    (seconds, run.events.recorded)
}

fn status(key: &str) -> String {
    let all = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    all.lines().find(|l| l.starts_with(key)).and_then(|l| l.split_whitespace().nth(1)).unwrap_or_default().to_string()
}

fn main() {
    let numbers: Vec<u64> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let events = numbers.first().unwrap_or(&20) * 1_000_000;
    let most = *numbers.get(1).unwrap_or(&100_000) as usize;
    let names: Vec<String> = std::env::args().skip(1).filter(|a| a.bytes().all(|c| c.is_ascii_lowercase())).collect();
    let wanted = |name: &str| names.is_empty() || names.iter().any(|n| n == name);
    let measure = |name: &str, write: &dyn Fn(&mut Sink)| wanted(name).then(|| measure(name, write));
    measure("churn", &|sink| churn(events, 1, most, false, sink));
    measure("bulk", &|sink| bulk(events, sink));
    measure("threads", &|sink| churn(events, 4, most, false, sink));
    measure("stacks", &|sink| churn(events, 1, most, true, sink));
    measure("manystacks", &|sink| churn(events, 4, most, true, sink));
    if wanted("maps") {
        maps();
    }
}
