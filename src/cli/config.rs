//! `MEMSHIM_CONFIG`: a TOML file with the settings of `run` by the names of their variables, and the rules of phases.
//!
//! ```toml
//! mode = "full"
//! phase_on = ["^Step (\\d+)", "end:converged"]
//! ```
//! Flags go before variables, variables before the file.

use serde::Deserialize;
use std::ffi::OsString;

/// Settings that the shim reads, by the names of their variables in small letters.
const SETTINGS: [(&str, &str); 13] = [
    ("mode", "MEMSHIM_MODE"),
    ("interval", "MEMSHIM_INTERVAL"),
    ("big", "MEMSHIM_BIG"),
    ("sample", "MEMSHIM_SAMPLE"),
    ("children", "MEMSHIM_CHILDREN"),
    ("include", "MEMSHIM_INCLUDE"),
    ("exclude", "MEMSHIM_EXCLUDE"),
    ("max", "MEMSHIM_MAX"),
    ("stacks", "MEMSHIM_STACKS"),
    ("gpu_timing", "MEMSHIM_GPU_TIMING"),
    ("phase_py", "MEMSHIM_PHASE_PY"),
    ("phase_sym", "MEMSHIM_PHASE_SYM"),
    ("python_alloc", "MEMSHIM_PYTHON_ALLOC"),
];

/// See the module.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Config {
    pub phase_on: Vec<String>,
    pub compiles: bool,
    pub artifacts: Vec<String>,
    #[serde(flatten)]
    rest: toml::Table,
}

impl Config {
    /// The file that the variable names. What is wrong with it is said; the program runs without it.
    pub fn read() -> Config {
        let Some(path) = std::env::var_os("MEMSHIM_CONFIG").filter(|p| !p.is_empty()) else { return Config::default() };
        let text = std::fs::read_to_string(&path).map_err(|e| e.to_string());
        let config = text.and_then(|text| toml::from_str(&text).map_err(|e| e.to_string().trim_end().to_owned()));
        let config: Config = config.unwrap_or_else(|why| {
            eprintln!("memshim: MEMSHIM_CONFIG={}: {why}. The file is left out.", path.display());
            Config::default()
        });
        for key in config.unknown() {
            eprintln!("memshim: MEMSHIM_CONFIG={}: there is no setting `{key}`", path.display());
        }
        config
    }

    fn unknown(&self) -> impl Iterator<Item = &str> {
        self.rest.keys().map(String::as_str).filter(|k| SETTINGS.iter().all(|(name, _)| name != k))
    }

    /// The variables for the shim, with those that neither a flag nor the environment sets.
    pub fn completed(&self, mut set: Vec<(&'static str, OsString)>) -> Vec<(&'static str, OsString)> {
        for (name, variable) in SETTINGS {
            let Some(value) = self.rest.get(name) else { continue };
            if set.iter().all(|(k, _)| *k != variable) && std::env::var_os(variable).is_none_or(|v| v.is_empty()) {
                set.push((variable, text_of(value).into()));
            }
        }
        set
    }
}

/// As a variable has it; lists are comma-separated there.
fn text_of(value: &toml::Value) -> String {
    match value {
        toml::Value::String(s) => s.clone(),
        toml::Value::Array(all) => all.iter().map(text_of).collect::<Vec<_>>().join(","),
        toml::Value::Integer(n) => n.to_string(),
        toml::Value::Float(n) => n.to_string(),
        toml::Value::Boolean(b) => (*b as u8).to_string(),
        // What the shim then says it does not understand.
        toml::Value::Datetime(_) | toml::Value::Table(_) => format!("{value:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_settings_and_rules() {
        let c: Config = toml::from_str(
            "mode = \"full\"\npython_alloc = true\nbig = 4096\nexclude = [\"git\", \"make\"]\nphase_on = ['^a\\d']\nmood = 1",
        )
        .unwrap();
        assert_eq!(c.phase_on, ["^a\\d"]);
        assert_eq!(c.unknown().collect::<Vec<_>>(), ["mood"]);
        let set = c.completed(vec![("MEMSHIM_BIG", "1".into())]);
        let set: Vec<String> = set.iter().map(|(k, v)| format!("{k}={}", v.display())).collect();
        assert_eq!(set, ["MEMSHIM_BIG=1", "MEMSHIM_MODE=full", "MEMSHIM_EXCLUDE=git,make", "MEMSHIM_PYTHON_ALLOC=1"]);
        assert!(toml::from_str::<Config>("phase_on = 3").is_err());
    }
}
