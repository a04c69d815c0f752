//! Stopping ourselves as the target was stopped: the shell shows how.
//!
//! One of the places of the command with `unsafe` (the disposition of a signal).
#![allow(unsafe_code)]

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, raise, sigaction};

/// Returns when this process is continued; at once where the kernel does not stop it (a group without a shell).
pub fn like(signal: Signal) {
    // SIGTSTP has a handler here: the target is to have it first.
    let plain = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code of ours, and the handler put back is the one that was there.
    let before = (signal != Signal::SIGSTOP).then(|| unsafe { sigaction(signal, &plain) });
    let _ = raise(signal);
    if let Some(Ok(before)) = before {
        // SAFETY: as above.
        let _ = unsafe { sigaction(signal, &before) };
    }
}
