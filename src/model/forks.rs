//! What forked children inherit of their parents' mappings: the parent's table as its calls had shaped it by the fork.
//!
//! A child says which place in the order of all map calls came next when it was made (`inherited.map_ticket`). Its parent's trace is read before its own, and
//! leaves the table of that place here. Not for: the heap, of which the child itself knows what was live.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::maps::MapsHeld;
use crate::trace::family::Member;
use crate::trace::line::{self, Header, Line};
use crate::trace::read::LineReader;

/// Ranges remembered of all forks of one image together; children of later forks do not know what they inherited.
pub const RANGES_KEPT: usize = 1 << 20;

/// A process, for as long as it lives: host, number space, number, and when it was forked.
type Whose = (String, u64, u32, u64);

/// Processes that had one number one after another: when each began, and its file.
type Begun = Vec<(u64, usize)>;

/// A fork, as the child tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fork {
    child: Whose,
    parent: u32,
    /// Place of the parent's first map call after it.
    pub ticket: u64,
}

impl Fork {
    /// `None`: it is no forked child, or says nothing of its maps.
    fn of(header: &Header) -> Option<Fork> {
        let inherited = header.inherited.as_ref()?;
        let child = (header.host.0.clone(), header.pid_ns, header.pid, header.mono_ns);
        Some(Fork { child, parent: inherited.from, ticket: inherited.map_ticket? })
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Forks {
    all: Vec<Fork>,
    held: Mutex<HashMap<Whose, Arc<MapsHeld>>>,
}

impl Forks {
    /// The forks that the files tell of, and the files in the order in which they are to be read: those of a generation may be read side by side.
    pub fn of(members: &[Member]) -> (Forks, Vec<Vec<usize>>) {
        let heads: Vec<Option<Header>> = members.iter().map(first_header).collect();
        let fork_of: Vec<Option<Fork>> = heads.iter().map(|h| Fork::of(h.as_ref()?)).collect();
        let mut by_pid: HashMap<(&str, u64, u32), Begun> = HashMap::new();
        for (i, h) in heads.iter().enumerate().filter_map(|(i, h)| Some((i, h.as_ref()?))) {
            by_pid.entry((&h.host.0, h.pid_ns, h.pid)).or_default().push((h.mono_ns, i));
        }
        let parent_of = |i: usize| {
            let fork = fork_of[i].as_ref()?;
            let (host, pid_ns, _, at) = &fork.child;
            let named = by_pid.get(&(host.as_str(), *pid_ns, fork.parent))?;
            named.iter().filter(|(began, file)| began <= at && *file != i).max().map(|(_, file)| *file)
        };
        let mut generations: Vec<Vec<usize>> = vec![Vec::new()];
        for i in 0..members.len() {
            let line = std::iter::successors(parent_of(i), |&at| parent_of(at)).take(members.len());
            let generation = line.count();
            if generations.len() <= generation {
                generations.resize(generation + 1, Vec::new());
            }
            generations[generation].push(i);
        }
        generations.retain(|g| !g.is_empty());
        (Forks { all: fork_of.into_iter().flatten().collect(), held: Mutex::default() }, generations)
    }

    /// Those that an image made, in the order of their places.
    pub fn by(&self, header: &Header) -> Vec<Fork> {
        let by = |f: &&Fork| {
            let (host, pid_ns, _, at) = &f.child;
            (host, *pid_ns, f.parent) == (&header.host.0, header.pid_ns, header.pid) && *at >= header.mono_ns
        };
        let mut own: Vec<Fork> = self.all.iter().filter(by).cloned().collect();
        own.sort_by_key(|f| f.ticket);
        own
    }

    /// What was mapped at a fork. Of an image that exec made the forks before it are no business: the last word counts.
    pub fn keep(&self, fork: Fork, held: Arc<MapsHeld>) {
        self.held.lock().unwrap_or_else(|e| e.into_inner()).insert(fork.child, held);
    }

    /// What an image inherited; `None`: nothing, or nobody knows what.
    pub fn inherited_by(&self, header: &Header) -> Option<Arc<MapsHeld>> {
        let fork = Fork::of(header)?;
        // It stays: a copy of the trace may be read, too.
        self.held.lock().unwrap_or_else(|e| e.into_inner()).get(&fork.child).cloned()
    }
}

/// A file's first line.
fn first_header(member: &Member) -> Option<Header> {
    let mut reader = LineReader::open(&member.path).ok()?;
    match line::parse(reader.next_line().ok()??.bytes) {
        Ok(Line::Header(header)) => Some(*header),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_read_before_their_children() {
        let dir = tempfile::tempdir().unwrap();
        let member = |pid: u32, at: u64, inherited: &str| {
            let path = dir.path().join(format!("{pid}-{at}.jsonl"));
            let text = format!("{{\"type\":\"header\",\"v\":1,\"pid\":{pid},\"host\":\"h\",\"mono_ns\":{at}{inherited}}}\n");
            std::fs::write(&path, text).unwrap();
            Member { path, spools: Vec::new() }
        };
        let of = |from: u32| format!(",\"inherited\":{{\"live\":0,\"blocks\":0,\"from\":{from},\"map_ticket\":7}}");
        // 3 was forked by 2, 2 by 1; 5 by one that is not there; an earlier and a later process had the number 2, too.
        let all =
            [member(3, 30, &of(2)), member(2, 20, &of(1)), member(1, 10, ""), member(5, 12, &of(4)), member(2, 5, ""), member(2, 90, "")];
        let (forks, generations) = Forks::of(&all);
        assert_eq!(generations, [vec![2, 3, 4, 5], vec![1], vec![0]]);
        let header = |i: usize| first_header(&all[i]).unwrap();
        let made = |i: usize| forks.by(&header(i)).iter().map(|f| (f.child.2, f.ticket)).collect::<Vec<_>>();
        assert_eq!((made(2), made(1), made(5)), (vec![(2, 7)], vec![(3, 7)], vec![]));
        assert!(forks.inherited_by(&header(0)).is_none());
        forks.keep(forks.by(&header(1))[0].clone(), Arc::default());
        assert_eq!([(); 2].map(|()| forks.inherited_by(&header(0))), [Some(Arc::default()), Some(Arc::default())], "of a copy, too");
    }
}
