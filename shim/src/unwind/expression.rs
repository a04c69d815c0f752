//! DWARF expressions as unwind tables hold them: the CFA of PLT entries, registers saved by a signal or by a realigned stack.

use super::row::Expression;

/// Deepest stack of values; compilers use four.
const DEPTH: usize = 16;
/// Steps of one expression, as they can branch back.
const STEPS: usize = 1000;

/// What an expression asks of the frame it is about.
pub trait Frame {
    /// A register, if its value is known.
    fn register(&self, number: u8) -> Option<u64>;
    /// Eight bytes of the program's memory, if they can be read.
    fn load(&mut self, at: u64) -> Option<u64>;
}

/// A bounded stack of values.
struct Values {
    held: [u64; DEPTH],
    count: usize,
}

impl Values {
    fn push(&mut self, v: u64) -> Option<()> {
        *self.held.get_mut(self.count)? = v;
        self.count += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<u64> {
        self.count = self.count.checked_sub(1)?;
        self.held.get(self.count).copied()
    }

    /// The one `below` the top.
    fn peek(&self, below: usize) -> Option<u64> {
        self.held.get(self.count.checked_sub(below + 1)?).copied()
    }
}

/// The value of an expression, with `first` on the stack at its beginning.
pub fn evaluate(e: Expression, first: Option<u64>, frame: &mut impl Frame) -> Option<u64> {
    let whole = e.bytes();
    let mut code = whole;
    let mut v = Values { held: [0; DEPTH], count: 0 };
    if let Some(first) = first {
        v.push(first)?;
    }
    for _ in 0..STEPS {
        if code.at >= code.end {
            return v.pop();
        }
        let op = code.u8()?;
        match op {
            0x30..=0x4f => v.push((op - 0x30) as u64)?,
            0x70..=0x8f => {
                let by = code.sleb()?;
                v.push(frame.register(op - 0x70)?.wrapping_add(by as u64))?;
            }
            0x92 => {
                let r = u8::try_from(code.uleb()?).ok()?;
                let by = code.sleb()?;
                v.push(frame.register(r)?.wrapping_add(by as u64))?;
            }
            0x03 => {
                let n = code.u64()?;
                v.push(n)?;
            }
            0x06 => {
                let at = v.pop()?;
                v.push(frame.load(at)?)?;
            }
            0x94 => {
                let size = code.u8()?;
                let at = v.pop()?;
                let whole = frame.load(at)?;
                v.push(if size < 8 { whole & !(u64::MAX << (size as u32 * 8)) } else { whole })?;
            }
            0x08 => v.push(code.u8()? as u64)?,
            0x09 => v.push(code.i8()? as u64)?,
            0x0a => v.push(code.u16()? as u64)?,
            0x0b => v.push(code.i16()? as u64)?,
            0x0c => v.push(code.u32()? as u64)?,
            0x0d => v.push(code.i32()? as u64)?,
            0x0e | 0x0f => v.push(code.u64()?)?,
            0x10 => v.push(code.uleb()?)?,
            0x11 => v.push(code.sleb()? as u64)?,
            0x12 => v.push(v.peek(0)?)?,
            0x13 => {
                v.pop()?;
            }
            0x14 => v.push(v.peek(1)?)?,
            0x15 => {
                let below = code.u8()? as usize;
                v.push(v.peek(below)?)?;
            }
            0x16 => {
                let (a, b) = (v.pop()?, v.pop()?);
                v.push(a)?;
                v.push(b)?;
            }
            0x17 => {
                let (a, b, c) = (v.pop()?, v.pop()?, v.pop()?);
                v.push(a)?;
                v.push(c)?;
                v.push(b)?;
            }
            0x19 => {
                let a = v.pop()?;
                v.push((a as i64).wrapping_abs() as u64)?;
            }
            0x1f => {
                let a = v.pop()?;
                v.push(a.wrapping_neg())?;
            }
            0x20 => {
                let a = v.pop()?;
                v.push(!a)?;
            }
            0x23 => {
                let a = v.pop()?;
                v.push(a.wrapping_add(code.uleb()?))?;
            }
            0x28 | 0x2f => {
                let by = code.i16()?;
                if op == 0x2f || v.pop()? != 0 {
                    let to = code.at.wrapping_add(by as usize);
                    if to < whole.at || to > whole.end {
                        return None;
                    }
                    code.at = to;
                }
            }
            0x96 => {}
            _ => {
                let (b, a) = (v.pop()?, v.pop()?);
                v.push(combine(op, a, b)?)?;
            }
        }
    }
    None
}

/// Operations of two values.
fn combine(op: u8, a: u64, b: u64) -> Option<u64> {
    let (x, y) = (a as i64, b as i64);
    let shift = |f: fn(u64, u32) -> Option<u64>| f(a, b.min(64) as u32).unwrap_or(0);
    Some(match op {
        0x1a => a & b,
        0x1c => a.wrapping_sub(b),
        0x1e => a.wrapping_mul(b),
        0x21 => a | b,
        0x22 => a.wrapping_add(b),
        0x24 => shift(u64::checked_shl),
        0x25 => shift(u64::checked_shr),
        0x26 => (x >> b.min(63)) as u64,
        0x27 => a ^ b,
        0x29 => (a == b) as u64,
        0x2a => (x >= y) as u64,
        0x2b => (x > y) as u64,
        0x2c => (x <= y) as u64,
        0x2d => (x < y) as u64,
        0x2e => (a != b) as u64,
        _ => return None,
    })
}
