//! What stands behind the `?`: keys of any bytes, as text (`key=`) or as hex digits (`key_hex=`), just as the answers
//! spell them, and limits.

use percent_encoding::percent_decode;

/// A query that has been taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Query(Vec<(String, Vec<u8>)>);

/// How many rows an answer has unless it is asked for fewer or more, and the most it has.
pub(super) const ROWS: usize = 100;
pub(super) const MOST_ROWS: usize = 1000;

impl Query {
    /// Takes a query apart; a field that is none of `known` is refused, and one without a value is as one that is absent.
    pub(super) fn parse(text: Option<&str>, known: &[&str]) -> Result<Query, String> {
        let fields = text.unwrap_or_default().split('&');
        let mut query = Query::default();
        for field in fields.filter(|field| !field.is_empty()) {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            let name = String::from_utf8_lossy(&decode(name)).into_owned();
            let bare = name.strip_suffix("_hex").unwrap_or(&name);
            if !known.contains(&bare) || (bare == "limit" && name != bare) {
                return Err(format!(
                    "there is no {name:?} here, but {}",
                    known.join(", ")
                ));
            }
            if query
                .0
                .iter()
                .any(|(other, _)| other.strip_suffix("_hex").unwrap_or(other) == bare)
            {
                return Err(format!("{bare} is given twice"));
            }
            query.0.push((name, decode(value)));
        }
        query.0.retain(|(_, value)| !value.is_empty());
        Ok(query)
    }

    /// The bytes of a key or a part of one.
    pub(super) fn bytes(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        for (given, value) in &self.0 {
            if given == name {
                return Ok(Some(value.clone()));
            }
            if given.strip_suffix("_hex") == Some(name) {
                let wrong = || format!("{given} is not made of pairs of hex digits");
                return from_hex(value).map(Some).ok_or_else(wrong);
            }
        }
        Ok(None)
    }

    /// How many rows are wanted.
    pub(super) fn limit(&self) -> Result<usize, String> {
        let Some((_, value)) = self.0.iter().find(|(name, _)| name == "limit") else {
            return Ok(ROWS);
        };
        let number = std::str::from_utf8(value).ok();
        number
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|text| text.parse().ok())
            .filter(|limit| (1..=MOST_ROWS).contains(limit))
            .ok_or_else(|| format!("limit is a whole number between 1 and {MOST_ROWS}"))
    }
}

fn decode(text: &str) -> Vec<u8> {
    percent_decode(text.replace('+', " ").as_bytes()).collect()
}

fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Result<Option<Vec<u8>>, String> {
        Query::parse(Some(text), &["key", "limit"])?.bytes("key")
    }

    #[test]
    fn keys_have_any_bytes_as_text_or_as_hex() {
        for (text, expected) in [
            ("key=a", &b"a"[..]),
            ("key=caf%C3%A9+bar", "café bar".as_bytes()),
            ("key=%FF%00%26%3D", b"\xff\0&="),
            ("key=a=b", b"a=b"),
            ("limit=5&key=100%", b"100%"),
            ("key_hex=ff00Ab", b"\xff\0\xab"),
        ] {
            assert_eq!(bytes(text), Ok(Some(expected.to_vec())), "{text}");
        }
        for absent in ["", "key=", "key", "key_hex=&limit="] {
            assert_eq!(bytes(absent), Ok(None), "{absent}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for wrong in [
            "kee=a",
            "key=a&key=b",
            "key=a&key_hex=61",
            "key_hex=f",
            "key_hex=xy",
            "limit_hex=31",
        ] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        let limit = |text: &str| Query::parse(Some(text), &["limit"])?.limit();
        assert_eq!((limit(""), limit("limit=")), (Ok(ROWS), Ok(ROWS)));
        assert_eq!(limit("limit=1000"), Ok(1000));
        for wrong in [
            "limit=0",
            "limit=1001",
            "limit=-1",
            "limit=%2B1",
            "limit=1.5",
            "limit=99999999999999999999",
        ] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }
}
