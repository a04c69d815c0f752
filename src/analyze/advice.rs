//! What could need less memory or time: one line each, with its evidence and what there is to gain. Silent where there is nothing.
//!
//! Pure over a run's answers, after the job has been put together. Small programs get none: below [`WORTH`] nobody acts.

use super::instants;
use super::left;
use super::phases::is_of_process;
use super::report::{Advice, AtPeak, Phase, PhaseSite, Run};
use super::steps::in_words;
use crate::figures::{about, count, iec, percent};
use crate::model::units::Bytes;

/// Less is not worth a person's time.
const WORTH: u64 = 16 << 20;
/// Shares from which something is pointed out.
const HOT_PHASE: f64 = 0.10;
const HOT_OWNER: f64 = 0.30;
const HELD: f64 = 0.10;
const UNACCOUNTED: f64 = 0.30;
/// Shorter runs have no hot phases.
const LONG_S: f64 = 0.5;
const HOT_PHASES: usize = 3;
/// With less than this share of its time on a processor a phase waits.
const WAITS: f64 = 0.2;
/// Less spent on compiling a function anew is not worth padding its shapes.
const RECOMPILED_S: f64 = 0.1;

/// Everything there is to say, most to gain first.
pub fn advice(run: &Run) -> Vec<Advice> {
    let mut all: Vec<Advice> =
        hot_phases(run).chain(leaks(run)).chain(held_across(run)).chain(hot_owner(run)).chain(slack(run)).chain(recompiled(run)).collect();
    all.extend(run.gpu.iter().flat_map(|g| &g.advice).map(|a| Advice {
        what: a.what.clone(),
        evidence: a.evidence.clone(),
        gain_bytes: None,
        gain_s: a.gain_s,
    }));
    // Bytes before seconds, the most first; what has no figure last.
    all.sort_by(|a, b| b.gain_bytes.cmp(&a.gain_bytes).then(b.gain_s.unwrap_or(0.0).total_cmp(&a.gain_s.unwrap_or(0.0))));
    all
}

/// Phases whose own time is a large part of the run's; a phase that is the run itself says nothing.
fn hot_phases(run: &Run) -> impl Iterator<Item = Advice> {
    let mut hot: Vec<&Phase> = told(run).filter(|p| own_s(p) > run.wall_s * HOT_PHASE && run.wall_s > LONG_S).collect();
    hot.sort_by(|a, b| b.self_wall_s.total_cmp(&a.self_wall_s));
    if told(run).count() < 2 {
        hot.clear();
    }
    hot.into_iter().take(HOT_PHASES).map(|p| {
        let cpu = own_cpu_s(p, run);
        let waits = cpu.is_some_and(|cpu| cpu < p.self_wall_s * WAITS);
        Advice {
            what: format!(
                "`{}` takes {} of the run by itself{}",
                p.path.join(" › "),
                percent(own_s(p), run.wall_s),
                if waits { ", waiting" } else { "" }
            ),
            evidence: format!(
                "{:.3} s in {}{}{}",
                p.self_wall_s,
                if p.count == 1 { "one time".to_owned() } else { format!("{} times", count(p.count)) },
                cpu.map(|cpu| format!(", {} of it on a processor", percent(cpu, p.self_wall_s))).unwrap_or_default(),
                if waits { ": what it waits for takes the time, not what it computes" } else { "" }
            ),
            gain_bytes: None,
            gain_s: Some(own_s(p)),
        }
    })
}

/// Time of the program on processors while a phase was on and none inside it; `None`: it is not known of all of them.
fn own_cpu_s(p: &Phase, run: &Run) -> Option<f64> {
    let inside = run.phases.iter().filter(|q| q.path.len() == p.path.len() + 1 && q.path.starts_with(&p.path));
    let (mut cpu, mut wall) = (p.cpu_s?, p.self_wall_s);
    for q in inside {
        (cpu, wall) = (cpu - q.cpu_s?, wall + q.wall_s);
    }
    // Of phases on several threads at once the times do not add up.
    let adds_up = (wall - p.wall_s).abs() <= p.wall_s * 0.01;
    adds_up.then_some(cpu.max(0.0))
}

