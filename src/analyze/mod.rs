//! From model to answer: pure analyses, one question a file, and the report that holds their answers.

pub mod report;
