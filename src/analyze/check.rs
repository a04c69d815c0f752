//! Whether the steps of a run hold what is asked of a program that runs for days: quick, even, and keeping nothing.
//!
//! Pure over a report. The targets are those of molecular dynamics, whose models are called millions of times one after the other: a step
//! takes less than a millisecond, one in a hundred takes three times as long at most, and memory stays what it was.

use serde::Serialize;

use super::phases::is_of_process;
use super::report::{Phase, Report, Run};
use super::steps::{LEAK_STEPS_MIN, STEPS_MIN};

/// Phases that are on less often than this share of the one that repeats most are not what a loop is made of.
const OFTEN: u64 = 10;

/// What is allowed of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// It is not checked.
    Off,
    /// Less than this, in the figure's own unit.
    Below(f64),
    /// Less than so many times the mean.
    TimesMean(f64),
}

/// What is asked of steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Targets {
    /// Seconds.
    pub mean: Limit,
    pub p95: Limit,
    pub p99: Limit,
    /// Standard deviation over mean.
    pub cv: Limit,
    /// Seconds for one unit; where units are told.
    pub per_unit: Limit,
    /// Bytes by which any class of memory may have changed.
    pub memory: Limit,
    /// No class leaks.
    pub leak: bool,
}

impl Default for Targets {
    fn default() -> Targets {
        Targets {
            mean: Limit::Below(1e-3),
            p95: Limit::TimesMean(2.0),
            p99: Limit::TimesMean(3.0),
            cv: Limit::Below(0.2),
            per_unit: Limit::Below(10e-6),
            memory: Limit::Below(10e6),
            leak: true,
        }
    }
}

/// The steps of a process, and how each target came out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    pub host: String,
    pub pid: u32,
    pub rank: Option<i64>,
    /// Names of the phases around it, and its own.
    pub path: Vec<String>,
    pub count: u64,
    pub checks: Vec<Check>,
}

impl Checked {
    /// All of them passed.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|c| c.passed)
    }
}

/// One target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// `mean`, `p95`, `p99`, `cv`, `per_unit`, `memory`, `leak`: the option that sets it.
    pub what: &'static str,
    pub passed: bool,
    /// `null`: it is not known, and has not passed.
    pub measured: Option<f64>,
    /// It has to be less than this. Of `leak`: 0, and it is not to be more.
    pub allowed: f64,
    /// `s`, `bytes`, `bytes a step`, or a share.
    pub unit: &'static str,
    /// Of what is allowed, where it is a multiple of the mean: of how many.
    pub times_mean: Option<f64>,
    /// Of memory: the class whose figure it is, `heap`, `maps`, `gpu`, `pinned`, `rss`.
    pub class: Option<&'static str>,
}

/// Why nothing can be checked.
#[derive(Clone, Debug, PartialEq)]
pub enum Nothing {
    /// No phase of that name; there are these.
    NoSuchPhase(Vec<String>),
    /// It was on so often only.
    TooFew(u64),
    /// No phase was on three times.
    NoneRepeats,
}

/// Checks the phase that is named (its name, or names with `/`), or else those that a loop seems to be made of.
pub fn check(report: &Report, pid: Option<u32>, wanted: Option<&str>, targets: &Targets) -> Result<Vec<Checked>, Nothing> {
    let runs = || report.runs.iter().filter(|r| pid.is_none_or(|p| r.pid == p));
    let told = || runs().flat_map(|r| told(r).map(move |p| (r, p)));
    let found: Vec<(&Run, &Phase)> = match wanted {
        Some(name) => {
            let named: Vec<_> = told().filter(|(_, p)| p.is_called(name)).collect();
            let Some(most) = named.iter().map(|(_, p)| p.count).max() else {
                let mut names: Vec<String> = told().map(|(_, p)| p.name.clone()).collect();
                names.dedup();
                return Err(Nothing::NoSuchPhase(names));
            };
            if most < STEPS_MIN as u64 {
                return Err(Nothing::TooFew(most));
            }
            named.into_iter().filter(|(_, p)| repeats(p)).collect()
        }
        None => runs().flat_map(|r| loops(r).into_iter().map(move |p| (r, p))).collect(),
    };
    if found.is_empty() {
        return Err(Nothing::NoneRepeats);
    }
    Ok(found.into_iter().map(|(run, phase)| checked(run, phase, targets)).collect())
}

/// Phases that somebody told of: what the curve was cut into is no step.
fn told(run: &Run) -> impl Iterator<Item = &Phase> {
    run.phases.iter().filter(|p| p.source != "auto" && !is_of_process(p))
}

fn repeats(p: &Phase) -> bool {
    p.count >= STEPS_MIN as u64
}

