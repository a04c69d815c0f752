//! The rules for Python functions: `module:function`, both globs, as `MEMSHIM_PHASE_PY` gives them.

use super::super::names::name_of_parts;
use super::super::rules::{Rule, Rules};
use memshim_format::value::glob;

static RULES: Rules = Rules::new();

/// A phase, and the rules that make it one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Phase {
    /// Of its name; 0: it is none.
    pub number: u32,
    pub rules: u64,
}

pub const NONE: Phase = Phase { number: 0, rules: 0 };

impl Phase {
    /// It begins for the first time, or once more.
    #[inline]
    pub fn meet(self) {
        RULES.meet(self.rules);
    }
}

/// Whether a rule's second part is for a function. What the compiler names itself (`<module>`, `<lambda>`, `<listcomp>`) is only meant
/// where it is said.
fn fits(rule: &Rule, function: &[u8]) -> bool {
    let last = function.rsplit(|c| *c == b'.').next().unwrap_or(function);
    let odd = last.first() == Some(&b'<');
    glob(rule.second(), function) && (!odd || rule.second().contains(&b'<'))
}

/// Whether any rule is for a function of that name, in one module or another.
pub fn may_be(function: &[u8]) -> bool {
    RULES.all().any(|r| fits(r, function))
}

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
    if unsafe { RULES.take(list) } { Ok(()) } else { Err("module:function, such as pyscf.scf.hf:SCF.scf or __main__:*, 64 rules at most") }
}

/// Rules that are for no function that ran.
pub fn unmet() -> impl Iterator<Item = &'static [u8]> {
    RULES.unmet().map(|(_, text)| text)
}

/// What a module goes by: its `__name__`, and the main script by its file's name too.
pub struct Module<'a> {
    pub name: &'a [u8],
    /// Of the file that its code is in.
    pub file: &'a [u8],
}

impl<'a> Module<'a> {
    /// The name by which a rule knows the module.
    fn as_in(&self, rule: &Rule) -> Option<&'a [u8]> {
        let main = matches!(self.name, b"__main__" | b"__mp_main__");
        let known = if main { &b"__main__"[..] } else { self.name };
        if glob(rule.first(), known) {
            return Some(known);
        }
        let stem = stem(self.file);
        (main && !stem.is_empty() && glob(rule.first(), stem)).then_some(stem)
    }

    /// Whether any rule is for the module.
    pub fn is_wanted(&self) -> bool {
        RULES.all().any(|r| self.as_in(r).is_some())
    }

    /// The phase that a function of this module is by the first rule for it.
    pub fn phase(&self, function: &[u8]) -> Phase {
        let mut phase = NONE;
        for (i, rule) in RULES.all().enumerate() {
            if let Some(module) = self.as_in(rule).filter(|_| fits(rule, function)) {
                if phase.rules == 0 {
                    phase.number = name_of_parts(module, function);
                }
                phase.rules |= 1 << i;
            }
        }
        phase
    }
}

/// A file's name without folders and without what follows its last dot.
fn stem(file: &[u8]) -> &[u8] {
    let name = file.rsplit(|c| *c == b'/').next().unwrap_or(file);
    let end = name.iter().rposition(|c| *c == b'.').filter(|at| *at > 0).unwrap_or(name.len());
    name.get(..end).unwrap_or(name)
}
