//! Graphs: captures, instantiations, updates, launches. What a graph copies is told by the copies that were captured into it.

use super::call::{Call, ticket};
use super::contexts::MOST as CONTEXTS_MOST;
use super::libcuda::own;
use super::memory::{int_of, word_of};
use super::shape::Touch;
use super::timing::{self, Outcome, Told};
use super::{state, transfers};
use crate::sys;
use core::sync::atomic::{AtomicI32, Ordering::*};
use memshim_format::gpu::{copy, graph, kind};

/// Captures that are open in the process.
static OPEN: AtomicI32 = AtomicI32::new(0);

/// Of these, those that each context has: they end with it.
static OPEN_IN: [AtomicI32; CONTEXTS_MOST] = [const { AtomicI32::new(0) }; CONTEXTS_MOST];

/// Whether any graph is being captured.
pub fn is_capturing() -> bool {
    OPEN.load(SeqCst) > 0
}

/// What a stream is doing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Capture {
    No,
    /// Its work goes into a graph; the number of the capture, 0 where the driver does not say.
    Yes(u64),
    /// The driver refuses to say (the default stream while another one captures).
    Unclear,
}

/// Asks the driver.
pub fn capture_of(stream: u64) -> Capture {
    let (mut status, mut id) = (0i32, 0u64);
    let r = sys::keep_errno(|| match (own().capture_info, own().is_capturing) {
        // SAFETY: writes two numbers.
        (Some(f), _) => unsafe { f(stream as usize, &raw mut status, &raw mut id) },
        // SAFETY: writes one number.
        (None, Some(f)) => unsafe { f(stream as usize, &raw mut status) },
        (None, None) => 0,
    });
    match (r, status) {
        (0, 0) => Capture::No,
        (0, _) => Capture::Yes(id),
        _ => Capture::Unclear,
    }
}

fn leave(c: &Call, r: i32, what: u64, tk: u64, w: [u64; 4]) {
    c.row4(kind::GRAPH, tk, c.head(r, c.place(), what), w);
}

/// `into`: the graph that it goes into, 0 for one of its own; `anew`: it replaces what that has.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn capture_begin(c: &Call, into: u64, anew: bool) -> i32 {
    // From here on no stream is looked at: to ask a capturing one would spoil the capture.
    OPEN.fetch_add(1, SeqCst);
    super::reaper::wait_for_sampler();
    let open_here = OPEN_IN.get(c.place().slot);
    // SAFETY: as called.
    let r = unsafe { c.make() };
    if r != 0 {
        close(1);
    } else if let Some(here) = open_here {
        here.fetch_add(1, Relaxed);
    }
    leave(c, r, graph::CAPTURE_BEGIN, ticket(), [c.stream(0), into, anew as u64, 0]);
    r
}

fn close(n: i32) {
    if OPEN.fetch_sub(n, SeqCst) < n {
        OPEN.store(0, SeqCst);
    }
}

/// One is, of the context of a call.
fn capture_closed(slot: usize) {
    close(1);
    if let Some(here) = OPEN_IN.get(slot)
        && here.fetch_sub(1, Relaxed) < 1
    {
        here.store(0, Relaxed);
    }
}

/// A context is gone, with all that was being captured in it.
pub fn context_ended(slot: usize) {
    if let Some(here) = OPEN_IN.get(slot) {
        close(here.swap(0, Relaxed));
    }
}

/// `into_graph`: the graph is told.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn capture_end(c: &Call, into_graph: bool) -> i32 {
    let stream = c.stream(0);
    let before = capture_of(stream);
    // SAFETY: as called.
    let r = unsafe { c.make() };
    // Some failures end a capture, others leave it open.
    if matches!(before, Capture::Yes(_)) && capture_of(stream) == Capture::No {
        capture_closed(c.place().slot);
    }
    let id = if let Capture::Yes(id) = before { id } else { 0 };
    let made = if into_graph { c.out(1, r) } else { 0 };
    leave(c, r, graph::CAPTURE_END, ticket(), [made, id, stream, 0]);
    r
}

/// A stream is destroyed, perhaps in the middle of a capture.
pub fn stream_ends(stream: u64, slot: usize) {
    if is_capturing() && matches!(capture_of(stream), Capture::Yes(_)) {
        capture_closed(slot);
    }
}

/// A handle is made from another.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn made(c: &Call, what: u64, from: u64) -> i32 {
    // SAFETY: as called.
    let r = unsafe { c.make() };
    leave(c, r, what, ticket(), [c.out(0, r), from, sys::now() - c.t, 0]);
    r
}

/// A handle goes.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn ended(c: &Call, what: u64) -> i32 {
    let tk = ticket();
    // SAFETY: as called.
    let r = unsafe { c.make() };
    leave(c, r, what, tk, [c.word(0) as u64, 0, 0, 0]);
    r
}

/// A node is changed, of a graph or of an executable one: 1 where that can change what is copied, else 0.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn node_changed(c: &Call, what: u64, touch: Touch) -> i32 {
    const COPIES: [u64; 3] = [1, 2, 4]; // a copy, a memset, a child graph
    let copies = |kind: u64| COPIES.contains(&kind);
    // The call may be the node's end.
    let by_node = match touch {
        Touch::ByNode(at) => {
            let mut kind = 0i32;
            // SAFETY: the program's node; writes a number.
            let asked = sys::keep_errno(|| own().node_type.map(|f| unsafe { f(c.word(at as usize), &raw mut kind) }));
            asked != Some(0) || copies(kind as u64)
        }
        _ => false,
    };
    let touches = || match touch {
        Touch::Never => false,
        Touch::Always => true,
        Touch::ByParameters(at) => copies(int_of(c.word(at as usize), 0)),
        Touch::ByNode(_) => by_node,
    };
    // SAFETY: as called.
    unsafe { changed_by(c, what, c.word(0) as u64, || touches() as u64) }
}

