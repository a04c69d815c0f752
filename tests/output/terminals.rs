//! On a terminal: what is watched there is printed as it would be without, by however many at once, and it stays one in every other way.

use super::{arrived, pairs, printed_when_said, said, said_names};
use crate::support::{fresh_dir, lossy, memshim, python, root};
use std::path::PathBuf;
use std::process::Command;

/// What the driver says about one case on a terminal.
fn terminal(case: &str) -> Option<(PathBuf, String)> {
    let python = python()?;
    let dir = fresh_dir(&format!("output-terminal-{case}"));
    let driver = root().join("tests/programs/output_terminal.py");
    let o = Command::new("timeout")
        .args(["-s", "KILL", "60"])
        .current_dir(&dir)
        .env_remove("PYTHONUNBUFFERED")
        .arg(python)
        .arg(driver)
        .arg(memshim())
        .arg(dir.join("t.jsonl"))
        .arg(case)
        .output()
        .unwrap();
    assert!(o.status.success(), "{}", lossy(&o.stderr));
    Some((dir, lossy(&o.stdout)))
}

#[test]
fn a_terminal_stays_one_of_its_size_and_gets_the_same_bytes() {
    let Some((dir, text)) = terminal("bytes") else { return };
    let size = "os.terminal_size(columns=77, lines=31)";
    let want = format!("b'True True True {size} {size}\\r\\nPhase one\\r\\nto stderr\\r\\na\\r\\tb\\x1b[1mc\\r\\n\\x00\\xff'\n0\n");
    assert_eq!(text, want);
    assert_eq!(said(&dir), pairs(&[("next", "one")]));
}

/// Processes and threads that write to one terminal by stdout and stderr: what the driver says first, and what stood on the terminal.
fn writers(case: &str) -> Option<(PathBuf, String, String)> {
    let (dir, text) = terminal(case)?;
    let (said, screen) = text.split_once('\n').unwrap();
    let (kinds, screen) = screen.split_once("\r\n").unwrap();
    assert_eq!(kinds, "True True True True", "{case}: terminals, and of one name");
    Some((dir, said.to_owned(), screen.to_owned()))
}

#[test]
fn writers_that_take_turns_on_a_terminal_are_read_byte_for_byte_as_without() {
    let Some((dir, said, screen)) = writers("turns") else { return };
    assert_eq!(said, "as without True");
    let turns: Vec<String> = (0..120).flat_map(|i| (0..4).map(move |n| format!("{n}_{i}"))).collect();
    let lines = turns.iter().map(|of| format!("se t{of}\t\0\r\nPhase {of} and more\r\n\x1b[3{}mPha", &of[..1]));
    assert!(screen == lines.collect::<String>(), "{screen:?}");
    // Nobody began the first line.
    let names: Vec<String> = turns.iter().flat_map(|of| [format!("t{of}"), of.clone()]).skip(1).collect();
    assert!(said_names(&dir) == names, "{:?}", said_names(&dir));
}

#[test]
fn writers_at_once_on_a_terminal_keep_every_piece_and_its_order() {
    let Some((dir, said, screen)) = writers("writers") else { return };
    assert_eq!(said, "as many of each byte, and as it ended, as without True True");
    arrived(&screen, &["a", "b", "c", "d", "xa", "xb", "xc", "xd"].map(|writer| (writer, 150)), &dir, "a terminal");
    assert_eq!(screen.matches("Phase ").count(), 8 * 150);
}

#[test]
fn a_program_on_a_terminal_keeps_back_what_it_would_keep_back() {
    let Some((_, text)) = terminal("buffers") else { return };
    assert_eq!(text, "as without True\nb'a\\r\\nb\\r\\nd\\r\\ncTrue\\r\\ne\\r\\nf\\r\\nh\\r\\ng'\n");
}

#[test]
fn a_terminal_that_is_slow_is_no_line_read_at_once() {
    let Some((dir, text)) = terminal("slow") else { return };
    assert_eq!(text, "0\n");
    let printed = printed_when_said(&dir);
    let names: Vec<&str> = printed.iter().map(|of| of.0.as_str()).collect();
    assert!(names == ["one", "two"] && printed[1].1 > 30_000_000, "{printed:?}");
}

#[test]
fn a_new_size_is_passed_on() {
    let Some((_, text)) = terminal("size") else { return };
    assert_eq!(text, "0\n");
}

#[test]
fn keys_that_are_signals_reach_the_program() {
    let Some((_, text)) = terminal("interrupt") else { return };
    assert_eq!(text, "7\n");
}

#[test]
fn raw_keys_asked_for_by_the_output_are_raw() {
    let Some((_, text)) = terminal("raw") else { return };
    assert_eq!(text, "echo False\nb\"key b'x'\"\nas before True\n0\n");
}

#[test]
fn job_control_is_that_of_the_shell() {
    let Some((_, text)) = terminal("jobs") else { return };
    assert_eq!(text, "True\n0\n");
}
