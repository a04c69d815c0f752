//! `memshim run`: a program under the shim, with the view from outside; exits as the program did.

use super::config::Config;
use super::value;
use crate::launch::artifacts::Glob;
use crate::launch::listed::Listed;
use crate::launch::pattern;
use crate::launch::relay::Watch;
use crate::launch::rules::{Rule, Rules};
use crate::launch::target::{self, Outcome, Plan};
use crate::launch::{job, preload};
use crate::output::shell;
use crate::output::units::{count, iec};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use memshim_format::settings::{FILE, Key, RUN};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
EXAMPLES
  memshim run -- python run.py
  memshim run -o 'out/%j.r%r.jsonl' -- ./solver input.dat        under srun or mpirun: one file a rank
  memshim run --mode full -o t.jsonl.zst -- ./prog               every call an event, compressed
  memshim run --exclude 'git,make' -- make -j8
  memshim run --phase-py 'pyscf.scf.hf:SCF.scf' -- python run.py  each call of that method a phase
  memshim run --phase-sym '*blas*:*dgemm*' -- python run.py      each call of these functions a phase
  memshim run --phase-on '^(SCF|MP2|CCSD)' -- python calc.py     what it prints begins its phases
  memshim run --phase-on 'start:begin (\\w+)' --phase-on 'end:done (\\w+)' -- ./solver
  MEMSHIM_CONFIG=memshim.toml memshim run -- python calc.py      settings and rules from a file
  memshim run --artifacts 'dump/**/*.mlir' -- python qpe.py      which files were written, when, in which phase
  JAX_LOG_COMPILES=1 memshim run --compiles -- python fit.py     which functions were compiled, how often, for what

PATTERN may hold %h host, %p pid, %e program, %j job id, %r rank, %t start time; a folder gets the default name.
EXIT STATUS is that of CMD; 128+n when signal n ended it; 127 not found, 126 not runnable, 125 memshim itself failed.";

/// Run a program under memshim, watch it from outside, and exit as it did
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Run {
    /// Where the trace goes [default: trace.jsonl, under a rank variable trace.r%r.jsonl]; ends in .zst: compressed
    #[arg(short, long, value_name = "PATTERN")]
    out: Option<PathBuf>,

    /// What becomes an event: big and sampled calls (fast, the default), every call (full), none (off)
    #[arg(long, value_enum, value_name = "MODE")]
    mode: Option<Mode>,

    /// Time between two looks at the resident size [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = value::interval)]
    interval: Option<u64>,

    /// Heap calls from this size up are events by themselves in fast mode [default: 64KiB]
    #[arg(long, value_name = "SIZE", value_parser = value::bytes)]
    big: Option<u64>,

    /// Mean bytes between two sampled calls in fast mode [default: 512KiB]
    #[arg(long, value_name = "SIZE", value_parser = value::some_bytes)]
    sample: Option<u64>,

    /// Which call stacks events get: Python and native frames merged, one of the two, none [default: mixed]
    #[arg(long, value_enum, value_name = "WHICH")]
    stacks: Option<Stacks>,

    /// Record Python's own blocks too: a layer of its own beside the heap, by the interpreter's three allocators
    #[arg(long)]
    python_alloc: bool,

    /// How work on a GPU is timed: copies and graph launches by event pairs of our own, kernels and nodes of graphs too by CUPTI, by the calls'
    /// wall time, not at all [default: events]
    #[arg(long, value_enum, value_name = "HOW")]
    gpu_timing: Option<GpuTiming>,

    /// Ask CuPy how much of its pool of device memory is in use: on the interpreter's main thread, at the interval and when the pool grows
    #[arg(long)]
    cupy: bool,

    /// Whether processes started by the program are recorded too [default: follow]
    #[arg(long, value_enum, value_name = "WHAT")]
    children: Option<Children>,

    /// Record only programs whose name matches one of these globs
    #[arg(long, value_name = "GLOB,…", value_parser = OsStringValueParser::new().try_map(|t| value::globs(&t)))]
    include: Option<OsString>,

    /// Do not record programs whose name matches one of these globs
    #[arg(long, value_name = "GLOB,…", value_parser = OsStringValueParser::new().try_map(|t| value::globs(&t)))]
    exclude: Option<OsString>,

    /// Most bytes the traces of a run may have together; on reaching it detail is dropped, and the trace says so [default: 2GiB]
    #[arg(long, value_name = "SIZE", value_parser = value::some_bytes)]
    max: Option<u64>,

    /// Python functions that are phases: module:function, both globs, such as pyscf.scf.hf:SCF.scf or run:*; may be given several times
    #[arg(long, value_name = "RULE,…", value_parser = OsStringValueParser::new().try_map(|t| value::python_rules(&t)))]
    phase_py: Vec<OsString>,

    /// Functions of libraries and of the program that are phases: object:function, both globs, such as libblas.so*:dgemm_ or plugin.so:*;
    /// may be given several times
    #[arg(long, value_name = "RULE,…", value_parser = OsStringValueParser::new().try_map(|t| value::native_rules(&t)))]
    phase_sym: Vec<OsString>,

    /// A line printed by the program that fits begins a phase and ends the one before; with `start:`, `end:` or `mark:` in front it only
    /// begins one, ends one, or is an instant. The phase is called by the first group (…), else by what fits
    #[arg(long, value_name = "REGEX")]
    phase_on: Vec<Rule>,

    /// Recognise notices of just-in-time compilers in the output (JAX_LOG_COMPILES=1, TORCH_LOGS=recompiles, …)
    #[arg(long)]
    compiles: bool,

    /// Note the files that are written here while the program runs: a folder, or a pattern with *, ? and ** (`analyze`: FILES)
    #[arg(long, value_name = "GLOB")]
    artifacts: Vec<OsString>,

    /// Say nothing at the end
    #[arg(short, long)]
    quiet: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    Fast,
    Full,
    Off,
}

