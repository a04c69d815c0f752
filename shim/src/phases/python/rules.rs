//! The rules: `module:function`, both globs, as `MEMSHIM_PHASE_PY` gives them. Kept in memory of our own, since programs write over their
//! environment.

use super::super::name;
use core::sync::atomic::{AtomicU64, Ordering::*};
use memshim_format::value::glob;

const TEXT: usize = 8192;
/// So many as a word has bits.
const MOST: usize = 64;

/// One rule. Its text is `module`, a colon, `function`.
struct Rule {
    text: &'static [u8],
    colon: usize,
}

static mut KEPT: [u8; TEXT] = [0; TEXT];
static mut USED: usize = 0;
static mut RULES: [Option<Rule>; MOST] = [const { None }; MOST];
/// Rules that are for a function that ran, by bits.
static MET: AtomicU64 = AtomicU64::new(0);

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
        if MET.load(Relaxed) & self.rules != self.rules {
            MET.fetch_or(self.rules, Relaxed);
        }
    }
}

fn rules() -> impl Iterator<Item = &'static Rule> {
    // SAFETY: written at the start only, by one thread.
    unsafe { (*(&raw const RULES)).iter().flatten() }
}

impl Rule {
    fn module(&self) -> &'static [u8] {
        self.text.get(..self.colon).unwrap_or(b"")
    }

    fn function(&self) -> &'static [u8] {
        self.text.get(self.colon + 1..).unwrap_or(b"")
    }

    /// Whether the rule's second part is for a function. What the compiler names itself (`<module>`, `<lambda>`, `<listcomp>`) is only meant
    /// where it is said.
    fn fits(&self, function: &[u8]) -> bool {
        let last = function.rsplit(|c| *c == b'.').next().unwrap_or(function);
        let odd = last.first() == Some(&b'<');
        glob(self.function(), function) && (!odd || self.function().contains(&b'<'))
    }
}

/// Whether any rule is for a function of that name, in one module or another.
pub fn may_be(function: &[u8]) -> bool {
    rules().any(|r| r.fits(function))
}

/// Whether there is a rule.
pub fn any() -> bool {
    rules().next().is_some()
}

/// Takes rules, separated by commas or newlines; the accepted form where one is none.
///
/// # Safety
/// One thread, at the start.
pub unsafe fn take(list: &[u8]) -> Result<(), &'static str> {
    let mut good = Ok(());
    for rule in list.split(|c| matches!(c, b',' | b'\n')).map(<[u8]>::trim_ascii).filter(|r| !r.is_empty()) {
        let colon = rule.iter().position(|c| *c == b':').filter(|at| *at > 0 && *at + 1 < rule.len());
        // SAFETY: the caller's promise.
        let kept = colon.is_some_and(|colon| unsafe { keep(rule, colon) });
        if !kept {
            good = Err("module:function, such as scf.hf:SCF.kernel or __main__:*, 64 rules at most");
        }
    }
    good
}

unsafe fn keep(rule: &[u8], colon: usize) -> bool {
    // SAFETY: one thread.
    unsafe {
        let (kept, rules, from) = (&mut *(&raw mut KEPT), &mut *(&raw mut RULES), USED);
        let (Some(place), Some(room)) = (rules.iter_mut().find(|r| r.is_none()), kept.get_mut(from..from + rule.len())) else {
            return false;
        };
        room.copy_from_slice(rule);
        USED += rule.len();
        let text = core::slice::from_raw_parts((&raw const KEPT).cast::<u8>().add(from), rule.len());
        *place = Some(Rule { text, colon });
    }
    true
}

/// Rules that are for no function that ran.
pub fn unmet() -> impl Iterator<Item = &'static [u8]> {
    let met = MET.load(Relaxed);
    rules().enumerate().filter(move |(i, _)| met >> i & 1 == 0).map(|(_, r)| r.text)
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
        if glob(rule.module(), known) {
            return Some(known);
        }
        let stem = stem(self.file);
        (main && !stem.is_empty() && glob(rule.module(), stem)).then_some(stem)
    }

    /// Whether any rule is for the module.
    pub fn is_wanted(&self) -> bool {
        rules().any(|r| self.as_in(r).is_some())
    }

    /// The phase that a function of this module is by the first rule for it.
    pub fn phase(&self, function: &[u8]) -> Phase {
        let mut phase = NONE;
        for (i, rule) in rules().enumerate() {
            if let Some(module) = self.as_in(rule).filter(|_| rule.fits(function)) {
                if phase.rules == 0 {
                    phase.number = of(module, function);
                }
                phase.rules |= 1 << i;
            }
        }
        phase
    }
}

/// The number of the name `module:function`.
fn of(module: &[u8], function: &[u8]) -> u32 {
    let mut text = [0u8; 512];
    let mut n = 0;
    for (to, c) in text.iter_mut().zip(module.iter().chain(b":").chain(function)) {
        *to = *c;
        n += 1;
    }
    name(b"", text.get(..n).unwrap_or(b""))
}

/// A file's name without folders and without what follows its last dot.
fn stem(file: &[u8]) -> &[u8] {
    let name = file.rsplit(|c| *c == b'/').next().unwrap_or(file);
    let end = name.iter().rposition(|c| *c == b'.').filter(|at| *at > 0).unwrap_or(name.len());
    name.get(..end).unwrap_or(name)
}