/// A graph or an executable one is changed.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn changed(c: &Call, what: u64, a: u64, b: u64) -> i32 {
    // SAFETY: as called.
    unsafe { changed_by(c, what, a, || b) }
}

/// The same where `b` is in what the program gave: that is read when the driver has read it, and not where it refuses.
///
/// # Safety
/// As of [`changed`].
unsafe fn changed_by(c: &Call, what: u64, a: u64, b: impl FnOnce() -> u64) -> i32 {
    // SAFETY: as called.
    let r = unsafe { c.make() };
    let wall = sys::now() - c.t;
    let b = if r == 0 { b() } else { 0 };
    leave(c, r, what, ticket(), [a, b, wall, 0]);
    r
}

/// A node is added: what it does, bytes or the child graph, direction; `None` is nothing that is followed. Read as by [`changed_by`].
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn added(c: &Call, node: impl FnOnce() -> Option<(u64, u64, u64)>) -> i32 {
    // SAFETY: as called.
    let r = unsafe { c.make() };
    let wall = sys::now() - c.t;
    let node = if r == 0 { node() } else { Some((graph::ADD_UNKNOWN, 0, 0)) };
    if let Some((what, b, direction)) = node {
        leave(c, r, what, ticket(), [c.word(1) as u64, b, wall, direction]);
    }
    r
}

/// A node that takes memory, by what the driver has made of its parameters: so many bytes stand there, and it writes the address behind them.
fn taken(c: &Call, at: usize) {
    // A pool's properties (88 bytes), who may use it (a pointer and a count), bytes, address.
    const BYTES: usize = 104;
    const ADDRESS: usize = 112;
    leave(c, 0, graph::ADD_ALLOC, ticket(), [c.word(1) as u64, word_of(at, BYTES), word_of(at, ADDRESS), 0]);
}

/// A node that takes memory.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn added_alloc(c: &Call, at: usize) -> i32 {
    // SAFETY: as called.
    let r = unsafe { c.make() };
    if r == 0 {
        taken(c, at);
    } else {
        leave(c, r, graph::ADD_ALLOC, ticket(), [c.word(1) as u64, 0, 0, 0]);
    }
    r
}

/// A node that gives memory of a graph back.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn added_free(c: &Call, address: u64) -> i32 {
    // SAFETY: as called.
    let r = unsafe { c.make() };
    leave(c, r, graph::ADD_FREE, ticket(), [c.word(1) as u64, 0, address, 0]);
    r
}

/// A node of any kind: its kind, three reserved words, then that kind's parameters.
///
/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn added_any(c: &Call, at: usize) -> i32 {
    const ALLOC: u64 = 10;
    const FREE: u64 = 11;
    let node = || match int_of(at, 0) {
        ALLOC => {
            taken(c, at + 16);
            None
        }
        FREE => {
            leave(c, 0, graph::ADD_FREE, ticket(), [c.word(1) as u64, 0, word_of(at, 16), 0]);
            None
        }
        _ => transfers::node(c, at),
    };
    // SAFETY: as called.
    unsafe { added(c, node) }
}

/// The capture that work of this call on `stream` goes into, if any.
pub fn capture_under_way(stream: u64) -> Option<u64> {
    match if is_capturing() { capture_of(stream) } else { Capture::No } {
        Capture::Yes(id) => Some(id),
        _ => None,
    }
}

/// Memory that a capture takes: a node of its graph, and no memory before that is instantiated.
pub fn captured_alloc(c: &Call, capture: u64, address: u64, bytes: u64) {
    leave(c, 0, graph::ADD_ALLOC, ticket(), [0, bytes, address, capture]);
}

/// Memory of a graph that a capture gives back.
pub fn captured_free(c: &Call, capture: u64, address: u64) {
    leave(c, 0, graph::ADD_FREE, ticket(), [0, 0, address, capture]);
}

/// # Safety
/// The call is the program's, and has not been made.
pub unsafe fn launch(c: &Call) -> i32 {
    let (exec, stream, place) = (c.word(0) as u64, c.stream(1), c.place());
    let captured = if timing::wants_captures() { capture_of(stream) } else { Capture::No };
    let runs = captured == Capture::No;
    let watch = timing::Watch::begin(c.hot, place, stream, runs, if runs { Told::Row } else { Told::Nothing });
    let t = sys::now();
    // SAFETY: as called.
    let r = unsafe { c.make() };
    let wall = sys::now() - t;
    let (tk, by) = watch.end(if r == 0 { Outcome::One } else { Outcome::Nothing });
    let mut flags = graph::LAUNCH | by;
    let mut capture = 0;
    if let Capture::Yes(id) = captured {
        flags |= copy::CAPTURED;
        capture = id;
    }
    c.row4(kind::GRAPH, tk, c.head(r, place, flags), [exec, stream, wall, capture]);
    state::look(c.hot, place, t + wall);
    r
}

/// A forked child has no captures.
pub fn forget() {
    OPEN.store(0, Relaxed);
    OPEN_IN.iter().for_each(|n| n.store(0, Relaxed));
}
