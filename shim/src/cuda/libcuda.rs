//! The driver's library in this process: where it is, and what the functions behind the hooks are.
//!
//! It is never loaded by us. The first hooked call that finds no real function looks for it among the loaded objects ([`loaded`]).

use super::call::Entry;
use crate::{elf, loaded, sys};
use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering::*};

/// 0 not looked for since the last `dlsym` of a driver function, 1 found, 2 not there when last looked for.
static STATE: AtomicU32 = AtomicU32::new(0);
static BASE: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

macro_rules! own_functions {
    ($($field:ident: $($symbol:literal)|+, ($($arg:ty),*);)*) => {
        /// Functions of the library that we call ourselves; `None` where it has none of that name.
        pub struct Own { $(pub $field: Option<unsafe extern "C" fn($($arg),*) -> i32>,)* }

        /// Settled once, when the library is found.
        pub static mut OWN: Own = Own { $($field: None,)* };

        /// # Safety
        /// A loaded object of the loader's; one thread.
        unsafe fn settle(object: *const $crate::elf::Object) {
            $(
                for name in [$($symbol),+] {
                    // SAFETY: the caller's promise; the signature is the library's.
                    unsafe {
                        if let (None, Some(p)) = (OWN.$field, $crate::elf::find_in(object, name.as_bytes())) {
                            OWN.$field = Some(core::mem::transmute::<*const core::ffi::c_void, unsafe extern "C" fn($($arg),*) -> i32>(p));
                        }
                    }
                }
            )*
        }
    };
}
pub(super) use own_functions;

own_functions! {
    context: "cuCtxGetCurrent", (*mut usize);
    set_context: "cuCtxSetCurrent", (usize);
    device_of_context: "cuCtxGetDevice", (*mut i32);
    primary_state: "cuDevicePrimaryCtxGetState", (i32, *mut u32, *mut i32);
    device_name: "cuDeviceGetName", (*mut c_char, i32, i32);
    device_bus: "cuDeviceGetPCIBusId", (*mut c_char, i32, i32);
    device_uuid: "cuDeviceGetUuid_v2" | "cuDeviceGetUuid", (*mut [u8; 16], i32);
    address_range: "cuMemGetAddressRange_v2", (*mut u64, *mut usize, u64);
    pointer_attribute: "cuPointerGetAttribute", (*mut c_void, i32, u64);
    driver_version: "cuDriverGetVersion", (*mut i32);
    memory_info: "cuMemGetInfo_v2", (*mut usize, *mut usize);
    device_pool: "cuDeviceGetMemPool", (*mut usize, i32);
    handle_properties: "cuMemGetAllocationPropertiesFromHandle", (*mut c_void, u64);
    pool_attribute: "cuMemPoolGetAttribute", (usize, i32, *mut u64);
    capture_info: "cuStreamGetCaptureInfo", (usize, *mut i32, *mut u64);
    is_capturing: "cuStreamIsCapturing", (usize, *mut i32);
    node_type: "cuGraphNodeGetType", (usize, *mut i32);
    stream_query: "cuStreamQuery", (usize);
    stream_context: "cuStreamGetCtx", (usize, *mut usize);
    stream_create: "cuStreamCreate", (*mut usize, u32);
    event_create: "cuEventCreate", (*mut usize, u32);
    event_destroy: "cuEventDestroy_v2" | "cuEventDestroy", (usize);
    event_record: "cuEventRecord", (usize, usize);
    event_query: "cuEventQuery", (usize);
    event_elapsed: "cuEventElapsedTime_v2" | "cuEventElapsedTime", (*mut f32, usize, usize);
    exchange_capture_mode: "cuThreadExchangeStreamCaptureMode", (*mut i32);
}

/// The driver's functions that we call ourselves.
pub fn own() -> &'static Own {
    // SAFETY: written once, before the first hooked call goes on.
    unsafe { &*(&raw const OWN) }
}

/// Whether the library is loaded. Looks for it where that is not known.
pub fn is_loaded() -> bool {
    match STATE.load(Acquire) {
        1 => true,
        _ => find(),
    }
}

#[cold]
fn find() -> bool {
    let Some(seen) = loaded::find(b"libcuda.so") else { return false };
    let object = seen.object();
    static SETTLING: AtomicU32 = AtomicU32::new(0);
    if SETTLING.swap(1, AcqRel) == 0 {
        // SAFETY: the object is loaded; one thread settles.
        unsafe { settle(&raw const object) };
        sys::keep_errno(|| seen.keep());
        BASE.store(seen.base, Relaxed);
        END.store(seen.end, Relaxed);
        for e in &super::table::ENTRIES {
            // SAFETY: as above.
            if let Some(p) = unsafe { elf::find_in(&raw const object, e.symbol.as_bytes()) } {
                e.real.store(p as usize, Relaxed);
            }
        }
        STATE.store(1, Release);
    } else {
        // Another thread is at it; it takes microseconds.
        while STATE.load(Acquire) != 1 {
            crate::sys::yield_now();
        }
    }
    true
}

/// Whether an address is in the driver's library.
pub fn holds(address: usize) -> bool {
    STATE.load(Acquire) == 1 && (BASE.load(Relaxed)..END.load(Relaxed)).contains(&address)
}

/// The function behind a hook.
#[inline(always)]
pub fn real(entry: &Entry) -> usize {
    let p = entry.real.load(Relaxed);
    if p != 0 { p } else { late(entry) }
}

#[cold]
#[inline(never)]
fn late(entry: &Entry) -> usize {
    is_loaded();
    entry.real.load(Relaxed)
}

/// What the exported hook stands in place of: see [`Entry::front`].
#[inline(always)]
pub fn front(entry: &Entry) -> usize {
    let p = entry.front.load(Relaxed);
    if p != 0 { p } else { late_front(entry) }
}

#[cold]
#[inline(never)]
fn late_front(entry: &Entry) -> usize {
    let front = next_at_start(entry.symbol.as_bytes()).map_or_else(|| real(entry), |at| at as usize);
    entry.front.store(front, Relaxed);
    front
}

/// What stands behind us under a name, of what the program began with.
pub fn next_at_start(symbol: &[u8]) -> Option<*const c_void> {
    elf::find_next_until(LAST_AT_START.load(Relaxed), symbol).map(|f| f.at)
}

/// Whether an object was there when the program began: it sees what everybody sees, and no more.
pub fn was_there_at_start(object: *const elf::Object) -> bool {
    let last = LAST_AT_START.load(Relaxed).cast_const();
    object == last || elf::objects().take_while(|o| *o != last).any(|o| o == object)
}

/// The last of the objects with which the program began: what comes later is not in front of anybody's calls but its own.
static LAST_AT_START: AtomicPtr<elf::Object> = AtomicPtr::new(core::ptr::null_mut());

/// One thread, at the start.
pub fn settle_start() {
    LAST_AT_START.store(elf::last().cast_mut(), Relaxed);
}

/// Whether a handle that `dlsym` takes is the driver's library.
///
/// # Safety
/// `dlsym` took it.
pub unsafe fn is_handle(handle: *mut c_void) -> bool {
    // SAFETY: the loader's handles are its objects, which begin with where they lie.
    STATE.load(Acquire) == 1 && unsafe { *handle.cast::<usize>() } == BASE.load(Relaxed)
}
