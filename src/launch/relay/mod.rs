//! Watching what the target prints: `--phase-on`, `--compiles`.
//!
//! A process of its own stands between the target's output and ours, so that neither our end (by SIGKILL too) nor that of the target
//! takes a byte away from a daemon that goes on writing. It has all signals blocked: a Ctrl-C is for the target. Each channel has a thread:
//! a reader of stdout that does not read holds up nothing on stderr.
//! One of the places of the command with `unsafe` (fork).
#![allow(unsafe_code)]

mod channel;
mod late;
mod lines;
mod scan;
mod terminal;

pub use scan::Watch;

use super::bystander;
use super::side::Whose;
use channel::{Channel, ENDED, ForTarget, Orders};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};
use rustix::event::{EventfdFlags, eventfd};
use scan::{Book, Scan};
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// So long we wait for a reader of the target's output that does not read; the relay itself waits on.
const PATIENCE: Duration = Duration::from_secs(5);
const WRITE_EVERY: Duration = Duration::from_millis(50);

/// Our end of it.
pub struct Relay {
    pid: Pid,
    orders: UnixStream,
    for_target: Vec<ForTarget>,
}

impl Relay {
    /// Starts it. To be called while this process has one thread.
    pub fn start(watch: &Watch) -> io::Result<Self> {
        let (channels, for_target) = channel::between()?;
        let (orders, theirs) = UnixStream::pair()?;
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        // SAFETY: this process has one thread, so the child may call whatever the parent may.
        let forked = unsafe { fork() };
        if let Ok(ForkResult::Child) = forked {
            drop(for_target);
            work(channels, theirs, watch);
        }
        let _ = before.thread_set_mask();
        let ForkResult::Parent { child } = forked? else { return Err(io::ErrorKind::Other.into()) };
        let mut relay = Self { pid: child, orders, for_target };
        if relay.answer() == Some(b'r') {
            return Ok(relay);
        }
        // Its channels have an end then, and so has it.
        drop(relay);
        let _ = waitpid(child, None);
        Err(io::Error::other("no thread can be had for it, raise `ulimit -u` or `ulimit -v`"))
    }

    /// What is to stand for the target's descriptor `fd`.
    pub fn end_for(&self, fd: RawFd) -> Option<&OwnedFd> {
        self.for_target.iter().find(|f| f.of.contains(&fd)).map(|f| &f.end)
    }

    /// The target runs.
    pub fn started(&mut self, whose: Whose) {
        // While we hold them the channels have no end.
        self.for_target.clear();
        self.order(format!("started {} {}\n", whose.pid, whose.start_ticks).as_bytes());
    }

    /// The target has ended: returns when what it wrote has been handed on.
    pub fn drain(&mut self) {
        self.order(b"drain\n");
        self.answer();
    }

    /// Its trace is known, or there is none: returns when the side file is written.
    pub fn finish(mut self, first: Option<&Path>) {
        let path = first.map_or(OsStr::new(""), Path::as_os_str);
        self.order(&[b"finish ", path.as_bytes(), b"\n"].concat());
        if self.answer() == Some(b'e') {
            let _ = waitpid(self.pid, None);
        }
    }

    fn order(&mut self, text: &[u8]) {
        let _ = self.orders.write_all(text);
    }

    fn answer(&mut self) -> Option<u8> {
        let mut one = [0];
        let _ = self.orders.set_read_timeout(Some(PATIENCE));
        self.orders.read_exact(&mut one).ok().map(|()| one[0])
    }
}

