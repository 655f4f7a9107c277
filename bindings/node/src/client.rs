//! The client: what its methods in JavaScript call.

use crate::bridge::{Begun, Bridge, bridge};
use crate::convert::{Key, key_bytes, milliseconds, rows, token};
use crate::outcome::Failure;
use fairlock::{Client, Error, FollowMoves};
use napi::bindgen_prelude::{BigInt, Either, Uint8Array};
use napi::{Env, Result};
use napi_derive::napi;
use std::time::Duration;

/// Options of a client; what is not there is left to the core.
#[napi(object, object_to_js = false)]
pub(crate) struct ClientOptions {
    pub servers: Option<Either<String, Vec<String>>>,
    pub name: Option<String>,
    pub secret: Option<Either<String, Uint8Array>>,
    pub secret_file: Option<String>,
    pub connect_timeout_ms: Option<f64>,
    pub retry_for_ms: Option<f64>,
    pub follow_moves: Option<String>,
    pub tls: Option<bool>,
    pub ca_file: Option<String>,
    pub cert_file: Option<String>,
    pub key_file: Option<String>,
    pub server_name: Option<String>,
}

/// Makes a client and gives its number, or says why not.
#[napi(catch_unwind)]
pub(crate) fn new_client(at: u32, options: ClientOptions) -> Result<Either<u32, Failure>> {
    let bridge = bridge(at)?;
    Ok(match build(&bridge, options) {
        Ok(client) => Either::A(bridge.insert_client(client)),
        Err(error) => Either::B(error.into()),
    })
}

fn build(bridge: &Bridge, options: ClientOptions) -> std::result::Result<Client, Error> {
    let mut builder = Client::builder();
    if let Some(event_loop) = bridge.event_loop() {
        builder = builder.event_loop(event_loop);
    }
    builder = match options.servers {
        None => builder,
        Some(Either::A(server)) => builder.servers(server),
        Some(Either::B(servers)) => builder.servers(servers),
    };
    if let Some(name) = options.name {
        builder = builder.name(name);
    }
    builder = match options.secret {
        None => builder,
        Some(Either::A(text)) => builder.secret(text),
        Some(Either::B(bytes)) => builder.secret(&bytes[..]),
    };
    if let Some(path) = options.secret_file {
        builder = builder.secret_file(path);
    }
    if let Some(wanted) = options.tls {
        builder = builder.tls(wanted);
    }
    if let Some(path) = options.ca_file {
        builder = builder.ca_file(path);
    }
    if let Some(path) = options.cert_file {
        builder = builder.cert_file(path);
    }
    if let Some(path) = options.key_file {
        builder = builder.key_file(path);
    }
    if let Some(name) = options.server_name {
        builder = builder.server_name(name);
    }
    if let Some(time) = options.connect_timeout_ms {
        builder = builder.connect_timeout(milliseconds("connectTimeoutMs", time)?);
    }
    if let Some(time) = options.retry_for_ms {
        builder = builder.retry_for(milliseconds("retryForMs", time)?);
    }
    builder = match options.follow_moves.as_deref() {
        None => builder,
        Some("any") => builder.follow_moves(FollowMoves::Any),
        Some("listed") => builder.follow_moves(FollowMoves::Listed),
        Some(other) => {
            return Err(crate::convert::argument(format!(
                "followMoves has to be 'any' or 'listed', not {other:?}"
            )));
        }
    };
    builder.build()
}

/// Ends with the first connection.
#[napi(catch_unwind)]
pub(crate) fn connected(env: &Env, at: u32, client: u32) -> Result<Begun> {
    let bridge = bridge(at)?;
    bridge.call(env, Ok(bridge.client(client)?.connected()))
}

/// Applies what both ways to acquire have in common.
macro_rules! with_terms {
    ($builder:expr, $terms:expr) => {{
        let mut builder = $builder;
        if let Some(lease) = $terms.lease {
            builder = builder.lease(lease);
        }
        if $terms.keep_alive {
            builder = builder.keep_alive();
        }
        if let Some(time) = $terms.max_hold {
            builder = builder.max_hold(time);
        }
        builder
    }};
}

/// The lease, `max_hold` and whether the lock is kept alive, as JavaScript gives them.
type Given = [Option<f64>; 3];

struct Terms {
    lease: Option<Duration>,
    keep_alive: bool,
    max_hold: Option<Duration>,
}

impl Terms {
    fn new([lease_ms, max_hold_ms, keep_alive]: Given) -> std::result::Result<Terms, Error> {
        Ok(Terms {
            lease: optional("leaseMs", lease_ms)?,
            keep_alive: keep_alive.is_some_and(|flag| flag != 0.0),
            max_hold: optional("maxHoldMs", max_hold_ms)?,
        })
    }
}

