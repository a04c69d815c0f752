//! What the process's memory looks like from the kernel's side: a sample each interval, and the layered snapshot at start, at each new
//! RSS peak and at exit. Files below `/proc` and the cgroup's are opened once, at the start, under high numbers, so that sampling never
//! takes the lowest free descriptor from under the program.

mod own;
mod status;

pub use own::own;

use crate::config::{CONFIG, FULL};
use crate::sys::{self, Path, sys};
use crate::text::Text;
use crate::{lines, proc, share, sink};
use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, Ordering::*};
use libc::c_int;
use memshim_format::cost::Cost;
use memshim_format::proc::{self as files, fields};
use status::{Status, status};
pub use status::{look, program_threads};

/// A file kept open, with its identity.
#[derive(Clone, Copy)]
struct Kept {
    fd: c_int,
    id: (u64, u64),
    /// Where to find it again when the program has closed it; null: nowhere.
    path: Path,
}

const NONE: Kept = Kept { fd: -1, id: (0, 0), path: core::ptr::null() };
static mut STATUS: Kept = NONE;
static mut ROLLUP: Kept = NONE;
static mut CG_CURRENT: Kept = NONE;
static mut CG_PEAK: Kept = NONE;
static mut CG_VERSION: u64 = 0;
static mut CG_LIMIT: u64 = u64::MAX;

static mut IO: Kept = NONE;

/// When recording began.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// RSS at the last snapshot of a peak, and when it was taken and what it cost without `smaps_rollup`.
static mut PEAK: u64 = 0;
static mut PEAK_AT: u64 = 0;
static mut PEAK_COST: u64 = 0;
static COST: Cost = Cost::new();
/// RSS at the highest peak with `smaps_rollup`.
static mut ROLLED: u64 = 0;
/// What `smaps_rollup` took in all, in ns, and the last time by page.
static mut ROLLUPS: u64 = 0;
static mut ROLLUP_PAGE: u64 = ROLLUP_PAGE_FIRST;
/// Usual at first, and from how many bytes on the time by page is that of the pages.
const ROLLUP_PAGE_FIRST: u64 = 150;
const ROLLUP_TELLS: u64 = 16 << 20;
/// The kernel counts page by page for it, and holds up changes of mappings meanwhile. So it gets a part of the time that has passed, as snapshots do,
/// and in full mode what is too little to matter there.
const SHARE: u64 = 400;
const ROLLUP_FREE_NS: u64 = 2_000_000;

static mut BUFFER: [u8; 8192] = [0; 8192];
static mut TEXT: [u8; 2560] = [0; 2560];

impl Kept {
    unsafe fn open(path: Path) -> Kept {
        // SAFETY: the caller's zero-terminated path.
        let fd = unsafe { sys::openat(libc::AT_FDCWD, path, libc::O_RDONLY, 0) };
        let fd = if sys::has_few_descriptors() { fd } else { sys::move_high(fd) };
        Kept { fd, id: sys::identity(fd), path: core::ptr::null() }
    }

    /// A file whose path stays valid.
    unsafe fn of_process(path: &'static CStr) -> Kept {
        let path: Path = path.as_ptr().cast();
        // SAFETY: zero-terminated.
        let found = if sys::has_few_descriptors() { NONE } else { unsafe { Kept::open(path) } };
        Kept { path, ..found }
    }

    /// Reads from the start into the shared buffer.
    unsafe fn read<'a>(&mut self) -> &'a [u8] {
        // SAFETY: the lock is held, so the buffer is ours until the next read.
        unsafe {
            let buf = &mut *(&raw mut BUFFER);
            if (self.fd < 0 || sys::identity(self.fd) != self.id) && !self.path.is_null() {
                *self = Kept { path: self.path, ..Kept::open(self.path) };
            }
            if self.fd < 0 || sys::identity(self.fd) != self.id {
                return b"";
            }
            let n = sys::pread(self.fd, buf.as_mut_ptr(), buf.len(), 0).max(0) as usize;
            if sys::has_few_descriptors() {
                sys::close(self.fd);
                self.fd = -1;
            }
            buf.get(..n).unwrap_or(b"")
        }
    }

    fn shut(&mut self) {
        if self.fd >= 0 && sys::identity(self.fd) == self.id {
            sys::close(self.fd);
        }
        *self = NONE;
    }
}

