//! What CUPTI told: kernels by name, how busy each device was, nodes of graphs.

use crate::analyze::report::{GpuBusy, GpuCupti, GpuKernel, GpuKernels, GpuNode, KERNELS_SHOWN, NODES_SHOWN};
use crate::model::gpu::{GpuEnd, graphs, streams};
use crate::model::units::Nanos;
use crate::symbols::demangled;
use memshim_format::gpu::{direction, work};

/// From where and for how long it told. `None`: never.
pub fn cupti(g: &GpuEnd, start: Nanos) -> Option<GpuCupti> {
    let w = &g.work;
    let (from, _) = w.spans.first()?;
    let looked_at = || g.streams.all.iter().filter(|s| s.looks > 0);
    Some(GpuCupti {
        version: w.version,
        library: g.cupti.clone(),
        from_s: Nanos(*from).seconds_since(start),
        told_s: w.told_ns() as f64 / 1e9,
        records: w.records,
        unknown_records: w.strange,
        dropped_records: w.dropped,
        untimed_records: w.untimed,
        torn_buffers: w.torn,
        untold_kernels: g.streams.all.iter().fold(0, |sum: u64, s| sum.saturating_add(s.kernels.saturating_sub(s.told_launches))),
        unseen_kernels: g.streams.all.iter().fold(0, |sum: u64, s| sum.saturating_add(s.unseen_kernels())),
        sampled_busy_s: looked_at().map(|s| s.sampled_busy_ns as f64 / 1e9).sum(),
        sampled_stderr_s: looked_at().map(streams::Stream::variance).sum::<f64>().sqrt() / 1e9,
    })
}

fn name_of(g: &GpuEnd, number: u64) -> String {
    g.kernels.get(&number).map_or_else(|| "(other kernels)".into(), |name| demangled(name))
}

/// Kernels by name, those with the most time first.
pub fn kernels(g: &GpuEnd) -> Option<GpuKernels> {
    let w = &g.work;
    if w.spans.is_empty() {
        return None;
    }
    let (count, ns) = w.kernels.values().fold((0u64, 0u64), |(n, ns), k| (n + k.count, ns.saturating_add(k.ns)));
    let mut all: Vec<_> = w.kernels.iter().collect();
    all.sort_by_key(|(number, k)| (std::cmp::Reverse(k.ns), **number));
    let by_name = all.into_iter().take(KERNELS_SHOWN).map(|(number, k)| GpuKernel {
        name: name_of(g, *number),
        count: k.count,
        in_graphs: k.in_graphs,
        device_s: k.ns as f64 / 1e9,
        mean_s: k.ns as f64 / 1e9 / k.count as f64,
        min_s: k.least as f64 / 1e9,
        max_s: k.most as f64 / 1e9,
        share: if ns > 0 { k.ns as f64 / ns as f64 } else { 0.0 },
    });
    Some(GpuKernels { count, device_s: ns as f64 / 1e9, names: w.kernels.len() as u64, by_name: by_name.collect() })
}

/// How busy a device was while it told.
pub fn busy(g: &GpuEnd, device: u64) -> Option<GpuBusy> {
    let d = g.work.devices.get(&(device as u8))?;
    let told = g.work.told_ns() as f64;
    Some(GpuBusy {
        busy_s: d.busy_ns as f64 / 1e9,
        kernel_s: d.kernel_ns as f64 / 1e9,
        copy_s: d.copy_ns as f64 / 1e9,
        overlap_s: d.both_ns as f64 / 1e9,
        utilization: if told > 0.0 { (d.busy_ns as f64 / told).min(1.0) } else { 0.0 },
    })
}

/// A graph's nodes, those with the most time first.
pub fn nodes(g: &GpuEnd, graph: &graphs::Graph) -> Vec<GpuNode> {
    let mut all: Vec<_> = graph.nodes.iter().collect();
    all.sort_by_key(|(id, n)| (std::cmp::Reverse(n.ns), **id));
    let listed = all.into_iter().take(NODES_SHOWN).map(|(id, n)| {
        let way = direction::NAMES.get((n.what >> work::DIRECTION & 15) as usize).copied().unwrap_or("?");
        let (kind, name) = match n.what & 3 {
            work::KERNEL => ("kernel", name_of(g, n.what_of)),
            work::COPY => ("copy", way.to_owned()),
            _ => ("memset", "memset".to_owned()),
        };
        GpuNode { id: *id, kind: kind.into(), name, count: n.runs, device_s: n.ns as f64 / 1e9 }
    });
    listed.collect()
}
