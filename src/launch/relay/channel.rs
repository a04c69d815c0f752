//! A place where the target's output goes, and what stands between: a pipe in front of a pipe, a terminal in front of a terminal; a file
//! the target writes by itself, and we read it behind it.
//!
//! Descriptors 1 and 2 that are one and the same file are one channel: what is written to both keeps its order.

use super::late::Late;
use super::scan::Scan;
use super::terminal::{self, Terminal};
use crate::launch::{inherited, outside};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify;
use rustix::time::Timespec;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::Sender;

const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
/// At most this much is read at a time.
const PIECE: usize = 256 << 10;
/// Output of an ended target reaches our side of a terminal a little later.
const TERMINAL_SETTLES: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

enum Kind {
    Pipe,
    Terminal(Box<Terminal>),
    /// A file, read from here on, and what wakes us when it grows.
    Tail(u64, OwnedFd),
}

/// See the module.
pub struct Channel {
    kind: Kind,
    source: File,
    out: File,
    late: Late,
}

/// What the target gets for its descriptors.
pub struct ForTarget {
    pub of: Vec<RawFd>,
    pub end: OwnedFd,
}

/// Device, inode, and which device it is itself.
type Identity = (u64, u64, u64);

/// The channels of descriptors 1 and 2 as they are, and the target's ends. Those that were closed when we started are left alone.
pub fn between() -> io::Result<(Vec<Channel>, Vec<ForTarget>)> {
    let closed: Vec<RawFd> = inherited::closed_descriptors().collect();
    let mut found: Vec<(Identity, File, Vec<RawFd>)> = Vec::new();
    for fd in [1, 2].into_iter().filter(|fd| !closed.contains(fd)) {
        let file = File::from(own(fd)?);
        let meta = file.metadata()?;
        let identity = (meta.dev(), meta.ino(), meta.rdev());
        match found.iter_mut().find(|(i, ..)| *i == identity) {
            Some((.., of)) => of.push(fd),
            None => found.push((identity, file, vec![fd])),
        }
    }
    let mut channels = Vec::new();
    let mut ends = Vec::new();
    for (_, out, of) in found {
        let (channel, end) = open(out)?;
        channels.push(channel);
        ends.extend(end.map(|end| ForTarget { of, end }));
    }
    Ok((channels, ends))
}

fn own(fd: RawFd) -> io::Result<OwnedFd> {
    let (out, err) = (io::stdout(), io::stderr());
    let fd = if fd == 1 { out.as_fd() } else { err.as_fd() };
    fd.try_clone_to_owned()
}

fn open(out: File) -> io::Result<(Channel, Option<OwnedFd>)> {
    let late = Late::new();
    let kind = out.metadata()?.file_type();
    if kind.is_file()
        && let Some((source, tail)) = tail(&out)
    {
        return Ok((Channel { kind: tail, source, out, late }, None));
    }
    if kind.is_char_device() && rustix::termios::isatty(&out) {
        let (ours, theirs, terminal) = terminal::open(&out)?;
        as_blocking_as(&out, &theirs);
        let kind = Kind::Terminal(Box::new(terminal));
        return Ok((Channel { kind, source: ours.into(), out, late }, Some(theirs)));
    }
    let (ours, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // Never less than it would have had; more, so that fast output changes hands less often.
    if let Ok(size) = rustix::pipe::fcntl_getpipe_size(&out) {
        let _ = rustix::pipe::fcntl_setpipe_size(&theirs, size.max(1 << 20));
    }
    as_blocking_as(&out, &theirs);
    Ok((Channel { kind: Kind::Pipe, source: ours.into(), out, late }, Some(theirs)))
}

/// The file behind `out` to be read from where the target will write. `None`: it can't be read.
fn tail(out: &File) -> Option<(File, Kind)> {
    let path = format!("/proc/self/fd/{}", out.as_raw_fd());
    let source = File::open(&path).ok()?;
    // First of all: what others write from here on wakes us too.
    let wake = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).ok()?;
    inotify::add_watch(&wake, &path, inotify::WatchFlags::MODIFY).ok()?;
    let appends = rustix::fs::fcntl_getfl(out).is_ok_and(|f| f.contains(rustix::fs::OFlags::APPEND));
    let at = if appends { source.metadata().ok()?.len() } else { (&*out).stream_position().ok()? };
    Some((source, Kind::Tail(at, wake)))
}

