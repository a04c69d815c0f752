//! Whatever a trace holds, `analyze` answers or says why not; it never panics. (Debug builds: no sum may overflow either.)

use memshim::analyze::{Options, analyze};
use memshim::model::load::Progress;

/// One line of every type.
const LINES: &str = r#"{"type":"header","v":1,"run":"00","pid":7,"ppid":1,"start_ticks":77,"pid_ns":1,"exec":0,"mode":"full","cols":"v93","tick_ns":100,"mono_ns":1000,"wall_ns":1764289999000000000,"host":{"hex":"61"},"exe":"/bin/x","argv":["x",{"hex":"ff"}],"cwd":"/","rank":3,"job":"981","big":65536,"sample":524288,"page":4096,"allocator":"glibc","slack":24,"fns":["malloc","calloc","realloc"],"stacks":"mixed","python":null,"inherited":{"live":500,"blocks":2,"from":1}}
{"type":"kinds","from":1,"kinds":[[0,100,4,0],[2,120,0,1],[0,-1,0,0],[0,300,4,4]]}
{"type":"modules","t":1400,"load":[[1,4096,"/nowhere/a","0aff",[[4096,8192],[12288,16384]]],[2,65536,"/nowhere/b","",[[65536,69632]]]],"unload":[1]}
{"type":"python","t":1450,"version":"3.11.2","known":true}
{"type":"code","codes":[[1,"a.py","f",7,779,"8000"],[2,{"hex":"ff"},"g",9,775,"0001"]]}
{"type":"nodes","lane":0,"from":1,"n":3,"nodes":[1,10000,1,2000,2,130001]}
{"type":"nodes","lane":1,"from":1,"n":2,"nodes":[1,0,1,10000]}
{"type":"pynodes","lane":0,"from":1,"n":2,"nodes":[1,1,5,1,2,6]}
{"type":"thread","t":1500,"lane":0,"tid":7,"seq":0,"what":"start"}
{"type":"ev","g":0,"lane":0,"n":4,"seq":0,"t0":2000,"t1":3000,"t":[2,3],"k":[3,9,6,7,4],"x":[],"z":[777,8],"s":[0,2,2,3],"p":[1,2],"allocs":3,"frees":2,"bytes":997,"live":5,"peak":9}
{"type":"ev","g":0,"lane":1,"n":4,"seq":0,"t0":2100,"t1":3100,"t":[1,1],"k":[1,3,2,1],"x":[1,2,0,55,64],"z":[],"s":[1,2]}
{"type":"thread","t":3500,"lane":0,"tid":8,"seq":4,"what":"start","name":"w"}
{"type":"ev","g":1,"lane":0,"n":3,"seq":3,"t0":3200,"t1":4100,"t":[1,1],"k":[12,4,5],"x":[],"z":[]}
{"type":"calls","t":4000,"fns":[[0,1000,64000],[11,998,0]],"live":2048,"blocks":2,"failed":3,"lost":1,"lanes":[[0,1000,64000,998,2048,4096],[1,1,2,3,4,5]]}
{"type":"calls","t":5000,"fns":[[0,1001,64000],[11,998,0]],"live":2048,"blocks":2,"failed":3,"lost":1,"lanes":[[0,1001,64000,998,2050,4096]]}
{"type":"maps","ev":[["mmap",1,2,0,65536,8192,3,34,0],["mremap",2,3,4,0,65536,8192,131072,16384,1],["mprotect",4,5,0,131072,4096,0],["madvise",5,6,0,131072,4096,4],["munmap",6,7,0,131072,4096],["undo",6],["brk",7,8,0,4096,8192],["shmat",8,9,0,1048576,4096],["shmdt",9,9,0,1048576,0]]}
{"type":"rss","t":4000,"rss":1000000,"hwm":1000001,"anon":500000,"file":500000,"shmem":0,"swap":0,"size":1,"stk":132000,"threads":3}
{"type":"snap","t":4001,"why":"peak","rss":1000002,"hwm":1000002,"anon":500000,"file":500000,"self":{"maxrss":5,"utime_ns":5,"stime_ns":6},"children":{"maxrss":7},"live":2048,"blocks":3,"own":{"spool":4096}}
{"type":"child","t":4500,"how":"fork","pid":4243}
{"type":"lost","t":4600,"lane":1,"n":17,"why":"ring full"}
{"type":"note","t":4600,"what":"a note"}
{"type":"process","pid":7,"start_ticks":77}
{"type":"thread","t":4700,"lane":0,"tid":8,"what":"end","name":"worker"}
{"type":"end","t":5000,"how":"exit","code":0,"counted":10,"recorded":9,"lost":1,"failed":0,"own":{}}
{"type":"outside","pid":7,"t":5001,"wall_ns":1,"hwm":1000003,"status":{"kind":"exited","code":0},"rusage":{"utime_ns":1,"stime_ns":2}}
{"type":"header","v":1,"pid":7,"start_ticks":77,"exec":1,"mode":"fast","tick_ns":100,"mono_ns":6000,"wall_ns":1764289999000005000,"slack":null}
{"type":"kinds","from":1,"kinds":[[0,300,4,4]]}
{"type":"ev","g":0,"lane":0,"n":2,"seq":0,"t0":7000,"t1":8000,"k":"$%"}
{"type":"calls","t":9000,"fns":[[0,1000,64000]],"live":2048,"blocks":2,"lanes":[[0,1000,64000,998,2048,4096],[1,1,2,3,4,5]]}
"#;

