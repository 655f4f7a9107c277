//! The one spelling of text on the wire: bytes 0x00–0x20, 0x7F and `%` are written `%XX` with
//! upper-case hex digits, every other byte stands for itself. A spelling that escapes what needs no
//! escape is refused, so two spellings are the same text only if they are the same bytes.

/// Why a field is not the spelling of a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpellingError {
    /// There is nothing.
    #[error("empty")]
    Empty,
    /// More bytes than allowed, counted after decoding.
    #[error("too long")]
    TooLong,
    /// A byte that has to be escaped stands there itself.
    #[error("a byte that has to be escaped")]
    BareByte,
    /// `%` without two upper-case hex digits behind it.
    #[error("an escape that is not % and two upper-case hex digits")]
    BadEscape,
    /// `%XX` for a byte that stands for itself.
    #[error("escape of a byte that needs none")]
    NeedlessEscape,
}

const fn needs_escape(byte: u8) -> bool {
    byte <= 0x20 || byte == 0x7F || byte == b'%'
}

/// For each byte whether it has to be escaped.
const ESCAPED: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = needs_escape(byte as u8);
        byte += 1;
    }
    table
};

/// Checks that `field` is the spelling of 1 to `max` bytes.
pub(super) fn check(field: &[u8], max: usize) -> Result<(), SpellingError> {
    if field.is_empty() {
        return Err(SpellingError::Empty);
    }
    let Some(first) = field.iter().position(|byte| ESCAPED[usize::from(*byte)]) else {
        return if field.len() > max {
            Err(SpellingError::TooLong)
        } else {
            Ok(())
        };
    };
    let mut length = first;
    let mut rest = &field[first..];
    while let Some(byte) = rest.first() {
        if *byte == b'%' {
            let digits = rest.get(1..3).ok_or(SpellingError::BadEscape)?;
            let value = (hex(digits[0]).ok_or(SpellingError::BadEscape)? << 4)
                | hex(digits[1]).ok_or(SpellingError::BadEscape)?;
            if !needs_escape(value) {
                return Err(SpellingError::NeedlessEscape);
            }
            rest = &rest[3..];
        } else if ESCAPED[usize::from(*byte)] {
            return Err(SpellingError::BareByte);
        } else {
            rest = &rest[1..];
        }
        length += 1;
    }
    if length > max {
        return Err(SpellingError::TooLong);
    }
    Ok(())
}

/// Appends the spelling of `text`.
pub(super) fn encode(text: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text {
        if ESCAPED[usize::from(*byte)] {
            out.extend_from_slice(&[
                b'%',
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]);
        } else {
            out.push(*byte);
        }
    }
}

/// The text that a checked spelling stands for.
pub(super) fn decode(spelling: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(spelling.len());
    let mut rest = spelling;
    while let [byte, tail @ ..] = rest {
        match tail {
            [high, low, after @ ..] if *byte == b'%' => {
                text.push((hex(*high).unwrap_or(0) << 4) | hex(*low).unwrap_or(0));
                rest = after;
            }
            _ => {
                text.push(*byte);
                rest = tail;
            }
        }
    }
    text
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}
