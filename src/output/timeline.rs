//! Resident memory and live heap over time, drawn with characters.

use super::units::{iec, seconds};
use crate::analyze::report::Sample;

const ROWS: usize = 5;
/// Room for `1023 KiB ┤`.
const LABEL: usize = 8;

/// The chart, one string a line: full cells are live heap, shaded ones the rest of the resident memory. Empty for fewer than two samples.
pub fn draw(samples: &[Sample], wall_s: f64, width: usize) -> Vec<String> {
    let columns = width.saturating_sub(LABEL + 2).clamp(16, 200);
    let top = samples.iter().map(|s| s.rss.0.max(heap_of(s))).max().unwrap_or(0);
    let end = samples.last().map_or(0.0, |s| s.t_s).max(wall_s);
    if samples.len() < 2 || top == 0 || end <= 0.0 {
        return Vec::new();
    }
    let bins = bins(samples, end, columns);
    let mut lines: Vec<String> = (0..ROWS).rev().map(|row| format!("{}{}", label(row, top), cells(&bins, row, top))).collect();
    let right = seconds(end);
    let gap = columns.saturating_sub(3 + right.chars().count());
    lines.push(format!("{:>LABEL$} └0 s{}{right}", "", "─".repeat(gap)));
    lines
}

fn label(row: usize, top: u64) -> String {
    let text = if row + 1 == ROWS {
        iec(top)
    } else if row == 0 {
        "0".into()
    } else {
        String::new()
    };
    format!("{text:>LABEL$} {}", if text.is_empty() { '│' } else { '┤' })
}

/// The most in each stretch of time; a stretch without a sample shows the one before.
fn heap_of(s: &Sample) -> u64 {
    s.heap.map_or(0, |b| b.0)
}

fn bins(samples: &[Sample], end: f64, columns: usize) -> Vec<(u64, u64)> {
    let mut bins: Vec<Option<(u64, u64)>> = vec![None; columns];
    for s in samples {
        let at = ((s.t_s / end * columns as f64) as usize).min(columns - 1);
        let (rss, heap) = bins[at].unwrap_or_default();
        bins[at] = Some((rss.max(s.rss.0), heap.max(heap_of(s))));
    }
    let mut last = (0, 0);
    bins.into_iter()
        .map(|b| {
            last = b.unwrap_or(last);
            last
        })
        .collect()
}

fn cells(bins: &[(u64, u64)], row: usize, top: u64) -> String {
    const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let filled = |bytes: u64| ((bytes as f64 / top as f64 * ROWS as f64 - row as f64) * 8.0).round().clamp(0.0, 8.0) as usize;
    let cell = |&(rss, heap): &(u64, u64)| match (filled(heap), filled(rss)) {
        (8, _) => '█',
        // A cell holds one sign: shade wins where more than half of it is resident and not heap.
        (h, r) if r > h + 4 || h == 0 && r >= 4 => '░',
        (0, r) => EIGHTHS[r.min(1)],
        (h, _) => EIGHTHS[h],
    };
    bins.iter().map(cell).collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::units::Bytes;

    #[test]
    fn a_ramp_rises_and_the_heap_is_inside_it() {
        let samples: Vec<Sample> = (0..=40)
            .map(|i| Sample { t_s: i as f64 / 4.0, rss: Bytes(i << 20), heap: Some(Bytes(i << 19)), ..Sample::default() })
            .collect();
        let chart = draw(&samples, 10.0, 50);
        assert_eq!(chart.len(), ROWS + 1);
        assert!(chart[0].starts_with("40.0 MiB ┤") && chart[0].ends_with('░'), "{chart:#?}");
        assert!(chart[4].trim_end().ends_with('█'), "{chart:#?}");
        assert!(chart[5].ends_with("10.0 s"), "{chart:#?}");
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert!(draw(&[], 1.0, 80).is_empty());
        assert!(draw(&[Sample::default(), Sample::default()], 1.0, 80).is_empty());
    }
}
