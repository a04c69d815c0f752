//! Promises about GPUs, held on a driver of our own (`tests/fakecuda`), whose clock is moved by waiting alone: so bytes, counts
//! and device times are known to the digit.
#[path = "../support/made.rs"]
mod made;
#[path = "../support/mod.rs"]
mod support;

mod clients;
mod cupti;
mod cupti_headers;
mod devices;
mod driver_headers;
mod every;
mod lookups;
mod memory;
mod others;
mod phases;
mod refused;
mod rough;
mod runtime;
mod sites;
mod streams;
mod transfers;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;
use support::{Mode, Need, Session};

/// How a program finds the driver's functions.
const WAYS: [&str; 4] = ["dlsym", "proc", "proc1", "linked"];

type Variables<'a> = &'a [(&'a str, &'a str)];

struct Gpu {
    stdout: String,
    trace: PathBuf,
    run: Value,
}

/// A library of `tests/fakecuda`, as its `link` makes it: once a test binary.
fn fake(name: &str, args: &[&str]) -> PathBuf {
    static LINKED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let made = support::out_dir().join(name);
    let mut linked = LINKED.lock().unwrap_or_else(|e| e.into_inner());
    if !linked.contains(name) {
        std::fs::create_dir_all(made.parent().expect("a folder")).expect("a folder");
        let mut link = Command::new(support::root().join("tests/fakecuda/link"));
        link.arg(&made).args(args).env("MEMSHIM_TARGET_DIR", support::release().parent().expect("a folder"));
        let out = link.output().expect("tests/fakecuda/link");
        assert!(out.status.success(), "{name} is not linked:\n{}", support::lossy(&out.stderr));
        linked.insert(name.to_owned());
    }
    made
}

fn driver() -> PathBuf {
    fake("libcuda.so.1", &[])
}

/// One of a version: as `cuDriverGetVersion` has it, 11080 being 11.8. Its own calls of its functions go past everybody, as the other one's do not.
fn driver_of(version: u32) -> String {
    let made = fake(&format!("driver_{version}/libcuda.so.1"), &[&version.to_string(), "-Wl,-Bsymbolic"]);
    made.to_str().expect("a path in UTF-8").to_owned()
}

fn program(source: &str, way: &str) -> PathBuf {
    driver();
    for made in ["libc10.so", "libtorch_whole.so"] {
        support::build("cuda/c10.c", made, &["-shared", "-fPIC"]);
    }
    for made in ["libcuda_plugin.so", "cupy_runtime.so", "xla_cuda_plugin.so", "xla_extension.so", "librmm.so"] {
        support::build("cuda/plugin.c", made, &["-shared", "-fPIC"]);
    }
    let dir = support::out_dir().to_str().expect("a path in UTF-8");
    let to_driver = [format!("-L{dir}"), "-l:libcuda.so.1".to_owned(), format!("-Wl,-rpath,{dir}")];
    let user: Vec<&str> = ["-shared", "-fPIC", "-Wl,--no-as-needed"].into_iter().chain(to_driver.iter().map(String::as_str)).collect();
    for made in ["libcuda_user.so", "libcuda_inner.so"] {
        support::build("cuda/plugin.c", made, &user);
    }
    support::build("cuda/plugin.c", "libcuda_beside.so", &["-shared", "-fPIC"]);
    for (made, needs) in
        [("libcuda_outer.so", &["-l:libcuda_inner.so"][..]), ("libcuda_both.so", &["-l:libcuda_beside.so", "-l:libcuda.so.1"])]
    {
        let flags = [&["-shared", "-fPIC", "-Wl,--no-as-needed", &to_driver[0]], needs, &[&to_driver[2]]].concat();
        support::build("cuda/c10.c", made, &flags);
    }
    let (built, flags) = match way {
        "linked" => ("linked", [&["-DBY_LINK".to_owned()], &to_driver[..]].concat()),
        _ => ("looked_up", vec!["-rdynamic".to_owned()]),
    };
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    support::build(&format!("cuda/{source}.c"), &format!("cuda_{source}_{built}"), &flags)
}

/// Runs a mode of a program bare and preloaded: it must say and do the same; then its report.
fn gpu_with(source: &str, mode: &str, way: &str, memshim: Mode, env: &[(&str, &str)]) -> Gpu {
    let name = format!(
        "cuda_{source}_{mode}_{way}_{memshim:?}_{}",
        env.iter().map(|(_, v)| *v).filter(|v| !v.contains('/')).collect::<Vec<_>>().join("_")
    );
    driver();
    match source.strip_suffix(".py") {
        Some(_) => {
            let script = support::root().join("tests/programs/cuda").join(source);
            let args = [script.to_str().expect("a path in UTF-8"), mode, way];
            gpu_of(support::python().expect("checked before"), &name, &args, memshim, (env, &[]))
        }
        None => gpu_of(&program(source, way), &name, &[mode, way], memshim, (env, &[])),
    }
}