#[derive(Clone, Copy, ValueEnum)]
enum Stacks {
    Off,
    Native,
    Python,
    Mixed,
}

#[derive(Clone, Copy, ValueEnum)]
enum GpuTiming {
    Events,
    Cupti,
    Wall,
    Off,
}

#[derive(Clone, Copy, ValueEnum)]
enum Children {
    Follow,
    Skip,
}

impl Run {
    pub fn execute(self) -> anyhow::Result<u8> {
        let config = Config::read();
        let rules = self.rules(&config)?;
        let out = self.out_pattern(&config);
        self.check(&out, &config)?;
        let plan = Plan {
            out,
            variables: self.variables(&config, !rules.is_empty()),
            off: self.is_off(&config),
            listed: self.listed(&config),
            library: preload::find_library()?,
            watch: self.watch(&config, rules),
            artifacts: self.artifacts(&config)?,
            argv: self.command,
        };
        match target::run(&plan) {
            Ok(outcome) => {
                if !self.quiet {
                    eprint!("{}", summary(&outcome));
                }
                Ok(outcome.ended.exit_code() as u8)
            }
            Err(e) => {
                eprintln!("memshim: {e}");
                Ok(e.exit_code())
            }
        }
    }

    /// The flag, else the variable, else the file's, else the default for this environment; in a folder, the default name.
    fn out_pattern(&self, config: &Config) -> PathBuf {
        let set = || variable(Key::Out).map(PathBuf::from);
        let name = pattern::default_pattern(&job::real_environment);
        match self.out.clone().or_else(set).or_else(|| config.out.clone()) {
            Some(out) if out.is_dir() || out.as_os_str().as_bytes().ends_with(b"/") => out.join(name),
            Some(out) => out,
            None => name.into(),
        }
    }

    /// A placeholder that is none would give each run the same strange name.
    fn check(&self, out: &Path, config: &Config) -> anyhow::Result<()> {
        let Some(word) = pattern::unknown(out) else { return Ok(()) };
        let from = match (&self.out, variable(Key::Out), &config.path) {
            (Some(_), ..) => format!("-o {}", out.display()),
            (None, None, Some(file)) => format!("{FILE}={}, out = {}", file.display(), out.display()),
            _ => format!("{}={}", Key::Out.variable(), out.display()),
        };
        Err(not_understood(&from, format!("`{word}` is no placeholder, there are {}", pattern::PLACEHOLDERS)))
    }

    /// Nothing is to be recorded.
    fn is_off(&self, config: &Config) -> bool {
        match (self.mode, variable(Key::Mode)) {
            (Some(mode), _) => matches!(mode, Mode::Off),
            (None, Some(set)) => set == "off",
            (None, None) => config.off,
        }
    }

    /// Programs by their names. A flag that is empty takes back what the variable says.
    fn listed(&self, config: &Config) -> Listed {
        let of = |flag: &Option<OsString>, key, file: &OsString| {
            let set = flag.clone().or_else(|| variable(key)).filter(|list| !list.is_empty());
            set.unwrap_or_else(|| file.clone())
        };
        let include = of(&self.include, Key::Include, &config.listed.include);
        Listed { include, exclude: of(&self.exclude, Key::Exclude, &config.listed.exclude) }
    }

