//! Promises about settings: one that can't be used is said in one line with what can be, and the program runs.
mod support;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// What a program says on stderr with these variables beside the library.
fn said(test: &str, set: &[(&str, &str)]) -> String {
    let dir = support::fresh_dir(test);
    let mut command = Command::new("/bin/true");
    command.current_dir(&dir).env("LD_PRELOAD", support::shim()).envs(set.iter().copied());
    let out = command.output().expect("/bin/true");
    assert!(out.status.success() && out.stdout.is_empty());
    support::lossy(&out.stderr)
}

#[test]
fn a_value_that_cannot_be_used_is_said_with_one_that_can() {
    for (name, value, form) in [
        ("MEMSHIM_MODE", "quick", "fast, full or off"),
        ("MEMSHIM_INTERVAL", "250us", "a time from 1ms to 1h, such as 100ms"),
        ("MEMSHIM_SAMPLE", "0", "a size of 1 or more, such as 512KiB"),
        ("MEMSHIM_BIG", "x", "a size such as 64KiB"),
        ("MEMSHIM_MAX", "0", "a size of 1 or more, such as 2GiB"),
        ("MEMSHIM_INCLUDE", ",", "names of programs, such as python*,solver"),
        ("MEMSHIM_EXCLUDE", ",,", "names of programs, such as python*,solver"),
    ] {
        let want = format!("memshim: {name}={value} is not understood; give {form}. The default is used.\n");
        assert_eq!(said("settings_values", &[(name, value)]), want);
        assert!(support::run_dir("settings_values").join("trace.jsonl").exists(), "{name}: the default is used");
    }
}

#[test]
fn what_is_set_to_nothing_is_not_set() {
    for name in ["MEMSHIM_MODE", "MEMSHIM_INTERVAL", "MEMSHIM_SAMPLE", "MEMSHIM_MAX", "MEMSHIM_INCLUDE", "MEMSHIM_STACKS", "MEMSHIM_OUT"] {
        assert_eq!(said("settings_empty", &[(name, "")]), "", "{name}");
    }
}

#[test]
fn where_no_trace_can_be_made_it_is_said_why() {
    for (out, why) in [
        ("/proc/x", "cannot create the trace /proc/x: no file can be made in that folder;"),
        ("/proc/x/y", "cannot create the trace /proc/x/y: no such folder;"),
        ("/bin/true/y", "cannot open the trace /bin/true/y: a part of its path is a file and no folder;"),
        ("/", "cannot open the trace /: it is a folder;"),
    ] {
        let line = said("settings_place", &[("MEMSHIM_OUT", out)]);
        let want = format!("memshim: {why} the program runs on, not recorded. Set MEMSHIM_OUT to a path that can be written.\n");
        assert_eq!(line, want);
    }
}

/// The header of the trace in `dir`, without what tells one run from another.
fn header(dir: &Path) -> Value {
    let text = std::fs::read_to_string(dir.join("t.jsonl")).expect("a trace");
    let mut header: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    let object = header.as_object_mut().expect("an object");
    ["run", "pid", "ppid", "start_ticks", "mono_ns", "wall_ns", "cwd"].iter().for_each(|key| drop(object.remove(*key)));
    header
}

const FILE: &str = "# of the project\n\
                    out = 't.jsonl'\nmode = \"full\"\ninterval = '20ms'\nbig = 4_096\nsample = \"1MiB\"\nmax = '1GiB' # most\n\
                    stacks = 'native'\npython_alloc = true\nphase_py = [\n  'run:solve',\n  \"a.b:*\",\n]\nphase_on = ['^x']\n\
                    include = ['true', 'env']\nchildren = 'follow'\ngpu_timing = \"wall\"\ncupy = true\n";

/// The same as variables.
const SAME: [(&str, &str); 11] = [
    ("MEMSHIM_OUT", "t.jsonl"),
    ("MEMSHIM_MODE", "full"),
    ("MEMSHIM_INTERVAL", "20ms"),
    ("MEMSHIM_BIG", "4096"),
    ("MEMSHIM_SAMPLE", "1MiB"),
    ("MEMSHIM_STACKS", "native"),
    ("MEMSHIM_PYTHON_ALLOC", "1"),
    ("MEMSHIM_PHASE_PY", "run:solve,a.b:*"),
    ("MEMSHIM_INCLUDE", "true,env"),
    ("MEMSHIM_GPU_TIMING", "wall"),
    ("MEMSHIM_CUPY", "1"),
];