/// Of the run's time; threads that are in it at once count once, at most.
fn own_s(p: &Phase) -> f64 {
    p.self_wall_s.min((p.end_s - p.begin_s).max(0.0))
}

/// Phases that somebody told of: what the curve was cut into explains nothing, and of how a process begins and ends there is little to choose.
fn told(run: &Run) -> impl Iterator<Item = &Phase> {
    run.phases.iter().filter(|p| p.source != "auto" && !is_of_process(p))
}

fn leaks(run: &Run) -> impl Iterator<Item = Advice> {
    let leaking = |p: &&Phase| p.steps.as_ref().is_some_and(|s| s.leaks || s.growth.leaking().is_some());
    // What an inner phase leaks the outer one leaks too: it is said once, of the inner.
    let inner = move |p: &Phase| run.phases.iter().filter(leaking).any(|q| q.path.len() > p.path.len() && q.path.starts_with(&p.path));
    run.phases.iter().filter(move |p| !inner(p)).filter_map(|p| {
        let steps = p.steps.as_ref()?;
        if !steps.leaks || steps.growth.leaking().is_some_and(|(class, _)| class != "heap") {
            return leaks_beside_the_heap(p);
        }
        let kept_by = steps.sites.first().zip(steps.sites_from);
        let kept = |top: &PhaseSite| format!("{}{} by {}", iec(top.bytes.0), about(top.stderr_bytes), left::who(top));
        let kept_by = kept_by.map(|(top, from)| format!("; kept since number {from}: {}", kept(top)));
        Some(Advice {
            what: format!("`{}` leaks: it keeps {} each time", p.path.join(" › "), iec(p.growth_per_count_bytes? as u64)),
            evidence: format!(
                "live heap at its ends grows by {} to {} with 95 % confidence over {} times{}",
                iec(steps.growth_low_bytes.max(0.0) as u64),
                iec(steps.growth_high_bytes.max(0.0) as u64),
                count(p.count),
                kept_by.unwrap_or_default()
            ),
            gain_bytes: Some(Bytes(steps.growth_total_bytes.max(0.0) as u64)),
            gain_s: None,
        })
    })
}

/// A leak of another class than the heap.
fn leaks_beside_the_heap(p: &Phase) -> Option<Advice> {
    let steps = p.steps.as_ref()?;
    let (class, of) = steps.growth.leaking()?;
    let bytes = |of: f64| iec(of.max(0.0) as u64);
    let mapped = steps.map_sites.first().filter(|_| class == "maps");
    let mapped =
        mapped.map(|top| format!("; mapped still at the end: {}{} by {}", iec(top.bytes.0), about(top.stderr_bytes), left::who(top)));
    let class = in_words(class);
    Some(Advice {
        what: format!("`{}` leaks {class}: it keeps {} each time", p.path.join(" › "), bytes(of.per_count_bytes)),
        evidence: format!(
            "{class} at its ends: {} to {} more each time with 95 % confidence, over {} times{}",
            bytes(of.low_bytes),
            bytes(of.high_bytes),
            count(p.count),
            mapped.unwrap_or_default()
        ),
        gain_bytes: Some(Bytes(of.total_bytes.max(0.0) as u64)),
        gain_s: None,
    })
}

/// Functions that were compiled again and again, for other shapes.
fn recompiled(run: &Run) -> impl Iterator<Item = Advice> {
    run.compiles.iter().filter_map(|c| {
        let gain_s = c.recompiles_wall_s?;
        let changed = c.signatures.iter().rev().find_map(|s| s.changed.first().or(s.why.as_ref()));
        (c.recompiles > 0 && gain_s >= RECOMPILED_S).then(|| Advice {
            what: format!("`{}` was compiled {} times by {}", c.function, count(c.count), c.by),
            evidence: format!(
                "{:.3} s in all, {gain_s:.3} s of it anew{}",
                c.wall_s.unwrap_or(gain_s),
                changed.map(|w| format!("; the last time for {w}")).unwrap_or_default()
            ),
            gain_bytes: None,
            gain_s: Some(gain_s),
        })
    })
}

