//! What was checked, as lines for a person or as JSON.

use std::io::{self, Write};

use serde::Serialize;

use super::table::Table;
use super::text::ascii;
use super::units::{count, iec_signed, seconds};
use crate::analyze::check::{Check, Checked};
use crate::analyze::report::SCHEMA;

const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

/// A line for each phase, and below it one for each target; with ANSI styles.
pub fn render(all: &[Checked], unicode: bool) -> String {
    let mut text = String::new();
    for one in all {
        let whose = one.rank.map_or_else(|| format!("process {}", one.pid), |rank| format!("rank {rank}, process {}", one.pid));
        text += &format!("`{}`, {} times, {whose} on {}\n", one.path.join(" › "), count(one.count), one.host);
        let mut table = Table::with_text_last();
        for c in &one.checks {
            let verdict = if c.passed { "pass" } else { "FAIL" };
            table.row([format!("{verdict}  {}", c.what.replace('_', "-")), measured(c), allowed(c)]);
        }
        for (line, c) in table.lines().iter().zip(&one.checks) {
            let (red, plain) = if c.passed { ("", "") } else { (RED, PLAIN) };
            text += &format!("  {red}{line}{plain}\n");
        }
    }
    let text: String = text.chars().map(|c| if c.is_control() && !matches!(c, '\n' | '\x1b') { '?' } else { c }).collect();
    if unicode { text } else { ascii(&text) }
}

fn measured(c: &Check) -> String {
    match c.measured {
        None => "not known".into(),
        Some(_) if c.what == "leak" && c.passed => "none".into(),
        Some(value) => figure(value, c.unit),
    }
}

fn allowed(c: &Check) -> String {
    let option = c.what.replace('_', "-");
    let less = match c.times_mean {
        _ if c.what == "leak" => "none allowed".to_owned(),
        Some(times) => format!("below {} ({times} times the mean)", figure(c.allowed, c.unit)),
        None => format!("below {}", figure(c.allowed, c.unit)),
    };
    match (c.class, c.measured) {
        (_, None) => format!("{less}; `--{option} off` leaves it out"),
        (Some(class), _) if c.what == "leak" => format!("{less}: of {class}"),
        (Some(class), _) => format!("{less}, last end against first begin, {class}"),
        _ => less,
    }
}

fn figure(value: f64, unit: &str) -> String {
    match unit {
        "s" if value < 1e-4 => format!("{:.2} µs", value * 1e6),
        "s" => seconds(value),
        "share" => format!("{:.1} %", value * 100.0),
        "bytes" => iec_signed(value as i64),
        _ => format!("{} a step", iec_signed(value as i64)),
    }
}

/// See the module.
#[derive(Serialize)]
struct Whole<'a> {
    schema: u32,
    passed: bool,
    checked: &'a [Checked],
}

/// The same as JSON: one object.
pub fn write_json(all: &[Checked], out: &mut impl Write) -> io::Result<()> {
    let whole = Whole { schema: SCHEMA, passed: all.iter().all(Checked::passed), checked: all };
    serde_json::to_writer_pretty(&mut *out, &whole)?;
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_was_measured_and_what_was_allowed() {
        let check = |what, passed, measured, allowed, unit| Check { what, passed, measured, allowed, unit, times_mean: None, class: None };
        let checks = vec![
            check("mean", true, Some(4.2e-4), 1e-3, "s"),
            Check { times_mean: Some(2.0), ..check("p95", false, Some(2.1e-3), 8.4e-4, "s") },
            check("cv", true, Some(0.123), 0.2, "share"),
            check("per_unit", true, Some(6.56e-6), 1e-5, "s"),
            Check { class: Some("heap"), ..check("memory", true, Some(12288.0), 1e7, "bytes") },
            check("memory", false, None, 1e7, "bytes"),
            Check { class: Some("maps"), ..check("leak", false, Some(4096.0), 0.0, "bytes a step") },
            check("leak", true, Some(0.0), 0.0, "bytes a step"),
        ];
        let one = Checked { host: "node7".into(), pid: 9, rank: Some(2), path: vec!["md".into(), "step".into()], count: 1000, checks };
        let text = render(&[one], true).replace(RED, "").replace(PLAIN, "");
        let wanted = [
            "`md › step`, 1 000 times, rank 2, process 9 on node7",
            "  pass  mean               420 µs  below 1.00 ms",
            "  FAIL  p95               2.10 ms  below 840 µs (2 times the mean)",
            "  pass  cv                 12.3 %  below 20.0 %",
            "  pass  per-unit          6.56 µs  below 10.00 µs",
            "  pass  memory           12.0 KiB  below 9.54 MiB, last end against first begin, heap",
            "  FAIL  memory          not known  below 9.54 MiB; `--memory off` leaves it out",
            "  FAIL  leak      4.00 KiB a step  none allowed: of maps",
            "  pass  leak                 none  none allowed",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), wanted);
    }
}
