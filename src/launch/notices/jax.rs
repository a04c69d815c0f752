//! JAX: `jax.log_compiles` (JAX_LOG_COMPILES=1), and the reasons of JAX_EXPLAIN_CACHE_MISSES=1.
//!
//! ```text
//! Finished tracing step for jit in 0.001 sec                        (0.4: tracing + transforming step for pjit)
//! Compiling jit(step) with global shapes and types (ShapedArray(float32[3]),). Argument mapping: …     (before 0.7: Compiling step …, [ ])
//! Finished jaxpr to MLIR module conversion jit(step) in 0.009 sec
//! Finished XLA compilation of jit(step) in 0.049 sec
//! ```

use super::{Notice, between, nanoseconds};
use std::collections::HashMap;

/// What is known of functions whose compilation is under way.
#[derive(Default)]
pub struct Jax {
    /// Tracing, by function, until it is compiled.
    traced: HashMap<String, u64>,
    begun: Vec<Notice>,
    /// Whom an explanation that is being printed is about, and what it said so far.
    explained: Option<String>,
    why: HashMap<String, String>,
}

/// Functions under way beyond these are forgotten: their ends were not printed.
const BEGUN_MAX: usize = 1000;

impl Jax {
    pub fn read(&mut self, line: &str, t: u64) -> Option<Notice> {
        if let Some((function, signature)) = compiling(line) {
            let ns = self.traced.remove(function);
            let function = function.to_owned();
            let why = self.why.remove(&function);
            self.begun.push(Notice { t, by: "jax", function, signature, ns, why });
            let over = self.begun.len() > BEGUN_MAX;
            return over.then(|| self.begun.remove(0));
        }
        if let Some((function, ns)) = finished(line, &["Finished tracing + transforming ", "Finished tracing "]) {
            if self.traced.len() >= BEGUN_MAX {
                self.traced.clear();
            }
            self.traced.insert(function.to_owned(), ns);
        } else if let Some((function, ns)) = finished(line, &["Finished jaxpr to MLIR module conversion "]) {
            if let Some(notice) = self.begun.iter_mut().rev().find(|n| n.function == function) {
                *notice.ns.get_or_insert(0) += ns;
            }
        } else if let Some((function, ns)) = finished(line, &["Finished XLA compilation of "]) {
            let at = self.begun.iter().rposition(|n| n.function == function)?;
            let mut notice = self.begun.remove(at);
            *notice.ns.get_or_insert(0) += ns;
            return Some(notice);
        } else {
            self.explain(line);
        }
        None
    }

    /// The lines of an explanation: for whom, and what differs.
    fn explain(&mut self, line: &str) {
        let named = line.trim_start().strip_prefix("for ").unwrap_or("");
        if line.contains("TRACING CACHE MISS") {
            self.explained = None;
        } else if let Some(name) = named.split(" defined at ").next().filter(|n| n.len() < named.len()) {
            self.explained = Some(name.to_owned());
        } else if let Some(function) = &self.explained
            && let Some(what) = line.trim_start().strip_prefix("* ").filter(|w| w.contains(", now "))
        {
            if self.why.len() >= BEGUN_MAX {
                self.why.clear();
            }
            let why = self.why.entry(function.clone()).or_default();
            if why.len() < 1000 {
                *why += if why.is_empty() { "" } else { "; " };
                *why += what.trim_end();
            }
        }
    }

    /// Begun and not ended: killed in it, or its end was not printed.
    pub fn end(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.begun)
    }
}

/// The function and its arguments' shapes and types.
fn compiling(line: &str) -> Option<(&str, Vec<String>)> {
    let name = between(line, "Compiling ", " with global shapes and types ")?;
    let rest = &line[line.find(" with global shapes and types ")? + " with global shapes and types ".len()..];
    let list = rest.split(". Argument mapping").next()?.trim_end_matches('.').trim();
    Some((bare(name), arguments(list)))
}

/// `jit(step)` is `step` to whoever wrote it; so is `step for jit` of others.
fn bare(name: &str) -> &str {
    let name = name.trim().split(' ').next().unwrap_or(name);
    name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name)
}

