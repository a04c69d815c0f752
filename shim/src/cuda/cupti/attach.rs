//! Subscribing to CUPTI, switching on what it is to tell, and letting it go again.

use super::super::libcuda::own as driver;
use super::library::{self, Refused, own};
use super::{buffers, calls, clock, expect, program, records};
use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering::*};

static SUBSCRIBER: AtomicUsize = AtomicUsize::new(0);

/// Kinds of records: kernels, copies, copies between devices, memsets. Nodes of graphs come with them.
const KINDS: [u32; 4] = [records::KERNEL, records::COPY, records::PEER, records::MEMSET];

fn refused(call: &'static str, code: i32) -> Result<(), Refused> {
    if code == 0 { Ok(()) } else { Err(Refused::Call(call, code)) }
}

fn there<T>(function: Option<T>, name: &'static str) -> Result<T, Refused> {
    function.ok_or(Refused::Symbol(name))
}

/// Not where the program has called CUPTI by itself.
fn program_was_not_first() -> Result<(), Refused> {
    if !program::has_called() { Ok(()) } else { Err(Refused::Program) }
}

/// Subscribes and switches everything on. Gives the version.
pub fn attach() -> Result<u32, Refused> {
    program_was_not_first()?;
    let mut driver_version = 0i32;
    if let Some(f) = driver().driver_version {
        // SAFETY: writes one number.
        unsafe { f(&raw mut driver_version) };
    }
    let version = library::open(driver_version)?;
    let f = own();
    let subscribe = there(f.subscribe, "cuptiSubscribe")?;
    let register = there(f.register, "cuptiActivityRegisterCallbacks")?;
    let enable = there(f.enable, "cuptiActivityEnable")?;
    let enable_callback = there(f.enable_callback, "cuptiEnableCallback")?;
    there(f.disable, "cuptiActivityDisable")?;
    there(f.flush_all, "cuptiActivityFlushAll")?;
    there(f.next_record, "cuptiActivityGetNextRecord")?;
    let mut subscriber = 0usize;
    // SAFETY: CUPTI's functions with callbacks that live as long as this library; what is enabled is disabled again where a later step fails.
    unsafe {
        refused("cuptiSubscribe", subscribe(&raw mut subscriber, expect::called as *const c_void, core::ptr::null_mut()))?;
        SUBSCRIBER.store(subscriber, Relaxed);
        let switched = (|| {
            clock::settle()?;
            if !buffers::map() || !expect::map() {
                return Err(Refused::Memory);
            }
            refused("cuptiActivityRegisterCallbacks", register(buffers::asked as *const c_void, buffers::completed as *const c_void))?;
            // Calls that this version of CUPTI does not know are refused: they are not of its driver either.
            let known = calls::IDS.iter().filter(|(_, id)| enable_callback(1, subscriber, expect::DRIVER_CALLS, *id as u32) == 0).count();
            if known == 0 {
                return Err(Refused::Call("cuptiEnableCallback", enable_callback(1, subscriber, expect::DRIVER_CALLS, calls::LAUNCH)));
            }
            for kind in KINDS {
                refused("cuptiActivityEnable", enable(kind))?;
            }
            program_was_not_first()
        })();
        if let Err(why) = switched {
            let_go();
            return Err(why);
        }
    }
    Ok(version)
}

/// Switches everything off and unsubscribes.
pub fn let_go() {
    // SAFETY: CUPTI's functions, on our thread.
    unsafe {
        if let Some(f) = own().disable {
            for kind in KINDS {
                f(kind);
            }
        }
        if let Some(f) = own().unsubscribe {
            f(SUBSCRIBER.load(Relaxed));
        }
    }
}
