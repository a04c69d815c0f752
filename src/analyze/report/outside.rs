//! What was seen from outside while a program ran: what compilers said, files that appeared.

use crate::model::units::Bytes;
use serde::Serialize;

/// A function that a just-in-time compiler compiled.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Compile {
    pub function: String,
    /// `jax`, `torch`, `inductor`, `triton`, `numba`, `catalyst`.
    pub by: String,
    pub count: u64,
    /// Times after the first.
    pub recompiles: u64,
    /// Seconds it took in all, where the compiler says so.
    pub wall_s: Option<f64>,
    /// Of it the times after the first.
    pub recompiles_wall_s: Option<f64>,
    /// What it was compiled for, in the order of the first times.
    pub signatures: Vec<Signature>,
}

/// Arguments that a function was compiled for.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Signature {
    pub arguments: Vec<String>,
    pub count: u64,
    pub first_s: f64,
    pub wall_s: Option<f64>,
    /// What was another argument the time before.
    pub changed: Vec<String>,
    /// The compiler's own reason.
    pub why: Option<String>,
}

/// A file written while the program ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Artifact {
    pub path: String,
    /// The innermost phase that was on when it was written last.
    pub phase: Option<String>,
    /// `null` where it was gone before anybody could look.
    pub bytes: Option<Bytes>,
    /// Line ends in it; `null` where it could not be read.
    pub lines: Option<u64>,
    pub t_s: f64,
    /// It was gone again at the end: bytes and lines are those seen last.
    pub deleted: bool,
}
