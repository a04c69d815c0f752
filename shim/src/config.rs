//! The settings: `MEMSHIM_*` of the initial environment, read from the stack the kernel laid out, so that a program that clears or
//! replaces its environment does not matter and no libc state is touched; then those of the file that `MEMSHIM_CONFIG` names, where the
//! environment has none ([`mod@file`]). Kept in memory for forked children.

mod file;
mod said;

use crate::elf::weak_symbol;
use crate::text::Text;
use core::ffi::{CStr, c_char};
use memshim_format::settings::{FILE, Key, Keys, RUN};
use memshim_format::value::{bytes, glob, globs, interval};
use said::{complain, place, short};
pub use said::{complaints, notes};

/// Recording modes, as stored in a [`crate::lane::Hot`]. 0 is a lane not set up.
pub const FAST: u32 = 1;
/// See [`FAST`].
pub const FULL: u32 = 2;
/// Counting only: the trace cannot be written any more or reached its cap.
pub const COUNT: u32 = 3;

/// How work on a GPU is timed: by event pairs, by the wall time of calls, or not at all.
pub const GPU_EVENTS: u32 = 0;
/// See [`GPU_EVENTS`].
pub const GPU_WALL: u32 = 1;
/// See [`GPU_EVENTS`].
pub const GPU_OFF: u32 = 2;
/// By CUPTI, and by event pairs where that cannot be had.
pub const GPU_CUPTI: u32 = 3;

/// Which stacks events get, by bits.
pub const NATIVE: u32 = 1;
/// See [`NATIVE`].
pub const PYTHON: u32 = 2;

/// Everything a run is told.
pub struct Config {
    pub mode: u32,
    /// What was asked for; `mode` may have been lowered since.
    pub asked: u32,
    pub off: bool,
    /// [`GPU_EVENTS`], [`GPU_WALL`], [`GPU_OFF`] or [`GPU_CUPTI`].
    pub gpu: u32,
    /// `CUDA_HOME`, `CUDA_PATH`, `PYTHONPATH`: where CUPTI may lie. Null where they are not set.
    pub cuda_home: *const c_char,
    pub cuda_path: *const c_char,
    pub python_path: *const c_char,
    /// [`NATIVE`], [`PYTHON`], both or none.
    pub stacks: u32,
    /// Python's own blocks are events, in lanes of their own.
    pub python_alloc: bool,
    /// CuPy is asked what its pool holds.
    pub cupy: bool,
    pub interval_ns: u64,
    pub big: usize,
    pub sample: usize,
    /// It was asked for: samples stay as many as they are.
    pub sample_given: bool,
    pub max: u64,
    pub follow: bool,
    /// Expanded pattern, zero-terminated; empty: the default.
    pub out: [u8; 4096],
    pub rank: i64,
    pub job: *const c_char,
    pub argv: *const *const c_char,
    pub argc: usize,
    /// Lines for stderr and the report about what could not be used.
    pub complaints: [u8; 2048],
    pub complained: usize,
    /// `memshim run` started this, and uses the settings that are its own.
    pub under_run: bool,
    /// Which of these are set, by variables and in the file.
    pub of_run: Keys,
    pub of_run_in_file: Keys,
}

pub static mut CONFIG: Config = Config {
    mode: FAST,
    asked: FAST,
    off: false,
    gpu: GPU_EVENTS,
    cuda_home: core::ptr::null(),
    cuda_path: core::ptr::null(),
    python_path: core::ptr::null(),
    stacks: NATIVE | PYTHON,
    python_alloc: false,
    cupy: false,
    interval_ns: 100_000_000,
    big: 64 << 10,
    sample: 512 << 10,
    sample_given: false,
    max: 2 << 30,
    follow: true,
    out: [0; 4096],
    rank: -1,
    job: core::ptr::null(),
    argv: core::ptr::null(),
    argc: 0,
    complaints: [0; 2048],
    complained: 0,
    under_run: false,
    of_run: Keys::NONE,
    of_run_in_file: Keys::NONE,
};

/// Whether events say how often their thread had allocated: in fast mode, of which they are a sample. In full mode they tell by themselves, and
/// where it was lowered nobody knows of the blocks from before.
#[inline]
pub fn tells_ages() -> bool {
    // SAFETY: read once, before there is a lane.
    unsafe { CONFIG.asked == FAST }
}

/// Where the kernel put argc, argv, envp: glibc's loader keeps it; elsewhere it is found from `environ`, which still points there at the
/// start: before the variables lie a zero, the arguments, and their number. Null: not to be found.
fn initial_stack() -> *const usize {
    let glibc: *const *const usize = weak_symbol!("__libc_stack_end").cast();
    let environ: *const *const usize = weak_symbol!("__environ").cast();
    // SAFETY: the libc's own variables, and the kernel's layout.
    unsafe {
        if !glibc.is_null() {
            return *glibc;
        }
        if environ.is_null() || (*environ).is_null() || *(*environ).sub(1) != 0 {
            return core::ptr::null();
        }
        let mut argc = 0;
        while argc < 1 << 20 {
            let at = (*environ).sub(2 + argc);
            if *at == argc {
                return at;
            }
            argc += 1;
        }
        core::ptr::null()
    }
}

