//! Values of flags and variables: sizes and times with their units, as the shim accepts them.

/// A number of bytes: `65536`, `64KiB`, `64k`, `1.5GiB`, `2MB`. Letters alone are powers of 1024, `kB`/`MB`/`GB` of 1000.
pub fn bytes(text: &str) -> Result<u64, String> {
    let accepted = || format!("`{text}` is not a size: write a number of bytes or 64KiB, 2MiB, 1.5GiB");
    let (number, unit) = split(text);
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(accepted()),
    };
    let value = if let Ok(n) = number.parse::<u64>() { n.checked_mul(factor) } else { fraction(number, factor) };
    value.ok_or_else(accepted)
}

/// A length of time in nanoseconds: `100ms`, `1s`, `250us`, `0.5s`, `2m`.
pub fn nanoseconds(text: &str) -> Result<u64, String> {
    let accepted = || format!("`{text}` is not a time: write 100ms, 1s or 250us");
    let (number, unit) = split(text);
    let factor: u64 = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        _ => return Err(accepted()),
    };
    let value = if let Ok(n) = number.parse::<u64>() { n.checked_mul(factor) } else { fraction(number, factor) };
    value.filter(|&n| n > 0).ok_or_else(accepted)
}

/// A sampling interval in nanoseconds, within what the shim takes.
pub fn interval(text: &str) -> Result<u64, String> {
    let n = nanoseconds(text)?;
    if (1_000_000..=3_600_000_000_000).contains(&n) { Ok(n) } else { Err(format!("`{text}` is not between 1ms and 1h")) }
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..at], text[at..].trim())
}

fn fraction(number: &str, factor: u64) -> Option<u64> {
    let value = number.parse::<f64>().ok()? * factor as f64;
    (value.is_finite() && value < u64::MAX as f64).then_some(value.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_iec_and_si_units() {
        for (text, n) in [("65536", 65536), ("64KiB", 65536), ("64k", 65536), ("1.5GiB", 3 << 29), ("2MB", 2_000_000), ("0", 0)] {
            assert_eq!(bytes(text), Ok(n), "{text}");
        }
        for bad in ["", "KiB", "-1", "1.2.3", "64Q", "99999999999999999999999", "99999999TiB"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_need_a_unit_and_are_not_zero() {
        assert_eq!(nanoseconds("100ms"), Ok(100_000_000));
        assert_eq!(nanoseconds("0.5s"), Ok(500_000_000));
        for bad in ["100", "0ms", "s", "-1s"] {
            assert!(nanoseconds(bad).is_err(), "{bad}");
        }
        assert!(interval("10us").is_err() && interval("2m").is_ok());
    }
}
