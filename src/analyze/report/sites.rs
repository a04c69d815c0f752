//! Call sites: who allocated.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::model::units::Bytes;

/// Sites listed in a run at most: those with most live at the peak, leaked, temporary and in total.
pub const SITES_SHOWN: usize = 1000;

/// A frame of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Frame {
    /// `null`: no symbol is known for its address.
    pub function: Option<String>,
    pub file: Option<String>,
    pub line: Option<u32>,
    /// Path of the program or library; of Python frames `null`.
    pub module: Option<String>,
    pub python: bool,
    /// The compiler put it into the frame that follows in the list.
    pub inlined: bool,
    /// Address in the module, where there is no function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addr: Option<u64>,
}

/// One call site: all allocations of one kind with one stack.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Site {
    /// Innermost first: the first is who called the allocating function. Empty: no stack was recorded.
    pub frames: Vec<Frame>,
    /// Index in `frames` of the innermost one that is the program's own, not of an interpreter or a runtime library.
    pub owner: Option<usize>,
    /// What is allocated: `heap`; `python`, Python's own blocks; of maps `anon`, `file`, `shared`, `stack`, whose figures are committed bytes, at
    /// the peak of the maps; `gpu`, memory of a device, at that device's peak; `pinned`, page-locked memory of the host.
    pub kind: &'static str,
    /// Of `gpu`: its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<u8>,
    /// Who allocated, where threads are told apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    /// What such memory is called: `pymalloc arena`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<&'static str>,
    /// Live when the heap was at its peak; `null` where another instant was asked for.
    pub live_at_peak_bytes: Option<Bytes>,
    pub live_at_peak_allocs: Option<u64>,
    /// Live at the instant of `--at`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_at_bytes: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_at_allocs: Option<u64>,
    /// Most that the site itself held, whenever that was.
    pub peak_bytes: Bytes,
    /// Its own peak is at most this much higher: several places in the code are this one line.
    pub peak_bound_bytes: Bytes,
    /// Standard error of the own peak, where it is estimated from samples; else 0. The largest of many estimates is rather too high than too low.
    pub peak_stderr_bytes: f64,
    pub total_bytes: Bytes,
    pub allocs: u64,
    /// Freed before the same thread allocated anything else, of sampled blocks no more than were freed in all; `null` here and below: it is not told
    /// how long blocks lived, as of maps and of memory of GPUs.
    pub temporary_allocs: Option<u64>,
    /// Standard errors, where the figures are estimated from samples; else 0.
    pub temporary_stderr_allocs: Option<f64>,
    pub leaked_stderr_bytes: f64,
    pub temporary_bytes: Option<Bytes>,
    pub leaked_bytes: Bytes,
    /// `null` of maps, as `live_at_peak_allocs` is: in how many pieces they are mapped is not known.
    pub leaked_allocs: Option<u64>,
    /// Standard error of the live bytes at the peak (or at the instant asked for), where they are estimated from samples; else 0.
    pub stderr_bytes: f64,
    /// Of `total_bytes`.
    pub total_stderr_bytes: f64,
    /// Blocks freed within so many allocations of their thread: 0 (temporary), 15, 255, 4095, later (or by another thread).
    pub lifetimes: Option<[u64; 5]>,
    /// `[size, allocs, frees]` by requested size; of samples, what they stand for.
    pub sizes: Vec<[u64; 3]>,
    /// The stack goes on beyond its outermost frame: deeper than is recorded, or through code without unwind rules.
    pub truncated: bool,
    /// A known leak by `--suppressions`: the pattern.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suppressed: Option<String>,
}

