//! Which folders are watched: those on the way to what is wanted, the nearest first, so many and for so long; never the kernel's own.
//!
//! What lies below a root can be a whole machine. What is not looked into is counted, and said with what would help.

use super::Glob;
use crate::figures::{count, seconds};
use rustix::fs::inotify::{self, WatchFlags};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs::{self, Metadata};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Folders looked into before the start and at the end. Each watch takes about a kilobyte of the kernel's memory.
pub const NEAREST: usize = 10_000;
/// Those that come while the target runs have as much room again.
const WATCHED_MAX: usize = 2 * NEAREST;
/// A look takes no longer, whatever file system it is.
const LOOK: Duration = Duration::from_secs(5);

/// File systems without storage (`statfs`): what is read there is made up by the kernel, some of it without an end.
const NO_STORAGE: [i64; 17] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0xcafe_4a11, // bpf
    0x6165_676c, // pstore
    0x1cd1,      // devpts
    0x1980_0202, // mqueue
    0x6265_6570, // configfs
    0x4249_4e4d, // binfmt_misc
    0xde5e_81e4, // efivarfs
    0xf97c_ff8c, // selinuxfs
    0x6573_5543, // fusectl
    0x0187,      // autofs: looking mounts
];

/// What a look left out.
#[derive(Debug, Default)]
pub struct LeftOut {
    /// Folders not looked into; what lies below them is not counted.
    pub folders: u64,
    /// Folders for which the kernel gave no watch.
    pub unwatched: u64,
    /// Time was up.
    pub late: bool,
    /// Patterns that lead there.
    globs: BTreeSet<String>,
}

impl LeftOut {
    /// With what a later look left out: of the same folders those that are more, of everything else both.
    pub fn with(mut self, later: LeftOut) -> LeftOut {
        self.folders = self.folders.max(later.folders);
        self.unwatched = self.unwatched.max(later.unwatched);
        self.late |= later.late;
        self.globs.extend(later.globs);
        self
    }

    /// What is missing and what would help, in words; `None` where nothing is.
    pub fn said(&self) -> Option<String> {
        let globs = self.globs.iter().map(|g| format!("`{g}`")).collect::<Vec<_>>().join(", ");
        let why = if self.late {
            format!("looking took {}", seconds(LOOK.as_secs_f64()))
        } else {
            format!("{} are looked into", count(NEAREST as u64))
        };
        let crowded =
            (self.folders > 0).then(|| format!("too many folders; {why}, the nearest first: name the folder more closely, as 'dump/**'"));
        let unwatched = (self.unwatched > 0)
            .then(|| "the kernel gives no more watches: raise fs.inotify.max_user_watches, or name the folder more closely".to_owned());
        let said: Vec<String> = crowded.into_iter().chain(unwatched).collect();
        (!said.is_empty()).then(|| format!("{globs}: {}", said.join("; ")))
    }
}

/// See the module.
pub struct Folders {
    pub queue: OwnedFd,
    pub globs: Vec<Glob>,
    by_number: HashMap<i32, PathBuf>,
    pub left_out: LeftOut,
    /// Not at the end any more.
    pub watching: bool,
    /// Most folders that one look goes into.
    nearest: usize,
}

impl Folders {
    pub fn new(globs: Vec<Glob>, queue: OwnedFd) -> Self {
        Self { queue, globs, by_number: HashMap::new(), left_out: LeftOut::default(), watching: true, nearest: NEAREST }
    }

    /// The folder that an event is of.
    pub fn of(&self, number: i32) -> Option<&PathBuf> {
        self.by_number.get(&number)
    }

    /// It is gone, and its watch with it.
    pub fn forget(&mut self, number: i32) {
        self.by_number.remove(&number);
    }