/// Runs `true` in a new folder with the file in it; what it said on stderr.
fn with_file(test: &str, file: &str, under_run: bool, set: &[(&str, &str)]) -> (std::path::PathBuf, String) {
    let dir = support::fresh_dir(test);
    std::fs::write(dir.join("m.toml"), file).expect("a file");
    let mut command = Command::new(if under_run { support::memshim() } else { "/bin/true".into() });
    match under_run {
        true => command.args(["run", "-q", "--", "/bin/true"]),
        false => command.env("LD_PRELOAD", support::shim()),
    };
    let out = command.current_dir(&dir).env("MEMSHIM_CONFIG", "m.toml").envs(set.iter().copied()).output().expect("/bin/true");
    assert!(out.status.success() && out.stdout.is_empty(), "{}", support::lossy(&out.stderr));
    (dir, support::lossy(&out.stderr))
}

#[test]
fn a_file_sets_what_variables_set_with_and_without_run() {
    let test = "settings_file";
    let (dir, said) = with_file(test, "", false, &SAME);
    assert_eq!(said, "");
    let of_variables = header(&dir);
    assert_eq!((&of_variables["mode"], &of_variables["big"], &of_variables["stacks"]), (&"full".into(), &4096.into(), &"native".into()));
    assert_eq!((&of_variables["interval_ns"], &of_variables["sample"]), (&20_000_000.into(), &(1 << 20).into()));
    assert!(of_variables["python_fns"].is_array());
    for under_run in [false, true] {
        let (dir, said) = with_file(test, FILE, under_run, &[]);
        assert_eq!((header(&dir), said), (of_variables.clone(), String::new()), "under run: {under_run}");
    }
}

#[test]
fn variables_go_before_the_file() {
    for under_run in [false, true] {
        let set = [("MEMSHIM_MODE", "fast"), ("MEMSHIM_BIG", "8KiB"), ("MEMSHIM_STACKS", "")];
        let (dir, said) = with_file("settings_before", FILE, under_run, &set);
        let header = header(&dir);
        assert_eq!(
            (&header["mode"], &header["big"], &header["stacks"], said),
            (&"fast".into(), &8192.into(), &"native".into(), String::new())
        );
    }
    // One that can't be used is not the file's either.
    let (dir, said) = with_file("settings_before", FILE, false, &[("MEMSHIM_MODE", "quick")]);
    assert_eq!(header(&dir)["mode"], "fast", "{said}");
    let (dir, _) = with_file("settings_before", "out = 't.jsonl'\nexclude = ['true']", false, &[]);
    assert!(!dir.join("t.jsonl").exists());
}

