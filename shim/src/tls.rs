//! The thread's pointer to its [`Hot`], by initial-exec TLS: two instructions, no `__tls_get_addr` (which may allocate).
//!
//! Stable Rust's `thread_local!` in a shared library goes through `__tls_get_addr`; so the variable is laid out and read in
//! assembly. It starts as null; a raw pointer, since a signal handler may use it between any two instructions.

use crate::lane::Hot;
use core::arch::{asm, global_asm};

global_asm!(
    ".section .tbss,\"awT\",@nobits",
    ".p2align 3",
    ".hidden memshim_hot",
    ".globl memshim_hot",
    ".type memshim_hot,@object",
    ".size memshim_hot,8",
    "memshim_hot:",
    ".zero 8",
    ".text",
);

/// This thread's [`Hot`], null before its first event.
#[inline(always)]
pub fn hot() -> *mut Hot {
    let p: *mut Hot;
    // SAFETY: reads this thread's variable at its initial-exec offset.
    unsafe {
        asm!("mov {p}, qword ptr [rip + memshim_hot@GOTTPOFF]", "mov {p}, qword ptr fs:[{p}]", p = out(reg) p,
             options(nostack, readonly, preserves_flags));
    }
    p
}

/// Sets this thread's [`Hot`].
#[inline(always)]
pub fn set_hot(hot: *mut Hot) {
    // SAFETY: writes this thread's variable at its initial-exec offset.
    unsafe {
        asm!("mov {t}, qword ptr [rip + memshim_hot@GOTTPOFF]", "mov qword ptr fs:[{t}], {p}", t = out(reg) _, p = in(reg) hot,
             options(nostack, preserves_flags));
    }
}
