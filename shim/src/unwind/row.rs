//! One row of a function's unwind table: how the registers of its caller are found while it stands at a given instruction. Made by
//! running the instructions of a CIE and of an FDE up to that place.

use super::cursor::Cursor;

/// Registers by their DWARF numbers; 16 is the return address.
pub const REGISTERS: usize = 17;
pub const RBP: u8 = 6;
pub const RSP: u8 = 7;
pub const RETURN: u8 = 16;

/// An expression: where its bytes stand.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Expression {
    pub at: usize,
    pub len: u32,
}

impl Expression {
    pub fn bytes(self) -> Cursor {
        // The bytes were inside the tables' segment when the row was made.
        Cursor { at: self.at, end: self.at + self.len as usize }
    }
}

/// Where a register of the caller is found.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Saved {
    Same,
    Undefined,
    /// In memory, so far from the CFA.
    At(i64),
    /// So far from the CFA, itself.
    Value(i64),
    Register(u8),
    AtExpression(Expression),
    ValueExpression(Expression),
}

/// The canonical frame address: the stack pointer of the caller once the call has returned.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Cfa {
    Unknown,
    Register(u8, i64),
    Expression(Expression),
}

#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub cfa: Cfa,
    pub registers: [Saved; REGISTERS],
}

impl Row {
    pub const EMPTY: Row = Row { cfa: Cfa::Unknown, registers: [Saved::Same; REGISTERS] };

    pub fn get(&self, register: u8) -> Saved {
        self.registers.get(register as usize).copied().unwrap_or(Saved::Same)
    }

    fn set(&mut self, register: u64, saved: Saved) {
        // Vector and other registers are none that a walk needs.
        if let Some(r) = self.registers.get_mut(register as usize) {
            *r = saved;
        }
    }
}

/// How deep `remember_state` nests; compilers nest it once.
const STATES: usize = 4;

/// Memory that making a row takes: too much for the stack of somebody else's thread.
pub struct Scratch {
    pub row: Row,
    initial: Row,
    states: [Row; STATES],
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch { row: Row::EMPTY, initial: Row::EMPTY, states: [Row::EMPTY; STATES] }
    }
}

/// What a CIE says that its instructions need.
#[derive(Clone, Copy)]
pub struct Alignment {
    pub code: u64,
    pub data: i64,
    /// How the addresses of `set_loc` are encoded.
    pub encoding: u8,
}

/// Makes the row for `wanted` in `scratch.row`. None where the tables are not understood.
pub fn make(scratch: &mut Scratch, cie: Cursor, fde: Cursor, begin: usize, wanted: usize, a: Alignment) -> Option<()> {
    scratch.row = Row::EMPTY;
    scratch.initial = Row::EMPTY;
    run(scratch, cie, a, 0, usize::MAX)?;
    scratch.initial = scratch.row;
    run(scratch, fde, a, begin, wanted)
}

fn run(s: &mut Scratch, mut code: Cursor, a: Alignment, mut location: usize, wanted: usize) -> Option<()> {
    let mut depth = 0usize;
    let row = &mut s.row;
    while code.at < code.end {
        let op = code.u8()?;
        let low = (op & 0x3f) as u64;
        let advance = match op >> 6 {
            1 => Some(low),
            2 => {
                let by = (code.uleb()? as i64).wrapping_mul(a.data);
                row.set(low, Saved::At(by));
                None
            }
            3 => {
                row.set(low, s.initial.get(low as u8));
                None
            }
            _ => match op {
                0x00 => None,
                0x01 => {
                    let to = code.encoded(a.encoding, 0)?;
                    if to > wanted {
                        return Some(());
                    }
                    location = to;
                    None
                }
                0x02 => Some(code.u8()? as u64),
                0x03 => Some(code.u16()? as u64),
                0x04 => Some(code.u32()? as u64),
                _ => {
                    other(op, row, &s.initial, &mut s.states, &mut depth, &mut code, a)?;
                    None
                }
            },
        };
        if let Some(by) = advance {
            location = location.wrapping_add(by.wrapping_mul(a.code) as usize);
            if location > wanted {
                return Some(());
            }
        }
    }
    Some(())
}

