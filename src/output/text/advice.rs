//! What could need less, a few lines.

use super::Page;
use crate::analyze::report::Run;
use crate::output::units::{iec, seconds};

const SHOWN: usize = 5;

pub fn all(page: &mut Page, run: &Run) {
    // What concerns the GPU stands in its own section.
    let own: Vec<_> =
        run.advice.iter().filter(|a| run.gpu.as_ref().is_none_or(|g| g.advice.iter().all(|other| other.what != a.what))).collect();
    if own.is_empty() {
        return;
    }
    page.gap();
    for (i, a) in own.iter().take(SHOWN).enumerate() {
        let gain = match (a.gain_bytes, a.gain_s) {
            (Some(bytes), _) => format!(" (up to {} to gain)", iec(bytes.0)),
            (None, Some(s)) => format!(" (up to {} to gain)", seconds(s)),
            (None, None) => String::new(),
        };
        page.say(if i == 0 { "ADVICE" } else { "" }, format!("{}{gain}: {}", a.what, a.evidence));
    }
}
