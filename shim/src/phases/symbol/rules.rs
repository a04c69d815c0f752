//! The rules for native functions: `object:function`, both globs, as `MEMSHIM_PHASE_SYM` gives them; and which functions are left alone
//! whatever a rule says.

use super::super::rules::Rules;
use super::cxx;
use core::sync::atomic::{AtomicU64, Ordering::*};
use memshim_format::phase::{REFUSED_SYMBOL, UNMET_SYMBOL};
use memshim_format::value::glob;

static RULES: Rules = Rules::new();
/// Rules that a function was left alone in spite of, by bits.
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Whether there is a rule.
pub fn any() -> bool {
    RULES.any()
}

/// Takes rules, separated by commas or newlines; the accepted form where one is none.
///
/// # Safety
/// One thread, at the start.
pub unsafe fn take(list: &[u8]) -> Result<(), &'static str> {
    // SAFETY: the caller's promise.
    if unsafe { RULES.take(list) } { Ok(()) } else { Err("object:function, such as libblas.so*:dgemm_ or plugin.so:*, 64 rules at most") }
}

fn bits(fits: impl Fn(&'static [u8], &'static [u8]) -> bool) -> u64 {
    RULES.all().enumerate().fold(0, |bits, (i, rule)| bits | (fits(rule.first(), rule.second()) as u64) << i)
}

/// The rules that are for an object by its file's name, by bits: with the version behind `.so`, or without.
pub fn of_object(file: &[u8]) -> u64 {
    bits(|object, _| glob(object, file) || glob(object, stem(file)))
}

/// The rules that are for a function, in one object or another, by bits. C++ functions go by their mangled name, and by the names of which it is
/// made.
pub fn of_function(name: &[u8]) -> u64 {
    let mut room = [0; cxx::MOST];
    let path = cxx::path(name, &mut room);
    bits(|_, function| glob(function, name) || path.is_some_and(|path| glob(function, path)))
}

/// Functions of these rules were called.
pub fn meet(rules: u64) {
    RULES.meet(rules);
}

/// A function that these rules are for is left alone.
pub fn refuse(rules: u64) {
    REFUSED.fetch_or(rules, Relaxed);
}

/// Rules that nothing came of, and why.
pub fn unmet() -> impl Iterator<Item = (&'static [u8], &'static str)> {
    let refused = REFUSED.load(Relaxed);
    RULES.unmet().map(move |(i, text)| (text, if refused >> i & 1 != 0 { REFUSED_SYMBOL } else { UNMET_SYMBOL }))
}

/// A file's name without what follows `.so`.
pub fn stem(file: &[u8]) -> &[u8] {
    let is_end = |at: usize| file.get(at..at + 3) == Some(b".so") && file.get(at + 3).is_none_or(|c| *c == b'.');
    let end = (1..file.len()).find(|at| is_end(*at)).map_or(file.len(), |at| at + 3);
    file.get(..end).unwrap_or(file)
}

/// Whether a function must not be called from anywhere but where the program calls it from, or in another way than by the usual convention.
pub fn is_left_alone(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 30] = [
        // They return twice, or elsewhere: into a frame of ours that is gone.
        b"setjmp",
        b"_setjmp",
        b"sigsetjmp",
        b"__sigsetjmp",
        b"longjmp",
        b"_longjmp",
        b"siglongjmp",
        b"__longjmp_chk",
        b"vfork",
        b"__vfork",
        b"getcontext",
        b"setcontext",
        b"swapcontext",
        b"makecontext",
        b"clone",
        b"__clone",
        // They look at where they are called from.
        b"dlopen",
        b"dlmopen",
        b"dlsym",
        b"dlvsym",
        b"dl_iterate_phdr",
        // They have conventions of their own.
        b"mcount",
        b"_mcount",
        b"__fentry__",
        b"__tls_get_addr",
        b"__libc_start_main",
        b"__libc_start_call_main",
        b"_start",
        b"_init",
        b"_fini",
    ];
    // Of exceptions: they step from frame to frame. Of the compiler and the loader: conventions of their own.
    const BEGINNINGS: [&[u8]; 5] = [b"_Unwind_", b"__cxa_", b"__morestack", b"__x86_", b"_dl_"];
    let is_personality = name.ends_with(b"_personality") || name.ends_with(b"_personality_v0");
    is_personality || NAMES.contains(&name) || BEGINNINGS.iter().any(|b| name.starts_with(b))
}
