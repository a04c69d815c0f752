//! The side file of a run (`trace.jsonl.marks`): what was seen of its processes from outside while they ran, a line each, in any order.
//!
//! Edges of phases (`memshim mark`, lines that a program printed), compile notices, files that appeared. Not for: the traces' own lines
//! (`line`), what phases amount to (the model).

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use memshim_format::phase::SOURCES;
pub use memshim_format::phase::Source;
use serde::{Deserialize, Serialize};

use super::family::{self, Member};
use super::glance::Seen;
use super::line::Text;
use super::read::{Damage, LineReader};

/// What happens at an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    Begin,
    /// Of the phase of that name; without a name of the innermost open one. Of the edge's source.
    End,
    /// Ends what is open of this source and begins this one.
    Next,
    Mark,
}

/// An edge of a phase, placed by its time: nobody outside knows threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    pub t: u64,
    pub what: What,
    pub name: String,
    pub source: Source,
    /// What was live in the process then (fast mode, where its spool is shared).
    pub seen: Option<Seen>,
    /// What it had resident then.
    pub resident: Option<Resident>,
    /// It was so many ns earlier at most; `None`: nobody knows.
    pub late: Option<u64>,
}

/// Resident memory of a process, and the most that it had of it, bytes: `VmRSS` and `VmHWM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resident {
    pub rss: u64,
    pub hwm: u64,
}

/// A notice that a function was compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compile {
    pub t: u64,
    /// Who compiled: `jax`, `inductor`, ….
    pub by: String,
    pub function: String,
    /// What it was compiled for, argument by argument; empty where the notice does not say.
    pub signature: Vec<String>,
    /// How long it took, where it says so.
    pub ns: Option<u64>,
    /// Why it was compiled anew, in the compiler's own words.
    pub why: Option<String>,
}

/// A file that was written while the process ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    /// When it was last written to, so far as could be seen.
    pub t: u64,
    pub path: String,
    /// `None` where it was gone before anybody could look.
    pub bytes: Option<u64>,
    /// Line ends in it; `None` where it could not be read.
    pub lines: Option<u64>,
    /// It was gone again at the end.
    pub deleted: bool,
}

/// A rule for lines of output that fitted none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    pub t: u64,
    pub rule: String,
}

/// What a side file says of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub edges: Vec<Edge>,
    pub compiles: Vec<Compile>,
    pub artifacts: Vec<Artifact>,
    pub unmet: Vec<Unmet>,
}

impl Facts {
    /// Only what was before `t`.
    pub fn cut_at(&mut self, t: u64) {
        self.edges.retain(|e| e.t < t);
        self.compiles.retain(|c| c.t < t);
        self.artifacts.retain(|a| a.t < t);
        self.unmet.retain(|u| u.t < t);
    }
}

/// One line; keys as in `docs/trace-format.md`.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum Line {
    Edge {
        what: What,
        #[serde(default)]
        name: Text,
        source: String,
        #[serde(default)]
        seen: Option<Seen>,
        #[serde(default)]
        resident: Option<Resident>,
        #[serde(default)]
        late: Option<u64>,
    },
    Compile {
        by: Text,
        function: Text,
        #[serde(default)]
        signature: Vec<Text>,
        #[serde(default)]
        ns: Option<u64>,
        #[serde(default)]
        why: Option<Text>,
    },
    Artifact {
        path: Text,
        #[serde(default)]
        bytes: Option<u64>,
        #[serde(default)]
        lines: Option<u64>,
        #[serde(default)]
        deleted: bool,
    },
    Unmet {
        rule: Text,
    },
    /// So many facts were left out: of which kind, and why.
    Lost {
        n: u64,
        #[serde(default)]
        what: Option<Text>,
        #[serde(default)]
        why: Option<Text>,
    },
    #[serde(other)]
    Unknown,
}

/// Whose line it is, and when.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Stamp {
    t: u64,
    pid: u32,
    /// 0: any process of that number.
    #[serde(default)]
    start_ticks: u64,
}

enum Fact {
    Edge(Edge),
    Compile(Compile),
    Artifact(Artifact),
    Unmet(Unmet),
}

