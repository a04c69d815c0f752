//! Starting the target with exactly the environment asked for.
//!
//! `std::process::Command` sorts the environment and resets SIGPIPE; here the last thing in the child is our own `execvpe` with
//! the variables in their old order. One of the places of the command with `unsafe` (a `pre_exec` closure).
#![allow(unsafe_code)]

use super::descriptors::Given;
use super::inherited;
use nix::libc;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// What is to stand for the target's stdout and stderr; ours, where there is nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct Output<'a> {
    pub stdout: Option<&'a OwnedFd>,
    pub stderr: Option<&'a OwnedFd>,
}

/// Starts `argv` with `env`, the limit on descriptors that was given, and nothing else changed. Errors are those of fork and exec, with their errno.
pub fn spawn(argv: &[OsString], env: &[(OsString, OsString)], output: Output, limit: Given) -> io::Result<Child> {
    match start(argv, env, output, limit) {
        // A script without a `#!` line: what every shell (and execvp) does is to give it to /bin/sh.
        Err(e) if e.raw_os_error() == Some(libc::ENOEXEC) => {
            let Some(path) = find_program(&argv[0], env) else { return Err(e) };
            let mut with_sh = vec![OsString::from("/bin/sh"), path.into_os_string()];
            with_sh.extend_from_slice(&argv[1..]);
            start(&with_sh, env, output, limit)
        }
        other => other,
    }
}

fn start(argv: &[OsString], env: &[(OsString, OsString)], output: Output, limit: Given) -> io::Result<Child> {
    let args: Vec<CString> = argv.iter().map(|a| c_string(a)).collect::<io::Result<_>>()?;
    let vars: Vec<CString> = env
        .iter()
        .map(|(k, v)| {
            let mut pair = k.as_bytes().to_vec();
            pair.push(b'=');
            pair.extend_from_slice(v.as_bytes());
            CString::new(pair).map_err(io::Error::from)
        })
        .collect::<io::Result<_>>()?;
    let closed: Vec<i32> = inherited::closed_descriptors().collect();
    let ignored: Vec<i32> = inherited::ignored_signals().collect();
    let mut command = Command::new(&argv[0]);
    if let Some(end) = output.stdout {
        command.stdout(end.try_clone()?);
    }
    if let Some(end) = output.stderr {
        command.stderr(end.try_clone()?);
    }
    // SAFETY: between fork and exec only close, setrlimit, signal and execvpe run. execvpe of nix allocates two arrays of pointers, which is
    // sound here: this process has no other thread yet (the signal thread starts after the target), so no allocator lock can be held.
    unsafe {
        command.pre_exec(move || {
            for &fd in &closed {
                libc::close(fd);
            }
            limit.restore();
            for &signal in &ignored {
                libc::signal(signal, libc::SIG_IGN);
            }
            match nix::unistd::execvpe(&args[0], &args, &vars) {
                Ok(never) => match never {},
                Err(errno) => Err(io::Error::from_raw_os_error(errno as i32)),
            }
        });
    }
    command.spawn()
}

fn c_string(s: &OsStr) -> io::Result<CString> {
    CString::new(s.as_bytes()).map_err(io::Error::from)
}

/// The file that exec would run for `program` under `env`, if there is one.
pub fn find_program(program: &OsStr, env: &[(OsString, OsString)]) -> Option<std::path::PathBuf> {
    if program.as_bytes().contains(&b'/') {
        let path = std::path::PathBuf::from(program);
        return path.exists().then_some(path);
    }
    let default = OsString::from("/bin:/usr/bin");
    let path = env.iter().find(|(k, _)| k == "PATH").map_or(&default, |(_, v)| v);
    std::env::split_paths(path)
        .map(|dir| dir.join(program))
        .find(|p| nix::unistd::access(p, nix::unistd::AccessFlags::X_OK).is_ok() && p.is_file())
}
