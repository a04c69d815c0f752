//! The header line: what process this is and how it is recorded.

use super::stacks;
use super::{STAGE, cstr, stage};
use crate::config::{CONFIG, FULL, tells_ages};
use crate::init::Inherited;
use crate::sink::{self, SINK};
use crate::{proc, real, sys};
use memshim_format::record::{FNS, PYTHON_FNS};

/// The most by which usable size exceeds requested size in glibc, for blocks below `big`: a chunk is a multiple of 16 bytes with 8 for
/// its head, and a rest of 16 that is too small for a chunk of its own stays with the block. From the size on that malloc maps singly
/// (128 KiB, unless the program sets it otherwise) the rest of the page comes on top. Aligned allocations: see `slack_aligned`.
fn glibc_slack() -> u64 {
    // SAFETY: settings are read-only.
    if unsafe { CONFIG.big } < (128 << 10) - 64 { 31 } else { 4096 + 31 }
}

/// Writes the header line. One thread.
pub fn header_now() {
    let mut t = stage();
    let mut name = [0u8; 4096];
    // SAFETY: one thread; settings are read-only.
    unsafe {
        let (parent, _) = proc::parent_and_start();
        t.str("{\"type\":\"header\",\"v\":1,\"run\":\"").hex64(SINK.run).str("\"");
        t.field("pid", SINK.me.0 as u64).field("ppid", parent as u64).field("start_ticks", SINK.me.1);
        t.field("pid_ns", proc::pid_namespace()).field("exec", SINK.exec as u64);
        t.field("mono_ns", sys::now()).field("wall_ns", sys::wall());
        t.str(",\"mode\":\"").str(if CONFIG.mode == FULL { "full" } else { "fast" }).str("\",\"cols\":\"v93\",\"tick_ns\":100");
        let n = proc::host(name.as_mut_ptr(), name.len());
        t.str(",\"host\":").quoted(name.get(..n).unwrap_or(b""));
        let n = proc::exe(name.as_mut_ptr(), name.len());
        t.str(",\"exe\":").quoted(name.get(..n).unwrap_or(b"")).str(",\"argv\":[");
        for i in 0..CONFIG.argc {
            let arg = cstr(*CONFIG.argv.add(i));
            if t.room() < STAGE / 2 || arg.len() > STAGE / 16 {
                t.str(if i > 0 { ",\"…\"" } else { "\"…\"" });
                break;
            }
            if i > 0 {
                t.str(",");
            }
            t.quoted(arg);
        }
        let n = proc::cwd(name.as_mut_ptr(), name.len());
        t.str("],\"cwd\":").quoted(name.get(..n).unwrap_or(b""));
        if CONFIG.rank >= 0 {
            t.field("rank", CONFIG.rank as u64);
        } else {
            t.str(",\"rank\":null");
        }
        t.str(",\"job\":");
        if CONFIG.job.is_null() {
            t.str("null");
        } else {
            t.quoted(cstr(CONFIG.job));
        }
        if tells_ages() {
            t.str(",\"ages\":true");
        }
        if !CONFIG.follow {
            t.str(",\"children\":\"skip\"");
        }
        t.field("interval_ns", CONFIG.interval_ns)
            .field("big", CONFIG.big as u64)
            .field("sample", CONFIG.sample as u64)
            .field("page", 4096);
        t.str(",\"allocator\":");
        match real::ALLOCATOR {
            real::Allocator::Glibc => t.str("\"glibc\"").field("slack", glibc_slack()),
            real::Allocator::Program => t.str("\"the program's own, not seen\",\"slack\":null,\"heap_seen\":false"),
            real::Allocator::Valgrind => t.str("\"valgrind's, not seen\",\"slack\":null,\"heap_seen\":false"),
            real::Allocator::Other => t.quoted(cstr(real::ALLOCATOR_FILE)).str(",\"slack\":null"),
        };
        stacks::settings(&mut t);
        t.str(",\"fns\":[");
        for (i, f) in FNS.iter().enumerate() {
            t.str(if i > 0 { ",\"" } else { "\"" }).str(f).str("\"");
        }
        t.str("]");
        if CONFIG.python_alloc {
            t.str(",\"python_fns\":[");
            for (i, f) in PYTHON_FNS.iter().enumerate() {
                t.str(if i > 0 { ",\"" } else { "\"" }).str(f).str("\"");
            }
            t.str("]");
        }
        if let Some(Inherited { from, held: [(live, blocks), python], map_ticket }) = crate::init::inherited() {
            t.str(",\"inherited\":{\"from\":")
                .num(from as u64)
                .signed("live", live)
                .signed("blocks", blocks)
                .field("map_ticket", map_ticket);
            if CONFIG.python_alloc {
                t.signed("python_live", python.0).signed("python_blocks", python.1);
            }
            t.str("}");
        }
        t.str("}\n");
    }
    sink::write(t.as_bytes());
    sink::header_written();
}
