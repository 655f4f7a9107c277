//! Keys, names and prefixes as fields of a line. Inside the product a key *is* its spelling: each
//! key has exactly one, so comparing spellings compares keys and nothing is decoded on the way.

use super::escape::{self, SpellingError};
use super::limits;
use super::line::Fields;
use super::word;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};

/// A key in its wire spelling, borrowed from the line it came in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyRef<'a>(&'a [u8]);

impl<'a> KeyRef<'a> {
    /// Checks a field of a line.
    ///
    /// # Errors
    /// What makes the field no key: empty, too long, or not the one spelling of its bytes.
    #[inline(never)]
    pub fn parse(field: &'a [u8]) -> Result<Self, SpellingError> {
        escape::check(field, limits::KEY_BYTES)?;
        Ok(KeyRef(field))
    }

    /// A text in which nothing has to be escaped, if its length is that of a key.
    #[inline]
    pub(super) fn of_plain_text(text: &'a [u8]) -> Option<Self> {
        (1..=limits::KEY_BYTES)
            .contains(&text.len())
            .then_some(KeyRef(text))
    }

    /// The next field of a line, if there is one.
    #[inline(always)]
    pub(super) fn next(fields: &mut Fields<'a>) -> Option<Result<Self, SpellingError>> {
        match fields.text(limits::KEY_BYTES) {
            Some(text) => Some(Ok(KeyRef(text))),
            None => fields.next().map(KeyRef::parse),
        }
    }

    /// The bytes as they stand on the wire.
    #[must_use]
    #[inline]
    pub fn spelling(self) -> &'a [u8] {
        self.0
    }

    /// The bytes that the user called the key.
    #[must_use]
    pub fn decode(self) -> Vec<u8> {
        escape::decode(self.0)
    }

    /// The same key, owned.
    #[must_use]
    #[inline]
    pub fn to_key(self) -> Key {
        Key::from_spelling(self.0)
    }
}

impl fmt::Debug for KeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", String::from_utf8_lossy(self.0))
    }
}

/// The number of bytes of a short key, 0 to 23; an enum so that [`Key`] finds room for its own
/// discriminant in the unused values and stays at 24 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[rustfmt::skip]
enum Length {
    L0, L1, L2, L3, L4, L5, L6, L7, L8, L9, L10, L11,
    L12, L13, L14, L15, L16, L17, L18, L19, L20, L21, L22, L23,
}

impl Length {
    #[rustfmt::skip]
    const ALL: [Length; 24] = {
        use Length::*;
        [
            L0, L1, L2, L3, L4, L5, L6, L7, L8, L9, L10, L11,
            L12, L13, L14, L15, L16, L17, L18, L19, L20, L21, L22, L23,
        ]
    };
}

#[derive(Clone)]
enum Repr {
    Short(Short),
    Long(Box<[u8]>),
}

/// In this order, so that the bytes are written and moved in whole words.
#[derive(Clone, Copy)]
#[repr(C)]
struct Short {
    bytes: [u8; 23],
    length: Length,
}

/// A key in its wire spelling, owned: 24 bytes, with no allocation for spellings of up to 23 bytes.
#[derive(Clone)]
pub struct Key(Repr);

const _: () = assert!(size_of::<Key>() == 24);

impl Key {
    /// The key that a user calls `bytes`.
    ///
    /// # Errors
    /// The bytes are none or more than 512.
    pub fn encode(bytes: &[u8]) -> Result<Key, SpellingError> {
        if bytes.is_empty() {
            return Err(SpellingError::Empty);
        }
        if bytes.len() > limits::KEY_BYTES {
            return Err(SpellingError::TooLong);
        }
        if word::text_end(bytes, 0) == bytes.len() {
            // Most keys are spelled as they are.
            return Ok(Key::from_spelling(bytes));
        }
        let mut spelling = Vec::with_capacity(bytes.len());
        escape::encode(bytes, &mut spelling);
        Ok(Key::from_spelling(&spelling))
    }

    #[inline]
    fn from_spelling(spelling: &[u8]) -> Key {
        match Length::ALL.get(spelling.len()) {
            Some(length) => {
                let mut bytes = [0; 23];
                let [first, second, third] = word::three(spelling);
                bytes[..8].copy_from_slice(&first);
                bytes[8..16].copy_from_slice(&second);
                bytes[16..].copy_from_slice(&third[..7]);
                Key(Repr::Short(Short {
                    bytes,
                    length: *length,
                }))
            }
            None => Key(Repr::Long(spelling.into())),
        }
    }

