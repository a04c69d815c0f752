//! Rules for functions that are to be phases: which are for none in the whole job. Each process says it of itself, and most run other
//! functions than the one that a rule is for. Of rules for lines of output whoever reads it says so, once.

use super::report::{EndKind, Run};
use crate::trace::marks::Unmet;
use memshim_format::phase::{REFUSED_SYMBOL, UNMET, UNMET_SYMBOL};
use memshim_format::value::glob;
use std::collections::BTreeSet;

/// What a note says of a rule for lines of output.
pub fn unmet(of: &Unmet) -> String {
    format!("{} (MEMSHIM_PHASE_ON): no line of the output fits it", of.rule)
}

/// Leaves a note about a rule in the first process that has it, and in none where another one met the rule.
pub fn say_once(runs: &mut [Run]) {
    let all: BTreeSet<String> = runs.iter().flat_map(|r| &r.notes).filter(|n| rule_of(n).is_some()).cloned().collect();
    for note in all {
        let Some((rule, source)) = rule_of(&note) else { continue };
        let mut said = runs.iter().any(|run| has_met(run, rule, source, &note));
        for run in runs.iter_mut() {
            run.notes.retain(|n| *n != note || !std::mem::replace(&mut said, true));
        }
    }
}

/// The rule that a note is about, and the source of its phases.
fn rule_of(note: &str) -> Option<(&str, &'static str)> {
    let ends = [(UNMET, "python"), (UNMET_SYMBOL, "symbol"), (REFUSED_SYMBOL, "symbol")];
    ends.iter().find_map(|(end, source)| Some((note.strip_suffix(end)?, *source)))
}

/// By its phases; one that came to its end has said so by saying nothing, or something else of the rule.
fn has_met(run: &Run, rule: &str, source: &str, note: &str) -> bool {
    let ended = (source != "python" || run.python.is_some()) && run.end.kind == EndKind::Exited;
    let silent = || !run.notes.iter().any(|n| n == note || rule_of(n).is_some_and(|(r, s)| (r, s) == (rule, source)));
    let is_one = |name: &str| [rule, &format!("{rule}(*")].iter().any(|r| glob(r.as_bytes(), name.as_bytes()));
    ended && silent() || run.phases.iter().any(|p| p.source == source && is_one(&p.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyze::report::{Phase, Python};

    fn run(kind: EndKind, notes: &[&str], phases: &[&str]) -> Run {
        let notes = notes.iter().map(|n| format!("{n}{UNMET}")).collect();
        let phases = phases.iter().map(|n| Phase { name: n.to_string(), source: "python", ..Phase::default() }).collect();
        let mut run = Run { python: Some(Python { version: Some("3.12.1".into()), ..Python::default() }), notes, phases, ..Run::default() };
        run.end.kind = kind;
        run
    }

    #[test]
    fn a_rule_that_one_process_met_is_said_by_none() {
        let mut runs = [
            run(EndKind::Exited, &["a:b", "c:d", "e:*"], &[]),
            run(EndKind::Exited, &["c:d", "e:*"], &["a:b"]),
            run(EndKind::Killed, &[], &["e:f"]),
        ];
        say_once(&mut runs);
        assert_eq!(runs.map(|r| r.notes), [vec![format!("c:d{UNMET}")], vec![], vec![]]);
    }
}
