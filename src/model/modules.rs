//! Which file an address in memory came from: programs and libraries as they were loaded and went.

use std::collections::{BTreeMap, HashMap};

use crate::trace::stacks::Modules;

/// A file that was executed from, wherever and however often it was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleFile {
    pub path: String,
    /// Empty where it has none.
    pub build_id: Vec<u8>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct ModuleTable {
    pub files: Vec<ModuleFile>,
    known: HashMap<ModuleFile, u32>,
    /// By start: end, file, bias. What was unloaded stays until something else is loaded there: its last events may be read later.
    ranges: BTreeMap<u64, (u64, u32, u64)>,
}

impl ModuleTable {
    /// Takes a line in; the number of ranges that can't be. `folder`: the process's at its start.
    pub fn read(&mut self, line: Modules, folder: &str) -> u64 {
        let mut bad = 0;
        for m in line.load {
            // `./libwork.so`, as the loader was asked for it: from where the program was started.
            let relative = m.path.contains('/') && !m.path.starts_with('/') && !folder.is_empty();
            let path = if relative { format!("{folder}/{}", m.path.trim_start_matches("./")) } else { m.path };
            let file = ModuleFile { path, build_id: m.build_id };
            let next = self.files.len() as u32;
            let index = *self.known.entry(file).or_insert_with_key(|file| {
                self.files.push(file.clone());
                next
            });
            for (start, end) in m.ranges {
                bad += !self.load(start, end, index, m.bias) as u64;
            }
        }
        bad
    }

    fn load(&mut self, start: u64, end: u64, file: u32, bias: u64) -> bool {
        if start >= end {
            return false;
        }
        while let Some((&at, &(to, ..))) = self.ranges.range(..end).next_back()
            && to > start
        {
            self.ranges.remove(&at);
        }
        self.ranges.insert(start, (end, file, bias));
        true
    }

    /// File and address in it. `pc − 1` decides where it is a return address: the call may be a function's last instruction.
    pub fn find(&self, pc: u64, exact: bool) -> Option<(u32, u64)> {
        let at = pc.wrapping_sub(!exact as u64);
        let (_, &(end, file, bias)) = self.ranges.range(..=at).next_back()?;
        (at < end).then(|| (file, pc.wrapping_sub(bias)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::stacks::Module;

    fn module(id: u64, path: &str, bias: u64, range: (u64, u64)) -> Module {
        Module { id, bias, path: path.into(), build_id: vec![1], ranges: vec![range] }
    }

    #[test]
    fn an_address_is_of_what_was_loaded_there_last() {
        let mut t = ModuleTable::default();
        let load = vec![module(1, "a", 0x1000, (0x1000, 0x2000)), module(2, "b", 0x2000, (0x2000, 0x3000))];
        t.read(Modules { load, ..Modules::default() }, "");
        assert_eq!(t.find(0x1500, false), Some((0, 0x500)));
        assert_eq!(t.find(0x2000, false), Some((0, 0x1000)), "a call at the very end returns to the next byte");
        assert_eq!(t.find(0x2000, true), Some((1, 0)));
        t.read(Modules { unload: vec![1], ..Modules::default() }, "");
        assert_eq!(t.find(0x1500, false), Some((0, 0x500)), "what came before the unload may be read after it");
        t.read(Modules { load: vec![module(3, "c", 0, (0x1400, 0x1800))], ..Modules::default() }, "");
        assert_eq!((t.find(0x1500, false), t.find(0x1900, false), t.find(5, true)), (Some((2, 0x1500)), None, None));
    }

    #[test]
    fn a_file_loaded_twice_is_one_and_an_empty_range_is_none() {
        let mut t = ModuleTable::default();
        let load = vec![module(1, "a", 0, (4096, 8192)), module(2, "a", 1 << 20, (1 << 20, 2 << 20)), module(3, "a", 0, (9, 9))];
        let bad = t.read(Modules { load, ..Modules::default() }, "");
        assert_eq!((bad, t.files.len()), (1, 1));
        assert_eq!(t.find((1 << 20) + 5, true), Some((0, 5)));
    }

    #[test]
    fn a_relative_path_is_from_where_the_program_was_started() {
        let mut t = ModuleTable::default();
        let paths = ["./libwork.so.1", "plug/x.so", "../y.so", "/lib/z.so", "linux-vdso.so.1"];
        let load = paths.iter().zip(1..).map(|(path, n)| module(n, path, 0, (n << 12, (n + 1) << 12))).collect();
        t.read(Modules { load, ..Modules::default() }, "/home/u");
        let found: Vec<&str> = t.files.iter().map(|f| f.path.as_str()).collect();
        assert_eq!(found, ["/home/u/libwork.so.1", "/home/u/plug/x.so", "/home/u/../y.so", "/lib/z.so", "linux-vdso.so.1"]);
    }
}
