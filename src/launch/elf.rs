//! What kind of program a file is, as far as that decides whether a preloaded library can see into it.

use super::capabilities;
use nix::libc;
use nix::sys::statvfs::{FsFlags, statvfs};
use object::elf;
use object::read::elf::{Dyn, ElfFile, FileHeader, ProgramHeader};
use object::{Architecture, Endianness, Object, ObjectSymbol, ReadCache, ReadRef};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A `#!` chain is followed at most this far, as the kernel does.
const MAX_INTERPRETERS: usize = 4;

/// A program file, looked at without running it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The scripts on the way, then the file that the kernel loads.
    pub chain: Vec<PathBuf>,
    pub image: Image,
    /// Set-user-id, set-group-id or file capabilities: ld.so ignores LD_PRELOAD paths there.
    pub privileged: Option<&'static str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Image {
    /// A dynamically linked program of our class and machine.
    Dynamic {
        loader: String,
        needed: Vec<String>,
        own_malloc: Vec<String>,
    },
    /// No program interpreter: nothing reads LD_PRELOAD.
    Static,
    /// A class or machine that our library was not built for.
    Foreign(String),
    NotElf,
    Unreadable(String),
}

impl Program {
    pub fn look(path: &Path) -> Self {
        let mut chain = vec![path.to_path_buf()];
        while chain.len() <= MAX_INTERPRETERS {
            match script_interpreter(chain.last().expect("starts with one")) {
                Some(next) => chain.push(next),
                None => break,
            }
        }
        let last = chain.last().expect("starts with one").clone();
        Self { image: look_at(&last), privileged: privileged(&last), chain }
    }

    /// Why the shim does not get into this program; `None` where it should.
    pub fn obstacle(&self) -> Option<String> {
        let file = self.chain.last()?.display().to_string();
        if let Some(why) = self.privileged {
            return Some(format!("{file} {why}: the loader ignores LD_PRELOAD there; run it as its owner, or a copy without that right"));
        }
        match &self.image {
            Image::Static => {
                Some(format!("{file} is statically linked: nothing reads LD_PRELOAD there; link it dynamically to see its heap"))
            }
            Image::Foreign(what) => {
                Some(format!("{file} is {what}; libmemshim.so here is {}: take a program of that machine", std::env::consts::ARCH))
            }
            Image::NotElf => Some(format!("{file} is not an ELF program")),
            Image::Unreadable(why) => Some(format!("{file}: {why}")),
            Image::Dynamic { .. } => None,
        }
    }
}

/// The interpreter that a `#!` line names; `env` is followed to the program it would run.
fn script_interpreter(path: &Path) -> Option<PathBuf> {
    let mut head = [0u8; 256];
    let n = File::open(path).ok()?.read(&mut head).ok()?;
    let line = head[..n].strip_prefix(b"#!")?.split(|&b| b == b'\n').next()?;
    let mut words = line.split(|b| b.is_ascii_whitespace()).filter(|w| !w.is_empty());
    let interpreter = PathBuf::from(OsStr::from_bytes(words.next()?));
    if interpreter.file_name() != Some(OsStr::new("env")) {
        return Some(interpreter);
    }
    let program = words.find(|w| !w.starts_with(b"-") && !w.contains(&b'='))?;
    let env: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    super::spawn::find_program(OsStr::from_bytes(program), &env).or(Some(interpreter))
}

fn privileged(path: &Path) -> Option<&'static str> {
    let meta = path.metadata().ok()?;
    // Where such rights are not given at all, nothing changes hands and the library is loaded.
    let mounted = statvfs(path).is_ok_and(|s| s.flags().contains(FsFlags::ST_NOSUID));
    if mounted || super::proc::no_new_privileges() {
        return None;
    }
    let (user, group) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    // The loader turns "secure" only where an id really changes.
    if meta.mode() & libc::S_ISUID != 0 && meta.uid() != user {
        return Some("is set-user-id");
    }
    if meta.mode() & libc::S_ISGID != 0 && meta.gid() != group {
        return Some("is set-group-id");
    }
    // Root has them all already, and to it the loader stays ordinary.
    (user != 0 && capabilities::are_given_by(path)).then_some("has file capabilities")
}

fn look_at(path: &Path) -> Image {
    let file = match File::open(path) {
        Ok(f) => f,
        Err(e) => return Image::Unreadable(e.to_string()),
    };
    let cache = ReadCache::new(file);
    let class = match (&cache).read_bytes_at(0, 5) {
        Ok([0x7f, b'E', b'L', b'F', class]) => *class,
        _ => return Image::NotElf,
    };
    let image = match class {
        2 => ElfFile::<elf::FileHeader64<Endianness>, _>::parse(&cache).and_then(|f| image_of(&f)),
        _ => ElfFile::<elf::FileHeader32<Endianness>, _>::parse(&cache).and_then(|f| image_of(&f)),
    };
    image.unwrap_or_else(|e| Image::Unreadable(e.to_string()))
}

fn image_of<'d, H: FileHeader, R: ReadRef<'d>>(file: &ElfFile<'d, H, R>) -> object::Result<Image> {
    let endian = file.elf_header().endian()?;
    let ours = match std::env::consts::ARCH {
        "x86_64" => Architecture::X86_64,
        "aarch64" => Architecture::Aarch64,
        _ => Architecture::Unknown,
    };
    if file.architecture() != ours && ours != Architecture::Unknown || file.is_64() != cfg!(target_pointer_width = "64") {
        return Ok(Image::Foreign(format!("a {}-bit {:?} program", if file.is_64() { 64 } else { 32 }, file.architecture())));
    }
    let mut loader = None;
    for segment in file.elf_program_headers() {
        if let Some(path) = segment.interpreter(endian, file.data())? {
            loader = Some(String::from_utf8_lossy(path).into_owned());
        }
    }
    let Some(loader) = loader else { return Ok(Image::Static) };
    let table = file.elf_dynamic_table()?;
    let needed = table.dynamics().iter().filter(|d| d.tag(endian) == elf::DT_NEEDED);
    let needed = needed.filter_map(|d| d.string(endian, *table.strings()).ok()).map(|n| String::from_utf8_lossy(n).into_owned()).collect();
    let defined = file.dynamic_symbols().filter(|s| s.is_definition()).filter_map(|s| s.name().ok());
    let own_malloc = defined.filter(|n| matches!(*n, "malloc" | "free" | "realloc" | "calloc" | "_Znwm")).map(str::to_owned).collect();
    Ok(Image::Dynamic { loader, needed, own_malloc })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_shell_is_dynamic_and_a_script_is_followed_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("s");
        std::fs::write(&script, "#! /bin/sh -e\ntrue\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let p = Program::look(&script);
        assert_eq!(p.chain, [script, PathBuf::from("/bin/sh")]);
        assert_eq!(p.obstacle(), None);
        assert!(matches!(p.image, Image::Dynamic { needed, .. } if needed.iter().any(|n| n.starts_with("libc.so"))));
    }

    #[test]
    fn what_is_no_program_is_named_so() {
        let dir = tempfile::tempdir().unwrap();
        let text = dir.path().join("t");
        std::fs::write(&text, "hello").unwrap();
        assert!(Program::look(&text).obstacle().unwrap().contains("not an ELF program"));
        std::fs::write(&text, b"\x7fELF\x02\x01\x01").unwrap();
        assert!(matches!(Program::look(&text).image, Image::Unreadable(_)));
    }
}
