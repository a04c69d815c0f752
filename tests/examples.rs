//! Promises of the examples: each runs under `memshim run` as it runs alone, says its phases in lines, and what its stages hold stands in the trace.
mod support;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use support::{Need, Ran, Session, lossy, python, skip};

/// How an example is run.
#[derive(Default)]
struct Example {
    script: &'static str,
    args: &'static [&'static str],
    /// Of `memshim run`.
    flags: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
    needs: &'static [Need],
}

/// What came of it: what it printed, and its run in the report.
struct Seen {
    stdout: String,
    stderr: String,
    run: Value,
}

impl Example {
    /// Under memshim as alone, or nothing where a package is missing.
    fn compared(&self, test: &str) -> Option<Seen> {
        let python = self.interpreter(test)?;
        let dir = support::fresh_dir(&format!("{test}/bare"));
        let mut command = Command::new(python);
        let bare = self.run(command.arg(self.path()), &dir);
        let seen = self.recorded(test, python, &[])?;
        assert_eq!((bare.end().as_str(), lossy(&bare.stdout)), ("exit 0", seen.stdout.clone()), "{}", lossy(&bare.stderr));
        Some(seen)
    }

    fn interpreter(&self, test: &str) -> Option<&'static Path> {
        if support::lacks(test, self.needs) {
            return None;
        }
        python().or_else(|| {
            skip(test, "needs python3");
            None
        })
    }

    fn path(&self) -> PathBuf {
        support::root().join("examples").join(self.script)
    }

    /// With words for the interpreter before the script.
    fn recorded(&self, test: &str, python: &Path, before: &[&str]) -> Option<Seen> {
        let dir = support::fresh_dir(test);
        let trace = dir.join("t.jsonl");
        let mut command = Command::new(support::memshim());
        command
            .args(["run", "-q", "--mode", "full", "-o"])
            .arg(&trace)
            .args(self.flags)
            .arg("--")
            .arg(python)
            .args(before)
            .arg(self.path());
        let ran = self.run(&mut command, &dir);
        let (stdout, stderr) = (lossy(&ran.stdout), lossy(&ran.stderr));
        assert_eq!(ran.end(), "exit 0", "{stderr}");
        let report: Value = serde_json::from_str(&support::analyze(&trace).unwrap()).unwrap();
        let run = report["runs"][0].clone();
        assert_eq!(run["events"]["lost"], 0, "{}", run["missing"]);
        Some(Seen { stdout, stderr, run })
    }

    fn run(&self, command: &mut Command, dir: &Path) -> Ran {
        command.args(self.args).current_dir(dir).env("OPENBLAS_NUM_THREADS", "1").env("PYTHONHASHSEED", "0").envs(self.env.iter().copied());
        Session::start(command, dir).finish(Duration::from_secs(180))
    }
}

impl Seen {
    /// The phase of a name, whatever stands around it.
    fn phase(&self, name: &str) -> &Value {
        let all = self.run["phases"].as_array().expect("phases");
        all.iter().find(|p| p["name"] == name).unwrap_or_else(|| panic!("no phase {name} in {}", self.run["phases"]))
    }

