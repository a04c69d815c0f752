//! Values of flags: sizes and times, by the same grammar as in the variables that the shim reads.

use crate::analyze::Units;
use crate::analyze::check::Limit;
use memshim_format::{phase, value};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// A number of bytes: `65536`, `64KiB`, `64k`, `1.5GiB`, `2MB`.
pub fn bytes(text: &str) -> Result<u64, String> {
    value::bytes(text.as_bytes()).ok_or_else(|| format!("`{text}` is not a size: write a number of bytes or 64KiB, 2MiB, 1.5GiB"))
}

/// A number of bytes that is not 0.
pub fn some_bytes(text: &str) -> Result<u64, String> {
    bytes(text).and_then(|n| if n > 0 { Ok(n) } else { Err(format!("`{text}` is nothing: write 1 or more, 512KiB for example")) })
}

/// A number of rows to show.
pub fn rows(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| format!("`{text}` is not a number of rows: write 1 or more"))
}

/// Units of work: `64`, `64 atoms`.
pub fn units(text: &str) -> Result<Units, String> {
    let (count, unit) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
    let count = count.parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
    // `64 atoms` is the cost of one atom.
    let one = unit.trim().strip_suffix('s').unwrap_or(unit.trim());
    count
        .map(|count| Units { count, unit: one.to_owned() })
        .ok_or_else(|| format!("`{text}` is no number of units: write '64 atoms' for example"))
}

/// A time that is allowed, or `off`.
pub fn time_limit(text: &str) -> Result<Limit, String> {
    limit(text, seconds(text)).ok_or_else(|| format!("`{text}` is no time: write 2ms, 500us or 1s, or off"))
}

/// A time that is allowed, the mean so many times, or `off`.
pub fn tail_limit(text: &str) -> Result<Limit, String> {
    let times = text.strip_suffix(['x', 'X']).and_then(number).map(Limit::TimesMean);
    times.or_else(|| limit(text, seconds(text))).ok_or_else(|| format!("`{text}` is no limit: write 2x (times the mean) or 5ms, or off"))
}

/// A share that is allowed, or `off`.
pub fn share_limit(text: &str) -> Result<Limit, String> {
    let share = match text.strip_suffix('%') {
        Some(percent) => number(percent).map(|p| p / 100.0),
        // `20` would be 2,000 %.
        None => number(text).filter(|share| *share <= 1.0),
    };
    limit(text, share).ok_or_else(|| format!("`{text}` is no share: write 20% or 0.2, or off"))
}

/// A number of bytes that is allowed, or `off`.
pub fn size_limit(text: &str) -> Result<Limit, String> {
    limit(text, bytes(text).ok().map(|n| n as f64))
        .ok_or_else(|| format!("`{text}` is no size: write 10MB, 64KiB or a number of bytes, or off"))
}

/// A length of time.
pub fn time(text: &str) -> Result<Duration, String> {
    let ns = value::nanoseconds(text.as_bytes());
    ns.map(Duration::from_nanos).ok_or_else(|| format!("`{text}` is no time: write 30s, 2m or 500ms for example"))
}

fn limit(text: &str, below: Option<f64>) -> Option<Limit> {
    if text.eq_ignore_ascii_case("off") { Some(Limit::Off) } else { below.map(Limit::Below) }
}

fn seconds(text: &str) -> Option<f64> {
    value::nanoseconds(text.as_bytes()).map(|ns| ns as f64 / 1e9)
}

/// Not below 0.
fn number(text: &str) -> Option<f64> {
    text.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0)
}

/// Names of programs, as globs between commas.
pub fn globs(text: &OsStr) -> Result<OsString, String> {
    if text.is_empty() || value::globs(text.as_bytes()).next().is_some() {
        return Ok(text.to_owned());
    }
    Err(format!("no name in `{}`: write names of programs, 'python*,solver' for example", text.display()))
}

/// Rules for functions that are to be phases, `where:what` each: of which kind, and what they look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    form: &'static str,
    example: &'static str,
    /// What goes in front of a part that stands alone.
    other: &'static str,
}

/// Of Python functions.
pub const PYTHON: Rules = Rules { form: "module:function", example: "pyscf.scf.hf:SCF.scf", other: "*" };
/// Of native ones.
pub const NATIVE: Rules = Rules { form: "object:function", example: "libblas.so*:dgemm_", other: "plugin.so" };

