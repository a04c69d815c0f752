//! A process of our group that does nothing: whether a signal went to the whole group, it got it too.
//!
//! The kernel does not say whether a signal was sent to a process or to its group, and a batch system may send it to each process of a
//! job in turn. Both reach the bystander, `kill PID` does not. It has all signals blocked, so that they stay pending and can be read
//! from /proc whenever it is scheduled or not. It ends with us, however we end: its pipe does.
//! One of the places of the command with `unsafe` (fork, and plain system calls in the child).
#![allow(unsafe_code)]

use super::proc;
use nix::libc;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};
use std::io::{PipeReader, PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// See the module.
pub struct Bystander {
    pid: Pid,
    forget: PipeWriter,
}

impl Bystander {
    /// Starts it. To be called while this process has one thread. `None` where no process can be had: then nothing is known of groups.
    pub fn start() -> Option<Self> {
        let (read, forget) = std::io::pipe().ok()?;
        // The child is born with everything blocked.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).ok()?;
        // SAFETY: this process has one thread, so the child may call whatever the parent may.
        let forked = unsafe { fork() };
        if let Ok(ForkResult::Child) = forked {
            stand_by(read);
        }
        let _ = before.thread_set_mask();
        match forked.ok()? {
            ForkResult::Parent { child } => Some(Self { pid: child, forget }),
            ForkResult::Child => None,
        }
    }

    /// Whether it got this signal since it was last asked.
    pub fn got(&mut self, signal: i32) -> bool {
        let pending = proc::pending_signals(self.pid.as_raw()) & (1 << (signal - 1)) != 0;
        if pending {
            let _ = self.forget.write_all(&[signal as u8]);
        }
        pending
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        // It may be stopped, with the rest of the group.
        let _ = kill(self.pid, Signal::SIGKILL);
        let _ = waitpid(self.pid, None);
    }
}

/// The child's whole life: forgets the signals it is told to, until the pipe ends.
fn stand_by(pipe: PipeReader) -> ! {
    rename(c"memshim-group", b"(signals of the group)");
    let keep = pipe.as_raw_fd();
    close_all_but(&[keep]);
    loop {
        let mut signal = 0u8;
        // SAFETY: one byte into a variable of ours.
        let n = unsafe { libc::read(keep, (&raw mut signal).cast(), 1) };
        if n != 1 {
            // SAFETY: ends this process without the parent's exit handlers.
            unsafe { libc::_exit(0) };
        }
        let Ok(signal) = Signal::try_from(i32::from(signal)) else { continue };
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: takes a pending signal without waiting; the set and the time are ours, of the signal nothing more is asked.
        unsafe { libc::sigtimedwait(SigSet::from(signal).as_ref(), std::ptr::null_mut(), &now) };
    }
}

/// For a process that was forked and stays: what is open in it would keep a reader of the target's output waiting.
pub(super) fn close_all_but(keep: &[i32]) {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<i32> = open.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| !keep.contains(fd)) {
        // SAFETY: closes a number; nothing here uses it any more.
        unsafe { libc::close(fd) };
    }
}

/// `pkill -f 'memshim run'` means us: a bystander of that name would say that the signal went to the group.
pub(super) fn rename(name: &std::ffi::CStr, arguments: &[u8]) {
    let _ = nix::sys::prctl::set_name(name);
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Fields 48 and 49, counted from after the name's last `)`: where the arguments lie.
    let mut fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace()).into_iter().flatten().skip(45);
    let mut field = || fields.next().and_then(|f| f.parse::<u64>().ok());
    let (Some(start), Some(end)) = (field(), field()) else { return };
    let mut text = arguments.to_vec();
    text.resize(end.saturating_sub(start).min(1 << 22) as usize, 0);
    if let Ok(memory) = std::fs::OpenOptions::new().write(true).open("/proc/self/mem") {
        let _ = memory.write_all_at(&text, start);
    }
}
