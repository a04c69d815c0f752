//! What is said of settings that cannot be used: lines for stderr, and notes of the report.

use super::CONFIG;
use crate::text::Text;
use memshim_format::settings::{FILE, Key, OF_RUN};

/// The file and the line that something is said of.
pub(super) fn place<'a>(t: &'a mut Text, path: &[u8], line: u32) -> &'a mut Text {
    t.str(FILE).str("=").bytes(path).str(", line ").num(line as u64).str(": ")
}

/// As much of a text as is told.
pub(super) fn short(text: &[u8]) -> &[u8] {
    text.get(..text.len().min(80)).unwrap_or(text)
}

/// A line about what can't be used, to be said once stderr is known; one for which there is no room is left out. One thread.
pub(super) fn complain(say: impl FnOnce(&mut Text)) {
    // SAFETY: one thread.
    let c = unsafe { &mut *(&raw mut CONFIG) };
    let Some(room) = c.complaints.get_mut(c.complained..) else { return };
    let len = room.len();
    let mut t = Text::over(room);
    t.str("memshim: ");
    say(&mut t);
    t.str("\n");
    if t.len() < len {
        c.complained += t.len();
    }
}

/// The lines about what could not be used.
pub fn complaints() -> &'static [u8] {
    // SAFETY: written at the start only.
    let c = unsafe { &*(&raw const CONFIG) };
    c.complaints.get(..c.complained).unwrap_or(b"")
}

/// What the report is to say of settings, piece by piece: what could not be used, and, `first` of a run, what nobody uses.
pub fn notes(first: bool, mut say: impl FnMut(&[&[u8]])) {
    for line in complaints().split(|c| *c == b'\n').filter_map(|line| line.strip_prefix(b"memshim: ")) {
        say(&[line]);
    }
    // SAFETY: written at the start only.
    let c = unsafe { &*(&raw const CONFIG) };
    if c.under_run || !first {
        return;
    }
    for key in Key::ALL.iter().copied() {
        if c.of_run.has(key) {
            say(&[key.variable().as_bytes(), OF_RUN.as_bytes()]);
        }
        if c.of_run_in_file.has(key) {
            say(&[FILE.as_bytes(), b": ", key.name().as_bytes(), OF_RUN.as_bytes()]);
        }
    }
}

/// What the variables of memshim begin with.
const OURS: &[u8] = b"MEMSHIM_";

/// Variables that others read: the command, scripts, tests.
const OF_OTHERS: [&[u8]; 5] = [b"SHIM", b"PYTHON", b"TARGET_DIR", b"CUPTI_INCLUDE", b"BIN"];

fn is_of_others(name: &[u8]) -> bool {
    name.strip_prefix(OURS).is_some_and(|rest| rest.starts_with(b"TEST_") || rest.ends_with(b"_PYTHON") || OF_OTHERS.contains(&rest))
}

/// Of a variable that is no setting: where it is ours and nobody's, it is most likely a slip of the pen.
pub(super) fn no_setting(name: &[u8]) {
    if !name.starts_with(OURS) || is_of_others(name) {
        return;
    }
    complain(|t| {
        t.bytes(short(name)).str(" is no setting and has no effect; settings are MEMSHIM_ and one of CONFIG");
        for key in Key::ALL {
            t.str(", ").bytes(key.variable().as_bytes().strip_prefix(OURS).unwrap_or(b""));
        }
        t.str(".");
    });
}