/// Opens the files. One thread.
pub fn open() {
    // SAFETY: one thread; literals are zero-terminated.
    unsafe {
        for k in [&raw mut STATUS, &raw mut ROLLUP, &raw mut IO, &raw mut CG_CURRENT, &raw mut CG_PEAK] {
            (*k).shut();
        }
        STATUS = Kept::of_process(c"/proc/self/status");
        ROLLUP = Kept::of_process(c"/proc/self/smaps_rollup");
        IO = Kept::of_process(c"/proc/self/io");
        STARTED.store(sys::now(), Relaxed);
        (PEAK, PEAK_AT, PEAK_COST, ROLLED) = (0, 0, 0, 0);
        (ROLLUPS, ROLLUP_PAGE) = (0, ROLLUP_PAGE_FIRST);
        // Its files lie at names that are not kept: they would have to stay open.
        if !sys::has_few_descriptors() {
            open_cgroup();
        }
    }
}

/// Finds the memory cgroup (v2, else v1), its limit (the least on the way up) and its counters.
unsafe fn open_cgroup() {
    let mut b = [0u8; 4096];
    // SAFETY: literals are zero-terminated.
    let n = unsafe { proc::read_file(c"/proc/self/cgroup".as_ptr().cast(), &mut b) };
    let text = b.get(..n).unwrap_or(b"");
    let (mut v1, mut v2): (Option<&[u8]>, Option<&[u8]>) = (None, None);
    for line in text.split(|c| *c == b'\n') {
        let mut parts = line.splitn(3, |c| *c == b':');
        let (id, names, path) = (parts.next(), parts.next().unwrap_or(b""), parts.next());
        if names.split(|c| *c == b',').any(|n| n == b"memory") {
            v1 = path;
        } else if id == Some(b"0") && names.is_empty() {
            v2 = path;
        }
    }
    // SAFETY: one thread.
    unsafe {
        CG_LIMIT = u64::MAX;
        CG_VERSION = 0;
        match (v1, v2) {
            (Some(p), _) => walk(b"/sys/fs/cgroup/memory", p, 1),
            (None, Some(p)) => walk(b"/sys/fs/cgroup", p, 2),
            _ => {}
        }
    }
}

unsafe fn walk(root: &[u8], path: &[u8], version: u64) {
    let (limit, current, peak): (&str, &str, &str) = if version == 1 {
        ("/memory.limit_in_bytes\0", "/memory.usage_in_bytes\0", "/memory.max_usage_in_bytes\0")
    } else {
        ("/memory.max\0", "/memory.current\0", "/memory.peak\0")
    };
    let mut b = [0u8; 4200];
    let mut end = path.len();
    let mut first = true;
    // SAFETY: paths are zero-terminated; one thread.
    unsafe {
        loop {
            let mut at = |file: &str| {
                let mut t = Text::over(&mut b);
                t.bytes(root).bytes(path.get(..end).unwrap_or(b"")).str(file);
                b.as_ptr()
            };
            if first {
                CG_CURRENT = Kept::open(at(current));
                CG_PEAK = Kept::open(at(peak));
                if CG_CURRENT.fd >= 0 {
                    CG_VERSION = version;
                    first = false;
                }
            }
            let p = at(limit);
            let mut v = [0u8; 32];
            let n = proc::read_file(p, &mut v);
            if let Some(l) = digits(v.get(..n).unwrap_or(b"")) {
                // v1 says "no limit" with a number near 2^63.
                if l < 1 << 60 {
                    CG_LIMIT = CG_LIMIT.min(l);
                }
            }
            match path.get(..end).unwrap_or(b"").iter().rposition(|c| *c == b'/') {
                Some(slash) if end > 0 => end = slash,
                _ => return,
            }
        }
    }
}

fn digits(s: &[u8]) -> Option<u64> {
    let n = s.iter().position(|c| !c.is_ascii_digit()).unwrap_or(s.len());
    crate::config::number(s.get(..n)?)
}

/// One sample; at a new peak (1 % or 1 MiB above the last) a snapshot too, as long as snapshots take less than 0.25 % of the time, and
/// again when there is time for `smaps_rollup` of it.
pub fn sample(now: u64, status: Option<Status>) {
    let Some(s) = status.filter(Status::has_memory) else { return };
    rss(now, &s);
    // SAFETY: the lock is held.
    unsafe {
        let is_above = |last: u64| s.rss > last + (last / 100).min(1 << 20);
        let is_due = now.saturating_sub(PEAK_AT) >= PEAK_COST * SHARE;
        let is_there_still = s.rss + s.rss / 100 >= PEAK;
        if is_due && (is_above(PEAK) || is_there_still && is_above(ROLLED) && is_time_for_rollup(now, s.rss)) {
            snapshot("peak", Some(s));
        }
    }
}

