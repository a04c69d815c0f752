//! The few fields of /proc/PID that a watcher needs.

use crate::trace::marks::Resident;
use memshim_format::proc::fields;
use std::path::Path;
use std::{fs, io};

/// Clock ticks are hundredths of a second in all that the kernel tells programs.
pub const NS_A_TICK: u64 = 10_000_000;

/// Of /proc/PID/stat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub state: char,
    pub ppid: i32,
    pub pgrp: i32,
    /// Foreground group of the controlling terminal, −1 without one.
    pub tpgid: i32,
    /// Processor time of the children that it waited for, in clock ticks.
    pub waited_ticks: u64,
    /// In clock ticks since boot: with the pid it names a process for good.
    pub start_ticks: u64,
}

/// A file of the kernel's as text: the names of programs and folders in it can be any bytes.
pub fn text(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Why nothing is known of a process.
pub fn why_none() -> &'static str {
    if Path::new("/proc/self").exists() { "there is none of this number" } else { "nothing can be seen of it: /proc is not mounted here" }
}

pub fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&text(format!("/proc/{pid}/stat")).ok()?)
}

/// The name, field 2, may itself hold spaces and parentheses: fields are counted from the last `)`.
fn parse_stat(text: &str) -> Option<Stat> {
    let rest = &text[text.rfind(')')? + 1..];
    let f: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Stat {
        state: f.first()?.chars().next()?,
        ppid: f.get(1)?.parse().ok()?,
        pgrp: f.get(2)?.parse().ok()?,
        tpgid: f.get(5)?.parse().ok()?,
        waited_ticks: f.get(13)?.parse::<u64>().ok()?.checked_add(f.get(14)?.parse().ok()?)?,
        start_ticks: f.get(19)?.parse().ok()?,
    })
}

/// What a process has resident now, and the most that it had; `None` of one that has ended.
pub fn resident(pid: i32) -> Option<Resident> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let [rss, hwm] = fields(&status, [b"VmRSS", b"VmHWM"]);
    Some(Resident { rss: rss?, hwm: hwm? })
}

/// Bit n−1 set: signal n was sent to process `pid` and waits to be taken.
pub fn pending_signals(pid: i32) -> u64 {
    signal_mask(&pid.to_string(), "ShdPnd:")
}

/// Whether programs that this process starts get no rights by their set-id bits or file capabilities.
pub fn no_new_privileges() -> bool {
    text("/proc/self/status").is_ok_and(|s| s.lines().any(|l| l.strip_prefix("NoNewPrivs:").is_some_and(|v| v.trim() == "1")))
}

fn signal_mask(process: &str, key: &str) -> u64 {
    let status = text(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(key));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

/// Children of `pid`, of all its threads. Empty where the kernel has no such file.
pub fn children(pid: i32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = tasks.flatten().filter_map(|t| text(t.path().join("children")).ok());
    lists.flat_map(|l| l.split_ascii_whitespace().filter_map(|p| p.parse().ok()).collect::<Vec<i32>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let s = parse_stat("7 (a) b) (c) S 6 5 4 34816 5 4194304 1 2 3 4 5 6 7 8 20 0 1 0 8812 9 10").unwrap();
        assert_eq!(s, Stat { state: 'S', ppid: 6, pgrp: 5, tpgid: 5, waited_ticks: 7 + 8, start_ticks: 8812 });
        assert_eq!(parse_stat("7 (a"), None);
    }
}
