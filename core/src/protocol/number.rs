//! Numbers as the wire spells them: decimal, no sign, no exponent, no leading zero. What does not fit
//! is refused, never rounded, wrapped or clamped.

use super::limits;
use super::line::Fields;
use std::fmt;
use std::time::Duration;

/// A fencing token: never 0, always below 2⁶³, and as a plain number only ever rising.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// The token with this number, if a token can have it.
    #[must_use]
    pub const fn new(number: u64) -> Option<Token> {
        if number == 0 || number >= limits::TOKEN_END {
            None
        } else {
            Some(Token(number))
        }
    }

    /// The token as a number, to be stored and compared by the protected resource.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    #[inline(never)]
    pub(crate) fn parse(field: &[u8]) -> Option<Token> {
        Token::new(parse_u64(field)?)
    }

    /// The next field of a line; the inner `None` where it is no token.
    #[inline(always)]
    #[allow(clippy::option_option)]
    pub(super) fn next(fields: &mut Fields<'_>) -> Option<Option<Token>> {
        match fields.number() {
            Some(number) => Some(Token::new(number)),
            None => fields.next().map(Token::parse),
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.0)
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A length of time in whole milliseconds, as leases, waits and what is left of them are told.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Millis(pub u64);

impl Millis {
    /// The same time as a [`Duration`].
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }

    /// The smallest number of whole milliseconds that is not shorter than `time`.
    #[must_use]
    pub fn at_least(time: Duration) -> Millis {
        Millis(u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }

    /// Seconds with at most three fraction digits; 0 is allowed here.
    pub(crate) fn parse(field: &[u8]) -> Option<Millis> {
        let (whole, fraction) = match memchr::memchr(b'.', field) {
            None => (field, &b""[..]),
            Some(dot) => (&field[..dot], &field[dot + 1..]),
        };
        if whole.len() != field.len() && !(1..=3).contains(&fraction.len()) {
            return None;
        }
        let mut thousandths = 0;
        for place in 0..3 {
            let digit = match fraction.get(place) {
                None => 0,
                Some(digit @ b'0'..=b'9') => u64::from(digit - b'0'),
                Some(_) => return None,
            };
            thousandths = thousandths * 10 + digit;
        }
        parse_u64(whole)?
            .checked_mul(1000)?
            .checked_add(thousandths)
            .map(Millis)
    }

    /// A time of a request: as [`Millis::parse`], but neither 0 nor longer than a year.
    #[inline(never)]
    pub(crate) fn parse_limited(field: &[u8]) -> Option<Millis> {
        Millis::parse(field)
            .filter(|time| (limits::TIME_MIN_MS..=limits::TIME_MAX_MS).contains(&time.0))
    }

    /// The next field of a line as [`Millis::parse_limited`] reads it; the inner `None` where it is no
    /// such time.
    #[inline(always)]
    #[allow(clippy::option_option)]
    pub(super) fn next_limited(fields: &mut Fields<'_>) -> Option<Option<Millis>> {
        match fields.number() {
            Some(seconds) => Some(Millis::of_seconds(seconds)),
            None => fields.next().map(Millis::parse_limited),
        }
    }

    /// So many seconds, if they are allowed in a request.
    #[inline]
    pub(super) fn of_seconds(seconds: u64) -> Option<Millis> {
        let time = Millis(seconds.checked_mul(1000)?);
        (limits::TIME_MIN_MS..=limits::TIME_MAX_MS)
            .contains(&time.0)
            .then_some(time)
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        push_u64(self.0 / 1000, out);
        let thousandths = self.0 % 1000;
        if thousandths != 0 {
            let digits = [
                b'.',
                b'0' + (thousandths / 100) as u8,
                b'0' + (thousandths / 10 % 10) as u8,
                b'0' + (thousandths % 10) as u8,
            ];
            let zeros = digits
                .iter()
                .rev()
                .take_while(|digit| **digit == b'0')
                .count();
            out.extend_from_slice(&digits[..digits.len() - zeros]);
        }
    }
}

/// How long an acquire may wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Wait {
    /// `-`: not at all.
    No,
    /// Up to this long.
    For(Millis),
    /// `0`: without limit.
    Forever,
}

