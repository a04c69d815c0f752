//! What stands between a caller and a function that is a phase: a thunk for each such function, and one body for all.
//!
//! A thunk loads its number and jumps to the body. That makes a frame of its own, as any function does: by rbp and with unwind rules, so
//! that debuggers, exceptions and cancellation pass through it. It tells of the begin, calls the function with a copy of the arguments on
//! the stack, and tells of the end. All that a call can hand over is kept: every integer register (also those that only some conventions
//! use), and the vector registers in full, by `xsave`, since what tells of edges is free to use them. x87 and MMX registers are
//! not used by it.
//!
//! Where nothing is to be told the body is a jump: the function finds the stack as its caller left it.
//!
//! An exception or a cancellation that leaves the function comes by at [`personality`], which tells of the end and lets it go on.

use super::edge::{begins, ends, unwinds};
use core::arch::{asm, global_asm, naked_asm};
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Functions that can be phases.
pub const MOST: usize = 4096;
const SIZE: usize = 16;

global_asm!(
    ".section .text.memshim_thunks,\"ax\",@progbits",
    ".p2align 4",
    ".hidden memshim_thunks",
    ".globl memshim_thunks",
    ".type memshim_thunks,@function",
    "memshim_thunks:",
    ".cfi_startproc",
    ".set memshim_number, 0",
    ".rept {most}",
    ".p2align 4",
    "endbr64",
    ".byte 0x41, 0xbb", // mov r11d, the number
    ".long memshim_number",
    "jmp {body}",
    ".set memshim_number, memshim_number + 1",
    ".endr",
    ".cfi_endproc",
    ".size memshim_thunks, . - memshim_thunks",
    ".text",
    most = const MOST,
    body = sym body,
);

unsafe extern "C" {
    static memshim_thunks: [[u8; SIZE]; MOST];
}

/// What a thunk is for. Written before anybody has its address, and never changed.
pub struct Thunk {
    /// Where the function is.
    pub target: AtomicU64,
    /// The number of the phase's name.
    pub name: AtomicU32,
    /// The target is a stub, by which the loader finds the function at the first call.
    pub stub: AtomicU32,
    /// The rules that make it a phase, by bits.
    pub rules: AtomicU64,
}

static THUNKS: [Thunk; MOST] =
    [const { Thunk { target: AtomicU64::new(0), name: AtomicU32::new(0), stub: AtomicU32::new(0), rules: AtomicU64::new(0) } }; MOST];
static USED: AtomicU32 = AtomicU32::new(0);
/// More functions fit the rules.
static FULL: AtomicU32 = AtomicU32::new(0);

/// Where the thunks lie.
pub fn begin_of_all() -> u64 {
    &raw const memshim_thunks as u64
}

/// Whether an address is a thunk's.
pub fn is_one(at: u64) -> bool {
    at.wrapping_sub(begin_of_all()) < (SIZE * MOST) as u64
}

/// What the thunk of a number is for.
pub fn get(number: u32) -> Option<&'static Thunk> {
    THUNKS.get(number as usize)
}

/// The thunk that a function has already.
pub fn of_function(target: u64) -> Option<u64> {
    let used = USED.load(Acquire) as usize;
    let is = |t: &Thunk| t.stub.load(Relaxed) == 0 && t.target.load(Relaxed) == target;
    THUNKS.iter().take(used).position(is).map(|number| begin_of_all() + (SIZE * number) as u64)
}

/// Whether there were more functions than thunks.
pub fn are_used_up() -> bool {
    FULL.load(Relaxed) != 0
}

/// The address of the thunk for a function: the same each time, and that of a library which was opened again where it had been. None: there
/// are no more. One caller at a time.
pub fn for_function(target: u64, name: u32, rules: u64, stub: bool) -> Option<u64> {
    let used = USED.load(Relaxed) as usize;
    let is = |t: &Thunk| t.target.load(Relaxed) == target && t.name.load(Relaxed) == name;
    let number = THUNKS.iter().take(used).position(is).unwrap_or(used);
    let Some(thunk) = THUNKS.get(number) else {
        FULL.store(1, Relaxed);
        return None;
    };
    if number == used {
        thunk.target.store(target, Relaxed);
        thunk.name.store(name, Relaxed);
        thunk.stub.store(stub as u32, Relaxed);
        thunk.rules.store(rules, Relaxed);
        USED.store(used as u32 + 1, Release);
    }
    Some(begin_of_all() + (SIZE * number) as u64)
}

/// A body's frame, as far as it is told of: rbp points behind the last of these.
#[repr(C)]
pub struct Frame {
    /// Bytes of arguments on the stack to be copied, a multiple of 16.
    pub copied: u64,
    pub target: u64,
    /// The caller's rbp.
    pub bp: u64,
    /// Where the caller goes on.
    pub back: u64,
    /// The first argument on the stack.
    pub arguments: u64,
}

/// State components that are kept: SSE, AVX, and those of AVX-512. 0: the processor or the system has no `xsave`.
static mut COMPONENTS: u32 = 0;
/// Bytes they take.
static mut ROOM: u64 = FXSAVE;
const FXSAVE: u64 = 512;
const XSAVE_HEADER: u64 = 64;
const WANTED: u64 = 1 << 1 | 1 << 2 | 1 << 5 | 1 << 6 | 1 << 7;

