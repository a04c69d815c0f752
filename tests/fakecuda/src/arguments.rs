//! Pointers that programs pass: read and written as the API says, in no other way.

/// Where an answer goes.
#[repr(transparent)]
pub struct Out<T>(*mut T);

/// What is read, one or several.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Out<T> {}
impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for In<T> {}

impl<T: Copy> Out<T> {
    pub fn to(variable: &mut T) -> Out<T> {
        Out(variable)
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Nothing where the caller does not want it.
    pub fn set(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the caller's variable.
            unsafe { self.0.write_unaligned(value) }
        }
    }

    pub fn get(self) -> T {
        // SAFETY: the caller's variable.
        unsafe { self.0.read_unaligned() }
    }

    /// The same place as another type's: the API has several for one argument.
    pub fn of<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

impl Out<u8> {
    /// Text of so many bytes at most, with its zero.
    pub fn text(self, len: i32, text: &[u8]) {
        let whole = text.iter().copied().take((len as usize).saturating_sub(1)).chain([0]);
        for (i, byte) in whole.enumerate().take(len as usize) {
            // SAFETY: the caller's buffer of `len` bytes.
            unsafe { self.0.add(i).write(byte) }
        }
    }
}

impl<T: Copy> In<T> {
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub fn get(self) -> T {
        self.at(0)
    }

    pub fn at(self, i: usize) -> T {
        // SAFETY: the caller's variables, of which there are so many.
        unsafe { self.0.add(i).read_unaligned() }
    }

    /// The same place, where an answer goes too.
    pub fn place(self) -> Out<T> {
        Out(self.0.cast_mut())
    }

    pub fn is_at_or_beyond<U>(self, end: In<U>) -> bool {
        self.0.addr() >= end.0.addr()
    }

    /// What lies so many bytes on, in a union.
    pub fn inside<U>(self, bytes: usize) -> In<U> {
        In(self.0.wrapping_byte_add(bytes).cast())
    }
}

impl In<libc::c_char> {
    pub fn text<'a>(self) -> &'a [u8] {
        // SAFETY: the caller's text.
        unsafe { std::ffi::CStr::from_ptr(self.0) }.to_bytes()
    }
}

/// A variable of the environment. Not by the standard library, which allocates.
pub fn variable(name: &std::ffi::CStr) -> Option<&'static [u8]> {
    // SAFETY: the C library's text, which no test changes.
    unsafe {
        let text = libc::getenv(name.as_ptr());
        (!text.is_null()).then(|| std::ffi::CStr::from_ptr(text).to_bytes())
    }
}

/// Its number.
pub fn number(name: &std::ffi::CStr) -> Option<u64> {
    std::str::from_utf8(variable(name)?).ok()?.parse().ok()
}
