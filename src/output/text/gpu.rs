//! GPUs of one run: memory by device, transfers, streams, graphs.

use super::{Page, phases as all_phases};
use crate::analyze::phases::is_of_process;
use crate::analyze::report::{Gpu, GpuDevice, GpuTransfer, Phase, PhaseDevice, Run};
use crate::output::table::Table;
use crate::output::units::{count, iec, iec_signed, percent, seconds};

const STREAMS_SHOWN: usize = 5;
const PHASES_SHOWN: usize = 6;
/// Of a phase's name.
const PHASE_WIDTH: usize = 30;
const KERNELS_SHOWN: usize = 5;
/// Of a kernel's name.
const NAME_SHOWN: usize = 60;
const FAILED_SHOWN: usize = 4;
const ADVICE_SHOWN: usize = 3;

pub fn all(page: &mut Page, run: &Run) {
    let Some(g) = &run.gpu else { return };
    page.block("GPU", [headline(g)]);
    page.block("", devices(g));
    transfers(page, g);
    streams(page, g);
    phases(page, run);
    kernels(page, g);
    graphs(page, g);
    trouble(page, g);
    page.gap();
}

fn name(d: &GpuDevice) -> String {
    match (d.index, &d.name) {
        (Some(i), Some(name)) => format!("{i} {name}"),
        (Some(i), None) => format!("{i}"),
        (None, _) => "not known".into(),
    }
}

fn name_of_index(d: &GpuDevice) -> String {
    d.index.map_or("?".into(), |i| i.to_string())
}

fn headline(g: &Gpu) -> String {
    let highest = g.devices.iter().max_by_key(|d| d.reserved_peak_bytes);
    let Some(d) = highest else { return "no memory was allocated there".into() };
    let at = d.peak_at_s.map(|t| format!(" at {}", seconds(t))).unwrap_or_default();
    let of = d.total_bytes.map(|t| format!(", {} of the device", percent(d.reserved_peak_bytes.0 as f64, t.0 as f64))).unwrap_or_default();
    format!("peak live {} on device {}{at}{of}", iec(d.peak_bytes.0), name(d))
}

fn devices(g: &Gpu) -> Vec<String> {
    let mut t = Table::new();
    t.row(["device", "peak live", "peak reserved", "live at the end", "most in use by all", "not by these calls", "of"]);
    for d in &g.devices {
        let known = |b: Option<crate::model::units::Bytes>| b.map_or("–".into(), |b| iec(b.0));
        t.row([
            name(d),
            iec(d.peak_bytes.0),
            iec(d.reserved_peak_bytes.0),
            iec(d.live_bytes.0),
            known(d.used_peak_bytes),
            d.unattributed_bytes.map_or("–".into(), iec_signed),
            known(d.total_bytes),
        ]);
    }
    let mut lines = t.lines();
    for (d, name, f) in g.devices.iter().flat_map(|d| d.framework.iter().map(move |(name, f)| (d, name, f))) {
        let (used, kept) = (iec(f.allocated_peak_bytes.0), iec(f.reserved_peak_bytes.0));
        let what = if name == "torch" { "tensors" } else { "arrays" };
        let looks = f.looks.map_or(String::new(), |n| format!(" at {} looks (more between them is not seen)", count(n)));
        lines.push(format!("{name} on device {}: peak {used} in {what}{looks}, {kept} in its blocks", name_of_index(d)));
    }
    lines.extend(g.devices.iter().filter(|d| !d.imports.is_empty()).map(imported));
    if !g.own_pools.is_empty() {
        let have = if g.own_pools.len() == 1 {
            "has a pool of its own: what it hands out of its blocks"
        } else {
            "have pools of their own: what they hand out of their blocks"
        };
        lines.push(format!("{} {have} is not known", g.own_pools.join(", ")));
    }
    let p = &g.pinned;
    if p.peak_bytes.0 > 0 {
        let registered = if p.registered_peak_bytes.0 > 0 {
            format!(" ({} of it registered at most)", iec(p.registered_peak_bytes.0))
        } else {
            String::new()
        };
        lines.push(format!("pinned host memory: peak {}{registered}, live at the end {}", iec(p.peak_bytes.0), iec(p.live_bytes.0)));
    }
    lines
}

