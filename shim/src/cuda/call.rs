//! One hooked driver call: the real function with the arguments as they came, and the row that it leaves.
//!
//! A call is counted once: the driver's calls of its own functions, and the calls that we make, come while the thread is inside a hook and
//! pass through. A row has a ticket from one counter: calls that end something take it before the real call, others after, so that rows in
//! the order of their tickets are in the order in which things happened. Every ticket makes one row; a gap tells of a lost one.

use super::contexts::{self, Place};
use super::shape::{self, Shape};
use super::{cupti, libcuda, lookup};
use crate::callers;
use crate::config::COUNT;
use crate::hooks::heap::ready;
use crate::lane::{Hot, push};
use crate::sys;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use memshim_format::gpu::{self, context, kind};
use memshim_format::record::{ARG_WORD, has_stack, op, start};

/// Which ABI of a call an entry is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    Plain,
    /// Device addresses and sizes of 32 bits.
    Narrow,
    /// The default stream is the thread's own.
    PerThread,
}

/// Address of a hook.
pub struct Hook(pub *const ());
// SAFETY: an address of code.
unsafe impl Sync for Hook {}

/// A line of the table.
pub struct Entry {
    /// The exported symbol.
    pub symbol: &'static str,
    /// The name without suffixes, by which `cuGetProcAddress` knows it.
    pub base: &'static str,
    /// Its number in the trace.
    pub call: u16,
    /// The CUDA version from which on the name means this ABI.
    pub version: u16,
    pub flavour: Flavour,
    /// Arguments are also on the stack.
    pub wide: bool,
    pub shape: Shape,
    /// The hook that is given out in place of the driver's function.
    pub hook: Hook,
    /// The hook that is exported.
    pub export: Hook,
    /// The hook that is given out in place of what another library gives out.
    pub relay: Hook,
    /// The driver's function, 0 while it is not known.
    pub real: AtomicUsize,
    /// What stands in front of it for whoever is linked to it, behind us: another library's function of this name, or the same.
    pub front: AtomicUsize,
    /// What another library has given out in place of the driver's, 0 where none has.
    pub given: AtomicUsize,
}

/// What [`Hot::gpu`] is while a hooked call is under way, and while we ask for something ourselves.
pub const UNDER_WAY: u32 = 1;

/// No driver: what it would say of itself.
const NOT_INITIALIZED: i32 = 3;

type Six = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> i32;
type Wide = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize, usize, usize, usize, usize, usize, usize, usize) -> i32;

/// A call under way.
pub struct Call {
    pub entry: &'static Entry,
    pub hot: *mut Hot,
    args: *const usize,
    real: usize,
    /// When it began.
    pub t: u64,
}

/// The body of the hooks that stand in place of the driver's own functions.
///
/// # Safety
/// `args` are six words, fourteen where the entry is wide, as the program passed them.
#[inline(never)]
pub unsafe fn run(entry: &'static Entry, args: *const usize) -> i32 {
    // SAFETY: as called.
    unsafe {
        match entry.shape {
            Shape::Lookup => looked_up(entry, args, ready(), libcuda::real(entry)),
            Shape::Cupti => cupti::program_calls(entry, args),
            _ => counted(entry, args, ready(), libcuda::real(entry)),
        }
    }
}

/// The body of the exported hooks.
///
/// # Safety
/// As of [`run`].
#[inline(never)]
pub unsafe fn run_in_front(entry: &'static Entry, args: *const usize) -> i32 {
    // SAFETY: as called.
    unsafe { of_another(entry, args, libcuda::front) }
}

/// The body of the hooks that stand in place of what another library gives out.
///
/// # Safety
/// As of [`run`].
#[inline(never)]
pub unsafe fn run_given(entry: &'static Entry, args: *const usize) -> i32 {
    // SAFETY: as called.
    unsafe { of_another(entry, args, |e| e.given.load(Relaxed)) }
}