/// The outermost phases that repeat, of these the ones that are on about as often as the most frequent.
fn loops(run: &Run) -> Vec<&Phase> {
    let inside = |p: &Phase| told(run).any(|q| repeats(q) && q.path.len() < p.path.len() && p.path.starts_with(&q.path));
    let outermost: Vec<&Phase> = told(run).filter(|p| repeats(p) && !inside(p)).collect();
    let most = outermost.iter().map(|p| p.count).max().unwrap_or(0);
    outermost.into_iter().filter(|p| p.count >= most / OFTEN).collect()
}

fn checked(run: &Run, phase: &Phase, t: &Targets) -> Checked {
    let l = &phase.latency;
    let of = |what, limit: Limit, measured: Option<f64>, unit| {
        let (allowed, times_mean) = match limit {
            Limit::Off => return None,
            Limit::Below(most) => (most, None),
            Limit::TimesMean(times) => (times * l.mean, Some(times)),
        };
        Some(Check { what, passed: measured.is_some_and(|m| m < allowed), measured, allowed, unit, times_mean, class: None })
    };
    let per_unit = phase.per_unit.as_ref();
    let checks = [
        of("mean", t.mean, Some(l.mean), "s"),
        of("p95", t.p95, Some(l.p95), "s"),
        of("p99", t.p99, Some(l.p99), "s"),
        of("cv", t.cv, Some(l.cv), "share"),
        of("per_unit", t.per_unit, per_unit.map(|u| u.median_s), "s").filter(|_| per_unit.is_some()),
        memory(run, phase).map_or_else(
            || of("memory", t.memory, None, "bytes"),
            |(class, change)| of("memory", t.memory, Some(change as f64), "bytes").map(|c| Check { class: Some(class), ..c }),
        ),
        t.leak.then(|| leak(phase)),
    ];
    Checked {
        host: run.host.clone(),
        pid: run.pid,
        rank: run.rank,
        path: phase.path.clone(),
        count: phase.count,
        checks: checks.into_iter().flatten().collect(),
    }
}

/// The class that grew most over the run; what is given back is no trouble. Resident memory counts where the heap is not seen.
fn memory(run: &Run, phase: &Phase) -> Option<(&'static str, i64)> {
    let growth = &phase.steps.as_ref()?.growth;
    let known = growth.known().filter(|(class, _)| *class != "rss" || !run.heap.seen);
    known.map(|(class, of)| (class, of.change_bytes)).reduce(|most, next| if next.1 > most.1 { next } else { most })
}

