//! Which files: a path with `*`, `?`, `[…]` and `**`, or a folder with all that is in it.

use regex::bytes::Regex;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// An absolute pattern.
#[derive(Debug, Clone)]
pub struct Glob {
    /// The folder below which all that fits lies.
    pub base: PathBuf,
    /// As the user wrote it.
    pub text: String,
    files: Regex,
    /// Folders on the way to what fits.
    folders: Regex,
}

impl Glob {
    /// Of `text`, relative to `here`.
    pub fn new(text: &OsStr, here: &Path) -> Result<Glob, String> {
        let absolute = here.join(text);
        if !absolute.is_absolute() {
            return Err("the present folder is gone: give the path from / on".into());
        }
        let is_plain = |p: &Path| !p.as_os_str().as_bytes().iter().any(|c| b"*?[".contains(c));
        let base: PathBuf = absolute.components().take_while(|c| is_plain(c.as_ref())).collect();
        let plain = is_plain(&absolute);
        let pattern = normal(&absolute);
        // A plain name is a file, or a folder with all that is in it.
        let tail = if plain { "(?:/.*)?" } else { "" };
        let regex = |text: &str| Regex::new(&format!("(?s-u)^{text}$")).map_err(|e| e.to_string());
        let files = regex(&format!("{}{tail}", expression(pattern.as_os_str().as_bytes())?))?;
        let base = if plain { absolute.parent().filter(|_| !absolute.is_dir()).unwrap_or(&absolute).to_path_buf() } else { base };
        let folders = regex(&way(&pattern, plain)?)?;
        Ok(Glob { base: normal(&base), text: text.to_string_lossy().into_owned(), files, folders })
    }

    pub fn fits(&self, path: &Path) -> bool {
        self.files.is_match(path.as_os_str().as_bytes())
    }

    /// Whether something that fits may lie below a folder: `/tmp/a*` is not looked for in what lies below `/tmp/b`, nor below `/tmp/a1`.
    pub fn leads_through(&self, folder: &Path) -> bool {
        let folder = folder.as_os_str().as_bytes();
        self.folders.is_match(folder.strip_suffix(b"/").unwrap_or(folder))
    }
}

/// Folders on the way to what a pattern names: a prefix of its names each; from the first `**` on all, as below a plain name.
fn way(pattern: &Path, plain: bool) -> Result<String, String> {
    let names: Vec<&[u8]> = pattern.components().skip(1).map(|c| c.as_os_str().as_bytes()).collect();
    let open = names.iter().position(|n| n.windows(2).any(|w| w == b"**")).or(plain.then_some(names.len()));
    let last = open.unwrap_or(names.len().saturating_sub(1));
    let mut way = if open.is_some() { "(?:/.*)?".to_owned() } else { String::new() };
    for name in names.iter().take(last).rev() {
        way = format!("(?:/{}{way})?", expression(name)?);
    }
    Ok(way)
}

/// Without `.` and with `..` taken back, as far as names alone say.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for c in path.components() {
        match c {
            std::path::Component::ParentDir => drop(out.pop()),
            std::path::Component::CurDir => {}
            c => out.push(c),
        }
    }
    out
}

fn expression(glob: &[u8]) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = glob;
    while let [c, after @ ..] = rest {
        rest = after;
        match c {
            b'*' if rest.starts_with(b"*/") => {
                out += "(?:.*/)?";
                rest = &rest[2..];
            }
            b'*' if rest.starts_with(b"*") => {
                out += ".*";
                rest = &rest[1..];
            }
            b'*' => out += "[^/]*",
            b'?' => out += "[^/]",
            b'[' => {
                let end = rest.iter().skip(1).position(|&c| c == b']').ok_or("a `[` without its `]`")? + 1;
                let (class, after) = rest.split_at(end);
                let (not, class) = class.strip_prefix(b"!").map_or(("", class), |c| ("^", c));
                out += &format!("[{not}{}]", class.iter().map(|&c| in_class(c)).collect::<String>());
                rest = &after[1..];
            }
            c => out += &format!("\\x{c:02x}"),
        }
    }
    Ok(out)
}

fn in_class(c: u8) -> String {
    if c == b'-' { "-".into() } else { format!("\\x{c:02x}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(glob: &str, path: &str) -> bool {
        Glob::new(OsStr::new(glob), Path::new("/w")).unwrap().fits(Path::new(path))
    }

    #[test]
    fn stars_stop_at_slashes_and_double_stars_do_not() {
        assert!(fits("out/*.ll", "/w/out/a.ll") && !fits("out/*.ll", "/w/out/x/a.ll") && !fits("out/*.ll", "/w/out/a.llx"));
        assert!(fits("out/**/*.ll", "/w/out/a.ll") && fits("out/**/*.ll", "/w/out/x/y/a.ll"));
        assert!(fits("/abs/**", "/abs/a/b") && !fits("/abs/**", "/abc/a"));
        assert!(fits("./o?t/../q[0-9!].é", "/w/q3.é") && fits("q[!a]", "/w/qb") && !fits("q[!a]", "/w/qa"));
        assert!(fits("a.b", "/w/a.b") && !fits("a.b", "/w/axb"));
        assert!(Glob::new(OsStr::new("a["), Path::new("/w")).is_err());
    }

    #[test]
    fn only_folders_on_the_way_are_looked_into() {
        let leads = |glob: &str, folder: &str| Glob::new(OsStr::new(glob), Path::new("/w")).unwrap().leads_through(Path::new(folder));
        for folder in ["/", "/tmp"] {
            assert!(leads("/tmp/a*", folder), "{folder}");
        }
        for folder in ["/w", "/tmp/a1", "/tmp/b", "/tmp/a1/c"] {
            assert!(!leads("/tmp/a*", folder), "{folder}");
        }
        assert!(leads("/tmp/a*/**/*.ll", "/tmp/a1/b/c") && !leads("/tmp/a*/**/*.ll", "/tmp/b") && !leads("/tmp/a*/x/*.ll", "/tmp/a1/y"));
        assert!(leads("out", "/w/out/a/b") && leads("out", "/w") && !leads("out", "/w/other"));
        assert!(leads("/**", "/") && leads("/**", "/any/where") && leads("a**b/c", "/w/axx/yb") && !leads("a**b/c", "/v"));
    }

    #[test]
    fn a_folder_is_all_that_is_in_it() {
        assert!(fits("out", "/w/out/a/b") && fits("out/", "/w/out/a") && !fits("out", "/w/outer"));
        let base = |g: &str| Glob::new(OsStr::new(g), Path::new("/w")).unwrap().base;
        assert_eq!((base("out/x*/y"), base("**/*.ll"), base("no-such")), ("/w/out".into(), "/w".into(), "/w".into()));
    }
}
