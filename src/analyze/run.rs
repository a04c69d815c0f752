//! One image's answers put together.

use super::Options;
use super::clock::rfc3339;
use super::ending::{ending, is_missing};
use super::report::{
    Children, EndKind, Kin, Known, Lowered, Mode, Python, Run, SAMPLES_SHOWN, Sample, SeenOutside, Started, THREADS_SHOWN, Thread,
};
use super::stacks::{FrameTable, Names};
use super::{artifacts, auto, compiles, cpu, gpu, heap, instants, left, maps, missing, phases, python, rss, rules, sites};
use crate::model::image::{Ended, ImageEnd};
use crate::model::load::Loaded;
use crate::model::units::{Bytes, Nanos};
use crate::trace::line::{Child, Header, Text};
use serde_json::Value;

/// The runs of a file, in the order of their headers.
pub fn runs_of(file: Loaded, options: &Options, names: &Names, frames: &mut FrameTable) -> Vec<Run> {
    let path = file.path.display().to_string();
    let of_file = missing::of_file(&file);
    let images: Vec<(u32, u64, u32)> = file.images.iter().map(|i| (i.header.pid, i.header.start_ticks, i.header.exec)).collect();
    let mut runs: Vec<Run> = file
        .images
        .into_iter()
        .map(|image| {
            let h = &image.header;
            let next = images.iter().any(|(pid, start, exec)| (*pid, *start) == (h.pid, h.start_ticks) && *exec > h.exec);
            run(image, path.clone(), next, options, names, frames)
        })
        .collect();
    if let Some(last) = runs.last_mut() {
        last.missing.extend(of_file);
    }
    runs
}

fn run(image: ImageEnd, file: String, next_image: bool, options: &Options, names: &Names, frames: &mut FrameTable) -> Run {
    let h = &image.header;
    let seen = &image.seen;
    let mode = match h.mode.as_str() {
        "full" => Mode::Full,
        "fast" => Mode::Fast,
        "watch" => Mode::Watch,
        _ => Mode::Off,
    };
    let inside = mode != Mode::Watch;
    let end = ending(h, seen, next_image);
    let events = heap::events(&image, mode);
    let maps = maps::maps(&image);
    // Without too many of its events what is known of a full trace's heap is what is known in fast mode.
    let known_as = if heap::is_by_counts(&events, mode) { Mode::Fast } else { mode };
    let (mut phases, more_phases) = phases::phases(&image, known_as, options.units.as_ref());
    let samples = samples(&image, inside);
    let wall_s = seen.last_t.seconds_since(Nanos(h.mono_ns));
    let own = phases.split_off(phases.partition_point(|p| !phases::is_of_process(p)));
    let mut heap = heap::heap(&image, mode, options);
    let is_cut = is_missing(seen, &end);
    if is_cut {
        (heap.leaked_bytes, heap.leaked_allocs) = (None, None);
    }
    if phases.is_empty() {
        phases = auto::phases(&samples, wall_s, inside.then_some(&heap));
        gpu::phases::curve(&image, &mut phases);
    }
    let artifacts = artifacts::artifacts(&image, &phases);
    phases.extend(own);
    left::complete(&image, &mut phases, names, frames, options);
    let mut sites = sites::sites(&image, &phases, names, frames, options);
    instants::tell_apart(&mut sites.sums, &heap, h, image.threads_total);
    let python = python::python(&image).map(|of| Python { arenas_bytes: python::arenas(&sites.sites), ..of });
    let rss = rss::rss(&image, inside, &end);
    let told: Vec<_> = phases.iter().filter(|p| !phases::is_of_process(p)).cloned().collect();
    let short_peaks = auto::short_peaks(&told, &heap, &rss, inside);
    Run {
        sites: sites.sites,
        sites_total: Known::new(sites.sums, inside),
        sites_view: sites.view,
        owners: sites.owners,
        pid: h.pid,
        ppid: h.ppid,
        rank: rank(&h.rank),
        job_id: text(&h.job),
        host: h.host.0.clone(),
        command: h.argv.iter().map(|a| a.0.clone()).collect(),
        exe: h.exe.0.clone(),
        cwd: h.cwd.0.clone(),
        python,
        mode,
        lowered: seen.lowered.first().map(|l| if l.errno.is_some() { Lowered::Unwritten } else { Lowered::Cap }),
        lacked_disk: seen.lost.keys().any(|why| memshim_format::spool::is_of_disk(why)),
        full_until_s: seen.lowered.first().filter(|_| seen.full_before).map(|l| Nanos(l.t).seconds_since(Nanos(h.mono_ns))),
        exec: h.exec,
        start: rfc3339(h.wall_ns),
        start_unix_s: h.wall_ns as f64 / 1e9,
        wall_s,
        known_until_s: is_cut.then(|| seen.told_t.unwrap_or(seen.last_t).seconds_since(Nanos(h.mono_ns))),
        cpu_s: cpu::seconds(&image),
        cpu_lower_bound: end.kind == EndKind::Running || cpu::is_lower_bound(&image),
        allocator: h.allocator.0.clone(),
        heap: Known::new(heap, inside),
        rss,
        maps: Known::new(maps, inside),
        gpu: gpu::gpu(&image),
        children: Children { rss_peak_bytes: None, count: seen.child_count, rusage_maxrss_bytes: seen.children_maxrss.map(Bytes) },
        marks: phases::marks(&image),
        compiles: compiles::compiles(&image),
        artifacts,
        phases,
        short_peaks,
        advice: Vec::new(),
        threads: threads(&image),
        threads_total: inside.then_some(image.threads_total),
        samples,
        snapshots: seen.snapshots.clone(),
        own: seen.own.clone(),
        outside: seen.outside.clone(),
        notes: seen.notes.iter().cloned().chain(image.marks.unmet.iter().map(rules::unmet)).collect(),
        missing: missing::of_image(&image, &events, mode, &end, more_phases),
        file,
        kin: kin(h, seen, next_image),
        recovered: seen.recovered,
        events: Known::new(events, inside),
        end,
    }
}

