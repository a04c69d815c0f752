//! The `jq` lines of the documents.

use super::{lossy, root};
use std::path::Path;
use std::process::Command;

/// The lines of a document that begin with `jq`.
pub fn questions(document: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(document)).unwrap();
    let all = text.lines().filter_map(|l| l.strip_prefix("    ")).filter(|l| l.starts_with("jq "));
    all.map(str::to_owned).collect()
}

/// What one answers in a folder that holds the files it names.
pub fn ask(question: &str, folder: &Path) -> String {
    let out = Command::new("sh").args(["-c", question]).current_dir(folder).output().unwrap();
    assert!(out.status.success() && out.stderr.is_empty(), "{question}: {}", lossy(&out.stderr));
    lossy(&out.stdout)
}
