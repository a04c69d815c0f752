//! Notices of just-in-time compilers in what a program prints: which function was compiled, for which arguments, how long it took, why anew.
//!
//! One file a compiler; each takes line after line and remembers what it needs of earlier ones. Programs say these things when they are
//! asked to (`JAX_LOG_COMPILES=1`, `TORCH_LOGS=recompiles`, …), in a log line with any prefix. Not for: what they amount to (`analyze::compiles`).

mod catalyst;
mod jax;
mod numba;
mod torch;
mod triton;

use crate::launch::side;
use crate::model::units::Nanos;
use serde_json::{Value, json};

/// A compilation, as the side file has it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Notice {
    t: u64,
    by: &'static str,
    function: String,
    signature: Vec<String>,
    ns: Option<u64>,
    why: Option<String>,
}

impl Notice {
    fn line(self) -> Value {
        let mut line = json!({"type": "compile", "t": self.t, "by": self.by, "function": self.function, "signature": self.signature});
        if let Some(ns) = self.ns {
            line["ns"] = ns.into();
        }
        if let Some(why) = self.why {
            line["why"] = side::text(why.as_bytes());
        }
        line
    }
}

/// All compilers known.
#[derive(Default)]
pub struct Notices {
    catalyst: catalyst::Catalyst,
    jax: jax::Jax,
    torch: torch::Torch,
    triton: triton::Triton,
}

impl Notices {
    /// Every line of interest holds one of these.
    pub const WORDS: &[&str] = &[
        "[SYSTEM] ",
        "[DIAGNOSTICS] Running ",
        "Shared object linking successful",
        "Compiling ",
        "Finished tracing ",
        "Finished jaxpr to MLIR",
        "Finished XLA compilation of ",
        "TRACING CACHE MISS",
        " defined at ",
        ", now ",
        "[__recompiles]",
        "torchdynamo start tracing ",
        "done compiler function ",
        "torchinductor ",
        "Triton autotuning for function ",
        "finished after ",
        "best config selected",
        "with key as ",
        "[cache] data saved to ",
    ];

    /// What a line completes.
    pub fn read(&mut self, line: &[u8], t: u64) -> Vec<Value> {
        let line = String::from_utf8_lossy(line);
        let (catalyst, triton) = (self.catalyst.read(&line, t), self.triton.read(&line, t));
        let found = [self.jax.read(&line, t), self.torch.read(&line, t), triton, catalyst, numba::read(&line, t)];
        found.into_iter().flatten().map(Notice::line).collect()
    }

    /// What was begun and never ended.
    pub fn end(&mut self) -> Vec<Value> {
        let all = self.jax.end().into_iter().chain(self.torch.end()).chain(self.triton.end()).chain(self.catalyst.end());
        all.map(Notice::line).collect()
    }
}

/// The text between two words.
fn between<'a>(line: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let from = line.find(before)? + before.len();
    let rest = &line[from..];
    Some(&rest[..rest.find(after)?])
}

/// Seconds in decimal notation as nanoseconds.
fn nanoseconds(seconds: &str) -> Option<u64> {
    let s: f64 = seconds.trim().parse().ok()?;
    (0.0..1e9).contains(&s).then(|| Nanos::of_seconds(s).0)
}
