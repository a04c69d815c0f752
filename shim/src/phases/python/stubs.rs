//! Where the loop of 3.11 jumps for opcodes that are ours ([`super::opcodes`]): the border between its registers and our functions.

use super::{inlined, opcodes};
use core::arch::naked_asm;
use core::sync::atomic::{AtomicU64, Ordering::*};

/// Where the loop's own code goes on, for who unwinds through a stub: an address inside one of its instructions.
static BACK: AtomicU64 = AtomicU64::new(0);

/// The interpreter's table is known.
pub fn settle() {
    BACK.store(opcodes::original(opcodes::RESUME) + 1, Relaxed);
}

/// The stub that an opcode leads to.
pub fn of(opcode: u8) -> Option<u64> {
    let stub: unsafe extern "C" fn() = match opcode {
        opcodes::RESUME => at_resume,
        opcodes::DO_TRACING => at_trace,
        opcodes::LEFT => at_left,
        _ if opcodes::CALLED.iter().any(|(ours, _)| *ours == opcode) => at_call,
        _ => return None,
    };
    Some(stub as usize as u64)
}

/// The loop jumps here in the midst of its function, with registers as its compiler chose. All are kept: it looks like a call from there, and
/// goes on at the instruction whose address `told` gives.
macro_rules! stub {
    ($name:ident, $told:path) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                ".cfi_def_cfa_offset 0",
                "endbr64",
                "push qword ptr [rip + {back}]",
                ".cfi_def_cfa_offset 8",
                "pushfq",
                ".cfi_def_cfa_offset 16",
                "push rbp",
                ".cfi_def_cfa_offset 24",
                ".cfi_offset rbp, -24",
                "mov rbp, rsp",
                ".cfi_def_cfa_register rbp",
                "push rax", "push rcx", "push rdx", "push rsi", "push rdi", "push r8", "push r9", "push r10", "push r11",
                "sub rsp, 272",
                "and rsp, -16",
                ".irp k, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
                "movaps [rsp + 16 * \\k], xmm\\k",
                ".endr",
                "call {told}",
                "mov qword ptr [rbp + 16], rax",
                ".irp k, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
                "movaps xmm\\k, [rsp + 16 * \\k]",
                ".endr",
                "lea rsp, [rbp - 72]",
                "pop r11", "pop r10", "pop r9", "pop r8", "pop rdi", "pop rsi", "pop rdx", "pop rcx", "pop rax",
                "pop rbp",
                ".cfi_def_cfa rsp, 16",
                ".cfi_restore rbp",
                "popfq",
                ".cfi_def_cfa_offset 8",
                "ret",
                ".cfi_endproc",
                back = sym BACK,
                told = sym $told,
            );
        }
    };
}
stub!(at_call, inlined::called);
stub!(at_resume, inlined::resumed);
stub!(at_left, inlined::left);
stub!(at_trace, inlined::traced);