/// `imported on device 0, counted by its owners alone: external 2 (1 open at the end, peak 16.0 MiB)`
fn imported(d: &GpuDevice) -> String {
    let of = d.imports.iter().map(|(class, i)| {
        let size = if i.peak_bytes.0 > 0 { format!("peak {}", iec(i.peak_bytes.0)) } else { "of unknown size".into() };
        format!("{class} {} ({} open at the end, {size})", count(i.opened), count(i.live))
    });
    format!("imported on device {}, counted by its owners alone: {}", name_of_index(d), of.collect::<Vec<_>>().join(", "))
}

/// `18.1–24.8`: where nine of ten lie.
fn most(x: &GpuTransfer) -> String {
    x.p5_gb_per_s.zip(x.p95_gb_per_s).map_or("–".into(), |(low, high)| format!("{}–{}", rate(Some(low)), rate(Some(high))))
}

fn rate(r: Option<f64>) -> String {
    r.map_or("–".into(), |r| if r < 9.995 { format!("{r:.2}") } else { format!("{r:.1}") })
}

fn transfers(page: &mut Page, g: &Gpu) {
    if g.transfers.is_empty() {
        return;
    }
    let mut t = Table::new();
    t.row(["transfers", "device", "count", "total", "device time", "GB/s", "median", "p5–p95", "best", "of the link"]);
    for x in &g.transfers {
        t.row([
            format!("{} {}", x.direction, x.memory),
            x.device.map_or("–".into(), |d| d.to_string()),
            count(x.count),
            iec(x.bytes.0),
            x.device_s.map_or("not known".into(), seconds),
            rate(x.gb_per_s),
            rate(x.p50_gb_per_s),
            most(x),
            rate(x.max_gb_per_s),
            x.link_share.map_or("–".into(), |s| percent(s, 1.0)),
        ]);
    }
    page.block("", t.lines());
    for a in g.advice.iter().take(ADVICE_SHOWN) {
        let gain = a.gain_s.map_or(String::new(), |s| format!(": up to {} less", seconds(s)));
        page.block("", [format!("advice: {}{gain} ({})", a.what, a.evidence)]);
    }
}

fn streams(page: &mut Page, g: &Gpu) {
    let shown: Vec<_> = g.streams.iter().filter(|s| s.copies | s.kernels | s.graph_launches > 0).take(STREAMS_SHOWN).collect();
    if shown.is_empty() {
        return;
    }
    let mut t = Table::new();
    t.row(["streams", "device", "busy", "of its life", "copies", "kernels", "graphs", "with another", "host waited"]);
    for s in shown {
        let more = at_least(s.unseen_kernels > 0);
        t.row([
            format!("{} {}", s.id, s.kind),
            s.device.map_or("–".into(), |d| d.to_string()),
            s.busy_s.map_or("not known".into(), |b| format!("{more}{}{}", seconds(b), give_or_take(s.sampled_stderr_s))),
            s.utilization.map_or("–".into(), |u| more.clone() + &percent(u, 1.0)),
            count(s.copies),
            count(s.kernels),
            count(s.graph_launches),
            s.overlap_s.map_or("–".into(), seconds),
            seconds(s.wait_s),
        ]);
    }
    let mut lines = t.lines();
    let rest = g.streams_total.saturating_sub(STREAMS_SHOWN as u64);
    if rest > 0 {
        lines.push(format!("and {} more (all in --json)", count(rest)));
    }
    if let (Some(most @ 2..), Some(together)) = (g.concurrent_streams, g.concurrent_s) {
        lines.push(format!("at most {most} streams busy at once; two or more for {}", seconds(together)));
    }
    page.block("", lines);
}

