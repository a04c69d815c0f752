//! How much was mapped by the program's own calls, by class.

use super::report::{BrkClass, MapCalls, MapClass, Maps, Region};
use crate::model::image::ImageEnd;
use crate::model::maps::{ClassBytes, Peak};
use crate::model::units::{Bytes, Nanos};

/// See the module.
pub fn maps(image: &ImageEnd) -> Maps {
    let (now, peaks) = (&image.maps.totals, &image.maps.peaks);
    Maps {
        anon: class(now.anon, peaks.anon),
        file: class(now.file, peaks.file),
        shared: class(now.shared, peaks.shared),
        stack: stacks(image, class(now.stack, peaks.stack)),
        brk: BrkClass {
            committed_bytes: Bytes(now.brk.committed),
            peak_bytes: Bytes(peaks.brk.bytes),
            reserved_bytes: Bytes(now.brk.reserved),
            up_bytes: Bytes(now.brk_up),
            down_bytes: Bytes(now.brk_down),
            net_bytes: now.brk_up as i64 - now.brk_down as i64,
        },
        peak_bytes: Bytes(peaks.total.bytes),
        peak_at_s: (peaks.total.bytes > 0).then(|| Nanos(peaks.total.t).seconds_since(Nanos(image.header.mono_ns))),
        inherited_bytes: if image.header.inherited.is_some() { image.maps.inherited.map(Bytes) } else { Some(Bytes(0)) },
        given_back_bytes: Bytes(now.given_back),
        calls: image
            .maps
            .calls
            .iter()
            .map(|c| MapCalls { len: c.len, kind: c.kind.name().into(), maps: c.maps, unmaps: c.unmaps, prot_none: c.prot_none })
            .collect(),
        regions: image
            .maps
            .regions
            .iter()
            .map(|r| Region {
                addr: r.addr,
                len: r.len,
                anon_bytes: r.anon_bytes.clone(),
                peak_bytes: r.peak_bytes,
                end_bytes: r.end_bytes,
                cut: r.cut,
            })
            .collect(),
    }
}

/// Threads' stacks and the first thread's, which the kernel tells.
fn stacks(image: &ImageEnd, threads: MapClass) -> MapClass {
    let now = image.seen.rss_last.map_or(Bytes(0), |r| Bytes(r.stk));
    MapClass { committed_bytes: threads.committed_bytes + now, peak_bytes: threads.peak_bytes + image.seen.main_stack, ..threads }
}

fn class(now: ClassBytes, peak: Peak) -> MapClass {
    MapClass { committed_bytes: Bytes(now.committed), peak_bytes: Bytes(peak.bytes), reserved_bytes: Bytes(now.reserved) }
}
