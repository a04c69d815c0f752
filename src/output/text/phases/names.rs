//! The rows of phases on the screen: each below those that it is in, and names cut to their column: of long ones what tells them apart.
//!
//! Of `where:function` the function stays and the beginning of where goes; other names lose their middle. Where two are the same then, each is
//! shown from where they differ. Not for: the JSON and commands to type, which have names whole.

use crate::analyze::report::Phase;
use crate::output::table::cut;
use std::collections::HashMap;

/// Characters in front of where names differ.
const BEFORE: usize = 4;
/// Of phases in phases so many are indented.
const INDENTED: usize = 6;

/// A phase's row.
pub struct Row<'a> {
    pub phase: &'a Phase,
    /// How many of those that it is in have rows.
    depth: usize,
    /// How many names of its path those rows have said.
    said: usize,
}

impl Row<'_> {
    fn indent(&self) -> usize {
        2 * self.depth.min(INDENTED)
    }

    /// Its name, and in front of it those of phases that it is in and that have no row.
    fn name(&self) -> String {
        match self.phase.path.get(self.said..) {
            Some(rest) if rest.len() > 1 => rest.join(" › "),
            _ => self.phase.name.clone(),
        }
    }
}

/// The rows of phases, in whose order those that are in none of them stay, and those that are in the same one.
pub fn rows<'a>(phases: &[&'a Phase]) -> Vec<Row<'a>> {
    let mut by_path: HashMap<&[String], usize> = HashMap::new();
    phases.iter().enumerate().for_each(|(at, p)| {
        by_path.entry(&p.path).or_insert(at);
    });
    let outer = |p: &Phase| (1..p.path.len()).rev().find_map(|n| by_path.get(&p.path[..n]).copied());
    let mut inner: Vec<Vec<usize>> = vec![Vec::new(); phases.len()];
    let mut next: Vec<(usize, usize, usize)> = Vec::new();
    for (at, p) in phases.iter().enumerate() {
        match outer(p) {
            Some(outer) => inner[outer].push(at),
            None => next.push((at, 0, 0)),
        }
    }
    next.reverse();
    let mut rows = Vec::new();
    while let Some((at, depth, said)) = next.pop() {
        let phase = phases[at];
        rows.push(Row { phase, depth, said });
        next.extend(inner[at].iter().rev().map(|inner| (*inner, depth + 1, phase.path.len())));
    }
    rows
}

/// One name a row, indented by how deep it is.
pub fn shown(rows: &[Row], width: usize) -> Vec<String> {
    let whole: Vec<String> = rows.iter().map(Row::name).collect();
    let mut all: Vec<String> = whole.iter().zip(rows).map(|(name, row)| short(name, width - row.indent())).collect();
    let mut same: HashMap<(&[String], String), Vec<usize>> = HashMap::new();
    for (at, row) in rows.iter().enumerate() {
        same.entry((&row.phase.path[..row.said.min(row.phase.path.len())], all[at].clone())).or_default().push(at);
    }
    for group in same.into_values().filter(|g| g.len() > 1) {
        if group.windows(2).all(|two| whole[two[0]] == whole[two[1]]) {
            continue; // nothing tells them apart but their lines
        }
        let common = group.windows(2).map(|two| common(&whole[two[0]], &whole[two[1]])).min().unwrap_or(0);
        for at in group {
            let (name, width) = (&whole[at], width - rows[at].indent());
            if name.chars().count() > width {
                let rest: String = name.chars().skip(common.saturating_sub(BEFORE)).collect();
                all[at] = format!("…{}", cut(&rest, width - 1));
            }
        }
    }
    all.iter().zip(rows).map(|(name, row)| format!("{:indent$}{name}", "", indent = row.indent())).collect()
}

fn short(name: &str, width: usize) -> String {
    let n = name.chars().count();
    if n <= width {
        return name.to_owned();
    }
    match function(name).map(|at| &name[at..]) {
        Some(function) if function.chars().count() < width => {
            format!("…{}", name.chars().skip(n + 1 - width).collect::<String>())
        }
        Some(function) => format!("…{}", cut(function, width - 1)),
        None => cut(name, width),
    }
}

/// Where the function begins in `where:function`, the colon in front of it. Two colons are part of a name.
fn function(name: &str) -> Option<usize> {
    let bytes = name.as_bytes();
    let alone = |at: usize| bytes.get(at + 1).is_some_and(|c| *c != b':' && !c.is_ascii_whitespace()) && (at == 0 || bytes[at - 1] != b':');
    bytes.iter().enumerate().find(|(at, c)| **c == b':' && alone(*at)).map(|(at, _)| at)
}

/// Characters that both begin with.
fn common(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> Vec<String> {
        let phases = phases(all);
        shown(&rows(&phases.iter().collect::<Vec<_>>()), 20)
    }

    fn phases(all: &[&str]) -> Vec<Phase> {
        let phase = |path: &&str| {
            let path: Vec<String> = path.split(" > ").map(str::to_owned).collect();
            Phase { name: path.last().unwrap().clone(), path, ..Phase::default() }
        };
        all.iter().map(phase).collect()
    }

    #[test]
    fn a_phase_stands_below_the_one_it_is_in() {
        let got = names(&["load", "work", "load > parse", "work > a", "load > parse > line", "other > solve", "work > b > c"]);
        assert_eq!(got, ["load", "  parse", "    line", "work", "  a", "  b › c", "other › solve"]);
    }

    #[test]
    fn the_function_stays_where_the_file_is_long() {
        assert_eq!(names(&["very/long/path/to/run.py:solve", "short:f"]), ["…ath/to/run.py:solve", "short:f"]);
        assert_eq!(names(&["outer", "outer > very/long/path/to/run.py:solve"])[1], "  …h/to/run.py:solve");
        let long = names(&["libblas.so.3:a::b::c(std::vector<double, std::allocator<double>>)"]);
        assert!(long[0].starts_with("…:a::b::c(") && long[0].ends_with(">>)") && long[0].chars().count() == 20, "{long:?}");
        assert_eq!(names(&["Phase: assemble the matrix"])[0].chars().next(), Some('P'), "no function");
    }

    #[test]
    fn names_that_would_be_one_are_shown_from_where_they_differ() {
        let got = names(&["integrals of block 0017 of the basis", "integrals of block 0018 of the basis"]);
        assert!(got[0].contains("0017") && got[1].contains("0018") && got.iter().all(|n| n.chars().count() <= 20), "{got:?}");
        // The same name in two places is no other name.
        let twice = names(&["a", "b", "a > integrals of block 0017 of the basis", "b > integrals of block 0017 of the basis"]);
        assert_eq!(twice[1], twice[3]);
    }
}
