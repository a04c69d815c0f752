//! How functions are found: by name, by `cuGetProcAddress` in both of its ABIs. A driver has what its version has: newer symbols are not exported.

use crate::arguments::{In, Out};
use crate::call::{answered, driver_functions};
use crate::code::NOT_FOUND;
use crate::{
    arrays, call, captures, clock, contexts, copies, device, events, graphs, kernels, memory, physical, pools, sets, shared, streams, tap,
};

unsafe extern "C" {
    /// Which driver it stands for: made by `link`.
    safe static fake_driver_version: i32;
}

pub fn version() -> i32 {
    fake_driver_version
}

/// Which symbol a name means from which version on, of functions that are hooked and of others: the lines that programs read as well.
const ABI: [&str; 2] = [include_str!("../../programs/cuda/abi.inc"), include_str!("../../programs/cuda/abi_more.inc")];

struct Line {
    symbol: &'static str,
    name: &'static str,
    version: i32,
    per_thread: bool,
}

/// `X(symbol, "name", version, per-thread default stream)`.
fn line(text: &'static str) -> Option<Line> {
    let mut words = text.strip_prefix("X(")?.strip_suffix(')')?.split(", ");
    let mut next = || words.next();
    Some(Line { symbol: next()?, name: next()?.trim_matches('"'), version: next()?.parse().ok()?, per_thread: next()? == "1" })
}

fn address(symbol: &str) -> Option<*const ()> {
    let lists = [
        arrays::FUNCTIONS,
        call::FUNCTIONS,
        captures::FUNCTIONS,
        clock::FUNCTIONS,
        contexts::FUNCTIONS,
        copies::LINEAR,
        copies::SHAPED,
        device::FUNCTIONS,
        events::FUNCTIONS,
        graphs::FUNCTIONS,
        kernels::FUNCTIONS,
        FUNCTIONS,
        memory::FUNCTIONS,
        physical::FUNCTIONS,
        pools::FUNCTIONS,
        sets::FUNCTIONS,
        shared::FUNCTIONS,
        streams::FUNCTIONS,
        tap::FUNCTIONS,
    ];
    lists.into_iter().flatten().find(|(of, _)| *of == symbol).map(|(_, at)| *at)
}

/// The newest ABI that is neither newer than asked nor than the driver. Where the thread's own default stream is asked for, of the functions for that if
/// there is one.
fn find(name: &[u8], asked: i32, flags: u64) -> Option<*const ()> {
    const PER_THREAD_DEFAULT_STREAM: u64 = 2;
    let newest = |per_thread: bool| {
        let of_name = ABI.iter().flat_map(|text| text.lines()).filter_map(line);
        let fits = of_name.filter(|l| l.name.as_bytes() == name && l.per_thread == per_thread && l.version <= asked.min(version()));
        // Of two of a version, the first.
        fits.reduce(|best, l| if l.version > best.version { l } else { best })
    };
    let own = (flags & PER_THREAD_DEFAULT_STREAM != 0).then(|| newest(true)).flatten();
    own.or_else(|| newest(false)).and_then(|l| address(l.symbol))
}

driver_functions! { call;
    cuGetProcAddress_v2(name: In<libc::c_char>, f: Out<u64>, asked: i32, flags: u64, status: Out<i32>) => call.make(|_| {
        let at = find(name.text(), asked, flags);
        f.set(at.map_or(0, |at| at as u64));
        status.set(at.is_none() as i32);
        at.map(|_| ()).ok_or(NOT_FOUND)
    });
    cuGetProcAddress(name: In<libc::c_char>, f: Out<u64>, asked: i32, flags: u64) => {
        let mut status = 0;
        answered(cuGetProcAddress_v2(name, f, asked, flags, Out::to(&mut status)))
    };
}
