//! The walk with all registers, by whole rows: for the rare frame whose caller is not found by rsp and rbp alone. It begins where the
//! walk began, since only there all registers are known, and is not remembered.

use super::expression::{Frame, evaluate};
use super::reach::Reach;
use super::row::{Cfa, REGISTERS, RETURN, RSP, Row, Saved, Scratch};
use super::{eh_frame, modules};

/// Registers of a frame; those whose bit is not set are not known.
#[derive(Clone, Copy)]
pub struct Registers {
    values: [u64; REGISTERS],
    known: u32,
    /// The pc is no return address.
    pub exact: bool,
}

/// Where the kernel puts DWARF's registers 0 to 16 in a ucontext.
const IN_CONTEXT: [u64; REGISTERS] = [144, 136, 152, 128, 112, 104, 120, 160, 40, 48, 56, 64, 72, 80, 88, 96, 168];

impl Registers {
    /// rip, rsp, rbp, rbx, r12 to r15.
    pub fn of(start: &[u64; 8]) -> Registers {
        const NUMBERS: [u8; 8] = [RETURN, RSP, 6, 3, 12, 13, 14, 15];
        let mut r = Registers { values: [0; REGISTERS], known: 0, exact: true };
        for (n, v) in NUMBERS.iter().zip(start) {
            r.set(*n as usize, *v);
        }
        r
    }

    fn set(&mut self, n: usize, v: u64) {
        if let Some(place) = self.values.get_mut(n) {
            *place = v;
            self.known |= 1 << n;
        }
    }

    pub fn get(&self, n: u8) -> Option<u64> {
        if self.known >> n & 1 == 1 { self.values.get(n as usize).copied() } else { None }
    }

    pub fn pc(&self) -> u64 {
        self.get(RETURN).unwrap_or(0)
    }

    pub fn sp(&self) -> u64 {
        self.get(RSP).unwrap_or(0)
    }

    /// One step outwards.
    pub fn step(&mut self, reach: &mut Reach, scratch: &mut Scratch) -> Option<()> {
        let place = self.pc().wrapping_sub(!self.exact as u64);
        let Some((row, signal)) = modules::find(place).and_then(|t| eh_frame::find(&t, place as usize, scratch)) else {
            return self.signal_without_tables(reach);
        };
        let row: &Row = row;
        let mut frame = View { registers: self, reach };
        let cfa = match row.cfa {
            Cfa::Register(r, by) => frame.register(r)?.wrapping_add(by as u64),
            Cfa::Expression(e) => evaluate(e, None, &mut frame)?,
            Cfa::Unknown => return None,
        };
        let mut next = Registers { values: [0; REGISTERS], known: 0, exact: signal };
        for (n, saved) in row.registers.iter().enumerate() {
            let v = match *saved {
                Saved::Same if n == RETURN as usize => None,
                Saved::Same => frame.register(n as u8),
                Saved::Undefined => None,
                Saved::At(by) => frame.load(cfa.wrapping_add(by as u64)),
                Saved::Value(by) => Some(cfa.wrapping_add(by as u64)),
                Saved::Register(r) => frame.register(r),
                Saved::AtExpression(e) => evaluate(e, Some(cfa), &mut frame).and_then(|at| frame.load(at)),
                Saved::ValueExpression(e) => evaluate(e, Some(cfa), &mut frame),
            };
            if let Some(v) = v {
                next.set(n, v);
            }
        }
        if row.get(RSP) == Saved::Same {
            next.set(RSP as usize, cfa);
        }
        *self = next;
        self.get(RETURN).map(|_| ())
    }

    /// The step out of a signal's handler where the C library's return has no tables.
    fn signal_without_tables(&mut self, reach: &mut Reach) -> Option<()> {
        if !is_signal_return(self.pc()) {
            return None;
        }
        let from = self.sp();
        let mut next = Registers { values: [0; REGISTERS], known: 0, exact: true };
        for (n, at) in IN_CONTEXT.iter().enumerate() {
            next.set(n, reach.load(from.wrapping_add(*at))?);
        }
        *self = next;
        Some(())
    }
}

/// Whether the code at `pc` is a return from a signal's handler: `mov $15, %eax or %rax; syscall`.
pub fn is_signal_return(pc: u64) -> bool {
    let Some([a, b]) = modules::code(pc) else { return false };
    let after = |n: u32| if n == 0 { a } else { a >> (8 * n) | b << (64 - 8 * n) };
    a == 0x0f00_0000_0fc0_c748 && b as u8 == 0x05 || a & 0xff_ffff_ffff == 0x00_0000_0fb8 && after(5) as u16 == 0x050f
}

/// A frame as an expression sees it.
struct View<'a> {
    registers: &'a Registers,
    reach: &'a mut Reach,
}

impl Frame for View<'_> {
    fn register(&self, number: u8) -> Option<u64> {
        self.registers.get(number)
    }

    fn load(&mut self, at: u64) -> Option<u64> {
        self.reach.load(at)
    }
}
