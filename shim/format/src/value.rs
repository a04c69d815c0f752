//! Values of settings as people write them, the same in a variable that the shim reads and in a flag of the command: sizes and times with
//! their units.

/// A number of bytes: `65536`, `64KiB`, `64k`, `1.5GiB`, `2MB`. A letter alone stands for a power of 1024, `kB`, `MB`, … for one of 1000;
/// upper and lower case are the same.
pub fn bytes(text: &[u8]) -> Option<u64> {
    let (number, unit) = split(text);
    const UNITS: [(&[u8], u64); 14] = [
        (b"", 1),
        (b"b", 1),
        (b"k", 1 << 10),
        (b"kib", 1 << 10),
        (b"m", 1 << 20),
        (b"mib", 1 << 20),
        (b"g", 1 << 30),
        (b"gib", 1 << 30),
        (b"t", 1 << 40),
        (b"tib", 1 << 40),
        (b"kb", 1_000),
        (b"mb", 1_000_000),
        (b"gb", 1_000_000_000),
        (b"tb", 1_000_000_000_000),
    ];
    scaled(number, UNITS.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name))?.1)
}

/// A length of time in nanoseconds, not 0: `100ms`, `1s`, `250us`, `0.5s`, `2m`, `1h`.
pub fn nanoseconds(text: &[u8]) -> Option<u64> {
    let (number, unit) = split(text);
    let factor = match unit {
        b"ns" => 1,
        b"us" | [0xc2, 0xb5, b's'] => 1_000,
        b"ms" => 1_000_000,
        b"s" => 1_000_000_000,
        b"m" | b"min" => 60_000_000_000,
        b"h" => 3_600_000_000_000,
        _ => return None,
    };
    scaled(number, factor).filter(|n| *n > 0)
}

/// A sampling interval in nanoseconds.
pub fn interval(text: &[u8]) -> Option<u64> {
    nanoseconds(text).filter(|n| (1_000_000..=3_600_000_000_000).contains(n))
}

/// The globs of a list with commas; nothing between two of them is none.
pub fn globs(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|c| *c == b',').filter(|glob| !glob.is_empty())
}

fn split(text: &[u8]) -> (&[u8], &[u8]) {
    let text = text.trim_ascii();
    let at = text.iter().position(|c| !c.is_ascii_digit() && *c != b'.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(at).unwrap_or((text, b""));
    (number, unit.trim_ascii())
}

/// `number` times `factor`, rounded down.
fn scaled(number: &[u8], factor: u64) -> Option<u64> {
    let digit = |c: &u8| c.is_ascii_digit().then(|| (c - b'0') as u64);
    let mut parts = number.splitn(2, |c| *c == b'.');
    let (whole, fraction) = (parts.next()?, parts.next().unwrap_or(b""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for c in whole {
        value = value.checked_mul(10)?.checked_add(digit(c)?)?;
    }
    let mut rest = 0;
    for c in fraction.iter().rev() {
        rest = (digit(c)? * factor + rest) / 10;
    }
    value.checked_mul(factor)?.checked_add(rest)
}

/// Shell-style match with `*` and `?`, iterative.
pub fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (pattern, name);
    let mut back: Option<(&[u8], &[u8])> = None;
    loop {
        match (p.split_first(), n.split_first()) {
            (Some((b'*', pt)), _) => {
                back = Some((pt, n));
                p = pt;
            }
            (Some((b'?', pt)), Some((_, nt))) => (p, n) = (pt, nt),
            (Some((a, pt)), Some((b, nt))) if a == b => (p, n) = (pt, nt),
            (None, None) => return true,
            _ => match back {
                Some((bp, bn)) if !bn.is_empty() => {
                    let bn = bn.get(1..).unwrap_or(b"");
                    back = Some((bp, bn));
                    (p, n) = (bp, bn);
                }
                _ => return false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_iec_and_si_units() {
        for (text, n) in [
            ("65536", 65536),
            ("64KiB", 65536),
            ("64k", 65536),
            (" 64 kib ", 65536),
            ("1.5GiB", 3 << 29),
            (".5m", 1 << 19),
            ("2MB", 2_000_000),
            ("0", 0),
            ("0.3", 0),
            ("1.999999999999999999999k", 2047),
        ] {
            assert_eq!(bytes(text.as_bytes()), Some(n), "{text}");
        }
        for bad in ["", ".", "KiB", "-1", "1.2.3", "64Q", "99999999999999999999999", "99999999TiB"] {
            assert_eq!(bytes(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn times_need_a_unit_and_are_not_zero() {
        for (text, n) in [("100ms", 100_000_000), ("0.1s", 100_000_000), ("0.5s", 500_000_000), ("1.5 m", 90_000_000_000), ("2µs", 2_000)]
        {
            assert_eq!(nanoseconds(text.as_bytes()), Some(n), "{text}");
        }
        for bad in ["100", "0ms", "s", "-1s", "0.1ns"] {
            assert_eq!(nanoseconds(bad.as_bytes()), None, "{bad}");
        }
        assert!(interval(b"10us").is_none() && interval(b"2m").is_some() && interval(b"1h").is_some() && interval(b"61m").is_none());
    }

    #[test]
    fn globs_match_whole_names() {
        let fits = |pattern: &str, name: &str| glob(pattern.as_bytes(), name.as_bytes());
        assert!(fits("a*c", "abbc") && fits("*", "") && fits("?.x*", "a.x") && fits("*b*b", "abab"));
        assert!(!fits("a*c", "abcd") && !fits("?", "") && !fits("", "a") && !fits("*b?", "ab"));
    }
}
