//! A whole file to `analyze`.
#![no_main]
use libfuzzer_sys::fuzz_target;
use memshim::analyze::{Options, analyze};
use memshim::output::json;
use memshim::output::text::{Style, render};

fuzz_target!(|bytes: &[u8]| {
    let path = std::env::temp_dir().join(format!("memshim-fuzz-{}.jsonl", std::process::id()));
    std::fs::write(&path, bytes).expect("a file to read");
    let options = Options { sizes: vec![64], parallel: 1, ..Options::default() };
    if let Ok(report) = analyze(std::slice::from_ref(&path), &options, &Default::default()) {
        for run in &report.runs {
            assert_eq!(run.events.counted, run.events.recorded + run.events.lost);
        }
        let text = render(&report, &Style { width: 80, unicode: true, pid: None, traces: vec!["t".into()] });
        assert!(text.chars().all(|c| c == '\n' || c == '\u{1b}' || !c.is_control()));
        json::write(&report, &mut std::io::sink()).expect("a sink takes everything");
    }
});
