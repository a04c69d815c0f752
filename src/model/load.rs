//! A trace file into images: whose line is it, and what does a spool add.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::forks::Forks;
use super::image::{Image, ImageEnd, Interest};
use crate::trace::family::{self, Member};
use crate::trace::line::{self, Header, Line};
use crate::trace::marks::{LeftOut, Marks, SideFiles};
use crate::trace::read::{Damage, LineReader};
use crate::trace::recover;
use crate::trace::spool::Owner;

/// How far reading has come, for a progress bar.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes of trace files read (decompressed).
    pub read: AtomicU64,
    /// Files read whole.
    pub files: AtomicU64,
}

/// Spools without a trace of their own: a process that could not create its file writes into another's.
#[derive(Debug, Default)]
pub struct Homeless(Mutex<HashMap<Owner, PathBuf>>);

impl Homeless {
    /// Takes those whose trace does not exist out of `members`.
    pub fn take_from(members: &mut Vec<Member>) -> Homeless {
        let spools = members.extract_if(.., |m| !m.path.exists()).flat_map(|m| m.spools);
        let owned = spools.filter_map(|s| recover::identify(&s).ok().map(|owner| (owner, s)));
        Homeless(Mutex::new(owned.collect()))
    }

    fn claim(&self, owner: Owner) -> Option<PathBuf> {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).remove(&owner)
    }

    /// Those that no trace knows the process of.
    pub fn left(self) -> Vec<PathBuf> {
        self.0.into_inner().unwrap_or_else(|e| e.into_inner()).into_values().collect()
    }
}

/// A file, read.
pub struct Loaded {
    pub path: PathBuf,
    pub images: Vec<ImageEnd>,
    pub damage: Damage,
    /// Lines before any header, or of a process that the file does not know.
    pub homeless: u64,
    /// What could not be read of spools.
    pub spool_problems: Vec<String>,
    /// What could not be read of the side file, and what was left out of it; said once a family.
    pub side: Option<(Damage, LeftOut)>,
    pub bytes: u64,
}

/// The images a file holds so far, and whose lines are being read.
struct Images<'a> {
    all: Vec<Image>,
    current: Option<usize>,
    homeless: u64,
    interest: &'a Interest,
    forks: &'a Forks,
    /// What was seen of them from outside.
    marks: Option<&'a Marks>,
}

impl Images<'_> {
    fn read(&mut self, line: Line) {
        match line {
            Line::Header(header) => self.begin(*header),
            Line::Process(p) => {
                let of = |i: &Image| {
                    let h = &i.header;
                    h.pid == p.pid && (p.start_ticks == 0 || h.start_ticks == p.start_ticks) && p.exec.is_none_or(|e| h.exec == e)
                };
                self.current = self.all.iter().rposition(of);
                if let Some(at) = self.current.filter(|_| p.recovered) {
                    self.all[at].mark_recovered();
                }
            }
            Line::Outside(outside) => {
                let pid = outside.get("pid").and_then(serde_json::Value::as_u64);
                let whose = self.all.iter().rposition(|i| Some(i.header.pid as u64) == pid);
                match (whose, self.current) {
                    (Some(i), _) => self.all[i].read(Line::Outside(outside)),
                    (None, Some(i)) => self.all[i].read(Line::Outside(of_everybody(outside))),
                    (None, None) => self.homeless += 1,
                }
            }
            line => match self.current {
                Some(i) => self.all[i].read(line),
                None => self.homeless += 1,
            },
        }
    }

    fn begin(&mut self, header: Header) {
        let same = |i: &Image| (i.header.pid, i.header.start_ticks, i.header.exec) == (header.pid, header.start_ticks, header.exec);
        // A header said twice (a recovered one) continues its image.
        self.current = match self.all.iter().rposition(same) {
            Some(i) => Some(i),
            None => {
                let earlier = self.all.iter_mut().filter(|i| (i.header.pid, i.header.start_ticks) == (header.pid, header.start_ticks));
                let mut first = true;
                for image in earlier {
                    image.cut_marks_at(header.mono_ns);
                    first = false;
                }
                let from = if first { 0 } else { header.mono_ns };
                let marks = self.marks.map(|m| m.of(header.pid, header.start_ticks, from)).unwrap_or_default();
                let mut image = Image::new(header, self.interest, self.forks);
                image.take_marks(marks);
                self.all.push(image);
                Some(self.all.len() - 1)
            }
        };
    }
}

