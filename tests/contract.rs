//! The keys that `analyze --json` promises: stable from the first release on. There may be more; none may be renamed.

#[path = "support/lines.rs"]
mod lines;
use memshim::analyze::report::Advice;
use memshim::analyze::{Options, analyze};
use serde_json::Value;

/// By path; `[]` is any row of a list, of which there is one.
const KEYS: &str = "
    schema
    runs[]: pid ppid rank host command[] python mode start wall_s cpu_s end events heap maps rss children phases[] sites[] threads[] gpu compiles[] artifacts[] advice
    runs[].end: kind code signal
    runs[].events: counted recorded lost unknown_frees failed
    runs[].heap: allocs frees reallocs requested_bytes live_bytes peak_bytes peak_bound_bytes peak_at_s temporary_allocs leaked_bytes leaked_allocs by_function sizes
    runs[].heap.by_function.malloc: allocs frees bytes
    runs[].maps.anon: committed_bytes peak_bytes reserved_bytes
    runs[].maps.file: committed_bytes peak_bytes reserved_bytes
    runs[].maps.shared: committed_bytes peak_bytes reserved_bytes
    runs[].maps.stack: committed_bytes peak_bytes reserved_bytes
    runs[].maps.brk: committed_bytes peak_bytes reserved_bytes
    runs[].rss: peak_bytes peak_at_s hwm_bytes outside_hwm_bytes at_peak
    runs[].rss.at_peak: anon file shmem hugetlb heap unaccounted
    runs[].python: live_bytes peak_bytes
    runs[].children: rss_peak_bytes count
    runs[].phases[]: name source path[] count wall_s self_wall_s latency heap_peak_bytes heap_persistent_bytes heap_transient_bytes rss_peak_bytes map_peak_bytes
    runs[].phases[]: gpu_peak_bytes pinned_peak_bytes children_peak_bytes growth_per_count_bytes h2d_bytes d2h_bytes
    runs[].phases[].latency: mean median p95 p99 min max cv
    runs[].sites[]: frames[] kind live_at_peak_bytes peak_bytes total_bytes allocs temporary_allocs leaked_bytes stderr_bytes
    runs[].threads[]: tid name allocs bytes peak_bytes
    runs[].gpu: devices[] pinned_peak_bytes transfers[] streams[] graphs[]
    runs[].gpu.devices[]: index name total_bytes live_bytes peak_bytes reserved_peak_bytes framework unattributed_bytes
    runs[].gpu.devices[].framework.torch: allocated_peak_bytes reserved_peak_bytes
    runs[].gpu.transfers[]: direction memory device count bytes device_s wall_s gb_per_s p50_gb_per_s max_gb_per_s timing
    runs[].gpu.streams[]: id device busy_s utilization copies kernels overlap_s
    runs[].gpu.graphs[]: id captures instantiations updates launches reuse_rate
    runs[].compiles[]: function count recompiles signatures[]
    runs[].artifacts[]: path phase bytes lines
    job: ranks hosts peak_bytes imbalance worst_rank request_mem_bytes
";

/// The value at a path, where there is one.
fn at<'a>(report: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(report, |of, step| match step.strip_suffix("[]") {
        Some(list) => of.get(list)?.get(0),
        None => of.get(step),
    })
}

/// The promised paths: those that hold, and those below them.
fn promised() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = KEYS.lines().map(str::trim).filter(|line| !line.is_empty());
    let of = |line: &'static str| line.split_once(": ").unwrap_or(("", line));
    lines.map(of).flat_map(|(of, keys)| keys.split(' ').map(move |key| (of, key)))
}

fn report(trace: &str, side: &str) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    std::fs::write(&path, trace).unwrap();
    std::fs::write(path.with_extension("jsonl.marks"), side).unwrap();
    serde_json::to_value(analyze(&[path], &Options::default(), &Default::default()).unwrap()).unwrap()
}

#[test]
fn every_key_of_the_contract_is_there_under_its_name() {
    let report = report(lines::LAYERS, lines::MARKS);
    let paths: Vec<String> = promised().map(|(of, key)| format!("{of}.{key}").trim_start_matches('.').to_owned()).collect();
    assert!(paths.len() > 150, "{}", paths.len());
    let missing: Vec<&String> = paths.iter().filter(|path| at(&report, path).is_none()).collect();
    assert!(missing.is_empty(), "{missing:?}\n{report:#}");
    let advice = serde_json::to_value(Advice::default()).unwrap();
    assert!(["what", "evidence", "gain_bytes"].iter().all(|key| advice.get(key).is_some()), "{advice}");
}

/// What a run has nothing of is null, or an empty list: its key is there.
#[test]
fn a_key_is_there_where_a_trace_has_nothing_for_it() {
    let report = report(lines::CALLS, "");
    let always =
        |of: &str| of.matches("[]").count() <= 1 && !["gpu", "python", "by_function", "at_peak"].iter().any(|part| of.contains(part));
    let mut looked = 0;
    for (of, key) in promised().filter(|(of, _)| always(of)) {
        let path = format!("{of}.{}", key.trim_end_matches("[]"));
        assert!(at(&report, path.trim_start_matches('.')).is_some(), "{path}");
        looked += 1;
    }
    assert!(looked > 70, "{looked}");
}
