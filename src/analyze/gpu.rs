//! What a run did with GPUs: memory by device, transfers and their rates, streams, graphs, kernels.

mod advice;
mod kernels;
pub mod phases;

use std::collections::BTreeMap;

use self::phases::is_by_device;
use super::report::{
    FailedCall, Gpu, GpuClass, GpuDevice, GpuFramework, GpuGraph, GpuGraphs, GpuImports, GpuLookups, GpuPool, GpuStream, GpuTransfer,
    GpuWaits, Pinned, STREAMS_SHOWN,
};
use crate::model::gpu::intervals::length;
use crate::model::gpu::memory::{Device, Imports, Level};
use crate::model::gpu::transfers::Group;
use crate::model::gpu::{GpuEnd, graphs, streams};
use crate::model::image::ImageEnd;
use crate::model::units::{Bytes, Nanos};
use memshim_format::gpu::{NO_DEVICE, class, direction, memory};

/// See the module. `None` where no driver was called.
pub fn gpu(image: &ImageEnd) -> Option<Gpu> {
    let g = image.gpu.as_ref()?;
    let start = Nanos(image.header.mono_ns);
    let m = &g.memory;
    let known = |d: u64| m.devices.contains_key(&(d as u8)) || g.devices.contains_key(&d) || g.work.devices.contains_key(&(d as u8));
    Some(Gpu {
        timing: g.timing.clone(),
        timing_reason: Some(g.reason.clone()).filter(|why| !why.is_empty()),
        cupti: kernels::cupti(g, start),
        kernels: kernels::kernels(g),
        devices: (0..=NO_DEVICE).filter(|d| known(*d)).map(|d| device(g, d, start)).collect(),
        pinned_peak_bytes: Bytes::of_balance(m.pinned.peak),
        pinned: Pinned {
            live_bytes: Bytes::of_balance(m.pinned.live),
            peak_bytes: Bytes::of_balance(m.pinned.peak),
            peak_at_s: at(&m.pinned, start),
            allocated_peak_bytes: Bytes::of_balance(m.pinned_allocated.peak),
            registered_peak_bytes: Bytes::of_balance(m.registered.peak),
        },
        transfers: g.transfers.groups.iter().map(|(key, group)| transfer(g, *key, group)).collect(),
        streams: listed_streams(g, start),
        streams_total: g.streams.all.len() as u64,
        concurrent_streams: is_by_device(g).then(|| g.streams.devices.values().map(|d| d.most as u64).max().unwrap_or(0)),
        concurrent_s: is_by_device(g).then(|| g.streams.devices.values().map(|d| length(&d.together) as f64).sum::<f64>() / 1e9),
        host_waits: GpuWaits {
            count: g.streams.all.iter().fold(g.streams.other_waits, |sum, s| sum.saturating_add(s.waits)),
            wall_s: g.streams.all.iter().fold(g.streams.other_wait_ns, |sum, s| sum.saturating_add(s.wait_ns)) as f64 / 1e9,
        },
        graphs: g.graphs.all.iter().enumerate().take(STREAMS_SHOWN).map(|(i, graph)| listed_graph(g, i, graph)).collect(),
        graphs_total: all_graphs(&g.graphs),
        advice: advice::advice(g),
        failed: g.failed.iter().map(|((call, code), count)| FailedCall { call: call.clone(), code: *code, count: *count }).collect(),
        own_pools: g.pools.iter().filter(|name| !(*name == "CuPy" && m.devices.values().any(|d| d.cupy.is_some()))).cloned().collect(),
        unknown_frees: m.unknown_frees,
        lookups: g.lookups.map(|[dlsym, proc, hooked]| GpuLookups { dlsym, proc, hooked }),
        unknown_calls: g.unknown_calls.clone(),
        untimed: g.untimed.saturating_add(g.transfers.without_time),
        calls: g.rows,
        lost: g.lost,
    })
}