/// What was seen of a process that the file does not know, less what is true of that process alone.
fn of_everybody(mut outside: serde_json::Value) -> serde_json::Value {
    // It has no trace: it is one of those that were seen.
    let number = |key: &str| outside[key].as_u64().unwrap_or(0);
    let (t, began) = (number("t"), number("t").saturating_sub(number("elapsed_ns")));
    let itself = serde_json::json!([number("pid"), 0, 0, "", number("hwm"), began, t]);
    if let Some(line) = outside.as_object_mut() {
        line.retain(|key, _| ["type", "t", "wall_ns", "cgroup", "slurm", "children"].contains(&key.as_str()));
        if let Some(seen) = line.entry("children").or_insert_with(|| serde_json::json!([])).as_array_mut() {
            seen.push(itself);
        }
    }
    outside
}

/// What files are read with.
pub struct Reading<'a> {
    pub homeless: &'a Homeless,
    pub side: &'a SideFiles,
    pub forks: &'a Forks,
    pub interest: &'a Interest,
    pub progress: &'a Progress,
}

/// Reads a file and the spools that belong to its images; what they inherited at forks is known where their parents were read before.
pub fn load(member: &Member, reading: &Reading) -> Loaded {
    let &Reading { homeless, side, forks, interest, progress } = reading;
    let mut images = Images { all: Vec::new(), current: None, homeless: 0, interest, forks, marks: side.beside(member) };
    let mut damage = Damage::default();
    let mut torn = Torn::default();
    let bytes = read_file(&member.path, &mut images, &mut damage, &mut torn, progress);
    let mut at_execs = torn.at_execs;
    let mut spool_problems = Vec::new();
    let owner = |i: &Image| Owner { pid: i.header.pid, start_ticks: i.header.start_ticks, exec: i.header.exec };
    let claimed: Vec<PathBuf> = images.all.iter().filter_map(|i| homeless.claim(owner(i))).collect();
    for spool in member.spools.iter().chain(&claimed) {
        let whole = read_spool(spool, &mut images, &mut spool_problems);
        if let Some((image, written)) = whole
            && Some(image) == images.current
            && torn.kept
            && torn.at >= written
        {
            damage.torn_tail = false;
            damage.frames -= torn.frame as u64;
        } else if whole.is_some() && at_execs > 0 {
            // The line that the exec cut is in the spool that its image left.
            at_execs -= 1;
            damage.lines -= 1;
            damage.first = damage.first.take().filter(|_| damage.lines > 0);
        }
    }
    progress.files.fetch_add(1, Ordering::Relaxed);
    let is_first = family::first_of(&member.path).is_none();
    let finish = |image: Image| {
        let mut image = image.finish();
        image.maps.forked.drain(..).for_each(|(fork, held)| forks.keep(fork, held));
        image
    };
    Loaded {
        side: side.beside(member).filter(|_| is_first).map(|m| (m.damage.clone(), m.lost.clone())),
        path: member.path.clone(),
        homeless: images.homeless,
        images: images.all.into_iter().map(finish).collect(),
        damage,
        spool_problems,
        bytes,
    }
}

/// A last line that breaks off.
#[derive(Default)]
struct Torn {
    /// Of a kind that a spool keeps until it has been written whole.
    kept: bool,
    /// Where it begins in the file.
    at: u64,
    /// It is in a compressed frame that was not ended.
    frame: bool,
    /// Lines of such kinds that break off where the next image of a process goes on.
    at_execs: u64,
}

/// Kinds of lines that a spool keeps until they have been written whole, or says anew.
const KEPT: [&str; 15] = [
    "ev", "kinds", "maps", "gpu", "phase", "thread", "child", "nodes", "pynodes", "code", "modules", "calls", "pyev", "pycalls", "pythread",
];

