//! The settings by name, and the file that may hold them (`MEMSHIM_CONFIG`): `key = value` lines, a part of TOML.
//!
//! ```toml
//! mode = "full"                # a comment
//! big = 4096
//! phase_py = ["scf.hf:*", 'run:solve']
//! ```
//! Read are strings of one line in both kinds of quotes, numbers, `true` and `false`, and lists of these, also over several lines. What is
//! no such line is said with its number and how to mend it; the lines after it count. Not for: what a value means ([`crate::value`] and
//! whoever uses it).

mod lines;

pub use lines::{Item, Items, Parts, Value, items};

macro_rules! keys {
    ($first:ident $first_key:literal $first_variable:literal $first_run:literal; $($more:tt)*) => {
        keys!(@all $first $first_key $first_variable $first_run; $($more)*);
        keys!(@none $first_key; $($more)*);
    };
    (@none $first_key:literal; $($name:ident $key:literal $variable:literal $run:literal;)*) => {
        /// What to do about a key that is none.
        pub const NO_SUCH: &str = concat!("give one of ", $first_key, $(", ", $key),*);
    };
    (@all $($name:ident $key:literal $variable:literal $run:literal;)*) => {
        /// A setting: a key of the file, and a variable of the environment.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Key { $($name),* }

        impl Key {
            /// All of them.
            pub const ALL: &[Key] = &[$(Key::$name),*];

            /// As the file has it.
            pub const fn name(self) -> &'static str {
                match self { $(Key::$name => $key),* }
            }

            /// As the environment has it.
            pub const fn variable(self) -> &'static str {
                match self { $(Key::$name => $variable),* }
            }

            /// Used by `memshim run`; the library passes it over.
            pub const fn is_of_run(self) -> bool {
                match self { $(Key::$name => $run),* }
            }
        }
    };
}

keys! {
    Out "out" "MEMSHIM_OUT" false;
    Mode "mode" "MEMSHIM_MODE" false;
    Interval "interval" "MEMSHIM_INTERVAL" false;
    Big "big" "MEMSHIM_BIG" false;
    Sample "sample" "MEMSHIM_SAMPLE" false;
    Max "max" "MEMSHIM_MAX" false;
    Children "children" "MEMSHIM_CHILDREN" false;
    Include "include" "MEMSHIM_INCLUDE" false;
    Exclude "exclude" "MEMSHIM_EXCLUDE" false;
    Stacks "stacks" "MEMSHIM_STACKS" false;
    PythonAlloc "python_alloc" "MEMSHIM_PYTHON_ALLOC" false;
    GpuTiming "gpu_timing" "MEMSHIM_GPU_TIMING" false;
    Cupy "cupy" "MEMSHIM_CUPY" false;
    PhasePy "phase_py" "MEMSHIM_PHASE_PY" false;
    PhaseSym "phase_sym" "MEMSHIM_PHASE_SYM" false;
    PhaseOn "phase_on" "MEMSHIM_PHASE_ON" true;
    Compiles "compiles" "MEMSHIM_COMPILES" true;
    Artifacts "artifacts" "MEMSHIM_ARTIFACTS" true;
}

/// The variable that names the file.
pub const FILE: &str = "MEMSHIM_CONFIG";

/// The variable by which `memshim run` says that it uses the settings that are its own ([`Key::is_of_run`]).
pub const RUN: &str = "MEMSHIM_RUN";
/// What a note says of one of them that nobody used, after its name.
pub const OF_RUN: &str =
    " has no effect here: it is of `memshim run`, which watches from outside. Start the program with `memshim run -- …`";

impl Key {
    /// The setting of a key of the file.
    pub fn of(name: &[u8]) -> Option<Key> {
        Key::ALL.iter().copied().find(|k| k.name().as_bytes() == name)
    }

    /// The setting of a variable.
    pub fn of_variable(name: &[u8]) -> Option<Key> {
        Key::ALL.iter().copied().find(|k| k.variable().as_bytes() == name)
    }
}

/// A set of settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keys(u32);

impl Keys {
    /// The empty set.
    pub const NONE: Keys = Keys(0);

    /// Puts one in; false: it was in it.
    pub fn add(&mut self, key: Key) -> bool {
        let new = !self.has(key);
        self.0 |= 1 << key as u32;
        new
    }

    /// Whether it is in it.
    pub fn has(self, key: Key) -> bool {
        self.0 >> key as u32 & 1 != 0
    }
}

#[cfg(test)]
mod tests;