    /// What is said of a phase: what it left, and what it needed only meanwhile.
    fn needs(&self, name: &str) -> [i64; 2] {
        ["heap_persistent_bytes", "heap_transient_bytes"].map(|key| self.phase(name)[key].as_i64().expect(key))
    }
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

const ARRAYS: &[Need] = &[Need::Module("numpy"), Need::Module("scipy.linalg")];

#[test]
fn arrays_of_the_covariance_pipeline_are_what_its_formulas_say() {
    for (args, peak_in, stages) in [
        (&["harmonic", "800"], "basis_setup", &["covariance_setup", "harmonic_basis_setup"][..]),
        (&["pixel-direct", "500"], "fisher_run", &["covariance_setup", "pixel_basis_setup", "pixel_fisher_run"]),
    ] {
        let path = args[0];
        let example = Example { script: "covariance_pipeline.py", args, needs: ARRAYS, ..Example::default() };
        let Some(Seen { stdout: said, run, .. }) = example.compared(&format!("example_{path}")) else { return };
        assert_eq!(phases(&said), ["covariance_setup", "basis_setup", "fisher_run", "spectra_run", "end"]);
        let line = said.lines().find(|l| l.starts_with(&format!("expect {peak_in} "))).unwrap();
        let want: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        let got = held_by(&run, "covariance_pipeline.py", stages);
        assert!(got.abs_diff(want) < want / 100, "{path}: {got} bytes at the peak, {want} by formula");
        assert!(run["heap"]["peak_bytes"].as_u64().unwrap() >= want);
    }
}

/// Stages of the pipeline, each with what its arrays leave and need meanwhile by formula.
fn expected(said: &str) -> Vec<(String, [i64; 2])> {
    let mut before = 0;
    let lines = said.lines().filter_map(|l| l.strip_prefix("expect "));
    lines
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [stays, peak] = [2, 4].map(|i| words[i].parse::<i64>().expect("bytes"));
            let needs = [stays - before, peak - stays.max(before)];
            before = stays;
            (words[0].to_owned(), needs)
        })
        .collect()
}

/// Within a hundredth; where nothing is expected, of a matrix of the pixels' size.
fn is_as_expected(what: &str, got: [i64; 2], want: [i64; 2]) {
    for (got, want) in got.into_iter().zip(want) {
        let of = if want == 0 { 1500 * 1500 * 8 } else { want };
        assert!((got - want).abs() <= of / 100, "{what}: {got} bytes, {want} by formula");
    }
}

#[test]
fn each_stage_of_the_covariance_pipeline_leaves_and_needs_what_its_formulas_say() {
    for (args, names) in [
        (&["harmonic", "1500"], ["covariance_setup", "harmonic_basis_setup", "harmonic_fisher_run", "harmonic_spectra_run"]),
        (&["pixel-direct", "1500"], ["covariance_setup", "pixel_basis_setup", "pixel_fisher_run", "pixel_spectra_run"]),
    ] {
        let flags = &["--phase-py", "covariance_pipeline:*_setup,covariance_pipeline:*_run"];
        let example = Example { script: "covariance_pipeline.py", args, flags, needs: ARRAYS, ..Example::default() };
        let test = format!("example_stages_{}", args[0]);
        let Some(seen) = example.interpreter(&test).and_then(|python| example.recorded(&test, python, &[])) else { return };
        let expected = expected(&seen.stdout);
        assert_eq!(expected.len(), 4);
        for (name, (stage, want)) in names.iter().zip(expected) {
            assert!(name.ends_with(&stage));
            is_as_expected(name, seen.needs(&format!("covariance_pipeline:{name}")), want);
        }
    }
}

/// An edge that a line tells is where its reader was: the program waits for it after each.
#[test]
fn stages_told_by_lines_are_those_of_functions() {
    let wait = "import builtins, runpy, sys, time\n\
                say = builtins.print\n\
                def waiting(*a, **k): say(*a, **k); a[0].startswith('phase ') and time.sleep(0.1)\n\
                builtins.print = waiting\nsys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')";
    let (args, flags) = (&["harmonic", "1500"], &["--phase-on", r"^phase (\w+)"]);
    let example = Example { script: "covariance_pipeline.py", args, flags, needs: ARRAYS, ..Example::default() };
    let test = "stages_told_by_lines_are_those_of_functions";
    let Some(seen) = example.interpreter(test).and_then(|python| example.recorded(test, python, &["-c", wait])) else { return };
    for (stage, want) in expected(&seen.stdout) {
        is_as_expected(&stage, seen.needs(&stage), want);
    }
}

const MOLECULES: &[Need] = &[Need::Module("ase.calculators.emt")];

