//! A CUPTI of our own on the driver of our own: records of its operations, complete when its clock has passed them. Its moods come from the environment:
//!
//! - `FAKE_CUPTI_VERSION`: what cuptiGetVersion says (130500)
//! - `FAKE_CUPTI_HELD`: somebody else has subscribed
//! - `FAKE_CUPTI_REFUSES`: cuptiActivityEnable answers this code
//! - `FAKE_CUPTI_DROPS`: so many records find no room
//! - `FAKE_CUPTI_STEPS`: after the first flush somebody sets the clock so many seconds forward
//! - `FAKE_CUPTI_HANGS`: a flush never returns
//! - `FAKE_CUPTI_LATE`: it is there when the driver's clock has moved, not before

mod records;

use crate::arguments::{In, Out, number, variable};
use crate::clock::clock_of;
use crate::tap::{Tap, Work};
use records::length;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

const SUCCESS: i32 = 0;
const INVALID_PARAMETER: i32 = 1;
const NO_MORE_RECORDS: i32 = 12;
const NOT_INITIALIZED: i32 = 15;
const INVALID_KIND: i32 = 21;
const MULTIPLE_SUBSCRIBERS: i32 = 39;

type Request = extern "C" fn(Out<*mut u8>, Out<usize>, Out<usize>);
type Complete = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);
type Callback = extern "C" fn(*mut c_void, i32, u32, *const CallbackData);

/// What a callback is told.
#[repr(C)]
pub struct CallbackData {
    site: i32,
    function: *const c_char,
    params: usize,
    result: usize,
    symbol: *const c_char,
    context: usize,
    context_uid: u32,
    data: usize,
    correlation: u32,
}

const DRIVER_API: i32 = 1;

/// By what number CUPTI knows a call of the driver.
static IDS: LazyLock<BTreeMap<&[u8], u32>> = LazyLock::new(|| {
    let lines = include_str!("../../programs/cuda/cupti_ids.inc").lines();
    let pairs = lines.filter_map(|l| l.strip_prefix("X(")?.strip_suffix(')')?.split_once(", "));
    pairs.filter_map(|(symbol, id)| Some((symbol.as_bytes(), id.parse().ok()?))).collect()
});

static CALLBACK: Mutex<Option<Callback>> = Mutex::new(None);
static CALLBACKS: [AtomicBool; 1024] = [const { AtomicBool::new(false) }; 1024];
static KINDS: [AtomicBool; 64] = [const { AtomicBool::new(false) }; 64];
static FLUSHES: AtomicUsize = AtomicUsize::new(0);
static ENDING: AtomicBool = AtomicBool::new(false);
/// So far somebody has set the clock forward.
static STEP: AtomicI64 = AtomicI64::new(0);
static WORKER: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

/// What it knows.
struct Cupti {
    request: Option<Request>,
    complete: Option<Complete>,
    /// Work that has no record.
    queue: Vec<Work>,
    dropped: usize,
    to_drop: u64,
    /// The subscriber's buffer, null while there is none; its size, and how much is written.
    buffer: *mut u8,
    size: usize,
    used: usize,
    /// Where the driver's clock begins.
    base: i64,
    driver: Option<Functions>,
    names: Vec<(i64, CString)>,
}
// SAFETY: the buffer is the subscriber's and goes with the lock.
unsafe impl Send for Cupti {}

/// The driver's.
#[derive(Clone, Copy)]
struct Functions {
    now: extern "C" fn() -> i64,
    tap: extern "C" fn(Option<&'static Tap>) -> i32,
    follow: extern "C" fn(i32) -> i64,
}

static CUPTI: Mutex<Cupti> = Mutex::new(Cupti {
    request: None,
    complete: None,
    queue: Vec::new(),
    dropped: 0,
    to_drop: 0,
    buffer: std::ptr::null_mut(),
    size: 0,
    used: 0,
    base: 0,
    driver: None,
    names: Vec::new(),
});

fn locked<T>(of: &'static Mutex<T>) -> MutexGuard<'static, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn version() -> u32 {
    number(c"FAKE_CUPTI_VERSION").unwrap_or(130_500) as u32
}

fn wall() -> i64 {
    clock_of(libc::CLOCK_REALTIME) + STEP.load(Relaxed)
}

fn find<T: Copy>(handle: *mut c_void, name: &CStr) -> Option<T> {
    // SAFETY: a library that is open; `T` is the function's type.
    unsafe {
        let at = libc::dlsym(handle, name.as_ptr());
        (!at.is_null() && size_of::<T>() == size_of::<*mut c_void>()).then(|| std::mem::transmute_copy(&at))
    }
}

fn attach() -> bool {
    // SAFETY: a question of the loader.
    let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return false;
    }
    let functions =
        || Some(Functions { now: find(handle, c"fake_now")?, tap: find(handle, c"fake_tap")?, follow: find(handle, c"fake_follow")? });
    let Some(driver) = functions() else { return false };
    while variable(c"FAKE_CUPTI_LATE").is_some() && (driver.now)() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let base = wall() - (driver.follow)(0);
    let mut cupti = locked(&CUPTI);
    (cupti.driver, cupti.base) = (Some(driver), base);
    true
}

extern "C" fn called(symbol: *const c_char, correlation: u32) {
    // SAFETY: the driver's text.
    let name = unsafe { CStr::from_ptr(symbol) }.to_bytes();
    let (Some(callback), Some(id)) = (*locked(&CALLBACK), IDS.get(name)) else { return };
    if !CALLBACKS[*id as usize].load(Relaxed) {
        return;
    }
    for site in 0..2 {
        let data = CallbackData { site, function: symbol, params: 0, result: 0, symbol, context: 0, context_uid: 1, data: 0, correlation };
        callback(std::ptr::null_mut(), DRIVER_API, *id, &raw const data);
    }
}

extern "C" fn worked(work: *const Work) {
    // SAFETY: the driver's variable.
    locked(&CUPTI).queue.push(unsafe { *work });
}

static TAP: Tap = Tap { call: called, work: worked };

/// Exported functions, each with a code for an answer.
macro_rules! cupti_functions {
    ($($name:ident($($arg:ident: $type:ty),*) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, unused_variables)]
            pub extern "C" fn $name($($arg: $type),*) -> i32 $body
        )*
    };
}