fn leak(phase: &Phase) -> Check {
    let nothing = Check { what: "leak", passed: false, measured: None, allowed: 0.0, unit: "bytes a step", times_mean: None, class: None };
    // Fewer steps have no verdict.
    let Some(steps) = phase.steps.as_ref().filter(|_| phase.count - phase.open.min(phase.count) >= LEAK_STEPS_MIN as u64) else {
        return nothing;
    };
    match steps.growth.leaking() {
        Some((class, of)) => Check { measured: Some(of.per_count_bytes), class: Some(class), ..nothing },
        None => Check { passed: true, measured: Some(0.0), ..nothing },
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::{Growth, GrowthByClass, Heap, Latency, PerUnit, Steps};
    use super::*;

    fn phase(path: &[&str], count: u64) -> Phase {
        let latency = Latency { mean: 5e-4, median: 5e-4, p95: 8e-4, p99: 1.2e-3, min: 4e-4, max: 2e-3, cv: 0.1 };
        let heap = Growth { change_bytes: 1000, ..Growth::default() };
        let steps = Steps { growth: GrowthByClass { heap: Some(heap), ..GrowthByClass::default() }, ..Steps::default() };
        let path: Vec<String> = path.iter().map(|name| name.to_string()).collect();
        Phase {
            name: path.last().cloned().unwrap_or_default(),
            path,
            count,
            latency,
            steps: Some(steps),
            source: "api",
            ..Phase::default()
        }
    }

    fn report(phases: Vec<Phase>) -> Report {
        let mut run = Run { pid: 7, phases, ..Run::default() };
        run.heap = Heap { seen: true, ..Heap::default() }.into();
        Report { runs: vec![run], ..Report::default() }
    }

    fn failed(phase: Phase, targets: &Targets) -> Vec<&'static str> {
        let found = check(&report(vec![phase]), None, None, targets).expect("checks");
        found[0].checks.iter().filter(|c| !c.passed).map(|c| c.what).collect()
    }

    #[test]
    fn each_target_is_broken_by_its_own_figure_alone() {
        let t = Targets::default();
        let with = |change: fn(&mut Phase)| {
            let mut p = phase(&["step"], 100);
            p.per_unit = Some(PerUnit { unit: "atom".into(), median_s: 8e-6 });
            change(&mut p);
            failed(p, &t)
        };
        assert_eq!(with(|_| ()), Vec::<&str>::new());
        assert_eq!(with(|p| (p.latency.mean, p.latency.p99) = (1e-3, 2e-3)), ["mean"], "less, not as much");
        assert_eq!(with(|p| p.latency.p95 = 1.01e-3), ["p95"]);
        assert_eq!(with(|p| p.latency.p99 = 1.51e-3), ["p99"]);
        assert_eq!(with(|p| p.latency.cv = 0.2), ["cv"]);
        assert_eq!(with(|p| p.per_unit.as_mut().unwrap().median_s = 1e-5), ["per_unit"]);
        assert_eq!(with(|p| p.steps.as_mut().unwrap().growth.heap.as_mut().unwrap().change_bytes = 10_000_000), ["memory"]);
        assert_eq!(with(|p| p.steps.as_mut().unwrap().growth.heap.as_mut().unwrap().leaks = true), ["leak"]);
        assert_eq!(with(|p| p.steps = None), ["memory", "leak"], "what is not known has not passed");
    }

    #[test]
    fn any_class_of_memory_counts_and_resident_memory_where_the_heap_is_not_seen() {
        let mut p = phase(&["step"], 100);
        let grown = Some(Growth { change_bytes: 1 << 30, leaks: true, per_count_bytes: 4096.0, ..Growth::default() });
        let growth = &mut p.steps.as_mut().unwrap().growth;
        growth.maps = grown;
        let found = &check(&report(vec![p.clone()]), None, None, &Targets::default()).unwrap()[0];
        let of = |what: &str| found.checks.iter().find(|c| c.what == what).map(|c| (c.passed, c.class, c.measured)).unwrap();
        assert_eq!(of("memory"), (false, Some("maps"), Some((1u64 << 30) as f64)));
        assert_eq!(of("leak"), (false, Some("maps"), Some(4096.0)));
        let growth = &mut p.steps.as_mut().unwrap().growth;
        (growth.maps, growth.rss) = (None, grown.map(|g| Growth { leaks: false, ..g }));
        assert_eq!(failed(p.clone(), &Targets::default()), Vec::<&str>::new(), "blocks of before that are touched");
        p.steps.as_mut().unwrap().growth.heap = None;
        let mut unseen = report(vec![p]);
        unseen.runs[0].heap.seen = false;
        let found = &check(&unseen, None, None, &Targets::default()).unwrap()[0];
        assert_eq!(found.checks.iter().filter(|c| !c.passed).map(|c| (c.what, c.class)).collect::<Vec<_>>(), [("memory", Some("rss"))]);
    }

    #[test]
    fn targets_can_be_set_and_switched_off() {
        let p = phase(&["step"], 100);
        let off = Targets {
            mean: Limit::Off,
            p95: Limit::Below(1e-4),
            p99: Limit::TimesMean(2.0),
            cv: Limit::Off,
            per_unit: Limit::Off,
            memory: Limit::Off,
            leak: false,
        };
        let found = &check(&report(vec![p]), None, None, &off).unwrap()[0];
        let said: Vec<_> = found.checks.iter().map(|c| (c.what, c.passed, c.allowed, c.times_mean)).collect();
        assert_eq!(said, [("p95", false, 1e-4, None), ("p99", false, 1e-3, Some(2.0))]);
    }

    #[test]
    fn what_a_loop_is_made_of_is_chosen_and_what_is_not_there_is_said() {
        let all =
            vec![phase(&["load"], 3), phase(&["energy"], 100), phase(&["forces"], 90), phase(&["forces", "copy"], 900), phase(&["end"], 1)];
        let named = |wanted: Option<&str>| {
            let found = check(&report(all.clone()), None, wanted, &Targets::default())?;
            Ok(found.iter().map(|c| c.path.join("/")).collect::<Vec<_>>())
        };
        let paths = |of: &[&str]| Ok(of.iter().map(|p| p.to_string()).collect::<Vec<_>>());
        assert_eq!(named(None), paths(&["energy", "forces"]));
        assert_eq!(named(Some("copy")), paths(&["forces/copy"]));
        assert_eq!(named(Some("forces/copy")), paths(&["forces/copy"]));
        assert_eq!(named(Some("end")), Err(Nothing::TooFew(1)));
        assert!(matches!(named(Some("step")), Err(Nothing::NoSuchPhase(names)) if names.len() == 5));
        assert_eq!(check(&report(vec![phase(&["end"], 2)]), None, None, &Targets::default()), Err(Nothing::NoneRepeats));
        assert_eq!(check(&report(all.clone()), Some(8), None, &Targets::default()), Err(Nothing::NoneRepeats));
    }
}