/// What an earlier phase left behind and is still live at the peak of a later one.
fn held_across(run: &Run) -> impl Iterator<Item = Advice> {
    let top = |p: &&Phase| p.path.len() == 1;
    let peak = told(run).filter(top).max_by_key(|p| p.heap_peak_bytes);
    let held = peak.and_then(|peak| {
        let left = told(run).filter(top).filter(|p| p.end_s <= peak.begin_s && p.count == 1);
        let p = left.max_by_key(|p| p.heap_persistent_bytes)?;
        // Of it no more is live there than there was when the later phase began.
        let most = peak.heap_peak_bytes?;
        let bytes = Bytes::of_balance(p.heap_persistent_bytes?.min(peak.heap_begin_bytes?.0 as i64));
        let worth = bytes.0 >= WORTH && bytes.0 as f64 >= most.0 as f64 * HELD;
        worth.then(|| Advice {
            what: format!("what `{}` leaves behind may still be live when `{}` reaches the peak", p.name, peak.name),
            evidence: format!("up to {} of {}: free it before, if it is not needed there", iec(bytes.0), iec(most.0)),
            gain_bytes: Some(bytes),
            gain_s: None,
        })
    });
    held.into_iter()
}

fn hot_owner(run: &Run) -> impl Iterator<Item = Advice> {
    // Of a forked child the sites are of its own blocks alone.
    let total = run.sites_total.live_at_peak_bytes.max(run.heap.peak_bytes).0;
    let top = run.owners.iter().max_by_key(|o| o.live_at_peak_bytes);
    let is_known = run.sites_total.instant != instants::OF_RECORDED;
    let hot = top.filter(|o| is_known && o.live_at_peak_bytes.0 >= WORTH && o.live_at_peak_bytes.0 as f64 >= total as f64 * HOT_OWNER);
    hot.into_iter().map(move |o| {
        let f = &o.frame;
        let place = f.file.as_deref().map(|p| format!(" ({}:{})", p.rsplit('/').next().unwrap_or(p), f.line.unwrap_or(0)));
        Advice {
            what: format!(
                "`{}`{} holds {} of the heap at its peak",
                f.function.as_deref().unwrap_or("code without a name"),
                place.unwrap_or_default(),
                percent(o.live_at_peak_bytes.0 as f64, total as f64)
            ),
            evidence: format!(
                "{} live there, of {} that it asked for in {} calls",
                iec(o.live_at_peak_bytes.0),
                iec(o.total_bytes.0),
                count(o.allocs)
            ),
            gain_bytes: Some(o.live_at_peak_bytes),
            gain_s: None,
        }
    })
}

/// Resident memory that is nobody's: what the allocator keeps of blocks that were freed, or what huge pages take beside what is touched; silent where it
/// is neither. Where recording was lowered, or a forked child's parent is not there, it may be of maps that are not in the trace.
fn slack(run: &Run) -> impl Iterator<Item = Advice> {
    let known = run.heap.seen && run.lowered.is_none() && run.maps.get().is_none_or(|m| !run.kin.forked || m.inherited_bytes.is_some());
    let found = run.rss.at_peak.as_ref().filter(|_| known).and_then(|p| {
        // What was live when most was, was resident then as far as it was touched: a peak can not be made lower than that.
        let most = p.rss.less(p.file + p.shmem + p.stack).less(live_at_most(run, p));
        let bytes = u64::try_from(p.unaccounted?)
            .ok()
            .map(|idle| idle.min(most.0))
            .filter(|b| *b >= 4 * WORTH && *b as f64 >= p.rss.0 as f64 * UNACCOUNTED)?;
        let threads = run.threads_total.unwrap_or(0);
        let huge = run.snapshots.iter().filter_map(|s| s["rollup"]["anon_huge"].as_u64()).max().unwrap_or(0);
        let huge = Some(huge).filter(|huge| *huge >= bytes / 2);
        // Of what the run freed the allocator cannot keep more than that. What a child inherited and freed is not known.
        let freed = run.heap.requested_bytes.less(p.heap.unwrap_or_default()).0;
        let how = match run.allocator.as_str() {
            _ if freed < bytes / 2 && run.heap.inherited_bytes.0 == 0 => {
                huge.map(|_| "a byte touched makes 2 MiB resident where huge pages are: prctl(PR_SET_THP_DISABLE) or MADV_NOHUGEPAGE")?
            }
            "glibc" if threads > 4 => "MALLOC_ARENA_MAX=2 lets threads share arenas",
            "glibc" => "MALLOC_TRIM_THRESHOLD_=0 or malloc_trim(0) gives free memory back",
            _ => "the allocator's own settings may give free memory back sooner",
        };
        let pages = huge.map(|huge| format!(", {} in transparent huge pages", iec(huge))).unwrap_or_default();
        Some(Advice {
            what: format!("{} of the resident memory is live in no block and no map: {how}", percent(bytes as f64, p.rss.0 as f64)),
            evidence: format!(
                "{} of {} at the peak, {} thread{}{pages}",
                iec(bytes),
                iec(p.rss.0),
                count(threads),
                if threads == 1 { "" } else { "s" }
            ),
            gain_bytes: Some(Bytes(bytes)),
            gain_s: None,
        })
    });
    found.into_iter()
}

