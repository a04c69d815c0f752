//! How many files may be open: `memshim run` needs some for itself, the program has what it was given.

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io;

/// What `memshim run` gets along with, its program's own start included.
const ENOUGH: u64 = 64;
/// Below this what is not needed is left out.
const FEW: u64 = 16;
/// It does not start with fewer.
const LEAST: u64 = 8;

/// The limit that was given, where it was raised for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Given(Option<(u64, u64)>);

/// Raises our own limit as far as that is allowed, where it is low.
pub fn raise() -> Given {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Given(None) };
    let raised = soft < ENOUGH && hard > soft && setrlimit(Resource::RLIMIT_NOFILE, hard.min(ENOUGH), hard).is_ok();
    Given(raised.then_some((soft, hard)))
}

impl Given {
    /// Puts it back, for the program. One call of the system: it may be made between fork and exec.
    pub fn restore(self) {
        if let Some((soft, hard)) = self.0 {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, soft, hard);
        }
    }
}

/// Whether there are so few that what is not needed is left out.
pub fn are_few() -> bool {
    getrlimit(Resource::RLIMIT_NOFILE).is_ok_and(|(soft, _)| soft < FEW)
}

/// An error in words, without its number; where descriptors ran out, with what to raise.
pub fn said(e: &io::Error) -> String {
    if e.raw_os_error() != Some(Errno::EMFILE as i32) {
        let text = e.to_string();
        return text.split(" (os error").next().unwrap_or(&text).to_owned();
    }
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(String::new(), |(soft, _)| format!(" (it is {soft})"));
    format!("too many open files: raise `ulimit -n`{limit}; `memshim run` needs {LEAST}, with --phase-on and the like {ENOUGH}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_limit_only_where_it_is_that() {
        assert!(said(&io::Error::from_raw_os_error(Errno::EMFILE as i32)).contains("raise `ulimit -n` (it is "));
        assert!(!said(&io::Error::from_raw_os_error(Errno::EACCES as i32)).contains("ulimit"));
    }
}
