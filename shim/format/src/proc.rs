//! What snapshots take from files below `/proc`, and by which keys: the shim from inside, the command from outside.

/// Keys of `rollup`, and of `/proc/PID/smaps_rollup`.
pub const ROLLUP: [(&str, &str); 10] = [
    ("rss", "Rss"),
    ("pss", "Pss"),
    ("shared_clean", "Shared_Clean"),
    ("shared_dirty", "Shared_Dirty"),
    ("private_clean", "Private_Clean"),
    ("private_dirty", "Private_Dirty"),
    ("referenced", "Referenced"),
    ("anonymous", "Anonymous"),
    ("anon_huge", "AnonHugePages"),
    ("swap", "Swap"),
];

/// The numbers after some keys in a listing of lines as `Key:   123 kB`, in bytes (or as they stand where they have no unit); `None` where there is no
/// such line, or no number in it. Of lines of one key the first counts. One pass.
pub fn fields<const N: usize>(text: &[u8], keys: [&[u8]; N]) -> [Option<u64>; N] {
    let mut found = [None; N];
    let mut left = N;
    for line in text.split(|c| *c == b'\n') {
        let after = |key: &[u8]| if line.first() == key.first() { line.strip_prefix(key)?.strip_prefix(b":") } else { None };
        for (value, key) in found.iter_mut().zip(keys).filter(|(value, _)| value.is_none()) {
            if let Some(rest) = after(key) {
                *value = Some(bytes(rest));
                left -= 1;
                break;
            }
        }
        if left == 0 {
            break;
        }
    }
    found.map(Option::flatten)
}

/// One of them.
pub fn field(text: &[u8], key: &[u8]) -> Option<u64> {
    let [value] = fields(text, [key]);
    value
}

fn bytes(rest: &[u8]) -> Option<u64> {
    let from = rest.iter().position(|c| c.is_ascii_digit())?;
    let mut digits = rest.get(from..)?.iter().take_while(|c| c.is_ascii_digit());
    let value = digits.try_fold(0u64, |v, c| v.checked_mul(10)?.checked_add(u64::from(c - b'0')))?;
    if rest.ends_with(b"kB") { value.checked_mul(1024) } else { Some(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_any_order_and_of_the_first_line_of_a_key() {
        let text = b"Name:\tVmRSS: 7 kB\nState:\tS (sleeping)\nVmHWMx:\t1 kB\nVmHWM:\t   20 kB\nVmRSS:\t 12 kB\nVmRSS:\t 99 kB\nThreads:\t3\nSeccomp:\t\nBig: 18446744073709551616\n";
        assert_eq!(fields(text, [b"Threads", b"VmRSS", b"VmHWM", b"VmSwap"]), [Some(3), Some(12 * 1024), Some(20 * 1024), None]);
        assert_eq!((field(text, b"Seccomp"), field(text, b"Big"), field(text, b"State"), field(b"", b"Name")), (None, None, None, None));
        assert_eq!(fields(b"A: 1\nB: 2", [b"B", b"A", b"B"]), [Some(2), Some(1), None], "a key is asked for once");
        assert_eq!(field(b"A: 18014398509481984 kB", b"A"), None, "beyond what counts");
    }
}
