//! What would make transfers cheaper, with the seconds that it would save at most where those are known.

use super::{link, measured};
use crate::analyze::report::GpuAdvice;
use crate::model::gpu::GpuEnd;
use crate::model::gpu::transfers::{Group, Key};
use memshim_format::gpu::{direction, memory};

/// Less than this is not worth a line.
const WORTH_S: f64 = 0.001;
/// Nor are copies that took less than this, where nobody knows what would be saved.
const LONG_S: f64 = 0.01;
/// So many copies below 64 KiB in one direction are many.
const MANY_SMALL: u64 = 100;

/// The most to save first; what has no figure last.
pub fn advice(g: &GpuEnd) -> Vec<GpuAdvice> {
    let groups = &g.transfers.groups;
    let mut all: Vec<GpuAdvice> = groups.iter().filter_map(|(key, group)| pin(g, *key, group)).collect();
    all.extend(groups.iter().filter_map(|(key, group)| gather(*key, group)));
    all.retain(|a| a.gain_s.is_none_or(|s| s >= WORTH_S));
    all.sort_by(|a, b| b.gain_s.unwrap_or(0.0).total_cmp(&a.gain_s.unwrap_or(0.0)));
    all
}

/// Pageable copies against the rate that pinned ones of the same direction and device reached in this very run; where there were none, against what
/// the link can carry. Where that is not to be seen either, how long they took is all that there is to say.
fn pin(g: &GpuEnd, (way, memory, device): Key, group: &Group) -> Option<GpuAdvice> {
    if memory as u64 != memory::PAGEABLE || !matches!(way as u64, direction::H2D | direction::D2H) {
        return None;
    }
    let rate = |(bytes, ns): (u64, u64)| bytes as f64 / ns as f64;
    let (bytes, ns) = measured(group)?;
    let took_s = ns as f64 / 1e9;
    let pinned = g.transfers.groups.get(&(way, memory::PINNED as u8, device)).and_then(measured).map(rate);
    let (fast, beside) = match (pinned, link(g, device)) {
        (Some(fast), _) => (Some(fast), format!("pinned ones ran at {fast:.1} GB/s")),
        (None, Some(link)) => (Some(link), format!("none were pinned, and the link can carry {link:.1} GB/s")),
        (None, None) => (None, format!("{took_s:.3} s in all, and none were pinned: what that would save is not known")),
    };
    let gain_s = fast.map(|fast| took_s - bytes as f64 / fast / 1e9);
    (gain_s.is_some() || took_s >= LONG_S).then(|| GpuAdvice {
        what: format!("copy {} from or to page-locked memory", direction::NAMES[way as usize]),
        evidence: format!("{:.3e} bytes from or to pageable memory at {:.1} GB/s; {beside}", group.bytes as f64, rate((bytes, ns))),
        gain_s,
    })
}

/// Small copies cost their latency: as many in batches of a hundred would cost a hundredth.
fn gather((way, _, _): Key, g: &Group) -> Option<GpuAdvice> {
    let name = direction::NAMES.get(way as usize)?;
    (g.small >= MANY_SMALL).then(|| GpuAdvice {
        what: format!("put small {name} copies together"),
        evidence: format!("{} copies below 64 KiB; their calls took {:.3} s", g.small, g.small_wall_ns as f64 / 1e9),
        gain_s: Some(g.small_wall_ns as f64 / 1e9 * 0.99),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(bytes: u64, ns: u64) -> Group {
        Group { count: 1, bytes, timed: 1, timed_bytes: bytes, device_ns: ns, ..Group::default() }
    }

    fn said(groups: &[(Key, Group)], link: Option<&str>) -> Vec<(Option<f64>, String)> {
        let mut g = GpuEnd::default();
        g.transfers.groups.extend(groups.iter().cloned());
        g.links.extend(link.map(|text| (0, text.to_owned())));
        advice(&g).into_iter().map(|a| (a.gain_s, a.evidence)).collect()
    }

    #[test]
    fn pageable_copies_are_held_against_pinned_ones_else_against_the_link() {
        let (pageable, pinned) = (((0, 0, 0), timed(6_000_000_000, 1_000_000_000)), ((0, 1, 0), timed(24_000_000_000, 1_000_000_000)));
        let slow = "6.000e9 bytes from or to pageable memory at 6.0 GB/s; ";
        let link = Some("5.0 GT/s PCIe x16");
        let all = [pageable.clone(), pinned];
        for link in [link, None] {
            assert_eq!(said(&all, link), [(Some(0.75), slow.to_owned() + "pinned ones ran at 24.0 GB/s")]);
        }
        // 8 of 10 bits of sixteen lanes are 8 GB/s: a quarter less.
        assert_eq!(said(&all[..1], link), [(Some(0.25), slow.to_owned() + "none were pinned, and the link can carry 8.0 GB/s")]);
        let unknown = "1.000 s in all, and none were pinned: what that would save is not known";
        assert_eq!(said(&all[..1], None), [(None, slow.to_owned() + unknown)]);
        // As quick as the link is, of another device, short ones, and those whose times are not known.
        assert_eq!(said(&all[..1], Some("2.5 GT/s PCIe x4")), []);
        assert_eq!(said(&[((0, 0, 0), timed(54_000_000, 9_000_000))], None), []);
        assert_eq!(said(&[((0, 0, 0), Group { count: 1, bytes: 1 << 40, wall_ns: 1 << 40, ..Group::default() })], link), []);
    }

    #[test]
    fn without_device_times_calls_that_waited_say_how_long_copies_take() {
        let waited = Group { count: 2, bytes: 60_000_000, wall_ns: 20_000_000, synchronous: 2, ..Group::default() };
        let of = |g: Group| said(&[((1, 0, 0), g)], None);
        assert_eq!(of(waited.clone()).len(), 1);
        assert_eq!(of(Group { synchronous: 1, ..waited }), []);
    }
}
