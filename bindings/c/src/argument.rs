//! What C hands in, made into what Rust can trust, or into FAIRLOCK_INVALID_ARGUMENT.

use crate::report::{Failure, Outcome};
use fairlock::Token;
use std::ffi::{CStr, c_char, c_void};
use std::slice;

fn missing(name: &str) -> Failure {
    Failure::argument(format!("`{name}` is NULL"))
}

/// A handle that is only read.
///
/// # Safety
/// `pointer` is NULL or points to a live `T` that stays alive for `'a`.
pub(crate) unsafe fn borrow<'a, T>(pointer: *const T, name: &str) -> Outcome<&'a T> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_ref() }.ok_or_else(|| missing(name))
}

/// A handle that C gives back; `None` for NULL.
///
/// # Safety
/// `pointer` is NULL or came from [`Box::into_raw`] and is not used again.
pub(crate) unsafe fn take<T>(pointer: *mut T) -> Option<Box<T>> {
    // SAFETY: as the caller promises.
    (!pointer.is_null()).then(|| unsafe { Box::from_raw(pointer) })
}

/// Where a result goes. It is emptied at once, so that it holds nothing wild when the call fails.
///
/// # Safety
/// `pointer` is NULL or may be written for `'a`, by nobody else.
pub(crate) unsafe fn output<'a, T: Copy>(
    pointer: *mut T,
    empty: T,
    name: &str,
) -> Outcome<&'a mut T> {
    if pointer.is_null() {
        return Err(missing(name));
    }
    // SAFETY: as the caller promises; a `Copy` type has no old value to drop, so a variable that was
    // never set may be written over.
    unsafe {
        pointer.write(empty);
        Ok(&mut *pointer)
    }
}

/// Bytes with a length.
///
/// # Safety
/// `pointer` is NULL or `length` bytes can be read there for `'a`.
pub(crate) unsafe fn bytes<'a>(
    pointer: *const c_void,
    length: usize,
    name: &str,
) -> Outcome<&'a [u8]> {
    if pointer.is_null() {
        return Err(missing(name));
    }
    if isize::try_from(length).is_err() {
        return Err(Failure::argument(format!(
            "`{name}` cannot be {length} bytes long"
        )));
    }
    // SAFETY: as the caller promises, and the length is one that a slice can have.
    Ok(unsafe { slice::from_raw_parts(pointer.cast(), length) })
}

/// A string that may be left away.
///
/// # Safety
/// `pointer` is NULL or a string that ends with NUL, readable for `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Outcome<Option<&'a str>> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str()
        .map(Some)
        .map_err(|_| Failure::argument(format!("`{name}` is not UTF-8")))
}

/// A token, which is never 0.
pub(crate) fn token(number: u64) -> Outcome<Token> {
    Token::new(number).ok_or_else(|| Failure::argument(format!("{number} is not a token")))
}

/// A struct of options that begins with its size, so that it can grow: fields that the caller's
/// header did not know keep their defaults, fields that this library does not know must be zero.
///
/// # Safety
/// `pointer` is NULL or points to as many readable bytes as the `usize` at its beginning says, laid
/// out as a `T` of some version. Every pattern of bytes is a `T`.
pub(crate) unsafe fn sized<T: Copy>(
    pointer: *const T,
    defaults: T,
    least: usize,
    name: &str,
) -> Outcome<T> {
    if pointer.is_null() {
        return Ok(defaults);
    }
    // SAFETY: the size is the first field of every version.
    let size = unsafe { pointer.cast::<usize>().read() };
    if size < least || size > 4096 {
        return Err(Failure::argument(format!(
            "`{name}.size` is {size}; begin with the INIT macro of the header"
        )));
    }
    // SAFETY: the caller promises that many bytes.
    let given = unsafe { slice::from_raw_parts(pointer.cast::<u8>(), size) };
    let known = size.min(size_of::<T>());
    if given[known..].iter().any(|byte| *byte != 0) {
        return Err(Failure::argument(format!(
            "`{name}` sets an option that this version of the library does not know"
        )));
    }
    let mut options = defaults;
    // SAFETY: `known` bytes can be read there and fit here, the two do not overlap, and any bytes
    // make a `T`.
    unsafe {
        std::ptr::copy_nonoverlapping(given.as_ptr(), (&raw mut options).cast(), known);
    }
    Ok(options)
}
