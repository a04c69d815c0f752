//! Records, in the layouts of `cupti_activity.h`, version by version: a record grows at its end.

use super::{Cupti, KINDS, STEP, version};
use crate::arguments::Out;
use crate::clock::{D2H_PAGEABLE, D2H_PINNED, H2D_PAGEABLE, H2D_PINNED, H2H, P2P};
use crate::tap::{What, Work};
use std::ffi::{CString, c_char};
use std::sync::atomic::Ordering::Relaxed;

const COPY: u32 = 1;
const SET: u32 = 2;
const KERNEL: u32 = 10;
const PEER: u32 = 22;

/// How long a record of a kind is in this version; 0 of a kind that there is not.
pub fn length(kind: u32) -> usize {
    match (kind, version()) {
        (KERNEL, ..18) => 176,
        (KERNEL, 18) => 200,
        (KERNEL, ..130_000) => 208,
        (KERNEL, ..130_100) => 216,
        (KERNEL, ..130_300) => 224,
        (KERNEL, ..130_400) => 232,
        (KERNEL, _) => 248,
        (COPY, ..26) => 88,
        (COPY, ..130_400) => 96,
        (COPY, _) => 112,
        (SET, ..130_400) => 88,
        (SET, _) => 104,
        (PEER, _) => 96,
        _ => 0,
    }
}

fn copy_kind(rate: i32) -> u8 {
    match rate {
        H2D_PINNED | H2D_PAGEABLE => 1,
        D2H_PINNED | D2H_PAGEABLE => 2,
        P2P => 10,
        H2H => 9,
        _ => 8,
    }
}

/// A record in the making.
struct Record([u8; 256]);

impl Record {
    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        self.0[at..at + N].copy_from_slice(&bytes);
    }
}

impl Cupti {
    /// The name of the kernel that takes so long, as a compiler would write `void spin<N>()`.
    fn name_of(&mut self, ns: i64) -> *const c_char {
        if let Some((_, name)) = self.names.iter().find(|(of, _)| *of == ns) {
            return name.as_ptr();
        }
        let name = CString::new(format!("_Z4spinILl{ns}EEvv")).expect("no zero in it");
        self.names.push((ns, name));
        self.names.last().map_or(std::ptr::null(), |(_, name)| name.as_ptr())
    }

    /// The subscriber gets its buffer.
    fn give_back(&mut self) {
        let buffer = std::mem::replace(&mut self.buffer, std::ptr::null_mut());
        if let (false, Some(complete)) = (buffer.is_null(), self.complete) {
            complete(std::ptr::null_mut(), 0, buffer, self.size, self.used);
        }
        self.used = 0;
    }

    /// Records of what is over; forced, of what is not as well.
    pub fn flush(&mut self, now: i64, forced: bool) {
        for work in std::mem::take(&mut self.queue) {
            if work.ends <= now || forced {
                self.write(&work, work.ends <= now);
            } else {
                self.queue.push(work);
            }
        }
        self.give_back();
    }

    fn write(&mut self, w: &Work, timed: bool) {
        let kind = match w.what {
            What::Kernel => KERNEL,
            What::Set => SET,
            What::Copy if w.rate == P2P => PEER,
            What::Copy => COPY,
        };
        let len = length(kind);
        if !KINDS[kind as usize].load(Relaxed) {
            return;
        }
        if self.to_drop > 0 {
            self.to_drop -= 1;
            self.dropped += 1;
            return;
        }
        if !self.buffer.is_null() && self.used + len > self.size {
            self.give_back();
        }
        if let (true, Some(request)) = (self.buffer.is_null(), self.request) {
            request(Out::to(&mut self.buffer), Out::to(&mut self.size), Out::to(&mut 0));
        }
        if self.buffer.is_null() {
            self.dropped += 1;
            return;
        }
        let record = self.record(kind, w, timed);
        // SAFETY: the subscriber's buffer has room for it.
        unsafe { std::ptr::copy_nonoverlapping(record.0.as_ptr(), self.buffer.add(self.used), len) };
        self.used += len;
    }

    fn record(&mut self, kind: u32, w: &Work, timed: bool) -> Record {
        let mut r = Record([0; 256]);
        let at = |ns: i64| if timed { self.base + STEP.load(Relaxed) + ns } else { 0 };
        r.put(0, kind.to_ne_bytes());
        r.put(16, at(w.begins).to_ne_bytes());
        r.put(24, at(w.ends).to_ne_bytes());
        const CONTEXT: u32 = 1;
        if kind == KERNEL {
            r.put(40, w.device.to_ne_bytes());
            r.put(44, CONTEXT.to_ne_bytes());
            r.put(48, w.stream.to_ne_bytes());
            r.put(92, w.correlation.to_ne_bytes());
            r.put(104, self.name_of(w.kernel).addr().to_ne_bytes());
            r.put(144, w.node.to_ne_bytes());
            return r;
        }
        r.put(8, w.bytes.to_ne_bytes());
        r.put(32, w.device.to_ne_bytes());
        r.put(36, CONTEXT.to_ne_bytes());
        r.put(40, w.stream.to_ne_bytes());
        if kind != SET {
            r.put(4, copy_kind(w.rate).to_ne_bytes());
        }
        let (correlation, node) = if kind == PEER { (60, 72) } else { (44, 64) };
        r.put(correlation, w.correlation.to_ne_bytes());
        r.put(node, w.node.to_ne_bytes());
        r
    }
}