/// Private memory that was asked for when most of it was, at the least.
fn live_at_most(run: &Run, p: &AtPeak) -> Bytes {
    let of = |b: Option<Bytes>| b.unwrap_or_default();
    let at_peak = of(p.heap) + of(p.maps_anon) + of(p.brk);
    // Of several threads the peak is the sum of theirs, which need not have been at once.
    let heap = run.heap.peak_bound_bytes.map_or(Bytes(0), |bound| run.heap.peak_bytes.less(bound));
    run.samples.iter().map(|s| of(s.heap).max(s.last[1].min(heap) + s.last[3])).fold(heap.max(at_peak), Bytes::max)
}

#[cfg(test)]
mod tests {
    use super::super::report::{Compile, Frame, Growth, Heap, Lowered, Maps, Owner, PhaseSite, Rss, Sample, Signature, SiteSums, Steps};
    use super::*;

    fn phase(name: &str, begin_s: f64, end_s: f64) -> Phase {
        Phase { name: name.into(), path: vec![name.into()], count: 1, begin_s, end_s, wall_s: end_s - begin_s, ..Phase::default() }
    }

    #[test]
    fn nothing_is_said_of_a_run_in_which_there_is_nothing() {
        let run = Run { wall_s: 10.0, phases: vec![phase("a", 0.0, 0.2), phase("b", 0.3, 0.9)], ..Run::default() };
        assert_eq!(advice(&run), []);
        assert_eq!(advice(&Run::default()), []);
    }

    #[test]
    fn each_kind_has_its_line_and_its_figure() {
        let mut run = Run { wall_s: 10.0, threads_total: Some(8), allocator: "glibc".into(), ..Run::default() };
        run.heap = Heap { seen: true, requested_bytes: Bytes(3 << 30), ..Heap::default() }.into();
        let build = Phase { heap_persistent_bytes: Some(300 << 20), ..phase("build", 0.0, 1.0) };
        let solve = Phase {
            heap_begin_bytes: Some(Bytes(200 << 20)),
            heap_peak_bytes: Some(Bytes(900 << 20)),
            self_wall_s: 6.0,
            ..phase("solve", 1.0, 9.0)
        };
        let steps = Steps { leaks: true, growth_low_bytes: 900.0, growth_high_bytes: 1100.0, growth_total_bytes: 5e5, ..Steps::default() };
        let step = Phase { count: 500, growth_per_count_bytes: Some(1024.0), steps: Some(steps), ..phase("step", 9.0, 9.5) };
        run.phases = vec![build, solve, step];
        run.sites_total = SiteSums { live_at_peak_bytes: Bytes(900 << 20), ..SiteSums::default() }.into();
        let frame = Frame { function: Some("fill".into()), file: Some("/a/run.py".into()), line: Some(7), ..Frame::default() };
        run.owners =
            vec![Owner { frame, live_at_peak_bytes: Bytes(500 << 20), allocs: 5, total_bytes: Bytes(500 << 20), ..Owner::default() }];
        run.rss = Rss { at_peak: Some(AtPeak { rss: Bytes(2 << 30), unaccounted: Some(1 << 30), ..AtPeak::default() }), ..Rss::default() };
        let said: Vec<(String, Option<u64>)> = advice(&run).into_iter().map(|a| (a.what, a.gain_bytes.map(|b| b.0))).collect();
        let starts = [
            ("50 % of the resident memory", Some(1 << 30)),
            ("`fill` (run.py:7) holds 56 %", Some(500 << 20)),
            ("what `build` leaves behind may still be live when `solve`", Some(200 << 20)),
            ("`step` leaks: it keeps 1.00 KiB", Some(500_000)),
            ("`solve` takes 60 %", None),
        ];
        assert_eq!(said.len(), starts.len(), "{said:?}");
        for ((what, gain), (start, bytes)) in said.iter().zip(starts) {
            assert!(what.starts_with(start) && *gain == bytes, "{what} {gain:?}");
        }
        run.lowered = Some(Lowered::Cap);
        assert!(!advice(&run).iter().any(|a| a.what.contains("resident memory")), "it may be maps that were not recorded");
    }

