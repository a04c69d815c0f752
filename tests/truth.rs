//! `scripts/check-truth` accepts what a program says of itself, and refuses everything else with the reason as its last line.

mod support;

use std::path::Path;
use support::{Mode, Program, check_truth};

/// A trace of a program that knows sizes, peaks and leaks, and what it said.
fn traced(test: &str, mode: Mode) -> Option<(std::path::PathBuf, Vec<String>)> {
    let program = Program::new(test, "heap_edges.c").arg("chain");
    let (trace, said) = program.trace_and_truth(mode)?;
    let lines: Vec<String> = support::lossy(&said).lines().map(str::to_owned).collect();
    assert!(lines.len() >= 2, "{lines:?}");
    Some((trace, lines))
}

fn holds(trace: &Path, line: &str) -> Result<(), String> {
    check_truth(trace, format!("{line}\n").as_bytes())
}

/// The line with another number at each of its keys, and both numbers.
fn falsified(line: &str, by: fn(u64) -> u64) -> Vec<(String, String, [u64; 2])> {
    let fields: Vec<&str> = line.split(' ').collect();
    let numbers = fields.iter().enumerate().filter_map(|(at, field)| {
        let (key, value) = field.split_once('=')?;
        let (key, value) = (key.to_owned(), value.parse::<u64>().ok().filter(|_| key != "size")?);
        let other = by(value);
        let mut fields: Vec<String> = fields.iter().map(|f| (*f).to_owned()).collect();
        fields[at] = format!("{key}={other}");
        Some((key, fields.join(" "), [value, other]))
    });
    numbers.collect()
}

#[test]
fn what_is_wrong_by_one_is_refused_in_full_mode() {
    let Some((trace, lines)) = traced("what_is_wrong_by_one_is_refused_in_full_mode", Mode::Full) else { return };
    let mut refused = 0;
    for line in &lines {
        holds(&trace, line).unwrap_or_else(|why| panic!("{line}: {why}"));
        for by in [|n: u64| n + 1, |n: u64| n.saturating_sub(1)] {
            for (key, wrong, [value, other]) in falsified(line, by).into_iter().filter(|(.., [value, other])| value != other) {
                let why = holds(&trace, &wrong).expect_err(&wrong);
                assert!(why.contains(&other.to_string()) && why.contains(&value.to_string()), "{key} in {wrong}: {why}");
                refused += 1;
            }
        }
    }
    assert!(refused >= 8, "{lines:?}");
}

#[test]
fn what_is_far_off_is_refused_in_fast_mode() {
    let Some((trace, lines)) = traced("what_is_far_off_is_refused_in_fast_mode", Mode::Fast) else { return };
    let mut refused = 0;
    for line in &lines {
        holds(&trace, line).unwrap_or_else(|why| panic!("{line}: {why}"));
        // Of peaks and leaks of small sizes fast mode knows no more than that all blocks had no lower one.
        for (key, wrong, _) in
            falsified(line, |n| n * 1000 + 1_000_000).into_iter().filter(|(key, ..)| !key.starts_with("leaked") && key != "peak_live")
        {
            let why = holds(&trace, &wrong).expect_err(&format!("{key}: {wrong}"));
            assert!(why.len() > 20, "{why}");
            refused += 1;
        }
    }
    assert!(refused >= 4, "{lines:?}");
}

#[test]
fn nothing_to_compare_with_is_no_success() {
    let Some((trace, _)) = traced("nothing_to_compare_with_is_no_success", Mode::Full) else { return };
    let why = check_truth(&trace, b"").expect_err("no line");
    assert!(why.contains("no TRUTH line"), "{why}");
    let why = check_truth(&trace, b"TRUTH colour=3\n").expect_err("an unknown form");
    assert!(why.contains("colour=3"), "{why}");
}
