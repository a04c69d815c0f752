//! How to step from a frame to its caller, in eight bytes: what nearly every row of an unwind table comes down to on this machine. The
//! return address is below the CFA; of the other registers only rbp is followed, since compilers make CFAs of rsp and rbp alone.
//!
//! What does not fit (a PLT entry cut by a signal, a resolver of the loader that works with rbx) is [`Kind::Slow`]: see
//! [`super::registers`].

use super::row::{Cfa, Expression, RBP, RETURN, RSP, Row, Saved};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// There is no rule: a short stack.
    None = 0,
    /// CFA = rsp + offset.
    Sp = PLAIN,
    /// CFA = rbp + offset.
    Bp = PLAIN | BY_BP,
    /// CFA = what stands at rbp + offset: a function that realigns its stack. The caller's rbp is found by rbp too.
    Deref = 2 << 2,
    /// The return from a signal's handler: all registers stand in the ucontext at rsp.
    Signal = 3 << 2,
    /// The outermost function.
    End = 4 << 2,
    /// By the whole row.
    Slow = 5 << 2,
}

/// Kind in the low byte; in the next, whether rbp is saved; then its offset in words (16 bits from bit 16); then the offset of the CFA
/// (32 bits from bit 32). The bits of kinds are such that the two that matter are told by one test each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct Rule(pub u64);

const _: () = assert!(size_of::<Rule>() == 8);

const PLAIN: u8 = 1;
const BY_BP: u8 = 2;
const SAVED: u64 = 1 << 8;

/// Offsets in a ucontext on this machine.
pub mod context {
    pub const RBP: u64 = 120;
    pub const RSP: u64 = 160;
    pub const RIP: u64 = 168;
}

impl Rule {
    pub const NONE: Rule = Rule(0);
    pub const SIGNAL: Rule = Rule::new(Kind::Signal, 0);
    pub const SLOW: Rule = Rule::new(Kind::Slow, 0);
    pub const END: Rule = Rule::new(Kind::End, 0);

    const fn new(kind: Kind, cfa: i32) -> Rule {
        Rule(kind as u64 | (cfa as u32 as u64) << 32)
    }

    const fn saving(self, words: i16) -> Rule {
        Rule(self.0 | SAVED | (words as u16 as u64) << 16)
    }

    #[inline(always)]
    pub fn kind(self) -> Kind {
        const KINDS: [Kind; 4] = [Kind::Deref, Kind::Signal, Kind::End, Kind::Slow];
        if self.is_plain() {
            return if self.is_by_bp() { Kind::Bp } else { Kind::Sp };
        }
        KINDS.into_iter().find(|k| *k as u8 == self.0 as u8).unwrap_or(Kind::None)
    }

    /// Of the two kinds that nearly all frames are of: [`Kind::Sp`], [`Kind::Bp`].
    #[inline(always)]
    pub fn is_plain(self) -> bool {
        self.0 & PLAIN as u64 != 0
    }

    /// Of the plain ones: whether it is [`Kind::Bp`].
    #[inline(always)]
    pub fn is_by_bp(self) -> bool {
        self.0 & BY_BP as u64 != 0
    }

    /// Offset of the CFA.
    #[inline(always)]
    pub fn cfa(self) -> i64 {
        (self.0 as i64) >> 32
    }

    /// Whether the function has saved the caller's rbp.
    #[inline(always)]
    pub fn saves_bp(self) -> bool {
        self.0 & SAVED != 0
    }

    /// Where: from the CFA, or from rbp ([`Kind::Deref`]).
    #[inline(always)]
    pub fn bp(self) -> i64 {
        ((self.0 >> 16) as i16 as i64) * 8
    }

    /// What a row comes down to.
    pub fn of(row: &Row, signal: bool) -> Rule {
        match row.get(RETURN) {
            Saved::Undefined => return Rule::END,
            Saved::At(-8) => {}
            _ if signal && is_signal(row) => return Rule::SIGNAL,
            _ => return Rule::SLOW,
        }
        let (kind, cfa) = match row.cfa {
            Cfa::Register(RSP, by) => (Kind::Sp, by),
            Cfa::Register(RBP, by) => (Kind::Bp, by),
            Cfa::Expression(e) => match deref(e) {
                Some((RBP, by)) => (Kind::Deref, by),
                _ => return Rule::SLOW,
            },
            _ => return Rule::SLOW,
        };
        let bp = match (kind, row.get(RBP)) {
            (_, Saved::Same) => return i32::try_from(cfa).map_or(Rule::SLOW, |cfa| Rule::new(kind, cfa)),
            (Kind::Deref, Saved::AtExpression(e)) => match plain(e) {
                Some((RBP, by)) => by,
                _ => return Rule::SLOW,
            },
            (Kind::Sp | Kind::Bp, Saved::At(by)) => by,
            _ => return Rule::SLOW,
        };
        match (i32::try_from(cfa), i16::try_from(bp / 8)) {
            (Ok(cfa), Ok(words)) if bp % 8 == 0 => Rule::new(kind, cfa).saving(words),
            _ => Rule::SLOW,
        }
    }
}

/// `register + offset`, and nothing more.
fn plain(e: Expression) -> Option<(u8, i64)> {
    let mut code = e.bytes();
    let register = code.u8()?.checked_sub(0x70).filter(|r| *r < 32)?;
    let by = code.sleb()?;
    (code.at == code.end).then_some((register, by))
}

/// What stands at `register + offset`, and nothing more.
fn deref(e: Expression) -> Option<(u8, i64)> {
    let (dereference, len) = (0x06, e.len.checked_sub(1)?);
    let mut last = Expression { at: e.at + len as usize, len: 1 }.bytes();
    if last.u8()? == dereference { plain(Expression { at: e.at, len }) } else { None }
}

/// Whether a row finds everything where the kernel puts it for a handler.
fn is_signal(row: &Row) -> bool {
    let at = |r: u8, by: u64| matches!(row.get(r), Saved::AtExpression(e) if plain(e) == Some((RSP, by as i64)));
    matches!(row.cfa, Cfa::Expression(e) if deref(e) == Some((RSP, context::RSP as i64)))
        && at(RETURN, context::RIP)
        && at(RBP, context::RBP)
}