fn runs(path: &std::path::Path, text: &[u8]) -> usize {
    std::fs::write(path, text).unwrap();
    let options = Options { sizes: vec![100, 777], parallel: 1, ..Options::default() };
    analyze(&[path.to_path_buf()], &options, &Progress::default()).map_or(0, |r| r.runs.len())
}

/// The numbers of a text: where they stand.
fn numbers(text: &str) -> Vec<std::ops::Range<usize>> {
    let mut all = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let digits = text[at..].bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            all.push(at..at + digits);
        }
        at += digits.max(1);
    }
    all
}

#[test]
fn the_lines_themselves_are_all_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    std::fs::write(&path, LINES).unwrap();
    let report = analyze(&[path], &Options::default(), &Progress::default()).unwrap();
    assert_eq!(report.runs.len(), 2);
    let unread: Vec<_> = report.runs.iter().flat_map(|r| &r.missing).filter(|m| m.what == "lines").collect();
    assert!(unread.is_empty(), "{unread:?}");
}

#[test]
fn no_number_makes_it_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    for range in numbers(LINES) {
        for value in [
            "0",
            "1",
            "93",
            "18446744073709551615",
            "9223372036854775807",
            "-9223372036854775808",
            "-1",
            "4294967295",
            "1e400",
            "99999999999999999999",
        ] {
            let mut text = LINES.to_string();
            text.replace_range(range.clone(), value);
            runs(&path, text.as_bytes());
        }
    }
}

#[test]
fn no_pair_of_wild_numbers_makes_it_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let places = numbers(LINES);
    let wild = ["18446744073709551615", "9223372036854775807", "-9223372036854775808", "0", "9223372036854775000"];
    let mut random = 88172645463325252u64;
    let mut below = |n: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % n as u64) as usize
    };
    for _ in 0..3000 {
        let mut at: Vec<usize> = (0..2 + below(4)).map(|_| below(places.len())).collect();
        at.sort_unstable_by(|a, b| b.cmp(a));
        at.dedup();
        let mut text = LINES.to_string();
        at.into_iter().for_each(|i| text.replace_range(places[i].clone(), wild[below(wild.len())]));
        runs(&path, text.as_bytes());
    }
}

#[test]
fn no_byte_makes_it_panic_and_other_lines_are_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.jsonl");
    let header = LINES.find('\n').unwrap();
    for at in 0..LINES.len() {
        for byte in [b'"', b'\n', b'}', b'9', 0xff] {
            let mut text = LINES.as_bytes().to_vec();
            text[at] = byte;
            let n = runs(&path, &text);
            assert!(at <= header || n >= 1);
        }
    }
}