fn at(level: &Level, start: Nanos) -> Option<f64> {
    (level.peak > 0).then(|| Nanos(level.peak_at).seconds_since(start))
}

fn device(g: &GpuEnd, index: u64, start: Nanos) -> GpuDevice {
    let none = Device::default();
    let d = g.memory.devices.get(&(index as u8)).unwrap_or(&none);
    let used = |level: &Level| level.peak > 0;
    GpuDevice {
        index: (index != NO_DEVICE).then_some(index),
        name: g.devices.get(&index).cloned(),
        uuid: g.uuids.get(&index).cloned(),
        pci_bus_id: g.buses.get(&index).cloned(),
        link_gb_per_s: link(g, index as u8),
        total_bytes: (d.total > 0).then_some(Bytes(d.total)),
        free_bytes: d.free.map(Bytes),
        used_peak_bytes: (d.total > 0).then_some(Bytes(d.used_peak)),
        live_bytes: Bytes::of_balance(d.live.live),
        live_allocs: g.memory.live_blocks(index as u8),
        peak_bytes: Bytes::of_balance(d.live.peak),
        peak_at_s: at(&d.live, start),
        reserved_bytes: Bytes::of_balance(d.reserved.live),
        reserved_peak_bytes: Bytes::of_balance(d.reserved.peak),
        unattributed_bytes: d.unattributed,
        allocs: d.allocs,
        frees: d.frees,
        classes: d
            .classes
            .iter()
            .zip(class::NAMES)
            .filter(|(level, _)| used(level))
            .map(|(level, name)| {
                let class = GpuClass { live_bytes: Bytes::of_balance(level.live), peak_bytes: Bytes::of_balance(level.peak) };
                (name.to_owned(), class)
            })
            .collect(),
        pools: d
            .pools
            .values()
            .map(|p| GpuPool {
                reserved_bytes: Bytes(p.reserved),
                used_peak_bytes: Bytes(p.used_high),
                reserved_peak_bytes: Bytes(p.reserved_high),
            })
            .collect(),
        imports: imports(d),
        framework: frameworks(d),
        work: kernels::busy(g, index),
    }
}

fn imports(d: &Device) -> BTreeMap<String, GpuImports> {
    let of = |(class, i): (&u64, &Imports)| {
        let name = class::NAMES.get(*class as usize).copied().unwrap_or("?");
        let (live_bytes, peak_bytes) = (Bytes::of_balance(i.bytes.live), Bytes::of_balance(i.bytes.peak));
        (name.to_owned(), GpuImports { opened: i.opened, live: i.opened.saturating_sub(i.closed), live_bytes, peak_bytes })
    };
    d.imports.iter().map(of).collect()
}

fn frameworks(d: &Device) -> BTreeMap<String, GpuFramework> {
    let of = |name: &str, allocated, reserved, looks| {
        let f = GpuFramework { allocated_peak_bytes: Bytes(allocated), reserved_peak_bytes: Bytes(reserved), looks };
        (name.to_owned(), f)
    };
    let torch = d.torch.map(|(allocated, reserved)| of("torch", allocated, reserved, None));
    let cupy = d.cupy.map(|(allocated, reserved, looks)| of("cupy", allocated, reserved, Some(looks)));
    torch.into_iter().chain(cupy).collect()
}

/// What the link of a device can carry, in GB/s, where the kernel shows that.
fn link(g: &GpuEnd, device: u8) -> Option<f64> {
    g.links.get(&(device as u64)).and_then(|text| link_rate(text))
}

/// `32.0 GT/s PCIe x16`: transfers a second on each lane, less the code of the generation (8 of 10 bits up to 5 GT/s, 128 of 130 from there).
fn link_rate(text: &str) -> Option<f64> {
    let (speed, width) = text.rsplit_once(" x")?;
    let speed: f64 = speed.split(' ').next()?.parse().ok()?;
    let width: f64 = width.parse().ok()?;
    let code = if speed > 5.0 { 128.0 / 130.0 } else { 0.8 };
    (speed > 0.0 && width > 0.0).then_some(speed * width * code / 8.0)
}

