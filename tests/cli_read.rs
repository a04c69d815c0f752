//! The reading verbs from outside: exit codes, errors that name the fix, JSON that parses, no colours where they don't belong.

use std::process::{Command, Output};

const TRACE: &str = concat!(
    r#"{"type":"header","v":1,"run":"00","pid":42,"ppid":1,"start_ticks":1,"pid_ns":1,"exec":0,"mode":"full","cols":"array","tick_ns":100,"#,
    r#""mono_ns":1000000000,"wall_ns":1764289999000000000,"host":"elsewhere","exe":"/bin/x","argv":["x","\u001b[2J"],"cwd":"/","rank":null,"job":null,"#,
    r#""interval_ns":100000000,"big":65536,"sample":524288,"page":4096,"allocator":"glibc","slack":24,"fns":["malloc","free"],"spool":"shared"}"#,
    "\n",
    r#"{"type":"rss","t":1500000000,"rss":4194304,"hwm":4194304,"anon":1048576,"file":3145728,"shmem":0,"swap":0,"size":8388608,"stk":135168,"threads":1}"#,
    "\n",
    r#"{"type":"maps","ev":[["mmap",1,1100000000,0,140000000000000,1048576,3,34,0],["munmap",2,1200000000,0,140000000000000,1048576]]}"#,
    "\n",
    r#"{"type":"end","t":2000000000,"how":"exit","code":3,"counted":0,"recorded":0,"lost":0,"failed":0}"#,
    "\n",
);

fn memshim(args: &[&str]) -> Output {
    Command::new(assert_cmd::cargo::cargo_bin!("memshim")).args(args).env_remove("LC_ALL").env("LANG", "C.UTF-8").output().unwrap()
}

fn with_trace(text: &str, then: impl FnOnce(&str)) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.jsonl");
    std::fs::write(&path, text).unwrap();
    then(path.to_str().unwrap());
}

fn out(o: &Output) -> String {
    assert!(o.status.success(), "{}", err(o));
    String::from_utf8_lossy(&o.stdout).into_owned()
}

