//! The walk itself: from the registers outwards, until what is remembered takes over or the stack ends.

use super::memory::{Fresh, LIMIT, Stop};
use super::registers::{self, Registers};
use super::row::RBP;
use super::rule::{Kind, Rule, context};
use super::{Native, eh_frame, modules};
use core::mem::MaybeUninit;

/// How a stack ends at its outer end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    Complete,
    Short,
    Cut,
}

/// Addresses that code may have: from the second page on, below the middle of the address space.
const CODE: u64 = 4096;
const CODE_LEN: u64 = (1 << 47) - CODE;

/// How far behind an object's entry its code without unwind tables goes.
const ENTRY: u64 = 64;

impl Native {
    /// Walks until a remembered frame is met outwards of which all is as it was. How many new frames are in `fresh`, the innermost first,
    /// more than [`LIMIT`] when there were more; and the index of that frame, [`LIMIT`] where `ended` says how the stack ends.
    #[inline(always)]
    pub(super) fn walk(&mut self) -> (usize, usize) {
        let [pc, sp, bp, ..] = self.start;
        let mut f = Fresh { sp, bp, at: pc << 1 | 1, rule: Rule::NONE };
        let mut fresh = 0;
        let own = modules::own();
        // Frames of this library come first and are none of the stack's.
        while own.holds(f.at >> 1) {
            f.rule = self.rule(f.at);
            if !self.step(&mut f) {
                return (fresh, LIMIT);
            }
        }
        // The remembered frame that may be met next, and the last of which is known that it leads elsewhere.
        let mut next = self.memory.first();
        let mut elsewhere = None;
        loop {
            while self.memory.get(next).is.sp < f.sp {
                next += 1;
            }
            if self.memory.get(next).is_like(&f) && elsewhere.is_none_or(|e| next > e) && !self.reach.strayed {
                // SAFETY: nothing is remembered that is not on this thread's own stack, outwards of where it stands.
                match unsafe { self.memory.verify(next) } {
                    Ok(()) => return (fresh, next),
                    Err(differs) => elsewhere = Some(differs),
                }
            }
            f.rule = self.rule(f.at);
            match self.fresh.get_mut(fresh) {
                Some(place) => *place = MaybeUninit::new(f),
                None => return (fresh + 1, LIMIT),
            }
            fresh += 1;
            if !self.step(&mut f) {
                return (fresh, LIMIT);
            }
        }
    }

    /// Notes that a step led nowhere, and why.
    #[cold]
    #[inline(never)]
    fn stop(&mut self, end: End, stop: Stop) -> bool {
        self.ended = (end, stop);
        false
    }

    /// The rule at a frame's pc.
    #[inline(always)]
    fn rule(&mut self, at: u64) -> Rule {
        let place = (at >> 1).wrapping_sub(1).wrapping_add(at & 1);
        match self.cache.get(place) {
            Some(rule) => rule,
            None => self.make_rule(place, at >> 1),
        }
    }

    #[cold]
    #[inline(never)]
    fn make_rule(&mut self, place: u64, pc: u64) -> Rule {
        // Asked before: a list that another thread reads meanwhile has been read when one asks afterwards.
        let certain = modules::is_certain();
        let Some(tables) = modules::find(place) else {
            // Not kept: an object may be loaded there, or code be made.
            self.uncertain |= !certain;
            return Rule::NONE;
        };
        // SAFETY: memory for rows, which are written before they are read.
        let scratch = unsafe { self.scratch.assume_init_mut() };
        let mut look = |place: u64| eh_frame::find(&tables, place as usize, scratch).map(|(row, signal)| Rule::of(row, signal));
        let rule = match look(place) {
            Some(rule) => rule,
            None if registers::is_signal_return(pc) => Rule::SIGNAL,
            // No call stands before the beginning of a function: the return address was put there by hand, as makecontext does, and there
            // is nothing to return to beyond it.
            None if place != pc && look(pc).is_some() => Rule::END,
            // The loader's own beginning, from which it runs constructors before it goes to the program's.
            None if pc.wrapping_sub(tables.entry as u64) < ENTRY => Rule::END,
            None => Rule::NONE,
        };
        self.cache.put(place, rule);
        rule
    }