/// Variables that hold a rank, the first that is set counts.
const RANKS: [&[u8]; 6] = [b"SLURM_PROCID", b"PMI_RANK", b"PMIX_RANK", b"OMPI_COMM_WORLD_RANK", b"MV2_COMM_WORLD_RANK", b"MPI_LOCALRANKID"];

/// Texts that are needed while settings are read.
#[derive(Clone, Copy, Default)]
struct Texts<'a> {
    out: &'a [u8],
    /// Globs with commas.
    include: &'a [u8],
    exclude: &'a [u8],
}

/// Who set something, for a line about it.
#[derive(Clone, Copy)]
enum From<'a> {
    Variable,
    /// The file's name, as it is given, and the line in it.
    Line(&'a [u8], u32),
}

/// Reads the environment and the file that it names. One thread, once.
pub fn read() {
    // SAFETY: the kernel's layout: argc, argv…, 0, envp…, 0; the loader keeps the pointer valid. One thread.
    unsafe {
        let base = initial_stack();
        if base.is_null() {
            CONFIG.off = true;
            return;
        }
        CONFIG.argc = *base;
        CONFIG.argv = base.add(1).cast();
        let mut env = base.add(CONFIG.argc + 2).cast::<*const c_char>();
        let mut rank_seen = RANKS.len();
        let (mut texts, mut set, mut path) = (Texts::default(), Keys::default(), &b""[..]);
        while !(*env).is_null() {
            let entry = CStr::from_ptr(*env).to_bytes();
            if let Some(eq) = entry.iter().position(|c| *c == b'=') {
                let (name, value) = entry.split_at(eq);
                let value = value.get(1..).unwrap_or(b"");
                if let Some(i) = RANKS.iter().position(|r| *r == name)
                    && i < rank_seen
                    && let Some(v) = number(value)
                {
                    rank_seen = i;
                    CONFIG.rank = v as i64;
                }
                match name {
                    b"SLURM_JOB_ID" | b"PBS_JOBID" | b"LSB_JOBID" => CONFIG.job = (*env).add(eq + 1),
                    b"CUDA_HOME" => CONFIG.cuda_home = (*env).add(eq + 1),
                    b"CUDA_PATH" => CONFIG.cuda_path = (*env).add(eq + 1),
                    b"PYTHONPATH" => CONFIG.python_path = (*env).add(eq + 1),
                    _ if name == FILE.as_bytes() => path = value,
                    _ if name == RUN.as_bytes() => CONFIG.under_run = !value.is_empty(),
                    // What is set to nothing is not set: job scripts hand variables on that way.
                    _ if value.is_empty() => {}
                    _ => {
                        if let Some(key) = Key::of_variable(name) {
                            set.add(key);
                            setting(key, value, From::Variable, &mut texts);
                        } else {
                            said::no_setting(name);
                        }
                    }
                }
            }
            env = env.add(1);
        }
        let mut memory = file::Memory::default();
        if !path.is_empty() {
            file::read(path, set, &mut memory, &mut texts);
        }
        CONFIG.asked = CONFIG.mode;
        let mut name = [0u8; 16];
        let n = crate::proc::comm(name.as_mut_ptr(), name.len());
        CONFIG.off |= !texts.want(name.get(..n).unwrap_or(b""));
        expand(texts.out);
        memory.give_back();
    }
}

impl Texts<'_> {
    /// Whether a program of this name is to be recorded.
    fn want(&self, name: &[u8]) -> bool {
        let listed = |list| globs(list).any(|g| glob(g, name));
        (self.include.is_empty() || listed(self.include)) && !listed(self.exclude)
    }
}

