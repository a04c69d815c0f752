//! Reading encoded values from memory, between two addresses that the caller knows to be readable.

/// A place in memory, and where it ends. Every read is checked against the end; none panics.
#[derive(Clone, Copy)]
pub struct Cursor {
    pub at: usize,
    pub end: usize,
}

/// What `DW_EH_PE` says of a value: format in the low four bits, what it is relative to in the next three.
mod pe {
    pub const OMIT: u8 = 0xff;
    pub const INDIRECT: u8 = 0x80;
    pub const TO: u8 = 0x70;
    pub const TO_ITSELF: u8 = 0x10;
    pub const TO_DATA: u8 = 0x30;
    pub const ALIGNED: u8 = 0x50;
}

impl Cursor {
    /// # Safety
    /// The bytes from `at` to `end` are readable while the cursor lives.
    pub unsafe fn new(at: usize, end: usize) -> Cursor {
        Cursor { at, end }
    }

    fn take<T: Copy>(&mut self) -> Option<T> {
        let size = size_of::<T>();
        if self.end.checked_sub(self.at)? < size {
            return None;
        }
        // SAFETY: inside what `new` was promised; T is a plain number.
        let v = unsafe { (self.at as *const T).read_unaligned() };
        self.at += size;
        Some(v)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.take()
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.take()
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take()
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.take()
    }

    pub fn i8(&mut self) -> Option<i64> {
        Some(self.take::<i8>()? as i64)
    }

    pub fn i16(&mut self) -> Option<i64> {
        Some(self.take::<i16>()? as i64)
    }

    pub fn i32(&mut self) -> Option<i64> {
        Some(self.take::<i32>()? as i64)
    }

    pub fn uleb(&mut self) -> Option<u64> {
        let (mut v, mut shift) = (0u64, 0u32);
        loop {
            let b = self.u8()?;
            if shift < 64 {
                v |= ((b & 0x7f) as u64) << shift;
            }
            if b & 0x80 == 0 {
                return Some(v);
            }
            shift = shift.saturating_add(7);
        }
    }

    pub fn sleb(&mut self) -> Option<i64> {
        let (mut v, mut shift) = (0i64, 0u32);
        loop {
            let b = self.u8()?;
            if shift < 64 {
                v |= ((b & 0x7f) as i64) << shift;
            }
            shift = shift.saturating_add(7);
            if b & 0x80 == 0 {
                return Some(if b & 0x40 != 0 && shift < 64 { v | -1i64 << shift } else { v });
            }
        }
    }

    pub fn skip(&mut self, bytes: u64) -> Option<()> {
        if (self.end.checked_sub(self.at)? as u64) < bytes {
            return None;
        }
        self.at += bytes as usize;
        Some(())
    }

    /// A part of this one: the next `bytes`, which it passes over.
    pub fn part(&mut self, bytes: u64) -> Option<Cursor> {
        let at = self.at;
        self.skip(bytes)?;
        Some(Cursor { at, end: self.at })
    }

    /// A pointer encoded as `how` says; `data` is what data-relative ones are relative to. None as well where it is left out, or is
    /// one that only a look elsewhere in memory would tell.
    pub fn encoded(&mut self, how: u8, data: usize) -> Option<usize> {
        if how == pe::OMIT || how & pe::INDIRECT != 0 {
            return None;
        }
        let here = self.at;
        let v = self.value(how)?;
        Some(match how & pe::TO {
            0 => v,
            pe::TO_ITSELF => v.wrapping_add(here),
            pe::TO_DATA => v.wrapping_add(data),
            _ => return None,
        })
    }

    /// Passes over a pointer encoded as `how` says, wherever it points.
    pub fn pass_encoded(&mut self, how: u8) -> Option<()> {
        if how == pe::OMIT {
            return Some(());
        }
        if how & pe::TO == pe::ALIGNED {
            self.at = self.at.checked_add(7)? & !7;
        }
        self.value(how).map(|_| ())
    }

    /// The number alone, in the format of `how`.
    pub fn value(&mut self, how: u8) -> Option<usize> {
        Some(match how & 15 {
            0 | 4 | 12 => self.u64()? as usize,
            1 => self.uleb()? as usize,
            2 => self.u16()? as usize,
            3 => self.u32()? as usize,
            9 => self.sleb()? as usize,
            10 => self.i16()? as usize,
            11 => self.i32()? as usize,
            _ => return None,
        })
    }
}
