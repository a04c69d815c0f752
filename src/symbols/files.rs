//! Which file on this machine has the symbols of a module: the module itself, if it is still the same, or a debug file of its build id.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::model::modules::ModuleFile;
use crate::trace::read::open_file;
use object::read::elf::{ElfFile64, FileHeader};
use object::{Endianness, Object, ObjectSection, ReadCache};

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    File(PathBuf),
    /// Why there is none.
    None(String),
}

/// Where distributions put debug files.
pub const SYSTEM_DEBUG: [&str; 2] = ["/usr/lib/debug", "/lib/debug"];

/// The module's file, see [`find_itself`]; where that has no debug information and a debug file of its build id is here, that one.
pub fn find(module: &ModuleFile, folders: &[PathBuf]) -> Source {
    match find_itself(module, folders) {
        Source::File(path) if !has_debug_info(&path).unwrap_or(true) => {
            let all = folders.iter().map(PathBuf::as_path).chain(SYSTEM_DEBUG.map(Path::new));
            let debug = all.flat_map(|folder| debug_files(folder, &module.build_id));
            let better = |p: &PathBuf| build_id(p).is_ok_and(|id| id == module.build_id) && has_debug_info(p).unwrap_or(false);
            Source::File(debug.into_iter().find(better).unwrap_or(path))
        }
        found => found,
    }
}

/// Looks in the folders first, then where the module was, then for its debug file.
pub fn find_itself(module: &ModuleFile, folders: &[PathBuf]) -> Source {
    if module.path.is_empty() {
        return Source::None("where it lies is not known: /proc was not there".into());
    }
    if !module.path.starts_with('/') {
        return Source::None("it is no file".into());
    }
    let mut changed = false;
    let mut same = |path: &Path| match build_id(path) {
        Ok(id) if module.build_id.is_empty() || id == module.build_id => true,
        Ok(_) => {
            changed = true;
            false
        }
        Err(_) => false,
    };
    let inside = module.path.trim_start_matches('/');
    let name = Path::new(&module.path).file_name().unwrap_or_default();
    for folder in folders {
        let tried = [folder.join(inside), folder.join(name)];
        if let Some(found) = tried.into_iter().chain(debug_files(folder, &module.build_id)).find(|p| same(p)) {
            return Source::File(found);
        }
    }
    let original = Path::new(&module.path);
    if same(original) {
        return Source::File(original.into());
    }
    let system = SYSTEM_DEBUG.iter().flat_map(|folder| debug_files(Path::new(folder), &module.build_id));
    if let Some(found) = system.into_iter().find(|p| same(p)) {
        return Source::File(found);
    }
    Source::None(if changed {
        "the file here is another build than the one that ran: its names are not used".into()
    } else {
        "there is no such file here: name a folder that has it with --symbols".into()
    })
}

/// `.build-id/ab/cdef….debug` below a folder, and without the ending: the file itself.
pub fn debug_files(folder: &Path, build_id: &[u8]) -> Vec<PathBuf> {
    let Some((first, rest)) = build_id.split_first().filter(|(_, rest)| !rest.is_empty()) else { return Vec::new() };
    let hex: String = rest.iter().map(|b| format!("{b:02x}")).collect();
    let at = folder.join(".build-id").join(format!("{first:02x}"));
    vec![at.join(format!("{hex}.debug")), at.join(hex)]
}

/// Whether an ELF file has debug information itself.
fn has_debug_info(path: &Path) -> io::Result<bool> {
    let cache = ReadCache::new(open_file(path)?);
    let elf = ElfFile64::<Endianness, _>::parse(&cache).map_err(io::Error::other)?;
    let has = |name: &str| elf.section_by_name(name).is_some_and(|section| section.size() > 0);
    Ok(has(".debug_info") || has(".zdebug_info"))
}

/// Where the debug file may be that an ELF file links to by name (`.gnu_debuglink`): beside it, and below the system's folders.
pub fn linked_files(path: &Path) -> Vec<PathBuf> {
    let name = || {
        let cache = ReadCache::new(open_file(path).ok()?);
        let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
        let (name, _) = elf.gnu_debuglink().ok()??;
        Some(PathBuf::from(std::str::from_utf8(name).ok()?).file_name()?.to_owned())
    };
    let (Some(name), Some(folder)) = (name(), path.parent()) else { return Vec::new() };
    let below = |system: &str| Path::new(system).join(folder.strip_prefix("/").unwrap_or(folder)).join(&name);
    [folder.join(&name), folder.join(".debug").join(&name)].into_iter().chain(SYSTEM_DEBUG.map(below)).collect()
}

/// Build id of an ELF file; empty where it has none.
pub fn build_id(path: &Path) -> io::Result<Vec<u8>> {
    let file = open_file(path)?;
    if !is_elf(&file)? {
        return Err(io::Error::other("not an ELF file"));
    }
    let cache = ReadCache::new(file);
    let elf = ElfFile64::<Endianness, _>::parse(&cache).map_err(io::Error::other)?;
    // A machine of the same kind, or addresses mean nothing.
    if elf.elf_header().e_machine(elf.endian()) != object::elf::EM_X86_64 {
        return Err(io::Error::other("of another machine"));
    }
    Ok(elf.build_id().ok().flatten().unwrap_or_default().to_vec())
}

fn is_elf(file: &File) -> io::Result<bool> {
    let mut magic = [0; 4];
    Ok(file.read_at(&mut magic, 0)? == 4 && magic == *b"\x7fELF")
}
