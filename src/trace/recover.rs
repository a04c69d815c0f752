//! What a dead process's trace lacks, from its spool, as lines that a trace could hold.
//!
//! Each lane's pending batch (what the drain had encoded but not written) as it is, then a batch of the records the drain had not
//! read. Their addresses are resolved as the drain does it: against the live table and the allocations in the rings. Lanes go on in the
//! order in which their ring blocks were begun; a free whose block nobody has allocated yet waits for the other lanes.
//! Not for: deciding whether a process is dead (see [`alive`]), or judging what a lane's events mean.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use memshim_format::live::Entry;
use memshim_format::record::{self, op};
use memshim_format::spool::{ADDR_MASK, CROWD_GONE, NO_BLOCK, ROWS, crowded, no_room};

use super::callers;
use super::column::push_v93;
use super::encode::{Address, KindRows, LaneLines, write_pending};
use super::read;
use super::ring::{self, Record};
use super::spool::{Error, Lane, Owner, Spool};

/// Lines recovered from a spool.
#[derive(Debug)]
pub struct Recovered {
    pub owner: Owner,
    /// Whole lines as text, the first saying whose they are.
    pub lines: Vec<u8>,
    /// What could not be used.
    pub problems: Vec<String>,
    /// Bytes of the trace that hold whole lines, as its process had it.
    pub trace_len: u64,
}

/// Whose spool a file is.
pub fn identify(path: &Path) -> Result<Owner, Error> {
    Ok(Spool::open(path)?.owner)
}

/// A lane at work: its records, how far it is, what it wrote.
struct Work {
    number: u32,
    lane: Lane,
    records: VecDeque<Record>,
    lines: LaneLines,
}