/// Bytes of a kind whose time is known, and that time: on the device; else of the calls, which says something only where all waited.
fn measured(t: &Group) -> Option<(u64, u64)> {
    let known = if t.timed > 0 { (t.timed_bytes, t.device_ns) } else { (t.bytes, t.wall_ns) };
    (known.1 > 0 && (t.timed > 0 || t.synchronous == t.count)).then_some(known)
}

fn transfer(g: &GpuEnd, (direction, memory, device): (u8, u8, u8), t: &Group) -> GpuTransfer {
    let (timed, known) = (t.timed > 0, measured(t));
    let rate = known.map(|(bytes, ns)| bytes as f64 / ns as f64);
    let of = |q: f64| t.rate(q).map(|r| r / 1e9);
    let over_link = matches!(direction as u64, direction::H2D | direction::D2H);
    GpuTransfer {
        direction: direction::NAMES.get(direction as usize).copied().unwrap_or("?").into(),
        memory: memory::NAMES.get(memory as usize).copied().unwrap_or("?").into(),
        device: (device as u64 != NO_DEVICE).then_some(device as u64),
        count: t.count,
        bytes: Bytes(t.bytes),
        timed_count: t.timed,
        timed_bytes: Bytes(t.timed_bytes),
        device_s: timed.then_some(t.device_ns as f64 / 1e9),
        wall_s: (g.timing != "off").then_some(t.wall_ns as f64 / 1e9),
        gb_per_s: rate,
        p5_gb_per_s: of(0.05),
        p50_gb_per_s: of(0.5),
        p95_gb_per_s: of(0.95),
        max_gb_per_s: of(1.0),
        link_share: rate.zip(link(g, device).filter(|_| over_link)).map(|(rate, link)| rate / link),
        small_count: t.small,
        prefetch_count: t.prefetches,
        timing: if timed && t.by_cupti * 2 >= t.timed {
            "cupti"
        } else if timed {
            "events"
        } else if known.is_some() {
            "wall"
        } else {
            "off"
        }
        .into(),
    }
}

/// Those with the most work first.
fn listed_streams(g: &GpuEnd, start: Nanos) -> Vec<GpuStream> {
    let mut order: Vec<usize> = (0..g.streams.all.len()).collect();
    let work = |i: &usize| {
        let s = &g.streams.all[*i];
        (s.timed_ns.max(s.sampled_busy_ns), s.kernels.saturating_add(s.copies).saturating_add(s.launches))
    };
    order.sort_by_key(|i| (std::cmp::Reverse(work(i)), *i));
    order.into_iter().take(STREAMS_SHOWN).map(|i| stream(g, i, start)).collect()
}

fn stream(g: &GpuEnd, i: usize, start: Nanos) -> GpuStream {
    let s: &streams::Stream = &g.streams.all[i];
    let life = s.to.saturating_sub(s.from) as f64 / 1e9;
    let (by_device, told) = (is_by_device(g), !g.work.spans.is_empty());
    let sampled = (s.looks > 0).then_some(s.sampled_busy_ns as f64 / 1e9);
    let unseen = s.unseen_kernels();
    let busy_ns = s.busy_ns();
    // Kernels ran that nobody saw: not known, which is not 0; of what is looked at or told of, the least.
    let busy = (by_device && (unseen == 0 || (told || s.looks > 0) && busy_ns > 0)).then_some(busy_ns as f64 / 1e9);
    GpuStream {
        id: i as u64,
        device: (s.device as u64 != NO_DEVICE).then_some(s.device as u64),
        kind: match s.handle {
            1 => "default",
            2 => "per thread",
            _ => "made",
        }
        .into(),
        from_s: Nanos(s.from).seconds_since(start),
        life_s: life,
        busy_s: busy,
        timed_busy_s: by_device.then_some(s.timed_ns as f64 / 1e9),
        sampled_busy_s: sampled,
        sampled_stderr_s: sampled.map(|_| s.variance().sqrt() / 1e9),
        utilization: busy.filter(|_| life > 0.0).map(|b| (b / life).min(1.0)),
        copies: s.copies,
        kernels: s.kernels,
        unseen_kernels: unseen,
        kernel_s: told.then_some(s.kernel_ns as f64 / 1e9),
        copy_s: told.then_some(s.copy_ns as f64 / 1e9),
        graph_launches: s.launches,
        overlap_s: by_device.then_some(s.overlap_ns as f64 / 1e9),
        waits: s.waits,
        wait_s: s.wait_ns as f64 / 1e9,
    }
}

