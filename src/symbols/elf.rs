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
    let whole = cpp.and_then(|symbol| symbol.demangle().ok());
    whole.or_else(|| path_of_mangled(name)).unwrap_or_else(|| name.to_owned())
}

/// Of a name that does not come apart as a whole (constraints in the types of templates): the path of its function, with `<…>` for what templates are
/// of. `None`: it has no plain path.
fn path_of_mangled(name: &str) -> Option<String> {
    let encoding = name.strip_prefix("_Z")?;
    let (nested, mut rest) = encoding.strip_prefix('N').map_or((false, encoding), |rest| (true, rest));
    rest = rest.trim_start_matches(if nested { &['r', 'V', 'K'][..] } else { &[] });
    let mut parts: Vec<String> = Vec::new();
    if let Some(after) = rest.strip_prefix("St") {
        (parts, rest) = (vec!["std".into()], after);
    }
    loop {
        // A constructor of a class in an inline namespace, an ABI's tag and the like are not told here: they end the path.
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let len: usize = rest.get(..digits)?.parse().unwrap_or(0);
        let Some(part) = rest.get(digits..digits.checked_add(len)?).filter(|part| !part.is_empty()) else { break };
        parts.push(part.to_owned());
        rest = &rest[digits + len..];
        if rest.starts_with('I') {
            if let Some(last) = parts.last_mut() {
                last.push_str("<…>");
            }
            // What follows template arguments is only known once they are.
            if nested {
                parts.push("…".into());
            }
            break;
        }
        if !nested {
            break;
        }
        if !rest.starts_with(['E', 'I']) && !rest.starts_with(|c: char| c.is_ascii_digit()) {
            parts.push("…".into());
            break;
        }
    }
    let told = parts.len() > usize::from(parts.first().is_some_and(|p| p == "std"));
    told.then(|| parts.join("::"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_do_not_come_apart_keep_their_path() {
        const SHARED: &str =
            "_ZSt11make_sharedISt6vectorIiSaIiEEJiEESt10shared_ptrINSt9enable_ifIXntsrSt8is_arrayIT_E5valueES6_E4typeEEDpOT0_";
        assert_eq!(demangled(SHARED), "std::make_shared<…>");
        let broken = |name: &str| path_of_mangled(name).unwrap_or_else(|| name.to_owned());
        assert_eq!(broken("_ZN3abc3defIXnt"), "abc::def<…>::…");
        assert_eq!(broken("_ZNK3abc3defEXnt"), "abc::def");
        assert_eq!(broken("_ZNSt3abcC1EXnt"), "std::abc::…");
        // Numbers and names that are none.
        for none in ["_Z", "_ZN", "_ZSt", "_ZStplIc", "_Z9f", "_Z99999999999999999999f", "_Z0I"] {
            assert_eq!(broken(none), none);
        }
        assert_eq!(
            demangled("_ZSt4moveIRiEONSt16remove_referenceIT_E4typeEOS2_"),
            "std::remove_reference<int&>::type&& std::move<int&>(int&)"
        );
    }
}