cupti_functions! {
    cuptiGetVersion(v: Out<u32>) {
        v.set(version());
        SUCCESS
    }
    cuptiGetTimestamp(t: Out<u64>) {
        t.set(wall() as u64);
        SUCCESS
    }
    cuptiSubscribe(subscriber: Out<usize>, f: Callback, data: usize) {
        if locked(&CALLBACK).is_some() || variable(c"FAKE_CUPTI_HELD").is_some() {
            return MULTIPLE_SUBSCRIBERS;
        }
        if !attach() {
            return NOT_INITIALIZED;
        }
        *locked(&CALLBACK) = Some(f);
        subscriber.set((&raw const CALLBACK).addr());
        SUCCESS
    }
    cuptiUnsubscribe(subscriber: usize) {
        *locked(&CALLBACK) = None;
        CALLBACKS.iter().for_each(|on| on.store(false, Relaxed));
        SUCCESS
    }
    cuptiEnableCallback(on: u32, subscriber: usize, domain: i32, id: u32) {
        let Some(callback) = CALLBACKS.get(id as usize).filter(|_| domain == DRIVER_API) else { return INVALID_PARAMETER };
        callback.store(on != 0, Relaxed);
        SUCCESS
    }
    cuptiActivityRegisterCallbacks(request: Request, complete: Complete) {
        let mut cupti = locked(&CUPTI);
        (cupti.request, cupti.complete) = (Some(request), Some(complete));
        SUCCESS
    }
    cuptiActivityEnable(kind: u32) {
        if let Some(code) = number(c"FAKE_CUPTI_REFUSES").filter(|code| *code != 0) {
            return code as i32;
        }
        let Some(on) = KINDS.get(kind as usize).filter(|_| length(kind) != 0) else { return INVALID_KIND };
        locked(&WORKER).get_or_insert_with(|| std::thread::spawn(|| while !ENDING.load(Relaxed) {
            std::thread::sleep(Duration::from_millis(10));
        }));
        on.store(true, Relaxed);
        let mut cupti = locked(&CUPTI);
        cupti.to_drop = number(c"FAKE_CUPTI_DROPS").unwrap_or(0);
        let driver = cupti.driver;
        drop(cupti);
        driver.map_or(NOT_INITIALIZED, |driver| (driver.tap)(Some(&TAP)))
    }
    cuptiActivityDisable(kind: u32) {
        KINDS.get(kind as usize).inspect(|on| on.store(false, Relaxed));
        SUCCESS
    }
    cuptiActivityFlushAll(forced: u32) {
        if variable(c"FAKE_CUPTI_HANGS").is_some() && FLUSHES.load(Relaxed) > 0 {
            // SAFETY: until a signal.
            unsafe { libc::pause() };
        }
        let driver = locked(&CUPTI).driver;
        // The driver tells of its work from inside its calls: it is not asked from inside ours.
        let now = driver.map_or(0, |driver| (driver.now)());
        locked(&CUPTI).flush(now, forced != 0);
        FLUSHES.fetch_add(1, Relaxed);
        STEP.store(number(c"FAKE_CUPTI_STEPS").unwrap_or(0) as i64 * 1_000_000_000, Relaxed);
        SUCCESS
    }
    cuptiActivityGetNextRecord(from: In<u8>, valid: usize, record: Out<In<u32>>) {
        let last = record.get();
        let next = if last.is_null() { from.inside(0) } else { last.inside(length(last.get())) };
        if next.is_at_or_beyond(from.inside::<u8>(valid)) {
            return NO_MORE_RECORDS;
        }
        record.set(next);
        if length(next.get()) != 0 { SUCCESS } else { INVALID_KIND }
    }
    cuptiActivityGetNumDroppedRecords(context: usize, stream: u32, n: Out<usize>) {
        n.set(std::mem::take(&mut locked(&CUPTI).dropped));
        SUCCESS
    }
    cuptiFinalize() {
        ENDING.store(true, Relaxed);
        let worker = locked(&WORKER).take();
        worker.map(JoinHandle::join);
        SUCCESS
    }
    // For the programs: somebody has switched it on and asked for records.
    fake_cupti_flushes() {
        FLUSHES.load(Relaxed) as i32
    }
}
