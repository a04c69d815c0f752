//! One file's symbols: its own tables, its DWARF, or the debug file that it links to.

use std::path::{Path, PathBuf};
use std::time::Instant;

use super::files::SYSTEM_DEBUG;
use super::{Deadlines, ModuleNames, Named};
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};

/// Addresses looked up between two looks at the clock.
const CHUNK: usize = 256;

/// Names of addresses of the file. Where the time for lines is over, functions are named: that needs no DWARF.
pub(super) fn names(path: &Path, addresses: &[u64], folders: &[PathBuf], until: Deadlines) -> ModuleNames {
    let debug_dirs = folders.iter().cloned().chain(SYSTEM_DEBUG.map(PathBuf::from));
    // One for each file: what it keeps of a file is given back with it.
    let symbolizer = Symbolizer::builder().set_debug_dirs(Some(debug_dirs)).enable_demangling(false).build();
    let mut names = ModuleNames { source: Some(path.into()), ..ModuleNames::default() };
    let mut sorted = addresses.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let (mut unlined, mut unnamed) = (0, 0);
    for chunk in sorted.chunks(CHUNK) {
        let now = Instant::now();
        if now >= until.all {
            unnamed += chunk.len();
            continue;
        }
        let hurry = now >= until.lines;
        unlined += if hurry { chunk.len() } else { 0 };
        let mut elf = Elf::new(path);
        elf.debug_syms = !hurry;
        let source = Source::Elf(elf);
        let result = symbolizer.symbolize(&source, Input::VirtOffset(chunk)).or_else(|_| {
            // Debug information that can't be read does not take the names of functions along.
            let mut elf = Elf::new(path);
            elf.debug_syms = false;
            symbolizer.symbolize(&Source::Elf(elf), Input::VirtOffset(chunk))
        });
        match result {
            Ok(all) => {
                let named = chunk.iter().zip(all).filter_map(|(addr, symbol)| Some((*addr, frames(symbol)?)));
                names.at.extend(named);
            }
            Err(e) => {
                names.problem = Some(format!("{e:#}"));
                return names;
            }
        }
    }
    names.problem = too_late(unnamed, unlined, sorted.len());
    names
}

/// What there was no time for, and what gives more.
fn too_late(unnamed: usize, unlined: usize, all: usize) -> Option<String> {
    let what = match (unnamed, unlined) {
        (0, 0) => return None,
        (0, _) => format!("the source lines of {unlined}"),
        (_, 0) => format!("the names of {unnamed}"),
        _ => format!("the names of {unnamed} and the source lines of {unlined}"),
    };
    Some(format!("no time was left for {what} of {all} places in it: --symbols-time gives more"))
}

/// A name as its source has it. Only what begins as mangled names do is one: a C function `f` is not C++'s `float`.
pub fn demangled(name: &str) -> String {
    if (name.starts_with("_R") || name.starts_with("_ZN"))
        && let Ok(rust) = rustc_demangle::try_demangle(name)
    {
        return format!("{rust:#}");
    }
    let cpp = name.starts_with("_Z").then(|| cpp_demangle::Symbol::new(name).ok()).flatten();
    cpp.and_then(|symbol| symbol.demangle().ok()).unwrap_or_else(|| name.to_owned())
}

fn frames(symbol: Symbolized) -> Option<Vec<Named>> {
    let Symbolized::Sym(Sym { name, code_info, inlined, .. }) = symbol else { return None };
    let named = |name: &str, code: Option<&CodeInfo>, inlined| Named {
        function: demangled(name),
        file: code.map(|c| c.to_path().to_string_lossy().into_owned()),
        line: code.and_then(|c| c.line),
        inlined,
    };
    let mut all = vec![named(&name, code_info.as_deref(), false)];
    all.extend(inlined.iter().map(|f| named(&f.name, f.code_info.as_ref(), true)));
    Some(all)
}
