//! The lines of a trace (see docs/trace-format.md): header, groups of batches with their kinds, side lines, counts, end.
//! The drain's lock is held wherever lines are made.

mod ends;
mod groups;
mod header;
mod phases;
mod stacks;

pub use ends::{end, exec, mode_lowered, writing_ended};
pub use groups::{drop_pending, flush_group};
pub use header::header_now;
pub use phases::phase;
pub use stacks::{code, loaded, nodes};

use crate::config::CONFIG;
use crate::lane::LANES;
use crate::sink::{self};
use crate::spool::{self, SPOOL};
use crate::text::Text;
use crate::{proc, sys};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU64, Ordering::*};
use memshim_format::record::{self, FNS, func, op};
use memshim_format::spool::*;

/// Staging memory for lines; more than two of the longest.
const STAGE: usize = 256 << 10;
static mut STAGE_AT: *mut u8 = core::ptr::null_mut();

/// Private memory that lines take, in bytes.
pub const PRIVATE: usize = STAGE;

fn stage() -> Text {
    // SAFETY: the lock is held (or one thread exists); the mapping is kept.
    unsafe {
        if STAGE_AT.is_null() {
            STAGE_AT = sys::map_anon(STAGE);
        }
        let room = if STAGE_AT.is_null() { 0 } else { STAGE };
        Text::raw(if room == 0 { core::ptr::dangling_mut() } else { STAGE_AT }, room)
    }
}

/// A line that says which process the following lines are of.
pub fn process_mark(t: &mut Text, who: (u32, u64)) {
    t.str("{\"type\":\"process\"").field("pid", who.0 as u64).field("start_ticks", who.1).str("}\n");
}

fn cstr<'a>(p: *const c_char) -> &'a [u8] {
    // SAFETY: zero-terminated strings of the initial stack or of the loader, or null.
    if p.is_null() { b"" } else { unsafe { CStr::from_ptr(p) }.to_bytes() }
}

/// Writes a `note` line.
pub fn note(what: &[&str]) {
    let mut b = [0u8; 512];
    let mut t = Text::over(&mut b);
    t.str("{\"type\":\"note\"").field("t", sys::now()).str(",\"what\":\"");
    for w in what {
        t.str(w);
    }
    t.str("\"}\n");
    sink::write(t.as_bytes());
}

/// Writes a `mode` line: from here on recording is this, for a reason with its error number. `whole`: every event before is in the trace.
pub fn mode(to: &str, why: &[&str], errno: i32, whole: Option<u64>) {
    let mut b = [0u8; 512];
    let mut t = Text::over(&mut b);
    t.str("{\"type\":\"mode\"").field("t", sys::now()).str(",\"mode\":\"").str(to).str("\",\"why\":\"");
    why.iter().for_each(|w| _ = t.str(w));
    t.str("\"").field("errno", errno as u64);
    if let Some(whole) = whole {
        t.field("whole", whole);
    }
    t.str("}\n");
    sink::write(t.as_bytes());
}

/// A note of what may hold anything.
pub fn note_given(what: &[&[u8]]) {
    let mut t = stage();
    what.iter().for_each(|w| _ = t.bytes(w));
    if t.len() == 0 {
        return;
    }
    // SAFETY: the staging memory behind the text, which is a few lines at most.
    let mut l = unsafe { Text::raw(STAGE_AT.add(t.len()), STAGE - t.len()) };
    l.str("{\"type\":\"note\"").field("t", sys::now()).str(",\"what\":").quoted(t.as_bytes()).str("}\n");
    sink::write(l.as_bytes());
}

/// Side lines go to the spool first, so that a kill does not lose them.
fn side(make: impl FnOnce(&mut Text)) {
    // SAFETY: the lock is held, so the memory is ours; side text lies in the spool.
    unsafe {
        let mut t = Text::over(&mut *(&raw mut SIDE_LINE));
        make(&mut t);
        let h = spool::header();
        let mut len = (*h).side_len.load(Relaxed) as usize;
        if !side_backed() {
            sink::write(t.as_bytes());
            return;
        }
        if len + t.len() > SIDE_CAP {
            flush_side();
            len = 0;
        }
        core::ptr::copy_nonoverlapping(t.as_bytes().as_ptr(), SPOOL.base.add(SIDE_OFF + len), t.len());
        (*h).side_len.store((len + t.len()) as u64, Release);
    }
}

static mut SIDE_BACKED: bool = false;
/// The longest is a definition: its texts, of which each byte can take six.
static mut SIDE_LINE: [u8; 6 * D_CAP + 512] = [0; 6 * D_CAP + 512];

