//! Which devices of a job's processes are one card, and what all of them did on it. Each process numbers those that it may see from 0 on; which card that is it
//! knows by the UUID and the place on the bus, by one of them, or (of a driver that says neither, and of older traces) by neither.

use std::collections::BTreeSet;

use super::report::{GpuDevice, GpuTransfer, JobGpu, Run};
use crate::model::units::Bytes;

/// A device as a process knows it.
#[derive(Clone, Copy)]
struct Seen<'a> {
    run: usize,
    host: &'a str,
    uuid: Option<&'a str>,
    bus: Option<&'a str>,
    index: u64,
}

/// A card, by what all say of it.
struct Card<'a> {
    host: &'a str,
    uuid: Option<&'a str>,
    bus: Option<&'a str>,
    indices: BTreeSet<u64>,
    runs: BTreeSet<usize>,
}

/// Which card each is: a number. Those that know more come first; who knows less joins the one card that fits, or where several fit those that know as little.
fn cards(seen: &[Seen]) -> Vec<usize> {
    let mut cards: Vec<Card> = Vec::new();
    let mut of = vec![0; seen.len()];
    let knowledge = |s: &Seen| (s.uuid.is_some(), s.bus.is_some());
    for level in [(true, true), (true, false), (false, true), (false, false)] {
        // Before any of the level joins: none makes the place for the next.
        let known = cards.len();
        let joined: Vec<_> =
            seen.iter().enumerate().filter(|(_, s)| knowledge(s) == level).map(|(i, s)| (i, s, one_that_fits(&cards, seen, s))).collect();
        for (i, s, card) in joined {
            let by_index = level == (false, false);
            let alike = |c: &Card| match s.uuid {
                Some(_) => c.host == s.host && c.uuid == s.uuid,
                None => c.host == s.host && c.bus == s.bus && (!by_index || c.indices.contains(&s.index)),
            };
            let at = card.or_else(|| cards.iter().skip(known).position(alike).map(|at| known + at)).unwrap_or_else(|| {
                cards.push(Card { host: s.host, uuid: s.uuid, bus: s.bus, indices: BTreeSet::new(), runs: BTreeSet::new() });
                cards.len() - 1
            });
            let c = &mut cards[at];
            c.bus = c.bus.or(s.bus);
            c.indices.insert(s.index);
            c.runs.insert(s.run);
            of[i] = at;
        }
    }
    of
}

/// Of the cards that are known the one that a device must be: by the UUID; else by its place on the bus, at which there can be several (instances of MIG); else
/// by the number, where nothing else is known of one of both.
fn one_that_fits(cards: &[Card], seen: &[Seen], s: &Seen) -> Option<usize> {
    let only = |fits: &dyn Fn(&Card) -> bool| {
        let mut all = cards.iter().enumerate().filter(|(_, c)| c.host == s.host && fits(c)).map(|(at, _)| at);
        all.next().filter(|_| all.next().is_none())
    };
    if s.uuid.is_some() {
        return only(&|c| c.uuid == s.uuid);
    }
    // A process has each of its devices once.
    let others = |c: &Card| !c.runs.contains(&s.run);
    if s.bus.is_none() {
        return only(&|c| c.indices.contains(&s.index) && others(c));
    }
    if cards.iter().any(|c| c.host == s.host && c.bus == s.bus) {
        return only(&|c| c.bus == s.bus && others(c));
    }
    let rivals = seen.iter().any(|r| r.host == s.host && r.index == s.index && r.uuid.is_none() && r.bus.is_some() && r.bus != s.bus);
    only(&|c| c.bus.is_none() && c.indices.contains(&s.index) && others(c) && !rivals)
}

/// Each card once, with what all processes did on it; by host and index, then by rank.
pub fn gpus(runs: &[Run]) -> Vec<JobGpu> {
    let devices = runs.iter().enumerate().filter_map(|(i, r)| Some((i, r, r.gpu.as_ref()?)));
    let all: Vec<(&Run, &GpuDevice, Seen)> = devices
        .flat_map(|(run, r, g)| {
            g.devices.iter().filter_map(move |d| {
                let seen = Seen { run, host: &r.host, uuid: d.uuid.as_deref(), bus: d.pci_bus_id.as_deref(), index: d.index? };
                Some((r, d, seen))
            })
        })
        .collect();
    let of = cards(&all.iter().map(|(.., seen)| *seen).collect::<Vec<_>>());
    let mut gpus: Vec<JobGpu> = Vec::new();
    gpus.resize_with(of.iter().max().map_or(0, |last| last + 1), JobGpu::default);
    for ((r, d, seen), at) in all.into_iter().zip(of) {
        add(&mut gpus[at], r, d, seen.index);
    }
    gpus.sort_by_cached_key(|g| (g.host.clone(), g.index.unwrap_or(u64::MAX), g.ranks.iter().min().copied()));
    gpus
}

