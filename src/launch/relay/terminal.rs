//! A terminal in front of the terminal: what the target writes to, where it would have written to ours.
//!
//! Only its output: keyboard, session, process group and job control stay those of the real terminal, which is the target's controlling
//! one as ever. Nothing is done to the bytes here (no OPOST): the real terminal does to them what it did before.

use rustix::termios::{LocalModes, OptionalActions, OutputModes, Termios, Winsize, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

/// Our side.
pub struct Terminal {
    real: File,
    size: Option<Winsize>,
    /// The modes of ours when they were last looked at.
    modes: Option<Termios>,
}

/// Our side, and the target's, of a new terminal that is like `real`.
pub fn open(real: &File) -> io::Result<(OwnedFd, OwnedFd, Terminal)> {
    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let theirs = ioctl_tiocgptpeer(&ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    let mut terminal = Terminal { real: real.try_clone()?, size: None, modes: None };
    if let Ok(modes) = tcgetattr(real) {
        tcsetattr(&theirs, OptionalActions::Now, &untouching(modes))?;
    }
    terminal.modes = tcgetattr(&ours).ok();
    terminal.resize(&ours);
    Ok((ours, theirs, terminal))
}

/// These modes without anything done to output.
fn untouching(mut modes: Termios) -> Termios {
    modes.output_modes -= OutputModes::OPOST;
    modes.local_modes -= LocalModes::EXTPROC;
    modes
}

impl Terminal {
    /// The one that is not `ours`.
    pub fn descriptor(&self) -> RawFd {
        self.real.as_raw_fd()
    }

    /// Takes over the real terminal's size; whether it is another one than before.
    pub fn resize(&mut self, ours: impl AsFd) -> bool {
        let Ok(size) = tcgetwinsize(&self.real) else { return false };
        let of = |s: &Winsize| (s.ws_row, s.ws_col, s.ws_xpixel, s.ws_ypixel);
        let changed = self.size.as_ref().is_none_or(|s| of(s) != of(&size));
        if changed {
            let _ = tcsetwinsize(ours, size);
            self.size = Some(size);
        }
        changed
    }

    /// Does to the real terminal what the target did to the modes of ours: full-screen programs ask for raw keys by the descriptor they
    /// write to.
    pub fn follow(&mut self, ours: impl AsFd) {
        let (Some(before), Ok(now)) = (&self.modes, tcgetattr(ours)) else { return };
        let (input, output) = (before.input_modes ^ now.input_modes, before.output_modes ^ now.output_modes);
        let local = before.local_modes ^ now.local_modes;
        if (input.bits(), output.bits(), local.bits()) == (0, 0, 0) {
            return;
        }
        if let Ok(mut real) = tcgetattr(&self.real) {
            real.input_modes = (real.input_modes - input) | (now.input_modes & input);
            real.output_modes = (real.output_modes - output) | (now.output_modes & output);
            real.local_modes = (real.local_modes - local) | (now.local_modes & local);
            real.special_codes = now.special_codes.clone();
            let _ = tcsetattr(&self.real, OptionalActions::Now, &real);
        }
        self.modes = Some(now);
    }
}
