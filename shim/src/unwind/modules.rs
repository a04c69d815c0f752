//! Which code lies where: the objects that the loader has loaded *now*, without its lock and without hooks of dlopen.
//!
//! The loader's public list of objects ([`chain`]) is read when its counters say that it has changed: by a thread whose walk meets code of
//! no known object, and by the writer each interval. Objects get numbers, which are never used for another object; what is known of one
//! never changes. Threads look places up in a sorted table that is copied under a sequence number: a reader that sees it change looks
//! again, a few times, and then takes the place for unknown.
//!
//! An object that is unloaded ends a *generation*: rules and nodes of before may be of other code by now ([`generation`]).

mod chain;
mod image;

pub use chain::{Object as Listed, counted as are_counted, counters, may_be_locked, settle, visit as each_listed};
pub use image::{Module, around, each_header};

use super::eh_frame::Tables;
use super::reach::readable;
use crate::{elf, sys};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*, fence};

/// Objects that are known at once or were: beyond them, objects that were unloaded are forgotten only where they come again.
const MODULES_MAX: usize = 4096;
/// Executable ranges of those that are loaded.
const RANGES_MAX: usize = 8192;

/// A range of code: where it begins and ends, and the module it is of.
struct Range {
    start: AtomicU64,
    end: AtomicU64,
    module: AtomicU32,
}

/// All tables, in memory of our own.
struct Known {
    modules: [Module; MODULES_MAX],
    ranges: [Range; RANGES_MAX],
}

static KNOWN: AtomicPtr<Known> = AtomicPtr::new(core::ptr::null_mut());
/// How many modules have a number, and how many ranges the table has.
static MODULES: AtomicU32 = AtomicU32::new(0);
static RANGES: AtomicU32 = AtomicU32::new(0);
/// Odd while the ranges are being written.
static SEQUENCE: AtomicU32 = AtomicU32::new(0);
/// Held by who reads the loader's list; never waited for.
static BUSY: AtomicU32 = AtomicU32::new(0);
/// The loader's counters when the list was read last.
static READ_AT: [AtomicU64; 2] = [const { AtomicU64::new(u64::MAX) }; 2];
/// When, for loaders whose counters are not known.
static READ_WHEN: AtomicU64 = AtomicU64::new(0);
/// Objects seen to be gone.
static GONE: AtomicU64 = AtomicU64::new(0);
/// How often the list was read.
static TURN: AtomicU32 = AtomicU32::new(0);
/// Where the code of this library begins, and its length.
static OWN: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Changes when an object has been unloaded: what was known of places in code is void then. Two loads and a sum.
#[inline(always)]
pub fn generation() -> u64 {
    let [added, held] = chain::counters();
    added.wrapping_sub(held).wrapping_add(GONE.load(Relaxed))
}

/// The code of this library.
#[derive(Clone, Copy)]
pub struct Own {
    start: u64,
    len: u64,
}

impl Own {
    #[inline(always)]
    pub fn holds(self, place: u64) -> bool {
        place.wrapping_sub(self.start) < self.len
    }
}

#[inline(always)]
pub fn own() -> Own {
    let [start, len] = &OWN;
    Own { start: start.load(Relaxed), len: len.load(Relaxed) }
}

/// Where a place's unwind tables are. None: in no object that is loaded, as far as can be seen at this moment.
#[cold]
#[inline(never)]
pub fn find(place: u64) -> Option<Tables> {
    // What is known of an object that is gone leads to memory that is gone, or another's.
    if chain::counted() && is_stale() {
        refresh();
        if something_has_gone() {
            // Another thread is reading the list, or changing it.
            return look(place).filter(|t| t.stays).or_else(|| chain::ask(place));
        }
    }
    let found = match look(place) {
        None if is_stale() => {
            refresh();
            // Where it still is, another thread is reading the list, or changing it.
            look(place).or_else(|| if is_stale() { chain::ask(place) } else { None })
        }
        found => found,
    };
    // Where another thread unloads it right now, against all rules as it seems to be in use, its tables are gone already.
    found.filter(|t| t.index == [0, 0] || readable(t.index[0] as u64))
}

/// Whether objects were unloaded since the list was read.
fn something_has_gone() -> bool {
    let ([added, held], [a, h]) = (chain::counters(), &READ_AT);
    let (a, h) = (a.load(Relaxed), h.load(Relaxed));
    a == u64::MAX || added.wrapping_sub(held) != a.wrapping_sub(h)
}

/// Whether a place that is not found from now on is in no object: not so while another thread reads the list, or where changes are not counted.
pub fn is_certain() -> bool {
    chain::counted() && !is_stale()
}

/// The two words at a place in the code of a loaded object.
pub fn code(place: u64) -> Option<[u64; 2]> {
    look(place).and_then(|_| chain::copy(place))
}

