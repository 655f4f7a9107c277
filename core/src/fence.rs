//! For the protected resource: refuses whoever comes with a token older than the last one seen.

use crate::error::{Error, ErrorKind};
use crate::protocol::Token;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Remembers the highest token seen of each key and refuses smaller ones.
///
/// A lock service alone cannot stop a holder that stood still past the end of its lease and writes on
/// when it wakes. The resource can: each grant has a higher token than the grants before it, so a
/// resource that remembers the highest one knows an old holder when it comes. Use a `Fence` where
/// the writes happen. This one lives in memory; where the resource outlives the process, store the
/// mark in the resource itself, in the same transaction as the write
/// (`UPDATE … SET token = ? WHERE token <= ?`), as the examples do.
///
/// ```
/// use fairlock::{ErrorKind, Fence, Token};
///
/// let fence = Fence::new();
/// let (older, newer) = (Token::new(1).unwrap(), Token::new(2).unwrap());
/// fence.check("order:42", newer)?;
/// fence.check("order:42", newer)?; // the same holder again
/// assert_eq!(fence.check("order:42", older).unwrap_err().kind(), &ErrorKind::StaleToken);
/// # Ok::<(), fairlock::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Fence {
    highest: Mutex<HashMap<Box<[u8]>, Token>>,
}

impl Fence {
    /// A fence that has seen nothing.
    #[must_use]
    pub fn new() -> Fence {
        Fence::default()
    }

    /// Lets `token` pass if it is at least the highest one seen of `key`, and remembers it. May be
    /// called from any thread; never blocks for long.
    ///
    /// # Errors
    /// [`ErrorKind::StaleToken`] if a higher token of this key has been seen.
    pub fn check(&self, key: impl AsRef<[u8]>, token: Token) -> Result<(), Error> {
        let key = key.as_ref();
        let mut highest = self.highest.lock().unwrap_or_else(PoisonError::into_inner);
        match highest.get_mut(key) {
            Some(seen) if token < *seen => Err(Error::new(
                ErrorKind::StaleToken,
                format!(
                    "token {token} is older than {seen}, the highest seen of this key: its holder no longer has the lock and must not write"
                ),
            )),
            Some(seen) => {
                *seen = token;
                Ok(())
            }
            None => {
                highest.insert(key.into(), token);
                Ok(())
            }
        }
    }

    /// The highest token seen of `key`.
    pub fn highest(&self, key: impl AsRef<[u8]>) -> Option<Token> {
        let highest = self.highest.lock().unwrap_or_else(PoisonError::into_inner);
        highest.get(key.as_ref()).copied()
    }

    /// Forgets `key`, for resources that are gone. A token of it that comes later passes.
    pub fn forget(&self, key: impl AsRef<[u8]>) {
        let mut highest = self.highest.lock().unwrap_or_else(PoisonError::into_inner);
        highest.remove(key.as_ref());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> Token {
        Token::new(number).expect("a small number")
    }

    #[test]
    fn rule_4_10_smaller_tokens_are_refused_key_by_key() {
        let fence = Fence::new();
        fence.check("a", token(5)).expect("first");
        fence.check("a", token(5)).expect("the same holder");
        fence.check("b", token(3)).expect("another key");
        let error = fence.check("a", token(4)).expect_err("older");
        assert_eq!(error.kind(), &ErrorKind::StaleToken);
        fence.check("a", token(6)).expect("newer");
        assert_eq!(fence.highest("a"), Some(token(6)));
        fence.forget("a");
        assert_eq!(fence.highest("a"), None);
    }
}