/// Facts that were left out, by what they are and why.
pub type LeftOut = BTreeMap<(String, String), u64>;

/// A side file, read.
#[derive(Default)]
pub struct Marks {
    /// By process number, in the order of their times.
    of: HashMap<u32, Vec<(Stamp, Fact)>>,
    pub damage: Damage,
    pub lost: LeftOut,
}

impl Marks {
    /// What can be read of a file.
    pub fn read(path: &Path) -> Marks {
        let mut marks = Marks::default();
        if let Err(e) = marks.read_lines(path) {
            marks.damage.error = Some(e.to_string());
        }
        for rows in marks.of.values_mut() {
            // Stable: what one writer wrote at one instant stays in its order.
            rows.sort_by_key(|(stamp, _)| stamp.t);
        }
        marks
    }

    fn read_lines(&mut self, path: &Path) -> std::io::Result<()> {
        let mut reader = LineReader::open(path)?;
        let mut number = 0;
        while let Some(raw) = reader.next_line()? {
            number += 1;
            let parsed = serde_json::from_slice::<Line>(raw.bytes).map(|line| (line, serde_json::from_slice::<Stamp>(raw.bytes)));
            match parsed {
                Ok((Line::Unknown, _)) => self.damage.unknown_types += 1,
                Ok((Line::Lost { n, what, why }, _)) => {
                    let of = what.map_or("facts of the output".into(), |w| w.0);
                    let sum = self.lost.entry((of, why.map_or("more lines fit the rules than are kept".into(), |w| w.0))).or_default();
                    *sum = sum.saturating_add(n);
                }
                Ok((line, Ok(stamp))) => match fact(line, stamp.t) {
                    Some(fact) => self.of.entry(stamp.pid).or_default().push((stamp, fact)),
                    None => self.damage.unknown_types += 1,
                },
                Ok((_, Err(e))) | Err(e) => match raw.whole {
                    false => self.damage.torn_tail = true,
                    true => {
                        self.damage.lines += 1;
                        self.damage.first.get_or_insert_with(|| (number, e.to_string()));
                    }
                },
            }
        }
        self.damage.lines += reader.too_long;
        Ok(())
    }

    /// What it says of a process from `from` on.
    pub fn of(&self, pid: u32, start_ticks: u64, from: u64) -> Facts {
        let mut facts = Facts::default();
        for (stamp, fact) in self.of.get(&pid).into_iter().flatten() {
            if stamp.t < from || stamp.start_ticks != 0 && start_ticks != 0 && stamp.start_ticks != start_ticks {
                continue;
            }
            match fact {
                Fact::Edge(e) => facts.edges.push(e.clone()),
                Fact::Compile(c) => facts.compiles.push(c.clone()),
                Fact::Artifact(a) => facts.artifacts.push(a.clone()),
                Fact::Unmet(u) => facts.unmet.push(u.clone()),
            }
        }
        facts
    }
}

/// `None`: of a source that this version does not know.
fn fact(line: Line, t: u64) -> Option<Fact> {
    Some(match line {
        Line::Edge { what, name, source, seen, resident, late } => {
            let source = [Source::Output, Source::Mark].into_iter().find(|s| SOURCES[*s as usize] == source)?;
            // Who marks says when it is.
            let late = late.or((source == Source::Mark).then_some(0));
            Fact::Edge(Edge { t, what, name: name.0, source, seen, resident, late })
        }
        Line::Compile { by, function, signature, ns, why } => Fact::Compile(Compile {
            t,
            by: by.0,
            function: function.0,
            signature: signature.into_iter().map(|s| s.0).collect(),
            ns,
            why: why.map(|w| w.0),
        }),
        Line::Artifact { path, bytes, lines, deleted } => Fact::Artifact(Artifact { t, path: path.0, bytes, lines, deleted }),
        Line::Unmet { rule } => Fact::Unmet(Unmet { t, rule: rule.0 }),
        Line::Lost { .. } | Line::Unknown => return None,
    })
}

