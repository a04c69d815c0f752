//! Code that allocates for others: libraries of the language runtimes, the C++ and Rust standard libraries inlined into programs, and wrappers
//! of malloc that every larger C program has under a name of its own. None of it is whose memory it is.

use super::report::Frame;

/// Libraries, by the beginnings of their files' names.
const LIBRARIES: [&str; 14] = [
    "libc.",
    "libc-",
    "ld-linux",
    "ld-musl",
    "libstdc++.",
    "libc++.",
    "libgcc_s.",
    "libm.",
    "libpthread",
    "libdl.",
    "libmemshim",
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
];

/// Functions, by the beginnings of their qualified names.
const FUNCTIONS: [&str; 17] = [
    "operator new",
    "std::",
    "__gnu_cxx::",
    "core::",
    "alloc::",
    "hashbrown::",
    "<alloc::",
    "<core::",
    "<std::",
    "<hashbrown::",
    "__rust_",
    "__rustc",
    "PyMem_",
    "_PyMem_",
    "PyObject_Malloc",
    "PyObject_Calloc",
    "PyObject_Realloc",
];

/// Where the sources of standard libraries lie, whose functions are in the programs that use them.
const SOURCES: [&str; 4] = ["/include/c++/", "/rustc/", "/lib/rustlib/src/", "/library/alloc/src/"];

/// How names of allocating functions end, in lower case, apart from what [`ENDINGS`] has.
const WORDS: [&str; 14] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "reallocf",
    "memalign",
    "zalloc",
    "palloc",
    "aligned_alloc",
    "mem_alloc",
    "xalloc",
    "strdup",
    "strndup",
    "memdup",
];

/// What may follow.
const ENDINGS: [&str; 16] =
    ["_or_die", "_usable", "_array", "array", "_impl", "_internal", "_aligned", "_n", "rawnn", "raw", "zero", "nn", "z", "2", "0", "_"];

/// Of a library or a function that allocates for others.
pub fn is_runtime(frame: &Frame) -> bool {
    let module = frame.module.as_deref().and_then(|m| m.rsplit('/').next()).unwrap_or_default();
    let file = frame.file.as_deref().unwrap_or_default();
    LIBRARIES.iter().any(|r| module.starts_with(r))
        || !frame.python && SOURCES.iter().any(|s| file.contains(s))
        || frame.function.as_deref().is_some_and(allocates_for_others)
}

/// By its name alone.
fn allocates_for_others(function: &str) -> bool {
    let name = qualified(function);
    let own = name.rsplit("::").next().unwrap_or(name);
    FUNCTIONS.iter().any(|f| name.starts_with(f)) || own.starts_with("operator new") || is_allocator(own)
}

/// Whether a name says that it is malloc with something around it: `xmalloc`, `sqlite3DbMallocRawNN`, `g_malloc0_n`, `AlignedMalloc`.
fn is_allocator(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let mut rest = lower.as_str();
    loop {
        if WORDS.iter().any(|w| rest.ends_with(w)) {
            return true;
        }
        match ENDINGS.iter().find_map(|e| rest.strip_suffix(e)) {
            Some(shorter) => rest = shorter,
            None => return false,
        }
    }
}

/// The qualified name in a demangled one: without the return type in front of it (templates have one), parameters, and what templates are
/// made of at its end. `std::vector<int> load<char>(int)` is `load`, `void std::sort<…>(…)` is `std::sort`.
fn qualified(function: &str) -> &str {
    let bytes = function.as_bytes();
    // `<T as Trait>::f` and `operator<` have no such parts in front.
    if bytes.first() == Some(&b'<') {
        return function;
    }
    let (mut depth, mut from, mut end) = (0usize, 0, function.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &function[at..];
        if depth == 0 && rest.starts_with("(anonymous namespace)") {
            at += "(anonymous namespace)".len();
            continue;
        }
        if depth == 0 && rest.starts_with("operator") && (at == from || function[..at].ends_with("::")) {
            // Its signs are no brackets; the parameters follow them.
            end = rest.get(9..).and_then(|r| r.find('(')).map_or(function.len(), |n| at + 9 + n);
            break;
        }
        match bytes[at] {
            b'<' => depth += 1,
            b'>' => depth = depth.saturating_sub(1),
            b' ' if depth == 0 => from = at + 1,
            b'(' if depth == 0 => {
                end = at;
                break;
            }
            _ => {}
        }
        // Names hold other signs than ASCII.
        at += function[at..].chars().next().map_or(1, char::len_utf8);
    }
    let name = &function[from.min(end)..end];
    without_arguments(name)
}

