//! Puts thunks in the place of functions: into the pointers by which objects call each other, and into what `dlsym` gives.
//!
//! No code is touched. Each object has words that the loader fills with addresses of functions: for calls (`JUMP_SLOT`), for functions
//! whose address is taken or that are called without a stub (`GLOB_DAT`, `64`). Those that hold the address of a function that a rule is for
//! get its thunk's, the same one everywhere, so that pointers to it still compare equal.
//!
//! - *Pages that the loader has made read-only* are made writable for the moment, under its lock, and never executable. While it has not made
//!   them so it is still at work there, in another thread; such an object waits for the next time. (Before the program starts nobody is.)
//! - *Calls that are bound when they are first made* hold a stub's address until then. If one loaded object alone defines the function, and
//!   in one version, the loader can only come to that one, and so do we. Else (`pthread_cond_init` of old is another function) the thunk calls the
//!   stub, and what the loader wrote is seen after the call.
//! - *Objects come and go.* No place is remembered: the lists are read anew when the loader's counters change. Nothing is unmapped while its lock
//!   is held. That is taken at `dlsym`, when a thread is made, and when a function is called that is a phase already; not in hooks of memory.

use super::objects::{Loaded, Objects, State};
use super::{rules, thunk};
use crate::elf::{Dynamic, Relocation};
use crate::hooks::heap::ready;
use crate::phases::names::name_of_parts;
use crate::sys::{self, sys};
use crate::unwind::modules;
use crate::{init, loaded};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};

static OBJECTS: AtomicPtr<Objects> = AtomicPtr::new(core::ptr::null_mut());
/// The loader's counters when all was done last.
static DONE_AT: [AtomicU64; 2] = [const { AtomicU64::new(u64::MAX) }; 2];
/// An object was not ready.
static LEFT: AtomicBool = AtomicBool::new(false);
/// The program has begun, and others may be loading objects.
static BEGUN: AtomicBool = AtomicBool::new(false);
/// Held, with the loader's lock, by who is at it.
static BUSY: AtomicBool = AtomicBool::new(false);
/// The loader's lock is not to be had any more.
static LOST: AtomicBool = AtomicBool::new(false);
/// Pages could not be made writable.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Whether pages could not be made writable.
pub fn was_refused() -> bool {
    REFUSED.load(Relaxed)
}

/// Private memory taken, in bytes, as far as it is used.
pub fn private() -> usize {
    let objects = OBJECTS.load(Acquire);
    // SAFETY: null or the tables, of which a number is read.
    if objects.is_null() { 0 } else { unsafe { (*objects).private() } }
}

/// The first time, while one thread exists.
pub fn first() {
    super::objects::settle();
    let objects = sys::map_anon(size_of::<Objects>()).cast();
    OBJECTS.store(objects, Release);
    look(false);
    BEGUN.store(true, Relaxed);
}

/// A forked child has one thread. If another one of its parent's had the loader's lock, nobody will ever give it back.
pub fn after_fork() {
    BUSY.store(false, Relaxed);
    if BEGUN.load(Relaxed) && modules::may_be_locked() {
        LOST.store(true, Relaxed);
    }
}

fn has_changed() -> bool {
    let ([added, held], [a, h]) = (modules::counters(), &DONE_AT);
    a.load(Relaxed) != added || h.load(Relaxed) != held
}

/// Looks at objects that have come. Two loads and two comparisons where none has.
#[inline]
pub fn look_if_changed() {
    if has_changed() {
        look(false);
    }
}

/// The same, also at those that were not ready, and where changes are not counted.
pub fn look_again() {
    if has_changed() || LEFT.load(Relaxed) || !modules::are_counted() {
        look(false);
    }
}

/// A call through a stub has returned: the loader has found the function.
pub fn look_at_bound() {
    look(true);
}

/// What `dlsym` gave for `name`: the thunk, where it is a phase.
pub fn replaced(at: u64, name: &[u8]) -> u64 {
    let wanted = rules::of_function(name);
    let mut thunk = None;
    if wanted != 0 {
        exclusively(|objects| thunk = objects.of(at, name, wanted, None));
    }
    if LOST.load(Relaxed) {
        thunk = thunk::of_function(at);
    }
    thunk.unwrap_or(at)
}

#[cold]
#[inline(never)]
fn look(bound: bool) {
    exclusively(|objects| {
        let at = modules::counters();
        let mut left = false;
        for i in 0..objects.all().len() {
            let is_due = |o: &Loaded| matches!(o.state, State::New | State::Early) || bound && o.state == State::Unbound;
            let Some(o) = objects.get(i).copied().filter(is_due) else { continue };
            let state = if o.own || o.loader { State::Done } else { objects.scan(&o) };
            objects.set_state(i, state);
            left |= state == State::Early;
        }
        LEFT.store(left, Relaxed);
        DONE_AT.iter().zip(at).for_each(|(c, v)| c.store(v, Relaxed));
    });
}