/// A device's share of a phase: `62 %`, `≥ 62 %` where there was work that nobody saw.
pub fn share(d: &PhaseDevice) -> Option<String> {
    d.utilization.map(|u| at_least(d.at_least) + &percent(u, 1.0))
}

fn at_least(is_more: bool) -> String {
    if is_more { "≥ ".into() } else { String::new() }
}

/// ` ± 3 ms`, where it is worth a word.
fn give_or_take(error: Option<f64>) -> String {
    error.filter(|e| *e >= 0.5e-6).map(|e| format!(" ± {}", seconds(e))).unwrap_or_default()
}

/// The phases with the most work on devices.
fn phases(page: &mut Page, run: &Run) {
    let busy = |p: &Phase| all_phases::busiest(p).map_or(0.0, |d| d.busy_s);
    let mut all: Vec<&Phase> = run.phases.iter().filter(|p| !is_of_process(p) && busy(p) > 0.0).collect();
    all.sort_by(|a, b| busy(b).total_cmp(&busy(a)));
    let rest = all.len().saturating_sub(PHASES_SHOWN);
    all.truncate(PHASES_SHOWN);
    all.sort_by(|a, b| a.begin_s.total_cmp(&b.begin_s));
    if all.is_empty() {
        return;
    }
    let mut t = Table::new();
    let copies = all.iter().any(|p| p.h2d_gb_per_s.or(p.d2h_gb_per_s).is_some());
    let title = ["in phases", "device", "busy", "of its time", "copies", "other work", "both at once", "host waited"];
    t.row(title.into_iter().chain(["H2D GB/s", "D2H GB/s"].into_iter().filter(|_| copies)));
    let rows = all_phases::names::rows(&all);
    for (row, name) in rows.iter().zip(all_phases::names::shown(&rows, PHASE_WIDTH)) {
        let Some(g) = &row.phase.gpu else { continue };
        for (i, d) in g.devices.iter().filter(|d| d.busy_s > 0.0).enumerate() {
            let first = |text: String| if i == 0 { text } else { String::new() };
            let rates = [row.phase.h2d_gb_per_s, row.phase.d2h_gb_per_s].map(|r| first(rate(r)));
            let cells = [
                first(name.clone()),
                d.index.map_or("?".into(), |i| i.to_string()),
                at_least(d.at_least) + &seconds(d.busy_s) + &give_or_take(d.stderr_s),
                share(d).unwrap_or("–".into()),
                seconds(d.copy_s),
                seconds(d.compute_s),
                seconds(d.overlap_s),
                first(seconds(g.host_wait_s)),
            ];
            t.row(cells.into_iter().chain(rates.into_iter().filter(|_| copies)));
        }
    }
    let mut lines = t.lines();
    if rest > 0 {
        lines.push(format!("and {} more (all in --json)", count(rest as u64)));
    }
    page.block("", lines);
}

fn kernels(page: &mut Page, g: &Gpu) {
    let Some(k) = &g.kernels else { return };
    let mut lines = Vec::new();
    if let Some(c) = g.cupti.as_ref().filter(|c| c.untold_kernels > 0) {
        let (n, busy) = (count(c.untold_kernels), seconds(c.sampled_busy_s) + &give_or_take(Some(c.sampled_stderr_s)));
        let unseen = match c.unseen_kernels {
            0 => String::new(),
            n => format!("; {} of them nobody saw: their time is not known", count(n)),
        };
        lines.push(format!(
            "not by CUPTI: {n} kernels, from before it was there or lost; by looking streams were busy {busy} with such{unseen}"
        ));
    }
    for d in &g.devices {
        let Some(w) = d.work else { continue };
        let told = g.cupti.as_ref().map_or(0.0, |c| c.told_s);
        lines.push(format!(
            "device {}: busy {} of {} ({}): kernels {}, copies {}, both at once {}",
            name_of_index(d),
            seconds(w.busy_s),
            seconds(told),
            percent(w.utilization, 1.0),
            seconds(w.kernel_s),
            seconds(w.copy_s),
            seconds(w.overlap_s)
        ));
    }
    let mut t = Table::new();
    t.row(["kernels", "count", "device time", "of all", "mean", "longest"]);
    for x in k.by_name.iter().take(KERNELS_SHOWN) {
        t.row([cut(&x.name), count(x.count), seconds(x.device_s), percent(x.share, 1.0), seconds(x.mean_s), seconds(x.max_s)]);
    }
    if !k.by_name.is_empty() {
        lines.extend(t.lines());
    }
    let rest = k.names.saturating_sub(KERNELS_SHOWN as u64);
    if rest > 0 {
        lines.push(format!("and {} more of {} kernels in {} (in --json)", count(rest), count(k.count), seconds(k.device_s)));
    }
    page.block("", lines);
}