/// The last sample, which may be of a peak, and the snapshot at exit.
pub fn last(now: u64) {
    sample(now, status());
    snap("exit");
}

/// Writes an `rss` line.
fn rss(now: u64, s: &Status) {
    // SAFETY: the lock is held; the stack may be a signal handler's, so text is made in memory of our own.
    unsafe {
        let mut t = Text::over(&mut *(&raw mut TEXT));
        t.str("{\"type\":\"rss\"").field("t", now).field("rss", s.rss).field("hwm", s.hwm).field("anon", s.anon).field("file", s.file);
        t.field("shmem", s.shmem).field("swap", s.swap).field("size", s.size).field("stk", s.stk).field("threads", s.threads);
        t.field("cpu", cpu()).str("}\n");
        sink::write(t.as_bytes());
    }
}

/// Whether `smaps_rollup` of so many resident bytes takes no more than its part of the time.
unsafe fn is_time_for_rollup(now: u64, rss: u64) -> bool {
    // SAFETY: the lock is held, under which alone the mode changes.
    let (spent, of_page, free) = unsafe { (ROLLUPS, ROLLUP_PAGE, if CONFIG.mode == FULL { ROLLUP_FREE_NS } else { 0 }) };
    let passed = now.saturating_sub(started());
    spent + rss / 4096 * of_page <= free + passed / SHARE
}

/// When recording began.
pub fn started() -> u64 {
    STARTED.load(Relaxed)
}

/// The layered snapshot. The lock is held, or one thread exists.
pub fn snap(why: &str) {
    snapshot(why, status());
}

fn snapshot(why: &str, status: Option<Status>) {
    let begun = sys::now();
    // SAFETY: the lock is held, or one thread exists.
    unsafe {
        let mut t = begin(begun, why);
        let before = ROLLUPS;
        layers(&mut t, status);
        if let Some(s) = status
            && why != "start"
        {
            PEAK = PEAK.max(s.rss);
            if is_time_for_rollup(begun, s.rss) {
                ROLLED = ROLLED.max(s.rss);
                rollup(&mut t);
            }
        }
        own(&mut t);
        (PEAK_AT, PEAK_COST) = (begun, COST.of(end(&mut t, begun).saturating_sub(ROLLUPS - before)));
    }
}

/// The snapshot at the edge of a phase, of what does not grow with the program. The lock is held.
pub fn edge(at: u64) {
    // SAFETY: the lock is held.
    unsafe {
        let mut t = begin(at, "phase");
        layers(&mut t, status());
        end(&mut t, at);
    }
}

unsafe fn begin(at: u64, why: &str) -> Text {
    // SAFETY: the lock is held.
    let mut t = Text::over(unsafe { &mut *(&raw mut TEXT) });
    t.str("{\"type\":\"snap\"").field("t", at).str(",\"why\":\"").str(why).str("\"");
    t
}

/// Ends the line and writes it; gives what it took.
unsafe fn end(t: &mut Text, begun: u64) -> u64 {
    let cost = sys::now() - begun;
    t.field("cost_ns", cost).str("}\n");
    sink::write(t.as_bytes());
    cost
}

/// The layers that are there for the asking.
unsafe fn layers(t: &mut Text, status: Option<Status>) {
    // SAFETY: the lock is held.
    unsafe {
        if let Some(s) = status {
            t.field("rss", s.rss).field("hwm", s.hwm).field("vm_peak", s.peak).field("size", s.size).field("anon", s.anon);
            t.field("file", s.file).field("shmem", s.shmem).field("swap", s.swap).field("hugetlb", s.hugetlb).field("stk", s.stk);
        }
        usage(t, "self", &times(libc::RUSAGE_SELF));
        let children = times(libc::RUSAGE_CHILDREN);
        if children.ru_maxrss > 0 || children.ru_minflt > 0 {
            usage(t, "children", &children);
        }
        io(t);
        if CG_VERSION > 0 {
            t.str(",\"cgroup\":{\"v\":").num(CG_VERSION);
            if let Some(v) = digits(CG_CURRENT.read()) {
                t.field("current", v);
            }
            if let Some(v) = digits(CG_PEAK.read()) {
                t.field("peak", v);
            }
            if CG_LIMIT != u64::MAX {
                t.field("limit", CG_LIMIT);
            }
            t.str("}");
        }
        let sums = lines::totals(false);
        t.signed("live", sums.live).signed("blocks", sums.blocks);
    }
}

