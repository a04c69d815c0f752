//! Promises about storage trouble: the target does not notice.
mod support;
use support::{Mode, Program};

promises! {
    a_full_disk_is_survived: "confined.c" ["storage"].trace_at("/dev/full").trouble();
    a_missing_folder_is_survived: "confined.c" ["storage"].trace_at("/no/such/folder/trace.jsonl").trouble();
    a_file_size_limit_is_survived: "confined.c" ["file-size"].trouble();
    a_removed_trace_folder_is_survived: "confined.c" ["folder-removed", "{traces}"].trouble();
    a_compressed_trace_holds_the_same: "heap_edges.c" ["chain"].trace_named("trace.jsonl.zst");
}

#[test]
fn a_capped_trace_says_what_it_left_out() {
    let program = Program::new("a_capped_trace_says_what_it_left_out", "heap_threads.c").arg("exchange").env("MEMSHIM_MAX", "256KiB");
    let Some(report) = program.report(Mode::Full) else {
        return;
    };
    let events = &report["runs"][0]["events"];
    let number = |key: &str| events[key].as_u64().unwrap_or_else(|| panic!("no events.{key}"));
    assert!(number("counted") >= 360_000, "all are counted: {events}");
    assert_eq!(number("counted"), number("recorded") + number("lost"), "{events}");
    let trace = support::run_dir("a_capped_trace_says_what_it_left_out").join("full/trace/trace.jsonl");
    let bytes = std::fs::metadata(&trace).expect("a trace").len();
    assert!(bytes < 1 << 20, "the trace is {bytes} bytes long");
}
