//! Numbers as people read them: IEC sizes, times, counts.

/// `1.5 GiB`, `640 B`: three significant digits, powers of 1024.
pub fn iec(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 999.5 and up would print as 1000: the next unit reads better.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", three_digits(value), UNITS[unit])
}

/// ` ± 1.5 GiB` behind an estimate of such a standard error; nothing where there is none.
pub fn about(stderr_bytes: f64) -> String {
    if stderr_bytes > 0.5 { format!(" ± {}", iec(stderr_bytes.round() as u64)) } else { String::new() }
}

/// As [`iec`], with a sign.
pub fn iec_signed(bytes: i64) -> String {
    format!("{}{}", if bytes < 0 { "−" } else { "" }, iec(bytes.unsigned_abs()))
}

fn three_digits(value: f64) -> String {
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$}")
}

/// `1 234 567`: thousands apart, by a thin gap that every terminal has.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(c);
    }
    out
}

/// `350 ms`, `12.3 s`, `4 min 05 s`, `2 h 07 min`.
pub fn seconds(s: f64) -> String {
    if s < 0.9995 {
        return if s < 0.0009995 { format!("{:.0} µs", s * 1e6) } else { format!("{} ms", three_digits(s * 1e3)) };
    }
    if s < 100.0 {
        return format!("{} s", three_digits(s));
    }
    let whole = s.round() as u64;
    if whole < 3600 { format!("{} min {:02} s", whole / 60, whole % 60) } else { format!("{} h {:02} min", whole / 3600, whole / 60 % 60) }
}

/// `12 %`, `0.4 %`.
pub fn percent(part: f64, whole: f64) -> String {
    if whole <= 0.0 {
        return "–".into();
    }
    let p = part / whole * 100.0;
    if p < 9.95 { format!("{p:.1} %") } else { format!("{p:.0} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits_and_never_four() {
        for (n, s) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1536, "1.50 KiB"),
            (10 << 20, "10.0 MiB"),
            (1_048_064, "1.00 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(iec(n), s);
        }
        assert_eq!(iec_signed(-2048), "−2.00 KiB");
    }

    #[test]
    fn times_change_unit_as_they_grow() {
        for (t, s) in [(0.0000125, "12 µs"), (0.35, "350 ms"), (1.0, "1.00 s"), (125.0, "2 min 05 s"), (7620.0, "2 h 07 min")] {
            assert_eq!(seconds(t), s);
        }
    }

    #[test]
    fn thousands_stand_apart() {
        assert_eq!((count(999), count(1_234_567)), ("999".into(), "1 234 567".into()));
        assert_eq!((percent(1.0, 250.0), percent(1.0, 4.0), percent(1.0, 0.0)), ("0.4 %".into(), "25 %".into(), "–".into()));
    }
}