#[test]
fn steps_of_molecular_dynamics() {
    let example = Example { script: "md_steps.py", args: &["6", "2"], needs: MOLECULES, ..Example::default() };
    let Some(Seen { stdout: said, run, .. }) = example.compared("example_md") else { return };
    assert_eq!(phases(&said), ["build", "first_forces", "trajectory", "end"]);
    assert_eq!(said.lines().filter(|l| l.starts_with("step ")).count(), 6);
    assert!(run["heap"]["peak_bytes"].as_u64().unwrap() > 1 << 20);
}

#[test]
fn a_thousand_steps_of_molecular_dynamics_leak_what_they_keep_and_else_nothing() {
    // Three doubles for each of 32 atoms.
    const KEPT: f64 = 768.0;
    for args in [&["1000", "2"][..], &["1000", "2", "leak"]] {
        let flags = &["--stacks", "off", "--phase-py", "md_steps:md_step"];
        let example = Example { script: "md_steps.py", args, flags, needs: MOLECULES, ..Example::default() };
        let test = format!("example_md_{}", args.len());
        let Some(seen) = example.interpreter(&test).and_then(|python| example.recorded(&test, python, &[])) else { return };
        let step = seen.phase("md_steps:md_step");
        let growth = step["growth_per_count_bytes"].as_f64().expect("a growth");
        assert_eq!((step["count"].as_u64(), step["steps"]["leaks"].as_bool()), (Some(1000), Some(args.len() == 3)), "{step}");
        // The list and what NumPy has for an array are a little more.
        let kept = if args.len() == 3 { KEPT..1.1 * KEPT } else { -16.0..16.0 };
        assert!(kept.contains(&growth), "{growth} bytes a step: {step}");
    }
}

#[test]
fn a_fit_that_compiles_twice() {
    let (flags, env, needs) = (&["--compiles"], &[("JAX_LOG_COMPILES", "1")], &[Need::Module("jax")]);
    let example = Example { script: "jax_fit.py", args: &["4"], flags, env, needs };
    let Some(seen) = example.compared("example_jax") else { return };
    assert_eq!(phases(&seen.stdout), ["first_fit", "second_fit", "recompiled_fit", "end"]);
    assert!(seen.stdout.ends_with("compiled 2 times\n"), "{}", seen.stdout);
    // Compiling is what the memory goes to; it is asked for by the line that calls the compiled function first.
    let fits = held_by(&seen.run, "jax_fit.py", &["fit"]);
    assert!(fits > 1 << 20, "{fits} bytes by fits");
    // All that JAX says it compiles, and nothing else.
    let mut truth = BTreeMap::<&str, u64>::new();
    for line in seen.stderr.lines().filter_map(|l| l.split_once("Compiling jit(")) {
        *truth.entry(line.1.split(')').next().expect("a name")).or_default() += 1;
    }
    let all = seen.run["compiles"].as_array().expect("compilations");
    let told: BTreeMap<&str, u64> = all.iter().map(|c| (c["function"].as_str().unwrap(), c["count"].as_u64().unwrap())).collect();
    assert_eq!(told, truth);
    let step = all.iter().find(|c| c["function"] == "gauss_newton_step").expect("the step");
    assert_eq!((&step["count"], &step["recompiles"]), (&json!(2), &json!(1)));
    let longer = |argument: u32| format!("argument {argument}: float32[500] → float32[600]");
    assert_eq!(step["signatures"][0]["changed"], json!([]));
    assert_eq!(step["signatures"][1]["changed"], json!([longer(1), longer(2)]));
}

const CHEMISTRY: &[Need] = &[Need::Module("pennylane"), Need::Module("pyscf")];

#[test]
fn phase_estimation_is_built_compiled_and_run() {
    let example = Example { script: "qpe_compile.py", args: &["2", "1", "2"], needs: CHEMISTRY, ..Example::default() };
    let Some(Seen { stdout: said, .. }) = example.compared("example_qpe") else { return };
    assert_eq!(phases(&said), ["hamiltonian_build", "circuit_compile", "circuit_execute", "end"]);
    assert!(said.contains("Hartree-Fock -1.116759 Ha, 15 terms"), "{said}");
}

