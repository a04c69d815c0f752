//! The `jq` lines of the documents, run as they stand there on a trace of a real program, and what they answer.
mod support;
use serde_json::Value;
use std::collections::BTreeMap;
use support::jq::{ask, questions};
use support::{Mode, Need, Program, lacks};

/// The answer to the only question that holds these words.
fn answer(of: &BTreeMap<String, String>, words: &str) -> String {
    let found: Vec<_> = of.iter().filter(|(q, _)| q.contains(words)).collect();
    assert_eq!(found.len(), 1, "{words}: {found:?}");
    found[0].1.trim().to_owned()
}

#[test]
fn the_documented_jq_lines_answer_what_they_say() {
    let test = "the_documented_jq_lines_answer_what_they_say";
    if lacks(test, &[Need::Command("jq"), Need::Preload]) {
        return;
    }
    let Some((trace, report)) = Program::new(test, "heap_threads.c").arg("exchange").traced(Mode::Run) else { return };
    let folder = trace.parent().unwrap();
    std::fs::write(folder.join("a.json"), report.to_string()).unwrap();
    if trace.file_name().unwrap() != "trace.jsonl" {
        std::fs::copy(&trace, folder.join("trace.jsonl")).unwrap();
    }
    let of_format: BTreeMap<String, String> = questions("docs/trace-format.md").into_iter().map(|q| (q.clone(), ask(&q, folder))).collect();
    let of_guide = questions("docs/guide.md");
    assert!(of_format.len() >= 10 && of_guide.len() >= 8, "{} {}", of_format.len(), of_guide.len());
    // Those about GPUs are asked where there is one (`tests/cuda`).
    for question in of_guide.iter().filter(|q| !q.contains(".gpu")) {
        assert!(!ask(question, folder).is_empty() || question.contains("maps"), "{question} says nothing");
    }

    let run = &report["runs"][0];
    let sums: Value = serde_json::from_str(&answer(&of_format, "{allocs:")).unwrap();
    assert_eq!(
        (&sums["allocs"], &sums["bytes"]),
        (&run["heap"]["allocs"], &run["heap"]["requested_bytes"]),
        "the sums of the lines are those of analyze"
    );
    let by_function = answer(&of_format, "to_entries");
    let (calls, bytes) = (&run["heap"]["by_function"]["malloc"]["allocs"], &run["heap"]["by_function"]["malloc"]["bytes"]);
    assert!(by_function.lines().any(|l| l == format!("malloc\t{calls}\t{bytes}")), "{by_function}");
    assert_eq!(answer(&of_format, ".hwm"), run["rss"]["hwm_bytes"].to_string());
    assert_eq!(answer(&of_format, "(0; $c.live)"), run["heap"]["usable"]["live_bytes"].to_string());
    assert!(answer(&of_format, ".mode").starts_with(&format!("{} full ", run["pid"])));
    assert!(answer(&of_format, "\"outside\"").contains(r#""how":"exit","code":0"#));
}
