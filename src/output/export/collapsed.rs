//! `outermost;…;innermost amount`, a stack a line: flamegraph.pl, inferno, speedscope, hotspot read it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::analyze::profile::Profile;
use crate::analyze::views::Measure;

/// The lines, in order, each stack once.
pub fn lines(profile: &Profile, measure: Measure) -> Vec<String> {
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    for (names, value) in profile.stacks(measure) {
        let stack = names.iter().map(|n| plain(n)).collect::<Vec<_>>().join(";");
        let sum = all.entry(stack).or_default();
        *sum = sum.saturating_add(value);
    }
    all.into_iter().map(|(stack, value)| format!("{stack} {value}")).collect()
}

/// What separates stacks and frames stands in no name.
fn plain(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c == ';' {
                ','
            } else if c.is_control() {
                '?'
            } else {
                c
            }
        })
        .collect()
}

pub fn write(profile: &Profile, measure: Measure, out: &mut impl Write) -> io::Result<()> {
    lines(profile, measure).iter().try_for_each(|line| writeln!(out, "{line}"))
}
