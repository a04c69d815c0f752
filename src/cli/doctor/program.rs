//! Whether a program can be seen into.

use super::{Findings, Verdict, stacks};
use crate::launch::elf::{Image, Program};
use crate::launch::spawn;
use std::ffi::OsStr;

pub fn look(found: &mut Findings, name: &OsStr) {
    let env: Vec<_> = std::env::vars_os().collect();
    let Some(path) = spawn::find_program(name, &env) else {
        return found.add(Verdict::Bad, "program", format!("{}: command not found: is it in PATH?", name.display()));
    };
    let path = std::path::absolute(&path).unwrap_or(path);
    let program = Program::look(&path);
    if let Some(why) = program.obstacle() {
        return found.add(Verdict::Bad, "program", why);
    }
    let chain: Vec<String> = program.chain.iter().map(|p| p.display().to_string()).collect();
    found.add(Verdict::Good, "program", format!("{}: dynamically linked, will be seen", chain.join(" → ")));
    if let Some(file) = program.chain.last() {
        stacks::names(found, file);
    }
    let Image::Dynamic { needed, own_malloc, .. } = program.image else { return };
    let allocators = ["jemalloc", "tcmalloc", "mimalloc", "tbbmalloc", "hoard", "snmalloc"];
    if let Some(lib) = needed.iter().find(|n| allocators.iter().any(|a| n.contains(a))) {
        found.add(Verdict::Good, "allocator", format!("{lib} stays in use; calls to it are seen"));
    }
    if !own_malloc.is_empty() {
        let text = format!(
            "the program defines {} itself: calls from inside it that do not go through the loader's tables are not seen",
            own_malloc.join(", ")
        );
        found.add(Verdict::Note, "allocator", text);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::text;
    use super::*;

    #[test]
    fn a_dynamic_program_will_be_seen_and_a_missing_one_not() {
        assert!(text(|f| look(f, "sh".as_ref())).starts_with("ok    program  "));
        // The folder of this test is that of the package.
        let own = std::env::current_exe().unwrap();
        let here = std::env::current_dir().unwrap();
        let up = here.components().skip(1).map(|_| "../").collect::<String>();
        let relative = format!("{up}{}", own.strip_prefix("/").unwrap().display());
        let found = text(|f| look(f, relative.as_ref()));
        assert!(found.contains("will be seen") && found.contains("functions") && !found.contains("cannot be read"), "{found}");
        assert!(text(|f| look(f, "no-such-program".as_ref())).contains("NO    program  no-such-program: command not found"));
    }
}
