//! Values of flags: sizes and times, by the same grammar as in the variables that the shim reads.

use crate::analyze::Units;
use memshim_format::{phase, value};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

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