fn as_blocking_as(out: &File, end: &OwnedFd) {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    if let (Ok(theirs), Ok(own)) = (fcntl_getfl(out), fcntl_getfl(end))
        && theirs.contains(OFlags::NONBLOCK)
    {
        let _ = fcntl_setfl(end, own | OFlags::NONBLOCK);
    }
}

/// What a channel is told by whoever started it.
pub struct Orders {
    /// Readable: look whether `ending`, and say when all that is there now has gone through.
    pub wake: OwnedFd,
    pub through: Sender<()>,
}

/// The target has ended: files need no more reading.
pub static ENDED: AtomicBool = AtomicBool::new(false);

impl Channel {
    /// Descriptors that have to stay open in the process that runs it.
    pub fn descriptors(&self) -> Vec<RawFd> {
        let more = match &self.kind {
            Kind::Tail(_, wake) => Some(wake.as_raw_fd()),
            Kind::Terminal(t) => Some(t.descriptor()),
            Kind::Pipe => None,
        };
        [Some(self.source.as_raw_fd()), Some(self.out.as_raw_fd()), more].into_iter().flatten().collect()
    }

    /// Hands on and looks through until no one writes any more, or no one reads.
    pub fn run(mut self, mut scan: Scan, orders: Orders) {
        let mut piece = vec![0; PIECE];
        self.late.begin();
        let resized = match self.kind {
            Kind::Terminal(_) => SignalFd::with_flags(&SigSet::from(Signal::SIGWINCH), SfdFlags::SFD_NONBLOCK).ok(),
            _ => None,
        };
        loop {
            let ready = self.wait(&orders.wake, resized.as_ref());
            if ready.resized {
                while resized.as_ref().is_some_and(|s| matches!(s.read_signal(), Ok(Some(_)))) {}
                self.resize();
            }
            let more = match ready.source {
                true => self.step(&mut piece, &mut scan),
                false => !ready.reader_gone,
            };
            if !more {
                break;
            }
            if ready.woken {
                let _ = rustix::io::read(&orders.wake, &mut [0; 8]);
                if !self.empty(&mut piece, &mut scan) {
                    break;
                }
                if matches!(self.kind, Kind::Tail(..)) && ENDED.load(SeqCst) {
                    break;
                }
                let _ = orders.through.send(());
            }
        }
        // First of all: whoever writes is to learn that nobody reads.
        drop(self);
        scan.end();
    }

    /// What is there already is as old as the time for which nobody looked; only what comes to an empty channel finds us asleep. Of a file that
    /// is one without a write that has returned: a write wakes us when it is done.
    fn wait(&mut self, wake: &OwnedFd, resized: Option<&SignalFd>) -> Ready {
        let began = outside::monotonic_ns();
        let ready = self.look(wake, resized, Some(&AT_ONCE));
        if ready.is_some_and(|r| !r.source) {
            self.late.was_empty(began);
        }
        if let Some(ready) = ready.filter(Ready::is_any) {
            return ready;
        }
        self.late.sleeps();
        let ready = self.look(wake, resized, None).unwrap_or_default();
        self.late.wakes();
        ready
    }

