//! `fairlock keep` and `fairlock release`: say nothing if it went well, as a script likes it.

use crate::arguments::{Keep, Release};
use crate::exit::{self, Failure};
use crate::text;
use crate::values::Key;
use fairlock::Token;

/// Lets the lease of a lock begin again.
pub(crate) fn keep(arguments: &Keep) -> Result<u8, Failure> {
    let client = arguments.connection.client()?;
    let held = client
        .keep(arguments.key.bytes(), arguments.token, arguments.lease)
        .call()?;
    outcome(held, &arguments.key, arguments.token)
}

/// Frees a lock.
pub(crate) fn release(arguments: &Release) -> Result<u8, Failure> {
    let client = arguments.connection.client()?;
    let held = client
        .release(arguments.key.bytes(), arguments.token)
        .call()?;
    outcome(held, &arguments.key, arguments.token)
}

fn outcome(held: bool, key: &Key, token: Token) -> Result<u8, Failure> {
    if held {
        return Ok(exit::OK);
    }
    let key = text::safe(key.bytes());
    Err(Failure::new(
        exit::LOST,
        format_args!("the token {token} does not hold {key} (any more)"),
    ))
}
