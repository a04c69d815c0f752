//! What just-in-time compilers compiled: by function how often, for what, for how long, and which argument made them do it again.

use super::report::{Compile, Signature};
use crate::model::image::ImageEnd;
use crate::model::units::Nanos;
use crate::trace::marks;
use std::collections::BTreeMap;

/// Functions and signatures of one listed at most.
const FUNCTIONS_SHOWN: usize = 1000;
const SIGNATURES_SHOWN: usize = 200;

/// By the time they took, the longest first.
pub fn compiles(image: &ImageEnd) -> Vec<Compile> {
    let start = Nanos(image.header.mono_ns);
    let mut by: BTreeMap<(&str, &str), Vec<&marks::Compile>> = BTreeMap::new();
    for notice in &image.marks.compiles {
        by.entry((&notice.by, &notice.function)).or_default().push(notice);
    }
    let mut all: Vec<Compile> = by.into_iter().map(|((by, function), notices)| compile(by, function, &notices, start)).collect();
    all.sort_by(|a, b| b.wall_s.unwrap_or(0.0).total_cmp(&a.wall_s.unwrap_or(0.0)).then(b.count.cmp(&a.count)));
    all.truncate(FUNCTIONS_SHOWN);
    all
}

fn compile(by: &str, function: &str, notices: &[&marks::Compile], start: Nanos) -> Compile {
    let ns: Option<u64> = notices.iter().filter_map(|n| n.ns).reduce(u64::saturating_add);
    let mut signatures: Vec<Signature> = Vec::new();
    for (i, n) in notices.iter().enumerate() {
        let wall_s = n.ns.map(|ns| Nanos(ns).seconds());
        // Without signatures each says no more than that it was.
        if let Some(known) = signatures.iter_mut().find(|s| s.arguments == n.signature && n.why.is_none()) {
            known.count += 1;
            known.wall_s = known.wall_s.map(|s| s + wall_s.unwrap_or(0.0)).or(wall_s);
            continue;
        }
        if signatures.len() < SIGNATURES_SHOWN {
            let changed = i.checked_sub(1).and_then(|before| notices.get(before)).map(|before| changed(&before.signature, &n.signature));
            signatures.push(Signature {
                arguments: n.signature.clone(),
                count: 1,
                first_s: Nanos(n.t).seconds_since(start),
                wall_s,
                changed: changed.unwrap_or_default(),
                why: n.why.clone(),
            });
        }
    }
    // What a compiler calls a recompilation itself had a first time before it.
    let said = notices.iter().filter(|n| n.why.is_some()).count();
    let first = usize::from(said < notices.len());
    let again: Option<u64> = notices.iter().skip(first).filter_map(|n| n.ns).reduce(u64::saturating_add);
    Compile {
        function: function.to_owned(),
        by: by.to_owned(),
        count: notices.len() as u64,
        recompiles: (notices.len() - first) as u64,
        wall_s: ns.map(|ns| Nanos(ns).seconds()),
        recompiles_wall_s: again.map(|ns| Nanos(ns).seconds()),
        signatures,
    }
}

/// Arguments that are not as they were the time before, in words: `argument 0: float32[3] → float32[5]`.
fn changed(before: &[String], now: &[String]) -> Vec<String> {
    let differ = before.iter().zip(now).enumerate().filter(|(_, (b, n))| b != n);
    let mut all: Vec<String> = differ.map(|(i, (b, n))| format!("argument {i}: {b} → {n}")).collect();
    match now.len().cmp(&before.len()) {
        std::cmp::Ordering::Greater => all.extend((before.len()..now.len()).map(|i| format!("argument {i}: none → {}", now[i]))),
        std::cmp::Ordering::Less => all.extend((now.len()..before.len()).map(|i| format!("argument {i}: {} → none", before[i]))),
        std::cmp::Ordering::Equal => {}
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(signature: &[&str], ns: u64, why: Option<&str>) -> marks::Compile {
        marks::Compile {
            t: 1_000_000_000,
            by: "jax".into(),
            function: "f".into(),
            signature: signature.iter().map(|s| s.to_string()).collect(),
            ns: Some(ns),
            why: why.map(str::to_owned),
        }
    }

    #[test]
    fn the_argument_that_changed_is_named() {
        let all = [
            notice(&["f32[3]", "i32[]"], 1_000_000, None),
            notice(&["f32[5]", "i32[]"], 2_000_000, None),
            notice(&["f32[5]"], 3_000_000, None),
        ];
        let c = compile("jax", "f", &all.iter().collect::<Vec<_>>(), Nanos(0));
        assert_eq!((c.count, c.recompiles, c.wall_s, c.recompiles_wall_s), (3, 2, Some(0.006), Some(0.005)));
        let changed: Vec<_> = c.signatures.iter().map(|s| s.changed.join(", ")).collect();
        assert_eq!(changed, ["", "argument 0: f32[3] → f32[5]", "argument 1: i32[] → none"]);
    }

    #[test]
    fn the_same_again_is_counted_and_a_reason_is_a_recompilation() {
        let all = [notice(&["a"], 1, None), notice(&["a"], 1, None)];
        let c = compile("jax", "f", &all.iter().collect::<Vec<_>>(), Nanos(0));
        assert_eq!((c.count, c.recompiles, c.signatures.len(), c.signatures[0].count), (2, 1, 1, 2));
        let only = [notice(&[], 1_000, Some("size mismatch"))];
        let c = compile("torch", "f", &only.iter().collect::<Vec<_>>(), Nanos(0));
        assert_eq!((c.recompiles, c.recompiles_wall_s), (1, Some(1e-6)));
        let once = compile("jax", "f", &[&notice(&["a"], 1_000, None)], Nanos(0));
        assert_eq!((once.recompiles, once.wall_s, once.recompiles_wall_s), (0, Some(1e-6), None));
    }
}