unsafe fn side_backed() -> bool {
    // SAFETY: the lock is held.
    unsafe {
        if !SIDE_BACKED {
            SIDE_BACKED = spool::back(SIDE_OFF, SIDE_CAP);
        }
        SIDE_BACKED
    }
}

fn flush_side() {
    // SAFETY: the lock is held; side text lies in the spool.
    unsafe {
        let h = spool::header();
        let len = (*h).side_len.load(Relaxed) as usize;
        if len > 0 {
            sink::write(core::slice::from_raw_parts(SPOOL.base.add(SIDE_OFF), len.min(SIDE_CAP)));
            (*h).side_len.store(0, Release);
        }
    }
}

/// A forked child starts with no side memory.
pub fn reset() {
    // SAFETY: one thread.
    unsafe { SIDE_BACKED = false };
}

/// THREAD_START and THREAD_END records.
pub unsafe fn thread(lane: u32, seq: u64, w: u64, words: *const u64) {
    // SAFETY: the record is whole.
    unsafe {
        let ends = record::op_of(w) == op::THREAD_END;
        let mut name = [0u8; 18];
        if ends {
            for (i, c) in name.iter_mut().enumerate() {
                *c = (*words.add(2 + i / 6) >> (8 * (i % 6))) as u8;
            }
        }
        let t_ns = *words.add(1);
        side(|t| {
            t.str(if spool::is_python(lane) { "{\"type\":\"pythread\"" } else { "{\"type\":\"thread\"" })
                .field("t", t_ns)
                .field("lane", lane as u64)
                .field("tid", record::low_of(w))
                .field("seq", seq);
            t.str(if ends { ",\"what\":\"end\"" } else { ",\"what\":\"start\"" });
            if ends {
                let n = name.iter().position(|c| *c == 0).unwrap_or(16);
                t.str(",\"name\":").quoted(name.get(..n).unwrap_or(b""));
            }
            t.str("}\n");
        });
    }
}

/// Names of threads that live, from `/proc`, at the end.
fn live_names() {
    // SAFETY: the lock is held.
    unsafe {
        for i in 0..LANES.load(Acquire) {
            let lane = spool::lane(i);
            if (*lane).state.load(Relaxed) == 2 || spool::is_python(i) {
                continue;
            }
            let tid = (*lane).tid.load(Relaxed);
            let mut path = [0u8; 64];
            Text::over(&mut path).str("/proc/self/task/").num(tid as u64).str("/comm\0");
            let mut name = [0u8; 32];
            let n = proc::read_file(path.as_ptr(), &mut name);
            let name = name.get(..n.saturating_sub(1)).unwrap_or(b"");
            if n > 0 {
                side(|t| {
                    t.str("{\"type\":\"thread\"").field("t", sys::now()).field("lane", i as u64).field("tid", tid as u64);
                    t.field("seq", 0).str(",\"what\":\"name\",\"name\":").quoted(name).str("}\n");
                });
            }
        }
    }
}

/// CHILD, STARTED and ENDED records.
pub unsafe fn child(w: u64, words: *const u64) {
    let arg = record::arg_of(w);
    // SAFETY: the record is whole.
    let t_ns = unsafe { *words.add(1) };
    if record::op_of(w) == op::ENDED {
        return side(|t| {
            t.str("{\"type\":\"child\"").field("t", t_ns).str(",\"how\":\"ended\"").field("pid", record::low_of(w));
            t.field("signal", arg).str("}\n");
        });
    }
    let how = record::HOWS.get(arg as usize & 3).copied().unwrap_or("exec");
    let mut name = [0; record::TEXT_BYTES];
    let n = match record::op_of(w) {
        // SAFETY: the record is whole: its op says how many words it has.
        op::STARTED => memshim_format::gpu::text(unsafe { core::slice::from_raw_parts(words.add(2), 6) }, &mut name),
        _ => 0,
    };
    side(|t| {
        t.str("{\"type\":\"child\"").field("t", t_ns).str(",\"how\":\"").str(how).str("\"").field("pid", record::low_of(w));
        program(t, name.get(..n).unwrap_or(b""), arg & record::BARE != 0);
        t.str("}\n");
    });
}

/// What is said of a program that is started: its name, and that it is not followed.
fn program(t: &mut Text, name: &[u8], bare: bool) {
    if !name.is_empty() {
        t.str(",\"program\":").quoted(name);
    }
    if bare {
        t.str(",\"preload\":false");
    }
}

