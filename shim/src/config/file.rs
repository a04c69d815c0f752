//! The file that `MEMSHIM_CONFIG` names, read with bare system calls into memory of our own, which is given back once the settings are
//! taken. What its lines are is the format's matter ([`memshim_format::settings`]).

use super::{From, Texts, complain, place, setting, short};
use crate::sys;
use memshim_format::settings::{FILE, Item, Keys, Value, items};

/// A file of settings that is larger is none.
const MOST: usize = 1 << 18;

/// Where the file lies, and behind it its values as variables would have them, which are never longer.
#[derive(Default)]
pub struct Memory {
    at: Option<core::ptr::NonNull<u8>>,
}

impl Memory {
    /// Nothing may use what was read any more.
    pub fn give_back(self) {
        if let Some(at) = self.at {
            // SAFETY: mapped with this length.
            unsafe { sys::unmap(at.as_ptr(), 2 * MOST) };
        }
    }
}

/// Takes the settings that are not `set`. `path` is relative to the present folder.
///
/// # Safety
/// One thread, at the start; `path` is zero-terminated behind its end.
pub unsafe fn read<'a>(path: &[u8], set: Keys, memory: &'a mut Memory, texts: &mut Texts<'a>) {
    // SAFETY: the caller's path.
    let text = unsafe { load(path, memory) };
    let (text, values) = match text {
        Ok(halves) => halves,
        Err(why) => {
            return complain(|t| {
                t.str(FILE).str("=").bytes(path).str(": ").str(why).str(". The file is left out.");
            });
        }
    };
    let mut rest = values;
    for item in items(text) {
        match item {
            Item::Wrong { line, text, fix } => complain(|t| {
                place(t, path, line).str("`").bytes(short(text)).str("` is not understood; ").str(fix).str(". The line is left out.");
            }),
            Item::Set { line, key, value } if !key.is_of_run() && !set.has(key) => {
                let mut n = 0;
                value.write(|c| {
                    if let Some(slot) = rest.get_mut(n) {
                        *slot = c;
                        n += 1;
                    }
                });
                let Some((value, after)) = core::mem::take(&mut rest).split_at_mut_checked(n) else { return };
                rest = after;
                if !value.is_empty() {
                    // SAFETY: the caller's promise.
                    unsafe { setting(key, value, From::Line(path, line), texts) };
                }
            }
            Item::Set { key, value, .. } if key.is_of_run() && !matches!(value, Value::Truth(false)) => {
                // SAFETY: the caller's promise.
                unsafe { super::CONFIG.of_run_in_file.add(key) };
            }
            Item::Set { .. } => {}
        }
    }
}

/// The file's text, and as much room behind it.
///
/// # Safety
/// `path` is zero-terminated.
unsafe fn load<'a>(path: &[u8], memory: &'a mut Memory) -> Result<(&'a [u8], &'a mut [u8]), &'static str> {
    // SAFETY: the caller's path; the memory is ours, of this length, and lent to the caller as a whole.
    unsafe {
        let fd = sys::openat(libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY | libc::O_NOCTTY | libc::O_NONBLOCK, 0);
        if fd < 0 {
            return Err(why(-fd));
        }
        let Some(at) = core::ptr::NonNull::new(sys::map_anon(2 * MOST)) else {
            sys::close(fd);
            return Err("there is no memory to read it into");
        };
        memory.at = Some(at);
        let mut len = 0;
        let end = loop {
            let n = sys::pread(fd, at.as_ptr().add(len), MOST - len, len as u64);
            match n {
                1.. => len += n as usize,
                n if n == -libc::EINTR as isize => {}
                end => break end,
            }
        };
        sys::close(fd);
        if end < 0 {
            return Err(why(-end as i32));
        }
        if len == MOST {
            return Err("it is longer than 256 KiB");
        }
        let text = core::slice::from_raw_parts(at.as_ptr(), len);
        Ok((text, core::slice::from_raw_parts_mut(at.as_ptr().add(MOST), MOST)))
    }
}

fn why(errno: i32) -> &'static str {
    match errno {
        libc::ENOENT | libc::ENOTDIR => "there is no such file; name it by its full path where programs change the folder",
        libc::EACCES | libc::EPERM => "it may not be read",
        libc::EISDIR => "it is a folder",
        libc::ESPIPE => "it is no plain file",
        _ => "it cannot be read",
    }
}