    /// The rules for lines of output: those of the flags, of the variable (a line each), of the file. One that cannot be used, of these or of
    /// the rules for functions, is an error: a run without its phases would be in vain.
    fn rules(&self, config: &Config) -> anyhow::Result<Vec<Rule>> {
        let set = variable(Key::PhaseOn).unwrap_or_default();
        let set = set.to_string_lossy();
        let mut rules = self.phase_on.clone();
        for text in set.lines().map(str::trim).filter(|l| !l.is_empty()) {
            rules.push(text.parse().map_err(|why| not_understood(&format!("{}={text}", Key::PhaseOn.variable()), why))?);
        }
        let functions = [(Key::PhasePy, value::PYTHON, &self.phase_py), (Key::PhaseSym, value::NATIVE, &self.phase_sym)];
        // Of a kind that is given elsewhere, those of the file count for nothing.
        let mut overruled = Vec::new();
        for (key, kind, flags) in functions {
            let given = joined(flags).map(|list| (format!("--{}", key.name().replace('_', "-")), list));
            let of_variable = || variable(key).map(|list| (format!("{}={}", key.variable(), list.display()), list));
            if let Some((from, list)) = given.or_else(of_variable) {
                kind.check(&list).map_err(|why| not_understood(&from, why))?;
                overruled.push(key);
            }
        }
        if let Some((_, line)) = config.bad_rules.iter().find(|(key, _)| !overruled.contains(key)) {
            let path = config.path.as_deref().unwrap_or(Path::new("")).display();
            anyhow::bail!("{FILE}={path}, {line}. Nothing was started");
        }
        rules.extend(config.phase_on.iter().filter_map(|rule| rule.parse().ok()));
        Ok(rules)
    }

    /// What to look for in the output.
    fn watch(&self, config: &Config, rules: Vec<Rule>) -> Watch {
        Watch { rules: Rules(rules), compiles: self.compiles(config) }
    }

    fn compiles(&self, config: &Config) -> bool {
        self.compiles || variable(Key::Compiles).map_or(config.compiles, |set| set == "1")
    }

    fn artifacts(&self, config: &Config) -> anyhow::Result<Vec<Glob>> {
        // The present folder may be gone: then only what begins at the root can be meant.
        let here = std::env::current_dir().unwrap_or_default();
        let set = variable(Key::Artifacts).unwrap_or_default();
        let of_variable = set.as_bytes().split(|c| *c == b'\n').filter(|l| !l.is_empty()).map(|l| OsStr::from_bytes(l).to_owned());
        let all = self.artifacts.iter().cloned().chain(of_variable).chain(config.artifacts.iter().cloned());
        all.map(|g| Glob::new(&g, &here).map_err(|e| anyhow::anyhow!("--artifacts {}: {e}", g.display()))).collect()
    }

    /// Variables for the shim, in forms that need no unit table to read: bytes, and whole microseconds. The file by its full path: what the
    /// program starts elsewhere finds it too.
    /// `rules`: there are some for lines of output.
    fn variables(&self, config: &Config, rules: bool) -> Vec<(&'static str, OsString)> {
        let number = |n: Option<u64>| n.map(|n| OsString::from(n.to_string()));
        let all = [
            (Key::Mode, self.mode.map(word)),
            (Key::Interval, self.interval.map(|n| OsString::from(format!("{}us", n / 1000)))),
            (Key::Big, number(self.big)),
            (Key::Sample, number(self.sample)),
            (Key::Children, self.children.map(word)),
            (Key::Include, self.include.clone()),
            (Key::Exclude, self.exclude.clone()),
            (Key::Max, number(self.max)),
            (Key::Stacks, self.stacks.map(word)),
            (Key::GpuTiming, self.gpu_timing.map(word)),
            (Key::PythonAlloc, self.python_alloc.then(|| "1".into())),
            (Key::Cupy, self.cupy.then(|| "1".into())),
            (Key::PhasePy, joined(&self.phase_py)),
            (Key::PhaseSym, joined(&self.phase_sym)),
        ];
        let set = all.into_iter().filter_map(|(key, v)| v.map(|v| (key.variable(), v)));
        let uses = [Key::Compiles, Key::Artifacts].into_iter().any(|key| variable(key).is_some());
        let uses = uses || rules || config.compiles || !config.artifacts.is_empty();
        let uses = uses.then(|| (RUN, "1".into()));
        set.chain(config.path.clone().map(|path| (FILE, path.into_os_string()))).chain(uses).collect()
    }
}

fn not_understood(what: &str, why: String) -> anyhow::Error {
    anyhow::anyhow!("{what} is not understood: {why}. Nothing was started")
}

/// A flag that was given several times, as a list.
fn joined(all: &[OsString]) -> Option<OsString> {
    (!all.is_empty()).then(|| all.join(OsStr::new(",")))
}

/// A variable that is set to something.
fn variable(key: Key) -> Option<OsString> {
    std::env::var_os(key.variable()).filter(|v| !v.is_empty())
}

fn word(v: impl ValueEnum) -> OsString {
    v.to_possible_value().expect("no value is skipped").get_name().into()
}