fn is_kept(torn: &[u8]) -> bool {
    KEPT.iter().any(|kind| {
        let begin = format!("{{\"type\":\"{kind}\"");
        begin.as_bytes().starts_with(torn) || torn.starts_with(begin.as_bytes())
    })
}

fn read_file(path: &Path, images: &mut Images, damage: &mut Damage, torn: &mut Torn, progress: &Progress) -> u64 {
    let mut reader = match LineReader::open(path) {
        Ok(reader) => reader,
        Err(e) => {
            damage.error = Some(e.to_string());
            return 0;
        }
    };
    let mut number = 0;
    let mut told = 0;
    // The line before breaks off.
    let mut broken = false;
    loop {
        number += 1;
        let read = reader.read;
        match reader.next_line() {
            Ok(None) => break,
            Err(e) => {
                damage.error = Some(e.to_string());
                break;
            }
            Ok(Some(raw)) if raw.bytes.iter().all(u8::is_ascii_whitespace) => {}
            Ok(Some(raw)) => match line::parse(raw.bytes) {
                Ok(Line::Unknown) => damage.unknown_types += 1,
                Ok(line) => {
                    torn.at_execs += (broken && matches!(&line, Line::Header(h) if h.exec > 0)) as u64;
                    broken = false;
                    images.read(line);
                }
                Err(_) if !raw.whole => {
                    damage.torn_tail = true;
                    *torn = Torn { kept: is_kept(raw.bytes), at: read, frame: false, ..*torn };
                }
                Err(e) => {
                    damage.lines += 1;
                    broken = is_kept(raw.bytes);
                    damage.first.get_or_insert_with(|| (number, e.to_string()));
                }
            },
        }
        if read - told > 1 << 20 {
            progress.read.fetch_add(read - told, Ordering::Relaxed);
            told = read;
        }
    }
    progress.read.fetch_add(reader.read - told, Ordering::Relaxed);
    damage.frames = reader.damaged_frames();
    if reader.ends_in_a_frame() {
        // Up to its end everything is there, in whole blocks.
        let len = std::fs::metadata(path).map_or(0, |m| m.len());
        *torn = Torn { kept: !damage.torn_tail || torn.kept, at: len, frame: true, ..*torn };
    }
    damage.lines += reader.too_long;
    reader.read
}

/// Gives the image whose spool it is, where all that it lacked could be read, and how many bytes of the file were written by then.
fn read_spool(path: &Path, images: &mut Images, problems: &mut Vec<String>) -> Option<(usize, u64)> {
    let before = problems.len();
    let mut problem = |what: String| problems.push(format!("{}: {what}", path.display()));
    let owner = match recover::identify(path) {
        Ok(owner) => owner,
        Err(e) => {
            problem(e.to_string());
            return None;
        }
    };
    let of = |i: &Image| (i.header.pid, i.header.start_ticks, i.header.exec) == (owner.pid, owner.start_ticks, owner.exec);
    let Some(at) = images.all.iter().rposition(of) else {
        problem("it belongs to no process of this trace".into());
        return None;
    };
    let image = &mut images.all[at];
    // A spool in use moves on between two reads of it: the trace alone is a whole state, a little older.
    if image.is_running() {
        image.mark_running();
        return None;
    }
    let mut written = u64::MAX;
    match recover::recover(path, image.header.tick_ns) {
        Ok(recovered) => {
            written = recovered.trace_len;
            image.mark_recovered();
            for text in recovered.lines.split(|&c| c == b'\n').filter(|l| !l.is_empty()) {
                match line::parse(text) {
                    Ok(Line::Process(_)) => {}
                    Ok(line) => image.read(line),
                    Err(e) => problem(format!("a recovered line does not parse: {e}")),
                }
            }
            recovered.problems.into_iter().for_each(problem);
        }
        Err(e) => problem(e.to_string()),
    }
    (problems.len() == before).then_some((at, written))
}