/// What the job needs to know to see whose children are missing.
fn kin(h: &Header, seen: &Ended, next_image: bool) -> Kin {
    let unix_s = |t: u64| h.wall_ns as f64 / 1e9 + (t as f64 - h.mono_ns as f64) / 1e9;
    let started = |c: &Child| Started {
        pid: c.pid,
        at_unix_s: unix_s(c.t),
        program: c.program.as_ref().map(|p| p.0.clone()),
        bare: c.preload == Some(false),
    };
    let rows = seen.outside.as_ref().and_then(|o| o.get("children")).and_then(Value::as_array);
    let row = |row: &Value| {
        let number = |at: usize| row.get(at).and_then(Value::as_u64);
        Some(SeenOutside {
            pid: u32::try_from(number(0)?).ok()?,
            start_ticks: number(1)?,
            ppid: u32::try_from(number(2)?).ok()?,
            name: serde_json::from_value::<Text>(row.get(3)?.clone()).ok()?.0,
            hwm: Bytes(number(4)?),
            from_unix_s: unix_s(number(5)?),
            to_unix_s: unix_s(number(6)?),
        })
    };
    Kin {
        run: h.run.clone(),
        start_ticks: h.start_ticks,
        pid_ns: h.pid_ns,
        interval_s: Nanos(h.interval_ns).seconds(),
        skips: h.children == "skip",
        forked: h.inherited.is_some(),
        children: seen.children.iter().map(started).collect(),
        killed: seen.killed_children.iter().map(|&(pid, t, signal)| (pid, unix_s(t), signal)).collect(),
        went_on: seen.exec_announced.as_ref().filter(|_| !next_image && seen.end.is_none()).map(started),
        seen_outside: rows.into_iter().flatten().filter_map(row).collect(),
    }
}

fn rank(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.trim().parse().ok())
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(s) => Some(s.clone()),
        other => Some(other.to_string()),
    }
}

fn threads(image: &ImageEnd) -> Vec<Thread> {
    let shown = image.threads.iter().take(THREADS_SHOWN);
    shown
        .map(|t| Thread {
            tid: t.tid,
            name: t.name.clone(),
            allocs: t.allocs,
            bytes: Bytes(t.bytes),
            peak_bytes: Bytes::of_balance(t.peak),
        })
        .collect()
}

fn samples(image: &ImageEnd, inside: bool) -> Vec<Sample> {
    let start = Nanos(image.header.mono_ns);
    let points = image.timeline.points();
    debug_assert!(points.len() <= SAMPLES_SHOWN);
    points
        .iter()
        .map(|p| {
            let [rss, heap, maps, _] = p.most.map(Bytes);
            let (heap, maps) = (inside.then_some(heap), inside.then_some(maps));
            let seconds = |t: u64| Nanos(t).seconds_since(start);
            Sample { t_s: seconds(p.t), rss, heap, maps, last: p.last.map(Bytes), heap_at_s: seconds(p.heap_at) }
        })
        .collect()
}