/// The one block at the end: peak, where the trace is, what to type next.
fn summary(o: &Outcome) -> String {
    let mut text = String::new();
    let mut say = |line: String| text.push_str(&format!("memshim: {line}\n"));
    let limit = o.limit.map(|l| format!(" (limit {})", iec(l))).unwrap_or_default();
    // Children are looked at from outside alone: they are named where one had more.
    let child = o.children_hwm.filter(|&c| o.hwm.is_some_and(|own| c > own));
    // Of a program that did not say it itself, a rise just before the end falls between two looks; the kernel's own figure bounds it.
    let bound = o.at_most.filter(|&bound| child.is_none() && o.hwm.is_none_or(|seen| iec(bound) != iec(seen) && bound > seen));
    match (o.hwm, bound) {
        (Some(own), _) if o.is_exact && child.is_none() => say(format!("peak resident {}{limit}", iec(own))),
        (Some(own), _) if child.is_some() => {
            let own = if o.is_exact { iec(own) } else { format!("at least {}", iec(own)) };
            say(format!("peak resident {own}{limit}, of a process it started at least {}", iec(child.unwrap_or(0))))
        }
        (Some(seen), Some(bound)) => say(format!("peak resident between {} and {}{limit}", iec(seen), iec(bound))),
        // The kernel's figure says the same.
        (Some(seen), None) if o.at_most.is_some() => say(format!("peak resident {}{limit}", iec(seen))),
        (Some(seen), None) => say(format!("peak resident at least {}{limit}, seen from outside", iec(seen))),
        (None, Some(bound)) => say(format!("peak resident {} at most{limit}", iec(bound))),
        (None, None) => {}
    }
    if o.oom_kills > 0 {
        say(format!("the kernel killed {} process(es) of this memory group for want of memory", o.oom_kills));
    }
    match &o.trace {
        Ok(path) => {
            if let Some(trouble) = &o.trouble {
                say(format!("could not add to {}: {trouble}", path.display()));
            }
            if let Some((lost, counted)) = o.missing.filter(|(lost, _)| *lost > 0) {
                say(format!("{} of {} heap calls could not be recorded in it: the report says why", count(lost), count(counted)));
            }
            say(format!("next: memshim analyze {}", shell::quoted_path(path)));
        }
        Err(why) => say(format!("no trace: {why}")),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        run: Run,
    }

    fn parse(args: &[&str]) -> Run {
        Only::try_parse_from([&["run"], args].concat()).unwrap().run
    }

    #[test]
    fn the_first_word_that_is_no_flag_starts_the_command() {
        let run = parse(&["-q", "ls", "-q", "--mode", "x"]);
        assert_eq!(run.command, ["ls", "-q", "--mode", "x"]);
        assert!(run.quiet && run.mode.is_none());
    }

    #[test]
    fn a_folder_gets_the_default_name() {
        assert!(parse(&["-o", "new/", "x"]).out_pattern(&Config::default()).starts_with("new/"));
        assert_eq!(parse(&["-o", "/tmp", "x"]).out_pattern(&Config::default()).parent().unwrap(), std::path::Path::new("/tmp"));
        assert_eq!(parse(&["-o", "t.jsonl", "x"]).out_pattern(&Config::default()), PathBuf::from("t.jsonl"));
    }

    #[test]
    fn flags_become_the_variables_of_the_same_name() {
        let rules = parse(&["--phase-py", "a:b,c:*", "--phase-py", "d:e", "--", "x"]).variables(&Config::default(), false);
        assert_eq!(rules, [("MEMSHIM_PHASE_PY", OsString::from("a:b,c:*,d:e"))]);
        let rules = parse(&["--phase-sym", "lib*.so*:f*,x:ns::g", "--phase-sym", "y:*", "--", "x"]).variables(&Config::default(), false);
        assert_eq!(rules, [("MEMSHIM_PHASE_SYM", OsString::from("lib*.so*:f*,x:ns::g,y:*"))]);
        for flag in ["--phase-sym", "--phase-py"] {
            assert!(Only::try_parse_from(["run", flag, "dgemm_", "--", "x"]).is_err());
        }
        let run = parse(&["--mode", "full", "--interval", "0.1s", "--big", "64KiB", "--children", "skip", "--python-alloc", "--", "x"]);
        let v: Vec<_> = run.variables(&Config::default(), false).into_iter().map(|(k, v)| format!("{k}={}", v.display())).collect();
        assert_eq!(
            v,
            ["MEMSHIM_MODE=full", "MEMSHIM_INTERVAL=100000us", "MEMSHIM_BIG=65536", "MEMSHIM_CHILDREN=skip", "MEMSHIM_PYTHON_ALLOC=1"]
        );
    }
}
