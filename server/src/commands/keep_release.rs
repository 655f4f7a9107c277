//! `fairlock keep` and `fairlock release`: say nothing if it went well, as a script likes it.

use super::look::tell_of_spelling;
use crate::arguments::{Keep, Release};
use crate::exit::{self, Failure};
use crate::text;
use crate::values::Key;
use fairlock::{Client, Token};

/// Lets the lease of a lock begin again.
pub(crate) fn keep(arguments: &Keep) -> Result<u8, Failure> {
    let client = arguments.connection.client()?;
    let held = client
        .keep(arguments.key.bytes(), arguments.token, arguments.lease)
        .call()?;
    outcome(held, &client, &arguments.key, arguments.token)
}

/// Frees a lock.
pub(crate) fn release(arguments: &Release) -> Result<u8, Failure> {
    let client = arguments.connection.client()?;
    let held = client
        .release(arguments.key.bytes(), arguments.token)
        .call()?;
    outcome(held, &client, &arguments.key, arguments.token)
}

fn outcome(held: bool, client: &Client, key: &Key, token: Token) -> Result<u8, Failure> {
    if held {
        return Ok(exit::OK);
    }
    tell_of_spelling(client, key.bytes());
    let key = text::key(key.bytes());
    Err(Failure::new(
        exit::LOST,
        format_args!("the token {token} does not hold {key} (any more)"),
    ))
}
