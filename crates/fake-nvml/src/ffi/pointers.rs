//! The caller's memory.

use std::ffi::{CStr, c_char};
use std::ptr::NonNull;

use crate::Code;

/// Stands in the C signatures in place of a bare pointer. Only C callers make one, and by
/// NVML's contract it is null or good for what its methods do; that is what makes the
/// methods sound to call.
#[repr(transparent)]
pub struct Pointer<T>(Option<NonNull<T>>);

impl<T> Pointer<T> {
    pub(super) fn is_null(&self) -> bool {
        self.0.is_none()
    }

    fn checked(&self) -> Result<NonNull<T>, Code> {
        self.0.ok_or(Code::InvalidArgument)
    }

    /// Writes one value.
    pub(super) fn put(&self, value: T) -> Result<(), Code> {
        // SAFETY: not null, so the caller has room for one `T` there.
        unsafe { self.checked()?.write(value) };
        Ok(())
    }

    /// Writes several values. The caller of this has made sure that the C caller
    /// announced at least as many places.
    pub(super) fn put_all(&self, values: impl IntoIterator<Item = T>) -> Result<(), Code> {
        let first = self.checked()?;
        for (place, value) in values.into_iter().enumerate() {
            // SAFETY: not null, and within the number of places that the C
            // caller announced.
            unsafe { first.add(place).write(value) };
        }
        Ok(())
    }
}

impl<T: Copy> Pointer<T> {
    /// Reads a value that is then replaced: a count, or a structure whose version the
    /// caller fills in.
    pub(super) fn get(&self) -> Result<T, Code> {
        // SAFETY: not null, so the caller has a `T` there, and all our `T`s
        // are plain numbers, for which any bytes will do.
        Ok(unsafe { self.checked()?.read() })
    }
}

impl Pointer<c_char> {
    /// Writes the text and its final zero into a buffer of `length` bytes.
    pub(super) fn put_text(&self, text: &str, length: u32) -> Result<(), Code> {
        let first = self.checked()?;
        if text.len() >= length as usize {
            return Err(Code::InsufficientSize);
        }
        // The caller has `length` bytes there, and text and zero together are not longer.
        Pointer(Some(first.cast())).put_all(text.bytes().chain([0]))
    }

    /// Reads a text.
    pub(super) fn text(&self) -> Result<&str, Code> {
        // SAFETY: not null, so the caller has a text with a final zero there,
        // which stays as it is during the call.
        let text = unsafe { CStr::from_ptr(self.checked()?.as_ptr()) };
        text.to_str().map_err(|_| Code::InvalidArgument)
    }
}
