//! Promises of the examples: each runs under `memshim run` as it runs alone, says its phases in lines, and what its stages hold stands in the trace.
mod support;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use support::{Need, Session, lossy, python, skip};

/// What an example printed and its run, or nothing where a package is missing.
fn example(test: &str, needs: &[Need], script: &str, args: &[&str]) -> Option<(String, Value)> {
    if support::lacks(test, needs) {
        return None;
    }
    let Some(python) = python() else {
        skip(test, "needs python3");
        return None;
    };
    let dir = support::fresh_dir(test);
    let trace = dir.join("t.jsonl");
    let script = support::root().join("examples").join(script);
    let run = |command: &mut Command| {
        let command = command.args(args).current_dir(&dir).env("OPENBLAS_NUM_THREADS", "1").env("PYTHONHASHSEED", "0");
        Session::start(command, &dir).finish(Duration::from_secs(120))
    };
    let bare = run(Command::new(python).arg(&script));
    let mut under = Command::new(support::memshim());
    under.args(["run", "-q", "--mode", "full", "-o"]).arg(&trace).arg("--").arg(python).arg(&script);
    let under = run(&mut under);
    assert_eq!((bare.end(), under.end()), ("exit 0".into(), "exit 0".into()), "{}{}", lossy(&bare.stderr), lossy(&under.stderr));
    assert_eq!(lossy(&bare.stdout), lossy(&under.stdout));
    let report: Value = serde_json::from_str(&support::analyze(&trace).unwrap()).unwrap();
    let run = report["runs"].as_array().unwrap().iter().find(|r| r["python"]["version"].is_string()).expect("a Python process").clone();
    assert_eq!(run["events"]["lost"], 0, "{}", run["missing"]);
    Some((lossy(&under.stdout), run))
}

/// The names of the phases that were printed.
fn phases(said: &str) -> Vec<&str> {
    said.lines().filter_map(|l| l.strip_prefix("phase ")).collect()
}

/// Bytes live at the peak that functions of a script asked for.
fn held_by(run: &Value, script: &str, functions: &[&str]) -> u64 {
    let own = |f: &Value| {
        f["file"].as_str().is_some_and(|file| file.ends_with(script))
            && f["function"].as_str().is_some_and(|name| functions.contains(&name))
    };
    let sites = run["sites"].as_array().unwrap().iter();
    sites
        .filter(|s| s["kind"] == "heap" && s["frames"].as_array().unwrap().iter().any(own))
        .map(|s| s["live_at_peak_bytes"].as_u64().unwrap())
        .sum()
}

#[test]
fn arrays_of_the_covariance_pipeline_are_what_its_formulas_say() {
    let needs = [Need::Module("numpy"), Need::Module("scipy.linalg")];
    for (path, pixels, peak_in, stages) in [
        ("harmonic", "800", "basis_setup", &["covariance_setup", "harmonic_basis_setup"][..]),
        ("pixel-direct", "500", "fisher_run", &["covariance_setup", "pixel_basis_setup", "pixel_fisher_run"]),
    ] {
        let Some((said, run)) = example(&format!("example_{path}"), &needs, "covariance_pipeline.py", &[path, pixels]) else { return };
        assert_eq!(phases(&said), ["covariance_setup", "basis_setup", "fisher_run", "spectra_run", "end"]);
        let line = said.lines().find(|l| l.starts_with(&format!("expect {peak_in} "))).unwrap();
        let want: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        let got = held_by(&run, "covariance_pipeline.py", stages);
        assert!(got.abs_diff(want) < want / 100, "{path}: {got} bytes at the peak, {want} by formula");
        assert!(run["heap"]["peak_bytes"].as_u64().unwrap() >= want);
    }
}

#[test]
fn steps_of_molecular_dynamics() {
    let Some((said, run)) = example("example_md", &[Need::Module("ase.calculators.emt")], "md_steps.py", &["6", "2"]) else { return };
    assert_eq!(phases(&said), ["build", "first_forces", "trajectory", "end"]);
    assert_eq!(said.lines().filter(|l| l.starts_with("step ")).count(), 6);
    assert!(run["heap"]["peak_bytes"].as_u64().unwrap() > 1 << 20);
}

#[test]
fn a_fit_that_compiles_twice() {
    let Some((said, run)) = example("example_jax", &[Need::Module("jax")], "jax_fit.py", &["4"]) else { return };
    assert_eq!(phases(&said), ["first_fit", "second_fit", "recompiled_fit", "end"]);
    assert!(said.ends_with("compiled 2 times\n"), "{said}");
    // Compiling is what the memory goes to; it is asked for by the line that calls the compiled function first.
    let fits = held_by(&run, "jax_fit.py", &["fit"]);
    assert!(fits > 1 << 20, "{fits} bytes by fits");
}

#[test]
fn phase_estimation_is_built_compiled_and_run() {
    let needs = [Need::Module("pennylane"), Need::Module("pyscf")];
    let Some((said, _)) = example("example_qpe", &needs, "qpe_compile.py", &["2", "1", "2"]) else { return };
    assert_eq!(phases(&said), ["hamiltonian_build", "circuit_compile", "circuit_execute", "end"]);
    assert!(said.contains("Hartree-Fock -1.116759 Ha, 15 terms"), "{said}");
}

#[test]
fn a_kernel_matrix_in_tiles() {
    let Some((said, run)) = example("example_kernel", &[Need::Module("numpy")], "kernel_matrix_gpu.py", &["600", "8", "300"]) else {
        return;
    };
    assert_eq!(phases(&said), ["prepare_states", "upload", "kernel_tiles", "end"]);
    assert_eq!(said.lines().filter(|l| l.starts_with("step ")).count(), 4);
    // The two sets of states and the matrix they make.
    let held = held_by(&run, "kernel_matrix_gpu.py", &["prepare_states", "kernel_tiles"]);
    let arrays = 2 * 600 * 256 * 16 + 600 * 600 * 8;
    assert!(held >= arrays, "{held} bytes of {arrays}");
}

#[test]
fn an_example_without_its_packages_says_what_to_install() {
    let Some(python) = python() else { return skip("an_example_without_its_packages_says_what_to_install", "needs python3") };
    for (script, package) in [
        ("md_steps.py", "pip install ase"),
        ("jax_fit.py", "pip install jax"),
        ("qpe_compile.py", "pip install pennylane pyscf"),
        ("covariance_pipeline.py", "pip install numpy scipy"),
        ("kernel_matrix_gpu.py", "pip install numpy"),
    ] {
        // Isolated, and without site-packages: nothing but the standard library is there.
        let out = Command::new(python).args(["-I", "-S"]).arg(support::root().join("examples").join(script)).output().unwrap();
        assert_eq!((out.status.code(), out.stdout.len()), (Some(1), 0), "{script}");
        let said = lossy(&out.stderr);
        assert!(said.starts_with(script) && said.contains(package) && said.lines().count() == 1, "{said}");
    }
}
