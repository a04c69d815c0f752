//! Files that appeared while a process ran, in the order in which they were last written to, each with the phase that it fell into.

use super::report::{Artifact, Phase};
use crate::model::image::ImageEnd;
use crate::model::units::{Bytes, Nanos};

/// Files listed at most.
const ARTIFACTS_SHOWN: usize = 10_000;

/// `phases`: of the same image.
pub fn artifacts(image: &ImageEnd, phases: &[Phase]) -> Vec<Artifact> {
    let start = Nanos(image.header.mono_ns);
    let shown = image.marks.artifacts.iter().take(ARTIFACTS_SHOWN);
    shown
        .map(|a| {
            let t_s = Nanos(a.t).seconds_since(start);
            Artifact {
                path: a.path.clone(),
                phase: phase_at(phases, t_s),
                bytes: a.bytes.map(Bytes),
                lines: a.lines,
                t_s,
                deleted: a.deleted,
            }
        })
        .collect()
}

/// The innermost phase that was on at an instant: the one with the longest path, of those the latest.
fn phase_at(phases: &[Phase], t_s: f64) -> Option<String> {
    let is_on = |p: &&Phase| p.spans.iter().any(|(begin, end)| (*begin..*end).contains(&t_s));
    phases.iter().filter(is_on).max_by(|a, b| a.path.len().cmp(&b.path.len()).then(a.begin_s.total_cmp(&b.begin_s))).map(|p| p.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_of_the_innermost_phase() {
        let phase = |path: &[&str], begin_s: f64, spans: &[(f64, f64)]| Phase {
            name: path.last().unwrap().to_string(),
            path: path.iter().map(|s| s.to_string()).collect(),
            begin_s,
            spans: spans.to_vec(),
            ..Phase::default()
        };
        let all =
            [phase(&["all"], 0.0, &[(0.0, 9.0)]), phase(&["all", "a"], 1.0, &[(1.0, 2.0), (5.0, 6.0)]), phase(&["b"], 5.5, &[(5.5, 7.0)])];
        let at = |t| phase_at(&all, t);
        assert_eq!((at(1.5), at(3.0), at(5.7), at(6.5)), (Some("a".into()), Some("all".into()), Some("a".into()), Some("b".into())));
        assert_eq!(at(9.0), None);
    }
}
