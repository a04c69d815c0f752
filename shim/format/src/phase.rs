//! Phases: the edges that a thread puts into its ring, and the names they speak of.
//!
//! ```text
//! PHASE        arg = what | source << 4 | bytes read and written known << 8, low = number of the name;
//!              t_ns, range, live usable bytes (zigzag), cpu ns, minor << 32 | major faults, voluntary << 32 | other switches,
//!              bytes read, bytes written
//! PHASE_NAME   arg = piece | 0x800 for the domain's, low = number; seven words of seven bytes, low byte first
//! ```

/// What happens at an edge, by number. A `return` is the end of a function that still holds what is in its variables.
pub const WHATS: [&str; 4] = ["begin", "end", "mark", "return"];

/// Numbers of [`WHATS`].
#[allow(missing_docs)]
pub mod what {
    pub const BEGIN: u64 = 0;
    pub const END: u64 = 1;
    pub const MARK: u64 = 2;
    pub const RETURN: u64 = 3;
}

/// Who says so, by number.
pub const SOURCES: [&str; 8] = ["nvtx", "python", "symbol", "output", "mark", "api", "process", "auto"];

/// Numbers of [`SOURCES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Source {
    /// A range or mark of NVIDIA's tools extension.
    Nvtx = 0,
    /// A Python function that a rule names.
    Python = 1,
    /// A native function that a rule names.
    Symbol = 2,
    /// A line that the program printed.
    Output = 3,
    /// Somebody outside (`memshim mark`).
    Mark = 4,
    /// The program itself, by our own functions.
    Api = 5,
    /// What the process did as such: imports, children, its exit.
    Process = 6,
    /// The analyser, from the curve of the memory.
    Auto = 7,
}

/// Marks of [`Source::Process`]: `main` is next, a Python script has begun, `exit` was called.
pub const MAIN: &str = "main";
/// See [`MAIN`].
pub const SCRIPT: &str = "script";
/// See [`MAIN`].
pub const EXIT: &str = "exit";
/// The phase of [`Source::Process`] in which a CUDA driver sets itself or its first context up.
pub const CUDA_START: &str = "CUDA start";

/// What a note says after a rule for Python functions.
pub const UNMET: &str = " (MEMSHIM_PHASE_PY): no function of that name ran";

/// What a note says after a rule for native functions.
pub const UNMET_SYMBOL: &str = " (MEMSHIM_PHASE_SYM): no function of that name was called through the dynamic linker: it is static, inlined or not \
                                exported, is called inside its own object only, or its library was not loaded";

/// What a note says after a rule that is only for functions which cannot be phases.
pub const REFUSED_SYMBOL: &str = " (MEMSHIM_PHASE_SYM): functions of that name cannot be phases: they look at their caller, return twice, belong to the \
                                  loader, or are hooks of memshim's own";

/// Rules for functions that are taken at most.
pub const RULES_MOST: usize = 64;
/// Bytes of them.
pub const RULES_TEXT: usize = 8192;

/// The rules of a list, which are separated by commas or newlines.
pub fn rules(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|c| matches!(c, b',' | b'\n')).map(<[u8]>::trim_ascii).filter(|rule| !rule.is_empty())
}

/// Where the first colon of a rule for functions stands: `where:what`. None: one of the two is missing.
pub fn colon(rule: &[u8]) -> Option<usize> {
    rule.iter().position(|c| *c == b':').filter(|at| *at > 0 && *at + 1 < rule.len())
}

/// An edge's 12-bit argument.
pub const fn edge(what: u64, source: Source, moved: bool) -> u64 {
    what | (source as u64) << 4 | (moved as u64) << 8
}

/// What [`edge`] was given: what, source, whether the words of bytes read and written are known.
pub const fn parts(arg: u64) -> (u64, u64, bool) {
    (arg & 15, arg >> 4 & 15, arg >> 8 & 1 != 0)
}

/// Flag of a piece that is of the domain.
pub const OF_DOMAIN: u64 = 0x800;
/// Bytes of a piece.
pub const PIECE: usize = 49;

/// The words of a piece of text.
pub fn words(text: &[u8]) -> [u64; 7] {
    let mut words = [0; 7];
    for (i, c) in text.iter().take(PIECE).enumerate() {
        if let Some(w) = words.get_mut(i / 7) {
            *w |= (*c as u64) << (8 * (i % 7));
        }
    }
    words
}

/// How many bytes of `text` the next piece takes: whole characters, where it is UTF-8.
pub fn cut(text: &[u8], most: usize) -> usize {
    if text.len() <= most {
        return text.len();
    }
    let is_inside = |at: usize| text.get(at).is_some_and(|c| c & 0xc0 == 0x80);
    (most.saturating_sub(3)..=most).rev().find(|&at| !is_inside(at)).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_end_between_characters() {
        let text = "ab€".as_bytes();
        assert_eq!((cut(text, 5), cut(text, 4), cut(text, 3), cut(text, 2)), (5, 2, 2, 2));
        assert_eq!(cut(&[0x80; 9], 8), 8);
    }

    #[test]
    fn a_rule_has_two_parts() {
        let all: Vec<&[u8]> = rules(b" lib*.so:f ,,x:ns::g\nh,").collect();
        assert_eq!(all, [&b"lib*.so:f"[..], b"x:ns::g", b"h"]);
        let colons: Vec<Option<usize>> = all.into_iter().map(colon).collect();
        assert_eq!((colons, colon(b":f"), colon(b"f:")), (vec![Some(7), Some(1), None], None, None));
    }

    #[test]
    fn text_survives_its_words() {
        let text: Vec<u8> = (1..=49).collect();
        let mut back = [0; 49];
        assert_eq!(crate::gpu::text(&words(&text), &mut back), 49);
        assert_eq!(&back[..], &text[..]);
        assert_eq!(parts(edge(what::MARK, Source::Auto, true)), (2, 7, true));
    }
}