impl Wait {
    #[inline(never)]
    pub(crate) fn parse(field: &[u8]) -> Option<Wait> {
        match field {
            b"-" => Some(Wait::No),
            b"0" => Some(Wait::Forever),
            field => Millis::parse_limited(field).map(Wait::For),
        }
    }

    /// The next field of a line; the inner `None` where it is no wait.
    #[inline(always)]
    #[allow(clippy::option_option)]
    pub(super) fn next(fields: &mut Fields<'_>) -> Option<Option<Wait>> {
        match fields.number() {
            Some(0) => Some(Some(Wait::Forever)),
            Some(seconds) => Some(Millis::of_seconds(seconds).map(Wait::For)),
            None => fields.next().map(Wait::parse),
        }
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        match self {
            Wait::No => out.push(b'-'),
            Wait::For(time) => time.encode(out),
            Wait::Forever => out.push(b'0'),
        }
    }
}

/// Names a request of a client: a number that the client uses once, and where an acquire is sent
/// again the number of the attempt (the first one has none, here 0).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag {
    /// The client's number for the request.
    pub number: u64,
    /// 0 for the first attempt, which is not spelled; then 1, 2, …
    pub attempt: u32,
}

impl Tag {
    /// The tag of a first attempt.
    #[must_use]
    pub const fn first(number: u64) -> Tag {
        Tag { number, attempt: 0 }
    }

    /// The next field of a line, if it is a tag.
    #[inline(always)]
    pub(super) fn next(fields: &mut Fields<'_>) -> Option<Tag> {
        match fields.tag_number() {
            Some(number) => Some(Tag::first(number)),
            None => Tag::parse(fields.next()?),
        }
    }

    /// Reads a field that begins with `#`.
    #[inline(never)]
    pub(crate) fn parse(field: &[u8]) -> Option<Tag> {
        let text = field.strip_prefix(b"#")?;
        let (number, attempt) = match memchr::memchr(b'.', text) {
            None => (text, 0),
            Some(dot) => {
                let attempt = u32::try_from(parse_u64(&text[dot + 1..])?).ok()?;
                if attempt == 0 {
                    return None;
                }
                (&text[..dot], attempt)
            }
        };
        Some(Tag {
            number: parse_u64(number)?,
            attempt,
        })
    }

    #[inline]
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        out.push(b'#');
        push_u64(self.number, out);
        if self.attempt != 0 {
            out.push(b'.');
            push_u64(u64::from(self.attempt), out);
        }
    }
}

/// Names a client instance across all its connections: 128 random bits, 32 hex digits on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub [u8; 16]);

impl ClientId {
    pub(crate) fn parse(field: &[u8]) -> Option<ClientId> {
        let digits: &[u8; 32] = field.try_into().ok()?;
        let mut id = [0; 16];
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            *byte = (high << 4 | low) as u8;
        }
        Some(ClientId(id))
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        for byte in self.0 {
            for digit in [byte >> 4, byte & 15] {
                out.push(b"0123456789abcdef"[usize::from(digit)]);
            }
        }
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientId({self})")
    }
}

/// A decimal number without sign and without a leading zero.
pub(crate) fn parse_u64(field: &[u8]) -> Option<u64> {
    if field.is_empty() || (field[0] == b'0' && field.len() > 1) {
        return None;
    }
    let mut number: u64 = 0;
    if field.len() <= 19 {
        // Nineteen digits always fit, so the common case needs no check for overflow.
        for byte in field {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            number = number * 10 + u64::from(digit);
        }
        return Some(number);
    }
    for byte in field {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(number)
}

/// Appends `number` in decimal.
pub(crate) fn push_u64(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
