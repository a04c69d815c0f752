//! `malloc` and `free`, as far as they are quick calls of fast mode ([`crate::lane::quick`]): in assembly, because of a cache line of code that
//! a program did without a compiler makes three or four. Each begins on a line and takes two.
//!
//! After the real malloc nothing of ours is on the stack any more, so all that goes another way goes by a jump, and no stack has a frame of
//! this. Counters change by one instruction each, as everywhere ([`crate::lane`]): a signal handler may allocate between any two.

use super::heap::{malloc_more, release_full};
use crate::config::FAST;
use crate::lane::{Hot, Samples, quick};
use core::arch::{global_asm, naked_asm};
use core::ffi::c_void;
use core::mem::offset_of;
use memshim_format::record::func;
use memshim_format::spool::{Lane, cell};

// A section begins where the most demanding part of it has to.
global_asm!(
    ".pushsection .text.memshim_malloc,\"ax\",@progbits",
    ".p2align 6",
    ".popsection",
    ".pushsection .text.memshim_free,\"ax\",@progbits",
    ".p2align 6",
    ".popsection",
);

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[unsafe(link_section = ".text.memshim_malloc")]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "mov rax, qword ptr [rip + memshim_hot@GOTTPOFF]",
        "mov rax, qword ptr fs:[rax]",
        "test rax, rax",
        "je 9f",
        "cmp dword ptr [rax + {quick}], {fast}",
        "jne 9f",
        // Between two calls a program reads much else: what is counted in comes while the real malloc works.
        "mov rcx, qword ptr [rax + {lane}]",
        "prefetchw [rcx + {live}]",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "call qword ptr [rax + {malloc}]",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        // rax: the block, rdi: the thread's, rcx: bytes asked for.
        "test rax, rax",
        "je 8f",
        "mov rdx, qword ptr [rax - 8]",
        "test dl, {mapped}",
        "jne 8f",
        "mov rsi, qword ptr [rdi + {left}]",
        "sub rsi, rcx",
        "js 8f",
        "cmp rcx, qword ptr [rdi + {big}]",
        "jae 8f",
        "mov qword ptr [rdi + {left}], rsi",
        "and rdx, -8",
        "mov rdi, qword ptr [rdi + {lane}]",
        "inc qword ptr [rdi + {calls}]",
        "add qword ptr [rdi + {calls} + 8], rcx",
        "inc qword ptr [rdi + {blocks}]",
        "lea rsi, [rdx - 8]",
        "xadd qword ptr [rdi + {live}], rsi",
        "lea rdx, [rdx + rsi - 8]",
        "cmp rdx, qword ptr [rdi + {hi}]",
        "jg 7f",
        "ret",
        "7:",
        "mov rcx, qword ptr [rdi + {blocks}]",
        "mov qword ptr [rdi + {hi_blocks}], rcx",
        "mov qword ptr [rdi + {hi}], rdx",
        "ret",
        "8:",
        "mov rdx, rax",
        "mov esi, {func}",
        "jmp {rare}",
        "9:",
        "mov rsi, rax",
        "jmp {more}",
        ".cfi_endproc",
        quick = const offset_of!(Hot, quick),
        fast = const FAST,
        malloc = const offset_of!(Hot, malloc),
        mapped = const quick::MAPPED,
        left = const offset_of!(Hot, left),
        big = const offset_of!(Hot, big),
        lane = const offset_of!(Hot, lane),
        calls = const offset_of!(Lane, counts) + 16 * cell(func::MALLOC),
        live = const offset_of!(Lane, live),
        blocks = const offset_of!(Lane, blocks),
        hi = const offset_of!(Lane, hi),
        hi_blocks = const offset_of!(Lane, hi_blocks),
        func = const func::MALLOC,
        rare = sym quick::rare,
        more = sym malloc_more,
    )
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
#[unsafe(link_section = ".text.memshim_free")]
pub unsafe extern "C" fn free(p: *mut c_void) {
    naked_asm!(
        ".cfi_startproc",
        "test rdi, rdi",
        "je 9f",
        "mov rax, qword ptr [rip + memshim_hot@GOTTPOFF]",
        "mov rax, qword ptr fs:[rax]",
        "test rax, rax",
        "je 8f",
        "cmp dword ptr [rax + {quick}], {fast}",
        "jne 8f",
        "mov rcx, qword ptr [rdi - 8]",
        "test cl, {mapped}",
        "jne 8f",
        "and rcx, -8",
        "sub rcx, 8",
        "cmp rcx, qword ptr [rax + {big}]",
        "jae 8f",
        // Whether it may be a recorded block: its mark.
        "mov edx, edi",
        "shr edx, 4",
        "imul edx, edx, {factor}",
        "shr edx, 16",
        "mov rsi, qword ptr [rax + {samples}]",
        "cmp byte ptr [rsi + rdx], 0",
        "jne 8f",
        "mov rdx, qword ptr [rax + {free}]",
        "mov rax, qword ptr [rax + {lane}]",
        "inc qword ptr [rax + {calls}]",
        "sub qword ptr [rax + {live}], rcx",
        "dec qword ptr [rax + {blocks}]",
        "jmp rdx",
        "8:",
        "mov esi, {func}",
        "mov rdx, rax",
        "jmp {more}",
        "9:",
        "ret",
        ".cfi_endproc",
        quick = const offset_of!(Hot, quick),
        fast = const FAST,
        mapped = const quick::MAPPED,
        big = const offset_of!(Hot, big),
        factor = const Samples::MARK_FACTOR as i32,
        samples = const offset_of!(Hot, samples),
        free = const offset_of!(Hot, free),
        lane = const offset_of!(Hot, lane),
        calls = const offset_of!(Lane, counts) + 16 * cell(func::FREE),
        live = const offset_of!(Lane, live),
        blocks = const offset_of!(Lane, blocks),
        func = const func::FREE,
        more = sym release_full,
    )
}
