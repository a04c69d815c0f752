//! Phases of a run that told of none: the curve of its memory cut into ramps, plateaus and falls.
//!
//! The curve (resident memory; where nobody looked, live heap and committed maps together) is drawn with as few straight lines as come within [`WITHIN`] of its range everywhere:
//! neighbouring lines are joined as long as the joined one does, the best join first. What is cut is the curve that was sampled, so times
//! are as fine as the samples.

use super::report::{Heap, Latency, Phase, Rss, Sample, ShortPeak};
use crate::model::units::Bytes;

/// Of the curve's range.
const WITHIN: f64 = 0.06;
/// A line that rises or falls by less of the range is a plateau.
const FLAT: f64 = 0.10;
/// So many phases are a table that a person reads; of more, less is told apart, down to what is no course any more.
const MOST: usize = 16;
const COARSEST: f64 = 8.0;
/// Curves of a smaller range, and shorter ones, are not worth a table.
const RANGE_MIN: f64 = (16 << 20) as f64;
const LONG_S: f64 = 0.5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Ramp,
    Plateau,
    Fall,
}

/// See the module. `end_s`: the run's; `known`: its heap, where that and maps were seen.
pub fn phases(samples: &[Sample], end_s: f64, known: Option<&Heap>) -> Vec<Phase> {
    let resident = samples.iter().any(|s| s.rss.0 > 0);
    let level = |s: &Sample| if resident { s.rss.0 as f64 } else { heap(s).0.saturating_add(maps(s).0) as f64 };
    let points: Vec<(f64, f64)> = samples.iter().map(|s| (s.t_s, level(s))).collect();
    let (low, high) = points.iter().fold((f64::MAX, f64::MIN), |(low, high), p| (low.min(p.1), high.max(p.1)));
    let range = high - low;
    if points.len() < 4 || range < RANGE_MIN || end_s < LONG_S {
        return Vec::new();
    }
    // What goes up and down all the time is one plateau: the more it does so, the less is told apart.
    let mut coarse = 1.0;
    let mut parts = parts(&points, range, coarse);
    while parts.len() > MOST && coarse < COARSEST {
        coarse *= 1.3;
        parts = self::parts(&points, range, coarse);
    }
    parts
        .iter()
        .map(|&((from, to), course)| {
            let end_s = if to + 1 == samples.len() { end_s } else { samples[to].t_s };
            Phase { sampled: Some((samples[from].heap_at_s, samples[to].heap_at_s)), ..phase(&samples[from..=to], course, end_s, known) }
        })
        .collect()
}

/// Stretches of one course, with what is told apart made coarser.
fn parts(points: &[(f64, f64)], range: f64, coarse: f64) -> Vec<((usize, usize), Course)> {
    let course = |(from, to): (usize, usize)| match points[to].1 - points[from].1 {
        d if d > range * FLAT * coarse => Course::Ramp,
        d if d < -range * FLAT * coarse => Course::Fall,
        _ => Course::Plateau,
    };
    let mut parts: Vec<((usize, usize), Course)> = Vec::new();
    for line in lines(points, range * WITHIN * coarse) {
        match parts.last_mut() {
            Some((last, c)) if *c == course(line) => last.1 = line.1,
            _ => parts.push((line, course(line))),
        }
    }
    parts
}

/// Peaks above this share of what phases of the curve show, and by so many bytes, are in none of them.
const ABOVE: f64 = 1.10;
const ABOVE_BYTES: u64 = 1 << 20;

/// The peaks that the phases of the curve do not have: shorter than the time between two samples. `end_s`: the run's.
pub fn short_peaks(phases: &[Phase], heap: &Heap, rss: &Rss, inside: bool) -> Vec<ShortPeak> {
    if phases.is_empty() || phases.iter().any(|p| p.source != "auto") {
        return Vec::new();
    }
    let shown = |of: fn(&Phase) -> Option<Bytes>| phases.iter().filter_map(of).max().unwrap_or_default();
    let high = |peak: Bytes, shown: Bytes| peak.0 as f64 > shown.0 as f64 * ABOVE && peak.0 > shown.0 + ABOVE_BYTES;
    let mut all = Vec::new();
    let heap_shown = shown(|p| p.heap_peak_bytes);
    if inside && high(heap.peak_bytes, heap_shown) {
        let at_s = heap.peak_at_s;
        let phase = at_s.and_then(|t| phases.iter().position(|p| p.begin_s <= t && t <= p.end_s));
        all.push(ShortPeak { of: "heap", peak_bytes: heap.peak_bytes, at_s, phase, shown_bytes: heap_shown });
    }
    let rss_peak = rss.hwm_bytes.max(rss.outside_hwm_bytes).unwrap_or_default();
    let rss_shown = shown(|p| p.rss_peak_bytes);
    if rss_shown.0 > 0 && high(rss_peak, rss_shown) {
        all.push(ShortPeak { of: "resident", peak_bytes: rss_peak, at_s: None, phase: None, shown_bytes: rss_shown });
    }
    all
}

