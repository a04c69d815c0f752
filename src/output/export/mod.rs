//! Call sites in the formats of other tools. Each file says which tool; none computes anything.

pub mod collapsed;
pub mod flamegraph;
pub mod pprof;
pub mod speedscope;

use crate::analyze::profile::Profile;
use crate::analyze::views::Measure;

/// What a measure is called where it stands alone.
pub fn title(measure: Measure, profile: &Profile) -> String {
    match measure {
        Measure::Peak => format!("live at {}", profile.instant),
        Measure::Leaked => "live at the end".into(),
        Measure::Temporary => "temporary allocations".into(),
        Measure::Total => "allocated in all".into(),
    }
}
