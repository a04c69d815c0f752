//! How did a run end? What the process said, what `memshim run` saw, what came after, and whether it is still there, in that order.

use super::report::{End, EndKind};
use crate::model::image::Ended;
use crate::trace::line::Header;
use crate::trace::recover;
use serde_json::Value;

/// `next_image`: the trace has another image of the same process after this one.
pub fn ending(header: &Header, seen: &Ended, next_image: bool) -> End {
    if next_image {
        return End { kind: EndKind::Exec, ..End::default() };
    }
    let outside = seen.outside.as_ref().and_then(|o| o.get("status")).and_then(outside_status);
    if let Some(end) = outside {
        return end;
    }
    // What `memshim watch` says: it saw the process go, or left it running.
    match seen.end.as_ref().map(|e| e.how.as_str()) {
        Some("left") => return End { kind: EndKind::Running, ..End::default() },
        Some("gone") => return End { kind: EndKind::Exited, unseen: true, ..End::default() },
        _ => {}
    }
    if let Some(end) = &seen.end {
        return End { kind: EndKind::Exited, code: end.code, ..End::default() };
    }
    if seen.exec_announced.is_some() {
        return End { kind: EndKind::Exec, ..End::default() };
    }
    if seen.running || recover::alive(&header.host.0, header.pid_ns, header.pid, header.start_ticks) {
        return End { kind: EndKind::Running, ..End::default() };
    }
    End { kind: EndKind::Killed, unseen: seen.lowered.iter().any(|l| l.errno.is_some()), ..End::default() }
}

/// Whether the trace lacks its end, also where that was seen from outside: no end line, and no spool that had the rest, beside the trace or by
/// `memshim run` within it.
pub fn is_missing(seen: &Ended, end: &End) -> bool {
    let is_over = matches!(end.kind, EndKind::Killed | EndKind::Signaled | EndKind::Exited);
    is_over && seen.end.is_none() && !seen.recovered
}

fn outside_status(status: &Value) -> Option<End> {
    let number = |key: &str| status.get(key).and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok());
    match status.get("kind")?.as_str()? {
        "exited" => Some(End { kind: EndKind::Exited, code: number("code"), ..End::default() }),
        "signaled" | "killed" => Some(End { kind: EndKind::Signaled, signal: number("signal"), ..End::default() }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_from_outside_goes_first() {
        let mut seen = Ended { outside: Some(serde_json::json!({"status": {"kind": "signaled", "signal": 9}})), ..Ended::default() };
        assert_eq!(ending(&Header::default(), &seen, false), End { kind: EndKind::Signaled, signal: Some(9), ..End::default() });
        seen.outside = None;
        assert_eq!(ending(&Header::default(), &seen, false).kind, EndKind::Killed);
        assert_eq!(ending(&Header::default(), &seen, true).kind, EndKind::Exec);
    }
}
