//! Promises about what is seen beside phases: compilations by their notices, files by their writes.
mod support;

use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use support::{Need, fresh_dir, lacks, lossy, memshim, python, root};

fn report(dir: &Path) -> Value {
    serde_json::from_str(&support::analyze(&dir.join("trace.jsonl")).unwrap()).unwrap()
}

fn run(dir: &Path, flags: &[&str], command: &[&str]) -> Command {
    let mut c = Command::new(memshim());
    c.current_dir(dir).args(["run", "-q"]).args(flags).arg("--").args(command);
    c
}

#[test]
fn a_real_jax_program_compiles_for_three_shapes() {
    if lacks("a_real_jax_program_compiles_for_three_shapes", &[Need::Module("jax")]) {
        return;
    }
    let dir = fresh_dir("compiles-jax");
    let (python, program) = (python().unwrap(), root().join("tests/programs/jax_three_shapes.py"));
    let mut command = run(&dir, &["--compiles"], &[python.to_str().unwrap(), program.to_str().unwrap()]);
    let o = command.env("JAX_LOG_COMPILES", "1").env("JAX_PLATFORMS", "cpu").output().unwrap();
    assert_eq!((lossy(&o.stdout).as_str(), o.status.code()), ("done\n", Some(0)), "{}", lossy(&o.stderr));
    let said = lossy(&o.stderr);
    assert!(said.contains("Compiling jit(three_shapes)"), "the notices themselves arrive: {said}");
    let all = report(&dir)["runs"][0]["compiles"].clone();
    let of = |name: &str| all.as_array().unwrap().iter().find(|c| c["function"] == name).unwrap_or_else(|| panic!("{all}")).clone();
    let three = of("three_shapes");
    assert_eq!((&three["count"], &three["recompiles"], &three["by"]), (&json!(3), &json!(2), &json!("jax")));
    let shapes: Vec<&Value> = three["signatures"].as_array().unwrap().iter().map(|s| &s["arguments"]).collect();
    assert_eq!(
        shapes,
        [&json!(["float32[3,2]", "float32[]"]), &json!(["float32[5,2]", "float32[]"]), &json!(["float32[7,2]", "float32[]"])]
    );
    let changed: Vec<&Value> = three["signatures"].as_array().unwrap().iter().map(|s| &s["changed"]).collect();
    let arrow = |a: u32, b: u32| json!([format!("argument 0: float32[{a},2] → float32[{b},2]")]);
    assert_eq!(changed, [&json!([]), &arrow(3, 5), &arrow(5, 7)]);
    // JAX's own figures: tracing, lowering, XLA.
    let sum: f64 = said
        .lines()
        .filter(|l| l.starts_with("Finished") && l.contains("three_shapes"))
        .map(|l| l.rsplit(" in ").next().unwrap().trim_end_matches(" sec").parse::<f64>().unwrap())
        .sum();
    assert!((three["wall_s"].as_f64().unwrap() - sum).abs() < 1e-6, "{three} {sum}");
    assert_eq!((&of("once")["count"], &of("once")["recompiles"]), (&json!(1), &json!(0)));
}

#[test]
fn a_real_numba_program_compiles_for_three_types_and_then_no_more() {
    if lacks("a_real_numba_program_compiles_for_three_types_and_then_no_more", &[Need::Module("numba")]) {
        return;
    }
    let dir = fresh_dir("compiles-numba");
    let (python, program) = (python().unwrap(), root().join("tests/programs/numba_three_types.py"));
    let arguments = [python.to_str().unwrap(), program.to_str().unwrap()];
    let settings = [("NUMBA_DEBUG_CACHE", "1".into()), ("NUMBA_CACHE_DIR", dir.join("cache").into_os_string())];
    for already in [false, true] {
        let o = run(&dir, &["--compiles"], &arguments).envs(settings.clone()).output().unwrap();
        let own: Vec<String> = lossy(&o.stdout).lines().filter(|l| !l.starts_with("[cache]")).map(str::to_owned).collect();
        assert_eq!((own, o.status.code()), (vec!["10.0 1.0".to_owned(); 4], Some(0)), "{}", lossy(&o.stderr));
        let all = report(&dir)["runs"][0]["compiles"].clone();
        if already {
            assert_eq!(all, json!([]), "what is loaded is not compiled");
            continue;
        }
        let of = |key: &str| all[0][key].clone();
        assert_eq!(
            (of("by"), of("function"), of("count"), of("recompiles")),
            (json!("numba"), json!("numba_three_types.total"), json!(3), json!(2))
        );
        assert_eq!((of("wall_s"), all.as_array().unwrap().len()), (Value::Null, 1));
        let screen = Command::new(memshim()).args(["analyze", "--no-color"]).arg(dir.join("trace.jsonl")).output().unwrap();
        let screen = lossy(&screen.stdout);
        assert!(screen.contains("COMPILES  3 compilations of 1 function, 2 of them again\n"), "{screen}");
    }
}