fn is_stale() -> bool {
    let (known, [added, held], [a, h]) = (chain::counted(), chain::counters(), &READ_AT);
    if known || KNOWN.load(Acquire).is_null() {
        added != a.load(Acquire) || held != h.load(Acquire)
    } else {
        chain::has_more() || sys::now().wrapping_sub(READ_WHEN.load(Relaxed)) > 10_000_000
    }
}

fn look(place: u64) -> Option<Tables> {
    let known = KNOWN.load(Acquire);
    if known.is_null() {
        return None;
    }
    for _ in 0..100 {
        let before = SEQUENCE.load(Acquire);
        if before & 1 != 0 {
            core::hint::spin_loop();
            continue;
        }
        // SAFETY: the table is never unmapped, and made of atomics.
        let found = search(unsafe { &(*known).ranges }, place);
        fence(Acquire);
        if SEQUENCE.load(Relaxed) == before {
            // SAFETY: modules below MODULES are complete, and unchanging while they are loaded.
            return found.and_then(|m| unsafe { (*known).modules.get(m as usize) }).map(|m| m.tables);
        }
    }
    None
}

fn search(ranges: &[Range; RANGES_MAX], place: u64) -> Option<u32> {
    let ranges = ranges.get(..RANGES.load(Relaxed) as usize)?;
    let (mut low, mut high) = (0, ranges.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let r = ranges.get(middle)?;
        if place < r.start.load(Relaxed) {
            high = middle;
        } else if place >= r.end.load(Relaxed) {
            low = middle + 1;
        } else {
            return Some(r.module.load(Relaxed));
        }
    }
    None
}

/// Reads the loader's list if it may have changed. Never waits: where another thread is at it, that one's result will do.
pub fn refresh() {
    if BUSY.load(Relaxed) != 0 {
        return;
    }
    // A handler that jumps out of here would leave the flag. The C library is asked for addresses, and may set errno.
    let signals = sys::block_signals();
    if BUSY.swap(1, Acquire) == 0 {
        // SAFETY: the flag is held.
        sys::keep_errno(|| unsafe { reread() });
        BUSY.store(0, Release);
    }
    sys::restore_signals(signals);
}

/// A forked child has one thread, and nobody reads any more.
pub fn after_fork() {
    BUSY.store(0, Relaxed);
    if SEQUENCE.load(Relaxed) & 1 != 0 {
        RANGES.store(0, Relaxed);
        SEQUENCE.fetch_add(1, Release);
        READ_AT.iter().for_each(|c| c.store(u64::MAX, Relaxed));
    }
}

/// Private memory taken, in bytes: as far as the tables are filled, and a page of each.
pub fn private() -> usize {
    if KNOWN.load(Relaxed).is_null() {
        return 0;
    }
    let (modules, ranges) = (MODULES.load(Relaxed) as usize, RANGES.load(Relaxed) as usize);
    modules * size_of::<Module>() + ranges * size_of::<Range>() + 2 * 4096
}

unsafe fn reread() {
    let mut known = KNOWN.load(Relaxed);
    if known.is_null() {
        known = sys::map_anon(size_of::<Known>()).cast();
        if known.is_null() {
            return;
        }
        KNOWN.store(known, Release);
    }
    // SAFETY: the flag is held: nobody else writes; all zero is a valid state of these tables.
    let modules = unsafe { &mut (*known).modules };
    let at = chain::counters();
    let turn = TURN.fetch_add(1, Relaxed).wrapping_add(1);
    // Nothing was unloaded since: what was there still is.
    let trusted = chain::counted() && !something_has_gone();
    let mut count = MODULES.load(Relaxed) as usize;
    if trusted {
        modules.iter_mut().take(count).filter(|m| m.is_loaded()).for_each(|m| m.turn = turn);
    }
    let look = |object| {
        let Some((known, [new, ..])) = modules.split_at_mut_checked(count) else { return };
        if image::read(object, new).is_none() {
            return;
        }
        // The same file at the same place as before keeps its number.
        let at = known.iter().position(|m| m.same_image(new)).unwrap_or(count);
        count = count.max(at + 1);
        if let Some(m) = modules.get_mut(at) {
            m.turn = turn;
        }
    };
    let whole = if trusted { chain::each_new(look) } else { chain::each(look) };
    let all_read = whole && at == chain::counters();
    if !all_read {
        // It changed while it was read; what was found stands, and who looks next reads again.
        modules.iter_mut().take(count).filter(|m| m.is_loaded()).for_each(|m| m.turn = turn);
    }
    for m in modules.iter_mut().take(count) {
        let (was, is) = (m.is_loaded(), m.turn == turn);
        m.loaded.store(is as u32, Release);
        if was && !is {
            GONE.fetch_add(!chain::counted() as u64, Relaxed);
        }
        if let Some([start, end]) = m.code.iter().find(|[start, end]| (*start..*end).contains(&(generation as fn() -> u64 as usize as u64)))
        {
            let [s, len] = &OWN;
            s.store(*start, Relaxed);
            len.store(end - start, Relaxed);
        }
    }
    MODULES.store(count as u32, Release);
    READ_WHEN.store(sys::now(), Relaxed);
    // SAFETY: as above.
    publish(unsafe { &(*known).ranges }, modules, count);
    // Only now: whoever finds the list as it was read finds what was read.
    if all_read {
        READ_AT.iter().zip(at).for_each(|(c, v)| c.store(v, Release));
    }
}

