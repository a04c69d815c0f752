//! Resident memory: its peak, and what it was made of then.

use super::report::{self, AtPeak, End, EndKind};
use crate::model::image::{Ended, ImageEnd};
use crate::model::timeline::Series;
use crate::model::units::{Bytes, Nanos};
use crate::trace::line::Rss;
use serde_json::Value;

/// See the module. `inside`: heap and maps were seen; `end`: how it ended.
pub fn rss(image: &ImageEnd, inside: bool, end: &End) -> report::Rss {
    let seen = &image.seen;
    let start = Nanos(image.header.mono_ns);
    let outside = |key: &str| seen.outside.as_ref().and_then(|o| o.get(key)).and_then(Value::as_u64).map(Bytes);
    let mut rss = report::Rss {
        hwm_bytes: (seen.hwm.0 > 0).then_some(seen.hwm),
        outside_hwm_bytes: outside("hwm"),
        start_bytes: seen.rss_first.map(|r| Bytes(r.rss)),
        start_at_s: seen.rss_first.map(|r| Nanos(r.t).seconds_since(start)),
        end_bytes: seen.rss_last.map(|r| Bytes(r.rss)),
        end_at_s: seen.rss_last.map(|r| Nanos(r.t).seconds_since(start)),
        growth_bytes: growth(seen, inside),
        ..report::Rss::default()
    };
    // The kernel counts for it a little late: what was seen was there.
    let at_most = seen.outside.as_ref().and_then(|o| o.get("rusage")).and_then(|u| u.get("maxrss")).and_then(Value::as_u64).map(Bytes);
    let most = seen.rss_peak.map(|p| Bytes(p.rss)).max(rss.hwm_bytes).max(rss.outside_hwm_bytes).unwrap_or_default();
    rss.at_most_bytes = at_most.map(|bound| bound.max(most));
    // At an exec and at an end of its own a process looks once more.
    let written = seen.lowered.iter().all(|l| l.errno.is_none());
    let looked = seen.end.is_some() && inside && written || matches!(end.kind, EndKind::Exec | EndKind::Running);
    // Where nobody could look at all (no /proc), neither did it itself.
    rss.lower_bound = (!looked || most.0 == 0) && rss.at_most_bytes.is_none_or(|bound| bound > most);
    if let Some(peak) = seen.rss_peak {
        rss.peak_bytes = Bytes(peak.rss);
        rss.peak_at_s = Some(Nanos(peak.t).seconds_since(start));
        let heap = seen.rss_peak_heap.unwrap_or_else(|| Bytes(image.timeline.level_at(peak.t, Series::Heap)));
        let (maps_anon, brk) = (Bytes(image.maps.at_rss_peak.anon), Bytes(image.maps.at_rss_peak.brk));
        let known = [peak.file, peak.shmem, heap.0, maps_anon.0, brk.0, peak.stk];
        rss.at_peak = Some(AtPeak {
            t_s: Nanos(peak.t).seconds_since(start),
            rss: Bytes(peak.rss),
            anon: Bytes(peak.anon),
            file: Bytes(peak.file),
            shmem: Bytes(peak.shmem),
            hugetlb: Bytes(peak.hugetlb),
            heap: inside.then_some(heap),
            maps_anon: inside.then_some(maps_anon),
            brk: inside.then_some(brk),
            stack: Bytes(peak.stk),
            unaccounted: inside.then(|| known.iter().fold(peak.rss as i64, |rest, n| rest.saturating_sub_unsigned(*n))),
        });
    }
    rss
}

/// From a look at the start to one at the end, which there is where the process itself had the time for it.
fn growth(seen: &Ended, inside: bool) -> Option<i64> {
    let is = |snap: Option<&Value>, why: &str, look: &Rss| {
        snap.is_some_and(|s| s.get("why").and_then(Value::as_str) == Some(why) && s.get("t").and_then(Value::as_u64) == Some(look.t))
    };
    let (first, last) = (seen.rss_first?, seen.rss_last?);
    let known = inside && is(seen.snapshots.first(), "start", &first) && is(seen.snapshots.last(), "exit", &last);
    known.then(|| (last.rss as i64).saturating_sub(first.rss as i64))
}
