//! What entry points in assembly have in common. Not for those of malloc and free, which count each instruction.

/// Puts the first three arguments by, the third on top. The stack is aligned for a call then, and the unwinder knows of it.
macro_rules! save {
    () => {
        "push rdi
        .cfi_adjust_cfa_offset 8
        push rsi
        .cfi_adjust_cfa_offset 8
        push rdx
        .cfi_adjust_cfa_offset 8"
    };
}
pub(crate) use save;

/// Takes them back.
macro_rules! restore {
    () => {
        "pop rdx
        .cfi_adjust_cfa_offset -8
        pop rsi
        .cfi_adjust_cfa_offset -8
        pop rdi
        .cfi_adjust_cfa_offset -8"
    };
}
pub(crate) use restore;

/// Returns without them. What is written below it has them still.
macro_rules! leave {
    () => {
        "add rsp, 24
        .cfi_adjust_cfa_offset -24
        ret
        .cfi_adjust_cfa_offset 24"
    };
}
pub(crate) use leave;