/// The relay's whole life.
fn work(channels: Vec<Channel>, orders: UnixStream, watch: &Watch) -> ! {
    bystander::rename(c"memshim-relay", b"(output of the target)");
    let keep: Vec<RawFd> = channels.iter().flat_map(Channel::descriptors).chain([orders.as_raw_fd()]).collect();
    bystander::close_all_but(&keep);
    let book = Arc::new(Mutex::new(Book::default()));
    // Before the target runs: without all of them it had better keep its own output.
    let Ok(workers) = channels.into_iter().map(|c| Worker::start(c, watch, &book)).collect::<io::Result<Vec<Worker>>>() else { exit() };
    let _ = (&orders).write_all(b"r");
    obey(orders, &book, &workers);
    workers.iter().for_each(Worker::wake);
    while !workers.iter().all(Worker::is_over) {
        lock(&book).look();
        std::thread::sleep(WRITE_EVERY);
    }
    for worker in workers {
        let _ = worker.thread.join();
    }
    lock(&book).say_unmet(&watch.rules);
    exit();
}

/// The thread of a channel.
struct Worker {
    wake: OwnedFd,
    /// Hears when all that there was has gone through; hung up when the channel has ended.
    through: Receiver<()>,
    thread: JoinHandle<()>,
}

impl Worker {
    fn start(channel: Channel, watch: &Watch, book: &Arc<Mutex<Book>>) -> io::Result<Worker> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC)?;
        let scan = Scan::new(watch, book.clone());
        let (sender, through) = mpsc::channel();
        let orders = Orders { wake: wake.try_clone()?, through: sender };
        let thread = Builder::new().spawn(move || channel.run(scan, orders))?;
        Ok(Worker { wake, through, thread })
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Its channel has ended, so that it will in a moment.
    fn is_over(&self) -> bool {
        self.through.try_recv() == Err(TryRecvError::Disconnected)
    }
}

/// Does as it is told, up to the order to finish or until whoever orders has gone.
fn obey(orders: UnixStream, book: &Mutex<Book>, workers: &[Worker]) {
    let _ = orders.set_read_timeout(Some(WRITE_EVERY));
    let Ok(mut answers) = orders.try_clone() else { return };
    let mut orders = BufReader::new(orders);
    let mut line = Vec::new();
    loop {
        match orders.read_until(b'\n', &mut line) {
            Ok(_) if line.ends_with(b"\n") => {}
            // What waits for its file is written as soon as that is there.
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted) => {
                let mut book = lock(book);
                book.look();
                book.write();
                continue;
            }
            // Whoever started us was killed, and will not say where the trace is.
            _ => {
                lock(book).look_now();
                return ENDED.store(true, SeqCst);
            }
        }
        let text = line.trim_ascii_end();
        if let Some(numbers) = text.strip_prefix(b"started ") {
            let numbers = String::from_utf8_lossy(numbers).into_owned();
            let mut numbers = numbers.split(' ');
            let pid = numbers.next().and_then(|n| n.parse().ok());
            let start_ticks = numbers.next().and_then(|n| n.parse().ok());
            if let (Some(pid), Some(start_ticks)) = (pid, start_ticks) {
                lock(book).started(Whose { pid, start_ticks });
            }
        } else if text == b"drain" {
            ENDED.store(true, SeqCst);
            // Together, then one after the other.
            workers.iter().for_each(Worker::wake);
            workers.iter().for_each(|w| _ = w.through.recv());
            let _ = answers.write_all(b"d");
        } else if let Some(path) = text.strip_prefix(b"finish ") {
            let first = (!path.is_empty()).then(|| Path::new(OsStr::from_bytes(path)));
            lock(book).ended(first);
            let over = (0..20).any(|_| workers.iter().all(Worker::is_over) || pause());
            let _ = answers.write_all(if over { b"e" } else { b"k" });
            return;
        }
        line.clear();
    }
}

/// For what is over in a moment.
fn pause() -> bool {
    std::thread::sleep(Duration::from_millis(1));
    false
}

fn lock(book: &Mutex<Book>) -> std::sync::MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(|e| e.into_inner())
}

/// Without the exit handlers of the process we came from.
fn exit() -> ! {
    // SAFETY: ends this process; nothing of it is needed any more.
    unsafe { nix::libc::_exit(0) }
}
