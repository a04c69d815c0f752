//! A flame graph as one SVG file: width is the amount, what stands on a frame is what it called.

use std::io::{self, Write};

use super::{collapsed, title};
use crate::analyze::profile::Profile;
use crate::analyze::views::Measure;
use inferno::flamegraph::{Options, color, from_lines};

pub fn write(profile: &Profile, measure: Measure, out: &mut impl Write) -> io::Result<()> {
    let lines = collapsed::lines(profile, measure);
    if lines.is_empty() {
        return Err(io::Error::other(format!("nothing is {}: there is no flame graph of it", title(measure, profile))));
    }
    let mut options = Options::default();
    options.title = format!("memshim: {}", title(measure, profile));
    options.count_name = measure.unit().into();
    options.colors = color::Palette::Basic(color::BasicPalette::Mem);
    // The same picture every time.
    options.hash = true;
    from_lines(&mut options, lines.iter().map(String::as_str), out).map_err(io::Error::other)
}
