//! The report as text or JSON. Renders what `analyze` returns and computes nothing.

pub mod check;
pub mod export;
pub mod json;
pub mod screen;
pub mod shell;
pub mod table;
pub mod text;
pub mod timeline;
pub use crate::figures as units;