    /// The same key, borrowed.
    #[must_use]
    pub fn as_ref(&self) -> KeyRef<'_> {
        KeyRef(self.spelling())
    }

    /// The bytes as they stand on the wire.
    #[must_use]
    pub fn spelling(&self) -> &[u8] {
        match &self.0 {
            Repr::Short(short) => &short.bytes[..short.length as usize],
            Repr::Long(bytes) => bytes,
        }
    }

    /// Whether it is spelled in another way than the user called it.
    #[cfg(feature = "client")]
    pub(crate) fn is_escaped(&self) -> bool {
        word::find(self.spelling(), 0, b'%').is_some()
    }

    /// The bytes that the user called the key.
    #[must_use]
    pub fn decode(&self) -> Vec<u8> {
        escape::decode(self.spelling())
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.spelling() == other.spelling()
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> std::cmp::Ordering {
        self.spelling().cmp(other.spelling())
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.spelling().hash(state);
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.spelling()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

/// A client's name in its wire spelling, where the lone `-` means that it gave none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameRef<'a>(&'a [u8]);

impl<'a> NameRef<'a> {
    /// No name.
    pub const NONE: NameRef<'static> = NameRef(b"-");

    /// Checks a field of a line.
    ///
    /// # Errors
    /// What makes the field no name.
    pub fn parse(field: &'a [u8]) -> Result<Self, SpellingError> {
        if field != b"%2D" {
            escape::check(field, limits::NAME_BYTES)?;
        }
        Ok(NameRef(field))
    }

    /// The bytes as they stand on the wire.
    #[must_use]
    pub fn spelling(self) -> &'a [u8] {
        self.0
    }

    /// The bytes of the name, or nothing where none was given.
    #[must_use]
    pub fn decode(self) -> Option<Vec<u8>> {
        (self.0 != b"-").then(|| escape::decode(self.0))
    }

    /// Appends the spelling of `name`, cut to the longest one allowed; `-` for an empty one.
    pub fn encode(name: &[u8], out: &mut Vec<u8>) {
        match &name[..name.len().min(limits::NAME_BYTES)] {
            b"" => out.push(b'-'),
            b"-" => out.extend_from_slice(b"%2D"),
            name => escape::encode(name, out),
        }
    }
}

/// What the keys of a list begin with; the lone `-` stands for all keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix<'a>(&'a [u8]);

impl<'a> Prefix<'a> {
    /// All keys.
    pub const ALL: Prefix<'static> = Prefix(b"-");

    /// Checks a field of a line.
    ///
    /// # Errors
    /// What makes the field no prefix.
    pub fn parse(field: &'a [u8]) -> Result<Self, SpellingError> {
        if field != b"%2D" {
            escape::check(field, limits::KEY_BYTES)?;
        }
        Ok(Prefix(field))
    }

    /// The prefix that stands for keys beginning with the spelling `start`.
    #[must_use]
    pub fn of_spelling(start: &'a [u8]) -> Prefix<'a> {
        match start {
            b"" => Prefix::ALL,
            b"-" => Prefix(b"%2D"),
            start => Prefix(start),
        }
    }

    /// The field as it stands on the wire.
    #[must_use]
    pub fn field(self) -> &'a [u8] {
        self.0
    }

    /// What the spelling of a key has to begin with. Escapes are whole units, so the spelling of a
    /// prefix is the prefix of the spelling.
    #[must_use]
    pub fn spelling(self) -> &'a [u8] {
        match self.0 {
            b"-" => b"",
            b"%2D" => b"-",
            start => start,
        }
    }
}

/// A secret in its wire spelling. Its `Debug` does not show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SecretRef<'a>(&'a [u8]);

impl<'a> SecretRef<'a> {
    /// Checks the text behind `auth=`.
    ///
    /// # Errors
    /// What makes it no secret.
    pub fn parse(field: &'a [u8]) -> Result<Self, SpellingError> {
        escape::check(field, limits::SECRET_BYTES)?;
        Ok(SecretRef(field))
    }

    /// The secret itself.
    #[must_use]
    pub fn decode(self) -> Vec<u8> {
        escape::decode(self.0)
    }

    /// Appends the spelling of a secret.
    pub fn encode(secret: &[u8], out: &mut Vec<u8>) {
        escape::encode(secret, out);
    }

    /// The secret as it stands on the wire.
    pub(crate) fn spelling(self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Debug for SecretRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretRef(…)")
    }
}
