//! What is promised of a real program that compiles functions with `torch.compile`. Runs where `MEMSHIM_TORCH_PYTHON` names an interpreter that has PyTorch
//! 2.15 or so, whose C++ compiler works.
mod support;

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use support::{Need, fresh_dir, lacks, lossy, memshim, root, skip};

const NAME: &str = "a_torch_program_has_its_compilations";

#[test]
fn a_torch_program_has_its_compilations() {
    let Some(python) = std::env::var_os("MEMSHIM_TORCH_PYTHON").map(PathBuf::from) else {
        return skip(NAME, "needs PyTorch (MEMSHIM_TORCH_PYTHON)");
    };
    if lacks(NAME, &[Need::Preload, Need::Command("g++")]) {
        return;
    }
    let program = root().join("tests/programs/torch_compiled.py");
    for logs in ["recompiles,dynamo,inductor", "recompiles"] {
        let dir = fresh_dir("torch");
        let mut c = Command::new(memshim());
        // What the C++ compiler made may be there; graphs are lowered each time.
        c.current_dir(&dir).env("TORCH_LOGS", logs).env("TORCHINDUCTOR_FX_GRAPH_CACHE", "0").env("TORCHINDUCTOR_AUTOGRAD_CACHE", "0");
        let o = c.args(["run", "-q", "--compiles", "--"]).arg(&python).arg(&program).output().unwrap();
        assert_eq!(o.status.code(), Some(0), "{}", lossy(&o.stderr));
        let said = lossy(&o.stdout);
        let truth: BTreeMap<String, u64> = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        let report: Value = serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).unwrap()).unwrap();
        let all = report["runs"][0]["compiles"].as_array().unwrap();
        let whole = logs.contains("dynamo");
        // Without dynamo's log only what is compiled again is said.
        let again = |n: u64| if whole { n } else { n - 1 };
        for (function, n) in &truth {
            let of = all.iter().find(|c| c["by"] == "torch" && c["function"].as_str().unwrap().starts_with(function.as_str()));
            let of = of.unwrap_or_else(|| panic!("{logs}: no {function} in {all:?}"));
            assert_eq!((of["count"].as_u64().unwrap(), of["recompiles"].as_u64().unwrap()), (again(*n), n - 1), "{logs}: {of}");
            assert_eq!(of["wall_s"].is_f64(), whole, "{logs}: {of}");
        }
        let why = |function: &str| -> Vec<&str> {
            let of = all.iter().find(|c| c["by"] == "torch" && c["function"].as_str().unwrap().starts_with(function)).unwrap();
            of["signatures"].as_array().unwrap().iter().filter_map(|s| s["why"].as_str()).collect()
        };
        assert_eq!(why("by_number"), ["n == 1", "n == 2"], "{logs}");
        let scaled = why("scaled");
        let kinds = ["size mismatch at index 0. expected 3, actual 5", "rank mismatch. expected 1, actual 2", "dtype mismatch"];
        assert_eq!(scaled.len(), kinds.len(), "{logs}: {scaled:?}");
        for (why, kind) in scaled.iter().zip(kinds) {
            assert!(why.starts_with("tensor 'x' ") && why.contains(kind), "{logs}: {why}");
        }
        let graphs = all.iter().filter(|c| c["by"] == "inductor").count() as u64;
        assert_eq!(graphs, if whole { truth["scaled"] } else { 0 }, "{logs}");
    }
}
