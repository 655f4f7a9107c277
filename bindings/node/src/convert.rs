//! What JavaScript gives, as the crate wants it: keys, tokens and milliseconds.

use fairlock::{DEFAULT_ROWS, Error, ErrorKind, Token};
use napi::bindgen_prelude::{BigInt, Either, Uint8ArraySlice};
use std::time::Duration;

/// Text or bytes. Text with half of a surrogate pair is refused by `lib/arguments.js`.
pub(crate) type Key<'a> = Either<String, Uint8ArraySlice<'a>>;

pub(crate) fn key_bytes<'a>(key: &'a Key<'_>) -> &'a [u8] {
    match key {
        Either::A(text) => text.as_bytes(),
        Either::B(bytes) => bytes,
    }
}

/// A time that cannot be said in a `Duration`, or that would become zero by rounding, is refused.
pub(crate) fn milliseconds(name: &str, value: f64) -> Result<Duration, Error> {
    Duration::try_from_secs_f64(value / 1000.0)
        .ok()
        .filter(|duration| duration.is_zero() == (value == 0.0))
        .ok_or_else(|| argument(format!("{name} has to be a number of milliseconds, neither negative nor without end; it is {value}")))
}

pub(crate) fn token(value: &BigInt) -> Result<Token, Error> {
    let (negative, number, lossless) = value.get_u64();
    (!negative && lossless)
        .then(|| Token::new(number))
        .flatten()
        .ok_or_else(|| argument("token has to be a number that a lock was granted with: more than 0n and less than 2n ** 63n".to_owned()))
}

/// `max_hold` is `maxHold` in JavaScript.
pub(crate) fn in_camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let (first, rest) = word.split_at(1.min(word.len()));
        camel += &first.to_ascii_uppercase();
        camel += rest;
    }
    camel
}

/// How many rows a list has at most; which numbers are sensible the core knows.
pub(crate) fn rows(limit: Option<f64>) -> Result<u32, Error> {
    let Some(value) = limit else {
        return Ok(DEFAULT_ROWS);
    };
    let whole = value as u32;
    (f64::from(whole) == value).then_some(whole).ok_or_else(|| {
        argument(format!(
            "limit has to be a whole number, not negative and not huge; it is {value}"
        ))
    })
}

pub(crate) fn argument(text: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, text)
}