    /// Those that the patterns begin in, as far as they are there.
    pub fn roots(&self) -> Vec<PathBuf> {
        let existing = |folder: &Path| folder.ancestors().find(|a| a.is_dir()).unwrap_or(Path::new("/")).to_path_buf();
        self.globs.iter().map(|g| existing(&g.base)).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Watches folders and those in them, as far as what is wanted may lie there, and gives each file in them to `found`.
    /// `wanted`: whether a path is to be looked at, folder or file.
    pub fn enter(&mut self, roots: &[PathBuf], wanted: impl Fn(&Path, &[Glob], bool) -> bool, mut found: impl FnMut(PathBuf, Metadata)) {
        let until = Instant::now() + LOOK;
        let mut next: VecDeque<(PathBuf, bool)> = roots.iter().map(|r| (r.clone(), true)).collect();
        let mut looked_into = 0;
        while let Some((folder, is_root)) = next.pop_front() {
            if !wanted(&folder, &self.globs, true) {
                continue;
            }
            let late = Instant::now() >= until;
            if looked_into >= self.nearest || late {
                self.left_out.folders += 1;
                self.left_out.late |= late;
                self.blame(&folder);
                continue;
            }
            if has_no_storage(&folder) {
                continue;
            }
            looked_into += 1;
            if self.watching {
                self.watch(&folder, is_root);
            }
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
                if kind.is_dir() {
                    next.push_back((path, false));
                } else if kind.is_file()
                    && wanted(&path, &self.globs, false)
                    && let Ok(m) = fs::symlink_metadata(&path)
                {
                    found(path, m);
                }
            }
        }
    }

    fn watch(&mut self, folder: &Path, is_root: bool) {
        let mut flags = WatchFlags::CLOSE_WRITE | WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        // A pattern may name a link to a folder; those found below are folders themselves.
        flags.set(WatchFlags::DONT_FOLLOW, !is_root);
        if self.by_number.len() >= WATCHED_MAX {
            self.left_out.unwatched += 1;
            return self.blame(folder);
        }
        match inotify::add_watch(&self.queue, folder, flags) {
            Ok(number) => drop(self.by_number.insert(number, folder.to_path_buf())),
            Err(rustix::io::Errno::NOSPC | rustix::io::Errno::NOMEM) => {
                self.left_out.unwatched += 1;
                self.blame(folder);
            }
            // Not ours to read, or gone again.
            Err(_) => {}
        }
    }

    fn blame(&mut self, folder: &Path) {
        let leading = self.globs.iter().filter(|g| g.leads_through(folder)).map(|g| g.text.clone());
        self.left_out.globs.extend(leading);
    }
}

fn has_no_storage(folder: &Path) -> bool {
    rustix::fs::statfs(folder).is_ok_and(|fs| NO_STORAGE.contains(&fs.f_type))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    fn folders(dir: &Path, globs: &[&str]) -> Folders {
        let globs = globs.iter().map(|g| Glob::new(OsStr::new(g), dir).unwrap()).collect();
        Folders::new(globs, inotify::init(inotify::CreateFlags::NONBLOCK).unwrap())
    }

    fn files(of: &mut Folders) -> Vec<String> {
        let mut all = Vec::new();
        let roots = of.roots();
        let wanted = |p: &Path, globs: &[Glob], folder: bool| globs.iter().any(|g| if folder { g.leads_through(p) } else { g.fits(p) });
        of.enter(&roots, wanted, |p, _| all.push(p.file_name().unwrap().to_string_lossy().into_owned()));
        all.sort();
        all
    }

    #[test]
    fn the_nearest_folders_come_first_and_the_rest_is_said_with_its_pattern() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["crowd/1/2/3", "crowd/b", "few"] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
            fs::write(dir.path().join(path).join(path.replace('/', "_")), "").unwrap();
        }
        let mut all = folders(dir.path(), &["crowd/**", "few/*"]);
        all.nearest = 4;
        assert_eq!(files(&mut all), ["crowd_b", "few"]);
        assert_eq!(all.left_out.folders, 1);
        let said = all.left_out.said().unwrap();
        assert!(said.starts_with("`crowd/**`: too many folders"), "{said}");
        let mut whole = folders(dir.path(), &["crowd/**", "few/*"]);
        assert_eq!(files(&mut whole), ["crowd_1_2_3", "crowd_b", "few"]);
        assert_eq!(whole.left_out.said(), None);
    }

    #[test]
    fn what_the_kernel_makes_up_is_no_file() {
        assert!(has_no_storage(Path::new("/proc")) && !has_no_storage(Path::new("/")));
        let mut all = folders(Path::new("/"), &["/proc/self/**"]);
        assert_eq!(files(&mut all), Vec::<String>::new());
    }

    #[test]
    fn a_pattern_may_begin_with_a_link_to_a_folder() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("real")).unwrap();
        fs::write(dir.path().join("real/f"), "").unwrap();
        std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
        let mut all = folders(dir.path(), &["link/*"]);
        assert_eq!((files(&mut all), all.by_number.len()), (vec!["f".to_owned()], 1));
    }
}
