//! Watching one child until it ends: its high-water mark, its stops and its signals.
//!
//! VmHWM lives in the memory map of the process and is gone once it is a zombie, so it is sampled: often at first, then ten times per
//! elapsed time, at most every 100 ms. `ru_maxrss` of a waited child is kept apart: it covers our own image between fork and exec
//! and the child's waited children, so it is an upper bound (427 MB were shown for a compiler that used 165).

use super::below::Below;
use super::bystander::Bystander;
use super::proc;
use super::signals::{HAND_ON_AFTER, Heard};
use super::stop;
use memshim_format::proc::field;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

const SHORTEST_POLL: Duration = Duration::from_millis(1);
const LONGEST_POLL: Duration = Duration::from_millis(100);
const DESCENDANTS_EVERY: Duration = Duration::from_millis(50);

/// How a target ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Exited(i32),
    Signaled {
        signal: i32,
        core: bool,
    },
    /// Someone else waited for it, or SIGCHLD is ignored: only its end is known.
    Unknown,
}

impl Ended {
    /// What a shell would show: 128+n for death by signal n.
    pub fn exit_code(self) -> i32 {
        match self {
            Ended::Exited(code) => code,
            Ended::Signaled { signal, .. } => 128 + signal,
            Ended::Unknown => 125,
        }
    }
}

/// What was seen of the target while it ran.
#[derive(Debug, Clone)]
pub struct Seen {
    pub ended: Ended,
    /// Largest VmHWM sampled of the target, all its images.
    pub hwm: Option<u64>,
    /// The processes below it.
    pub below: Below,
    /// Processor time of what the target had waited for.
    pub waited_cpu_ns: Option<u64>,
}

/// Watches `child` until it has ended and reaps it. The first look comes before `listen`: a short program is over soon.
pub fn until_end(child: &mut Child, bystander: Option<&mut Bystander>, listen: impl FnOnce() -> Receiver<Heard>) -> Seen {
    let pid = child.id() as i32;
    let began = Instant::now();
    let mut hwm = HighWater::open(pid);
    hwm.sample();
    let heard = listen();
    let mut forward = Forward { pid, bystander, due: BTreeMap::new() };
    let mut stop = Stop::default();
    let mut below = Below::default();
    let mut looked_at_children = began;
    loop {
        hwm.sample();
        if looked_at_children.elapsed() >= DESCENDANTS_EVERY {
            below.look(pid);
            looked_at_children = Instant::now();
        }
        let waited_cpu_ns = has_ended(pid).then(|| proc::stat(pid)).flatten().map(|s| s.waited_ticks * proc::NS_A_TICK);
        if let Some(ended) = ended(child) {
            return Seen { ended, hwm: hwm.most, below, waited_cpu_ns };
        }
        let pause = (began.elapsed() / 10).clamp(SHORTEST_POLL, LONGEST_POLL);
        match heard.recv_timeout(forward.until_due().map_or(pause, |d| d.min(pause))) {
            Ok(Heard::Child) => stop.look(pid, &mut forward),
            Ok(Heard::Signal { number, .. }) if stop.is_late(number) => {}
            Ok(Heard::Signal { number, from_kernel }) => {
                forward.note(number, from_kernel);
                stop.note(number);
                stop.look(pid, &mut forward);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(pause),
        }
        forward.send_due();
    }
}

/// The status file, kept open: reading it again from the start gives the process's present image, also after an exec.
struct HighWater {
    status: Option<File>,
    most: Option<u64>,
}

impl HighWater {
    fn open(pid: i32) -> Self {
        Self { status: File::open(format!("/proc/{pid}/status")).ok(), most: None }
    }

    fn sample(&mut self) {
        let mut text = [0u8; 4096];
        let Some(n) = self.status.as_ref().and_then(|f| f.read_at(&mut text, 0).ok()) else { return };
        self.most = self.most.max(field(&text[..n], b"VmHWM"));
    }
}

/// Whether it has ended; it stays to be reaped, and what the kernel says of it to be read.
fn has_ended(pid: i32) -> bool {
    let seen = waitid(Id::Pid(Pid::from_raw(pid)), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT);
    seen.is_ok_and(|s| s != WaitStatus::StillAlive) || seen == Err(nix::errno::Errno::EINVAL)
}

/// `Some` once the child has ended; it is reaped then. (std keeps the raw status: nix has no name for a death by real-time signal.)
fn ended(child: &mut Child) -> Option<Ended> {
    match child.try_wait() {
        Ok(None) => None,
        Ok(Some(status)) => Some(match (status.code(), status.signal()) {
            (Some(code), _) => Ended::Exited(code),
            (None, Some(signal)) => Ended::Signaled { signal, core: status.core_dumped() },
            (None, None) => Ended::Unknown,
        }),
        Err(_) => Some(Ended::Unknown),
    }
}

/// Where the target stopped at a terminal, or we were told to stop as well, we stop too, so that the shell sees a stopped job; continued,
/// we continue it. Else we stay: nobody would continue us.
#[derive(Default)]
struct Stop {
    told: bool,
    /// What the target stopped of, if it has.
    target: Option<Signal>,
    /// We have stopped as the target did, and until when our own signal to do so may still come: it is of the same key.
    late_until: Option<Instant>,
}

impl Stop {
    fn note(&mut self, signal: i32) {
        self.told = (self.told || signal == libc::SIGTSTP) && signal != libc::SIGCONT;
    }

    /// Whether a signal told us to stop where we have been stopped, and continued, already: signals that wait are not heard in their order.
    fn is_late(&mut self, signal: i32) -> bool {
        signal == libc::SIGTSTP && self.late_until.take().is_some_and(|until| Instant::now() < until)
    }

    /// To be called when either may have changed, in whichever order they become known.
    fn look(&mut self, pid: i32, forward: &mut Forward) {
        let target_stopped = || proc::stat(pid).is_some_and(|s| s.state == 'T');
        let foreground = || proc::stat(std::process::id() as i32).is_some_and(|s| s.tpgid == s.pgrp);
        if let Ok(WaitStatus::Stopped(_, signal)) = waitid(Id::Pid(Pid::from_raw(pid)), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG) {
            self.target = Some(signal);
        }
        if !target_stopped() {
            self.target = None;
        }
        if let Some(signal) = self.target.filter(|_| self.told || foreground()) {
            let unheard = signal == Signal::SIGTSTP && !self.told;
            *self = Stop::default();
            forward.stopped();
            stop::like(signal);
            self.late_until = unheard.then(|| Instant::now() + HAND_ON_AFTER);
            if target_stopped() {
                let _ = kill(Pid::from_raw(pid), Signal::SIGCONT);
            }
        }
    }
}

/// Signals that may have to be handed on, each with the time at which that is due.
struct Forward<'a> {
    pid: i32,
    bystander: Option<&'a mut Bystander>,
    due: BTreeMap<i32, Instant>,
}