/// `(ShapedArray(float32[3,4]), ShapedArray(int32[], weak_type=True))` → `float32[3,4]`, `int32[] weak_type=True`.
fn arguments(list: &str) -> Vec<String> {
    let inner = list.strip_prefix(['(', '[']).map_or(list, |inner| inner.strip_suffix([')', ']']).unwrap_or(inner));
    let (mut depth, mut from, mut all) = (0i32, 0, Vec::new());
    for (i, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth <= 0 || i == inner.len() => {
                let one = inner[from..i].trim();
                let one = one.strip_prefix("ShapedArray(").and_then(|o| o.strip_suffix(')')).unwrap_or(one);
                if !one.is_empty() {
                    all.push(one.replace("], ", "] "));
                }
                from = i + 1;
            }
            _ => {}
        }
    }
    all
}

/// Of `<words>NAME[ for jit] in SECONDS sec`.
fn finished<'a>(line: &'a str, words: &[&str]) -> Option<(&'a str, u64)> {
    let rest = words.iter().find_map(|w| Some(&line[line.find(w)? + w.len()..]))?;
    let (name, seconds) = rest.rsplit_once(" in ")?;
    Some((bare(name), nanoseconds(seconds.split(" sec").next()?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Notice> {
        let mut jax = Jax::default();
        let mut all: Vec<Notice> = text.lines().enumerate().filter_map(|(t, l)| jax.read(l, t as u64)).collect();
        all.extend(jax.end());
        all
    }

    #[test]
    fn a_compilation_is_its_four_lines() {
        let all = read(
            "WARNING:jax._src.interpreters.pxla:Finished tracing step for jit in 0.001 sec\n\
             Compiling jit(step) with global shapes and types (ShapedArray(float32[3,4]), ShapedArray(float32[], weak_type=True)). Argument mapping: (UnspecifiedValue, UnspecifiedValue).\n\
             Finished jaxpr to MLIR module conversion jit(step) in 0.008657694 sec\n\
             Finished XLA compilation of jit(step) in 0.05 sec\n",
        );
        let signature = vec!["float32[3,4]".into(), "float32[] weak_type=True".into()];
        assert_eq!(all, [Notice { t: 1, by: "jax", function: "step".into(), signature, ns: Some(59_657_694), why: None }]);
    }

    #[test]
    fn older_versions_say_it_with_brackets() {
        let all = read(
            "Finished tracing + transforming f for pjit in 0.5 sec\n\
             Compiling f with global shapes and types [ShapedArray(int32[2])]. Argument mapping: [UnspecifiedValue].\n\
             Compiling g for with global shapes and types []. Argument mapping: [].\n\
             Finished XLA compilation of jit(f) in 0.25 sec",
        );
        let of = |n: &Notice| (n.function.clone(), n.signature.clone(), n.ns);
        assert_eq!(
            all.iter().map(of).collect::<Vec<_>>(),
            [("f".into(), vec!["int32[2]".into()], Some(750_000_000)), ("g".into(), vec![], None)]
        );
    }

    #[test]
    fn the_reason_is_the_compilers_own() {
        let all = read(
            "TRACING CACHE MISS at /w/j.py:7:4 (<module>):\n  for step defined at /w/j.py:3\n  all previously seen cache keys differ. For the closest previous key:\n  \
             different input types:\n  * at x, now f32[5] and before f32[3]\n\
             Compiling jit(step) with global shapes and types (ShapedArray(float32[5]),). Argument mapping: (UnspecifiedValue,).\n\
             Finished XLA compilation of jit(step) in 0.05 sec\n",
        );
        assert_eq!(all[0].why.as_deref(), Some("at x, now f32[5] and before f32[3]"));
    }

    #[test]
    fn broken_lines_are_none() {
        assert_eq!(
            read(
                "Compiling \nCompiling x with global shapes and types \nFinished XLA compilation of f in a while\nFinished tracing in 1 sec"
            )
            .len(),
            1
        );
        assert_eq!(arguments("("), Vec::<String>::new());
        assert_eq!(arguments("é"), ["é"]);
        assert_eq!(arguments("(é"), ["é"]);
    }
}