/// Reads a spool. `tick_ns` is that of the image's header.
pub fn recover(path: &Path, tick_ns: u64) -> Result<Recovered, Error> {
    let spool = Spool::open(path)?;
    let mut problems = Vec::new();
    let mut work = Vec::new();
    let mut bad_words = 0;
    for number in 0..spool.lanes {
        let lane = spool.lane(number)?;
        let (records, bad) = ring::records(&spool, number, &lane);
        bad_words += bad;
        let lines = LaneLines::after(number, &lane, tick_ns, spool.ages);
        work.push(Work { number, lane, records: records.into(), lines });
    }
    if bad_words > 0 {
        problems.push(format!("{bad_words} words in its rings make no sense"));
    }
    if spool.table_private && spool.trouble == 0 {
        problems.push("its table of live blocks was not in the spool: the last frees are of unknown blocks".into());
    }
    let mut blocks = live_blocks(&spool, &work)?;
    let mut kinds = KindRows::new(&spool.kinds, spool.kinds_written);
    let mut other = Vec::new();
    replay(&spool, &mut work, &mut blocks, &mut kinds, &mut other);

    let end = work.iter().map(|w| w.lines.latest).max().unwrap_or(0);
    let mut lines = Vec::new();
    let Owner { pid, start_ticks, exec } = spool.owner;
    push_line(&mut lines, format_args!(r#"{{"type":"process","pid":{pid},"start_ticks":{start_ticks},"exec":{exec},"recovered":true}}"#));
    if spool.trouble != 0 {
        let (t, errno, whole) = (spool.trouble_ns, spool.trouble as i32, spool.whole_ns);
        let why = format!("the trace could not be written any more: {}", io::Error::from_raw_os_error(errno));
        let why = serde_json::Value::from(why);
        push_line(&mut lines, format_args!(r#"{{"type":"mode","t":{t},"mode":"count","why":{why},"errno":{errno},"whole":{whole}}}"#));
    }
    lines.extend(kinds.lines());
    lines.extend(spool.side.iter().take(spool.side.iter().rposition(|c| *c == b'\n').map_or(0, |at| at + 1)));
    work.iter().for_each(|w| callers::write_nodes(w.number, &w.lane, &mut lines));
    lines.extend(other);
    for w in &work {
        if !write_pending(w.number, &w.lane, spool.group, end, &mut lines) {
            problems.push(format!("what thread {} had not written yet is damaged", w.lane.tid));
        }
    }
    // A group of its own: of the one before the trace may hold a part.
    for w in &work {
        w.lines.write(spool.group.wrapping_add(1), end, &mut lines);
    }
    push_counts(&spool, &work, false, end, &mut lines);
    if spool.python_alloc {
        push_counts(&spool, &work, true, end, &mut lines);
    }
    if let Some(w) = work.iter().find(|w| Some(w.number) == spool.crowd) {
        let (n, calls) = (w.lane.lost, w.lane.counts.iter().fold(0u64, |sum, c| sum.saturating_add(c[0])));
        let why = crowded(w.number, spool.refused);
        push_line(&mut lines, format_args!(r#"{{"type":"lost","t":{end},"lane":{},"n":{n},"why":"{why}"}}"#, w.number));
        if calls > 0 {
            let what = format!("{why}: {calls} calls are in the totals only");
            push_line(&mut lines, format_args!(r#"{{"type":"note","t":{end},"what":"{what}"}}"#));
        }
    }
    if spool.crowd_is_gone {
        let [what, why] = CROWD_GONE;
        push_line(&mut lines, format_args!(r#"{{"type":"lost","t":{end},"n":1,"what":"{what}","why":"{why}"}}"#));
    }
    push_without_room(&spool, &work, end, &mut lines);
    if let Some((how, code, t)) = spool.end {
        let code = code.map_or("null".to_owned(), |c| c.to_string());
        push_line(&mut lines, format_args!(r#"{{"type":"end","t":{t},"how":"{how}","code":{code}}}"#));
    }
    Ok(Recovered { owner: spool.owner, lines, problems, trace_len: spool.trace_len })
}

pub(super) fn push_line(out: &mut Vec<u8>, text: std::fmt::Arguments) {
    // Writing to memory does not fail.
    let _ = writeln!(out, "{text}");
}

/// Blocks by address >> 3, the oldest first: two at once where a free of the first has not been read yet.
type Blocks = HashMap<u64, VecDeque<(u32, u64)>>;

/// The blocks at all addresses that the rings free: those that a chunk not committed had taken out of the table, which come before others of
/// their addresses, and the table's. Entries at or above a lane's commit are of records that are read again.
fn live_blocks(spool: &Spool, work: &[Work]) -> io::Result<Blocks> {
    let freed = |r: &&Record| matches!(r.op, op::FREE | op::REALLOC_FREE);
    let mut blocks: Blocks = work.iter().flat_map(|w| w.records.iter().filter(freed)).map(|r| (r.low, VecDeque::new())).collect();
    let committed: HashMap<u32, u64> = work.iter().map(|w| (w.number, w.lane.commit.seq)).collect();
    let mut add = |addr3: u64, e: Entry| {
        let Some(&next) = committed.get(&e.lane()).filter(|&&next| e.is_before(next)) else { return };
        let Some(found) = blocks.get_mut(&addr3) else { return };
        let block = (e.lane(), e.seq(next));
        // An entry that was being moved can stand there twice.
        if !found.contains(&block) {
            found.push_back(block);
        }
    };
    let killer = |&(lane, which): &(u32, u32)| work.iter().any(|w| w.number == lane && w.lane.which == which);
    if let Some(killed) = spool.killer.filter(killer).and(Some(&spool.killed)) {
        killed.iter().for_each(|k| add(k.addr3, Entry(k.entry)));
    }
    if !work.iter().all(|w| w.records.is_empty()) {
        spool.for_each_entry(add)?;
    }
    Ok(blocks)
}

/// Runs all lanes to their ends.
fn replay(spool: &Spool, work: &mut [Work], blocks: &mut Blocks, kinds: &mut KindRows, other: &mut Vec<u8>) {
    loop {
        // The lane whose next record stands in the block begun first, of those that need not wait.
        let next = |patient: bool, work: &[Work], blocks: &Blocks| {
            let ready = |w: &&Work| w.records.front().is_some_and(|r| !patient || !waits(r, blocks, spool.fast));
            work.iter().filter(ready).min_by_key(|w| w.records.front().map(|r| r.block_t)).map(|w| w.number)
        };
        let Some(number) = next(true, work, blocks).or_else(|| next(false, work, blocks)) else { return };
        let Some(w) = work.iter_mut().find(|w| w.number == number) else { return };
        let block_t = w.records.front().map(|r| r.block_t);
        let mut first = true;
        while let Some(r) = w.records.front().copied() {
            if r.block_t > block_t.unwrap_or(0) || !first && waits(&r, blocks, spool.fast) {
                break;
            }
            w.records.pop_front();
            apply(&r, w, blocks, kinds, spool, other);
            first = false;
        }
    }
}

/// A free of a block that is not there yet, though another lane may have it in its ring. In fast mode most blocks are in nobody's.
fn waits(r: &Record, blocks: &Blocks, fast: bool) -> bool {
    !fast && matches!(r.op, op::FREE | op::REALLOC_FREE) && blocks.get(&r.low).is_none_or(VecDeque::is_empty)
}

fn apply(r: &Record, w: &mut Work, blocks: &mut Blocks, kinds: &mut KindRows, spool: &Spool, other: &mut Vec<u8>) {
    let (fast, group) = (spool.fast, spool.group.wrapping_add(1));
    w.lines.stamp(r.block_t);
    let lane = w.number;
    match r.op {
        op::ALLOC..op::FREE => {
            let seq = w.lines.allocate(r, kinds);
            if let Some(found) = blocks.get_mut(&r.low) {
                found.push_back((lane, seq));
            }
        }
        op::FREE | op::REALLOC_FREE => {
            let usable = if r.arg == 0 { r.args[0] } else { r.arg * 16 - 8 };
            let found = blocks.get_mut(&r.low).and_then(VecDeque::pop_front);
            let address = match found {
                Some((owner, seq)) if owner == lane => Address::Own(seq),
                Some((owner, seq)) => Address::Foreign(owner, seq),
                None if fast => Address::Unrecorded,
                None => Address::Unknown(r.low & ADDR_MASK),
            };
            if r.op == op::FREE {
                w.lines.free(address, usable);
            } else {
                w.lines.begin_realloc(address, usable);
            }
        }
        op::UNFREE => {
            if let (Some(block), Some(found)) = (w.lines.undo_realloc(), blocks.get_mut(&r.low)) {
                found.push_front(block);
            }
        }
        op::REALLOC_DONE => w.lines.end_realloc(),
        op::STAMP => w.lines.stamp(r.time()),
        op::STAMPED => w.lines.stamped(),
        op::COUNT => w.lines.count(r.low),
        _ => describe(r, w, group, other),
    }
}

/// Maps, threads, children: lines of their own.
fn describe(r: &Record, w: &mut Work, group: u64, out: &mut Vec<u8>) {
    if let op::NODE..=op::TEXT = r.op {
        return w.lines.callers.take(r, out);
    }
    if matches!(r.op, op::PHASE | op::PHASE_NAME) {
        w.lines.latest = w.lines.latest.max(describe_phase(r, w, group, out));
        return;
    }
    let stack = w.lines.callers.row(r.op);
    if let op::GPU..=op::GPU_LAST = r.op {
        w.lines.latest = w.lines.latest.max(describe_gpu(r, w.number, &stack, out));
        return;
    }
    let (lane, tk, a) = (w.number, r.low, &r.args);
    let [t, b, c, d, e, f, ..] = *a;
    let mut row = |text: std::fmt::Arguments| push_line(out, format_args!(r#"{{"type":"maps","ev":[[{text}]]{stack}}}"#));
    match r.op {
        op::MMAP => row(format_args!(r#""mmap",{tk},{t},{lane},{b},{c},{},{},{e}"#, d >> 32, d & 0xffff_ffff)),
        op::MUNMAP => row(format_args!(r#""munmap",{tk},{t},{lane},{b},{c}"#)),
        op::MREMAP => row(format_args!(r#""mremap",{tk},{t},{b},{lane},{c},{d},{e},{f},{}"#, a[6])),
        op::MPROTECT => row(format_args!(r#""mprotect",{tk},{t},{lane},{b},{c},{d}"#)),
        op::MADVISE => row(format_args!(r#""madvise",{tk},{t},{lane},{b},{c},{d}"#)),
        op::BRK => row(format_args!(r#""brk",{tk},{t},{lane},{b},{c}"#)),
        op::SHMAT => row(format_args!(r#""shmat",{tk},{t},{lane},{b},{c}"#)),
        op::SHMDT => row(format_args!(r#""shmdt",{tk},{t},{lane},{b},0"#)),
        op::UNDO => row(format_args!(r#""undo",{tk}"#)),
        op::THREAD_START => {
            let seq = w.lines.seq();
            let kind = if w.lane.python { "pythread" } else { "thread" };
            push_line(out, format_args!(r#"{{"type":"{kind}","t":{t},"lane":{lane},"tid":{tk},"seq":{seq},"what":"start"}}"#));
        }
        op::THREAD_END => {
            let bytes: Vec<u8> = [b, c, d].iter().flat_map(|word| word.to_le_bytes().into_iter().take(6)).take_while(|c| *c != 0).collect();
            let name = serde_json::Value::from(String::from_utf8_lossy(&bytes));
            push_line(out, format_args!(r#"{{"type":"thread","t":{t},"lane":{lane},"tid":{tk},"what":"end","name":{name}}}"#));
        }
        op::ENDED => push_line(out, format_args!(r#"{{"type":"child","t":{t},"how":"ended","pid":{tk},"signal":{}}}"#, r.arg)),
        op::CHILD | op::STARTED => {
            let how = record::HOWS.get(r.arg as usize & 3).unwrap_or(&"fork");
            let mut name = [0; record::TEXT_BYTES];
            let n = if r.op == op::STARTED { memshim_format::gpu::text(&r.args[1..], &mut name) } else { 0 };
            let name = serde_json::Value::from(String::from_utf8_lossy(&name[..n]));
            let program = if n > 0 { format!(r#","program":{name}"#) } else { String::new() };
            let bare = if r.arg & record::BARE != 0 { r#","preload":false"# } else { "" };
            push_line(out, format_args!(r#"{{"type":"child","t":{t},"how":"{how}","pid":{tk}{program}{bare}}}"#));
        }
        _ => {}
    }
    let t = if r.op == op::MREMAP { b } else { t };
    w.lines.latest = w.lines.latest.max(if r.op == op::UNDO { 0 } else { t });
}

/// A row of a GPU; when its call began.
fn describe_gpu(r: &Record, lane: u32, stack: &str, out: &mut Vec<u8>) -> u64 {
    use memshim_format::gpu;
    let Some(kind) = gpu::KINDS.get((r.op - op::GPU) as usize) else { return 0 };
    let name = kind.name;
    if r.op - op::GPU == gpu::kind::NAME {
        let mut text = [0; 49];
        let n = gpu::text(&r.args, &mut text);
        let text = serde_json::Value::from(String::from_utf8_lossy(&text[..n]));
        push_line(out, format_args!(r#"{{"type":"gpu","ev":[["{name}",{},{},{text}]]}}"#, r.arg, r.low));
        return 0;
    }
    let call = gpu::CALLS.get(r.arg as usize).copied().unwrap_or("");
    let [t, head, rest @ ..] = r.args;
    let numbers: String = gpu::parts(head).iter().chain(rest.iter().take(kind.words)).map(|n| format!(",{n}")).collect();
    push_line(out, format_args!(r#"{{"type":"gpu","ev":[["{name}","{call}",{},{t},{lane}{numbers}]]{stack}}}"#, r.low));
    // They say when the device began, on a clock that is only nearly ours.
    if matches!(r.op - op::GPU, gpu::kind::TIME | gpu::kind::WORK) { 0 } else { t }
}

/// An edge of a phase, or a piece of a name; when it was.
fn describe_phase(r: &Record, w: &Work, group: u64, out: &mut Vec<u8>) -> u64 {
    use memshim_format::phase;
    if r.op == op::PHASE_NAME {
        let mut text = [0; 49];
        let n = memshim_format::gpu::text(&r.args, &mut text);
        let text = serde_json::Value::from(String::from_utf8_lossy(&text[..n]));
        let what = if r.arg & phase::OF_DOMAIN != 0 { "domain" } else { "name" };
        push_line(out, format_args!(r#"{{"type":"phase","ev":[["{what}",{},{},{text}]]}}"#, r.low, r.arg & (phase::OF_DOMAIN - 1)));
        return 0;
    }
    let (what, source, moved) = phase::parts(r.arg);
    let name = |of: &[&'static str], n: u64| of.get(n as usize).copied().unwrap_or("");
    let [t, range, live, cpu, faults, switches, read, written] = r.args;
    let usage = format!("{cpu},{},{},{},{}", faults >> 32, faults & 0xffff_ffff, switches >> 32, switches & 0xffff_ffff);
    let moved = if moved { format!(",{read},{written}") } else { String::new() };
    let (what, source) = (name(&phase::WHATS, what), name(&phase::SOURCES, source));
    let (lane, at, seq) = (w.number, w.lines.events(), w.lines.seq());
    let row = format_args!(
        r#"{{"type":"phase","ev":[["{what}",{t},{lane},{group},{at},{seq},"{source}",{},{range},{},{usage}{moved}]]}}"#,
        r.low,
        memshim_format::v93::unzigzag(live)
    );
    push_line(out, row);
    t
}

/// Which losses are of a disk that had no room, and how many records of no heap call had none.
fn push_without_room(spool: &Spool, work: &[Work], t: u64, out: &mut Vec<u8>) {
    let lanes = || work.iter().filter(|w| !w.lane.python && Some(w.number) != spool.crowd).map(|w| &w.lane);
    let why = if spool.refused == 0 { NO_BLOCK } else { no_room(spool.refused) };
    let n = lanes().fold(0u64, |sum, l| sum.saturating_add(l.lost_by_disk));
    if n > 0 {
        push_line(out, format_args!(r#"{{"type":"lost","t":{t},"n":{n},"why":"{why}"}}"#));
    }
    let n = lanes().fold(0u64, |sum, l| sum.saturating_add(l.rows_lost));
    if n > 0 {
        push_line(out, format_args!(r#"{{"type":"lost","t":{t},"n":{n},"what":"{ROWS}","why":"{why}"}}"#));
    }
}

/// The exact counts at the end: those of the lanes, Python's or the others.
fn push_counts(spool: &Spool, work: &[Work], python: bool, t: u64, out: &mut Vec<u8>) {
    let first_free = memshim_format::record::func::FIRST_FREE as usize;
    let mut fns = [[0u64; 2]; memshim_format::spool::FNS_MAX];
    let (mut live, mut blocks, mut failed, mut lost, mut broken) = (0i64, 0i64, 0u64, 0u64, 0u64);
    let (mut rows, mut at_hi) = (Vec::new(), Vec::new());
    for w in work.iter().filter(|w| w.lane.python == python) {
        let l = &w.lane;
        for (sum, own) in fns.iter_mut().zip(&l.counts) {
            sum[0] = sum[0].saturating_add(own[0]);
            sum[1] = sum[1].saturating_add(own[1]);
        }
        live = live.saturating_add(l.live);
        failed = failed.saturating_add(l.failed);
        lost = lost.saturating_add(l.lost);
        broken += l.broken as u64;
        let sum = |of: &[[u64; 2]], i: usize| of.iter().fold(0u64, |s, c| s.saturating_add(c[i]));
        let allocs = sum(&l.counts[..first_free], 0);
        let frees = (allocs as i64).saturating_sub(l.blocks).max(0);
        blocks = blocks.saturating_add(l.blocks);
        at_hi.push(if l.hi > l.live { l.hi_blocks } else { l.blocks }.to_string());
        rows.push(format!("[{},{allocs},{},{frees},{},{}]", w.number, sum(&l.counts[..first_free], 1), l.live, l.hi.max(l.live)));
    }
    let fns: Vec<String> = fns.iter().enumerate().filter(|(_, c)| c[0] > 0).map(|(i, c)| format!("[{i},{},{}]", c[0], c[1])).collect();
    push_line(
        out,
        format_args!(
            r#"{{"type":"{}calls","t":{t},"fns":[{}],"live":{live},"blocks":{blocks},"failed":{},"lost":{lost}{},"lanes":[{}],"hi_blocks":[{}]}}"#,
            if python { "py" } else { "" },
            fns.join(","),
            if python { failed } else { failed.max(spool.failed) },
            if broken > 0 { format!(r#","broken":{broken}"#) } else { String::new() },
            rows.join(","),
            at_hi.join(",")
        ),
    );
}

/// Name of this host, as headers have it.
pub fn own_host() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// Whether the process that a header names is still there. False on another host and in another pid namespace, where nobody can tell.
pub fn alive(host: &str, pid_ns: u64, pid: u32, start_ticks: u64) -> bool {
    if own_host() != host {
        return false;
    }
    let own_ns = fs::read_link("/proc/self/ns/pid").map(|l| l.to_string_lossy().into_owned()).unwrap_or_default();
    if pid_ns != 0 && own_ns != format!("pid:[{pid_ns}]") {
        return false;
    }
    let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else { return false };
    // The name in parentheses may hold anything; fields count from after its last `)`. State is field 3, the start field 22.
    let stat = String::from_utf8_lossy(&stat);
    let mut fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace()).into_iter().flatten();
    let state = fields.next().unwrap_or_default();
    state != "Z" && state != "X" && fields.nth(18).and_then(|s| s.parse().ok()) == Some(start_ticks)
}

/// Appends what the spools beside a trace hold to the trace, for the run that has seen its process end. Gives the spools that are
/// now in it: the caller deletes them. A spool that can't be read stays where it is and is among the problems.
pub fn finalise(trace: &Path, spools: &[PathBuf], tick_ns: u64) -> io::Result<(Vec<PathBuf>, Vec<String>)> {
    let (mut done, mut problems) = (Vec::new(), Vec::new());
    let mut text = Vec::new();
    for spool in spools {
        match recover(spool, tick_ns) {
            Ok(recovered) => {
                text.extend(recovered.lines);
                problems.extend(recovered.problems);
                done.push(spool.clone());
            }
            Err(e) => problems.push(format!("{}: {e}", spool.display())),
        }
    }
    if text.is_empty() {
        return Ok((done, problems));
    }
    append(trace, &text)?;
    Ok((done, problems))
}

/// Appends whole lines to a trace whose process is gone, as a frame where it is compressed. What that one left open at its end is ended first:
/// a torn last line must not swallow the first of ours, nor a frame without an end our frame.
pub fn append(trace: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().read(true).append(true).custom_flags(nix::libc::O_NOFOLLOW).open(trace)?;
    if read::is_compressed(trace, &file)? {
        let mut whole = Vec::new();
        if let Some(open) = super::frames::open_frame(io::BufReader::new(&file))? {
            whole = zstd::encode_all(&open.lines[..], 1)?;
            file.set_len(open.at)?;
        }
        whole.extend(zstd::encode_all(text, 1)?);
        return file.write_all(&whole);
    }
    if file.seek(SeekFrom::End(0))? > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        io::Read::read_exact(&mut file, &mut last)?;
        if last[0] != b'\n' {
            file.write_all(b"\n")?;
        }
    }
    file.write_all(text)
}

/// A column of V93 text with its pairs of time appended; used by `encode`.
pub(super) fn push_pair(column: &mut Vec<u8>, a: u64, b: u64) {
    push_v93(column, a);
    push_v93(column, b);
}
