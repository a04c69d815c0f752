//! Rules for functions that are to be phases: which are for none in the whole job. Each process says it of itself, and most run other
//! functions than the one that a rule is for.

use super::report::{EndKind, Run};
use memshim_format::phase::UNMET;
use memshim_format::value::glob;
use std::collections::BTreeSet;

/// Leaves a note about a rule in the first process that has it, and in none where another one met the rule.
pub fn say_once(runs: &mut [Run]) {
    let all: BTreeSet<String> = runs.iter().flat_map(|r| &r.notes).filter(|n| n.ends_with(UNMET)).cloned().collect();
    for note in all {
        let rule = note.strip_suffix(UNMET).unwrap_or(&note);
        let mut said = runs.iter().any(|run| has_met(run, rule, &note));
        for run in runs.iter_mut() {
            run.notes.retain(|n| *n != note || !std::mem::replace(&mut said, true));
        }
    }
}

/// By its phases; one that came to its end has said so by saying nothing.
fn has_met(run: &Run, rule: &str, note: &String) -> bool {
    let ended = run.python.is_some() && run.end.kind == EndKind::Exited;
    let is_one = |name: &str| glob(rule.as_bytes(), name.as_bytes());
    ended && !run.notes.contains(note) || run.phases.iter().any(|p| p.source == "python" && is_one(&p.name))
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