    /// From a frame to its caller's, all but the rule; whether there is one.
    #[inline(always)]
    fn step(&mut self, f: &mut Fresh) -> bool {
        let rule = f.rule;
        if !rule.is_plain() {
            // By value, so that the frame of the walk stays in registers.
            let found = self.special_step(*f);
            *f = self.found;
            return found;
        }
        let base = if rule.is_by_bp() { f.bp } else { f.sp };
        let cfa = base.wrapping_add(rule.cfa() as u64);
        // A caller's frame lies outwards.
        if cfa <= f.sp || cfa & 7 != 0 {
            return self.stop(End::Short, (0, 0));
        }
        let at = cfa.wrapping_sub(8);
        let Some(pc) = self.reach.load(at) else { return self.stop(End::Short, (0, 0)) };
        if rule.saves_bp() {
            match self.reach.load(cfa.wrapping_add(rule.bp() as u64)) {
                Some(bp) => f.bp = bp,
                None => return self.stop(End::Short, (0, 0)),
            }
        }
        if pc.wrapping_sub(CODE) >= CODE_LEN {
            return self.stop(if pc == 0 { End::Complete } else { End::Short }, (at, pc));
        }
        (f.sp, f.at) = (cfa, pc << 1);
        true
    }

    #[cold]
    #[inline(never)]
    fn special_step(&mut self, f: Fresh) -> bool {
        let kind = f.rule.kind();
        let found = match kind {
            Kind::End => return self.stop(End::Complete, (0, 0)),
            Kind::Deref => self.step_by_deref(&f),
            Kind::Signal => {
                let mut word = |at: u64| self.reach.load(f.sp.wrapping_add(at));
                match (word(context::RSP), word(context::RBP), word(context::RIP)) {
                    (Some(sp), Some(bp), Some(pc)) => Some((sp, bp, pc, true)),
                    _ => None,
                }
            }
            Kind::Slow => self.step_by_registers(&f).map(|r| (r.sp(), r.get(RBP).unwrap_or(0), r.pc(), r.exact)),
            _ => None,
        };
        let Some((sp, bp, pc, exact)) = found.filter(|(sp, _, _, exact)| *exact || *sp > f.sp && sp & 7 == 0) else {
            return self.stop(End::Short, (0, 0));
        };
        if pc.wrapping_sub(CODE) >= CODE_LEN {
            return self.stop(if pc == 0 { End::Complete } else { End::Short }, (0, 0));
        }
        if exact && !(self.reach.has(sp) || self.reach.prove(sp)) {
            return self.stop(End::Short, (0, 0));
        }
        self.found = Fresh { sp, bp, at: pc << 1 | exact as u64, rule: Rule::NONE };
        true
    }

    fn step_by_deref(&mut self, f: &Fresh) -> Option<(u64, u64, u64, bool)> {
        let cfa = self.reach.load(f.bp.wrapping_add(f.rule.cfa() as u64))?;
        let pc = self.reach.load(cfa.wrapping_sub(8))?;
        let bp = if f.rule.saves_bp() { self.reach.load(f.bp.wrapping_add(f.rule.bp() as u64))? } else { f.bp };
        Some((cfa, bp, pc, false))
    }

    /// All registers of the caller of a frame.
    fn step_by_registers(&mut self, f: &Fresh) -> Option<Registers> {
        let mut r = Registers::of(&self.start);
        // SAFETY: memory for rows, which are written before they are read.
        let scratch = unsafe { self.scratch.assume_init_mut() };
        for _ in 0..2 * LIMIT {
            let there = r.sp() == f.sp && r.pc() == f.at >> 1;
            r.step(&mut self.reach, scratch)?;
            if there {
                return Some(r);
            }
        }
        None
    }
}