/// How much of what the sites hold can be told.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SiteSums {
    /// What is recorded: `off`, `native`, `python`, `mixed`; empty: the trace knows of no stacks.
    pub recorded: String,
    /// Whose they are: `heap`, `python`, `maps`, `gpu`.
    pub memory: &'static str,
    /// Why there is none of what was asked for, where there is none.
    #[serde(skip)]
    pub absent: String,
    /// Sites in all; `sites` holds the largest.
    pub sites: u64,
    /// Owners in all; `owners` holds the largest.
    pub owners: u64,
    /// Sites of each memory, and how many of them are listed.
    pub by_memory: BTreeMap<&'static str, Listed>,
    /// Live bytes of all sites at the peak (or at the instant asked for).
    pub live_at_peak_bytes: Bytes,
    /// Its standard error where it is estimated: the estimate has a peak of its own, which need not be that of `heap`.
    pub stderr_bytes: f64,
    /// The instant, in words, and in seconds since the run's start.
    pub instant: String,
    pub at_s: f64,
    pub total_bytes: Bytes,
    pub leaked_bytes: Bytes,
    /// Standard errors of these two and of what of them is no known leak, where they are estimated; else 0.
    pub total_stderr_bytes: f64,
    pub leaked_stderr_bytes: f64,
    pub unsuppressed_stderr_bytes: f64,
    /// Total bytes allocated without a stack.
    pub without_stack_bytes: Bytes,
    /// With a stack that goes on beyond its outermost frame.
    pub truncated_bytes: Bytes,
    /// Whose innermost frame has no name: code of stripped libraries.
    pub unresolved_bytes: Bytes,
    /// Of which no frame that could be their owner has a name: without a stack, or from such code alone.
    pub without_owner_bytes: Bytes,
    /// Leaked bytes that `--suppressions` knows.
    pub suppressed_bytes: Bytes,
    /// Why names are missing, by file.
    pub problems: Vec<super::Missing>,
}

/// How many sites there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Listed {
    pub sites: u64,
    pub listed: u64,
}

/// Call sites seen one way (`--by`); of `site` the rows are `sites`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct View {
    /// `peak`, `leaked`, `temporary` or `total`.
    pub measure: &'static str,
    /// Of the amounts below: `bytes`, or `allocations`.
    pub unit: &'static str,
    /// Of all sites; `null`, and there are no rows: it is not known.
    pub total: Option<u64>,
    /// Its standard error where it is estimated from samples; else 0.
    pub stderr: f64,
    /// Rows asked for.
    pub top: usize,
    pub rows: Vec<ViewRow>,
    pub rows_total: u64,
    #[serde(serialize_with = "in_preorder")]
    pub tree: Vec<TreeNode>,
}

/// A tree as a list: calls before what they lead to, which is one deeper. Nested as deep as stacks are, few readers of JSON would take it.
fn in_preorder<S: Serializer>(nodes: &[TreeNode], to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Row<'a> {
        depth: usize,
        /// `null`: several small ones together.
        frame: Option<&'a Frame>,
        inclusive: u64,
        exclusive: u64,
        stderr: f64,
    }
    fn add<'a>(nodes: &'a [TreeNode], depth: usize, rows: &mut Vec<Row<'a>>) {
        for n in nodes {
            rows.push(Row { depth, frame: n.frame.as_ref(), inclusive: n.inclusive, exclusive: n.exclusive, stderr: n.stderr });
            add(&n.calls, depth + 1, rows);
        }
    }
    let mut rows = Vec::new();
    add(nodes, 0, &mut rows);
    to.collect_seq(rows)
}

/// A function, a line or a module.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ViewRow {
    /// What is common to the row's frames.
    pub frame: Frame,
    /// Allocated by itself: it is the innermost.
    pub exclusive: u64,
    /// By itself or by what it calls.
    pub inclusive: u64,
    pub allocs: u64,
    pub inclusive_allocs: u64,
    /// Standard error of `inclusive`, where it is estimated from samples; else 0.
    pub stderr: f64,
    /// Of a thread: most that it allocated more than it freed, whenever that was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_bytes: Option<Bytes>,
}

/// A frame of the tree of calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TreeNode {
    /// `None`: several small ones together.
    pub frame: Option<Frame>,
    pub inclusive: u64,
    pub exclusive: u64,
    /// Standard error of `inclusive`, where it is estimated from samples; else 0.
    pub stderr: f64,
    pub calls: Vec<TreeNode>,
}

/// All call sites whose innermost frame of the program's own is this one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Owner {
    pub frame: Frame,
    /// Live at the heap's peak (or at the instant asked for).
    pub live_at_peak_bytes: Bytes,
    pub stderr_bytes: f64,
    pub total_bytes: Bytes,
    pub allocs: u64,
    /// `null`: the trace does not tell how long its blocks lived.
    pub temporary_allocs: Option<u64>,
    /// Known leaks are not in it.
    pub leaked_bytes: Bytes,
    /// Standard errors, where the figures are estimated from samples; else 0.
    pub leaked_stderr_bytes: f64,
    pub total_stderr_bytes: f64,
    /// What it called in the largest of its sites, the interpreter's own frames apart.
    pub through: Option<Frame>,
}

/// Owners listed at most.
pub const OWNERS_SHOWN: usize = 100;