/// Templates are told by what they are of, not by their name.
fn without_arguments(name: &str) -> &str {
    if !name.ends_with('>') || name.contains("operator") {
        return name;
    }
    let mut depth = 0usize;
    for (at, c) in name.bytes().enumerate().rev() {
        match c {
            b'>' => depth += 1,
            b'<' if depth == 1 => return &name[..at],
            b'<' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_qualified_name_is_found_among_types_and_parameters() {
        for (function, name) in [
            ("fill()", "fill"),
            (
                "void std::vector<int, std::allocator<int> >::_M_realloc_insert<int const&>(int*)",
                "std::vector<int, std::allocator<int> >::_M_realloc_insert",
            ),
            ("std::vector<int> load<char>(std::string const&)", "load"),
            ("std::_Vector_base<int>::_M_allocate(unsigned long)", "std::_Vector_base<int>::_M_allocate"),
            ("(anonymous namespace)::make(int)", "(anonymous namespace)::make"),
            ("Pool::operator new(unsigned long)", "Pool::operator new"),
            ("std::function<void ()>::operator()() const", "std::function<void ()>::operator()"),
            ("operator new[](unsigned long)", "operator new[]"),
            ("tsl::port::AlignedMalloc(unsigned long, int)", "tsl::port::AlignedMalloc"),
            ("main", "main"),
            ("", ""),
        ] {
            assert_eq!(qualified(function), name);
        }
    }

    #[test]
    fn wrappers_of_malloc_are_known_by_their_names() {
        for name in [
            "xmalloc",
            "xrealloc",
            "sqlite3Malloc",
            "sqlite3DbMallocRawNN",
            "sqlite3MallocZero",
            "Perl_safesysmalloc",
            "Perl_safesysrealloc",
            "zmalloc",
            "ztrymalloc_usable",
            "g_malloc",
            "g_malloc0_n",
            "tsl::port::AlignedMalloc(unsigned long, int)",
            "_PyObject_Malloc",
            "PyMem_RawMalloc",
            "_PyMem_RawCalloc",
            "PyObject_Malloc",
            "Buffer::operator new(unsigned long)",
            "std::allocator<int>::allocate(unsigned long)",
            "void std::__uninitialized_fill<char>(char*)",
            "CRYPTO_malloc",
            "av_mallocz",
            "xstrdup",
            "<alloc::vec::Vec<u8> as core::clone::Clone>::clone",
        ] {
            assert!(allocates_for_others(name), "{name}");
        }
        for name in
            ["main", "load", "std_like()", "std::string make<int>()", "matrix_new", "parse_malloc_log", "PyDict_New", "allocation_report"]
        {
            assert!(!allocates_for_others(name), "{name}");
        }
    }

    #[test]
    fn standard_libraries_are_known_by_their_sources() {
        let of =
            |file: &str, python| is_runtime(&Frame { function: Some("push".into()), file: Some(file.into()), python, ..Frame::default() });
        assert!(of("/usr/include/c++/12/bits/stl_vector.h", false) && of("/rustc/59807616e/library/alloc/src/raw_vec.rs", false));
        assert!(!of("/home/u/include/vector.h", false) && !of("/home/u/include/c++/tool.py", true));
    }
}