/// Straight lines from point to point that stay within `most` of all points.
fn lines(points: &[(f64, f64)], most: f64) -> Vec<(usize, usize)> {
    let error = |from: usize, to: usize| {
        let ((t0, y0), (t1, y1)) = (points[from], points[to]);
        let at = |t: f64| if t1 > t0 { y0 + (y1 - y0) * (t - t0) / (t1 - t0) } else { y1 };
        points[from..=to].iter().map(|(t, y)| (y - at(*t)).abs()).fold(0.0, f64::max)
    };
    let mut all: Vec<(usize, usize)> = (1..points.len()).map(|i| (i - 1, i)).collect();
    let mut joins: Vec<f64> = all.windows(2).map(|w| error(w[0].0, w[1].1)).collect();
    while let Some((at, best)) = joins.iter().copied().enumerate().min_by(|a, b| a.1.total_cmp(&b.1)) {
        if best > most {
            break;
        }
        all[at].1 = all[at + 1].1;
        all.remove(at + 1);
        joins.remove(at);
        for i in [at.checked_sub(1), Some(at)].into_iter().flatten().filter(|i| i + 1 < all.len()) {
            joins[i] = error(all[i].0, all[i + 1].1);
        }
    }
    all
}

fn heap(s: &Sample) -> Bytes {
    s.heap.unwrap_or_default()
}

fn maps(s: &Sample) -> Bytes {
    s.maps.unwrap_or_default()
}