    /// `None`: it could not look.
    fn look(&self, wake: &OwnedFd, resized: Option<&SignalFd>, limit: Option<&Timespec>) -> Option<Ready> {
        let source: BorrowedFd = match &self.kind {
            Kind::Tail(_, grows) => grows.as_fd(),
            _ => self.source.as_fd(),
        };
        // Without asked events, poll still says that the reader of a pipe has gone.
        let mut all = vec![
            PollFd::from_borrowed_fd(source, PollFlags::IN),
            PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.out.as_fd(), PollFlags::empty()),
        ];
        all.extend(resized.map(|s| PollFd::from_borrowed_fd(s.as_fd(), PollFlags::IN)));
        poll(&mut all, limit).ok()?;
        let is = |i: usize, flags: PollFlags| all.get(i).is_some_and(|p| p.revents().intersects(flags));
        Some(Ready {
            source: is(0, PollFlags::IN | PollFlags::HUP | PollFlags::ERR),
            woken: is(1, PollFlags::IN),
            reader_gone: is(2, PollFlags::ERR | PollFlags::HUP),
            resized: is(3, PollFlags::IN),
        })
    }

    /// Takes what is there, once. False: there will be no more, or nobody wants it.
    fn step(&mut self, piece: &mut [u8], scan: &mut Scan) -> bool {
        if let Kind::Tail(_, grows) = &self.kind {
            let _ = rustix::io::read(grows, &mut [0; 4096]);
            return self.read_on(piece, scan);
        }
        self.late.before_read();
        match self.source.read(piece) {
            Ok(0) => false,
            Ok(n) => {
                // A pipe gives all that it has.
                let when = self.late.after_read(matches!(self.kind, Kind::Pipe) && n < piece.len());
                // Before it is handed on, which takes as long as whoever reads it pleases: what is live is that of now.
                scan.take(&piece[..n], when);
                if let Kind::Terminal(terminal) = &mut self.kind {
                    terminal.follow(&self.source);
                }
                let handed_on = hand_on(&self.out, &piece[..n]);
                scan.write();
                handed_on.is_ok()
            }
            // EIO is how a terminal says that nobody has it open any more.
            Err(e) => matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock),
        }
    }

    /// Reads a file up to its present end.
    fn read_on(&mut self, piece: &mut [u8], scan: &mut Scan) -> bool {
        let Kind::Tail(at, _) = &mut self.kind else { return true };
        // Made shorter: the target begins anew.
        if self.source.metadata().is_ok_and(|m| m.len() < *at) {
            *at = 0;
        }
        loop {
            self.late.before_read();
            let Ok(n) = self.source.read_at(piece, *at) else { break };
            let when = self.late.after_read(n == 0);
            if n == 0 {
                break;
            }
            scan.take(&piece[..n], when);
            *at += n as u64;
        }
        scan.write();
        true
    }

    /// Takes all that was written up to now.
    fn empty(&mut self, piece: &mut [u8], scan: &mut Scan) -> bool {
        if let Kind::Tail(..) = self.kind {
            return self.read_on(piece, scan);
        }
        let patience = if matches!(self.kind, Kind::Terminal(_)) { TERMINAL_SETTLES } else { AT_ONCE };
        loop {
            let mut one = [PollFd::from_borrowed_fd(self.source.as_fd(), PollFlags::IN)];
            let n = poll(&mut one, Some(&patience)).unwrap_or(0);
            if n == 0 {
                return true;
            }
            if !self.step(piece, scan) {
                return false;
            }
        }
    }

    /// The kernel told the foreground group before our terminal had its new size: who asked too early is told once more.
    fn resize(&mut self) {
        if let Kind::Terminal(terminal) = &mut self.kind
            && terminal.resize(&self.source)
        {
            let _ = kill(Pid::from_raw(0), Signal::SIGWINCH);
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Ready {
    source: bool,
    woken: bool,
    reader_gone: bool,
    resized: bool,
}

impl Ready {
    fn is_any(&self) -> bool {
        self.source || self.woken || self.reader_gone || self.resized
    }
}

/// Writes it all, waiting where the file does not wait by itself.
fn hand_on(mut out: &File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let _ = poll(&mut [PollFd::new(&out, PollFlags::OUT)], None);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
