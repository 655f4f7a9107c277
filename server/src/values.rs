//! What the values of arguments may be: keys, tokens and times. Each reader either gives the exact
//! value or a sentence that says what would be right; nothing is rounded, wrapped or clamped.

use fairlock::Token;
use fairlock::protocol::limits;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// A key as the user typed it: any bytes, though an argument cannot hold NUL.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Key(Box<OsStr>);

impl Key {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    pub(crate) fn os_str(&self) -> &OsStr {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Reads a KEY.
pub(crate) fn key(text: &OsStr) -> Result<Key, String> {
    match text.len() {
        0 => Err("a key is not empty".to_owned()),
        length if length > limits::KEY_BYTES => Err(format!(
            "a key has at most {} bytes, this one has {length}",
            limits::KEY_BYTES
        )),
        _ => Ok(Key(text.into())),
    }
}

/// What the keys of a list begin with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Prefix(pub(crate) Vec<u8>);

/// Reads the value of `--prefix`.
pub(crate) fn prefix(text: &OsStr) -> Result<Prefix, String> {
    if text.len() > limits::KEY_BYTES {
        return Err(format!("no key is longer than {} bytes", limits::KEY_BYTES));
    }
    Ok(Prefix(text.as_bytes().to_vec()))
}

/// Reads a TOKEN.
pub(crate) fn token(text: &str) -> Result<Token, String> {
    Some(text)
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse().ok())
        .and_then(Token::new)
        .ok_or_else(|| {
            "a token is a whole number from 1 to 9223372036854775807, as `acquire` prints it"
                .to_owned()
        })
}

/// How long an acquire waits, as `--wait` says it; not waiting is an argument of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    Forever,
    For(Duration),
}

/// Reads the value of `--lease`.
pub(crate) fn lease(text: &str) -> Result<Duration, String> {
    match seconds(text)? {
        0 => Err("a lease is at least 0.001 seconds".to_owned()),
        millis => Ok(Duration::from_millis(millis)),
    }
}

/// Reads a time that may be none.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    seconds(text).map(Duration::from_millis)
}

/// Reads the value of `--wait`.
pub(crate) fn wait(text: &str) -> Result<Wait, String> {
    match seconds(text)? {
        0 if text == "0" => Ok(Wait::Forever),
        0 => Err("say 0 to wait without limit, or --no-wait not to wait at all".to_owned()),
        millis => Ok(Wait::For(Duration::from_millis(millis))),
    }
}

/// Reads seconds with at most three fraction digits, from 0 to a year, as milliseconds.
fn seconds(text: &str) -> Result<u64, String> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let padded = whole.len() > 1 && whole.starts_with('0');
    if padded || !digits(whole) || !digits(fraction) {
        return Err("a time is a number of seconds, such as 30 or 0.25".to_owned());
    }
    if fraction.len() > 3 {
        return Err("a time has at most three digits after the point".to_owned());
    }
    let millis = whole
        .parse::<u64>()
        .ok()
        .and_then(|seconds| seconds.checked_mul(1000))
        .zip(format!("{fraction:0<3}").parse::<u64>().ok())
        .and_then(|(whole, fraction)| whole.checked_add(fraction));
    millis
        .filter(|millis| *millis <= limits::TIME_MAX_MS)
        .ok_or_else(|| {
            format!(
                "a time is at most {} seconds (a year)",
                limits::TIME_MAX_MS / 1000
            )
        })
}

/// Shows a time in seconds, as an argument would say it.
pub(crate) fn show_seconds(time: Duration) -> String {
    let millis = time.as_millis();
    let text = format!("{}.{:03}", millis / 1000, millis % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_or_refused() {
        for (text, millis) in [
            ("30", 30_000),
            ("0.25", 250),
            ("0.001", 1),
            ("1.5", 1500),
            ("31536000", 31_536_000_000),
        ] {
            assert_eq!(lease(text), Ok(Duration::from_millis(millis)), "{text}");
            assert_eq!(show_seconds(Duration::from_millis(millis)), text);
        }
        for text in [
            "",
            "0",
            "0.0",
            "-1",
            "+1",
            "NaN",
            "inf",
            "1e3",
            "0.0001",
            "1.",
            ".5",
            "030",
            " 1",
            "1 s",
            "0x10",
            "31536000.001",
            "99999999999999999999",
            "१",
        ] {
            assert!(lease(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_the_plain_zero_waits_without_limit() {
        assert_eq!(wait("0"), Ok(Wait::Forever));
        assert_eq!(wait("0.5"), Ok(Wait::For(Duration::from_millis(500))));
        for text in ["0.0", "00", "0.000", "-0", "-1", "NaN"] {
            assert!(wait(text).is_err(), "{text}");
        }
    }

    #[test]
    fn tokens_are_those_a_server_can_issue() {
        assert!(token("1").is_ok());
        assert!(token("9223372036854775807").is_ok());
        for text in [
            "",
            "0",
            "-1",
            "+1",
            "1.0",
            "9223372036854775808",
            "99999999999999999999",
            "abc",
        ] {
            assert!(token(text).is_err(), "{text}");
        }
    }

    #[test]
    fn keys_have_1_to_512_bytes() {
        assert!(key(OsStr::new("a")).is_ok());
        assert!(key(OsStr::from_bytes(&[0xFF; 512])).is_ok());
        assert!(key(OsStr::new("")).is_err());
        assert!(key(OsStr::from_bytes(&[b'a'; 513])).is_err());
    }
}
