//! Signals while a target runs: this process outlives them, and hands on those that were meant for the target.
//!
//! The target shares our process group, so what a terminal sends (Ctrl-C) reaches it anyway; such signals come from the kernel and
//! are not handed on. What a process sent may have gone to us alone (`kill PID`) or to the group: that can't be told apart, so it is
//! handed on after a short wait if the target still lives, which for the usual fatal signal comes to the same.
//! A signal we were started with ignored (`nohup`, a background job of a script) stays ignored, for us and for the target.

use super::proc;
use nix::libc;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long a signal from a process waits before it is handed on.
pub const HAND_ON_AFTER: Duration = Duration::from_millis(10);

const OURS_TO_OUTLIVE: [i32; 8] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2, libc::SIGCONT, libc::SIGALRM];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// A child changed state.
    Child,
    /// To be handed on to the target.
    ForTarget(i32),
    /// The target got it as well.
    Group(i32),
}

/// The handlers, installed before the target starts, so that no instant is left in which a signal kills us alone.
pub struct Signals(SignalsInfo<WithOrigin>);

impl Signals {
    pub fn install() -> std::io::Result<Self> {
        let ignored = proc::ignored_signals();
        let wanted = OURS_TO_OUTLIVE.into_iter().filter(|s| ignored & (1 << (s - 1)) == 0);
        SignalsInfo::<WithOrigin>::new(wanted.chain([libc::SIGCHLD])).map(Signals)
    }

    /// Starts the thread that listens. Only after the target was spawned: until then this process has one thread.
    pub fn listen(self) -> Receiver<Heard> {
        let (tx, rx) = channel();
        let Signals(mut signals) = self;
        std::thread::spawn(move || {
            for origin in signals.forever() {
                let heard = match (origin.signal, origin.cause) {
                    (libc::SIGCHLD, _) => Heard::Child,
                    // Only a timer set before we were exec'd (`alarm; exec`) sends this, and it has our pid.
                    (libc::SIGALRM, _) => Heard::ForTarget(libc::SIGALRM),
                    (s, Cause::Kernel) => Heard::Group(s),
                    (s, _) => Heard::ForTarget(s),
                };
                if tx.send(heard).is_err() {
                    return;
                }
            }
        });
        rx
    }
}
