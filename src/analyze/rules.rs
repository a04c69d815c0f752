//! Rules for functions that are to be phases: which are for none in the whole job. Each process says it of itself, and most run other
//! functions than the one that a rule is for.

use super::report::Run;
use memshim_format::phase::UNMET;
use std::collections::BTreeSet;

/// Leaves a note about a rule in the first process that has it, and in none where the rule was met by another one.
pub fn say_once(runs: &mut [Run]) {
    let all: BTreeSet<String> = runs.iter().flat_map(|r| &r.notes).filter(|n| n.ends_with(UNMET)).cloned().collect();
    for note in all {
        // Who was killed could not say that he met none, so it is not known of him.
        let may_have = |r: &Run| r.python.is_some() || r.phases.iter().any(|p| p.source == "python");
        let has_met = |r: &Run| may_have(r) && !r.notes.contains(&note);
        let mut said = runs.iter().any(has_met);
        for run in runs.iter_mut() {
            run.notes.retain(|n| *n != note || !std::mem::replace(&mut said, true));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(python: bool, notes: &[&str]) -> Run {
        let notes = notes.iter().map(|n| format!("{n}{UNMET}")).collect();
        Run { python: python.then(|| "3.12.1".into()), notes, ..Run::default() }
    }

    #[test]
    fn a_rule_that_one_process_met_is_said_by_none() {
        let mut runs = [run(false, &[]), run(true, &["a:b", "c:d"]), run(true, &["c:d"])];
        say_once(&mut runs);
        assert_eq!(runs.map(|r| r.notes), [vec![], vec![format!("c:d{UNMET}")], vec![]]);
    }
}