/// With Catalyst the compiler is a process of its own, and what it writes is gone afterwards.
#[test]
fn the_compiler_of_phase_estimation_and_its_files_are_seen() {
    let test = "the_compiler_of_phase_estimation_and_its_files_are_seen";
    let Some(python) = support::catalyst() else { return skip(test, "needs Catalyst (MEMSHIM_CATALYST_PYTHON)") };
    if support::lacks(test, &[Need::Preload, Need::Command("gcc")]) {
        return;
    }
    let flags = &["--phase-py", "qpe_compile:hamiltonian_build,qpe_compile:circuit_*", "--artifacts", "phase_estimation*/**"];
    let env = &[("TMPDIR", ".")];
    let example = Example { script: "qpe_compile.py", args: &["2", "1", "2"], flags, env, ..Example::default() };
    let Some(seen) = example.recorded(test, &python, &[]) else { return };
    let children = ["hamiltonian_build", "circuit_compile", "circuit_execute"]
        .map(|name| seen.phase(&format!("qpe_compile:{name}"))["children_peak_bytes"].as_u64().expect("a peak"));
    assert!(children[0] < 16 << 20 && children[1] > 64 << 20 && children[2] == 0, "{children:?}");
    let compiler = seen.phase("child catalyst");
    assert_eq!((&compiler["count"], compiler["children_peak_bytes"].as_u64()), (&json!(1), Some(children[1])), "{compiler}");
    let files = seen.run["artifacts"].as_array().expect("files");
    for end in [".mlir", ".ll", ".o", ".so"] {
        let file = files.iter().find(|f| f["path"].as_str().is_some_and(|path| path.ends_with(end))).unwrap_or_else(|| panic!("{files:?}"));
        assert_eq!((&file["phase"], &file["deleted"]), (&json!("qpe_compile:circuit_compile"), &json!(true)), "{file}");
    }
}

#[test]
fn a_kernel_matrix_in_tiles() {
    // 1,000 states of 9 qubits in tiles of 500: complex numbers of 16 bytes, and a matrix of doubles.
    const STATES: i64 = 1000 * 512 * 16;
    const KERNEL: i64 = 1000 * 1000 * 8;
    const TILE: i64 = 500 * 512 * 16 + 500 * 500 * 16;
    let flags = &["--phase-py", "kernel_matrix_gpu:prepare_states,kernel_matrix_gpu:upload,kernel_matrix_gpu:kernel_tiles"];
    let needs = &[Need::Module("numpy")];
    let example = Example { script: "kernel_matrix_gpu.py", args: &["1000", "9", "500"], flags, needs, ..Example::default() };
    let Some(seen) = example.compared("example_kernel") else { return };
    assert_eq!(phases(&seen.stdout), ["prepare_states", "upload", "kernel_tiles", "end"]);
    assert_eq!(seen.stdout.lines().filter(|l| l.starts_with("step ")).count(), 4);
    // The two sets of states and the matrix they make.
    let held = held_by(&seen.run, "kernel_matrix_gpu.py", &["prepare_states", "kernel_tiles"]);
    assert!(held as i64 >= 2 * STATES + KERNEL, "{held} bytes");
    if !seen.stdout.starts_with("NumPy") {
        return;
    }
    let [prepare, upload, tiles] =
        ["prepare_states", "upload", "kernel_tiles"].map(|name| seen.needs(&format!("kernel_matrix_gpu:{name}")));
    // NumPy loads its generators of random numbers when they are first asked for.
    let modules = prepare[0] - 2 * STATES;
    assert!((0..3 << 19).contains(&modules), "{modules} bytes more than the states");
    assert!((STATES..STATES + (3 << 19)).contains(&prepare[1]), "{} bytes meanwhile", prepare[1]);
    is_as_expected("upload", upload, [0, 0]);
    is_as_expected("kernel_tiles", tiles, [KERNEL, TILE]);
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