/// Finds out what there is to keep. One thread, at the start.
pub fn settle() {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    const HAS_XSAVE: u32 = 1 << 27;
    if __cpuid(1).ecx & HAS_XSAVE == 0 {
        return;
    }
    let (low, high): (u32, u32);
    // SAFETY: the system says that it uses xsave; the instruction reads a register.
    unsafe { asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags)) };
    let components = (low as u64 | (high as u64) << 32) & WANTED;
    let mut room = FXSAVE + XSAVE_HEADER;
    for component in (2..8).filter(|i| components >> i & 1 != 0) {
        let found = __cpuid_count(13, component);
        room = room.max(found.ebx as u64 + found.eax as u64);
    }
    // SAFETY: one thread; read by the body only.
    unsafe {
        COMPONENTS = components as u32;
        ROOM = room;
    }
}

/// The integer registers that a call can hand over, into the body's frame and back.
macro_rules! keep {
    () => {
        "mov qword ptr [rbp - 24], rdi
         mov qword ptr [rbp - 32], rsi
         mov qword ptr [rbp - 40], rdx
         mov qword ptr [rbp - 48], rcx
         mov qword ptr [rbp - 56], r8
         mov qword ptr [rbp - 64], r9
         mov qword ptr [rbp - 72], rax
         mov qword ptr [rbp - 80], r10"
    };
}
macro_rules! give_back {
    () => {
        "mov rdi, qword ptr [rbp - 24]
         mov rsi, qword ptr [rbp - 32]
         mov rdx, qword ptr [rbp - 40]
         mov rcx, qword ptr [rbp - 48]
         mov r8, qword ptr [rbp - 56]
         mov r9, qword ptr [rbp - 64]
         mov rax, qword ptr [rbp - 72]
         mov r10, qword ptr [rbp - 80]"
    };
}

/// Entered with the thunk's number in r11, all else as the caller left it.
#[unsafe(naked)]
unsafe extern "C" fn body() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_personality 0x1b, {personality}",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "sub rsp, 96",
        keep!(),
        "mov qword ptr [rbp - 88], r11",
        "lea rdi, [rbp - 16]",
        "mov esi, r11d",
        "lea r11, [rip + {begins}]",
        "call {apart}",
        "test eax, eax",
        "je 2f",
        "mov rcx, qword ptr [rbp - 16]",
        "sub rsp, rcx",
        "mov rdi, rsp",
        "lea rsi, [rbp + 16]",
        "shr rcx, 3",
        "rep movsq",
        give_back!(),
        "mov r11, qword ptr [rbp - 8]",
        "call r11",
        "lea rsp, [rbp - 96]",
        keep!(),
        "lea rdi, [rbp - 16]",
        "mov esi, dword ptr [rbp - 88]",
        "lea r11, [rip + {ends}]",
        "call {apart}",
        give_back!(),
        ".cfi_remember_state",
        "leave",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "ret",
        ".cfi_restore_state",
        "2:",
        give_back!(),
        "mov r11, qword ptr [rbp - 8]",
        "leave",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "jmp r11",
        ".cfi_endproc",
        personality = sym personality,
        begins = sym begins,
        ends = sym ends,
        apart = sym apart,
    );
}

/// Calls the function in r11 with rdi and rsi, and hands on its result, with all vector registers as they were.
#[unsafe(naked)]
unsafe extern "C" fn apart() {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "sub rsp, qword ptr [rip + {room}]",
        "and rsp, -64",
        "mov eax, dword ptr [rip + {components}]",
        "test eax, eax",
        "je 2f",
        // The header says what is there, and must be zero otherwise.
        "xor edx, edx",
        "mov qword ptr [rsp + 512], rdx",
        "mov qword ptr [rsp + 520], rdx",
        "mov qword ptr [rsp + 528], rdx",
        "mov qword ptr [rsp + 536], rdx",
        "mov qword ptr [rsp + 544], rdx",
        "mov qword ptr [rsp + 552], rdx",
        "mov qword ptr [rsp + 560], rdx",
        "mov qword ptr [rsp + 568], rdx",
        "xsave64 [rsp]",
        "call r11",
        "mov r11, rax",
        "mov eax, dword ptr [rip + {components}]",
        "xor edx, edx",
        "xrstor64 [rsp]",
        "mov rax, r11",
        ".cfi_remember_state",
        "leave",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "ret",
        ".cfi_restore_state",
        "2:",
        "fxsave64 [rsp]",
        "call r11",
        "fxrstor64 [rsp]",
        "leave",
        ".cfi_def_cfa rsp, 8",
        ".cfi_restore rbp",
        "ret",
        ".cfi_endproc",
        room = sym ROOM,
        components = sym COMPONENTS,
    );
}

/// The unwinder asks of each frame what is to be done in it: (version, actions, class, exception, context). Ours has nothing to catch. What
/// unwinds is known by where it goes on, for [`unwinds`].
#[unsafe(naked)]
unsafe extern "C" fn personality() {
    naked_asm!("mov r9, qword ptr [rsp]", "jmp {unwinds}", unwinds = sym unwinds_here);
}

const CLEANUP: u32 = 2;
const GO_ON: u32 = 8;

unsafe extern "C" fn unwinds_here(_: u32, actions: u32, _: u64, _: *mut c_void, context: *mut c_void, unwinder: u64) -> u32 {
    if actions & CLEANUP != 0 {
        // SAFETY: as the unwinder called.
        unsafe { unwinds(context, unwinder) };
    }
    GO_ON
}