/// Map and GPU records.
pub unsafe fn map(lane: u32, stack: u64, w: u64, words: *const u64) {
    // SAFETY: the record is whole: its op says how many words it has.
    unsafe {
        if crate::cuda::line::is_gpu(w) {
            return side(|t| {
                crate::cuda::line::write(t, lane, w, words);
                row_ends(t, stack);
            });
        }
        let arg = |i: usize| *words.add(i);
        let (name, n) = match record::op_of(w) {
            op::MMAP => ("mmap", 5),
            op::MUNMAP => ("munmap", 3),
            op::MREMAP => ("mremap", 7),
            op::MPROTECT => ("mprotect", 4),
            op::MADVISE => ("madvise", 4),
            op::BRK => ("brk", 3),
            op::SHMAT => ("shmat", 3),
            op::SHMDT => ("shmdt", 2),
            op::UNDO => ("undo", 0),
            _ => return,
        };
        side(|t| {
            t.str("{\"type\":\"maps\",\"ev\":[[\"").str(name).str("\",").num(record::low_of(w));
            let mut from = 1;
            if name == "mremap" {
                t.str(",").num(arg(1));
                from = 2;
            }
            for i in from..=n {
                t.str(",");
                if name == "mmap" && i == 4 {
                    t.num(arg(i) >> 32).str(",").num(arg(i) & 0xffff_ffff);
                } else {
                    t.num(arg(i));
                }
                if i == from {
                    t.str(",").num(lane as u64);
                }
            }
            if name == "shmdt" {
                t.str(",0");
            }
            row_ends(t, stack);
        });
    }
}

/// Ends a line of one row, with its stack if there is one.
fn row_ends(t: &mut Text, stack: u64) {
    t.str("]]");
    let (native, python) = record::nodes_of(stack);
    if native | python != 0 {
        t.str(",\"s\":[").num(native as u64).str(",").num(python as u64).str("]");
    }
    t.str("}\n");
}

/// Stacks of threads that have ended without telling.
pub fn ended_stacks(now: u64) {
    crate::thread_stacks::reap(|ticket, addr, len| {
        side(|t| {
            t.str("{\"type\":\"maps\",\"ev\":[[\"munmap\",").num(ticket).str(",").num(now).str(",0,").num(addr).str(",").num(len);
            t.str("]]}\n");
        });
    });
}

/// Events in batches that were written, of the kind that a lane has.
///
/// # Safety
/// `lane` is one of ours.
pub unsafe fn recorded(lane: *mut Lane) -> &'static AtomicU64 {
    // SAFETY: the header is there while anything is recorded; the caller's lane.
    unsafe {
        let h = &*spool::header();
        if (*lane).python.load(Relaxed) != 0 { &h.python_recorded } else { &h.recorded }
    }
}

/// Totals of all lanes of one kind.
pub struct Totals {
    pub fns: [[u64; 2]; FNS.len()],
    pub live: i64,
    pub blocks: i64,
    pub failed: u64,
    pub lost: u64,
    /// See [`Lane::broken`](memshim_format::spool::Lane::broken).
    pub broken: u64,
    pub counted: u64,
}

impl Totals {
    /// Calls that are not among so many recorded ones: what is lost for sure, and of the broken records those that can have been calls.
    pub fn lost_beside(&self, recorded: u64) -> u64 {
        self.lost + self.broken.min(self.counted.saturating_sub(recorded + self.lost))
    }
}

/// Sums the exact counts of the lanes: those of Python's blocks, or the others.
pub fn totals(python: bool) -> Totals {
    let mut s = Totals { fns: [[0; 2]; FNS.len()], live: 0, blocks: 0, failed: 0, lost: 0, broken: 0, counted: 0 };
    // SAFETY: lanes below LANES exist; counters are atomics that only grow.
    unsafe {
        for i in 0..LANES.load(Acquire) {
            if spool::is_python(i) != python {
                continue;
            }
            let lane = spool::lane(i);
            for (f, sum) in s.fns.iter_mut().enumerate() {
                let cell = &(*lane).counts[cell(f as u8) % FNS_MAX];
                let calls = cell[0].load(Relaxed);
                sum[0] += calls;
                sum[1] += cell[1].load(Relaxed);
                s.counted += calls;
            }
            s.blocks += (*lane).blocks.load(Relaxed);
            s.live += (*lane).live.load(Relaxed);
            s.failed += (*lane).failed.load(Relaxed);
            s.lost += (*lane).lost.load(Relaxed);
            s.broken += (*lane).broken.load(Relaxed) as u64;
        }
    }
    s
}