/// What a process did on a card.
fn add(of: &mut JobGpu, r: &Run, d: &GpuDevice, index: u64) {
    let moved = |direction: &str| {
        let all = r.gpu.iter().flat_map(|g| &g.transfers);
        let of = |t: &&GpuTransfer| t.direction == direction && t.device == Some(index);
        all.filter(of).fold(0u64, |sum, t| sum.saturating_add(t.bytes.0))
    };
    if of.processes == 0 {
        (of.host, of.index) = (r.host.clone(), Some(index));
    }
    of.index = of.index.filter(|known| *known == index);
    of.uuid = of.uuid.take().or_else(|| d.uuid.clone());
    of.pci_bus_id = of.pci_bus_id.take().or_else(|| d.pci_bus_id.clone());
    of.name = of.name.take().or_else(|| d.name.clone());
    of.total_bytes = of.total_bytes.max(d.total_bytes);
    of.used_peak_bytes = of.used_peak_bytes.max(d.used_peak_bytes);
    of.processes += 1;
    of.ranks.extend(r.rank.filter(|rank| !of.ranks.contains(rank)));
    let add = |a: &mut Bytes, b: u64| *a = Bytes(a.0.saturating_add(b));
    add(&mut of.peak_sum_bytes, d.peak_bytes.0);
    add(&mut of.reserved_peak_sum_bytes, d.reserved_peak_bytes.0);
    add(&mut of.h2d_bytes, moved("H2D"));
    add(&mut of.d2h_bytes, moved("D2H"));
}

#[cfg(test)]
mod tests {
    use super::super::report::Gpu;
    use super::*;

    /// A process on devices of these numbers, which have so many bytes at most, UUIDs and places on the bus ("": not known).
    fn on(rank: i64, devices: &[(u64, u64, &str, &str)]) -> Run {
        let text = |of: &str| Some(of.to_owned()).filter(|of| !of.is_empty());
        let device = |&(index, peak, uuid, bus): &(u64, u64, &str, &str)| GpuDevice {
            index: Some(index),
            peak_bytes: Bytes(peak),
            uuid: text(uuid),
            pci_bus_id: text(bus),
            ..GpuDevice::default()
        };
        let gpu = Gpu { devices: devices.iter().map(device).collect(), ..Gpu::default() };
        Run { gpu: Some(gpu), rank: Some(rank), host: "h".into(), ..Run::default() }
    }

    /// Each line: ranks, the number, all peaks together, the UUID.
    fn lines(runs: &[Run]) -> Vec<(Vec<i64>, Option<u64>, u64, String)> {
        gpus(runs).into_iter().map(|g| (g.ranks, g.index, g.peak_sum_bytes.0, g.uuid.unwrap_or_default())).collect()
    }

    #[test]
    fn a_device_of_several_processes_is_one_line() {
        let runs = [on(1, &[(0, 10, "", "")]), on(2, &[(0, 20, "", ""), (1, 5, "", "")])];
        assert_eq!(lines(&runs), [(vec![1, 2], Some(0), 30, String::new()), (vec![2], Some(1), 5, String::new())]);
    }

    #[test]
    fn who_does_not_know_a_cards_uuid_is_on_the_one_that_fits() {
        let knows = on(1, &[(0, 10, "A", "X"), (1, 3, "B", "Y")]);
        let orders = |a: Run, b: Run| [[a.clone(), b.clone()], [b, a]];
        // By its place on the bus, whatever its number is; else by the number.
        for runs in orders(knows.clone(), on(2, &[(0, 20, "", "Y")])) {
            assert_eq!(
                lines(&runs)[..],
                [(vec![1], Some(0), 10, "A".into()), (runs.each_ref().map(|r| r.rank.unwrap()).to_vec(), None, 23, "B".into())]
            );
        }
        for runs in orders(knows, on(2, &[(1, 20, "", "")])) {
            let both = runs.each_ref().map(|r| r.rank.unwrap()).to_vec();
            assert_eq!(lines(&runs)[..], [(vec![1], Some(0), 10, "A".into()), (both, Some(1), 23, "B".into())]);
        }
        // A UUID without a place, and a place without a UUID.
        for runs in orders(on(1, &[(0, 10, "A", "")]), on(2, &[(0, 20, "", "X")])) {
            assert_eq!((lines(&runs).len(), gpus(&runs)[0].pci_bus_id.as_deref()), (1, Some("X")));
        }
    }

    #[test]
    fn where_several_cards_fit_who_knows_less_has_a_line_of_its_own() {
        // Each of two has its own card as number 0; two more say no more than that.
        let mut runs = [on(1, &[(0, 1, "A", "X")]), on(2, &[(0, 2, "B", "Y")]), on(3, &[(0, 4, "", "")]), on(4, &[(0, 8, "", "")])];
        let lines_of = |runs: &[Run]| lines(runs).into_iter().map(|l| (l.0, l.2)).collect::<BTreeSet<_>>();
        let expected = BTreeSet::from([(vec![1], 1), (vec![2], 2), (vec![3, 4], 12)]);
        assert_eq!(lines_of(&runs), expected);
        runs.reverse();
        assert_eq!(lines_of(&runs), BTreeSet::from([(vec![1], 1), (vec![2], 2), (vec![4, 3], 12)]));
        // Two instances at one place on the bus, and who knows that alone.
        let runs = [on(1, &[(0, 1, "A", "X")]), on(2, &[(0, 2, "B", "X")]), on(3, &[(0, 4, "", "X")]), on(4, &[(1, 8, "", "X")])];
        assert_eq!(lines_of(&runs), expected);
        // Two places for one number: neither is the card of which the place is not known.
        let runs = [on(1, &[(0, 1, "A", "")]), on(2, &[(0, 2, "", "X")]), on(3, &[(0, 4, "", "Y")])];
        assert_eq!(lines_of(&runs), BTreeSet::from([(vec![1], 1), (vec![2], 2), (vec![3], 4)]));
        // A process has each of its devices once.
        let runs = [on(1, &[(0, 1, "A", ""), (1, 2, "", "")]), on(2, &[(1, 4, "A", "")])];
        assert_eq!(lines_of(&runs), BTreeSet::from([(vec![1, 2], 5), (vec![1], 2)]));
    }
}
