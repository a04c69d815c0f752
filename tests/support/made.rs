//! Reports about traces that a test has made.

use memshim::analyze::report::{Report, Run};
use memshim::analyze::{Options, analyze};

pub fn analyze_with(bytes: &[u8], options: &Options) -> Report {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.jsonl");
    std::fs::write(&path, bytes).unwrap();
    analyze(&[path], options, &Default::default()).unwrap()
}

pub fn run_of(bytes: &[u8]) -> Run {
    analyze_with(bytes, &Options::default()).runs.remove(0)
}