#[inline(always)]
unsafe fn of_another(entry: &'static Entry, args: *const usize, its: impl Fn(&Entry) -> usize) -> i32 {
    if let Shape::Cupti = entry.shape {
        // SAFETY: as called.
        return unsafe { cupti::program_calls(entry, args) };
    }
    let (hot, driver) = (ready(), libcuda::real(entry));
    // SAFETY: null or this thread's; the real function gets what the hook got.
    unsafe {
        if driver != 0 && !hot.is_null() && (*hot).gpu != 0 {
            // A call out of one under way, which counts by itself. It goes where it goes without us, also where a driver calls itself by its name.
            return inside(entry, args, hot, its(entry));
        }
        let real = its(entry);
        // Without a driver a function of its name is somebody's own, of whatever shape.
        if driver == 0 && real != 0 {
            return Call { entry, hot, args, real, t: 0 }.make();
        }
        match entry.shape {
            Shape::Lookup => looked_up(entry, args, hot, real),
            _ => counted_apart(entry, args, hot, real),
        }
    }
}

#[cold]
#[inline(never)]
unsafe fn looked_up(entry: &'static Entry, args: *const usize, hot: *mut Hot, real: usize) -> i32 {
    // SAFETY: as called.
    if real == 0 { NOT_INITIALIZED } else { unsafe { lookup::get_proc_address(&Call { entry, hot, args, real, t: 0 }) } }
}

#[cold]
#[inline(never)]
unsafe fn inside(entry: &'static Entry, args: *const usize, hot: *mut Hot, real: usize) -> i32 {
    if real == 0 {
        return NOT_INITIALIZED;
    }
    // SAFETY: the real function gets what the hook got.
    unsafe { Call { entry, hot, args, real, t: 0 }.make() }
}

/// A body of its own for these two, so that the first's stays one.
#[inline(never)]
unsafe fn counted_apart(entry: &'static Entry, args: *const usize, hot: *mut Hot, real: usize) -> i32 {
    // SAFETY: as called.
    unsafe { counted(entry, args, hot, real) }
}

#[inline(always)]
unsafe fn counted(entry: &'static Entry, args: *const usize, hot: *mut Hot, real: usize) -> i32 {
    if real == 0 {
        return NOT_INITIALIZED;
    }
    let call = Call { entry, hot, args, real, t: 0 };
    // SAFETY: hot is null or this thread's; the real function gets what the hook got.
    unsafe {
        if hot.is_null() || (*hot).gpu != 0 || (*hot).mode == COUNT {
            return call.make();
        }
        (*hot).gpu = UNDER_WAY;
        // Transfers take their own time, right before the call.
        let t = if entry.shape.is_transfer() { 0 } else { sys::now() };
        let call = Call { t, ..call };
        let r = shape::run(&call);
        if r != 0 && entry.shape.tells_failures_alone() {
            call.failed(r);
        }
        (*hot).gpu = 0;
        r
    }
}

static TICKET: AtomicU64 = AtomicU64::new(1);

/// The next ticket.
pub fn ticket() -> u64 {
    TICKET.fetch_add(1, Relaxed)
}

impl Call {
    /// The same, begun at `t`.
    pub fn begun(&self, t: u64) -> Call {
        Call { entry: self.entry, hot: self.hot, args: self.args, real: self.real, t }
    }

    /// Makes the real call.
    ///
    /// # Safety
    /// Once a call.
    pub unsafe fn make(&self) -> i32 {
        let a = |i: usize| {
            // SAFETY: the caller's words.
            unsafe { *self.args.add(i) }
        };
        // SAFETY: the driver's function with the program's arguments.
        unsafe {
            if self.entry.wide {
                let f: Wide = core::mem::transmute(self.real);
                f(a(0), a(1), a(2), a(3), a(4), a(5), a(6), a(7), a(8), a(9), a(10), a(11), a(12), a(13))
            } else {
                let f: Six = core::mem::transmute(self.real);
                f(a(0), a(1), a(2), a(3), a(4), a(5))
            }
        }
    }

    /// Argument `i` as it is in its register or on the stack.
    pub fn word(&self, i: usize) -> usize {
        if i >= if self.entry.wide { 14 } else { 6 } {
            return 0;
        }
        // SAFETY: the caller's words.
        unsafe { *self.args.add(i) }
    }

