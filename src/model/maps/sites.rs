//! What each call site has mapped: committed now, at most, and at the peak of all classes together. The peak's set is found as in
//! `model::sites`.

use std::collections::HashMap;

use super::kind::Class;

/// What one site has mapped of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapSite {
    pub site: u32,
    pub class: Class,
    /// Committed now, at the peak of all classes, and at most.
    pub now: i64,
    pub at_peak: i64,
    pub peak: i64,
    /// Bytes asked for by its calls, whatever the access, what mremap made of them included, and how many they were.
    pub total: u64,
    pub calls: u64,
    /// Peaks that had come when it changed last.
    seen: u32,
}

#[derive(Debug, Default)]
pub struct MapSites {
    rows: HashMap<(u32, Class), MapSite>,
    peaks: u32,
}

impl MapSites {
    fn row(&mut self, site: u32, class: Class) -> &mut MapSite {
        self.rows.entry((site, class)).or_insert_with(|| MapSite { site, class, ..MapSite::default() })
    }

    /// A call maps `len` bytes.
    pub fn called(&mut self, site: u32, class: Class, len: u64) {
        let row = self.row(site, class);
        row.total = row.total.saturating_add(len);
        row.calls += 1;
    }

    /// What a call mapped has grown.
    pub fn grew(&mut self, site: u32, class: Class, len: u64) {
        let row = self.row(site, class);
        row.total = row.total.saturating_add(len);
    }

    /// Committed bytes come or go.
    pub fn change(&mut self, site: u32, class: Class, bytes: i64) {
        let peaks = self.peaks;
        let row = self.row(site, class);
        if row.seen != peaks {
            (row.at_peak, row.seen) = (row.now, peaks);
        }
        row.now = row.now.saturating_add(bytes);
        row.peak = row.peak.max(row.now);
    }

    /// All classes together were never more than now.
    pub fn at_peak(&mut self) {
        self.peaks += 1;
    }

    /// All rows; `at_peak` is final.
    pub fn rows(&self) -> Vec<MapSite> {
        let last = |r: &MapSite| MapSite { at_peak: if r.seen == self.peaks { r.at_peak } else { r.now }, ..*r };
        self.rows.values().map(last).collect()
    }
}