#[test]
fn a_line_of_the_file_that_cannot_be_used_is_said_once_with_how_to_mend_it() {
    let test = "settings_lines";
    for (line, why) in [
        ("interval = 100", "interval = 100 is not understood; give a time from 1ms to 1h, such as 100ms. The default is used."),
        ("interval = soon", "`interval = soon` is not understood; put the text between quotes. The line is left out."),
        ("exclude = ['a'", "`exclude = ['a'` is not understood; end the list with ]. The line is left out."),
        (
            "[memshim]",
            "`[memshim]` is not understood; let the settings stand above all [tables]: there are none here. The line is left out.",
        ),
    ] {
        for under_run in [false, true] {
            let (dir, said) = with_file(test, &format!("mode = 'full'\nout = 't.jsonl'\n{line}\n"), under_run, &[]);
            let path = if under_run { dir.join("m.toml").display().to_string() } else { "m.toml".to_owned() };
            assert_eq!(said, format!("memshim: MEMSHIM_CONFIG={path}, line 3: {why}\n"), "{line}");
            assert_eq!(header(&dir)["mode"], "full", "the other lines count");
        }
    }
    let (_, said) = with_file(test, "mood = 1", false, &[]);
    assert!(said.starts_with("memshim: MEMSHIM_CONFIG=m.toml, line 1: `mood = 1` is not understood; give one of out, mode, "), "{said}");
    let (_, said) = with_file(test, "mode = 'quick'\nbig = 'x'\n", false, &[("MEMSHIM_MAX", "0")]);
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 3 && lines[0].contains("MEMSHIM_MAX=0") && lines[2].contains("line 2: big = x"), "{said}");
    for (file, why) in
        [("none.toml", "there is no such file; name it by its full path where programs change the folder"), ("/", "it is a folder")]
    {
        let (dir, said) = with_file(test, "", false, &[("MEMSHIM_CONFIG", file)]);
        assert_eq!(said, format!("memshim: MEMSHIM_CONFIG={file}: {why}. The file is left out.\n"));
        let trace = std::fs::read_to_string(dir.join("trace.jsonl")).expect("a trace");
        assert!(trace.contains(&format!("\"what\":\"MEMSHIM_CONFIG={file}: {why}. The file is left out.\"")), "it is in the trace too");
    }
    // A bad line is no reason to say it in each of a build's processes.
    let dir = support::fresh_dir(test);
    std::fs::write(dir.join("m.toml"), "mode = quick\n").expect("a file");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "/bin/true; /bin/true; :"]).current_dir(&dir).env("LD_PRELOAD", support::shim()).env("MEMSHIM_CONFIG", "m.toml");
    let out = command.output().expect("sh");
    assert_eq!(support::lossy(&out.stderr).lines().count(), 1);
}

#[test]
fn children_have_the_settings_of_the_file() {
    let dir = support::fresh_dir("settings_children");
    std::fs::write(dir.join("m.toml"), "mode = 'full'\nbig = 12345\n").expect("a file");
    std::fs::create_dir(dir.join("below")).expect("a folder");
    let mut command = Command::new(support::memshim());
    // A fork, and a program in another folder.
    command.args(["run", "-q", "-o", "t.jsonl", "--", "/bin/sh", "-c", "(:; : | :); cd below; /bin/true; :"]);
    let out = command.current_dir(&dir).env("MEMSHIM_CONFIG", "m.toml").output().expect("sh");
    assert!(out.status.success() && out.stderr.is_empty(), "{}", support::lossy(&out.stderr));
    let members: Vec<_> =
        std::fs::read_dir(dir.join("t.d")).expect("children").flatten().filter(|e| e.path().extension().is_some()).collect();
    assert!(members.len() >= 2);
    for member in members {
        let text = std::fs::read_to_string(member.path()).expect("a trace");
        let header: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
        assert_eq!((&header["mode"], &header["big"]), (&"full".into(), &12345.into()), "{}", header["argv"]);
    }
}

/// What the report of the trace in `dir` notes.
fn notes(dir: &Path, trace: &str) -> Vec<String> {
    let report: Value = serde_json::from_str(&support::analyze(&dir.join(trace)).expect("a report")).expect("JSON");
    let all = report["runs"][0]["notes"].as_array().expect("notes");
    all.iter().map(|n| n.as_str().expect("a text").to_owned()).collect()
}

#[test]
fn what_only_run_uses_is_said_in_the_report_where_nobody_does() {
    let file = "phase_on = ['^x']\ncompiles = true\nartifacts = 'out'\n";
    let variables = [("MEMSHIM_PHASE_ON", "("), ("MEMSHIM_COMPILES", "1"), ("MEMSHIM_ARTIFACTS", "out/**")];
    let of = |name: &str| {
        format!("{name} has no effect here: it is of `memshim run`, which watches from outside. Start the program with `memshim run -- …`")
    };
    let (dir, said) = with_file("settings_of_run", file, false, &variables);
    assert_eq!(said, "", "the program's stderr is its own");
    let names = ["MEMSHIM_PHASE_ON", "MEMSHIM_COMPILES", "MEMSHIM_ARTIFACTS"];
    let both = names.iter().flat_map(|v| [v.to_string(), format!("MEMSHIM_CONFIG: {}", v["MEMSHIM_".len()..].to_lowercase())]);
    assert_eq!(notes(&dir, "trace.jsonl"), both.map(|name| of(&name)).collect::<Vec<_>>());
    // What is switched off needs nobody.
    let off = [("MEMSHIM_COMPILES", "0"), ("MEMSHIM_PHASE_ON", "")];
    let (dir, _) = with_file("settings_of_run", "compiles = false\n", false, &off);
    assert_eq!(notes(&dir, "trace.jsonl"), [""; 0]);
    for set in [&variables[1..], &[]] {
        let (dir, _) = with_file("settings_of_run", file, true, set);
        assert_eq!(notes(&dir, "trace.jsonl"), ["^x (MEMSHIM_PHASE_ON): no line of the output fits it"], "under run they are used");
    }
}