    /// All freed before the last look: what was resident at it was live when it became so.
    #[test]
    fn what_was_live_when_most_was_can_not_be_saved() {
        let at = AtPeak { rss: Bytes(400 << 20), file: Bytes(10 << 20), unaccounted: Some(390 << 20), ..AtPeak::default() };
        let mut run = Run { threads_total: Some(1), allocator: "glibc".into(), ..Run::default() };
        run.rss = Rss { at_peak: Some(at), ..Rss::default() };
        let heap = |peak: u64| Heap {
            seen: true,
            peak_bytes: Bytes(peak << 20),
            peak_bound_bytes: Some(Bytes(0)),
            requested_bytes: Bytes(9 << 30),
            ..Heap::default()
        };
        let said = |run: &Run| advice(run).into_iter().map(|a| (a.evidence, a.gain_bytes.map(|b| b.0 >> 20))).collect::<Vec<_>>();
        run.heap = heap(380).into();
        assert_eq!(said(&run), []);
        run.heap = heap(190).into();
        assert_eq!(said(&run), [("200 MiB of 400 MiB at the peak, 1 thread".to_owned(), Some(200))]);
        let several = Heap { peak_bound_bytes: Some(Bytes(50 << 20)), ..heap(240) };
        run.heap = several.into();
        assert_eq!(said(&run)[0].1, Some(200), "of threads that need not have had theirs at once");
        // Of the heap and maps together the peak is what both were at one instant.
        let both = [0, 190 << 20, 0, 60 << 20].map(Bytes);
        run.samples = vec![Sample { last: both, ..Sample::default() }];
        assert_eq!(said(&run)[0].1, Some(140));
        (run.maps, run.kin.forked) = (Maps::default().into(), true);
        assert_eq!(said(&run), [], "a forked child whose parent is not there");
    }

    #[test]
    fn a_phase_that_waits_is_not_said_to_compute() {
        let of = |name: &str, wall: (f64, f64), cpu_s| Phase { self_wall_s: wall.1, cpu_s, ..phase(name, 0.0, wall.0) };
        let inner = Phase { path: vec!["outer".into(), "inner".into()], ..of("inner", (4.0, 4.0), Some(4.0)) };
        let said = |outer_cpu: Option<f64>, inner: Phase| {
            let phases = vec![of("outer", (9.0, 5.0), outer_cpu), inner];
            let all = advice(&Run { wall_s: 10.0, phases, ..Run::default() });
            let one = all.into_iter().find(|a| a.what.starts_with("`outer`")).expect("its line");
            format!("{}: {}", one.what, one.evidence)
        };
        let waits = "`outer` takes 50 % of the run by itself, waiting: 5.000 s in one time, 2.0 % of it on a processor: what it waits for takes \
                     the time, not what it computes";
        assert_eq!(said(Some(4.1), inner.clone()), waits, "what is inside computes");
        assert_eq!(
            said(Some(6.0), inner.clone()),
            "`outer` takes 50 % of the run by itself: 5.000 s in one time, 40 % of it on a processor"
        );
        let plain = "`outer` takes 50 % of the run by itself: 5.000 s in one time";
        assert_eq!(said(None, inner.clone()), plain, "nobody knows");
        let other_thread = Phase { wall_s: 8.0, ..inner };
        assert_eq!(said(Some(4.1), other_thread), plain, "two threads' times do not add up");
    }