/// Runs `work` under the loader's lock, with signals blocked: a handler must not jump out of it.
fn exclusively(work: impl FnOnce(&mut Objects)) {
    let objects = OBJECTS.load(Acquire);
    if BEGUN.load(Relaxed) {
        // A forked child begins, if it has not yet.
        ready();
        if !init::is_recording() || LOST.load(Relaxed) {
            return;
        }
    }
    if objects.is_null() {
        return;
    }
    let signals = sys::block_signals();
    loaded::locked(|| {
        // Only this thread can be at it already.
        if !BUSY.swap(true, Acquire) {
            // SAFETY: a mapping of that size, never unmapped, which all zero is a state of; nobody else uses it now.
            let objects = unsafe { &mut *objects };
            objects.refresh();
            work(objects);
            BUSY.store(false, Release);
        }
    });
    sys::restore_signals(signals);
}

/// Kinds of relocations that hold the address of a function.
const ADDRESS: u32 = 1;
const GLOBAL: u32 = 6;
const CALL: u32 = 7;
/// The program has a library's variable in its own memory, as it was when the library had been relocated: its pointers too.
const COPY: u32 = 5;

/// What came of a pointer.
enum Found {
    /// It is none of those, or holds a thunk already.
    Nothing,
    /// The loader has yet to fill it.
    Early,
    /// It is bound at its first call, to what cannot be told before.
    Unbound,
    /// What is to stand there; whether it is for the stub that stands there now.
    Thunk(u64, bool),
}

/// The pointers of one object on their way to be replaced.
struct Scan<'a> {
    objects: &'a Objects,
    object: &'a Loaded,
    pages: Pages,
    state: State,
}

impl Objects {
    /// Replaces the pointers of one object.
    fn scan(&self, object: &Loaded) -> State {
        let Some(tables) = object.tables() else { return State::Done };
        let pages = Pages { sealed: object.sealed, opened: false, seen: [0; 2] };
        let mut scan = Scan { objects: self, object, pages, state: State::Done };
        // SAFETY: loaded, as the loader's lock is held.
        for r in unsafe { tables.relocations() } {
            let at = object.bias.wrapping_add(r.offset);
            if r.symbol() == 0 {
                continue;
            }
            match r.kind() {
                // SAFETY: a symbol's number in a table of the object's.
                COPY => unsafe { scan.copy(at, tables.name(r.symbol()), tables.size(r.symbol())) },
                GLOBAL | CALL => scan.pointer(at, r, &tables),
                ADDRESS if r.addend == 0 => scan.pointer(at, r, &tables),
                _ => {}
            }
        }
        scan.pages.close();
        scan.state
    }

    /// The thunk for the function `name` at `at`, where rules are for it. With `stub`, that is called in its place.
    fn of(&self, at: u64, name: &[u8], wanted: u64, stub: Option<u64>) -> Option<u64> {
        let holder = self.holder(at).filter(|h| h.has_code(at))?;
        if holder.own {
            // A hook of ours: the rules for the object behind it are not to be met.
            let behind = self.all().iter().filter(|o| o.rules & wanted != 0 && !o.own && o.function(name, None).is_some());
            rules::refuse(behind.fold(0, |bits, o| bits | o.rules & wanted));
            return None;
        }
        let rules = holder.rules & wanted;
        if rules == 0 {
            return None;
        }
        if holder.loader || rules::is_left_alone(name) {
            rules::refuse(rules);
            return None;
        }
        holder.function(name, Some(at))?;
        let phase = name_of_parts(rules::stem(holder.file()), name);
        thunk::for_function(stub.unwrap_or(at), phase, rules, stub.is_some())
    }

    /// A call that goes to a stub of the object's own until it is made.
    fn unbound(&self, stub: u64, name: &[u8], wanted: u64) -> Found {
        let mut all = self.all().iter().filter_map(|o| Some((o, o.function(name, None)?)));
        let Some((first, function)) = all.next() else { return Found::Unbound };
        // SAFETY: loaded, as the loader's lock is held.
        let versions = first.tables().is_some_and(|t| unsafe { t.has_other(name, function) });
        let certain = all.next().is_none() && !function.chosen && !versions;
        if certain || first.own {
            return self.of(function.at, name, wanted, None).map_or(Found::Nothing, |thunk| Found::Thunk(thunk, false));
        }
        match self.of(function.at, name, wanted, Some(stub)) {
            Some(thunk) => Found::Thunk(thunk, true),
            None => Found::Unbound,
        }
    }
}