fn optional(name: &str, time_ms: Option<f64>) -> std::result::Result<Option<Duration>, Error> {
    time_ms.map(|time| milliseconds(name, time)).transpose()
}

/// Ends with a lock.
pub(crate) fn acquire(
    env: &Env,
    bridge: &Bridge,
    client: u32,
    key: &[u8],
    wait_ms: Option<f64>,
    given: Given,
) -> Result<Begun> {
    let acquire = bridge.with_client(client, |client| client.acquire(key))?;
    let acquire = Terms::new(given).and_then(|terms| {
        let acquire = with_terms!(acquire, terms);
        Ok(match optional("waitMs", wait_ms)? {
            Some(wait) => acquire.wait(wait),
            None => acquire,
        })
    });
    bridge.begin(env, acquire, |acquire, teller| {
        Some(acquire.submit(|result| teller.tell(result)))
    })
}

/// Ends with a lock or with null.
pub(crate) fn try_acquire(
    env: &Env,
    bridge: &Bridge,
    client: u32,
    key: &[u8],
    given: Given,
) -> Result<Begun> {
    let acquire = bridge.with_client(client, |client| client.try_acquire(key))?;
    let acquire = Terms::new(given).map(|terms| with_terms!(acquire, terms));
    bridge.begin(env, acquire, |acquire, teller| {
        Some(acquire.submit(|result| teller.tell(result)))
    })
}

/// Releases by token. Ends with whether this token held the key.
#[napi(catch_unwind)]
pub(crate) fn release_token(
    env: &Env,
    at: u32,
    client: u32,
    key: Key<'_>,
    mark: BigInt,
) -> Result<Begun> {
    let bridge = bridge(at)?;
    let client = bridge.client(client)?;
    let call = token(&mark).map(|token| client.release(key_bytes(&key), token));
    bridge.call(env, call)
}

/// Keeps by token. Ends with whether this token holds the key.
#[napi(catch_unwind)]
pub(crate) fn keep_token(
    env: &Env,
    at: u32,
    client: u32,
    key: Key<'_>,
    mark: BigInt,
    lease_ms: f64,
) -> Result<Begun> {
    let bridge = bridge(at)?;
    let client = bridge.client(client)?;
    let call = token(&mark).and_then(|token| {
        let lease = milliseconds("leaseMs", lease_ms)?;
        Ok(client.keep(key_bytes(&key), token, lease))
    });
    bridge.call(env, call)
}

/// Ends with who holds the key.
#[napi(catch_unwind)]
pub(crate) fn inspect(env: &Env, at: u32, client: u32, key: Key<'_>) -> Result<Begun> {
    let bridge = bridge(at)?;
    let client = bridge.client(client)?;
    bridge.call(env, Ok(client.inspect(key_bytes(&key))))
}

/// Ends with who waits for the key.
#[napi(catch_unwind)]
pub(crate) fn waiters(
    env: &Env,
    at: u32,
    client: u32,
    key: Key<'_>,
    limit: Option<f64>,
) -> Result<Begun> {
    let bridge = bridge(at)?;
    let client = bridge.client(client)?;
    let call = rows(limit).map(|limit| client.waiters(key_bytes(&key), limit));
    bridge.call(env, call)
}

/// Ends with a page of held locks.
#[napi(catch_unwind)]
pub(crate) fn locks(
    env: &Env,
    at: u32,
    client: u32,
    prefix: Option<Key<'_>>,
    after: Option<Key<'_>>,
    limit: Option<f64>,
) -> Result<Begun> {
    let bridge = bridge(at)?;
    let client = bridge.client(client)?;
    let call = rows(limit).map(|limit| {
        let prefix = prefix.as_ref().map_or(&b""[..], key_bytes);
        client.locks(prefix, after.as_ref().map(key_bytes), limit)
    });
    bridge.call(env, call)
}

/// Ends with what the server says of itself.
#[napi(catch_unwind)]
pub(crate) fn status(env: &Env, at: u32, client: u32) -> Result<Begun> {
    let bridge = bridge(at)?;
    bridge.call(env, Ok(bridge.client(client)?.status()))
}

/// Ends when the client is closed.
#[napi(catch_unwind)]
pub(crate) fn close(env: &Env, at: u32, client: u32) -> Result<Begun> {
    let bridge = bridge(at)?;
    bridge.call(env, Ok(bridge.client(client)?.close()))
}