/// Takes a value that is not empty.
///
/// # Safety
/// One thread.
unsafe fn setting<'a>(key: Key, value: &'a [u8], from: From, texts: &mut Texts<'a>) {
    // SAFETY: the caller's promise.
    let c = unsafe { &mut CONFIG };
    let good = match key {
        Key::Out => set(&mut texts.out, value),
        Key::Include | Key::Exclude if globs(value).next().is_none() => Err("names of programs, such as python*,solver"),
        Key::Include => set(&mut texts.include, value),
        Key::Exclude => set(&mut texts.exclude, value),
        Key::Mode => match value {
            b"fast" => set(&mut c.mode, FAST),
            b"full" => set(&mut c.mode, FULL),
            b"off" => set(&mut c.off, true),
            _ => Err("fast, full or off"),
        },
        Key::GpuTiming => match value {
            b"events" => set(&mut c.gpu, GPU_EVENTS),
            b"wall" => set(&mut c.gpu, GPU_WALL),
            b"off" => set(&mut c.gpu, GPU_OFF),
            b"cupti" => set(&mut c.gpu, GPU_CUPTI),
            _ => Err("events, cupti, wall or off"),
        },
        Key::Stacks => match value {
            b"off" => set(&mut c.stacks, 0),
            b"native" => set(&mut c.stacks, NATIVE),
            b"python" => set(&mut c.stacks, PYTHON),
            b"mixed" => set(&mut c.stacks, NATIVE | PYTHON),
            _ => Err("off, native, python or mixed"),
        },
        Key::PythonAlloc => match value {
            b"1" => set(&mut c.python_alloc, true),
            b"0" => set(&mut c.python_alloc, false),
            _ => Err("1 or 0"),
        },
        Key::Cupy => match value {
            b"1" => set(&mut c.cupy, true),
            b"0" => set(&mut c.cupy, false),
            _ => Err("1 or 0"),
        },
        Key::Children => match value {
            b"follow" => set(&mut c.follow, true),
            b"skip" => set(&mut c.follow, false),
            _ => Err("follow or skip"),
        },
        // SAFETY: the caller's promise.
        Key::PhasePy => unsafe { crate::phases::python::take(value) },
        // SAFETY: the caller's promise.
        Key::PhaseSym => unsafe { crate::phases::symbol::take(value) },
        Key::Interval => interval(value).map_or(Err("a time from 1ms to 1h, such as 100ms"), |v| set(&mut c.interval_ns, v)),
        Key::Big => bytes(value).map_or(Err("a size such as 64KiB"), |v| set(&mut c.big, v.max(1) as usize)),
        Key::Sample => match bytes(value) {
            None | Some(0) => Err("a size of 1 or more, such as 512KiB"),
            Some(v) => {
                c.sample_given = true;
                set(&mut c.sample, v as usize)
            }
        },
        Key::Max => match bytes(value) {
            None | Some(0) => Err("a size of 1 or more, such as 2GiB"),
            Some(v) => set(&mut c.max, v),
        },
        Key::PhaseOn | Key::Compiles | Key::Artifacts => {
            if value != b"0" {
                c.of_run.add(key);
            }
            Ok(())
        }
    };
    if let Err(form) = good {
        complain(|t| {
            match from {
                From::Variable => t.str(key.variable()).str("="),
                From::Line(path, line) => place(t, path, line).str(key.name()).str(" = "),
            };
            t.bytes(short(value)).str(" is not understood; give ").str(form);
            let rules = matches!(key, Key::PhasePy | Key::PhaseSym);
            t.str(if rules { ". What is no such rule is left out." } else { ". The default is used." });
        });
    }
}

fn set<T>(place: &mut T, v: T) -> Result<(), &'static str> {
    *place = v;
    Ok(())
}

/// A decimal number, the whole of `s`.
pub fn number(s: &[u8]) -> Option<u64> {
    let mut v = 0u64;
    for c in s {
        v = v.checked_mul(10)?.checked_add(match c {
            b'0'..=b'9' => (c - b'0') as u64,
            _ => return None,
        })?;
    }
    if s.is_empty() { None } else { Some(v) }
}

/// Writes the path of the trace into `CONFIG.out`: the pattern with its `%` words replaced, absolute.
///
/// # Safety
/// One thread.
unsafe fn expand(pattern: &[u8]) {
    // SAFETY: the caller's promise.
    let c = unsafe { &mut CONFIG };
    let pattern = match (pattern, c.rank) {
        (b"", -1) => &b"trace.jsonl"[..],
        (b"", _) => &b"trace.r%r.jsonl"[..],
        (p, _) => p,
    };
    let mut out = [0u8; 4096];
    let mut t = Text::over(&mut out);
    if pattern.first() != Some(&b'/') {
        t.with_space(crate::proc::cwd);
        if t.as_bytes().last() != Some(&b'/') {
            t.bytes(b"/");
        }
    }
    let mut rest = pattern;
    // The first word that is none.
    let mut odd = 0;
    while let Some((&ch, tail)) = rest.split_first() {
        rest = tail;
        if ch != b'%' {
            t.bytes(&[ch]);
            continue;
        }
        let Some((&word, tail)) = rest.split_first() else {
            t.bytes(b"%");
            break;
        };
        rest = tail;
        match word {
            b'h' => {
                t.with_space(crate::proc::host);
            }
            b'p' => {
                t.num(crate::sys::getpid() as u64);
            }
            b'e' => {
                t.with_space(crate::proc::comm);
            }
            b'j' => {
                // SAFETY: a zero-terminated value of the environment.
                t.bytes(if c.job.is_null() { b"0" } else { unsafe { CStr::from_ptr(c.job) }.to_bytes() });
            }
            b'r' => {
                t.num(c.rank.max(0) as u64);
            }
            b't' => {
                t.stamp(crate::sys::wall());
            }
            other => {
                odd = if other == b'%' || odd != 0 { odd } else { other };
                t.bytes(&[other]);
            }
        }
    }
    t.bytes(b"\0");
    c.out = out;
    if odd != 0 {
        complain(|t| {
            t.str("MEMSHIM_OUT=")
                .bytes(short(pattern))
                .str(" is not understood; give %h, %p, %e, %j, %r, %t or %% and not %")
                .bytes(&[odd]);
            t.str(", which stands for ").bytes(&[odd]).str(".");
        });
    }
}