fn other(
    op: u8,
    row: &mut Row,
    initial: &Row,
    states: &mut [Row; STATES],
    depth: &mut usize,
    code: &mut Cursor,
    a: Alignment,
) -> Option<()> {
    let factored = |v: u64| (v as i64).wrapping_mul(a.data);
    let offset_of = |row: &Row| if let Cfa::Register(_, by) = row.cfa { Some(by) } else { None };
    let register_of = |row: &Row| if let Cfa::Register(r, _) = row.cfa { Some(r) } else { None };
    let short = |r: u64| u8::try_from(r).ok();
    match op {
        // offset_extended
        0x05 => {
            let r = code.uleb()?;
            row.set(r, Saved::At(factored(code.uleb()?)));
        }
        // restore_extended
        0x06 => {
            let r = code.uleb()?;
            row.set(r, short(r).map_or(Saved::Same, |r| initial.get(r)));
        }
        // undefined, same_value
        0x07 => row.set(code.uleb()?, Saved::Undefined),
        0x08 => row.set(code.uleb()?, Saved::Same),
        // register
        0x09 => {
            let r = code.uleb()?;
            row.set(r, Saved::Register(short(code.uleb()?)?));
        }
        // remember_state, restore_state
        0x0a => {
            *states.get_mut(*depth)? = *row;
            *depth += 1;
        }
        0x0b => {
            *depth = depth.checked_sub(1)?;
            *row = *states.get(*depth)?;
        }
        // def_cfa, def_cfa_register, def_cfa_offset, def_cfa_expression
        0x0c => {
            let r = short(code.uleb()?)?;
            row.cfa = Cfa::Register(r, code.uleb()? as i64);
        }
        0x0d => row.cfa = Cfa::Register(short(code.uleb()?)?, offset_of(row)?),
        0x0e => row.cfa = Cfa::Register(register_of(row)?, code.uleb()? as i64),
        0x0f => row.cfa = Cfa::Expression(expression(code)?),
        // expression, val_expression
        0x10 => {
            let r = code.uleb()?;
            row.set(r, Saved::AtExpression(expression(code)?));
        }
        0x16 => {
            let r = code.uleb()?;
            row.set(r, Saved::ValueExpression(expression(code)?));
        }
        // offset_extended_sf, def_cfa_sf, def_cfa_offset_sf
        0x11 => {
            let r = code.uleb()?;
            row.set(r, Saved::At(code.sleb()?.wrapping_mul(a.data)));
        }
        0x12 => {
            let r = short(code.uleb()?)?;
            row.cfa = Cfa::Register(r, code.sleb()?.wrapping_mul(a.data));
        }
        0x13 => row.cfa = Cfa::Register(register_of(row)?, code.sleb()?.wrapping_mul(a.data)),
        // val_offset, val_offset_sf
        0x14 => {
            let r = code.uleb()?;
            row.set(r, Saved::Value(factored(code.uleb()?)));
        }
        0x15 => {
            let r = code.uleb()?;
            row.set(r, Saved::Value(code.sleb()?.wrapping_mul(a.data)));
        }
        // GNU_args_size: what the callee takes off, of no concern to who returns into the function.
        0x2e => {
            code.uleb()?;
        }
        // GNU_negative_offset_extended
        0x2f => {
            let r = code.uleb()?;
            row.set(r, Saved::At(factored(code.uleb()?).wrapping_neg()));
        }
        _ => return None,
    }
    Some(())
}

fn expression(code: &mut Cursor) -> Option<Expression> {
    let len = code.uleb()?;
    let part = code.part(len)?;
    Some(Expression { at: part.at, len: u32::try_from(len).ok()? })
}
