//! A call of the driver: alone, numbered, failing where it is told to.

use crate::Answer;
use crate::arrays::Array;
use crate::captures::Capture;
use crate::code::{INVALID_CONTEXT, INVALID_HANDLE};
use crate::contexts::{self, Context, Green};
use crate::events::Event;
use crate::graphs::Graph;
use crate::list::List;
use crate::memory::Block;
use crate::physical::{External, Physical};
use crate::pools::Pool;
use crate::streams::Stream;
use crate::tap::Tap;
use crate::{DEVICES, arguments::In};
use std::ffi::CStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// All that the driver knows.
pub struct Driver {
    pub now: i64,
    pub initialised: bool,
    failure: Option<Failure>,
    /// Who watches.
    pub tap: Option<&'static Tap>,
    /// The number of the call.
    pub correlation: u32,
    /// Questions after events and streams take so long, alone.
    pub slow_us: u32,
    /// Questions after events so far.
    pub questions: u64,
    /// Where the machine's clock was when the driver's began to follow it.
    pub followed_from: Option<i64>,
    /// Pages that are moved are no copies to whoever watches.
    pub by_pages: bool,
    pub contexts: List<Context>,
    pub greens: List<Green>,
    pub entered_dead: i32,
    pub streams: List<Stream>,
    pub events: List<Event>,
    pub arrays: List<Array>,
    pub pools: List<Pool>,
    pub physical: List<Physical>,
    pub external: List<External>,
    pub graphs: List<Graph>,
    pub execs: List<crate::graphs::Exec>,
    pub captures: Vec<Capture>,
    pub capture_count: u64,
    pub blocks: Vec<Block>,
    /// Bytes in use, by device.
    pub used: [u64; DEVICES],
    /// The primary contexts, 0 where there is none, and how often each is held.
    pub primary: [u64; DEVICES],
    pub primary_uses: [i32; DEVICES],
    pub default_pools: [u64; DEVICES],
    pub stream_numbers: i32,
    pub node_numbers: u64,
}

/// The injected failure.
struct Failure {
    name: [u8; 64],
    code: i32,
    /// So many calls go well before.
    skip: i32,
}

static DRIVER: Mutex<Driver> = Mutex::new(Driver {
    now: 0,
    initialised: false,
    failure: None,
    tap: None,
    correlation: 0,
    slow_us: 0,
    questions: 0,
    followed_from: None,
    by_pages: false,
    contexts: List::new(),
    greens: List::new(),
    entered_dead: 0,
    streams: List::new(),
    events: List::new(),
    arrays: List::new(),
    pools: List::new(),
    physical: List::new(),
    external: List::new(),
    graphs: List::new(),
    execs: List::new(),
    captures: Vec::new(),
    capture_count: 0,
    blocks: Vec::new(),
    used: [0; DEVICES],
    primary: [0; DEVICES],
    primary_uses: [0; DEVICES],
    default_pools: [0; DEVICES],
    stream_numbers: 12,
    node_numbers: 100,
});

pub fn driver() -> MutexGuard<'static, Driver> {
    DRIVER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An exported function that is called.
pub struct Call(pub &'static CStr);

impl Call {
    /// The name without what tells of its ABI.
    fn name(&self) -> &'static [u8] {
        let mut name = self.0.to_bytes();
        for suffix in ["_ptsz", "_ptds", "_v2", "_v3", "_v4"] {
            name = name.strip_suffix(suffix.as_bytes()).unwrap_or(name);
        }
        name
    }

    /// A call that whoever watches is not told of.
    pub fn make(&self, work: impl FnOnce(&mut Driver) -> Answer) -> Answer {
        self.enter(None, work)
    }

    /// One that starts work.
    pub fn start(&self, work: impl FnOnce(&mut Driver) -> Answer) -> Answer {
        self.enter(Some(self.0), work)
    }

    fn enter(&self, symbol: Option<&CStr>, work: impl FnOnce(&mut Driver) -> Answer) -> Answer {
        let mut driver = driver();
        driver.correlation += 1;
        if let (Some(tap), Some(symbol)) = (driver.tap, symbol) {
            tap.call(symbol, driver.correlation);
        }
        // A driver may change it; programs that look at it see what the driver left.
        // SAFETY: the thread's own variable.
        unsafe { *libc::__errno_location() = 77 };
        driver.fails(self)?;
        work(&mut driver)
    }
}

impl Driver {
    fn fails(&mut self, call: &Call) -> Answer {
        let is_it = |f: &&mut Failure| f.name.split(|b| *b == 0).next() == Some(call.name());
        let Some(failure) = self.failure.as_mut().filter(is_it) else { return Ok(()) };
        failure.skip -= 1;
        if failure.skip >= 0 {
            return Ok(());
        }
        let code = failure.code;
        self.failure = None;
        Err(code)
    }

    /// The current context and its device.
    pub fn current(&self) -> Result<(u64, usize), i32> {
        let context = contexts::current();
        Ok((context, self.contexts.get(context).ok_or(INVALID_CONTEXT)?.device))
    }

    pub fn graph(&mut self, graph: u64) -> Result<&mut Graph, i32> {
        self.graphs.get_mut(graph).ok_or(INVALID_HANDLE)
    }
}

/// Exported functions: `name(arguments) => what it does;`, and of all a list by which `cuGetProcAddress` finds them. `$call` is what the functions' code calls
/// the call.
macro_rules! driver_functions {
    ($call:ident; $($name:ident($($arg:ident: $type:ty),* $(,)?) => $body:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            #[inline(never)]
            #[allow(non_snake_case, unused_variables)]
            pub extern "C" fn $name($($arg: $type),*) -> i32 {
                const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a name"),
                };
                let $call = $crate::call::Call(NAME);
                let answer: $crate::Answer = $body;
                answer.err().unwrap_or(0)
            }
        )*
        pub const FUNCTIONS: &[(&str, *const ())] = &[$((stringify!($name), $name as *const ())),*];
    };
}
pub(crate) use driver_functions;

/// What a function answered that was called by its exported name.
pub fn answered(code: i32) -> Answer {
    if code == 0 { Ok(()) } else { Err(code) }
}

driver_functions! { call;
    // Makes the n-th next call of this name (without suffix) fail with the code; none with 0.
    fake_fail(name: In<libc::c_char>, code: i32, skip: i32) => {
        let mut failure = Failure { name: [0; 64], code, skip };
        failure.name.iter_mut().zip(name.text()).for_each(|(to, from)| *to = *from);
        driver().failure = (code != 0).then_some(failure);
        Ok(())
    };
    fake_slow(us: u32) => {
        driver().slow_us = us;
        Ok(())
    };
}