/// Bytes that the program has read and written so far, without what we did; `None` where the kernel does not say, or cannot be asked now. For an
/// edge, which has not the lock. Signals are blocked.
pub fn moved() -> Option<[u64; 2]> {
    // SAFETY: a plain copy. Who opens the file anew may be writing it: then number and identity do not fit each other.
    let kept = unsafe { (&raw const IO).read_volatile() };
    if kept.fd < 0 || sys::identity(kept.fd) != kept.id {
        return None;
    }
    let mut b = [0u8; 128];
    // SAFETY: b has that room.
    let (n, own) = share::beside(|| unsafe { sys::pread(kept.fd, b.as_mut_ptr(), b.len(), 0) });
    let s = b.get(..n.max(0) as usize)?;
    let [read, written] = fields(s, [b"rchar", b"wchar"]);
    Some([read?.saturating_sub(own[0]), written?.saturating_sub(own[1])])
}

/// Bytes read and written, by the program and from and to storage.
unsafe fn io(t: &mut Text) {
    // SAFETY: the lock is held.
    let (s, own) = share::beside(|| unsafe { IO.read() });
    if s.is_empty() {
        return;
    }
    let [read, written, storage_read, storage_written] =
        fields(s, [b"rchar", b"wchar", b"read_bytes", b"write_bytes"]).map(|n| n.unwrap_or(0));
    t.str(",\"io\":{\"read\":").num(read.saturating_sub(own[0])).field("written", written.saturating_sub(own[1]));
    t.field("storage_read", storage_read).field("storage_written", storage_written).str("}");
}

unsafe fn rollup(t: &mut Text) {
    let begun = sys::now();
    // SAFETY: the lock is held.
    let s = unsafe { ROLLUP.read() };
    if s.is_empty() {
        return;
    }
    let found = fields(s, files::ROLLUP.map(|(_, name)| name.as_bytes()));
    let [rss, ..] = found.map(|n| n.unwrap_or(0));
    let took = sys::now() - begun;
    // SAFETY: the lock is held.
    unsafe {
        ROLLUPS += took;
        // Of a few pages it is what else the call takes, and of any it may have been interrupted.
        if rss >= ROLLUP_TELLS {
            ROLLUP_PAGE = (took / (rss / 4096)).clamp(1, 4 * ROLLUP_PAGE_FIRST);
        }
    }
    t.str(",\"rollup\":{\"rss\":").num(rss);
    for ((key, _), value) in files::ROLLUP.iter().zip(found).skip(1) {
        if let Some(v) = value {
            t.field(key, v);
        }
    }
    t.str("}");
}

fn times(who: c_int) -> libc::rusage {
    // SAFETY: rusage is plain data, which the kernel fills.
    unsafe {
        let mut r: libc::rusage = core::mem::zeroed();
        sys!(libc::SYS_getrusage, who, &raw mut r);
        r
    }
}

fn ns(v: libc::timeval) -> u64 {
    v.tv_sec as u64 * 1_000_000_000 + v.tv_usec as u64 * 1000
}

/// Processor time of this process so far, in nanoseconds.
fn cpu() -> u64 {
    let r = times(libc::RUSAGE_SELF);
    ns(r.ru_utime) + ns(r.ru_stime)
}

fn usage(t: &mut Text, key: &str, r: &libc::rusage) {
    t.str(",\"").str(key).str("\":{\"maxrss\":").num(r.ru_maxrss as u64 * 1024);
    t.field("utime_ns", ns(r.ru_utime)).field("stime_ns", ns(r.ru_stime)).field("minflt", r.ru_minflt as u64);
    t.field("majflt", r.ru_majflt as u64).field("inblock", r.ru_inblock as u64).field("oublock", r.ru_oublock as u64);
    t.field("nvcsw", r.ru_nvcsw as u64).field("nivcsw", r.ru_nivcsw as u64).str("}");
}