#[test]
fn notices_of_other_compilers_are_told_apart() {
    let dir = fresh_dir("compiles-others");
    let text = "V0612 10:11:12.1 9 torch/_dynamo/guards.py:2887] [0/1] [__recompiles] Recompiling function forward in /w/model.py:12\n\
        V0612 10:11:12.1 9 torch/_dynamo/guards.py:2887] [0/1] [__recompiles]     triggered by the following guard failure(s):\n\
        V0612 10:11:12.1 9 torch/_dynamo/guards.py:2887] [0/1] [__recompiles]     - 0/0: tensor 'x' size mismatch at index 0. expected 3, actual 5\n\
        Triton autotuning for function matmul,\nwith key as (512, 'f32'),\nfinished after 1.25s,\nbest config selected: BLOCK: 64;\n\
        [cache] data saved to '/w/__pycache__/model.step-12.py311.1.nbc'\n";
    std::fs::write(dir.join("log"), text).unwrap();
    assert!(run(&dir, &["--compiles"], &["sh", "-c", "cat log >&2"]).output().unwrap().status.success());
    let report = report(&dir);
    let all = report["runs"][0]["compiles"].as_array().unwrap();
    let short: Vec<_> =
        all.iter().map(|c| (c["by"].as_str().unwrap(), c["function"].as_str().unwrap(), c["recompiles"].as_u64().unwrap())).collect();
    assert_eq!(short, [("triton", "matmul", 0), ("numba", "model.step", 0), ("torch", "forward (model.py:12)", 1)]);
    assert_eq!(all[2]["signatures"][0]["why"], "tensor 'x' size mismatch at index 0. expected 3, actual 5");
    assert_eq!(all[0]["signatures"][0]["arguments"], json!(["512", "'f32'"]));
}

