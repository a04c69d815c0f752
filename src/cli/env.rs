//! `memshim env`: the assignment that puts the shim before a program, for job scripts and module files.

use super::exit;
use crate::launch::preload;
use crate::output::shell;
use clap::{Args, ValueEnum};
use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;

const EXAMPLES: &str = "\
EXAMPLES
  eval \"$(memshim env --export)\"; ./solver            in a job script: everything started from here on
  env $(memshim env) ./solver                         one program
  srun --export=ALL,$(memshim env) ./solver           the ranks only, not srun itself
  memshim env --shell fish | source

EXIT STATUS 0 done, 2 usage, 3 there is no library that can be preloaded, 4 no room for the output.";

/// Print the LD_PRELOAD assignment for job scripts and module files
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Env {
    /// Syntax to print
    #[arg(long, value_enum, default_value = "sh", value_name = "SHELL")]
    shell: Shell,

    /// sh: put `export` in front
    #[arg(long)]
    export: bool,

    /// Leave out the entries that LD_PRELOAD has now
    #[arg(long)]
    only: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Sh,
    Csh,
    Fish,
    /// Lmod module file
    Lua,
}

impl Env {
    pub fn execute(self) -> anyhow::Result<u8> {
        let library = preload::find_library()?;
        if let Some(why) = preload::unusable_path(&library) {
            anyhow::bail!("{}: {why}", library.display());
        }
        let before = if self.only { None } else { std::env::var_os("LD_PRELOAD") };
        writeln!(std::io::stdout(), "{}", self.assignment(&library, before.as_deref()))?;
        Ok(exit::DONE)
    }

    fn assignment(&self, library: &Path, before: Option<&OsStr>) -> String {
        let value = preload::preload_value(library, before);
        let value = value.to_string_lossy();
        match self.shell {
            Shell::Sh => format!("{}LD_PRELOAD={}", if self.export { "export " } else { "" }, shell::quoted(&value)),
            Shell::Csh => format!("setenv LD_PRELOAD {}", shell::quoted(&value)),
            Shell::Fish => format!("set -gx LD_PRELOAD {}", shell::quoted(&value)),
            Shell::Lua => format!("prepend_path(\"LD_PRELOAD\", {:?})", library.display().to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_has_its_own_words() {
        let line = |shell, export| Env { shell, export, only: false }.assignment(Path::new("/l/libmemshim.so"), Some(OsStr::new("/x.so")));
        assert_eq!(line(Shell::Sh, false), "LD_PRELOAD=/l/libmemshim.so:/x.so");
        assert_eq!(line(Shell::Sh, true), "export LD_PRELOAD=/l/libmemshim.so:/x.so");
        assert_eq!(line(Shell::Csh, false), "setenv LD_PRELOAD /l/libmemshim.so:/x.so");
        assert_eq!(line(Shell::Fish, false), "set -gx LD_PRELOAD /l/libmemshim.so:/x.so");
        assert_eq!(line(Shell::Lua, false), "prepend_path(\"LD_PRELOAD\", \"/l/libmemshim.so\")");
    }
}
