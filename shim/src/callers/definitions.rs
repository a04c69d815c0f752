//! A code object's file and name on their way through the ring.

use crate::lane::{Hot, push_of_stacks};
use crate::python::Definition;
use crate::sys;
use memshim_format::record::{TEXT_BYTES, code_parts, op, start};
use memshim_format::spool::D_CAP;

/// Longer ones are cut: the start of a path says less than its end, but a reader finds files by whole paths only.
const FILE: usize = 2047;
const NAME: usize = 1023;
const _: () = assert!(FILE + NAME <= D_CAP);

/// Pushes a definition; false where the ring has no room for all of it.
///
/// # Safety
/// `hot` is this thread's and set up.
pub unsafe fn push(hot: *mut Hot, d: &Definition) -> bool {
    let cut = |text: &'_ [u8], most: usize| text.len().min(most);
    let (file, name) = (cut(d.file, FILE), cut(d.name, NAME));
    let parts = code_parts(d.first_line, [file, name]);
    let texts = d.file.iter().take(file).chain(d.name.iter().take(name));
    // A handler's own definition must not come in between.
    let signals = sys::block_signals();
    // SAFETY: the caller's hot.
    let whole = unsafe { push_of_stacks(hot, [start(op::CODE, d.version as u64, d.number as u64), parts]) && push_texts(hot, texts) };
    sys::restore_signals(signals);
    whole
}

/// The texts, in as many records as it takes.
unsafe fn push_texts<'a>(hot: *mut Hot, texts: impl Iterator<Item = &'a u8>) -> bool {
    let (mut words, mut n) = ([0u64; 8], 0);
    for c in texts {
        if let Some(word) = words.get_mut(1 + n / 7) {
            *word |= (*c as u64) << (8 * (n % 7));
        }
        n += 1;
        if n == TEXT_BYTES {
            words[0] = start(op::TEXT, 0, n as u64);
            // SAFETY: the caller's hot.
            if !unsafe { push_of_stacks(hot, words) } {
                return false;
            }
            (words, n) = ([0; 8], 0);
        }
    }
    words[0] = start(op::TEXT, 0, n as u64);
    // SAFETY: the caller's hot.
    n == 0 || unsafe { push_of_stacks(hot, words) }
}
