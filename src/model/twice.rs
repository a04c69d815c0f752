//! The same process in several files: a copy of a trace beside it. It counts once.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::PathBuf;

use super::image::ImageEnd;
use super::load::Loaded;

/// A file that holds processes which another one holds too: how many images, and that other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Twice {
    pub file: PathBuf,
    pub images: u64,
    pub other: PathBuf,
}

/// Names an image for good: run, host, pid, start of the process, number of the image, its begin.
type Name<'a> = (&'a str, &'a str, u32, u64, u32, u64);

fn name(image: &ImageEnd) -> Name<'_> {
    let h = &image.header;
    (&h.run, &h.host.0, h.pid, h.start_ticks, h.exec, h.mono_ns)
}

/// What is known of an image: of two the one is kept of which more is.
fn known(image: &ImageEnd) -> (bool, bool, u64, u64, usize) {
    let (seen, facts) = (&image.seen, &image.marks);
    let told = facts.compiles.len() + facts.artifacts.len() + image.phases.edges.len() + image.phases.marks.len();
    (seen.end.is_some(), seen.outside.is_some(), seen.last_t.0, image.counts.calls(), told)
}

/// Takes out of the files what others hold, and the files in which nothing is left then. Of equals the first is kept.
pub fn take_out(files: &mut Vec<Loaded>) -> Vec<Twice> {
    let mut best: HashMap<Name, (usize, usize)> = HashMap::new();
    let mut lost: Vec<(usize, usize, usize)> = Vec::new();
    for (f, file) in files.iter().enumerate() {
        for (i, image) in file.images.iter().enumerate() {
            let kept = *best.entry(name(image)).or_insert((f, i));
            if kept.0 == f {
                continue;
            }
            let more = (known(image), Reverse(f)) > (known(&files[kept.0].images[kept.1]), Reverse(kept.0));
            let (kept, gone) = if more { ((f, i), kept) } else { (kept, (f, i)) };
            best.insert(name(image), kept);
            lost.push((gone.0, gone.1, kept.0));
        }
    }
    // Of three copies the one that is kept is known at the end.
    let named: Vec<(usize, usize)> =
        lost.iter().map(|&(f, i, other)| (f, best.get(&name(&files[f].images[i])).map_or(other, |kept| kept.0))).collect();
    let mut found: Vec<Twice> = Vec::new();
    for &(f, other) in &named {
        let (file, other) = (files[f].path.clone(), files[other].path.clone());
        match found.iter_mut().find(|t| t.file == file && t.other == other) {
            Some(twice) => twice.images += 1,
            None => found.push(Twice { file, images: 1, other }),
        }
    }
    lost.sort_unstable();
    for &(f, i, _) in lost.iter().rev() {
        files[f].images.remove(i);
    }
    let gone: Vec<PathBuf> = found.iter().map(|t| t.file.clone()).collect();
    files.retain(|file| !(file.images.is_empty() && gone.contains(&file.path)));
    found
}
