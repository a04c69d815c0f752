//! The report as text or JSON. Renders what `analyze` returns and computes nothing.

pub mod json;
pub mod units;