/// Counts at the last `calls` line (and `pycalls` line): of the process, and of each lane.
static mut LAST_COUNTED: [u64; 2] = [u64::MAX; 2];
static mut LAST_LANE: [u64; LANES_MAX] = [0; LANES_MAX];
static mut LANE_ROWS_AT: [u64; 2] = [0; 2];
/// Blocks at the maximum of each lane's row, while the rows are made.
static mut AT_HI: [u8; 16 << 10] = [0; 16 << 10];

/// Forgets what was written before (forked child).
pub fn restart_counts() {
    // SAFETY: one thread.
    unsafe {
        LAST_COUNTED = [u64::MAX; 2];
        LAST_LANE = [0; LANES_MAX];
        LANE_ROWS_AT = [0; 2];
    }
}

/// Writes a `calls` line if anything was counted since the last, and a `pycalls` line. Rows of single lanes are kept for a second when
/// there are many.
pub fn calls(now: u64, last: bool) {
    calls_of(false, now, last);
    // SAFETY: settings are read-only.
    if unsafe { CONFIG.python_alloc } {
        calls_of(true, now, last);
    }
}

/// At an edge of a phase the `pycalls` line alone, where the others' levels are known by their events.
pub fn python_calls(now: u64) {
    // SAFETY: settings are read-only.
    if unsafe { CONFIG.python_alloc } {
        calls_of(true, now, true);
    }
}

fn calls_of(python: bool, now: u64, last: bool) {
    let s = totals(python);
    let which = python as usize & 1;
    // SAFETY: the lock is held.
    unsafe {
        // What is not written must not be taken for told: the lanes' highest live bytes are since the last line that was.
        if !last && (s.counted == LAST_COUNTED[which] || !sink::is_writing()) {
            return;
        }
        LAST_COUNTED[which] = s.counted;
        let mut t = stage();
        t.str(if python { "{\"type\":\"pycalls\"" } else { "{\"type\":\"calls\"" }).field("t", now).str(",\"fns\":[");
        let mut first = true;
        for (f, [n, bytes]) in s.fns.iter().enumerate() {
            if *n > 0 {
                t.str(if first { "[" } else { ",[" }).num(f as u64).str(",").num(*n).str(",").num(*bytes).str("]");
                first = false;
            }
        }
        t.str("]").signed("live", s.live).signed("blocks", s.blocks).field("failed", s.failed).field("lost", s.lost);
        if s.broken > 0 {
            t.field("broken", s.broken);
        }
        t.str(",\"lanes\":[");
        let lanes = LANES.load(Acquire);
        let every = if lanes > 4 { 1_000_000_000 } else { 0 };
        if last || now - LANE_ROWS_AT[which].min(now) >= every {
            LANE_ROWS_AT[which] = now;
            let mut at_hi = Text::over(&mut *(&raw mut AT_HI));
            lane_rows(&mut t, &mut at_hi, lanes, python);
            t.str("],\"hi_blocks\":[").bytes(at_hi.as_bytes());
        }
        t.str("]}\n");
        sink::write(t.as_bytes());
    }
}

unsafe fn lane_rows(t: &mut Text, at_hi: &mut Text, lanes: u32, python: bool) {
    let mut first = true;
    for i in 0..lanes {
        // SAFETY: lanes below LANES exist; the lock is held.
        unsafe {
            if spool::is_python(i) != python {
                continue;
            }
            let lane = spool::lane(i);
            let (mut allocs, mut bytes) = (0, 0);
            for f in 0..func::FIRST_FREE {
                let [calls, asked] = &(*lane).counts[cell(f) % FNS_MAX];
                allocs += calls.load(Relaxed);
                bytes += asked.load(Relaxed);
            }
            let blocks = (*lane).blocks.load(Relaxed);
            let frees = (allocs as i64 - blocks).max(0) as u64;
            let live = (*lane).live.load(Relaxed);
            let hi = (*lane).hi.load(Acquire);
            let hi_blocks = if hi > live { (*lane).hi_blocks.load(Relaxed) } else { blocks };
            if allocs + frees == LAST_LANE[i as usize % LANES_MAX] {
                continue;
            }
            LAST_LANE[i as usize % LANES_MAX] = allocs + frees;
            // The thread may be setting it now; what it would miss is no higher than what was just read.
            (*lane).hi_blocks.store(blocks, Relaxed);
            (*lane).hi.store(live, Relaxed);
            at_hi.str(if first { "" } else { "," }).int(hi_blocks);
            t.str(if first { "[" } else { ",[" }).num(i as u64).str(",").num(allocs).str(",").num(bytes).str(",").num(frees).str(",");
            t.int(live).str(",").int(hi.max(live)).str("]");
            first = false;
            if t.room() < 256 || at_hi.room() < 32 {
                return;
            }
        }
    }
}