fn err(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

#[test]
fn a_trace_is_told_on_one_screen() {
    with_trace(TRACE, |path| {
        let o = memshim(&["analyze", path]);
        let text = String::from_utf8(o.stdout.clone()).unwrap();
        assert_eq!(o.status.code(), Some(0), "{}", err(&o));
        for wanted in ["exit code 3", "peak 4.00 MiB", "peak committed 1.00 MiB", "next"] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert!(!text.contains('\x1b'), "no colours into a pipe, no escapes out of a trace: {text}");
        assert!(text.lines().count() <= 40, "{text}");
    });
}

#[test]
fn json_has_the_contracts_keys() {
    with_trace(TRACE, |path| {
        let o = memshim(&["analyze", "--json", path]);
        let v: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
        let run = &v["runs"][0];
        assert_eq!((&run["pid"], &run["end"]["code"], &run["maps"]["anon"]["peak_bytes"]), (&42.into(), &3.into(), &(1 << 20).into()));
        assert_eq!(run["maps"]["regions"][0]["anon_bytes"], serde_json::json!([1 << 20, 0]));
    });
}

#[test]
fn a_forked_childs_heap_at_its_peak_holds_what_it_inherited() {
    let (header, rest) = TRACE.split_once('\n').unwrap();
    let header = header.replace(r#""fns""#, r#""inherited":{"live":1048576,"blocks":9,"from":1},"fns""#);
    let snap =
        r#"{"type":"snap","t":1600000000,"why":"peak","rss":5242880,"hwm":5242880,"anon":2097152,"file":3145728,"live":-4096,"blocks":-1}"#;
    // Without a word about the heap, as where the child only waits; then with its own balance, below zero by what it freed.
    for (rest, wanted) in [(rest.to_owned(), 1 << 20), (format!("{snap}\n{rest}"), (1 << 20) - 4096)] {
        with_trace(&format!("{header}\n{rest}"), |path| {
            let v: serde_json::Value = serde_json::from_slice(&memshim(&["analyze", "--json", path]).stdout).unwrap();
            let run = &v["runs"][0];
            assert_eq!(run["rss"]["at_peak"]["heap"], wanted, "{rest}");
            assert_eq!(run["samples"][0]["heap"], 1 << 20);
            let text = String::from_utf8(memshim(&["analyze", path]).stdout).unwrap();
            assert!(text.contains("those inherited at the fork too"), "{text}");
        });
    }
}

#[test]
fn a_trace_that_cannot_be_read_is_exit_3_and_says_why() {
    let o = memshim(&["analyze", "/no/such/trace.jsonl"]);
    assert_eq!(o.status.code(), Some(3));
    let fix = "name a trace, or a folder of traces (`memshim run -- PROGRAM` writes trace.jsonl)";
    assert_eq!(err(&o), format!("memshim: /no/such/trace.jsonl: not there: {fix}\n"), "the cause once");
    with_trace("hello\n", |path| {
        let o = memshim(&["analyze", path]);
        assert_eq!(o.status.code(), Some(3));
        assert!(err(&o).contains("not a memshim trace"), "{}", err(&o));
    });
}

#[test]
fn a_wrong_command_line_is_exit_2() {
    for args in [&["analyze"][..], &["analyze", "--sizes", "many", "t"], &["no-such-verb"], &[]] {
        assert_eq!(memshim(args).status.code(), Some(2), "{args:?}");
    }
    assert_eq!(memshim(&["--help"]).status.code(), Some(0));
    with_trace(TRACE, |path| {
        let o = memshim(&["analyze", "--pid", "7", path]);
        assert!(o.status.code() == Some(2) && err(&o).contains("--pid 7"), "{}", err(&o));
        for args in [
            &["analyze", "--symbols", "/neither/here/nor/there"][..],
            &["analyze", "--suppressions", "/neither/here/nor/there"],
            &["analyze", "--memory", "maps", "--at", "1"],
            &["analyze", "--memory", "gpu", "--thread", "7"],
            &["analyze", "--at", "3..2"],
            &["export", "--to", "svg", "--symbols", "/neither/here/nor/there"],
            &["pack", "-o", "/"],
        ] {
            let o = memshim(&[args, &[path]].concat());
            assert_eq!(o.status.code(), Some(2), "{args:?}: {}", err(&o));
        }
    });
}

#[test]
fn every_verb_has_examples() {
    for verb in ["run", "analyze", "env", "doctor"] {
        let help = String::from_utf8(memshim(&[verb, "--help"]).stdout).unwrap();
        assert!(help.contains("EXAMPLES"), "{verb}: {help}");
    }
}

#[test]
fn env_prints_an_assignment_that_sh_takes() {
    let dir = tempfile::tempdir().unwrap();
    let library = dir.path().join("libmemshim.so");
    std::fs::write(&library, "").unwrap();
    let mut c = Command::new(assert_cmd::cargo::cargo_bin!("memshim"));
    let o = c.arg("env").env("MEMSHIM_SHIM", &library).env("LD_PRELOAD", "").output().unwrap();
    let wanted = format!("LD_PRELOAD={}\n", library.canonicalize().unwrap().display());
    assert_eq!(String::from_utf8(o.stdout).unwrap(), wanted);
}

/// A trace with a stack of two Python frames: 4096 bytes live at the peak by `solve` of run.py.
fn with_sites(then: impl FnOnce(&str)) {
    let text = concat!(
        r#"{"type":"header","v":1,"pid":42,"ppid":1,"start_ticks":1,"pid_ns":1,"exec":0,"mode":"full","tick_ns":100,"mono_ns":1000,"wall_ns":1764289999000000000,"host":"elsewhere","argv":["x"],"slack":24,"fns":["malloc"],"stacks":"python"}"#,
        "\n",
        r#"{"type":"code","codes":[[1,"/home/u/run.py","main",3,779,""],[2,"/home/u/run.py","solve",10,779,""]]}"#,
        "\n",
        r#"{"type":"pynodes","lane":0,"from":1,"n":2,"nodes":[1,1,1,1,2,4]}"#,
        "\n",
        r#"{"type":"kinds","from":1,"kinds":[[0,4096,8,0]]}"#,
        "\n",
        r#"{"type":"ev","g":0,"lane":0,"n":1,"seq":0,"t0":2000,"t1":3000,"k":[3],"p":[0,2]}"#,
        "\n",
    );
    with_trace(text, then);
}

#[test]
fn the_report_names_who_held_the_peak() {
    with_sites(|path| {
        let text = out(&memshim(&["analyze", path]));
        assert!(text.contains("OWNERS    of 4.00 KiB live at the peak"), "{text}");
        assert!(text.contains("4.00 KiB  100 %    run.py:10 solve"), "{text}");
        let wide: Vec<_> = text.lines().filter(|l| l.chars().count() > 100).collect();
        assert!(wide.is_empty(), "{wide:?}");
    });
}

#[test]
fn sites_can_be_listed_and_seen_in_several_ways() {
    with_sites(|path| {
        let of = |args: &[&str]| out(&memshim(&[&["analyze", path][..], args].concat()));
        let list = of(&["--sites"]);
        assert!(list.contains("→ run.py:10 solve\n") && list.contains("  run.py:3 main\n"), "{list}");
        assert!(list.contains("live 4.00 KiB in 1 blocks; own peak 4.00 KiB; total 4.00 KiB in 1 allocations,"), "{list}");
        assert!(
            of(&["--by", "line"]).contains("4.00 KiB  100 %       0 B  0.0 %            1  run.py:3 main"),
            "{}",
            of(&["--by", "line"])
        );
        assert!(of(&["--tree"]).contains("4.00 KiB  100 %  run.py:3 main\n"), "{}", of(&["--tree"]));
        assert!(of(&["--sites", "--filter", "!solve"]).contains("no allocation is left by the filters"));
        let json: serde_json::Value = serde_json::from_str(&of(&["--json", "--by", "function", "--sort", "total"])).unwrap();
        let run = &json["runs"][0];
        assert_eq!(run["sites"][0]["live_at_peak_bytes"], 4096);
        assert_eq!(run["sites"][0]["frames"][0]["function"], "solve");
        assert_eq!(run["owners"][0]["frame"]["line"], 10);
        assert_eq!(run["sites_view"]["rows"][0]["inclusive"], 4096);
    });
}

#[test]
fn known_leaks_are_not_counted_as_such() {
    with_sites(|path| {
        let file = std::path::Path::new(path).with_file_name("known.supp");
        std::fs::write(&file, "# one\nleak:^solve$\n").unwrap();
        let file = file.to_str().unwrap();
        let json: serde_json::Value = serde_json::from_str(&out(&memshim(&["analyze", path, "--json", "--suppressions", file]))).unwrap();
        let run = &json["runs"][0];
        assert_eq!((&run["sites_total"]["suppressed_bytes"], &run["sites"][0]["suppressed"]), (&4096.into(), &"^solve$".into()));
        std::fs::write(file, "solve\n").unwrap();
        let failed = memshim(&["analyze", path, "--suppressions", file]);
        assert_eq!(failed.status.code(), Some(2));
        assert!(err(&failed).contains(":1: `solve` is not `leak:PATTERN`"), "{}", err(&failed));
    });
}

#[test]
fn labels_say_which_instant_is_shown() {
    with_sites(|path| {
        let of = |args: &[&str]| out(&memshim(&[&["analyze", path][..], args].concat()));
        let late = of(&["--sites", "--at", "9"]);
        assert!(late.contains("live at 9.00 s") && late.contains("the run ended at 0.000 s") && !late.contains("the peak"), "{late}");
        assert!(of(&["--at", "9"]).contains("live at 9.00 s"), "{}", of(&["--at", "9"]));
        for view in [["--by", "line"], ["--tree", "--interpreter"]] {
            let text = of(&[&view[..], &["--at", "0.5"]].concat());
            assert!(text.contains("live at 500 ms") && !text.contains("at the peak"), "{text}");
        }
        let window = of(&["--sites", "--at", "0..2"]);
        assert!(window.contains("live at the peak from 0.000 s to 2.000 s"), "{window}");
        let json: serde_json::Value = serde_json::from_str(&of(&["--json"])).unwrap();
        let total = &json["runs"][0]["sites_total"];
        assert_eq!(total["by_memory"], serde_json::json!({"heap": {"sites": 1, "listed": 1}}));
        assert_eq!((&total["owners"], &total["instant"], &total["memory"]), (&1.into(), &"the peak".into(), &"heap".into()));
        let none = of(&["--sites", "--memory", "python"]);
        assert!(none.contains("MEMSHIM_PYTHON_ALLOC=1"), "{none}");
    });
}

/// A module that is gone is said on the first screen, not only with the list of sites.
#[test]
fn missing_names_are_said_with_the_owners() {
    let text = concat!(
        r#"{"type":"header","v":1,"pid":42,"ppid":1,"start_ticks":1,"pid_ns":1,"exec":0,"mode":"full","tick_ns":100,"mono_ns":1000,"wall_ns":1764289999000000000,"host":"elsewhere","argv":["x"],"slack":24,"fns":["malloc"],"stacks":"native"}"#,
        "\n",
        r#"{"type":"modules","t":1,"load":[[1,4096,"/no/such/libgone.so","",[[8192,12288]]]],"unload":[]}"#,
        "\n",
        r#"{"type":"nodes","lane":0,"from":1,"n":1,"nodes":[1,32800]}"#,
        "\n",
        r#"{"type":"kinds","from":1,"kinds":[[0,4096,8,0]]}"#,
        "\n",
        r#"{"type":"ev","g":0,"lane":0,"n":1,"seq":0,"t0":2000,"t1":3000,"k":[3],"s":[0,1]}"#,
        "\n",
    );
    with_trace(text, |path| {
        let text = out(&memshim(&["analyze", path]));
        assert!(text.contains("names of /no/such/libgone.so"), "{text}");
    });
}

#[test]
fn who_stops_reading_hears_nothing_more() {
    with_trace(TRACE, |path| {
        for verb in [&["analyze"][..], &["analyze", "--json"], &["pack", "-o"]] {
            let dir = tempfile::tempdir().unwrap();
            let mut args: Vec<String> = verb.iter().map(|a| a.to_string()).collect();
            if verb[0] == "pack" {
                args.push(dir.path().join("packed").display().to_string());
            }
            args.push(path.into());
            let (read, write) = std::io::pipe().unwrap();
            drop(read);
            let mut command = Command::new(assert_cmd::cargo::cargo_bin!("memshim"));
            let o = command.args(&args).stdout(write).stderr(std::process::Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
            assert_eq!((o.status.code(), err(&o)), (Some(141), String::new()), "{verb:?}");
        }
    });
}

#[test]
fn what_cannot_be_done_as_asked_is_a_usage_error_that_names_the_fix() {
    with_trace(TRACE, |path| {
        let folder = std::path::Path::new(path).parent().unwrap().to_str().unwrap();
        for (args, fix) in [
            (vec!["analyze", path, "--sites", "--top", "0"], "write 1 or more"),
            (vec!["analyze", path, "--at", "-1"], "write seconds since the start"),
            (vec!["analyze", path, "--pid", "7"], "there is 42"),
            (vec!["analyze", path, "--symbols", path], "name a folder"),
            (vec!["analyze", path, "--suppressions", "/proc/x"], "--suppressions /proc/x"),
            (vec!["pack", "-o", folder, path], "name a folder that is not there yet"),
            (vec!["analyze"], "<TRACE>"),
        ] {
            let o = memshim(&args);
            assert_eq!(o.status.code(), Some(2), "{args:?}: {}", err(&o));
            assert!(err(&o).contains(fix), "{args:?}: {}", err(&o));
        }
        let o = memshim(&["analyze", "/proc/x"]);
        assert_eq!(o.status.code(), Some(3));
        assert!(err(&o).contains("name a trace"), "{}", err(&o));
    });
}

#[test]
fn what_there_is_nothing_of_is_said_with_how_to_get_it() {
    with_sites(|path| {
        for (args, fix) in [
            (&["--memory", "python"][..], "MEMSHIM_PYTHON_ALLOC=1"),
            (&["--memory", "gpu"], "the program took none from CUDA's driver"),
            (&["--filter", "nothing-like-it"], "loosen --filter"),
        ] {
            let o = memshim(&[&["export", "--to", "collapsed", path][..], args].concat());
            assert!(o.status.code() == Some(3) && err(&o).contains(fix) && !err(&o).contains("MEMSHIM_STACKS"), "{args:?}: {}", err(&o));
        }
        let gpu = out(&memshim(&["analyze", "--sites", "--memory", "gpu", path]));
        assert!(gpu.contains("CUDA's driver") && !gpu.contains("PYTHON"), "{gpu}");
    });
}

#[test]
fn no_room_for_the_output_is_exit_4() {
    with_sites(|path| {
        for args in [&["analyze", path][..], &["analyze", "--json", path], &["export", "--to", "collapsed", path]] {
            let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
            let mut command = Command::new(assert_cmd::cargo::cargo_bin!("memshim"));
            let o = command.args(args).stdout(full).stderr(std::process::Stdio::piped()).output().unwrap();
            assert_eq!((o.status.code(), &*err(&o)), (Some(4), "memshim: cannot print: no space left on device\n"), "{args:?}");
        }
        let o = memshim(&["export", "--to", "svg", "-o", "/dev/full", path]);
        assert!(o.status.code() == Some(4) && err(&o).starts_with("memshim: -o /dev/full: No space left"), "{}", err(&o));
        let o = memshim(&["export", "--to", "svg", "-o", &format!("{path}/x.svg"), path]);
        assert!(o.status.code() == Some(2) && err(&o).contains("name a file that can be written"), "{}", err(&o));
    });
}

#[test]
fn no_error_is_said_twice() {
    with_trace(TRACE, |path| {
        let folder = std::path::Path::new(path).parent().unwrap().to_str().unwrap();
        for args in [
            vec!["analyze", path, "--suppressions", folder],
            vec!["analyze", "/proc/self/mem"],
            vec!["export", "--to", "svg", "-o", "/proc/x", path],
            vec!["pack", "-o", "/proc/x", path],
        ] {
            let said = err(&memshim(&args));
            let parts: Vec<&str> = said.trim_start_matches("memshim: ").trim().split(": ").collect();
            assert!(parts.iter().enumerate().all(|(i, part)| !parts[..i].contains(part)), "{said}");
            assert!(said.lines().count() == 1 && parts.len() > 1, "{said}");
        }
    });
}

#[test]
fn an_option_without_effect_is_a_usage_error_that_names_the_fix() {
    with_sites(|path| {
        let known = std::path::Path::new(path).with_file_name("known.supp");
        std::fs::write(&known, "leak:solve\n").unwrap();
        let known = known.to_str().unwrap();
        let views = "add --sites, --by VIEW or --tree";
        let told = "with --memory heap and --memory python only";
        for (args, fix) in [
            (&["analyze", "--sort", "total"][..], views),
            (&["analyze", "--top", "3"], views),
            (&["analyze", "--json", "--top", "3"], views),
            (&["analyze", "--interpreter"], views),
            (&["analyze", "--sizes", "64"], "add --json"),
            (&["analyze", "--by", "thread", "--memory", "maps"], told),
            (&["analyze", "--sites", "--sort", "temporary", "--memory", "gpu"], told),
            (&["export", "--to", "svg", "--of", "temporary", "--memory", "maps"], told),
            (&["export", "--to", "collapsed", "--suppressions", known], "add --of leaked"),
        ] {
            let o = memshim(&[args, &[path]].concat());
            assert!(o.status.code() == Some(2) && err(&o).contains(fix), "{args:?}: {:?} {}", o.status, err(&o));
            assert!(o.stdout.is_empty(), "{args:?}");
        }
        for args in [
            &["analyze", "--sites", "--sort", "total", "--top", "3"][..],
            &["analyze", "--tree", "--interpreter"],
            &["analyze", "--json", "--interpreter"],
            &["analyze", "--json", "--sizes", "64"],
            &["export", "--to", "pprof", "--suppressions", known],
            &["export", "--to", "collapsed", "--of", "temporary"],
        ] {
            let o = memshim(&[args, &[path]].concat());
            assert_eq!((o.status.code(), err(&o)), (Some(0), String::new()), "{args:?}");
        }
    });
}

#[test]
fn what_is_asked_of_nothing_says_what_there_is() {
    with_sites(|path| {
        for verb in [&["analyze"][..], &["analyze", "--json"], &["analyze", "--sites"], &["export", "--to", "collapsed"]] {
            let o = memshim(&[verb, &["--thread", "7", path]].concat());
            assert_eq!((o.status.code(), o.stdout.len()), (Some(2), 0), "{verb:?}");
            assert!(err(&o).contains("--thread 7: no such thread in these traces; "), "{verb:?}: {}", err(&o));
            let o = memshim(&[verb, &["--pid", "7", path]].concat());
            // Of the JSON all processes are a part.
            let wanted =
                if verb.contains(&"--json") { "cannot be used with" } else { "--pid 7: no such process in these traces; there is 42" };
            assert!(o.status.code() == Some(2) && err(&o).contains(wanted), "{verb:?}: {}", err(&o));
        }
        let of = |args: &[&str]| out(&memshim(&[&["analyze", path][..], args].concat())).split_whitespace().collect::<Vec<_>>().join(" ");
        // The report has its section of owners in the place of the list.
        for (args, title) in [(&["--sites"][..], "SITES"), (&["--tree"], "SITES"), (&[], "OWNERS")] {
            let text = of(&[args, &["--filter", "!solve"]].concat());
            let wanted = format!("{title} no allocation is left by the filters (--filter '!solve'): no call site passes");
            assert!(text.contains(&wanted), "{args:?}: {text}");
        }
        assert!(of(&["--memory", "python"]).contains("OWNERS there are no blocks of Python's own"), "{}", of(&["--memory", "python"]));
        // After the end nothing is new: that is the instant that is shown.
        let window = of(&["--sites", "--at", "7..9"]);
        assert!(window.contains("the run ended at 0.000 s") && window.contains("from 7.000 s to 9.000 s (2 µs)"), "{window}");
        let late = memshim(&["export", "--to", "collapsed", "--at", "9", path]);
        assert_eq!(out(&late), "run.py:3 main;run.py:10 solve 4096\n");
        assert_eq!(err(&late), "memshim: call sites at 9.000 s: the run ended at 0.000 s; what is said is what was live then\n");
    });
}

/// Of a process without stacks a question about call sites is answered, too.
#[test]
fn where_no_stacks_were_recorded_a_filter_says_so() {
    with_trace(TRACE, |path| {
        let text = out(&memshim(&["analyze", "--filter", "x", path]));
        assert!(text.contains("OWNERS    no call stacks were recorded"), "{text}");
        assert!(!out(&memshim(&["analyze", path])).contains("OWNERS"));
    });
}

/// The trace of a process that goes on, of which nothing else is there: cut anywhere between two lines.
#[test]
fn a_trace_without_its_end_says_up_to_where_its_figures_hold() {
    let end = "{\"type\":\"end\",\"t\":3000,\"how\":\"exit\",\"code\":0}\n";
    with_sites(|path| {
        let cut = out(&memshim(&["analyze", path]));
        for wanted in [
            "(exact, up to 2 µs)",
            "live at 2 µs, where the trace breaks off, 4.00 KiB in 1 blocks\n",
            "the end is not in the trace: these figures are of the first 2 µs",
            "ended     end not in the trace",
            "the trace was cut, or the process was killed",
        ] {
            assert!(cut.contains(wanted), "{wanted}: {cut}");
        }
        assert!(!cut.contains("leaked, unless") && !cut.contains("died without warning") && !cut.contains("at the end"), "{cut}");
        let until = |path: &str| {
            let json: serde_json::Value = serde_json::from_str(&out(&memshim(&["analyze", "--json", path]))).unwrap();
            json["runs"][0]["known_until_s"].as_f64()
        };
        assert_eq!(until(path), Some(2e-6));
        let whole = std::fs::read_to_string(path).unwrap() + end;
        std::fs::write(path, whole).unwrap();
        let text = out(&memshim(&["analyze", path]));
        assert!(text.contains("(exact)\n") && text.contains("in 1 blocks (leaked, unless kept on purpose)"), "{text}");
        assert_eq!(until(path), None);
    });
}

/// Without /proc nobody knows what was resident: that is no nought.
#[test]
fn what_nobody_could_look_at_is_null_and_said_not_to_be_known() {
    let kept: Vec<&str> = TRACE.lines().filter(|l| !l.contains(r#""type":"rss""#)).collect();
    with_trace(&(kept.join("\n") + "\n"), |path| {
        let v: serde_json::Value = serde_json::from_slice(&memshim(&["analyze", "--json", path]).stdout).unwrap();
        let (job, rss) = (&v["job"], &v["runs"][0]["rss"]);
        let null = serde_json::Value::Null;
        assert_eq!([&job["peak_bytes"], &job["request_mem_bytes"], &rss["peak_bytes"]], [&null; 3], "{job} {rss}");
        let text = out(&memshim(&["analyze", path]));
        assert!(!text.contains("peak 0 B") && text.contains("RESIDENT  not known: nobody could look (is /proc there?)"), "{text}");
        assert!(!text.contains("ask for"), "{text}");
    });
}

/// The kernel's own bound is taken a little before the last look.
#[test]
fn no_process_had_at_most_less_than_what_was_seen_of_it() {
    let outside =
        r#"{"type":"outside","t":1950000000,"pid":42,"hwm":4100000,"rusage":{"maxrss":4000000},"status":{"kind":"exited","code":3}}"#;
    with_trace(&format!("{TRACE}{outside}\n"), |path| {
        let v: serde_json::Value = serde_json::from_slice(&memshim(&["analyze", "--json", path]).stdout).unwrap();
        let rss = &v["runs"][0]["rss"];
        assert_eq!((&rss["peak_bytes"], &rss["at_most_bytes"]), (&4194304.into(), &4194304.into()), "{rss}");
    });
}