/// Writes the sorted ranges of the loaded modules.
fn publish(ranges: &[Range; RANGES_MAX], modules: &[Module; MODULES_MAX], count: usize) {
    SEQUENCE.fetch_add(1, AcqRel);
    fence(Release);
    let mut n = 0usize;
    for (number, m) in modules.iter().enumerate().take(count).filter(|(_, m)| m.is_loaded()) {
        for [start, end] in m.code.iter().filter(|[start, end]| start < end) {
            // By insertion: the loader's list is sorted more often than not.
            let mut at = n;
            while let Some(before) = at.checked_sub(1)
                && let (Some(left), Some(right)) = (ranges.get(before), ranges.get(at))
                && left.start.load(Relaxed) > *start
            {
                right.start.store(left.start.load(Relaxed), Relaxed);
                right.end.store(left.end.load(Relaxed), Relaxed);
                right.module.store(left.module.load(Relaxed), Relaxed);
                at = before;
            }
            if let Some(r) = ranges.get(at) {
                r.start.store(*start, Relaxed);
                r.end.store(*end, Relaxed);
                r.module.store(number as u32, Relaxed);
                n += 1;
            }
        }
    }
    RANGES.store(n as u32, Relaxed);
    SEQUENCE.fetch_add(1, Release);
}

/// Reads the loader's list if it has changed, and tells the writer what it has not been told yet: modules that were loaded, and numbers of
/// those that are no more. One caller at a time.
pub fn tell(mut load: impl FnMut(u32, &Module), mut unload: impl FnMut(u32)) {
    if is_stale() {
        refresh();
    }
    let known = KNOWN.load(Acquire);
    if known.is_null() {
        return;
    }
    // SAFETY: modules below MODULES are complete; `told` is this caller's.
    let modules = unsafe { (*known).modules.iter() };
    for (i, m) in modules.enumerate().take(MODULES.load(Acquire) as usize) {
        let (is, told, number) = (m.loaded.load(Acquire), m.told.load(Relaxed), i as u32 + 1);
        if told != 1 && (is == 1 || told == 0) {
            load(number, m);
        }
        if is == 0 && told != 2 {
            unload(number);
        }
        m.told.store(if is == 1 { 1 } else { 2 }, Relaxed);
    }
}

/// The writer begins a new file: it has been told nothing. (A forked child's trace.)
pub fn untell() {
    let known = KNOWN.load(Acquire);
    if !known.is_null() {
        // SAFETY: as in `tell`.
        let modules = unsafe { (*known).modules.iter() };
        for m in modules.take(MODULES.load(Acquire) as usize) {
            m.told.store(if m.is_loaded() { 0 } else { 2 }, Relaxed);
        }
    }
}

/// The object that a place is in, and from where to where it goes. Neither locks nor allocates.
pub fn object_of(place: u64) -> Option<(elf::Object, [u64; 2])> {
    let mut found = None;
    chain::visit(|o| {
        let mut whole = [u64::MAX, 0];
        each_header(o, |h| {
            if h.kind == libc::PT_LOAD {
                whole = around(whole, h.span(o.bias));
            }
        });
        let [from, to] = whole;
        if (from..to).contains(&place) {
            found = Some((elf::Object::new(o.bias, o.dynamic as *const [u64; 2]), whole));
        }
    });
    found
}

/// A loaded object by its bias and dynamic section.
pub fn of_place(bias: u64, dynamic: u64) -> Option<Listed> {
    let mut object = None;
    chain::visit(|o| object = object.or((o.bias == bias && o.dynamic == dynamic).then_some(o)));
    object
}

/// Bias and dynamic section of the first object now loaded whose file's name begins with `prefix`. Neither locks nor allocates.
pub fn of_file(prefix: &[u8]) -> Option<(u64, u64)> {
    let mut found = None;
    chain::visit(|o| {
        let mut path = [0u8; 512];
        let n = image::copy_string(o.name, &mut path);
        let path = path.get(..n).unwrap_or(b"");
        if found.is_none() && path.rsplit(|c| *c == b'/').next().is_some_and(|file| file.starts_with(prefix)) {
            found = Some((o.bias, o.dynamic));
        }
    });
    found
}
