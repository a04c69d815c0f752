//! Which programs are recorded, by their names: as the library decides it, for who wants to say why there is no trace.

use memshim_format::value;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What the kernel keeps of a program's name (`/proc/PID/comm`).
const NAME: usize = 15;

/// Lists of globs with commas; an empty one says nothing.
#[derive(Debug, Clone, Default)]
pub struct Listed {
    pub include: OsString,
    pub exclude: OsString,
}

impl Listed {
    /// Why a program is not recorded; `None`: it is, as far as its name goes.
    pub fn leaves_out(&self, program: &Path) -> Option<String> {
        let name = program.file_name().unwrap_or_default().as_bytes();
        let name = &name[..name.len().min(NAME)];
        let fits = |list: &OsStr| value::globs(list.as_bytes()).any(|glob| value::glob(glob, name));
        let (what, list, flag) = if fits(&self.exclude) {
            ("is one of those that are not recorded", &self.exclude, "exclude")
        } else if !self.include.is_empty() && !fits(&self.include) {
            ("is none of those that are recorded", &self.include, "include")
        } else {
            return None;
        };
        let variable = flag.to_uppercase();
        Some(format!("`{}` {what}: --{flag} (or MEMSHIM_{variable}) is `{}`", String::from_utf8_lossy(name), list.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_left_out_by_its_name_as_the_kernel_has_it() {
        let listed = |include: &str, exclude: &str| Listed { include: include.into(), exclude: exclude.into() };
        let why = |of: Listed, program: &str| of.leaves_out(Path::new(program));
        assert_eq!(why(listed("", ""), "/bin/true"), None);
        assert_eq!(why(listed("py*,tru?", "git"), "/bin/true"), None);
        assert_eq!(why(listed("an_exceedingly_", ""), "/opt/an_exceedingly_long_name"), None);
        let said = "`true` is none of those that are recorded: --include (or MEMSHIM_INCLUDE) is `zzz`";
        assert_eq!(why(listed("zzz", ""), "/bin/true").as_deref(), Some(said));
        let said = "`true` is one of those that are not recorded: --exclude (or MEMSHIM_EXCLUDE) is `t*`";
        assert_eq!(why(listed("true", "t*"), "true").as_deref(), Some(said));
    }
}
