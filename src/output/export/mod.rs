//! Call sites in the formats of other tools. Each file says which tool; none computes anything.

pub mod collapsed;
pub mod flamegraph;
pub mod pprof;
pub mod speedscope;

use crate::analyze::views::Measure;

/// What a measure is called where it stands alone.
pub fn title(measure: Measure) -> &'static str {
    match measure {
        Measure::Peak => "live at the heap's peak",
        Measure::Leaked => "live at the end",
        Measure::Temporary => "temporary allocations",
        Measure::Total => "allocated in all",
    }
}