impl Rules {
    /// Whether all of a list can be taken.
    pub fn check(self, text: &OsStr) -> Result<OsString, String> {
        let Rules { form, example, other } = self;
        let all: Vec<&[u8]> = phase::rules(text.as_bytes()).collect();
        if let Some(rule) = all.iter().find(|rule| phase::colon(rule).is_none()) {
            let rule = String::from_utf8_lossy(rule);
            let alone = rule.trim_matches(':');
            return Err(format!("`{rule}` is no rule: write {form}, both globs, '{example}' or '{other}:{alone}' for example"));
        }
        if all.is_empty() {
            return Err(format!("no rule in `{}`: write {form}, '{example}' for example", text.display()));
        }
        if all.len() > phase::RULES_MOST || all.iter().map(|r| r.len()).sum::<usize>() > phase::RULES_TEXT {
            let (most, bytes) = (phase::RULES_MOST, phase::RULES_TEXT);
            return Err(format!(
                "there are more rules than are taken: write {most} at most, of {bytes} bytes together; globs join several"
            ));
        }
        Ok(text.to_owned())
    }
}

/// See [`PYTHON`].
pub fn python_rules(text: &OsStr) -> Result<OsString, String> {
    PYTHON.check(text)
}

/// See [`NATIVE`].
pub fn native_rules(text: &OsStr) -> Result<OsString, String> {
    NATIVE.check(text)
}

/// A sampling interval in nanoseconds, within what the shim takes.
pub fn interval(text: &str) -> Result<u64, String> {
    match value::nanoseconds(text.as_bytes()) {
        None => Err(format!("`{text}` is not a time: write 100ms, 1s or 5m")),
        Some(_) => value::interval(text.as_bytes()).ok_or_else(|| format!("`{text}` is not between 1ms and 1h: write 100ms or 1s")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_advised_is_taken() {
        for (advice, taken) in [
            (interval("x"), interval("100ms").is_ok() && interval("1s").is_ok() && interval("5m").is_ok()),
            (interval("250us"), interval("100ms").is_ok() && interval("1s").is_ok()),
            (some_bytes("0"), some_bytes("1").is_ok() && some_bytes("512KiB").is_ok()),
            (native_rules(OsStr::new("dgemm_")).map(|_| 0), native_rules(OsStr::new("libblas.so*:dgemm_,plugin.so:dgemm_")).is_ok()),
            (python_rules(OsStr::new("solve")).map(|_| 0), python_rules(OsStr::new("pyscf.scf.hf:SCF.scf,*:solve")).is_ok()),
            (python_rules(OsStr::new(&"a:b,".repeat(65))).map(|_| 0), python_rules(OsStr::new(&"a:b,".repeat(64))).is_ok()),
            (native_rules(OsStr::new(",")).map(|_| 0), native_rules(OsStr::new("libblas.so*:dgemm_")).is_ok()),
            (rows("0").map(|n| n as u64), rows("1").is_ok()),
            (time_limit("fast").map(|_| 0), ["2ms", "500us", "1s", "off"].iter().all(|t| time_limit(t).is_ok())),
            (time("30").map(|_| 0), ["30s", "2m", "500ms"].iter().all(|t| time(t).is_ok())),
            (tail_limit("2y").map(|_| 0), ["2x", "5ms", "off"].iter().all(|t| tail_limit(t).is_ok())),
            (share_limit("20").map(|_| 0), true),
            (share_limit("-1").map(|_| 0), share_limit("20%") == share_limit("0.2") && share_limit("off") == Ok(Limit::Off)),
            (size_limit("big").map(|_| 0), ["10MB", "64KiB", "1000", "off"].iter().all(|t| size_limit(t).is_ok())),
        ] {
            assert!(advice.unwrap_err().contains("write ") && taken);
        }
    }

    #[test]
    fn a_list_of_no_names_is_no_list() {
        assert!(globs(",".as_ref()).unwrap_err().contains("write names of programs"));
        assert!(globs("git,,make".as_ref()).is_ok());
        // Takes back what a variable says.
        assert!(globs("".as_ref()).is_ok());
    }
}
