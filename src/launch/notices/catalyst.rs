//! PennyLane Catalyst: `qjit(verbose=True)` says each start of its compiler; with ENABLE_DIAGNOSTICS=ON also how long its stages took.
//!
//! ```text
//! [SYSTEM] /v/bin/catalyst -o /tmp/step5ab/step.ll --module-name step --workspace /tmp/step5ab -verify-each=false …
//! [DIAGNOSTICS] Running HLOLoweringStage       \twalltime: 2.865 ms\tcputime: 0.000 ms\tprogramsize: 51 lines
//! [DIAGNOSTICS] Running device_init            \twalltime: 0.148 ms\tcputime: 0.000 ms          (at run time, on stderr: none of the compiler's)
//! [SYSTEM] gcc -shared -rdynamic …
//! Shared object linking successful
//! ```

use super::{Notice, between};

/// The compilation under way.
#[derive(Default)]
pub struct Catalyst(Option<Notice>);

impl Catalyst {
    pub fn read(&mut self, line: &str, t: u64) -> Option<Notice> {
        if let Some((_, command)) = line.split_once("[SYSTEM] ") {
            // The linker is called in the same way, but has no name to say.
            let name = between(command, " --module-name ", " ")?;
            return self.0.replace(Notice { t, by: "catalyst", function: name.to_owned(), ..Notice::default() });
        }
        if line.contains("Shared object linking successful") {
            return self.0.take();
        }
        if let Some((stage, ms)) = line.split_once("[DIAGNOSTICS] Running ").and_then(|(_, rest)| rest.split_once("walltime: "))
            && (stage.trim() == "compileObjFile" || ms.contains("programsize"))
            && let Some(ns) = ms.split(" ms").next().and_then(|ms| ms.parse::<f64>().ok()).filter(|ms| (0.0..1e12).contains(ms))
            && let Some(notice) = &mut self.0
        {
            *notice.ns.get_or_insert(0) += (ns * 1e6).round() as u64;
        }
        None
    }

    /// Begun and not linked: it failed, or was killed in it.
    pub fn end(&mut self) -> Option<Notice> {
        self.0.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPILER: &str =
        "[SYSTEM] /v/bin/catalyst -o /tmp/step5ab/step.ll --module-name step --workspace /tmp/step5ab -verify-each=false";

    #[test]
    fn a_compilation_takes_as_long_as_its_stages() {
        let mut catalyst = Catalyst::default();
        let before = "[DIAGNOSTICS] Running device_init               \twalltime: 1.075 ms\tcputime: 1.072 ms";
        for line in [
            before,
            COMPILER,
            "[DIAGNOSTICS] Running parseMLIRSource        \twalltime: 0.521 ms\tcputime: 0.000 ms\tprogramsize: 23 lines",
            before,
            "[DIAGNOSTICS] Running compileObjFile         \twalltime: 2.911 ms\tcputime: 0.000 ms",
            "[SYSTEM] gcc -shared -rdynamic -o /tmp/step5ab/step.so",
        ] {
            assert_eq!(catalyst.read(line, 3), None, "{line}");
        }
        let done = catalyst.read("Shared object linking successful", 9);
        assert_eq!(done, Some(Notice { t: 3, by: "catalyst", function: "step".into(), ns: Some(3_432_000), ..Notice::default() }));
        assert_eq!(catalyst.end(), None);
    }

    #[test]
    fn one_that_fails_is_told_of_at_the_next() {
        let mut catalyst = Catalyst::default();
        assert_eq!(catalyst.read(COMPILER, 3), None);
        let failed = catalyst.read(&COMPILER.replace("step", "solve"), 5).unwrap();
        assert_eq!((failed.t, &*failed.function, failed.ns), (3, "step", None));
        assert_eq!(catalyst.end().map(|n| n.function).as_deref(), Some("solve"));
    }
}