/// The side files of all members that are read, each read once.
#[derive(Default)]
pub struct SideFiles(BTreeMap<PathBuf, Marks>);

impl SideFiles {
    pub fn of(members: &[Member]) -> SideFiles {
        let mut all = BTreeMap::new();
        for path in members.iter().filter_map(|m| family::side_file(&m.path)) {
            all.entry(path).or_insert_with_key(|path| Marks::read(path));
        }
        SideFiles(all)
    }

    /// The side file of a member's family.
    pub fn beside(&self, member: &Member) -> Option<&Marks> {
        self.0.get(&family::side_file(&member.path)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Marks {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.jsonl.marks");
        std::fs::write(&path, text).unwrap();
        Marks::read(&path)
    }

    #[test]
    fn edges_come_in_the_order_of_their_times_and_only_to_their_process() {
        let marks = read(concat!(
            r#"{"type":"edge","t":30,"pid":7,"what":"next","name":"B","source":"output"}"#,
            "\n",
            r#"{"type":"edge","t":20,"pid":7,"start_ticks":5,"what":"mark","name":{"hex":"ff41"},"source":"mark"}"#,
            "\n",
            r#"{"type":"edge","t":20,"pid":7,"start_ticks":6,"what":"end","source":"mark"}"#,
            "\n",
            r#"{"type":"edge","t":25,"pid":8,"what":"begin","name":"other","source":"mark"}"#,
            "\n",
        ));
        let edge = |t, what, name: &str, source| {
            let late = (source == Source::Mark).then_some(0);
            Edge { t, what, name: name.into(), source, seen: None, resident: None, late }
        };
        let of_5 = marks.of(7, 5, 0).edges;
        assert_eq!(of_5, [edge(20, What::Mark, "\u{fffd}A", Source::Mark), edge(30, What::Next, "B", Source::Output)]);
        assert_eq!(marks.of(7, 6, 0).edges[0], edge(20, What::End, "", Source::Mark));
        assert_eq!(marks.of(7, 5, 21).edges.len(), 1, "from then on");
        assert_eq!(marks.of(9, 0, 0), Facts::default());
        assert_eq!(marks.damage, Damage::default());
    }

    #[test]
    fn what_can_t_be_read_is_counted_and_the_rest_is_used() {
        let marks = read(concat!(
            "{\"type\":\"weather\",\"t\":1,\"pid\":7}\n",
            "{\"type\":\"edge\",\"t\":1,\"pid\":7,\"what\":\"mark\",\"name\":\"a\",\"source\":\"stars\"}\n",
            "nonsense\n",
            "{\"type\":\"compile\",\"t\":2,\"pid\":7,\"by\":\"jax\",\"function\":\"f\",\"signature\":[\"f32[3]\"],\"ns\":5}\n",
            "{\"type\":\"artifact\",\"t\":3,\"pid\":7,\"path\":\"a.ll\",\"bytes\":10,\"lines\":2}\n",
            "{\"type\":\"lost\",\"t\":3,\"pid\":7,\"n\":2}\n{\"type\":\"lost\",\"t\":3,\"pid\":7,\"n\":3}\n",
            "{\"type\":\"lost\",\"t\":3,\"pid\":7,\"n\":4,\"what\":\"folders\",\"why\":\"too many\"}\n",
            "{\"type\":\"edge\",\"t\":4,\"pi",
        ));
        let lost: Vec<_> = marks.lost.iter().map(|((what, _), n)| (what.as_str(), *n)).collect();
        assert_eq!(lost, [("facts of the output", 5), ("folders", 4)]);
        assert_eq!((marks.damage.unknown_types, marks.damage.lines, marks.damage.torn_tail), (2, 1, true));
        let mut facts = marks.of(7, 0, 0);
        assert_eq!((facts.edges.len(), facts.compiles.len(), facts.artifacts.len()), (0, 1, 1));
        assert_eq!((&*facts.compiles[0].signature[0], facts.artifacts[0].lines), ("f32[3]", Some(2)));
        facts.cut_at(3);
        assert_eq!((facts.compiles.len(), facts.artifacts.len()), (1, 0));
    }
}
