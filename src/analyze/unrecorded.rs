//! Which processes ran and have no trace: started with a cleared environment, static, set-user-id, excluded. And what is known of their memory.
//!
//! A run knows whom it started and what it became; `memshim run` has seen who lived below its target, and what they had. Not for: what is missing
//! in a trace ([`super::missing`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::report::{Mode, NotRecorded, Run, SeenOutside, Started};
use crate::model::units::Bytes;

/// Started with an environment that does not bring it the library.
const ENVIRONMENT: &str = "environment";
/// What is started was not to be recorded.
pub const SKIPPED: &str = "children skip";
/// Why else is not known.
const NO_TRACE: &str = "no trace";
/// A child can be a little older than what its parent says of it.
const SLACK_S: f64 = 1.0;

type ByPid<'a> = HashMap<(&'a str, u32), Vec<&'a Run>>;

fn of_pid<'a, 'r>(all: &'a ByPid<'r>, host: &'a str, pid: u32) -> &'a [&'r Run] {
    all.get(&(host, pid)).map_or(&[][..], Vec::as_slice)
}

/// Those with most memory first.
pub fn of(runs: &[Run]) -> Vec<NotRecorded> {
    let mut by_pid: ByPid = HashMap::new();
    runs.iter().for_each(|r| by_pid.entry((&r.host, r.pid)).or_default().push(r));
    let mut found: BTreeMap<(&str, u32), NotRecorded> = BTreeMap::new();
    let said = |host: &str, ppid: u32, s: &Started| NotRecorded {
        host: host.to_owned(),
        pid: s.pid,
        ppid,
        program: s.program.clone(),
        why: if s.bare { ENVIRONMENT } else { NO_TRACE },
        ..NotRecorded::default()
    };
    // A process in another space of numbers knows itself by another one than its parent does.
    let mut spaces: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    runs.iter().for_each(|r| _ = spaces.entry(&r.host).or_default().insert(r.kin.pid_ns));
    let told = |r: &Run| spaces.get(r.host.as_str()).is_none_or(|of| of.len() == 1);
    for r in runs.iter().filter(|r| r.mode != Mode::Watch) {
        for child in r.kin.children.iter().filter(|c| c.bare || told(r)) {
            if !of_pid(&by_pid, &r.host, child.pid).iter().any(|c| c.start_unix_s + SLACK_S > child.at_unix_s) {
                let why = |one: NotRecorded| NotRecorded { why: if r.kin.skips { SKIPPED } else { one.why }, ..one };
                found.insert((&r.host, child.pid), why(said(&r.host, r.pid, child)));
            }
        }
        if let Some(next) = &r.kin.went_on {
            let seen = r.rss.outside_hwm_bytes.map(|_| (next.at_unix_s, r.start_unix_s + r.wall_s));
            found.insert(
                (&r.host, r.pid),
                NotRecorded { peak_bytes: r.rss.outside_hwm_bytes, seen_unix_s: seen, ..said(&r.host, r.ppid, next) },
            );
        }
    }
    for r in runs.iter().filter(|r| told(r)) {
        for seen in &r.kin.seen_outside {
            let same = |run: &&&Run| run.kin.start_ticks == seen.start_ticks || seen.start_ticks == 0 || run.kin.start_ticks == 0;
            let last = of_pid(&by_pid, &r.host, seen.pid).iter().filter(same).max_by_key(|run| run.exec);
            if last.is_none_or(|run| run.kin.went_on.is_some()) {
                found.entry((&r.host, seen.pid)).or_insert_with(|| unknown(r, seen)).saw(seen);
            }
        }
    }
    for one in found.values_mut().filter(|n| n.peak_bytes.is_none()) {
        let parent = of_pid(&by_pid, &one.host, one.ppid).iter().filter_map(|run| run.children.rusage_maxrss_bytes).max();
        one.at_most_bytes = parent;
    }
    let mut all: Vec<NotRecorded> = found.into_values().collect();
    all.sort_by_key(|n| (std::cmp::Reverse(n.peak_bytes), n.pid));
    all
}

/// Of recorded processes that went on without a look of their own, what was seen of them from outside.
pub fn add_seen(runs: &mut [Run]) {
    let seen: Vec<(String, SeenOutside)> =
        runs.iter().flat_map(|r| r.kin.seen_outside.iter().map(|s| (r.host.clone(), s.clone()))).collect();
    let mut by: BTreeMap<(&str, u32, u64), Bytes> = BTreeMap::new();
    for (host, s) in &seen {
        let of = by.entry((host, s.pid, s.start_ticks)).or_default();
        *of = s.hwm.max(*of);
    }
    for r in runs.iter_mut().filter(|r| r.rss.outside_hwm_bytes.is_none() && (r.kin.went_on.is_some() || r.rss.lower_bound && r.exec == 0))
    {
        let inside = r.rss.hwm_bytes.unwrap_or_default();
        r.rss.outside_hwm_bytes = by.get(&(r.host.as_str(), r.pid, r.kin.start_ticks)).copied().filter(|hwm| *hwm > inside);
        r.rss.at_most_bytes = r.rss.at_most_bytes.map(|bound| bound.max(r.rss.outside_hwm_bytes.unwrap_or_default()));
    }
}

fn unknown(by: &Run, seen: &SeenOutside) -> NotRecorded {
    let why = if by.kin.skips { SKIPPED } else { NO_TRACE };
    NotRecorded { host: by.host.clone(), pid: seen.pid, ppid: seen.ppid, why, ..NotRecorded::default() }
}

impl NotRecorded {
    fn saw(&mut self, seen: &SeenOutside) {
        self.program = self.program.take().or_else(|| Some(seen.name.clone()).filter(|name| !name.is_empty()));
        self.peak_bytes = self.peak_bytes.max(Some(seen.hwm));
        let (from, to) = self.seen_unix_s.unwrap_or((seen.from_unix_s, seen.to_unix_s));
        self.seen_unix_s = Some((from.min(seen.from_unix_s), to.max(seen.to_unix_s)));
    }
}

/// What the largest of those had whom nobody saw, of each parent that waited for one of more than anybody recorded had: that was none of the others.
/// `most`: what the largest process that is known had.
pub fn unseen(all: &[NotRecorded], most: Bytes) -> Vec<Bytes> {
    let mut of: BTreeMap<(&str, u32), Bytes> = BTreeMap::new();
    for one in all.iter().filter(|n| n.peak_bytes.is_none()) {
        if let Some(bound) = one.at_most_bytes.filter(|b| b.0 > most.0.saturating_add(most.0 / 20).saturating_add(1 << 20)) {
            let held = of.entry((&one.host, one.ppid)).or_default();
            *held = bound.max(*held);
        }
    }
    of.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::super::report::{Children, Kin, Rss};
    use super::*;

    fn child(pid: u32, program: &str, bare: bool) -> Started {
        Started { pid, at_unix_s: 100.5, program: Some(program.into()), bare }
    }

    fn run(pid: u32, kin: Kin) -> Run {
        Run {
            pid,
            ppid: 1,
            host: "h".into(),
            start_unix_s: 100.0,
            wall_s: 1.0,
            kin: Kin { start_ticks: pid as u64, ..kin },
            ..Run::default()
        }
    }

    #[test]
    fn who_ran_without_a_trace_is_told_with_what_is_known_of_it() {
        let seen = |pid: u32, ticks: u64, name: &str, hwm: u64| SeenOutside {
            pid,
            start_ticks: ticks,
            ppid: 7,
            name: name.into(),
            hwm: Bytes(hwm),
            from_unix_s: 100.6,
            to_unix_s: 100.8,
        };
        let parent = Kin {
            children: vec![child(8, "cleared", true), child(9, "recorded", false), child(10, "sudo", false), child(11, "went", true)],
            seen_outside: vec![
                seen(9, 9, "recorded", 77),
                seen(10, 10, "sudo", 500),
                seen(12, 12, "below sudo", 900),
                seen(11, 11, "prog", 300),
            ],
            ..Kin::default()
        };
        let mut runs = vec![run(7, parent), run(9, Kin::default())];
        runs[0].children = Children { rusage_maxrss_bytes: Some(Bytes(50 << 20)), ..Children::default() };
        // Its last image said what it became.
        runs.push(run(11, Kin { went_on: Some(child(11, "prog", true)), ..Kin::default() }));
        let all = of(&runs);
        let rows: Vec<_> = all.iter().map(|n| (n.pid, n.program.as_deref(), n.why, n.peak_bytes.map(|b| b.0))).collect();
        assert_eq!(
            rows,
            [
                (12, Some("below sudo"), NO_TRACE, Some(900)),
                (10, Some("sudo"), NO_TRACE, Some(500)),
                (11, Some("prog"), ENVIRONMENT, Some(300)),
                (8, Some("cleared"), ENVIRONMENT, None)
            ]
        );
        assert_eq!(all[3].at_most_bytes, Some(Bytes(50 << 20)));
        assert_eq!(unseen(&all, Bytes(1 << 20)), [Bytes(50 << 20)], "nobody else had so much");
        assert_eq!(unseen(&all, Bytes(49 << 20)), [], "it can have been the recorded one");
    }

    #[test]
    fn who_was_not_to_be_recorded_is_told_as_such() {
        let seen = SeenOutside { pid: 9, start_ticks: 9, ppid: 8, name: "cc1".into(), hwm: Bytes(70), ..SeenOutside::default() };
        let kin = Kin { skips: true, children: vec![child(8, "make", false)], seen_outside: vec![seen], ..Kin::default() };
        let all = of(&[run(7, kin)]);
        assert_eq!(all.iter().map(|n| (n.pid, n.why)).collect::<Vec<_>>(), [(9, SKIPPED), (8, SKIPPED)]);
    }

    #[test]
    fn a_target_that_went_on_unrecorded_has_what_was_seen_from_outside() {
        let mut one = run(7, Kin { went_on: Some(child(7, "prog", true)), ..Kin::default() });
        one.rss = Rss { outside_hwm_bytes: Some(Bytes(1000)), ..Rss::default() };
        let all = of(&[one]);
        assert_eq!((all.len(), all[0].peak_bytes, all[0].seen_unix_s), (1, Some(Bytes(1000)), Some((100.5, 101.0))));
    }
}
