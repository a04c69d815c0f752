//! The instants that call sites are told of, in words, and what is not known at them.

use super::report::{Heap, Missing, SiteSums};
use crate::model::image::ImageEnd;
use crate::model::sites::Instant;
use crate::model::units::Nanos;
use crate::trace::line::Header;

/// What is to be known of what was live at an instant.
pub fn of_instant(image: &ImageEnd, instant: Instant) -> impl Iterator<Item = Missing> {
    beyond(image, instant).into_iter().chain(untold(image, instant))
}

/// An instant in words.
pub fn said(instant: Instant, start: Nanos) -> String {
    let s = |t: u64| Nanos(t).seconds_since(start);
    match instant {
        Instant::Peak => THE_PEAK.into(),
        Instant::At(t) => format!("{:.3} s", s(t)),
        Instant::PeakWithin(from, to) => format!("the peak from {:.3} s to {:.3} s", s(from), s(to)),
        Instant::PeakOf(tid) => format!("the peak of thread {tid}"),
    }
}

/// Of samples the blocks that were recorded can have had their peak at another time than the heap, of which every call is counted: then theirs is named as
/// such. Counts come at each interval, once a second where there are more than four threads.
pub fn tell_apart(sums: &mut SiteSums, heap: &Heap, header: &Header, threads: u64) {
    let spacing = Nanos(header.interval_ns.max(if threads > CROWD { 1_000_000_000 } else { 0 })).seconds();
    let Some(at) = heap.peak_at_s.filter(|_| header.mode == "fast" && sums.memory == "heap" && sums.instant == THE_PEAK) else { return };
    // A forked child's are its own blocks alone, of which it had none when it began.
    let begins_highest = heap.inherited_bytes.0 > 0 && at == 0.0 && sums.at_s > 0.0;
    if begins_highest || (sums.at_s - at).abs() > 2.0 * spacing {
        sums.instant = OF_RECORDED.into();
    }
}

/// Threads from which on counts come more rarely.
const CROWD: u64 = 4;
const THE_PEAK: &str = "the peak";
/// See [`tell_apart`].
pub const OF_RECORDED: &str = "the peak of the recorded blocks";

/// Where the instant asked for comes after the end.
fn beyond(image: &ImageEnd, instant: Instant) -> Option<Missing> {
    let (start, end) = (image.header.mono_ns, image.seen.last_t.0);
    let asked = match instant {
        Instant::At(t) | Instant::PeakWithin(t, _) if t > end => Nanos(t).seconds_since(Nanos(start)),
        _ => return None,
    };
    let lasted = Nanos(end).seconds_since(Nanos(start));
    let why = format!("the run ended at {lasted:.3} s; what is said is what was live then");
    Some(Missing { what: format!("call sites at {asked:.3} s"), count: 1, why })
}

/// Where recording was lowered: which blocks from before were live later is not known.
fn untold(image: &ImageEnd, instant: Instant) -> Option<Missing> {
    let (start, until) = (Nanos(image.header.mono_ns), image.told_until());
    let s = |t: u64| Nanos(t).seconds_since(start);
    let what = match instant {
        _ if until == u64::MAX => return None,
        Instant::At(t) | Instant::PeakWithin(t, _) if t >= until => format!("call sites at {:.3} s", s(t)),
        Instant::PeakWithin(_, to) if to >= until => format!("call sites from {:.3} s on", s(until)),
        _ => "call sites of what is live at the end".to_owned(),
    };
    let why = format!(
        "recording was lowered at {:.3} s: of blocks from before nobody knows when they were freed, and they are left out",
        s(until)
    );
    Some(Missing { what, count: 1, why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::units::Bytes;

    #[test]
    fn a_peak_of_samples_at_another_time_is_not_called_the_heaps() {
        let header = Header { mode: "fast".into(), interval_ns: 100_000_000, ..Header::default() };
        let of = |heap_s: f64, sites_s: f64, inherited: u64, threads: u64| {
            let heap = Heap { peak_at_s: Some(heap_s), inherited_bytes: Bytes(inherited), ..Heap::default() };
            let mut sums = SiteSums { memory: "heap", instant: THE_PEAK.into(), at_s: sites_s, ..SiteSums::default() };
            tell_apart(&mut sums, &heap, &header, threads);
            sums.instant
        };
        assert_eq!([of(0.101, 0.15, 0, 1), of(0.3, 0.15, 0, 1), of(1.9, 0.15, 0, 5)], [THE_PEAK; 3]);
        assert_eq!([of(0.101, 0.462, 0, 1), of(2.9, 0.15, 0, 5), of(0.0, 0.0016, 50 << 20, 1)], [OF_RECORDED; 3]);
    }
}