impl Scan<'_> {
    /// Replaces the pointer at `at`, which a relocation of the object whose tables these are makes.
    fn pointer(&mut self, at: u64, r: &Relocation, tables: &Dynamic) {
        // SAFETY: a symbol's number in a table of a loaded object.
        let (name, weak) = unsafe { (tables.name(r.symbol()), tables.is_weak(r.symbol())) };
        let wanted = rules::of_function(name);
        if wanted == 0 || at & 7 != 0 || !self.object.holds(at) {
            return;
        }
        // SAFETY: a word that the loader fills; aligned.
        let slot = unsafe { &*(at as *const AtomicU64) };
        let was = slot.load(Relaxed);
        let here = self.object.has_code(was) && r.kind() == CALL;
        // SAFETY: as above.
        let found = if thunk::is_one(was) {
            Found::Nothing
        } else if self.is_raw(was) {
            if weak { Found::Nothing } else { Found::Early }
        } else if here && unsafe { tables.function(name, Some(was)) }.is_none() {
            self.objects.unbound(was, name, wanted)
        } else {
            self.objects.of(was, name, wanted, None).map_or(Found::Nothing, |thunk| Found::Thunk(thunk, false))
        };
        match found {
            Found::Nothing => {}
            Found::Early => self.state = State::Early,
            Found::Unbound => self.wait(),
            Found::Thunk(thunk, stub) => match self.pages.open(at) {
                Open::Yes => {
                    if slot.compare_exchange(was, thunk, AcqRel, Relaxed).is_err() {
                        // It has just been bound, by another thread.
                        self.state = State::Early;
                    } else if stub {
                        self.wait();
                    }
                }
                Open::Later => self.state = State::Early,
                Open::No => {}
            },
        }
    }

    fn wait(&mut self) {
        if self.state == State::Done {
            self.state = State::Unbound;
        }
    }

    /// What stands in the file is an address without the place where the object lies, or nothing.
    fn is_raw(&self, at: u64) -> bool {
        let bias = self.object.bias;
        at == 0 || bias != 0 && at < bias && self.objects.holder(at).is_none()
    }

    /// Replaces the pointers in the program's copy, at `to`, of a library's variable.
    fn copy(&mut self, to: u64, name: &[u8], size: u64) {
        let program = self.object.bias;
        let libraries = self.objects.all().iter().filter(|o| o.bias != program && !o.own && !o.loader);
        let mut all = libraries.filter_map(|o| {
            let tables = o.tables()?;
            // SAFETY: loaded, as the loader's lock is held.
            let from = unsafe { tables.default(name) }?.at;
            Some((o, tables, from))
        });
        let Some((library, tables, from)) = all.next() else { return };
        // SAFETY: as above.
        for r in unsafe { tables.relocations() } {
            let inside = library.bias.wrapping_add(r.offset).wrapping_sub(from);
            if r.kind() == ADDRESS && r.addend == 0 && r.symbol() != 0 && inside < size {
                self.pointer(to + inside, r, &tables);
            }
        }
    }
}

/// Whether a page may be written now.
#[derive(PartialEq, Eq)]
enum Open {
    Yes,
    Later,
    No,
}

/// Pages of an object that are written to.
struct Pages {
    sealed: [u64; 2],
    /// Those of them that the loader had sealed are open for the moment.
    opened: bool,
    /// Page that was looked at last, plus one, and whether it may be written.
    seen: [u64; 2],
}

impl Pages {
    fn open(&mut self, at: u64) -> Open {
        let [from, to] = self.sealed;
        if !(from..to).contains(&at) {
            let page = at | 4095;
            if self.seen != [page, 1] && self.seen != [page, 0] {
                self.seen = [page, (is_writable(at) == Some(true)) as u64];
            }
            return if self.seen == [page, 1] { Open::Yes } else { Open::No };
        }
        if self.opened {
            return Open::Yes;
        }
        match (is_writable(at), BEGUN.load(Relaxed)) {
            (Some(true), true) => return Open::Later,
            (Some(true), false) => return Open::Yes,
            // Not to be told: it could be at work there.
            (None, true) => return Open::No,
            _ => {}
        }
        // SAFETY: pages of a loaded object that were made read-only, under the loader's lock.
        self.opened = unsafe { sys!(libc::SYS_mprotect, from, to - from, libc::PROT_READ | libc::PROT_WRITE) } == 0;
        if self.opened {
            return Open::Yes;
        }
        REFUSED.store(true, Relaxed);
        Open::No
    }

    fn close(self) {
        let [from, to] = self.sealed;
        if self.opened {
            // SAFETY: as they were.
            unsafe { sys!(libc::SYS_mprotect, from, to - from, libc::PROT_READ) };
        }
    }
}

/// Whether a word can be written, without writing it: the kernel is asked to set no bit in it. None: it does not do that here.
fn is_writable(at: u64) -> Option<bool> {
    const WAKE_OP: i32 = 5;
    /// "Or 0", and then: is it equal to a number that no half of an address is?
    const OR_NOTHING: u32 = 2 << 28 | 0x7ff;
    let word = 0u32;
    // SAFETY: nobody waits on either word; the other one is changed to what it is.
    let done = unsafe { sys!(libc::SYS_futex, &raw const word, WAKE_OP | libc::FUTEX_PRIVATE_FLAG, 0, 0, at & !3, OR_NOTHING) };
    match done {
        0.. => Some(true),
        _ if done == -libc::EFAULT as i64 => Some(false),
        _ => None,
    }
}
