//! Call sites for other tools: what `memshim export` writes is what the trace holds, and can be read back.

#[path = "support/writer.rs"]
#[allow(dead_code)]
mod writer;

use std::process::{Command, Output};
use writer::{Old, Writer};

/// Two stacks of Python: 3 × 1000 bytes live at the peak by `solve`, of which 1000 leak; two temporary ones of 10 bytes by `main`.
fn trace(pid: u32) -> Vec<u8> {
    let mut w = Writer::new(pid, "full", r#","stacks":"python""#);
    w.line(r#"{"type":"code","codes":[[1,"/home/u/run.py","main",3,779,""],[2,"/home/u/run;1.py","solve",10,779,""]]}"#);
    w.pynodes(0, 1, &[(0, 1, 1), (1, 2, 4)]);
    let (big, small) = (w.kind(0, 1000, 0, 0), w.kind(0, 10, 0, 0));
    w.at(0, 2000, false);
    w.site(0, 0, 2);
    let all: Vec<_> = (0..3).map(|_| w.alloc(0, big, None, None)).collect();
    w.free(0, Old::Block(all[0]));
    w.free(0, Old::Block(all[1]));
    w.site(0, 0, 1);
    for _ in 0..2 {
        let t = w.alloc(0, small, None, None);
        w.free(0, Old::Block(t));
    }
    w.flush();
    w.out
}

fn export(args: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("trace.jsonl"), trace(7)).unwrap();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("memshim"));
    command.current_dir(dir.path()).arg("export").args(args).arg("trace.jsonl").output().unwrap()
}

fn text(o: &Output) -> String {
    assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    String::from_utf8_lossy(&o.stdout).into_owned()
}

#[test]
fn collapsed_stacks_are_outermost_first_and_sum_up() {
    let of = |measure: &str| text(&export(&["--to", "collapsed", "--of", measure]));
    assert_eq!(of("peak"), "run.py:3 main;run,1.py:10 solve 3000\n");
    assert_eq!(of("leaked"), "run.py:3 main;run,1.py:10 solve 1000\n");
    assert_eq!(of("temporary"), "run.py:3 main 2\n");
    assert_eq!(of("total"), "run.py:3 main 20\nrun.py:3 main;run,1.py:10 solve 3000\n");
    assert_eq!(text(&export(&["--to", "collapsed", "--of", "total", "--filter", "!solve"])), "run.py:3 main 20\n");
}

#[test]
fn speedscope_has_all_measures_that_asked_for_first() {
    let all: serde_json::Value = serde_json::from_str(&text(&export(&["--to", "speedscope", "--of", "leaked"]))).unwrap();
    let first = &all["profiles"][0];
    assert_eq!((&first["name"], &first["endValue"], &first["unit"]), (&"live at the end".into(), &1000.into(), &"bytes".into()));
    let names: Vec<_> =
        first["samples"][0].as_array().unwrap().iter().map(|f| &all["shared"]["frames"][f.as_u64().unwrap() as usize]["name"]).collect();
    assert_eq!(names, ["main", "solve"]);
    assert_eq!(all["profiles"].as_array().unwrap().len(), 4);
    assert_eq!(all["shared"]["frames"][0]["file"], "/home/u/run.py");
}

#[test]
fn a_flame_graph_is_a_picture_with_the_names_in_it() {
    let svg = text(&export(&["--to", "svg"]));
    assert!(svg.starts_with("<?xml") && svg.contains("run.py:3 main") && svg.contains("3,000 bytes"), "{svg}");
    assert_eq!(svg, text(&export(&["--to", "svg"])), "the same picture every time");
}

#[test]
fn what_has_no_stacks_says_how_to_get_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    std::fs::write(&path, Writer::new(7, "full", "").out).unwrap();
    let out = Command::new(assert_cmd::cargo::cargo_bin!("memshim")).args(["export", "--to", "collapsed"]).arg(&path).output().unwrap();
    assert_eq!(out.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&out.stderr).contains("MEMSHIM_STACKS"));
}