impl Forward<'_> {
    fn note(&mut self, signal: i32, from_kernel: bool) {
        // As in the kernel, each of the two takes the other back, with the bystander too.
        match signal {
            libc::SIGCONT => self.due.remove(&libc::SIGTSTP),
            libc::SIGTSTP => self.due.remove(&libc::SIGCONT),
            _ => None,
        };
        if self.bystander.is_some() || !from_kernel {
            self.due.entry(signal).or_insert_with(|| Instant::now() + HAND_ON_AFTER);
        }
    }

    /// The target has stopped: what told us to stop needs no handing on, and would not be pending any more once we are continued.
    fn stopped(&mut self) {
        if self.due.remove(&libc::SIGTSTP).is_some()
            && let Some(bystander) = &mut self.bystander
        {
            bystander.got(libc::SIGTSTP);
        }
    }

    fn until_due(&self) -> Option<Duration> {
        self.due.values().min().map(|t| t.saturating_duration_since(Instant::now()))
    }

    fn send_due(&mut self) {
        let now = Instant::now();
        let pid = self.pid;
        let bystander = &mut self.bystander;
        self.due.retain(|&signal, &mut at| {
            if at > now {
                return true;
            }
            let groups = bystander.as_mut().is_some_and(|b| b.got(signal));
            // Who has been continued already needs no signal for it.
            let idle = signal == libc::SIGCONT && proc::stat(pid).is_some_and(|s| s.state != 'T');
            if let Ok(signal) = Signal::try_from(signal)
                && !groups
                && !idle
            {
                let _ = kill(Pid::from_raw(pid), signal);
            }
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn run(script: &str) -> Seen {
        let mut child = Command::new("/bin/sh").args(["-c", script]).spawn().unwrap();
        let (_tx, rx) = std::sync::mpsc::channel();
        until_end(&mut child, None, || rx)
    }

    #[test]
    fn the_end_is_an_exit_code_or_a_signal() {
        assert_eq!(run("exit 7").ended, Ended::Exited(7));
        assert_eq!(run("kill -9 $$").ended.exit_code(), 137);
    }

    #[test]
    fn the_high_water_mark_is_seen_before_the_end() {
        let seen = run("sleep 0.2");
        assert!(seen.hwm.is_some_and(|b| b > 100 << 10), "{seen:?}");
    }
}
