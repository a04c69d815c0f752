//! How much processor time did an image take? By its own last word, or, where it was killed before that, by what was seen from outside.
//!
//! The kernel counts by process: an exec'd image begins with what the images before it took, and `rusage` from outside has in it
//! what the process waited for. Both are taken out, so that the images of a run can be added up.

use super::heap;
use crate::model::image::{ImageEnd, cpu_of_usage};
use serde_json::Value;

/// Seconds; `None` where nobody looked.
pub fn seconds(image: &ImageEnd) -> Option<f64> {
    let seen = &image.seen;
    let before = if image.header.exec > 0 { seen.cpu_first.unwrap_or(0) } else { 0 };
    let outside = seen.outside.as_ref().filter(|_| !has_said(image)).and_then(from_outside);
    let last = seen.cpu_last.max(outside)?;
    Some(last.saturating_sub(before) as f64 / 1e9)
}

/// Whether it may have taken more: nobody looked at its end, or it goes on.
pub fn is_lower_bound(image: &ImageEnd) -> bool {
    let went_on = image.seen.exec_announced.is_some();
    !has_said(image) && !went_on && image.seen.outside.as_ref().and_then(from_outside).is_none()
}

/// A process that ended by itself was asked last of all, where that could be written.
fn has_said(image: &ImageEnd) -> bool {
    image.seen.end.is_some() && heap::unwritten(image).is_none()
}

/// What the process itself took, of `rusage` over it and what it waited for.
fn from_outside(outside: &Value) -> Option<u64> {
    let waited = outside.get("waited_cpu_ns").and_then(Value::as_u64)?;
    Some(cpu_of_usage(outside.get("rusage")?)?.saturating_sub(waited))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::forks::Forks;
    use crate::model::image::{Image, Interest};
    use crate::trace::line::{Header, Line, parse};
    use serde_json::json;

    fn image(exec: u32, lines: &[Value]) -> ImageEnd {
        let mut image = Image::new(Header { exec, ..Header::default() }, &Interest::default(), &Forks::default());
        for line in lines {
            let text = line.to_string();
            let Ok(line) = parse(text.as_bytes()) else { panic!("{text}") };
            assert!(!matches!(line, Line::Unknown));
            image.read(line);
        }
        image.finish()
    }

    fn snap(ms: u64) -> Value {
        json!({"type": "snap", "t": 5, "why": "peak", "self": {"utime_ns": ms * 1_000_000, "stime_ns": 0}})
    }

    fn outside(ms: u64, waited_ms: u64) -> Value {
        json!({"type": "outside", "t": 9, "pid": 1, "rusage": {"utime_ns": ms * 1_000_000, "stime_ns": 0}, "waited_cpu_ns": waited_ms * 1_000_000})
    }

    #[test]
    fn of_a_killed_process_it_is_what_was_seen_from_outside() {
        assert_eq!(seconds(&image(0, &[snap(10), outside(900, 0)])), Some(0.9));
        assert_eq!(seconds(&image(0, &[snap(10), outside(900, 300)])), Some(0.6), "not what it waited for");
        assert_eq!(seconds(&image(0, &[snap(700), outside(900, 300)])), Some(0.7), "ticks are coarse: what was seen was taken");
    }

    #[test]
    fn between_snapshots_samples_say_it() {
        let rss = json!({"type": "rss", "t": 7, "rss": 1, "cpu": 40_000_000});
        assert_eq!(seconds(&image(0, &[snap(10), rss])), Some(0.04));
    }

    #[test]
    fn an_ended_process_has_said_it_itself() {
        let end = json!({"type": "end", "t": 8, "how": "exit", "code": 0});
        assert_eq!(seconds(&image(0, &[snap(850), end.clone(), outside(900, 300)])), Some(0.85));
        let unwritten = json!({"type": "mode", "t": 6, "mode": "count", "why": "no space left on the device", "errno": 28});
        let (alone, seen) = ([snap(10), unwritten.clone(), end.clone()], [snap(10), unwritten, end.clone(), outside(900, 300)]);
        assert_eq!(seconds(&image(0, &seen)), Some(0.6), "its last word is not there");
        assert_eq!([&alone[..], &seen[..]].map(|lines| is_lower_bound(&image(0, lines))), [true, false]);
        assert!(is_lower_bound(&image(0, &[snap(10)])) && !is_lower_bound(&image(0, &[snap(10), end])));
    }

    #[test]
    fn an_image_after_an_exec_begins_at_zero() {
        assert_eq!(seconds(&image(2, &[snap(500), snap(600)])), Some(0.1));
        assert_eq!(seconds(&image(2, &[snap(500), outside(900, 0)])), Some(0.4));
        assert_eq!(seconds(&image(0, &[])), None);
    }
}