#[test]
fn files_written_are_counted_as_wc_counts_them() {
    let dir = fresh_dir("artifacts");
    std::fs::create_dir(dir.join("dump")).unwrap();
    std::fs::write(dir.join("dump/before.ll"), "x\n").unwrap();
    let script = "say() { echo Phase $1; sleep 0.15; }
        say build; mkdir dump/stage1; seq 1000 > dump/stage1/a.ll; printf 'no end' > dump/b.ll; sleep 0.05
        say lower; seq 5 > dump/tmp.ll; sleep 0.1; rm dump/tmp.ll; seq 7 > dump/other.txt; cp /bin/true dump/stage1/c.ll; echo y >> dump/b.ll; sleep 0.1
        say done; wc -lc dump/stage1/a.ll dump/b.ll dump/stage1/c.ll";
    let o = run(&dir, &["--phase-on", "Phase (\\w+)", "--artifacts", "dump/**/*.ll"], &["sh", "-c", script]).output().unwrap();
    let said = lossy(&o.stdout);
    let wc = |name: &str| {
        let line = said.lines().find(|l| l.ends_with(name)).unwrap_or_else(|| panic!("{said}"));
        let mut n = line.split_ascii_whitespace().map(|n| n.parse::<u64>());
        (n.next().unwrap().unwrap(), n.next().unwrap().unwrap())
    };
    let report = report(&dir);
    let first = report["runs"].as_array().unwrap().iter().find(|r| !r["artifacts"].as_array().unwrap().is_empty()).unwrap();
    let all: Vec<_> = first["artifacts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|a| {
            let counts = (a["lines"].as_u64().unwrap(), a["bytes"].as_u64().unwrap());
            (a["path"].as_str().unwrap(), counts, a["phase"].as_str().unwrap(), a["deleted"].as_bool().unwrap())
        })
        .collect();
    let of = |name: &'static str, phase: &'static str| (name, wc(name), phase, false);
    let want = [
        of("dump/stage1/a.ll", "build"),
        ("dump/tmp.ll", (5, 10), "lower", true),
        of("dump/stage1/c.ll", "lower"),
        of("dump/b.ll", "lower"),
    ];
    assert_eq!(all, want);
    let screen = Command::new(memshim())
        .args(["analyze", "--no-color"])
        .arg(dir.join("trace.jsonl"))
        .args(["--pid", &first["pid"].to_string()])
        .output()
        .unwrap();
    let screen = lossy(&screen.stdout);
    assert!(screen.contains("FILES     4 written") && screen.contains("dump/tmp.ll (gone)"), "{screen}");
    let wrong = run(&dir, &["--artifacts", "dump/["], &["true"]).output().unwrap();
    assert!(
        wrong.status.code() == Some(125) && lossy(&wrong.stderr).contains("--artifacts dump/[: a `[` without its `]`"),
        "{}",
        lossy(&wrong.stderr)
    );
}

#[test]
fn a_crowded_place_hides_no_other_and_what_is_left_out_is_said() {
    let dir = fresh_dir("artifacts-crowd");
    for n in 0..10_050 {
        std::fs::create_dir_all(dir.join(format!("crowd/{n}"))).unwrap();
    }
    std::fs::write(dir.join("crowd/10049/before.ll"), "old\n").unwrap();
    let script = "mkdir kept crowd/new crowd/0/below; echo a > kept/a; sleep 0.1; echo b > crowd/new/b; echo c > crowd/0/below/c; sleep 0.2; rm crowd/new/b";
    let files = |report: &Value| -> Vec<String> {
        let all = report["runs"].as_array().unwrap().iter().flat_map(|r| r["artifacts"].as_array().unwrap());
        let mut all: Vec<String> = all.map(|a| format!("{} {} {}", a["path"].as_str().unwrap(), a["bytes"], a["deleted"])).collect();
        all.sort();
        all
    };
    // Only names at one level are asked for: nothing is too much.
    let o = run(&dir, &["--artifacts", "crow*/*", "--artifacts", "kept"], &["sh", "-c", "mkdir kept; echo a > kept/a; echo d > crowd/d"])
        .output();
    let o = o.unwrap();
    assert_eq!((lossy(&o.stderr).as_str(), o.status.code()), ("", Some(0)));
    let whole = report(&dir);
    assert_eq!(files(&whole), ["crowd/d 2 false", "kept/a 2 false"]);
    assert_eq!(whole["runs"][0]["missing"], json!([]));
    std::fs::remove_dir_all(dir.join("kept")).unwrap();

    let o = run(&dir, &["--artifacts", "crowd/**", "--artifacts", "kept"], &["sh", "-c", script]).output().unwrap();
    assert_eq!(o.status.code(), Some(0));
    let said = lossy(&o.stderr);
    assert!(
        said.starts_with("memshim: --artifacts `crowd/**`: too many folders") && said.contains("name the folder more closely"),
        "{said}"
    );
    let cut = report(&dir);
    assert_eq!(files(&cut), ["crowd/0/below/c 2 false", "crowd/new/b 2 true", "kept/a 2 false"]);
    let missing = cut["runs"].as_array().unwrap().iter().flat_map(|r| r["missing"].as_array().unwrap());
    let folders: Vec<&Value> = missing.filter(|m| m["what"] == "folders of --artifacts").collect();
    assert_eq!(folders.len(), 1, "{cut}");
    assert!(folders[0]["count"].as_u64() >= Some(50), "{folders:?}");
}
