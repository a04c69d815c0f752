//! How much the names of a file can say: its own tables, or those of its debug file on this machine.

use std::path::{Path, PathBuf};

use super::carry;
use super::files::build_id;
use crate::model::modules::ModuleFile;
use crate::trace::read::open_file;
use object::{Object, ObjectSection, ReadCache};

/// From little to much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// What other files link to.
    Exports,
    /// All functions.
    Functions,
    /// Source lines and inlined calls too.
    Lines,
}

/// Of a program or library, and the debug file that it comes from; `None` where it can't be read.
pub fn of(path: &Path) -> Option<(Detail, Option<PathBuf>)> {
    let own = of_file(path)?;
    let module = ModuleFile { path: path.display().to_string(), build_id: build_id(path).ok()? };
    let beside = carry::files(&module, &[]).ok()?.into_iter().map(|c| c.from).filter(|p| p != path);
    let best = beside.filter_map(|p| Some((of_file(&p)?, Some(p)))).max_by_key(|(detail, _)| *detail);
    Some(best.filter(|(detail, _)| *detail > own).unwrap_or((own, None)))
}

fn of_file(path: &Path) -> Option<Detail> {
    let cache = ReadCache::new(open_file(path).ok()?);
    let file = object::read::elf::ElfFile64::<object::Endianness, _>::parse(&cache).ok()?;
    let has = |name: &str| file.section_by_name(name).is_some_and(|s| s.size() > 0);
    Some(match (has(".debug_info") || has(".zdebug_info"), has(".symtab")) {
        (true, _) => Detail::Lines,
        (false, true) => Detail::Functions,
        (false, false) => Detail::Exports,
    })
}