/// Nothing to draw, another format of the same: what stood in the file stays.
#[test]
fn a_file_is_written_when_there_is_something_to_write() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("trace.jsonl"), trace(7)).unwrap();
    let export = |args: &[&str]| {
        std::fs::write(dir.path().join("out"), "kept").unwrap();
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("memshim"));
        let out = command.current_dir(dir.path()).arg("export").args(args).args(["-o", "out", "trace.jsonl"]).output().unwrap();
        (out.status.code(), std::fs::read_to_string(dir.path().join("out")).unwrap())
    };
    let kept = "kept".to_owned();
    assert_eq!(export(&["--to", "svg", "--filter", "nothing-like-it"]), (Some(3), kept.clone()));
    assert_eq!(export(&["--to", "svg", "--at", "0"]), (Some(3), kept.clone()), "nothing was live at the start");
    assert_eq!(export(&["--to", "svg", "--symbols", "/neither/here/nor/there"]), (Some(2), kept));
    let (code, text) = export(&["--to", "collapsed"]);
    assert!(code == Some(0) && text.contains("solve 3000"), "{text}");
}

#[test]
fn a_trace_is_not_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let plain = trace(7);
    let compressed = zstd::encode_all(&plain[..], 1).unwrap();
    for (name, content) in [("trace.jsonl", &plain), ("other.jsonl", &plain), ("trace.jsonl.zst", &compressed)] {
        std::fs::write(dir.path().join("trace.jsonl"), &plain).unwrap();
        std::fs::write(dir.path().join(name), content).unwrap();
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("memshim"));
        let out = command.current_dir(dir.path()).args(["export", "--to", "svg", "-o", name, "trace.jsonl"]).output().unwrap();
        assert!(out.status.code() == Some(2) && String::from_utf8_lossy(&out.stderr).contains("name another file"), "{name}: {out:?}");
        assert!(std::fs::read(dir.path().join(name)).unwrap() == *content, "{name}");
    }
}

/// A field of a protocol buffer.
#[derive(Debug)]
enum Field<'a> {
    Int(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut n = 0;
    for shift in (0..).step_by(7) {
        let (first, rest) = bytes.split_first().expect("a whole number");
        *bytes = rest;
        n |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    n
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Int(varint(&mut bytes)),
            2 => {
                let n = varint(&mut bytes) as usize;
                let (of, rest) = bytes.split_at(n);
                bytes = rest;
                Field::Bytes(of)
            }
            other => panic!("wire type {other}"),
        };
        all.push((key >> 3, field));
    }
    all
}

fn int(message: &[u8], wanted: u64) -> u64 {
    fields(message)
        .iter()
        .find_map(|(n, f)| match f {
            Field::Int(v) if *n == wanted => Some(*v),
            _ => None,
        })
        .unwrap_or(0)
}

fn inner(message: &[u8], wanted: u64) -> Vec<&[u8]> {
    fields(message)
        .into_iter()
        .filter_map(|(n, f)| match f {
            Field::Bytes(b) if n == wanted => Some(b),
            _ => None,
        })
        .collect()
}

fn packed(mut bytes: &[u8]) -> Vec<u64> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        all.push(varint(&mut bytes));
    }
    all
}

#[test]
fn pprof_says_the_same_when_it_is_decoded() {
    let out = export(&["--to", "pprof", "--of", "temporary"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let p = &out.stdout[..];
    let strings: Vec<String> = inner(p, 6).iter().map(|b| String::from_utf8_lossy(b).into_owned()).collect();
    assert_eq!(strings[0], "");
    let types: Vec<(&str, &str)> =
        inner(p, 1).iter().map(|t| (strings[int(t, 1) as usize].as_str(), strings[int(t, 2) as usize].as_str())).collect();
    assert_eq!(types[0], ("peak_space", "bytes"));
    assert_eq!(strings[int(p, 14) as usize], "temporary_objects");
    let functions = inner(p, 5);
    let locations = inner(p, 4);
    let name = |location: u64| {
        let l = locations.iter().find(|l| int(l, 1) == location).expect("a location");
        let line = inner(l, 4)[0];
        let f = functions.iter().find(|f| int(f, 1) == int(line, 1)).expect("a function");
        (strings[int(f, 2) as usize].clone(), strings[int(f, 4) as usize].clone(), int(line, 2))
    };
    let mut samples: Vec<_> = inner(p, 2)
        .iter()
        .map(|s| {
            let stack: Vec<String> = packed(inner(s, 1)[0]).into_iter().map(|l| name(l).0).collect();
            (stack.join(" < "), packed(inner(s, 2)[0]))
        })
        .collect();
    samples.sort();
    assert_eq!(samples, [("main".into(), vec![0, 0, 2, 20, 2]), ("solve < main".into(), vec![3000, 1000, 0, 3000, 3])]);
    assert_eq!(name(1), ("main".into(), "/home/u/run.py".into(), 3));
}
