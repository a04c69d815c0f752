//! Writing text into memory we own: no allocation, no `core::fmt` (which panics and bloats); what does not fit is cut.

/// A cursor over a buffer.
pub struct Text {
    start: *mut u8,
    len: usize,
    cap: usize,
}

/// FNV-1a of bytes, for tables of names.
pub fn hash<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |h, c| (h ^ *c as u64).wrapping_mul(0x0100_0000_01b3))
}

const HEX: [u8; 16] = *b"0123456789abcdef";

impl Text {
    /// Over `buf`, from its start. The buffer must outlive the cursor.
    pub fn over(buf: &mut [u8]) -> Text {
        Text { start: buf.as_mut_ptr(), len: 0, cap: buf.len() }
    }

    /// Over raw memory.
    ///
    /// # Safety
    /// `start` must be valid for writes of `cap` bytes as long as the cursor is used.
    pub unsafe fn raw(start: *mut u8, cap: usize) -> Text {
        Text { start, len: 0, cap }
    }

    /// What has been written.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: len <= cap bytes of start have been written.
        unsafe { core::slice::from_raw_parts(self.start, self.len) }
    }

    /// Bytes written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Room left.
    pub fn room(&self) -> usize {
        self.cap - self.len
    }

    /// Starts anew.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends.
    #[inline]
    pub fn bytes(&mut self, s: &[u8]) -> &mut Text {
        let n = s.len().min(self.room());
        // SAFETY: n bytes fit; s is another object.
        unsafe { core::ptr::copy_nonoverlapping(s.as_ptr(), self.start.add(self.len), n) };
        self.len += n;
        self
    }

    /// Appends a string.
    #[inline]
    pub fn str(&mut self, s: &str) -> &mut Text {
        self.bytes(s.as_bytes())
    }

    /// Appends what `fill(space, room)` writes there; it returns how much.
    pub fn with_space(&mut self, fill: impl FnOnce(*mut u8, usize) -> usize) -> &mut Text {
        // SAFETY: within the buffer.
        let n = fill(unsafe { self.start.add(self.len) }, self.room());
        self.len += n.min(self.room());
        self
    }

    /// Appends a decimal number.
    pub fn num(&mut self, mut v: u64) -> &mut Text {
        let mut b = [0u8; 20];
        let mut at = 20;
        for slot in b.iter_mut().rev() {
            *slot = b'0' + (v % 10) as u8;
            at -= 1;
            v /= 10;
            if v == 0 {
                break;
            }
        }
        self.bytes(b.get(at..).unwrap_or(b""))
    }

    /// Appends a signed decimal number.
    pub fn int(&mut self, v: i64) -> &mut Text {
        if v < 0 {
            self.bytes(b"-");
        }
        self.num(v.unsigned_abs())
    }

    /// Appends `"key":number`, with a comma before it.
    pub fn field(&mut self, key: &str, v: u64) -> &mut Text {
        self.str(",\"").str(key).str("\":").num(v)
    }

    /// Appends `"key":number`, signed.
    pub fn signed(&mut self, key: &str, v: i64) -> &mut Text {
        self.str(",\"").str(key).str("\":").int(v)
    }

    /// Appends two digits.
    fn two(&mut self, v: u64) -> &mut Text {
        self.bytes(&[b'0' + (v / 10 % 10) as u8, b'0' + (v % 10) as u8])
    }

    /// Appends a wall-clock time as `20261128T004820`, UTC.
    pub fn stamp(&mut self, wall_ns: u64) -> &mut Text {
        let s = wall_ns / 1_000_000_000;
        // Days to civil date (proleptic Gregorian; era of 400 years from 0000-03-01).
        let z = s / 86400 + 719_468;
        let era = z / 146_097;
        let doe = z % 146_097;
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let day = doy - (153 * mp + 2) / 5 + 1;
        let month = if mp < 10 { mp + 3 } else { mp - 9 };
        let year = yoe + era * 400 + (month <= 2) as u64;
        self.num(year).two(month).two(day).str("T").two(s / 3600 % 24).two(s / 60 % 60).two(s % 60)
    }

    /// Appends 16 hexadecimal digits.
    pub fn hex64(&mut self, v: u64) -> &mut Text {
        for i in (0..16).rev() {
            let d = HEX.get((v >> (4 * i)) as usize & 15).copied().unwrap_or(b'0');
            self.bytes(&[d]);
        }
        self
    }

    /// Appends `s` as a JSON string, or as `{"hex":"…"}` where it is not UTF-8.
    pub fn quoted(&mut self, s: &[u8]) -> &mut Text {
        if core::str::from_utf8(s).is_err() {
            self.str("{\"hex\":\"");
            for c in s {
                self.hex8(*c);
            }
            return self.str("\"}");
        }
        self.str("\"");
        for &c in s {
            match c {
                b'"' => self.str("\\\""),
                b'\\' => self.str("\\\\"),
                0..=31 | 127 => self.str("\\u00").hex8(c),
                _ => self.bytes(&[c]),
            };
        }
        self.str("\"")
    }

    /// Appends two hexadecimal digits.
    pub fn hex8(&mut self, c: u8) -> &mut Text {
        let at = |n: u8| HEX.get(n as usize & 15).copied().unwrap_or(b'0');
        self.bytes(&[at(c >> 4), at(c)])
    }
}
