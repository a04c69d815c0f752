//! Which files a trace's names come from: what another machine needs to have, and where `--symbols` finds it there.

use std::path::{Component, Path, PathBuf};

use super::files::{self, SYSTEM_DEBUG, Source};
use crate::model::modules::ModuleFile;

/// A file and its place below the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    pub from: PathBuf,
    pub to: PathBuf,
}

/// The files of a module: itself, and its debug files where there are any, of its build id or linked to by name; else why there is none.
pub fn files(module: &ModuleFile, folders: &[PathBuf]) -> Result<Vec<Carried>, String> {
    let from = match files::find_itself(module, folders) {
        Source::File(path) => path,
        Source::None(why) => return Err(why),
    };
    // A path of a trace leads nowhere but down. (Libraries beside others are loaded by paths with `..` in the middle.)
    let mut inside = PathBuf::new();
    let whole = Path::new(module.path.trim_start_matches('/')).components().all(|c| match c {
        Component::Normal(name) => {
            inside.push(name);
            true
        }
        Component::CurDir => true,
        Component::ParentDir => inside.pop(),
        _ => false,
    });
    if !whole || inside.as_os_str().is_empty() {
        return Err("its path leads out of the folder".into());
    }
    let linked = files::linked_files(&from).into_iter().find(|p| p.is_file() && *p != from);
    let beside = linked.and_then(|p| Some(Carried { to: inside.with_file_name(p.file_name()?), from: p }));
    let mut all = vec![Carried { from, to: inside }];
    all.extend(beside);
    let debug = SYSTEM_DEBUG.iter().map(Path::new).chain(folders.iter().map(PathBuf::as_path)).find_map(|folder| {
        let of_id = files::debug_files(folder, &module.build_id);
        of_id.into_iter().find(|p| p.is_file()).map(|p| (p.clone(), p.strip_prefix(folder).map(Path::to_path_buf).unwrap_or(p)))
    });
    if let Some((from, to)) = debug.filter(|(from, _)| all.iter().all(|c| c.from != *from)) {
        all.push(Carried { from, to });
    }
    Ok(all)
}