fn phase(samples: &[Sample], course: Course, end_s: f64, known: Option<&Heap>) -> Phase {
    let inside = known.is_some();
    let (first, last) = (samples[0], samples[samples.len() - 1]);
    let most = |of: fn(&Sample) -> Bytes| samples.iter().map(of).max().unwrap_or_default();
    // Samples are of usable sizes; what was asked for may be known to have been less.
    let at_most = known.and_then(|h| Some(h.peak_bytes + h.peak_bound_bytes?));
    let heap_peak = at_most.map_or(most(heap), |at_most| most(heap).min(at_most));
    let name = match course {
        Course::Ramp => "ramp",
        Course::Plateau => "plateau",
        Course::Fall => "fall",
    };
    let wall = (end_s - first.t_s).max(0.0);
    // What comes and goes within a span is not left behind by it.
    let [rss, heap_left, maps_left, _] = std::array::from_fn(|of| last.last[of].0 as i64 - first.last[of].0 as i64);
    let held = |s: &Sample| s.last[1];
    Phase {
        name: name.into(),
        source: "auto",
        path: vec![name.into()],
        count: 1,
        begin_s: first.t_s,
        end_s,
        wall_s: wall,
        self_wall_s: wall,
        latency: Latency { mean: wall, median: wall, p95: wall, p99: wall, min: wall, max: wall, cv: 0.0 },
        heap_begin_bytes: first.heap.map(|_| held(&first)),
        heap_peak_bytes: inside.then_some(heap_peak),
        peak_begin_s: first.t_s,
        peak_end_s: end_s,
        heap_persistent_bytes: inside.then_some(heap_left),
        heap_transient_bytes: inside.then(|| heap_peak.less(held(&first).max(held(&last)))),
        rss_peak_bytes: Some(most(|s| s.rss)).filter(|b| b.0 > 0),
        rss_persistent_bytes: Some(rss).filter(|_| first.rss.0 > 0),
        map_peak_bytes: inside.then(|| most(maps)),
        map_persistent_bytes: inside.then_some(maps_left),
        spans: vec![(first.t_s, end_s)],
        ..Phase::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(levels: &[u64]) -> Vec<Sample> {
        let sample = |(i, mib): (usize, &u64)| {
            let heap = Bytes(mib << 20);
            Sample {
                t_s: i as f64,
                heap: Some(heap),
                last: [Bytes(0), heap, Bytes(0), Bytes(0)],
                heap_at_s: i as f64 + 0.004,
                ..Sample::default()
            }
        };
        levels.iter().enumerate().map(sample).collect()
    }

    #[test]
    fn what_is_left_is_of_levels_and_not_of_peaks() {
        // The last rise is to 210, of which 120 are gone again before the span ends.
        let mut samples = curve(&[10, 10, 10, 60, 110, 160, 210, 90, 90, 90]);
        samples[6].last[1] = Bytes(90 << 20);
        let found = phases(&samples, 10.0, Some(&Heap::default()));
        let of = |p: &Phase| (p.name.clone(), p.heap_persistent_bytes.unwrap() >> 20, p.heap_transient_bytes.unwrap().0 >> 20);
        let want = [("plateau", 0, 0), ("ramp", 80, 120), ("fall", 0, 120), ("plateau", 0, 0)];
        assert_eq!(found.iter().map(of).collect::<Vec<_>>(), want.map(|(name, left, over)| (name.to_owned(), left, over)));
        // Call sites are of the same instants, also where the next sample is far.
        samples[6].t_s = 6.0;
        samples[7..].iter_mut().for_each(|s| (s.t_s, s.heap_at_s) = (s.t_s + 20.0, s.heap_at_s + 20.0));
        let ramp = phases(&samples, 40.0, Some(&Heap::default())).into_iter().find(|p| p.name == "ramp").unwrap();
        assert_eq!((ramp.sampled, ramp.heap_persistent_bytes.unwrap() >> 20), (Some((2.004, 6.004)), 80));
    }

    #[test]
    fn a_curve_is_cut_where_its_course_changes() {
        let levels = [10, 10, 11, 10, 10, 60, 110, 160, 210, 210, 212, 209, 210, 210, 20, 20, 20];
        let got: Vec<_> = phases(&curve(&levels), 17.0, Some(&Heap::default()))
            .into_iter()
            .map(|p| (p.name, p.begin_s, p.end_s, p.heap_persistent_bytes.unwrap() >> 20))
            .collect();
        assert!(phases(&curve(&levels), 17.0, None).iter().all(|p| p.heap_peak_bytes.is_none() && p.map_peak_bytes.is_none()));
        let want = [
            ("plateau", 0.0, 4.0, 0),
            ("ramp", 4.0, 8.0, 200),
            ("plateau", 8.0, 13.0, 0),
            ("fall", 13.0, 14.0, -190),
            ("plateau", 14.0, 17.0, 0),
        ];
        assert_eq!(got, want.map(|(name, a, b, c)| (name.to_string(), a, b, c)));
    }

    #[test]
    fn no_phase_is_above_the_peak_that_is_known() {
        let levels = [10, 10, 10, 60, 110, 110, 110, 110];
        let of = |bound: Option<Bytes>| {
            let heap = Heap { peak_bytes: Bytes(100 << 20), peak_bound_bytes: bound, ..Heap::default() };
            phases(&curve(&levels), 8.0, Some(&heap)).iter().filter_map(|p| p.heap_peak_bytes).max().unwrap().0 >> 20
        };
        assert_eq!([of(Some(Bytes(0))), of(Some(Bytes(5 << 20))), of(None)], [100, 105, 110]);
    }

    #[test]
    fn what_goes_up_and_down_all_the_time_is_no_long_table() {
        // A saw that climbs, and a long plateau.
        let levels: Vec<u64> = (0..400).map(|i| if i < 300 { 10 + i / 3 + 60 * (i % 5 / 2) } else { 300 }).collect();
        let found = phases(&curve(&levels), 400.0, Some(&Heap::default()));
        assert!((2..=MOST).contains(&found.len()), "{:?}", found.iter().map(|p| (&p.name, p.begin_s)).collect::<Vec<_>>());
        assert_eq!(found.last().map(|p| (p.name.as_str(), p.begin_s > 290.0)), Some(("plateau", true)));
    }

    #[test]
    fn small_and_short_curves_have_none() {
        assert!(phases(&curve(&[1, 2, 3, 4, 5, 6]), 6.0, Some(&Heap::default())).is_empty());
        assert!(phases(&curve(&[0, 100, 0, 100]), 0.1, Some(&Heap::default())).is_empty());
        assert!(phases(&curve(&[0, 100]), 5.0, Some(&Heap::default())).is_empty());
    }

    #[test]
    fn a_peak_that_no_sample_saw_is_told_apart() {
        let levels = [10, 10, 10, 60, 110, 110, 110, 110];
        let phases = phases(&curve(&levels), 8.0, Some(&Heap::default()));
        let heap = |mib: u64| Heap { peak_bytes: Bytes(mib << 20), peak_at_s: Some(1.5), ..Heap::default() };
        let resident = |mib: u64| Rss { hwm_bytes: Some(Bytes(mib << 20)), ..Rss::default() };
        let found = short_peaks(&phases, &heap(900), &resident(2000), true);
        let of_heap =
            ShortPeak { of: "heap", peak_bytes: Bytes(900 << 20), at_s: Some(1.5), phase: Some(0), shown_bytes: Bytes(110 << 20) };
        assert_eq!((found, phases[0].name.as_str()), (vec![of_heap], "plateau"), "resident memory was not sampled");
        assert_eq!(short_peaks(&phases, &heap(115), &resident(0), true), [], "near to what they show");
        assert_eq!(short_peaks(&phases, &heap(900), &resident(0), false), [], "the heap was not seen");
        let told = Phase { source: "api", ..phases[0].clone() };
        assert_eq!(short_peaks(&[told], &heap(900), &resident(0), true), [], "told phases have their peaks");
    }
}