#[test]
fn rules_that_cannot_be_used_are_refused_by_run_and_said_in_the_report_without() {
    let test = "settings_rules";
    let (on, py, sym) = ("write a regular expression such as", "write module:function", "write object:function");
    for (variable, flag, key, value, fix) in [
        ("MEMSHIM_PHASE_ON", "--phase-on", "phase_on", "(x", on),
        ("MEMSHIM_PHASE_PY", "--phase-py", "phase_py", "solve", py),
        ("MEMSHIM_PHASE_SYM", "--phase-sym", "phase_sym", "dgemm_", sym),
    ] {
        let refused = |args: &[&str], file: &str, set: &[(&str, &str)], from: &str| {
            let dir = support::fresh_dir(test);
            std::fs::write(dir.join("m.toml"), file).expect("a file");
            let mut command = Command::new(support::memshim());
            command.arg("run").args(args).args(["--", "/bin/sh", "-c", "echo ran"]).current_dir(&dir);
            let out = command.env("MEMSHIM_CONFIG", "m.toml").envs(set.iter().copied()).output().expect("memshim");
            let said = support::lossy(&out.stderr);
            assert_eq!((out.status.code(), support::lossy(&out.stdout)), (Some(125), String::new()), "{from}: {said}");
            assert!(said.contains(from) && said.contains(value) && said.contains(fix), "{from}: {said}");
            assert!(!dir.join("trace.jsonl").exists());
        };
        refused(&[flag, value], "", &[], flag);
        refused(&[], "", &[(variable, value)], variable);
        refused(&[], &format!("mode = 'full'\n{key} = ['{value}']\n"), &[], &format!("m.toml, line 2: {key} = "));
        // Without `run` the program has no say in it, and the other settings count.
        let (dir, said) = with_file(test, &format!("mode = 'full'\n{key} = ['{value}']\n"), false, &[]);
        let notes = notes(&dir, "trace.jsonl");
        if key == "phase_on" {
            assert!(said.is_empty() && notes[0].contains("phase_on has no effect here"), "{said} {notes:?}");
        } else {
            let line = format!("MEMSHIM_CONFIG=m.toml, line 2: {key} = {value} is not understood; give ");
            assert!(said.contains(&line) && notes.len() == 1 && notes[0].starts_with(&line), "{said} {notes:?}");
        }
    }
    // A rule whose line cannot be read is one too.
    let dir = support::fresh_dir(test);
    std::fs::write(dir.join("m.toml"), "phase_on = ['a'\n").expect("a file");
    let out =
        Command::new(support::memshim()).args(["run", "true"]).current_dir(&dir).env("MEMSHIM_CONFIG", "m.toml").output().expect("memshim");
    assert_eq!(out.status.code(), Some(125));
    assert!(support::lossy(&out.stderr).contains("line 1: `phase_on = ['a'` is not understood; end the list with ]. Nothing was started"));
    // Of rules that are overruled nothing is said, wherever they stand.
    std::fs::write(dir.join("m.toml"), "phase_py = ['solve']\n").expect("a file");
    for (flags, name, value, code) in [
        (&["--phase-py", "a:b"][..], "MEMSHIM_PHASE_PY", "solve", 0),
        (&["--phase-py", "a:b"], "MEMSHIM_CONFIG", "m.toml", 0),
        (&["--phase-sym", "libm*:cos"], "MEMSHIM_CONFIG", "m.toml", 125),
    ] {
        let mut command = Command::new(support::memshim());
        let out = command.args(["run", "-q"]).args(flags).arg("true").current_dir(&dir).env(name, value).output().expect("memshim");
        assert_eq!(out.status.code(), Some(code), "{flags:?} {name}: {}", support::lossy(&out.stderr));
    }
}