/// The share of launches that needed neither a new instantiation nor an update.
fn reuse(launches: u64, instantiations: u64, updates: u64) -> Option<f64> {
    let built = instantiations.saturating_add(updates).min(launches);
    (launches > 0).then(|| (launches - built) as f64 / launches as f64)
}

fn by_direction(bytes: &graphs::Bytes) -> std::collections::BTreeMap<String, Bytes> {
    bytes.iter().zip(direction::NAMES).filter(|(b, _)| **b > 0).map(|(b, name)| (name.to_owned(), Bytes(*b))).collect()
}

fn listed_graph(end: &GpuEnd, i: usize, g: &graphs::Graph) -> GpuGraph {
    GpuGraph {
        id: i as u64,
        captures: g.captures,
        instantiations: g.instantiations,
        updates: g.updates,
        node_updates: g.node_updates,
        launches: g.launches,
        uploads: g.uploads,
        reuse_rate: reuse(g.launches, g.instantiations, g.updates),
        bytes_per_launch: (!g.is_changed).then(|| by_direction(&g.per_launch)),
        device_s: (g.timed > 0).then_some(g.device_ns as f64 / 1e9),
        timed_launches: g.timed,
        node_s: (g.node_runs > 0).then_some(g.node_ns as f64 / 1e9),
        node_runs: g.node_runs,
        nodes: kernels::nodes(end, g),
        memory_bytes: Bytes(g.memory),
    }
}

fn all_graphs(g: &graphs::Graphs) -> GpuGraphs {
    let sum = |of: fn(&graphs::Graph) -> u64| g.all.iter().map(of).fold(0u64, u64::saturating_add);
    let (instantiations, updates, launches) = (sum(|g| g.instantiations), sum(|g| g.updates), sum(|g| g.launches));
    let mut copied = graphs::Bytes::default();
    for graph in &g.all {
        copied.iter_mut().zip(graph.copied).for_each(|(a, b)| *a = a.saturating_add(b));
    }
    GpuGraphs {
        count: g.all.len() as u64,
        captures: sum(|g| g.captures),
        failed_captures: g.failed_captures,
        instantiations,
        updates,
        launches,
        reuse_rate: reuse(launches, instantiations, updates),
        bytes: g.all.iter().all(|g| !g.is_launched_changed).then(|| by_direction(&copied)),
        device_s: (sum(|g| g.timed) > 0).then(|| sum(|g| g.device_ns) as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_by_generation_and_width() {
        assert!((link_rate("32.0 GT/s PCIe x16").unwrap() - 63.0).abs() < 0.1);
        assert!((link_rate("5.0 GT/s PCIe x8").unwrap() - 4.0).abs() < 1e-9);
        assert_eq!((link_rate("Unknown x16"), link_rate("8.0 GT/s PCIe")), (None, None));
    }

    #[test]
    fn reuse_is_the_share_of_launches_that_needed_nothing_new() {
        assert_eq!((reuse(20, 1, 1), reuse(4, 4, 0), reuse(1, 3, 0), reuse(0, 1, 0)), (Some(0.9), Some(0.0), Some(0.0), None));
    }
}
