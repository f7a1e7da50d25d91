//! The caller's memory.
//!
//! These types stand in the C signatures in place of bare pointers. Only C
//! callers make them, and by NVML's contract each is null or good for what its
//! methods do; that is what makes the methods sound to call.

use std::ffi::{CStr, c_char};

use crate::Code;

/// Where one value goes.
#[repr(transparent)]
pub struct Out<T>(*mut T);

/// Where a value is read and then replaced: a count, or a structure whose
/// version the caller fills in.
#[repr(transparent)]
pub struct InOut<T>(*mut T);

/// Where several values go.
#[repr(transparent)]
pub struct Array<T>(*mut T);

/// Where a text goes.
#[repr(transparent)]
pub struct TextOut(*mut c_char);

/// A text from the caller.
#[repr(transparent)]
pub struct TextIn(*const c_char);

impl<T> Out<T> {
    pub(super) fn put(&self, value: T) -> Result<(), Code> {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: not null, so the caller has room for one `T` there.
        unsafe { self.0.write(value) };
        Ok(())
    }
}

impl<T: Copy> InOut<T> {
    pub(super) fn get(&self) -> Result<T, Code> {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: not null, so the caller has a `T` there, and all our `T`s
        // are plain numbers, for which any bytes will do.
        Ok(unsafe { self.0.read() })
    }

    pub(super) fn put(&self, value: T) -> Result<(), Code> {
        Out(self.0).put(value)
    }
}

impl<T> Array<T> {
    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Fills the first places. The caller of this has made sure that the C
    /// caller announced at least as many.
    pub(super) fn put(&self, values: impl Iterator<Item = T>) -> Result<(), Code> {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        for (place, value) in values.enumerate() {
            // SAFETY: not null, and within the number of places that the C
            // caller announced.
            unsafe { self.0.add(place).write(value) };
        }
        Ok(())
    }
}

impl TextOut {
    /// Writes the text and its final zero into a buffer of `length` bytes.
    pub(super) fn put(&self, text: &str, length: u32) -> Result<(), Code> {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        if text.len() >= length as usize {
            return Err(Code::InsufficientSize);
        }
        // SAFETY: not null, so the caller has `length` bytes there, and text
        // and zero together are not longer.
        unsafe {
            self.0
                .copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
            self.0.add(text.len()).write(0);
        }
        Ok(())
    }
}

impl TextIn {
    pub(super) fn get(&self) -> Result<&str, Code> {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: not null, so the caller has a text with a final zero there,
        // which stays as it is during the call.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|_| Code::InvalidArgument)
    }
}
