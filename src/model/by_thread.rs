//! Call sites apart by thread, where that is asked for: a number for each pair of a site and the thread that allocated there.

use std::collections::HashMap;

/// See the module. Number 0 is of no site and no thread that is known.
#[derive(Clone, Debug)]
pub struct ThreadSites {
    pairs: Vec<(u32, u32)>,
    index: HashMap<(u32, u32), u32>,
}

/// Pairs beyond are counted with no site.
const PAIRS_MAX: usize = 1 << 22;

impl Default for ThreadSites {
    fn default() -> Self {
        ThreadSites { pairs: vec![(0, 0)], index: HashMap::from([((0, 0), 0)]) }
    }
}

impl ThreadSites {
    /// Number of a site and a thread.
    pub fn number(&mut self, site: u32, tid: u32) -> u32 {
        if let Some(&known) = self.index.get(&(site, tid)) {
            return known;
        }
        if self.pairs.len() >= PAIRS_MAX {
            return 0;
        }
        let next = self.pairs.len() as u32;
        self.pairs.push((site, tid));
        self.index.insert((site, tid), next);
        next
    }

    /// Site and thread of a number.
    pub fn get(&self, number: u32) -> (u32, u32) {
        self.pairs.get(number as usize).copied().unwrap_or((0, 0))
    }

    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    pub fn is_empty(&self) -> bool {
        false
    }
}