    /// Argument `i`, an integer of 32 bits: what is above them is not the program's.
    pub fn int(&self, i: usize) -> u64 {
        self.word(i) as u32 as u64
    }

    /// Argument `i`, a size or a device address.
    pub fn size(&self, i: usize) -> u64 {
        if self.entry.flavour == Flavour::Narrow { self.int(i) } else { self.word(i) as u64 }
    }

    /// Argument `i`, a stream: its handle, the default stream by the number that says whose it is.
    pub fn stream(&self, i: usize) -> u64 {
        match self.word(i) {
            0 => self.default_stream(),
            s => s as u64,
        }
    }

    /// The stream of calls that name none: 1 the context's, 2 the thread's own.
    pub fn default_stream(&self) -> u64 {
        if self.entry.flavour == Flavour::PerThread { 2 } else { 1 }
    }

    /// What the driver wrote where argument `i` points, an address or a handle; 0 after a failure.
    pub fn out(&self, i: usize, r: i32) -> u64 {
        let at = self.word(i);
        if r != 0 || at == 0 {
            return 0;
        }
        // SAFETY: the call succeeded, so the driver has written there.
        unsafe {
            if self.entry.flavour == Flavour::Narrow {
                (at as *const u32).read_unaligned() as u64
            } else {
                (at as *const u64).read_unaligned()
            }
        }
    }

    /// Where the thread is now.
    pub fn place(&self) -> Place {
        contexts::current(self.hot)
    }

    /// A head word.
    pub fn head(&self, r: i32, place: Place, flags: u64) -> u64 {
        gpu::head(r as u64, place.device, place.context, flags)
    }

    /// The start of a row, with the stack of those that ask for memory.
    fn first(&self, kind: u8, ticket: u64) -> u64 {
        let w = start(op::GPU + kind, self.entry.call as u64, ticket);
        if has_stack(w) {
            // SAFETY: hot is this thread's.
            unsafe { callers::note(self.hot) };
        }
        w
    }

    /// Leaves a row of a call that failed, and of which there is no other. Of no context: the thread's current one can be gone.
    #[cold]
    #[inline(never)]
    fn failed(&self, r: i32) {
        let head = self.head(r, contexts::NOWHERE, context::FAILED);
        // SAFETY: hot is this thread's.
        unsafe { push(self.hot, [self.first(kind::CONTEXT, ticket()), self.t, head, 0]) };
    }

    /// Leaves a row of two words.
    pub fn row2(&self, kind: u8, ticket: u64, head: u64, w: [u64; 2]) {
        // SAFETY: hot is this thread's.
        unsafe { push(self.hot, [self.first(kind, ticket), self.t, head, w[0] & ARG_WORD, w[1] & ARG_WORD]) }
    }

    /// Leaves a row of three words.
    pub fn row3(&self, kind: u8, ticket: u64, head: u64, w: [u64; 3]) {
        // SAFETY: hot is this thread's.
        unsafe { push(self.hot, [self.first(kind, ticket), self.t, head, w[0] & ARG_WORD, w[1] & ARG_WORD, w[2] & ARG_WORD]) }
    }

    /// Leaves a row of four words.
    pub fn row4(&self, kind: u8, ticket: u64, head: u64, w: [u64; 4]) {
        let [a, b, c, d] = w.map(|w| w & ARG_WORD);
        // SAFETY: hot is this thread's.
        unsafe { push(self.hot, [self.first(kind, ticket), self.t, head, a, b, c, d]) }
    }

    /// Leaves a row of five words.
    pub fn row5(&self, kind: u8, ticket: u64, head: u64, w: [u64; 5]) {
        let [a, b, c, d, e] = w.map(|w| w & ARG_WORD);
        // SAFETY: hot is this thread's.
        unsafe { push(self.hot, [self.first(kind, ticket), self.t, head, a, b, c, d, e]) }
    }
}

/// A forked child counts anew.
pub fn forget() {
    TICKET.store(1, Relaxed);
}

/// Whether no row was ever made.
pub fn is_unused() -> bool {
    TICKET.load(Relaxed) == 1
}
