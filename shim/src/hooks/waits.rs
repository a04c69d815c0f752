//! Calls that wait for a child: they tell of one that a signal ended. Nobody else sees that of a process that is not the target of `memshim run`.
//!
//! Not `wait`: libraries have functions of that name that are something else.
//!
//! In assembly, with what an unwinder needs: a thread may be cancelled in them, and what unwinds it then must find its way through.

use super::assembly::save;
use super::heap::ready;
use crate::lane::{current, push};
use crate::real::REAL;
use crate::sys;
use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use memshim_format::record::{op, start};

macro_rules! waits {
    ($($name:ident, $slot:ident, $told:literal, $look:path;)*) => {
        $(
            static mut $slot: *const c_void = core::ptr::null();

            /// # Safety
            /// As the C function.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                naked_asm!(
                    ".cfi_startproc",
                    save!(),
                    "push rcx", ".cfi_adjust_cfa_offset 8",
                    "push rbx", ".cfi_adjust_cfa_offset 8",
                    ".cfi_rel_offset rbx, 0",
                    "call {begins}",
                    "mov rcx, [rsp + 8]",
                    "mov rdx, [rsp + 16]",
                    "mov rsi, [rsp + 24]",
                    "mov rdi, [rsp + 32]",
                    concat!("mov rbx, ", $told),
                    "call qword ptr [rip + {slot}]",
                    "mov [rsp + 8], rax",
                    "mov rdi, rax",
                    "mov rsi, rbx",
                    "call {look}",
                    "mov rax, [rsp + 8]",
                    "pop rbx", ".cfi_adjust_cfa_offset -8",
                    ".cfi_restore rbx",
                    "add rsp, 32", ".cfi_adjust_cfa_offset -32",
                    "ret",
                    ".cfi_endproc",
                    begins = sym begins,
                    slot = sym $slot,
                    look = sym $look,
                );
            }
        )*

        /// Hands the real functions to them. One thread, at the start.
        pub fn settle() {
            // SAFETY: one thread.
            unsafe { $( $slot = REAL.$name.map_or(none as *const c_void, |f| f as *const c_void); )* }
        }
    };
}
waits! {
    wait3, REAL_WAIT3, "rdi", status;
    waitpid, REAL_WAITPID, "rsi", status;
    wait4, REAL_WAIT4, "rsi", status;
    waitid, REAL_WAITID, "rdx", info;
}

unsafe extern "C" fn begins() {
    ready();
}

/// Where the C library has no such function.
unsafe extern "C" fn none() -> c_int {
    -1
}

/// A call returned `pid` and wrote `status`, where the program wanted one.
unsafe extern "C" fn status(pid: c_int, status: *const c_int) {
    if pid > 0 && !status.is_null() {
        // SAFETY: the call has written there.
        let signal = unsafe { *status } & 0x7f;
        // 0x7f: it stopped.
        if signal != 0 && signal != 0x7f {
            ended(pid, signal);
        }
    }
}

/// `waitid` returned `result` and wrote `info`.
unsafe extern "C" fn info(result: c_int, info: *const libc::siginfo_t) {
    if result == 0 && !info.is_null() {
        // SAFETY: the call has written there.
        let (code, pid, signal) = unsafe { ((*info).si_code, (*info).si_pid(), (*info).si_status()) };
        if pid > 0 && matches!(code, libc::CLD_KILLED | libc::CLD_DUMPED) {
            ended(pid, signal);
        }
    }
}

fn ended(pid: c_int, signal: c_int) {
    let hot = current();
    // SAFETY: the thread's own.
    unsafe {
        if !hot.is_null() && (*hot).mode != crate::config::COUNT {
            push(hot, [start(op::ENDED, signal as u64, pid as u64), sys::now()]);
        }
    }
}
