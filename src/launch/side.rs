//! The side file of a run, written to from outside: a whole line each time, by one append, so that several may write at once.

use crate::trace::marks::{Resident, What};
use crate::trace::{family, glance::Seen};
use nix::libc;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The process that lines are about, as its trace names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whose {
    pub pid: i32,
    pub start_ticks: u64,
}

/// See the module.
#[derive(Debug)]
pub struct SideFile {
    file: File,
    pub path: PathBuf,
}

impl SideFile {
    /// Beside the trace of a run's first process; made where it is not there.
    pub fn beside(first: &Path) -> io::Result<Self> {
        let path = family::side_file_of_first(first);
        let open = |create: bool| {
            let mut options = OpenOptions::new();
            options.append(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY).mode(0o600);
            if create { options.create_new(true) } else { &mut options }.open(&path)
        };
        let file = match open(true) {
            Ok(file) => {
                // Whoever may read the trace is to read this too, also where root marked it.
                if let Ok(trace) = first.metadata() {
                    let _ = std::os::unix::fs::fchown(&file, Some(trace.uid()), Some(trace.gid()));
                }
                file
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => open(false)?,
            Err(e) => return Err(e),
        };
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a file"));
        }
        Ok(Self { file, path })
    }

    /// Appends lines about a process by one call of the system.
    pub fn append(&mut self, whose: Whose, lines: impl IntoIterator<Item = Value>) -> io::Result<()> {
        let text: String = lines.into_iter().map(|line| format!("{}\n", about(whose, line))).collect();
        if text.is_empty() { Ok(()) } else { self.file.write_all(text.as_bytes()) }
    }
}

fn about(whose: Whose, mut line: Value) -> Value {
    line["pid"] = whose.pid.into();
    line["start_ticks"] = whose.start_ticks.into();
    line
}

/// A string, or its bytes in hexadecimal where they are none.
pub fn text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(s) => s.into(),
        Err(_) => json!({ "hex": bytes.iter().map(|b| format!("{b:02x}")).collect::<String>() }),
    }
}

/// An edge's line.
pub fn edge(t: u64, what: What, name: &[u8], source: &str) -> Value {
    json!({"type": "edge", "t": t, "what": what, "name": text(name), "source": source})
}

/// The same of a line that was printed at most so long before it was read.
pub fn with_late(mut line: Value, late: u64) -> Value {
    line["late"] = late.into();
    line
}

/// The same, with what was live and resident then, where that could be seen.
pub fn with_seen(mut line: Value, seen: Option<Seen>, resident: Option<Resident>) -> Value {
    if line["type"] == "edge" && line["what"] != "mark" {
        if let Some(seen) = seen {
            line["seen"] = json!(seen);
        }
        if let Some(resident) = resident {
            line["resident"] = json!(resident);
        }
    }
    line
}

/// As [`text`], of a path or an argument.
pub fn os_text(s: &OsStr) -> Value {
    text(s.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_appended_and_a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("t.jsonl.zst");
        let whose = Whose { pid: 7, start_ticks: 5 };
        for name in [&b"a"[..], b"\xff"] {
            SideFile::beside(&trace).unwrap().append(whose, [edge(3, What::Next, name, "output")]).unwrap();
        }
        let text = std::fs::read_to_string(dir.path().join("t.jsonl.marks")).unwrap();
        let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines[0], json!({"type":"edge","t":3,"pid":7,"start_ticks":5,"what":"next","name":"a","source":"output"}));
        assert_eq!(lines[1]["name"], json!({"hex": "ff"}));
        std::fs::rename(dir.path().join("t.jsonl.marks"), dir.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), dir.path().join("t.jsonl.marks")).unwrap();
        assert!(SideFile::beside(&trace).is_err());
    }
}
