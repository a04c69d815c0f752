//! What is not in the numbers, and why: every count of something dropped, torn or not understood becomes a line here.

use super::report::{End, EndKind, Events, Missing, Mode};
use super::{ending, heap};
use crate::model::image::ImageEnd;
use crate::model::load::Loaded;
use crate::model::units::Nanos;
use memshim_format::spool::NO_BLOCK;

const BROKEN: &str = "a signal's handler jumped out while they were written, they can't be read, or their block had no room again";

/// Of one image.
pub fn of_image(image: &ImageEnd, events: &Events, mode: Mode, end: &End, more_phases: u64) -> Vec<Missing> {
    let t = &image.totals;
    let seen = &image.seen;
    let mut all = Vec::new();
    let mut add = |what: &str, count: u64, why: &str| {
        if count > 0 {
            all.push(Missing { what: what.into(), count, why: why.into() });
        }
    };
    let declared = heap::declared_lost(image);
    for (why, n) in &seen.lost {
        add(if mode == Mode::Watch { "looks from outside" } else { "events" }, *n, why);
    }
    // Of the broken ones in full mode the counts say which were calls.
    let broken = image.counts.broken;
    let unsaid = if mode == Mode::Full && !seen.running { events.lost.saturating_sub(declared) } else { 0 };
    let of_calls = if mode == Mode::Full { broken.min(unsaid) } else { broken };
    let told: u64 = seen.lost.values().sum();
    add("events", image.counts.lost.min(events.counted).saturating_sub(told), NO_BLOCK);
    for ((what, why), n) in &seen.lost_others {
        add(what, *n, why);
    }
    add("events", of_calls, BROKEN);
    add("records", broken - of_calls, BROKEN);
    add("records of Python's blocks", image.python.as_ref().map_or(0, |p| p.counts.broken), BROKEN);
    if heap::unwritten(image).is_some() {
        add("calls after that", (seen.end.is_none() && !seen.recovered) as u64, "there was no room left for the last counts");
    }
    add(
        "calls",
        heap::under_way(image, mode),
        if seen.end.is_some() { "other threads were in them when the process ended" } else { "the process was killed inside them" },
    );
    add("events", unsaid.saturating_sub(of_calls), "counted, but not in what could be read of the trace");
    add("allocations", t.gap_allocs, "a batch between two others is not there");
    add("batches", t.overlaps, "they begin before the batch before them ends");
    add("batches", t.miscounted, "their columns hold another number of events than they say");
    add("codes", t.bad_codes, "they mean nothing, or a column breaks off");
    add("sizes of allocations", t.unknown_kinds, "their kind is not in the dictionary");
    add("allocations of freed blocks", t.unmatched, "the block was not live, so far as this trace knows");
    add("frames, modules and code objects", image.stacks.bad, "their numbers mean nothing, or they can't be");
    add("call sites of allocations", image.kinds.crowded, "there are more than are kept apart");
    add(
        "call sites of what phases left",
        image.heap.left_crowded,
        "there are more phases on at once, or sites in them, than are kept apart",
    );
    add("Python's frames", seen.python_unread as u64, "memshim does not know this version of the interpreter");
    add("kinds", seen.bad_kinds, "their numbers can't be");
    add("lines", seen.useless, "nothing in them could be used");
    add("calls of mmap and the like", image.maps.late, "they came too late to be put in order, or twice");
    add("calls of mmap and the like", image.maps.unknown, "of a kind this version does not know");
    add(
        "mapped regions in `maps.regions`",
        image.maps.regions_left_out,
        "the list holds the 512 largest; the bytes of all are in the sums",
    );
    let phases = &image.phases;
    add("phases", more_phases, "they took less time than those listed, which are as many as there is room for");
    add("phases", phases.left_out, "more begins and ends than are kept");
    add("ends of phases", phases.unmatched, "no phase of their kind was open on their thread");
    add("edges of phases", phases.unknown, "of a kind this version does not know");
    if seen.running {
        add("the latest events", 1, "the process is running: they are in its memory and come with its next batch");
    }
    if ending::is_missing(seen, end) {
        let private = seen.notes.iter().find_map(|n| n.strip_prefix("spool private: "));
        let why = match private.filter(|_| heap::unwritten(image).is_none()) {
            Some(rest) if end.kind == EndKind::Exited => {
                format!("it ended before its rest was written, and its shared memory was private: {rest}")
            }
            Some(rest) => format!("killed, and its shared memory was private: {rest}"),
            None if end.unseen => "recording had ended before: it may have ended in order".to_string(),
            None => "the trace was cut, or the process was killed and its spool is not beside the trace".to_string(),
        };
        add("the end", 1, &why);
    }
    let start = Nanos(image.header.mono_ns);
    let mut unwritten = events.lost.saturating_sub(declared);
    for lowered in &seen.lowered {
        let what = match lowered.mode.as_str() {
            "fast" => "small calls (sampled only)",
            "none" => "everything",
            _ => "single calls (totals only)",
        };
        let from = Nanos(lowered.t).seconds_since(start);
        // What a cap leaves out was not to be recorded; what could not be written was.
        let count = if lowered.errno.is_some() { std::mem::take(&mut unwritten) } else { 0 };
        all.push(Missing { what: format!("{what} from {from:.3} s on"), count, why: lowered.why.0.clone() });
    }
    all
}

/// Of a file as a whole.
pub fn of_file(file: &Loaded) -> Vec<Missing> {
    let d = &file.damage;
    let mut all = Vec::new();
    let mut add = |what: &str, count: u64, why: String| {
        if count > 0 {
            all.push(Missing { what: what.into(), count, why });
        }
    };
    add("last line", d.torn_tail as u64, "it breaks off".into());
    let first = d.first.as_ref().map_or(String::new(), |(line, why)| format!("; the first is line {line}: {why}"));
    add("lines", d.lines, format!("they can't be read{first}"));
    add("lines", d.unknown_types, "of a type this version does not know".into());
    add("compressed frames", d.frames, "damaged or cut off".into());
    add("lines", file.homeless, "of a process of which there is no header".into());
    add("rest of the file", d.error.is_some() as u64, d.error.clone().unwrap_or_default());
    if let Some((d, lost)) = &file.side {
        add("lines of the side file", d.lines + d.torn_tail as u64, "they can't be read".into());
        add("lines of the side file", d.unknown_types, "of a type this version does not know".into());
        add("rest of the side file", d.error.is_some() as u64, d.error.clone().unwrap_or_default());
        for ((what, why), n) in lost {
            add(what, *n, why.clone());
        }
    }
    for problem in &file.spool_problems {
        add("spool", 1, problem.clone());
    }
    all
}
