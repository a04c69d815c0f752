//! What is promised of real programs of PyTorch: what `torch.compile` compiles is known, and PyTorch's own profiler hears of memory as ever. Runs where `MEMSHIM_TORCH_PYTHON` names an interpreter that has PyTorch
//! 2.15 or so, whose C++ compiler works.
mod support;

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use support::{Need, fresh_dir, lacks, lossy, memshim, root, skip};

fn pytorch(test: &str, needs: &[Need]) -> Option<PathBuf> {
    let python = std::env::var_os("MEMSHIM_TORCH_PYTHON").map(PathBuf::from);
    if python.is_none() {
        skip(test, "needs PyTorch (MEMSHIM_TORCH_PYTHON)");
    }
    python.filter(|_| !lacks(test, needs))
}

/// What it says by way of the function of `c10` that memshim stands in front of.
#[test]
fn pytorchs_own_profiler_hears_of_memory() {
    let Some(python) = pytorch("pytorchs_own_profiler_hears_of_memory", &[Need::Preload]) else { return };
    let said = ["", support::shim().to_str().expect("a path")].map(|preload| {
        let mut c = Command::new(&python);
        c.arg(root().join("tests/programs/torch_profiled.py")).current_dir(fresh_dir("torch-profiled")).env("LD_PRELOAD", preload);
        let o = c.output().expect("it runs");
        assert_eq!(o.status.code(), Some(0), "{}", lossy(&o.stderr));
        lossy(&o.stdout)
    });
    assert!(said[0] == said[1] && said[0].contains("('aten::empty', 4194304)"), "{said:?}");
}

#[test]
fn a_torch_program_has_its_compilations() {
    let Some(python) = pytorch("a_torch_program_has_its_compilations", &[Need::Preload, Need::Command("g++")]) else { return };
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