/// A long name's start.
fn cut(name: &str) -> String {
    match name.char_indices().nth(NAME_SHOWN) {
        Some((at, _)) => format!("{}…", &name[..at]),
        None => name.to_owned(),
    }
}

fn graphs(page: &mut Page, g: &Gpu) {
    let t = &g.graphs_total;
    if t.count == 0 {
        return;
    }
    let reuse = t.reuse_rate.map(|r| format!(", {} of them without building anything", percent(r, 1.0))).unwrap_or_default();
    let copied: Vec<String> = t.bytes.iter().flatten().map(|(way, b)| format!("{way} {}", iec(b.0))).collect();
    let line = format!(
        "graphs: {} captured, {} instantiated, {} updated, {} launches{reuse}",
        count(t.captures),
        count(t.instantiations),
        count(t.updates),
        count(t.launches)
    );
    page.block("", [line]);
    if t.bytes.is_none() {
        page.block("", ["what graphs copied is not known: nodes of theirs that copy were changed, or are conditional".to_owned()]);
    } else if !copied.is_empty() {
        page.block("", [format!("graphs copied {}", copied.join(", "))]);
    }
}

fn trouble(page: &mut Page, g: &Gpu) {
    for f in g.failed.iter().take(FAILED_SHOWN) {
        page.block("", [format!("{} failed with code {}: {} times", f.call, f.code, count(f.count))]);
    }
    if g.failed.len() > FAILED_SHOWN {
        page.block("", [format!("and {} more kinds of failure (all in --json)", g.failed.len() - FAILED_SHOWN)]);
    }
    if !matches!(g.timing.as_str(), "events" | "cupti") {
        page.block("", [format!("device times are not known: MEMSHIM_GPU_TIMING={}", g.timing)]);
    }
    if let Some(why) = &g.timing_reason {
        let since = if g.cupti.is_some() { "no longer timed by CUPTI, but by events" } else { "timed by events, not by CUPTI" };
        page.block("", [format!("{since}: {why}")]);
    }
    if let Some(c) = &g.cupti {
        if c.dropped_records > 0 {
            page.warn("lost", format!("CUPTI had no room for {} records of kernels and copies", count(c.dropped_records)));
        }
        if c.torn_buffers > 0 {
            page.warn("lost", format!("{} buffers of records from CUPTI could not be read", count(c.torn_buffers)));
        }
        if c.untimed_records > 0 {
            let n = count(c.untimed_records);
            page.block(
                "",
                [format!("without a time by CUPTI: {n} kernels and copies, not done when it was let go or without memory on the device")],
            );
        }
    }
    if g.untimed > 0 {
        page.block("", [format!("without a device time: {} copies and launches", count(g.untimed))]);
    }
    if g.lost > 0 {
        page.warn("lost", format!("{} GPU calls are not in the trace", count(g.lost)));
    }
    if !g.unknown_calls.is_empty() {
        page.block("", [format!("driver calls that memshim does not know: {}", g.unknown_calls.join(", "))]);
    }
}
