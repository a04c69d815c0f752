//! Signals while a target runs: this process outlives them, and hands on those that were meant for the target.
//!
//! The target shares our process group, so what a terminal (Ctrl-C) or `kill -PGID` sends reaches it anyway and is not handed on;
//! what was sent to us alone (`kill PID`, a batch system that signals the first process only) is. Which of the two it was a
//! [`Bystander`](super::bystander::Bystander) knows. Where there is none, what the kernel sent counts as the group's.
//! A signal we were started with ignored (`nohup`, a background job of a script) the target starts with ignored; what is sent to us is handed on all the
//! same, since the target may have set a handler of its own.

use nix::libc;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long a signal waits before it is handed on: some batch systems signal one process of a job after the other.
pub const HAND_ON_AFTER: Duration = Duration::from_millis(10);

const OURS_TO_OUTLIVE: [i32; 9] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP, libc::SIGUSR1, libc::SIGUSR2, libc::SIGCONT, libc::SIGALRM];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// A child changed state.
    Child,
    /// Meant for the target, who may have got it as well.
    Signal { number: i32, from_kernel: bool },
}

/// The handlers, installed before the target starts, so that no instant is left in which a signal kills us alone.
pub struct Signals(SignalsInfo<WithOrigin>);

impl Signals {
    pub fn install() -> std::io::Result<Self> {
        SignalsInfo::<WithOrigin>::new(OURS_TO_OUTLIVE.into_iter().chain([libc::SIGCHLD])).map(Signals)
    }

    /// Starts the thread that listens. Only after the target was spawned: until then this process has one thread.
    pub fn listen(self) -> Receiver<Heard> {
        let (tx, rx) = channel();
        let Signals(mut signals) = self;
        // Without it the target's end is found by looking, and nothing is handed on.
        let started = std::thread::Builder::new().spawn(move || {
            for origin in signals.forever() {
                let heard = match origin.signal {
                    libc::SIGCHLD => Heard::Child,
                    // A timer set before we were exec'd (`alarm; exec`) has our pid: that one is no group's.
                    number => Heard::Signal { number, from_kernel: origin.cause == Cause::Kernel && number != libc::SIGALRM },
                };
                if tx.send(heard).is_err() {
                    return;
                }
            }
        });
        if let Err(e) = started {
            eprintln!("memshim: no thread can be had ({e}): signals are not handed on to the program; raise `ulimit -u` or `ulimit -v`");
        }
        rx
    }
}