/// The same of a program that is there; with variables for the preloaded run alone, and for both.
fn gpu_of(program: &Path, name: &str, args: &[&str], memshim: Mode, (env, both): (Variables, Variables)) -> Gpu {
    let dir = support::fresh_dir(name);
    let go = |preload: bool| {
        let at = dir.join(if preload { "with" } else { "bare" });
        std::fs::create_dir_all(&at).expect("a folder");
        let mut c = Command::new(program);
        c.args(args).current_dir(&at).env("PROGRAM_DIR", support::out_dir()).env("PYTHONDONTWRITEBYTECODE", "1");
        c.envs(both.iter().copied());
        if preload {
            let level = if memshim == Mode::Fast { "fast" } else { "full" };
            c.env("LD_PRELOAD", support::shim()).env("MEMSHIM_MODE", level).envs(env.iter().copied());
        }
        Session::start(&mut c, &at).finish(Duration::from_secs(60))
    };
    let (bare, with) = (go(false), go(true));
    let ended = |r: &support::Ran| r.status.map(|s| s.code());
    assert_eq!(support::lossy(&with.stdout), support::lossy(&bare.stdout), "{name}: stdout; stderr: {}", support::lossy(&with.stderr));
    assert_eq!((ended(&with), &with.stderr), (ended(&bare), &bare.stderr), "{name}");
    assert!(bare.status.is_some_and(|s| s.success()), "{name}: {}", support::lossy(&bare.stdout));
    let trace = dir.join("with/trace.jsonl");
    let text = support::analyze(&trace).unwrap_or_else(|why| panic!("{name}: {why}"));
    let mut report: Value = serde_json::from_str(&text).expect("JSON");
    let run = report["runs"][0].take();
    support::conserved(&json!({"runs": [run]}), false).unwrap_or_else(|why| panic!("{name}: {why}"));
    assert!(run["gpu"].is_null() || run["gpu"]["lost"] == 0, "{name}");
    Gpu { stdout: support::lossy(&with.stdout), trace, run }
}

fn gpu(source: &str, mode: &str, way: &str) -> Gpu {
    gpu_with(source, mode, way, Mode::Full, &[])
}

fn skipped(test: &str) -> bool {
    support::lacks(test, &[Need::Preload])
}

impl Gpu {
    /// All rows of the trace.
    fn rows(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.trace).expect("a trace");
        let lines = text.lines().filter(|l| l.starts_with("{\"type\":\"gpu\"")).map(|l| serde_json::from_str::<Value>(l).expect("JSON"));
        lines.flat_map(|l| l["ev"].as_array().expect("rows").clone()).collect()
    }

    fn at(&self, pointer: &str) -> &Value {
        self.run["gpu"].pointer(pointer).unwrap_or_else(|| panic!("no {pointer}: {}", self.run["gpu"]))
    }

    fn number(&self, pointer: &str) -> u64 {
        self.at(pointer).as_u64().unwrap_or_else(|| panic!("{pointer} is no number: {}", self.at(pointer)))
    }

    /// `direction memory` → count, bytes, nanoseconds on the device.
    fn transfers(&self) -> BTreeMap<String, (u64, u64, u64)> {
        let rows = self.at("/transfers").as_array().expect("a list").iter();
        let mut sums = BTreeMap::<String, (u64, u64, u64)>::new();
        for t in rows {
            let key = format!("{} {}", t["direction"].as_str().expect("text"), t["memory"].as_str().expect("text"));
            let ns = (t["device_s"].as_f64().unwrap_or(0.0) * 1e9).round() as u64;
            let sum = sums.entry(key).or_default();
            *sum = (sum.0 + t["count"].as_u64().expect("count"), sum.1 + t["bytes"].as_u64().expect("bytes"), sum.2 + ns);
        }
        sums
    }

    /// The report as text.
    fn text(&self) -> String {
        let out = Command::new(support::memshim()).arg("analyze").arg(&self.trace).env("COLUMNS", "200").output().expect("a report");
        support::lossy(&out.stdout)
    }

    /// What the program says that it should be.
    fn expected(&self) -> BTreeMap<String, (u64, u64, u64)> {
        let rows = self.stdout.lines().filter_map(|l| l.strip_prefix("EXPECT "));
        rows.map(|l| {
            let w: Vec<&str> = l.split(' ').collect();
            let n = |i: usize| w[i].parse().expect("a number");
            (format!("{} {}", w[0], w[1]), (n(2), n(3), n(4)))
        })
        .collect()
    }
}

const MIB: u64 = 1 << 20;
