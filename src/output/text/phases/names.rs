//! Names of phases in a column of the screen: of long ones what tells them apart.
//!
//! Of `where:function` the function stays and the beginning of where goes; other names lose their middle. Where two are the same then, each is
//! shown from where they differ. Not for: the JSON and commands to type, which have names whole.

use crate::analyze::report::Phase;
use crate::output::table::cut;
use std::collections::HashMap;

/// Characters in front of where names differ.
const BEFORE: usize = 4;

/// One name a phase, indented by how deep it is.
pub fn shown(phases: &[&Phase], width: usize) -> Vec<String> {
    let indent = |p: &Phase| 2 * p.path.len().saturating_sub(1).min(6);
    let mut all: Vec<String> = phases.iter().map(|p| short(&p.name, width - indent(p))).collect();
    let mut same: HashMap<(&[String], String), Vec<usize>> = HashMap::new();
    for (at, p) in phases.iter().enumerate() {
        same.entry((p.path.split_last().map_or(&[], |(_, outer)| outer), all[at].clone())).or_default().push(at);
    }
    for group in same.into_values().filter(|g| g.len() > 1) {
        if group.windows(2).all(|two| phases[two[0]].name == phases[two[1]].name) {
            continue; // nothing tells them apart but their lines
        }
        let common = group.windows(2).map(|two| common(&phases[two[0]].name, &phases[two[1]].name)).min().unwrap_or(0);
        for at in group {
            let (name, width) = (&phases[at].name, width - indent(phases[at]));
            if name.chars().count() > width {
                let rest: String = name.chars().skip(common.saturating_sub(BEFORE)).collect();
                all[at] = format!("…{}", cut(&rest, width - 1));
            }
        }
    }
    all.iter().zip(phases).map(|(name, p)| format!("{:indent$}{name}", "", indent = indent(p))).collect()
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
        let phase = |path: &&str| {
            let path: Vec<String> = path.split(" > ").map(str::to_owned).collect();
            Phase { name: path.last().unwrap().clone(), path, ..Phase::default() }
        };
        let phases: Vec<Phase> = all.iter().map(phase).collect();
        shown(&phases.iter().collect::<Vec<_>>(), 20)
    }

    #[test]
    fn the_function_stays_where_the_file_is_long() {
        assert_eq!(names(&["very/long/path/to/run.py:solve", "short:f"]), ["…ath/to/run.py:solve", "short:f"]);
        assert_eq!(names(&["outer > very/long/path/to/run.py:solve"]), ["  …h/to/run.py:solve"]);
        let long = names(&["libblas.so.3:a::b::c(std::vector<double, std::allocator<double>>)"]);
        assert!(long[0].starts_with("…:a::b::c(") && long[0].ends_with(">>)") && long[0].chars().count() == 20, "{long:?}");
        assert_eq!(names(&["Phase: assemble the matrix"])[0].chars().next(), Some('P'), "no function");
    }

    #[test]
    fn names_that_would_be_one_are_shown_from_where_they_differ() {
        let got = names(&["integrals of block 0017 of the basis", "integrals of block 0018 of the basis"]);
        assert!(got[0].contains("0017") && got[1].contains("0018") && got.iter().all(|n| n.chars().count() <= 20), "{got:?}");
        // The same name in two places is no other name.
        let twice = names(&["a > integrals of block 0017 of the basis", "b > integrals of block 0017 of the basis"]);
        assert_eq!(twice[0], twice[1]);
    }
}
