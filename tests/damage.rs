//! Whatever a trace holds, `analyze` answers or says why not; it never panics, and no sum overflows (the profile of tests checks that).

#[path = "support/lines.rs"]
mod lines;
use lines::{CALLS, LAYERS, MARKS};
use memshim::analyze::{Options, analyze};
use memshim::model::load::Progress;
use memshim::output::json;
use memshim::output::text::{Style, render};
use std::ops::Range;
use tempfile::TempDir;

/// Files that are read together: a trace, and its side file where it has one.
type Files<'a> = [&'a str; 2];
const ALL: [Files; 2] = [[CALLS, ""], [LAYERS, MARKS]];

/// Whether a text is the one whose every place is tried with every value; of the others neighbours, which are mostly of one kind, get them between
/// them.
fn is_tried_whole(text: &str) -> bool {
    text == CALLS
}

/// What comes of reading them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Said {
    /// An answer.
    Answer,
    /// The same in every form.
    Forms,
}

/// Reads them, and says what is in them; how many images that is.
fn runs(dir: &TempDir, files: [&[u8]; 2], said: Said) -> usize {
    let path = dir.path().join("t.jsonl");
    std::fs::write(&path, files[0]).unwrap();
    if !files[1].is_empty() {
        std::fs::write(path.with_extension("jsonl.marks"), files[1]).unwrap();
    }
    let options = Options { sizes: vec![100, 777], parallel: 1, ..Options::default() };
    let Ok(report) = analyze(std::slice::from_ref(&path), &options, &Progress::default()) else { return 0 };
    for run in &report.runs {
        assert_eq!(run.events.counted, run.events.recorded.saturating_add(run.events.lost));
    }
    if said == Said::Answer {
        return report.runs.len();
    }
    let text = render(&report, &Style { width: 80, unicode: true, pid: None, traces: vec![path] });
    assert!(text.chars().all(|c| c == '\n' || c == '\u{1b}' || !c.is_control()), "{text}");
    json::write(&report, &mut std::io::sink()).unwrap();
    report.runs.len()
}

/// The same with one of the files changed.
fn changed(dir: &TempDir, files: Files, which: usize, text: &[u8], said: Said) -> usize {
    let mut files = files.map(str::as_bytes);
    files[which] = text;
    runs(dir, files, said)
}

/// The numbers of a text: where they stand.
fn numbers(text: &str) -> Vec<Range<usize>> {
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

/// Below a number, always the same ones.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

#[test]
fn the_lines_themselves_are_all_used() {
    for (files, images) in ALL.into_iter().zip([2, 1]) {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(runs(&dir, files.map(str::as_bytes), Said::Forms), images);
        let report = analyze(&[dir.path().join("t.jsonl")], &Options::default(), &Progress::default()).unwrap();
        let unread: Vec<_> = report.runs.iter().flat_map(|r| &r.missing).filter(|m| m.what.contains("line")).collect();
        assert!(unread.is_empty() && report.problems.is_empty(), "{unread:?} {:?}", report.problems);
    }
}

/// The type of each line, as documented, is in one of them.
#[test]
fn every_type_of_line_is_among_them() {
    let document = include_str!("../docs/trace-format.md");
    let types = |text: &str| -> std::collections::BTreeSet<String> {
        let all = text.split(r#"{"type":""#).skip(1);
        all.filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect()
    };
    let (documented, here) = (types(document), types(&[CALLS, LAYERS, MARKS].concat()));
    assert!(documented.len() > 25, "{documented:?}");
    assert_eq!(documented.difference(&here).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn no_number_makes_it_panic() {
    const VALUES: [&str; 10] = [
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
    ];
    let dir = tempfile::tempdir().unwrap();
    for files in ALL {
        for (which, text) in files.into_iter().enumerate() {
            for (i, range) in numbers(text).into_iter().enumerate() {
                for (v, value) in VALUES.into_iter().enumerate() {
                    let said = if v % 3 == i % 3 { Said::Forms } else { Said::Answer };
                    if said == Said::Forms || is_tried_whole(text) {
                        let mut text = text.to_string();
                        text.replace_range(range.clone(), value);
                        changed(&dir, files, which, text.as_bytes(), said);
                    }
                }
            }
        }
    }
}

#[test]
fn no_pair_of_wild_numbers_makes_it_panic() {
    const WILD: [&str; 5] = ["18446744073709551615", "9223372036854775807", "-9223372036854775808", "0", "9223372036854775000"];
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(88172645463325252);
    for files in ALL {
        for (which, text) in files.into_iter().enumerate().filter(|(_, text)| !text.is_empty()) {
            let places = numbers(text);
            for turn in 0..if is_tried_whole(text) { 3000 } else { 2 * places.len() } {
                let mut at: Vec<usize> = (0..2 + random.below(4)).map(|_| random.below(places.len())).collect();
                at.sort_unstable_by(|a, b| b.cmp(a));
                at.dedup();
                let mut text = text.to_string();
                at.into_iter().for_each(|i| text.replace_range(places[i].clone(), WILD[random.below(WILD.len())]));
                changed(&dir, files, which, text.as_bytes(), if turn < 2 * places.len() { Said::Forms } else { Said::Answer });
            }
        }
    }
}

/// Cut anywhere, lines left out, doubled and exchanged, bits turned.
#[test]
fn no_disorder_makes_it_panic() {
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(2463534242);
    for files in ALL {
        for (which, text) in files.into_iter().enumerate().filter(|(_, text)| !text.is_empty()) {
            for _ in 0..500 {
                let mut all: Vec<Vec<u8>> = text.split_inclusive('\n').map(|line| line.as_bytes().to_vec()).collect();
                for _ in 0..1 + random.below(4) {
                    let (a, b) = (random.below(all.len()), random.below(all.len()));
                    let at = random.below(all[a].len());
                    match random.below(6) {
                        0 => all.truncate(a + 1),
                        1 => all[a].truncate(at),
                        2 => all[a].clear(),
                        3 => all.swap(a, b),
                        4 => all[b] = all[a].clone(),
                        _ => all[a][at] ^= 1 << random.below(8),
                    }
                    all.retain(|line| !line.is_empty());
                    if all.is_empty() {
                        break;
                    }
                }
                changed(&dir, files, which, &all.concat(), Said::Forms);
            }
        }
    }
}

#[test]
fn no_byte_makes_it_panic_and_other_lines_are_used() {
    let dir = tempfile::tempdir().unwrap();
    for files in ALL {
        for (which, text) in files.into_iter().enumerate() {
            let header = if which == 0 { text.find('\n').unwrap() } else { 0 };
            for at in 0..text.len() {
                for (b, byte) in [b'"', b'\n', b'}', b'9', 0xff].into_iter().enumerate() {
                    let said = if at % 3 == 0 && b == at % 5 { Said::Forms } else { Said::Answer };
                    if said == Said::Forms || is_tried_whole(text) {
                        let mut text = text.as_bytes().to_vec();
                        text[at] = byte;
                        let n = changed(&dir, files, which, &text, said);
                        assert!(at <= header || n >= 1);
                    }
                }
            }
        }
    }
}