    #[test]
    fn what_is_compiled_anew_has_its_argument_and_huge_pages_are_said_with_free_memory() {
        let signature = |changed: &str| Signature { changed: vec![changed.into()], ..Signature::default() };
        let compile = |wall_s: f64| Compile {
            function: "fit".into(),
            by: "jax".into(),
            count: 4,
            recompiles: 3,
            wall_s: Some(wall_s),
            recompiles_wall_s: Some(wall_s * 0.75),
            signatures: vec![signature("argument 0: float32[3] → float32[5]"), signature("argument 0: float32[5] → float32[7]")],
        };
        let mut run = Run { wall_s: 10.0, compiles: vec![compile(2.0), compile(0.1)], allocator: "glibc".into(), ..Run::default() };
        run.heap = Heap { seen: true, requested_bytes: Bytes(3 << 30), ..Heap::default() }.into();
        run.rss = Rss { at_peak: Some(AtPeak { rss: Bytes(2 << 30), unaccounted: Some(1 << 30), ..AtPeak::default() }), ..Rss::default() };
        run.snapshots = vec![serde_json::json!({"rollup": {"anon_huge": 768u64 << 20}})];
        let all = advice(&run);
        let said: Vec<(&str, &str, Option<f64>)> = all.iter().map(|a| (a.what.as_str(), a.evidence.as_str(), a.gain_s)).collect();
        let memory =
            "50 % of the resident memory is live in no block and no map: MALLOC_TRIM_THRESHOLD_=0 or malloc_trim(0) gives free memory back";
        let compiled = "2.000 s in all, 1.500 s of it anew; the last time for argument 0: float32[5] → float32[7]";
        let pages = "1.00 GiB of 2.00 GiB at the peak, 0 threads, 768 MiB in transparent huge pages";
        assert_eq!(said, [(memory, pages, None), ("`fit` was compiled 4 times by jax", compiled, Some(1.5))]);
        // Little was ever freed: the allocator keeps nothing, the pages are all.
        run.heap.requested_bytes = Bytes(1 << 20);
        let touched = "50 % of the resident memory is live in no block and no map: a byte touched makes 2 MiB resident where huge pages are: \
                       prctl(PR_SET_THP_DISABLE) or MADV_NOHUGEPAGE";
        let first = advice(&run).remove(0);
        assert_eq!((first.what.as_str(), first.evidence.as_str()), (touched, pages));
        run.snapshots.clear();
        assert!(advice(&run).iter().all(|a| a.gain_bytes.is_none()), "nobody knows what it is");
    }

    #[test]
    fn a_leak_has_the_site_that_keeps_it_and_each_class_a_line() {
        let frame = Frame { function: Some("keep".into()), ..Frame::default() };
        let site = PhaseSite { bytes: Bytes(900 << 10), stderr_bytes: 2048.0, frames: vec![frame], ..PhaseSite::default() };
        let steps = Steps { leaks: true, sites: vec![site], sites_from: Some(100), ..Steps::default() };
        let heap = Phase { count: 1000, growth_per_count_bytes: Some(1024.0), steps: Some(steps), ..phase("step", 0.0, 0.1) };
        let mut steps = Steps::default();
        steps.growth.maps = Some(Growth { leaks: true, per_count_bytes: 4096.0, total_bytes: 4096e3, ..Growth::default() });
        let maps = Phase { count: 1000, steps: Some(steps), ..phase("tile", 0.0, 0.1) };
        let all = advice(&Run { wall_s: 10.0, phases: vec![heap, maps], ..Run::default() });
        let said: Vec<&str> = all.iter().map(|a| a.what.as_str()).collect();
        assert_eq!(said, ["`tile` leaks committed maps: it keeps 4.00 KiB each time", "`step` leaks: it keeps 1.00 KiB each time"]);
        assert!(all[1].evidence.ends_with("over 1 000 times; kept since number 100: 900 KiB ± 2.00 KiB by keep"), "{}", all[1].evidence);
    }
}
