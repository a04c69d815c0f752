//! `MEMSHIM_CONFIG`: a file with settings by the names of their variables in small letters, and the rules of phases.
//!
//! ```toml
//! mode = "full"
//! phase_on = ["^Step (\\d+)", "end:converged"]
//! ```
//! What its lines are is the format's matter ([`memshim_format::settings`]). The library reads the file itself, and says what in it cannot
//! be used; here is what only `run` uses. Flags go before variables, variables before the file.

use super::value;
use crate::launch::listed::Listed;
use crate::launch::rules::Rule;
use memshim_format::settings::{FILE, Item, Key, Value, items};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// See the module.
#[derive(Debug, Default)]
pub struct Config {
    /// The file that the variable names, by its full path.
    pub path: Option<PathBuf>,
    pub phase_on: Vec<String>,
    pub compiles: bool,
    pub artifacts: Vec<OsString>,
    pub out: Option<PathBuf>,
    /// The mode is `off`.
    pub off: bool,
    pub listed: Listed,
    /// Settings of `run` that are of another kind than they should be, with what to give.
    wrong: Vec<String>,
    /// Rules that cannot be used, by their key, with the line and what to write.
    pub bad_rules: Vec<(Key, String)>,
}

impl Config {
    /// The file that the variable names; without one, or one that can't be read, nothing is set.
    pub fn read() -> Config {
        let Some(path) = std::env::var_os(FILE).filter(|p| !p.is_empty()).map(PathBuf::from) else { return Config::default() };
        let config = Config::of(&std::fs::read(&path).unwrap_or_default());
        for wrong in &config.wrong {
            eprintln!("memshim: {FILE}={}, {wrong}. It is left out.", path.display());
        }
        Config { path: std::path::absolute(path).ok(), ..config }
    }

    fn of(text: &[u8]) -> Config {
        let mut config = Config::default();
        for item in items(text) {
            match item {
                Item::Set { line, key, value } => {
                    let Err(form) = config.take(key, value) else { continue };
                    let said = format!("line {line}: {} = {} is not understood; {form}", key.name(), text_of(value).to_string_lossy());
                    if is_of_rules(key) { config.bad_rules.push((key, said)) } else { config.wrong.push(said) }
                }
                Item::Wrong { line, text, fix } => {
                    // Of others the library says so.
                    if let Some(key) = Key::ALL.iter().copied().find(|k| is_of_rules(*k) && sets(text, *k)) {
                        config.bad_rules.push((key, format!("line {line}: `{}` is not understood; {fix}", String::from_utf8_lossy(text))));
                    }
                }
            }
        }
        config
    }
}

/// Whether a setting has rules of phases.
fn is_of_rules(key: Key) -> bool {
    matches!(key, Key::PhaseOn | Key::PhasePy | Key::PhaseSym)
}

/// Whether a line begins with this key.
fn sets(line: &[u8], key: Key) -> bool {
    line.strip_prefix(key.name().as_bytes()).is_some_and(|rest| rest.trim_ascii_start().first().is_none_or(|c| *c == b'='))
}

impl Config {
    /// Takes a setting; else the form that it should have.
    fn take(&mut self, key: Key, value: Value) -> Result<(), String> {
        match (key, value) {
            (Key::PhaseOn, _) => {
                self.phase_on = texts(value)?.map(|t| t.to_string_lossy().into_owned()).collect();
                let wrong = self.phase_on.iter().find_map(|rule| rule.parse::<Rule>().err());
                return wrong.map_or(Ok(()), Err);
            }
            // The library takes these; here they are only looked at.
            (Key::PhasePy, _) => return check(value::PYTHON, value),
            (Key::PhaseSym, _) => return check(value::NATIVE, value),
            (Key::Artifacts, _) => self.artifacts = texts(value)?.collect(),
            (Key::Compiles, Value::Truth(yes)) => self.compiles = yes,
            (Key::Compiles, _) => return Err("give true or false".into()),
            (Key::Out, _) => self.out = Some(text_of(value)).filter(|out| !out.is_empty()).map(PathBuf::from),
            (Key::Mode, _) => self.off = text_of(value) == "off",
            (Key::Include, _) => self.listed.include = text_of(value),
            (Key::Exclude, _) => self.listed.exclude = text_of(value),
            _ => {}
        }
        Ok(())
    }
}

/// The texts of a list, or one by itself.
fn texts(value: Value) -> Result<impl Iterator<Item = OsString>, String> {
    let is_text = |v: Value| matches!(v, Value::Escaped(_) | Value::Plain(_));
    if value.parts().all(is_text) { Ok(value.parts().map(text_of)) } else { Err("give a list of texts between quotes".into()) }
}

/// Whether rules for functions can be used; an empty list can.
fn check(kind: value::Rules, value: Value) -> Result<(), String> {
    let text = text_of(value);
    if text.is_empty() { Ok(()) } else { kind.check(&text).map(|_| ()) }
}

/// As a variable has it.
fn text_of(value: Value) -> OsString {
    let mut text = Vec::new();
    value.write(|c| text.push(c));
    OsString::from_vec(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_rules_and_what_else_run_uses() {
        let c = Config::of(b"mode = 'off'\nout = 'a/'\nphase_on = ['^a\\d,']\ncompiles = true\nartifacts = 'x/**'\nmood = 1");
        assert_eq!((c.phase_on, c.compiles, c.artifacts, c.off), (vec!["^a\\d,".to_owned()], true, vec!["x/**".into()], true));
        assert_eq!((c.out, c.wrong.len()), (Some("a/".into()), 0));
        let c = Config::of(b"phase_on = 3\n\ncompiles = 'yes'");
        let said = "line 1: phase_on = 3 is not understood; give a list of texts between quotes";
        assert_eq!(c.bad_rules, [(Key::PhaseOn, said.to_owned())]);
        assert_eq!(c.wrong, ["line 3: compiles = yes is not understood; give true or false"]);
    }
}
